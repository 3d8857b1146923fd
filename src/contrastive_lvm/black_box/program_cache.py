"""Compiled programs, kept for models and data of the same layout."""

from collections.abc import Callable, Hashable
from functools import lru_cache
from typing import Any, TypeVar

Layout = TypeVar("Layout", bound=Hashable)
Program = TypeVar("Program")
MOST_PROGRAMS = 16


def cached_program(make: Callable[[Layout], Program], layout: Layout) -> Program:
    """Return the program of a layout; that of an unhashable prior is made anew each time."""
    try:
        hash(layout)
    except TypeError:
        return make(layout)
    program: Program = _cached(make, layout)
    return program


@lru_cache(maxsize=MOST_PROGRAMS)
def _cached(make: Callable[[Any], Any], layout: Any) -> Any:
    return make(layout)
