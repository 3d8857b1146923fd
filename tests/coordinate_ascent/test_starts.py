"""Eigenpairs for the starts."""

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from contrastive_lvm import ContrastiveLVM
from contrastive_lvm.coordinate_ascent.starts import leading_eigenpairs

relaxed = settings(deadline=None)  # machines differ


@relaxed
@given(st.integers(1, 30), st.integers(0, 30), st.integers(0, 2**32 - 1))
def test_leading_eigenpairs_are_exact_in_few_dimensions(D: int, rank: int, seed: int) -> None:
    rank = min(rank, D)
    A = np.random.default_rng(seed).standard_normal((D, D))
    A = A @ A.T
    values, V = leading_eigenpairs(lambda M: A @ M, D, rank)
    expected = np.linalg.eigvalsh(A)[::-1][:rank]
    np.testing.assert_allclose(values, expected, atol=1e-9 * max(1.0, float(np.trace(A))))
    np.testing.assert_allclose(A @ V, V * values, atol=1e-8 * max(1.0, float(np.trace(A))))
    np.testing.assert_allclose(V.T @ V, np.eye(rank), atol=1e-9)


@pytest.mark.parametrize("rank", [1, 4])
def test_leading_eigenpairs_by_iteration(rank: int) -> None:
    """Above the dense limit: subspace iteration finds well separated pairs."""
    rng = np.random.default_rng(0)
    Q = np.linalg.qr(rng.standard_normal((600, 600)))[0]
    spectrum = np.r_[100.0, 60.0, 30.0, 20.0, np.linspace(2.0, 0.0, 596)]
    A = (Q * spectrum) @ Q.T
    values, V = leading_eigenpairs(lambda M: A @ M, 600, rank)
    np.testing.assert_allclose(values, spectrum[:rank], rtol=1e-6)
    np.testing.assert_allclose(np.abs((V * Q[:, :rank]).sum(axis=0)), 1.0, atol=1e-6)


def test_an_automatic_block_stops_at_the_variance_of_the_background() -> None:
    # Six more dimensions of the target, which two have no room for, outweigh all that is shared.
    rng = np.random.default_rng(0)
    shared, own = (np.linalg.qr(rng.normal(size=(40, k)))[0] for k in (12, 8))
    S, W = shared * 0.8 ** np.arange(12), 10.0 * own
    noise = 0.05 * rng.normal(size=(700, 40))
    X = rng.normal(size=(400, 12)) @ S.T + rng.normal(size=(400, 8)) @ W.T + noise[:400]
    B = rng.normal(size=(300, 12)) @ S.T + noise[400:]
    model = ContrastiveLVM(n_target=2).fit(X, background=B)
    basis = np.linalg.qr(model.shared_components_.T)[0]
    centred = B - B.mean(axis=0)
    assert ((centred @ basis) ** 2).sum() > 0.97 * (centred**2).sum()
