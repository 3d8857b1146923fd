"""Tables of text: values separated by commas, tabs or semicolons, gzipped or not.

Most files have lines of numbers without quotes, with the same columns of words all the way down;
pyarrow reads those in parallel. Whatever it might read differently from pandas (quotes, blanks
before values, odd line ends, infinities, lines of other lengths, words among numbers) raises
`NotPlainError`, and pandas reads or refuses the file.
"""

import codecs
import csv
import gzip
import io
import re
import zlib
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from itertools import count, islice
from pathlib import Path
from typing import IO, TYPE_CHECKING, NamedTuple, cast

import numpy as np
import pandas as pd

from contrastive_lvm.io.tables.from_frame import (
    ROW_NAMES,
    UNNAMED,
    has_only_words,
    name_columns,
    ragged,
    separator_of,
    table_from_frame,
    table_from_records,
    without_empty,
)
from contrastive_lvm.io.tables.recognize import NUMBER
from contrastive_lvm.io.tables.table import MISSING, Layout, Table, refuse_empty

if TYPE_CHECKING:
    import pyarrow as pa

BLOCK = 4 << 20  # bytes that are parsed at a time; fewer cost time, more cost memory
SPREADSHEET = "cp1252"  # what spreadsheets on Windows call ANSI; it has all of Latin-1


class NotPlainError(Exception):
    """The file has something that pandas might read differently."""


class Header(NamedTuple):
    """The first line of a file, and the columns that are kept out of the numbers."""

    separator: str
    names: list[str]  # of all columns, one of which may name the rows
    encoding: str
    layout: Layout
    doubt: bool  # whether points may separate thousands, which no number rules out
    coded: set[str]  # columns of whole numbers with zeros before them
    annotations: frozenset[str] = frozenset()


def read_csv(
    path: Path,
    *,
    annotations: Collection[str] = (),
    features: Collection[str] | None = None,
    layout: Layout = Layout(),  # noqa: B008
) -> Table:
    r"""Read a CSV or TSV file whose first line names the columns.

    Commas separate columns, tabs if the name ends in `.tsv`, `.tab` or `.txt`, and semicolons or
    others where the first lines agree on them. A last ending `.gz` means gzip. `annotations` are
    columns that are kept out of the numbers, `features` the only ones that are numbers for the
    model.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "mice.csv"
    >>> _ = path.write_text("mouse,weight,length\na,21.5,9\nb,,8\n")
    >>> table = read_csv(path)
    >>> table.features, list(table.annotations), table.values.tolist()
    (['weight', 'length'], ['mouse'], [[21.5, 9.0], [nan, 8.0]])
    """
    with one_sentence(path):
        encoding = encoding_of(path)
        layout = _without_declaration(path, encoding, layout)
        if layout.transpose:
            return _read_transposed(path, annotations, features, layout, encoding)
        header = read_header(path, layout, encoding)
        try:
            return _read(path, header, annotations, features)
        except UnicodeDecodeError:  # far below
            if encoding == SPREADSHEET:
                raise
            return _read(path, header._replace(encoding=SPREADSHEET), annotations, features)


def _read(
    path: Path, header: Header, annotations: Collection[str], features: Collection[str] | None
) -> Table:
    known = set(header.names) - {ROW_NAMES}
    others = set() if features is None else known.difference(features)
    coded = header.coded.difference(features or ())
    unnamed = {name for name in known if name.startswith(UNNAMED)}
    aside = frozenset({*annotations, *others, *unnamed, *coded})
    header, table = header._replace(annotations=aside, coded=coded), None
    # Whether the bytes of the file are its lines, with numbers as Python writes them.
    unmarked = header.encoding == "utf-8-sig" and not header.layout.skip
    if unmarked and header.layout.decimal != "," and not header.doubt:
        with suppress(NotPlainError, ValueError):  # only pandas' reader words the errors
            table = _read_with_pyarrow(path, header)
    table = _read_with_pandas(path, header) if table is None else table
    table = without_empty(
        table._replace(identifiers=tuple(sorted(coded.difference(others, annotations))))
    )
    if header.encoding == SPREADSHEET:
        said = "as Windows text (cp1252), because it is not UTF-8"
        return table._replace(remarks=(*table.remarks, said))
    return table


