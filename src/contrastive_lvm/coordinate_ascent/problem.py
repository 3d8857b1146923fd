"""One sweep of coordinate ascent, for EM and for closed-form variational Bayes.

A sweep updates, in turn, the scales of the priors, the latents of all rows, the scales of the
entries (heavy tails), then loadings, means, noise. Loadings are points under EM, and `q(l_d) =
N(mean_d, C_d)` under variational Bayes; everything else is the same code. The bound is evaluated
after the row step, as a sum of named parts.
"""

from collections.abc import Sequence
from functools import partial
from math import prod
from typing import NamedTuple

import numpy as np
from scipy.linalg.lapack import dgesv, dsyevd

from contrastive_lvm.arrays import Array, Parameters
from contrastive_lvm.coordinate_ascent.loading_step import (
    LoadingStep,
    NormalEquations,
    SetStatistics,
    completed,
    mean_changes,
    normal_equations,
    solved,
)
from contrastive_lvm.likelihoods.base import FLOOR, ScaleMixture
from contrastive_lvm.linalg import packed
from contrastive_lvm.linalg.anderson import Ascent, AscentInterrupted, ascend
from contrastive_lvm.linalg.loadings import Columns, Covariance, Loadings
from contrastive_lvm.model import LoadingBlock, Model
from contrastive_lvm.posterior import Posterior
from contrastive_lvm.priors.base import AnyPrior
from contrastive_lvm.priors.flat import Flat
from contrastive_lvm.rows.data import Data
from contrastive_lvm.rows.generalised_rows import Change
from contrastive_lvm.rows.latent_distribution import LatentDistribution
from contrastive_lvm.rows.row_cache import Cache

SETTLED = 1e-3  # nats per row and sweep: when a start is compared with others
MOST_REPEATS = 20  # of the loading step within a sweep, until the scales of priors stand still
MOST_REPEATED_COLUMNS = 50  # with more, a loading step costs as much as a sweep
SCALES_STAND_STILL = 1e-3  # relative change of the precisions
# Sweeps that end in the best latent coordinates. Where they do not end a fit, the sweeps without
# are easier to accelerate: 900 to 1,500 in place of more than 4,000 where much of the target is
# left to two dimensions.
CHANGED_SWEEPS = 30
STEADY_SWEEPS = 200  # of scale mixtures, whose carried weights would make acceleration erratic

States = tuple[object, ...]  # of the prior of each block


class Carry(NamedTuple):
    """Values that are carried from sweep to sweep besides the accelerated vector."""

    cov: Covariance | None  # of the loadings
    states: States
    weights: tuple[Cache | None, ...]  # E[u] as each set keeps it; None for Gaussian noise
    # By which loadings have become L R, (K, K), and where latents were that means took over, (K,)
    # of each set, since the row step.
    change: Array | None = None
    places: tuple[Array, ...] | None = None
    n_sweeps: int = 0  # that have led here

    def change_of(self, i: int, active: Columns) -> Change | None:
        """Return the change of the latent coordinates of a set that uses some columns."""
        if self.places is None:
            return None
        R = np.eye(len(active)) if self.change is None else self.change[np.ix_(active, active)]
        return Change(R, self.places[i][active])


class RowResults(NamedTuple):
    """The results of a row step."""

    parameters: Parameters  # at which it was taken
    statistics: list[SetStatistics]
    carry: Carry  # as given, with scales and weights renewed
    log_excess: float  # of the scales, for the df step
    n_scales: float
    parts: dict[str, float]  # of the bound
    nuisance: Array | None = None  # statistics for likelihoods without a closed form
    # Where these need it: sums of each set's latents, and places of the prior of the means, (S, K).
    latent_sums: tuple[Array, ...] = ()
    places: Array = np.empty(0)


