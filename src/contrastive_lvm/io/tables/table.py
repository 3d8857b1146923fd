"""The content of a file (numbers for the model, annotations and names) and its layout."""

import re
from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import pandas as pd

from contrastive_lvm.arrays import Matrix, Sparse
from contrastive_lvm.io.tables.on_disk import converted
from contrastive_lvm.linalg.matrices import blocks, is_sparse

# Text that means a missing value in every column.
MISSING = ["", "NA", "N/A", "#N/A", "n/a", "n.d.", "NaN", "nan", "NULL", "null"]
# Text that means a missing value among numbers, in any case; among words it may be a label.
CODES = frozenset(
    {"na", "n/a", "#n/a", "n.a.", "n.d.", "nd", "nan", "<na>", "null", "none", "missing", "?"}
    | {"-", "--", "\u2013", "\u2014", "."}
    | {"#div/0!", "#name?", "#null!", "#num!", "#ref!", "#value!"}  # of spreadsheets
    | {"#nv", "#wert!", "#bezug!", "#zahl!", "#n/d", "#valeur!", "#nombre!", "#\u00a1valor!"}
)
# Below or above what an instrument can measure, among numbers.
CENSORED = re.compile(
    r"[<>]\s*=?\s*(?:lod|loq|lloq|uloq|[0-9.,]+)|bdl|blq|bloq|blod", re.IGNORECASE
)


class Layout(NamedTuple):
    """The layout of a file, as options of a command give it."""

    missing: tuple[str, ...] = ()  # further words or numbers that stand for no value
    skip: tuple[int, ...] = ()  # lines that are left out, counted from 1
    decimal: str | None = None  # "." or ","; None to find out
    transpose: bool = False  # whether features are lines, and rows are columns
    sheet: str | None = None  # of a workbook; None is the first
    row_names: str | None = None  # the column that names the rows
    drop: tuple[str, ...] = ()  # columns that are left out altogether

    def is_missing(self, text: str) -> bool:
        """Return whether a text among numbers stands for no value."""
        return text.casefold() in CODES or text in self.missing


def parse_lines(text: str) -> tuple[int, ...]:
    """Return the numbers of lines, such as those of `1-3,5`.

    >>> parse_lines("1-3,5")
    (1, 2, 3, 5)
    """
    lines: set[int] = set()
    for part in text.split(","):
        found = re.fullmatch(r"\s*([1-9][0-9]{0,6})\s*(?:-\s*([1-9][0-9]{0,6})\s*)?", part)
        first, last = (0, 0) if found is None else (int(found[1]), int(found[2] or found[1]))
        if found is None or last < first:
            raise ValueError(
                f"--skip-rows {text!r} is not a list of line numbers; write --skip-rows 2 for the "
                "second line of the file, or --skip-rows 1-3,5 for several."
            )
        lines.update(range(first, last + 1))
    return tuple(sorted(lines))


def layout_of(
    *,
    na: list[str] | None = None,
    skip_rows: str | None = None,
    decimal: str | None = None,
    transpose: bool = False,
    sheet: str | None = None,
    index: str | None = None,
    drop: list[str] | None = None,
) -> Layout:
    """Return the layout that options describe, or refuse them."""
    marks = {None: None, ".": ".", ",": ",", "point": ".", "comma": ","}
    if decimal not in marks:
        raise ValueError(f"--decimal={decimal} is not a decimal mark; use point or comma.")
    lines = () if skip_rows is None else parse_lines(skip_rows)
    words = tuple(word.strip() for word in na or ())
    return Layout(words, lines, marks[decimal], transpose, sheet, index, tuple(drop or ()))


class Table(NamedTuple):
    """The content of a file."""

    values: Matrix  # (n, d) float64, float32 or CSR, or a map; NaN is a missing entry
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
            f"{source} has values of type {dtype}, which are not real numbers; save real numbers."
        )
    single = dtype.kind == "f" and dtype.itemsize <= 4
    wanted = np.float32 if single else np.float64
    return values.astype(wanted, copy=False) if is_sparse(values) else converted(values, wanted)


def missing_share(*sets: Matrix) -> float:
    """Return the share of missing entries; sparse values have none."""
    dense = [values for values in sets if not is_sparse(values)]
    missing = sum(int(np.isnan(part).sum()) for values in dense for _, part in blocks(values))
    return missing / max(1, sum(values.size for values in dense))


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
            f"{source} has no numeric column for the model; check its separator, its decimal mark "
            "and the names of its columns."
        )


def some(names: Iterable[object]) -> str:
    """Join a few names for a sentence.

    >>> some(["a", "b", "c", "d", "e"])
    "'a', 'b', 'c' and 2 more"
    """
    listed = [repr(str(name)) for name in names]
    return ", ".join(listed[:3]) + (f" and {len(listed) - 3} more" if len(listed) > 3 else "")
