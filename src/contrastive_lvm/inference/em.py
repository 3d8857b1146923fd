"""Exact maximum likelihood by expectation-maximisation."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from contrastive_lvm.core import scatter
from contrastive_lvm.core.ascent import Ascent, ascend
from contrastive_lvm.core.blocks import has_missing, is_sparse
from contrastive_lvm.core.gauge import canonical_loadings
from contrastive_lvm.core.loadings import loading_step
from contrastive_lvm.core.rows import MaskedRows
from contrastive_lvm.core.scatter import Scatter
from contrastive_lvm.core.span import Span, reduce_to_span
from contrastive_lvm.core.start import Covariance, random_start, spectral_starts
from contrastive_lvm.core.types import Array, Matrix, Parameters, Statistics
from contrastive_lvm.inference.posterior import Posterior
from contrastive_lvm.likelihoods.gaussian import FLOOR
from contrastive_lvm.model import Model

MOST_SPAN_ROWS = 1500  # above, an N x N eigendecomposition costs more than sweeps over the rows
TRIAL_SWEEPS = 15  # sweeps given to each deterministic start before the best goes on


class Data(NamedTuple):
    """Both row sets in the form the sweeps use."""

    sets: list[Scatter | MaskedRows]  # target, then background if there is one
    n_features: int  # of the data; the sets' own are fewer in a span
    span: Span | None
    variances: list[Array]  # (D,) of each set
    variance: Array  # (D,) of the pooled sets about their own means

    @property
    def complete(self) -> bool:
        """Whether nothing is missing; the means are then the sample means for good."""
        return not any(isinstance(s, MaskedRows) for s in self.sets)


@dataclass(frozen=True)
class EM:
    """Exact EM on the general contrastive model, accelerated and monotone.

    Parameters
    ----------
    max_iter : int
        Most sweeps (E-steps). A `ConvergenceWarning` says when they did not suffice.
    tol : float
        Converged when two sweeps in a row raise the log-likelihood by less than `tol` nats. The
        unit does not depend on the size of the data: at 1e-6 the parameters are well within a
        hundredth of their standard errors of the optimum.
    memory : int
        Sweeps that Anderson acceleration combines; 0 is plain EM.

    Examples
    --------
    >>> import contrastive_lvm as clvm
    >>> clvm.EM(tol=1e-8)
    EM(max_iter=2000, tol=1e-08, memory=15)
    """

    max_iter: int = 2000
    tol: float = 1e-6
    memory: int = 15

    def __post_init__(self) -> None:
        for name, least in (("max_iter", 1), ("memory", 0)):
            value = getattr(self, name)
            if not isinstance(value, int | np.integer) or isinstance(value, bool) or value < least:
                raise ValueError(f"{name}={value!r} must be a whole number of at least {least}.")
        if not isinstance(self.tol, int | float | np.number) or not self.tol > 0:
            raise ValueError(f"tol={self.tol!r} must be a positive number of nats, e.g. 1e-6.")

    def run(
        self, model: Model, target: Matrix, background: Matrix | None, *, seed: int | None = None
    ) -> Posterior:
        """Fit from the deterministic start, or from a random one when a seed is given."""
        return self.run_prepared(model, prepare(model, target, background), seed=seed)

    def run_prepared(self, model: Model, data: Data, *, seed: int | None = None) -> Posterior:
        """Fit row sets that `prepare` has compressed, so that restarts share the work."""
        task = Task(model, data)
        if seed is None:
            starts = task.spectral_starts()
        else:
            starts = [task.random_start(np.random.default_rng(seed))]
        trials = [self.ascend(task, start, TRIAL_SWEEPS) for start in starts[1:] and starts]
        best = max(trials, key=lambda trial: trial.trace[-1]).point if trials else starts[0]
        spent = sum(trial.n_sweeps for trial in trials)
        return task.posterior(self.ascend(task, best), spent)

    def ascend(
        self, task: "Task", start: Array, max_sweeps: int | None = None
    ) -> Ascent[list[Statistics]]:
        """Raise the log-likelihood from one start."""
        return ascend(
            task.evaluate,
            task.improve,
            start,
            memory=self.memory,
            max_sweeps=self.max_iter if max_sweeps is None else max_sweeps,
            tol=self.tol,
        )


@np.errstate(over="ignore", invalid="ignore")  # an overflow shows as a variance that is not finite
def prepare(model: Model, target: Matrix, background: Matrix | None) -> Data:
    """Compress complete sets to summaries; keep sets with missing entries as masked rows."""
    matrices = [target] if background is None else [target, background]
    D, n_rows = target.shape[1], sum(X.shape[0] for X in matrices)
    missing = [has_missing(X) for X in matrices]
    sparse = any(is_sparse(X) for X in matrices)
    small = n_rows < D and n_rows <= MOST_SPAN_ROWS
    if small and model.likelihood.isotropic and not any(missing) and not sparse:
        span = reduce_to_span(matrices)
        return _with_variance(list(span.scatters), D, span)
    dense = D <= scatter.MOST_FEATURES and D <= 2 * n_rows
    sets: list[Scatter | MaskedRows] = [
        MaskedRows(X) if gaps else scatter.summarise(X, dense=dense)
        for X, gaps in zip(matrices, missing, strict=True)
    ]
    return _with_variance(sets, D, None)


def _with_variance(sets: list[Scatter | MaskedRows], n_features: int, span: Span | None) -> Data:
    squares = [s.square if isinstance(s, MaskedRows) else s.diagonal for s in sets]
    counts = [s.counts if isinstance(s, MaskedRows) else float(s.n_rows) for s in sets]
    variances = [np.asarray(q / n) for q, n in zip(squares, counts, strict=True)]
    pooled = np.asarray(sum(squares) / sum(counts))
    return Data(sets, n_features, span, variances, pooled)


class Task:
    """One model on one pair of row sets, as an ascent over a flat vector.

    The vector holds loadings and (when entries are missing) means in units of the features'
    standard deviations, and log noise variances.
    """

    def __init__(self, model: Model, data: Data) -> None:
        self.model, self.data = model, data
        self.floor = model.likelihood.floor(data.variance, data.n_features)
        mean_variance = float(data.variance.sum()) / data.n_features
        self.ceiling = 10.0 * self.floor / FLOOR
        isotropic = model.likelihood.isotropic
        unit = mean_variance if isotropic else self.floor / FLOOR
        self.unit = np.sqrt(np.broadcast_to(unit, data.variance.shape))

    @property
    def active(self) -> list[int]:
        """Loadings columns that each set uses: all, and the shared ones."""
        return [self.model.n_columns, self.model.n_shared][: len(self.data.sets)]

    def flatten(self, parameters: Parameters) -> Array:
        """Parameters as one vector."""
        psi = parameters.psi[:1] if self.model.likelihood.isotropic else parameters.psi
        parts = [(parameters.L / self.unit[:, None]).ravel(), np.log(psi)]
        if not self.data.complete:
            parts += [mean / self.unit for mean in parameters.means]
        return np.concatenate(parts)

    def unflatten(self, point: Array) -> Parameters:
        """The way back; noise variances are kept within their limits."""
        D, K = len(self.unit), self.model.n_columns
        n_noise = 1 if self.model.likelihood.isotropic else D
        L = point[: D * K].reshape(D, K) * self.unit[:, None]
        psi = np.clip(np.exp(point[D * K : D * K + n_noise]), self.floor, self.ceiling)
        if self.data.complete:
            return Parameters(L, psi, tuple(s.mean for s in self.data.sets))
        means = point[D * K + n_noise :].reshape(-1, D) * self.unit
        return Parameters(L, psi, tuple(means))

    def evaluate(self, point: Array) -> tuple[float, list[Statistics]]:
        """The E-step: the exact log-likelihood and the expected statistics of both sets."""
        p = self.unflatten(point)
        statistics = []
        for rows, k, mean in zip(self.data.sets, self.active, p.means, strict=True):
            if isinstance(rows, MaskedRows):
                statistics.append(rows.statistics(p.L[:, :k], p.psi, mean))
            else:
                L = np.ascontiguousarray(p.L[:, :k])
                statistics.append(scatter.statistics(rows, L, p.psi, self.data.n_features))
        return sum(s.log_likelihood for s in statistics), statistics

    def improve(self, point: Array, statistics: list[Statistics]) -> Array:
        """The M-step: loadings and means jointly, then the noise."""
        old = self.unflatten(point)
        step = loading_step(statistics, self.model.n_columns)
        psi = self.model.likelihood.noise_step(step.square, step.entries, self.data.n_features)
        means = old.means
        if not self.data.complete:
            means = tuple(m + dm for m, dm in zip(old.means, step.mean_change, strict=True))
        return self.flatten(Parameters(step.L, np.maximum(psi, self.floor), means))

    def spectral_starts(self) -> list[Array]:
        """The deterministic starts."""
        target, background = self._covariances()
        starts = spectral_starts(
            target,
            background,
            self.model.n_shared,
            self.model.n_target,
            isotropic=self.model.likelihood.isotropic,
        )
        return [self._started(L, psi) for L, psi in starts]

    def random_start(self, rng: np.random.Generator) -> Array:
        """A start in random directions of the data."""
        return self._started(*random_start(*self._covariances(), self.model.n_columns, rng))

    def _started(self, L: Array, psi: Array) -> Array:
        means = tuple(s.mean for s in self.data.sets)
        return self.flatten(Parameters(L, np.maximum(psi, self.floor), means))

    def _covariances(self) -> tuple[Covariance, Covariance | None]:
        covariances = [_covariance(rows) for rows in self.data.sets]
        return covariances[0], covariances[1] if len(covariances) > 1 else None

    def posterior(self, ascent: Ascent[list[Statistics]], spent: int) -> Posterior:
        """The end of an ascent in the canonical gauge, over the features of the data."""
        p = self.unflatten(ascent.point)
        L, psi, means = p.L, p.psi, p.means
        if self.data.span is not None:
            L, means = self.data.span.lift(L), tuple(self.data.span.means)
            psi = np.full(self.data.n_features, psi[0])
        k = self.model.n_shared
        L = canonical_loadings(L, k)
        return Posterior(
            shared_loadings=np.ascontiguousarray(L[:, :k]),
            target_loadings=np.ascontiguousarray(L[:, k:]),
            noise_variance=psi,
            target_mean=means[0],
            background_mean=means[-1],
            bound_trace=ascent.trace,
            n_sweeps=ascent.n_sweeps + spent,
            converged=ascent.converged,
        )


def _covariance(rows: Scatter | MaskedRows) -> Covariance:
    if isinstance(rows, MaskedRows):
        variance = rows.square / rows.counts
        return Covariance(rows.covariance_product, variance, float(rows.n_rows))
    n = rows.n_rows
    return Covariance(lambda M: rows.product(M) / n, rows.diagonal / n, float(n))
