"""The sweep for counts, binary and mixed data: variational EM with Newton steps.

Rows take a step of their normal posteriors (`rows.generalised_rows`). Then each feature takes a
Newton step of its loadings and means, which is a loading step of weighted least squares, and one of
its dispersion or noise variance. Priors enter through the same precisions as with Gaussian noise.
Newton steps may go too far: if the bound falls, the features whose own part of it falls take
shorter steps.

With a posterior over loadings, predictors `l_d' h_i` are taken as normal with their exact mean and
variance (`rows.gaussian_vi_rows`), so that the objective is a bound for point loadings, and close
to one otherwise.
"""

from collections.abc import Sequence
from functools import reduce

import numpy as np

from contrastive_lvm.arrays import TINY, Array, Parameters, Statistics
from contrastive_lvm.coordinate_ascent.loading_step import SetStatistics, mean_changes
from contrastive_lvm.coordinate_ascent.mixed_latents import best_mixing, blocks_within
from contrastive_lvm.coordinate_ascent.problem import (
    Carry,
    Problem,
    RowResults,
    States,
    WarmStart,
    latent_moment,
)
from contrastive_lvm.coordinate_ascent.tied_means import TiedMeans, prior_precision, tied_means
from contrastive_lvm.likelihoods.base import FLOOR
from contrastive_lvm.likelihoods.values import CountTable, Nuisance
from contrastive_lvm.linalg import packed
from contrastive_lvm.linalg.loadings import Covariance, Loadings, PackedCovariance
from contrastive_lvm.model import Model
from contrastive_lvm.priors.base import AnyPrior
from contrastive_lvm.rows.data import Data
from contrastive_lvm.rows.generalised_rows import FeatureModel, GeneralisedRows
from contrastive_lvm.rows.latent_distribution import LatentDistribution

REACH = 3.0  # longest step of a feature's loadings or mean, in units of the predictor
MOST_CUTS = 12  # of a step, each to a quarter
LOG_DISPERSIONS = (-13.0, 7.0)  # least and greatest


