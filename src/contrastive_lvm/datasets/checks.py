"""What numbers given to the functions of this package must be."""

from typing import Any

import numpy as np


def whole(name: str, value: Any, least: int = 1, most: int | None = None) -> int:
    """A whole number within bounds, or one sentence that says what is wrong with it.

    Parameters
    ----------
    name : str
        Of the argument, for the sentence.
    value : object
    least : int
    most : int, optional

    Returns
    -------
    int

    Examples
    --------
    >>> whole("every", 5)
    5
    """
    number = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not number or value < least or (most is not None and value > most):
        bounds = f"of at least {least}" if most is None else f"from {least} to {most}"
        raise ValueError(f"{name}={value!r} must be a whole number {bounds}.")
    return int(value)
