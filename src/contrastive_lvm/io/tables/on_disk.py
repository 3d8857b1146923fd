"""Numbers of large files, which stay on disk as memory maps.

A map is an array whose parts the system reads when they are used, and may forget again. Files of
NumPy are mapped where they are. What is made of them (chosen rows, scaled values) and the numbers
of other formats go to unnamed files under `TMPDIR`, which end with the process.
"""

import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from contrastive_lvm.arrays import Dense, Matrix
from contrastive_lvm.linalg.matrices import blocks, release, row_slices

if TYPE_CHECKING:
    from typing_extensions import TypeIs

MOST_ENTRIES = 1 << 22  # of rows on disk that describe all of them
LARGE = 1 << 27  # bytes of numbers from which they stay on disk; fewer are faster in memory


def is_on_disk(values: object) -> "TypeIs[np.memmap[Any, Any]]":
    """Tell whether numbers are a memory map."""
    return isinstance(values, np.memmap)


def empty_map(shape: tuple[int, int], dtype: npt.DTypeLike) -> Dense:
    """Return a map for numbers of this shape, whose space on the disk is reserved."""
    size = shape[0] * shape[1] * np.dtype(dtype).itemsize
    folder = tempfile.gettempdir()
    if shutil.disk_usage(folder).free < size:  # a disk that is full later would end the process
        raise OSError(
            f"the folder {folder} has no room for {size / 1e9:.1f} GB of rows; set TMPDIR to a "
            "folder on a larger disk."
        )
    with tempfile.TemporaryFile(prefix="clvm-") as file:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(file.fileno(), 0, size)
        return np.memmap(file, dtype=dtype, mode="w+", shape=shape)


def filled(shape: tuple[int, int], dtype: npt.DTypeLike, parts: Iterable[Dense]) -> Dense:
    """Return a map of consecutive blocks of rows."""
    found, start = empty_map(shape, dtype), 0
    for part in parts:
        rows = slice(start, start + len(part))
        found[rows] = part
        release(found, rows)
        start = rows.stop
    return found


def converted(values: Dense, dtype: npt.DTypeLike) -> Dense:
    """Return numbers in this type, copied if they have another, on disk if they are there."""
    if not is_on_disk(values) or values.dtype == dtype:
        return values.astype(dtype, copy=False)
    return filled(values.shape, dtype, (block for _, block in blocks(values)))


def writable(values: Dense) -> Dense:
    """Return numbers that may be changed: a copy of those of a file."""
    if not is_on_disk(values) or values.flags.writeable:
        return values
    return filled(values.shape, values.dtype, (block for _, block in blocks(values)))


def chosen(values: Matrix, rows: np.ndarray | None = None, columns: Any = None) -> Matrix:
    """Return some rows (a mask or positions in order) or columns, copied, on disk if all are.

    >>> chosen(np.arange(4.0).reshape(2, 2), np.array([False, True]), [1])
    array([[3.]])
    """
    if not is_on_disk(values):
        found = values if rows is None else values[rows]
        return found if columns is None else found[:, columns]
    at = np.arange(len(values)) if rows is None else np.arange(len(values))[rows]
    every = slice(None) if columns is None else columns
    width = values.shape[1] if columns is None else np.arange(values.shape[1])[columns].size
    return filled((len(at), width), values.dtype, _parts(values, at, every))


def _parts(values: Dense, at: np.ndarray, columns: Any) -> Iterator[Dense]:
    for some in row_slices(len(at), values.shape[1]):
        own = at[some]
        yield values[own][:, columns]
        release(values, slice(int(own.min()), int(own.max()) + 1))


def columns_of(values: Matrix, columns: Any) -> Matrix:
    """Return some columns, in memory."""
    if not is_on_disk(values):
        return values[:, columns]
    return np.concatenate([np.array(block[:, columns]) for _, block in blocks(values)])


def some_of(values: Matrix) -> Matrix:
    """Return all rows in memory, or evenly spaced ones of those on disk."""
    n, d = values.shape
    if not is_on_disk(values):
        return values
    most = min(n, max(2, MOST_ENTRIES // d))
    return rows_of_map(values, np.linspace(0, n - 1, most).astype(np.intp))


def rows_of_map(values: Dense, rows: np.ndarray) -> Dense:
    """Return rows by their positions in order, in memory."""
    return np.concatenate(list(_parts(values, rows, slice(None))))
