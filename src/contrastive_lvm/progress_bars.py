"""Bars that appear only once work has taken two seconds: on a terminal, or in a notebook."""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from html import escape
from importlib import import_module
from threading import Lock, Timer
from time import monotonic
from typing import Any, Self

DELAY = 2.0  # seconds
PAUSE = 0.25  # seconds between two looks of a bar in a notebook


@dataclass(eq=False)
class Task:
    """Something that goes on, and how far it is."""

    name: str
    total: float | None  # None if nobody knows
    began: float
    done: float = 0.0
    message: str = ""


class LateBar:
    """A bar of rich that a timer shows; work that ends before never sees rich imported.

    A timer, and not the next advance, because closed forms have none.

    Parameters
    ----------
    columns : function
        Gives the columns of the bar, once they are needed.
    """

    def __init__(self, columns: Callable[[], tuple[Any, ...]]) -> None:
        self._columns = columns
        self._tasks: list[Task] = []
        self._lock = Lock()
        self._shown: Any = None
        self._timer = Timer(DELAY, self._appear)
        self._timer.daemon = True

    def __enter__(self) -> Self:
        self._timer.start()
        return self

    def __exit__(self, *reason: object) -> None:
        self._timer.cancel()
        with self._lock:
            if self._shown is not None:
                self._shown.stop()
            self._tasks = []

    def add(self, name: str, total: float | None = None) -> Task:
        """Begin a task."""
        task = Task(name, total, monotonic())
        with self._lock:
            self._tasks.append(task)
            if self._shown is not None:
                self._show(task)
        return task

    def update(self, task: Task, done: float, message: str = "") -> None:
        """Say how far a task is."""
        task.done, task.message = done, message
        with self._lock:
            if self._shown is not None:
                number = self._tasks.index(task)
                self._shown.update(number, completed=done, message=message)

    def _appear(self) -> None:
        with self._lock:
            if not self._tasks:  # the work has just ended
                return
            self._shown = _rich(self._columns())
            for task in self._tasks:
                self._show(task)
            self._shown.start()

    def _show(self, task: Task) -> None:
        self._shown.add_task(task.name, total=task.total, completed=task.done, message=task.message)
        self._shown.tasks[-1].start_time = task.began


def _rich(columns: tuple[Any, ...]) -> Any:
    from rich.console import Console
    from rich.progress import Progress

    return Progress(*columns, console=Console(stderr=True), transient=True, get_time=monotonic)


class NotebookBar:
    """A line of a notebook that is written again and again.

    Neither rich nor the widgets that it would need in a notebook have to be there. It is looked at
    in `update` alone, since output of other threads may end up in other cells.
    """

    def __init__(self, name: str, total: float) -> None:
        self._task = Task(name, total, monotonic())
        self._handle: Any = None
        self._last = 0.0

    def update(self, done: float, message: str = "") -> None:
        """Say how far it is."""
        self._task.done, self._task.message = done, message
        now = monotonic()
        if self._handle is None and now - self._task.began >= DELAY:
            self._handle, self._last = _displayed(self._look(now)), now
        elif self._handle is not None and now - self._last >= PAUSE:
            self._write(now)

    def finish(self, *, complete: bool) -> None:
        """The last look, which stays; fits may be complete before all their steps are."""
        if complete:
            self._task.done = self._task.total or 1.0
        if self._handle is not None:
            self._write(monotonic())

    def _write(self, now: float) -> None:
        self._handle.update(self._look(now), raw=True)
        self._last = now

    def _look(self, now: float) -> dict[str, str]:
        task = self._task
        share = task.done / task.total if task.total else 0.0
        seconds = int(now - task.began)
        text = f"{task.name} {share:.0%}, {seconds // 60}:{seconds % 60:02d}"
        text += f", {task.message}" if task.message else ""
        bar = f'<progress value="{min(share, 1.0):.3f}" max="1"></progress>'
        return {"text/plain": text, "text/html": f"{bar} {escape(text)}"}


def _displayed(look: dict[str, str]) -> Any:
    display: Any = import_module("IPython.display").display  # no dependency: there if it is needed
    return display(look, raw=True, display_id=True)


def on_terminal() -> bool:
    """Whether somebody looks at stderr."""
    return sys.stderr.isatty()


def in_notebook() -> bool:
    """Whether this runs in a kernel that displays things; nothing is imported to find out."""
    if "IPython" not in sys.modules:
        return False
    shell = sys.modules["IPython"].get_ipython()
    return getattr(shell, "kernel", None) is not None
