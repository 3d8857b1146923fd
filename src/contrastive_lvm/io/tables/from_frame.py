"""From a data frame to a table: columns of numbers apart from annotations."""

from collections.abc import Collection

import numpy as np
import pandas as pd
from pandas.api.extensions import ExtensionDtype

from contrastive_lvm.arrays import Array
from contrastive_lvm.io.tables.layout import Layout
from contrastive_lvm.io.tables.recognize import (
    Marks,
    Written,
    certain_marks,
    examine,
    parse_written,
)
from contrastive_lvm.io.tables.table import Column, Table, refuse_empty


def table_from_frame(
    frame: pd.DataFrame,
    source: str,
    annotations: Collection[str],
    *,
    row_names: list[str] | None = None,
    typed: bool = False,
    layout: Layout | None = None,
    doubt: bool = False,
) -> Table:
    """Make columns of words annotations, and all others features.

    Numbers with decimal commas, separated thousands or per cent signs are numbers. A column that
    has both numbers and words is refused, by its first value of the rarer kind. `source` is the
    file, for messages; `annotations` are kept out of the numbers even if they hold numbers; `typed`
    files declare their types, so that text that looks like a number is text; `doubt` is that of
    `recognize.Marks`.

    Examples
    --------
    >>> frame = pd.DataFrame({"mouse": ["a", "b"], "weight": ["21.5", None]})
    >>> table = table_from_frame(frame, "mice.csv", ())
    >>> table.features, list(table.annotations)
    (['weight'], ['mouse'])
    """
    layout = Layout() if layout is None else layout
    own = [name for name in frame.columns if name not in set(annotations)]
    found = {
        name: _examined(frame[name], source, layout, typed=typed)
        for name in own
        if not _is_number(frame[name].dtype)
    }
    written = {name: column for name, column in found.items() if column is not None}
    marks = _marks(frame, own, written, layout, doubt=doubt)
    parsed = {name: parse_written(column, marks, source) for name, column in written.items()}
    features = [str(name) for name in own if name not in found or name in written]
    refuse_empty(len(frame), len(features), source)
    kept = (
        frame[features]
        if not parsed
        else pd.DataFrame(
            {
                name: _spread(parsed[name][0], written[name].positions, len(frame))
                if name in parsed
                else frame[name]
                for name in features
            }
        )
    )
    values = kept.to_numpy(dtype=_precision(kept), na_value=np.nan)
    rest = frame.drop(columns=features).reset_index(drop=True)
    table = Table(values, features, rest, row_names, named=True, source=source)
    rewritten = tuple((str(name), how) for name, (_, how) in parsed.items() if how)
    censored = tuple(name for name, column in written.items() if column.censored)
    return table._replace(rewritten=rewritten, censored=censored)


def has_only_words(values: Collection[str]) -> bool:
    """Return whether no text says a number, and some text says more than that there is none."""
    found = examine("", list(values), Layout())
    return bool(found.odd) and not found.positions


def _examined(column: Column, source: str, layout: Layout, *, typed: bool) -> Written | None:
    """Return a column that has numbers, or None if it has words only; refuse one with both."""
    absent = column.isna().to_numpy()
    values = [None if gone else value for value, gone in zip(column, absent, strict=True)]
    present = [value for value in values if value is not None]
    if present and isinstance(present[0], bytes):
        raise TypeError(
            f"{source} has bytes in column {column.name!r}, which are neither numbers nor text; "
            "decode them, or leave the column out."
        )
    if present and ((typed and isinstance(present[0], str)) or isinstance(present[0], bool)):
        return None
    found = examine(str(column.name), values, layout)
    if not found.positions and found.odd:
        return None
    if found.odd:
        raise _mixed(found, values, source)
    return found


def _marks(
    frame: pd.DataFrame,
    own: list[str],
    written: dict[str, Written],
    layout: Layout,
    *,
    doubt: bool,
) -> Marks:
    """Return the decimal marks of a file, those of columns that are numbers already among them."""
    found = certain_marks(written.values())
    if any(_has_fractions(frame[name]) for name in own if _is_number(frame[name].dtype)):
        found |= {"."}
    return Marks(found, layout.decimal, doubt)


def _spread(numbers: Array, positions: list[int], n: int) -> Array:
    """Return a column of n values that is missing wherever it has no number."""
    values = np.full(n, np.nan)
    values[positions] = numbers
    return values


def _has_fractions(column: Column) -> bool:
    """Return whether a column of numbers was written with decimal points."""
    return column.dtype.kind == "f" and bool((column % 1 != 0)[column.notna()].any())


def _mixed(found: Written, values: list[object], source: str) -> ValueError:
    mostly = len(found.positions) >= len(found.odd)
    first, others = (found.odd, "numbers") if mostly else (found.positions, "words")
    ways = "correct it"
    if mostly and len(found.odd) == 1:  # a line of units, or of labels in a file that lies
        units = "leave line 2 out with --skip-rows 2 if it has units, " if first[0] == 0 else ""
        ways = f"{units}add --transpose if lines are features"
    return ValueError(
        f"{source} has {str(values[first[0]])!r} in row {first[0] + 1} of column {found.name!r}, "
        f"where other rows have {others}; {ways}, say what stands for no value with --na, or "
        f"keep the column out of the model with --annotation {found.name}."
    )


def _is_number(dtype: np.dtype | ExtensionDtype) -> bool:
    number = pd.api.types.is_numeric_dtype(dtype) and not pd.api.types.is_bool_dtype(dtype)
    return bool(number) and not pd.api.types.is_complex_dtype(dtype)


def _precision(frame: pd.DataFrame) -> type[np.float32 | np.float64]:
    """Return single precision if no column has more."""
    kinds = frame.dtypes.unique()
    single = all(isinstance(k, np.dtype) and k.kind == "f" and k.itemsize <= 4 for k in kinds)
    return np.float32 if single else np.float64
