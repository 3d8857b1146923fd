"""The choice of rows of a table by conditions on its annotations, such as `Treatment=Saline`."""

import re
from collections.abc import Sequence
from difflib import get_close_matches
from typing import NamedTuple
from unicodedata import normalize

import numpy as np
import numpy.typing as npt
import pandas as pd

from contrastive_lvm.arrays import Matrix
from contrastive_lvm.io.tables.on_disk import chosen, is_on_disk
from contrastive_lvm.io.tables.summaries import NO_NAME, is_summary, names_of_summaries
from contrastive_lvm.io.tables.table import Layout, Table, some
from contrastive_lvm.linalg.matrices import is_sparse

Mask = npt.NDArray[np.bool_]

# Cyrillic and Greek letters that look like Latin ones, as two keyboards leave them in a column.
LATIN = str.maketrans(
    "\u0430\u0441\u0435\u043e\u0440\u0445\u0443\u0456\u0458\u0455\u043a\u043c\u0442\u043d\u0432\u03bf\u03b1\u03bd",
    "aceopxyijskmthboav",
)


class Condition(NamedTuple):
    """A column that has, or does not have, a value."""

    column: str
    value: str
    negated: bool = False
    option: str = "--where"

    def __str__(self) -> str:
        """Write the condition in the form in which users give it."""
        return f"{self.column}{'!=' if self.negated else '='}{self.value}"


class Choice(NamedTuple):
    """Which rows of which files are target and background, in the words of the command line."""

    by: str | None = None
    target: Sequence[str] = ()
    background: Sequence[str] = ()
    where: Sequence[str] = ()
    annotations: Sequence[str] = ()
    layer: str | None = None  # of h5ad files
    sizes: str | None = None  # the column of size factors
    replicates: str | None = None  # the column that names the replicate of each row
    layout: Layout = Layout()  # of both files
    covariates: Sequence[str] = ()  # columns whose effects are estimated

    def conditions(self, set_name: str) -> list[Condition]:
        """Return the conditions on the target or the background, with those on both."""
        both = [parse_condition("--where", text) for text in self.where]
        own = getattr(self, set_name)
        return both + [parse_condition(f"--{set_name}", text, self.by) for text in own]

    def columns(self) -> set[str]:
        """Return the columns that are not features because they have another role."""
        conditions = self.conditions("target") + self.conditions("background")
        named = {name for name in (self.by, self.sizes, self.replicates) if name}
        named |= set(self.covariates)
        return {*self.annotations, *(condition.column for condition in conditions), *named}


def parse_condition(option: str, text: str, by: str | None = None) -> Condition:
    """Read `column=value` or `column!=value`; a mere value belongs to the column `by`.

    Examples
    --------
    >>> parse_condition("--target", "Behavior=S/C")
    Condition(column='Behavior', value='S/C', negated=False, option='--target')
    >>> parse_condition("--target", "case", by="group").column
    'group'
    """
    left, equals, right = text.partition("=")
    column = left.removesuffix("!").strip()
    if equals and column:
        return Condition(column, right.strip(), left.endswith("!"), option)
    if by is None:
        raise ValueError(
            f"{option} {text!r} is not a condition; write {option} COLUMN=VALUE"
            + (", or name the column with --by." if option != "--where" else ".")
        )
    return Condition(by, text, negated=False, option=option)


def matching_rows(table: Table, conditions: Sequence[Condition]) -> Mask:
    """Return the rows that meet all conditions; those on the same column are alternatives.

    Examples
    --------
    >>> notes = pd.DataFrame({"group": ["a", "b", "c"]})
    >>> table = Table(np.ones((3, 1)), ["x"], notes, None, True, "here.csv")
    >>> wanted = [parse_condition("--where", text) for text in ("group=a", "group=c")]
    >>> matching_rows(table, wanted).tolist()
    [True, False, True]
    """
    wanted: dict[str, Mask] = {}
    mask: Mask = np.ones(table.n_rows, dtype=np.bool_)
    for condition in conditions:
        found = _rows_with(table, condition)
        if condition.negated:
            mask &= ~found
        else:
            wanted[condition.column] = wanted.get(condition.column, False) | found
    return np.asarray(np.logical_and.reduce([mask, *wanted.values()]))


def alike(label: str) -> str:
    """Return what labels that look alike have in common, whatever their capitals and blanks.

    >>> alike(" Patient\u00a0A"), alike("patient  a"), alike("01"), alike("1.0")
    ('patient a', 'patient a', '1', '1')
    >>> alike("\u0441ase")  # with a Cyrillic letter
    'case'
    """
    shown = normalize("NFKC", label).translate(dict.fromkeys(map(ord, "\u200b\u200c\u200d\ufeff")))
    word = " ".join(shown.split()).casefold().translate(LATIN)
    return f"{float(word):g}" if re.fullmatch(r"\d{1,6}(\.0+)?", word, re.ASCII) else word


def refuse_similar_labels(table: Table, conditions: Sequence[Condition]) -> None:
    """Refuse values that differ only in capitals or blanks from one that conditions name.

    Rows of `patient` would else be controls where `Patient` is the target.
    """
    for column, value, _, option in conditions:
        if column in table.annotations.columns:
            named = {other.value for other in conditions if other.column == column}
            values = {str(own) for own in table.annotations[column].dropna()}
            near = [own for own in values - named if alike(own) == alike(value)]
            if near and value in values:
                raise ValueError(
                    f"{option}: column {column!r} of {table.source} has {some(sorted(near))} "
                    f"besides {value!r}; use one spelling, or name each."
                )


