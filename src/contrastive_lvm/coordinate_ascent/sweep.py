"""Coordinate ascent: one loop for EM and for closed-form variational Bayes.

A sweep updates, in turn, the scales of the priors, the latents of all rows, the scales of the
entries (heavy tails), then loadings, means, noise. EM reads loadings as points, variational Bayes
as `q(l_d) = N(mean_d, C_d)`; everything else is the same code. The bound is evaluated after the
row step, as a sum of named parts.
"""

from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from contrastive_lvm.arrays import Array, Parameters, Statistics
from contrastive_lvm.coordinate_ascent.loading_step import (
    LoadingStep,
    NormalEquations,
    completed,
    loading_step,
    normal_equations,
)
from contrastive_lvm.coordinate_ascent.reparametrize import best_turn
from contrastive_lvm.coordinate_ascent.spectral import random_start, sized_start, spectral_starts
from contrastive_lvm.likelihoods.gaussian import FLOOR
from contrastive_lvm.likelihoods.student_t import LEAST_DF, MOST_DF, StudentT, df_step
from contrastive_lvm.linalg import packed
from contrastive_lvm.linalg.loadings import Covariance, Loadings
from contrastive_lvm.model import Model
from contrastive_lvm.priors.ard import ARD
from contrastive_lvm.priors.flat import Flat
from contrastive_lvm.priors.group_lasso import GroupLasso
from contrastive_lvm.rows.data import Data, covariance
from contrastive_lvm.rows.scale_mixture_rows import RowSums, ScaleMixtureRows

MOST_TURNS = 20
MOST_TURNED_COLUMNS = 50  # with more, a turn costs as much as a sweep
SCALES_STAND_STILL = 1e-3  # relative change of the precisions


class Carry(NamedTuple):
    """What is carried from sweep to sweep beside the accelerated vector."""

    cov: Covariance | None  # of the loadings
    states: tuple[Any, Any]  # of the priors on S and W
    weights: tuple[Any, ...]  # E[u] as each set keeps it; empty for Gaussian noise


class Info(NamedTuple):
    """What the row step found."""

    statistics: list[Statistics]
    carry: Carry  # as given, with scales and weights renewed
    scale_facts: tuple[float, float]  # for the df step
    parts: dict[str, float]  # the bound's


