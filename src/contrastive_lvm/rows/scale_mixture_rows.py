"""Rows whose entries are weighted: the row step of heavy-tailed likelihoods.

With `u` the scale of an entry (or of a row) and `w_id = E[u_id]` on observed entries,

    A_i = I + sum_d w_id / psi_d E[l_d l_d'],   E[h_i] = A_i^-1 sum_d w_id / psi_d E[l_d] r_id,
    E[e_id^2] = r_id^2 - 2 r_id E[l_d]' E[h_i] + tr( E[l_d l_d'] E[h_i h_i'] ),

and the likelihood turns `E[e^2] / psi` into new weights and its part of the bound. The latents
add `-KL(q(h) || N(0, I))` per row. Weights are carried from sweep to sweep; with them the bound
never falls. They are the only values kept for every row: per-row matrices live within a block.
A row's own weight multiplies everything that it adds to sums, but not its `E[u]`.
"""

from functools import partial, reduce
from typing import NamedTuple

import numpy as np

from contrastive_lvm.arrays import Array, Matrix, RowWeights, Statistics
from contrastive_lvm.likelihoods.values import Scaler, Scales
from contrastive_lvm.linalg import packed
from contrastive_lvm.linalg.loadings import Loadings
from contrastive_lvm.linalg.matrices import SMALL_BLOCK, row_slices, widen
from contrastive_lvm.linalg.normal_mixture import MixturePosterior
from contrastive_lvm.rows.latent_distribution import LatentDistribution, correct
from contrastive_lvm.rows.masked_rows import KeptRows, with_known
from contrastive_lvm.rows.reader import MOST_LOADED, Chunk, RowReader
from contrastive_lvm.rows.row_cache import Cache, MemoryCache
from contrastive_lvm.rows.scatter import first_pass

EXACT = 1 << 21  # weights of a set that are kept in double precision
CLIP = 3.0  # robust standard deviations


class WeightedBlock(NamedTuple):
    """The outcome of the row step for a block of rows."""

    observed: Array | None  # (B, D) 0/1; None when nothing is missing
    residual: Array  # (B, D)
    mean: Array  # (K, B)
    cov: Array  # (Q, B)
    outer: Array  # (Q, B) E[h h']
    scales: Scales
    bound: Array  # (B,)
    posterior: MixturePosterior | None = None  # under a mixture


