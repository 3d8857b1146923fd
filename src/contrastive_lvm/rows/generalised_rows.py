"""Rows of counts, binary and mixed data: normal posteriors that are carried from sweep to sweep.

A sweep takes one Newton step of each row's `q(h_i) = N(m_i, V_i)` from where the last sweep left it
(`gaussian_vi_rows` has the bound F_i and its derivatives): to `V^-1 = I + sum_d w_d E[l_d l_d']`
and `m + V dF/dm`, a quarter of the way where F_i would fall, and so on. So no sweep lowers F, and
the rows are at their best when the loadings are.

For the loading step, the expected log density of feature d, `sum_i f(mu_id, v_id)`, has in its
loadings and its mean b_d the slopes `sum_i g_id m_i - w_id V_i l_d` and `sum_i g_id`. With
`sum_i w_id E[h_i h_i']` as curvature, Newton's step is that of weighted least squares for the
working residuals `r_id = l_d' m_i + g_id / w_id` about the old mean:

    (sum_i w_id E[h_i h_i'] + Lambda_d) l_d = sum_i w_id r_id m_i,

since the left side at the old l_d plus the slope is the right side. So `Statistics` with these
weights and residuals, and noise variances of 1, serve the same loading step, priors and means as
Gaussian noise does; `(sum_i w_id E[h_i h_i'] + Lambda_d)^-1` is the best covariance of q(l_d) too.

Covariates are latents that are known: their columns follow those of the latents in the sums, and
since residuals are about the old mean and the old effects of covariates, what the loading step
finds for them is a change of the effects.

All entries enter every sum (for a Poisson zero: `exp(mu + v / 2)`), since each row has a covariance
of its own; sparse rows are made dense a block at a time, never as a whole.
"""

from collections.abc import Iterator
from functools import partial, reduce
from operator import add
from typing import Any, NamedTuple

import numpy as np

from contrastive_lvm.arrays import TINY, Array, Matrix, Statistics
from contrastive_lvm.likelihoods.base import Likelihood
from contrastive_lvm.likelihoods.values import CountTable, Expected, Nuisance
from contrastive_lvm.linalg import packed
from contrastive_lvm.linalg.loadings import Loadings
from contrastive_lvm.linalg.matrices import row_slices, widen
from contrastive_lvm.rows.gaussian_vi_rows import (
    FIRST_TOL,
    REACH,
    Entries,
    Learned,
    RowAscent,
    entries_of,
)
from contrastive_lvm.rows.reader import Chunk, RowReader
from contrastive_lvm.rows.row_cache import Cache, MemoryCache, WorkerCache
from contrastive_lvm.rows.scatter import first_pass

BLOCK = 1 << 16  # entries of a block of which some ten arrays live at once
LEAST_ROWS = 64  # of a block, since work on (K, K) matrices is by long vectors over rows
MOST_BLOCK = 1 << 20  # entries of it nevertheless
SHORTER = (0.25, 0.0625, 0.0156)  # steps of rows whose bound would fall


class FeatureModel(NamedTuple):
    """Loadings, means and noise of the features, for the rows of a set."""

    loadings: Loadings  # (D, K) of the active columns
    mean: Array  # (D,)
    likelihood: Likelihood
    nuisance: Nuisance
    effects: Array  # (D, C) of covariates


class Change(NamedTuple):
    """A change of latent coordinates: of loadings to `L R`, of latents to `R^-1 (h - place)`."""

    R: Array  # (K, K)
    place: Array  # (K,)


class GeneralisedSums(NamedTuple):
    """Statistics of rows, and what the likelihood learns from."""

    statistics: Statistics
    nuisance: Array  # (2, D)
    latent_sum: Array  # (K,) of posterior means

    def plus(self, other: "GeneralisedSums") -> "GeneralisedSums":
        """Add the sums of other rows."""
        return GeneralisedSums(
            self.statistics.plus(other.statistics),
            self.nuisance + other.nuisance,
            self.latent_sum + other.latent_sum,
        )


