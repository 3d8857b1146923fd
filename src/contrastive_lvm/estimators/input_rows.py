"""Rows that users hand in: in memory, or out of core and read a chunk at a time."""

import inspect
from collections.abc import Callable
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted, validate_data

from contrastive_lvm.arrays import Array, Matrix
from contrastive_lvm.estimators.frames import (
    NamedRows,
    first_few,
    is_frame,
    unnamed,
    values_of_frame,
)
from contrastive_lvm.estimators.object_arrays import (
    as_array,
    floats_of,
    number_per_row,
    refuse_shape,
)
from contrastive_lvm.estimators.validation import refuse_empty_columns, refuse_values
from contrastive_lvm.exceptions import InvalidDataError
from contrastive_lvm.linalg.matrices import is_sparse, widen
from contrastive_lvm.linalg.sparse_format import as_csr
from contrastive_lvm.rows.reader import (
    Checks,
    RowReader,
    Rows,
    is_out_of_core,
    open_rows,
)

if TYPE_CHECKING:
    from contrastive_lvm.estimators.base_estimator import Estimator
    from contrastive_lvm.estimators.linear_predictions import LinearPredictions

FLOATS = (np.float64, np.float32)
Method = TypeVar("Method", bound=Callable[..., Any])


def read_rows(
    estimator: "Estimator", X: Any, *, name: str = "X", reset: bool = False, missing: bool = True
) -> Matrix:
    """Read rows into float32, float64 or CSR; remember their features (`reset`) or check them."""
    rows = as_rows(X, name)
    check_features(estimator, X, rows, name, reset=reset)
    refuse_values(rows, name, missing=missing, columns=reset)
    return rows


def as_rows(X: Any, name: str) -> Matrix:
    """Return rows of any kind as an array or a CSR matrix of floats; missing entries are NaN."""
    values: Any = unnamed(X)
    if type(values) is np.ndarray and values.dtype in FLOATS and values.ndim == 2 and values.size:
        return cast("Matrix", values)
    if is_frame(values):
        values = values_of_frame(values, name)
    elif not is_sparse(values):
        values = as_array(values, name)
    refuse_shape(values, name)
    return as_csr(values, name) if is_sparse(values) else floats_of(values, name)


def rows_for_fit(estimator: "Estimator", X: Any, *, name: str = "X", missing: bool = True) -> Rows:
    """Read rows of a fit; those out of core are checked when they are read."""
    if is_out_of_core(unnamed(X)):
        rows: Rows = open_input(estimator, X, name, missing=missing, reset=True)
    else:
        rows = read_rows(estimator, X, name=name, reset=True, missing=missing)
    if rows.shape[0] < 2:
        reason = f"has {rows.shape[0]} sample (row), but fitting needs at least 2; add rows."
        raise InvalidDataError(name, reason)
    return rows


def check_features(
    estimator: "Estimator", X: Any, rows: Rows, name: str, *, reset: bool = False
) -> None:
    """Remember the features of X in a fit, or compare features with those of the fit."""
    columns = X.names if isinstance(X, NamedRows) else getattr(X, "columns", None)
    header = rows if columns is None else pd.DataFrame(columns=pd.Index(columns))
    if name != "background":
        validate_data(estimator, header, reset=reset, skip_check_array=True)
        return
    names = [name for name in getattr(header, "columns", []) if isinstance(name, str)]
    known = list(getattr(estimator, "feature_names_in_", names))
    if names and set(known) != set(names):
        only_x, only_background = set(known) - set(names), set(names) - set(known)
        raise ValueError(
            f"X and background have different feature names: only X has {first_few(only_x)}, "
            f"only background has {first_few(only_background)}; give both the same columns."
        )
    if names and known != names:
        reason = "has the features of X in another order; pass background[X.columns]."
        raise InvalidDataError(name, reason)
    if rows.shape[1] != estimator.n_features_in_:
        n, m = rows.shape[1], estimator.n_features_in_
        reason = f"has {n} features, but X has {m}; give both sets the same columns."
        raise InvalidDataError(name, reason)


def open_input(
    estimator: "Estimator", X: Any, name: str, *, missing: bool = True, reset: bool = False
) -> RowReader:
    """Open rows out of core, which are checked when they are read."""
    values = partial(refuse_values, name=name, missing=missing)
    checks = Checks(values, partial(refuse_empty_columns, name=name))
    rows = open_rows(unnamed(X), name, checks)
    check_features(estimator, X, rows, name, reset=reset)
    return rows


def check_latents(T: ArrayLike, n_columns: int) -> Array:
    """Return latents with one column per dimension."""
    latents = widen(as_rows(T, "T"))
    if latents.shape[1] != n_columns or not np.isfinite(latents).all():
        reason = (
            f"has shape {latents.shape}, but needs finite numbers in one column for each of the "
            f"{n_columns} target dimensions; pass what transform returns."
        )
        raise InvalidDataError("T", reason)
    return latents


def refuse_background_as_y(X: Any, y: Any) -> None:
    """Refuse a background that was passed as the second argument, which is `y` and ignored."""
    shape, columns = getattr(y, "shape", ()), getattr(X, "shape", ())[1:]
    if len(shape) == 2 and shape[1:] == columns:
        reason = (
            f"has shape {tuple(shape)} and would be ignored, although it looks like a background; "
            "pass background=..., or leave y out."
        )
        raise InvalidDataError("y", reason)


def by_chunks(method: Method) -> Method:
    """Decorate a method of rows, which is then applied to each chunk of rows out of core.

    The results are in memory for rows in files, and lazy for Dask arrays.
    """

    @wraps(method)
    def mapped(self: "Estimator", X: Any, **options: Any) -> Any:
        if not is_out_of_core(unnamed(X)):
            return method(self, X, **options)
        check_is_fitted(self)
        rows = open_input(self, X, "X")
        if options.get("size_factors") is not None:
            sizes = number_per_row("size_factors", options["size_factors"], rows.shape[0])
            cast("LinearPredictions", self)._fitted().for_new_rows("target", rows.shape[0], sizes)
            options = {**options, "size_factors": sizes}
        return rows.map(partial(_applied, self._without_rows(), method.__name__, options))

    return cast("Method", mapped)


def _applied(
    estimator: "Estimator", name: str, options: dict[str, Any], chunk: Matrix, rows: slice
) -> Any:
    """Apply a method to a chunk, whose rows are at the given places."""
    if options.get("size_factors") is not None:
        options = {**options, "size_factors": options["size_factors"][rows]}
    bare = inspect.unwrap(getattr(type(estimator), name))  # frames, if any, are made at the end
    return bare(estimator, chunk, **options)
