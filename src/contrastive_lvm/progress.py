"""Progress of long fits on stderr: a bar on a terminal, a line in a notebook, lines in a log."""

import logging
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import FrameType

Advance = Callable[[int, str], None]  # by how many steps, with which message


@contextmanager
def verbosity(*, enabled: bool = True) -> Iterator[None]:
    """Show the informational messages of the package on stderr; leave the logger as it was."""
    logger = logging.getLogger("contrastive_lvm")
    handler, level = logging.StreamHandler(), logger.level
    handler.setFormatter(logging.Formatter("%(message)s"))
    if enabled:
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)


class _InterruptNoted:
    """A handler of Ctrl-C that raises `KeyboardInterrupt`, and remembers that it did."""

    def __init__(self) -> None:
        self.pending = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        self.pending = True
        raise KeyboardInterrupt


@contextmanager
def noting_interrupts() -> Iterator[None]:
    """Let `progress` raise an interrupt again that was lost.

    Python ignores exceptions in callbacks of its garbage collector. JAX has such a callback, and it
    is often active while a program is compiled.
    """
    handler = _InterruptNoted()
    main = threading.current_thread() is threading.main_thread()
    if not main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield  # a handler that the user has installed stays
        return
    signal.signal(signal.SIGINT, handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@contextmanager
def progress(
    name: str, total: int, logger: logging.Logger, *, unit: str = "step"
) -> Iterator[Advance]:
    """Yield a function `advance(steps, message)`, which is silent unless the logger shows INFO.

    The function raises an interrupt that was lost.
    """
    show: Advance | None = None
    with ExitStack() as stack:
        if logger.isEnabledFor(logging.INFO):
            show = stack.enter_context(_shown(name, total, logger, unit))

        def advance(steps: int, message: str) -> None:
            handler = signal.getsignal(signal.SIGINT)
            if isinstance(handler, _InterruptNoted) and handler.pending:
                handler.pending = False
                raise KeyboardInterrupt
            if show is not None:
                show(steps, message)

        yield advance


@contextmanager
def _shown(name: str, total: int, logger: logging.Logger, unit: str) -> Iterator[Advance]:
    if sys.stderr.isatty():
        yield from _bar(name, total)
    elif _in_notebook():
        yield _lines(name, total, unit, _rewrite)
        sys.stderr.write("\n")
    else:
        yield _lines(name, total, unit, logger.info)


def _lines(name: str, total: int, unit: str, show: Callable[[str], object]) -> Advance:
    """Show a line whenever another tenth of the steps is done."""
    done = 0

    def advance(steps: int, message: str) -> None:
        nonlocal done
        before, done = done, done + steps
        if 10 * done // total > 10 * before // total:
            show(f"{name}: {unit} {done}, {message}")

    return advance


def _rewrite(line: str) -> None:
    """Write over the last line of a notebook's output."""
    sys.stderr.write(f"\r{line}")
    sys.stderr.flush()


def _bar(name: str, total: int) -> Iterator[Advance]:
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


def _in_notebook() -> bool:
    """Tell whether the code runs in a notebook's kernel, without importing anything."""
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    return getattr(shell, "kernel", None) is not None
