"""The change of latents between blocks against the part of the bound that it moves."""

import numpy as np
import pytest

import contrastive_lvm as clvm
from contrastive_lvm.arrays import Array
from contrastive_lvm.coordinate_ascent.mixed_latents import best_mixing, blocks_within
from contrastive_lvm.coordinate_ascent.tied_means import TiedMeans
from contrastive_lvm.linalg import packed
from contrastive_lvm.linalg.loadings import Loadings, PackedCovariance
from contrastive_lvm.model import LoadingBlock, Model


@pytest.mark.parametrize("loadings", ["points", "uncertain"])
def test_no_other_mixing_has_a_greater_bound(loadings: str) -> None:
    rng = np.random.default_rng(8)
    D, K, u, h = 7, 5, np.array([1, 4]), np.array([0, 2])
    root = rng.normal(size=(D, K, K)) * (0.5 if loadings == "uncertain" else 0.0)
    C = root @ root.transpose(0, 2, 1)
    i, j = packed.pair_indices(K)
    cov = PackedCovariance(np.ascontiguousarray(C[:, i, j].T), np.zeros(D), K)
    L, rows = rng.normal(size=(D, K)), rng.normal(size=(20, K))
    latents, precision = rows.T @ rows, rng.gamma(2.0, size=(D, K))
    means = [rng.normal(size=D) for _ in range(2)]
    tied = TiedMeans(rng.normal(size=(2, D)), rng.normal(size=(2, K)), rng.gamma(2.0, size=D))

    def bound(R: Array) -> float:
        inverse, moved = np.linalg.inv(R), R.T @ C @ R
        value = -0.5 * np.trace(inverse @ latents @ inverse.T)
        square = (L @ R) ** 2 + moved.diagonal(axis1=1, axis2=2)
        value -= 0.5 * (precision * square)[:, u].sum()
        for mean, center, place in zip(means, tied.centers, tied.places, strict=True):
            apart = (mean - center - L @ R @ place) ** 2 + place @ moved @ place
            value -= 0.5 * float(tied.precision @ apart)
        return float(value)

    given = Loadings(L, cov if loadings == "uncertain" else None)
    best = best_mixing(u, h, given, latents, precision, means, tied)
    assert bound(best) > bound(np.eye(K))
    for _ in range(5):
        other = best.copy()
        other[np.ix_(h, u)] += 1e-3 * rng.normal(size=(2, 2))
        assert bound(other) < bound(best)


def test_latents_mix_with_those_of_blocks_in_more_sets() -> None:
    blocks = (
        LoadingBlock("all", 2, ("a", "b", "c"), clvm.Ridge()),
        LoadingBlock("two", 1, ("a", "b"), clvm.Ridge()),
        LoadingBlock("one", 1, ("a",), clvm.Ridge()),
        LoadingBlock("other", 1, ("c",), clvm.GroupLasso(1.0)),
    )
    model = Model(("a", "b", "c"), blocks, clvm.Poisson())
    found = blocks_within(model, np.arange(0))
    assert [(list(u), list(h)) for u, h in found] == [([2], [0, 1]), ([3], [0, 1, 2])]
    assert [(list(u), list(h)) for u, h in blocks_within(model, np.array([0, 1]))] == []
