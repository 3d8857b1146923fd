"""Text in files: gzipped or not, in UTF-8, UTF-16 or the encoding of Western Windows."""

import codecs
import csv
import gzip
import io
import zlib
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, BinaryIO, cast

import pandas as pd

SPREADSHEET = "cp1252"  # what spreadsheets on Windows call ANSI; it has all of Latin-1
CONTROLS = bytes(i for i in range(32) if i not in b"\t\n\f\r") + b"\x7f"
START = 1 << 20  # bytes that tell the encoding of a file


def encoding_of(path: Path) -> str:
    """Return the encoding that a text file begins with: that of its mark, UTF-8, or Windows'.

    What is not UTF-8 is taken for text of Windows if it has no characters that no text has.
    """
    with opened_bytes(path) as (_, data):
        start = data.read(START)
    if start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    try:
        codecs.getincrementaldecoder("utf-8-sig")().decode(start, final=len(start) < START)
    except UnicodeDecodeError:
        return "utf-8-sig" if set(start) & set(CONTROLS) else SPREADSHEET
    return "utf-8-sig"


@contextmanager
def opened(
    path: Path, encoding: str = "utf-8-sig", skip: Collection[int] = ()
) -> Iterator[tuple[BinaryIO, IO[str]]]:
    """Open the raw file, which knows how far it was read, and its text without some lines."""
    with (
        opened_bytes(path) as (raw, data),
        io.TextIOWrapper(data, encoding=encoding, newline="") as text,
    ):
        yield raw, _without(text, set(skip)) if skip else text


def _without(text: IO[str], lines: set[int]) -> IO[str]:
    kept = (line for number, line in enumerate(text, start=1) if number not in lines)
    return io.StringIO("".join(kept), newline="")


@contextmanager
def opened_bytes(path: Path) -> Iterator[tuple[BinaryIO, BinaryIO]]:
    """Open the raw file, and what it holds, unzipped."""
    with path.open("rb") as raw:
        packed = path.suffix.lower() == ".gz"
        yield raw, cast("BinaryIO", gzip.GzipFile(fileobj=raw)) if packed else raw


def records(text: IO[str], separator: str) -> Iterator[list[str]]:
    """Return the lines of a table that are not empty, as lists of text."""
    found = csv.reader(text, delimiter=separator, skipinitialspace=True)
    return (record for record in found if record)


@contextmanager
def one_sentence(path: Path) -> Iterator[None]:
    """Turn errors inside a file into sentences."""
    try:
        yield
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{path} is not text in UTF-8 (byte {error.object[error.start]:#04x} cannot be read); "
            "save it with the encoding UTF-8."
        ) from error
    except UnicodeError as error:
        raise ValueError(
            f"{path} is not text in UTF-16 ({error}); save it with the encoding UTF-8."
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
