"""Model files: a fitted estimator in one file of arrays and settings; reading one runs no code.

A file holds the class of the estimator, its parameters, the features, and its fitted state, as
`flatten` writes nested values. A file is accepted only if writing the result again would give the
same file.
"""

import os
from pathlib import Path
from typing import Any, TypeAlias, cast

import numpy as np
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from contrastive_lvm.io.atomic import as_path
from contrastive_lvm.io.container import (
    Arrays,
    JsonObject,
    ModelFileError,
    clause,
    clipped,
    read_container,
    write_container,
)
from contrastive_lvm.io.flatten import class_path, find_class, flatten, unflatten
from contrastive_lvm.io.value_checks import array, check_values, optional, whole

SavedState: TypeAlias = dict[str, Any]  # what a fit has learned, as `unflatten` returns it
FORMAT = "contrastive-lvm"
# What a fit knows of its rows, as far as it knows it.
ROWS = {
    "n_samples_": whole(1),
    "n_background_samples_": optional(whole(1)),
    "normal_components_": array("K", "D"),
}
# Errors of a whole file: a wrong name, type, value or size.
WRONG = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError)


class Saveable:
    """A base class with the method `save`; estimators say what they have learned and check it."""

    n_features_in_: int

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted model to a file that `contrastive_lvm.load_model` reads.

        Examples
        --------
        >>> import tempfile, pathlib
        >>> import contrastive_lvm as clvm
        >>> data = clvm.datasets.make_subgroups(random_state=0)
        >>> model = clvm.ContrastiveLVM().fit(data.target, background=data.background)
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "model.clvm"
        >>> model.save(path)
        >>> clvm.load_model(path).lower_bound_ == model.lower_bound_
        True
        """
        write_model(self, path, vars(self).get("preparation_"))

    def _fitted_state(self) -> SavedState:
        """Return everything that was learned, as values that `flatten` knows."""
        raise TypeError(f"{type(self).__name__} cannot be saved.")

    def _check_state(self, state: SavedState) -> None:
        """Refuse a state that does not fit together, and parameters that `fit` would refuse."""
        raise TypeError(f"{type(self).__name__} cannot be loaded.")

    def _restore(self, state: SavedState) -> None:
        """Publish a state that was checked."""
        raise TypeError(f"{type(self).__name__} cannot be loaded.")


def write_model(estimator: Any, path: str | os.PathLike[str], preparation: object = None) -> None:
    """Write a fitted estimator, and how its data was prepared, if at all."""
    check_is_fitted(estimator)
    contents = _contents(estimator, preparation)
    arrays: Arrays = {}
    settings = flatten(contents, arrays)
    try:
        estimator._check_state(contents["state"])
    except WRONG as error:  # a model may have been changed after its fit
        raise ValueError(
            f"this {type(estimator).__name__} cannot be saved: {clause(error)}; fit it again."
        ) from error
    write_container(as_path(path), FORMAT, arrays, cast("JsonObject", settings))


def load_model(path: str | os.PathLike[str]) -> Any:
    """Read an estimator that `save` or `clvm fit` has written.

    A model written by `clvm fit` has a `preparation_`: it takes rows in the units of the data,
    selects its columns, and scales them itself. Fitted attributes such as `target_components_` are
    in the units of the scaled rows.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    ModelFileError
        If the file is not a complete model file of a version that this package can read, or needs a
        class from a module that is not imported. It is a `ValueError`.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> import contrastive_lvm as clvm
    >>> rows = clvm.datasets.make_subgroups(random_state=0).target
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "model.clvm"
    >>> clvm.PPCA(n_components=2).fit(rows).save(path)
    >>> clvm.load_model(path)
    PPCA()
    """
    from contrastive_lvm.io.tables.preparation import check_preparation

    estimator, section = read_model(path)
    if section is not None:
        estimator.preparation_ = check_preparation(section, Path(path))
    return estimator


def read_model(path: str | os.PathLike[str]) -> tuple[Any, Any]:
    """Return the estimator of a model file and the preparation of its data, which is not checked.

    The preparation is None if the file has none.
    """
    path = as_path(path)
    if not path.is_file():
        raise FileNotFoundError(f"path={path} is not a file; give the path of a saved model.")
    settings, arrays = read_container(path, FORMAT, "model file")
    try:
        if settings.pop("version") < 2:
            _update_first_version(settings)
        contents = unflatten(settings, arrays)
        estimator = _estimator(contents)
        if arrays:
            raise ValueError(f"it has the unknown array {clipped(min(arrays))}")
        if flatten(_contents(estimator, contents["preparation"]), {}) != settings:
            raise ValueError("its settings are not those of the model that they describe")
    except ImportError as error:  # a class of another module
        raise ModelFileError(f"{path} {error}") from error
    except (*WRONG, MemoryError) as error:
        raise ModelFileError(f"{path} is damaged: {clause(error)}; save it again.") from error
    return estimator, contents["preparation"]


def _update_first_version(settings: dict[str, Any]) -> None:
    """Add the field that posteriors have had since version 2; latents had unit variance before."""
    posterior = settings["state"].get("posterior")
    if posterior is not None:
        posterior["fields"]["information"] = {}


def _contents(estimator: Any, preparation: object) -> dict[str, Any]:
    names = getattr(estimator, "feature_names_in_", None)
    return {
        "estimator": class_path(type(estimator)),
        "parameters": estimator.get_params(deep=False),
        "n_features": int(estimator.n_features_in_),
        "feature_names": None if names is None else [str(name) for name in names],
        "rows": {name: getattr(estimator, name) for name in ROWS if hasattr(estimator, name)},
        "state": estimator._fitted_state(),
        "preparation": preparation,
    }


def _estimator(contents: dict[str, Any]) -> Any:
    """Build the estimator, after checks of all parts."""
    path = str(contents["estimator"])
    kind: Any = find_class(path) if path.startswith("contrastive_lvm:") else object
    if not issubclass(kind, Saveable) or kind is Saveable:
        raise ValueError(f"it contains an unknown estimator {clipped(path)}")
    estimator = kind(**contents["parameters"])
    check_values({"n_features": whole(1)}, contents)
    estimator.n_features_in_ = contents["n_features"]
    names, rows = contents["feature_names"], contents["rows"]
    if names is not None:
        if len(names) != estimator.n_features_in_ or len(set(names)) != len(names):
            raise ValueError(f"its {len(names)} names are not those of its features")
        estimator.feature_names_in_ = np.array(names, dtype=object)
    check_values({name: ROWS[name] for name in rows}, rows, {"D": estimator.n_features_in_})
    vars(estimator).update(rows)
    estimator._check_state(contents["state"])
    estimator._restore(contents["state"])
    check_random_state(getattr(estimator, "random_state", None))
    return estimator
