"""Rows for training, shuffled by epochs: from memory, memory maps, or blocks elsewhere."""

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any, Protocol

import numpy as np

from contrastive_lvm.arrays import Array, Matrix
from contrastive_lvm.linalg.matrices import is_sparse, row_slices, widen
from contrastive_lvm.rows import reader
from contrastive_lvm.rows.minibatches import ShuffledBlocks


class Source(Protocol):
    """Rows of one set."""

    n_rows: int
    n_features: int

    def blocks(self) -> Iterator[Array]:
        """All rows in order, dense blocks at a time."""
        ...

    def take(self, positions: np.ndarray) -> Array:
        """Some rows, dense."""
        ...

    def without(self, positions: np.ndarray) -> "Source":
        """The other rows."""
        ...

    def epoch(self, rng: np.random.Generator, pieces: int, size: int) -> Iterator[Array]:
        """Pieces of as many rows: each row once in random order, then some again."""
        ...


def in_blocks(X: Any) -> bool:
    """Whether rows are to be read by blocks; single rows of a memory map cost no more."""
    return reader.is_out_of_core(X) and not isinstance(X, np.memmap)


def source(X: Any, name: str = "X") -> Source:
    """Rows of whatever was given; nothing is copied or computed yet."""
    if not in_blocks(X):
        return Rows(X)
    return BlockRows(reader.open_rows(X, name, reader.UNCHECKED))  # `moments` checks each block


def floating(dtype: Any) -> Any:
    """Single precision is kept, all else becomes double."""
    return np.float32 if dtype == np.float32 else np.float64


def dense(rows: Matrix) -> Array:
    """As an array of floating-point numbers."""
    full = rows.toarray() if is_sparse(rows) else np.asarray(rows)
    return full.astype(floating(full.dtype), copy=False)


class Rows:
    """Rows that are at hand; sparse ones become dense when they are taken."""

    def __init__(self, X: Matrix, kept: np.ndarray | None = None) -> None:
        self.X, self.kept = X, np.arange(X.shape[0]) if kept is None else kept
        self.n_rows, self.n_features = len(self.kept), X.shape[1]

    def blocks(self) -> Iterator[Array]:
        """All rows in order."""
        for rows in row_slices(self.n_rows, self.n_features):
            yield self.take(np.arange(rows.start, rows.stop))

    def take(self, positions: np.ndarray) -> Array:
        """A copy in their order; memory maps are read from front to back."""
        at = self.kept[positions]
        order = np.argsort(at, kind="stable")
        found = np.empty((len(at), self.n_features), dtype=floating(self.X.dtype))
        for rows in row_slices(len(at), self.n_features):
            some = order[rows]
            found[some] = dense(self.X[at[some]])
        return found

    def without(self, positions: np.ndarray) -> "Rows":
        """The other rows."""
        return Rows(self.X, np.delete(self.kept, positions))

    def epoch(self, rng: np.random.Generator, pieces: int, size: int) -> Iterator[Array]:
        """A permutation, and the beginning of another."""
        order = np.empty(0, dtype=np.intp)
        while len(order) < pieces * size:
            order = np.concatenate([order, rng.permutation(self.n_rows)])
        for i in range(pieces):
            yield self.take(order[i * size : (i + 1) * size])


class BlockRows:
    """Rows elsewhere, a few blocks at a time: never whole in memory unless they are few."""

    def __init__(self, rows: reader.RowReader, dropped: np.ndarray | None = None) -> None:
        self.rows = rows
        self.dropped = np.empty(0, dtype=np.intp) if dropped is None else dropped
        ends = [block.stop for block in rows.slices]
        self.n_rows, self.n_features = rows.shape[0] - len(self.dropped), rows.shape[1]
        self.shape = (self.n_rows, self.n_features)
        left = [n - int(np.searchsorted(self.dropped, n)) for n in (0, *ends)]
        self.slices = [slice(*pair) for pair in pairwise(left)]

    def _block(self, i: int) -> Array:
        begin, end = self.rows.slices[i].start, self.rows.slices[i].stop
        gone = self.dropped[(self.dropped >= begin) & (self.dropped < end)] - begin
        return np.delete(dense(self.rows.read_chunks({i: slice(None)})[0]), gone, axis=0)

    def blocks(self) -> Iterator[Array]:
        """All rows in order."""
        for i in range(len(self.slices)):
            block = self._block(i)
            for rows in row_slices(*block.shape):
                yield block[rows]

    def read_chunks(self, picks: dict[int, Any]) -> list[Matrix]:
        """Some blocks by their numbers, and of each of them some rows."""
        return [self._block(i)[at] for i, at in picks.items()]

    def _left(self, positions: np.ndarray) -> np.ndarray:
        """Positions among all rows."""
        return np.asarray(np.delete(np.arange(self.rows.shape[0]), self.dropped)[positions])

    def take(self, positions: np.ndarray) -> Array:
        """From the blocks they are in."""
        return dense(self.rows.take(self._left(positions)))

    def without(self, positions: np.ndarray) -> "BlockRows":
        """The other rows."""
        gone = np.concatenate([self.dropped, self._left(positions)])
        return BlockRows(self.rows, np.sort(gone))

    def epoch(self, rng: np.random.Generator, pieces: int, size: int) -> Iterator[Array]:
        """Blocks in random order, the rows of several shuffled together."""
        order = ShuffledBlocks(self, rng)
        for _ in range(pieces):
            yield order.next(size)[1]


class Moments:
    """Counts, means and variances of columns, over blocks (Chan, Golub & LeVeque 1983, eq. 2.1)."""

    def __init__(self, n_features: int) -> None:
        self.count, self.mean = np.zeros(n_features), np.zeros(n_features)
        self._square = np.zeros(n_features)

    def add(self, rows: Array) -> None:
        """A block, NaN where missing."""
        rows = widen(rows)
        seen = ~np.isnan(rows)
        n = seen.sum(axis=0)
        total, safe = self.count + n, np.maximum(n, 1)
        mean = np.where(seen, rows, 0.0).sum(axis=0) / safe
        square = (np.where(seen, rows - mean, 0.0) ** 2).sum(axis=0)
        change, share = mean - self.mean, n / np.maximum(total, 1.0)
        self._square += square + change**2 * self.count * share
        self.mean += np.where(n > 0, change * share, 0.0)
        self.count = total

    @property
    def variance(self) -> Array:
        """Of each column, zero where nothing was seen."""
        variance: Array = self._square / np.maximum(self.count, 1.0)
        return variance


def moments(rows: Source, check: Callable[[Array], None]) -> Moments:
    """Of all rows, in one pass that also checks each block."""
    found = Moments(rows.n_features)
    for block in rows.blocks():
        check(block)
        found.add(block)
    return found
