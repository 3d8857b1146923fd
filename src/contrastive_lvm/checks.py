"""Checks of parameters: integers, numbers and choices."""

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np

from contrastive_lvm.exceptions import InvalidParameterError

RandomState: TypeAlias = int | np.random.RandomState | None  # as in scikit-learn
Seed: TypeAlias = RandomState | np.random.Generator
REAL = (int, float, np.integer, np.floating)


def check_integer(
    name: str, value: object, low: int, high: int | None = None, *, detail: str = ""
) -> int:
    """Return an integer within bounds, or raise an error that ends with `detail`.

    Examples
    --------
    >>> check_integer("n_init", 5, 1)
    5
    """
    most = np.inf if high is None else high
    if isinstance(value, int | np.integer) and not isinstance(value, bool) and low <= value <= most:
        return int(value)
    bounds = f"of at least {low}" if high is None else f"from {low} to {high}"
    raise InvalidParameterError(name, value, f"must be an integer {bounds}{detail}.")


def check_number(name: str, value: object, low: float, high: float, what: str) -> float:
    """Return a number between two limits, both included; the error says `what` it must be."""
    if not isinstance(value, REAL) or isinstance(value, bool) or not low <= value <= high:
        raise InvalidParameterError(name, value, f"must be {what}.")
    return float(value)


def check_positive(
    name: str, value: object, high: float = np.inf, what: str = "a positive number"
) -> float:
    """Return a number above zero and below a limit; the error says `what` it must be."""
    if not isinstance(value, REAL) or isinstance(value, bool) or not 0 < value < high:
        raise InvalidParameterError(name, value, f"must be {what}.")
    return float(value)


def check_choice(name: str, value: object, choices: Sequence[str]) -> str:
    """Return a string if it is one of the choices; raise an error that lists them otherwise."""
    if not isinstance(value, str) or value not in choices:
        known = ", ".join(map(repr, choices))
        raise InvalidParameterError(name, value, f"is unknown; use one of {known}.")
    return value