class Task:
    """One model on one pair of row sets, as an ascent over a flat vector.

    The vector holds loadings and (when entries are missing or weighted) means in units of the
    features' standard deviations, and log noise variances.
    """

    def __init__(self, model: Model, data: Data, *, posterior: bool = False) -> None:
        self.model, self.data, self.posterior = model, data, posterior
        self.likelihood = model.closed_likelihood
        self.floor = self.likelihood.floor(data.variance, data.n_features)
        variance = self.floor / FLOOR
        self.unit, self.ceiling = np.sqrt(variance), 10.0 * variance
        self.uncertain = self._uncertain_columns()

    def resized(self, n_shared: int, n_target: int) -> "Task":
        """The same data with other numbers of columns."""
        model = replace(self.model, n_shared=n_shared, n_target=n_target)
        return Task(model, self.data, posterior=self.posterior)

    def _uncertain_columns(self) -> np.ndarray:
        """Columns whose loadings have a posterior: those with a prior, under variational Bayes."""
        priors = self.model.priors if self.posterior else ()
        ranges = [
            np.arange(columns.start, columns.stop)
            for prior, columns in zip(priors, self.model.blocks, strict=False)
            if not isinstance(prior, Flat)
        ]
        return np.concatenate(ranges) if ranges else np.empty(0, dtype=np.intp)

    @property
    def learns_df(self) -> bool:
        """Whether the degrees of freedom are part of the vector."""
        return isinstance(self.likelihood, StudentT) and self.likelihood.learns_df

    @property
    def given_df(self) -> float:
        """Degrees of freedom to begin with; 0 when the noise is Gaussian."""
        return self.likelihood.start_df if isinstance(self.likelihood, StudentT) else 0.0

    @property
    def active(self) -> list[int]:
        """Loadings columns that each set uses: all, and the shared ones."""
        return [self.model.n_columns, self.model.n_shared][: len(self.data.sets)]

    def flatten(self, parameters: Parameters) -> Array:
        """Parameters as one vector."""
        psi = parameters.psi[:1] if self.likelihood.isotropic else parameters.psi
        parts = [(parameters.L / self.unit[:, None]).ravel(), np.log(psi)]
        if not self.data.complete:
            parts += [mean / self.unit for mean in parameters.means]
        if self.learns_df:
            parts.append(np.log([parameters.df]))
        return np.concatenate(parts)

    def unflatten(self, point: Array) -> Parameters:
        """The way back; noise variances are kept within their limits."""
        D, K = len(self.unit), self.model.n_columns
        n_noise = 1 if self.likelihood.isotropic else D
        L = point[: D * K].reshape(D, K) * self.unit[:, None]
        psi = np.clip(np.exp(point[D * K : D * K + n_noise]), self.floor, self.ceiling)
        if self.data.complete:
            return Parameters(L, psi, tuple(s.mean for s in self.data.sets))
        end = len(point) - int(self.learns_df)
        means = point[D * K + n_noise : end].reshape(-1, D) * self.unit
        df = (
            float(np.clip(np.exp(point[-1]), LEAST_DF, MOST_DF))
            if self.learns_df
            else self.given_df
        )
        return Parameters(L, psi, tuple(means), df)

    def evaluate(self, point: Array, carry: Carry) -> tuple[float, Info]:
        """Scales of the priors, then the row step: the bound and the expected statistics."""
        p = self.unflatten(point)
        loadings = Loadings(p.L, carry.cov)
        states, parts = self._prior_step(loadings, carry)
        sweep = partial(self._row_step, p, loadings, carry.weights)
        swept, weights = zip(*self.data.each(sweep), strict=True)
        statistics = [s.statistics for s in swept]
        names = ("target rows", "background rows")
        parts.update({n: s.bound for n, s in zip(names, statistics, strict=False)})
        renewed_carry = Carry(carry.cov, states, tuple(w for w in weights if w is not None))
        excess, n_scales = sum(s.log_excess for s in swept), sum(s.n_scales for s in swept)
        info = Info(statistics, renewed_carry, (excess, n_scales), parts)
        return sum(parts.values()), info

    def _row_step(
        self, p: Parameters, loadings: Loadings, weights: tuple[Any, ...], i: int
    ) -> tuple[RowSums, Any]:
        """Of one set: what its rows say, and their weights from now on, if they have any."""
        rows, active = self.data.sets[i], loadings.leading(self.active[i])
        if isinstance(rows, ScaleMixtureRows):
            scaler = self._student.scaler(p.df)
            return rows.sweep(active, p.psi, p.means[i], weights[i], scaler)
        return RowSums(rows.statistics(active, p.psi, p.means[i])), None

    def _prior_step(
        self, loadings: Loadings, carry: Carry
    ) -> tuple[tuple[Any, Any], dict[str, float]]:
        squares = loadings.squares()
        states: list[Any] = []
        parts: dict[str, float] = {}
        names = ("shared loadings", "target loadings")
        for name, prior, state, columns in zip(
            names, self.model.priors, carry.states, self.model.blocks, strict=True
        ):
            if isinstance(prior, GroupLasso):
                states.append(None)
                parts[name] = -prior.penalty(loadings.mean[:, columns])
            else:
                new = prior.update(state, squares[:, columns])
                states.append(new)
                parts[name] = prior.bound(new, squares[:, columns])
        if self.posterior:
            parts["entropy of loadings"] = loadings.entropy()
        return (states[0], states[1]), parts

    def improve(self, point: Array, info: Info) -> tuple[Array, Carry]:
        """Loadings and means jointly, then the noise, then the degrees of freedom."""
        old = self.unflatten(point)
        step, states = self._loading_step(old, info)
        psi = self.likelihood.noise_step(step.square, step.entries, self.data.n_features)
        psi = np.clip(psi, self.floor, self.ceiling)
        means = old.means
        if not self.data.complete:
            means = tuple(m + dm for m, dm in zip(old.means, step.mean_change, strict=True))
        loadings = self._turned(step.loadings, info.statistics)
        df = df_step(*info.scale_facts) if self.learns_df else old.df
        new = self.flatten(Parameters(loadings.mean, psi, means, df))
        return new, Carry(loadings.cov, states, info.carry.weights)

    def _loading_step(self, old: Parameters, info: Info) -> tuple[LoadingStep, tuple[Any, Any]]:
        """Loadings and scales of their priors in turn, until the scales stand still.

        Each turn raises the bound and costs nothing in rows; without it the scales, which are not
        accelerated, would decide how many sweeps a fit takes.
        """
        K, priors, states = self.model.n_columns, self.model.priors, info.carry.states
        if any(isinstance(prior, GroupLasso) for prior in priors):
            return self._penalised_step(old, info), states
        precision = self._precision(states)
        for _ in range(MOST_TURNS if K <= MOST_TURNED_COLUMNS else 1):
            step = loading_step(info.statistics, K, old.psi, precision, self.uncertain)
            if all(isinstance(prior, Flat) for prior in priors):
                break
            states = self._updated(states, step.loadings.squares())
            renewed = self._precision(states)
            change = np.abs(renewed - precision) > SCALES_STAND_STILL * precision
            precision = renewed
            if not change.any():
                break
        return step, states

    def _updated(self, states: tuple[Any, Any], squares: Array) -> tuple[Any, Any]:
        shared, target = (
            None if isinstance(prior, GroupLasso) else prior.update(state, squares[:, columns])
            for prior, state, columns in zip(
                self.model.priors, states, self.model.blocks, strict=True
            )
        )
        return shared, target

    def _precision(self, states: tuple[Any, Any]) -> Array:
        """Expected precisions of `[S | W]`, (D or 1, K)."""
        D, blocks = len(self.unit), []
        for prior, state, columns in zip(self.model.priors, states, self.model.blocks, strict=True):
            width = columns.stop - columns.start
            value = np.zeros((1, 1)) if isinstance(prior, GroupLasso) else prior.precision(state)
            blocks.append(np.broadcast_to(value, (len(value), width)))
        rows = D if any(len(b) > 1 for b in blocks) else 1
        return np.hstack([np.broadcast_to(b, (rows, b.shape[1])) for b in blocks])

    def _penalised_step(self, old: Parameters, info: Info) -> LoadingStep:
        """Maximise over S given W, then over W given S; a group lasso shrinks its block exactly."""
        equations = normal_equations(info.statistics, self.model.n_columns)
        precision = self._precision(info.carry.states)
        L = old.L.copy()
        for prior, columns in zip(self.model.priors, self.model.blocks, strict=True):
            if columns.stop > columns.start:
                L[:, columns] = _block_step(equations, L, columns, old.psi, precision, prior)
        return completed(info.statistics, equations, Loadings(L))

    def greatest_pull(self, point: Array, carry: Carry, lasso: GroupLasso) -> float:
        """The least strength at which a group lasso would drop every group, other values fixed."""
        statistics = self.evaluate(point, carry)[1].statistics
        equations = normal_equations(statistics, self.model.n_columns)
        p, columns = self.unflatten(point), self.model.blocks[1]
        rest = p.L.copy()
        rest[:, columns] = 0.0
        matrix = np.broadcast_to(equations.reduced, (*p.L.shape, p.L.shape[1]))[:, columns]
        pull = equations.cross[:, columns] - np.einsum("dij,dj->di", matrix, rest)
        return lasso.strength_to_drop(pull / p.psi[:, None])

    def _turned(self, loadings: Loadings, statistics: list[Statistics]) -> Loadings:
        """Blocks under ARD with their latents in the coordinates where the bound is greatest."""
        if not self.model.sizes_itself:
            return loadings
        second = loadings.second_moment()
        for prior, columns in zip(self.model.priors, self.model.blocks, strict=True):
            if isinstance(prior, ARD) and columns.stop > columns.start:
                used = [s for s in statistics if len(s.first) >= columns.stop]
                Z = sum(packed.unpack(s.latent[:, None])[0][columns, columns] for s in used)
                n_rows = sum(s.n_rows for s in used)
                turn = np.eye(self.model.n_columns)
                turn[columns, columns] = best_turn(
                    second[columns, columns], Z, n_rows, self.data.n_features, prior.a0, prior.b0
                )
                loadings = loadings.turned(turn)
        return loadings

    @property
    def _student(self) -> StudentT:
        if not isinstance(self.likelihood, StudentT):
            raise TypeError("only a Student-t likelihood has scales.")
        return self.likelihood

    def start_carry(self, L: Array) -> Carry:
        """Nothing known of scales and covariances."""
        D = len(L)
        states = []
        for prior, columns in zip(self.model.priors, self.model.blocks, strict=True):
            shape = (D, columns.stop - columns.start)
            states.append(None if isinstance(prior, GroupLasso) else prior.init(shape))
        weights = tuple(None for s in self.data.sets if isinstance(s, ScaleMixtureRows))
        return Carry(None, (states[0], states[1]), weights)

    def sized_start(self) -> tuple["Task", Array]:
        """The start of a model that sizes itself, and the task of the size it begins with."""
        L, psi = sized_start(
            *self._covariances(),
            self.model.n_shared,
            self.model.n_target,
            isotropic=self.likelihood.isotropic,
            supported=isinstance(self.model.shared_prior, ARD) and self.model.n_shared > 0,
        )
        task = self.resized(L.shape[1] - self.model.n_target, self.model.n_target)
        return task, task._started(L, psi)

    def spectral_starts(self) -> list[Array]:
        """The deterministic starts."""
        starts = spectral_starts(
            *self._covariances(),
            self.model.n_shared,
            self.model.n_target,
            isotropic=self.likelihood.isotropic,
        )
        return [self._started(L, psi) for L, psi in starts]

    def random_start(self, rng: np.random.Generator) -> Array:
        """A start in random directions of the data."""
        return self._started(*random_start(*self._covariances(), self.model.n_columns, rng))

    def _started(self, L: Array, psi: Array) -> Array:
        means = tuple(s.mean for s in self.data.sets)
        psi = np.clip(psi, self.floor, self.ceiling)
        return self.flatten(Parameters(L, psi, means, self.given_df))

    def _covariances(self) -> tuple[Any, Any]:
        covariances = [covariance(rows) for rows in self.data.sets]
        return covariances[0], covariances[1] if len(covariances) > 1 else None


