"""Tables of text: values separated by commas, tabs or semicolons, gzipped or not.

Most files have lines of numbers without quotes, with the same columns of words all the way down;
pyarrow reads those in parallel. Whatever it might read differently from pandas (quotes, blanks
before values, odd line ends, infinities, lines of other lengths, words among numbers) raises
`NotPlainError`, and the file is pandas' to read or to refuse.
"""

import io
import re
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import IO, TYPE_CHECKING

import numpy as np
import pandas as pd

from contrastive_lvm.io.tables.from_frame import has_only_words, table_from_frame
from contrastive_lvm.io.tables.header import (
    ROW_NAMES,
    UNNAMED,
    Header,
    ragged,
    read_header,
    separator_of,
)
from contrastive_lvm.io.tables.layout import MISSING, Layout
from contrastive_lvm.io.tables.open_text import (
    SPREADSHEET,
    encoding_of,
    one_sentence,
    opened,
    opened_bytes,
    records,
)
from contrastive_lvm.io.tables.records import table_from_records, without_empty
from contrastive_lvm.io.tables.table import Column, Table, refuse_empty

if TYPE_CHECKING:
    import pyarrow as pa

BLOCK = 4 << 20  # bytes that are parsed at a time; fewer cost time, more cost memory
Progress = Callable[[int], None]


class NotPlainError(Exception):
    """The file has something that pandas might read differently."""


