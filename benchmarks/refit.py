"""Resampling complete data: a refit from the fit against a fit of its own."""

import numpy as np

import contrastive_lvm as clvm
from benchmarks.coverage import simulate
from benchmarks.measure import Result, best_seconds
from contrastive_lvm.estimators.linear_fit import read_input
from contrastive_lvm.resampling.refit import Refit
from contrastive_lvm.resampling.replicates import check_replicates, draw_weights

# Rows of each set, features, and how many refits take as long as a fit; at 500 x 100 a fit takes
# hardly longer than at 400 x 30, but forming the scatters of a resample does.
SIZES = ((200, 20, 20.0), (400, 30, 20.0), (500, 100, 10.0))


def refits(repeats: int = 10) -> list[Result]:
    """A refit of resampled rows, the preparation for 200 of them included, against a fit."""
    return [_refit(*size, repeats) for size in SIZES]


def _refit(n: int, d: int, refits_per_fit: float, repeats: int) -> Result:
    rng = np.random.default_rng(0)
    sets = simulate(rng, n, d)
    X, Y = sets.target, sets.background
    model = clvm.ContrastiveLVM(2, 3).fit(X, background=Y)
    given = read_input(model, X, Y)
    rows = check_replicates([None, None], [n, n])
    draws = [draw_weights(rows, rng) for _ in range(200)]

    def warm() -> None:
        refit = Refit.of_fit(given, model.posterior_, n_refits=len(draws))
        for first in range(0, len(draws), refit.batch):
            refit.many(draws[first : first + refit.batch])

    def cold() -> None:
        clvm.ContrastiveLVM(2, 3).fit(X, background=Y)

    seconds = best_seconds({"warm": warm, "cold": cold}, repeats)
    one = seconds["warm"] / len(draws)
    return Result(
        f"{n} + {n} x {d}: time of a refit / fit",
        one / seconds["cold"],
        1.0 / refits_per_fit,
        f"{1e3 * one:.2f} ms and {1e3 * seconds['cold']:.1f} ms",
    )
