"""Accelerated, safeguarded ascent of a fixed-point map such as EM or coordinate ascent.

Anderson acceleration (Walker & Ni 2011, eq. 2.2; for EM: Henderson & Varadhan 2019): with
residuals `f_j = M(x_j) - x_j` of the last sweeps, take the combination of their images whose
residual is smallest. A candidate that does not raise the objective is dropped for the plain step
`M(x)`, which never lowers it, and the oldest sweep is forgotten; so the trace is monotone.

What the vector does not hold (covariances, scales, weights) is carried along unaccelerated.
"""

from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

import numpy as np

from contrastive_lvm.core.types import Array

Carry = TypeVar("Carry")
Info = TypeVar("Info")
RIDGE = 1e-12
PATIENCE = 2  # sweeps in a row that must gain less than the tolerance


class Ascent(NamedTuple, Generic[Carry, Info]):
    """Where the ascent ended, and how it got there."""

    point: Array
    carry: Carry  # what was carried into the last evaluation
    info: Info  # what came out of it
    trace: Array  # objective after each accepted sweep
    n_sweeps: int  # evaluations, rejected candidates included
    converged: bool


@np.errstate(all="ignore")  # a candidate far out may overflow; it is then rejected
def ascend(
    evaluate: Callable[[Array, Carry], tuple[float, Info]],
    improve: Callable[[Array, Info], tuple[Array, Carry]],
    start: Array,
    carry: Carry,
    *,
    memory: int,
    max_sweeps: int,
    tol: float,
    interrupt: Callable[[Array, Carry], bool] | None = None,
) -> Ascent[Carry, Info]:
    """Raise `evaluate` by the map `improve` until two sweeps gain less than `tol`.

    `evaluate` returns the objective and what `improve` needs (the E-step); `improve` is the map
    (the M-step), with what it leaves to be carried. `memory=0` is the plain map. Gains below
    rounding error count as converged. `interrupt` may end the ascent early.
    """
    point, sweeps, small = start, 1, 0
    value, info = evaluate(point, carry)
    trace, history = [value], _History(memory)
    while sweeps < max_sweeps and small < PATIENCE:
        plain, new_carry = improve(point, info)
        candidate = history.extrapolate(point, plain)
        new_value, new_info = evaluate(candidate, new_carry)
        sweeps += 1
        if candidate is not plain and not new_value >= value:
            history.forget()
            candidate = plain
            new_value, new_info = evaluate(candidate, new_carry)
            sweeps += 1
        gain = new_value - value
        if not gain >= 0:  # rounding at the optimum: the plain map cannot lower the objective
            small = PATIENCE
            break
        small = small + 1 if gain < max(tol, 8 * np.finfo(float).eps * abs(value)) else 0
        point, carry, value, info = candidate, new_carry, new_value, new_info
        trace.append(value)
        if interrupt is not None and interrupt(point, carry):
            break
    return Ascent(point, carry, info, np.array(trace), sweeps, small >= PATIENCE)


class _History:
    """Differences of residuals and of images over the last sweeps."""

    def __init__(self, memory: int) -> None:
        self.memory = memory
        self.residuals: list[Array] = []
        self.images: list[Array] = []
        self.last: tuple[Array, Array] | None = None

    def extrapolate(self, point: Array, image: Array) -> Array:
        """The combined image; `image` itself while there is nothing to combine."""
        residual = image - point
        if self.memory and self.last is not None:
            self.residuals = [*self.residuals, residual - self.last[0]][-self.memory :]
            self.images = [*self.images, image - self.last[1]][-self.memory :]
        self.last = (residual, image)
        if not self.residuals:
            return image
        dF, dX = np.array(self.residuals), np.array(self.images)
        normal = dF @ dF.T
        normal[np.diag_indices_from(normal)] += RIDGE * np.trace(normal) + np.finfo(float).tiny
        weights = np.linalg.solve(normal, dF @ residual)
        combined: Array = image - weights @ dX
        return combined if np.isfinite(combined).all() else image

    def forget(self) -> None:
        """Drop the oldest sweep: the map has changed its shape since."""
        self.residuals, self.images = self.residuals[1:], self.images[1:]
