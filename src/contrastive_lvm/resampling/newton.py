"""Fixed points of maps that are close to another map, by Newton's method with a fixed matrix.

A sweep of EM is a map `g` whose fixed point is the fit. Under other weights of the rows the map is
another one, but near the first fit its Jacobian `J` is almost the same, so that the steps

    x <- x + (I - J + Q Q')^-1 (g(x) - x)

converge fast where EM takes dozens. Rotations within a block of loadings leave the likelihood
alone and turn `g` along; the columns of `Q` are their tangents at the fit, along which `I - J` is
zero. Anderson acceleration (Walker & Ni 2011, eq. 2.2) makes up for what differs between the
Jacobians. Many maps are solved at once. The few whose fixed point is not found, because their map
is too far from the first one, are left to the ascent of EM, which never lowers the likelihood.
"""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from contrastive_lvm.arrays import TINY, Array
from contrastive_lvm.linalg.anderson import ascend

TOL = 1e-5  # nats by which the last step but one may change the objective
ASCENT_TOL = 1e-4  # nats: an ascent gains less in a sweep than Newton's method in a step
MOST_STEPS = 40  # 5 to 7 where rows are many, 15 to 25 where features are more than rows
MEMORY = 8  # steps that are combined; with 3, few rows take twice as many steps
RIDGE = 1e-10  # of the normal equations, relative to their trace: above rounding
AT_ONCE = 64  # points whose images make columns of the Jacobian
DIFFERENCE = 1e-6  # of finite differences, in standard deviations of the features
MOST_PARAMETERS = 3000  # beyond, the inverse takes more than 200 MB and a second
SAVED_SWEEPS = 20  # that Newton's method saves in a refit
Sweep = Callable[[Array], tuple[Array, Array]]  # (B, P) points -> objectives (B,), images (B, P)
Maps = Callable[[npt.NDArray[np.intp]], Sweep]  # the sweep of chosen maps


class FixedNewton:
    """Newton's method with the matrix of one fixed point.

    Parameters
    ----------
    sweep : callable
        The first map, with the objective that it raises, at any number of points.
    point : ndarray of shape (P,)
        Its fixed point.
    tangents : ndarray of shape (P, R)
        Orthonormal directions along which the objective is constant.
    """

    def __init__(self, sweep: Sweep, point: Array, tangents: Array) -> None:
        P, image = len(point), sweep(point[None])[1]
        matrix = np.eye(P) + tangents @ tangents.T
        for first in range(0, P, AT_ONCE):
            own = slice(first, first + AT_ONCE)
            moved = point + DIFFERENCE * np.eye(P)[own]
            matrix[:, own] -= (sweep(moved)[1] - image).T / DIFFERENCE
        # In single precision, twice as fast: steps are corrected by later ones.
        self.inverse_transposed = np.ascontiguousarray(np.linalg.inv(matrix).T, dtype=np.float32)

    @np.errstate(all="ignore")  # a step too far may overflow; it is then not counted as found
    def solve(self, maps: Maps, points: Array) -> tuple[Array, Array, npt.NDArray[np.bool_]]:
        """Return fixed points of other maps, (B, P), their objectives, and which were found."""
        points, values, left = points.copy(), np.full(len(points), np.nan), np.arange(len(points))
        sweep, steps = maps(left), _Steps(points)
        best = values  # of those that are left
        try:
            for _ in range(MOST_STEPS):
                now, images = sweep(points[left])
                moves = (images - points[left]).astype(np.float32) @ self.inverse_transposed
                points[left] = steps.combined(points[left], moves.astype(np.float64))
                change, values[left] = np.abs(now - values[left]), now
                best = np.fmax(best, now)
                unsolved = ~((change < TOL) & (now > best - TOL))
                left, best = left[unsolved], best[unsolved]
                if not len(left):
                    break
                if not unsolved.all():
                    sweep = maps(left)
                    steps.keep(unsolved)
        except np.linalg.LinAlgError:  # the points of some map diverge
            pass
        return points, values, ~np.isin(np.arange(len(points)), left)


class _Steps:
    """The last steps of many iterations, combined so that the next ones become short."""

    def __init__(self, points: Array) -> None:
        B, P = points.shape
        self.steps, self.images = np.zeros((2, B, MEMORY, P))  # differences between iterations
        self.last: tuple[Array, Array] | None = None
        self.n_combined = 0

    def keep(self, which: npt.NDArray[np.bool_]) -> None:
        """Forget the other iterations."""
        self.steps, self.images = self.steps[which], self.images[which]
        if self.last is not None:
            self.last = self.last[0][which], self.last[1][which]

    def combined(self, points: Array, steps: Array) -> Array:
        """Return the next points, with the steps corrected by the last ones, (B, P)."""
        images = points + steps
        if self.last is None:
            self.last = steps, images
            return images
        slot = self.n_combined % MEMORY
        self.steps[:, slot], self.images[:, slot] = steps - self.last[0], images - self.last[1]
        self.n_combined, self.last = self.n_combined + 1, (steps, images)
        own = slice(min(self.n_combined, MEMORY))
        differences = self.steps[:, own]
        normal = differences @ np.swapaxes(differences, 1, 2)
        size = RIDGE * np.trace(normal, axis1=1, axis2=2) + TINY
        normal += size[:, None, None] * np.eye(normal.shape[1])
        weights = np.linalg.solve(normal, differences @ steps[:, :, None])
        return np.asarray(images - (np.swapaxes(weights, 1, 2) @ self.images[:, own])[:, 0])


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
        values, images = self.sweep(point[None])
        return float(values[0]), images[0]

    def improve(self, _: Array, image: Array) -> tuple[Array, None]:
        return image, None

    def damped(self, _: Array, __: Array) -> None:
        return None
