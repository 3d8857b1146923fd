"""Row sets that are elsewhere, in the form the sweeps use.

Complete rows are compressed in the pass that also checks them, and never read again. Rows with
gaps or with weights are read once a sweep; what a sweep needs of them is a sum over blocks.
"""

from functools import cached_property, partial
from operator import add
from typing import Any, NamedTuple

import numpy as np

from contrastive_lvm.core import selection
from contrastive_lvm.core.blocks import column_sums, is_sparse, row_slices, widen
from contrastive_lvm.core.covariance import Loadings
from contrastive_lvm.core.moments import Moments, moments_of
from contrastive_lvm.core.robust import Scaler, Weights, weighted_statistics
from contrastive_lvm.core.rows import sorted_blocks, statistics_of
from contrastive_lvm.core.scatter import DenseScatter, Scatter
from contrastive_lvm.core.types import Array, Matrix, Statistics
from contrastive_lvm.scale.source import Source, stacked

MOST_FEATURES = 6000  # whose (D, D) scatter is formed: 290 MB
CLIP = 3.0  # robust standard deviations


def first_pass(rows: Source, *, scatter: bool) -> Moments:
    """Moments of all rows, which are checked on the way."""
    function = partial(moments_of, rows.checks.values, scatter=scatter)
    found = rows.total(function, Moments.plus)
    rows.checks.counts(found.counts)
    return found


def compressed(rows: Source) -> "Scatter | StreamedGaps":
    """Complete rows as their scatter; rows with gaps as what reads them again."""
    found = first_pass(rows, scatter=rows.shape[1] <= MOST_FEATURES)
    if not found.complete:
        return StreamedGaps(rows, found)
    if found.scatter is not None:
        return DenseScatter(found.n_rows, found.mean, found.scatter)
    return StreamedScatter(found.n_rows, found.mean, found.square, rows)


def at_hand(rows: Source) -> Matrix:
    """All rows in memory, checked: for sets of few rows with many features."""
    found: Any = rows.total(partial(_listed, rows.checks.values), add)
    whole = stacked(found)
    rows.checks.counts(column_sums(whole)[1])
    return whole


def _listed(check: Any, rows: Matrix) -> list[Matrix]:
    check(rows)
    return [rows if is_sparse(rows) else np.array(rows)]


class StreamedScatter(NamedTuple):
    """The scatter of complete rows as an operator: a pass for each product."""

    n_rows: int
    mean: Array
    diagonal: Array
    rows: Source

    def product(self, M: Array) -> Array:
        """`T @ M`."""
        return self.rows.total(partial(_scatter_product, self.mean, M), np.add)


def _scatter_product(mean: Array, M: Array, rows: Matrix) -> Array:
    product = np.zeros_like(M)
    for some in row_slices(*rows.shape):
        centred = widen(rows[some]) - mean
        product += centred.T @ (centred @ M)
    return product


class Spread(NamedTuple):
    """Squares of what starts see of the entries, and the sum of outer products of its rows."""

    square: Array  # (D,)
    outer: Array  # (D, D), or (D, .) times some columns

    def plus(self, other: "Spread") -> "Spread":
        """Of the rows of both."""
        return Spread(self.square + other.square, self.outer + other.outer)


class Seen(NamedTuple):
    """What starts see of the entries: distances from a centre, clipped, zero where missing."""

    centre: Array  # (D,)
    limit: Array  # (D,)
    share: Array  # (D,) of entries that are observed

    def spread(self, M: Array | None, rows: Matrix) -> Spread:
        """Of a block of rows."""
        D = len(self.centre)
        square, outer = np.zeros(D), np.zeros((D, D) if M is None else M.shape)
        for some in row_slices(*rows.shape):
            R = np.clip(widen(rows[some]) - self.centre, -self.limit, self.limit)
            R = np.where(np.isnan(R), 0.0, R)
            square += np.einsum("bd,bd->d", R, R)
            R /= self.share
            outer += R.T @ (R if M is None else R @ M)
        return Spread(square, outer)


