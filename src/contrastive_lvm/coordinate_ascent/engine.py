"""What EM and variational Bayes share: starts, the ascent, pruning, the canonical answer."""

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from contrastive_lvm.arrays import Array, Matrix
from contrastive_lvm.checks import check_integer, check_positive
from contrastive_lvm.coordinate_ascent.ard_pruning import Sizing
from contrastive_lvm.coordinate_ascent.sweep import Carry, Info, Task
from contrastive_lvm.likelihoods.student_t import StudentT
from contrastive_lvm.linalg.anderson import Ascent, ascend
from contrastive_lvm.linalg.gauge import canonical_rotation
from contrastive_lvm.linalg.loadings import Loadings
from contrastive_lvm.model import Model
from contrastive_lvm.posterior import Posterior
from contrastive_lvm.priors.ard import ARD
from contrastive_lvm.rows.data import Data, prepare
from contrastive_lvm.rows.row_cache import Shelf
from contrastive_lvm.rows.threads import one_blas_thread

SETTLED = 1e-3  # nats a row and sweep: when a start is compared with others
STEADY_SWEEPS = 100  # of heavy-tailed rows, whose carried weights make a bold ascent erratic


class Begun(NamedTuple):
    """Where an ascent stands: what it goes on from, and what has gone before."""

    point: Array
    carry: Carry
    trace: Array = np.empty(0)
    n_sweeps: int = 0


@dataclass(frozen=True)
class CoordinateAscent:
    """The loop that `EM` and `VariationalBayes` read in two ways."""

    max_iter: int = 2000
    tol: float = 1e-6
    memory: int = 15

    posterior: ClassVar[bool] = False  # whether loadings have covariances

    def __post_init__(self) -> None:
        check_integer("max_iter", self.max_iter, 1)
        check_integer("memory", self.memory, 0)
        check_positive("tol", self.tol, what="a positive number of nats, such as 1e-6")

    def objection(self, model: Model) -> str | None:
        """Why this engine cannot fit a model, and what can; None when it can."""
        if not model.has_closed_form:
            return (
                f"{type(self).__name__} cannot fit {model.likelihood!r}: it has no closed form; "
                "use inference='svi' or 'nuts'."
            )
        for prior in model.priors:
            reason = self.objection_to(prior)
            if reason is not None:
                return f"{type(self).__name__} cannot fit {prior!r}: {reason}."
        return None

    def shortfall(self) -> str:
        """What to do about a fit that did not converge."""
        return (
            f"{type(self).__name__} stopped after max_iter={self.max_iter} sweeps before its gain "
            f"fell below tol={self.tol}; raise max_iter or use fewer dimensions."
        )

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
        with one_blas_thread() if data.narrow else nullcontext():
            return self._fitted(model, data, seed)

    def _fitted(self, model: Model, data: Data, seed: int | None) -> Posterior:
        task = Task(model, data, posterior=self.posterior)
        if model.sizes_itself:
            task, start = task.sized_start()
            if seed is None:
                return self.continued(task, start)
        if seed is not None:
            return self.continued(task, task.random_start(np.random.default_rng(seed)))
        return self._to_the_end(task, self.best_start(task, task.spectral_starts()))

    def best_start(self, task: Task, starts: list[Array]) -> Begun:
        """Where the best of several starts has settled, and the sweeps spent on all of them."""
        settled = max(self.tol, SETTLED * sum(rows.n_rows for rows in task.data.sets))
        most, spent, best = max(1, self.max_iter // (len(starts) + 1)), 0, None
        for start in starts:
            begin = self.begin(task, start)
            trial = self.ascend(task, *begin, max_sweeps=most, tol=settled)
            spent += trial.n_sweeps
            if best is None or trial.trace[-1] > best.trace[-1]:
                fresh = task.start_carry(task.unflatten(trial.point).L)
                # Weights are as large as the data, and soon found again.
                carry = trial.info.carry._replace(weights=fresh.weights)
                best = Begun(trial.point, carry, trial.trace)
            del trial
        if best is None:
            raise ValueError("starts is empty; give at least one.")
        return best._replace(n_sweeps=spent)

    def continued(self, task: Task, start: Array) -> Posterior:
        """Fit from a given point."""
        return self._to_the_end(task, Begun(*self.begin(task, start)))

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
        tol: float | None = None,
        interrupt: Callable[[Array, Info], bool] | None = None,
    ) -> Ascent[Info]:
        """Raise the bound from one start."""
        return ascend(
            task.evaluate,
            task.improve,
            start,
            carry,
            memory=self.memory,
            max_sweeps=self.max_iter if max_sweeps is None else max_sweeps,
            tol=self.tol if tol is None else tol,
            steady=STEADY_SWEEPS if isinstance(task.model.likelihood, StudentT) else 0,
            interrupt=interrupt,
        )

    def _to_the_end(self, task: Task, begun: Begun) -> Posterior:
        """Find the size, if the model sizes itself; then ascend until nothing is gained."""
        if task.model.sizes_itself:
            sized = Sizing(self, task).run(begun.point, begun.carry, self.max_iter)
            task, begun = sized.task, Begun(sized.point, sized.carry, sized.trace, sized.n_sweeps)
        left = max(1, self.max_iter - begun.n_sweeps)
        ascent = self.ascend(task, begun.point, begun.carry, max_sweeps=left)
        if not np.isfinite(ascent.trace[-1]):
            raise ValueError(
                f"the bound is not a number with the priors {task.model.shared_prior!r} and "
                f"{task.model.target_prior!r}; use constants nearer to 1, or scale the data."
            )
        # Weights found again and columns taken out begin lower: such sweeps are left out, and the
        # trace ends where the ascent does.
        before = begun.trace[begun.trace <= ascent.trace[-1]]
        trace = np.concatenate([before, ascent.trace[ascent.trace >= before.max(initial=-np.inf)]])
        return _posterior(task, ascent, trace, begun.n_sweeps + ascent.n_sweeps)


def _posterior(task: Task, ascent: Ascent[Info], trace: Array, n_sweeps: int) -> Posterior:
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
    loadings = Loadings(L, ascent.info.carry.cov).turned(R)
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
        prior_states=ascent.info.carry.states,
        weights=_weights_at_hand(ascent.info.carry),
        df=p.df or None,
        unit_variance=float(task.data.variance.sum()) / task.data.n_features,
    )


def _weights_at_hand(carry: Carry) -> tuple[Any, ...]:
    """Weights of rows in memory; those of rows elsewhere stay there, and go with the fit."""
    found = [w.whole() if isinstance(w, Shelf) else w for w in carry.weights]
    return tuple(found) if all(isinstance(weights, np.ndarray) for weights in found) else ()
