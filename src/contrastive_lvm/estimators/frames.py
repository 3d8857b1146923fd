"""Frames, arrays and lists as floating-point numbers, and results as frames.

Entries that are not real numbers are refused; names of features and rows are kept.
"""

import sys
from collections import Counter
from collections.abc import Callable, Iterable
from decimal import Decimal
from functools import wraps
from importlib import import_module
from numbers import Real
from types import NoneType
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, cast

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from sklearn import get_config

from contrastive_lvm.arrays import Array, Dense
from contrastive_lvm.estimators.units import to_data_units
from contrastive_lvm.exceptions import InvalidDataError
from contrastive_lvm.rows.reader import NUMBERS, precision

if TYPE_CHECKING:
    from contrastive_lvm.estimators.base_estimator import Estimator

Method = TypeVar("Method", bound=Callable[..., Any])
RowNumbers: TypeAlias = ArrayLike | None  # one number per row, given by users
# Entries of an array of objects. Bytes, dates, durations and complex numbers of NumPy would become
# floating-point numbers without an error.
ENTRIES = (Real, Decimal, np.bool_, str, NoneType, type(pd.NA))


def first_few(names: Iterable[object]) -> str:
    """Return the first three of many names, and how many more there are."""
    listed = sorted(str(name) for name in names)
    more = f" and {len(listed) - 3} more" if len(listed) > 3 else ""
    return f"{listed[:3]}{more}"


def is_frame(X: object) -> bool:
    """Tell whether rows are a frame of pandas or polars."""
    polars = sys.modules.get("polars")  # a package that was not imported cannot have made X
    others = () if polars is None else (polars.DataFrame, polars.LazyFrame)
    return isinstance(X, (pd.DataFrame, *others))


def values_of_frame(X: Any, name: str) -> Any:
    """Return the numbers of a frame; missing values become NaN."""
    return _from_pandas(X, name) if isinstance(X, pd.DataFrame) else _from_polars(X, name)


def _from_polars(X: Any, name: str) -> Any:
    pl = import_module("polars")
    if isinstance(X, pl.LazyFrame):
        raise TypeError(f"{name} is a polars LazyFrame, which has no rows yet; pass .collect().")
    _refuse_text([c for c, k in X.schema.items() if not (k.is_numeric() or k == pl.Boolean)], name)
    single = bool(X.columns) and all(kind == pl.Float32 for kind in X.dtypes)
    floats = X.select(pl.all().cast(pl.Float32 if single else pl.Float64))
    return floats.to_numpy()


def _from_pandas(X: Any, name: str) -> Any:
    kinds: list[Any] = list(X.dtypes)
    objects = [i for i, kind in enumerate(kinds) if kind == np.object_]
    real = [i in objects or _is_real(kind) for i, kind in enumerate(kinds)]
    _refuse_text([c for c, fine in zip(X.columns, real, strict=True) if not fine], name)
    twice = [c for c, n in Counter(X.columns).items() if n > 1 and isinstance(c, str)]
    if twice:
        reason = (
            f"has more than one column of the name {first_few(twice)}; name every feature once."
        )
        raise InvalidDataError(name, reason)
    if kinds and all(isinstance(k, pd.SparseDtype) and k.fill_value == 0 for k in kinds):
        return X.sparse.to_coo()
    if objects:
        X = X.copy(deep=False)
        for i in objects:
            X.isetitem(i, numbers_of(X.iloc[:, i].to_numpy(), name))
    single = bool(kinds) and all(kind == np.float32 for kind in kinds)
    return X.to_numpy(dtype=np.float32 if single else np.float64, na_value=np.nan)


def _is_real(kind: Any) -> bool:
    types = pd.api.types
    return bool(types.is_numeric_dtype(kind) and not types.is_complex_dtype(kind))


def _refuse_text(columns: list[object], name: str) -> None:
    if columns:
        reason = f"has columns that are not numeric, {first_few(columns)}; drop or encode them."
        raise InvalidDataError(name, reason)


def as_array(X: Any, name: str) -> np.ndarray:
    """Convert an object to an array; a masked array stays one."""
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
                f"{name} contains {_short(example)} of type {kind.__name__}, but an entry of this "
                "argument must be a number or a string that is a number; convert or drop it."
            )
    try:
        numbers: Array = np.where(pd.isna(objects), np.nan, objects).astype(np.float64)
    except (ValueError, ArithmeticError) as error:
        reason = f"contains text that is not a number ({error}); drop or encode such columns."
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
    """Refuse data without two dimensions, without rows or without features."""
    if len(X.shape) != 2:
        way = "with .reshape(1, -1) for one row or .reshape(-1, 1) for one feature"
        if len(X.shape) > 2:
            way = f"with .reshape({X.shape[0]}, -1) if the first axis counts rows"
        reason = (
            f"has shape {tuple(X.shape)}, but needs two dimensions, rows and features: "
            f"Reshape your data {way}."
        )
        raise InvalidDataError(name, reason)
    if 0 in X.shape:
        what = "sample(s)" if X.shape[0] == 0 else "feature(s)"
        reason = f"has 0 {what} (shape={tuple(X.shape)}) while a minimum of 1 is required."
        raise InvalidDataError(name, reason)


def _kind(X: object) -> str:
    """Describe an object that holds no rows, and say what to pass instead."""
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


def follows_output(method: Method) -> Method:
    """Decorate a method whose rows of features become frames when `set_output` asks for them."""

    @wraps(method)
    def framed(self: "Estimator", *arguments: Any, **options: Any) -> Any:
        found = to_data_units(self, method(self, *arguments, **options))
        configured = getattr(self, "_sklearn_output_config", {})
        kind = configured.get("transform", get_config()["transform_output"])
        if kind == "default":
            return found
        given = arguments[0] if arguments else next(iter(options.values()))
        if isinstance(found, tuple):
            return tuple(_framed(self, given, rows, kind) for rows in found)
        return _framed(self, given, found, kind)

    return cast("Method", framed)


def _framed(estimator: "Estimator", given: object, rows: Array, kind: str) -> Any:
    names = getattr(estimator, "feature_names_in_", None)
    columns = [f"x{i}" for i in range(rows.shape[1])] if names is None else list(names)
    if kind == "polars":
        return import_module("polars").DataFrame(rows, schema=columns, orient="row")
    index = given.index if isinstance(given, pd.DataFrame) else None
    return pd.DataFrame(rows, index=index, columns=columns)
