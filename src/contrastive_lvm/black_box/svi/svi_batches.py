"""Rows for gradient steps: all of them, or minibatches that go through all sets evenly."""

from collections.abc import Hashable, Iterator, Sequence

import numpy as np
from numpy.typing import DTypeLike

from contrastive_lvm.arrays import Array, Matrix
from contrastive_lvm.black_box.svi.guides import SviBatch
from contrastive_lvm.linalg.matrices import MOST_ROWS, has_missing, is_sparse, row_slices
from contrastive_lvm.rows.minibatches import shuffled, taken
from contrastive_lvm.rows.reader import Chunk, RowReader, Rows

CHUNK_BYTES = 1 << 26  # rows that are made ready for the device at a time


class SviRows:
    """Rows of all sets in one precision, in memory or out of core.

    Sparse rows are made dense, and rows out of core are read, a few minibatches at a time. Each
    device gets as many rows of a minibatch as any other; all rows at once stay on one.
    """

    def __init__(
        self,
        sets: Sequence[Rows],
        log_sizes: Sequence[Array],
        batch_size: int | None,
        dtype: DTypeLike,
        n_devices: int = 1,
    ) -> None:
        self.sets, self.log_sizes, self.dtype = sets, log_sizes, dtype
        total = sum(X.shape[0] for X in sets)
        self.whole = batch_size is None or batch_size >= total
        self.n_devices = n = 1 if self.whole else n_devices
        share = 1.0 if self.whole else (batch_size or total) / total
        self.sizes = [max(1, round(share * X.shape[0] / n)) * n for X in sets]
        self.repeats = tuple(X.shape[0] / b for X, b in zip(sets, self.sizes, strict=True))
        self.n_features = sets[0].shape[1]

    @property
    def shapes(self) -> tuple[Hashable, ...]:
        """Return what compiled functions depend on: rows of sets and batches, and precision."""
        sizes = ((X.shape[0], size) for X, size in zip(self.sets, self.sizes, strict=True))
        return (*sizes, self.n_devices, np.dtype(self.dtype).name)

    @property
    def batches_per_chunk(self) -> int:
        """Return how many minibatches are made ready at a time."""
        size = sum(self.sizes) * self.n_features * np.dtype(self.dtype).itemsize
        return max(1, int(CHUNK_BYTES // max(1, size)))

    @property
    def any_missing(self) -> bool:
        """Tell whether any entry is missing, which takes a pass over rows out of core."""
        return any(
            X.reduce(_has_missing, _either) if isinstance(X, RowReader) else has_missing(X)
            for X in self.sets
        )

    def everything(self) -> SviBatch:
        """Return all rows as one batch."""
        n = len(self.sets)
        rows = tuple(
            self.dense(X.take(np.arange(X.shape[0])) if isinstance(X, RowReader) else X)
            for X in self.sets
        )
        sizes = tuple(s.astype(self.dtype) for s in self.log_sizes)
        return SviBatch(rows, sizes, (None,) * n, (1.0,) * n)

    def at(self, which: int, index: np.ndarray) -> tuple[Array, Array]:
        """Return some rows of a set, and their log size factors."""
        return self.dense(taken(self.sets[which], index)), self.log_sizes[which][index]

    def some(self, which: int, rng: np.random.Generator, most: int) -> tuple[Array, Array]:
        """Return random rows of a set, and their log size factors."""
        return self.at(which, rng.permutation(self.sets[which].shape[0])[:most])

    def in_order(self, which: int) -> Iterator[tuple[np.ndarray, Array, Array]]:
        """Yield positions, rows and log size factors of all rows of a set, a few at a time."""
        X, begin = self.sets[which], 0
        for block in X.read() if isinstance(X, RowReader) else [X]:
            for part in row_slices(block.shape[0], 1, most=MOST_ROWS):
                at = np.arange(begin + part.start, begin + part.stop)
                yield at, self.dense(block[part]), self.log_sizes[which][at]
            begin += block.shape[0]

    def dense(self, rows: Matrix) -> Array:
        """Return rows as an array in the precision of the fit."""
        dense = rows.toarray() if is_sparse(rows) else rows
        return np.ascontiguousarray(dense, dtype=self.dtype)


def _has_missing(chunk: Chunk) -> bool:
    return has_missing(chunk.rows)


def _either(one: bool, other: bool) -> bool:  # noqa: FBT001
    return one or other


class ShuffledBatches:
    """An endless shuffled order of each set's rows: every row once before any row again."""

    def __init__(self, rows: SviRows, rng: np.random.Generator) -> None:
        self.rows = rows
        self.streams = [shuffled(X, rng) for X in rows.sets]

    def next(self, n_batches: int) -> SviBatch:
        """Return the next minibatches: rows (C, B, D), sizes and positions (C, B) of each set."""
        rows, sizes, places = [], [], []
        for stream, s, size in zip(self.streams, self.rows.log_sizes, self.rows.sizes, strict=True):
            at, found = stream.next(n_batches * size)
            shape = (n_batches, size)
            rows.append(self.rows.dense(found).reshape(*shape, self.rows.n_features))
            sizes.append(s[at].astype(self.rows.dtype).reshape(shape))
            places.append(at.reshape(shape))
        counts = tuple(np.full(n_batches, r, dtype=self.rows.dtype) for r in self.rows.repeats)
        return SviBatch(tuple(rows), tuple(sizes), tuple(places), counts)
