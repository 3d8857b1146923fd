"""What is remembered of every row from sweep to sweep, an array for each cell of rows.

It may be as large as the data (a weight an entry). Of rows in memory it is in memory too. Of rows
in files it is in files, in the system's folder for temporary files (`TMPDIR`), which vanish with
the object that names them.
"""

import shutil
import tempfile
import weakref
from pathlib import Path
from typing import Any

import numpy as np


class MemoryCache:
    """Arrays in memory."""

    def __init__(self) -> None:
        self.arrays: dict[int, Any] = {}

    def load(self, cell: int) -> Any:
        """A cell's array."""
        return self.arrays[cell]

    def store(self, cell: int, array: Any) -> None:
        """Put a cell's array away."""
        self.arrays[cell] = array

    def whole(self) -> Any:
        """The arrays of all cells as one."""
        return np.concatenate([self.arrays[cell] for cell in sorted(self.arrays)])


class DiskCache:
    """A folder with a file for each cell."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="contrastive-lvm-"))
        weakref.finalize(self, shutil.rmtree, self.folder, ignore_errors=True)

    def path(self, cell: int) -> str:
        """Where a cell's array is."""
        return str(self.folder / f"{cell}.npy")

    def paths(self, cells: range) -> list[str]:
        """Where the arrays of some cells are."""
        return [self.path(cell) for cell in cells]

    def load(self, cell: int) -> Any:
        """Read a cell's array."""
        return np.load(self.path(cell), allow_pickle=False)

    def store(self, cell: int, array: Any) -> None:
        """Write a cell's array."""
        np.save(self.path(cell), array, allow_pickle=False)
