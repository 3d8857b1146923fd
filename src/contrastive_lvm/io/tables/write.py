"""Writing results as tables: text, NumPy or Parquet, chosen by the name of the file."""

import gzip
from collections.abc import Sequence
from pathlib import Path
from typing import IO

import numpy as np
import pandas as pd

from contrastive_lvm.arrays import Array
from contrastive_lvm.io.tables.table import Table


def described(table: Table, columns: Sequence[str], values: Array) -> pd.DataFrame:
    """Join computed values of rows to their names and annotations.

    Where a computed column has the name of an annotation, the annotation gives way.
    """
    own = pd.DataFrame(np.asarray(values), columns=list(columns))
    notes = table.annotations.drop(columns=[n for n in table.annotations if n in set(columns)])
    frame = pd.concat([notes.reset_index(drop=True), own], axis=1)
    if table.row_names is not None:
        frame.index = pd.Index(table.row_names)
    return frame


def ending_of(path: Path) -> str:
    """Return the format that a name asks for, or refuse it before any work."""
    ending = "".join(path.suffixes[-2:]).lower()
    for known in (".csv.gz", ".tsv.gz", ".csv", ".tsv", ".npy", ".parquet"):
        if ending.endswith(known):
            return known
    raise ValueError(
        f"--output={path} has an unknown ending; use .csv, .tsv, .csv.gz, .tsv.gz, .npy "
        "or .parquet."
    )


def write_frame(path: Path, asked: Path, frame: pd.DataFrame, values: Array) -> None:
    """Write a frame in the format that a name asks for, its numbers alone if that has no names."""
    ending = ending_of(asked)
    if ending == ".npy":
        with path.open("wb") as file:
            np.save(file, np.asarray(values), allow_pickle=False)
    elif ending == ".parquet":
        frame.to_parquet(path, engine="pyarrow", index=_is_named(frame))
    else:
        separator = "\t" if ending.startswith(".tsv") else ","
        opened = gzip.open if ending.endswith(".gz") else open
        odd = "backslashreplace"  # halves of characters
        with opened(path, "wt", encoding="utf-8", errors=odd, newline="") as text:
            write_csv(text, frame, separator)


def write_csv(text: IO[str], frame: pd.DataFrame, separator: str = ",") -> None:
    """Write a frame as text in which no spreadsheet finds formulas.

    Words that begin with `= + - @`, a tab or a carriage return are preceded by an apostrophe,
    which spreadsheets take for "this is text"; `read_csv` removes it from names of columns.

    >>> import sys
    >>> write_csv(sys.stdout, pd.DataFrame({"name": ["=1+1", "-5", "a"]}))
    name
    '=1+1
    -5
    a
    """
    named = _is_named(frame)
    harmless_frame(frame).to_csv(text, sep=separator, index=named, lineterminator="\n")


def harmless_frame(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a frame whose words are not taken for formulas."""
    safe = frame.copy(deep=False)
    for name in frame.select_dtypes(["object", "category", "string"]):
        safe[name] = frame[name].astype(object).map(_harmless)
    safe.columns = pd.Index([_harmless(name) for name in frame.columns])
    safe.index = frame.index.map(_harmless) if _is_named(frame) else frame.index
    return safe


def _harmless(value: object) -> object:
    if not isinstance(value, str) or not value.startswith(("=", "+", "-", "@", "\t", "\r")):
        return value
    return f"'{value}" if np.isnan(pd.to_numeric(value, errors="coerce")) else value


def _is_named(frame: pd.DataFrame) -> bool:
    return not isinstance(frame.index, pd.RangeIndex)
