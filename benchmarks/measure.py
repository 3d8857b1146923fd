"""How things are timed: interleaved repeats and the best of each, on a noisy machine."""

import time
import tracemalloc
from collections.abc import Callable
from typing import Any, NamedTuple


class Result(NamedTuple):
    """One line of the table."""

    what: str
    value: float  # the measured ratio
    limit: float  # the most it may be (the least, when `at_least`)
    detail: str
    at_least: bool = False

    @property
    def ok(self) -> bool:
        """Whether the limit is kept."""
        return self.value >= self.limit if self.at_least else self.value <= self.limit


def best_seconds(tasks: dict[str, Callable[[], Any]], repeats: int) -> dict[str, float]:
    """Least seconds of each task; the tasks take turns, so that noise hits all alike."""
    best = dict.fromkeys(tasks, float("inf"))
    for _ in range(repeats):
        for name, task in tasks.items():
            start = time.perf_counter()
            task()
            best[name] = min(best[name], time.perf_counter() - start)
    return best


def peak_megabytes(task: Callable[[], Any]) -> float:
    """Most memory that Python and NumPy held at once beyond what was held before."""
    tracemalloc.start()
    try:
        task()
        return tracemalloc.get_traced_memory()[1] / 1e6
    finally:
        tracemalloc.stop()
