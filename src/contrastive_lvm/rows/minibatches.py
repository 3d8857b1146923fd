"""Rows in random order without end: each row comes once before any row comes again."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

import numpy as np

from contrastive_lvm.arrays import Matrix
from contrastive_lvm.linalg.matrices import stacked
from contrastive_lvm.rows.reader import MOST_LOADED, Positions, RowReader, Rows

NO_ROWS = np.empty((0, 0))


class Stream(Protocol):
    """Rows of one set in the order that training takes them."""

    def next(self, n: int) -> tuple[np.ndarray, Matrix]:
        """Return the positions of the next rows, and the rows."""
        ...


class Blocks(Protocol):
    """A source that gives its rows in blocks, such as a `RowReader`."""

    shape: tuple[int, int]
    slices: list[slice]

    def read_chunks(self, picks: dict[int, Positions]) -> Sequence[Matrix]:
        """Read some blocks by their numbers, and of each of them some rows."""
        ...


def shuffled(X: Rows, rng: np.random.Generator) -> Stream:
    """Shuffle rows one by one where reading a single row is cheap, otherwise by blocks."""
    if isinstance(X, RowReader) and not X.random_access:
        return ShuffledBlocks(X, rng)
    return Permuted(X.shape[0], partial(taken, X), rng)


def taken(X: Rows, positions: np.ndarray) -> Matrix:
    """Return rows by their positions."""
    rows: Matrix = X.take(positions) if isinstance(X, RowReader) else X[positions]
    return rows


class Permuted:
    """Permutations of all rows, in memory or in a memory map."""

    def __init__(
        self, n_rows: int, take: Callable[[np.ndarray], Matrix], rng: np.random.Generator
    ) -> None:
        self.n_rows, self.take, self.rng = n_rows, take, rng
        self.left = np.empty(0, dtype=np.intp)

    def next(self, n: int) -> tuple[np.ndarray, Matrix]:
        """Return the next rows, from as many permutations as needed."""
        while len(self.left) < n:
            self.left = np.concatenate([self.left, self.rng.permutation(self.n_rows)])
        at, self.left = self.left[:n], self.left[n:]
        return at, self.take(at)


class ShuffledBlocks:
    """Blocks in random order; the rows of several, held in memory, are shuffled together.

    A chunk of a file or of a Dask array is then read once per epoch, not for every minibatch that
    has one of its rows. A small set is held whole, in the order that its rows would have in memory.
    """

    def __init__(self, source: Blocks, rng: np.random.Generator) -> None:
        self.source, self.rng = source, rng
        self.waiting: list[int] = []  # blocks of this epoch
        self.held: list[int] = []  # blocks in memory
        self.rows: Matrix = NO_ROWS
        self.places = self.left = np.empty(0, dtype=np.intp)

    def next(self, n: int) -> tuple[np.ndarray, Matrix]:
        """Return the next rows, from as many blocks as needed."""
        at, rows = [], []
        while n > 0:
            if not len(self.left):
                self._refill()
            some, self.left = self.left[:n], self.left[n:]
            at.append(self.places[some])
            rows.append(self.rows[some])
            n -= len(some)
        return np.concatenate(at), stacked(rows)

    def _refill(self) -> None:
        chosen = self._chosen()
        if chosen != self.held:
            self.rows = NO_ROWS  # two buffers are never held
            slices = [self.source.slices[i] for i in chosen]
            self.rows = stacked(self.source.read_chunks(dict.fromkeys(chosen, slice(None))))
            self.places = np.concatenate([np.arange(s.start, s.stop) for s in slices])
            self.held = chosen
        self.left = self.rng.permutation(len(self.places))

    def _chosen(self) -> list[int]:
        """Return the next blocks, enough to mix; all of them in order if they are few."""
        n_rows, n_features = self.source.shape
        if n_rows * n_features <= MOST_LOADED:
            return list(range(len(self.source.slices)))
        self.waiting = self.waiting or self.rng.permutation(len(self.source.slices)).tolist()
        chosen: list[int] = []
        size = 0
        while self.waiting and size * n_features < MOST_LOADED:
            chosen.append(self.waiting.pop())
            block = self.source.slices[chosen[-1]]
            size += block.stop - block.start
        return chosen
