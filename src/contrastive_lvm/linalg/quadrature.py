"""Expectations of the logistic function under a normal, entry by entry, to 1e-8.

With `f(e) = ln(1 + exp(e))` and `e ~ N(m, v)`, a Bernoulli or a negative binomial likelihood needs
`E[f]`, `E[f']` and `E[f'']` only. All are found at `-|m|` (`f(e) = e + f(-e)`), where `E[f']` keeps
its relative precision. Two rules share the work.

At small variances Gauss-Hermite nodes `m +- x s`. With `a = exp(-|m|)`, `c = 2 cosh(x s)` and
`d = 1 + a c + a^2 = (1 + a exp(x s)) (1 + a exp(-x s))`, a pair of nodes has the sums

    f: ln d        f': (a c + 2 a^2) / d        f'': (a c (1 + a^2) + 4 a^2) / d^2,

so that one exponential and one logarithm suffice for both. The wider the normal, the more nodes.

At large variances the roles change: `f'(e) = P(u < e)` for a standard logistic u, so that
`E[f'] = E_u[Phi((m - u) / s)]`, and the other two are its integral and its derivative. The Gauss
rule of the logistic density has the recurrence `b_k = pi^2 k^4 / (4 k^2 - 1)` (a symmetric Jacobi
matrix with `sqrt(b_k)` beside its diagonal; Golub & Welsch 1969).
"""

from functools import cache
from typing import NamedTuple

import numpy as np
from scipy.special import ndtr

from contrastive_lvm.arrays import Array

# Hermite nodes up to each variance, and nodes of the logistic rule beyond: errors of E[f], E[f']
# and E[f''] stay below 1e-8.
LIMITS = (0.0, 0.03, 0.1, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0, 8.0)
NODES = (2, 4, 6, 8, 12, 16, 18, 24, 30, 40, 62, 94, 24)  # the last number is the logistic rule's
PIECE = 1 << 16  # nodes times entries at a time: a few arrays of this size fit into the cache
SMALL_PIECE = 1 << 13  # entries: some ten arrays of this size fit the nearest cache
MOST_EXPONENT = 500.0  # beyond, a softplus is linear


class Logistic(NamedTuple):
    """`E[f]`, `E[f']` and `E[f'']` of the softplus f."""

    softplus: Array
    probability: Array
    curvature: Array


def logistic_moments(mean: Array, variance: Array) -> Logistic:
    """Return the moments under `N(mean, variance)`, entry by entry.

    >>> import numpy as np
    >>> logistic_moments(np.zeros(1), np.ones(1)).probability.round(6)
    array([0.5])
    """
    m, v = np.ravel(mean), np.ravel(variance)
    found = np.empty((3, len(m)))
    for start in range(0, len(m), PIECE):
        piece = slice(start, start + PIECE)
        found[:, piece] = _of_piece(m[piece], v[piece])
    return Logistic(*found.reshape(3, *np.shape(mean)))


def logistic_bounds(mean: Array, variance: Array) -> Logistic:
    """Return a close upper bound of `E[f]` and its slopes, at a tenth of the cost.

    For every a, `E[f(e)] <= a^2 v / 2 + f(m + (1 - 2 a) v / 2)` (the tilted bound of Saul & Jordan
    1999; Knowles & Minka 2011, eq. 12). It is least where a is the slope of f there; `a = f'(m)`
    needs no iteration, is as good to the order of `v^3` (by 1e-3 v^3 at most), and right where v is
    zero. The bound is off by the order of `v^2`: 1e-4 at a variance of 0.3, 1e-3 at 1, on average.

    With `p = f'(m + (1 - 2 a) v / 2)` its slope in m is `p + v (a - p) a (1 - a)`, which stands for
    `E[f']`, and twice that in v is `a^2 + (1 - 2 a) p`, which stands for `E[f'']`.

    >>> import numpy as np
    >>> m, v = np.zeros(1), np.ones(1)
    >>> (logistic_bounds(m, v).softplus - logistic_moments(m, v).softplus).round(4)
    array([0.0121])
    """
    m, v = np.ravel(mean), np.ravel(variance)
    found = np.empty((3, len(m)))
    with np.errstate(over="ignore"):  # f' is then 0
        for start in range(0, len(m), SMALL_PIECE):
            piece = slice(start, start + SMALL_PIECE)
            found[:, piece] = _tilted(m[piece], v[piece])
    return Logistic(*found.reshape(3, *np.shape(mean)))


