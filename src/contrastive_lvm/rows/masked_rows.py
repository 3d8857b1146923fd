"""The row step: the posterior of each row's latents, with missing entries marginalised exactly.

For a row with observed features O, `h ~ N(0, I)` and `x_O = L_O h + mean_O + noise`,

    A = I + sum_{d in O} l_d l_d' / psi_d          cov(h | x_O) = A^-1
    b = sum_{d in O} l_d (x_d - mean_d) / psi_d    E[h | x_O]   = A^-1 b
    ln p(x_O) = -1/2 ( |O| ln 2 pi + sum_O ln psi_d + ln|A| + sum_O r_d^2 / psi_d - b' A^-1 b )

(matrix inversion and determinant lemmas; the paper's supplement, "Expectation-maximization",
without its orthogonality shortcut). `A` depends on the row only through its pattern of missing
entries, so it is factorised once per pattern; all `A` of a block are one product
`(P, D) . (D, K(K+1)/2)`.
"""

from collections.abc import Callable, Iterable, Iterator
from copy import copy
from functools import cached_property, partial
from typing import NamedTuple, Self

import numpy as np
import numpy.typing as npt

from contrastive_lvm.arrays import LOG_2PI, Array, Matrix, Statistics
from contrastive_lvm.linalg import packed
from contrastive_lvm.linalg.loadings import Loadings
from contrastive_lvm.linalg.matrices import (
    RowBlock,
    is_sparse,
    missing_mask,
    patterns_of,
    row_slices,
    widen,
)
from contrastive_lvm.rows.latent_distribution import LatentDistribution, correct
from contrastive_lvm.rows.reader import MOST_LOADED, Chunk, RowReader
from contrastive_lvm.rows.row_cache import Cache
from contrastive_lvm.rows.scatter import MOST_FEATURES, Moments


class Coefficients(NamedTuple):
    """Parameters of the row step, prepared once for all blocks."""

    pairs: Array  # (Q, D) packed l_d l_d' / psi_d
    scaled: Array  # (K, D) l_d / psi_d
    precision: Array  # (D,) 1 / psi_d
    constant: Array  # (D,) ln 2 pi psi_d


class RowMoments(NamedTuple):
    """Posterior of the latents of a block of rows."""

    mean: Array  # (K, B) E[h]
    cov: Array  # (Q, P) packed, one per pattern; (Q, B), one per row, under a mixture
    log_likelihood: Array  # (B,)


def prepare(loadings: Loadings, psi: Array) -> Coefficients:
    """Prepare the parameters for the row step; a posterior has `E[l l']` in place of `l l'`."""
    precision = 1.0 / psi
    scaled = np.ascontiguousarray((loadings.mean * precision[:, None]).T)
    return Coefficients(loadings.pairs() * precision, scaled, precision, LOG_2PI + np.log(psi))


def row_step(model: Coefficients, residual: Array, block: RowBlock) -> RowMoments:
    """Return posterior moments and log-density of each row; `residual` is zero where missing."""
    precision = model.pairs @ block.observed.T  # (Q, P)
    precision += packed.pack(np.eye(len(model.scaled)))
    cov, logdet = packed.invert(precision, out=precision)
    b = model.scaled @ residual.T
    mean = packed.multiply(_per_row(cov, block), b)
    constant = block.observed @ model.constant + logdet  # (P,)
    quadratic = residual**2 @ model.precision - np.einsum("kb,kb->b", b, mean)
    return RowMoments(mean, cov, -0.5 * (constant[block.pattern] + quadratic))


def _per_row(of_pattern: Array, block: RowBlock) -> Array:
    """Expand (Q, P) to (Q, B); no copy when every row has a pattern of its own."""
    if len(block.observed) == len(block.pattern):
        return of_pattern
    per_row: Array = of_pattern.take(block.pattern, axis=1)
    return per_row


