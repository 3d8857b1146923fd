"""Tests, folds and standard errors of models with covariates."""

from typing import Any

import numpy as np
import pandas as pd
import pytest

import contrastive_lvm as clvm
from contrastive_lvm.exceptions import InvalidDataError, InvalidParameterError
from contrastive_lvm.resampling.covariate_residuals import (
    design_basis,
    independent_rows,
    residuals,
    restored,
    uncorrelated,
)
from tests.estimators.test_covariates import D, people, rows_of, sets
from tests.oracles import Array


def known_of(C: pd.DataFrame, E: pd.DataFrame) -> dict[str, Any]:
    return {"covariates": C, "background_covariates": E}


def no_contrast(seed: int) -> tuple[Array, Array, dict[str, Any]]:
    """Two sets of one structure, and a category that is frequent in the target only."""
    rng = np.random.default_rng(seed)
    C, E = people(80, seed), people(90, seed + 1000)
    C["batch"], E["batch"] = rng.choice(["a", "b"], 80), np.repeat(["a", "b"], [85, 5])
    effect = 6.0 * rng.normal(size=D)
    X, B = (rows_of(known, seed + i, target=False) for i, known in enumerate((C, E)))
    X += np.outer(C["batch"] == "b", effect)
    B += np.outer(E["batch"] == "b", effect)
    return X, B, known_of(C, E)


def test_a_category_of_one_set_is_no_contrast_once_it_is_known() -> None:
    with_known, without = [], []
    for seed in range(8):
        X, B, known = no_contrast(seed)
        options: dict[str, Any] = {"background": B, "n_resamples": 39, "random_state": seed}
        with_known.append(clvm.contrast_test(X, **options, **known).pvalue)
        without.append(clvm.contrast_test(X, **options).pvalue)
    assert np.median(without) <= 0.05
    assert np.median(with_known) > 0.15


def test_the_number_of_dimensions_respects_covariates() -> None:
    X, B, known = no_contrast(1)
    auto = clvm.ContrastiveLVM("auto", 2, random_state=0)
    assert auto.fit(X, background=B, **known).n_target_ == 0
    X, B, C, E = sets(150)
    found = clvm.choose_dimensions(
        X,
        background=B,
        **known_of(C, E),
        n_target=(0, 1),
        n_shared=(1, 2, 3),
        cv=3,
        random_state=0,
    )
    assert (found.n_target, found.n_shared) == (1, 2)
    model = clvm.ContrastiveLVM(1, 2).fit(X, background=B, **known_of(C, E))
    row = found.table.query("n_target == 1 and n_shared == 2")
    assert float(row["lower_bound"].iloc[0]) == pytest.approx(model.lower_bound_, abs=0.1)


@pytest.mark.parametrize("missing", [0.0, 0.1])
@pytest.mark.parametrize("effects", ["shared", "own"])
def test_bootstrap_errors_are_the_spread_of_refits(effects: str, missing: float) -> None:
    X, B, C, E = sets(60, missing)
    model = clvm.ContrastiveLVM(1, 1, covariate_effects=effects)
    model.fit(X, background=B, **known_of(C, E))
    found = clvm.bootstrap(model, X, background=B, **known_of(C, E), n_resamples=20, random_state=0)
    assert found.covariate_effects is model.covariate_effects_
    errors = found.covariate_effects_std
    assert errors is not None
    assert list(errors.index) == ["age", "sex[male]", "sex[other]"]
    assert ((errors > 0) & (errors < 5.0)).all(axis=None)
    with pytest.raises(InvalidDataError, match="was fitted with"):
        clvm.bootstrap(model, X, background=B, n_resamples=20)


def test_refits_of_the_same_weights_are_fits_of_the_resampled_rows() -> None:
    from contrastive_lvm.estimators.linear_fit import read_input
    from contrastive_lvm.resampling.refit import Refit

    X, B, C, E = sets(50)
    engine = clvm.EM(tol=1e-9)
    model = clvm.ContrastiveLVM(1, 1, inference=engine).fit(X, background=B, **known_of(C, E))
    given = read_input(model, X, B, covariates=(C, E))
    refit = Refit.of_fit(given, model.posterior_, n_refits=100)
    times = np.random.default_rng(0).integers(0, 3, 50)
    ones = np.ones(len(B))
    found = refit([times.astype(float), ones])
    weighted = clvm.ContrastiveLVM(1, 1, inference=engine).fit(
        X, background=B, **known_of(C, E), sample_weight=times
    )
    assert found.lower_bound == pytest.approx(weighted.lower_bound_, abs=1e-4)
    assert model._encoding is not None
    assert weighted.covariate_effects_ is not None
    ours = (found.effects[0] / model._encoding.scale).T
    assert np.allclose(ours, weighted.covariate_effects_, atol=1e-3)


