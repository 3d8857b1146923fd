"""Missing data: the cost of a sweep, and how many sweeps acceleration saves."""

from typing import Any

import numpy as np

import contrastive_lvm as clvm
from benchmarks.complete import planted
from benchmarks.measure import Result, best_seconds
from contrastive_lvm.arrays import Array
from contrastive_lvm.coordinate_ascent.problem import Problem
from contrastive_lvm.coordinate_ascent.starts import deterministic_starts
from contrastive_lvm.linalg.anderson import ascend


def with_missing_entries() -> tuple[Any, Any]:
    """7,000 + 3,000 x 200 with 30 % of the entries missing at random."""
    X, B = (rows.astype(np.float64) for rows in planted(7_000, 3_000, 200))
    rng = np.random.default_rng(1)
    for rows in (X, B):
        rows[rng.random(rows.shape) < 0.3] = np.nan
    return X, B


def first_start(X: Any, B: Any) -> tuple[Problem, Array]:
    """The first deterministic start of EM with ten shared and two target dimensions."""
    model = clvm.contrastive_model(n_target=2, n_shared=10)
    return deterministic_starts(Problem(model, clvm.EM()._prepare(model, [X, B])))[0]


def sweep(repeats: int = 9) -> list[Result]:
    """One E-step and M-step over 10,000 rows against the product at its heart."""
    X, B = with_missing_entries()
    problem, start = first_start(X, B)
    carry = problem.first_carry()
    observed = (~np.isnan(np.vstack([X, B]))).astype(np.float64)
    pairs = np.random.default_rng(0).standard_normal((200, 78))

    def one_sweep() -> None:
        problem.improve(start, problem.evaluate(start, carry)[1])

    seconds = best_seconds({"sweep": one_sweep, "product": lambda: observed @ pairs}, repeats)
    return [
        Result(
            "30 % missing, 10,000 x 200, K = 12: sweep / bare product",
            seconds["sweep"] / seconds["product"],
            10.0,
            f"{1e3 * seconds['sweep']:.1f} ms and {1e3 * seconds['product']:.1f} ms",
        )
    ]


def acceleration() -> list[Result]:
    """Sweeps to plain EM's log-likelihood at its stop, missing and complete."""
    complete = tuple(rows.astype(np.float64) for rows in planted(7_000, 3_000, 200))
    results = []
    for name, (X, B) in (("30 % missing", with_missing_entries()), ("complete", complete)):
        problem, start = first_start(X, B)
        carry = problem.first_carry()
        plain = ascend(problem, start, carry, memory=0, max_sweeps=600, tol=1e-4)
        fast = ascend(problem, start, carry, memory=15, max_sweeps=600, tol=1e-6)
        reached = np.flatnonzero(fast.trace >= plain.trace[-1])
        rejected = fast.n_sweeps - len(fast.trace)
        sweeps = int(reached[0]) + 1 + rejected if len(reached) else fast.n_sweeps * 10
        results.append(
            Result(
                f"{name}: accelerated sweeps / plain EM's",
                sweeps / plain.n_sweeps,
                1 / 3,
                f"{sweeps} and {plain.n_sweeps} to log-likelihood {plain.trace[-1]:.4f}",
            )
        )
    return results
