"""The canonical gauge: the same covariance, whatever rotation the loadings came in."""

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from contrastive_lvm.linalg.gauge import canonical, canonical_rotation
from tests.oracles import Array

relaxed = settings(deadline=None)  # machines differ


blocks = st.tuples(st.integers(1, 12), st.integers(1, 5), st.integers(0, 2**32 - 1)).map(
    lambda drawn: np.random.default_rng(drawn[2]).standard_normal((drawn[0] + drawn[1], drawn[1]))
)


@relaxed
@given(blocks, st.floats(1e-6, 1e6))
def test_canonical_loadings_keep_the_covariance(block: Array, scale: float) -> None:
    block = scale * block
    turned = canonical(block)
    assert turned.shape == block.shape
    product = block @ block.T
    np.testing.assert_allclose(turned @ turned.T, product, atol=1e-10 * np.abs(product).max())
    gram = turned.T @ turned
    sizes = np.diag(gram)
    np.testing.assert_allclose(gram, np.diag(sizes), atol=1e-10 * sizes.max())
    assert (np.diff(sizes) <= 1e-12 * sizes.max()).all()
    assert (turned.max(axis=0) >= (1.0 - 2e-6) * -turned.min(axis=0)).all()


@relaxed
@given(blocks, st.integers(0, 2**32 - 1))
def test_canonical_loadings_do_not_depend_on_rotation(block: Array, seed: int) -> None:
    K = block.shape[1]
    sizes = np.linalg.svd(block, compute_uv=False)
    if K > 1 and (-np.diff(sizes)).min() < 1e-2 * sizes[0]:
        return  # equal variances leave the rotation free
    Q = np.linalg.qr(np.random.default_rng(seed).standard_normal((K, K)))[0]
    expected = canonical(block)
    largest = np.sort(np.abs(expected), axis=0)[-2:]
    if ((largest[1] - largest[0]) < 1e-4 * largest[1]).any():
        return  # a near tie of the largest loadings, tested by itself
    np.testing.assert_allclose(canonical(block @ Q), expected, atol=1e-8 * sizes[0])


@pytest.mark.parametrize("wobble", [0.0, 1e-9, -1e-9])
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_the_first_of_tied_largest_loadings_is_positive(wobble: float, sign: float) -> None:
    column = sign * np.array([[0.5], [-2.0], [2.0 + wobble], [1.0]])
    np.testing.assert_allclose(canonical(column), [[-0.5], [2.0], [-2.0], [-1.0]], atol=1e-8)


def test_canonical_of_empty_and_zero_blocks_and_of_columns_of_their_own() -> None:
    assert canonical(np.empty((4, 0))).shape == (4, 0)
    np.testing.assert_array_equal(canonical(np.zeros((4, 2))), np.zeros((4, 2)))
    L = np.random.default_rng(0).standard_normal((6, 5))
    kept = L @ canonical_rotation(L, keep_columns=True)
    order = np.argsort(-(L**2).sum(axis=0))
    np.testing.assert_allclose(np.abs(kept), np.abs(L[:, order]))
    assert (kept[np.abs(kept).argmax(axis=0), np.arange(5)] > 0).all()
