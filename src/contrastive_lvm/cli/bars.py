"""Progress on a terminal; nothing elsewhere."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

Told = Callable[[Path], Callable[[int], None]]


@contextmanager
def reading() -> Iterator[Told]:
    """A function that, given a file, gives one to tell how many of its bytes are behind."""
    if not sys.stderr.isatty():
        yield lambda path: lambda done: None
        return
    with _progress() as bar:

        def told(path: Path) -> Callable[[int], None]:
            size = path.stat().st_size if path.is_file() else None
            task = bar.add_task(f"Reading {path.name}", total=size)
            return lambda done: bar.update(task, completed=done)

        yield told


@contextmanager
def working(what: str, *, shown: bool = True) -> Iterator[None]:
    """A bar without an end and the seconds that have passed, for work that cannot say how far."""
    if not (shown and sys.stderr.isatty()):
        yield
        return
    with _progress() as bar:
        bar.add_task(what, total=None)
        yield


def _progress() -> Any:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(bar_width=30), TimeElapsedColumn())
    return Progress(*columns, console=Console(stderr=True), transient=True)
