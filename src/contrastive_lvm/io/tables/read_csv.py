"""Tables of text: values separated by commas, tabs or semicolons, gzipped or not.

Most files have lines of numbers without quotes, with the same columns of words all the way down;
pyarrow reads those in parallel. Whatever it might read differently from pandas (quotes, blanks
before values, odd line ends, infinities, lines of other lengths, words among numbers) raises
`NotPlainError`, and the file is pandas' to read or to refuse.
"""

import csv
import gzip
import io
import re
import zlib
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
import pandas as pd

from contrastive_lvm.io.tables.from_frame import is_numeric_text, table_from_frame
from contrastive_lvm.io.tables.table import Table, refuse_empty, refuse_repeated

MISSING = ["", "NA", "N/A", "n/a", "NaN", "nan", "NULL", "null"]
ROW_NAMES = "\0row"  # the column that names rows, while it is read
SAMPLE = 100  # lines that tell columns of words from those of numbers
BLOCK = 4 << 20  # bytes that are parsed at a time; fewer cost time, more cost memory
GROWTH = 1.05  # of the array when it is full


class Header(NamedTuple):
    """The first line of a file, and what its reader wants to be kept out of the numbers."""

    separator: str
    names: list[str]  # of all columns, one of which may name the rows
    annotations: set[str]


class NotPlainError(Exception):
    """The file has something that pandas might read differently."""


def read_csv(
    path: Path, *, annotations: Collection[str] = (), features: Collection[str] | None = None
) -> Table:
    """Read a CSV or TSV file whose first line names the columns; arguments as in `read_table`.

    Commas separate columns, tabs if the name ends in `.tsv`, `.tab` or `.txt`; a first line
    without commas but with semicolons or tabs is believed. A last ending `.gz` means gzip.
    """
    with _one_sentence(path):
        separator, names = _read_header(path)
        others = set() if features is None else set(names).difference(features, [ROW_NAMES])
        header = Header(separator, names, {*annotations, *others})
        with suppress(NotPlainError, ValueError):  # refusals are worded by one reader alone
            return _read_with_pyarrow(path, header)
        return _read_with_pandas(path, header)


# The first line


def _read_header(path: Path) -> tuple[str, list[str]]:
    """Return the separator and the names of columns, one of which may name the rows."""
    with _open_text(path) as text:
        separator = _separator(path, next((line for line in text if line.strip()), ""))
    with _open_text(path) as text:
        records = _records(text, separator)
        header, second = next(records, []), next(records, [])
    if not header:
        raise ValueError(f"{path} is empty; give a file with a line of column names and data.")
    if any("\0" in name for name in header):
        raise ValueError(f"{path} is not a text file; name a file that its ending describes.")
    if not second:
        raise ValueError(f"{path} has no rows below its column names; give a file with data.")
    if header[0] == "" and len(header) > 1:
        header = [ROW_NAMES, *header[1:]]
    elif len(second) == len(header) + 1 and second[-1] != "":
        header = [ROW_NAMES, *header]  # as R writes row names
    if len(second) != len(header):
        raise _ragged(path, len(second), 1, len(header))
    refuse_repeated(header, str(path))
    if "" in header:
        raise ValueError(
            f"{path} has no name for column {header.index('') + 1}; name every column."
        )
    return separator, header


def _separator(path: Path, first: str) -> str:
    first = re.sub('"[^"]*"', "", first)  # quoted names may hold anything
    usual = "," if ".csv" in path.suffixes[-2:] else "\t"
    if usual in first:
        return usual
    return next((other for other in ("\t", ";", ",") if other in first), usual)


def _records(text: IO[str], separator: str) -> Iterator[list[str]]:
    return filter(None, csv.reader(text, delimiter=separator, skipinitialspace=True))


# Plain files


class _PlainBytes(io.RawIOBase):
    """The bytes of a file; reading raises `NotPlainError` at the first that are not plain."""

    def __init__(self, file: IO[bytes], separator: str) -> None:
        self._file, self._before_value = file, (b"\n ", f"{separator} ".encode())
        self._last = b"\n"

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        block = self._file.read(size)
        seen = self._last + block  # what is odd may begin in the last byte before
        self._last = seen[-1:]
        quoted = b'"' in seen or b"\0" in seen
        if quoted or seen.count(b"\r", 0, len(seen) - 1) != seen.count(b"\r\n"):
            raise NotPlainError
        # Most files have no blank at all, which is found much sooner than where it stands.
        if b" " in seen and any(two in seen for two in self._before_value):
            raise NotPlainError
        return block


def _read_with_pyarrow(path: Path, header: Header) -> Table:
    with _open_bytes(path) as data:
        types = _column_types(data, header)
    numbers = [n for n, kind in types.items() if kind == "double" and n not in header.annotations]
    refuse_empty(1, len(numbers), str(path))
    array, n, notes = np.empty((0, len(numbers))), 0, []
    with _open_bytes(path) as data:
        _skip_header(data)
        for batch in _batches(data, header.separator, types):
            found = _finite_numbers(batch.select(numbers))
            if n + len(found) > len(array):  # in place: there are never two arrays
                rows = max(n + len(found), int(GROWTH * len(array)))
                array.resize((rows, len(numbers)), refcheck=False)
            array[n : n + len(found)] = found
            n += len(found)
            notes.append(batch.select([name for name in types if name not in set(numbers)]))
    array.resize((n, len(numbers)), refcheck=False)
    rest = _annotations(notes, header)
    row_names = rest.pop(ROW_NAMES).astype(str).tolist() if ROW_NAMES in rest else None
    return Table(array, numbers, rest, row_names, named=True, source=str(path))


