"""From lines of values or a data frame to a table, which separates numbers from annotations."""

import re
from collections.abc import Collection, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd

from contrastive_lvm.arrays import Column
from contrastive_lvm.io.tables.recognize import (
    NUMBER,
    Written,
    certain_marks,
    examine,
    parse_written,
)
from contrastive_lvm.io.tables.summaries import NO_NAME, rows_without, without_summaries
from contrastive_lvm.io.tables.table import (
    MISSING,
    Layout,
    Table,
    refuse_empty,
    refuse_repeated,
)

ROW_NAMES = "\0row"  # the column that names rows, while it is read
UNNAMED = "\0column "  # a column without a name, which must be empty


def table_from_frame(
    frame: pd.DataFrame,
    source: str,
    annotations: Collection[str],
    *,
    row_names: list[str] | None = None,
    typed: bool = False,
    layout: Layout = Layout(),  # noqa: B008
    doubt: bool = False,
    semicolons: bool = False,
) -> Table:
    """Make columns of words annotations, and all others features.

    Numbers with decimal commas, separated thousands or per cent signs are numbers. A column that
    has both numbers and words is refused, by its first value of the rarer kind. `source` is the
    file, for messages; `annotations` are kept out of the numbers even if they hold numbers; `typed`
    files declare their types, so that text that looks like a number is text; `doubt` is that of
    `parse_written`, and `semicolons` says whether they separate the columns, so that commas may be
    decimal marks even where other columns have points.

    Examples
    --------
    >>> frame = pd.DataFrame({"mouse": ["a", "b"], "weight": ["21.5", None]})
    >>> table = table_from_frame(frame, "mice.csv", ())
    >>> table.features, list(table.annotations)
    (['weight'], ['mouse'])
    """
    own = [name for name in frame.columns if name not in set(annotations)]
    numbers = [name for name in own if _is_number(frame[name])]
    found = {
        name: _examined(frame[name], source, layout, typed=typed)
        for name in own
        if name not in numbers
    }
    written = {name: column for name, column in found.items() if column is not None}
    marks = certain_marks(written.values())
    if not doubt and any(_has_fractions(frame[name]) for name in numbers):
        marks |= {"."}
    if semicolons and marks == {"."}:
        marks = frozenset()
    features = [name for name in own if name in written or name not in found]
    refuse_empty(len(frame), len(features), source)
    kept, rewritten = frame[features], {}
    if written:
        columns = {name: frame[name] for name in features}
        for name, column in written.items():
            spread = np.full(len(frame), np.nan)
            spread[column.positions], rewritten[str(name)] = parse_written(
                column, marks, source, given=layout.decimal, doubt=doubt
            )
            columns[name] = pd.Series(spread, index=frame.index)
        kept = pd.DataFrame(columns)
    single = all(isinstance(k, np.dtype) and k.kind == "f" and k.itemsize <= 4 for k in kept.dtypes)
    given = kept.to_numpy(dtype=np.float32 if single else np.float64, na_value=np.nan)
    values = np.require(given, requirements="W")  # pandas 3 may return its own, read-only array
    rest = frame.drop(columns=features).reset_index(drop=True)
    return Table(
        values,
        [str(name) for name in features],
        rest,
        row_names,
        named=True,
        source=source,
        rewritten=tuple((name, how) for name, how in rewritten.items() if how),
        censored=tuple(str(name) for name, column in written.items() if column.censored),
    )


def has_only_words(values: Collection[str]) -> bool:
    """Return whether no text is a number, and some text is more than a sign of a missing value."""
    found = examine("", list(values), Layout())
    return bool(found.odd) and not found.positions


def _examined(column: Column, source: str, layout: Layout, *, typed: bool) -> Written | None:
    """Return a column that has numbers, or None if it has words only; refuse one with both."""
    absent = column.isna().to_numpy()
    values = [None if gone else value for value, gone in zip(column, absent, strict=True)]
    first = next((value for value in values if value is not None), None)
    if isinstance(first, bytes):
        raise TypeError(
            f"{source} has bytes in column {column.name!r}, which are neither numbers nor text; "
            "decode them, or leave the column out."
        )
    truths = all(isinstance(value, bool | np.bool_) for value in values if value is not None)
    if truths or (typed and isinstance(first, str)):
        return None
    found = examine(str(column.name), values, layout)
    if found.odd and found.positions:
        raise _mixed(found, values, source)
    return None if found.odd else found


