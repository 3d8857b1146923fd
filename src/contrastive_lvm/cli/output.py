"""What commands share in writing: messages, folders, files and tables."""

import json
import re
import sys
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import typer

Facts = dict[str, Any]  # what is printed as JSON, or as text
Contrastive = Any  # a ContrastiveLVM or a ContrastiveVAE, whose methods have the same names


def say(text: str, *, err: bool = False, nl: bool = True) -> None:
    """Print text that is safe on a terminal."""
    typer.echo(printable(text), err=err, nl=nl)


def printable(text: str) -> str:
    r"""Return text with codes for characters that steer a terminal or cannot be printed.

    These are control characters, marks that turn the direction of writing, and halves of
    characters, which names of files may have.

    >>> print(printable("a\x1b[2Jb"))
    a\x1b[2Jb
    """
    steering = "[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
    return re.sub(steering, lambda found: ascii(found[0])[1:-1], text)


def as_text(facts: object) -> str:
    """Return facts as JSON."""
    return json.dumps(facts, indent=1, allow_nan=False)


def announce(text: str) -> None:
    """Say on a terminal what is being done."""
    if sys.stderr.isatty():
        say(f"{text} ...", err=True)


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
