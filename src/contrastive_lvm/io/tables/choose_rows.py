"""Which rows of a table: conditions on its annotations, such as `Treatment=Saline`."""

from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from contrastive_lvm.io.tables.table import Table, some
from contrastive_lvm.linalg.matrices import is_sparse, row_slices

Mask = npt.NDArray[np.bool_]
LISTED = 8  # values that a sentence names
PARTS = 16  # of the rows that are put in order one after another


class Condition(NamedTuple):
    """A column that has, or has not, a value."""

    column: str
    value: str
    negated: bool = False
    option: str = "--where"


def parsed(option: str, text: str, by: str | None = None) -> Condition:
    """A condition from `column=value` or `column!=value`; a mere value is one of the column `by`.

    Examples
    --------
    >>> parsed("--target", "Behavior=S/C")
    Condition(column='Behavior', value='S/C', negated=False, option='--target')
    >>> parsed("--target", "case", by="group").column
    'group'
    """
    left, equals, right = text.partition("=")
    negated = left.endswith("!")
    column = left.removesuffix("!").strip()
    if equals and column:
        return Condition(column, right.strip(), negated, option)
    if by is None:
        raise ValueError(
            f"{option} {text!r} is no condition; write {option} COLUMN=VALUE"
            + (", or name the column with --by." if option != "--where" else ".")
        )
    return Condition(by, text, negated=False, option=option)


def matching(table: Table, conditions: Sequence[Condition]) -> Mask:
    """Rows that meet conditions: for each column any of its values, for all columns together.

    Examples
    --------
    >>> notes = pd.DataFrame({"group": ["a", "b", "c"]})
    >>> table = Table(np.ones((3, 1)), ["x"], notes, None, True, "here.csv")
    >>> matching(table, [parsed("--where", "group=a"), parsed("--where", "group=c")]).tolist()
    [True, False, True]
    """
    wanted: dict[str, Mask] = {}
    mask: Mask = np.ones(table.n_rows, dtype=np.bool_)
    for condition in conditions:
        found = _has(table, condition)
        if condition.negated:
            mask &= ~found
        else:
            wanted[condition.column] = wanted.get(condition.column, False) | found
    for found in wanted.values():
        mask &= found
    return mask


def _has(table: Table, condition: Condition) -> Mask:
    column = _column(table, condition)
    found = _equal(column, condition.value)
    if not found.any():
        values = [str(value) for value in pd.unique(column.dropna())]
        listed = ", ".join(repr(value) for value in values[:LISTED])
        more = f" and {len(values) - LISTED} more" if len(values) > LISTED else ""
        raise ValueError(
            f"{condition.option}: column {condition.column!r} of {table.source} has no value "
            f"{condition.value!r}; it has {listed}{more}."
        )
    return found


def _column(table: Table, condition: Condition) -> "pd.Series[Any]":
    known = [str(name) for name in table.annotations.columns]
    if condition.column in known:
        return table.annotations[condition.column]
    close = get_close_matches(condition.column, known, n=1)
    way = f"did you mean {close[0]!r}?" if close else f"it has {some(known) or 'no annotations'}."
    raise ValueError(
        f"{condition.option}: {table.source} has no annotation column {condition.column!r}; {way}"
    )


def _equal(column: "pd.Series[Any]", value: str) -> Mask:
    same: Mask = (column.astype(str) == value).to_numpy(dtype=np.bool_) & column.notna().to_numpy()
    if pd.api.types.is_numeric_dtype(column.dtype) and not pd.api.types.is_bool_dtype(column.dtype):
        number = pd.to_numeric(value, errors="coerce") if value else np.nan
        same |= (column == number).to_numpy(dtype=np.bool_)
    return same


def taken(table: Table, mask: Mask) -> Table:
    """The rows of a mask, copied."""
    if mask.all():
        return table
    return _described(table, mask, table.values[mask])


def divided(table: Table, first: Mask, second: Mask) -> tuple[Table, Table]:
    """Two sets of rows that have none in common; the array of the table is used up.

    Its rows are put in order within the array, the first set above the second, so that there are
    never two of it.

    Examples
    --------
    >>> table = Table(np.arange(4.0)[:, None], ["x"], pd.DataFrame(index=range(4)), None, True, "")
    >>> one, other = divided(table, np.array([0, 1, 0, 1], bool), np.array([1, 0, 1, 0], bool))
    >>> one.values.ravel().tolist(), other.values.ravel().tolist()
    ([1.0, 3.0], [0.0, 2.0])
    """
    if is_sparse(table.values):
        return taken(table, first), taken(table, second)
    above, below = _ordered(table.values, first, second)
    return _described(table, first, above), _described(table, second, below)


def _ordered(
    values: npt.NDArray[Any], first: Mask, second: Mask
) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Views of the two sets, one below the other; only a part of the rows is ever copied."""
    n, m = 0, 0  # rows of either set that are in order
    for part in np.array_split(np.arange(len(values)), PARTS):
        own, other = values[part[first[part]]], values[part[second[part]]]
        _moved_down(values, n, m, len(own))
        values[n : n + len(own)] = own
        n += len(own)
        values[n + m : n + m + len(other)] = other
        m += len(other)
    return values[:n], values[n : n + m]


def _moved_down(values: npt.NDArray[Any], begin: int, n_rows: int, by: int) -> None:
    """Move rows from `begin` on, the last ones first, since the two places overlap."""
    if by == 0:
        return
    for part in reversed(list(row_slices(n_rows, values.shape[1]))):
        start, stop = begin + part.start, begin + part.stop
        values[start + by : stop + by] = values[start:stop]


def _described(table: Table, mask: Mask, values: Any) -> Table:
    labels = table.labels()  # rows without names keep their numbers
    return table._replace(
        values=values,
        annotations=table.annotations[mask].reset_index(drop=True),
        row_names=[labels[i] for i in np.flatnonzero(mask)],
    )
