"""What commands share in writing: messages, folders, files and tables."""

import os
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import typer


def announce(text: str) -> None:
    """Say on a terminal what is being done."""
    if sys.stderr.isatty():
        typer.echo(f"{text} ...", err=True)


@contextmanager
def user_warnings() -> Iterator[list[str]]:
    """Collect what the library warns its users about, each sentence once."""
    sentences: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield sentences
    said = [str(w.message) for w in caught if issubclass(w.category, UserWarning)]
    sentences.extend(dict.fromkeys(said))


def folder(path: Path) -> Path:
    """Create a folder if it is absent, and refuse it before any work if it is read-only."""
    try:
        if path.exists() and not path.is_dir():
            raise ValueError(f"--output={path} is a file, not a folder; choose another folder.")
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            return path
    except OSError as error:
        raise OSError(
            f"--output={path} cannot be written to ({error.strerror}); choose another folder."
        ) from error


def whole(path: Path, write: Callable[[Path], object]) -> Path:
    """Write a file under a temporary name and move it, so that it is never seen half written."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        write(temporary)
        temporary.replace(path)
    except OSError as error:
        raise OSError(
            f"{path} cannot be written ({error.strerror or error}); choose another folder with "
            "--output."
        ) from error
    finally:
        temporary.unlink(missing_ok=True)
    return path


def aligned(table: Sequence[tuple[str, ...]]) -> list[str]:
    """Return the lines of a table: the first column flush left, the others right."""
    widths = [max(len(entry) for entry in column) for column in zip(*table, strict=True)]
    return [
        "  ".join(
            [row[0].ljust(widths[0])]
            + [entry.rjust(width) for entry, width in zip(row[1:], widths[1:], strict=True)]
        )
        for row in table
    ]


def destination(path: Path, option: str = "--output") -> Path:
    """Return a file to write, or refuse it before any work if it cannot be written."""
    try:
        if path.is_dir():
            raise ValueError(f"{option}={path} is a folder; name a file in it.")
        with tempfile.TemporaryFile(dir=path.parent):
            return path
    except OSError as error:
        raise OSError(
            f"{option}={path} cannot be written ({error.strerror}); name a file in another folder."
        ) from error