class Problem:
    """A model and its rows as the ascent of a bound over a flat vector.

    The vector holds loadings, effects of covariates and (when entries are missing or weighted)
    means in units of the features' standard deviations, log noise variances (of all sets or of
    each), and the log degrees of freedom if learned. In the loading step covariates are columns
    that follow those of the latents.
    """

    def __init__(self, model: Model, data: Data, *, posterior: bool = False) -> None:
        self.model, self.data, self.posterior = model, data, posterior
        likelihood = model.likelihood
        if not isinstance(likelihood, ScaleMixture):
            raise TypeError(f"{model.likelihood!r} has no closed form; use inference='svi'.")
        self.likelihood = likelihood
        self.steady_sweeps = STEADY_SWEEPS if self.likelihood._is_scale_mixture else 0
        self.floor = self.likelihood._noise_floor(data.variance, data.n_features)
        self.unit = np.sqrt(self.floor / FLOOR)
        if self.likelihood.sets == "own":  # a set that never varies has a share of the others'
            own = [self.likelihood._noise_floor(v, data.n_features) for v in data.variances]
            self.floor = np.maximum(own, FLOOR * self.floor)
        self.ceiling = 10.0 * self.floor / FLOOR
        self.active = [model.active_columns(name) for name in model.sets]
        self.effects: list[Columns] = []
        self.used = self.active  # columns of the loading step
        if model.n_effects:
            sets = range(len(model.sets))
            self.effects = [model.n_columns + model.effect_columns(i) for i in sets]
            pairs = zip(self.active, self.effects, strict=True)
            self.used = [np.concatenate(pair) for pair in pairs]
        self.n_columns = model.n_columns + model.n_effects  # of the loading step
        self.unit_variance = float(data.variance.sum()) / data.n_features  # mean of the features
        uncertain = [posterior and block.prior._has_posterior for block in model.blocks]
        sizes = [block.n_components for block in model.blocks]
        self.uncertain = np.flatnonzero(np.repeat(uncertain, sizes))  # columns with a posterior
        self.inner = [_inner_columns(model, block) for block in model.blocks]

    def with_model(self, model: Model) -> "Problem":
        """Return the same data with another model."""
        return Problem(model, self.data, posterior=self.posterior)

    def flatten(self, parameters: Parameters) -> Array:
        """Return parameters as one vector."""
        psi = parameters.psi[..., :1] if self.likelihood._is_isotropic else parameters.psi
        parts = [(parameters.L / self.unit[:, None]).ravel(), np.log(psi).ravel()]
        distinct = parameters.effects if self.model.own_effects else parameters.effects[:1]
        parts += [(effects / self.unit[:, None]).ravel() for effects in distinct]
        if not self.data.complete:
            parts += [mean / self.unit for mean in parameters.means]
        if self.likelihood._has_df_step:
            parts.append(np.log([parameters.df]))
        return np.concatenate(parts)

    def point_of(self, fit: Posterior) -> Array:
        """Return the point of fitted values, whose means are those where covariates are zero."""
        L, means = np.hstack(list(fit.loadings.values())), tuple(fit.means.values())
        effects = tuple(fit.effects.values())
        if effects:
            parts = zip(means, effects, self.data.sets, strict=True)
            means = tuple(mean + M @ rows.covariate_mean for mean, M, rows in parts)
        return self.flatten(Parameters(L, fit.noise_variance, means, fit.df or 0.0, effects))

    def at_zero(self, p: Parameters) -> Parameters:
        """Return parameters with the means that rows have where their covariates are zero."""
        if not p.effects:
            return p
        parts = zip(p.means, p.effects, self.data.sets, strict=True)
        return p._replace(means=tuple(m - M @ rows.covariate_mean for m, M, rows in parts))

    def unflatten(self, point: Array) -> Parameters:
        """Return the parameters of a vector, noise variances kept within their limits."""
        D, K = len(self.unit), self.model.n_columns
        shape = (*self.floor.shape[:-1], 1 if self.likelihood._is_isotropic else D)
        n_noise = prod(shape)
        L = point[: D * K].reshape(D, K) * self.unit[:, None]
        log_psi = point[D * K : D * K + n_noise].reshape(shape)
        psi = np.minimum(np.maximum(np.exp(log_psi), self.floor), self.ceiling)
        end = D * (K + self.model.n_effects) + n_noise
        effects: tuple[Array, ...] = ()
        if self.model.n_effects:
            effects = self._effects_of_sets(point[D * K + n_noise : end])
        if self.data.complete:
            means = tuple(s.mean for s in self.data.sets)
            return Parameters(L, psi, means, effects=effects)
        df = self.likelihood._first_df
        rest = point[end:]
        if self.likelihood._has_df_step:
            df = float(np.clip(np.exp(point[-1]), *self.likelihood._df_limits))
            rest = rest[:-1]
        return Parameters(L, psi, tuple(rest.reshape(-1, D) * self.unit), df, effects)

    def _effects_of_sets(self, values: Array) -> tuple[Array, ...]:
        """Return the effects of covariates on each set, (D, C), from a part of the vector."""
        found = values.reshape(-1, len(self.unit), len(self.model.covariates))
        found = found * self.unit[:, None]
        return tuple(found if self.model.own_effects else [found[0]] * len(self.model.sets))

    def first_carry(self) -> Carry:
        """Return the values to carry before anything is known of scales and covariances."""
        D = len(self.unit)
        states = tuple(b.prior.init((D, b.n_components)) for b in self.model.blocks)
        return Carry(None, states, (None,) * len(self.data.sets))

    def begin(self, point: Array, carry: Carry | None = None) -> "WarmStart":
        """Return the beginning of an ascent from a point; by default nothing is known of scales.

        Where loadings have a posterior, it comes after one sweep.
        """
        carry = self.first_carry() if carry is None else carry
        if self.posterior:
            point, carry = self.improve(point, self.evaluate(point, carry)[1])
        return WarmStart(self, point, carry)

    def evaluate(
        self,
        point: Array,
        carry: Carry,
        distributions: Sequence[LatentDistribution | None] | None = None,
    ) -> tuple[float, RowResults]:
        """Update scales of the priors, then take the row step: the bound and its statistics.

        `distributions` are the distributions of the sets' latents; None is standard normal.
        """
        p = self.unflatten(point)
        loadings = Loadings(p.L, carry.cov)
        states = carry.states
        parts = {f"{block.name} loadings": 0.0 for block in self.model.blocks}
        if not self.model.is_flat:
            squares = loadings.squares()
            states = self._updated(states, squares)
            parts = self._prior_parts(states, squares)
        if self.posterior:
            parts["entropy of loadings"] = loadings.entropy()
        scaler = partial(self.likelihood.scales, df=p.df)
        active = [loadings.columns(columns) for columns in self.active]
        sums, weights = self.data.row_step(active, p, carry.weights, scaler, distributions)
        for name, found in zip(self.model.sets, sums, strict=True):
            parts[f"{name} rows"] = found.statistics.bound
        statistics = [
            SetStatistics(own.statistics, used) for own, used in zip(sums, self.used, strict=True)
        ]
        if p.psi.ndim == 2:
            statistics = self._in_units_of_first(statistics, p.psi)
        results = RowResults(
            p,
            statistics,
            carry._replace(states=states, weights=weights),
            sum(s.log_excess for s in sums),
            sum(s.n_scales for s in sums),
            parts,
        )
        return sum(parts.values()), results

    def _in_units_of_first(self, sets: list[SetStatistics], psi: Array) -> list[SetStatistics]:
        """Return the statistics of sets with noise of their own in units of the first set's."""
        factors = psi[0] / psi
        factors = factors[:, :1] if self.likelihood._is_isotropic else factors
        return [
            SetStatistics(own.statistics.weighted(factor), own.columns, factor)
            for own, factor in zip(sets, factors, strict=True)
        ]

    def improve(self, point: Array, found: RowResults) -> tuple[Array, Carry]:
        """Update loadings, effects and means jointly, then the noise, then degrees of freedom."""
        old = found.parameters
        step, states = self._loading_step(old, found)
        psi = self.likelihood._noise_step(step.square, step.entries, self.data.n_features)
        psi = np.minimum(np.maximum(psi, self.floor), self.ceiling)
        means = old.means
        if not self.data.complete:
            changes = mean_changes(found.statistics, step.loadings)
            means = tuple(m + dm for m, dm in zip(old.means, changes, strict=True))
        loadings, effects = step.loadings, old.effects
        if effects:
            change = loadings.mean
            effects = tuple(M + change[:, c] for M, c in zip(effects, self.effects, strict=True))
            loadings = loadings.columns(np.arange(self.model.n_columns))
        n_sweeps = found.carry.n_sweeps
        bound_by_floor = self.model.drops_columns or bool((psi <= self.floor).any())
        if n_sweeps < CHANGED_SWEEPS or bound_by_floor:
            R = self._best_change(loadings, found.statistics)
            loadings = loadings if R is None else loadings.transformed(R)
        df = old.df
        if self.likelihood._has_df_step:
            df = self.likelihood._df_step(found.log_excess, found.n_scales)
        new = self.flatten(Parameters(loadings.mean, psi, means, df, effects))
        return new, Carry(loadings.cov, states, found.carry.weights, n_sweeps=n_sweeps + 1)

    def damped(self, point: Array, found: RowResults) -> tuple[Array, Carry] | None:
        """Return None, since no sweep lowers the bound by more than rounding."""
        return None

    def _loading_step(self, old: Parameters, found: RowResults) -> tuple[LoadingStep, States]:
        """Update loadings and scales of their priors in turn, until the scales stand still.

        Each turn raises the bound without reading rows. Without the repetition the scales, which
        are not accelerated, would decide how many sweeps a fit takes.
        """
        K, priors, states = self.n_columns, self.model.priors, found.carry.states
        if any(prior._has_proximal_step for prior in priors):
            return self._proximal_step(old, found), states
        precision = np.zeros((1, K)) if self.model.is_flat else self._precision(states)
        psi = np.atleast_2d(old.psi)[0]  # that of the first set
        equations = normal_equations(found.statistics, K)
        for _ in range(MOST_REPEATS if K <= MOST_REPEATED_COLUMNS else 1):
            loadings = solved(equations, psi, precision, self.uncertain)
            if not precision.any():
                break
            states = self._updated(states, loadings.squares())
            renewed = self._precision(states)
            change = np.abs(renewed - precision) > SCALES_STAND_STILL * precision
            precision = renewed
            if not change.any():
                break
        return completed(found.statistics, equations, loadings), states

    def _updated(self, states: States, squares: Array) -> States:
        parts = zip(self.model.priors, states, self.model.columns, strict=True)
        return tuple(prior.update(state, squares[:, c]) for prior, state, c in parts)

    def _prior_parts(self, states: States, squares: Array) -> dict[str, float]:
        blocks = zip(self.model.blocks, states, self.model.columns, strict=True)
        return {
            f"{block.name} loadings": block.prior.bound(state, squares[:, columns])
            for block, state, columns in blocks
        }

    def _precision(self, states: States) -> Array:
        """Return expected precisions of all loadings, (D or 1, K); those of effects are zero."""
        values = [p.precision(state) for p, state in zip(self.model.priors, states, strict=True)]
        found = np.zeros((max(map(len, values)), self.n_columns))
        for value, columns in zip(values, self.model.columns, strict=True):
            found[:, columns] = value
        return found

    def _proximal_step(self, old: Parameters, found: RowResults) -> LoadingStep:
        """Maximise over each block given the others; blocks with penalties are shrunk exactly."""
        equations = normal_equations(found.statistics, self.n_columns)
        L = np.hstack([old.L, np.zeros((len(old.L), self.model.n_effects))])
        known, psi = slice(self.model.n_columns, self.n_columns), np.atleast_2d(old.psi)[0]
        for prior, state, columns in zip(
            (*self.model.priors, Flat()),
            (*found.carry.states, None),
            (*self.model.columns, known),
            strict=True,
        ):
            if columns.stop > columns.start:
                L[:, columns] = _block_step(equations, L, columns, psi, prior, state)
        return completed(found.statistics, equations, Loadings(L))

    def slope_without(self, block: str, point: Array, carry: Carry) -> Array:
        """Return the slope of the bound in a block's loadings where they are zero, (D, n)."""
        statistics = self.evaluate(point, carry)[1].statistics
        equations = normal_equations(statistics, self.n_columns)
        p = self.unflatten(point)
        columns = self.model.columns[[b.name for b in self.model.blocks].index(block)]
        rest = np.hstack([p.L, np.zeros((len(p.L), self.model.n_effects))])
        rest[:, columns] = 0.0
        matrix = np.broadcast_to(equations.reduced, (*rest.shape, rest.shape[1]))[:, columns]
        pull = equations.cross[:, columns] - np.einsum("dij,dj->di", matrix, rest)
        slope: Array = pull / np.atleast_2d(p.psi)[0][:, None]
        return slope

    def _best_change(self, loadings: Loadings, sets: list[SetStatistics]) -> Array | None:
        """Return the change of latent coordinates, (K, K), that raises the bound most.

        Loadings `L R` and latents `R^-1 h` leave the predictors as they are, and raise the prior of
        the latents (parameter-expanded EM: Liu, Rubin & Wu 1998). A sweep alone moves along these
        directions by shares of the noise in a row's variance. Which R may change rows of all sets?
        Within a block any; and latents of a block may take up a part of those of another that is
        active in fewer of its sets, `h_b = sum_c G_bc h_c + A_b u_b` over such blocks c, as shared
        latents do of a target's: a row has them both or has nothing to take up. Given their second
        moments over the rows of the block, G is the least-squares regression of `h_b` on these
        latents, whatever `A_b` is; `A_b A_b'` is what it leaves a row, and `R = (I - G)^-1 diag A`.
        Loadings of c become `L_c + L_b G_bc`, which only a flat prior allows.
        """
        K, second = self.model.n_columns, loadings.second_moment()
        scale, changed, pulled = np.eye(K), False, False
        rest = scale.copy()  # I - G
        moments = [latent_moment(own, K) for own in sets]
        for block, columns, inner in zip(
            self.model.blocks, self.model.columns, self.inner, strict=True
        ):
            if block.n_components == 0 or block.latent_prior is not None:
                continue
            own = [i for i, name in enumerate(self.model.sets) if name in block.sets]
            moment = np.asarray(sum(moments[i] for i in own))
            n_rows = sum(sets[i].statistics.n_rows for i in own)
            latents = moment[columns, columns]
            if len(inner):
                shares = _least_squares(moment[inner[:, None], inner], moment[inner, columns])
                latents = latents - moment[columns, inner] @ shares
            given = second[columns, columns], latents, n_rows, self.data.n_features
            change = block.prior._best_coordinates(*given)
            if change is None:
                change = self._change_of_points(block.prior, *given)
            if change is None:
                continue
            scale[columns, columns], changed = change, True
            if len(inner):
                rest[columns, inner] = -shares.T
                pulled = True
        if not changed:
            return None
        return np.asarray(dgesv(rest, scale)[2]) if pulled else scale

    def _change_of_points(
        self, prior: AnyPrior, loadings: Array, latents: Array, n_rows: float, n_features: int
    ) -> Array | None:
        """Return the best change for point loadings whose prior has none; by default None."""
        return None


