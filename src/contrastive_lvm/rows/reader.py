"""Readers of rows: one role for rows in memory, in files and in Dask arrays.

All work on rows is a sum over chunks, or one result per chunk. A reader takes its chunks wherever
they are (in this process, in threads, on the workers of a cluster), applies a function there, and
adds the results up in the order of the chunks, in double precision. Values that must be remembered
for every row from pass to pass stay with their chunk, in a cache. `LocalRows` are the rows of this
machine: in memory, in memory maps, in arrays of HDF5, Zarr and backed AnnData.
"""

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from functools import partial, reduce
from operator import add
from typing import Any, NamedTuple, Self, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from contrastive_lvm.arrays import Array, Matrix
from contrastive_lvm.exceptions import InvalidDataError
from contrastive_lvm.linalg.matrices import (
    column_sums,
    is_sparse,
    own_rows,
    release,
    row_slices,
    sparse_rows,
    stacked,
)
from contrastive_lvm.linalg.sparse_format import as_csr
from contrastive_lvm.rows.row_cache import Cache, DiskCache, MemoryCache
from contrastive_lvm.rows.threads import in_order

Result = TypeVar("Result")
Positions: TypeAlias = slice | np.ndarray  # some rows of a chunk
# Results for rows, or several, of which some may be None.
RowResults: TypeAlias = np.ndarray | tuple[np.ndarray | None, ...] | None
NUMBERS = "biuf"  # kinds of dtype that are real numbers
CHUNK_ENTRIES = 1 << 21  # of a chunk: as many as products want at a time
LEAST_ENTRIES = 1 << 17  # of a chunk: with less, starting a thread takes longer than its work
# Of a chunk for products of all features: 100,000 x 200 in sets of 10,000 take 63 ms in chunks of
# 2^17 entries, 41 ms in chunks of 2^20 and 40 ms as a whole (one thread, float32).
PRODUCT_ENTRIES = 1 << 20
ENTRIES_OF_FEATURE = 32  # of a chunk: with less, sums of (D, K) results take longer than products
SHARES = 16  # chunks of a set, within these limits, so that threads finish at about the same time
MOST_LOADED = 1 << 23  # entries of a set that is worked on as a whole, 64 MB in double precision
MOST_ENTRIES = 1 << 24  # of a chunk that takes in whole chunks of a file
MOST_FEATURES_SQUARED = 6000  # beyond, a (D, D) matrix takes more than 290 MB, and none is formed
MOST_FEATURES_IN_THREADS = 1000  # beyond, (D, D) results of several chunks take much memory


class Checks(NamedTuple):
    """Checks of the values of a chunk, and of the number of observed entries of each feature."""

    values: Callable[[Matrix], None]
    counts: Callable[[Array], None]

    def and_also(self, values: Callable[[Matrix], None]) -> "Checks":
        """Add another check of a chunk's values."""
        return self._replace(values=partial(_both, self.values, values))


def _both(first: Callable[[Matrix], None], second: Callable[[Matrix], None], rows: Matrix) -> None:
    first(rows)
    second(rows)


def _accept(_: object) -> None:
    """Accept everything."""


UNCHECKED = Checks(_accept, _accept)  # for rows that have been checked already


class Chunk(NamedTuple):
    """Consecutive rows of a set, without those of weight zero."""

    rows: Matrix
    weights: Array | None = None  # (B,) positive; None when every row counts once
    cached: Any = None  # values that an earlier pass kept for these rows
    covariates: Array | None = None  # (B, C)
    number: int = 0  # of the chunk among those of its set


def make_chunk(
    rows: Matrix,
    weights: Array | None = None,
    cached: Any = None,
    covariates: Array | None = None,
    number: int = 0,
) -> Chunk:
    """Return a chunk without its rows of weight zero."""
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
    # Whether other processes do the work, so that this one can submit several tasks at once.
    on_cluster: bool = False
    is_local: bool = True  # whether chunks are worked on in this process

    def cancel(self) -> None:  # noqa: B027
        """Cancel the work of other processes on these rows; by default there are none."""

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
        squares: bool = True,
    ) -> Result:
        """Sum a function of chunks in their order; chunks whose weights are all zero are skipped.

        Each chunk comes with the `weights` and `covariates` of its rows and its entry in the
        `cache`. `squares` says that results may be (D, D) matrices.
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
    def map(self, function: Callable[[Matrix, slice], RowResults]) -> Any:
        """Apply a function of a chunk and its place, and join the results to arrays of all rows.

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

    def for_products(self) -> Self:
        """Return the same rows in chunks as large as products with features want, if in memory."""
        return self

    def checked(self, values: Callable[[Matrix], None]) -> Self:
        """Add another check of the values."""
        other = copy.copy(self)
        other.checks = self.checks.and_also(values)
        return other

    def used_chunks(self, weights: Array | None) -> list[int]:
        """Return the numbers of the chunks that hold rows of positive weight."""
        chunks = range(len(self.slices))
        return [i for i in chunks if weights is None or weights[self.slices[i]].any()]


def _checked_rows(check: Callable[[Matrix], None], chunk: Chunk) -> list[Matrix]:
    check(chunk.rows)
    return [own_rows(chunk.rows)]


