"""From a data frame to a table: columns of numbers apart from annotations."""

from collections.abc import Collection

import numpy as np
import pandas as pd
from pandas.api.extensions import ExtensionDtype

from contrastive_lvm.io.tables.recognize import has_decimal_commas, is_written_number, parse_written
from contrastive_lvm.io.tables.table import Column, Table, refuse_empty


def table_from_frame(
    frame: pd.DataFrame,
    source: str,
    annotations: Collection[str],
    *,
    row_names: list[str] | None = None,
    typed: bool = False,
) -> Table:
    """Make columns of words annotations, and all others features.

    Numbers with decimal commas or per cent signs are numbers. A column that has both numbers and
    words is refused, by its first value of the rarer kind. `source` is the file, for messages;
    `annotations` are kept out of the numbers even if they hold numbers; `typed` files declare
    their types, so that text that looks like a number is text.

    Examples
    --------
    >>> frame = pd.DataFrame({"mouse": ["a", "b"], "weight": ["21.5", None]})
    >>> table = table_from_frame(frame, "mice.csv", ())
    >>> table.features, list(table.annotations)
    (['weight'], ['mouse'])
    """
    own = frame.columns.difference(list(annotations), sort=False)
    commas = any(has_decimal_commas(frame[name]) for name in own if frame[name].dtype.kind == "O")
    columns, rewritten = {}, []
    for name in own:
        columns[name], how = _as_numbers(frame[name], source, typed=typed, commas=commas)
        rewritten += [(str(name), how)] if how else []
    features = [str(name) for name, numbers in columns.items() if numbers is not None]
    refuse_empty(len(frame), len(features), source)
    odd = {name: columns[name] for name in features if not _is_number(frame[name].dtype)}
    found = frame[features].assign(**odd) if odd else frame[features]
    values = found.to_numpy(dtype=_precision(found), na_value=np.nan)
    rest = frame.drop(columns=features).reset_index(drop=True)
    table = Table(values, features, rest, row_names, named=True, source=source)
    return table._replace(rewritten=tuple(rewritten))


def is_numeric_text(values: Column) -> "pd.Series[bool]":
    """Return which values are numbers, or text that says one."""
    if values.dtype == object or isinstance(values.dtype, pd.StringDtype):
        plain = pd.to_numeric(values.astype(str), errors="coerce").notna()
        return plain | is_written_number(values)
    return pd.Series(_is_number(values.dtype), index=values.index)


def _as_numbers(
    column: Column, source: str, *, typed: bool, commas: bool
) -> "tuple[Column | None, str]":
    """Return a column as numbers, or None if it has words, and in what other way it was read."""
    if _is_number(column.dtype):
        return column, ""
    present = column.dropna()
    if present.empty:
        return column.astype(object).astype(np.float64), ""
    if isinstance(present.iloc[0], bytes):
        raise TypeError(
            f"{source} has bytes in column {column.name!r}, which are neither numbers nor text; "
            "decode them, or leave the column out."
        )
    if typed and isinstance(present.iloc[0], str):
        return None, ""
    return _from_text(column, present, source, commas=commas)


def _from_text(
    column: Column, present: Column, source: str, *, commas: bool
) -> "tuple[Column | None, str]":
    numeric = is_numeric_text(present)
    if not numeric.any():
        return None, ""
    if not numeric.all():
        raise _mixed(present, numeric, source)
    numbers, how = parse_written(present, source, commas=commas)
    return numbers.reindex(column.index), how


def _mixed(present: Column, numeric: "pd.Series[bool]", source: str) -> ValueError:
    mostly = numeric.mean() >= 0.5
    odd, others = present[numeric != mostly], "numbers" if mostly else "words"
    return ValueError(
        f"{source} has {odd.iloc[0]!r} in row {int(odd.index[0]) + 1} of column {odd.name!r}, "
        f"where other rows have {others}; correct it, or keep the column out of the model with "
        f"--annotation {odd.name}."
    )


def _is_number(dtype: np.dtype | ExtensionDtype) -> bool:
    number = pd.api.types.is_numeric_dtype(dtype) and not pd.api.types.is_bool_dtype(dtype)
    return bool(number) and not pd.api.types.is_complex_dtype(dtype)


def _precision(frame: pd.DataFrame) -> type[np.float32 | np.float64]:
    """Return single precision if no column has more."""
    kinds = frame.dtypes.unique()
    single = all(isinstance(k, np.dtype) and k.kind == "f" and k.itemsize <= 4 for k in kinds)
    return np.float32 if single else np.float64
