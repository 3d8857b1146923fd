"""What one pass over rows finds out: how many, means, squares and, if complete, their scatter.

Moments of blocks add up to those of all rows (Chan, Golub & LeVeque 1983, eq. 2.1), so that blocks
may be read anywhere, and each only once: the pass also refuses values that are none.
"""

from collections.abc import Callable
from functools import reduce
from typing import Any, NamedTuple

import numpy as np

from contrastive_lvm.arrays import Array, Matrix
from contrastive_lvm.linalg.matrices import has_missing, row_slices, widen
from contrastive_lvm.rows.scatter import raw_sums

Check = Callable[[Matrix], None]  # raises where a block holds what is no value


class Moments(NamedTuple):
    """Of the observed entries of each column; of all columns jointly where nothing is missing.

    Scatters of many blocks about one origin are simply added, which is all that large matrices want
    done to them; others are first moved to their means.
    """

    n_rows: int  # that have an observed entry
    counts: Array  # (D,) observed entries
    mean: Array  # (D,)
    square: Array  # (D,) about the mean
    scatter: Array | None = None  # (D, D); None when not asked for or entries are missing
    origin: Array | None = None  # (D,) what the scatter is about; None for the mean

    @property
    def complete(self) -> bool:
        """Whether nothing is missing."""
        return bool((self.counts == self.n_rows).all())

    def centred(self) -> "Moments":
        """With the scatter about the mean."""
        if self.scatter is None or self.origin is None:
            return self
        offset = self.mean - self.origin
        scatter = self.scatter - np.outer(self.n_rows * offset, offset)
        return self._replace(scatter=scatter, origin=None)

    def plus(self, other: "Moments") -> "Moments":
        """Of the rows of both."""
        counts = self.counts + other.counts
        share = other.counts / np.maximum(counts, 1.0)
        change, both = other.mean - self.mean, self.counts * share
        scatter, origin = self._joint(other, both * change, change)
        return Moments(
            self.n_rows + other.n_rows,
            counts,
            self.mean + change * share,
            self.square + other.square + both * change**2,
            scatter,
            origin,
        )

    def _joint(
        self, other: "Moments", scaled: Array, change: Array
    ) -> tuple[Array | None, Array | None]:
        """The scatter of the rows of both, and what it is about."""
        if self.scatter is None or other.scatter is None:
            return None, None
        mine, its = self.origin, other.origin
        if mine is not None and its is not None and np.array_equal(mine, its):
            return self.scatter + other.scatter, mine
        scatter: Any = np.outer(scaled, change)
        scatter += self.centred().scatter
        scatter += other.centred().scatter
        return scatter, None


def moments_of(check: Check, rows: Matrix, *, scatter: bool) -> Moments:
    """Of a block of rows; `check` is only called where a sum shows that something is odd."""
    if not scatter:
        check(rows)
        return _of_columns(rows)
    raw, n = raw_sums(rows), rows.shape[0]
    if not np.isfinite(raw.total).all():
        check(rows)
        if has_missing(rows):
            return _of_columns(rows)
    offset = raw.total / n
    square = np.diagonal(raw.matrix) - n * offset**2
    counts = np.full(rows.shape[1], float(n))
    return Moments(n, counts, raw.origin + offset, square, raw.matrix, raw.origin)


def _of_columns(rows: Matrix) -> Moments:
    parts = (column_moments(widen(rows[some])) for some in row_slices(*rows.shape))
    return reduce(Moments.plus, parts)


def column_moments(rows: Array) -> Moments:
    """Compute the moments of each feature of a dense block."""
    rows = widen(rows)
    seen = ~np.isnan(rows)
    counts = seen.sum(axis=0).astype(np.float64)
    mean = np.where(seen, rows, 0.0).sum(axis=0) / np.maximum(counts, 1.0)
    square = (np.where(seen, rows - mean, 0.0) ** 2).sum(axis=0)
    return Moments(int(seen.any(axis=1).sum()), counts, mean, square)
