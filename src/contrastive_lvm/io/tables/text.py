"""Tables of text: values separated by commas, tabs or semicolons, gzipped or not."""

import csv
import gzip
import io
import re
import zlib
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

import pandas as pd

from contrastive_lvm.io.tables.column_builder import Gatherer
from contrastive_lvm.io.tables.fast_csv import Layout, NotPlain, plain_pieces
from contrastive_lvm.io.tables.table import Table, refuse_repeated

MISSING = ["", "NA", "N/A", "n/a", "NaN", "nan", "NULL", "null"]
PIECE = 500_000  # values at a time, 4 MB; fewer cost time, more cost memory
NAMES = "\0row"  # the column that names rows, while it is read
Told = Callable[[int], None]


def read_text(
    path: Path,
    *,
    annotations: Collection[str] = (),
    features: Collection[str] | None = None,
    told: Told = lambda done: None,
) -> Table:
    r"""Read a CSV or TSV file whose first line names the columns.

    Parameters
    ----------
    path : Path
        Commas separate columns, tabs if the name ends in `.tsv`, `.tab` or `.txt`; a first line
        without commas but with semicolons or tabs is believed. A last ending `.gz` means gzip.
    annotations : collection of str
        Columns that are kept out of the numbers.
    features : collection of str, optional
        The only columns that are numbers for the model.
    told : function
        Called with the number of bytes that are behind.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "mice.csv"
    >>> _ = path.write_text("mouse,weight,length\na,21.5,9\nb,,8\n")
    >>> table = read_text(path)
    >>> table.features, list(table.annotations), table.values.tolist()
    (['weight', 'length'], ['mouse'], [[21.5, 9.0], [nan, 8.0]])
    """
    with _clearly(path):
        separator, names = _columns(path)
        columns = [name for name in names if name != NAMES]

        def gatherer() -> Gatherer:
            return Gatherer(str(path), columns, annotations, features)

        with suppress(NotPlain, ValueError):  # refusals are worded by one reader alone
            return _read_plainly(path, separator, names, gatherer(), told)
        return _read_by_pandas(path, separator, names, gatherer(), told)


def _read_plainly(
    path: Path, separator: str, names: list[str], gatherer: Gatherer, told: Told
) -> Table:
    layout = Layout(separator, names, MISSING, whole=gatherer.aside, words={NAMES})
    row_names: list[str] = []
    with _opened_bytes(path) as (raw, plain):
        for piece in plain_pieces(plain, layout):
            _take(piece, gatherer, row_names)
            told(raw.tell())
            del piece  # before the next one is there
    return gatherer.table(row_names or None)


def _read_by_pandas(
    path: Path, separator: str, names: list[str], gatherer: Gatherer, told: Told
) -> Table:
    row_names: list[str] = []
    suspicious = False
    with _opened(path) as (raw, text):
        for piece in _pieces(text, separator, names):
            suspicious |= bool(piece[names[-1]].isna().any())
            _take(piece, gatherer, row_names)
            told(raw.tell())
    if suspicious:  # pandas fills lines that end too early
        _refuse_short_lines(path, separator, len(names))
    return gatherer.table(row_names or None)


def _take(piece: pd.DataFrame, gatherer: Gatherer, row_names: list[str]) -> None:
    if NAMES in piece:
        row_names += piece.pop(NAMES).astype(str).tolist()
    gatherer.add(piece)


def _columns(path: Path) -> tuple[str, list[str]]:
    """The separator and the names of columns, one of which may name the rows."""
    with _opened(path) as (_, text):
        first = next((line for line in text if line.strip()), "")
        separator = _separator(path, first)
    with _opened(path) as (_, text):
        records = (r for r in _records(text, separator) if r)
        header, second = next(records, []), next(records, [])
    if not header:
        raise ValueError(f"{path} is empty; give a file with a line of column names and data.")
    if any("\0" in name for name in header):
        raise ValueError(f"{path} is not a text file; name a file that its ending describes.")
    if not second:
        raise ValueError(f"{path} has no rows below its column names; give a file with data.")
    if header[0] == "" and len(header) > 1:
        header = [NAMES, *header[1:]]
    elif len(second) == len(header) + 1 and second[-1] != "":
        header = [NAMES, *header]  # as R writes row names
    if len(second) != len(header):
        raise _ragged(path, len(second), 1, len(header))
    refuse_repeated(header, str(path))
    unnamed = [i for i, name in enumerate(header, start=1) if name == ""]
    if unnamed:
        raise ValueError(f"{path} has no name for column {unnamed[0]}; name every column.")
    return separator, header


def _separator(path: Path, first: str) -> str:
    first = re.sub('"[^"]*"', "", first)  # quoted names may hold anything
    usual = "," if ".csv" in path.suffixes[-2:] else "\t"
    if usual in first:
        return usual
    return next((other for other in ("\t", ";", ",") if other in first), usual)


def _records(text: IO[str], separator: str) -> Iterator[list[str]]:
    return csv.reader(text, delimiter=separator, skipinitialspace=True)


def _pieces(text: IO[str], separator: str, names: list[str]) -> Iterator[pd.DataFrame]:
    reader = pd.read_csv(
        text,
        sep=separator,
        header=0,
        names=names,
        index_col=False,
        dtype={NAMES: str} if NAMES in names else None,
        skipinitialspace=True,
        na_values=MISSING,
        keep_default_na=False,
        chunksize=max(100, PIECE // len(names)),
        low_memory=False,
    )
    for piece in reader:
        yield piece.reset_index(drop=True)


def _refuse_short_lines(path: Path, separator: str, n_columns: int) -> None:
    with _opened(path) as (_, text):
        rows = (record for record in _records(text, separator) if record)
        for row, record in enumerate(rows):
            if row and len(record) != n_columns:
                raise _ragged(path, len(record), row, n_columns)


def _ragged(path: Path, found: int, row: int, expected: int) -> ValueError:
    return ValueError(
        f"{path} has {found} values in row {row}, but its first line names {expected} columns; "
        "give every row as many values."
    )


@contextmanager
def _opened(path: Path) -> Iterator[tuple[Any, IO[str]]]:
    """The raw file, which knows how far it was read, and its text."""
    with (
        _opened_bytes(path) as (raw, plain),
        io.TextIOWrapper(plain, encoding="utf-8-sig", newline="") as text,
    ):
        yield raw, text


@contextmanager
def _opened_bytes(path: Path) -> Iterator[tuple[Any, Any]]:
    """The raw file, and what it holds, unzipped."""
    with path.open("rb") as raw:
        yield raw, gzip.GzipFile(fileobj=raw) if path.suffix == ".gz" else raw


@contextmanager
def _clearly(path: Path) -> Iterator[None]:
    """Errors inside a file as sentences."""
    try:
        yield
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{path} is not text in UTF-8 (byte {error.object[error.start]:#04x} cannot be read); "
            "save it with the encoding UTF-8."
        ) from error
    except pd.errors.ParserError as error:
        raise ValueError(
            f"{path} cannot be read as a table ({_detail(error)}); give every row as many values "
            "as the first line names columns."
        ) from error
    except csv.Error as error:
        raise ValueError(
            f"{path} cannot be read as a table ({error}); name a text file."
        ) from error
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise ValueError(
            f"{path} is not a whole gzip file ({error}); copy or compress it again."
        ) from error


def _detail(error: Exception) -> str:
    return str(error).rpartition("C error: ")[2].strip().rstrip(".")
