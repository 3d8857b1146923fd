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
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, BinaryIO, NamedTuple, cast

import numpy as np
import pandas as pd

from contrastive_lvm.io.tables.from_frame import is_numeric_text, table_from_frame
from contrastive_lvm.io.tables.table import Column, Table, refuse_empty, refuse_repeated

if TYPE_CHECKING:
    import pyarrow as pa

MISSING = ["", "NA", "N/A", "#N/A", "n/a", "n.d.", "NaN", "nan", "NULL", "null"]
ROW_NAMES = "\0row"  # the column that names rows, while it is read
BLOCK = 4 << 20  # bytes that are parsed at a time; fewer cost time, more cost memory
Progress = Callable[[int], None]


class Header(NamedTuple):
    """The first line of a file, and what its reader wants to be kept out of the numbers."""

    separator: str
    names: list[str]  # of all columns, one of which may name the rows
    annotations: set[str]


class NotPlainError(Exception):
    """The file has something that pandas might read differently."""


def read_csv(
    path: Path,
    *,
    annotations: Collection[str] = (),
    features: Collection[str] | None = None,
    progress: Progress = lambda n_bytes: None,
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
    progress : function
        Called with the number of bytes that have been read.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "mice.csv"
    >>> _ = path.write_text("mouse,weight,length\na,21.5,9\nb,,8\n")
    >>> table = read_csv(path)
    >>> table.features, list(table.annotations), table.values.tolist()
    (['weight', 'length'], ['mouse'], [[21.5, 9.0], [nan, 8.0]])
    """
    with _one_sentence(path):
        separator, names = _read_header(path)
        others = set() if features is None else set(names).difference(features, [ROW_NAMES])
        header = Header(separator, names, {*annotations, *others})
        with suppress(NotPlainError, ValueError):  # refusals are worded by one reader alone
            return _read_with_pyarrow(path, header, progress)
        return _read_with_pandas(path, header, progress)


# The first line


def _read_header(path: Path) -> tuple[str, list[str]]:
    """Return the separator and the names of columns, one of which may name the rows."""
    with _opened(path) as (_, text):
        first = next((line for line in text if line.strip()), "")
        separator = _separator(path, first)
    with _opened(path) as (_, text):
        records = (record for record in _records(text, separator) if record)
        header, second = next(records, []), next(records, [])
    if not header:
        raise ValueError(f"{path} is empty; give a file with a line of column names and data.")
    if any("\0" in name for name in header):
        raise ValueError(f"{path} is not a text file; name a file that its ending describes.")
    header = [re.sub(r"^'(?=[=+@\t\r-])", "", name) for name in header]  # as `write_csv` does
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
    usual = "," if ".csv" in path.name.lower() else "\t"
    if usual in first:
        return usual
    return next((other for other in ("\t", ";", ",") if other in first), usual)


def _records(text: IO[str], separator: str) -> Iterator[list[str]]:
    return csv.reader(text, delimiter=separator, skipinitialspace=True)


# Plain files


def _read_with_pyarrow(path: Path, header: Header, progress: Progress) -> Table:
    with _opened_bytes(path) as (_, data):
        types = _column_types(data, header)
    is_number = [types[n] == "double" and n not in header.annotations for n in types]
    numbers, others = np.flatnonzero(is_number).tolist(), np.flatnonzero(~np.array(is_number))
    refuse_empty(1, len(numbers), str(path))
    array, n, notes = np.empty((0, len(numbers))), 0, []
    with _opened_bytes(path) as (raw, data):
        _skip_header(data)
        for block in _parsed_blocks(data, header.separator, types):
            rows = slice(n, n := n + block.num_rows)
            if n > len(array):  # in place: there are never two arrays
                array.resize((max(n, int(1.05 * len(array))), len(numbers)), refcheck=False)
            _fill(array[rows], [block.column(i) for i in numbers])
            notes.append(block.select(others.tolist()))
            progress(raw.tell())
    array.resize((n, len(numbers)), refcheck=False)
    none = pd.DataFrame(index=range(n), columns=pd.Index([], dtype=object))
    rest = _annotations(notes, header) if len(others) else none
    row_names = rest.pop(ROW_NAMES).astype(str).tolist() if ROW_NAMES in rest else None
    features = [header.names[i] for i in numbers]
    return Table(array, features, rest, row_names, named=True, source=str(path))


def _fill(rows: np.ndarray, columns: "list[pa.ChunkedArray]") -> None:
    """Write columns into rows; infinities and odd words for NaN are left to pandas."""
    for j, column in enumerate(columns):
        rows[:, j] = column.to_numpy()
    missing = sum(column.null_count for column in columns)
    if rows.size - np.count_nonzero(np.isfinite(rows)) != missing:
        raise NotPlainError


def _skip_header(file: IO[bytes]) -> None:
    line = file.readline().removeprefix(b"\xef\xbb\xbf")
    while line in (b"\n", b"\r\n"):
        line = file.readline()
    # An open quote goes on in the next line.
    if not line.strip() or line.count(b'"') % 2 or b"\r" in line.rstrip(b"\r\n"):
        raise NotPlainError


def _parsed_blocks(file: IO[bytes], separator: str, types: dict[str, str]) -> "Iterator[pa.Table]":
    import pyarrow as pa
    from pyarrow import csv as arrow

    parse = arrow.ParseOptions(delimiter=separator, quote_char=False)
    convert = arrow.ConvertOptions(
        column_types=types, null_values=MISSING, strings_can_be_null=True
    )
    for block in _whole_lines(file):
        _refuse_odd(block, separator)
        size = max(1 << 10, len(block))  # pyarrow wants to see so many
        read = arrow.ReadOptions(column_names=list(types), block_size=size)
        try:
            yield arrow.read_csv(pa.BufferReader(block), read, parse, convert)
        except pa.ArrowException as error:
            raise NotPlainError from error
    pa.default_memory_pool().release_unused()


def _whole_lines(file: IO[bytes]) -> Iterator[bytes]:
    """Cut a file into blocks that end with a line."""
    rest = b""
    while block := file.read(BLOCK):
        end = block.rfind(b"\n") + 1
        if end:
            yield rest + block[:end]
        rest = block[end:] if end else rest + block
    if rest:
        yield rest


def _refuse_odd(block: bytes, separator: str) -> None:
    quoted = b'"' in block or b"\0" in block
    if quoted or block.count(b"\r") != block.count(b"\r\n"):
        raise NotPlainError
    # Most blocks have no blank at all, which is found much sooner than where it stands.
    before_value = (b"\n ", f"{separator} ".encode())
    if b" " in block and (block[:1] == b" " or any(two in block for two in before_value)):
        raise NotPlainError


def _column_types(file: IO[bytes], header: Header) -> dict[str, str]:
    """Return what pandas makes of the columns of the first lines, in pyarrow's names."""
    _skip_header(file)
    head = b"".join(file.readline() for _ in range(100))
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


def _column_type(column: Column, header: Header) -> str:
    words = pd.api.types.infer_dtype(column, skipna=True) == "string"
    if words or column.name == ROW_NAMES:
        return "string"
    if column.dtype.kind not in "fi":  # truth values, for one
        raise NotPlainError
    return "int64" if column.dtype.kind == "i" and column.name in header.annotations else "double"


def _annotations(blocks: "list[pa.Table]", header: Header) -> pd.DataFrame:
    import pyarrow as pa

    frame: pd.DataFrame = pa.concat_tables(blocks).to_pandas()
    for name in frame.select_dtypes("object"):
        column = frame[name].where(frame[name].notna(), np.nan)
        own = name != ROW_NAMES and name not in header.annotations
        if own and is_numeric_text(pd.Series(column.dropna().unique())).any():
            raise NotPlainError  # numbers among words, which are refused
        frame[name] = column
    return frame


# All other files


def _read_with_pandas(path: Path, header: Header, progress: Progress) -> Table:
    _refuse_nul(path, header)
    names, chunks = header.names, []
    with _opened(path) as (raw, text):
        reader = pd.read_csv(
            text,
            sep=header.separator,
            header=0,
            names=names,
            index_col=False,
            dtype={ROW_NAMES: str} if ROW_NAMES in names else None,
            skipinitialspace=True,
            na_values=MISSING,
            keep_default_na=False,
            chunksize=max(100, 500_000 // len(names)),  # half a million values
            low_memory=False,
        )
        for chunk in reader:
            chunks.append(chunk)
            progress(raw.tell())
    frame = pd.concat(chunks, ignore_index=True)
    if frame[names[-1]].isna().any():  # pandas fills lines that end too early
        _refuse_short_lines(path, header.separator, len(names))
    rows = frame.pop(ROW_NAMES).astype(str).tolist() if ROW_NAMES in frame else None
    return table_from_frame(frame, str(path), header.annotations, row_names=rows)


def _refuse_nul(path: Path, header: Header) -> None:
    """Refuse a byte that pandas takes for the end of a value."""
    line = 1
    with _opened_bytes(path) as (_, data):
        for block in _whole_lines(data):
            before, nul, _ = block.partition(b"\0")
            line += before.count(b"\n")
            if nul:
                left = before[before.rfind(b"\n") + 1 :].decode("utf-8", errors="replace")
                column = len(next(_records(io.StringIO(left), header.separator), [""]))
                raise ValueError(
                    f"{path} has a NUL byte in line {line}, column {column}; remove it, or export "
                    "the file again."
                )


def _refuse_short_lines(path: Path, separator: str, n_columns: int) -> None:
    with _opened(path) as (_, text):
        records = (record for record in _records(text, separator) if record)
        for row, record in enumerate(records):
            if row and len(record) != n_columns:
                raise _ragged(path, len(record), row, n_columns)


def _ragged(path: Path, found: int, row: int, expected: int) -> ValueError:
    return ValueError(
        f"{path} has {found} values in row {row}, but its first line names {expected} columns; "
        "give every row as many values."
    )


@contextmanager
def _opened(path: Path) -> Iterator[tuple[BinaryIO, IO[str]]]:
    """Open the raw file, which knows how far it was read, and its text."""
    with (
        _opened_bytes(path) as (raw, data),
        io.TextIOWrapper(data, encoding="utf-8-sig", newline="") as text,
    ):
        yield raw, text


@contextmanager
def _opened_bytes(path: Path) -> Iterator[tuple[BinaryIO, BinaryIO]]:
    """Open the raw file, and what it holds, unzipped."""
    with path.open("rb") as raw:
        packed = path.suffix.lower() == ".gz"
        yield raw, cast("BinaryIO", gzip.GzipFile(fileobj=raw)) if packed else raw


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
