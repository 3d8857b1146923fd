"""Numbers that are written in other ways, and numbers that stand for no value.

Spreadsheets in many countries write decimal commas, thousands with separators, and shares with a
per cent sign.

`1,234` may be 1.234 or 1234. It is read in the way of other numbers of its file in which the
meaning of commas and points is certain; without such numbers it is refused.
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from numbers import Real
from typing import NamedTuple

import numpy as np

from contrastive_lvm.arrays import Array, Matrix
from contrastive_lvm.io.tables.table import CENSORED, Layout
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
# Signs that stand for a minus: of mathematics, a dash, and hyphens.
MINUS = str.maketrans(dict.fromkeys("\u2212\u2013\u2010\u2011\ufe63\uff0d", "-"))
# Signs that stand before or behind a number, and how they are called.
SIGNS = {"%": "per cent signs"} | dict.fromkeys("$\u00a2\u00a3\u00a5\u20ac\u20b9", "currency signs")
SIGNED = re.compile(
    rf"([+-]?)\s*([{''.join(SIGNS)}])?\s*([+-]?.*?)\s*([{''.join(SIGNS)}])?", re.DOTALL
)
# Text around a number.
AROUND = re.compile(r"(\D*?)([+-]?(?:\d(?:[\d.,'\s]*\d)?|[.,]\d+)(?:[eE][+-]?\d+)?)(\D*)")
DATE = re.compile(r"\d{1,4}[-./]\s?\d{1,2}[-./]\s?\d{1,4}\b.*")
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
    typed: set[int]  # which of them are numbers in the file, so that no mark is in doubt
    signs: Counter[str]  # how many have a per cent or currency sign
    spaced: bool  # whether thousands are separated by blanks or apostrophes
    censored: int  # how many values lie below or above what can be measured
    odd: list[int]  # positions of words that are neither numbers nor stand for no value


def examine(name: str, values: Sequence[object], layout: Layout) -> Written:
    """Tell numbers from words in a column; None is a missing entry.

    Examples
    --------
    >>> found = examine("a", ["1,5", None, "-", "12 %", "<LOD", "x"], Layout())
    >>> found.text, dict(found.kinds), found.signs["%"], found.censored, found.odd
    (['1,5', '12'], {'comma': 1, 'whole': 1}, 1, 1, [5])
    """
    positions: list[int] = []
    text, odd, typed = list[str](), list[int](), set[int]()
    kinds, signs = Counter[str](), Counter[str]()
    censored = 0
    spaced = False
    for i, value in enumerate(values):
        word = "" if value is None else str(value).strip()
        if not word or word in layout.missing:
            continue
        if isinstance(value, Real) and not isinstance(value, bool):
            typed.add(len(text))
            positions.append(i)
            text.append(repr(float(value)))
            continue
        number, sign = _without_sign(word)
        match = NUMBER.fullmatch(number)
        if match is None and SPACED.fullmatch(number):
            number, spaced = number.translate(SPACES), True
            match = NUMBER.fullmatch(number)
        if match is not None:
            positions.append(i)
            text.append(number)
            kinds[match.lastgroup or ""] += 1
            signs[sign] += 1
        elif CENSORED.fullmatch(word):
            censored += 1
        elif not layout.is_missing(word):
            odd.append(i)
    signs[""] += len(typed)
    return Written(name, positions, text, kinds, typed, signs, spaced, censored, odd)


def _without_sign(word: str) -> tuple[str, str]:
    """Return a number without its per cent or currency sign, and that sign; "" if it has none.

    An apostrophe that marks a number as text is left out, unless zeros that follow make it a code.

    >>> _without_sign("12,5 %"), _without_sign("-$3"), _without_sign("'4.5"), _without_sign("'007")
    (('12,5', '%'), ('-3', '$'), ('4.5', ''), ("'007", ''))
    """
    word = re.sub(r"^'(?=[+-]?(?:0?[.,]|[1-9]|0$))", "", word.translate(MINUS))
    if not SIGNS.keys() & {*word[:2].strip(), word[-1:]}:
        return word, ""
    found = SIGNED.fullmatch(word)
    assert found is not None
    plus, before, number, after = found.groups(default="")
    both = bool(before and after) or bool(plus and number[:1] in "+-") or before == "%"
    return (word, "") if both else (plus + number, before + after)


def certain_marks(columns: Iterable[Written]) -> frozenset[str]:
    """Return the decimal marks that are certain in some number of the columns."""
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

    `marks` are the decimal marks that are certain in some number of the file, and `given` is the
    one that the user names; `doubt` says whether points may separate thousands, as in files with
    semicolons. A per cent or currency sign must stand in every value or in none; the numbers are
    read as they are written.

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
    signs = [sign for sign in column.signs if column.signs[sign]]
    if len(signs) > 1:
        shown = " and ".join(repr(sign) for sign in signs if sign)
        how = "with and without" if "" in signs else "with"
        raise ValueError(
            f"{source} has numbers {how} {shown} in column {column.name!r}, which is ambiguous; "
            "write all with the same sign or without one, or keep the column out of the model with "
            f"--annotation {column.name}."
        )
    if mark is None:
        told = [
            t for i, t in enumerate(column.text) if i not in column.typed and re.search("[.,]", t)
        ]
        raise ValueError(
            f"{source} has {told[0]!r} in column {column.name!r}, which is ambiguous among its "
            "values; write all in the same way, or give the decimal mark with --decimal point or "
            "--decimal comma."
        )
    group = "," if mark == "." else "."
    numbers = [
        float(t if i in column.typed else t.replace(group, "").replace(",", "."))
        for i, t in enumerate(column.text)
    ]
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
        return None if column.typed else min(marks)
    return "." if doubtful == {"."} and not doubt else None


def _ways_of_writing(column: Written, mark: str) -> str:
    """Describe how numbers were written if not with decimal points; an empty string otherwise."""
    kinds = column.kinds
    decimal = kinds["comma"] or kinds["grouped_by_points"] or (kinds["maybe_comma"] and mark == ",")
    doubtful = kinds["maybe_point" if mark == "," else "maybe_comma"]
    thousands = (
        column.spaced or kinds["grouped_by_commas"] or kinds["grouped_by_points"] or doubtful
    )
    ways = ["decimal commas"] * bool(decimal) + ["thousands separators"] * bool(thousands)
    signs = [SIGNS[sign] for sign in column.signs if sign and column.signs[sign]]
    return " and ".join(ways + signs)


# Numbers by which people say that there is none.
SENTINELS = (-99.0, -999.0, -9999.0, -99999.0, 999.0, 9999.0, 99999.0)


def sentinel_in(values: Array) -> float | None:
    """Return a number such as -999 that seems to stand for no value; None if there is none.

    All other numbers are far from it: none is negative where it is, or none is a fifth as large.
    A positive one occurs at least twice.

    >>> sentinel_in(np.array([1.5, -999.0, 2.5])), sentinel_in(np.array([-998.0, -999.0, 2.5]))
    (-999.0, None)
    """
    for code in {float(np.nanmin(values)), float(np.nanmax(values))}.intersection(SENTINELS):
        others = values[(values != code) & ~np.isnan(values)]
        alone = (others >= 0).all() if code < 0 else (np.abs(others) < code / 5).all()
        if len(others) and alone and (code < 0 or len(values) - len(others) > 1):
            return code
    return None


def looks_measured(words: Sequence[str]) -> bool:
    """Return whether texts are numbers with something around them, the same in most, or in digits.

    Dates, times and numbered names such as `S12` are none.

    >>> looks_measured(["3.2 kg", "12 kg"]), looks_measured(["(1.5)"]), looks_measured(["S1", "S2"])
    (True, True, False)
    >>> looks_measured(["1.5 \u00b1 0.2", "2"]), looks_measured(["2025-03-01"])
    (True, False)
    """
    if not words:
        return False
    parts = [part for word in words if (part := AROUND.fullmatch(word.strip()))]
    common = Counter(part.group(1, 3) for part in parts).most_common(3)
    around = [text for text, _ in common]
    if sum(n for _, n in common) >= 0.8 * len(words) and around != [("", "")]:
        fractions = any(re.search("[.,]", part[2]) for part in parts)
        units = all(not re.match(r"[_\d-]", after) for _, after in around)
        return units and (fractions or not any(before for before, _ in around))
    return any(re.search(r"[.,\u00b7\u00b1]", word) for word in words) and all(
        re.fullmatch(r"[-+~<>(]*\d[^A-Za-z/:_]*", word) and not DATE.fullmatch(word)
        for word in words
    )


def look_like_counts(values: Matrix) -> bool:
    """Tell whether all values are whole numbers from zero, and not only zeros and ones."""
    block = widen(values[:200])
    observed = block[~np.isnan(block)]
    counts = bool((observed >= 0).all() and (observed == np.round(observed)).all())
    return counts and float(observed.max(initial=0.0)) > 1.0


def look_uneven(values: Matrix) -> bool:
    """Tell whether the scales of features differ so much that they determine a result."""
    return bool(dominant_features(values)[0])


def dominant_features(values: Matrix, most: int = 3) -> tuple[list[int], float]:
    """Return features whose scales determine a result, the largest first, and their variance.

    There are some if one of several features has more than half of the variance, or if variances
    differ by a factor of 1,000. They are as many of the largest as have half of the variance, at
    most `most`, with the share that they have.

    >>> rows = np.random.default_rng(0).normal(size=(50, 6))
    >>> dominant_features(rows), dominant_features(rows * [1.0, 1.0, 1.0, 1.0, 1.0, 20.0])[0]
    (([], 0.0), [5])
    """
    variances, _ = column_variances(values[:2000])
    varying = variances[variances > 0]
    if not len(varying):
        return [], 0.0
    alone = len(varying) >= 4 and varying.max() > 0.5 * varying.sum()
    if not (alone or varying.max() > 1000.0 * varying.min()):
        return [], 0.0
    order = np.argsort(-variances, kind="stable")[:most]
    shares = np.cumsum(variances[order]) / varying.sum()
    n = min(int(np.searchsorted(shares, 0.5)) + 1, len(order))
    return [int(i) for i in order[:n]], float(shares[n - 1])
