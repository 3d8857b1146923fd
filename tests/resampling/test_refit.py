"""Refits under weights: the same as fits of repeated rows, by every way."""

from typing import Any

import numpy as np
import pytest

import contrastive_lvm as clvm
from contrastive_lvm.arrays import Array
from contrastive_lvm.coordinate_ascent.problem import Problem
from contrastive_lvm.estimators.linear_fit import read_input
from contrastive_lvm.resampling.newton import FixedNewton, ascended
from contrastive_lvm.resampling.refit import Refit, _sweep
from contrastive_lvm.resampling.refit_rows import EngineRows, ScatterRows, weighted_scatter, without
from contrastive_lvm.resampling.scatter_sweep import ScatterSweep


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
    "ARD": (clvm.ContrastiveLVM(1, "auto"), {}),
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
def test_a_sweep_by_scatters_is_the_sweep_of_the_engine(name: str) -> None:
    model, options = MODELS[name]
    X, Y = sets(**options)  # type: ignore[arg-type]
    refit = refit_of(model, X, Y)
    assert isinstance(refit.rows, ScatterRows)
    weights = [drawn(len(X), 3), drawn(len(Y), 4)]
    data = refit.rows.data(weights)._replace(variance=refit.problem.data.variance)
    problem = Problem(refit.model, data)
    point = refit.point + 0.1 * np.random.default_rng(0).standard_normal(len(refit.point))
    value, image = _sweep(problem, point)
    fast_value, fast_image = ScatterSweep(problem)(refit.rows.scatters(weights), point)
    assert fast_value == pytest.approx(value, rel=1e-12)
    np.testing.assert_allclose(fast_image, image, atol=1e-9)


def test_a_weighted_scatter_is_that_of_repeated_rows() -> None:
    X, _ = sets()
    w = drawn(len(X), 5)
    found, rows = weighted_scatter(X, w), np.repeat(X, w.astype(int), axis=0)
    np.testing.assert_allclose(found.mean, rows.mean(axis=0))
    np.testing.assert_allclose(found.matrix, np.cov(rows.T, bias=True) * len(rows))


def test_newtons_method_gives_up_far_from_the_fit() -> None:
    """A map whose fixed point is far away, and whose Jacobian there is another one."""
    start = np.zeros(2)
    newton = FixedNewton(lambda x: (-float(x @ x), 0.5 * x), start, np.zeros((2, 0)))
    top = np.array([3.0, -2.0])

    def sweep(x: Array) -> tuple[float, Array]:
        return -float(((x - top) ** 2 * [1.0, 9.0]).sum()), x + [0.02, 1.3] * (top - x)

    assert newton.solve(sweep, start) is None
    point, value = ascended(sweep, start, memory=5, max_sweeps=500)
    np.testing.assert_allclose(point, top, atol=0.02)
    assert value > -1e-2


def test_newton_and_ascent_find_the_same_fit() -> None:
    X, Y = sets()
    model = clvm.ContrastiveLVM(1, 2).fit(X, background=Y)
    given = read_input(model, X, Y)
    one, other = (Refit.of_fit(given, model.posterior_, n_refits=n) for n in (100, 1))
    assert one.newton is not None
    assert other.newton is None
    weights = [drawn(len(X), 6), drawn(len(Y), 7)]
    assert one(weights).lower_bound == pytest.approx(other(weights).lower_bound, abs=2e-3)


@pytest.mark.parametrize("name", ["plain", "in the span"])
def test_a_scatter_without_a_fold_is_that_of_the_other_rows(name: str) -> None:
    X, Y = sets(**MODELS[name][1])  # type: ignore[arg-type]
    rows = ScatterRows([X, Y], span=name == "in the span")
    fold = [np.arange(len(Z)) % 3 == 1 for Z in (X, Y)]
    whole = rows.scatters([np.ones(len(X)), np.ones(len(Y))])
    parts = rows.scatters([own.astype(float) for own in fold])
    direct = rows.scatters([1.0 - own for own in fold])
    for total, part, rest in zip(whole, parts, direct, strict=True):
        found = without(total, part)
        np.testing.assert_allclose(found.matrix, rest.matrix, atol=1e-9)
        np.testing.assert_allclose(found.mean, rest.mean, atol=1e-12)
        assert (found.n_rows, found.n_outside) == (rest.n_rows, rest.n_outside)


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
