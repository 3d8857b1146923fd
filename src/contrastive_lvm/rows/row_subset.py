"""A subset of the rows of a file or of a Dask array, read when it is needed."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from contrastive_lvm.arrays import Matrix
from contrastive_lvm.linalg.matrices import stacked
from contrastive_lvm.rows.reader import MOST_ENTRIES, is_dask


def select_rows(X: Any, chosen: np.ndarray) -> Any:
    """Select rows of a Dask array or of an array in a file by a mask; they keep their order."""
    places = np.flatnonzero(chosen)
    return X[places] if is_dask(X) else SelectedRows(X, places)


class SelectedRows:
    """Rows of an array in a file, as an array that gives rows by slices.

    Files are read in stretches: rows between two chosen rows of a stretch are read with them, rows
    between two stretches are not.
    """

    def __init__(self, X: Any, places: np.ndarray) -> None:
        self.X, self.places = X, places  # increasing
        self.shape = (len(places), int(X.shape[1]))
        self.dtype = X.dtype
        self.chunks = getattr(X, "chunks", None)

    def __getitem__(self, rows: slice) -> Matrix:
        """Read some of the rows, dense or sparse like the file."""
        return stacked([self.X[at.start : at.stop][places] for at, places in self._stretches(rows)])

    def _stretches(self, rows: slice) -> Iterator[tuple[slice, np.ndarray]]:
        """Yield slices of the file, and the positions of the chosen rows within each."""
        places = self.places[rows]
        most = max(1, MOST_ENTRIES // self.shape[1])
        ends = np.flatnonzero(np.diff(places // most)) + 1
        for some in np.split(places, ends):
            yield slice(some[0], some[-1] + 1), some - some[0]
