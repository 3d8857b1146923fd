"""Arrays and lists of anything, as floating-point numbers; what is no real number is refused."""

from decimal import Decimal
from numbers import Real
from types import NoneType
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from contrastive_lvm.arrays import Array, Dense
from contrastive_lvm.exceptions import InvalidDataError
from contrastive_lvm.rows.reader import NUMBERS, precision

RowNumbers: TypeAlias = ArrayLike | None  # one number per row, given by users
# Entries of an array of objects. Bytes, dates, durations and complex numbers of NumPy would become
# floating-point numbers without an error.
ENTRIES = (Real, Decimal, np.bool_, str, NoneType, type(pd.NA))


def as_array(X: Any, name: str) -> np.ndarray:
    """Return an array, or what becomes one; a masked array stays one."""
    if not isinstance(X, list | tuple) and not hasattr(X, "__array__"):
        raise InvalidDataError(name, _kind(X))
    try:
        masked = isinstance(X, list | tuple) and any(map(np.ma.isMaskedArray, X))
        values: np.ndarray = np.ma.array(X) if masked else np.asanyarray(X)
    except (TypeError, ValueError) as error:
        reason = "cannot become an array; give all rows the same number of entries."
        raise InvalidDataError(name, reason) from error
    return values


def floats_of(values: np.ndarray, name: str) -> Dense:
    """Return an array in single or double precision; masked entries are NaN."""
    missing = np.ma.getmaskarray(values) if np.ma.isMaskedArray(values) else None
    plain, kind = np.asarray(values), values.dtype.kind
    if kind in "OUS":
        objects = plain.astype(object)
        return numbers_of(objects if missing is None else np.where(missing, np.nan, objects), name)
    if kind not in NUMBERS:
        reason = (
            "Complex data not supported; give real and imaginary parts as columns of their own."
            if kind == "c"
            else "these are not real numbers; convert it to float if they stand for numbers."
        )
        raise InvalidDataError(name, f"has dtype {values.dtype}: {reason}")
    floats: Dense = plain.astype(precision(plain.dtype), copy=False)
    return floats if missing is None else np.where(missing, floats.dtype.type(np.nan), floats)


def numbers_of(objects: np.ndarray, name: str) -> Array:
    """Convert an array of numbers, texts that are numbers, and None and NA, which become NaN."""
    for kind in {type(value) for value in objects.flat}:
        if not issubclass(kind, ENTRIES) or issubclass(kind, np.timedelta64):  # an integer to NumPy
            example = next(value for value in objects.flat if type(value) is kind)
            raise TypeError(
                f"{name} holds {_short(example)} of type {kind.__name__}, but an entry of this "
                "argument must be a number or a string that is a number; convert or drop it."
            )
    try:
        numbers: Array = np.where(pd.isna(objects), np.nan, objects).astype(np.float64)
    except (ValueError, ArithmeticError) as error:
        reason = f"holds text that is not a number ({error}); drop or encode such columns."
        raise InvalidDataError(name, reason) from error
    return numbers


def number_per_row(name: str, given: Any, n_rows: int) -> Array:
    """Return one number per row, such as a weight or a size."""
    try:
        values = floats_of(as_array(given, name), name)
    except (TypeError, ValueError) as error:
        reason = f"is {_short(given)}, but must be one number per row."
        raise InvalidDataError(name, reason) from error
    if values.shape != (n_rows,):
        reason = f"has shape {values.shape}, but there are {n_rows} rows; give one number per row."
        raise InvalidDataError(name, reason)
    return values.astype(np.float64)


def refuse_shape(X: Any, name: str) -> None:
    """Refuse what has not two dimensions, or no rows or features."""
    if len(X.shape) != 2:
        reason = (
            f"has shape {tuple(X.shape)}, but needs two dimensions, rows and features: "
            "Reshape your data with .reshape(1, -1) for one row or .reshape(-1, 1) for one feature."
        )
        raise InvalidDataError(name, reason)
    if 0 in X.shape:
        what = "sample(s)" if X.shape[0] == 0 else "feature(s)"
        reason = f"has 0 {what} (shape={tuple(X.shape)}) while a minimum of 1 is required."
        raise InvalidDataError(name, reason)


def _kind(X: object) -> str:
    """Say what an object is that holds no rows, and what to do about it."""
    way_out = "give an array, a frame or a sparse matrix of rows and features"
    if isinstance(X, str | bytes):
        way_out = "read the file first, for example with pandas.read_csv"
    elif hasattr(X, "obs") and hasattr(X, "X"):
        way_out = "give its matrix, adata.X, or use contrastive_lvm.anndata.fit"
    value = "None" if X is None else f"{_short(X)} of type {type(X).__name__}"
    return f"is {value}, which is not data; {way_out}."


def _short(value: object) -> str:
    text = " ".join(repr(value).split())
    return text if len(text) <= 40 else f"{text[:39]}\N{HORIZONTAL ELLIPSIS}"