class GeneralisedProblem(Problem):
    """A model without a closed form and its rows, as the ascent of a bound over a flat vector.

    The vector holds loadings, means and effects of covariates in units of the predictor (standard
    deviations of features that have a noise variance), and the logs of noise variances and
    dispersions.
    """

    def __init__(self, model: Model, data: Data, *, posterior: bool = False) -> None:
        self.model, self.data, self.posterior = model, data, posterior
        self.steady_sweeps = 0
        D = data.n_features
        self.noisy = model.likelihood._has_noise(D)
        first = model.likelihood._first_nuisance(np.ones(D))
        self.dispersed, self.df = first.dispersion > 0, first.df
        on_scale = model.likelihood._is_on_data_scale(D)
        variance = np.where(data.variance > 0, data.variance, 1.0)
        self.unit = np.sqrt(np.where(on_scale, variance, 1.0))
        self.unit_variance = float((self.unit**2).mean())  # 1 for counts and binary features
        self.floor = FLOOR * variance
        self.table = reduce(CountTable.plus, (self._rows(i).table for i in range(len(data.sets))))
        self.active = [model.active_columns(name) for name in model.sets]
        self.effects = [model.n_columns + model.effect_columns(i) for i in range(len(model.sets))]
        pairs = zip(self.active, self.effects, strict=True)
        self.used = [np.concatenate(pair) for pair in pairs]
        self.n_columns = model.n_columns + model.n_effects
        uncertain = [posterior and block.prior._has_posterior for block in model.blocks]
        sizes = [block.n_components for block in model.blocks]
        self.uncertain = np.flatnonzero(np.repeat(uncertain, sizes))
        # Means are tied to the loadings of each block, and `mixed_latents` heeds that.
        self.inner = [np.empty(0, dtype=np.intp)] * len(model.blocks)
        self.within = blocks_within(model, self.uncertain)

    def with_model(self, model: Model) -> "GeneralisedProblem":
        """Return the same data with another model."""
        return GeneralisedProblem(model, self.data, posterior=self.posterior)

    def flatten(self, parameters: Parameters) -> Array:
        """Return parameters as one vector."""
        parts = [(parameters.L / self.unit[:, None]).ravel()]
        parts += [mean / self.unit for mean in parameters.means]
        distinct = parameters.effects if self.model.own_effects else parameters.effects[:1]
        parts += [(effects / self.unit[:, None]).ravel() for effects in distinct]
        parts.append(np.log(parameters.psi[self.noisy]))
        if parameters.dispersion is not None:
            parts.append(np.log(parameters.dispersion[self.dispersed]))
        return np.concatenate(parts)

    def unflatten(self, point: Array) -> Parameters:
        """Return the parameters of a vector, noise and dispersions within their limits."""
        D, K, S = len(self.unit), self.model.n_columns, len(self.model.sets)
        sizes = [D * K, S * D, D * self.model.n_effects, int(self.noisy.sum())]
        L, means, known, noise, spread = np.split(point, np.cumsum(sizes))
        psi, dispersion = np.zeros(D), np.zeros(D)
        psi[self.noisy] = np.maximum(np.exp(noise), self.floor[self.noisy])
        dispersion[self.dispersed] = np.exp(np.clip(spread, *LOG_DISPERSIONS))
        means = means.reshape(S, D) * self.unit
        loadings = L.reshape(D, K) * self.unit[:, None]
        effects = self._effects_of_sets(known) if self.model.covariates else ()
        return Parameters(
            loadings, psi, tuple(means), self.df or 0.0, effects, dispersion=dispersion
        )

    def nuisance(self, p: Parameters) -> Nuisance:
        """Return what the likelihood has learned."""
        none = np.zeros(len(p.psi))
        return Nuisance(p.psi, none if p.dispersion is None else p.dispersion, self.df)

    def evaluate(
        self,
        point: Array,
        carry: Carry,
        distributions: Sequence[LatentDistribution | None] | None = None,
    ) -> tuple[float, RowResults]:
        """Update scales of the priors, then take a step of all rows: the bound and statistics."""
        p = self.unflatten(point)
        loadings = Loadings(p.L, carry.cov)
        squares = loadings.squares()
        states = self._updated(carry.states, squares)
        parts = self._prior_parts(states, squares)
        if self.posterior:
            parts["entropy of loadings"] = loadings.entropy()
        tied = self._tied(p, loadings)
        parts["means"] = float(tied.log_densities(p.means, loadings).sum())
        found = [
            self._rows(i).sweep(self._features(i, p, loadings), cache, carry.change_of(i, a))
            for i, (a, cache) in enumerate(zip(self.active, carry.weights, strict=True))
        ]
        nuisance = self.nuisance(p)
        sums = [own for own, _ in found]
        for i, (name, own) in enumerate(zip(self.model.sets, sums, strict=True)):
            constants = self.model.likelihood._constants(self._rows(i).table, nuisance)
            parts[f"{name} rows"] = own.statistics.bound + float(constants.sum())
        if self.dispersed.any():
            parts["dispersion"] = self.model.likelihood._nuisance_bound(nuisance)
        n = len(self.model.covariates)
        expected = self._expected_means(p, loadings, [s.statistics for s in sums])
        statistics = [
            SetStatistics(s.statistics.plus(expected.row(i, p.means[i], self.active[i], n)), used)
            for i, (s, used) in enumerate(zip(sums, self.used, strict=True))
        ]
        results = RowResults(
            p,
            statistics,
            Carry(carry.cov, states, tuple(cache for _, cache in found)),
            0.0,
            0.0,
            parts,
            np.asarray(sum(s.nuisance for s in sums)),
            tuple(s.latent_sum for s in sums),
            expected.places,
        )
        return sum(parts.values()), results

    def begin(self, point: Array, carry: Carry | None = None) -> WarmStart:
        """Return where an ascent begins: at the point, with covariances from a first sweep.

        The step of the loadings is left to the ascent, which can shorten it.
        """
        carry = self.first_carry() if carry is None else carry
        if self.posterior:
            carry = self._newton_step(self.evaluate(point, carry)[1])[1]
        return WarmStart(self, point, carry)

    def information(self, p: Parameters) -> dict[str, Array]:
        """Return the information of an average row on the latents of each block, (K, K).

        With the information w_d of a row with average entries on its predictors, its latents have
        the posterior precision `I + sum_d w_d l_d l_d'`. That of a block b alone is the inverse of
        its part of the inverse: with `G = sum_d w_d l_d l_d'` and the other latents o, it is `I +
        G_bb - G_bo (I + G_oo)^-1 G_ob`. Averages are those of the first set that has the block.
        """
        information: dict[str, Array] = {}
        for block, columns in zip(self.model.blocks, self.model.columns, strict=True):
            i = self.model.sets.index(block.sets[0])
            means = np.nan_to_num(self._rows(i).mean)
            weights = self.model.likelihood._information(means, self.nuisance(p))
            if weights is None:
                return {}
            b, G = np.arange(self.model.n_columns)[columns], (p.L.T * weights) @ p.L
            o = np.setdiff1d(self.active[i], b)
            apart = np.linalg.solve(np.eye(len(o)) + G[np.ix_(o, o)], G[np.ix_(o, b)])
            information[block.name] = G[np.ix_(b, b)] - G[np.ix_(b, o)] @ apart
        return information

    def _tied(self, p: Parameters, loadings: Loadings) -> TiedMeans:
        return tied_means(p.means, loadings, self.active, self.unit, self._rows(0).sized)

    def _expected_means(
        self, p: Parameters, loadings: Loadings, sums: Sequence[Statistics]
    ) -> TiedMeans:
        """Return where means are expected if they may follow.

        With weights n of its rows, whose own means would be y, and the prior's precision q, the
        mean of a set ends at `(n y + q center) / (n + q)`. What is left is
        `n q / (n + q) (y - center)^2`, so that centers are regressed on y with these weights.
        """
        precision = prior_precision(self.unit)
        own, weights = [], []
        for i, (mean, s) in enumerate(zip(p.means, sums, strict=True)):
            active = self.active[i]
            fitted = (p.L[:, active] * s.first[: len(active)].T).sum(axis=1)
            reach = REACH * self.unit
            own.append(mean + np.clip((s.residual - fitted) / s.weight, -reach, reach))
            weights.append(s.weight * precision / (s.weight + precision))
        sized = self._rows(0).sized
        return tied_means(own, loadings, self.active, self.unit, sized, np.stack(weights))

    def _rows(self, i: int) -> GeneralisedRows:
        rows = self.data.sets[i]
        if not isinstance(rows, GeneralisedRows):
            raise TypeError("these rows were prepared for a likelihood with a closed form.")
        return rows

    def _features(self, i: int, p: Parameters, loadings: Loadings) -> FeatureModel:
        active = loadings.columns(self.active[i])
        effects = p.effects[i] if p.effects else np.empty((len(p.L), 0))
        return FeatureModel(active, p.means[i], self.model.likelihood, self.nuisance(p), effects)

    def improve(self, point: Array, found: RowResults) -> tuple[Array, Carry]:
        """Take a Newton step, then change to the latent coordinates where the bound is greatest.

        The predictors `(L R) R^-1 (h - place) + (mean + L place)` stay as they are, so that only
        priors move: coordinate ascent alone walks along these valleys in many small steps
        (parameter expansion; Liu, Rubin & Wu 1998).
        """
        p, carry = self._newton_step(found)
        loadings = Loadings(p.L, carry.cov)
        places = self._places(found, loadings)
        means = [mean + p.L @ place for mean, place in zip(p.means, places, strict=True)]
        p, centred = p._replace(means=tuple(means)), self._centred(found, places)
        change, loadings, centred = self._mixed_latents(p, loadings, centred, carry.states)
        R = self._best_change(loadings, centred)
        if R is not None:
            loadings, change = loadings.transformed(R), change @ R
        carry = carry._replace(cov=loadings.cov, change=change, places=tuple(places))
        return self.flatten(p._replace(L=loadings.mean)), carry

    def _mixed_latents(
        self, p: Parameters, loadings: Loadings, sets: list[SetStatistics], states: States
    ) -> tuple[Array, Loadings, list[SetStatistics]]:
        """Let latents take over a part of those of blocks in fewer of their sets."""
        K = self.model.n_columns
        change, precision = np.eye(K), self._precision(states)
        for u, h in self.within:
            own = [i for i, active in enumerate(self.active) if np.isin(u, active).all()]
            tied = self._tied(p, loadings)
            tied = tied._replace(centers=tied.centers[own], places=tied.places[own])
            latents = np.sum([latent_moment(sets[i], K) for i in own], axis=0)
            means = [p.means[i] for i in own]
            R = best_mixing(u, h, loadings, latents, precision, means, tied)
            loadings, change = loadings.transformed(R), change @ R
            inverse = np.linalg.inv(R)
            for i in own:
                moment = inverse @ latent_moment(sets[i], K) @ inverse.T
                active = self.active[i]
                latent = packed.pack(moment[np.ix_(active, active)])[:, 0]
                sets[i] = sets[i]._replace(statistics=sets[i].statistics._replace(latent=latent))
        return change, loadings, sets

    def _places(self, found: RowResults, loadings: Loadings) -> list[Array]:
        """Return what the means take over of the latents of each set, (K,) each.

        `L h + mean` stays as it is when h becomes `h - place` and the mean moves by `L place`. That
        is without consequence for the prior of the means in columns that all sets use, if the place
        is the same in all; in others its own places p move along. With uncertain loadings, whose
        `h' C_d h` are variances of the predictors, and the prior's precisions q_d, the bound has

            -1/2 sum_i (h_i - place)' (I + sum_d w_id C_d) (h_i - place)
            -1/2 sum_d q_d (p + place)' C_d (p + place),

        the second line in columns that not all sets use. Places are where that is greatest.
        """
        S, K = len(self.active), self.model.n_columns
        uses = np.zeros((S, K), dtype=bool)
        for i, active in enumerate(self.active):
            uses[i, active] = True
        common: np.ndarray = np.asarray(uses.all(axis=0))
        q = prior_precision(self.unit)
        number = np.arange(S * K).reshape(S, K)
        number[:, common] = number[0, common]
        matrix, pull = np.zeros((S * K, S * K)), np.zeros(S * K)
        for i, s in enumerate(found.statistics):
            own, n = np.flatnonzero(uses[i]), s.statistics.n_rows
            block, side = n * np.eye(len(own)), found.latent_sums[i].copy()
            if loadings.cov is not None:
                cov, p = loadings.cov.columns(own), found.places[i, own]
                first = s.statistics.first[: len(own)] + p[:, None] * q
                block += cov.weighted_sum(s.statistics.weight - q)
                side += packed.multiply(cov.packed(), first).sum(axis=1)
                apart = np.where(common[own], 0.0, 1.0)
                U = cov.weighted_sum(q) * np.outer(apart, apart)
                block, side = block + U, side - U @ p
            matrix[np.ix_(number[i, own], number[i, own])] += block
            np.add.at(pull, number[i, own], side)
        unused = np.flatnonzero(np.diagonal(matrix) == 0)
        matrix[unused, unused] = 1.0
        return list(np.linalg.solve(matrix, pull)[number])

    def _centred(self, found: RowResults, places: Sequence[Array]) -> list[SetStatistics]:
        """Return the statistics with second moments of latents about their places."""
        centred = []
        for s, place, total in zip(found.statistics, places, found.latent_sums, strict=True):
            own = place[s.columns[: len(total)]]
            crossed = np.outer(own, total)
            change = s.statistics.n_rows * np.outer(own, own) - crossed - crossed.T
            latent = s.statistics.latent + packed.pack(change)[:, 0]
            centred.append(s._replace(statistics=s.statistics._replace(latent=latent)))
        return centred

    def _change_of_points(
        self, prior: AnyPrior, loadings: Array, latents: Array, n_rows: float, n_features: int
    ) -> Array | None:
        alike = prior._treats_features_alike and not prior._has_own_columns
        if not alike or (self.posterior and prior._has_posterior):
            return None
        state = prior.init((n_features, len(loadings)))
        return _best_of_points(loadings, latents, n_rows, float(prior.precision(state).mean()))

    def _newton_step(self, found: RowResults) -> tuple[Parameters, Carry]:
        """Take a Newton step of loadings and means, and of what the likelihood learns."""
        old = found.parameters
        step, states = self._loading_step(old._replace(psi=np.ones(len(self.unit))), found)
        K, moves = self.model.n_columns, step.loadings.mean.copy()
        moves[:, :K] -= old.L  # the effects are changes already
        means = np.stack(mean_changes(found.statistics, step.loadings))
        length = np.sqrt((moves**2).sum(axis=1) + (means**2).max(axis=0)) / self.unit
        pace = 1.0 / np.maximum(1.0, length / REACH)
        moves *= pace[:, None]
        learned = self.nuisance(old)
        if found.nuisance is not None:
            learned = self.model.likelihood._nuisance_step(found.nuisance, self.table, learned)
        new = Parameters(
            old.L + moves[:, :K],
            learned.noise,
            tuple(old.means + pace * means),
            old.df,
            tuple(M + moves[:, c] for M, c in zip(old.effects, self.effects, strict=False)),
            dispersion=learned.dispersion,
        )
        loadings = step.loadings.columns(np.arange(K))
        return new, Carry(loadings.cov, states, found.carry.weights)

    def damped(self, point: Array, found: RowResults) -> tuple[Array, Carry] | None:
        """Take shorter steps of the features whose part of the bound would fall.

        Where that does not suffice, as with penalties on groups of features, all steps are cut.
        """
        new, carry = self._newton_step(found)
        old, before = found.parameters, found.carry
        precision = self._precision(before.states)[:, : self.model.n_columns]
        tied = self._tied(old, Loadings(old.L, before.cov))
        least = self._feature_parts(old, before.cov, before, precision, tied)
        total = float(least.sum()) + self._other_parts(old, before.cov, before)
        pace = np.ones(len(self.unit))
        for cut in range(MOST_CUTS):
            trial, cov = self._between(old, new, pace), _mixed(before.cov, carry.cov, pace)
            parts = self._feature_parts(trial, cov, before, precision, tied)
            lower = parts < least
            if not lower.any():
                lower[:] = float(parts.sum()) + self._other_parts(trial, cov, before) < total
            if not lower.any():
                return self.flatten(trial), Carry(cov, before.states, before.weights)
            pace[lower] *= 0.25 if cut < MOST_CUTS - 2 else 0.0
        return None

    def _feature_parts(
        self,
        p: Parameters,
        cov: Covariance | None,
        carry: Carry,
        precision: Array,
        tied: TiedMeans,
    ) -> Array:
        """Return each feature's part of the bound at the present rows and scales, (D,)."""
        loadings = Loadings(p.L, cov)
        parts = tied.log_densities(p.means, loadings)
        parts -= 0.5 * (precision * loadings.squares()).sum(axis=1)
        if cov is not None:
            parts += 0.5 * cov.logdet
        for i, cache in enumerate(carry.weights):
            rows = self._rows(i)
            parts += rows.feature_values(self._features(i, p, loadings), cache)
            parts += self.model.likelihood._constants(rows.table, self.nuisance(p))
        return parts

    def _other_parts(self, p: Parameters, cov: Covariance | None, carry: Carry) -> float:
        """Return the parts of the bound that do not belong to single features."""
        squares = Loadings(p.L, cov).squares()
        whole = sum(self._prior_parts(self._updated(carry.states, squares), squares).values())
        precision = self._precision(carry.states)[:, : self.model.n_columns]
        quadratic = 0.5 * float((precision * squares).sum())
        return whole + quadratic + self.model.likelihood._nuisance_bound(self.nuisance(p))

    def _between(self, old: Parameters, new: Parameters, pace: Array) -> Parameters:
        """Return parameters on the way from old to new ones, each feature at its own pace."""

        def on_the_way(a: Array, b: Array) -> Array:
            positive = np.where(b > 0, b, 1.0)
            return np.where(b > 0, np.where(a > 0, a, 1.0) ** (1 - pace) * positive**pace, 0.0)

        pairs = zip(old.means, new.means, strict=True)
        return Parameters(
            old.L + pace[:, None] * (new.L - old.L),
            on_the_way(old.psi, new.psi),
            tuple(a + pace * (b - a) for a, b in pairs),
            old.df,
            tuple(
                a + pace[:, None] * (b - a) for a, b in zip(old.effects, new.effects, strict=True)
            ),
            dispersion=on_the_way(self.nuisance(old).dispersion, self.nuisance(new).dispersion),
        )


