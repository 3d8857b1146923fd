"""Rows that are somewhere else: the role, and what is recognised as such.

All work on rows is a sum over blocks, or one result a block. A source reads its blocks wherever
they are (in this process, in threads, on the workers of a cluster), applies a function of one block
there, and adds the results up in the blocks' order, so that no answer depends on scheduling. What
has to be remembered of every row stays with its block.
"""

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple, Self, TypeVar

import numpy as np

from contrastive_lvm.arrays import Array, Matrix
from contrastive_lvm.linalg.matrices import is_sparse, stacked

Result = TypeVar("Result")
BLOCK_ENTRIES = 1 << 21  # of a block read from a file: as many as products want at a time
NUMBERS = "biuf"  # kinds of dtype that are real numbers


class Checks(NamedTuple):
    """What is refused: values of a block, and columns by their numbers of observed entries."""

    values: Callable[[Matrix], None]
    counts: Callable[[Array], None]

    def and_also(self, values: Callable[[Matrix], None]) -> "Checks":
        """With another check of a block's values."""
        return self._replace(values=partial(_both, self.values, values))


def _both(first: Callable[[Matrix], None], second: Callable[[Matrix], None], block: Matrix) -> None:
    first(block)
    second(block)


def _accept(_: Any) -> None:
    """No check."""


UNCHECKED = Checks(_accept, _accept)  # for rows that have been checked, or are by who reads them


class RowReader(ABC):
    """Rows of one set, blocks at a time."""

    shape: tuple[int, int]
    dtype: np.dtype[Any]
    checks: Checks
    slices: list[slice]  # rows of each block
    row_by_row: bool = False  # whether single rows cost no more than rows of a block

    @property
    def on_cluster(self) -> bool:
        """Whether others do the work, so that this process may ask them for more meanwhile."""
        return False

    @abstractmethod
    def blocks(self) -> Iterator[Matrix]:
        """All rows in order, in this process."""

    @abstractmethod
    def total(
        self,
        function: Callable[..., Result],
        plus: Callable[[Result, Result], Result],
        *,
        cell: int | None = None,
        kept: Any = None,
    ) -> Result:
        """The sum of a function of blocks, in their order.

        With `cell`, of a function of so many rows at a time, added up as in `core.sums`: the same
        to the last digit for all blocks. What is `kept` of a cell is then the function's second
        argument.
        """

    @abstractmethod
    def renewed(
        self,
        function: Callable[[Matrix, Any], tuple[Result, Any]],
        plus: Callable[[Result, Result], Result],
        *,
        cell: int,
        kept: Any = None,
    ) -> tuple[Result, Any]:
        """The same for a function that also renews what is kept of a cell; None to begin with."""

    @abstractmethod
    def mapped(self, function: Callable[[Matrix, slice], Any]) -> Any:
        """An array, or a tuple of arrays, with the results of blocks and their rows in order."""

    @abstractmethod
    def picked(self, picks: dict[int, Any]) -> list[Matrix]:
        """Some blocks by their numbers, and of each of them rows by a slice or positions."""

    def take(self, positions: np.ndarray) -> Matrix:
        """Rows by their positions, in memory; only blocks that have some of them are read."""
        order = np.argsort(positions, kind="stable")
        at, picks = positions[order], {}
        ends = np.searchsorted(at, [block.stop for block in self.slices])
        for i, (begin, end) in enumerate(zip([0, *ends[:-1]], ends, strict=True)):
            if end > begin:
                picks[i] = at[begin:end] - self.slices[i].start
        back = np.empty_like(order)
        back[order] = np.arange(len(order))
        return stacked(self.picked(picks))[back]

    def checked(self, values: Callable[[Matrix], None]) -> Self:
        """The same rows with another check of their values."""
        other = copy.copy(self)
        other.checks = self.checks.and_also(values)
        return other


def is_dask(X: Any) -> bool:
    """Whether rows are a Dask array."""
    return hasattr(X, "dask") and hasattr(X, "blocks") and hasattr(X, "to_delayed")


def is_file(X: Any) -> bool:
    """Whether rows are in a file: a memory map, or an array of HDF5, Zarr or backed AnnData."""
    if isinstance(X, np.memmap):
        return True
    package = type(X).__module__.partition(".")[0]
    sliced = hasattr(X, "shape") and hasattr(X, "__getitem__") and not isinstance(X, np.ndarray)
    if package == "anndata":
        return sliced and hasattr(X, "format")  # a sparse matrix of a backed file
    return sliced and hasattr(X, "chunks") and not is_dask(X) and not is_sparse(X)


def is_out_of_core(X: Any) -> bool:
    """Whether rows are to be read a block at a time."""
    return is_dask(X) or is_file(X)


def open_rows(X: Any, name: str, checks: Checks) -> RowReader:
    """Rows that are elsewhere; nothing is read yet."""
    from contrastive_lvm.rows.dask_rows import DaskRows
    from contrastive_lvm.rows.file_rows import LocalRows

    _refuse(X, name)
    return DaskRows(X, name, checks) if is_dask(X) else LocalRows(X, checks)


def _refuse(X: Any, name: str) -> None:
    if len(X.shape) != 2:
        raise ValueError(
            f"{name} has shape {tuple(X.shape)}, but needs two dimensions, rows and features; "
            "reshape it."
        )
    if 0 in X.shape:
        raise ValueError(f"{name} has shape {tuple(X.shape)}, without any entry; give it rows.")
    if np.dtype(X.dtype).kind not in NUMBERS:
        raise ValueError(
            f"{name} has dtype {X.dtype}, which is not of real numbers; convert it to float."
        )
    if getattr(X, "format", "csr") != "csr":
        raise ValueError(
            f"{name} is stored by columns (format {X.format!r}), but is read by rows; "
            "write it as CSR, or load it into memory."
        )


def precision(dtype: Any) -> Any:
    """Single precision is kept, all else becomes double."""
    return np.float32 if np.dtype(dtype) == np.float32 else np.float64


def floats(rows: Any) -> Matrix:
    """A block as an array or CSR matrix of floating-point numbers."""
    if is_sparse(rows):
        return rows.tocsr().astype(precision(rows.dtype), copy=False)
    dense = np.asarray(rows)
    return dense.astype(precision(dense.dtype), copy=False)


def row_major(rows: Any) -> Matrix:
    """As `floats`, and in the one order of entries for which all sums are alike."""
    found = floats(rows)
    return found if is_sparse(found) else np.ascontiguousarray(found)


def filled(results: Iterator[tuple[slice, Any]], n_rows: int) -> Any:
    """Arrays of all rows from results of blocks; what is None stays None."""
    whole: list[Any] = []
    single = True
    for rows, result in results:
        single = not isinstance(result, tuple)
        parts = (result,) if single else result
        whole = whole or [None] * len(parts)
        whole = [_with(w, part, rows, n_rows) for w, part in zip(whole, parts, strict=True)]
    return whole[0] if single else tuple(whole)


def _with(whole: Any, part: Any, rows: slice, n_rows: int) -> Any:
    """An array with some more rows; one row that is repeated for all is not copied."""
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
