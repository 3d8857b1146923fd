"""The common engine of EM and variational Bayes: starts, ascent, pruning, canonical gauge."""

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

import numpy as np

from contrastive_lvm.arrays import Array, noise_of
from contrastive_lvm.checks import check_integer, check_positive
from contrastive_lvm.coordinate_ascent.ard_pruning import without_unsupported_columns
from contrastive_lvm.coordinate_ascent.generalised_problem import GeneralisedProblem
from contrastive_lvm.coordinate_ascent.generalised_start import (
    from_stand_in,
    leading_features,
    prepare_generalised,
    stand_in_starts,
    with_linear_sizes,
    with_the_others,
)
from contrastive_lvm.coordinate_ascent.mixture_problem import MixtureProblem
from contrastive_lvm.coordinate_ascent.problem import SETTLED, Carry, Problem, RowResults, WarmStart
from contrastive_lvm.coordinate_ascent.regression import without_effects
from contrastive_lvm.coordinate_ascent.sketch_ascent import ascend_in_sketch
from contrastive_lvm.coordinate_ascent.starts import (
    deterministic_starts,
    random_start,
    with_supported_sizes,
)
from contrastive_lvm.inference import Engine
from contrastive_lvm.likelihoods.values import LeftOut
from contrastive_lvm.linalg.anderson import Ascent, AscentInterrupted, ascend
from contrastive_lvm.linalg.gauge import canonical_rotation, in_standard_errors, signs
from contrastive_lvm.linalg.loadings import Loadings
from contrastive_lvm.model import Model
from contrastive_lvm.posterior import Posterior
from contrastive_lvm.prediction import Linear, left_out
from contrastive_lvm.priors.mixture import Mixture
from contrastive_lvm.rows.data import Data, check_memory, least_bytes, prepare
from contrastive_lvm.rows.reader import Rows
from contrastive_lvm.rows.scale_mixture_rows import ScaleMixtureRows
from contrastive_lvm.rows.sketch import Sketch
from contrastive_lvm.rows.threads import one_blas_thread

DF_STANDS_STILL = 0.01  # relative; a tenth of its standard error from 10,000 entries
LEFT_OUT = 1 << 15  # entries that degrees of freedom are learned from, to 3 % at df = 6
# Nats per sweep at which fits of counts and binary data (per entry) and of mixtures of latents (per
# row) count as converged. On 2,000 cells of 500 genes that takes 257 sweeps instead of more than
# 2,000, and loses six nats of 870,000.
STANDS_STILL = 1e-7
COMPARED_ROWS = 1000  # of all sets, on which starts of more than four times as many are compared
# Krylov steps that find sizes, which depend on eigenvalues just above the noise; a fit needs one.
SIZING_STEPS = 4
LESS_MEMORY = (
    "use fewer columns or dimensions, or keep the rows out of core (a memory map, an HDF5 or "
    "zarr array, or a Dask array)"
)


