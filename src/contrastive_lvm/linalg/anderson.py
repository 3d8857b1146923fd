"""Accelerated, safeguarded ascent of a fixed-point map such as EM or coordinate ascent.

Anderson acceleration (Walker & Ni 2011, eq. 2.2; for EM: Henderson & Varadhan 2019): with
residuals `f_j = M(x_j) - x_j` of the last sweeps, take the combination of their images whose
residual is smallest. A candidate that does not raise the objective is dropped for the plain step
`M(x)`, which never lowers it (or a damped one, which does not), so that the trace is monotone; the
oldest sweep is then forgotten, and as many plain sweeps follow as candidates have failed in a row.

Past a saddle of the objective the combination of least residual lies behind, and an ascent drifts
on in small steps for thousands of sweeps. Every few sweeps the candidate is therefore a jump along
the way of the last ones, however their residuals change. It starts the combinations anew, and so
must gain several times what the way has gained; jumps that do not become shorter and rarer.

What the vector does not hold (covariances, scales, weights) is carried along unaccelerated.

Residuals that are nearly parallel make the combination a matter of rounding, and a sum of rows in
another order then ends elsewhere. During the first `steady` sweeps such directions are left out,
which costs a few sweeps in a hundred; later they are used, because slow maps (noise of a feature
going to zero) need them.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import numpy as np
from scipy.linalg.lapack import dgesv

from contrastive_lvm.arrays import EPS, TINY, Array

Carry = TypeVar("Carry")
Info = TypeVar("Info")
RIDGE = 1e-12  # of the normal equations, relative to their trace: just above rounding
LONGEST_PAUSE = 8  # sweeps; without a limit, fits take from 5 fewer to 7 more of about 130
PARALLEL = 1e-4  # residuals of length 1 are parallel where their mean square difference is smaller
SWEEPS_OF_A_WAY = 20  # between jumps; 15 fits that drift took as many sweeps with 10 as with 30
FIRST_JUMP = 4.0  # in lengths of that way
WORTH = 3.0  # gains of that way; with 0, a jump that gains next to nothing costs the combinations


class Ascent(NamedTuple, Generic[Info]):
    """Where the ascent ended, and how it got there."""

    point: Array
    info: Info  # results of the last evaluation, enough to continue from
    trace: Array  # objective after each accepted sweep
    n_sweeps: int  # evaluations, rejected candidates included
    converged: bool


class _State(NamedTuple, Generic[Info]):
    """A point, its objective, and what the evaluation found."""

    point: Array
    value: float
    info: Info


class AscentInterrupted(KeyboardInterrupt):
    """Ctrl-C during an ascent, with the best state so far; uncaught, it is a `KeyboardInterrupt`.

    Parameters
    ----------
    problem : FixedPointProblem
        The problem whose objective was being raised.
    ascent : Ascent
        The best state so far.
    """

    def __init__(self, problem: Any, ascent: Ascent[Any]) -> None:
        super().__init__()
        self.problem, self.ascent = problem, ascent


class FixedPointProblem(Protocol[Carry, Info]):
    """An objective, a map that never lowers it, and the number of sweeps that are to be steady."""

    steady_sweeps: int

    def evaluate(self, point: Array, carry: Carry, /) -> tuple[float, Info]:
        """Return the objective and what `improve` needs (the E-step)."""
        ...

    def improve(self, point: Array, found: Info, /) -> tuple[Array, Carry]:
        """Return the image of a point, and the values to carry to the next sweep (the M-step)."""
        ...

    def damped(self, point: Array, found: Info, /) -> tuple[Array, Carry] | None:
        """Return a nearer image if a full step lowered the objective; None if it cannot."""
        ...


@np.errstate(all="ignore")  # a candidate far out may overflow; it is then rejected
def ascend(
    problem: FixedPointProblem[Carry, Info],
    start: Array,
    carry: Carry,
    *,
    memory: int,
    max_sweeps: int,
    tol: float,
    stop: Callable[[Array, Info], bool] | None = None,
) -> Ascent[Info]:
    """Raise the objective of a problem until two sweeps gain less than `tol`.

    `memory=0` is the plain map. Gains below rounding error count as converged. `stop` may end the
    ascent early. The carried values can be as large as the data, so only those of one evaluation
    are kept. Ctrl-C raises `AscentInterrupted` after the first evaluation.
    """
    at = _State(start, *problem.evaluate(start, carry))
    del carry
    trace, sweeps, small = [at.value], 1, 0
    history = _History(memory, problem.steady_sweeps)
    try:
        while sweeps < max_sweeps and small < 2:
            new, evaluations = _sweep(problem, at, history)
            sweeps += evaluations
            gain = new.value - at.value
            if not gain >= 0:  # rounding at the optimum: the plain map cannot lower the objective
                small = 2
                break
            small = small + 1 if gain < max(tol, 8 * EPS * abs(at.value)) else 0
            trace.append(new.value)
            at = new
            if stop is not None and stop(at.point, at.info):
                break
    except KeyboardInterrupt:
        reached = np.array([value for value in trace if value <= at.value])
        ascent = Ascent(at.point, at.info, reached, sweeps, converged=False)
        raise AscentInterrupted(problem, ascent) from None
    return Ascent(at.point, at.info, np.array(trace), sweeps, small >= 2)


def _sweep(
    problem: FixedPointProblem[Carry, Info], at: _State[Info], history: "_History"
) -> tuple[_State[Info], int]:
    """Return the accelerated step, or the plain one where that fails, and its evaluations."""
    plain, carry = problem.improve(at.point, at.info)
    candidate = history.extrapolate(at.point, plain)
    value, info = problem.evaluate(candidate, carry)
    if candidate is not plain:
        if value >= history.least(at.value):
            history.succeed()
            return _State(candidate, value, info), 1
        history.forget()
        del info
        value, info = problem.evaluate(plain, carry)
    evaluations = 1 if candidate is plain else 2
    if not value >= at.value:
        nearer = problem.damped(at.point, at.info)
        if nearer is not None:
            del info
            return _State(nearer[0], *problem.evaluate(*nearer)), evaluations + 1
    return _State(plain, value, info), evaluations


@dataclass
class _History:
    """Differences of residuals and of images over the last sweeps, and the way since a jump."""

    memory: int
    steady: int
    residuals: list[Array] = field(default_factory=list)
    images: list[Array] = field(default_factory=list)
    products: Array = field(default_factory=lambda: np.empty((0, 0)))  # of these residuals
    last: tuple[Array, Array] | None = None
    failures: int = 0
    pause: int = 0
    begin: Array | None = None  # of the way along which the next jump goes
    left: int = SWEEPS_OF_A_WAY  # sweeps until then
    wait: int = SWEEPS_OF_A_WAY
    reach: float = FIRST_JUMP  # of the jump, in lengths of the way
    jumped: bool = False
    begin_value: float = np.nan  # of the objective where the way began

    def extrapolate(self, point: Array, image: Array) -> Array:
        """Return the combined image; `image` itself with nothing to combine, or in a pause."""
        residual = image - point
        if self.memory and self.last is not None:
            self.residuals = [*self.residuals, residual - self.last[0]][-self.memory :]
            self.images = [*self.images, image - self.last[1]][-self.memory :]
        self.last = (residual, image)
        if not self.residuals:
            return image
        n = len(self.residuals)  # of the products, those of the last difference are new
        normal = np.empty((n, n))
        normal[:-1, :-1] = self.products[len(self.products) - n + 1 :, len(self.products) - n + 1 :]
        normal[-1] = normal[:, -1] = [d @ self.residuals[-1] for d in self.residuals]
        self.products = normal
        jump = self.jump(point, image)
        if jump is not None:
            return jump
        if self.pause:
            self.pause -= 1
            return image
        sides = np.array([d @ residual for d in self.residuals])
        self.steady -= 1
        if not np.isfinite(normal).all():
            return image
        weights = (_steady_weights if self.steady >= 0 else _bold_weights)(normal, sides)
        combined = image.copy()
        for weight, change in zip(weights, self.images, strict=True):
            combined -= weight * change
        return combined if np.isfinite(combined).all() else image

    def jump(self, point: Array, image: Array) -> Array | None:
        """Return where a jump leads; None if none is due."""
        begin = point if self.begin is None else self.begin
        self.left -= 1
        self.jumped = self.left <= 0
        self.begin = image if self.jumped else begin
        if not self.jumped:
            return None
        self.left = self.wait
        far = image + self.reach * (image - begin)
        return far if np.isfinite(far).all() else image

    def least(self, value: float) -> float:
        """Return what the objective of a candidate must reach, given where it stands."""
        before = self.begin_value
        if self.jumped or np.isnan(before):
            self.begin_value = value
        gain = value - before
        return value + WORTH * gain if self.jumped and gain > 0 else value

    def succeed(self) -> None:
        """After a jump, combine sweeps anew and dare a longer one; pauses are short again."""
        self.failures = 0
        if self.jumped:
            self.residuals, self.images, self.products = [], [], np.empty((0, 0))
            self.last, self.begin, self.reach = None, None, 2.0 * self.reach
            self.left, self.begin_value = SWEEPS_OF_A_WAY, np.nan
            self.wait = SWEEPS_OF_A_WAY

    def forget(self) -> None:
        """Drop the oldest sweep after a failure, since the map has changed its shape, and pause.

        If it was a jump, the next one is shorter, or later where shorter would be none.
        """
        if self.jumped:
            self.reach /= 4.0
            if self.reach < 1.0:
                self.reach, self.wait = FIRST_JUMP, 2 * self.wait
            return
        self.failures += 1
        self.pause = min(self.failures, LONGEST_PAUSE)
        self.residuals, self.images = self.residuals[1:], self.images[1:]
        self.products = self.products[1:, 1:]


def _bold_weights(normal: Array, sides: Array) -> Array:
    """Return least-squares weights, with a ridge just above rounding."""
    ridged = normal.copy()
    ridged.flat[:: len(sides) + 1] += RIDGE * normal.trace() + TINY
    return np.asarray(dgesv(ridged, sides)[2])


def _steady_weights(normal: Array, sides: Array) -> Array:
    """Return least-squares weights over the directions in which residuals of length 1 differ."""
    length = np.sqrt(np.diagonal(normal)) + TINY
    spread, directions = np.linalg.eigh(normal / length / length[:, None])
    kept = directions[:, spread > PARALLEL * len(sides)]
    found = (kept.T @ (sides / length)) / spread[len(sides) - kept.shape[1] :]
    return np.asarray(kept @ found / length)
