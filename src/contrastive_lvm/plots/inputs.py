"""Check what users pass to the plots."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn.exceptions import NotFittedError

from contrastive_lvm.arrays import Array
from contrastive_lvm.linalg.matrices import is_sparse
from contrastive_lvm.plots.style import PALETTE, colour_of, shortened

KINDS = ("points", "density", "both")


class Grouping(NamedTuple):
    """Which group each row or feature belongs to."""

    names: list[str]
    codes: npt.NDArray[np.intp]  # (N,) position in names; -1 without a label

    def colours(self) -> npt.NDArray[np.str_]:
        """Return the colour of each row or feature, (N,); one for all if there are no groups."""
        if not self.names:
            return np.full(len(self.codes), PALETTE[0])
        return np.array([colour_of(int(code)) for code in self.codes])

    def legend(self, shown: Any = slice(None)) -> list[tuple[str, str]]:
        """Return the names and colours of the groups that some rows or features have."""
        present = np.unique(self.codes[shown])
        return [(shortened(self.names[code]), colour_of(code)) for code in present[present >= 0]]


class MissingEntries(NamedTuple):
    """Where entries of a set are missing."""

    rows: np.ndarray
    columns: np.ndarray
    shape: tuple[int, int]

    @property
    def share(self) -> float:
        """The share of all entries that is missing."""
        return len(self.rows) / max(1, self.shape[0] * self.shape[1])

    def observed(self) -> Array:
        """Count the observed entries of each row, (N,)."""
        missing = np.bincount(self.rows, minlength=self.shape[0])
        return np.asarray(self.shape[1] - missing, dtype=np.float64)


def read_points(latents: Any, name: str) -> Array:
    """Return latents as a finite array with at least one row and one column."""
    points = np.asarray(latents, dtype=np.float64)
    if points.ndim != 2 or 0 in points.shape:
        raise ValueError(
            f"{name} has shape {points.shape}, but needs rows and at least one column; "
            "pass what transform returns."
        )
    bad = int((~np.isfinite(points)).any(axis=1).sum())
    if bad:
        raise ValueError(f"{name} holds NaN or infinity in {bad} row(s); drop those rows first.")
    return points


def read_missing(X: Any, name: str) -> MissingEntries:
    """Find the missing entries of dense or sparse rows."""
    values: Any = X.tocoo() if is_sparse(X) else np.asarray(X, dtype=np.float64)
    shape = tuple(int(size) for size in values.shape)
    if len(shape) != 2 or 0 in shape:
        raise ValueError(f"{name} has shape {shape}, but needs rows and features; give an array.")
    if is_sparse(X):
        missing = np.isnan(values.data)
        return MissingEntries(values.row[missing], values.col[missing], (shape[0], shape[1]))
    rows, columns = np.nonzero(np.isnan(values))
    return MissingEntries(rows, columns, (shape[0], shape[1]))


def row_groups(labels: Any, n_rows: int) -> Grouping:
    """Group rows by their labels, sorted by name; missing labels belong to no group."""
    if labels is None:
        return Grouping([], np.full(n_rows, -1))
    values = labels if isinstance(labels, pd.Series | pd.Categorical) else np.asarray(labels)
    if values.ndim != 1 or len(values) != n_rows:
        raise ValueError(
            f"labels has shape {values.shape}, but the latents have {n_rows} rows; "
            "give one label per row."
        )
    codes, names = pd.factorize(values, sort=True)
    return Grouping([str(name) for name in names], codes)


def feature_groups(groups: Any, n_features: int, names: list[str]) -> Grouping:
    """Group features, in order of appearance.

    `groups` is None, one label per feature, or a dict from group to its features by name or
    position; features that the dict leaves out belong to no group.
    """
    if groups is None:
        return Grouping([], np.full(n_features, -1))
    if isinstance(groups, Mapping):
        return _named_groups(groups, names)
    values = groups if isinstance(groups, pd.Series | pd.Categorical) else np.asarray(groups)
    if values.ndim != 1 or len(values) != n_features:
        raise ValueError(
            f"groups has shape {values.shape}, but there are {n_features} features; "
            "give one label per feature, or a dict from group to features."
        )
    codes, found = pd.factorize(values)
    return Grouping([str(name) for name in found], codes)


def _named_groups(groups: Mapping[Any, Any], names: list[str]) -> Grouping:
    codes = np.full(len(names), -1)
    position = {name: i for i, name in enumerate(names)}
    for code, (group, members) in enumerate(groups.items()):
        for member in [members] if isinstance(members, str) else members:
            i = position.get(member, member)
            if not isinstance(i, int | np.integer) or not 0 <= i < len(names):
                raise ValueError(
                    f"groups[{group!r}] names the feature {member!r}, which the model does not "
                    "have; name features as the data does, or by position."
                )
            codes[i] = code
    return Grouping([str(group) for group in groups], codes)


def learned(model: Any, attribute: str, instead: str) -> Any:
    """Return an attribute of a fitted model; `instead` says which models have it."""
    value = getattr(model, attribute, None)
    if value is not None:
        return value
    if not hasattr(model, "fit"):
        raise TypeError(f"model={model!r} is not an estimator; pass a fitted {instead}.")
    if not hasattr(model, "n_features_in_"):
        raise NotFittedError(
            f"model={model!r} is not fitted, so there is nothing to draw; call its fit first."
        )
    raise TypeError(f"model={model!r} has no {attribute}; pass a fitted {instead}.")


def able(model: Any, method: str, instead: str) -> Any:
    """Return a method of a fitted model; `instead` says which models have it."""
    if not hasattr(model, method) and hasattr(model, "n_features_in_"):
        raise TypeError(f"model={model!r} has no method {method}; pass a fitted {instead}.")
    learned(model, "n_features_in_", instead)
    return getattr(model, method)


def feature_names(model: Any, n_features: int) -> list[str]:
    """Return the names of the features of a fitted model, or their positions."""
    names = getattr(model, "feature_names_in_", None)
    return [f"feature {i}" for i in range(n_features)] if names is None else [str(n) for n in names]


def named_models(models: Any) -> dict[str, Any]:
    """Return models by their titles; a single model has no title."""
    if not isinstance(models, Mapping):
        return {"": models}
    if not models:
        raise ValueError("models={} is empty; give a fitted model, or several with their names.")
    return {str(name): model for name, model in models.items()}
