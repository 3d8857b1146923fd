"""Rows that users hand in: in memory, or out of core and read a chunk at a time."""

import copy
import inspect
from collections.abc import Callable
from functools import partial, wraps
from typing import Any, TypeVar, cast

import numpy as np
from sklearn.utils.validation import check_array, check_is_fitted, validate_data

from contrastive_lvm.arrays import Matrix
from contrastive_lvm.estimators.frames import NamedRows, first_few, readable, unnamed
from contrastive_lvm.estimators.validation import (
    refuse_empty_columns,
    refuse_values,
)
from contrastive_lvm.exceptions import InvalidDataError
from contrastive_lvm.linalg.matrices import is_sparse
from contrastive_lvm.linalg.sparse_format import as_csr
from contrastive_lvm.rows.reader import Checks, RowReader, Rows, is_out_of_core, open_rows

FLOATS = [np.float64, np.float32]
Method = TypeVar("Method", bound=Callable[..., Any])


def read_rows(
    estimator: Any, X: Any, *, name: str = "X", reset: bool = False, missing: bool = True
) -> Matrix:
    """Read rows into float32, float64 or CSR; remember their features (`reset`) or check them."""
    X = readable(X, name)
    values = unnamed(X)
    rows: Matrix = check_array(
        as_csr(values, name) if is_sparse(values) else values,
        accept_sparse="csr",
        dtype=FLOATS,
        ensure_all_finite=False,
        input_name=name,
    )
    check_features(estimator, X, name, reset=reset)
    refuse_values(rows, name, missing=missing, columns=reset)
    return rows


def rows_for_fit(estimator: Any, X: Any, *, name: str = "X", missing: bool = True) -> Rows:
    """Read rows of a fit; those out of core are checked when they are read."""
    if is_out_of_core(unnamed(X)):
        rows: Rows = open_input(unnamed(X), name, missing=missing)
        check_features(estimator, X, name, reset=True)
    else:
        rows = read_rows(estimator, X, name=name, reset=True, missing=missing)
    if rows.shape[0] < 2:
        reason = f"has {rows.shape[0]} sample (row), but fitting needs at least 2; add rows."
        raise InvalidDataError(name, reason)
    return rows


def check_features(estimator: Any, X: Any, name: str, *, reset: bool = False) -> None:
    """Remember the features of X in a fit, or compare features with those of the fit."""
    if name == "background":
        _compare_with_target(estimator, X)
        return
    names = X.header if isinstance(X, NamedRows) else X
    validate_data(estimator, names, reset=reset, skip_check_array=True)


def _compare_with_target(estimator: Any, background: Any) -> None:
    n_features, header = np.shape(background)[1], getattr(background, "header", background)
    names = [name for name in getattr(header, "columns", []) if isinstance(name, str)]
    known = list(getattr(estimator, "feature_names_in_", names))
    if names and set(known) != set(names):
        only_x, only_background = set(known) - set(names), set(names) - set(known)
        raise ValueError(
            f"X and background have different feature names: only X has {first_few(only_x)}, "
            f"only background has {first_few(only_background)}; give both the same columns."
        )
    if names and known != names:
        raise ValueError(
            "background has the features of X in another order; pass background[X.columns]."
        )
    if n_features != estimator.n_features_in_:
        raise ValueError(
            f"background has {n_features} features, but X has {estimator.n_features_in_}; "
            "give both sets the same columns."
        )


def open_input(X: Any, name: str, *, missing: bool) -> RowReader:
    """Open rows out of core, which are checked when they are read."""
    values = partial(refuse_values, name=name, missing=missing)
    return open_rows(X, name, Checks(values, partial(refuse_empty_columns, name=name)))


def by_chunks(method: Method) -> Method:
    """Decorate a method of rows, which is then applied to each chunk of rows out of core.

    The results are in memory for rows in files, and lazy for Dask arrays.
    """

    @wraps(method)
    def mapped(self: Any, X: Any, **options: Any) -> Any:
        if not is_out_of_core(unnamed(X)):
            return method(self, X, **options)
        check_is_fitted(self)
        rows = open_input(unnamed(X), "X", missing=True)
        check_features(self, X, "X")
        if options.get("size_factors") is not None:
            self._fitted().for_rows("target", rows, options["size_factors"])  # refuses wrong ones
            options = {**options, "size_factors": np.asarray(options["size_factors"])}
        return rows.map(partial(_applied, for_travel(self), method.__name__, options))

    return cast("Method", mapped)


def _applied(estimator: Any, name: str, options: dict[str, Any], chunk: Matrix, rows: slice) -> Any:
    """Apply a method to a chunk, whose rows are at the given places."""
    if options.get("size_factors") is not None:
        options = {**options, "size_factors": options["size_factors"][rows]}
    bare = inspect.unwrap(getattr(type(estimator), name))  # frames, if any, are made at the end
    return bare(estimator, chunk, **options)


def for_travel(estimator: Any) -> Any:
    """Copy an estimator without what grows with its data, and without names of features.

    Chunks have no names, and have been compared with the model's already.
    """
    light = copy.copy(estimator)
    if hasattr(light, "posterior_"):
        light._prediction_model = light._fitted().without_rows()
        light.posterior_ = light._prediction_model.posterior
    for name in ("feature_names_in_", "state_"):
        if hasattr(light, name):
            delattr(light, name)
    return light
