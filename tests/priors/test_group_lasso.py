"""The group lasso: its step solves a convex problem, groups go as groups, the path thins out."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import minimize

import contrastive_lvm as clvm
from contrastive_lvm.estimators.lasso_path import LassoPath
from contrastive_lvm.priors.feature_groups import group_index
from tests.oracles import Array, Point, draw, sets_with_missing

GROUPINGS: dict[str, Any] = {
    "none": None,
    "labels": ["a", "b", "a", "c", "b", "a"],
    "dict": {"first": [0, 3], "second": [1, 4, 5]},
    "one": [0] * 6,
}
STRENGTHS = [0.05, 0.5, 2.0, 8.0]


def problem(seed: int, D: int = 6, K: int = 2) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    curvature = 10.0 ** rng.uniform(-1.0, 1.5, (D, K))
    return curvature, rng.normal(0.0, 1.0, (D, K)) * 10.0 ** rng.uniform(-1.0, 1.0, (D, 1))


def penalty(lasso: clvm.GroupLasso, L: Array) -> float:
    """Minus the bound where the state is at its best for the loadings."""
    return -lasso.bound(lasso.update(lasso.init((len(L), L.shape[1])), L**2), L**2)


# --- the proximal step ---------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("rho", STRENGTHS)
@pytest.mark.parametrize("grouping", GROUPINGS)
def test_the_proximal_step_meets_the_conditions_of_an_optimum(
    grouping: str, rho: float, seed: int
) -> None:
    curvature, linear = problem(seed)
    L = clvm.GroupLasso(rho, GROUPINGS[grouping])._proximal_step(curvature, linear)
    group = group_index(GROUPINGS[grouping], len(L))
    for g in np.unique(group):
        rows = group == g
        strength = rho * np.sqrt(rows.sum())
        if (L[rows] == 0).all():
            assert np.linalg.norm(linear[rows]) <= strength
        else:
            pull = strength * L[rows] / np.linalg.norm(L[rows])
            slope = linear[rows] - curvature[rows] * L[rows] - pull
            assert np.abs(slope).max() < 1e-9 * np.abs(linear[rows]).max()


@pytest.mark.parametrize("rho", STRENGTHS[1:3])
@pytest.mark.parametrize("grouping", GROUPINGS)
def test_the_proximal_step_is_the_optimum_that_a_solver_finds(grouping: str, rho: float) -> None:
    curvature, linear = problem(7)
    lasso, group = clvm.GroupLasso(rho, GROUPINGS[grouping]), group_index(GROUPINGS[grouping], 6)
    strength = rho * np.sqrt(np.bincount(group))

    def smoothed(flat: Array) -> tuple[float, Array]:
        """The loss and its slope, corners rounded at 1e-6."""
        L = flat.reshape(linear.shape)
        norms = np.sqrt(np.bincount(group, weights=(L**2).sum(axis=1)) + 1e-12)
        slope = curvature * L - linear + (strength / norms)[group][:, None] * L
        loss = (0.5 * curvature * L**2 - linear * L).sum() + strength @ norms
        return float(loss), slope.ravel()

    options: Any = {"maxiter": 50_000, "maxfun": 50_000, "ftol": 1e-16, "gtol": 1e-10}
    start = np.full(linear.size, 0.1)
    solved = minimize(smoothed, start, jac=True, method="L-BFGS-B", options=options)
    L = lasso._proximal_step(curvature, linear)
    exact = float((0.5 * curvature * L**2 - linear * L).sum()) + penalty(lasso, L)
    assert exact <= float(solved.fun) + 1e-12 * abs(exact)  # rounding of the two sums
    np.testing.assert_allclose(L.ravel(), solved.x, rtol=1e-3, atol=1e-4)


def test_the_penalty_is_a_sum_over_groups() -> None:
    L = np.random.default_rng(0).normal(size=(6, 3))
    two = np.sqrt(2.0) * np.linalg.norm(L[[0, 3]])
    three = np.sqrt(3.0) * np.linalg.norm(L[[1, 4, 5]])
    expected = 2.5 * (two + three + np.linalg.norm(L[2]))
    lasso = clvm.GroupLasso(2.5, GROUPINGS["dict"])
    assert penalty(lasso, L) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("grouping", GROUPINGS)
def test_the_strength_to_drop_all_is_the_least_one(grouping: str) -> None:
    curvature, linear = problem(3)
    rho = clvm.GroupLasso(4.0, GROUPINGS[grouping])._strength_without_features(linear)
    above = clvm.GroupLasso(rho * 1.0001, GROUPINGS[grouping])._proximal_step(curvature, linear)
    below = clvm.GroupLasso(rho * 0.9999, GROUPINGS[grouping])._proximal_step(curvature, linear)
    assert not above.any()
    assert below.any()


@pytest.mark.parametrize("rho", [0.0, -1.0, np.nan, np.inf, True, "1"])
def test_a_strength_is_a_positive_number(rho: Any) -> None:
    with pytest.raises(ValueError, match=r"rho=.* must be a positive number"):
        clvm.GroupLasso(rho)


# --- groups -------------------------------------------------------------------------------------


def test_groups_are_numbered_by_first_appearance() -> None:
    np.testing.assert_array_equal(group_index(None, 3), [0, 1, 2])
    np.testing.assert_array_equal(group_index(["z", "a", "z", "b"], 4), [0, 1, 0, 2])
    np.testing.assert_array_equal(group_index(np.array([5, 2, 2]), 3), [0, 1, 1])


def test_a_dict_of_groups_takes_names_and_positions() -> None:
    names = ["a", "x", "y", "b"]
    np.testing.assert_array_equal(group_index({"g": ["x", "y"]}, 4, names), [0, 1, 1, 2])
    np.testing.assert_array_equal(group_index({"g": [3, 0]}, 4), [0, 1, 2, 0])
    np.testing.assert_array_equal(group_index({"g": "x", "h": ["a", "b"]}, 4, names), [0, 1, 2, 0])


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        (["a", "b"], "groups has 2 labels for 3 features; give one per feature"),
        ({"g": ["q"]}, "groups names the feature 'q', which is not in the data"),
        ({"g": [3]}, "groups names the feature 3, which is not in the data"),
        ({"g": [-1]}, "groups names the feature -1, which is not in the data"),
        ({"g": [0, 1], "h": [1]}, "groups puts the feature 1 into two groups"),
    ],
)
def test_groups_that_do_not_fit_are_refused(groups: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        group_index(groups, 3, ["a", "b", "c"])


# --- fits ---------------------------------------------------------------------------------------

D, IN_TARGET = 12, 4  # features, of which the first few have target loadings


def sparse_sets() -> tuple[Array, Array]:
    """Two sets whose target part lives on the first features only."""
    rng = np.random.default_rng(4)
    W = np.zeros((D, 2))
    W[:IN_TARGET] = 2.0 * rng.standard_normal((IN_TARGET, 2))
    point = Point(rng.standard_normal((D, 2)), W, np.full(D, 0.5), np.zeros(D), np.ones(D))
    return draw(point, 150, 150, rng)


def fitted(lasso: clvm.GroupLasso, X: Any, B: Any) -> clvm.ContrastiveLVM:
    return clvm.ContrastiveLVM(2, 2, target_prior=lasso).fit(X, background=B)


@pytest.mark.parametrize("where", ["complete", "both"])
def test_a_fit_has_exact_zeros_where_there_is_nothing(where: str) -> None:
    X, B = sets_with_missing(*sparse_sets(), where)
    model = fitted(clvm.GroupLasso(80.0), X, B)
    W = model.target_components_.T
    np.testing.assert_array_equal(model.selected_features_, np.arange(D) < IN_TARGET)
    assert not W[IN_TARGET:].any()
    assert (np.linalg.norm(W[:IN_TARGET], axis=1) > 0.1).all()
    assert (np.diff(model.lower_bounds_) >= 0).all()
    assert model.converged_


def test_a_fit_is_stationary_for_its_penalty() -> None:
    """No direction in W raises the penalised likelihood, the zero rows' directions included."""
    X, B = sparse_sets()
    lasso = clvm.GroupLasso(40.0)
    model = fitted(lasso, X, B)
    W, S = model.target_components_.T, model.shared_components_.T
    scatter = (X - model.mean_).T @ (X - model.mean_)

    def objective(W: Array) -> float:
        cov = W @ W.T + S @ S.T + model.noise_variance_ * np.eye(D)
        inside = len(X) * np.linalg.slogdet(cov)[1] + np.trace(np.linalg.solve(cov, scatter))
        return -0.5 * float(inside) - penalty(lasso, W)

    best, rng = objective(W), np.random.default_rng(0)
    for _ in range(100):
        step = rng.normal(0.0, 1e-3, W.shape) * (rng.random((D, 1)) < 0.3)
        assert objective(W + step) <= best + 1e-6


