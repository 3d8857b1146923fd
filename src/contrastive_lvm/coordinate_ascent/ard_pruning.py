"""Automatic size: columns are dropped if the bound is higher without them.

The bound under `ARD` has many optima that differ in the number of columns, and coordinate ascent
does not move between them: a column that is in use keeps its support. So, once a size has settled,
the weakest columns are taken out on trial; they stay out if the bound ends higher. A tenth of a nat
is precise enough for this choice; the chosen size is then fitted to the engine's tolerance.
"""

from itertools import count

import numpy as np

from contrastive_lvm.arrays import Array
from contrastive_lvm.coordinate_ascent.problem import Carry, Problem, RowResults, WarmStart
from contrastive_lvm.linalg.anderson import Ascent, ascend

LOOK_EVERY = 5  # sweeps between looks for columns without support
SETTLED = 0.1  # nats per sweep
MOST_TRIED = 8  # columns, one at a time, where the noise is at its least
TRIAL_SWEEPS = 10  # after columns are taken out, before bounds are compared
AT_ONCE = 32  # the first trial takes out one column of every 32
DOUBTFUL = 30.0  # times its posterior variance: a column with more signal is not tried


def without_unsupported_columns(start: WarmStart, memory: int, max_sweeps: int) -> WarmStart:
    """Ascend and drop columns until that no longer raises the bound."""
    return _Pruning(start.problem, memory, max_sweeps).run(start.point, start.carry)


class _Pruning:
    """The search for the size, from too many columns downwards."""

    def __init__(self, problem: Problem, memory: int, max_sweeps: int) -> None:
        self.problem, self.memory, self.max_sweeps = problem, memory, max_sweeps
        self.trace: list[float] = []
        self.spent = 0

    def run(self, start: Array, carry: Carry) -> WarmStart:
        """Return the problem of the right size, and where its ascent stands."""
        ascent = self._settle(start, carry)
        while self.spent < self.max_sweeps:
            before = WarmStart(self.problem, ascent.point, ascent.info.carry, ascent.trace)
            try:
                leaner = self._without_unsupported(ascent) or self._without_doubtful(ascent)
                if leaner is None:
                    break
                self.problem = leaner.problem
                ascent = self._settle(leaner.point, leaner.carry)
            except KeyboardInterrupt as stop:
                raise before.kept_after(stop) from None
        carry, trace = ascent.info.carry, np.array(self.trace)
        return WarmStart(self.problem, ascent.point, carry, trace, self.spent)

    def _settle(self, start: Array, carry: Carry) -> Ascent[RowResults]:
        """Ascend until the bound hardly rises, or until a column has lost its support."""
        sweeps = count(1)

        def is_due(point: Array, found: RowResults) -> bool:
            sweep = next(sweeps)
            look = sweep <= 2 or sweep % LOOK_EVERY == 0
            return look and bool((support(self.problem, point, found.carry) < 1.0).any())

        left = max(1, self.max_sweeps - self.spent)
        ascent = ascend(
            self.problem,
            start,
            carry,
            memory=self.memory,
            max_sweeps=left,
            tol=SETTLED,
            stop=is_due,
        )
        self.spent += ascent.n_sweeps
        best = self.trace[-1] if self.trace else -np.inf
        self.trace.extend(value for value in ascent.trace.tolist() if value >= best)
        return ascent

    def _without_unsupported(self, ascent: Ascent[RowResults]) -> WarmStart | None:
        """Drop columns with more posterior variance than signal, if the bound is no lower."""
        ratio = support(self.problem, ascent.point, ascent.info.carry)
        doomed = np.argsort(ratio)[: int((ratio < 1.0).sum())]
        while len(doomed):
            leaner = self._without(ascent, doomed)
            if leaner.problem.evaluate(leaner.point, leaner.carry)[0] >= ascent.trace[-1]:
                return leaner
            doomed = doomed[: len(doomed) // 2]
        return None

    def _without_doubtful(self, ascent: Ascent[RowResults]) -> WarmStart | None:
        """Drop the weakest columns, if the bound is higher after a few sweeps without them.

        Where the noise is at its least, no column has much posterior variance, whatever it
        describes, so that rounding would say which is the weakest: the best one to drop is sought.
        """
        ratio = support(self.problem, ascent.point, ascent.info.carry)
        order, n_finite = np.argsort(ratio), int(np.isfinite(ratio).sum())
        psi = self.problem.unflatten(ascent.point).psi
        if (psi <= (1.0 + 1e-9) * self.problem.floor).all():  # the exponential of a logarithm
            most = min(n_finite, MOST_TRIED)
            single = [self._trial(ascent, order[i : i + 1]) for i in range(most)]
            found = max(single, key=lambda trial: trial.lower_bounds[-1], default=None)
            return found if found and found.lower_bounds[-1] > ascent.trace[-1] else None
        n = min(int((ratio < DOUBTFUL).sum()), max(1, n_finite // AT_ONCE))
        while n:
            found = self._trial(ascent, order[:n])
            if found.lower_bounds[-1] > ascent.trace[-1]:
                return found
            n //= 2
        return None

    def _trial(self, ascent: Ascent[RowResults], doomed: np.ndarray) -> WarmStart:
        """Return where a few sweeps without some columns lead."""
        problem, point, carry, *_ = self._without(ascent, doomed)
        trial = ascend(
            problem, point, carry, memory=self.memory, max_sweeps=TRIAL_SWEEPS, tol=SETTLED
        )
        self.spent += trial.n_sweeps
        return WarmStart(problem, trial.point, trial.info.carry, trial.trace)

    def _without(self, ascent: Ascent[RowResults], doomed: np.ndarray) -> WarmStart:
        """Return a problem with fewer columns, and otherwise at the same point."""
        model, carry = self.problem.model, ascent.info.carry
        keep = np.setdiff1d(np.arange(model.n_columns), doomed)
        sizes = {
            block.name: int(((keep >= c.start) & (keep < c.stop)).sum())
            for block, c in zip(model.blocks, model.columns, strict=True)
        }
        smaller = self.problem.with_model(model.with_sizes(sizes))
        p = self.problem.unflatten(ascent.point)
        point = smaller.flatten(p._replace(L=p.L[:, keep]))
        states = tuple(
            block.prior.init((len(p.L), block.n_components)) if block.prior._drops_columns else old
            for block, old in zip(smaller.model.blocks, carry.states, strict=True)
        )
        return smaller.begin(point, carry._replace(cov=None, states=states))


def support(problem: Problem, point: Array, carry: Carry) -> Array:
    """Return signal over posterior variance of every column; infinite where none is dropped.

    The posterior variance counts as no less than the least noise: where the noise is at its least,
    a column far below it may have hardly any posterior variance.
    """
    ratio = np.full(problem.model.n_columns, np.inf)
    if carry.cov is None:
        return ratio
    signal = (problem.unflatten(point).L ** 2).sum(axis=0)
    least = problem.floor.min(axis=tuple(range(problem.floor.ndim - 1))).sum()
    variance = np.maximum(carry.cov.diagonal().sum(axis=0), least)
    for block, columns in zip(problem.model.blocks, problem.model.columns, strict=True):
        if block.prior._drops_columns:
            ratio[columns] = signal[columns] / variance[columns]
    return ratio
