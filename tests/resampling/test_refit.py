"""Refits under weights: the same as fits of repeated rows, by every way."""

from functools import partial
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone

import contrastive_lvm as clvm
from contrastive_lvm.arrays import Array
from contrastive_lvm.coordinate_ascent.problem import Problem
from contrastive_lvm.estimators.linear_fit import read_input
from contrastive_lvm.resampling.newton import FixedNewton
from contrastive_lvm.resampling.refit import Refit, _sweep
from contrastive_lvm.resampling.refit_rows import EngineRows, ScatterRows, joined, weighted_scatter
from contrastive_lvm.resampling.scatter_sweep import ScatterStack, ScatterSweep


def sets(n: int = 60, d: int = 8, *, missing: float = 0.0, seed: int = 0) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    S, W = rng.standard_normal((d, 2)), 2.0 * rng.standard_normal((d, 1))
    X = rng.standard_normal((n, 2)) @ S.T + rng.standard_normal((n, 1)) @ W.T
    X += rng.standard_normal((n, d)) + 3.0
    Y = rng.standard_normal((n - 10, 2)) @ S.T + rng.standard_normal((n - 10, d)) - 1.0
    for rows in (X, Y):
        rows[rng.random(rows.shape) < missing] = np.nan
    return X, Y


def drawn(n: int, seed: int) -> Array:
    rng = np.random.default_rng(seed)
    return np.bincount(rng.integers(n, size=n), minlength=n).astype(float)


def refit_of(model: clvm.ContrastiveLVM, X: Any, Y: Any) -> Refit:
    model.fit(X, background=Y)
    return Refit.of_fit(read_input(model, X, Y), model.posterior_, n_refits=100)


MODELS = {
    "plain": (clvm.ContrastiveLVM(1, 2), {}),
    "noise of each feature": (
        clvm.ContrastiveLVM(1, 2, likelihood=clvm.Gaussian(noise="feature")),
        {"n": 150, "d": 12},
    ),
    "in the span": (clvm.ContrastiveLVM(1, 2), {"n": 30, "d": 70}),
    "missing": (clvm.ContrastiveLVM(1, 2), {"missing": 0.2}),
    "Student-t": (clvm.ContrastiveLVM(1, 2, likelihood=clvm.StudentT(df=4.0)), {}),
    "group lasso": (clvm.ContrastiveLVM(1, 2, target_prior=clvm.GroupLasso(5.0)), {}),
    "ARD": (clvm.ContrastiveLVM(1, "auto", shared_prior="ard"), {}),
    "one set": (clvm.ContrastiveLVM(2, 0), {}),
}


@pytest.mark.parametrize("name", MODELS)
def test_a_weighted_refit_equals_the_fit_of_repeated_rows(name: str) -> None:
    model, options = MODELS[name]
    X, Y = sets(**options)  # type: ignore[arg-type]
    background = None if name == "one set" else Y
    refit = refit_of(model, X, background)
    weights = [drawn(len(X), 1), drawn(len(Y), 2)][: len(refit.rows.sets)]
    found = refit(weights)
    repeated = [np.repeat(rows, w.astype(int), axis=0) for rows, w in zip((X, Y), weights)]  # noqa: B905
    size = {"n_shared": model.n_shared_, "shared_prior": clvm.ARD()} if name == "ARD" else {}
    direct = clvm.ContrastiveLVM(**{**model.get_params(), **size})
    direct.fit(repeated[0], background=repeated[1] if background is not None else None)
    assert abs(direct.lower_bound_ - found.lower_bound) < 0.02
    scale = np.abs(direct.target_components_).max()
    np.testing.assert_allclose(
        found.loadings["target"].T, direct.target_components_, atol=0.02 * scale
    )
    noise = np.broadcast_to(direct.noise_variance_, found.noise_variance.shape)
    np.testing.assert_allclose(found.noise_variance, noise, rtol=0.02)


@pytest.mark.parametrize(
    ("name", "newton", "kind"),
    [
        ("plain", True, ScatterRows),
        ("in the span", True, ScatterRows),
        ("missing", True, EngineRows),
        ("Student-t", False, EngineRows),
        ("group lasso", False, ScatterRows),
        ("ARD", False, ScatterRows),
    ],
)
def test_every_model_takes_the_shortest_way(name: str, newton: bool, kind: type) -> None:  # noqa: FBT001
    model, options = MODELS[name]
    refit = refit_of(model, *sets(**options))  # type: ignore[arg-type]
    assert (refit.newton is not None) == newton
    assert isinstance(refit.rows, kind)


