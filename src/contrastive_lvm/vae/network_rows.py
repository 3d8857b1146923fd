"""Rows of one set as the networks read them: dense, in order or shuffled, some held out."""

from collections.abc import Iterator
from functools import reduce
from itertools import pairwise
from typing import Any

import numpy as np

from contrastive_lvm.arrays import Array, Matrix
from contrastive_lvm.linalg.matrices import is_sparse, row_slices
from contrastive_lvm.rows.minibatches import Permuted, ShuffledBlocks
from contrastive_lvm.rows.moments import Check, Moments, column_moments
from contrastive_lvm.rows.source import UNCHECKED, Source, floats, is_elsewhere, source_of


def reads_chunks(X: Any) -> bool:
    """Whether rows are read by chunks; single rows of a memory map cost no more than chunks."""
    return is_elsewhere(X) and not isinstance(X, np.memmap)


def open_network_rows(X: Any, name: str, check: Check) -> "NetworkRows":
    """Open rows that are read by chunks, which `check` refuses or accepts as they are read."""
    return NetworkRows(source_of(X, name, UNCHECKED), check=check)


class NetworkRows:
    """Rows of a matrix in memory or of a reader, without those that are held out."""

    def __init__(
        self,
        X: Matrix | Source,
        held_out: np.ndarray | None = None,
        check: Check | None = None,
    ) -> None:
        self.X, self.check = X, check
        self.held_out = np.empty(0, dtype=np.intp) if held_out is None else held_out  # increasing
        chunks = X.slices if isinstance(X, Source) else list(row_slices(*X.shape))
        ends = [end - np.searchsorted(self.held_out, end) for end in (0, *(c.stop for c in chunks))]
        self.slices = [slice(int(begin), int(end)) for begin, end in pairwise(ends)]
        self.shape = (X.shape[0] - len(self.held_out), X.shape[1])
        self._chunks = chunks

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return int(self.shape[0])

    def _read(self, i: int) -> Array:
        """Return a copy of a chunk."""
        at = self._chunks[i]
        rows = self.X.picked({i: slice(None)})[0] if isinstance(self.X, Source) else self.X[at]
        begin, end = np.searchsorted(self.held_out, [at.start, at.stop])
        return np.delete(_dense(rows), self.held_out[begin:end] - at.start, axis=0)

    def read(self) -> Iterator[Array]:
        """Read and check all rows in order, a block of moderate size at a time."""
        for i in range(len(self.slices)):
            chunk = self._read(i)
            if self.check is not None:
                self.check(chunk)
            for rows in row_slices(*chunk.shape):
                yield chunk[rows]

    def moments(self) -> Moments:
        """Compute the moments of each feature in one pass."""
        return reduce(Moments.plus, (column_moments(rows) for rows in self.read()))

    def picked(self, picks: dict[int, Any]) -> list[Matrix]:
        """Read chunks by their numbers, and select rows of each."""
        return [self._read(i)[at] for i, at in picks.items()]

    def __getitem__(self, positions: np.ndarray) -> Array:
        """Return rows by their positions; memory maps are read from front to back."""
        at = np.delete(np.arange(self.X.shape[0]), self.held_out)[positions]
        if isinstance(self.X, Source):
            return _dense(self.X.take(at))
        order, rows = np.argsort(at, kind="stable"), np.empty((len(at), self.shape[1]))
        rows = rows.astype(floats(self.X[:0]).dtype, copy=False)
        for some in row_slices(*rows.shape):
            rows[order[some]] = _dense(self.X[at[order[some]]])
        return rows

    def without(self, positions: np.ndarray) -> "NetworkRows":
        """Return the other rows."""
        at = np.delete(np.arange(self.X.shape[0]), self.held_out)[positions]
        return NetworkRows(self.X, np.sort(np.concatenate([self.held_out, at])))

    def epoch(self, rng: np.random.Generator, n_parts: int, size: int) -> Iterator[Array]:
        """Return parts of as many rows: each row once in random order, then some again."""
        by_chunks = isinstance(self.X, Source)
        stream = ShuffledBlocks(self, rng) if by_chunks else Permuted(self, rng)
        for _ in range(n_parts):
            yield stream.next(size)[1]


def _dense(rows: Matrix) -> Array:
    full: Array = floats(rows.toarray() if is_sparse(rows) else rows)
    return full
