"""Groups of features, for priors on the rows of loadings."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

# None, one label per feature, or {group: [features]} with features by name or position
Groups = Mapping[Any, Any] | Sequence[Any] | npt.NDArray[Any] | None


def group_index(groups: Groups, n_features: int, names: Sequence[str] | None = None) -> np.ndarray:
    """Return the group of each feature, numbered from 0.

    `groups` is None (every feature its own group), one label per feature, or a dict from group to
    features, by name or position; features that the dict leaves out are groups of their own.

    >>> group_index({"mag": ["x", "y"]}, 3, ["a", "x", "y"])
    array([0, 1, 1])
    """
    if groups is None:
        return np.arange(n_features)
    if isinstance(groups, Mapping):
        labels = _labels_of(groups, n_features, names)
    else:
        labels = [str(label) for label in np.asarray(groups).ravel()]
        if len(labels) != n_features:
            raise ValueError(
                f"groups has {len(labels)} labels for {n_features} features; give one per feature."
            )
    _, first, inverse = np.unique(labels, return_index=True, return_inverse=True)
    order = np.empty(len(first), dtype=np.intp)
    order[np.argsort(first)] = np.arange(len(first))
    return order[inverse.ravel()]


def bound_groups(
    groups: Groups, n_features: int, names: Sequence[str] | None
) -> tuple[int, ...] | None:
    """Return groups given by name as one number per feature; None stays None."""
    if groups is None:
        return None
    return tuple(int(i) for i in group_index(groups, n_features, names))


def _labels_of(
    groups: Mapping[Any, Any], n_features: int, names: Sequence[str] | None
) -> list[str]:
    labels = [f"feature {i}" for i in range(n_features)]
    position = {name: i for i, name in enumerate(names or [])}
    taken: set[int] = set()
    for group, members in groups.items():
        for member in [members] if isinstance(members, str) else members:
            i = position.get(member, member)
            if not isinstance(i, int | np.integer) or not 0 <= i < n_features:
                raise ValueError(f"groups names the feature {member!r}, which is not in the data.")
            if int(i) in taken:
                raise ValueError(f"groups puts the feature {member!r} into two groups; keep one.")
            taken.add(int(i))
            labels[int(i)] = f"group {group}"
    return labels
