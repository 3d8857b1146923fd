"""Checks of the arguments of plots."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd
import scipy.sparse as sp
from sklearn.exceptions import NotFittedError

from contrastive_lvm.arrays import Array, RowLabels, unnamed
from contrastive_lvm.linalg.matrices import is_sparse
from contrastive_lvm.plots.style import PALETTE, colour_of, label
from contrastive_lvm.priors.feature_groups import Groups


class Grouping(NamedTuple):
    """The group of each row or feature."""

    names: list[str]
    codes: npt.NDArray[np.intp]  # (N,) position in names; -1 without a label

    def colour(self, code: int) -> str:
        """Return the colour of a group, or of everything if there are no groups."""
        return colour_of(code) if self.names else PALETTE[0]

    def colours(self) -> npt.NDArray[np.str_]:
        """Return the colour of each row or feature, (N,)."""
        return np.array([self.colour(code) for code in self.codes])

    def legend(self) -> list[tuple[str, str]]:
        """Return the names and colours of the groups that some row or feature has."""
        present = np.unique(self.codes)
        return [(label(self.names[code]), colour_of(code)) for code in present[present >= 0]]


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
        raise ValueError(f"{name} contains NaN or infinity in {bad} row(s); drop those rows first.")
    return points


def read_missing(X: Any, name: str) -> sp.coo_array:
    """Find the missing entries of dense or sparse rows."""
    X = unnamed(X)
    shape = np.shape(X)
    if len(shape) != 2 or 0 in shape:
        raise ValueError(f"{name} has shape {shape}, but needs rows and features; give an array.")
    if not is_sparse(X):
        return sp.coo_array(np.isnan(np.asarray(X, dtype=np.float64)))
    stored = X.tocoo()
    missing = np.isnan(stored.data)
    places = (stored.row[missing], stored.col[missing])
    return sp.coo_array((missing[missing], places), shape=shape)


def row_groups(labels: RowLabels, n_rows: int) -> Grouping:
    """Group rows by their labels, sorted by name; missing labels belong to no group."""
    wanted = f"the latents have {n_rows} rows; give one label per row."
    return _labelled("labels", labels, n_rows, wanted, sort=True)


def feature_groups(groups: Groups, n_features: int, names: list[str]) -> Grouping:
    """Group features, in order of appearance.

    `groups` is None, one label per feature, or a dict from group to its features by name or
    position; features that the dict leaves out belong to no group.
    """
    if isinstance(groups, Mapping):
        return _named_groups(groups, names)
    wanted = (
        f"there are {n_features} features; give one label per feature, or a dict from group to "
        "features."
    )
    return _labelled("groups", groups, n_features, wanted, sort=False)


def _labelled(name: str, labels: RowLabels, n: int, wanted: str, *, sort: bool) -> Grouping:
    if labels is None:
        return Grouping([], np.full(n, -1))
    values = labels if isinstance(labels, pd.Series | pd.Categorical) else np.asarray(labels)
    if values.shape != (n,):
        raise ValueError(f"{name} has shape {values.shape}, but {wanted}")
    codes, found = pd.factorize(values, sort=sort)
    return Grouping([str(label) for label in found], codes)


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


def learned(model: Any, name: str, instead: str) -> Any:
    """Return an attribute or method of a fitted model; `instead` says which models have it."""
    value, fitted = getattr(model, name, None), hasattr(model, "n_features_in_")
    if value is not None and (fitted or not callable(value)):
        return value
    if not hasattr(model, "fit"):
        raise TypeError(f"model={model!r} is not an estimator; pass a fitted {instead}.")
    if not fitted:
        raise NotFittedError(
            f"model={model!r} is not fitted, so there is nothing to draw; call its fit first."
        )
    raise TypeError(f"model={model!r} has no {name}; pass a fitted {instead}.")


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
