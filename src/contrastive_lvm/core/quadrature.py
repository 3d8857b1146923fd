"""Expectations of the logistic function under a normal: Gauss-Hermite quadrature, entry by entry.

With `f(e) = ln(1 + exp(e))` and `e ~ N(m, v)`, a Bernoulli or a negative binomial likelihood needs
`E[f]`, `E[f']` and `E[f'']` only.
"""

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from contrastive_lvm.core.types import Array

# Nodes by the largest variance: errors of E[f], E[f'] and E[f''] stay below 1e-6.
NODES = ((0.1, 5), (0.5, 8), (1.5, 14), (5.0, 28), (np.inf, 96))


class Logistic(NamedTuple):
    """`E[f]`, `E[f']` and `E[f'']` of the softplus f."""

    softplus: Array
    probability: Array
    curvature: Array


@lru_cache(maxsize=len(NODES))
def _rule(n: int) -> tuple[Array, Array]:
    nodes, weights = np.polynomial.hermite_e.hermegauss(n)
    return nodes, weights / weights.sum()


def logistic_moments(mean: Array, variance: Array) -> Logistic:
    """Under `N(mean, variance)`, entry by entry.

    >>> import numpy as np
    >>> logistic_moments(np.zeros(1), np.ones(1)).probability.round(6)
    array([0.5])
    """
    n = next(n for most, n in NODES if float(variance.max(initial=0.0)) <= most)
    sd = np.sqrt(variance)
    softplus, probability, curvature = (np.zeros_like(mean) for _ in range(3))
    for node, weight in zip(*_rule(n), strict=True):
        e = mean + node * sd
        decay = np.exp(-np.abs(e))
        tail = 1.0 / (1.0 + decay)
        softplus += weight * (np.maximum(e, 0.0) + np.log1p(decay))
        probability += weight * np.where(e >= 0, tail, decay * tail)
        curvature += weight * (decay * tail * tail)
    return Logistic(softplus, probability, curvature)