class RowStep:
    """The row step, then new scales, at given parameters."""

    def __init__(
        self,
        loadings: Loadings,
        psi: Array,
        mean: Array,
        scaler: Scaler,
        distribution: LatentDistribution | None = None,
    ) -> None:
        self._given = (loadings, psi, mean, scaler, distribution)
        self.distribution = distribution
        self.mean, self.scaler, self.psi, self.L = mean, scaler, psi, loadings.mean
        self.K = loadings.mean.shape[1]
        self.i, self.j = packed.pair_indices(self.K)
        pairs = loadings.pairs() / psi
        self.precision = pairs
        self.doubled = np.where(self.i == self.j, 1.0, 2.0)[:, None] * pairs
        self.scaled = (loadings.mean / psi[:, None]).T
        self.constant = 0.5 * np.log(2.0 * np.pi * psi)

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle only the arguments of the constructor."""
        return RowStep, self._given

    def __call__(self, rows: Matrix, weights: RowWeights) -> WeightedBlock:
        """Take the step for a block of rows with the weights they have had so far."""
        R = widen(rows) - self.mean
        missing, observed = np.isnan(R), None
        if missing.any():  # masks as numbers: products with them are much faster than indexing
            np.copyto(R, 0.0, where=missing)
            observed = np.logical_not(missing, out=missing).astype(np.float64)
        w = _weights_of_entries(weights, R.shape, observed)
        A = self.precision @ w.T
        A += packed.pack(np.eye(self.K))
        cov, logdet = packed.invert(A, out=A)
        w *= R
        h = packed.multiply(cov, self.scaled @ w.T)
        posterior = None
        if self.distribution is not None:
            h, cov, _, gain, posterior = correct(self.distribution, h, cov, np.arange(len(R)))
            logdet -= 2.0 * gain
        outer = packed.pairwise_products(h, h)
        outer += cov
        chi2 = self._expected_squares(R, h, outer)
        log_noise: Array | float
        if observed is None:
            entries, log_noise = np.full(len(R), float(R.shape[1])), self.constant.sum()
        else:
            chi2 *= observed
            entries, log_noise = observed.sum(axis=1), observed @ self.constant
        scales = self.scaler(chi2, entries)
        energy = outer[np.diagonal(packed.full_index(self.K))].sum(axis=0) if self.K else 0.0
        bound = scales.bound - log_noise + 0.5 * (self.K - logdet - energy)
        return WeightedBlock(observed, R, h, cov, outer, scales, bound, posterior)

    def _expected_squares(self, R: Array, h: Array, outer: Array) -> Array:
        """Return `E[e^2] / psi`, (B, D)."""
        linear: Array = h.T @ self.L.T
        linear *= -2.0
        linear += R
        linear *= R
        linear /= self.psi
        linear += outer.T @ self.doubled
        return np.maximum(linear, 0.0, out=linear)


def _weights_of_entries(
    weights: RowWeights, shape: tuple[int, ...], observed: Array | None
) -> Array:
    """Expand weights to (B, D), zero where missing; a copy."""
    copy: Array = np.empty(shape)
    if observed is not None:
        return np.multiply(weights, observed, out=copy)
    copy[...] = weights
    return copy


class RowSums(NamedTuple):
    """Statistics of weighted rows, and sums for the update of the degrees of freedom."""

    statistics: Statistics
    log_excess: float = 0.0
    n_scales: float = 0.0

    def plus(self, other: "RowSums") -> "RowSums":
        """Add the sums of other rows."""
        return RowSums(
            self.statistics.plus(other.statistics),
            self.log_excess + other.log_excess,
            self.n_scales + other.n_scales,
        )


class ScaleMixtureRows(KeptRows):
    """Rows of a heavy-tailed likelihood.

    For starts, entries are clipped at `CLIP` robust standard deviations about the median, so that
    outliers do not decide where a fit begins.
    """

    limit: Array

    def __init__(
        self, reader: RowReader, weights: Array | None = None, covariates: Array | None = None
    ) -> None:
        moments = first_pass(reader, weights, scatter=False)
        self.reader, self.weights, self.covariates = reader, weights, covariates
        self.n_rows, self.counts, self._n_empty = moments.n_rows, moments.counts, moments.n_empty
        median, spread = _medians(reader, weights)
        self.mean = np.where(np.isnan(median), moments.mean, median)
        fallback = np.sqrt(moments.square / self.counts)
        self.limit = CLIP * np.where(spread > 0, spread, fallback)
        squares = partial(_clipped_squares, self.mean, self.limit)
        self.square = reader.reduce(squares, np.add, weights=weights)
        self._available = self._available_entries()

    def sums_with_covariates(self) -> Statistics:
        """Return statistics of the covariates and of clipped entries, for a start."""
        function = partial(_clipped_sums, self.mean, self.limit)
        return self.reader.reduce(
            function, Statistics.plus, weights=self.weights, covariates=self.covariates
        )

    def sweep(
        self,
        loadings: Loadings,
        psi: Array,
        mean: Array,
        effects: Array | None,
        scales: Cache | None,
        scaler: Scaler,
        distribution: LatentDistribution | None = None,
    ) -> tuple[RowSums, Cache]:
        """Take the row step with the scales `E[u]` of the last sweep, and renew them.

        Scales of None are all 1.
        """
        step = RowStep(loadings, psi, mean, scaler, distribution)
        kept = _kept_scales(scaler, *self.reader.shape)
        function = partial(_sweep_chunk, step, effects, kept, self._n_empty > 0)
        return self.reader.renew(
            function,
            RowSums.plus,
            weights=self.weights,
            cache=scales,
            covariates=self.covariates,
        )

    def scales_of_rows(self, scales: MemoryCache) -> RowWeights:
        """Return the scales of all rows: 1 for those of weight zero or without any entry."""
        found, n_rows = scales.joined(), self.reader.shape[0]
        seen = np.ones(n_rows, dtype=bool) if self.weights is None else self.weights > 0
        if self._n_empty > 0:
            seen &= np.concatenate([_has_entries(rows) for rows in self.reader.read()])
        if seen.all():
            return found
        whole: RowWeights = np.ones((n_rows, found.shape[1]), found.dtype)
        whole[seen] = found
        return whole


def _medians(reader: RowReader, weights: Array | None) -> tuple[Array, Array]:
    """Return medians and robust standard deviations of features, from all or evenly spaced rows.

    Rows are evenly spaced in weight, so that a row of weight 2 counts as two rows. A feature that
    none of these rows observes has NaN.
    """
    n_rows, n_features = reader.shape
    total, most = n_rows if weights is None else float(weights.sum()), MOST_LOADED // n_features
    if total <= most:
        X = reader.load()
    else:
        at = (np.arange(max(1, most)) + 0.5) * (total / max(1, most))
        ends = np.arange(1, n_rows + 1) if weights is None else np.cumsum(weights)
        X = reader.take(np.minimum(np.searchsorted(ends, at, side="right"), n_rows - 1))
        weights = None
    centre, spread = np.empty(n_features), np.empty(n_features)
    for columns in row_slices(n_features, X.shape[0]):
        part = widen(X[:, columns])
        centre[columns] = middle = _weighted_median(part, weights)
        spread[columns] = 1.4826 * _weighted_median(np.abs(part - middle), weights)
    return centre, spread


def _weighted_median(values: Array, weights: Array | None) -> Array:
    """Return the median of each column; a row of weight n counts as n rows."""
    if weights is None:
        found, some = np.full(values.shape[1], np.nan), ~np.isnan(values).all(axis=0)
        found[some] = np.nanmedian(values[:, some], axis=0)
        return found
    order = np.argsort(values, axis=0)  # NaN comes last
    ordered = np.take_along_axis(values, order, axis=0)
    upto = np.cumsum(np.where(np.isnan(ordered), 0.0, weights[order]), axis=0)
    half = upto[-1] / 2.0
    low, high = (upto >= half).argmax(axis=0), (upto > half).argmax(axis=0)
    columns = np.arange(values.shape[1])
    return np.asarray((ordered[low, columns] + ordered[high, columns]) / 2.0)


def _clipped_squares(centre: Array, limit: Array, chunk: Chunk) -> Array:
    total = np.zeros(len(centre))
    for at in row_slices(*chunk.rows.shape):
        squares = np.clip(widen(chunk.rows[at]) - centre, -limit, limit) ** 2
        if chunk.weights is not None:
            squares *= chunk.weights[at, None]
        total += np.nansum(squares, axis=0)
    return total


def _clipped_sums(centre: Array, limit: Array, chunk: Chunk) -> Statistics:
    """Sum what a regression of clipped deviations on the covariates needs."""
    known, found = np.asarray(chunk.covariates), []
    for at in row_slices(*chunk.rows.shape, elements=SMALL_BLOCK):
        R = np.clip(widen(chunk.rows[at]) - centre, -limit, limit)
        observed = 1.0 - np.isnan(R)
        c, none = np.ascontiguousarray(known[at].T), np.zeros(len(R))
        outer, scales = (
            packed.pairwise_products(c, c),
            Scales(np.ones((len(R), 1)), none, none, none),
        )
        block = WeightedBlock(observed, np.nan_to_num(R), c, outer[:0], outer, scales, none)
        found.append(_block_sums(block, None if chunk.weights is None else chunk.weights[at]))
    return reduce(RowSums.plus, found).statistics


def _kept_scales(scaler: Scaler, n_rows: int, n_features: int) -> tuple[int, type]:
    """Return how many scales a row has, and the precision in which those of so many rows are kept.

    Many scales are kept in single precision, since there may be one for every entry of the data.
    Scales are stationary points of the bound, so that rounding changes it only by its square. But
    rounding also changes the path to the optimum and, with few rows, where a fit stops on it, so
    that few scales are kept in double precision.
    """
    n_columns = scaler(np.zeros((1, n_features)), np.ones(1)).weights.shape[1]
    return n_columns, np.float32 if n_rows * n_columns > EXACT else np.float64


def _sweep_chunk(
    step: RowStep,
    effects: Array | None,
    kept: tuple[int, type],
    has_empty_rows: bool,  # noqa: FBT001
    chunk: Chunk,
) -> tuple[RowSums, RowWeights]:
    """Take the row step for a chunk, a block at a time; rows without any entry are left out."""
    rows, weights, scales, known, _ = chunk
    if has_empty_rows:
        seen = _has_entries(rows)
        if not seen.all():
            rows, weights = rows[seen], None if weights is None else weights[seen]
            known = None if known is None else known[seen]
    width, kind = kept
    scales = np.ones((rows.shape[0], 1), kind) if scales is None else scales
    found: list[RowSums] = []
    renewed: RowWeights = np.empty((rows.shape[0], width), kind)
    slices = list(row_slices(*rows.shape, elements=SMALL_BLOCK)) or [slice(0, 0)]
    for at in slices:
        part = rows[at]
        if known is not None and effects is not None:
            part = widen(part) - known[at] @ effects.T
        block = step(part, scales[at])
        if known is not None:
            block = _with_covariates(block, known[at])
        found.append(_block_sums(block, None if weights is None else weights[at]))
        renewed[at] = block.scales.weights
    return reduce(RowSums.plus, found), renewed


def _has_entries(rows: Matrix) -> np.ndarray:
    """Tell which rows have an entry that is not missing."""
    parts = [~np.isnan(widen(rows[at])).all(axis=1) for at in row_slices(*rows.shape)]
    return np.concatenate(parts)


def _with_covariates(block: WeightedBlock, covariates: Array) -> WeightedBlock:
    """Return the outcome with covariates appended as latents that are known."""
    columns = with_known(block.mean, covariates)
    outer = packed.pairwise_products(columns, columns)
    outer[: len(block.outer)] = block.outer
    return block._replace(mean=columns, outer=outer)


def _block_sums(block: WeightedBlock, weights: Array | None) -> RowSums:
    (Q, B), K, scales = block.outer.shape, len(block.mean), block.scales
    w = _weights_of_entries(scales.weights, block.residual.shape, block.observed)
    stack = np.empty((Q + K + 1, B))
    stack[:Q], stack[Q:-1], stack[-1] = block.outer, block.mean, 1.0
    if weights is not None:
        stack *= weights
    weighted = stack @ w  # (Q + K + 1, D)
    w *= block.residual
    crossed = stack[Q:] @ w  # (K + 1, D)
    if weights is not None:
        w *= weights[:, None]
    row = np.ones(B) if weights is None else weights
    n_rows = float(row.sum())
    statistics = Statistics(
        moment=weighted[:Q],
        first=weighted[Q : Q + K],
        cross=crossed[:K].T,
        residual=crossed[K],
        square=np.einsum("bd,bd->d", w, block.residual),
        weight=weighted[-1],
        entries=np.full(w.shape[1], n_rows) if block.observed is None else row @ block.observed,
        latent=stack[: len(block.cov)].sum(axis=1),
        n_rows=n_rows,
        bound=float(block.bound.sum() if weights is None else weights @ block.bound),
    )
    if block.posterior is not None:
        components = block.posterior.sums(np.arange(B), weights)
        statistics = statistics._replace(components=components)
    excess, n_scales = (float(row @ x) for x in (scales.log_excess, scales.n_scales))
    return RowSums(statistics, excess, n_scales)
