"""Columns and units of models that `clvm fit` has written, for rows in the units of the data.

Such a model was fitted to columns `(x - center) / scale`. Its `preparation_` says so; methods take
rows in the units of the data and return rows in them. The log density of a row of `x` is that of
the scaled row minus the sum of `log(scale)` over its observed entries.
"""

from copy import copy
from typing import TYPE_CHECKING, Any

import numpy as np

from contrastive_lvm.arrays import Array, Matrix
from contrastive_lvm.linalg.matrices import is_sparse

if TYPE_CHECKING:
    from contrastive_lvm.estimators.base_estimator import Estimator
    from contrastive_lvm.io.tables.preparation import Preparation, Scaling


def scaling_of(estimator: "Estimator") -> "Scaling | None":
    """Return the scaling of a model, or None if it takes rows as they are."""
    held: Preparation | None = vars(estimator).get("preparation_")
    return None if held is None or held.scaling.method == "none" else held.scaling


def with_own_columns(estimator: "Estimator", X: Any) -> Any:
    """Return the columns of a frame that a model uses, if the frame has others too."""
    held: Preparation | None = vars(estimator).get("preparation_")
    columns = getattr(X, "columns", None)
    if held is None or columns is None or not hasattr(estimator, "feature_names_in_"):
        return X
    names = [str(name) for name in columns]
    wanted = held.features != names and set(held.features) <= set(names)
    return X[held.features] if wanted else X


def to_model_units(estimator: "Estimator", rows: Matrix) -> Matrix:
    """Return rows in the units of a model; they are copied if these are others."""
    scaling = scaling_of(estimator)
    if scaling is None:
        return rows
    return scaling.apply(rows if is_sparse(rows) else np.array(rows, dtype=np.float64))


def to_data_units(estimator: "Estimator", found: Any) -> Any:
    """Return rows, or rows and their standard deviations, in the units of the data."""
    scaling = scaling_of(estimator)
    if scaling is None:
        return found
    if isinstance(found, tuple):
        return scaling.undo(found[0]), scaling.undo(found[1], spread=True)
    return scaling.undo(found)


def log_volumes(estimator: "Estimator", rows: Matrix) -> Array:
    """Return the sum of `log(scale)` over the observed entries of each row, (N,)."""
    scaling = scaling_of(estimator)
    if scaling is None:
        return np.zeros(rows.shape[0])
    logs = np.log(scaling.scale)
    if is_sparse(rows):
        return np.full(rows.shape[0], logs.sum())
    return np.asarray(~np.isnan(np.asarray(rows)) @ logs)


def without_preparation(estimator: Any) -> Any:
    """Return a copy of a model that takes rows in its own units."""
    bare = copy(estimator)
    vars(bare).pop("preparation_", None)
    return bare
