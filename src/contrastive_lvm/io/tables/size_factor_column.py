"""Size factors of rows of counts, from a column of the file."""

from typing import Any

import numpy as np
import pandas as pd

from contrastive_lvm.arrays import Array
from contrastive_lvm.io.tables.table import Table


def sizes_of(table: Table | None, column: str | None, name: str = "size_factors") -> dict[str, Any]:
    """Return the argument `name` of an estimator's method, if there is a column and a table.

    Examples
    --------
    >>> notes = pd.DataFrame({"depth": [2, 1]})
    >>> table = Table(np.ones((2, 1)), ["x"], notes, None, True, "here.csv")
    >>> sizes_of(table, "depth")
    {'size_factors': array([2., 1.])}
    """
    if table is None or column is None:
        return {}
    if column not in table.annotations.columns:
        raise ValueError(
            f"--size-factors: {table.source} has no column {column!r}; add it, one positive number "
            "for each row."
        )
    return {name: _positive(table, column)}


def _positive(table: Table, column: str) -> Array:
    given = table.annotations[column]
    sizes: Array = pd.to_numeric(given.astype(object), errors="coerce").to_numpy(dtype=np.float64)
    wrong = ~(np.isfinite(sizes) & (sizes > 0))
    if wrong.any():
        row = int(np.flatnonzero(wrong)[0])
        raise ValueError(
            f"--size-factors: column {column!r} of {table.source} has {str(given.iloc[row])!r} in "
            f"row {table.labels()[row]}; give one positive number for each row."
        )
    return sizes
