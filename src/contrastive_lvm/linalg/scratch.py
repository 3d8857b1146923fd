"""Room for intermediate results that is used again for one block of rows after another.

Arrays of a megabyte that come and go are given back to the system and asked for again, page by
page, which takes longer than what is computed in them. (More so in Dask's workers, which are set to
give everything back at once.)
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from math import prod
from typing import Any

import numpy as np

LEAST = 1 << 22  # bytes: NumPy asks for such arrays in large pages, of which only some are touched

_held: ContextVar[dict[Any, np.ndarray] | None] = ContextVar("held", default=None)


@contextmanager
def reused(held: dict[Any, np.ndarray]) -> Iterator[None]:
    """Within, `room` of the same name is the same memory, and belongs to what was given."""
    token = _held.set(held)
    try:
        yield
    finally:
        _held.reset(token)


def room(name: str, shape: tuple[int, ...], dtype: Any = np.float64) -> Any:
    """An array of unknown content, until room of that name is asked for again."""
    held = _held.get()
    if held is None:
        return np.empty(shape, dtype)
    size, kind = prod(shape), np.dtype(dtype)
    flat = held.get((name, kind))
    if flat is None or len(flat) < size:
        flat = held[name, kind] = np.empty(max(size, LEAST // kind.itemsize), kind)
    return flat[:size].reshape(shape)


def gathered(name: str, rows: Any, places: Any, axis: int = 0) -> Any:
    """`rows.take(places, axis)` in such room."""
    shape = (*rows.shape[:axis], *np.shape(places), *rows.shape[axis + 1 :])
    out = room(name, shape, rows.dtype)
    return rows.take(places, axis=axis, out=out, mode="clip")  # other modes copy
