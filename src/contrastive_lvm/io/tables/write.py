"""Results as tables: text, NumPy or Parquet, as the name says."""

import gzip
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from contrastive_lvm.arrays import Array
from contrastive_lvm.io.tables.table import Table

KNOWN = ".csv, .tsv, .csv.gz, .tsv.gz, .npy or .parquet"


def described(table: Table, columns: Sequence[str], values: Array) -> pd.DataFrame:
    """Put computed values of rows beside their names and annotations.

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
    raise ValueError(f"--output={path} has an ending that is not known; use {KNOWN}.")


def write_frame(path: Path, ending: str, frame: pd.DataFrame, values: Any) -> None:
    """Write a frame, or its numbers alone where the format has no names."""
    named = not isinstance(frame.index, pd.RangeIndex)
    if ending == ".npy":
        with path.open("wb") as file:
            np.save(file, np.asarray(values), allow_pickle=False)
    elif ending == ".parquet":
        frame.to_parquet(path, engine="pyarrow", index=named)
    else:
        separator = "\t" if ending.startswith(".tsv") else ","
        opened = gzip.open if ending.endswith(".gz") else open
        with opened(path, "wt", encoding="utf-8", newline="") as text:
            frame.to_csv(text, sep=separator, index=named, lineterminator="\n")