class _Read:
    """What rows with gaps and rows with weights have in common: where a fit of them starts."""

    def __init__(self, rows: Source, found: Moments, centre: Array, limit: Array) -> None:
        self.rows, self.n_rows, self.n_features = rows, found.n_rows, rows.shape[1]
        self.counts, self.mean = found.counts, centre
        self._seen = Seen(centre, limit, found.counts / found.n_rows)

    @cached_property
    def _spread(self) -> Spread:
        """In one pass, if the outer products are formed."""
        M = None if self.n_features <= MOST_FEATURES else np.empty((self.n_features, 0))
        return self.rows.total(partial(self._seen.spread, M), Spread.plus)

    @property
    def square(self) -> Array:
        """Squares that starts see, (D,)."""
        return self._spread.square

    def covariance_product(self, M: Array) -> Array:
        """About `cov(x) @ M` from what starts see, missing entries undone as in `MaskedRows`."""
        if self.n_features <= MOST_FEATURES:
            product = self._spread.outer @ M
        else:
            product = self.rows.total(partial(self._seen.spread, M), Spread.plus).outer
        variance = self.square / self.counts
        restored: Array = product / self.n_rows
        return restored + (variance - variance / self._seen.share)[:, None] * M


class StreamedGaps(_Read):
    """A row set with missing entries, `MaskedRows` of rows that are elsewhere."""

    def __init__(self, rows: Source, found: Moments) -> None:
        unclipped = np.full(rows.shape[1], np.inf)
        super().__init__(rows, found, found.mean, unclipped)

    def statistics(self, loadings: Loadings, psi: Array, mean: Array) -> Statistics:
        """Expected sufficient statistics: one pass."""
        return self.rows.total(partial(_gapped, loadings, psi, mean), Statistics.plus)


def _gapped(loadings: Loadings, psi: Array, mean: Array, rows: Matrix) -> Statistics:
    return statistics_of(sorted_blocks(rows), loadings, psi, mean)


class Swept(NamedTuple):
    """Statistics of weighted rows, and what the df step needs."""

    statistics: Statistics
    log_excess: float
    n_scales: int

    def plus(self, other: "Swept") -> "Swept":
        """Of the rows of both."""
        return Swept(
            self.statistics.plus(other.statistics),
            self.log_excess + other.log_excess,
            self.n_scales + other.n_scales,
        )


class StreamedWeights(_Read):
    """Rows of a heavy-tailed likelihood, `WeightedRows` of rows that are elsewhere.

    Their medians are exact, so that a fit starts where it would start in memory. Weights stay with
    the blocks they belong to.
    """

    def __init__(self, rows: Source) -> None:
        found = first_pass(rows, scatter=False)
        centre = selection.medians(rows.total, found.counts)
        spread = 1.4826 * selection.deviations(rows.total, found.counts, centre)
        fallback = np.sqrt(found.square / found.counts)
        super().__init__(rows, found, centre, CLIP * np.where(spread > 0, spread, fallback))

    def first_weights(self) -> None:
        """All 1, and nothing is kept of them."""

    def weighted(
        self, loadings: Loadings, psi: Array, mean: Array, weights: Any, scaler: Scaler
    ) -> tuple[Statistics, Any, tuple[float, int]]:
        """As `robust.weighted_statistics`: one pass."""
        function = partial(_weighted, loadings, psi, mean, scaler, self.n_rows)
        swept, renewed = self.rows.renewed(function, Swept.plus, weights)
        return swept.statistics, renewed, (swept.log_excess, swept.n_scales)


def _weighted(
    loadings: Loadings,
    psi: Array,
    mean: Array,
    scaler: Scaler,
    n_rows: int,
    rows: Matrix,
    weights: Weights | None,
) -> tuple[Swept, Weights]:
    informative = ~_unseen(rows)
    rows = rows if informative.all() else rows[informative]
    if weights is None:
        weights = np.ones((rows.shape[0], 1), np.float32)
    found, renewed, facts = weighted_statistics(
        rows, loadings, psi, mean, weights, scaler, n_rows=n_rows
    )
    return Swept(found, *facts), renewed


def _unseen(rows: Matrix) -> np.ndarray:
    """Rows without an observed entry, (B,) bool."""
    parts = [np.isnan(widen(rows[some])).all(axis=1) for some in row_slices(*rows.shape)]
    return np.concatenate(parts)
