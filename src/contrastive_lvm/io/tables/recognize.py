"""Numbers that are written in other ways, and numbers that are names.

Spreadsheets in many countries write decimal commas, and shares with a per cent sign. A number that
identifies a row (a sample number, a date such as 20250301) is no measurement.
"""

import re

import numpy as np
import pandas as pd

from contrastive_lvm.arrays import Array
from contrastive_lvm.io.tables.table import Column

NUMBER = r"[+-]?(?:\d+(?:[.,]\d*)?|[.,]\d+)(?:[eE][+-]?\d+)?"


def is_written_number(values: Column) -> "pd.Series[bool]":
    """Return which values are numbers, perhaps with a decimal comma or a per cent sign."""
    return values.astype(str).str.fullmatch(rf"\s*{NUMBER}\s*%?\s*")


def has_decimal_commas(values: Column) -> bool:
    """Return whether some number has a comma that cannot separate thousands."""
    text = values.dropna().astype(str).str.strip()
    commas = text[text.str.contains(",", regex=False)]
    return bool((is_written_number(commas) & ~_may_be_thousands(commas)).any())


def _may_be_thousands(text: Column) -> "pd.Series[bool]":
    return text.str.fullmatch(r"[+-]?[1-9]\d{0,2},\d{3}\s*%?")


def parse_written(present: Column, source: str, *, commas: bool = False) -> "tuple[Column, str]":
    """Return numbers, some of them with decimal commas or per cent signs, and which of these.

    A per cent sign must stand in every value or in none; the numbers are read as they are written.
    `commas` says that other columns of the file have decimal commas without a doubt.

    Raises
    ------
    ValueError
        If commas and points are mixed, or if every comma may as well separate thousands.

    Examples
    --------
    >>> numbers, how = parse_written(pd.Series(["1,5", "-0,25", "3"], name="a"), "here.csv")
    >>> numbers.tolist(), how
    ([1.5, -0.25, 3.0], 'decimal commas')
    >>> parse_written(pd.Series(["12.3%", "4%"], name="a"), "here.csv")[1]
    'per cent signs'
    """
    text = present.astype(str).str.strip()
    percent, comma = text.str.endswith("%"), text.str.contains(",", regex=False)
    if not (percent.any() or comma.any()):
        return pd.to_numeric(present.astype(object)), ""
    mixed = comma.any() and text.str.contains(".", regex=False).any()
    doubtful = comma.any() and not commas and _may_be_thousands(text[comma]).all()
    if mixed or doubtful or (percent.any() and not percent.all()):
        odd = text[comma | percent].iloc[0]
        raise ValueError(
            f"{source} has {odd!r} in column {present.name!r}, which can be read in more than one "
            "way among its values; write them with decimal points and without signs or separators."
        )
    numbers = pd.to_numeric(text.str.rstrip("% ").str.replace(",", ".", regex=False))
    how = ["decimal commas"] * bool(comma.any()) + ["per cent signs"] * bool(percent.any())
    return numbers, " and ".join(how)


def is_identifier(name: str, values: Array) -> bool:
    """Return whether a column of numbers names its rows instead of measuring them.

    So do whole numbers under a name such as `id` or `barcode`; whole numbers that never repeat
    under one such as `sample` or `number`; consecutive numbers, and dates such as 20250301.

    Examples
    --------
    >>> is_identifier("sample", np.arange(1.0, 21.0)), is_identifier("age", np.arange(3.0))
    (True, False)
    >>> is_identifier("visit", np.array([20250301.0, 20250302.0, 20250301.0]))
    True
    """
    if not _all_whole(values[:100]) or not _all_whole(values):
        return False
    words = re.findall(r"[a-z]+", re.sub(r"([a-z])([A-Z])", r"\1 \2", name).lower())
    last = words[-1] if words else ""
    if last in ("id", "ids", "identifier", "barcode", "uid", "uuid", "guid"):
        return True
    distinct = len(np.unique(values)) == len(values) >= 3
    whole_name = (
        "sample subject patient machine donor animal mouse row case participant record index"
    )
    if distinct and (last in ("number", "nr", "no") or name.lower() in whole_name.split()):
        return True
    consecutive = distinct and len(values) >= 10 and bool((np.diff(values) == 1).all())
    return consecutive or _all_dates(values)


def _all_whole(values: Array) -> bool:
    return bool(np.isfinite(values).all() and (values == np.round(values)).all())


def _all_dates(values: Array) -> bool:
    """Return whether all numbers are days of the years 1900 to 2099, written as YYYYMMDD."""
    if not ((values >= 19000101) & (values <= 20991231)).all():
        return False
    days = pd.to_datetime(
        pd.Series(values.astype(np.int64).astype(str)), format="%Y%m%d", errors="coerce"
    )
    return bool(days.notna().all())
