"""Rows for gradient steps: all of them, or minibatches that go through all sets evenly."""

from collections.abc import Hashable, Sequence
from typing import NamedTuple

import numpy as np

from contrastive_lvm._jax import CHUNK_BYTES, AnyArray
from contrastive_lvm.arrays import Array, Matrix
from contrastive_lvm.black_box.devices import Placement
from contrastive_lvm.linalg.matrices import densify
from contrastive_lvm.rows.minibatches import shuffled, taken
from contrastive_lvm.rows.reader import Rows

WHOLE = 1 << 18  # entries up to which batch_size="auto" uses all rows at every step
LEAST_BATCH = 32  # rows of a minibatch that "auto" chooses


class SviBatch(NamedTuple):
    """Rows of all sets, or minibatches of them, one after another, (C, B, D)."""

    rows: tuple[AnyArray, ...]  # (B, D) of each set
    log_sizes: tuple[AnyArray, ...]  # (B,)
    places: tuple[AnyArray | None, ...]  # (B,) positions in their sets; None for all rows
    repeats: tuple[AnyArray | float, ...]  # how many rows each row stands for

    @property
    def stacked(self) -> "SviBatch | None":
        """Return minibatches to go through one after another; None if this is all rows."""
        return None if self.places[0] is None else self


class SviRows:
    """Rows of all sets in one precision, in memory or out of core, in an endless shuffled order.

    Every row is taken once before any row again. Sparse rows are made dense, and rows out of core
    are read, a few minibatches at a time. Each device gets as many rows of a minibatch as any
    other; all rows at once stay on one.
    """

    def __init__(
        self,
        sets: Sequence[Rows],
        log_sizes: Sequence[Array],
        batch_size: int | str | None,
        rng: np.random.Generator,
        devices: Placement | None = None,
    ) -> None:
        self.sets, self.log_sizes = sets, log_sizes
        self.dtype = np.dtype(
            np.float32 if all(X.dtype == np.float32 for X in sets) else np.float64
        )
        self.n_rows: list[int] = [X.shape[0] for X in sets]
        total, self.n_features = sum(self.n_rows), int(sets[0].shape[1])
        if batch_size == "auto":
            few = total * self.n_features <= WHOLE
            batch_size = None if few else max(LEAST_BATCH, WHOLE // 2 // self.n_features)
        n_batch = total if batch_size is None else int(batch_size)
        self.whole = n_batch >= total
        self.devices = None if self.whole or devices is None or devices.n_devices == 1 else devices
        parts = 1 if self.devices is None else self.devices.n_devices
        share = min(1.0, n_batch / total)
        self.sizes: list[int] = [max(1, round(share * n / parts)) * parts for n in self.n_rows]
        self._streams = [shuffled(X, rng) for X in sets]
        self._everything = None
        if self.whole:
            rows = (self._dense(taken(X, np.arange(X.shape[0]))) for X in sets)
            factors = (s.astype(self.dtype) for s in log_sizes)
            n = len(sets)
            self._everything = SviBatch(tuple(rows), tuple(factors), (None,) * n, (1.0,) * n)

    @property
    def shapes(self) -> Hashable:
        """Return what compiled functions depend on: rows of sets and batches, and precision."""
        parts = 1 if self.devices is None else self.devices.n_devices
        return (*self.n_rows, *self.sizes, parts, self.dtype.name)

    @property
    def batches_per_chunk(self) -> int:
        """Return how many minibatches are made ready at a time."""
        size = sum(self.sizes) * self.n_features * self.dtype.itemsize
        return max(1, CHUNK_BYTES // max(1, size))

    @property
    def batches_per_epoch(self) -> int:
        """Return the number of minibatches after which every row was seen."""
        return max(n // size for n, size in zip(self.n_rows, self.sizes, strict=True))

    def next(self, n_batches: int) -> SviBatch:
        """Return all rows, or the next minibatches: rows (C, B, D) of each set, and so on."""
        if self._everything is not None:
            return self._everything
        rows, sizes, places, repeats = [], [], [], []
        for stream, s, size, n in zip(
            self._streams, self.log_sizes, self.sizes, self.n_rows, strict=True
        ):
            at, found = stream.next(n_batches * size)
            shape = (n_batches, size)
            rows.append(self._dense(found).reshape(*shape, self.n_features))
            sizes.append(s[at].astype(self.dtype).reshape(shape))
            places.append(at.reshape(shape))
            repeats.append(np.full(n_batches, n / size, dtype=self.dtype))
        batches = SviBatch(tuple(rows), tuple(sizes), tuple(places), tuple(repeats))
        if self.devices is None:
            return batches
        parts = self.devices.put(batches[:3], None, "rows")
        return SviBatch(*parts, self.devices.put(batches.repeats))

    def _dense(self, rows: Matrix) -> Array:
        """Return rows as an array in the precision of the fit."""
        return np.ascontiguousarray(densify(rows), dtype=self.dtype)
