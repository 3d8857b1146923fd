"""Compiled programs, kept for models and data of the same layout and shapes."""

from collections.abc import Callable, Hashable
from functools import lru_cache
from typing import TypeVar

Layout = TypeVar("Layout", bound=Hashable)
Program = TypeVar("Program")
MOST_PROGRAMS = 4  # each takes about 25 MB, and compiling one some seconds


def cached_program(
    make: Callable[[Layout], Program], layout: Layout, shapes: Hashable = ()
) -> Program:
    """Return the program of a layout for data of some shapes, the last ones used being kept.

    JAX compiles a function anew for other shapes and keeps all versions as long as the function:
    with a function for each shape, what is no longer used can be freed. The program of an
    unhashable prior is made anew each time.
    """
    try:
        hash(layout)
    except TypeError:
        return make(layout)
    program: Program = _cached(make, layout, shapes)
    return program


_cached = lru_cache(MOST_PROGRAMS)(lambda make, layout, shapes: make(layout))
