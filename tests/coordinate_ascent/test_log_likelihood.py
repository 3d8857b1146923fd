"""The bound, its trace and the scores of rows against summed normal log-densities."""

from typing import Any, NamedTuple

import numpy as np
import pytest

import contrastive_lvm as clvm
from tests.oracles import (
    MISSING,
    Array,
    Point,
    fitted_point,
    log_densities,
    log_likelihood,
    planted,
    sets_with_missing,
    side_gradient,
    sides,
    with_missing,
)

NOISES = ("isotropic", "feature")

pytestmark = pytest.mark.filterwarnings("ignore:.*features have no noise left")


class Case(NamedTuple):
    """A shape of the problem."""

    n: int
    m: int
    D: int
    k: int
    t: int


SHAPES = {
    "tall": Case(50, 40, 6, 2, 1),
    "uneven": Case(30, 90, 7, 1, 3),
    "only shared": Case(40, 40, 6, 2, 0),
    "only target": Case(40, 40, 6, 0, 2),
    "square": Case(10, 9, 18, 2, 2),
    "wide": Case(12, 10, 30, 2, 1),
    "very wide": Case(9, 8, 45, 1, 1),
}


def data(case: Case, noise: str, missing: str, seed: int = 0) -> tuple[Array, Array]:
    _, X, B = planted(seed, n=case.n, m=case.m, D=case.D, k=case.k, t=case.t, noise=noise)
    return sets_with_missing(X, B, missing, seed)


def fit(case: Case, noise: Any, X: Array, B: Array | None, **em: Any) -> clvm.ContrastiveLVM:
    engine = clvm.EM(**{"tol": 1e-3, **em})
    likelihood = clvm.Gaussian(noise=noise)
    model = clvm.ContrastiveLVM(case.t, case.k, likelihood=likelihood, inference=engine)
    return model.fit(X, background=B)


@pytest.mark.parametrize("missing", MISSING)
@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("shape", SHAPES)
def test_bound_is_the_log_likelihood_of_both_sets(shape: str, noise: str, missing: str) -> None:
    X, B = data(SHAPES[shape], noise, missing)
    model = fit(SHAPES[shape], noise, X, B)
    expected = log_likelihood(fitted_point(model), X, B)
    assert model.lower_bound_ == pytest.approx(expected, rel=1e-9, abs=1e-6)
    assert model.lower_bounds_[-1] == model.lower_bound_


@pytest.mark.parametrize("missing", ["complete", "target"])
@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("shape", ["only target", "wide"])
def test_bound_without_a_background(shape: str, noise: str, missing: str) -> None:
    X, _ = data(SHAPES[shape], noise, missing)
    model = fit(SHAPES[shape]._replace(k=0, t=2), noise, X, None)
    assert model.lower_bound_ == pytest.approx(
        log_likelihood(fitted_point(model), X, None), rel=1e-9
    )


@pytest.mark.parametrize("of", ["target", "background"])
@pytest.mark.parametrize("missing", MISSING)
@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("shape", SHAPES)
def test_scores_of_rows(shape: str, noise: str, missing: str, of: str) -> None:
    X, B = data(SHAPES[shape], noise, missing)
    model = fit(SHAPES[shape], noise, X, B)
    rows, side = (X, 0) if of == "target" else (B, 1)
    expected = log_densities(sides(fitted_point(model))[side], rows)
    np.testing.assert_allclose(model.score_samples(rows, of=of), expected, rtol=1e-8, atol=1e-7)


@pytest.mark.parametrize("order", [[0, 1, 2, 3], [3, 2, 1, 0], [1, 3, 0, 2], [2, 2, 0, 1]])
def test_scores_of_rows_that_all_miss_different_entries(order: list[int]) -> None:
    case = SHAPES["tall"]
    X, B = data(case, "isotropic", "complete")
    model = fit(case, "isotropic", X, B)
    rows = X[:4].copy()
    rows[np.arange(4), [0, 2, 4, 5]] = np.nan
    expected = log_densities(sides(fitted_point(model))[0], rows[order])
    np.testing.assert_allclose(model.score_samples(rows[order]), expected, rtol=1e-10)


@pytest.mark.parametrize("noise", NOISES)
def test_score_is_the_mean_and_weighted_mean_of_rows(noise: str) -> None:
    case = SHAPES["tall"]
    X, B = data(case, noise, "both")
    model = fit(case, noise, X, B)
    expected = log_densities(sides(fitted_point(model))[0], X)
    weights = np.random.default_rng(0).uniform(size=len(X))
    assert model.score(X) == pytest.approx(expected.mean(), rel=1e-9)
    weighted = float(expected @ weights / weights.sum())
    assert model.score(X, sample_weight=weights) == pytest.approx(weighted, rel=1e-9)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("memory", [0, 15])
@pytest.mark.parametrize("missing", MISSING)
@pytest.mark.parametrize("noise", NOISES)
def test_trace_never_falls(noise: Any, missing: str, memory: int, seed: int) -> None:
    case = SHAPES["tall"]
    X, B = data(case, noise, missing, seed)
    model = clvm.contrastive_model(case.t, case.k, clvm.Gaussian(noise=noise))
    engine = clvm.EM(max_iter=60, tol=1e-9, memory=memory)
    for start in (None, seed):
        trace = engine._run(model, engine._prepare(model, [X, B]), seed=start).lower_bounds
        assert len(trace) > 5
        assert (np.diff(trace) >= 0).all()


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("shape", SHAPES)
def test_trace_never_falls_in_any_shape(shape: str, noise: str) -> None:
    X, B = data(SHAPES[shape], noise, "complete", 3)
    model = fit(SHAPES[shape], noise, X, B, tol=1e-7)
    assert (np.diff(model.lower_bounds_) >= 0).all()
    assert model.converged_


def test_bound_over_several_blocks_of_rows() -> None:
    """More rows than one block holds, few patterns: masked rows are summed over blocks."""
    rng = np.random.default_rng(0)
    _, X, B = planted(0, n=5000, m=2500, D=4, k=1, t=1)
    patterns = np.array([[0, 0, 0, 0], [1, 0, 0, 0], [0, 1, 1, 0], [0, 0, 0, 1]], dtype=bool)
    X = np.where(patterns[rng.integers(4, size=len(X))], np.nan, X)
    model = fit(Case(5000, 2500, 4, 1, 1), "isotropic", X, B, max_iter=300)
    target, background = sides(fitted_point(model))
    expected = side_gradient(target, X)[0] + side_gradient(background, B)[0]
    assert model.lower_bound_ == pytest.approx(expected, rel=1e-11)
    scored = model.score_samples(X).sum() + model.score_samples(B, of="background").sum()
    assert scored == pytest.approx(expected, rel=1e-11)


@pytest.mark.parametrize("noise", NOISES)
def test_oracles_agree_with_each_other(noise: str) -> None:
    """The pattern-wise likelihood that the direct optimiser uses, and the row-wise one."""
    point, X, B = planted(5, noise=noise)
    X, B = with_missing(X, 0.3, 1), with_missing(B, 0.3, 2)
    target, background = sides(point)
    value = side_gradient(target, X)[0] + side_gradient(background, B)[0]
    assert value == pytest.approx(log_likelihood(point, X, B), rel=1e-12)


def test_a_wrong_parameter_changes_the_oracle() -> None:
    """The oracle sees every parameter: moving any one moves the likelihood."""
    point, X, B = planted(5)
    base = log_likelihood(point, X, B)
    for name in Point._fields:
        moved = point._replace(**{name: getattr(point, name) * 1.01 + 0.01})
        assert abs(log_likelihood(moved, X, B) - base) > 1e-3, name
