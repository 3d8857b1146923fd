"""Rows of this machine: in memory, in memory maps, in arrays of HDF5, Zarr and backed AnnData."""

import mmap
from collections.abc import Callable, Iterator
from functools import reduce
from typing import Any, TypeVar

import numpy as np

from contrastive_lvm.arrays import Array, Matrix
from contrastive_lvm.linalg.matrices import is_sparse, own_rows, row_slices, sparse_rows
from contrastive_lvm.rows.reader import (
    UNCHECKED,
    Checks,
    Chunk,
    Positions,
    RowReader,
    floats,
    make_chunk,
    precision,
)
from contrastive_lvm.rows.row_cache import Cache, DiskCache, MemoryCache
from contrastive_lvm.rows.threads import in_order

Result = TypeVar("Result")
CHUNK_ENTRIES = 1 << 21  # of a chunk: as many as products want at a time
LEAST_ENTRIES = 1 << 17  # of a chunk: less work is done before a thread has begun with it
SHARES = 16  # chunks that a set is cut into, between these limits, so that threads finish together
MOST_ENTRIES = 1 << 24  # of a chunk that takes in whole chunks of a file
MOST_FEATURES_IN_THREADS = 1000  # beyond, (D, D) results of several chunks take much memory


class LocalRows(RowReader):
    """Slices of anything that gives rows by slices.

    Chunks of rows in memory and of memory maps are worked on by several threads, which read pages
    side by side too. The libraries of other files read one chunk at a time, while threads work on
    the chunks before.
    """

    def __init__(self, X: Any, checks: Checks = UNCHECKED) -> None:
        self.X, self.checks = X, checks
        self.shape = (int(X.shape[0]), int(X.shape[1]))
        self.dtype = precision(X.dtype)
        is_map = isinstance(X, np.memmap)
        self.in_memory = is_sparse(X) or (isinstance(X, np.ndarray) and not is_map)
        self.random_access = self.in_memory or is_map
        self.is_dense = not is_sparse(X) and not hasattr(X, "format")
        entries = X.nnz // self.shape[0] + 1 if is_sparse(X) else self.shape[1]
        share = min(max(self.shape[0] * entries // SHARES, LEAST_ENTRIES), CHUNK_ENTRIES)
        stored = getattr(X, "chunks", None)
        unit = int(stored[0]) if stored else 1  # whole chunks of the file
        size = max(unit, max(1, share // max(1, entries)) // unit * unit)
        self.slices = list(row_slices(self.shape[0], entries, elements=MOST_ENTRIES, most=size))

    def _read(self, rows: slice) -> Matrix:
        return sparse_rows(self.X, rows) if is_sparse(self.X) else floats(self.X[rows])

    def read(self) -> Iterator[Matrix]:
        """Read all chunks in order."""
        for rows in self.slices:
            yield self._read(rows)
            _release(self.X, rows)

    def reduce(
        self,
        function: Callable[[Chunk], Result],
        plus: Callable[[Result, Result], Result],
        *,
        weights: Array | None = None,
        cache: Any = None,
        covariates: Array | None = None,
    ) -> Result:
        """Sum a function of chunks, by threads."""
        if self.in_memory and len(self.slices) == 1:  # nothing to read, and nothing to sum
            kept = None if cache is None else cache.load(0)
            return function(make_chunk(self.X, weights, kept, covariates))

        def chunk(i: int) -> Chunk:
            at, kept = self.slices[i], None if cache is None else cache.load(i)
            own, known = (None if v is None else v[at] for v in (weights, covariates))
            return make_chunk(self._read(at), own, kept, known, i)

        def work(i: int) -> Result:
            result = function(chunk(i))
            _release(self.X, self.slices[i])
            return result

        used = self.used_chunks(weights)
        if self.shape[1] > MOST_FEATURES_IN_THREADS:
            return reduce(plus, map(work, used))
        if self.random_access:
            return reduce(plus, in_order(work, used))
        return reduce(plus, in_order(function, map(chunk, used)))

    def renew(
        self,
        function: Callable[[Chunk], tuple[Result, Any]],
        plus: Callable[[Result, Result], Result],
        *,
        weights: Array | None = None,
        cache: Cache | None = None,
        covariates: Array | None = None,
    ) -> tuple[Result, Cache]:
        """Sum results; the new cache is in memory if the rows are, otherwise in files."""
        new = MemoryCache() if self.in_memory else DiskCache()

        def run(chunk: Chunk) -> Result:
            result, kept = function(chunk)
            new.store(chunk.number, kept)
            return result

        return self.reduce(run, plus, weights=weights, cache=cache, covariates=covariates), new

    def map(self, function: Callable[[Matrix, slice], Any]) -> Any:
        """Apply a function to chunk after chunk."""
        pairs = zip(self.slices, self.read(), strict=True)
        return _filled(((rows, function(chunk, rows)) for rows, chunk in pairs), self.shape[0])

    def read_chunks(self, picks: dict[int, Positions]) -> list[Matrix]:
        """Read chunk after chunk."""
        found = []
        for i, at in picks.items():
            rows = self._read(self.slices[i])[at]
            found.append(own_rows(rows) if self.random_access else rows)  # not a view of the map
            _release(self.X, self.slices[i])
        return found

    def take(self, positions: np.ndarray) -> Matrix:
        """Read the rows of memory and memory maps alone, from front to back."""
        if not self.random_access:
            return super().take(positions)
        if is_sparse(self.X):
            return self.X[positions]
        order = np.argsort(positions, kind="stable")
        found = np.empty((len(positions), self.shape[1]), self.dtype)
        for some in row_slices(*found.shape):
            found[order[some]] = self.X[positions[order[some]]]
            _release(self.X, slice(0, self.shape[0]))  # pages, of which a row may be a small part
        return found

    def load(self) -> Matrix:
        """Return rows in memory as they are."""
        return self.X if self.in_memory else super().load()


def _filled(results: Iterator[tuple[slice, Any]], n_rows: int) -> Any:
    """Join results of chunks to arrays of all rows; a result of None stays None."""
    whole: list[Any] = []
    single = True
    for rows, result in results:
        single = not isinstance(result, tuple)
        parts = (result,) if single else result
        whole = whole or [None] * len(parts)
        whole = [_with(w, part, rows, n_rows) for w, part in zip(whole, parts, strict=True)]
    return whole[0] if single else tuple(whole)


def _with(whole: Any, part: Any, rows: slice, n_rows: int) -> Any:
    """Add some rows to an array; one row that is repeated for all is not copied."""
    if part is None:
        return None
    same = part.strides[0] == 0 and (whole is None or whole.strides[0] == 0)
    if same and (whole is None or np.array_equal(whole[0], part[0])):
        return np.broadcast_to(part[0], (n_rows, *part.shape[1:]))
    if whole is None or whole.strides[0] == 0:
        full = np.empty((n_rows, *part.shape[1:]), part.dtype)
        full[: rows.start] = 0 if whole is None else whole[0]
        whole = full
    whole[rows] = part
    return whole


def _release(X: Any, rows: slice) -> None:
    """Give back the pages of rows of a memory map, which count as this process's memory.

    They stay in the system's cache. Pages of a map that is private to the process
    (`mode="c"`) may hold changes, and are kept.
    """
    if getattr(X, "mode", "c") == "c" or not hasattr(mmap, "MADV_DONTNEED"):
        return
    pages = X
    while isinstance(pages, np.ndarray):
        pages = pages.base
    if not isinstance(pages, mmap.mmap):
        return
    if not X.flags.c_contiguous:  # rows are spread over all pages
        pages.madvise(mmap.MADV_DONTNEED)
        return
    begin = X[rows].ctypes.data - np.frombuffer(pages, np.uint8).ctypes.data
    first = begin // mmap.PAGESIZE * mmap.PAGESIZE
    end = begin + X.strides[0] * (rows.stop - rows.start)
    pages.madvise(mmap.MADV_DONTNEED, first, end - first)
