"""Planted supports: which features carry the target's own structure."""

import numpy as np
import pytest

import contrastive_lvm as clvm
from contrastive_lvm.arrays import Array
from contrastive_lvm.estimators.lasso_path import LassoPath

SEEDS = range(10)


def planted(seed: int) -> tuple[Array, Array, np.ndarray]:
    """500 features, 25 with target loadings of variance 1 under noise of variance 1, 400 + 400."""
    rng = np.random.default_rng(seed)
    D, n, k = 500, 400, 5
    support = np.zeros(D, dtype=bool)
    support[rng.choice(D, 25, replace=False)] = True
    S, W = rng.standard_normal((D, k)), np.zeros((D, 2))
    W[support] = rng.standard_normal((25, 2))
    W[support] /= np.linalg.norm(W[support], axis=1, keepdims=True)
    X, B = (rng.standard_normal((n, k)) @ S.T + rng.standard_normal((n, D)) for _ in range(2))
    return X + rng.standard_normal((n, 2)) @ W.T, B, support


def f1(found: np.ndarray, true: np.ndarray) -> float:
    return float(2 * (found & true).sum() / (found.sum() + true.sum()))


@pytest.mark.parametrize("seed", SEEDS)
def test_the_steadiest_strength_of_the_path_finds_the_support(seed: int) -> None:
    X, B, support = planted(seed)
    path = clvm.group_lasso_path(clvm.ContrastiveLVM(2, 5), X, background=B, n_rhos=20)
    assert f1(path.models[path.steadiest].selected_features_, support) >= 0.95


@pytest.mark.parametrize("seed", SEEDS)
def test_the_pruning_rule_of_the_horseshoe_finds_the_support(seed: int) -> None:
    X, B, support = planted(seed)
    model = clvm.ContrastiveLVM(2, 5, target_prior="horseshoe").fit(X, background=B)
    assert f1(model.selected_features_, support) >= 0.95


def path_of(kept: list[list[int]]) -> LassoPath:
    norms = np.array(kept, dtype=float)
    nothing = np.zeros(len(norms))
    return LassoPath(nothing, norms, nothing, nothing, (norms > 0).sum(axis=1), [])


def test_the_steadiest_is_the_middle_of_the_longest_plateau() -> None:
    full, some, few, none = [1, 1, 1], [1, 1, 0], [1, 0, 0], [0, 0, 0]
    assert path_of([full, full, full, some, few, few, few, none, none, none]).steadiest == 5
    assert path_of([full, some, some, some, some, few, few]).steadiest == 3
    assert path_of([full, [1, 0, 1], [0, 1, 1]]).steadiest == 2  # no plateau
    assert path_of([full, some, few, none]).steadiest == 2
    assert path_of([none, none]).steadiest == 0
