"""Row sets that are elsewhere, or too large to be worked on at once, as the sweeps use them.

Complete rows are compressed in the pass that also checks them, and never read again. Rows with
gaps or with weights are read once a sweep; what a sweep needs of them is a sum over rows. Such sums
are taken by cells (see `core.sums`), so that a fit is the same to the last digit wherever the rows
are and however they are cut.
"""

from functools import cached_property, partial
from operator import add
from typing import Any, NamedTuple

import numpy as np

from contrastive_lvm.arrays import Array, Matrix, Statistics
from contrastive_lvm.likelihoods.base import Scaler
from contrastive_lvm.linalg.loadings import Loadings
from contrastive_lvm.linalg.matrices import column_sums, own_rows, row_slices, stacked, widen
from contrastive_lvm.rows import scale_mixture_rows as robust
from contrastive_lvm.rows import streaming_median as selection
from contrastive_lvm.rows.masked_rows import sorted_block, sorting, statistics_of
from contrastive_lvm.rows.moments import Moments, moments_of
from contrastive_lvm.rows.reader import RowReader
from contrastive_lvm.rows.scale_mixture_rows import RowStep, Swept, Weights
from contrastive_lvm.rows.scatter import DenseScatter, Scatter
from contrastive_lvm.rows.sums import cell_rows

MOST_FEATURES = 6000  # whose (D, D) scatter is formed: 290 MB
MOST_BRANCHED = 1000  # features of which a dozen scatters are held at a time: 100 MB
WIDE = 1 << 19  # entries of a cell, at least, whose scatter is formed
CLIP = 3.0  # robust standard deviations
STEPS = 256.0  # to a standard deviation, of what starts see


def first_pass(rows: RowReader, *, scatter: bool) -> Moments:
    """Moments of all rows, which are checked on the way."""
    D = rows.shape[1]
    cell: int | None = cell_rows(D)
    if scatter:  # several times as many rows as features, so that products are what takes time
        cell = cell_rows(D, entries=max(WIDE, 8 * D**2)) if D <= MOST_BRANCHED else None
    function = partial(moments_of, rows.checks.values, scatter=scatter)
    found = rows.total(function, Moments.plus, cell=cell)
    rows.checks.counts(found.counts)
    return found.centred()


def compressed(rows: RowReader) -> "Scatter | StreamedGaps":
    """Complete rows as their scatter; rows with gaps as what reads them again."""
    found = first_pass(rows, scatter=rows.shape[1] <= MOST_FEATURES)
    if not found.complete:
        if rows.shape[1] > MOST_BRANCHED:  # moments that came with a scatter depend on the blocks
            found = first_pass(rows, scatter=False)
        return StreamedGaps(rows, found)
    if found.scatter is not None:
        return DenseScatter(found.n_rows, found.mean, found.scatter)
    return StreamedScatter(found.n_rows, found.mean, found.square, rows)


def at_hand(rows: RowReader) -> Matrix:
    """All rows in memory, checked: for sets of few entries, or few rows with many features."""
    found: Any = rows.total(partial(_listed, rows.checks.values), add)
    whole = stacked(found)
    rows.checks.counts(column_sums(whole)[1])
    return whole


def _listed(check: Any, rows: Matrix) -> list[Matrix]:
    check(rows)
    return [own_rows(rows)]


class StreamedScatter(NamedTuple):
    """The scatter of complete rows as an operator: a pass for each product."""

    n_rows: int
    mean: Array
    diagonal: Array
    rows: RowReader

    def product(self, M: Array) -> Array:
        """`T @ M`."""
        function = partial(_scatter_product, self.mean, M)
        return self.rows.total(function, np.add, cell=cell_rows(len(M)))


def _scatter_product(mean: Array, M: Array, rows: Matrix) -> Array:
    centred = widen(rows) - mean
    product: Array = centred.T @ (centred @ M)
    return product


class Seen(NamedTuple):
    """What starts see of the entries: whole steps from a centre, zero where missing.

    Sums of products of such numbers are exact as long as no sum of squares exceeds 2^53 (by
    Cauchy and Schwarz that bounds the others), so that they do not depend on any order either.
    A standard deviation of `STEPS` leaves room for 2^37 rows, and errs by 1e-6 of the variance.
    """

    centre: Array  # (D,)
    step: Array  # (D,)
    most: Array  # (D,) steps

    def of(self, rows: Matrix) -> Array:
        """Steps of a block of entries."""
        steps = np.rint((widen(rows) - self.centre) / self.step)
        return np.where(np.isnan(steps), 0.0, np.clip(steps, -self.most, self.most))

    def outer(self, rows: Matrix) -> Array:
        """Sum of the outer products of rows, (D, D)."""
        outer = np.zeros((len(self.step), len(self.step)))
        for some in row_slices(*rows.shape):
            R = self.of(rows[some])
            outer += R.T @ R
        return outer

    def product(self, M: Array, rows: Matrix) -> Array:
        """That sum times some columns."""
        R = self.of(rows)
        product: Array = R.T @ (R @ M)
        return product