def _best_of_points(M: Array, Z: Array, n_rows: float, precision: float) -> Array:
    """Return R that maximises `-N ln|R| - 1/2 tr(R^-1 Z R^-T) - precision / 2 tr(R' M R)`.

    M and Z are the sums of `l l'` over features and of `E[h h']` over rows. With `Z = B B'` and
    `B' M B = U diag(g) U'`, `A = R R'` solves `Z = N A + precision A M A`, so that
    `A = B U diag(y) U' B'` with `precision g y^2 + N y = 1`. Of its roots the symmetric one is
    nearest to no change, which acceleration needs.
    """
    values, V = np.linalg.eigh(Z)
    B = V * np.sqrt(np.maximum(values, 1e-12 * values.max()))
    g, U = np.linalg.eigh(B.T @ M @ B)
    g = np.maximum(g, 0.0)
    y = 2.0 / (n_rows + np.sqrt(n_rows**2 + 4.0 * precision * g))
    BU = B @ U
    size, turn = np.linalg.eigh((BU * y) @ BU.T)
    return np.asarray((turn * np.sqrt(np.maximum(size, TINY))) @ turn.T)


def _mixed(old: Covariance | None, new: Covariance | None, pace: Array) -> Covariance | None:
    """Return covariances on the way from old to new ones."""
    if old is None or new is None or (pace == 1.0).all():
        return new
    before, after = old.packed(), new.packed()
    # Their logarithmic determinants are concave in between; this is their bound from below.
    logdet = old.logdet + pace * (new.logdet - old.logdet)
    return PackedCovariance(before + pace * (after - before), logdet, new.width)
