"""Threads over chunks of rows, each with one thread of BLAS."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import copy_context
from functools import cache
from threading import Lock
from typing import Any, ClassVar, TypeVar

from threadpoolctl import ThreadpoolController

Item = TypeVar("Item")


Result = TypeVar("Result")


def in_order(function: Callable[[slice], Result], blocks: list[slice]) -> Iterator[Result]:
    """Results block by block, in the blocks' order, as many at a time as BLAS may have threads.

    Whoever sums them gets the same sum for every number of threads. A single block has all of them
    for itself.
    """
    if len(blocks) > 1:
        yield from one_thread_each(function, blocks)
    else:
        yield from map(function, blocks)


def one_thread_each(function: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
    """Results in the items' order, as many at a time as BLAS may have threads.

    For each of them BLAS keeps to one thread, so that the threads do not fight.
    """
    workers = _blas_threads()
    with one_blas_thread():
        yield from side_by_side(function, items, workers) if workers > 1 else map(function, items)


def side_by_side(
    function: Callable[[Item], Result], items: Iterable[Item], workers: int
) -> Iterator[Result]:
    """Results in the items' order by so many threads; few wait at a time, none for another."""
    with ThreadPoolExecutor(workers) as threads:
        running: deque[Future[Result]] = deque()
        for item in items:
            # NumPy's settings for floating-point errors are those of whoever asked.
            running.append(threads.submit(copy_context().run, function, item))
            if len(running) > workers:
                yield running.popleft().result()
        while running:
            yield running.popleft().result()


@cache
def _blas() -> ThreadpoolController:
    """The loaded BLAS libraries; looking for them takes some milliseconds."""
    return ThreadpoolController().select(user_api="blas")


class _Inside:
    """Who is within `one_blas_thread`: the limit belongs to the process, not to a thread."""

    lock = Lock()
    count = 0
    before: ClassVar[list[int]] = []  # threads that each library had


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """BLAS keeps to one thread until the last of those who asked for it has left.

    Threads that each set and restore the limit would restore each other's.
    """
    with _Inside.lock:
        if _Inside.count == 0:
            _Inside.before = [library.num_threads for library in _blas().lib_controllers]
            _set_threads([1] * len(_Inside.before))
        _Inside.count += 1
    try:
        yield
    finally:
        with _Inside.lock:
            _Inside.count -= 1
            if _Inside.count == 0:
                _set_threads(_Inside.before)


def _set_threads(numbers: list[int]) -> None:
    for library, number in zip(_blas().lib_controllers, numbers, strict=True):
        # Since version 3.8 threadpoolctl ignores all threads but the one that set a limit first.
        # Here the first to come sets it for all, and the last to leave, maybe another, undoes it.
        setter: Any = getattr(library, "_real_set_num_threads", library.set_num_threads)
        setter(number)


def _blas_threads() -> int:
    return max((library.num_threads for library in _blas().lib_controllers), default=1)
