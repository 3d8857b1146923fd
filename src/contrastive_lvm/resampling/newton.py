"""Fixed points of a map that was close to another map, by Newton's method with a fixed matrix.

A sweep of EM is a map `g` whose fixed point is the fit. Under other weights of the rows the map is
another one, but near the first fit its Jacobian `J` is almost the same, so that

    x <- x + (I - J + Q Q')^-1 (g(x) - x)

converges in a few steps where EM takes dozens. Rotations within a block of loadings leave the
likelihood alone and turn `g` along; the columns of `Q` are their tangents at the fit, along which
`I - J` is zero. When a step lowers the likelihood, the new map is too far from the old one, and
accelerated EM takes over.
"""

from collections.abc import Callable

import numpy as np

from contrastive_lvm.arrays import Array
from contrastive_lvm.linalg.anderson import ascend

TOL = 1e-3  # nats: with ln p = max - x^2 / 2, an error of x = .045 standard errors
ASCENT_TOL = 1e-4  # nats: an ascent gains less in a sweep than Newton's method in a step
MOST_STEPS = 20  # a resample takes 4 to 10
MOST_PARAMETERS = 1500  # beyond, the inverse costs more than sweeps
SAVED_SWEEPS = 20  # by Newton's method in a refit
DIFFERENCE = 1e-6  # of finite differences, in standard deviations of the features
Sweep = Callable[[Array], tuple[float, Array]]  # the objective at a point, and the next point


class FixedNewton:
    """Newton's method with the matrix of one fixed point.

    Parameters
    ----------
    sweep : callable
        The first map, with the objective that it raises.
    point : ndarray of shape (P,)
        Its fixed point.
    tangents : ndarray of shape (P, R)
        Orthonormal directions along which the objective is constant.
    """

    def __init__(self, sweep: Sweep, point: Array, tangents: Array) -> None:
        image = sweep(point)[1]
        matrix = np.eye(len(point)) + tangents @ tangents.T
        for i in range(len(point)):
            moved = point.copy()
            moved[i] += DIFFERENCE
            matrix[:, i] -= (sweep(moved)[1] - image) / DIFFERENCE
        self.inverse: Array = np.asarray(np.linalg.inv(matrix), dtype=np.float64)

    @np.errstate(all="ignore")  # a step too far may overflow; it is then rejected
    def solve(self, sweep: Sweep, start: Array) -> tuple[Array, float] | None:
        """Return a fixed point of another map, and the objective there; None if there is none."""
        point, best = start, -np.inf
        for _ in range(MOST_STEPS):
            value, image = sweep(point)
            if not value >= best:
                break
            point = point + self.inverse @ (image - point)
            if value - best < TOL:
                return point, value
            best = value
        return None


def pays(n_parameters: int, n_refits: int) -> bool:
    """Tell whether a Jacobian saves more sweeps than it takes.

    Examples
    --------
    >>> pays(500, 200), pays(500, 5)
    (True, False)
    """
    return n_parameters <= min(MOST_PARAMETERS, SAVED_SWEEPS * n_refits)


def ascended(sweep: Sweep, start: Array, memory: int, max_sweeps: int) -> tuple[Array, float]:
    """Return a fixed point by accelerated ascent, and the objective there."""
    end = ascend(_Sweeps(sweep), start, None, memory=memory, max_sweeps=max_sweeps, tol=ASCENT_TOL)
    return end.point, float(end.trace[-1])


class _Sweeps:
    """Sweeps that carry nothing, for accelerated ascent."""

    steady_sweeps = 0

    def __init__(self, sweep: Sweep) -> None:
        self.sweep = sweep

    def evaluate(self, point: Array, _: None) -> tuple[float, Array]:
        return self.sweep(point)

    def improve(self, _: Array, image: Array) -> tuple[Array, None]:
        return image, None
