"""How a file is laid out, where its user has to say so, and which words stand for no value."""

import re
from typing import NamedTuple

# No value, in every column.
MISSING = ["", "NA", "N/A", "#N/A", "n/a", "n.d.", "NaN", "nan", "NULL", "null"]
# No value among numbers, in capitals or not; among words they may be labels.
CODES = frozenset(
    {"na", "n/a", "#n/a", "n.a.", "n.d.", "nd", "nan", "<na>", "null", "none", "missing", "?"}
    | {"-", "--", "\u2013", "\u2014", "."}
    | {"#div/0!", "#name?", "#null!", "#num!", "#ref!", "#value!"}  # of spreadsheets
)
# Below or above what an instrument can measure, among numbers.
CENSORED = re.compile(
    r"[<>]\s*=?\s*(?:lod|loq|lloq|uloq|[0-9.,]+)|bdl|blq|bloq|blod", re.IGNORECASE
)


class Layout(NamedTuple):
    """What the options of a command say about the layout of a file."""

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
                f"--skip-rows {text!r} does not number lines; write --skip-rows 2 for the second "
                "line of the file, or --skip-rows 1-3,5 for several."
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
        raise ValueError(f"--decimal={decimal} is no decimal mark; use point or comma.")
    lines = () if skip_rows is None else parse_lines(skip_rows)
    words = tuple(word.strip() for word in na or ())
    return Layout(words, lines, marks[decimal], transpose, sheet, index, tuple(drop or ()))
