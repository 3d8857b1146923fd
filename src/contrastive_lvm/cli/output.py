"""The output of commands: messages, folders, files and tables."""

import json
import logging
import re
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from contrastive_lvm.io.atomic import destination, write_atomically

if TYPE_CHECKING:
    from matplotlib.figure import Figure

logger = logging.getLogger(__name__)

Facts = dict[str, Any]  # what is printed as JSON, or as text
Contrastive = Any  # a ContrastiveLVM or a ContrastiveVAE, whose methods have the same names


def say(text: str, *, err: bool = False, nl: bool = True) -> None:
    """Print text that is safe on a terminal."""
    typer.echo(printable(text), err=err, nl=nl)


def printable(text: str) -> str:
    r"""Return text with codes for characters that steer a terminal or cannot be printed.

    These are control characters, marks that change the direction of writing, and lone surrogates,
    which names of files may have.

    >>> print(printable("a\x1b[2Jb"))
    a\x1b[2Jb
    """
    steering = "[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
    return re.sub(steering, lambda found: ascii(found[0])[1:-1], text)


def show(facts: Facts, as_text: Callable[[Any], str], *, as_json: bool) -> None:
    """Print the results of a command as JSON or as text."""
    say(json.dumps(facts, indent=1, allow_nan=False) if as_json else as_text(facts))


def with_verdict(facts: Facts, *lines: str) -> list[str]:
    """Return lines of text below the verdict, which comes with the warnings that qualify it."""
    return [facts["verdict"], *(f"warning: {said}" for said in facts["cautions"]), "", *lines]


def with_warnings(facts: Facts, lines: list[str], *last: str) -> str:
    """Return lines of text, with the other warnings before the last."""
    others = [said for said in facts["warnings"] if said not in facts.get("cautions", [])]
    return "\n".join([*lines, *(f"warning: {said}" for said in others), *last])


def announce(text: str) -> None:
    """Show on a terminal what is being done, or write it to the log."""
    if sys.stderr.isatty():
        say(f"{text} ...", err=True)
    else:
        logger.info("%s ...", text)


@contextmanager
def user_warnings() -> Iterator[list[str]]:
    """Collect the warnings of the library, each sentence once."""
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


def check_model_file(path: Path, option: str, **others: Any) -> None:
    """Refuse a file that cannot be written, or whose name says that it is no model."""
    kind = destination(path, option, **others).suffix.lower()
    if kind in (".csv", ".tsv", ".txt", ".xlsx", ".npy", ".parquet", ".json", ".html", ".pdf"):
        raise ValueError(
            f"{option}={path} would be a model file; use the ending .clvm, and clvm export or "
            "clvm report for tables and pages."
        )


def check_picture(path: Path, option: str, **others: Any) -> None:
    """Refuse a file that cannot be written or is no picture, before any work."""
    kind = destination(path, option, **others).suffix.lower()
    if kind not in (".png", ".svg", ".pdf"):
        raise ValueError(f"{option}={path} is not a picture; use the ending .png, .svg or .pdf.")


def write_picture(path: Path, figure: "Figure", dpi: int = 150) -> None:
    """Write a figure in the format that its name says."""
    kind = path.suffix.lower().removeprefix(".")
    write_atomically(path, lambda place: figure.savefig(place, format=kind, dpi=dpi))


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