@pytest.mark.parametrize("name", ["plain", "noise of each feature", "in the span"])
def test_a_sweep_by_scatters_is_the_sweep_of_the_engine(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """That is without the change of latent coordinates, which Newton's method has no use for."""
    monkeypatch.setattr(Problem, "_best_change", lambda *_: None)
    model, options = MODELS[name]
    X, Y = sets(**options)  # type: ignore[arg-type]
    refit = refit_of(model, X, Y)
    assert isinstance(refit.rows, ScatterRows)
    noise = np.random.default_rng(0).standard_normal((3, len(refit.point)))
    points = refit.point + 0.1 * noise
    draws = [refit.rows.data([drawn(len(X), i), drawn(len(Y), 9 + i)]) for i in range(3)]
    stacks = [ScatterStack.of(own) for own in zip(*(data.sets for data in draws), strict=True)]
    values, images = ScatterSweep(refit.problem)(stacks, points)
    for data, point, value, image in zip(draws, points, values, images, strict=True):
        problem = Problem(refit.model, data._replace(variance=refit.problem.data.variance))
        slow_values, slow_images = _sweep(problem, point[None])
        assert value == pytest.approx(slow_values[0], rel=1e-12)
        np.testing.assert_allclose(image, slow_images[0], atol=1e-9)


@pytest.mark.parametrize("name", ["plain", "noise of each feature", "in the span"])
def test_many_refits_are_the_fits_of_repeated_rows_to_their_tolerance(name: str) -> None:
    model, options = MODELS[name]
    X, Y = sets(**options)  # type: ignore[arg-type]
    refit = refit_of(model, X, Y)
    draws = [[drawn(len(X), seed), drawn(len(Y), 50 + seed)] for seed in range(12)]
    assert refit.batch > 1
    exact = clvm.ContrastiveLVM(**model.get_params()).set_params(inference=clvm.EM(tol=1e-9))
    for weights, found in zip(draws, refit.many(draws), strict=True):
        exact.fit(*_repeated([X], weights), background=_repeated([Y], weights[1:])[0])
        assert found.lower_bound == pytest.approx(exact.lower_bound_, abs=1e-4)
        error = found.loadings["target"].T - exact.target_components_
        assert np.abs(error).max() < 2e-3 * np.abs(exact.target_components_).max()


def _repeated(rows: list[Array], weights: list[Array]) -> list[Array]:
    return [np.repeat(X, w.astype(int), axis=0) for X, w in zip(rows, weights, strict=False)]


def test_more_features_than_a_scatter_may_have_are_refitted_in_the_span() -> None:
    X, Y = sets(15, 3200)
    refit = refit_of(clvm.ContrastiveLVM(1, 1), X, Y)
    assert isinstance(refit.rows, ScatterRows)
    found = refit([np.ones(len(X)), np.ones(len(Y))])
    np.testing.assert_allclose(
        np.linalg.norm(found.loadings["target"]),
        np.linalg.norm(refit.fit.loadings["target"]),
        rtol=1e-2,
    )


def test_a_draw_may_leave_out_all_missing_entries() -> None:
    X, Y = sets()
    X[3, 2] = np.nan
    refit = refit_of(clvm.ContrastiveLVM(1, 2), X, Y)
    weights = [np.ones(len(X)), np.ones(len(Y))]
    weights[0][3] = 0.0
    found = refit(weights)
    direct = clvm.ContrastiveLVM(1, 2).fit(np.delete(X, 3, axis=0), background=Y)
    assert found.lower_bound == pytest.approx(direct.lower_bound_, abs=1e-3)
    np.testing.assert_allclose(found.means[0], np.delete(X, 3, axis=0).mean(axis=0))


def test_a_weighted_scatter_is_that_of_repeated_rows() -> None:
    X, _ = sets()
    w = drawn(len(X), 5)
    found, rows = weighted_scatter(X, w), np.repeat(X, w.astype(int), axis=0)
    np.testing.assert_allclose(found.mean, rows.mean(axis=0))
    np.testing.assert_allclose(found.matrix, np.cov(rows.T, bias=True) * len(rows))


def test_ascent_finds_what_newtons_method_misses() -> None:
    """Three rows of each set weigh so much that the map is another one."""
    X, Y = sets(30, 70)
    refit = refit_of(clvm.ContrastiveLVM(1, 2), X, Y)
    weights = [np.zeros(len(X)), np.zeros(len(Y))]
    for own in weights:
        own[:3] = 10.0
    draws = [refit.rows.data(weights), refit.rows.data([np.ones(len(X)), np.ones(len(Y))])]
    assert refit.newton is not None
    found = refit.newton.solve(partial(refit._sweep_of, draws), np.tile(refit.point, (2, 1)))[2]
    assert found.tolist() == [False, True]
    few = [rows[:3].repeat(10, axis=0) for rows in (X, Y)]
    direct = clvm.ContrastiveLVM(1, 2, inference=clvm.EM(tol=1e-9)).fit(few[0], background=few[1])
    far, near = refit.many([weights, [np.ones(len(X)), np.ones(len(Y))]])
    assert far.lower_bound == pytest.approx(direct.lower_bound_, rel=1e-5)
    assert near.lower_bound == pytest.approx(refit.fit.lower_bound, abs=1e-3)


def test_maps_that_run_away_are_not_found() -> None:
    newton = FixedNewton(lambda x: (-(x**2).sum(axis=1), 0.5 * x), np.zeros(2), np.zeros((2, 0)))

    def singular(x: Array) -> tuple[Array, Array]:
        return -(x**2).sum(axis=1), x @ np.linalg.inv(np.zeros((2, 2))).astype(float)

    assert not newton.solve(lambda _: singular, np.ones((1, 2)))[2].any()

    def explosive(x: Array) -> tuple[Array, Array]:
        return np.exp(x[:, 0]), x**3 - 9.0

    assert not newton.solve(lambda _: explosive, np.ones((1, 2)))[2].any()


def test_newton_and_ascent_find_the_same_fit() -> None:
    X, Y = sets()
    model = clvm.ContrastiveLVM(1, 2).fit(X, background=Y)
    given = read_input(model, X, Y)
    one, other = (Refit.of_fit(given, model.posterior_, n_refits=n) for n in (100, 1))
    assert one.newton is not None
    assert other.newton is None
    weights = [drawn(len(X), 6), drawn(len(Y), 7)]
    assert one(weights).lower_bound == pytest.approx(other(weights).lower_bound, abs=1e-3)


@pytest.mark.parametrize("name", ["plain", "in the span"])
def test_scatters_of_folds_are_joined_to_that_of_all_their_rows(name: str) -> None:
    X, Y = sets(**MODELS[name][1])  # type: ignore[arg-type]
    rows = ScatterRows([X, Y], span=name == "in the span")
    folds = [[np.arange(len(Z)) % 3 == fold for Z in (X, Y)] for fold in range(3)]
    parts = [rows.scatters([own.astype(float) for own in fold]) for fold in folds]
    direct = rows.scatters([1.0 - own for own in folds[2]])
    for first, second, rest in zip(*parts[:2], direct, strict=True):
        found = joined([first, second])
        np.testing.assert_allclose(found.matrix, rest.matrix, atol=1e-9)
        np.testing.assert_allclose(found.mean, rest.mean, atol=1e-12)
        assert (found.n_rows, found.n_outside) == (rest.n_rows, rest.n_outside)


@pytest.mark.filterwarnings("ignore:.*did not converge")
def test_priors_of_refits_are_in_units_of_the_data() -> None:
    X, Y = sets()
    model = clvm.ContrastiveLVM(
        2, 2, shared_prior="ard", target_prior="ard", inference="vb", random_state=0
    )
    found = []
    for unit in (1.0, 2.0**-10, 2.0**10):
        own = clvm.bootstrap(
            clone(model).fit(unit * X, background=unit * Y),
            unit * X,
            background=unit * Y,
            n_resamples=20,
            random_state=0,
        )
        assert own.low is not None
        found.append(own.low / unit)
    np.testing.assert_allclose(found[1], found[0], rtol=1e-6)
    np.testing.assert_allclose(found[2], found[0], rtol=1e-6)


@pytest.mark.filterwarnings("ignore:The variances of the target and the background")
def test_a_fit_of_which_newton_has_no_matrix_is_refitted_by_em() -> None:
    X, Y = sets(missing=0.02)
    X[7, 3] = 1e9
    model = clvm.ContrastiveLVM(0, 1).fit(X, background=Y)
    given = read_input(model, X, Y)
    refit = Refit.of_fit(given, model.posterior_, n_refits=1000)
    again = refit([np.ones(len(X)), np.ones(len(Y))])
    assert again.lower_bound == pytest.approx(model.lower_bound_, abs=1e-3)


def test_weights_that_leave_too_little_are_not_allowed() -> None:
    X, Y = sets(missing=0.2)
    refit = refit_of(clvm.ContrastiveLVM(1, 2), X, Y)
    ones = np.ones(len(Y))
    assert refit.allows([np.ones(len(X)), ones])
    assert not refit.allows([np.where(np.isnan(X[:, 0]), 1.0, 0.0), ones])  # no entry of x0
    assert not refit.allows([np.eye(len(X))[0], ones])
    few = np.zeros(len(X))
    few[:2] = 30.0
    assert not refit.allows([few, np.eye(len(Y))[0] + np.eye(len(Y))[1]])