def test_residuals_are_uncorrelated() -> None:
    rng = np.random.default_rng(0)
    known = np.column_stack([rng.normal(size=30), rng.random(30) < 0.1, np.ones(30)])
    basis = design_basis(known)
    assert basis.shape == (30, 3)
    X = rng.normal(size=(30, 3))
    left = residuals(X, basis)
    assert np.allclose(basis.T @ left, 0.0)
    change = uncorrelated(np.eye(30), basis)  # (27, 30)
    assert np.allclose(change @ change.T, np.eye(27))
    assert np.allclose(change @ basis, 0.0)
    assert np.allclose(uncorrelated(X, basis), change @ X)
    assert independent_rows(basis).sum() == 27
    X[rng.random(X.shape) < 0.1] = np.nan
    seen = ~np.isnan(X[:, 0])
    by_hand = X[seen, 0] - basis[seen] @ np.linalg.lstsq(basis[seen], X[seen, 0])[0]
    assert np.allclose(residuals(X, basis)[seen, 0], by_hand)


def replicates_without_contrast(seed: int, n: int = 10, size: int = 4) -> tuple[Any, ...]:
    """Two sets of n replicates each, of one structure, and the age of each replicate."""
    rng = np.random.default_rng(seed)
    S, effect = rng.normal(size=(12, 2)), 3.0 * rng.normal(size=12)
    age = np.repeat(rng.normal(size=2 * n), size) * np.repeat([3.0, 0.3], n * size)
    h = np.repeat(rng.normal(size=(2 * n, 2)), size, axis=0) + rng.normal(size=(2 * n * size, 2))
    rows = h @ S.T + np.outer(age, effect) + rng.normal(size=(len(age), 12))
    half, groups = n * size, np.repeat(np.arange(2 * n), size)
    return rows[:half], rows[half:], age[:half], age[half:], groups[:half], groups[half:]


def test_replicates_with_covariates() -> None:
    with_known, without = [], []
    for seed in range(12):
        X, B, age, other, groups, other_groups = replicates_without_contrast(seed)
        options: dict[str, Any] = {"groups": groups, "background_groups": other_groups}
        options |= {"background": B, "n_resamples": 39, "random_state": seed}
        without.append(clvm.contrast_test(X, **options).pvalue)
        known: dict[str, Any] = {"covariates": age, "background_covariates": other}
        with_known.append(clvm.contrast_test(X, **options, **known).pvalue)
    assert np.median(without) <= 0.05
    assert np.median(with_known) > 0.15
    own = clvm.ContrastiveLVM(covariate_effects="own")
    with pytest.raises(InvalidParameterError, match="covariate_effects='own' is tested without"):
        clvm.contrast_test(X, **options, **known, model=own)


def test_residuals_of_replicates_have_the_variance_of_their_rows() -> None:
    rng = np.random.default_rng(0)
    basis = design_basis(np.column_stack([np.ones(12), rng.normal(size=12)]))
    unit = np.repeat([2, 0, 1, 3], [4, 1, 5, 2])
    left = np.eye(12) - basis @ basis.T  # the covariance of residuals
    change = restored(left, basis, unit)
    for own in range(4):
        rows = np.flatnonzero(unit == own)
        cov = (change @ change.T)[np.ix_(rows, rows)]
        assert np.allclose(cov, np.eye(len(rows)))
    alone = restored(left, basis, np.arange(12))
    assert np.allclose(np.diagonal(alone @ alone.T), 1.0)


def test_missing_entries_are_no_contrast() -> None:
    pvalues = []
    for seed in range(6):
        X, B, known = no_contrast(seed)
        gaps = np.random.default_rng(seed).random(X.shape) < 0.1
        X[gaps], B[gaps[::-1][: len(B)].repeat(2, axis=0)[: len(B)]] = np.nan, np.nan
        found = clvm.contrast_test(X, background=B, n_resamples=39, random_state=seed, **known)
        pvalues.append(found.pvalue)
    assert np.median(pvalues) > 0.1


def test_counts_with_covariates_have_no_test() -> None:
    rng = np.random.default_rng(0)
    X = rng.poisson(3.0, size=(30, 5)).astype(float)
    C = people(30, 1)
    with pytest.raises(InvalidParameterError, match="no test of contrast with covariates"):
        clvm.contrast_test(
            X,
            background=X[::-1] + 1.0,
            model=clvm.ContrastiveLVM(likelihood="poisson"),
            **known_of(C, people(30, 2)),
        )
