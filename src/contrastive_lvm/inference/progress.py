"""Progress of long fits: a bar on a terminal, lines in a log."""

import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

LINES = 10  # in a log


@contextmanager
def progress(
    name: str, total: int, logger: logging.Logger, *, unit: str = "step"
) -> Iterator[Callable[[int, str], None]]:
    """A function `advance(steps, message)`; silent unless the logger shows information."""
    if not logger.isEnabledFor(logging.INFO):
        yield lambda steps, message: None
    elif sys.stderr.isatty():
        yield from _bar(name, total)
    else:
        yield _lines(name, total, logger, unit)


def _lines(name: str, total: int, logger: logging.Logger, unit: str) -> Callable[[int, str], None]:
    done = 0

    def advance(steps: int, message: str) -> None:
        nonlocal done
        done += steps
        if done * LINES // total > (done - steps) * LINES // total:
            logger.info("%s: %s %d, %s", name, unit, done, message)

    return advance


def _bar(name: str, total: int) -> Iterator[Callable[[int, str], None]]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (  # narrow enough to leave half of 80 characters to the message
        TextColumn("{task.description}"),
        BarColumn(bar_width=10),
        TextColumn("{task.percentage:>3.0f}%"),
        TimeRemainingColumn(),
        TextColumn("{task.fields[message]}"),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(name, total=total, message="")
        yield lambda steps, message: bar.update(task, advance=steps, message=message)
