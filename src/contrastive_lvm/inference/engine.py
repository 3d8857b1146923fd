"""What EM and variational Bayes share: starts, the ascent, pruning, the canonical answer."""

from dataclasses import dataclass, replace
from itertools import count
from typing import Any, ClassVar

import numpy as np

from contrastive_lvm.core.ascent import Ascent, ascend
from contrastive_lvm.core.covariance import Loadings
from contrastive_lvm.core.gauge import canonical_rotation
from contrastive_lvm.core.types import Array, Matrix
from contrastive_lvm.inference.coordinate import Carry, Info, Task
from contrastive_lvm.inference.data import Data, prepare
from contrastive_lvm.inference.posterior import Posterior
from contrastive_lvm.model import Model
from contrastive_lvm.priors.ard import ARD

TRIAL_SWEEPS = 10  # sweeps given to each deterministic start before the best goes on
PRUNE_EVERY = 5  # sweeps between looks for columns to drop


@dataclass(frozen=True)
class CoordinateAscent:
    """The loop that `EM` and `VariationalBayes` read in two ways."""

    max_iter: int = 2000
    tol: float = 1e-6
    memory: int = 15

    posterior: ClassVar[bool] = False  # whether loadings have covariances

    def __post_init__(self) -> None:
        for name, least in (("max_iter", 1), ("memory", 0)):
            value = getattr(self, name)
            if not isinstance(value, int | np.integer) or isinstance(value, bool) or value < least:
                raise ValueError(f"{name}={value!r} must be a whole number of at least {least}.")
        if not isinstance(self.tol, int | float | np.number) or not self.tol > 0:
            raise ValueError(f"tol={self.tol!r} must be a positive number of nats, e.g. 1e-6.")

    def objection(self, model: Model) -> str | None:
        """Why this engine cannot fit a model, and what can; None when it can."""
        for prior in model.priors:
            reason = self.objection_to(prior)
            if reason is not None:
                return f"{type(self).__name__} cannot fit {prior!r}: {reason}."
        return None

    def objection_to(self, prior: Any) -> str | None:
        """The part of `objection` that concerns one prior."""
        raise TypeError(f"{type(self).__name__} does not know {prior!r}.")

    def run(
        self, model: Model, target: Matrix, background: Matrix | None, *, seed: int | None = None
    ) -> Posterior:
        """Fit from the deterministic start, or from a random one when a seed is given."""
        data = prepare(model, target, background, posterior=self.posterior)
        return self.run_prepared(model, data, seed=seed)

    def run_prepared(self, model: Model, data: Data, *, seed: int | None = None) -> Posterior:
        """Fit row sets that `prepare` has compressed, so that restarts share the work."""
        task = Task(model, data, posterior=self.posterior)
        if seed is None:
            starts = task.spectral_starts()
            if model.sizes_itself:  # from too many columns every start finds the same few
                starts = starts[-1:]
        else:
            starts = [task.random_start(np.random.default_rng(seed))]
        if len(starts) > 1:
            begin, spent = self._best_start(task, starts)
        else:
            begin, spent = self.begin(task, starts[0]), 0
        return self._to_the_end(task, *begin, spent)

    def _best_start(self, task: Task, starts: list[Array]) -> tuple[tuple[Array, Carry], int]:
        """A few sweeps from each start; where the best of them got, and the sweeps spent."""
        best, begin, spent = -np.inf, None, 0
        for start in starts:
            trial = self.ascend(task, *self.begin(task, start), max_sweeps=TRIAL_SWEEPS)
            spent += trial.n_sweeps
            if begin is None or trial.trace[-1] > best:
                best, begin = trial.trace[-1], (trial.point, trial.carry)
            del trial  # what it carries may be as large as the data
        if begin is None:
            raise ValueError("starts is empty; give at least one.")
        return begin, spent

    def continued(self, task: Task, start: Array) -> Posterior:
        """Fit from a given point."""
        return self._to_the_end(task, *self.begin(task, start), 0)

    def begin(self, task: Task, start: Array, carry: Carry | None = None) -> tuple[Array, Carry]:
        """A point and what is carried with it; under a posterior one sweep gives covariances."""
        if carry is None:
            carry = task.start_carry(task.unflatten(start).L)
        if not self.posterior:
            return start, carry
        return task.improve(start, task.evaluate(start, carry)[1])

    def ascend(
        self,
        task: Task,
        start: Array,
        carry: Carry,
        *,
        max_sweeps: int | None = None,
        pruning: bool = False,
    ) -> Ascent[Carry, Info]:
        """Raise the bound from one start; with `pruning`, stop when columns lose support."""
        sweeps = count(1)

        def due(point: Array, carry: Carry) -> bool:
            sweep = next(sweeps)
            look = sweep <= 2 or sweep % PRUNE_EVERY == 0
            return look and len(unsupported(task, point, carry)) > 0

        return ascend(
            task.evaluate,
            task.improve,
            start,
            carry,
            memory=self.memory,
            max_sweeps=self.max_iter if max_sweeps is None else max_sweeps,
            tol=self.tol,
            interrupt=due if pruning else None,
        )

    def _to_the_end(self, task: Task, start: Array, carry: Carry, spent: int) -> Posterior:
        """Ascend; whenever columns have lost their support, drop them and go on."""
        traces: list[Array] = []
        pruning = task.model.sizes_itself
        while True:
            left = max(1, self.max_iter - spent)
            ascent = self.ascend(task, start, carry, max_sweeps=left, pruning=pruning)
            traces.append(ascent.trace)
            spent += ascent.n_sweeps
            pruned = self._pruned(task, ascent)
            if pruned is not None:
                task, start, carry = pruned
            elif ascent.converged or spent >= self.max_iter:
                return _posterior(task, ascent, np.concatenate(traces), spent)
            else:
                pruning = False  # a refused column is not asked about again before convergence
                start, carry = ascent.point, ascent.carry

    def _pruned(self, task: Task, ascent: Ascent[Carry, Info]) -> tuple[Task, Array, Carry] | None:
        """The task without its unsupported columns, if dropping them does not lower the bound."""
        doomed = unsupported(task, ascent.point, ascent.carry)
        while len(doomed):
            smaller, start, carry = without(task, ascent, doomed)
            start, carry = self.begin(smaller, start, carry)
            if smaller.evaluate(start, carry)[0] >= ascent.trace[-1]:
                return smaller, start, carry
            doomed = doomed[: len(doomed) // 2]
        return None


def unsupported(task: Task, point: Array, carry: Carry) -> np.ndarray:
    """Columns under ARD with more posterior variance than signal, the weakest first."""
    if carry.cov is None:
        return np.empty(0, dtype=np.intp)
    signal = (task.unflatten(point).L ** 2).sum(axis=0)
    with np.errstate(divide="ignore"):
        ratio = signal / carry.cov.diagonal().sum(axis=0)
    for prior, columns in zip(task.model.priors, task.model.blocks, strict=True):
        if not isinstance(prior, ARD):
            ratio[columns] = np.inf
    order = np.argsort(ratio)
    doomed: np.ndarray = order[ratio[order] < 1.0]
    return doomed


def without(
    task: Task, ascent: Ascent[Carry, Info], doomed: np.ndarray
) -> tuple[Task, Array, Carry]:
    """A task with fewer columns, at the same point."""
    model = task.model
    keep = np.setdiff1d(np.arange(model.n_columns), doomed)
    n_shared = int((keep < model.n_shared).sum())
    smaller = Task(
        replace(model, n_shared=n_shared, n_target=len(keep) - n_shared),
        task.data,
        posterior=task.posterior,
    )
    p = task.unflatten(ascent.point)
    point = smaller.flatten(p._replace(L=p.L[:, keep]))
    fresh = smaller.start_carry(p.L[:, keep])
    states = tuple(
        new if isinstance(prior, ARD) else old
        for prior, new, old in zip(model.priors, fresh.states, ascent.carry.states, strict=True)
    )
    return smaller, point, ascent.carry._replace(cov=None, states=(states[0], states[1]))


def _posterior(task: Task, ascent: Ascent[Carry, Info], trace: Array, n_sweeps: int) -> Posterior:
    """The end of an ascent in the canonical gauge, over the features of the data."""
    p = task.unflatten(ascent.point)
    L, psi, means, k = p.L, p.psi, p.means, task.model.n_shared
    if task.data.span is not None:
        L, means = task.data.span.lift(L), tuple(task.data.span.means)
        psi = np.full(task.data.n_features, psi[0])
    R = np.zeros((L.shape[1], L.shape[1]))
    for prior, columns in zip(task.model.priors, task.model.blocks, strict=True):
        own = isinstance(prior, ARD)
        R[columns, columns] = canonical_rotation(L[:, columns], keep_columns=own)
    loadings = Loadings(L, ascent.carry.cov).rotated(R)
    return Posterior(
        shared_loadings=np.ascontiguousarray(loadings.mean[:, :k]),
        target_loadings=np.ascontiguousarray(loadings.mean[:, k:]),
        noise_variance=psi,
        target_mean=means[0],
        background_mean=means[-1],
        bound_trace=trace,
        n_sweeps=n_sweeps,
        converged=ascent.converged,
        loading_covariance=None if loadings.cov is None else loadings.cov.packed(),
        bound_parts=ascent.info.parts,
        prior_states=ascent.info.states,
        weights=ascent.info.weights,
        df=p.df or None,
        unit_variance=float(task.data.variance.sum()) / task.data.n_features,
    )