class Place(NamedTuple):
    """Posteriors of the rows of a block; rows are the last axis unless said otherwise."""

    mean: Array  # (K, B)
    precision: Array  # (Q, B)
    cov: Array  # (Q, B)
    bound: Array  # (B,) without the constant
    expected: Expected  # rows first, zero where missing
    predictor: Array  # (B, D) mean of the predictors
    variance: Array  # (B, D) of the predictors


class GeneralisedRows:
    """Rows of a likelihood that has expectations under normal predictors."""

    effects: Array | None = None

    def __init__(
        self,
        reader: RowReader,
        weights: Array | None,
        log_sizes: Array,
        likelihood: Likelihood,
        covariates: Array | None = None,
    ) -> None:
        D = reader.shape[1]
        sized, counted = likelihood._sized_features(D), likelihood._has_counts(D)
        moments = first_pass(reader, weights, scatter=False)
        self.reader, self.weights, self.sized = reader, weights, sized
        # What is known of each row: the log of its size, and its covariates.
        self.known = log_sizes[:, None]
        if covariates is not None:
            self.known = np.hstack([self.known, covariates])
        self.covariate_mean = np.zeros(self.known.shape[1] - 1)  # means are where these are zero
        self.n_rows, self.counts, self.mean = moments.n_rows, moments.counts, moments.mean
        self.square = moments.square
        lines = reader.reduce(partial(_count, counted), _joined_lines, weights=weights)
        self.table = CountTable(lines[0].astype(np.intp), lines[1], lines[2], self.counts)

    def sweep(
        self, model: FeatureModel, cache: Cache | None, change: Change | None = None
    ) -> tuple[GeneralisedSums, Cache | None]:
        """Take a step of every row, and sum their statistics; rows without a cache begin anew.

        Latents are where a `change` of coordinates since then has put them.
        """
        function = partial(_sweep_chunk, RowSweep(model, self.sized, change))
        return self.reader.renew(
            function, GeneralisedSums.plus, weights=self.weights, cache=self._known(cache)
        )

    def feature_values(self, model: FeatureModel, cache: Cache | None) -> Array:
        """Return the expected log density of each feature at the rows' present posteriors, (D,)."""
        function = partial(_chunk_values, RowSweep(model, self.sized))
        total: Array = self.reader.reduce(
            function, add, weights=self.weights, cache=self._known(cache)
        )
        return total

    def _known(self, cache: Cache | None) -> Cache:
        """Return sizes, covariates and posteriors of rows; at first there are no posteriors."""
        if cache is not None:
            return cache
        known: dict[int, Any] = {}
        for i in self.reader.used_chunks(self.weights):
            at = self.reader.slices[i]
            own = self.known[at]
            known[i] = own if self.weights is None else own[self.weights[at] > 0]
        if not self.reader.is_local:
            return WorkerCache(known)
        memory = MemoryCache()
        memory.values = known
        return memory


