"""Progress of long fits: a bar on a terminal or in a notebook, lines in a log."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from contrastive_lvm.progress_bars import LateBar, NotebookBar, in_notebook, on_terminal

LINES = 10  # in a log
Advance = Callable[[int, str], None]


@contextmanager
def progress(
    name: str, total: int, logger: logging.Logger, *, unit: str = "step"
) -> Iterator[Advance]:
    """A function `advance(steps, message)`; silent unless the logger shows information."""
    if not logger.isEnabledFor(logging.INFO):
        yield lambda steps, message: None
    elif in_notebook():
        yield from _cell(name, total)
    elif on_terminal():
        yield from _bar(name, total)
    else:
        yield _lines(name, total, logger, unit)


def _counted(show: Callable[[int, str], None]) -> Advance:
    """From steps to their sum."""
    done = 0

    def advance(steps: int, message: str) -> None:
        nonlocal done
        done += steps
        show(done, message)

    return advance


def _lines(name: str, total: int, logger: logging.Logger, unit: str) -> Advance:
    said = 0

    def show(done: int, message: str) -> None:
        nonlocal said
        if done * LINES // total > said:
            said = done * LINES // total
            logger.info("%s: %s %d, %s", name, unit, done, message)

    return _counted(show)


def _cell(name: str, total: int) -> Iterator[Advance]:
    bar, complete = NotebookBar(name, total), False
    try:
        yield _counted(bar.update)
        complete = True
    finally:
        bar.finish(complete=complete)


def _bar(name: str, total: int) -> Iterator[Advance]:
    with LateBar(_columns) as bar:
        task = bar.add(name, total)
        yield _counted(lambda done, message: bar.update(task, done, message))


def _columns() -> tuple[Any, ...]:
    from rich.progress import BarColumn, TextColumn, TimeRemainingColumn

    return (  # narrow enough to leave half of 80 characters to the message
        TextColumn("{task.description}"),
        BarColumn(bar_width=10),
        TextColumn("{task.percentage:>3.0f}%"),
        TimeRemainingColumn(),
        TextColumn("{task.fields[message]}"),
    )
