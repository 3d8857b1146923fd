"""Anderson acceleration: monotone, and faster than the map that it accelerates."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from contrastive_lvm.linalg.anderson import _bold_weights, _steady_weights, ascend
from tests.oracles import Array


@dataclass
class Given:
    """A problem of two functions."""

    evaluate: Any
    improve: Any
    steady_sweeps: int = 0

    def damped(self, point: Array, found: Any) -> None:
        """Say that no image is too far."""


def quadratic(D: int, seed: int) -> tuple[Given, Array]:
    """A concave quadratic with its slow gradient map (a contraction), and its maximum."""
    rng = np.random.default_rng(seed)
    Q = np.linalg.qr(rng.standard_normal((D, D)))[0]
    A, top = Q @ np.diag(np.geomspace(0.002, 1.0, D)) @ Q.T, rng.standard_normal(D)

    def evaluate(x: Array, carry: int) -> tuple[float, Array]:
        gradient = A @ (top - x)
        return float(-0.5 * (top - x) @ gradient), gradient

    def improve(x: Array, gradient: Array) -> tuple[Array, int]:
        return x + gradient, 0

    return Given(evaluate, improve), top


@pytest.mark.parametrize("seed", range(4))
def test_acceleration_is_monotone_and_faster_on_a_contraction(seed: int) -> None:
    problem, top = quadratic(10, seed)
    plain, fast, steady = (
        ascend(
            replace(problem, steady_sweeps=steady),
            np.zeros(10),
            0,
            memory=memory,
            max_sweeps=50_000,
            tol=1e-12,
        )
        for memory, steady in ((0, 0), (12, 0), (12, 30))
    )
    for run in (plain, fast, steady):
        assert run.converged
        assert (np.diff(run.trace) >= 0).all()
        assert run.trace[-1] == problem.evaluate(run.point, 0)[0]
        np.testing.assert_array_equal(run.info, problem.evaluate(run.point, 0)[1])
    np.testing.assert_allclose(fast.point, top, atol=1e-4)
    assert fast.n_sweeps < 0.05 * plain.n_sweeps
    assert steady.n_sweeps < 0.08 * plain.n_sweeps
    assert plain.n_sweeps == len(plain.trace)


def test_ascent_survives_misleading_extrapolations() -> None:
    """A map with a kink: candidates that would lower the objective are dropped."""
    rejected = 0

    def evaluate(x: Array, carry: int) -> tuple[float, None]:
        return float(-np.abs(x).sum() - np.exp(5.0 * np.maximum(-x, 0.0)).sum()), None

    def improve(x: Array, _: None) -> tuple[Array, int]:
        return np.sign(x) * np.maximum(0.6 * np.abs(x) - 0.05, 0.0), 0

    for seed in range(10):
        start = np.random.default_rng(seed).uniform(0.5, 5.0, 4)
        run = ascend(Given(evaluate, improve), start, 0, memory=3, max_sweeps=200, tol=1e-9)
        assert (np.diff(run.trace) >= 0).all()
        assert run.converged
        np.testing.assert_allclose(run.point, 0.0, atol=1e-6)
        rejected += run.n_sweeps - len(run.trace)
    assert rejected > 0


def test_steady_weights_do_not_magnify_rounding() -> None:
    """Residuals that differ by a hundred-thousandth: bold weights depend on the last digits."""
    rng = np.random.default_rng(0)
    residuals = rng.standard_normal((1, 30)) + 1e-5 * rng.standard_normal((5, 30))
    normal, sides = residuals @ residuals.T, residuals @ rng.standard_normal(30)
    rounded = normal * (1.0 + 1e-15 * rng.standard_normal((5, 5)))
    rounded = (rounded + rounded.T) / 2.0
    changes = [
        np.abs(weights(normal, sides) - weights(rounded, sides)).max()
        for weights in (_bold_weights, _steady_weights)
    ]
    assert changes[0] > 1e-6
    assert changes[1] < 1e-13


@pytest.mark.parametrize("most", [1, 2, 5])
def test_ascent_stops_at_the_limit(most: int) -> None:
    problem, _ = quadratic(10, 0)
    run = ascend(problem, np.zeros(10), 0, memory=0, max_sweeps=most, tol=1e-12)
    assert run.n_sweeps == len(run.trace) == most
    assert not run.converged
