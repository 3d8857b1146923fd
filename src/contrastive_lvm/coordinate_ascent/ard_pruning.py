"""Automatic size: columns under ARD that the bound is better off without are dropped.

The bound has many optima that differ in the number of columns, and coordinate ascent does not move
between them: a column that is in use keeps its support. So, once a size has settled, the weakest
columns are taken out on trial; they stay out if the bound ends higher. Nothing finer than a tenth
of a nat is at stake here; the chosen size is then fitted to the engine's own tolerance.
"""

from itertools import count
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from contrastive_lvm.arrays import Array
from contrastive_lvm.coordinate_ascent.sweep import Carry, Info, Task
from contrastive_lvm.linalg.anderson import Ascent
from contrastive_lvm.priors.ard import ARD

if TYPE_CHECKING:
    from contrastive_lvm.coordinate_ascent.engine import CoordinateAscent

LOOK_EVERY = 5  # sweeps between looks for columns without support
SETTLED = 0.1  # nats a sweep
TRIAL_SWEEPS = 10
AT_ONCE = 32  # the first trial takes out one column in so many
DOUBTFUL = 30.0  # times its posterior variance: a column with more signal is beyond doubt


class Sized(NamedTuple):
    """A task of the right size, where its ascent stands, and what it took."""

    task: Task
    point: Array
    carry: Carry
    trace: Array
    n_sweeps: int


class Sizing:
    """The search for the size, from too many columns downwards."""

    def __init__(self, engine: "CoordinateAscent", task: Task) -> None:
        self.engine, self.task = engine, task
        self.trace: list[float] = []
        self.spent = 0

    def run(self, start: Array, carry: Carry, max_sweeps: int) -> Sized:
        """Ascend and drop columns until nothing more is to be gained by it."""
        ascent = self._settle(start, carry, max_sweeps)
        while self.spent < max_sweeps:
            leaner = self._unsupported_dropped(ascent) or self._doubtful_dropped(ascent)
            if leaner is None:
                break
            self.task, point, carry = leaner
            ascent = self._settle(point, carry, max_sweeps)
        return Sized(self.task, ascent.point, ascent.info.carry, np.array(self.trace), self.spent)

    def _settle(self, start: Array, carry: Carry, max_sweeps: int) -> Ascent[Info]:
        sweeps = count(1)

        def due(point: Array, info: Info) -> bool:
            sweep = next(sweeps)
            look = sweep <= 2 or sweep % LOOK_EVERY == 0
            return look and bool((support(self.task, point, info.carry) < 1.0).any())

        left = max(1, max_sweeps - self.spent)
        ascent = self.engine.ascend(
            self.task, start, carry, max_sweeps=left, tol=SETTLED, interrupt=due
        )
        self.spent += ascent.n_sweeps
        best = self.trace[-1] if self.trace else -np.inf
        self.trace.extend(value for value in ascent.trace.tolist() if value >= best)
        return ascent

    def _unsupported_dropped(self, ascent: Ascent[Info]) -> tuple[Task, Array, Carry] | None:
        """Columns with more posterior variance than signal, if the bound is no lower for it."""
        ratio = support(self.task, ascent.point, ascent.info.carry)
        doomed = np.argsort(ratio)[: int((ratio < 1.0).sum())]
        while len(doomed):
            leaner = self._without(ascent, doomed)
            if leaner[0].evaluate(*leaner[1:])[0] >= ascent.trace[-1]:
                return leaner
            doomed = doomed[: len(doomed) // 2]
        return None

    def _doubtful_dropped(self, ascent: Ascent[Info]) -> tuple[Task, Array, Carry] | None:
        """The weakest columns, if the bound is higher after a few sweeps without them."""
        ratio = support(self.task, ascent.point, ascent.info.carry)
        doubtful = int((ratio < DOUBTFUL).sum())
        n = min(doubtful, max(1, int(np.isfinite(ratio).sum()) // AT_ONCE))
        while n:
            task, point, carry = self._without(ascent, np.argsort(ratio)[:n])
            trial = self.engine.ascend(task, point, carry, max_sweeps=TRIAL_SWEEPS, tol=SETTLED)
            self.spent += trial.n_sweeps
            if trial.trace[-1] > ascent.trace[-1]:
                return task, trial.point, trial.info.carry
            n //= 2
        return None

    def _without(self, ascent: Ascent[Info], doomed: np.ndarray) -> tuple[Task, Array, Carry]:
        """A task with fewer columns, at the same point otherwise."""
        model, carry = self.task.model, ascent.info.carry
        keep = np.setdiff1d(np.arange(model.n_columns), doomed)
        n_shared = int((keep < model.n_shared).sum())
        smaller = self.task.resized(n_shared, len(keep) - n_shared)
        p = self.task.unflatten(ascent.point)
        point = smaller.flatten(p._replace(L=p.L[:, keep]))
        fresh = smaller.start_carry(p.L[:, keep])
        shared, target = (
            new if isinstance(prior, ARD) else old
            for prior, new, old in zip(model.priors, fresh.states, carry.states, strict=True)
        )
        carry = carry._replace(cov=None, states=(shared, target))
        return (smaller, *self.engine.begin(smaller, point, carry))


def support(task: Task, point: Array, carry: Carry) -> Array:
    """Signal over posterior variance of every column; infinite where ARD has no say."""
    ratio = np.full(task.model.n_columns, np.inf)
    if carry.cov is None:
        return ratio
    signal = (task.unflatten(point).L ** 2).sum(axis=0)
    variance = carry.cov.diagonal().sum(axis=0)
    for prior, columns in zip(task.model.priors, task.model.blocks, strict=True):
        if isinstance(prior, ARD):
            ratio[columns] = signal[columns] / variance[columns]
    return ratio
