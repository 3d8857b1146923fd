"""The first line of a table: what separates columns, and what they are called."""

import re
from collections.abc import Sequence
from itertools import islice, pairwise
from pathlib import Path
from typing import NamedTuple

from contrastive_lvm.io.tables.layout import MISSING, Layout
from contrastive_lvm.io.tables.open_text import opened, records
from contrastive_lvm.io.tables.recognize import NUMBER
from contrastive_lvm.io.tables.table import refuse_repeated

ROW_NAMES = "\0row"  # the column that names rows, while it is read
UNNAMED = "\0column "  # a column without a name, which must be empty
SAMPLE = 100  # lines that tell whether there is a line of names


class Header(NamedTuple):
    """The first line of a file, and what its reader wants to be kept out of the numbers."""

    separator: str
    names: list[str]  # of all columns, one of which may name the rows
    annotations: set[str]
    encoding: str
    layout: Layout
    doubt: bool = False  # whether points may separate thousands: no number shows that they do not
    coded: frozenset[str] = frozenset()  # columns of whole numbers with zeros before them

    @property
    def plain(self) -> bool:
        """Whether the bytes of the file are its lines, with numbers as Python writes them."""
        unmarked = self.encoding == "utf-8-sig" and not self.layout.skip
        return unmarked and self.layout.decimal != "," and not self.doubt


def read_header(path: Path, layout: Layout, encoding: str) -> Header:
    """Return the separator and the names of columns, one of which may name the rows."""
    with opened(path, encoding, layout.skip) as (_, text):
        lines = list(islice((line for line in text if line.strip()), 2))
    separator = separator_of(path, lines)
    with opened(path, encoding, layout.skip) as (_, text):
        first, *below = [*islice(records(text, separator), SAMPLE)] or [[]]
    names = name_columns(first, below, str(path))
    pointed = (NUMBER.fullmatch(cell.strip()) for line in below for cell in line if "." in cell)
    doubt = separator == ";" and not any(found and found["point"] for found in pointed)
    return Header(separator, names, set(), encoding, layout, doubt)


def name_columns(first: Sequence[str], below: Sequence[Sequence[str]], source: str) -> list[str]:
    """Return the names of columns that a first line gives, or refuse it."""
    if not first:
        raise ValueError(f"{source} is empty; give a file with a line of column names and data.")
    if any("\0" in name for name in first):
        raise ValueError(f"{source} is not a text file; name a file that its ending describes.")
    if not below:
        raise ValueError(f"{source} has no rows below its column names; give a file with data.")
    # `write_csv` writes an apostrophe where a spreadsheet would find a formula.
    names = [re.sub(r"^'(?=[=+@\t\r-])", "", name).strip() for name in first]
    if names[0] == "" and len(names) > 1:
        names = [ROW_NAMES, *names[1:]]
    elif len(below[0]) == len(names) + 1 and below[0][-1] != "":
        names = [ROW_NAMES, *names]  # as R writes row names
    if len(below[0]) != len(names):
        raise ragged(source, len(below[0]), 1, len(names))
    refuse_repeated([name for name in names if name], source)
    _refuse_data(names, below, source)
    return [name or f"{UNNAMED}{i}" for i, name in enumerate(names, start=1)]


def separator_of(path: Path, lines: list[str]) -> str:
    """Return the usual separator of a file's name, or another that its first lines agree on."""
    bare = [re.sub('"[^"]*"', "", line) for line in lines]  # quoted names may hold anything
    usual = "," if ".csv" in path.name.lower() else "\t"
    counts = {mark: [line.count(mark) for line in bare] for mark in (usual, "\t", ";", ",")}
    agreed = {mark: own[0] for mark, own in counts.items() if own and own[0] == own[-1] > 0}
    if agreed and (usual not in agreed or max(agreed.values()) > agreed[usual]):
        return max(agreed, key=agreed.__getitem__)
    first = bare[0] if bare else ""
    return next((mark for mark in (usual, "\t", ";", ",") if mark in first), usual)


def _refuse_data(names: Sequence[str], below: Sequence[Sequence[str]], source: str) -> None:
    """Refuse a first line that is a row of data: its words or numbers are like those below it.

    Numbers may be names (of wavelengths, of genes). They are in order then, or unlike the data.
    """
    columns = list(zip(*below, strict=False))
    words = any(name in column for name, column in zip(names, columns, strict=False) if name)
    numbers = [number for name in names if (number := _number(name)) is not None]
    data = [x for column in columns for cell in column if (x := _number(cell)) is not None]
    if not numbers or not data or len(numbers) < len(names) - _n_words(columns):
        return
    inside = sum(min(data) <= number <= max(data) for number in numbers) >= 0.8 * len(numbers)
    steps = [b - a for a, b in pairwise(numbers)]
    ordered = len(numbers) >= 3 and (min(steps) > 0 or max(steps) < 0)
    if inside and (words or not ordered):
        raise ValueError(
            f"{source} has numbers such as {names[-1]!r} in its first line, where names of columns "
            "belong; add a line of names, or put a letter before each if they are names."
        )


def _n_words(columns: Sequence[Sequence[str]]) -> int:
    """Return how many columns have words."""
    return sum(
        any(cell.strip() not in MISSING and _number(cell) is None for cell in column)
        for column in columns
    )


def _number(text: str) -> float | None:
    """Return a number, whatever its decimal mark."""
    text = text.strip().replace(",", ".")
    return float(text) if text.count(".") < 2 and NUMBER.fullmatch(text) else None


def ragged(source: str, found: int, row: int, expected: int) -> ValueError:
    """Return the refusal of a line of another length."""
    above = "leave lines above the names out with --skip-rows, or " if row == 1 else ""
    return ValueError(
        f"{source} has {found} values in row {row}, but its first line names {expected} columns; "
        f"{above}give every row as many values."
    )