def _read_transposed(
    path: Path,
    annotations: Collection[str],
    features: Collection[str] | None,
    layout: Layout,
    encoding: str,
) -> Table:
    """Read a file whose lines are features, the first value of each their name."""
    with open_text(path, encoding, layout.skip) as text:
        lines = text.read()
    separator = separator_of(path, [line for line in lines.splitlines() if line.strip()][:2])
    cells, has = list(records(io.StringIO(lines, newline=""), separator)), separator == ";"
    said = {"doubt": has, "semicolons": has}
    return table_from_records(cells, str(path), annotations, features, layout, **said)


# Open text, and its first line


def open_bytes(path: Path) -> IO[bytes]:
    """Open the content of a file, decompressed."""
    packed = path.suffix.lower() == ".gz"
    return cast("IO[bytes]", gzip.open(path)) if packed else path.open("rb")


def open_text(path: Path, encoding: str, skip: Collection[int] = ()) -> IO[str]:
    """Open the text of a file without some of its lines."""
    text = io.TextIOWrapper(open_bytes(path), encoding=encoding, newline="")
    if not skip:
        return text
    with text:
        kept = [line for number, line in enumerate(text, start=1) if number not in set(skip)]
    return io.StringIO("".join(kept), newline="")


def _without_declaration(path: Path, encoding: str, layout: Layout) -> Layout:
    """Leave out a first line such as `sep=;`, which tells spreadsheets the separator."""
    with open_text(path, encoding, layout.skip) as text:
        first = text.readline(100).strip("\r\n")
    if not re.fullmatch('"?sep=."?', first, re.IGNORECASE):
        return layout
    number = next(n for n in count(1) if n not in layout.skip)
    return layout._replace(skip=(*layout.skip, number))


def encoding_of(path: Path) -> str:
    """Return the encoding that a text file begins with: that of its mark, UTF-8, or Windows'.

    Text that is not UTF-8 is taken for Windows' if it has no control characters.
    """
    size = 1 << 20  # bytes
    with open_bytes(path) as data:
        start = data.read(size)
    if start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    try:
        codecs.getincrementaldecoder("utf-8-sig")().decode(start, final=len(start) < size)
    except UnicodeDecodeError:
        controls = {*range(32), 127}.difference(b"\t\n\f\r")
        return "utf-8-sig" if controls.intersection(start) else SPREADSHEET
    return "utf-8-sig"


def records(text: IO[str], separator: str) -> Iterator[list[str]]:
    """Return the lines of a table that are not empty, as lists of text."""
    found = csv.reader(text, delimiter=separator, skipinitialspace=True)
    return (record for record in found if record)


def read_header(path: Path, layout: Layout, encoding: str) -> Header:
    """Return the header, with what the first hundred lines say about the columns."""
    with open_text(path, encoding, layout.skip) as text:
        separator = separator_of(path, [*islice((line for line in text if line.strip()), 2)])
        text.seek(0)
        first, *below = [*islice(records(text, separator), 100)] or [[]]
    names = name_columns(first, below, str(path))
    pointed = (NUMBER.fullmatch(cell.strip()) for line in below for cell in line if "." in cell)
    doubt = separator == ";" or (separator == "\t" and _may_be_thousands(below))
    doubt = doubt and not any(found and found["point"] for found in pointed)
    columns = zip(names, zip(*below, strict=False), strict=False)
    coded = {
        name
        for name, cells in columns
        if any(cell[:1] == "0" and cell[1:].isdecimal() for cell in cells)
        and all(re.fullmatch("[0-9]*", cell) for cell in cells)
    }  # whole numbers that begin with zeros are codes, not quantities
    return Header(separator, names, encoding, layout, doubt, coded - {ROW_NAMES})


