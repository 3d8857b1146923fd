"""A test of unimodality in one dimension: whether there is a valley between two clouds.

The statistic is the distance of the empirical distribution F from the nearest one with a single
mode, in the spirit of the dip of Hartigan & Hartigan (1985): a distribution is unimodal if there
is a point before which it is convex and after which it is concave, so

    dip(F) = min_m max( sup_{x <= m} F - convex minorant of F,  sup_{x >= m} concave majorant - F ).

A skewed or heavy-tailed distribution has one mode, however badly a normal one fits. Among the
unimodal distributions the uniform one has the largest dip, asymptotically (their section 3), so
that p-values are those of uniform samples, and too large for all other unimodal distributions.
"""

import numpy as np
from scipy.optimize import isotonic_regression

from contrastive_lvm.arrays import Array

MOST_VALUES = 2000  # evenly spaced in their order; more do not change the result
# Quantiles of sqrt(n) dip of 4,000 uniform samples of each size; tests repeat some of them.
SIZES = np.array([10, 20, 40, 80, 160, 320, 640, 1280])
LEVELS = np.array([0.5, 0.2, 0.1, 0.05, 0.02, 0.01, 0.005, 0.001])
QUANTILES = np.array(
    [
        [0.302, 0.426, 0.497, 0.554, 0.627, 0.680, 0.721, 0.774],
        [0.424, 0.549, 0.620, 0.682, 0.773, 0.817, 0.859, 0.923],
        [0.499, 0.623, 0.690, 0.756, 0.840, 0.901, 0.934, 1.045],
        [0.550, 0.663, 0.731, 0.792, 0.865, 0.915, 0.953, 1.026],
        [0.581, 0.688, 0.752, 0.813, 0.876, 0.944, 0.985, 1.072],
        [0.598, 0.711, 0.777, 0.832, 0.898, 0.960, 0.983, 1.062],
        [0.613, 0.725, 0.787, 0.851, 0.919, 0.974, 1.017, 1.122],
        [0.629, 0.735, 0.798, 0.864, 0.938, 0.986, 1.022, 1.145],
    ]
)


def dip(values: Array) -> float:
    """Return the distance of the distribution of some values from the nearest unimodal one."""
    x, counts = np.unique(values, return_counts=True)
    if len(x) < 3:
        return 0.0
    F = np.cumsum(counts) / counts.sum()
    before = np.concatenate([[0.0], F[:-1]])
    low, high = 0, len(x) - 1
    while high - low > 1:  # the first gap grows with the mode, the second one falls
        mode = (low + high) // 2
        first, second = _gaps(x, F, before, mode)
        low, high = (low, mode) if first > second else (mode, high)
    return min(max(_gaps(x, F, before, mode)) for mode in (low, high))


def _gaps(x: Array, F: Array, before: Array, mode: int) -> tuple[float, float]:
    """Return how far F is from convex up to a mode, and from concave beyond."""
    first = _convexity_gap(x[: mode + 1], F[: mode + 1])
    second = _convexity_gap(-x[mode:][::-1], 1.0 - before[mode:][::-1])
    return first, second


def _convexity_gap(x: Array, F: Array) -> float:
    """Return the greatest distance of F from its greatest convex minorant."""
    if len(x) < 3:
        return 0.0
    widths = np.diff(x)
    slopes = isotonic_regression(np.diff(F) / widths, weights=widths).x
    return float((F[1:] - F[0] - np.cumsum(slopes * widths)).max())


def dip_pvalue(values: Array) -> float:
    """Return the probability of a larger dip if the values were uniform, between .001 and 1."""
    if len(values) > MOST_VALUES:
        values = values[np.linspace(0, len(values) - 1, MOST_VALUES).astype(np.intp)]
    n = len(values)
    scaled = np.sqrt(n) * dip(values)
    at = np.array([np.interp(np.log(n), np.log(SIZES), column) for column in QUANTILES.T])
    if scaled <= at[0]:
        return float(1.0 - 0.5 * scaled / at[0])
    return float(np.exp(np.interp(scaled, at, np.log(LEVELS))))
