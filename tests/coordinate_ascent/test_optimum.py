"""What EM reaches is the maximum of the marginal likelihood, whichever way it is climbed."""

from typing import Any

import numpy as np
import pytest
from scipy.stats import multivariate_normal

import contrastive_lvm as clvm
from contrastive_lvm.coordinate_ascent.problem import Problem
from contrastive_lvm.posterior import Posterior
from contrastive_lvm.rows.data import prepare
from tests.oracles import (
    MISSING,
    Array,
    Point,
    fitted_point,
    gradient,
    joint_update,
    log_likelihood,
    maximise,
    planted,
    sets_with_missing,
    shape_of,
)

NOISES = ("isotropic", "feature")
DIMENSIONS = [(1, 1), (2, 1), (1, 2)]  # k, t


def data(noise: str, missing: str, k: int, t: int, seed: int = 1) -> tuple[Array, Array]:
    _, X, B = planted(seed, n=90, m=80, D=9, k=k, t=t, noise=noise)
    return sets_with_missing(X, B, missing, seed)


def fit(X: Array, B: Array, k: int, t: int, noise: Any, **settings: Any) -> clvm.ContrastiveLVM:
    settings = {"inference": clvm.EM(tol=1e-9), **settings}
    likelihood = clvm.Gaussian(noise=noise)
    return clvm.ContrastiveLVM(t, k, likelihood=likelihood, **settings).fit(X, background=B)


def run(
    engine: clvm.EM, model: clvm.Model, X: Array, B: Array, seed: int | None = None
) -> Posterior:
    return engine._run(model, engine._prepare(model, [X, B]), seed=seed)


def point_of(found: Posterior) -> Point:
    L, means = found.loadings, found.means
    return Point(
        L["shared"], L["target"], found.noise_variance, means["target"], means["background"]
    )


def assert_same_point(a: Point, b: Point, rtol: float) -> None:
    """The parts that the likelihood identifies, relative to the size of the covariance."""
    for left, right in (
        (a.S @ a.S.T, b.S @ b.S.T),
        (a.W @ a.W.T, b.W @ b.W.T),
        (a.psi, b.psi),
        (a.mean, b.mean),
        (a.background_mean, b.background_mean),
    ):
        np.testing.assert_allclose(left, right, rtol=0, atol=rtol * np.abs(right).max())


@pytest.mark.parametrize("missing", MISSING)
@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize(("k", "t"), DIMENSIONS)
def test_equals_direct_maximisation(k: int, t: int, noise: str, missing: str) -> None:
    X, B = data(noise, missing, k, t)
    model = fit(X, B, k, t, noise)
    shape = shape_of(fitted_point(model), isotropic=noise == "isotropic")
    direct = maximise(shape, X, B, n_starts=2, seed=0)
    assert model.lower_bound_ == pytest.approx(direct.value, abs=1e-6)
    assert_same_point(fitted_point(model), direct.point, 1e-4)


@pytest.mark.parametrize("missing", MISSING)
@pytest.mark.parametrize("noise", NOISES)
def test_default_tolerance_is_close_to_the_maximum(noise: str, missing: str) -> None:
    X, B = data(noise, missing, 2, 1)
    default, tight = fit(X, B, 2, 1, noise, inference="auto"), fit(X, B, 2, 1, noise)
    assert 0 <= tight.lower_bound_ - default.lower_bound_ < 1e-4
    assert_same_point(fitted_point(default), fitted_point(tight), 5e-3)


@pytest.mark.parametrize("missing", MISSING)
@pytest.mark.parametrize("noise", NOISES)
def test_slope_is_zero_by_finite_differences(noise: str, missing: str) -> None:
    X, B = (rows[:30] for rows in data(noise, missing, 1, 1))
    point = fitted_point(fit(X, B, 1, 1, noise, inference=clvm.EM(tol=1e-12)))
    shape = shape_of(point, isotropic=noise == "isotropic")
    theta, step = shape.pack(point), 1e-4

    def slope(at: Array) -> Array:
        ends = [
            [gradient(at + sign * e, shape, X, B)[0] for sign in (step, -step)]
            for e in np.eye(len(at))
        ]
        differences: Array = -np.diff(ends, axis=1)[:, 0] / (2.0 * step)
        return differences

    # A parameter whose standard error is s has a slope of order 1/s a standard error away.
    assert np.abs(slope(theta)).max() < 2e-3
    moved = theta * 1.05
    np.testing.assert_allclose(slope(moved), gradient(moved, shape, X, B)[1], rtol=1e-4, atol=1e-4)
    assert np.abs(slope(moved)).max() > 1.0