def _may_be_thousands(lines: list[list[str]]) -> bool:
    """Return whether there are numbers such as 1.234, which may be 1234 if no other has a point."""
    found = (NUMBER.fullmatch(cell.strip()) for line in lines for cell in line if "." in cell)
    return any(own and own["maybe_point"] for own in found)


@contextmanager
def one_sentence(path: Path) -> Iterator[None]:
    """Turn errors inside a file into sentences."""
    try:
        yield
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{path} is not UTF-8 text (byte {error.object[error.start]:#04x} cannot be decoded); "
            "save it in UTF-8."
        ) from error
    except UnicodeError as error:
        raise ValueError(f"{path} is not UTF-16 text ({error}); save it in UTF-8.") from error
    except (pd.errors.ParserError, csv.Error) as error:
        detail = str(error).rpartition("C error: ")[2].strip().rstrip(".")
        raise ValueError(
            f"{path} cannot be read as a table ({detail}); check that it is a text file whose rows "
            "have as many values as its first line has names."
        ) from error
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise ValueError(
            f"{path} is not a complete gzip file ({error}); copy or compress it again."
        ) from error


# Plain files


def _read_with_pyarrow(path: Path, header: Header) -> Table:
    array, n, notes = np.empty((0, 0)), 0, []
    with open_bytes(path) as data:
        types, start = _column_types(data, header)
        is_number = np.array(
            [kind == "double" and own not in header.annotations for own, kind in types.items()]
        )
        numbers, others = (np.flatnonzero(own).tolist() for own in (is_number, ~is_number))
        refuse_empty(1, len(numbers), str(path))
        for block in _parsed_blocks(data, start, header.separator, types):
            rows = slice(n, n := n + block.num_rows)
            if n > len(array):  # in place: there are never two arrays
                array.resize((max(n, int(1.02 * len(array))), len(numbers)), refcheck=False)
            columns = [block.column(i) for i in numbers]
            for j, column in enumerate(columns):
                array[rows, j] = column.to_numpy()
            missing = sum(column.null_count for column in columns)
            if len(numbers) * block.num_rows - np.isfinite(array[rows]).sum() != missing:
                raise NotPlainError  # infinities and odd words for NaN
            notes.append(block.select(others))
    array.resize((n, len(numbers)), refcheck=False)
    none = pd.DataFrame(index=range(n), columns=pd.Index([], dtype=object))
    rest = _annotations(notes, header) if others else none
    row_names = rest.pop(ROW_NAMES).astype(str).tolist() if ROW_NAMES in rest else None
    features = [header.names[i] for i in numbers]
    return Table(array, features, rest, row_names, named=True, source=str(path))


def _column_types(file: IO[bytes], header: Header) -> tuple[dict[str, str], bytes]:
    """Return what pandas makes of the columns of the first lines, in pyarrow's names."""
    line = file.readline().removeprefix(b"\xef\xbb\xbf")
    while line in (b"\n", b"\r\n"):
        line = file.readline()
    # An open quote goes on in the next line.
    if not line.strip() or line.count(b'"') % 2 or b"\r" in line.rstrip(b"\r\n"):
        raise NotPlainError
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
    types = {}
    for name, column in frame.items():
        if name == ROW_NAMES or pd.api.types.infer_dtype(column, skipna=True) == "string":
            types[str(name)] = "string"
        elif column.dtype.kind not in "fi":  # truth values, for example
            raise NotPlainError
        else:
            whole = column.dtype.kind == "i" and name in header.annotations
            types[str(name)] = "int64" if whole else "double"
    return types, head


def _parsed_blocks(
    file: IO[bytes], start: bytes, separator: str, types: dict[str, str]
) -> "Iterator[pa.Table]":
    import pyarrow as pa
    from pyarrow import csv as arrow

    parse = arrow.ParseOptions(delimiter=separator, quote_char=False)
    convert = arrow.ConvertOptions(
        column_types=types, null_values=MISSING, strings_can_be_null=True
    )
    before_value = (b"\n ", f"{separator} ".encode())
    for block in _whole_lines(file, start):
        odd = b'"' in block or b"\0" in block or block.count(b"\r") != block.count(b"\r\n")
        # Most blocks have no blank at all, which is much faster to find out than where one is.
        blank = b" " in block and (block[:1] == b" " or any(two in block for two in before_value))
        if odd or blank:
            raise NotPlainError
        size = max(1 << 10, len(block))  # pyarrow wants to see so many
        read = arrow.ReadOptions(column_names=list(types), block_size=size)
        try:
            yield arrow.read_csv(pa.BufferReader(block), read, parse, convert)
        except pa.ArrowException as error:
            raise NotPlainError from error
    pa.default_memory_pool().release_unused()


def _whole_lines(file: IO[bytes], rest: bytes = b"") -> Iterator[bytes]:
    """Cut what is left of a file into blocks that end with a line; `rest` was read before."""
    while block := file.read(BLOCK):
        end = block.rfind(b"\n") + 1
        if end:
            yield b"".join((rest, memoryview(block)[:end]))
        rest = block[end:] if end else rest + block
    if rest:
        yield rest


def _annotations(blocks: "list[pa.Table]", header: Header) -> pd.DataFrame:
    import pyarrow as pa

    frame: pd.DataFrame = pa.concat_tables(blocks).to_pandas()
    for name in frame.select_dtypes(["object", "string"]):
        column = frame[name].where(frame[name].notna(), np.nan)
        own = name != ROW_NAMES and name not in header.annotations
        if own and not has_only_words(column.dropna().unique().tolist()):
            raise NotPlainError  # numbers among words, which are refused
        frame[name] = column
    return frame


# All other files


def _read_with_pandas(path: Path, header: Header) -> Table:
    if header.encoding != "utf-16":
        _refuse_nul(path, header)
    as_text = header.doubt or header.layout.decimal == ","  # where it is seen what points mean
    frame = _frame(path, header, as_text=as_text)
    words = [
        name for name in frame.select_dtypes(["object", "string"]) if name not in header.annotations
    ]
    if not as_text and any("," in str(value) for name in words for value in frame[name]):
        frame = _frame(path, header, as_text=True)
    if frame[header.names[-1]].isna().any():  # pandas fills lines that end too early
        with open_text(path, header.encoding, header.layout.skip) as text:
            for row, record in enumerate(records(text, header.separator)):
                if row and len(record) != len(header.names):
                    raise ragged(str(path), len(record), row, len(header.names))
    rows = frame.pop(ROW_NAMES).astype(str).tolist() if ROW_NAMES in frame else None
    said = {"doubt": header.doubt, "semicolons": header.separator == ";"}
    aside, layout = header.annotations, header.layout
    return table_from_frame(frame, str(path), aside, row_names=rows, layout=layout, **said)


def _frame(path: Path, header: Header, *, as_text: bool) -> pd.DataFrame:
    own = {*header.names} - header.annotations if as_text else set()
    text_columns = {ROW_NAMES, *header.coded, *own}.intersection(header.names)
    with open_text(path, header.encoding, header.layout.skip) as text:
        chunks = pd.read_csv(
            text,
            sep=header.separator,
            header=0,
            names=header.names,
            index_col=False,
            dtype=dict.fromkeys(text_columns, str),
            skipinitialspace=True,
            na_values=MISSING,
            keep_default_na=False,
            low_memory=False,
            chunksize=max(100, 500_000 // len(header.names)),  # half a million values, for memory
        )
        return pd.concat(chunks, ignore_index=True)


def _refuse_nul(path: Path, header: Header) -> None:
    """Refuse a byte that pandas takes for the end of a value."""
    line = 1
    with open_bytes(path) as data:
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
