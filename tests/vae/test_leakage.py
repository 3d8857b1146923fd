"""What shared latents give away: the measure and the penalty."""

import itertools

import numpy as np
import pytest

import contrastive_lvm as clvm
from tests.vae.autoencoders import DATA, known, quick

pytest.importorskip("jax", reason="the extra jax is not installed")

from contrastive_lvm.vae.leak_penalty import (
    BANDWIDTHS,
    dependence,
    discrepancy,
)


def plain_discrepancy(a: np.ndarray, b: np.ndarray) -> float:
    """Over all pairs of different rows, one pair at a time."""

    def kernel(u: np.ndarray, v: np.ndarray) -> float:
        square = ((u - v) ** 2).sum() / (2.0 * len(u))
        return float(np.mean([np.exp(-square / width) for width in BANDWIDTHS]))

    def mean(u: np.ndarray, v: np.ndarray, *, same: bool) -> float:
        pairs = [(i, j) for i in range(len(u)) for j in range(len(v)) if not (same and i == j)]
        return float(np.mean([kernel(u[i], v[j]) for i, j in pairs]))

    return mean(a, a, same=True) + mean(b, b, same=True) - 2.0 * mean(a, b, same=False)


def test_the_discrepancy_is_that_of_all_pairs() -> None:
    import jax

    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((9, 3)), 1.0 + rng.standard_normal((7, 3))
    assert float(jax.jit(discrepancy)(a, b)) == pytest.approx(plain_discrepancy(a, b), abs=1e-5)


def test_the_dependence_is_that_of_all_quadruples() -> None:
    """Its definition: an average over four different rows."""
    import jax

    rng = np.random.default_rng(0)
    a = rng.standard_normal((6, 2))
    b = a[:, :1] + 0.1 * rng.standard_normal((6, 1))

    def kernel(rows: np.ndarray) -> np.ndarray:
        square = ((rows[:, None] - rows) ** 2).sum(axis=2) / (2.0 * rows.shape[1])
        return np.asarray(np.mean([np.exp(-square / width) for width in BANDWIDTHS], axis=0))

    K, L = kernel(a), kernel(b)
    terms = [
        K[i, j] * (L[i, j] + L[q, r] - 2.0 * L[i, q])
        for i, j, q, r in itertools.permutations(range(6), 4)
    ]
    assert float(jax.jit(dependence)(a, b)) == pytest.approx(np.mean(terms), abs=1e-5)


@pytest.mark.slow
def test_separation_makes_shared_latents_alike() -> None:
    """A target of more dimensions than are its own: its shared latents stand apart, at a price."""
    rng = np.random.default_rng(0)
    S, W = rng.standard_normal((2, 8)), 2.0 * rng.standard_normal((3, 8))
    X = rng.standard_normal((300, 2)) @ S + np.abs(rng.standard_normal((300, 3))) @ W
    B = rng.standard_normal((200, 2)) @ S
    X, B = (rows + 0.3 * rng.standard_normal(rows.shape) for rows in (X, B))
    found = []
    for weight in (0.0, 100.0):
        model = quick(max_epochs=100, learning_rate=0.01, separation=weight).fit(X, background=B)
        shared = model.latents(X).shared, model.latents(B, of="background").shared
        found.append(plain_discrepancy(*(z[:100] for z in shared)))
    assert found[1] < 0.5 * found[0]


class Known:
    """A model whose latents are given."""

    def __init__(self, *, leaks: bool) -> None:
        self.leaks = leaks

    def latents(self, X: np.ndarray, of: str = "target") -> clvm.Latents:
        t, z = X[:, :2], X[:, 2:]
        if of == "background":
            return clvm.Latents(None, None, z, z, z)
        return clvm.Latents(t, t, z + (t if self.leaks else 0.0), z, z)


@pytest.mark.parametrize("leaks", [False, True])
def test_leakage_is_seen(*, leaks: bool) -> None:
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, 400)
    X = rng.standard_normal((400, 4)) * 0.5
    X[:, :2] += 3.0 * np.array([[0, 0], [1, 0], [0, 1]])[labels]
    B = rng.standard_normal((300, 4)) * 0.5
    found = clvm.leakage(Known(leaks=leaks), X, B, labels=labels)
    assert found.label_accuracy_of_target is not None
    assert found.excess is not None
    assert found.label_accuracy_of_target > 0.95
    assert (found.set_auc > 0.8) == leaks
    assert (found.target_r2 > 0.5) == leaks
    assert (found.excess > 0.3) == leaks
    assert clvm.leakage(Known(leaks=leaks), X, B).label_accuracy is None


@pytest.mark.slow
def test_leakage_refuses_what_it_cannot_judge() -> None:
    with pytest.raises(ValueError, match="labels have shape"):
        clvm.leakage(known(), DATA.target, DATA.background, labels=[1, 2])
    with pytest.raises(ValueError, match="n_neighbors=20 and 5 folds need"):
        clvm.leakage(known(), DATA.target[:30], DATA.background)
