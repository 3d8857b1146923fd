"""The sweep with mixtures of latents: one ascent over them, loadings, means and noise.

The vector of the standard problem is followed by those of the mixtures. A sweep takes the row step
with the mixtures as priors of their blocks' latents, then the steps of the standard problem and the
mixtures' own, which are separate given the row step. The ascent begins at the optimum of the
standard model, whose latents have mean 0 and covariance I too, with components that were fitted to
the latents alone: this needs only the rows' posteriors of the block, N(m, V).
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from contrastive_lvm.arrays import Array, Parameters, noise_of
from contrastive_lvm.coordinate_ascent.problem import Carry, Problem, RowResults
from contrastive_lvm.exceptions import InvalidParameterError
from contrastive_lvm.linalg.clusters import kmeans
from contrastive_lvm.linalg.loadings import Loadings
from contrastive_lvm.linalg.normal_mixture import (
    NormalMixture,
    condition,
    condition_equally,
    standard_normal,
)
from contrastive_lvm.model import LoadingBlock, Model
from contrastive_lvm.prediction import Linear, column_moments
from contrastive_lvm.priors.mixture import Mixture
from contrastive_lvm.rows.latent_distribution import LatentDistribution

MOST_START_ROWS = 1000  # evenly spaced rows to which components are first fitted
N_STARTS = 4  # different clusterings from which EM begins
KMEANS_STARTS = 8  # runs of k-means that find them
TRIAL_STEPS, MOST_STEPS = 10, 200  # of EM, for each start and for the best
STANDS_STILL = 1e-5  # nats per row and step
SAME_CLUSTERS = 0.9  # share of rows in the same clusters above which a second start is left out


class MixtureProblem:
    """A problem whose blocks in `latent_priors` have mixtures of several components."""

    def __init__(self, plain: Problem, latent_priors: Mapping[str, Mixture]) -> None:
        blocks = tuple(
            replace(block, latent_prior=latent_priors.get(block.name))
            for block in plain.model.blocks
        )
        self.model: Model = replace(plain.model, blocks=blocks)
        self.plain, self.data = plain.with_model(self.model), plain.data
        self.steady_sweeps = plain.steady_sweeps
        places = zip(self.model.blocks, self.model.columns, strict=True)
        self.blocks: list[tuple[LoadingBlock, Mixture, slice]] = [
            (block, block.latent_prior, columns)
            for block, columns in places
            if block.latent_prior is not None
            and block.latent_prior._size != 1
            and block.n_components
        ]
        self._last: tuple[Array, tuple[Array, list[NormalMixture]]] | None = None

    @property
    def unit_variance(self) -> float:
        """Return the mean variance of the features."""
        return self.plain.unit_variance

    def damped(self, point: Array, found: RowResults) -> tuple[Array, Carry] | None:
        """Return None, since no sweep lowers the bound by more than rounding."""
        return None

    def single_components(self) -> dict[str, NormalMixture]:
        """Return the mixtures of one component, which need no ascent."""
        return {
            block.name: standard_normal(block.n_components)
            for block in self.model.blocks
            if block.latent_prior is not None
        }

    def _split(self, point: Array) -> tuple[Array, list[NormalMixture]]:
        """Return the vector of the standard problem, and the mixtures; the last point is cached."""
        if self._last is None or self._last[0] is not point:
            sizes = [
                prior._size * (1 + T + T * (T + 1) // 2)
                for block, prior, _ in self.blocks
                for T in (block.n_components,)
            ]
            begin = len(point) - sum(sizes)
            parts = np.split(point[begin:], np.cumsum(sizes)[:-1])
            mixtures = [
                prior._from_vector(part, block.n_components)
                for (block, prior, _), part in zip(self.blocks, parts, strict=True)
            ]
            self._last = point, (point[:begin], mixtures)
        return self._last[1]

    def _joined(self, point: Array, mixtures: list[NormalMixture]) -> Array:
        pairs = zip(self.blocks, mixtures, strict=True)
        return np.concatenate([point, *(prior._to_vector(own) for (_, prior, _), own in pairs)])

    def unflatten(self, point: Array) -> Parameters:
        """Return loadings, noise and means of a vector."""
        return self.plain.unflatten(self._split(point)[0])

    def mixtures(self, point: Array) -> dict[str, NormalMixture]:
        """Return the mixtures of all blocks that have one."""
        found = zip(self.blocks, self._split(point)[1], strict=True)
        return self.single_components() | {block.name: own for (block, *_), own in found}

    def _distributions(self, mixtures: list[NormalMixture]) -> list[LatentDistribution | None]:
        """Return the distributions of the latents of each set."""
        distributions: list[LatentDistribution | None] = [None] * len(self.model.sets)
        for (_, _, columns), mixture in zip(self.blocks, mixtures, strict=True):
            for i, active in enumerate(self.plain.active):
                own = np.flatnonzero((active >= columns.start) & (active < columns.stop))
                if len(own):
                    distributions[i] = LatentDistribution(own, mixture)
        return distributions

    def evaluate(self, point: Array, carry: Carry) -> tuple[float, RowResults]:
        """Take the row step: the bound and its statistics."""
        inner, mixtures = self._split(point)
        return self.plain.evaluate(inner, carry, self._distributions(mixtures))

    def improve(self, point: Array, found: RowResults) -> tuple[Array, Carry]:
        """Update loadings, means and noise, and the components of each mixture."""
        inner, mixtures = self._split(point)
        improved, carry = self.plain.improve(inner, found)
        updated = [
            prior._updated(old, self._component_sums(block, found))
            for (block, prior, _), old in zip(self.blocks, mixtures, strict=True)
        ]
        return self._joined(improved, updated), carry

    def _component_sums(self, block: LoadingBlock, found: RowResults) -> Array:
        """Add up the components' sums of the sets in which a block is active."""
        pairs = zip(self.model.sets, found.statistics, strict=True)
        own = [s.statistics.components for name, s in pairs if name in block.sets]
        return np.asarray(np.sum(own, axis=0))

    def starts(self, point: Array, carry: Carry, seed: int = 0) -> list[Array]:
        """Return where ascents begin: the standard problem's optimum with components of its own.

        Components begin with the best fit to the latents of that optimum and, in a second start,
        with the tightest clusters if these differ, since either may be better once loadings follow.
        """
        p, found, alike = self.plain.unflatten(point), [], []
        for block, prior, columns in self.blocks:
            parts = [
                self._start_rows(i, p, carry, columns)
                for i, name in enumerate(self.model.sets)
                if name in block.sets
            ]
            mean, cov, weights = (np.concatenate(part) for part in zip(*parts, strict=True))
            typical = np.average(cov, axis=0, weights=weights)[None]
            rows = block_posteriors(mean, typical, weights)
            clusters = _clusterings(prior, rows, seed, N_STARTS)
            found.append((_best_trial(prior, rows, clusters), _clustered(prior, rows, clusters[0])))
            alike.append(_agreement(found[-1][0], rows, clusters[0]) >= SAME_CLUSTERS)
        n_starts = 1 if all(alike) else 2
        return [self._joined(point, [own[i] for own in found]) for i in range(n_starts)]

    def _start_rows(
        self, i: int, p: Parameters, carry: Carry, columns: slice
    ) -> tuple[Array, Array, Array]:
        """Return a block's posteriors for evenly spaced rows of a set, and their weights."""
        active = self.plain.active[i]
        loadings = Loadings(p.L, carry.cov).columns(active)
        scaler = partial(self.plain.likelihood.scales, df=p.df)
        scaled = scaler if self.plain.likelihood._is_scale_mixture else None
        reader, given, known = self.data.rows_of_set(i)
        weights = np.ones(reader.shape[0]) if given is None else given
        at = np.flatnonzero(weights)
        at = at[np.linspace(0, len(at) - 1, min(len(at), MOST_START_ROWS)).astype(np.intp)]
        X = reader.load() if len(at) == reader.shape[0] else reader.take(at)
        own = np.flatnonzero((active >= columns.start) & (active < columns.stop))
        view = Linear(loadings, p.means[i], noise_of(p.psi, i), scaled)
        if p.effects and known is not None:
            view = view._replace(effects=p.effects[i], covariates=known[at])
        return (*column_moments(view, X, own), weights[at])


