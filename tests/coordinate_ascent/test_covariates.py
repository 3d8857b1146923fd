"""Covariates in every kind of rows, against the brute-force joint Gaussian and against residuals.

Given the parameters, rows of set s are independent `N(mean_s + M c_i, L_s L_s' + psi)`. For any
likelihood and any priors, the bound at effects M is that of a model without covariates for the rows
`x_i - M c_i`.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.stats import multivariate_normal

import contrastive_lvm as clvm
from contrastive_lvm.coordinate_ascent.em import EM
from contrastive_lvm.coordinate_ascent.engine import CoordinateAscent
from contrastive_lvm.coordinate_ascent.problem import Problem
from contrastive_lvm.coordinate_ascent.starts import deterministic_starts
from contrastive_lvm.coordinate_ascent.variational_bayes import VariationalBayes
from contrastive_lvm.exceptions import InvalidDataError
from contrastive_lvm.model import Model
from contrastive_lvm.posterior import Posterior
from contrastive_lvm.rows import data as data_module
from contrastive_lvm.rows.reader import LocalRows
from tests.coordinate_ascent.test_sets_and_blocks import NOISE, D, model_of, rows_of
from tests.oracles import Array

STUDENT = [
    clvm.StudentT(4.0),
    clvm.StudentT(4.0, per="sample"),
    clvm.StudentT("learn", sets="own"),
]


def with_covariates(model: Model, *, own: bool = False) -> Model:
    return replace(model, covariates=("age", "batch"), own_effects=own)


def known_columns(sets: list[Array], seed: int) -> tuple[list[Array], list[Array]]:
    """Give rows a number and a category that depends on the set, and their effects."""
    rng = np.random.default_rng(seed)
    M, covariates, moved = rng.normal(size=(D, 2)), [], []
    for i, X in enumerate(sets):
        c = np.column_stack(
            [rng.normal(size=len(X)) + i, rng.random(len(X)) < 0.3 + 0.2 * i]
        ).astype(float)
        covariates.append(c)
        moved.append(X + c @ M.T)
    return moved, covariates


def brute_force(
    model: Model, found: Posterior, sets: list[Array], covariates: list[Array]
) -> float:
    """Sum the normal log-densities of the observed entries of all rows."""
    total = 0.0
    for name, X, C in zip(model.sets, sets, covariates, strict=True):
        active = [found.loadings[block.name] for block in model.blocks if name in block.sets]
        cov = np.diag(found.nuisance_of(name).noise) + sum(W @ W.T for W in active)
        means = found.means[name] + C @ found.effects[name].T
        for row, mean in zip(X, means, strict=True):
            seen = ~np.isnan(row)
            if seen.any():
                total += multivariate_normal(mean[seen], cov[np.ix_(seen, seen)]).logpdf(row[seen])
    return total


@pytest.mark.parametrize("own", [False, True], ids=["shared effects", "own effects"])
@pytest.mark.parametrize("missing", [0.0, 0.2], ids=["complete", "missing"])
@pytest.mark.parametrize("noise", NOISE, ids=repr)
@pytest.mark.parametrize("design", ["one set", "the paper's", "drugs and pairs"])
def test_the_bound_is_the_joint_gaussian_log_density(
    design: str, noise: clvm.Gaussian, missing: float, *, own: bool
) -> None:
    model = with_covariates(model_of(design, noise), own=own)
    rows = rows_of(model, seed=1, missing=missing, more_noise=0.4)
    sets, known = known_columns(rows, seed=1)
    engine = EM(max_iter=60)
    found = engine._run(model, engine._prepare(model, sets, covariates=known))
    assert found.lower_bound == pytest.approx(brute_force(model, found, sets, known), rel=1e-10)
    assert (np.diff(found.lower_bounds) >= -1e-9 * abs(found.lower_bound)).all()


# Where a slow fit stops depends on rounding: .03 nats below the optimum a step gains 1e-5.
GAIN = 5e-6


@pytest.mark.parametrize("own", [False, True], ids=["shared effects", "own effects"])
@pytest.mark.parametrize("missing", [0.0, 0.2], ids=["complete", "missing"])
@pytest.mark.parametrize("noise", [NOISE[0], NOISE[3]], ids=repr)
def test_it_ends_where_no_parameter_can_be_improved(
    noise: clvm.Gaussian, missing: float, *, own: bool
) -> None:
    model = with_covariates(model_of("the paper's", noise), own=own)
    rows = rows_of(model, seed=3, missing=missing, n_rows=60, more_noise=0.4)
    sets, known = known_columns(rows, seed=3)
    engine = EM(tol=1e-10, max_iter=5000)
    found = engine._run(model, engine._prepare(model, sets, covariates=known))
    best, rng = brute_force(model, found, sets, known), np.random.default_rng(0)
    for _ in range(6):
        step = 1e-4 * rng.normal(size=(2, D, 2))
        steps = {"a": step[0], "b": step[int(own)]}
        moved = {name: M + steps[name] for name, M in found.effects.items()}
        changed = found._replace(effects=moved)
        assert brute_force(model, changed, sets, known) <= best + GAIN
        means = {name: m + 1e-4 * rng.normal(size=D) for name, m in found.means.items()}
        assert brute_force(model, found._replace(means=means), sets, known) <= best + GAIN
        step = 1e-4 * rng.normal(size=found.loadings["target"].shape)
        loadings = {**found.loadings, "target": found.loadings["target"] + step}
        assert brute_force(model, found._replace(loadings=loadings), sets, known) <= best + GAIN


def test_shared_effects_of_sets_with_different_covariances_are_not_least_squares() -> None:
    model = with_covariates(model_of("the paper's", clvm.Gaussian(sets="own")))
    sets, known = known_columns(rows_of(model, seed=3, more_noise=2.0), seed=3)
    engine = EM(tol=1e-9)
    data = engine._prepare(model, sets, covariates=known)
    found = engine._run(model, data)
    start = data.sets[0].effects
    assert start is not None
    assert np.abs(found.effects["a"] - start).max() > 0.01
    least_squares = found._replace(effects={"a": start, "b": start})
    gain = found.lower_bound - brute_force(model, least_squares, sets, known)
    assert gain > 1.0


COMBINATIONS: list[tuple[Any, Any, CoordinateAscent]] = [
    *[(likelihood, clvm.Flat(), EM(max_iter=40)) for likelihood in STUDENT],
    (clvm.StudentT(4.0), clvm.ARD(), VariationalBayes(max_iter=40)),
    (clvm.Gaussian(), clvm.ARD(), VariationalBayes(max_iter=40)),
    (clvm.Gaussian("feature", "own"), clvm.ARD(), VariationalBayes(max_iter=40)),
    (clvm.Gaussian("feature"), clvm.Horseshoe(), VariationalBayes(max_iter=40)),
    (clvm.Gaussian(), clvm.GroupLasso(3.0), EM(max_iter=40)),
    (clvm.StudentT(4.0, per="sample"), clvm.GroupLasso(3.0), EM(max_iter=40)),
]


@pytest.mark.parametrize("own", [False, True], ids=["shared effects", "own effects"])
@pytest.mark.parametrize("missing", [0.0, 0.15], ids=["complete", "missing"])
@pytest.mark.parametrize("case", COMBINATIONS, ids=lambda case: f"{case[0]} {case[1]}")
def test_the_bound_is_that_of_the_residuals_and_never_falls(
    case: tuple[Any, Any, CoordinateAscent], missing: float, *, own: bool
) -> None:
    likelihood, prior, engine = case
    plain = model_of("the paper's", likelihood, prior)
    model = with_covariates(plain, own=own)
    sets, known = known_columns(rows_of(model, seed=4, missing=missing, more_noise=0.3), seed=4)
    data = engine._prepare(model, sets, covariates=known)
    trace = engine._run(model, data).lower_bounds
    assert (np.diff(trace) >= -1e-9 * abs(trace[-1])).all()
    problem = Problem(model, data, posterior=engine._posterior)
    problem, start = deterministic_starts(problem)[0]
    start = problem.begin(start).point
    p = problem.unflatten(start)
    residuals = [
        X - (C - rows.covariate_mean) @ M.T
        for X, C, M, rows in zip(sets, known, p.effects, data.sets, strict=True)
    ]
    other = Problem(plain, engine._prepare(plain, residuals), posterior=engine._posterior)
    same = other.flatten(p._replace(effects=()))
    carry = problem.first_carry()
    bound = problem.evaluate(start, carry)[0]
    assert np.isclose(bound, other.evaluate(same, carry)[0], rtol=1e-10)


def em_fit(model: Model, sets: list[Any], known: list[Array]) -> Posterior:
    engine = EM(tol=1e-9)
    return engine._run(model, engine._prepare(model, sets, covariates=known))


def swept(model: Model, sets: list[Any], known: list[Array], **given: Any) -> list[Array]:
    """Return where a fit starts, the bound there, and where two sweeps lead."""
    problem = Problem(model, EM()._prepare(model, sets, covariates=known, **given))
    problem, start = deterministic_starts(problem)[0]
    bound, found = problem.evaluate(start, problem.first_carry())
    point, carry = problem.improve(start, found)
    return [start, np.array(bound), problem.improve(point, problem.evaluate(point, carry)[1])[0]]


def same_sweeps(one: list[Array], other: list[Array]) -> None:
    for mine, its in zip(one, other, strict=True):
        assert np.allclose(mine, its, rtol=1e-8, atol=1e-8)


LIKELIHOODS = [clvm.Gaussian(), clvm.Gaussian("feature"), clvm.StudentT(4.0)]


@pytest.mark.parametrize("likelihood", LIKELIHOODS, ids=repr)
@pytest.mark.parametrize("missing", [0.0, 0.15], ids=["complete", "missing"])
def test_a_row_of_weight_two_counts_as_two_rows(likelihood: Any, missing: float) -> None:
    model = with_covariates(model_of("the paper's", likelihood))
    sets, known = known_columns(rows_of(model, seed=5, missing=missing), seed=5)
    times = [np.random.default_rng(i).integers(0, 3, len(X)) for i, X in enumerate(sets)]
    repeated = [
        [np.repeat(values, n, axis=0) for values, n in zip(kind, times, strict=True)]
        for kind in (sets, known)
    ]
    weighted = swept(model, sets, known, weights=[n.astype(float) for n in times])
    same_sweeps(weighted, swept(model, *repeated))


def test_wide_rows_have_the_same_fit_in_their_span(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(6)
    model = with_covariates(model_of("the paper's"))
    sets = [rng.normal(size=(n, 60)) * np.linspace(0.5, 2.0, 60) for n in (12, 15)]
    known = [rng.normal(size=(len(X), 2)) for X in sets]
    sets = [X + C @ np.ones((2, 60)) for X, C in zip(sets, known, strict=True)]
    within = em_fit(model, sets, known)
    assert EM()._prepare(model, sets, covariates=known).span is not None
    monkeypatch.setattr(data_module, "MOST_SPAN_ROWS", 0)
    outside = em_fit(model, sets, known)
    assert within.lower_bound == pytest.approx(outside.lower_bound, rel=1e-8)
    assert np.allclose(within.effects["a"], outside.effects["a"], atol=1e-3)
    assert np.allclose(within.means["b"], outside.means["b"], atol=1e-3)


@pytest.mark.parametrize("likelihood", LIKELIHOODS, ids=repr)
@pytest.mark.parametrize("missing", [0.0, 0.15], ids=["complete", "missing"])
@pytest.mark.parametrize("kind", ["sparse", "operator", "memory map", "dask"])
def test_where_the_rows_are_makes_no_difference(
    kind: str, missing: float, likelihood: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = with_covariates(model_of("the paper's", likelihood))
    sets, known = known_columns(rows_of(model, seed=7, missing=missing), seed=7)
    here = swept(model, sets, known)
    monkeypatch.setattr(data_module, "MOST_LOADED", 0)
    if kind in ("sparse", "operator"):
        monkeypatch.setattr(data_module, "MOST_FEATURES", 0)
    there: list[Any] = sets if kind == "operator" else [stored(kind, X, tmp_path) for X in sets]
    same_sweeps(here, swept(model, there, known))


def stored(kind: str, X: Array, folder: Path) -> Any:
    if kind == "sparse":
        return sp.csr_array(X)
    if kind == "dask":
        from contrastive_lvm.rows.reader import UNCHECKED, open_rows

        arrays = pytest.importorskip("dask.array")
        return open_rows(arrays.from_array(X, chunks=(17, -1)), "X", UNCHECKED)
    path = folder / f"{len(X)}.npy"
    np.save(path, X)
    return LocalRows(np.load(path, mmap_mode="r"))


def test_covariates_that_a_feature_or_the_sets_determine_are_refused() -> None:
    model = with_covariates(model_of("the paper's"))
    sets, known = known_columns(rows_of(model, seed=8, missing=0.1), seed=8)
    same = [np.column_stack([np.full(len(C), float(i)), C[:, 0]]) for i, C in enumerate(known)]
    with pytest.raises(InvalidDataError, match="'age' that the sets and the other"):
        EM()._prepare(model, [np.nan_to_num(X) for X in sets], covariates=same)
    for X, C in zip(sets, known, strict=True):
        X[C[:, 1] == 1.0, 3] = np.nan
    with pytest.raises(InvalidDataError, match=r"'batch' .* observe feature 3"):
        EM()._prepare(model, sets, covariates=known)
