"""Progress on a terminal, once it takes more than two seconds; nothing elsewhere."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from contrastive_lvm.progress_bars import LateBar, on_terminal

Told = Callable[[Path], Callable[[int], None]]


@contextmanager
def reading() -> Iterator[Told]:
    """A function that, given a file, gives one to tell how many of its bytes are behind."""
    if not on_terminal():
        yield lambda path: lambda done: None
        return
    with LateBar(_columns) as bar:

        def told(path: Path) -> Callable[[int], None]:
            size = path.stat().st_size if path.is_file() else None
            task = bar.add(f"Reading {path.name}", size)
            return lambda done: bar.update(task, done)

        yield told


@contextmanager
def working(what: str, *, shown: bool = True) -> Iterator[None]:
    """A bar without an end and the seconds that have passed, for work that cannot say how far."""
    if not (shown and on_terminal()):
        yield
        return
    with LateBar(_columns) as bar:
        bar.add(what)
        yield


def _columns() -> tuple[Any, ...]:
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn

    return TextColumn("{task.description}"), BarColumn(bar_width=30), TimeElapsedColumn()