Rows: TypeAlias = Matrix | RowReader


class LocalRows(RowReader):
    """Rows of this machine: an array, or anything that gives rows by slices.

    Several threads work on chunks of rows in memory and of memory maps, and read pages in parallel.
    The libraries of other files read one chunk at a time, while threads work on the previous ones.
    """

    def __init__(self, X: Any, checks: Checks = UNCHECKED) -> None:
        self.X, self.checks = X, checks
        self.shape, self.dtype = (int(X.shape[0]), int(X.shape[1])), precision(X.dtype)
        is_map = isinstance(X, np.memmap)
        self.in_memory = is_sparse(X) or (isinstance(X, np.ndarray) and not is_map)
        self.random_access = self.in_memory or is_map
        self.is_dense = not is_sparse(X) and not hasattr(X, "format")
        entries = X.nnz // self.shape[0] + 1 if is_sparse(X) else self.shape[1]
        least = max(LEAST_ENTRIES, ENTRIES_OF_FEATURE * self.shape[1])
        share = min(max(self.shape[0] * entries // SHARES, least), CHUNK_ENTRIES)
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
            release(self.X, rows)

    def reduce(
        self,
        function: Callable[[Chunk], Result],
        plus: Callable[[Result, Result], Result],
        *,
        weights: Array | None = None,
        cache: Any = None,
        covariates: Array | None = None,
        squares: bool = True,
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
            release(self.X, self.slices[i])
            return result

        used = self.used_chunks(weights)
        if squares and MOST_FEATURES_IN_THREADS < self.shape[1] <= MOST_FEATURES_SQUARED:
            return reduce(plus, map(work, used))
        if self.random_access:
            return reduce(plus, in_order(work, used))
        return reduce(plus, in_order(function, map(chunk, used)))

    def for_products(self) -> Self:
        """Return rows of an array in chunks of `PRODUCT_ENTRIES` at least."""
        if not (self.in_memory and self.is_dense):
            return self
        n, D = self.shape
        least = -(-PRODUCT_ENTRIES // max(1, D))
        if least <= self.slices[0].stop:
            return self
        other = copy.copy(self)
        other.slices = list(row_slices(n, D, elements=MOST_ENTRIES, most=least))
        return other

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

    def map(self, function: Callable[[Matrix, slice], RowResults]) -> Any:
        """Apply a function to chunk after chunk."""
        pairs = zip(self.slices, self.read(), strict=True)
        return _filled(((rows, function(chunk, rows)) for rows, chunk in pairs), self.shape[0])

    def read_chunks(self, picks: dict[int, Positions]) -> list[Matrix]:
        """Read chunk after chunk."""
        found = []
        for i, at in picks.items():
            rows = self._read(self.slices[i])[at]
            found.append(own_rows(rows) if self.random_access else rows)  # not a view of the map
            release(self.X, self.slices[i])
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
            release(self.X, slice(0, self.shape[0]))  # pages may be much larger than rows
        return found

    def load(self) -> Matrix:
        """Return rows in memory as they are."""
        return self.X if self.in_memory else super().load()


def _filled(results: Iterator[tuple[slice, RowResults]], n_rows: int) -> RowResults:
    """Join results of chunks to arrays of all rows; a result of None stays None."""
    whole: list[np.ndarray | None] = []
    single = True
    for rows, result in results:
        parts = result if isinstance(result, tuple) else (result,)
        single = parts is not result
        whole = whole or [None] * len(parts)
        whole = [_with(w, part, rows, n_rows) for w, part in zip(whole, parts, strict=True)]
    return whole[0] if single else tuple(whole)


def _with(
    whole: np.ndarray | None, part: np.ndarray | None, rows: slice, n_rows: int
) -> np.ndarray | None:
    """Add some rows to an array; one row that is repeated for all rows is not copied."""
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


def is_dask(X: object) -> bool:
    """Tell whether rows are a Dask array."""
    return hasattr(X, "dask") and hasattr(X, "blocks") and hasattr(X, "to_delayed")


def is_file(X: object) -> bool:
    """Tell whether rows are a memory map, or an array of HDF5, Zarr or backed AnnData."""
    if isinstance(X, np.memmap):
        return True
    package = type(X).__module__.partition(".")[0]
    sliced = hasattr(X, "shape") and hasattr(X, "__getitem__") and not isinstance(X, np.ndarray)
    if package == "anndata":
        return sliced and hasattr(X, "format")  # a sparse matrix of a backed file
    return sliced and hasattr(X, "chunks") and not is_dask(X) and not is_sparse(X)


def is_out_of_core(X: object) -> bool:
    """Tell whether rows are not in memory, and must be read a chunk at a time."""
    return type(X) is not np.ndarray and (is_dask(X) or is_file(X))


def open_rows(X: Any, name: str, checks: Checks) -> RowReader:
    """Open rows in a file or in a Dask array; nothing is read yet."""
    from contrastive_lvm.rows.dask_rows import DaskRows

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


def precision(dtype: npt.DTypeLike) -> np.dtype[Any]:
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