def test_labels_drop_features_as_groups() -> None:
    X, B = sparse_sets()
    labels = np.array(["in", "in", "mixed", "mixed", "out", "out", "mixed", *"abcde"])
    for rho in (20.0, 60.0, 200.0):
        kept = fitted(clvm.GroupLasso(rho, labels), X, B).selected_features_
        for label in np.unique(labels):
            assert len(set(kept[labels == label])) == 1
    assert fitted(clvm.GroupLasso(60.0, labels), X, B).selected_features_[6]
    assert not fitted(clvm.GroupLasso(60.0), X, B).selected_features_[6]


def test_a_dict_of_column_names_is_the_same_as_labels() -> None:
    X, B = sparse_sets()
    names = [f"f{i}" for i in range(D)]
    by_name = {"mixed": ["f2", "f3", "f6"], "out": ["f4", "f5"]}
    labels = [0, 1, 2, 2, 3, 3, 2, 4, 5, 6, 7, 8]
    frames = pd.DataFrame(X, columns=names), pd.DataFrame(B, columns=names)
    named = fitted(clvm.GroupLasso(30.0, by_name), *frames)
    plain = fitted(clvm.GroupLasso(30.0, labels), X, B)
    ours, theirs = named.target_components_, plain.target_components_
    np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=1e-12)
    with pytest.raises(ValueError, match="feature 'f99'"):
        fitted(clvm.GroupLasso(30.0, {"g": ["f99"]}), *frames)


