"""What is remembered of every row from sweep to sweep, in files of their own, a block each.

It may be as large as the data (a weight an entry), so it is not held in memory. The files are in
the system's folder for temporary files (`TMPDIR`), and vanish with the object that names them.
"""

import shutil
import tempfile
import weakref
from pathlib import Path
from typing import Any

import numpy as np


class Spill:
    """A folder with an array for each block."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="contrastive-lvm-"))
        weakref.finalize(self, shutil.rmtree, self.folder, ignore_errors=True)

    def path(self, block: int) -> str:
        """Where a block's array is."""
        return str(self.folder / f"{block}.npy")


def load(kept: Spill | None, block: int) -> Any:
    """A block's array; None when nothing is kept yet."""
    return None if kept is None else np.load(kept.path(block), allow_pickle=False)


def store(array: Any, kept: Spill, block: int) -> None:
    """Write a block's array."""
    np.save(kept.path(block), array, allow_pickle=False)