def _least_squares(second: Array, sides: Array) -> Array:
    """Return `pinv(second) @ sides` of a second moment, faster than by `numpy.linalg.pinv`."""
    values, V, _ = dsyevd(second)
    inverse = np.zeros_like(values)
    np.divide(1.0, values, out=inverse, where=values > 1e-15 * values[-1])
    return np.asarray((V * inverse) @ (V.T @ sides))


def _inner_columns(model: Model, block: LoadingBlock) -> Columns:
    """Return columns whose latents those of a block may take up: of blocks in fewer of its sets.

    Priors of both must be flat, and the latents of the block standard normal; those of the others,
    which do not change, may have any distribution.
    """
    free = block.prior._is_flat and block.latent_prior is None
    inside = [
        free and other.prior._is_flat and set(other.sets) < set(block.sets)
        for other in model.blocks
    ]
    return np.flatnonzero(np.repeat(inside, [other.n_components for other in model.blocks]))


def latent_moment(own: SetStatistics, K: int) -> Array:
    """Return `sum_i E[h_i h_i']` over the rows of a set, zero where a column is not active."""
    active, moment = own.columns[own.columns < K], np.zeros((K, K))
    pairs = packed.unpack(own.statistics.latent[:, None])[0]
    moment[active[:, None], active] = pairs
    return moment


