"""Rows in a file of this machine: memory maps, and arrays of HDF5, Zarr and backed AnnData."""

import mmap
from collections.abc import Callable, Iterator
from functools import reduce
from typing import Any, TypeVar

import numpy as np

from contrastive_lvm.core.blocks import in_order, row_slices
from contrastive_lvm.core.scatter import WIDE_ROWS
from contrastive_lvm.core.types import Matrix
from contrastive_lvm.scale.kept import Spill, load, store
from contrastive_lvm.scale.source import BLOCK_ENTRIES, Checks, Source, filled, floats, precision

Result = TypeVar("Result")
MOST_ENTRIES = 1 << 24  # of a block that takes in whole chunks of a file
MOST_FEATURES_ASIDE = 1000  # beyond, the results of several blocks take much room


class StoredRows(Source):
    """Slices of whatever gives rows by slices.

    Of memory maps as many at a time as BLAS may have threads, so that pages are read side by side
    too; of other files, whose libraries read one at a time, BLAS has all threads for each.
    """

    def __init__(self, X: Any, checks: Checks) -> None:
        self.X, self.checks = X, checks
        self.shape = (int(X.shape[0]), int(X.shape[1]))
        self.dtype = np.dtype(precision(X.dtype))
        self.row_by_row = isinstance(X, np.memmap)
        self.slices = list(
            row_slices(*self.shape, elements=MOST_ENTRIES, most=_rows_a_block(X, self.shape))
        )

    def blocks(self) -> Iterator[Matrix]:
        """All rows in order."""
        for rows in self.slices:
            yield floats(self.X[rows])
            _forget(self.X, rows)

    def total(
        self, function: Callable[[Matrix], Result], plus: Callable[[Result, Result], Result]
    ) -> Result:
        """Block after block, added up in their order."""
        if not self.row_by_row or self.shape[1] > MOST_FEATURES_ASIDE:
            return reduce(plus, map(function, self.blocks()))

        def result(rows: slice) -> Result:
            found = function(floats(self.X[rows]))
            _forget(self.X, rows)
            return found

        return reduce(plus, in_order(result, self.slices))

    def renewed(
        self, function: Callable[[Matrix, Any], tuple[Result, Any]], plus: Any, kept: Spill | None
    ) -> tuple[Result, Spill]:
        """What is kept of a block is in a file of its own."""
        new = Spill()

        def step(i: int, block: Matrix) -> Result:
            result, renewed = function(block, load(kept, i))
            store(renewed, new, i)
            return result

        total: Result = reduce(plus, (step(i, block) for i, block in enumerate(self.blocks())))
        return total, new

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