class _Read:
    """What rows with gaps and rows with weights have in common: where a fit of them starts."""

    square: Array  # (D,) about the centre, as starts see it

    def __init__(self, rows: RowReader, found: Moments, seen: Seen) -> None:
        self.rows, self.n_rows, self.n_features = rows, found.n_rows, rows.shape[1]
        self.counts, self.mean, self._seen = found.counts, seen.centre, seen

    @cached_property
    def _outer(self) -> Array | None:
        """In one pass, unless it takes more room than the rows do."""
        if self.n_features > min(MOST_FEATURES, self.n_rows):
            return None
        outer: Array = self.rows.total(self._seen.outer, np.add)
        return outer

    def covariance_product(self, M: Array) -> Array:
        """About `cov(x) @ M` from what starts see, missing entries undone as in `MaskedRows`."""
        share = self.counts / self.n_rows
        unit = (self._seen.step / share)[:, None]
        if self._outer is not None:
            product = self._outer @ (unit * M)
        else:
            function = partial(self._seen.product, unit * M)
            product = self.rows.total(function, np.add, cell=cell_rows(self.n_features))
        variance = self.square / self.counts
        restored: Array = unit * product / self.n_rows
        return restored + (variance - variance / share)[:, None] * M


class StreamedGaps(_Read):
    """A row set with missing entries, `MaskedRows` of rows that are elsewhere.

    Rows are sorted by pattern within their cells, in the first sweep; the order stays with them.
    """

    def __init__(self, rows: RowReader, found: Moments) -> None:
        deviation = np.sqrt(found.square / np.maximum(found.counts, 1.0))
        step = np.where(deviation > 0, deviation / STEPS, 1.0)
        super().__init__(rows, found, Seen(found.mean, step, np.full(len(step), np.inf)))
        self.square = found.square
        self._order: Any = None

    def statistics(self, loadings: Loadings, psi: Array, mean: Array) -> Statistics:
        """Expected sufficient statistics: one pass."""
        cell = cell_rows(self.n_features)
        function = partial(_gapped, loadings, psi, mean)
        if self._order is not None:
            return self.rows.total(function, Statistics.plus, cell=cell, kept=self._order)
        sorts = partial(_sorted_first, function)
        found, self._order = self.rows.renewed(sorts, Statistics.plus, cell=cell)
        return found


def _gapped(loadings: Loadings, psi: Array, mean: Array, rows: Matrix, order: Any) -> Statistics:
    return statistics_of([sorted_block(rows, order)], loadings, psi, mean)


def _sorted_first(function: Any, rows: Matrix, _: None) -> tuple[Statistics, Any]:
    order = sorting(rows)
    return function(rows, order), order


class StreamedWeights(_Read):
    """Rows of a heavy-tailed likelihood, `WeightedRows` of rows that are elsewhere.

    Their medians are exact, so that a fit starts where it would start in memory. Weights stay with
    the cells they belong to.
    """

    def __init__(self, rows: RowReader) -> None:
        found = first_pass(rows, scatter=False)
        centre = selection.medians(rows.total, found.counts)
        spread = 1.4826 * selection.deviations(rows.total, found.counts, centre)
        fallback = np.sqrt(found.square / found.counts)
        limit = CLIP * np.where(spread > 0, spread, fallback)
        step = np.where(limit > 0, limit / (CLIP * STEPS), 1.0)
        super().__init__(rows, found, Seen(centre, step, np.where(limit > 0, CLIP * STEPS, 0.0)))
        clipped = partial(_clipped_squares, centre, limit)
        self.square = rows.total(clipped, np.add, cell=cell_rows(self.n_features))

    def first_weights(self) -> None:
        """All 1, and nothing is kept of them."""

    def weighted(
        self, loadings: Loadings, psi: Array, mean: Array, weights: Any, scaler: Scaler
    ) -> tuple[Swept, Any]:
        """As `robust.weighted_statistics`: one pass."""
        step = RowStep(loadings, psi, mean, scaler)
        _, kind = robust.weights_shape(scaler, self.n_rows, self.n_features)
        cell = cell_rows(self.n_features)
        return self.rows.renewed(partial(_swept, step, kind), Swept.plus, cell=cell, kept=weights)


def _clipped_squares(centre: Array, limit: Array, rows: Matrix) -> Array:
    clipped = np.clip(widen(rows) - centre, -limit, limit)
    squares: Array = np.nansum(clipped**2, axis=0)
    return squares


def _swept(
    step: RowStep, kind: type, rows: Matrix, weights: Weights | None
) -> tuple[Swept, Weights]:
    seen = ~np.isnan(widen(rows)).all(axis=1)
    rows = rows if seen.all() else rows[seen]
    before = np.ones((rows.shape[0], 1), kind) if weights is None else weights
    found, renewed = robust.swept(step, rows, before)
    return found, renewed.astype(kind)