def _mixed(found: Written, values: list[object], source: str) -> ValueError:
    mostly = len(found.positions) >= len(found.odd)
    first, others = (found.odd, "numbers") if mostly else (found.positions, "words")
    word, ways = str(values[first[0]]).strip(), "correct it"
    if word == found.name:
        ways = "remove the second line of column names"
    elif mostly and len(found.odd) == 1 and not re.search(r"\d", word):
        # A line of units, or of labels in a transposed file.
        units = "skip line 2 with --skip-rows 2 if it contains units, or line 1 if it is a title, "
        units = units if first[0] == 0 else ""
        ways = f"{units}add --transpose if lines are features"
    return ValueError(
        f"{source} has {str(values[first[0]])!r} in row {first[0] + 1} of column {found.name!r}, "
        f"where other rows have {others}; {ways}, declare missing values with --na, or "
        f"keep the column out of the model with --annotation {found.name}."
    )


def _is_number(column: Column) -> bool:
    types, dtype = pd.api.types, column.dtype
    number = types.is_numeric_dtype(dtype) and not types.is_bool_dtype(dtype)
    return bool(number) and not types.is_complex_dtype(dtype)


def _has_fractions(column: Column) -> bool:
    """Return whether a column of numbers was written with decimal points."""
    return column.dtype.kind == "f" and bool((column % 1 != 0)[column.notna()].any())


def table_from_records(
    cells: Sequence[Sequence[object]],
    source: str,
    annotations: Collection[str],
    features: Collection[str] | None,
    layout: Layout,
    *,
    doubt: bool = False,
    semicolons: bool = False,
) -> Table:
    """Return the table of lines of values, the first of which names the columns.

    Examples
    --------
    >>> lines = [["gene", "s1", "s2"], ["A", "1,5", "2"], ["group", "case", "control"]]
    >>> table = table_from_records(lines, "genes.csv", (), None, Layout(transpose=True))
    >>> table.values.tolist(), table.row_names, table.annotations["group"].tolist()
    ([[1.5], [2.0]], ['s1', 's2'], ['case', 'control'])
    """
    if layout.transpose:
        for number, line in enumerate(cells):
            if len(line) != len(cells[0]):
                raise ragged(source, len(line), number, len(cells[0]))
        cells = list(zip(*cells, strict=True))
    lines = [line for line in cells if any(value not in ("", None) for value in line)]
    first, *below = lines or [[]]
    sample = [[_text(value) for value in line] for line in below[:100]]
    names = name_columns([_text(value) for value in first], sample, source)
    if layout.transpose and ROW_NAMES not in names:
        names = [ROW_NAMES, *names[1:]]
    frame = pd.DataFrame(below, columns=names, dtype=object)
    frame = frame.map(lambda value: np.nan if _text(value) in MISSING else value).infer_objects()
    rows = frame.pop(ROW_NAMES).map(_text).tolist() if ROW_NAMES in frame else None
    others = set() if features is None else set(names).difference(features)
    aside = {*annotations, *others, *(name for name in names if name.startswith(UNNAMED))}
    said = {"doubt": doubt, "semicolons": semicolons}
    table = table_from_frame(frame, source, aside, row_names=rows, layout=layout, **said)
    return without_empty(table)


def _text(value: object) -> str:
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    return "" if value is None else str(value).strip()


def separator_of(path: Path, lines: Sequence[str]) -> str:
    """Return the usual separator of a file's name, or another that its first lines agree on."""
    bare = [re.sub('"[^"]*"', "", line) for line in lines]  # quoted names may hold anything
    usual = "," if ".csv" in path.name.lower() else "\t"
    marks = (usual, "\t", ";", ",", "|")
    counts = {mark: [line.count(mark) for line in bare] for mark in marks}
    agreed = {mark: own[0] for mark, own in counts.items() if own and own[0] == own[-1] > 0}
    if agreed and (usual not in agreed or max(agreed.values()) > agreed[usual]):
        return max(agreed, key=agreed.__getitem__)
    first = bare[0] if bare else ""
    return next((mark for mark in marks if mark in first), usual)


def name_columns(first: Sequence[str], below: Sequence[Sequence[str]], source: str) -> list[str]:
    """Return the names of columns that a first line gives, or refuse it."""
    if not first:
        raise ValueError(f"{source} is empty; give a file with column names and data.")
    if any("\0" in name for name in first):
        raise ValueError(f"{source} is not a text file; check that its ending matches its format.")
    if not below:
        raise ValueError(f"{source} has no rows below its column names; give a file with data.")
    # `write_csv` writes an apostrophe where a spreadsheet would find a formula.
    names = [re.sub(r"^'(?=[=+@\t\r-])", "", name).strip() for name in first]
    names = [re.sub(r"\s*[\r\n]\s*", " ", name) for name in names]  # of cells with two lines
    if names[0] == "" and len(names) > 1:
        names = [ROW_NAMES, *names[1:]]
    elif len(below[0]) == len(names) + 1 and below[0][-1] != "":
        _refuse_split_numbers([line[0] for line in below], source)
        names = [ROW_NAMES, *names]  # as R writes row names
    if len(below[0]) != len(names):
        raise ragged(source, len(below[0]), 1, len(names))
    refuse_repeated([name for name in names if name], source)
    _refuse_table_beside(names, below, source)
    if _is_data(names, below):
        raise ValueError(
            f"{source} has numbers such as {names[-1]!r} in its first line, where column names are "
            "expected; add a line of names or, if these are names, put a letter before each."
        )
    return [name or f"{UNNAMED}{i}" for i, name in enumerate(names, start=1)]


