"""Rows of this machine: in memory, in memory maps, in arrays of HDF5, Zarr and backed AnnData."""

import mmap
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import partial, reduce
from itertools import count
from threading import get_ident
from typing import Any, TypeVar

import numpy as np

from contrastive_lvm.arrays import Matrix
from contrastive_lvm.linalg.matrices import is_sparse, row_slices, stacked
from contrastive_lvm.linalg.scratch import reused
from contrastive_lvm.rows import sums
from contrastive_lvm.rows.reader import (
    BLOCK_ENTRIES,
    Checks,
    RowReader,
    filled,
    floats,
    precision,
    row_major,
)
from contrastive_lvm.rows.row_cache import DiskCache, MemoryCache
from contrastive_lvm.rows.scatter import WIDE_ROWS
from contrastive_lvm.rows.threads import in_order, one_thread_each

Result = TypeVar("Result")
MOST_ENTRIES = 1 << 24  # of a block that takes in whole chunks of a file
CELL_ENTRIES = 1 << 23  # of cells that a thread works on before it hands over their sums
SHARES = 16  # of the rows, at least, that threads work on one by one
MOST_FEATURES_ASIDE = 1000  # beyond, the results of several blocks take much room


class LocalRows(RowReader):
    """Slices of whatever gives rows by slices.

    Of rows in memory and of memory maps as many at a time as BLAS may have threads, so that pages
    are read side by side too; of other files, whose libraries read one at a time, a block is read
    while cells of the one before are worked on.
    """

    def __init__(self, X: Any, checks: Checks) -> None:
        self.X, self.checks = X, checks
        self.shape = (int(X.shape[0]), int(X.shape[1]))
        self.dtype = np.dtype(precision(X.dtype))
        mapped = isinstance(X, np.memmap)
        self.in_memory = is_sparse(X) or (isinstance(X, np.ndarray) and not mapped)
        self.row_by_row = self.in_memory or mapped
        self.slices = list(
            row_slices(*self.shape, elements=MOST_ENTRIES, most=_rows_a_block(X, self.shape))
        )

    def blocks(self) -> Iterator[Matrix]:
        """All rows in order."""
        for rows in self.slices:
            yield floats(self.X[rows])
            _forget(self.X, rows)

    def total(
        self,
        function: Callable[..., Result],
        plus: Callable[[Result, Result], Result],
        *,
        cell: int | None = None,
        kept: Any = None,
    ) -> Result:
        """Block after block; cells side by side."""
        if cell is None:
            return reduce(plus, self._by_blocks(function))

        def step(i: int, rows: Matrix) -> Result:
            return function(rows) if kept is None else function(rows, kept.load(i))

        return self._by_cells(step, plus, cell)

    def renewed(
        self,
        function: Callable[[Matrix, Any], tuple[Result, Any]],
        plus: Callable[[Result, Result], Result],
        *,
        cell: int,
        kept: Any = None,
    ) -> tuple[Result, Any]:
        """In memory what is kept is there too, otherwise in files."""
        new = MemoryCache() if self.in_memory else DiskCache()

        def step(i: int, rows: Matrix) -> Result:
            result, renewed = function(rows, None if kept is None else kept.load(i))
            new.store(i, renewed)
            return result

        return self._by_cells(step, plus, cell), new

    def _by_blocks(self, function: Callable[[Matrix], Result]) -> Iterator[Result]:
        if not self.row_by_row or self.shape[1] > MOST_FEATURES_ASIDE:
            return map(function, self.blocks())

        def result(rows: slice) -> Result:
            found = function(floats(self.X[rows]))
            _forget(self.X, rows)
            return found

        return in_order(result, self.slices)

    def _by_cells(self, step: Callable[[int, Matrix], Result], plus: Any, cell: int) -> Result:
        """A few cells at a time by one thread, so that threads seldom wait for each other."""
        entries = CELL_ENTRIES if self.row_by_row else BLOCK_ENTRIES // 2
        wanted = min(entries // self.shape[1], self.shape[0] // SHARES)
        most = max(cell, wanted // cell * cell)
        rooms: defaultdict[int, dict[Any, Any]] = defaultdict(dict)  # of each thread

        def of_rows(numbered: tuple[int, Any]) -> list[Any]:
            i, given = numbered
            first = i * (most // cell)
            rows = self.X[given] if isinstance(given, slice) else given
            rows = rows if is_sparse(rows) else np.asarray(rows)  # slices of maps are slow to make
            parts = (row_major(rows[at]) for at in row_slices(rows.shape[0], 1, most=cell))
            with reused(rooms[get_ident()]):
                found = sums.branches(plus, map(step, count(first), parts), first)
            if isinstance(given, slice):
                _forget(self.X, given)
            return found

        given = row_slices(self.shape[0], 1, most=most) if self.row_by_row else self._read(most)
        found = one_thread_each(of_rows, enumerate(given))
        total: Result = sums.whole(plus, reduce(partial(sums.joined, plus), found))
        return total

    def _read(self, most: int) -> Iterator[Matrix]:
        """So many rows at a time; some of them may be at the end of one block, some in the next."""
        begun: list[Matrix] = []
        for block in self.blocks():
            n, lacking = block.shape[0], -sum(part.shape[0] for part in begun) % most
            if n < lacking:
                begun.append(block)
                continue
            if begun:
                yield stacked([*begun, block[:lacking]])
            end = lacking + (n - lacking) // most * most
            for start in range(lacking, end, most):
                yield block[start : start + most]
            begun = [block[end:]] if end < n else []
        if begun:
            yield stacked(begun)

    def mapped(self, function: Callable[[Matrix, slice], Any]) -> Any:
        """In memory."""
        results = (
            (rows, function(block, rows))
            for rows, block in zip(self.slices, self.blocks(), strict=True)
        )
        return filled(results, self.shape[0])

    def picked(self, picks: dict[int, Any]) -> list[Matrix]:
        """Block after block."""
        found = []
        for i, at in picks.items():
            rows = floats(self.X[self.slices[i]])[at]
            found.append(np.array(rows) if self.row_by_row else rows)  # not a view of the map
            _forget(self.X, self.slices[i])
        return found

    def take(self, positions: np.ndarray) -> Matrix:
        """Of a memory map the rows alone are read, from front to back."""
        if not self.row_by_row:
            return super().take(positions)
        order = np.argsort(positions, kind="stable")
        found = np.empty((len(positions), self.shape[1]), self.dtype)
        for some in row_slices(*found.shape):
            found[order[some]] = self.X[positions[order[some]]]
            _forget(self.X, slice(0, self.shape[0]))  # pages, of which a row may be a small part
        return found


def _rows_a_block(X: Any, shape: tuple[int, int]) -> int:
    """Whole chunks of the file, or as many rows as sums in memory take at a time."""
    wanted = max(1, BLOCK_ENTRIES // max(1, shape[1]))
    chunks = getattr(X, "chunks", None)
    unit = int(chunks[0]) if chunks else min(WIDE_ROWS, wanted)
    return max(unit, wanted // unit * unit)


def _forget(X: Any, rows: slice) -> None:
    """Give back the pages of rows of a memory map, which count as this process's memory.

    They stay in the system's cache. Pages of a map that is private to the process
    (`mode="c"`) may hold changes, and are kept.
    """
    pages = getattr(X, "_mmap", None)
    if pages is None or getattr(X, "mode", "c") == "c" or not hasattr(mmap, "MADV_DONTNEED"):
        return
    if not X.flags.c_contiguous:  # rows are spread over all pages
        pages.madvise(mmap.MADV_DONTNEED)
        return
    begin = X[rows].ctypes.data - np.frombuffer(pages, np.uint8).ctypes.data
    first = begin // mmap.PAGESIZE * mmap.PAGESIZE
    end = begin + X.strides[0] * (rows.stop - rows.start)
    pages.madvise(mmap.MADV_DONTNEED, first, end - first)