def read_csv(
    path: Path,
    *,
    annotations: Collection[str] = (),
    features: Collection[str] | None = None,
    layout: Layout | None = None,
    progress: Progress = lambda n_bytes: None,
) -> Table:
    r"""Read a CSV or TSV file whose first line names the columns.

    Parameters
    ----------
    path : Path
        Commas separate columns, tabs if the name ends in `.tsv`, `.tab` or `.txt`, and semicolons
        or others where the first lines agree on them. A last ending `.gz` means gzip.
    annotations : collection of str
        Columns that are kept out of the numbers.
    features : collection of str, optional
        The only columns that are numbers for the model.
    layout : Layout, optional
        What is said about the layout of the file.
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
    layout = Layout() if layout is None else layout
    with one_sentence(path):
        if layout.transpose:
            return _read_transposed(path, annotations, features, layout)
        header = read_header(path, layout, encoding_of(path))
        try:
            return _read_as(path, header, annotations, features, progress)
        except UnicodeDecodeError:  # far below
            if header.encoding == SPREADSHEET:
                raise
            header = header._replace(encoding=SPREADSHEET)
            return _read_as(path, header, annotations, features, progress)


def _read_as(
    path: Path,
    header: Header,
    annotations: Collection[str],
    features: Collection[str] | None,
    progress: Progress,
) -> Table:
    unnamed = {name for name in header.names if name.startswith(UNNAMED)}
    others = set() if features is None else set(header.names).difference(features, [ROW_NAMES])
    coded = _coded_columns(path, header).difference(features or ())
    aside = {*annotations, *others, *unnamed, *coded}
    table = _read(path, header._replace(annotations=aside, coded=frozenset(coded)), progress)
    named = tuple(sorted(coded.difference(others, annotations)))
    table = without_empty(table._replace(identifiers=named))
    if header.encoding == SPREADSHEET:
        said = "as text of Windows (cp1252), because it is not in UTF-8"
        return table._replace(remarks=(*table.remarks, said))
    return table


def _read(path: Path, header: Header, progress: Progress) -> Table:
    if header.plain:
        with suppress(NotPlainError, ValueError):  # refusals are worded by one reader alone
            return _read_with_pyarrow(path, header, progress)
    return _read_with_pandas(path, header, progress)


def _read_transposed(
    path: Path, annotations: Collection[str], features: Collection[str] | None, layout: Layout
) -> Table:
    """Read a file whose lines are features, the first value of each their name."""
    with opened(path, encoding_of(path), layout.skip) as (_, text):
        lines = text.read()
    separator = separator_of(path, [line for line in lines.splitlines() if line.strip()][:2])
    cells = list(records(io.StringIO(lines, newline=""), separator))
    return table_from_records(
        cells, str(path), annotations, features, layout, doubt=separator == ";"
    )


def _coded_columns(path: Path, header: Header) -> set[str]:
    """Return columns of whole numbers that begin with zeros, which are codes, not quantities."""
    with opened(path, header.encoding, header.layout.skip) as (_, text):
        rows = list(islice(records(text, header.separator), 1, 21))
    coded = set()
    for name, cells in zip(header.names, zip(*rows, strict=False), strict=False):
        if name != ROW_NAMES and any(re.fullmatch("0[0-9]+", cell) for cell in cells):
            coded |= {name} if all(re.fullmatch("[0-9]*", cell) for cell in cells) else set()
    return coded


# Plain files


def _read_with_pyarrow(path: Path, header: Header, progress: Progress) -> Table:
    with opened_bytes(path) as (_, data):
        types = _column_types(data, header)
    is_number = [types[n] == "double" and n not in header.annotations for n in types]
    numbers, others = np.flatnonzero(is_number).tolist(), np.flatnonzero(~np.array(is_number))
    refuse_empty(1, len(numbers), str(path))
    array, n, notes = np.empty((0, len(numbers))), 0, []
    with opened_bytes(path) as (raw, data):
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
        dtype=dict.fromkeys(header.coded, str),
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
        if own and not has_only_words(column.dropna().unique().tolist()):
            raise NotPlainError  # numbers among words, which are refused
        frame[name] = column
    return frame


# All other files


def _read_with_pandas(path: Path, header: Header, progress: Progress) -> Table:
    _refuse_nul(path, header)
    as_text = header.doubt or header.layout.decimal == ","  # where it is seen what points mean
    frame = _frame(path, header, progress, as_text=as_text)
    if not as_text and _has_commas(frame, header):
        frame = _frame(path, header, progress, as_text=True)
    if frame[header.names[-1]].isna().any():  # pandas fills lines that end too early
        _refuse_short_lines(path, header)
    rows = frame.pop(ROW_NAMES).astype(str).tolist() if ROW_NAMES in frame else None
    return table_from_frame(
        frame,
        str(path),
        header.annotations,
        row_names=rows,
        layout=header.layout,
        doubt=header.doubt,
    )


def _frame(path: Path, header: Header, progress: Progress, *, as_text: bool) -> pd.DataFrame:
    names, chunks = header.names, []
    text_columns = {ROW_NAMES, *header.coded} | (
        {*names} - header.annotations if as_text else set()
    )
    with opened(path, header.encoding, header.layout.skip) as (raw, text):
        reader = pd.read_csv(
            text,
            sep=header.separator,
            header=0,
            names=names,
            index_col=False,
            dtype=dict.fromkeys(text_columns.intersection(names), str),
            skipinitialspace=True,
            na_values=MISSING,
            keep_default_na=False,
            chunksize=max(100, 500_000 // len(names)),  # half a million values
            low_memory=False,
        )
        for chunk in reader:
            chunks.append(chunk)
            progress(raw.tell())
    return pd.concat(chunks, ignore_index=True)


def _has_commas(frame: pd.DataFrame, header: Header) -> bool:
    """Return whether a comma stands in some text that is no annotation."""
    own = [name for name in frame.select_dtypes("object") if name not in header.annotations]
    return any("," in str(value) for name in own for value in frame[name])


def _refuse_nul(path: Path, header: Header) -> None:
    """Refuse a byte that pandas takes for the end of a value."""
    line = 1
    if header.encoding == "utf-16":
        return
    with opened_bytes(path) as (_, data):
        for block in _whole_lines(data):
            before, nul, _ = block.partition(b"\0")
            line += before.count(b"\n")
            if nul:
                left = before[before.rfind(b"\n") + 1 :].decode("utf-8", errors="replace")
                column = len(next(records(io.StringIO(left), header.separator), [""]))
                raise ValueError(
                    f"{path} has a NUL byte in line {line}, column {column}; remove it, or export "
                    "the file again."
                )


def _refuse_short_lines(path: Path, header: Header) -> None:
    with opened(path, header.encoding, header.layout.skip) as (_, text):
        for row, record in enumerate(records(text, header.separator)):
            if row and len(record) != len(header.names):
                raise ragged(str(path), len(record), row, len(header.names))
