"""Output folders of commands, and aligned tables of text."""

import tempfile
from collections.abc import Sequence
from pathlib import Path


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
