"""Numbers that are written in other ways, and numbers that are names.

Spreadsheets in many countries write decimal commas, thousands with separators, and shares with a
per cent sign. A number that identifies a row (a sample number, a date such as 20250301) is no
measurement.

`1,234` may be 1.234 or 1234. It is read as the other numbers of its file are written, which say
without a doubt what their commas and points mean, or not at all.
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from contrastive_lvm.arrays import Array, Matrix
from contrastive_lvm.io.tables.layout import CENSORED, Layout
from contrastive_lvm.linalg.matrices import column_variances, widen

# The name of the group that matches says what the marks of a number mean.
NUMBER = re.compile(
    r"""[+-]?(?:
      (?P<maybe_comma>[1-9]\d{0,2},\d{3})
    | (?P<maybe_point>[1-9]\d{0,2}\.\d{3})
    | (?P<grouped_by_commas>\d{1,3}(?:,\d{3})+\.\d+|[1-9]\d{0,2}(?:,\d{3}){2,})
    | (?P<grouped_by_points>\d{1,3}(?:\.\d{3})+,\d+|[1-9]\d{0,2}(?:\.\d{3}){2,})
    | (?P<comma>(?:\d+,\d*|,\d+)(?:[eE][+-]?\d+)?)
    | (?P<point>(?:\d+\.\d*|\.\d+)(?:[eE][+-]?\d+)?)
    | (?P<whole>\d+(?:[eE][+-]?\d+)?|[iI]nf(?:inity)?|INF)
    )""",
    re.ASCII | re.VERBOSE,
)
SPACED = re.compile(r"[+-]?[0-9]{1,3}(?:[ '\u00a0\u2009\u202f\u2019][0-9]{3})+(?:[.,][0-9]+)?")
SPACES = str.maketrans(dict.fromkeys(" '\u00a0\u2009\u202f\u2019"))
# The decimal mark without a doubt.
CERTAIN = {
    "comma": ",",
    "grouped_by_points": ",",
    "point": ".",
    "grouped_by_commas": ".",
}


class Written(NamedTuple):
    """The values of a column that has numbers among its text."""

    name: str
    positions: list[int]  # those of the numbers
    text: list[str]  # the numbers, without signs and blanks
    kinds: Counter[str]  # how many numbers there are of each kind
    percent: int  # how many have a per cent sign
    spaced: bool  # whether thousands are separated by blanks or apostrophes
    censored: int  # how many values lie below or above what can be measured
    odd: list[int]  # positions of words that are neither numbers nor stand for no value


def examine(name: str, values: Sequence[object], layout: Layout) -> Written:
    """Tell numbers from words in a column; None is a missing entry.

    Examples
    --------
    >>> found = examine("a", ["1,5", None, "-", "12 %", "<LOD", "x"], Layout())
    >>> found.text, dict(found.kinds), found.percent, found.censored, found.odd
    (['1,5', '12'], {'comma': 1, 'whole': 1}, 1, 1, [5])
    """
    positions: list[int] = []
    text, odd, kinds = [], [], Counter[str]()
    percent = censored = 0
    spaced = False
    for i, value in enumerate(values):
        word = "" if value is None else str(value).strip()
        if not word or word in layout.missing:
            continue
        number = word.removesuffix("%").rstrip().replace("\u2212", "-")
        match = NUMBER.fullmatch(number)
        if match is None and SPACED.fullmatch(number):
            number, spaced = number.translate(SPACES), True
            match = NUMBER.fullmatch(number)
        if match is not None:
            positions.append(i)
            text.append(number)
            kinds[match.lastgroup or ""] += 1
            percent += word.endswith("%")
        elif CENSORED.fullmatch(word):
            censored += 1
        elif not layout.is_missing(word):
            odd.append(i)
    return Written(name, positions, text, kinds, percent, spaced, censored, odd)


def certain_marks(columns: Iterable[Written]) -> frozenset[str]:
    """Return the decimal marks that some number of the columns has without a doubt."""
    kinds = {kind for column in columns for kind in column.kinds}
    return frozenset(CERTAIN[kind] for kind in kinds if kind in CERTAIN)


def parse_written(
    column: Written,
    marks: frozenset[str],
    source: str,
    *,
    given: str | None = None,
    doubt: bool = False,
) -> tuple[Array, str]:
    """Return the numbers of a column, and in what other way they were written, if in any.

    `marks` are the decimal marks that some number of the file has without a doubt, and `given` the
    one that its user names; `doubt` says whether points may separate thousands, as in files with
    semicolons. A per cent sign must stand in every value or in none; the numbers are read as they
    are written.

    Raises
    ------
    ValueError
        If they can be read in more than one way.

    Examples
    --------
    >>> column = examine("a", ["1,5", "-0,25", "3"], Layout())
    >>> parse_written(column, certain_marks([column]), "here.csv")
    (array([ 1.5 , -0.25,  3.  ]), 'decimal commas')
    """
    mark = _decimal_mark(column, marks, given, doubt=doubt)
    if mark is None or 0 < column.percent < len(column.text):
        told = [t for t in column.text if mark is not None or "," in t or "." in t]
        odd = f"{told[0]}%" if mark is not None else told[0]
        raise ValueError(
            f"{source} has {odd!r} in column {column.name!r}, which can be read in more than one "
            "way among its values; write all alike, or name the decimal mark with --decimal point "
            "or --decimal comma."
        )
    group = "," if mark == "." else "."
    numbers = [float(t.replace(group, "").replace(",", ".")) for t in column.text]
    return np.array(numbers), _ways_of_writing(column, mark)


def _decimal_mark(
    column: Written, marks: frozenset[str], given: str | None, *, doubt: bool
) -> str | None:
    """Return the decimal mark of a column, or None if it can be read in more than one way."""
    kinds, own = column.kinds, certain_marks([column])
    doubtful = {mark for mark, kind in ((",", "maybe_comma"), (".", "maybe_point")) if kinds[kind]}
    if len(own) == 2 or not own | doubtful:
        return None if own else "."
    if given:
        return None if own - {given} else given
    if own:
        mark = min(own)
        grouped = kinds["grouped_by_commas" if mark == "." else "grouped_by_points"]
        return mark if grouped or not doubtful - own else None
    if len(doubtful) == 2 or len(marks) == 2:
        return None
    if marks:
        return min(marks)
    return "." if doubtful == {"."} and not doubt else None


def _ways_of_writing(column: Written, mark: str) -> str:
    """Say in what other way numbers were written than with decimal points; nothing if in none."""
    kinds = column.kinds
    decimal = kinds["comma"] or kinds["grouped_by_points"] or (kinds["maybe_comma"] and mark == ",")
    doubtful = kinds["maybe_point" if mark == "," else "maybe_comma"]
    thousands = (
        column.spaced or kinds["grouped_by_commas"] or kinds["grouped_by_points"] or doubtful
    )
    ways = ["decimal commas"] * bool(decimal) + ["thousands separators"] * bool(thousands)
    return " and ".join(ways + ["per cent signs"] * bool(column.percent))


# Words that name what a number identifies, at the end of the name of a column.
ALWAYS = {"id", "ids", "identifier", "barcode", "uid", "uuid", "guid", "date", "timestamp"}
# Things that have numbers, if the column is named after them and nothing else.
NUMBERED = {
    "animal", "batch", "cage", "donor", "lane", "lot", "machine", "mouse", "participant",
    "patient", "plate", "proband", "rat", "sample", "slide", "subject",
}  # fmt: skip
COUNTED = {"number", "nr", "no", "num", "nummer", "code"}
ONCE = {"case", "index", "record", "row", "unnamed", ""}  # if they never repeat


def is_identifier(name: str, values: Array) -> bool:
    """Return whether a column of numbers names its rows instead of measuring them.

    So do whole numbers under a name such as `id`, `barcode` or `date`, and those of things that
    have numbers (`sample`, `machine number`); whole numbers that never repeat under a name such as
    `index` or `number`; consecutive numbers, and dates such as 20250301.

    Examples
    --------
    >>> is_identifier("sample", np.arange(1.0, 21.0)), is_identifier("age", np.arange(3.0))
    (True, False)
    >>> is_identifier("visit", np.array([20250301.0, 20250302.0, 20250301.0]))
    True
    >>> is_identifier("ID2", np.array([0.0, 3.0, 0.0, 1.0]))  # a gene
    False
    """
    values = values[np.isfinite(values)] if np.isnan(values[:100]).any() else values
    if not _all_whole(values[:100]) or not _all_whole(values):
        return False
    words = re.findall(r"[a-z]+", re.sub(r"([a-z])([A-Z])", r"\1 \2", name).lower())
    last = words[-1] if words else ""
    things = [word for word in words if word not in COUNTED]
    distinct = len(np.unique(values)) == len(values) >= 3
    gene = bool(re.search(r"\d\W*$", name))  # a name with a number, such as that of the gene ID2
    if last in ALWAYS or (len(things) == 1 and things[0] in NUMBERED):
        return distinct or not gene
    counted = last in COUNTED or (len(words) <= 1 and last in ONCE)
    consecutive = len(values) >= 10 and bool((np.diff(values) == 1).all())
    return (distinct and (counted or consecutive)) or _all_dates(values)


def _all_whole(values: Array) -> bool:
    return bool(len(values) and np.isfinite(values).all() and (values == np.round(values)).all())


def _all_dates(values: Array) -> bool:
    """Return whether all numbers are days of the years 1900 to 2099, written as YYYYMMDD."""
    if not ((values >= 19000101) & (values <= 20991231)).all():
        return False
    days = pd.to_datetime(
        pd.Series(values.astype(np.int64).astype(str)), format="%Y%m%d", errors="coerce"
    )
    return bool(days.notna().all())


def look_like_counts(values: Matrix) -> bool:
    """Tell whether all values are whole numbers from zero, and not only zeros and ones."""
    block = widen(values[:200])
    observed = block[~np.isnan(block)]
    counts = bool((observed >= 0).all() and (observed == np.round(observed)).all())
    return counts and float(observed.max(initial=0.0)) > 1.0


def look_uneven(values: Matrix) -> bool:
    """Tell whether the scales of features differ so much that they determine a result.

    That is if variances differ by a factor of 1,000, or if one of several features has more than
    half of the variance.

    >>> rows = np.random.default_rng(0).normal(size=(50, 6))
    >>> look_uneven(rows), look_uneven(rows * [1.0, 1.0, 1.0, 1.0, 1.0, 20.0])
    (False, True)
    """
    variances, _ = column_variances(values[:2000])
    varying = variances[variances > 0]
    if not len(varying):
        return False
    alone = len(varying) >= 4 and varying.max() > 0.5 * varying.sum()
    return bool(alone or varying.max() > 1000.0 * varying.min())