def _refuse_split_numbers(first: Sequence[str], source: str) -> None:
    """Refuse row names of R that repeat or have points, as where a decimal comma splits numbers."""
    if len(set(first)) < len(first) or any(re.fullmatch(r"[+-]?\d*\.\d+", x) for x in first):
        raise ValueError(
            f"{source} has one value more in its rows than names in its first line, and the first "
            f"values, such as {first[0]!r}, name no rows; if commas are both decimal marks and "
            "separators, export the file with semicolons."
        )


def _refuse_table_beside(names: Sequence[str], below: Sequence[Sequence[str]], source: str) -> None:
    """Refuse columns behind an empty one that end long before the others."""
    filled = [[cell.strip() != "" for cell in column] for column in zip(*below, strict=False)]
    for j in range(1, min(len(names), len(filled)) - 1):
        beside = [k for k in range(j + 1, min(len(names), len(filled))) if names[k]]
        if names[j] or any(filled[j]) or not beside:
            continue
        end = max((i + 1 for k in beside for i, own in enumerate(filled[k]) if own), default=0)
        rows = [i + 1 for i in range(len(below)) if any(column[i] for column in filled[:j])]
        if 0 < end < 0.75 * max(rows, default=0):
            raise ValueError(
                f"{source} has values in column {names[beside[0]]!r}, after an empty column, in "
                f"its first {end} rows only, like a second table; move that table elsewhere."
            )


def ragged(source: str, found: int, row: int, expected: int) -> ValueError:
    """Return the error about a line of another length."""
    above = "skip lines above the header with --skip-rows, or " if row == 1 else ""
    return ValueError(
        f"{source} has {found} values in row {row}, but its first line names {expected} columns; "
        f"{above}give every row the same number of values."
    )


def _is_data(names: Sequence[str], below: Sequence[Sequence[str]]) -> bool:
    """Return whether a first line is a row of data: its values are like those below it.

    Numbers may be names (of wavelengths, of genes). They are in order then, or unlike the data.
    """
    numbers = [number for name in names if (number := _number(name)) is not None]
    if not numbers:
        return False
    columns = list(zip(*below, strict=False))
    data = [x for column in columns for cell in column if (x := _number(cell)) is not None]
    n_words = sum(
        any(cell.strip() not in MISSING and _number(cell) is None for cell in column)
        for column in columns
    )
    if not data or len(numbers) < len(names) - n_words:
        return False
    words = any(name in column for name, column in zip(names, columns, strict=False) if name)
    inside = sum(min(data) <= number <= max(data) for number in numbers) >= 0.8 * len(numbers)
    steps = [b - a for a, b in pairwise(numbers)]
    ordered = len(numbers) >= 3 and (min(steps) > 0 or max(steps) < 0)
    return inside and (words or not ordered)


def _number(text: str) -> float | None:
    """Return a number, whatever its decimal mark."""
    text = text.strip().replace(",", ".")
    return float(text) if text.count(".") < 2 and NUMBER.fullmatch(text) else None


def without_empty(table: Table) -> Table:
    """Leave out columns without a name, if they are empty, and rows without any value."""
    unnamed = [str(name) for name in table.annotations if str(name).startswith(UNNAMED)]
    for name in unnamed:
        if table.annotations[name].notna().any():
            raise ValueError(
                f"{table.source} has no name for column {name.removeprefix(UNNAMED)}; name every "
                "column, or skip lines above the header with --skip-rows."
            )
    table = table._replace(annotations=table.annotations.drop(columns=unnamed))
    if table.row_names is not None and NO_NAME.issuperset(table.row_names):
        table = table._replace(row_names=None)
    names, values, empty = table.row_names, np.asarray(table.values), np.zeros(table.n_rows, bool)
    for i in np.flatnonzero(np.isnan(values[:, 0])):
        named = names is not None and names[i] not in NO_NAME
        empty[i] = not named and bool(np.isnan(values[i]).all())
    if empty.any() and len(table.annotations.columns):
        empty &= table.annotations.isna().all(axis=1).to_numpy()
    if empty.any():
        table = rows_without(
            table, empty, f"without {empty.sum():,} empty row{'s' if empty.sum() > 1 else ''}"
        )
    return without_summaries(table)