def fit_mixture(
    prior: Mixture,
    mean: Array,
    cov: Array,
    weights: Array | None = None,
    seed: int = 0,
    *,
    n_starts: int = N_STARTS,
    most: int = MOST_STEPS,
    start: NormalMixture | None = None,
) -> tuple[NormalMixture, float]:
    """Fit components to rows, given their posteriors N(mean, cov) under a standard normal prior.

    Starts are k-means clusters of the means unless one is given. The second value is the
    log-likelihood of the rows, less that of the standard model.
    """
    if prior._size == 1:
        return standard_normal(mean.shape[1]), 0.0
    rows = block_posteriors(mean, cov, np.ones(len(mean)) if weights is None else weights)
    if start is None:
        start = _best_trial(prior, rows, _clusterings(prior, rows, seed, n_starts))
    return _ascended(prior, start, rows, most)


class BlockPosteriors(NamedTuple):
    """Posteriors of latents given rows, and the weights of the rows."""

    mean: Array  # (N, T)
    cov: Array  # (P, T, T)
    pattern: npt.NDArray[np.intp]  # (N,)
    weights: Array  # (N,)

    def expected(self, mixture: NormalMixture) -> tuple[Array, Array]:
        """Return the log-likelihoods of rows less the standard ones, and the components' sums."""
        if len(self.cov) == 1:
            equal = condition_equally(mixture, np.ascontiguousarray(self.mean.T), self.cov[0])
            return equal.log_ratio, equal.sums(self.weights)
        found = condition(mixture, self.mean, self.cov, self.pattern)
        return found.log_ratio, found.sums(self.pattern, self.weights)