@pytest.mark.parametrize("missing", MISSING)
@pytest.mark.parametrize("noise", NOISES)
def test_is_a_fixed_point_of_the_exact_em_step(noise: str, missing: str) -> None:
    X, B = data(noise, missing, 2, 1)
    point = fitted_point(fit(X, B, 2, 1, noise, inference=clvm.EM(tol=1e-11)))
    assert_same_point(joint_update(point, X, B, isotropic=noise == "isotropic"), point, 1e-5)


@pytest.mark.parametrize("missing", MISSING)
@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize(("seed", "sweeps"), [(0, 1), (1, 2), (2, 3)])
def test_one_plain_sweep_is_the_exact_em_step(
    monkeypatch: pytest.MonkeyPatch, noise: Any, missing: str, seed: int, sweeps: int
) -> None:
    """From one and the same start, plain EM's next point is the brute-force step of the last.

    That is without the change of latent coordinates that follows it.
    """
    monkeypatch.setattr(Problem, "_best_change", lambda *_: None)
    X, B = data(noise, missing, 2, 1, seed)
    model = clvm.contrastive_model(1, 2, clvm.Gaussian(noise=noise))
    engines = [clvm.EM(max_iter=i, memory=0) for i in (sweeps, sweeps + 1)]
    first, second = (point_of(run(engine, model, X, B, seed)) for engine in engines)
    expected = joint_update(first, X, B, isotropic=noise == "isotropic")
    assert_same_point(second, expected, 1e-9)
    assert log_likelihood(second, X, B) > log_likelihood(first, X, B) + 0.1


@pytest.mark.parametrize("missing", MISSING)
@pytest.mark.parametrize("noise", NOISES)
def test_accelerated_and_plain_em_reach_the_same_optimum(noise: str, missing: str) -> None:
    X, B = data(noise, missing, 2, 1)
    fast, plain = (
        fit(X, B, 2, 1, noise, inference=clvm.EM(max_iter=20_000, tol=1e-9, memory=memory))
        for memory in (15, 0)
    )
    assert fast.lower_bound_ == pytest.approx(plain.lower_bound_, abs=1e-5)
    assert_same_point(fitted_point(fast), fitted_point(plain), 2e-3)
    assert fast.n_iter_ < plain.n_iter_


@pytest.mark.parametrize("missing", ["complete", "both"])
@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("seed", [0, 1, 5])
def test_restarts_print_the_same_numbers(noise: str, missing: str, seed: int) -> None:
    X, B = data(noise, missing, 2, 1, seed)
    one = fit(X, B, 2, 1, noise, inference=clvm.EM(tol=1e-8))
    four = fit(X, B, 2, 1, noise, inference=clvm.EM(tol=1e-8), n_init=4, random_state=seed)
    assert four.lower_bound_ >= one.lower_bound_
    assert four.lower_bound_ == pytest.approx(one.lower_bound_, abs=1e-5)
    assert four.n_iter_ > 2 * one.n_iter_
    for name in ("target_components_", "shared_components_", "mean_", "noise_variance_"):
        numbers, others = np.asarray(getattr(four, name)), np.asarray(getattr(one, name))
        np.testing.assert_allclose(numbers, others, rtol=0, atol=1e-3 * np.abs(others).max())


@pytest.mark.parametrize("seed", range(4))
def test_the_best_restart_is_kept(seed: int) -> None:
    """With three sweeps a fit, every start ends at another point; the highest end is published."""
    X, B = data("isotropic", "complete", 2, 1)
    engine = clvm.EM(max_iter=3, memory=0)
    model = clvm.ContrastiveLVM(1, 2, n_init=6, random_state=seed, inference=engine)
    with pytest.warns(UserWarning, match="max_iter"):
        model.fit(X, background=B)
    seeds = np.random.RandomState(seed).randint(2**31 - 1, size=5)
    asked = clvm.contrastive_model(1, 2)
    bounds = [run(engine, asked, X, B, start).lower_bound for start in (None, *map(int, seeds))]
    assert len(set(bounds)) == len(bounds)
    assert model.lower_bound_ == max(bounds)
    assert log_likelihood(fitted_point(model), X, B) == pytest.approx(max(bounds), rel=1e-10)


