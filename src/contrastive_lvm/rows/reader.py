"""Readers of rows: one role for rows in memory, in files and in Dask arrays.

All work on rows is a sum over chunks, or one result per chunk. A reader takes its chunks wherever
they are (in this process, in threads, on the workers of a cluster), applies a function there, and
adds the results up in the order of the chunks, in double precision. Values that must be remembered
for every row from pass to pass stay with their chunk, in a cache.
"""

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from functools import partial
from operator import add
from typing import Any, NamedTuple, Self, TypeAlias, TypeVar

import numpy as np

from contrastive_lvm.arrays import Array, Matrix
from contrastive_lvm.exceptions import InvalidDataError
from contrastive_lvm.linalg.matrices import column_sums, is_sparse, own_rows, stacked
from contrastive_lvm.linalg.sparse_format import as_csr
from contrastive_lvm.rows.row_cache import Cache

Result = TypeVar("Result")
Positions: TypeAlias = slice | np.ndarray  # some rows of a chunk
NUMBERS = "biuf"  # kinds of dtype that are real numbers


class Checks(NamedTuple):
    """Checks that refuse values of a chunk, and features by their numbers of observed entries."""

    values: Callable[[Matrix], None]
    counts: Callable[[Array], None]

    def and_also(self, values: Callable[[Matrix], None]) -> "Checks":
        """Add another check of a chunk's values."""
        return self._replace(values=partial(_both, self.values, values))


def _both(first: Callable[[Matrix], None], second: Callable[[Matrix], None], rows: Matrix) -> None:
    first(rows)
    second(rows)


def _accept(_: Any) -> None:
    """Accept everything."""


UNCHECKED = Checks(_accept, _accept)  # for rows that have been checked already


class Chunk(NamedTuple):
    """Consecutive rows of a set, without those of weight zero."""

    rows: Matrix
    weights: Array | None = None  # (B,) positive; None when every row counts once
    cached: Any = None  # what an earlier pass kept of these rows
    covariates: Array | None = None  # (B, C)
    number: int = 0  # of the chunk among those of its set


def make_chunk(
    rows: Matrix,
    weights: Array | None = None,
    cached: Any = None,
    covariates: Array | None = None,
    number: int = 0,
) -> Chunk:
    """Leave out the rows of weight zero."""
    if weights is None or weights.all():
        return Chunk(rows, weights, cached, covariates, number)
    kept = np.flatnonzero(weights)
    known = None if covariates is None else covariates[kept]
    return Chunk(rows[kept], weights[kept], cached, known, number)


class RowReader(ABC):
    """The rows of one set, a chunk at a time."""

    shape: tuple[int, int]
    dtype: np.dtype[Any]
    checks: Checks
    slices: list[slice]  # rows of each chunk
    random_access: bool = False  # whether single rows cost no more than rows of a chunk
    in_memory: bool = False
    is_dense: bool = False  # whether chunks are known to be arrays, not sparse matrices
    # Whether other processes do the work, so that this one may ask for more meanwhile.
    on_cluster: bool = False
    is_local: bool = True  # whether chunks are worked on in this process

    def cancel(self) -> None:  # noqa: B027
        """End what other processes do for these rows; there are none unless a reader says so."""

    @abstractmethod
    def read(self) -> Iterator[Matrix]:
        """Read all chunks in order, in this process."""

    @abstractmethod
    def reduce(
        self,
        function: Callable[[Chunk], Result],
        plus: Callable[[Result, Result], Result],
        *,
        weights: Array | None = None,
        cache: Cache | None = None,
        covariates: Array | None = None,
    ) -> Result:
        """Sum a function of chunks in their order; chunks whose weights are all zero have no part.

        A chunk has its rows' `weights` and `covariates`, and what the `cache` holds of it.
        """

    @abstractmethod
    def renew(
        self,
        function: Callable[[Chunk], tuple[Result, Any]],
        plus: Callable[[Result, Result], Result],
        *,
        weights: Array | None = None,
        cache: Cache | None = None,
        covariates: Array | None = None,
    ) -> tuple[Result, Cache]:
        """Sum the first results of a function, and put the second ones into a new cache."""

    @abstractmethod
    def map(self, function: Callable[[Matrix, slice], Any]) -> Any:
        """Apply a function of a chunk and its place; an array, or a tuple of arrays, of all rows.

        The results of a Dask array are Dask arrays.
        """

    @abstractmethod
    def read_chunks(self, picks: dict[int, Positions]) -> list[Matrix]:
        """Read some chunks by their numbers, and of each the rows at a slice or at positions."""

    def take(self, positions: np.ndarray) -> Matrix:
        """Read rows by their positions; only chunks that hold some of them are read."""
        order = np.argsort(positions, kind="stable")
        at, picks = positions[order], {}
        ends = np.searchsorted(at, [chunk.stop for chunk in self.slices])
        for i, (begin, end) in enumerate(zip([0, *ends[:-1]], ends, strict=True)):
            if end > begin:
                picks[i] = at[begin:end] - self.slices[i].start
        back = np.empty_like(order)
        back[order] = np.arange(len(order))
        return stacked(self.read_chunks(picks))[back]

    def load(self) -> Matrix:
        """Read all rows into memory, checked."""
        parts: list[Matrix] = self.reduce(partial(_checked_rows, self.checks.values), add)
        whole = stacked(parts)
        self.checks.counts(column_sums(whole)[1])
        return whole

    def checked(self, values: Callable[[Matrix], None]) -> Self:
        """Add another check of the values."""
        other = copy.copy(self)
        other.checks = self.checks.and_also(values)
        return other

    def used_chunks(self, weights: Array | None) -> list[int]:
        """Numbers of the chunks that hold rows of positive weight."""
        chunks = range(len(self.slices))
        return [i for i in chunks if weights is None or weights[self.slices[i]].any()]


def _checked_rows(check: Callable[[Matrix], None], chunk: Chunk) -> list[Matrix]:
    check(chunk.rows)
    return [own_rows(chunk.rows)]


Rows: TypeAlias = Matrix | RowReader


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
    """Whether rows are not in memory, and are to be read a chunk at a time."""
    return type(X) is not np.ndarray and (is_dask(X) or is_file(X))


def open_rows(X: Any, name: str, checks: Checks) -> RowReader:
    """Open rows in a file or in a Dask array; nothing is read yet."""
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


def precision(dtype: Any) -> np.dtype[Any]:
    """Keep single precision; everything else becomes double."""
    return np.dtype(np.float32 if np.dtype(dtype) == np.float32 else np.float64)


def floats(rows: Any, name: str = "a chunk of rows") -> Matrix:
    """Convert a chunk to an array or a CSR matrix of floats; masked entries become NaN."""
    if is_sparse(rows):
        return as_csr(rows, name)
    dense = rows if isinstance(rows, np.ma.MaskedArray) else np.asarray(rows)
    if dense.dtype.kind not in NUMBERS:
        reason = f"has entries of dtype {dense.dtype} in place of real numbers; convert them."
        raise InvalidDataError(name, reason)
    wide = dense.astype(precision(dense.dtype), copy=False)
    return np.ma.filled(wide, np.nan)
