"""Rows for gradient steps: all of them, or minibatches that go through both sets evenly."""

from typing import Any

import numpy as np

from contrastive_lvm.core.blocks import is_sparse
from contrastive_lvm.core.types import Array, Matrix
from contrastive_lvm.inference.families import Batch

CHUNK_BYTES = 1 << 26  # rows that are made ready for the device at a time


class Rows:
    """Both sets in one precision; sparse ones are made dense a few minibatches at a time."""

    def __init__(
        self, sets: list[Matrix], log_sizes: list[Array], batch_size: int | None, dtype: Any
    ) -> None:
        self.sets, self.log_sizes, self.dtype = sets, log_sizes, dtype
        total = sum(X.shape[0] for X in sets)
        self.whole = batch_size is None or batch_size >= total
        share = 1.0 if self.whole else (batch_size or total) / total
        self.sizes = [max(1, round(share * X.shape[0])) for X in sets]
        self.repeats = tuple(X.shape[0] / b for X, b in zip(sets, self.sizes, strict=True))
        self.n_features = sets[0].shape[1]

    @property
    def batches_a_chunk(self) -> int:
        """How many minibatches are made ready at a time."""
        size = sum(self.sizes) * self.n_features * np.dtype(self.dtype).itemsize
        return max(1, int(CHUNK_BYTES // max(1, size)))

    def everything(self) -> Batch:
        """All rows as one batch."""
        n = len(self.sets)
        rows = tuple(self._dense(X) for X in self.sets)
        sizes = tuple(s.astype(self.dtype) for s in self.log_sizes)
        return Batch(rows, sizes, (None,) * n, (1.0,) * n)

    def take(self, index: list[np.ndarray]) -> Batch:
        """Minibatches by the positions of their rows, (C, B) for each set."""
        rows, sizes = [], []
        for X, s, at in zip(self.sets, self.log_sizes, index, strict=True):
            flat = self._dense(X[at.ravel()])
            rows.append(flat.reshape(*at.shape, self.n_features))
            sizes.append(s[at].astype(self.dtype))
        counts = tuple(np.full(len(index[0]), r, dtype=self.dtype) for r in self.repeats)
        return Batch(tuple(rows), tuple(sizes), tuple(index), counts)

    def at(self, which: int, index: np.ndarray) -> tuple[Any, Array]:
        """Some rows of a set, and their log size factors."""
        return self._dense(self.sets[which][index]), self.log_sizes[which][index]

    def some(self, which: int, rng: np.random.Generator, most: int) -> tuple[Any, Array]:
        """Random rows of a set, and their log size factors."""
        return self.at(which, rng.permutation(self.sets[which].shape[0])[:most])

    def _dense(self, rows: Matrix) -> Any:
        dense = rows.toarray() if is_sparse(rows) else rows
        return np.ascontiguousarray(dense, dtype=self.dtype)


class Order:
    """An endless shuffled order of each set's rows: every row once before any row again."""

    def __init__(self, rows: Rows, rng: np.random.Generator) -> None:
        self.rows, self.rng = rows, rng
        self.left: list[np.ndarray] = [np.empty(0, dtype=np.intp) for _ in rows.sets]

    def next(self, n_batches: int) -> list[np.ndarray]:
        """Positions of the rows of the next minibatches, (C, B) for each set."""
        chosen = []
        for i, (X, size) in enumerate(zip(self.rows.sets, self.rows.sizes, strict=True)):
            while len(self.left[i]) < n_batches * size:
                more = self.rng.permutation(X.shape[0])
                self.left[i] = np.concatenate([self.left[i], more])
            cut = n_batches * size
            chosen.append(self.left[i][:cut].reshape(n_batches, size))
            self.left[i] = self.left[i][cut:]
        return chosen