def residual_of(block: RowBlock, mean: Array) -> Array:
    """Return `x - mean`, with a mean (D,) or (B, D); zero where an entry is missing."""
    residual: Array = block.values - mean
    if len(block.observed) == len(block.pattern):  # every row has a pattern of its own
        residual *= block.observed
    elif len(block.observed) > 1 or not block.observed.all():
        residual *= block.observed.take(block.pattern, axis=0)
    return residual


class SortedRows(NamedTuple):
    """Rows sorted by their missingness pattern, in their own precision."""

    values: Matrix  # (B, D) zeros where missing
    observed: npt.NDArray[np.bool_]  # (P, D)
    pattern: npt.NDArray[np.intp]  # (B,)
    weights: Array | None  # (B,)
    covariates: Array | None = None  # (B, C)

    def block(self) -> RowBlock:
        """Widen to float64."""
        return RowBlock(widen(self.values), self.observed.astype(np.float64), self.pattern)


class AvailableEntries:
    """A covariance estimated from the available entries, good enough for a start.

    With a fraction `p_d` observed at random, zero-filling shrinks a covariance by `p_d p_e` and a
    variance by `p_d`; both are undone. Entries further than `limit` from the centre are clipped.
    """

    def __init__(
        self,
        reader: RowReader,
        weights: Array | None,
        centre: Array,
        limit: Array | None,
        share: Array,
        covariates: Array | None = None,
        effects: Array | None = None,
    ) -> None:
        self.reader, self.weights, self.share = reader, weights, share
        self.covariates = covariates
        self._view = partial(_deviations, centre, limit, effects)

    @cached_property
    def _outer(self) -> Array:
        return self._sum(None)

    def _sum(self, M: Array | None) -> Array:
        function = partial(_outer_product, self._view, self.share, M)
        return self.reader.reduce(
            function, np.add, weights=self.weights, covariates=self.covariates
        )

    def product(self, M: Array, n_rows: float, variance: Array) -> Array:
        """Multiply a covariance matrix by a few columns."""
        one_chunk = self.reader.in_memory and len(self.reader.slices) == 1
        if len(M) <= min(MOST_FEATURES, self.reader.shape[0]) and not one_chunk:
            product = self._outer @ M
        else:
            product = self._sum(M)
        restored: Array = product / n_rows
        return restored + (variance - variance / self.share)[:, None] * M


def _deviations(
    centre: Array, limit: Array | None, effects: Array | None, chunk: Chunk, at: slice
) -> Array:
    """Clip deviations from a centre; zero where missing."""
    centred = widen(chunk.rows[at]) - centre
    if effects is not None and chunk.covariates is not None:
        centred -= chunk.covariates[at] @ effects.T
    if limit is not None:
        centred = np.clip(centred, -limit, limit)
    return np.nan_to_num(centred, copy=False)


def _outer_product(
    view: Callable[[Chunk, slice], Array], share: Array, M: Array | None, chunk: Chunk
) -> Array:
    """Sum `r r'` over rows, or `r r' M`, (D, .)."""
    total = np.zeros((len(share), len(share) if M is None else M.shape[1]))
    for at in row_slices(*chunk.rows.shape):
        R = view(chunk, at) / share
        right = R if M is None else R @ M
        total += R.T @ (right if chunk.weights is None else chunk.weights[at, None] * right)
    return total


class KeptRows:
    """Rows that every sweep reads, with what starts and regressions on covariates need of them."""

    reader: RowReader
    weights: Array | None
    covariates: Array | None
    n_rows: float
    counts: Array  # (D,)
    mean: Array  # (D,)
    square: Array  # (D,)
    limit: Array | None = None  # (D,) beyond which entries are clipped, for a start
    effects: Array | None = None  # (D, C)
    _available: AvailableEntries

    def _available_entries(self) -> AvailableEntries:
        share = self.counts / self.n_rows
        rows = (self.reader, self.weights, self.mean, self.limit, share)
        return AvailableEntries(*rows, self.covariates, self.effects)

    @property
    def covariate_mean(self) -> Array:
        """Return the covariates of a row at the mean, (C,): zero, as they are taken as given."""
        return np.zeros(0 if self.covariates is None else self.covariates.shape[1])

    def about(self, mean: Array, effects: Array, square: Array) -> Self:
        """Return the rows about means that depend on covariates, with squares about these."""
        other = copy(self)
        other.mean, other.effects, other.square = mean, effects, square
        other._available = other._available_entries()
        return other

    def covariance_product(self, M: Array) -> Array:
        """Estimate `cov(x) @ M` from the available entries, clipped where there is a limit."""
        return self._available.product(M, self.n_rows, self.square / self.counts)


