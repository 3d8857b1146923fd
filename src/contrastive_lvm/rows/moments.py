"""One pass over rows: how many there are, means, squares and, if complete, their scatter.

Moments of chunks add up to those of all rows (Chan, Golub & LeVeque 1983, eq. 2.1), so that chunks
may be anywhere, and each is read only once: the pass also refuses bad values.
"""

from collections.abc import Callable
from functools import partial, reduce
from typing import NamedTuple

import numpy as np

from contrastive_lvm.arrays import Array, Matrix, Sparse
from contrastive_lvm.linalg.matrices import has_missing, is_sparse, row_slices, widen
from contrastive_lvm.rows.reader import Chunk, RowReader
from contrastive_lvm.rows.scatter import RawSums, centre_sparse, raw_sums


class Moments(NamedTuple):
    """Weighted moments of the observed entries, and of whole rows where nothing is missing."""

    n_rows: float  # weight of the rows that have an observed entry
    counts: Array  # (D,) weight of the observed entries
    mean: Array  # (D,)
    square: Array  # (D,) about the mean
    complete: bool  # whether nothing is missing
    n_empty: int = 0  # rows without any observed entry
    raw: RawSums | None = None  # None when not asked for, or entries are missing

    @property
    def scatter(self) -> Array:
        """Scatter of complete rows about their mean, (D, D)."""
        if self.raw is None:
            raise ValueError("rows with missing entries have no scatter; use MaskedRows.")
        offset = self.raw.total / self.n_rows
        centred: Array = self.raw.matrix - self.n_rows * np.outer(offset, offset)
        return centred

    def plus(self, other: "Moments") -> "Moments":
        """Add the moments of other rows."""
        counts = self.counts + other.counts
        share = other.counts / np.maximum(counts, np.finfo(np.float64).tiny)
        change, both = other.mean - self.mean, self.counts * share
        mean = self.mean + change * share
        return Moments(
            self.n_rows + other.n_rows,
            counts,
            mean,
            self.square + other.square + both * change**2,
            self.complete and other.complete,
            self.n_empty + other.n_empty,
            self._joint(other, mean, both * change, change),
        )

    def _joint(self, other: "Moments", mean: Array, scaled: Array, change: Array) -> RawSums | None:
        """Add raw sums: simply if they are about one origin, otherwise about the mean of both."""
        mine, its = self.raw, other.raw
        if mine is None or its is None:
            return None
        if np.array_equal(mine.origin, its.origin):
            return RawSums(mine.origin, mine.total + its.total, mine.matrix + its.matrix)
        matrix: Array = np.outer(scaled, change)
        matrix += self.scatter
        matrix += other.scatter
        return RawSums(mean, np.zeros(len(mean)), matrix)


def first_pass(reader: RowReader, weights: Array | None = None, *, scatter: bool) -> Moments:
    """Compute the moments of all rows, which are checked on the way."""
    function = partial(_moments, reader.checks.values, scatter)
    found = reader.reduce(function, Moments.plus, weights=weights)
    reader.checks.counts(found.counts)
    return found


def _moments(check: Callable[[Matrix], None], scatter: bool, chunk: Chunk) -> Moments:  # noqa: FBT001
    """Compute a chunk's moments; with a scatter, rows are checked only if a sum is not finite."""
    rows, weights = chunk.rows, chunk.weights
    if not scatter:
        check(rows)
        return _column_moments(rows, weights)
    raw = raw_sums(rows, weights)
    if not np.isfinite(raw.total).all():
        check(rows)
        if has_missing(rows):
            return _column_moments(rows, weights)
    n = float(rows.shape[0] if weights is None else weights.sum())
    offset = raw.total / n
    square = np.diagonal(raw.matrix) - n * offset**2
    counts = np.full(rows.shape[1], n)
    mean, complete = raw.origin + offset, True
    return Moments(n, counts, mean, square, complete, raw=raw)


def _column_moments(rows: Matrix, weights: Array | None) -> Moments:
    if is_sparse(rows) and not has_missing(rows):
        return _sparse_moments(rows, weights)
    return reduce(
        Moments.plus,
        (
            _slice_moments(widen(rows[at]), None if weights is None else weights[at])
            for at in row_slices(*rows.shape)
        ),
    )


def _slice_moments(rows: Array, weights: Array | None) -> Moments:
    seen = ~np.isnan(rows)
    w = np.ones(len(rows)) if weights is None else weights
    counts, complete = w @ seen, bool(seen.all())
    filled = rows if complete else np.where(seen, rows, 0.0)
    total = filled.sum(axis=0) if weights is None else w @ filled
    mean = total / np.maximum(counts, np.finfo(np.float64).tiny)
    centred = np.where(seen, rows - mean, 0.0)
    square = (centred**2).sum(axis=0) if weights is None else w @ centred**2
    some = seen.any(axis=1)
    return Moments(float(w @ some), counts, mean, square, complete, int((~some).sum()))


def _sparse_moments(rows: Sparse, weights: Array | None) -> Moments:
    moved, pivot = centre_sparse(rows, weights)
    ones = np.ones(rows.shape[0]) if weights is None else weights
    n = float(ones.sum())
    offset = moved.T @ ones / n
    square = np.maximum(moved.multiply(moved).T @ ones - n * offset**2, 0.0)
    return Moments(n, np.full(rows.shape[1], n), pivot + offset, square, complete=True)
