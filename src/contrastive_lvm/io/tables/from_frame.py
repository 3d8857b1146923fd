"""From a data frame to a table: columns of numbers apart from annotations."""

from collections.abc import Collection
from typing import Any

import numpy as np
import pandas as pd

from contrastive_lvm.io.tables.table import Table, refuse_empty


def table_from_frame(
    frame: pd.DataFrame,
    source: str,
    annotations: Collection[str],
    *,
    row_names: list[str] | None = None,
    typed: bool = False,
) -> Table:
    """Make columns of words annotations, and all others features.

    A column that has both numbers and words is refused, by its first value of the rarer kind.

    Parameters
    ----------
    frame : DataFrame
    source : str
        The file, for messages.
    annotations : collection of str
        Columns that are kept out of the numbers even if they hold numbers.
    row_names : list of str or None
    typed : bool
        Whether text that looks like a number is text, as in files that declare their types.

    Examples
    --------
    >>> frame = pd.DataFrame({"mouse": ["a", "b"], "weight": ["21.5", None]})
    >>> table = table_from_frame(frame, "mice.csv", ())
    >>> table.features, list(table.annotations)
    (['weight'], ['mouse'])
    """
    aside, converted, features = set(annotations), {}, []
    for name in frame.columns:
        if name in aside:
            continue
        column = frame[name]
        numbers = column if _is_number(column.dtype) else _as_numbers(column, source, typed=typed)
        if numbers is not None:
            features.append(name)
        if numbers is not column and numbers is not None:
            converted[name] = numbers
    refuse_empty(len(frame), len(features), source)
    found = frame[features].assign(**converted) if converted else frame[features]
    values = found.to_numpy(dtype=_precision(found), na_value=np.nan)
    rest = frame[[name for name in frame.columns if name not in set(features)]]
    return Table(
        values, features, rest.reset_index(drop=True), row_names, named=True, source=source
    )


def is_numeric_text(values: "pd.Series[Any]") -> "pd.Series[bool]":
    """Return which values are numbers, or text that says one."""
    if values.dtype == object or isinstance(values.dtype, pd.StringDtype):
        return pd.to_numeric(values.astype(str), errors="coerce").notna()
    return pd.Series(_is_number(values.dtype), index=values.index)


def _as_numbers(column: "pd.Series[Any]", source: str, *, typed: bool) -> "pd.Series[Any] | None":
    """Return a column that is not plainly one of numbers as numbers, or None if it has words."""
    present = column.dropna()
    if present.empty:
        return column.astype(object).astype(np.float64)
    if typed and isinstance(present.iloc[0], str):
        return None
    numeric = is_numeric_text(present)
    if numeric.all():
        return pd.to_numeric(column.astype(object), errors="coerce")
    if numeric.any():
        rarer = ~numeric if numeric.mean() >= 0.5 else numeric
        others = "numbers" if numeric.mean() >= 0.5 else "words"
        raise _mixed(present[rarer], source, others)
    return None


def _mixed(odd: "pd.Series[Any]", source: str, others: str) -> ValueError:
    return ValueError(
        f"{source} has {odd.iloc[0]!r} in row {int(odd.index[0]) + 1} of column {odd.name!r}, "
        f"where other rows have {others}; correct it, or keep the column out of the model with "
        f"--annotation {odd.name}."
    )


def _is_number(dtype: Any) -> bool:
    number = pd.api.types.is_numeric_dtype(dtype) and not pd.api.types.is_bool_dtype(dtype)
    return bool(number) and not pd.api.types.is_complex_dtype(dtype)


def _precision(frame: pd.DataFrame) -> type[np.floating[Any]]:
    """Return single precision if no column has more."""
    kinds = frame.dtypes.unique()
    single = all(isinstance(k, np.dtype) and k.kind == "f" and k.itemsize <= 4 for k in kinds)
    return np.float32 if single else np.float64
