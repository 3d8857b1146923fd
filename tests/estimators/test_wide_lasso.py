"""Paths of the group lasso on data of many features, and what automatic sizing makes of them."""

import numpy as np

import contrastive_lvm as clvm
from contrastive_lvm.estimators.lasso_path import MOST_FEATURES
from contrastive_lvm.priors.group_lasso import _shrunk_norms


def wide(n_features: int) -> tuple[np.ndarray, np.ndarray]:
    """Sets of 30 rows that share three dimensions; the target has one more, of 20 features."""
    rng = np.random.default_rng(n_features)
    X = rng.normal(size=(60, 3)) @ rng.normal(size=(3, n_features))
    X += rng.normal(size=X.shape)
    X[:30, :20] += rng.normal(size=(30, 1)) * rng.choice([-3.0, 3.0], 20)
    return X[:30], X[30:]


def test_the_grid_leaves_few_of_many_features() -> None:
    X, B = wide(1200)
    path = clvm.group_lasso_path(clvm.ContrastiveLVM(1, 3), X, background=B, n_rhos=6)
    assert path.n_selected[0] <= MOST_FEATURES
    assert (np.diff(path.n_selected) <= 0).all()
    chosen = np.flatnonzero(path.row_norms[path.steadiest])
    assert (chosen < 20).sum() >= 15
    assert (chosen >= 20).sum() <= 2


def test_shared_dimensions_of_fewer_rows_than_features() -> None:
    X, B = wide(5000)
    assert clvm.ContrastiveLVM(1).fit(X, background=B).n_shared_ in (3, 4)


def test_norms_of_groups_are_roots() -> None:
    rng = np.random.default_rng(0)
    for _ in range(50):
        n, n_groups = int(rng.integers(1, 30)), 5
        group = np.concatenate([np.arange(n_groups), rng.integers(0, n_groups, n)])
        curvature = 10.0 ** rng.uniform(-6, 6, (len(group), 2))
        linear = rng.normal(size=curvature.shape) * 10.0 ** rng.uniform(-3, 3)
        strength = 10.0 ** rng.uniform(-3, 3, n_groups)
        size = np.sqrt(np.bincount(group, weights=(linear**2).sum(axis=1)))
        norm = _shrunk_norms(curvature, linear, group, strength, size)
        ratio = linear / (curvature * norm[group][:, None] + strength[group][:, None])
        value = np.bincount(group, weights=(ratio**2).sum(axis=1))
        np.testing.assert_allclose(value[size > strength], 1.0, rtol=1e-9)
        assert (norm[size <= strength] == 0).all()