@pytest.mark.parametrize("missing", MISSING)
@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize(("k", "t"), DIMENSIONS)
def test_two_random_starts_print_the_same_loadings(
    k: int, t: int, noise: Any, missing: str
) -> None:
    X, B = data(noise, missing, k, t)
    model = clvm.contrastive_model(t, k, clvm.Gaussian(noise=noise))
    a, b = (run(clvm.EM(tol=1e-8), model, X, B, seed) for seed in (1, 2))
    assert a.lower_bound == pytest.approx(b.lower_bound, abs=1e-5)
    assert a.n_iter != b.n_iter or a.lower_bound != b.lower_bound
    for block, left in a.loadings.items():
        right = b.loadings[block]
        np.testing.assert_allclose(left, right, rtol=0, atol=1e-3 * np.abs(right).max())


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("make", ["make_subgroups", "make_contrastive"])
def test_the_deterministic_start_is_as_good_as_random_ones(make: str, seed: int) -> None:
    """Some of these random starts end in a lower maximum."""
    sets = getattr(clvm.datasets, make)(120, 100, random_state=seed)
    X, B, model = sets.target, sets.background, clvm.contrastive_model(2, 3)
    random = [run(clvm.EM(), model, X, B, start).lower_bound for start in range(3)]
    assert run(clvm.EM(), model, X, B).lower_bound > max(random) - 1e-3


@pytest.mark.parametrize("noise", NOISES)
def test_maximum_beats_the_truth_and_neighbours(noise: str) -> None:
    truth, X, B = planted(3, n=90, m=80, D=9, k=2, t=1, noise=noise)
    model = fit(X, B, 2, 1, noise)
    point, rng = fitted_point(model), np.random.default_rng(0)
    assert model.lower_bound_ > log_likelihood(truth, X, B)
    shape = shape_of(point, isotropic=noise == "isotropic")
    theta = shape.pack(point)
    for _ in range(8):
        moved = theta + 0.01 * rng.standard_normal(len(theta))
        assert log_likelihood(shape.unpack(moved), X, B) < model.lower_bound_


@pytest.mark.parametrize("kind", ["rank one", "a single entry"])
@pytest.mark.parametrize("missing", [False, True])
def test_loadings_have_their_length_where_the_noise_is_at_its_least(
    kind: str,
    missing: bool,  # noqa: FBT001
) -> None:
    """Plain EM stands still there: it gave variances up to 54 times too large."""
    rng = np.random.default_rng(0)
    X = np.outer(rng.normal(size=12), rng.normal(size=7))
    if kind == "a single entry":
        X = np.zeros((32, 8))
        X[3, 2] = 1.0
    rows = np.vstack([X, np.full(X.shape[1], np.nan)]) if missing else X
    model = clvm.ContrastiveLVM(2, 0).fit(rows)
    found = np.linalg.svd(model.target_components_)[1] ** 2
    expected = X.var(axis=0).sum()
    np.testing.assert_allclose(found, [expected - model.noise_variance_, 0.0], atol=1e-6 * expected)
    C = model.target_components_.T @ model.target_components_
    density = multivariate_normal(X.mean(axis=0), C + model.noise_variance_ * np.eye(len(C)))
    np.testing.assert_allclose(model.lower_bound_, density.logpdf(X).sum(), rtol=1e-6)


def test_starts_compared_on_a_part_of_the_rows_lead_to_the_same_optimum(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rng = np.random.default_rng(0)
    S, W = rng.standard_normal((6, 2)), rng.standard_normal((6, 1))
    X = rng.standard_normal((300, 2)) @ S.T + rng.standard_normal((300, 1)) @ W.T
    X += 0.5 * rng.standard_t(4, X.shape)
    B = rng.standard_normal((200, 2)) @ S.T + 0.5 * rng.standard_t(4, (200, 6))
    weights = np.repeat([1.0, 2.0], 150)
    model = clvm.ContrastiveLVM(1, 2, likelihood="student_t")
    expected = model.fit(X, background=B, sample_weight=weights).lower_bound_
    assert prepare([X, B], scale_mixture=True).part(100) is not None
    assert prepare([X, B], scale_mixture=True).part(400) is None  # nearly all rows
    monkeypatch.setattr("contrastive_lvm.coordinate_ascent.engine.COMPARED_ROWS", 100)
    again = model.fit(X, background=B, sample_weight=weights).lower_bound_
    assert again == pytest.approx(expected, abs=1e-4)
