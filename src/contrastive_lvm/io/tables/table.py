"""Rows with names: numbers for the model, and annotations that never reach it."""

from collections import Counter
from collections.abc import Iterable
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pandas as pd

from contrastive_lvm.arrays import Matrix, Sparse

Column: TypeAlias = "pd.Series[Any]"


class Table(NamedTuple):
    """What a file holds."""

    values: Matrix  # (n, d) float64, float32 or CSR; NaN is a missing entry
    features: list[str]  # (d,) names of the columns of `values`
    annotations: pd.DataFrame  # (n, a) everything else, for colour and hover
    row_names: list[str] | None  # (n,) None if the file has none
    named: bool  # whether the file names its features; else they are x1, x2, ...
    source: str  # the file, for sentences
    identifiers: tuple[str, ...] = ()  # annotations that are numbers, but name rows
    rewritten: tuple[tuple[str, str], ...] = ()  # features that were read in another way, and how
    censored: tuple[str, ...] = ()  # features with values below or above what can be measured
    remarks: tuple[str, ...] = ()  # what else was done to read the file

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return int(self.values.shape[0])

    def labels(self) -> list[str]:
        """Names of the rows, or their numbers from 1."""
        return self.row_names or [str(i) for i in range(1, self.n_rows + 1)]


def numbered(n: int) -> list[str]:
    """Make names for features that have none.

    >>> numbered(2)
    ['x1', 'x2']
    """
    return [f"x{i}" for i in range(1, n + 1)]


def as_floats(values: np.ndarray | Sparse, source: str) -> Matrix:
    """Return numbers in single or double precision, as they come."""
    dtype = values.dtype
    if dtype.kind not in "fiub":
        raise ValueError(
            f"{source} holds values of type {dtype}, which are not real numbers; save numbers."
        )
    single = dtype.kind == "f" and dtype.itemsize <= 4
    return (
        values.astype(np.float32, copy=False) if single else values.astype(np.float64, copy=False)
    )


def refuse_repeated(names: Iterable[str], source: str) -> None:
    """Refuse two columns with the same name."""
    twice = [name for name, times in Counter(names).items() if times > 1]
    if twice:
        raise ValueError(f"{source} has more than one column {some(twice)}; rename or remove them.")


def refuse_empty(n_rows: int, n_features: int, source: str) -> None:
    """Refuse a table without rows or without numbers."""
    if n_rows == 0:
        raise ValueError(f"{source} has no rows; give a file with data.")
    if n_features == 0:
        raise ValueError(
            f"{source} has no column of numbers for the model; check that columns are separated "
            "as the file's name says and that numbers have decimal points."
        )


def some(names: Iterable[object]) -> str:
    """Join a few names for a sentence.

    >>> some(["a", "b", "c", "d", "e"])
    "'a', 'b', 'c' and 2 more"
    """
    listed = [repr(str(name)) for name in names]
    return ", ".join(listed[:3]) + (f" and {len(listed) - 3} more" if len(listed) > 3 else "")
