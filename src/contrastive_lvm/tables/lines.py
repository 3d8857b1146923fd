"""A plain text in pieces of whole lines, parsed side by side."""

import io
import mmap
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, Any

import pandas as pd

PIECE = 1 << 23  # bytes
WORKERS = 2  # pandas holds Python's lock for a good part of its work; more do not help
SMALL = 4 * PIECE  # below, nothing is gained


def is_simple(path: Path) -> bool:
    """Whether every line break ends a row: a large text without quotes, not compressed."""
    if path.suffix == ".gz" or path.stat().st_size < SMALL:
        return False
    with (
        path.open("rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content,
    ):
        return content.find(b'"') < 0 <= content.find(b"\n", 0, PIECE)


def side_by_side(
    path: Path,
    separator: str,
    n_columns: int,
    parse: Callable[[IO[bytes]], pd.DataFrame],
) -> Iterator[tuple[pd.DataFrame, int]]:
    """Pieces in the order of the file, and the bytes that are behind each.

    Every piece is given to `parse` below the first line, which names the columns. Of a table whose
    first row is too long pandas would drop what is too much, with a warning; that is refused.
    """
    with path.open("rb") as file, ThreadPoolExecutor(WORKERS) as threads:
        first = _first_line(file)
        waiting: deque[tuple[Any, int]] = deque()
        for piece in _pieces(file):
            if _first_line(io.BytesIO(piece)).count(separator.encode()) >= n_columns:
                raise pd.errors.ParserError
            waiting.append((threads.submit(parse, io.BytesIO(first + piece)), file.tell()))
            if len(waiting) > WORKERS:  # few are held at a time
                parsed, behind = waiting.popleft()
                yield parsed.result(), behind
        for parsed, behind in waiting:
            yield parsed.result(), behind


def _first_line(file: IO[bytes]) -> bytes:
    line = file.readline()
    while line and not line.strip():
        line = file.readline()
    return line


def _pieces(file: IO[bytes]) -> Iterator[bytes]:
    """Whole lines, some megabytes at a time."""
    while piece := file.read(PIECE):
        yield piece + file.readline()
