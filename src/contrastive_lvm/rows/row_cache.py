"""Caches of values that are kept for every row from pass to pass, one entry per chunk.

Their content may be as large as the data (a weight for each entry). Rows in memory have it in
memory too. Rows in files, and Dask arrays that threads compute, have it in an unnamed file in the
system's folder for temporary files (`TMPDIR`), which vanishes with the cache or the process. Other
schedulers of Dask keep it on their workers, or return it to this process.
"""

import io
import math
import tempfile
import weakref
from threading import Lock
from typing import Any

import numpy as np


class MemoryCache:
    """Values in memory."""

    def __init__(self) -> None:
        self.values: dict[int, Any] = {}

    def load(self, chunk: int) -> Any:
        """Return the value of a chunk."""
        return self.values[chunk]

    def store(self, chunk: int, value: Any) -> None:
        """Keep the value of a chunk."""
        self.values[chunk] = value

    def joined(self) -> np.ndarray:
        """Join the arrays of all chunks."""
        return np.concatenate([self.values[chunk] for chunk in sorted(self.values)])


class DiskCache:
    """Arrays in one file without a name."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._places: dict[int, tuple[int, tuple[int, ...], np.dtype[Any]]] = {}
        try:
            self._file = tempfile.TemporaryFile(prefix="contrastive-lvm-")  # noqa: SIM115
        except OSError as error:
            raise _no_space(error) from error
        weakref.finalize(self, self._file.close)

    def load(self, chunk: int) -> np.ndarray:
        """Read the array of a chunk."""
        begin, shape, dtype = self._places[chunk]
        with self._lock:
            self._file.seek(begin)
            data = self._file.read(dtype.itemsize * math.prod(shape))
        return np.frombuffer(data, dtype).reshape(shape)

    def store(self, chunk: int, value: np.ndarray) -> None:
        """Write the array of a chunk."""
        with self._lock:
            begin = self._file.seek(0, io.SEEK_END)
            try:
                self._file.write(value.tobytes())
                self._file.flush()
            except OSError as error:
                raise _no_space(error) from error
        self._places[chunk] = begin, value.shape, value.dtype


def _no_space(error: OSError) -> OSError:
    return OSError(
        "TMPDIR, the folder for temporary files, has no room for intermediate results of rows "
        f"out of core, at most as large as the data ({error}); set it to a folder with more space."
    )


class WorkerCache:
    """Results by the numbers of their chunks: futures of a Dask cluster, or arrays."""

    def __init__(self, held: dict[int, Any]) -> None:
        self.held = held


Cache = MemoryCache | DiskCache | WorkerCache