def _block_step(
    equations: NormalEquations, L: Array, columns: slice, psi: Array, prior: AnyPrior, state: object
) -> Array:
    """Maximise over one block of loadings given the others, (D, n)."""
    D, K = L.shape
    matrix = np.broadcast_to(equations.reduced, (D, K, K))[:, columns]
    own = matrix[:, :, columns]  # (D, n, n)
    linear = equations.cross[:, columns] - np.einsum("dij,dj->di", matrix, L)
    linear = (linear + np.einsum("dij,dj->di", own, L[:, columns])) / psi[:, None]
    if not prior._has_proximal_step:
        precision = prior.precision(state)
        if equations.reduced.ndim == 2 and not np.any(precision):  # alike for all features
            return np.asarray(np.linalg.solve(own[0], (linear * psi[:, None]).T).T)
        ridge = np.array(own) / psi[:, None, None]
        diagonal = np.arange(own.shape[1])
        ridge[:, diagonal, diagonal] += precision
        return np.asarray(np.linalg.solve(ridge, linear[:, :, None])[:, :, 0])
    gamma, U = np.linalg.eigh(own if equations.reduced.ndim == 3 else own[:1])
    rotated = np.einsum("dji,dj->di", np.broadcast_to(U, own.shape), linear)
    curvature = np.broadcast_to(gamma, rotated.shape) / psi[:, None]
    shrunk = prior._proximal_step(curvature, rotated)
    return np.asarray(np.einsum("dij,dj->di", np.broadcast_to(U, own.shape), shrunk))


