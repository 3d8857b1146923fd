"""Caches of what is remembered of every row from pass to pass, one entry per chunk.

Their content may be as large as the data (a weight for each entry). Rows in memory have it in
memory too. Rows in files, and Dask arrays without a cluster, have it in the system's folder for
temporary files (`TMPDIR`); the files vanish with the cache. A cluster keeps it on its workers.
"""

import shutil
import tempfile
import weakref
from pathlib import Path
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
    """A folder with an array in a file for each chunk."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="contrastive-lvm-"))
        weakref.finalize(self, shutil.rmtree, self.folder, ignore_errors=True)

    def path(self, chunk: int) -> str:
        """Return the path of a chunk's file."""
        return str(self.folder / f"{chunk}.npy")

    def load(self, chunk: int) -> np.ndarray:
        """Read the array of a chunk."""
        array: np.ndarray = np.load(self.path(chunk), allow_pickle=False)
        return array

    def store(self, chunk: int, value: np.ndarray) -> None:
        """Write the array of a chunk."""
        np.save(self.path(chunk), value, allow_pickle=False)


class WorkerCache:
    """Results that the workers of a Dask cluster hold, by the numbers of their chunks."""

    def __init__(self, held: dict[int, Any]) -> None:
        self.held = held


Cache = MemoryCache | DiskCache | WorkerCache
