"""What one pass over rows finds out: how many, means, squares and, if complete, their scatter.

Moments of blocks add up to those of all rows (Chan, Golub & LeVeque 1983, eq. 2.1), so that blocks
may be read anywhere, and each only once: the pass also refuses values that are none.
"""

from collections.abc import Callable
from functools import reduce
from typing import Any, NamedTuple

import numpy as np

from contrastive_lvm.core.blocks import has_missing, row_slices, widen
from contrastive_lvm.core.scatter import summarise
from contrastive_lvm.core.types import Array, Matrix

Check = Callable[[Matrix], None]  # raises where a block holds what is no value


class Moments(NamedTuple):
    """Of the observed entries of each column; of all columns jointly where nothing is missing."""

    n_rows: int  # that have an observed entry
    counts: Array  # (D,) observed entries
    mean: Array  # (D,)
    square: Array  # (D,) about the mean
    scatter: Array | None  # (D, D) about the mean; None when not asked for or entries are missing

    @property
    def complete(self) -> bool:
        """Whether nothing is missing."""
        return bool((self.counts == self.n_rows).all())

    def plus(self, other: "Moments") -> "Moments":
        """Of the rows of both."""
        counts = self.counts + other.counts
        share = other.counts / np.maximum(counts, 1.0)
        change, both = other.mean - self.mean, self.counts * share
        scatter = None
        if self.scatter is not None and other.scatter is not None:
            scatter = np.outer(both * change, change)
            scatter += self.scatter
            scatter += other.scatter
        return Moments(
            self.n_rows + other.n_rows,
            counts,
            self.mean + change * share,
            self.square + other.square + both * change**2,
            scatter,
        )


def moments_of(check: Check, rows: Matrix, *, scatter: bool) -> Moments:
    """Of a block of rows; `check` is only called where a sum shows that something is odd."""
    if not scatter:
        check(rows)
        return _of_columns(rows)
    found: Any = summarise(rows, dense=True)
    odd = not np.isfinite(found.mean).all()
    if odd:
        check(rows)
        if has_missing(rows):
            return _of_columns(rows)
    counts = np.full(rows.shape[1], float(rows.shape[0]))
    return Moments(rows.shape[0], counts, found.mean, found.diagonal, found.matrix)


def _of_columns(rows: Matrix) -> Moments:
    parts = (_of_slice(widen(rows[some])) for some in row_slices(*rows.shape))
    return reduce(Moments.plus, parts)


def _of_slice(rows: Array) -> Moments:
    seen = ~np.isnan(rows)
    counts = seen.sum(axis=0).astype(np.float64)
    mean = np.where(seen, rows, 0.0).sum(axis=0) / np.maximum(counts, 1.0)
    square = (np.where(seen, rows - mean, 0.0) ** 2).sum(axis=0)
    return Moments(int(seen.any(axis=1).sum()), counts, mean, square, None)
