"""Numbers that are names: of samples, machines, batches, positions on a plate, days.

A number that identifies a row (a sample number, a date such as 20250301) is no measurement.
"""

import re
from unicodedata import normalize

import numpy as np

from contrastive_lvm.arrays import Array

# Words that name what a number identifies, at the end of the name of a column.
ALWAYS = {"id", "identifier", "kennung", "barcode", "uid", "uuid", "guid"}
# Words for a day, at either end of the name.
DATES = {"date", "datetime", "datum", "fecha", "timestamp", "uhrzeit"}
# Things that have numbers, if the column is named after them and nothing else.
NUMBERED = {
    "aliquot", "animal", "batch", "box", "cage", "centre", "center", "charge", "chip", "cohort",
    "donor", "experiment", "kafig", "lane", "litter", "lot", "machine", "maschinen", "maus",
    "mouse", "mrn", "operator", "participant", "patient", "patienten", "phone", "plate", "platte",
    "platten", "plz", "postcode", "proband", "probanden", "probe", "proben", "rat", "rep",
    "replicate", "run", "sample", "site", "slide", "spender", "subj", "subject", "tier", "tube",
    "vial", "well", "zip",
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
LEAST_COUNTED = 10  # rows, of a column that counts them in blocks


def is_identifier(name: str, values: Array) -> bool:
    """Return whether a column of numbers names its rows instead of measuring them.

    So do numbers under a name such as `id`, `barcode` or `date`; whole numbers of things that have
    numbers (`sample`, `machine number`); whole numbers that never repeat under a name such as
    `index` or `number`; numbers in equal steps, as clocks and counters give them; whole numbers
    that count blocks of rows (1, 1, 2, 2, ...) or positions in them (1, 2, 1, 2, ...); dates such
    as 20250301 or 3.2025, and under a name such as `visit` or `time` dates as spreadsheets and
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
    if _counts_rows(values):
        return True
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


def _counts_rows(values: Array) -> bool:
    """Return whether whole numbers count blocks of equal size, or positions in such blocks.

    >>> _counts_rows(np.repeat(np.arange(5.0), 3)), _counts_rows(np.tile([0.0, 4.0, 12.0], 5))
    (True, True)
    >>> _counts_rows(np.array([1.0, 1.0, 2.0, 2.0, 3.0, 3.0, 5.0, 4.0, 4.0, 4.0]))
    False
    """
    n = len(values)
    if n < LEAST_COUNTED or not _all_whole(values) or np.isnan(values).any():
        return False
    first = np.flatnonzero(values != values[0])
    size = int(first[0]) if len(first) else n
    if 1 < size <= n / 3:
        return bool((values == values[0] + np.arange(n) // size).all())
    again = np.flatnonzero(values == values[0])[1:]
    length = int(again[0]) if len(again) else n
    cycle = values[:length]
    rising = 1 < length <= n / 3 and bool((np.diff(cycle) > 0).all())
    return rising and bool((values == np.resize(cycle, n)).all())


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