@dataclass(frozen=True)
class CoordinateAscent(Engine):
    """The common engine of `EM`, with point loadings, and `VariationalBayes`."""

    max_iter: int = 2000
    tol: float = 1e-6
    memory: int = 15

    _posterior: ClassVar[bool] = False  # whether loadings have covariances

    def __post_init__(self) -> None:
        check_integer("max_iter", self.max_iter, 1)
        check_integer("memory", self.memory, 0)
        check_positive("tol", self.tol, what="a positive number of nats, such as 1e-6")

    def _unsupported_reason(self, model: Model) -> str | None:
        """Say why this engine cannot fit a model, and what can; None when it can."""
        likelihood = model.likelihood
        if not (likelihood._has_closed_form or likelihood._has_expectations):
            return (
                f"{type(self).__name__} cannot fit {model.likelihood!r}: it has no closed form; "
                "use inference='svi' or 'nuts'."
            )
        if not likelihood._has_closed_form and any(b.latent_prior for b in model.blocks):
            return (
                f"{type(self).__name__} cannot fit mixtures of latents with {likelihood!r}; use "
                "Gaussian or Student-t noise, or latent_prior=None."
            )
        for prior in model.priors:
            reason = prior._why_no_posterior if self._posterior else prior._why_no_points
            if reason is not None:
                return f"{type(self).__name__} cannot fit {prior!r}: {reason}."
        return None

    def _convergence_hint(self) -> str:
        """Say what to do about a fit that did not converge."""
        return (
            f"{type(self).__name__} was stopped by max_iter={self.max_iter} or an interrupt before "
            f"its gain fell below tol={self.tol}; raise max_iter or use fewer dimensions."
        )

    def _prepare(
        self,
        model: Model,
        sets: Sequence[Rows],
        weights: Sequence[Array | None] | None = None,
        covariates: Sequence[Array] | None = None,
        log_sizes: Sequence[Array] | None = None,
        *,
        in_span: bool = True,
    ) -> Data:
        """Return the rows of all sets in the form that sweeps use, which restarts share.

        Few rows of many features are fitted in their span, unless `in_span` is false; posterior
        covariances of loadings and priors that tell features apart do not allow it. Rows with
        covariates are returned as residuals of their regression on these. `log_sizes` are the logs
        of the size factors of rows of counts, 0 by default.
        """
        alike = model.likelihood._is_isotropic and model.treats_features_alike
        n_columns = 0 if model.drops_columns else model.n_columns
        needed = least_bytes(sets, n_columns, model.likelihood)
        check_memory(sets, needed, f"a fit of {n_columns} dimensions", LESS_MEMORY)
        if not model.likelihood._has_closed_form:
            none = [np.zeros(X.shape[0]) for X in sets]
            return prepare_generalised(model, sets, weights, log_sizes or none, covariates)
        data = prepare(
            sets,
            weights=weights,
            scale_mixture=model.likelihood._is_scale_mixture,
            span=in_span and alike and not self._posterior,
            covariates=covariates,
        )
        return without_effects(model, data) if model.covariates else data

    def _sketched(self, model: Model, data: Data) -> Data:
        """Return the rows with a sketch, where the model's fit may begin in one."""
        if not self._may_sketch(model):
            return data
        steps = SIZING_STEPS if any(block.automatic for block in model.blocks) else 1
        return data.with_sketch(model.n_columns, steps)

    def _may_sketch(self, model: Model) -> bool:
        """Tell whether features may be rotated, and no prior depends on how many there are."""
        plain = model.is_flat and model.has_standard_latents and not model.covariates
        likelihood = model.likelihood
        gaussian = likelihood._has_closed_form and not likelihood._is_scale_mixture
        return plain and gaussian and likelihood._is_isotropic and not self._posterior

    def _sized(self, model: Model, data: Data) -> Model:
        """Return the model with the sizes of automatic blocks found from the rows."""
        if data.sketch is not None and self._may_sketch(model):
            data = data.within(data.sketch)
        if data.linearized is not None:
            return with_linear_sizes(model, data.linearized)
        with one_blas_thread if data.narrow else nullcontext():
            return with_supported_sizes(model, data)

    def _run(self, model: Model, data: Data, *, seed: int | None = None) -> Posterior:
        """Fit from the deterministic starts, or from a random one when a seed is given."""
        if data.linearized is not None:
            starts = stand_in_starts(model, data, posterior=self._posterior, seed=seed)
            settled = self._best(starts)
            started, start = from_stand_in(model, data, settled.problem, settled.point)
            return self._continue(self._begun(started, start))
        if data.sketch is not None and self._may_sketch(model):
            return self._run_in_sketch(model, data, data.sketch, seed)
        with one_blas_thread if data.narrow else nullcontext():
            priors = {b.name: b.latent_prior for b in model.blocks if b.latent_prior is not None}
            plain = model.with_standard_latents() if priors else model
            problem = Problem(plain, data, posterior=self._posterior)
            starts = deterministic_starts(problem)
            if seed is not None:
                problem = starts[0][0]
                point = random_start(problem, np.random.default_rng(seed))
                return self._continue(problem.begin(point), priors, seed)
            if model.drops_columns or (data.complete and len(starts) == 1):
                problem, point = starts[0]
                return self._continue(problem.begin(point), priors)
            slow = problem.likelihood._is_scale_mixture
            return self._continue(
                self._most_promising(starts) if slow else self._best(starts), priors
            )

    def _most_promising(self, starts: list[tuple[Problem, Array]]) -> WarmStart:
        """Return where to begin, compared on a part of many rows, over which sweeps are slow."""
        problem, first = starts[0]
        alone = len(starts) == 1 or problem.effects
        part = None if alone else problem.data.part(COMPARED_ROWS)
        if part is None:
            return self._best(starts)
        best, least, spent = first, -np.inf, 0
        try:
            small = Problem(
                problem.model, self._prepare(problem.model, *part), posterior=self._posterior
            )
            for _, point in starts:
                own = self._best([(small, small.flatten(problem.unflatten(point)))])
                spent += own.n_sweeps
                if own.lower_bounds[-1] > least:
                    best = point
                    least = own.lower_bounds[-1] + SETTLED * COMPARED_ROWS
        except KeyboardInterrupt:
            raise problem.begin(first).interrupted() from None
        return problem.begin(best)._replace(n_sweeps=spent)

    def _run_in_sketch(
        self, model: Model, data: Data, sketch: Sketch, seed: int | None
    ) -> Posterior:
        """Fit in subspaces that grow from a sketch, whose sweeps do not read rows."""
        problem = Problem(model, data.within(sketch))
        if seed is None:
            start = self._best(deterministic_starts(problem))
        else:
            start = problem.begin(random_start(problem, np.random.default_rng(seed)))
        start, ascent = ascend_in_sketch(
            start, data, sketch, memory=self.memory, max_sweeps=self.max_iter, tol=self.tol
        )
        return _posterior(start.problem, ascent, start.lower_bounds, start.n_sweeps)

    def _best(self, starts: list[tuple[Problem, Array]]) -> WarmStart:
        """Return where the best of several starts has settled, and the sweeps spent on all."""
        n_rows = sum(rows.n_rows for rows in starts[0][0].data.sets)
        settled = max(self.tol, SETTLED * n_rows)
        most, spent, best = max(1, self.max_iter // (len(starts) + 1)), 0, None
        for problem, start in starts:
            try:
                _, point, carry, *_ = problem.begin(start)
                trial = ascend(
                    problem, point, carry, memory=self.memory, max_sweeps=most, tol=settled
                )
            except KeyboardInterrupt as stop:
                raise (stop if best is None else best.kept_after(stop)) from None
            spent += trial.n_sweeps
            if best is None or trial.trace[-1] > best.lower_bounds[-1]:
                # Weights are as large as the data, and a sweep finds them again.
                carry = trial.info.carry._replace(weights=(None,) * len(problem.data.sets))
                best = WarmStart(problem, trial.point, carry, trial.trace)
            del trial
        if best is None:
            raise ValueError("starts is empty; give at least one.")
        return best._replace(n_sweeps=spent)

    def _begun(self, started: GeneralisedProblem, start: Array) -> WarmStart:
        """Return where a fit of counts or binary data begins; with very many features, some first.

        A sweep of a tenth of the features costs a tenth, and most of the way is that of the rows.
        """
        leading = leading_features(started, start)
        if leading is None:
            return started.begin(start)
        problem, first, at = leading
        _, point, carry, *_ = problem.begin(first)
        settled = max(self.tol, SETTLED * sum(rows.n_rows for rows in problem.data.sets))
        most, memory = max(1, self.max_iter // 2), self.memory
        try:
            found = ascend(problem, point, carry, memory=memory, max_sweeps=most, tol=settled)
        except AscentInterrupted as stop:
            reached = problem.unflatten(stop.ascent.point)
            whole = started.begin(with_the_others(started, start, reached, at))
            raise whole.interrupted() from None
        whole = started.begin(with_the_others(started, start, problem.unflatten(found.point), at))
        return whole._replace(n_sweeps=found.n_sweeps)

    def _with_df_of_entries(self, start: WarmStart) -> WarmStart:
        """Learn degrees of freedom between ascents, for at most half of the sweeps."""
        problem, point, carry, _, spent = start
        model, likelihood = problem.model, problem.likelihood
        settled = SETTLED * sum(rows.n_rows for rows in problem.data.sets)
        while spent < self.max_iter // 2:
            left = self.max_iter // 2 - spent
            trial = ascend(problem, point, carry, memory=self.memory, max_sweeps=left, tol=settled)
            point, carry, spent = trial.point, trial.info.carry, spent + trial.n_sweeps
            old = problem.unflatten(point).df
            entries = left_out_entries(problem, point, carry)
            problem = problem.with_model(
                replace(model, likelihood=likelihood._with_df_of_entries(entries, old))
            )
            if abs(np.log(problem.unflatten(point).df / old)) < DF_STANDS_STILL:
                break
        return WarmStart(problem, point, carry, n_sweeps=spent)

    def _continue(
        self, start: WarmStart, latent_priors: Mapping[str, Mixture] | None = None, seed: int = 0
    ) -> Posterior:
        """Drop columns without support, if the model does so; then ascend to the optimum.

        Mixtures of latents begin at the optimum of the standard model.
        """
        if start.problem.model.drops_columns:
            start = without_unsupported_columns(start, self.memory, self.max_iter)
        if start.problem.model.likelihood._has_df_of_entries:
            start = self._with_df_of_entries(start)
        left = max(1, self.max_iter - start.n_sweeps)
        problem, point, carry, *_ = start
        tol = self.tol
        if not problem.model.likelihood._has_closed_form:
            n_rows = sum(rows.n_rows for rows in problem.data.sets)
            tol = max(tol, STANDS_STILL * n_rows * problem.data.n_features)
        try:
            ascent = ascend(problem, point, carry, memory=self.memory, max_sweeps=left, tol=tol)
        except KeyboardInterrupt as stop:
            raise start.kept_after(stop) from None
        if not np.isfinite(ascent.trace[-1]):
            priors = " and ".join(map(repr, start.problem.model.priors))
            raise ValueError(
                f"the bound is not a number with the priors {priors}; use constants nearer to 1, "
                "or scale the data."
            )
        # The bound starts lower after weights are found anew and columns taken out: such sweeps are
        # left out of the trace, which ends with the ascent.
        before = start.lower_bounds[start.lower_bounds <= ascent.trace[-1]]
        trace = np.concatenate([before, ascent.trace[ascent.trace >= before.max(initial=-np.inf)]])
        spent = start.n_sweeps + ascent.n_sweeps
        if latent_priors:
            return self._with_mixtures(problem, ascent, trace, spent, latent_priors, seed)
        return _posterior(problem, ascent, trace, spent)

    def _with_mixtures(
        self,
        plain: Problem,
        before: Ascent[RowResults],
        trace: Array,
        spent: int,
        latent_priors: Mapping[str, Mixture],
        seed: int,
    ) -> Posterior:
        """Continue from the optimum of the standard model with mixtures of latents."""
        problem = MixtureProblem(plain, latent_priors)
        if not problem.blocks:
            found = _posterior(plain, before, trace, spent)
            return found._replace(latent_mixtures=problem.single_components())
        carry, n_rows = before.info.carry, sum(rows.n_rows for rows in plain.data.sets)
        run = partial(ascend, problem, memory=self.memory, max_sweeps=self.max_iter)
        point, *others = problem.starts(before.point, carry, seed)
        if others:
            trials = [run(own, carry, tol=SETTLED * n_rows) for own in (point, *others)]
            best = max(trials, key=lambda trial: float(trial.trace[-1]))
            spent += sum(trial.n_sweeps for trial in trials)
            point, carry = best.point, best.info.carry
        ascent = run(point, carry, tol=max(self.tol, STANDS_STILL * n_rows))
        rising = ascent.trace[ascent.trace >= trace[-1]]
        trace = np.concatenate([trace[trace <= ascent.trace[-1]], rising])
        return _posterior(problem, ascent, trace, spent + ascent.n_sweeps)


def left_out_entries(problem: Problem, point: Array, carry: Carry) -> LeftOut:
    """Predict entries of evenly spaced rows from the others of their rows."""
    p, parts = problem.unflatten(point), []
    n_features, n_rows = problem.data.n_features, sum(r.shape[0] for r in problem.data.readers)
    scaler = partial(problem.likelihood.scales, df=p.df)
    for i, (rows, reader) in enumerate(zip(problem.data.sets, problem.data.readers, strict=True)):
        n = min(reader.shape[0], -(-LEFT_OUT * reader.shape[0] // (n_features * n_rows)))
        at = np.linspace(0, reader.shape[0] - 1, n).astype(np.intp)
        active = Loadings(p.L, carry.cov).columns(problem.active[i])
        given = rows.weights if isinstance(rows, ScaleMixtureRows) else None
        weights = np.ones(n) if given is None else given[at]
        X = reader.load() if n == reader.shape[0] else reader.take(at)
        view = Linear(active, p.means[i], noise_of(p.psi, i), scaler)
        if p.effects and isinstance(rows, ScaleMixtureRows) and rows.covariates is not None:
            view = view._replace(effects=p.effects[i], covariates=rows.covariates[at])
        parts.append(left_out(view, X, weights))
    return LeftOut(*(np.concatenate(part) for part in zip(*parts, strict=True)))


def interrupted_posterior(interrupt: AscentInterrupted) -> Posterior:
    """Return where an interrupted ascent stood."""
    problem: Problem | MixtureProblem = interrupt.problem
    ascent: Ascent[RowResults] = interrupt.ascent
    return _posterior(problem, ascent, ascent.trace, ascent.n_sweeps)


def _posterior(
    problem: Problem | MixtureProblem, ascent: Ascent[RowResults], trace: Array, n_sweeps: int
) -> Posterior:
    """Return the end of an ascent in the canonical gauge, over the features of the data."""
    p, model, data = problem.unflatten(ascent.point), problem.model, problem.data
    L, psi, means, effects = p.L, p.psi, p.means, p.effects
    if data.span is not None:
        L, means = data.span.lift(L), tuple(data.span.means)
        psi = np.repeat(psi[..., :1], data.n_features, axis=-1)
        effects = tuple(map(data.span.lift, effects))
    if effects:  # means are those where all covariates are zero
        parts = zip(means, effects, data.sets, strict=True)
        means = tuple(mean - M @ rows.covariate_mean for mean, M, rows in parts)
    information = problem.information(p) if isinstance(problem, GeneralisedProblem) else {}
    R = np.zeros((L.shape[1], L.shape[1]))
    for block, columns in zip(model.blocks, model.columns, strict=True):
        if block.name in information:
            A, information[block.name] = in_standard_errors(information[block.name])
            R[columns, columns] = A * signs(L[:, columns] @ A)
            continue
        keep = block.prior._has_own_columns
        R[columns, columns] = canonical_rotation(L[:, columns], keep_columns=keep)
    loadings = Loadings(L, ascent.info.carry.cov).transformed(R)
    mixtures = problem.mixtures(ascent.point) if isinstance(problem, MixtureProblem) else {}
    named = list(zip([block.name for block in model.blocks], model.columns, strict=True))
    states, weights = ascent.info.carry.states, ascent.info.carry.weights
    return Posterior(
        loadings={n: np.ascontiguousarray(loadings.mean[:, c]) for n, c in named},
        means=dict(zip(model.sets, means, strict=True)),
        noise_variance=psi,
        lower_bounds=trace,
        n_iter=n_sweeps,
        converged=ascent.converged,
        loading_covariance=None if loadings.cov is None else loadings.cov.packed(),
        bound_parts=ascent.info.parts,
        prior_states={n: state for (n, _), state in zip(named, states, strict=True)},
        weights=() if data.complete else data.weights_in_memory(weights),
        df=p.df or None,
        unit_variance=problem.unit_variance,
        dispersion=p.dispersion if p.dispersion is not None and p.dispersion.any() else None,
        effects=dict(zip(model.sets, effects, strict=False)),
        latent_mixtures={
            n: mixtures[n].rotated(R[c, c]).ordered() for n, c in named if n in mixtures
        },
        information=information,
    )