class RowSweep:
    """One step of rows at given loadings."""

    def __init__(
        self, model: FeatureModel, sized: np.ndarray, change: Change | None = None
    ) -> None:
        self.model, self.sized, self.change = model, sized, change
        self.ascent = RowAscent(
            model.loadings, Learned(model.likelihood, model.nuisance, bounds=True)
        )
        self.K, self.n_known = self.ascent.K, 1 + model.effects.shape[1]
        self.n_pairs = len(self.ascent.eye)

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle only the arguments of the constructor."""
        return RowSweep, (self.model, self.sized, self.change)

    def entries(self, rows: Matrix, known: Array) -> Entries:
        """Return a block of rows with the logs of their sizes and their covariates."""
        base = self.model.mean + known[:, :1] * self.sized
        if self.n_known > 1:
            base += known[:, 1 : self.n_known] @ self.model.effects.T
        return entries_of(widen(rows), base)

    def __call__(self, rows: Matrix, known: Array) -> tuple[Entries, Place]:
        """Take a step from the posteriors that are known of the rows, (B, 1 + C + K + Q)."""
        entries = self.entries(rows, known)
        if not self.knows_posterior(known):
            return entries, self._first(entries)
        mean, precision = self.split(known)
        old = self._at(entries, mean, precision, *packed.invert(precision))
        return entries, self._step(entries, old, (1.0, *SHORTER))

    def knows_posterior(self, known: Array) -> bool:
        """Tell whether posteriors with as many columns are known."""
        return bool(known.shape[1] == self.n_known + self.K + self.n_pairs)

    def split(self, known: Array) -> tuple[Array, Array]:
        """Return means (K, B) and packed precisions (Q, B)."""
        columns = np.ascontiguousarray(known[:, self.n_known :].T)
        mean, precision = columns[: self.K], columns[self.K :]
        if self.change is None:
            return mean, precision
        R, place = self.change
        full = R.T @ packed.unpack(precision) @ R
        i, j = packed.pair_indices(self.K)
        turned = np.linalg.solve(R, mean - place[:, None])
        return np.asarray(turned, dtype=np.float64), np.ascontiguousarray(full[:, i, j].T)

    def _first(self, entries: Entries) -> Place:
        state = self.ascent(entries, FIRST_TOL)
        return self._at(entries, state.mean, state.precision, *packed.invert(state.precision))

    def _at(
        self, entries: Entries, mean: Array, precision: Array, cov: Array, logdet: Array
    ) -> Place:
        expected, mu, v = self.ascent.expected(entries, mean, cov)
        trace = cov[self.ascent.diagonal].sum(axis=0) + (mean * mean).sum(axis=0)
        bound = expected.value.sum(axis=1) + 0.5 * (self.K - logdet - trace)
        return Place(mean, precision, cov, bound, expected, mu, v)

    def _step(self, entries: Entries, old: Place, lengths: tuple[float, ...]) -> Place:
        """Take a step of the first length; rows whose bound would fall take shorter ones."""
        ascent, rho = self.ascent, lengths[0]
        aim = ascent.pairs @ old.expected.curvature.T
        aim += ascent.eye
        slope = ascent.L.T @ old.expected.slope.T - old.mean
        if ascent.C is not None:
            slope -= packed.multiply(ascent.C @ old.expected.curvature.T, old.mean)
        precision = aim if rho == 1.0 else old.precision + rho * (aim - old.precision)
        with np.errstate(all="ignore"):  # a step too far may overflow; its bound is then refused
            cov, logdet = packed.invert(precision)
            step = rho * packed.multiply(cov, slope)
            step /= np.maximum(1.0, np.sqrt((step * step).sum(axis=0)) / REACH)
            new = self._at(entries, old.mean + step, precision, cov, logdet)
            worse = np.flatnonzero(~(new.bound >= old.bound))
        if not len(worse):
            return new
        back = old_of_rows = _rows_of(old, worse)
        if len(lengths) > 1:
            back = self._step(entries.of(worse), old_of_rows, lengths[1:])
        return _replaced(new, worse, back)


def _rows_of(place: Place, rows: np.ndarray) -> Place:
    return Place(
        place.mean[:, rows],
        place.precision[:, rows],
        place.cov[:, rows],
        place.bound[rows],
        Expected(*(x[rows] for x in place.expected)),
        place.predictor[rows],
        place.variance[rows],
    )


def _replaced(place: Place, rows: np.ndarray, other: Place) -> Place:
    """Return the block with the posteriors of some rows replaced; its arrays are reused."""
    for mine, its in zip(place[:4], other[:4], strict=True):
        mine[..., rows] = its
    mine_first = (*place.expected, place.predictor, place.variance)
    for mine, its in zip(mine_first, (*other.expected, *other[5:]), strict=True):
        mine[rows] = its
    return place


def _blocks(rows: Matrix) -> Iterator[slice]:
    least = min(LEAST_ROWS * rows.shape[1], MOST_BLOCK)
    return row_slices(*rows.shape, elements=max(BLOCK, least))


def _count(counted: np.ndarray, chunk: Chunk) -> Array:
    """Return features, positive counts and their weights in a chunk, (3, n)."""
    found = []
    for rows in _blocks(chunk.rows):
        block = np.nan_to_num(widen(chunk.rows[rows])) * counted
        i, d = np.nonzero(block)
        weights = np.ones(len(i)) if chunk.weights is None else chunk.weights[rows][i]
        found.append(_summed_lines(np.stack([d, block[i, d], weights])))
    return reduce(_joined_lines, found)


def _joined_lines(one: Array, other: Array) -> Array:
    return _summed_lines(np.hstack([one, other]))


def _summed_lines(lines: Array) -> Array:
    """Merge lines with the same feature and count, and sum their weights."""
    order = np.lexsort(lines[1::-1])
    lines = lines[:, order]
    new = np.ones(lines.shape[1], dtype=bool)
    new[1:] = (np.diff(lines[:2]) != 0).any(axis=0)
    first = np.flatnonzero(new)
    weights = np.add.reduceat(lines[2], first) if len(first) else lines[2]
    return np.vstack([lines[:2, first], weights])


def _sweep_chunk(sweep: RowSweep, chunk: Chunk) -> tuple[GeneralisedSums, Array]:
    found, kept = [], []
    for rows in _blocks(chunk.rows):
        known = chunk.cached[rows]
        entries, place = sweep(chunk.rows[rows], known)
        weights = np.ones(len(known)) if chunk.weights is None else chunk.weights[rows]
        given = known[:, : sweep.n_known]
        found.append(_block_sums(sweep, entries, place, weights, given[:, 1:].T))
        kept.append(np.vstack([given.T, place.mean, place.precision]).T)
    return reduce(GeneralisedSums.plus, found), np.concatenate(kept)


def _chunk_values(sweep: RowSweep, chunk: Chunk) -> Array:
    total = np.zeros(chunk.rows.shape[1])
    for rows in _blocks(chunk.rows):
        known = chunk.cached[rows]
        entries = sweep.entries(chunk.rows[rows], known)
        mean, precision = sweep.split(known)
        expected = sweep.ascent.expected(entries, mean, packed.invert(precision)[0])[0]
        weights = np.ones(len(known)) if chunk.weights is None else chunk.weights[rows]
        total += weights @ expected.value
    return total


def _block_sums(
    sweep: RowSweep, entries: Entries, place: Place, weights: Array, covariates: Array
) -> GeneralisedSums:
    """Sum a block's statistics; rows without any entry add nothing."""
    model, observed = sweep.model, entries.observed
    if observed is not None:
        weights = weights * observed.any(axis=1)
    columns = place.mean
    latent = place.cov + packed.pairwise_products(place.mean, place.mean)
    second = latent
    if len(covariates):
        columns = np.vstack([place.mean, covariates])
        second = packed.pairwise_products(columns, columns)
        second[: len(latent)] = latent  # the pairs of the first columns come first
    K, Q = len(columns), len(second)
    stack = np.vstack([second, columns, np.ones(len(weights))])
    stack *= weights
    w = place.expected.curvature
    weighted = stack @ w
    working = w * (place.predictor - entries.base)
    working += place.expected.slope
    crossed = stack[Q:] @ working
    D, n_rows = w.shape[1], float(weights.sum())
    of_entries = weights[:, None] if observed is None else weights[:, None] * observed
    statistics = Statistics(
        moment=weighted[:Q],
        first=weighted[Q : Q + K],
        cross=crossed[:K].T,
        residual=crossed[K],
        square=np.zeros(D),
        weight=np.maximum(weighted[-1], TINY),
        entries=np.full(D, n_rows) if observed is None else weights @ observed,
        latent=stack[: len(latent)].sum(axis=1),
        n_rows=n_rows,
        bound=float(weights @ place.bound),
    )
    learned = model.likelihood._nuisance_statistics(
        entries.values,
        place.expected,
        (place.predictor, place.variance),
        model.nuisance,
        of_entries,
    )
    return GeneralisedSums(statistics, learned, place.mean @ weights)
