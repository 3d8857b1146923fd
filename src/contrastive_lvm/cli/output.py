"""What commands share in writing: folders, files that appear whole, and tables."""

import os
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path


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
    """The folder, made if absent; refused before any work if nothing can be written there."""
    try:
        if path.exists() and not path.is_dir():
            raise ValueError(f"--output={path} is a file, not a folder; name another folder.")
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            return path
    except OSError as error:
        raise OSError(
            f"--output={path} cannot be written to ({error.strerror}); name another folder."
        ) from error


def whole(path: Path, write: Callable[[Path], object]) -> Path:
    """Write under a temporary name and move, so that no half file is ever seen."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        write(temporary)
        temporary.replace(path)
    except OSError as error:
        raise OSError(
            f"{path} cannot be written ({error.strerror or error}); name another folder with "
            "--output."
        ) from error
    finally:
        temporary.unlink(missing_ok=True)
    return path


def aligned(table: Sequence[tuple[str, ...]]) -> list[str]:
    """Lines of a table: the first column to the left, numbers to the right."""
    widths = [max(len(cell) for cell in column) for column in zip(*table, strict=True)]
    return [
        "  ".join(
            [row[0].ljust(widths[0])]
            + [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
        )
        for row in table
    ]


def destination(path: Path, option: str = "--output") -> Path:
    """A file to be written, refused before any work if that cannot be."""
    try:
        if path.is_dir():
            raise ValueError(f"{option}={path} is a folder; name a file in it.")
        with tempfile.TemporaryFile(dir=path.parent):
            return path
    except OSError as error:
        raise OSError(
            f"{option}={path} cannot be written ({error.strerror}); name a file in another folder."
        ) from error