class MaskedRows(KeptRows):
    """A row set with missing entries.

    Rows are sorted by pattern within their chunks, in the first pass over them. Rows in memory, if
    they are few, are kept as they were sorted; for others the order alone is cached. Rows without
    any observed entry add nothing and are left out.
    """

    def __init__(
        self,
        reader: RowReader,
        moments: Moments,
        weights: Array | None,
        covariates: Array | None = None,
    ) -> None:
        self.reader, self.weights, self.covariates = reader, weights, covariates
        self.n_rows, self.counts = moments.n_rows, moments.counts
        self.mean, self.square = moments.mean, moments.square
        self._available = self._available_entries()
        self._keeps_rows = reader.in_memory and reader.shape[0] * reader.shape[1] <= MOST_LOADED
        self._sorted: Cache | None = None

    def sums_with_covariates(self) -> Statistics:
        """Return statistics of the covariates alone, for a start."""
        D, none = len(self.mean), np.zeros((len(self.mean), len(self.covariate_mean)))
        return self.statistics(Loadings(np.empty((D, 0))), np.ones(D), self.mean, none)

    def statistics(
        self,
        loadings: Loadings,
        psi: Array,
        mean: Array,
        effects: Array | None = None,
        distribution: LatentDistribution | None = None,
    ) -> Statistics:
        """Return expected sufficient statistics at the given parameters, in one pass."""
        function = partial(_chunk_statistics, loadings, psi, mean, effects, distribution)
        if self._sorted is not None:
            return self.reader.reduce(
                function,
                Statistics.plus,
                weights=self.weights,
                cache=self._sorted,
                covariates=self.covariates,
            )
        sort_first = partial(_sort_first, function, self._keeps_rows)
        found, self._sorted = self.reader.renew(
            sort_first, Statistics.plus, weights=self.weights, covariates=self.covariates
        )
        return found


def _sort_first(
    function: Callable[[Chunk], Statistics],
    keeps_rows: bool,  # noqa: FBT001
    chunk: Chunk,
) -> tuple[Statistics, list[SortedRows] | npt.NDArray[np.int32]]:
    order = sort_by_pattern(chunk.rows)
    kept = list(sorted_rows(chunk, order)) if keeps_rows else order
    return function(chunk._replace(cached=kept)), kept


def _chunk_statistics(
    loadings: Loadings,
    psi: Array,
    mean: Array,
    effects: Array | None,
    distribution: LatentDistribution | None,
    chunk: Chunk,
) -> Statistics:
    kept = chunk.cached
    parts = kept if isinstance(kept, list) else sorted_rows(chunk, kept)
    return masked_statistics(parts, loadings, psi, mean, effects, distribution)


def sort_by_pattern(rows: Matrix) -> npt.NDArray[np.int32]:
    """Find the rows that have an observed entry, sorted by pattern, and their patterns, (2, B)."""
    bits = [np.packbits(missing_mask(rows[at]), axis=1) for at in row_slices(*rows.shape)]
    missing = np.unpackbits(np.concatenate(bits), axis=1, count=rows.shape[1]).astype(bool)
    seen = np.flatnonzero(~missing.all(axis=1))
    representative, pattern = patterns_of(missing[seen])
    if len(representative) == len(seen):  # each row has its own pattern: keep the order of the rows
        return np.stack([seen, np.arange(len(seen))]).astype(np.int32)
    order = np.argsort(pattern, kind="stable")
    return np.stack([seen[order], pattern[order]]).astype(np.int32)


