"""Work that begins while the program is still loading what it needs afterwards."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Thread
from typing import Generic, TypeVar

T = TypeVar("T")


class Stopped(Exception):  # noqa: N818
    """Raised inside work that nobody waits for any more."""


class Ahead(Generic[T]):
    """A result that another thread works on."""

    def __init__(self, work: Callable[[Callable[[], None]], T]) -> None:
        self._work, self._stop = work, Event()
        self._found: T | None = None
        self._error: BaseException | None = None
        self._thread = Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._found = self._work(self._check)
        except BaseException as error:  # raised again where the result is wanted
            self._error = error

    def _check(self) -> None:
        if self._stop.is_set():
            raise Stopped

    def stop(self) -> None:
        """End the work at its next check, and wait until it has ended."""
        self._stop.set()
        self._thread.join()

    def result(self) -> T:
        """Wait for the work, and give what it gives, once, or raise what it raises."""
        self._thread.join()
        if self._error is not None:
            raise self._error
        found, self._found = self._found, None  # large things have one owner
        return found  # type: ignore[return-value]


@contextmanager
def ahead(
    work: Callable[[Callable[[], None]], T], *, at_once: bool = True
) -> Iterator[Callable[[], T]]:
    """Begin work in another thread, or, unless `at_once`, when its result is asked for.

    Parameters
    ----------
    work : function
        Is given a function to call from time to time, which raises if the work is in vain because
        the block was left by an error.
    at_once : bool
        Reading a text is worth it: the parser needs none of Python meanwhile.

    Yields
    ------
    function
        Gives the result.

    Examples
    --------
    >>> with ahead(lambda check: 6 * 7) as result:
    ...     result()
    42
    """
    if not at_once:
        yield lambda: work(lambda: None)
        return
    running = Ahead(work)
    try:
        yield running.result
    finally:
        running.stop()