class WarmStart(NamedTuple):
    """The state of an ascent: what it continues from, and its trace so far."""

    problem: Problem
    point: Array
    carry: Carry
    lower_bounds: Array = np.empty(0)
    n_sweeps: int = 0

    def after(self, ascent: Ascent[RowResults]) -> "WarmStart":
        """Return the state where an ascent from here has ended."""
        rising = ascent.trace[ascent.trace > self.lower_bounds.max(initial=-np.inf)]
        trace = np.concatenate([self.lower_bounds, rising])
        spent = self.n_sweeps + ascent.n_sweeps
        return WarmStart(self.problem, ascent.point, ascent.info.carry, trace, spent)

    def kept_after(self, interrupt: KeyboardInterrupt) -> KeyboardInterrupt:
        """Return an interrupt with the best state so far, which may be this one."""
        before = self.lower_bounds.max(initial=-np.inf)
        now = interrupt.ascent.trace[-1] if isinstance(interrupt, AscentInterrupted) else -np.inf
        return interrupt if now >= before else self.interrupted()

    def interrupted(self) -> KeyboardInterrupt:
        """Return an interrupt here."""
        ascent = ascend(self.problem, self.point, self.carry, memory=0, max_sweeps=1, tol=0.0)
        return AscentInterrupted(self.problem, ascent)