def _block_step(
    equations: NormalEquations, L: Array, columns: slice, psi: Array, precision: Array, prior: Any
) -> Array:
    """One block of loadings given the other, (D, width)."""
    D = len(L)
    matrix = np.broadcast_to(equations.reduced, (D, L.shape[1], L.shape[1]))[:, columns]
    own = matrix[:, :, columns]  # (D, w, w)
    linear = equations.cross[:, columns] - np.einsum("dij,dj->di", matrix, L)
    linear = (linear + np.einsum("dij,dj->di", own, L[:, columns])) / psi[:, None]
    if not isinstance(prior, GroupLasso):
        ridge = np.array(own) / psi[:, None, None]
        width = np.arange(own.shape[1])
        ridge[:, width, width] += np.broadcast_to(precision, L.shape)[:, columns]
        return np.asarray(np.linalg.solve(ridge, linear[:, :, None])[:, :, 0])
    gamma, U = np.linalg.eigh(own if equations.reduced.ndim == 3 else own[:1])
    turned = np.einsum("dji,dj->di", np.broadcast_to(U, own.shape), linear)
    shrunk = prior.shrink(np.broadcast_to(gamma, turned.shape) / psi[:, None], turned)
    return np.asarray(np.einsum("dij,dj->di", np.broadcast_to(U, own.shape), shrunk))