def sorted_rows(chunk: Chunk, order: npt.NDArray[np.int32]) -> Iterator[SortedRows]:
    """Take a few rows at a time in the order that `sort_by_pattern` found."""
    for at in row_slices(order.shape[1], chunk.rows.shape[1]):
        places, pattern = order[:, at]
        values = chunk.rows[places]
        values = values.toarray() if is_sparse(values) else values
        missing = np.isnan(values)
        np.copyto(values, 0.0, where=missing)  # a copy of the rows already
        begins = np.diff(pattern, prepend=-1) != 0
        weights = None if chunk.weights is None else chunk.weights[places]
        known = None if chunk.covariates is None else chunk.covariates[places]
        numbers = np.cumsum(begins) - 1
        yield SortedRows(values, ~missing[begins], numbers, weights, known)


def masked_statistics(
    parts: Iterable[SortedRows],
    loadings: Loadings,
    psi: Array,
    mean: Array,
    effects: Array | None = None,
    distribution: LatentDistribution | None = None,
) -> Statistics:
    """Sum the expected sufficient statistics of rows that are sorted by pattern."""
    D, K = loadings.mean.shape
    Q, C = K * (K + 1) // 2, K if effects is None else K + effects.shape[1]
    moment, first = np.zeros((C * (C + 1) // 2, D)), np.zeros((C, D))
    cross, residual, square, n = np.zeros((D, C)), np.zeros(D), np.zeros(D), np.zeros(D)
    latent, bound, n_rows, model = np.zeros(Q), 0.0, 0.0, prepare(loadings, psi)
    components = np.zeros((0, 0)) if distribution is None else np.zeros(distribution.sums_shape)
    for part in parts:
        block, w = part.block(), part.weights
        R = residual_of(block, mean_of(mean, effects, part.covariates))
        rows = row_step(model, R, block)
        if distribution is not None:
            found = correct(distribution, rows.mean, rows.cov, block.pattern)
            rows = RowMoments(found.mean, found.cov, rows.log_likelihood + found.log_ratio)
            components += found.posterior.sums(block.pattern, w)
        columns = with_known(rows.mean, part.covariates)
        h = columns if w is None else columns * w
        wR = R if w is None else R * w[:, None]
        weight = np.bincount(block.pattern, weights=w, minlength=len(block.observed))
        second = _sum_patterns(packed.pairwise_products(columns, h), block)  # (., P)
        if distribution is None:
            second[:Q] += rows.cov * weight
        else:
            second[:Q] += _sum_patterns(rows.cov if w is None else rows.cov * w, block)
        moment += second @ block.observed
        latent += second[:Q].sum(axis=1)
        first += _sum_patterns(h, block) @ block.observed
        cross += R.T @ h.T
        residual += wR.sum(axis=0)
        square += np.einsum("bd,bd->d", R, wR)
        n += weight @ block.observed
        n_rows += float(weight.sum())
        bound += float(rows.log_likelihood.sum() if w is None else w @ rows.log_likelihood)
    return Statistics(
        moment, first, cross, residual, square, n, n, latent, n_rows, bound, components
    )


def mean_of(mean: Array, effects: Array | None, covariates: Array | None) -> Array:
    """Return the means of rows, (B, D), or (D,) where there are no covariates."""
    return mean if effects is None or covariates is None else mean + covariates @ effects.T


def with_known(latents: Array, covariates: Array | None) -> Array:
    """Return the columns of h: latents, (K, B), then covariates, (B, C), which are known."""
    return latents if covariates is None else np.vstack([latents, covariates.T])


def _sum_patterns(per_row: Array, block: RowBlock) -> Array:
    """Sum (., B) within patterns to (., P); the rows are sorted by pattern."""
    if len(block.observed) == len(block.pattern):
        return per_row
    starts = np.searchsorted(block.pattern, np.arange(len(block.observed)))
    summed: Array = np.add.reduceat(per_row, starts, axis=1)
    return summed
