"""Numbers that are written in other ways, and numbers that are names.

Spreadsheets in many countries write decimal commas, thousands with separators, and shares with a
per cent sign. A number that identifies a row (a sample number, a date such as 20250301) is no
measurement.

`1,234` may be 1.234 or 1234. It is read in the way of other numbers of its file in which the
meaning of commas and points is certain; without such numbers it is refused.
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from numbers import Real
from typing import NamedTuple
from unicodedata import normalize

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
    word = re.sub(r"^'(?=[+-]?(?:0?[.,]|[1-9]|0$))", "", word.replace("\u2212", "-"))
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


# Words that name what a number identifies, at the end of the name of a column.
ALWAYS = {"id", "identifier", "kennung", "barcode", "uid", "uuid", "guid"}
# Words for a day, at either end of the name.
DATES = {"date", "datetime", "datum", "fecha", "timestamp", "uhrzeit"}
# Things that have numbers, if the column is named after them and nothing else.
NUMBERED = {
    "animal", "batch", "cage", "centre", "center", "charge", "chip", "donor", "lane", "litter",
    "lot", "machine", "maschinen", "maus", "mouse", "operator", "participant",
    "patient", "patienten", "plate", "platte", "platten", "proband", "probanden", "probe", "proben",
    "rat", "run", "sample", "site", "slide", "spender", "subject", "tier", "tube", "vial",
}  # fmt: skip
COUNTED = {"number", "nr", "no", "num", "nummer", "numero", "code"}
ONCE = {"case", "index", "record", "row", "unnamed", ""}  # if they never repeat
# Words for a point in time, which may be a number of days or of seconds.
TIMES = DATES | {
    "birth", "birthday", "collected", "day", "dob", "epoch", "jahr", "monat", "month", "sampled",
    "stamp", "time", "ts", "visit", "when", "year", "zeit",
}  # fmt: skip
# Days since 1900 as spreadsheets count them, and (milli)seconds since 1970, of about 1955 to 2065.
MOMENTS = ((20_000, 60_000), (2e8, 3e9), (2e11, 3e12))
YEARS = (1900, 2100)


def is_identifier(name: str, values: Array) -> bool:
    """Return whether a column of numbers names its rows instead of measuring them.

    So do numbers under a name such as `id`, `barcode` or `date`; whole numbers of things that have
    numbers (`sample`, `machine number`); whole numbers that never repeat under a name such as
    `index` or `number`; numbers in equal steps, as clocks and counters give them; dates such as
    20250301 or 3.2025, and under a name such as `visit` or `time` dates as spreadsheets and
    computers keep them, and what grows from row to row.

    Examples
    --------
    >>> is_identifier("sample", np.arange(1.0, 21.0)), is_identifier("age", np.arange(3.0))
    (True, False)
    >>> is_identifier("visit", np.array([20250301.0, 20250302.0, 20250301.0]))
    True
    >>> is_identifier("ID2", np.array([0.0, 3.0, 0.0, 1.0]))  # a gene
    False
    >>> is_identifier("seconds", np.tile(np.arange(0.0, 3.0, 0.1), 2))  # of two recordings
    True
    >>> is_identifier("Entnahmedatum", np.array([12.03, 14.03, 1.04]))  # days and months
    True
    """
    words = _words_of_a_name(name)
    last = words[-1] if words else ""
    timed = bool(TIMES.intersection(words))
    certain = last in ALWAYS or bool(DATES.intersection(words[:1] + words[-1:]))
    if not (timed or certain or _may_be_dates(values[:12]) or _has_equal_steps(values[:12])):
        return False
    values = values[~np.isnan(values)]
    gene = bool(re.search(r"\d\W*$", name))  # a name with a number, such as that of the gene ID2
    distinct = len(np.unique(values)) == len(values) >= 3
    named = not gene or (distinct and not name.isupper())
    if (certain and named) or _is_clock(values, named=timed):
        return bool(len(values))
    if _all_dates(values, named=timed):
        return True
    if not _all_whole(values):
        return False
    things = [word for word in words if word not in COUNTED]
    if len(things) == 1 and things[0] in NUMBERED:
        return named
    counted = last in COUNTED or (len(words) <= 1 and last in ONCE)
    return distinct and counted


def _words_of_a_name(name: str) -> list[str]:
    """Return the words of a name, without accents and in parts.

    >>> _words_of_a_name("PatientID"), _words_of_a_name("Entnahmedatum")
    (['patient', 'id'], ['entnahme', 'datum'])
    """
    plain = normalize("NFKD", name).encode("ascii", "ignore").decode()
    words = re.findall(r"[a-z]+", re.sub(r"([a-z])([A-Z])", r"\1 \2", plain).lower())
    if plain.isupper():  # names of genes, such as DENR
        return words
    parts = [re.sub(r"(?<=..)(datum|nummer|number|nr)$", r" \1", word).split() for word in words]
    return [part for own in parts for part in own]


def _may_be_dates(values: Array) -> bool:
    """Return whether the first numbers are whole, or have years behind the point."""
    values = values[~np.isnan(values)]
    return _all_whole(values) or _are_months(values)


def _are_months(values: Array) -> bool:
    """Return whether numbers are months and years, such as 3.2025, at least five of them."""
    years = np.round(1e4 * (values % 1.0), 6)
    return len(values) >= 5 and bool(
        (np.isin(np.floor(values), range(1, 13)) & _in_years(years) & (years % 1 == 0)).all()
    )


def _in_years(values: Array) -> np.ndarray:
    return (values >= YEARS[0]) & (values <= YEARS[1])


def _all_whole(values: Array) -> bool:
    values = values[~np.isnan(values)]
    return bool(len(values) and np.isfinite(values).all() and (values == np.round(values)).all())


def _has_equal_steps(values: Array) -> bool:
    """Return whether at least ten numbers rise in steps that are equal but for rounding."""
    steps = np.diff(values[~np.isnan(values)])
    return len(steps) >= 9 and bool(steps[0] > 0) and bool(np.ptp(steps) <= 0.1 * steps.mean())


def _is_clock(values: Array, *, named: bool) -> bool:
    """Return whether numbers rise in equal steps, in one recording or in several of ten rows.

    Under the name of a time it is enough that they rise.
    """
    if len(values) < 10 or not np.isfinite(values).all():
        return False
    steps = np.diff(values)
    step = float(np.median(steps))
    rising = steps > 0 if named else np.abs(steps - step) <= 0.05 * step
    return step > 0 and int((~rising).sum()) <= len(values) // 10 - 1


def _all_dates(values: Array, *, named: bool) -> bool:
    """Return whether all numbers are dates.

    They are days of the years 1900 to 2099 written as YYYYMMDD or the other way round, or months
    and years. Under the name of a time, or if they are at least ten, shorter forms are dates too:
    YYMMDD, DDMMYY and YYYYMM. Under such a name so are days and months (12.03), years, and days
    since 1900 or seconds since 1970 of our times.
    """
    if _are_months(values):
        return True
    if named and len(values) >= 5 and _are_days(np.floor(values), np.round(1e2 * (values % 1), 6)):
        return True
    if named and any(bool(((values >= low) & (values <= high)).all()) for low, high in MOMENTS):
        return True
    if not _all_whole(values) or not len(values):
        return False
    if named and _in_years(values).all():
        return True
    first, middle, end = (values // 10**6, values // 10**4 % 100, values % 10**4)
    short = (values // 10**4, values // 100 % 100, values % 100)
    if values.min() > 10**6:
        back = _in_years(end).all() and (_are_days(first, middle) or _are_days(middle, first))
        return bool(back) or bool(_in_years(short[0]).all() and _are_days(short[2], short[1]))
    if not (named or len(values) >= 10) or values.min() < 10**4 or values.max() >= 10**6:
        return False
    months = _in_years(values // 100).all() and np.isin(values % 100, range(1, 13)).all()
    return bool(months) or _are_days(short[2], short[1]) or _are_days(short[0], short[1])


def _are_days(days: Array, months: Array) -> bool:
    return bool((np.isin(days, range(1, 32)) & np.isin(months, range(1, 13))).all())


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