def _tilted(m: Array, v: Array) -> tuple[Array, Array, Array]:
    a = np.exp(-m)
    a += 1.0
    np.reciprocal(a, out=a)
    half, tilt, square = 0.5 * v, 1.0 - 2.0 * a, a * a
    e = tilt * half
    e += m
    capped = np.minimum(e, MOST_EXPONENT)
    e -= capped
    rate = np.exp(capped, out=capped)
    softplus = np.log1p(rate)
    softplus += e
    p = rate / (1.0 + rate)
    half *= square
    softplus += half
    tilt *= p
    tilt += square  # the curvature
    square -= a
    square *= v  # -a (1 - a) v
    slope = p - a
    slope *= square
    slope += p
    return softplus, slope, tilt


def _of_piece(m: Array, v: Array) -> tuple[Array, Array, Array]:
    below, sd, rules = -np.abs(m), np.sqrt(v), np.searchsorted(LIMITS, v)
    softplus, tail, curvature = (np.empty(len(m)) for _ in range(3))
    for rule in np.flatnonzero(np.bincount(rules)):
        entries = np.flatnonzero(rules == rule)
        size = PIECE // NODES[rule]
        for start in range(0, len(entries), size):
            at = entries[start : start + size]
            if rule < len(LIMITS):
                found = _by_hermite(below[at], sd[at], NODES[rule])
            else:
                found = _by_logistic(below[at], sd[at])
            softplus[at], tail[at], curvature[at] = found
    softplus += np.maximum(m, 0.0)
    return softplus, np.where(m < 0, tail, 1.0 - tail), curvature


def _by_hermite(m: Array, sd: Array, n: int) -> tuple[Array, Array, Array]:
    """Return the moments at `m <= 0`; rows of the arrays are pairs of nodes."""
    nodes, weights = _hermite_pairs(n)
    a = np.exp(m)
    square = a * a
    ac = np.exp(np.minimum(nodes * sd, 700.0))
    ac += 1.0 / ac
    ac *= a
    d = ac + (1.0 + square)
    softplus = weights @ np.log(d)
    share = np.divide(1.0, d, out=d)
    tail = weights @ ((ac + 2.0 * square) * share)
    ac *= 1.0 + square
    ac += 4.0 * square
    ac *= share
    ac *= share
    return softplus, tail, weights @ ac


def _by_logistic(m: Array, sd: Array) -> tuple[Array, Array, Array]:
    nodes, weights = _logistic_rule(NODES[-1])
    distance = m - nodes
    z = distance / sd
    density = np.exp(-0.5 * z * z) / np.sqrt(2.0 * np.pi)
    below = ndtr(z)
    return weights @ (distance * below + sd * density), weights @ below, weights @ density / sd


@cache
def _hermite_pairs(n: int) -> tuple[Array, Array]:
    """Positive nodes of an even rule, (n / 2, 1), and their weights."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(n)
    return nodes[n // 2 :, None], weights[n // 2 :] / weights.sum()


@cache
def _logistic_rule(n: int) -> tuple[Array, Array]:
    """Nodes, (n, 1), and weights."""
    k = np.arange(1.0, n)
    beside = np.pi * k**2 / np.sqrt(4.0 * k**2 - 1.0)
    nodes, vectors = np.linalg.eigh(np.diag(beside, 1) + np.diag(beside, -1))
    return nodes[:, None], vectors[0] ** 2
