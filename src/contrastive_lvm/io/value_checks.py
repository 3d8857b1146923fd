"""Checks of the values in a file, which may be wrong although its checksum is right.

A table of checks names the values that must be present. Letters and words in shapes are sizes: the
first array that has one decides, and all others must agree.

>>> table = {"mean": array("D"), "loadings": array("D", "K"), "n_iter": whole(1)}
>>> check_values(table, {"mean": np.ones(3), "loadings": np.ones((3, 2)), "n_iter": 5}, {"D": 3})
"""

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np

from contrastive_lvm.io.container import clipped

Values = Literal["any", "finite", "not negative", "positive"]
Sizes = dict[str, int]


class Check(NamedTuple):
    """What a value must be: an array of a shape, or a number of some types without one."""

    types: tuple[type, ...]
    wanted: str = ""  # for messages
    values: Values = "any"
    shape: tuple[str | int, ...] | None = None
    least: int | None = None
    optional: bool = False  # whether None passes


class Record(Protocol):
    """A NamedTuple."""

    def _asdict(self) -> dict[str, Any]: ...


def array(
    *shape: str | int, values: Values = "finite", dtype: type[np.generic] = np.float64
) -> Check:
    """Return the check of an array with this shape and such values."""
    return Check((dtype,), values=values, shape=shape)


def number(values: Values = "finite") -> Check:
    """Return the check of a real number."""
    return Check((int, float), f"a number that is {values}", values)


def whole(least: int = 0) -> Check:
    """Return the check of an integer that is at least so large."""
    return Check((int,), f"an integer of at least {least}", least=least)


def flag() -> Check:
    """Return the check of True and False."""
    return Check((bool,), "true or false")


def optional(inner: Check) -> Check:
    """Return a check that lets None pass."""
    return inner._replace(optional=True)


def check_values(
    table: Mapping[str, Check], held: Mapping[str, object] | Record, sizes: Sizes | None = None
) -> None:
    """Refuse values that the table does not describe."""
    found = held if isinstance(held, Mapping) else held._asdict()
    known: Sizes = {} if sizes is None else sizes
    for name, check in table.items():
        if name not in found:
            raise ValueError(f"it lacks {name!r}")
        value = found[name]
        if value is None and check.optional:
            continue
        if check.shape is not None:
            _check_array(name, value, check, known)
            continue
        plain: Any = value.item() if isinstance(value, np.generic) else value
        fits = type(plain) in check.types and (check.least is None or plain >= check.least)
        if not fits or (check.values != "any" and not _within(check.values, np.float64(plain))):
            raise ValueError(f"{name}={clipped(plain)} must be {check.wanted}")


def _check_array(name: str, value: object, check: Check, sizes: Sizes) -> None:
    """Compare an array with a shape, whose words are sizes that all arrays must agree on."""
    shape: Any = check.shape
    if not isinstance(value, np.ndarray) or value.dtype != check.types[0]:
        raise ValueError(f"{name} is not an array of {check.types[0].__name__}")
    if value.ndim != len(shape):
        raise ValueError(f"{name} has {value.ndim} dimensions in place of {len(shape)}")
    pairs = zip(shape, value.shape, strict=True)
    wanted = tuple(n if isinstance(n, int) else sizes.setdefault(n, size) for n, size in pairs)
    if value.shape != wanted:
        raise ValueError(f"{name} has shape {value.shape} in place of {wanted}")
    if not _within(check.values, value):
        raise ValueError(f"{name} has a value that is not {check.values}, or too large")


def _within(values: Values, array: np.ndarray | np.float64) -> bool:
    """Return whether values are of a kind, and their squares do not overflow."""
    if values == "any":
        return True
    size, largest = np.abs(array), np.finfo(array.dtype).max
    if values == "finite":
        return bool(np.all(size < np.sqrt(largest)))
    return bool(np.all((size <= largest) & (array > 0 if values == "positive" else array >= 0)))