def refuse_summaries(table: Table, by: str | None, known: Sequence[Condition]) -> None:
    """Refuse values such as `Total` of a column whose other values are the background.

    A value of a single row seems to be one, too, if the row lacks a name that all others have.
    """
    named = {condition.value for condition in known if condition.column == by}
    column = table.annotations[by].dropna() if by in table.annotations else pd.Series(dtype=object)
    times = column.astype(str).value_counts(sort=False)
    bare = {str(column[row]) for row in _rows_without_name(table) if row in column.index}
    summaries = [
        value
        for value, n in times.items()
        if value not in named and (is_summary(str(value)) or (n == 1 and value in bare))
    ]
    if summaries:
        raise ValueError(
            f"--by {by}: {table.source} has rows of {some(summaries)}, which seem to summarize "
            "others and would be background; remove them, or name the background with --background."
        )


def refuse_named_summaries(table: Table, chosen: Mask) -> None:
    """Refuse rows of either set whose names say that they summarize others."""
    summaries = names_of_summaries(table, chosen)
    if summaries:
        raise ValueError(
            f"{table.source} has rows named {some(summaries)}, which seem to summarize others; "
            "remove them, or rename them if they are samples."
        )


def _rows_without_name(table: Table) -> list[int]:
    """Return the row that alone lacks a name or a value of some annotation; at most one of each."""
    columns = [column.isna().to_numpy() for _, column in table.annotations.items()]
    if table.row_names is not None:
        columns.append(np.isin(table.row_names, list(NO_NAME)))
    return [int(np.argmax(absent)) for absent in columns if absent.sum() == 1 < len(absent)]


def refuse_merged_labels(table: Table, conditions: Sequence[Condition]) -> None:
    """Refuse a column with a label at the top of each block, as merged cells leave it.

    Most of its rows are empty, and each label stands above some of them and nowhere else.
    """
    for column, _, _, option in conditions:
        if column not in table.annotations.columns:
            continue
        filled = table.annotations[column].notna().to_numpy()
        tops = table.annotations[column][filled & np.r_[True, ~filled[:-1]]]
        once = tops.is_unique and set(table.annotations[column][filled]) == set(tops)
        apart = not (filled[1:] & filled[:-1]).any()
        if len(filled) > 3 and filled[0] and (apart or (once and 2 * filled.sum() < len(filled))):
            empty = int((~filled).sum())
            raise ValueError(
                f"{option}: column {column!r} of {table.source} is empty in {empty} of "
                f"{table.n_rows} rows, below every label, as merged cells are; write the label in "
                "each row."
            )


def _rows_with(table: Table, condition: Condition) -> Mask:
    """Return the rows that have the value of a condition, or refuse one that no row has."""
    name, value, _, option = condition
    known = [str(column) for column in table.annotations.columns]
    if name not in known:
        close = get_close_matches(name, known, n=1)
        has = f"it has {some(known) or 'no annotations'}."
        way = f"did you mean {close[0]!r}?" if close else has
        raise ValueError(f"{option}: {table.source} has no annotation column {name!r}; {way}")
    column = table.annotations[name]
    found: Mask = ((column.astype(str) == value) & column.notna()).to_numpy(dtype=np.bool_)
    if pd.api.types.is_numeric_dtype(column.dtype) and not pd.api.types.is_bool_dtype(column.dtype):
        number = pd.to_numeric(value, errors="coerce") if value else np.nan
        found = found | (column == number).to_numpy(dtype=np.bool_)
    if not found.any():
        raise ValueError(
            f"{option}: column {name!r} of {table.source} has no value {value!r}; "
            f"it has {some(pd.unique(column.dropna()))}."
        )
    return found


def rows_of(table: Table, mask: Mask) -> Table:
    """Return the rows of a mask, copied."""
    return table if mask.all() else _rows_of(table, mask, chosen(table.values, mask))


def split_rows(table: Table, first: Mask, second: Mask) -> tuple[Table, Table]:
    """Return two disjoint sets of rows; the array of the table is changed in place.

    Its rows are sorted within the array, the first set above the second, to save the memory of a
    copy. Numbers on disk are copied there.
    """
    values, n = table.values, int(first.sum())
    if is_sparse(values) or is_on_disk(values):
        return rows_of(table, first), rows_of(table, second)
    order = np.concatenate([np.flatnonzero(first), np.flatnonzero(second)])
    width = -(-values.shape[1] // 16)  # some columns at a time, to save memory
    for begin in range(0, values.shape[1], width):
        columns = slice(begin, begin + width)
        values[: len(order), columns] = values[order, columns]
    one, two = values[:n], values[n : len(order)]
    return _rows_of(table, first, one), _rows_of(table, second, two)


def _rows_of(table: Table, mask: Mask, values: Matrix) -> Table:
    labels = table.labels()  # rows without names keep their numbers
    return table._replace(
        values=values,
        annotations=table.annotations[mask].reset_index(drop=True),
        row_names=[labels[i] for i in np.flatnonzero(mask)],
    )
