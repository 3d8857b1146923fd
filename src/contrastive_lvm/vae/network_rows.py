"""Rows of one set as the networks read them: dense, in order or shuffled, some held out."""

from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from contrastive_lvm.arrays import Dense
from contrastive_lvm.linalg.matrices import densify, row_slices
from contrastive_lvm.rows.minibatches import Permuted, ShuffledBlocks
from contrastive_lvm.rows.reader import Positions, RowReader

NONE = np.empty(0, dtype=np.intp)


class NetworkRows:
    """The rows of a reader without those that are held out."""

    def __init__(self, reader: RowReader, held_out: np.ndarray = NONE) -> None:
        self.reader, self.held_out = reader, held_out  # positions in increasing order
        ends = [0, *(chunk.stop for chunk in reader.slices)]
        left = [int(end - np.searchsorted(held_out, end)) for end in ends]
        self.slices = [slice(begin, end) for begin, end in pairwise(left)]
        self.n_rows = reader.shape[0] - len(held_out)
        self.shape = (self.n_rows, reader.shape[1])

    def read(self) -> Iterator[Dense]:
        """Read and check all rows in order, copies of a moderate number at a time."""
        for i in range(len(self.slices)):
            (chunk,) = self.read_chunks({i: slice(None)})
            self.reader.checks.values(chunk)
            for rows in row_slices(*chunk.shape):
                yield chunk[rows]

    def read_chunks(self, picks: dict[int, Positions]) -> list[Dense]:
        """Read some chunks by their numbers, and of each the rows at a slice or at positions."""
        chunks = []
        for i, at in picks.items():
            (rows,) = self.reader.read_chunks({i: slice(None)})
            chunk = self.reader.slices[i]
            begin, end = np.searchsorted(self.held_out, [chunk.start, chunk.stop])
            kept = np.delete(densify(rows), self.held_out[begin:end] - chunk.start, axis=0)
            chunks.append(kept[at])
        return chunks

    def __getitem__(self, positions: np.ndarray) -> Dense:
        """Read rows by their positions."""
        return densify(self.reader.take(self._among_all(positions)))

    def without(self, positions: np.ndarray) -> "NetworkRows":
        """Return the other rows."""
        held_out = np.concatenate([self.held_out, self._among_all(positions)])
        return NetworkRows(self.reader, np.sort(held_out))

    def _among_all(self, positions: np.ndarray) -> np.ndarray:
        kept = np.delete(np.arange(self.reader.shape[0]), self.held_out)
        return np.asarray(kept[positions])

    def epoch(self, rng: np.random.Generator, n_parts: int, size: int) -> Iterator[Dense]:
        """Return parts of as many rows: each row once in random order, then some again."""
        random_access = self.reader.random_access
        stream = (
            Permuted(self.n_rows, self.__getitem__, rng)
            if random_access
            else ShuffledBlocks(self, rng)
        )
        for _ in range(n_parts):
            yield densify(stream.next(size)[1])