def _finite_numbers(batch: Any) -> np.ndarray:
    """Return the values of a batch; infinities and odd words for NaN are left to pandas."""
    found: np.ndarray = batch.to_pandas().to_numpy()
    missing = sum(column.null_count for column in batch.columns)
    if found.size - np.count_nonzero(np.isfinite(found)) != missing:
        raise NotPlainError
    return found


def _skip_header(file: IO[bytes]) -> None:
    line = file.readline().removeprefix(b"\xef\xbb\xbf")
    while line in (b"\n", b"\r\n"):
        line = file.readline()
    # An open quote goes on in the next line.
    if not line.strip() or line.count(b'"') % 2 or b"\r" in line.rstrip(b"\r\n"):
        raise NotPlainError


def _batches(file: IO[bytes], separator: str, types: dict[str, str]) -> Iterator[Any]:
    import pyarrow as pa
    from pyarrow import csv as arrow

    read = arrow.ReadOptions(column_names=list(types), block_size=BLOCK)
    parse = arrow.ParseOptions(delimiter=separator, quote_char=False)
    convert = arrow.ConvertOptions(
        column_types=types, null_values=MISSING, strings_can_be_null=True
    )
    try:
        yield from arrow.open_csv(_PlainBytes(file, separator), read, parse, convert)
    except pa.ArrowException as error:
        raise NotPlainError from error
    pa.default_memory_pool().release_unused()  # it keeps several blocks' worth


def _column_types(file: IO[bytes], header: Header) -> dict[str, str]:
    """Return what pandas makes of the columns of the first lines, in pyarrow's names."""
    _skip_header(file)
    head = b"".join(file.readline() for _ in range(SAMPLE))
    frame = pd.read_csv(
        io.BytesIO(head),
        sep=header.separator,
        header=None,
        names=header.names,
        index_col=False,
        na_values=MISSING,
        keep_default_na=False,
    )
    return {name: _column_type(frame[name], header) for name in header.names}


def _column_type(column: "pd.Series[Any]", header: Header) -> str:
    words = pd.api.types.infer_dtype(column, skipna=True) == "string"
    if words or column.name == ROW_NAMES:
        return "string"
    if column.dtype.kind not in "fi":  # truth values, for one
        raise NotPlainError
    return "int64" if column.dtype.kind == "i" and column.name in header.annotations else "double"


def _annotations(batches: list[Any], header: Header) -> pd.DataFrame:
    import pyarrow as pa

    frame: pd.DataFrame = pa.Table.from_batches(batches).to_pandas()
    for name in frame.select_dtypes("object"):
        column = frame[name].where(frame[name].notna(), np.nan)
        own = name != ROW_NAMES and name not in header.annotations
        if own and is_numeric_text(pd.Series(column.dropna().unique())).any():
            raise NotPlainError  # numbers among words, which are refused
        frame[name] = column
    return frame


# All other files


def _read_with_pandas(path: Path, header: Header) -> Table:
    names = header.names
    with _open_text(path) as text:
        frame = pd.read_csv(
            text,
            sep=header.separator,
            header=0,
            names=names,
            index_col=False,
            dtype={ROW_NAMES: str} if ROW_NAMES in names else None,
            skipinitialspace=True,
            na_values=MISSING,
            keep_default_na=False,
            low_memory=False,
        )
    if frame[names[-1]].isna().any():  # pandas fills lines that end too early
        _refuse_short_lines(path, header.separator, len(names))
    rows = frame.pop(ROW_NAMES).astype(str).tolist() if ROW_NAMES in frame else None
    return table_from_frame(frame, str(path), header.annotations, row_names=rows)


def _refuse_short_lines(path: Path, separator: str, n_columns: int) -> None:
    with _open_text(path) as text:
        for row, record in enumerate(_records(text, separator)):
            if row and len(record) != n_columns:
                raise _ragged(path, len(record), row, n_columns)


def _ragged(path: Path, found: int, row: int, expected: int) -> ValueError:
    return ValueError(
        f"{path} has {found} values in row {row}, but its first line names {expected} columns; "
        "give every row as many values."
    )


def _open_text(path: Path) -> IO[str]:
    return io.TextIOWrapper(_open_bytes(path), encoding="utf-8-sig", newline="")


def _open_bytes(path: Path) -> Any:
    return gzip.open(path) if path.suffix == ".gz" else path.open("rb")


@contextmanager
def _one_sentence(path: Path) -> Iterator[None]:
    """Turn errors inside a file into sentences."""
    try:
        yield
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{path} is not text in UTF-8 (byte {error.object[error.start]:#04x} cannot be read); "
            "save it with the encoding UTF-8."
        ) from error
    except pd.errors.ParserError as error:
        detail = str(error).rpartition("C error: ")[2].strip().rstrip(".")
        raise ValueError(
            f"{path} cannot be read as a table ({detail}); give every row as many values as the "
            "first line names columns."
        ) from error
    except csv.Error as error:
        raise ValueError(
            f"{path} cannot be read as a table ({error}); name a text file."
        ) from error
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise ValueError(
            f"{path} is not a whole gzip file ({error}); copy or compress it again."
        ) from error