# --- the path -----------------------------------------------------------------------------------


def path(where: str = "complete", n_rhos: int = 8, **settings: Any) -> LassoPath:
    X, B = sets_with_missing(*sparse_sets(), where)
    model = clvm.ContrastiveLVM(2, 2, **settings)
    return clvm.group_lasso_path(model, X, background=B, n_rhos=n_rhos)


@pytest.mark.parametrize("where", ["complete", "both"])
def test_the_path_thins_out(where: str) -> None:
    found = path(where, 10)
    assert (np.diff(found.rhos) > 0).all()
    assert (np.diff(found.n_selected) <= 0).all()
    assert found.n_selected[0] > IN_TARGET
    assert found.n_selected[-1] <= 1
    assert IN_TARGET in found.n_selected
    np.testing.assert_array_equal(found.n_selected, (found.row_norms > 0).sum(axis=1))
    assert (np.diff(found.log_likelihoods) <= 1e-3).all()
    for model, rho, bound in zip(found.models, found.rhos, found.bounds, strict=True):
        assert np.isfinite(model.lower_bound_)
        assert model.lower_bound_ == bound
        assert isinstance(model.target_prior, clvm.GroupLasso)
        assert model.target_prior.rho == rho


@pytest.mark.parametrize("where", ["complete", "both"])
def test_warm_fits_are_no_worse_than_cold_ones(where: str) -> None:
    """As long as a target part is worth its penalty.

    Beyond, the best model has none, the target's structure going to S, which is not penalised; the
    path follows its own optimum, with W, for a while.
    """
    X, B = sets_with_missing(*sparse_sets(), where)
    found = path(where)
    worth = found.bounds > found.bounds[-1]
    assert worth.sum() >= 4
    for rho, bound in zip(found.rhos[worth], found.bounds[worth], strict=True):
        assert bound >= fitted(clvm.GroupLasso(rho), X, B).lower_bound_ - 1e-2


def test_the_path_keeps_groups() -> None:
    labels = np.repeat(["a", "b", "c"], 4)
    found = path(target_prior=clvm.GroupLasso(groups=labels))
    assert set(found.n_selected) <= {0, 4, 8, 12}
    assert found.n_selected[-1] <= 4


def test_the_path_takes_a_grid_and_refuses_what_it_cannot_fit() -> None:
    X, B = sparse_sets()
    model = clvm.ContrastiveLVM(2, 2)
    found = clvm.group_lasso_path(model, X, background=B, rhos=[50.0, 5.0])
    np.testing.assert_array_equal(found.rhos, [5.0, 50.0])
    with pytest.raises(ValueError, match="must be positive numbers"):
        clvm.group_lasso_path(model, X, background=B, rhos=[-1.0, 2.0])
    with pytest.raises((TypeError, ValueError), match="is not a GroupLasso; give"):
        clvm.group_lasso_path(model.set_params(target_prior="ard"), X, background=B)