def block_posteriors(mean: Array, cov: Array, weights: Array) -> BlockPosteriors:
    """Sort the rows, so that results do not depend on their order."""
    order = np.lexsort(mean.T[::-1])
    cov = cov[:1] if (cov == cov[0]).all() else cov[order]
    pattern = np.zeros(len(mean), np.intp) if len(cov) == 1 else np.arange(len(mean))
    return BlockPosteriors(mean[order], cov, pattern, weights[order])


def _clusterings(
    prior: Mixture, rows: BlockPosteriors, seed: int, n_starts: int
) -> list[npt.NDArray[np.intp]]:
    """Return different clusters of the means found by k-means, the tightest first."""
    C = prior._size
    n_distinct = len(np.unique(rows.mean, axis=0))
    if n_distinct < C:
        raise InvalidParameterError(
            "n_components", C, f"exceeds the {n_distinct} distinct rows; use fewer subgroups."
        )
    labels, inertias = kmeans(rows.mean, rows.weights, C, KMEANS_STARTS, seed)
    found = {float(f"{own:.6g}"): clusters for own, clusters in zip(inertias, labels, strict=True)}
    return [found[inertia] for inertia in sorted(found)[:n_starts]]


def _best_trial(
    prior: Mixture, rows: BlockPosteriors, clusters: list[npt.NDArray[np.intp]]
) -> NormalMixture:
    """Return the components that fit best after a few steps of EM from each set of clusters."""
    firsts = (_clustered(prior, rows, labels) for labels in clusters)
    trials = [_ascended(prior, first, rows, TRIAL_STEPS) for first in firsts]
    return max(trials, key=lambda trial: trial[1])[0]


def _agreement(
    mixture: NormalMixture, rows: BlockPosteriors, clusters: npt.NDArray[np.intp]
) -> float:
    """Return the share of rows that are in the component that most of their cluster are in."""
    labels = condition(mixture, rows.mean, rows.cov, rows.pattern).probabilities.argmax(axis=1)
    C = len(mixture.weights)
    counts = np.bincount(C * clusters + labels, minlength=C * C).reshape(C, C)
    return float(counts.max(axis=1).sum() / len(labels))


def _clustered(
    prior: Mixture, rows: BlockPosteriors, labels: npt.NDArray[np.intp]
) -> NormalMixture:
    """Return the components of given clusters, standardized."""
    C, T = prior._size, rows.mean.shape[1]
    member = np.eye(C)[labels] * rows.weights[:, None]  # (N, C)
    second = np.einsum("nc,ni,nj->cij", member, rows.mean, rows.mean, optimize=True)
    typical = np.average(rows.cov[rows.pattern], axis=0, weights=rows.weights)
    second += member.sum(axis=0)[:, None, None] * typical
    first = member.T @ rows.mean
    sums = np.hstack([member.sum(axis=0)[:, None], first, second.reshape(C, -1)])
    whole = NormalMixture(
        np.full(C, 1 / C), np.zeros((C, T)), np.broadcast_to(np.eye(T), (C, T, T))
    )
    return prior._maximized(whole, sums).standardized()


def _ascended(
    prior: Mixture, mixture: NormalMixture, rows: BlockPosteriors, most: int
) -> tuple[NormalMixture, float]:
    """Raise the likelihood of the rows over the components alone, by EM."""
    before, settled = -np.inf, STANDS_STILL * rows.weights.sum()
    for _ in range(most):
        log_ratio, sums = rows.expected(mixture)
        value = float(rows.weights @ log_ratio)
        if value - before < settled:
            break
        before, mixture = value, prior._updated(mixture, sums)
    return mixture, value
