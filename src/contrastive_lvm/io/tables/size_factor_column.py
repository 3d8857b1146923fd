"""Size factors of rows of counts that a column of the file gives."""

from typing import Any

import numpy as np
import pandas as pd

from contrastive_lvm.arrays import Array
from contrastive_lvm.io.tables.table import Column, Table, annotation


def sizes_of(table: Table | None, column: str | None, name: str = "size_factors") -> dict[str, Any]:
    """Return the argument `name` of an estimator's method; none without a column or a table."""
    if table is None or column is None:
        return {}
    given = annotation(table, column, "--size-factors", "add it, one positive number per row")
    sizes, wrong = positive_numbers(given)
    if len(wrong):
        raise ValueError(
            f"--size-factors: column {column!r} of {table.source} has "
            f"{str(given.iloc[wrong[0]])!r} in row {table.labels()[wrong[0]]}; give one positive "
            "number per row."
        )
    return {name: sizes}


def positive_numbers(column: Column) -> tuple[Array, np.ndarray]:
    """Return a column as numbers, and the positions of values that are no positive numbers."""
    numbers: Array = pd.to_numeric(column.astype(object), errors="coerce").to_numpy(np.float64)
    return numbers, np.flatnonzero(~(np.isfinite(numbers) & (numbers > 0)))
