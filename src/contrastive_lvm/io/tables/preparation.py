"""How the rows of a fit were read and scaled, so that new rows can be treated alike."""

from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np

from contrastive_lvm.io.container import ModelFileError, clause, clipped
from contrastive_lvm.io.tables.choose_rows import Choice
from contrastive_lvm.io.tables.layout import Layout
from contrastive_lvm.io.tables.standardize import Scaling, check_method
from contrastive_lvm.io.tables.table import numbered
from contrastive_lvm.io.value_checks import array, check_values, flag

Kind = TypeVar("Kind")


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


def check_preparation(section: object, source: Path) -> Preparation:
    """Return the preparation that a model file holds, or refuse it."""
    try:
        held = _checked(section, Preparation)
        _checked(held.scaling, Scaling)
        d = len(held.features)
        check_values({"named": flag()}, held)
        check_values({"center": array(d), "scale": array(d, values="positive")}, held.scaling)
        check_method(held.scaling.method)
        words = (held.layer, held.sizes, held.replicates)
        _check_text(*held.features, *(word for word in words if word is not None))
        _check_text(*_checked(held.covariates, tuple), *_checked(held.categories, tuple))
        preparation: Preparation = held._replace(
            origin=None if held.origin is None else _origin(held.origin)
        )
    except (TypeError, ValueError, AttributeError) as error:
        raise ModelFileError(
            f"{source} is damaged: its preparation cannot be used ({clause(error)}); fit it again."
        ) from error
    return preparation


def _origin(held: Origin) -> Origin:
    """Return an origin with paths in place of their text, which is what files hold."""
    _checked(held, Origin)
    _checked(held.choice, Choice)
    files = [name for name in held[:2] if name is not None]
    choice = held.choice
    lists = (
        choice.target,
        choice.background,
        choice.where,
        choice.annotations,
        choice.covariates,
    )
    words = (choice.by, choice.layer, choice.sizes, choice.replicates)
    _check_text(*(text for texts in lists for text in texts), *files)
    _check_text(*(word for word in words if word is not None))
    _check_layout(choice.layout)
    background = None if held.background is None else Path(held.background)
    return Origin(Path(held.target), background, held.choice)


def _check_layout(held: Layout) -> None:
    _checked(held, Layout)
    _checked(held.transpose, bool)
    for texts in (held.missing, held.skip, held.drop):
        _checked(texts, tuple)
    _check_text(*held.missing, *held.drop)
    _check_text(*(word for word in (held.decimal, held.sheet, held.row_names) if word is not None))
    for line in held.skip:
        _checked(line, int)


def _check_text(*values: object) -> None:
    for value in values:
        _checked(value, str)


def _checked(value: object, kind: type[Kind]) -> Kind:
    if not isinstance(value, kind):
        raise TypeError(f"{clipped(value)} is not a {kind.__name__}")
    return value
