"""How the rows of a fit were read and scaled, so that new rows can be treated alike."""

from collections.abc import Sequence
from pathlib import Path
from types import UnionType
from typing import Any, NamedTuple, get_args, get_origin, get_type_hints

import numpy as np

from contrastive_lvm.io.container import ModelFileError, clause, clipped
from contrastive_lvm.io.tables.choose_rows import Choice
from contrastive_lvm.io.tables.standardize import Scaling, check_method
from contrastive_lvm.io.tables.table import numbered
from contrastive_lvm.io.value_checks import array, check_values


class Origin(NamedTuple):
    """The files of the two sets (None: one file has both), and the choice of their rows."""

    target: Path
    background: Path | None
    choice: Choice


class Preparation(NamedTuple):
    """What new rows need before the model sees them; model files hold it."""

    features: list[str]
    named: bool  # whether the files name their features
    scaling: Scaling
    layer: str | None = None  # of h5ad files
    sizes: str | None = None  # the column of size factors
    origin: Origin | None = None  # where the rows of the fit came from
    replicates: str | None = None  # the column that names the replicate of each row
    covariates: tuple[str, ...] = ()  # columns whose effects the model knows
    categories: tuple[str, ...] = ()  # those of them that are no numbers


def unprepared(estimator: Any) -> Preparation:
    """Return the preparation of a model that was fitted in Python to data as it was."""
    d, names = int(estimator.n_features_in_), getattr(estimator, "feature_names_in_", None)
    features = numbered(d) if names is None else [str(name) for name in names]
    unscaled = Scaling("none", np.zeros(d), np.ones(d))
    found = Preparation(features, names is not None, unscaled)
    encoding = getattr(estimator, "_encoding", None)
    if encoding is None:
        return found
    categories = [n for n, own in zip(encoding.names, encoding.levels, strict=True) if own]
    return found._replace(covariates=encoding.names, categories=tuple(categories))


def check_preparation(section: Any, source: Path) -> Preparation:
    """Return the preparation that a model file holds, or refuse it."""
    try:
        _check_types(section)
        d = len(section.features)
        check_values({"center": array(d), "scale": array(d, values="positive")}, section.scaling)
        check_method(section.scaling.method)
    except (TypeError, ValueError) as error:
        raise ModelFileError(
            f"{source} is damaged: its preparation cannot be used ({clause(error)}); fit it again."
        ) from error
    prepared: Preparation = section
    if prepared.origin is None:
        return prepared
    target, background, choice = prepared.origin
    origin = Origin(Path(target), None if background is None else Path(background), choice)
    return prepared._replace(origin=origin)


def _check_types(section: object) -> None:
    if not isinstance(section, Preparation):
        raise TypeError(f"{clipped(section)} is not a preparation")
    for name, hint in get_type_hints(Preparation).items():
        if not _is_of(getattr(section, name), hint):
            raise TypeError(f"{name}={clipped(getattr(section, name))} has another type")


def _is_of(value: object, hint: Any) -> bool:
    """Return whether a value is of an annotated type; files hold paths as text."""
    kind, options = get_origin(hint), get_args(hint)
    if hasattr(kind, "__value__"):  # NDArray is an alias since NumPy 2.5
        kind = get_origin(kind.__value__)
    if kind is UnionType:
        return value is None or _is_of(value, options[0])
    if kind in (list, tuple, Sequence):
        return isinstance(value, list | tuple) and all(_is_of(v, options[0]) for v in value)
    if hasattr(hint, "_fields"):
        fields = get_type_hints(hint).items()
        return type(value) is hint and all(_is_of(getattr(value, n), own) for n, own in fields)
    return type(value) is (str if hint is Path else kind or hint)
