"""Sets for linear models: rows in memory, or rows elsewhere that are read a block at a time."""

import copy
from functools import partial
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted, validate_data

from contrastive_lvm.arrays import Matrix
from contrastive_lvm.estimators.frames import unnamed
from contrastive_lvm.estimators.prediction_model import given_sizes
from contrastive_lvm.estimators.validation import (
    check_feature_numbers,
    check_rows_for_fit,
    check_same_features,
    read_background,
    read_rows,
    refuse_empty_columns,
    refuse_few_rows,
    refuse_values,
    remember_features,
)
from contrastive_lvm.rows.reader import Checks, RowReader, is_out_of_core, open_rows


def target_for_fit(estimator: Any, X: Any, *, missing: bool = True) -> Matrix | RowReader:
    """Rows of the target, whose features are remembered; those elsewhere are checked when read."""
    if is_out_of_core(unnamed(X)):
        rows = _source(unnamed(X), "X", missing=missing)
        remember_features(estimator, X)
        refuse_few_rows(rows, "X")
        return rows
    at_hand = read_rows(estimator, X, reset=True, missing=missing)
    check_rows_for_fit(at_hand, "X")
    return at_hand


def background_for_fit(
    estimator: Any, background: Any, *, missing: bool = True
) -> Matrix | RowReader:
    """Rows of the background, which must have the features of X."""
    if is_out_of_core(unnamed(background)):
        rows = _source(unnamed(background), "background", missing=missing)
        check_same_features(estimator, background)
        check_feature_numbers(estimator, rows)
        refuse_few_rows(rows, "background")
        return rows
    at_hand = read_background(estimator, background, missing=missing)
    check_rows_for_fit(at_hand, "background")
    return at_hand


def _source(X: Any, name: str, *, missing: bool) -> RowReader:
    values = partial(refuse_values, name=name, missing=missing)
    return open_rows(X, name, Checks(values, partial(refuse_empty_columns, name=name)))


def by_blocks(estimator: Any, method: str, X: Any, **options: Any) -> Any:
    """What a method says of rows elsewhere, applied to each block as if that were all.

    In memory for rows in files; lazy for Dask arrays, with chunks of as many rows.
    """
    check_is_fitted(estimator)
    rows = _source(X, "X", missing=True)
    validate_data(estimator, X, reset=False, skip_check_array=True)
    if options.get("size_factors") is not None:
        given_sizes(estimator._likelihood(), options["size_factors"], rows.shape)
        options = {**options, "size_factors": np.asarray(options["size_factors"])}
    return rows.map(partial(_applied, for_travel(estimator), method, options))


def _applied(estimator: Any, name: str, options: dict[str, Any], block: Matrix, rows: slice) -> Any:
    """What a method says of a block, whose rows are at the given places."""
    if options.get("size_factors") is not None:
        options = {**options, "size_factors": options["size_factors"][rows]}
    method = getattr(type(estimator), name)
    bare = getattr(method, "__wrapped__", method)  # a frame, if asked for, is made at the end
    result = bare(estimator, block, **options)
    return tuple(result) if isinstance(result, tuple) else result


def for_travel(estimator: Any) -> Any:
    """The model without what grows with the data it was fitted to, and without names of columns.

    Blocks have no names, and have been compared with the model's already.
    """
    light = copy.copy(estimator)
    if hasattr(light, "posterior_"):
        light.likelihood = light._likelihood()
        light.posterior_ = light.posterior_._replace(weights=(), state=None, draws=None)
    for name in ("feature_names_in_", "state_"):
        if hasattr(light, name):
            delattr(light, name)
    return light
