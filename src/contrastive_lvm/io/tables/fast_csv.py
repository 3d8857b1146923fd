"""Plain tables of text by pyarrow, which parses numbers on all cores; anything else is left alone.

Most files have lines of numbers without quotes, with the same columns of words all the way down.
pandas takes two to three times as long for those, so they are read here.
Whatever the two might read differently (quotes, blanks before values, odd line ends, infinities,
lines of other lengths, words among numbers) raises `NotPlain`, and the file is pandas' to read or
to refuse. Numbers are rounded correctly here; pandas may be one unit off in the last place.
"""

import io
import os
from collections.abc import Collection, Iterator
from functools import partial
from itertools import chain
from typing import IO, Any, NamedTuple

import numpy as np
import pandas as pd

from contrastive_lvm.rows.threads import side_by_side

SAMPLE = 100  # lines that tell the columns of words from those of numbers
PIECE = 6 << 20  # bytes that a thread parses at a time; fewer cost time, more cost memory
LEAST_BLOCK = 1 << 10  # bytes that pyarrow wants to see at a time
MOST_THREADS = 4  # each has a piece in memory
WORDS, WHOLE, REAL = "string", "int64", "double"  # pyarrow's names


class NotPlain(Exception):  # noqa: N818 - no error, but another reader's turn
    """The file has something that pandas might read differently."""


class Layout(NamedTuple):
    """What is known of a file from its first line and its reader."""

    separator: str
    names: list[str]  # of all columns
    missing: list[str]  # what stands for a missing entry
    whole: Collection[str] = ()  # columns that stay integers if the first rows have integers
    words: Collection[str] = ()  # columns that are words, whatever they look like


def plain_pieces(file: IO[bytes], layout: Layout) -> Iterator[pd.DataFrame]:
    """Data frames of the rows below the line of names, some thousand at a time.

    Raises
    ------
    NotPlain
        At the first piece that is not plain; those before it are to be forgotten.
    """
    import pyarrow as pa

    _skip_names(file)
    pieces = _whole_lines(file)
    first = next(pieces, b"")
    parse = partial(_parsed, layout, _types(first, layout))
    workers = min(MOST_THREADS, os.cpu_count() or 1)
    yield from side_by_side(parse, chain([first], pieces), workers)
    pa.default_memory_pool().release_unused()  # it keeps several pieces' worth


def _skip_names(file: IO[bytes]) -> None:
    line = file.readline().removeprefix(b"\xef\xbb\xbf")
    while line in (b"\n", b"\r\n"):
        line = file.readline()
    # An open quote goes on in the next line.
    if not line.strip() or line.count(b'"') % 2 or b"\r" in line.rstrip(b"\r\n"):
        raise NotPlain


def _whole_lines(file: IO[bytes]) -> Iterator[bytes]:
    """Pieces of a file that end with a line."""
    rest = b""
    while block := file.read(PIECE):
        end = block.rfind(b"\n") + 1
        piece = b"".join((rest, memoryview(block)[:end])) if end else b""
        rest = block[end:] if end else rest + block
        del block  # while others work on the piece
        if piece:
            yield piece
    if rest:
        yield rest


def _odd(piece: bytes, separator: str) -> bool:
    if b'"' in piece or b"\0" in piece:
        return True
    if b"\r" in piece and piece.count(b"\r") != piece.count(b"\r\n"):
        return True
    # Most pieces have no blank at all, which is found much sooner than where it stands.
    before_value = (b"\n ", f"{separator} ".encode())
    return b" " in piece and (piece[:1] == b" " or any(two in piece for two in before_value))


def _types(piece: bytes, layout: Layout) -> dict[str, str]:
    """What pandas makes of the columns of the first lines, in pyarrow's names."""
    lines = io.BytesIO(piece)
    head = b"".join(lines.readline() for _ in range(SAMPLE))
    try:
        frame = pd.read_csv(
            io.BytesIO(head),
            sep=layout.separator,
            header=None,
            names=layout.names,
            index_col=False,
            na_values=layout.missing,
            keep_default_na=False,
        )
    except ValueError as error:  # pandas' own errors are of this kind
        raise NotPlain from error
    return {name: _type(frame[name], layout) for name in layout.names}


def _type(column: "pd.Series[Any]", layout: Layout) -> str:
    kind = column.dtype.kind
    if column.name in layout.words or pd.api.types.infer_dtype(column, skipna=True) == "string":
        return WORDS
    if kind not in "fi":  # truth values, for one
        raise NotPlain
    return WHOLE if kind == "i" and column.name in layout.whole else REAL


def _parsed(layout: Layout, types: dict[str, str], piece: bytes) -> pd.DataFrame:
    import pyarrow as pa
    from pyarrow import csv

    if _odd(piece, layout.separator):
        raise NotPlain
    read = csv.ReadOptions(
        column_names=layout.names, block_size=max(LEAST_BLOCK, len(piece)), use_threads=False
    )
    parse = csv.ParseOptions(delimiter=layout.separator, quote_char=False)
    convert = csv.ConvertOptions(
        column_types=types, null_values=layout.missing, strings_can_be_null=True
    )
    try:
        table = csv.read_csv(pa.BufferReader(piece), read, parse, convert)
    except pa.ArrowException as error:
        raise NotPlain from error
    frame: pd.DataFrame = table.to_pandas(use_threads=False)
    missing = dict(zip(layout.names, (column.null_count for column in table.columns), strict=True))
    _refuse_infinite(frame, sum(missing[name] for name, kind in types.items() if kind != WORDS))
    for name in (name for name, kind in types.items() if kind == WORDS and missing[name]):
        frame[name] = frame[name].map(lambda word: np.nan if word is None else word)
    return frame


def _refuse_infinite(frame: pd.DataFrame, n_missing: int) -> None:
    """Words for infinity and odd ones for NaN are left to pandas."""
    numbers = frame.select_dtypes("number").to_numpy()
    if numbers.size - np.count_nonzero(np.isfinite(numbers)) != n_missing:
        raise NotPlain
