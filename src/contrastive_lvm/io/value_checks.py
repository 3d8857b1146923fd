"""Checks of what a file holds: a checksum says that it is as it was written, not that it is right.

A table of checks names the values that there must be. Letters and words in shapes are sizes: the
first array that has one decides, and all others must agree.

>>> table = {"mean": array("D"), "loadings": array("D", "K"), "n_iter": whole(1)}
>>> check_values(table, {"mean": np.ones(3), "loadings": np.ones((3, 2)), "n_iter": 5}, {"D": 3})
"""

from collections.abc import Callable, Mapping
from typing import Any, Literal, Protocol

import numpy as np

from contrastive_lvm.io.container import clipped

Values = Literal["any", "finite", "not negative", "positive"]
Sizes = dict[str, int]
Check = Callable[[str, object, Sizes], None]


class Record(Protocol):
    """A NamedTuple."""

    def _asdict(self) -> dict[str, Any]: ...


def check_values(
    table: Mapping[str, Check], held: Mapping[str, object] | Record, sizes: Sizes | None = None
) -> None:
    """Refuse values that the table does not describe."""
    values = held if isinstance(held, Mapping) else held._asdict()
    lacking = [name for name in table if name not in values]
    if lacking:
        raise ValueError(f"it lacks {lacking[0]!r}")
    known: Sizes = {} if sizes is None else sizes
    for name, check in table.items():
        check(name, values[name], known)


def array(
    *shape: str | int, values: Values = "finite", dtype: type[np.generic] = np.float64
) -> Check:
    """Return the check of an array with this shape and such values."""

    def check(name: str, value: object, sizes: Sizes) -> None:
        if not isinstance(value, np.ndarray) or value.dtype != dtype:
            raise ValueError(f"{name} is not an array of {dtype.__name__}")
        if value.ndim != len(shape):
            raise ValueError(f"{name} has {value.ndim} dimensions in place of {len(shape)}")
        pairs = zip(shape, value.shape, strict=True)
        wanted = tuple(n if isinstance(n, int) else sizes.setdefault(n, size) for n, size in pairs)
        if value.shape != wanted:
            raise ValueError(f"{name} has shape {value.shape} in place of {wanted}")
        if not _within(values, value):
            raise ValueError(f"{name} has a value that is not {values}, or too large")

    return check


def number(values: Values = "finite") -> Check:
    """Return the check of a real number."""
    wanted = f"a number that is {values}"
    return _scalar((int, float), lambda value: _within(values, np.float64(value)), wanted)


def whole(least: int = 0) -> Check:
    """Return the check of an integer that is at least so large."""
    return _scalar((int,), lambda value: value >= least, f"an integer of at least {least}")


def flag() -> Check:
    """Return the check of True and False."""
    return _scalar((bool,), lambda value: True, "true or false")


def _scalar(kinds: tuple[type, ...], fits: Callable[[Any], bool], wanted: str) -> Check:
    def check(name: str, value: object, _: Sizes) -> None:
        plain = value.item() if isinstance(value, np.generic) else value
        if type(plain) not in kinds or not fits(plain):
            raise ValueError(f"{name}={clipped(plain)} must be {wanted}")

    return check


def optional(inner: Check) -> Check:
    """Return a check that lets None pass."""

    def check(name: str, value: object, sizes: Sizes) -> None:
        if value is not None:
            inner(name, value, sizes)

    return check


def _within(values: Values, array: np.ndarray | np.float64) -> bool:
    """Return whether values are such; those that are not variances must have squares."""
    if values == "any":
        return True
    size, largest = np.abs(array), np.finfo(array.dtype).max
    if values == "finite":
        return bool(np.all(size < np.sqrt(largest)))
    return bool(np.all((size <= largest) & (array > 0 if values == "positive" else array >= 0)))
