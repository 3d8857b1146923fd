"""Model files: arrays and settings in one safetensors file; reading one runs no code.

The settings travel as JSON in the file's metadata: the estimator's class and parameters, what it
learned that is no array, its features, and the kind and shape of every array. A checksum covers
all of it (`sealed.py`).
"""

import inspect
import json
import os
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from contrastive_lvm.io.container import (
    VERSION,
    ModelFileError,
    clause,
    clipped,
    read_sealed,
    read_settings,
    write_sealed,
)
from contrastive_lvm.io.schema import FLOATS, Arrays, Facts
from contrastive_lvm.io.settings import decoded, encoded, refuse_odd_truths

FORMAT = "contrastive-lvm"
PREPARED = "preparation."  # before the names of its arrays; others have no such dot
ROWS = ("n_samples_", "n_background_samples_")
# What files can be wrong in, once they are whole: a name, a type, a value, a size.
WRONG = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError)


class Preparation(NamedTuple):
    """What was done to data before a fit: facts for JSON, and arrays."""

    facts: Any
    arrays: dict[str, Any]


class Saveable:
    """`save(path)` for estimators that can name their fitted arrays and facts."""

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
        write_model(self, path)

    def _fitted_arrays(self) -> dict[str, Any]:
        raise TypeError(f"{type(self).__name__} cannot be saved.")

    def _fitted_facts(self) -> dict[str, Any]:
        return {}

    def _restore(self, arrays: Arrays, facts: Facts) -> None:
        raise TypeError(f"{type(self).__name__} cannot be loaded.")

    def _check_settings(self) -> None:
        """Refuse parameters that `fit` would refuse; called after `_restore`."""
        raise TypeError(f"{type(self).__name__} cannot be loaded.")


def write_model(
    estimator: Any, path: str | os.PathLike[str], preparation: Preparation | None = None
) -> None:
    """Write a fitted estimator, and what was done to its data before, if anything."""
    check_is_fitted(estimator)
    names = getattr(estimator, "feature_names_in_", None)
    settings = {
        "estimator": type(estimator).__name__,
        "parameters": {k: encoded(k, v) for k, v in _parameters(estimator).items()},
        "facts": estimator._fitted_facts(),
        "n_features": int(estimator.n_features_in_),
        "rows": {name: getattr(estimator, name) for name in ROWS if hasattr(estimator, name)},
        "feature_names": None if names is None else [str(n) for n in names],
    }
    arrays = {name: _floats(array) for name, array in estimator._fitted_arrays().items()}
    _refuse_unreadable(settings, arrays)
    if preparation is not None:
        settings["preparation"] = preparation.facts
        arrays |= {f"{PREPARED}{n}": _floats(array) for n, array in preparation.arrays.items()}
    settings["arrays"] = _described(arrays)
    write_sealed(Path(path), FORMAT, arrays, settings)


def _floats(array: Any) -> np.ndarray:
    """Single precision stays, all else becomes double."""
    found = np.asarray(array)
    return np.asarray(found, dtype=np.float32 if found.dtype == np.float32 else np.float64)


def _described(arrays: dict[str, Any]) -> dict[str, Any]:
    return {name: [array.dtype.str, list(array.shape)] for name, array in arrays.items()}


def _refuse_unreadable(settings: dict[str, Any], arrays: dict[str, Any]) -> None:
    """What is written can be read: a model that was changed after its fit may make no sense."""
    try:
        travelled = read_settings(json.dumps(settings, allow_nan=False))
        _rebuilt(travelled, dict(arrays), VERSION)
    except WRONG as error:
        raise ValueError(
            f"this {settings['estimator']} cannot be saved: {clause(error)}; fit it again."
        ) from error


def load_model(path: str | os.PathLike[str]) -> Any:
    """Read an estimator that `save` has written.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    ModelFileError
        If the file is not a whole model file of a version this package knows. It is a `ValueError`.

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
    return read_model(path)[0]


def read_model(path: str | os.PathLike[str]) -> tuple[Any, Preparation | None]:
    """The estimator of a model file, and the preparation of its data, which is not checked."""
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"path={str(path)!r} is not a file; give what save() has written.")
    settings, arrays = read_sealed(path, FORMAT, "model file")
    own = {name: arrays.pop(name) for name in list(arrays) if name.startswith(PREPARED)}
    try:
        _check_described(settings, arrays | own)
        prepared = "preparation" in settings
        facts = settings.pop("preparation", None)
        if own and not prepared:
            raise ValueError("it has arrays of a preparation, but no preparation")
        estimator = _rebuilt(settings, arrays, settings.pop("version"))
    except (*WRONG, MemoryError) as error:
        raise ModelFileError(f"{path} is damaged: {clause(error)}; save it again.") from error
    if not prepared:
        return estimator, None
    return estimator, Preparation(facts, {n.removeprefix(PREPARED): a for n, a in own.items()})


def _check_described(settings: dict[str, Any], arrays: dict[str, Any]) -> None:
    del settings["format"]
    if settings["version"] > 1 and settings.pop("arrays") != _described(arrays):
        raise ValueError("its arrays are not those that its settings describe")
    odd = [name for name, array in arrays.items() if array.dtype not in FLOATS]
    if odd:
        raise ValueError(f"{odd[0]} holds numbers of the kind {arrays[odd[0]].dtype}")


def _rebuilt(settings: dict[str, Any], arrays: dict[str, Any], version: int) -> Any:
    """The estimator, everything checked."""
    early: dict[str, Any] = (
        {"rows": {}} if version == 1 else {}
    )  # which files of version 1 did not count
    facts = Facts("settings", early | settings)
    kind = _kind(facts.take("estimator"))
    estimator = kind(**_decoded_parameters(kind, facts.take("parameters"), version))
    estimator.n_features_in_ = facts.whole("n_features", 1)
    if facts.optional("feature_names"):
        names = facts.words("feature_names")
        if len(names) != estimator.n_features_in_:
            raise ValueError(f"it has {len(names)} names for {estimator.n_features_in_} features")
        if len(set(names)) != len(names):
            raise ValueError("it has one name for several features")
        estimator.feature_names_in_ = np.array(names, dtype=object)
    _restore_rows(estimator, facts.take("rows"))
    learned, held = _learned(kind, facts.take("facts"), version), Arrays(arrays)
    estimator._restore(held, learned)
    for part in (facts, learned, held):
        part.finish()
    estimator._check_settings()
    check_random_state(getattr(estimator, "random_state", None))
    return estimator


def _restore_rows(estimator: Any, counted: Any) -> None:
    """Numbers of rows; null where a set was not there."""
    rows = Facts("rows", counted)
    for name in ROWS:
        if name in counted:
            setattr(estimator, name, rows.whole(name, 1) if rows.optional(name) else None)
    rows.finish()


def _kind(name: Any) -> Any:
    kinds = _estimators()
    if not isinstance(name, str) or name not in kinds:
        raise ValueError(f"it holds an unknown estimator {clipped(name)}")
    return kinds[name]


def _decoded_parameters(kind: Any, parameters: Any, version: int) -> dict[str, Any]:
    """All of them, none other; files of version 1 may lack some that came later."""
    known = inspect.signature(kind).parameters
    if not isinstance(parameters, dict) or not set(parameters) <= set(known):
        raise ValueError(f"its parameters are not those of {kind.__name__}")
    lacking = sorted(set(known) - set(parameters))
    if lacking and version > 1:
        raise ValueError(f"its parameters lack {lacking}")
    found = {name: decoded(value, version) for name, value in parameters.items()}
    refuse_odd_truths(found, {name: known[name].annotation for name in found})
    return found


def _learned(kind: Any, facts: Any, version: int) -> Facts:
    """Early files of version 1 lack what was not yet learned."""
    if version == 1 and isinstance(facts, dict) and kind.__name__ == "ContrastiveLVM":
        facts = {"bound_error": 0.0, "divergences": None, **facts}
    if version == 1 and isinstance(facts, dict) and kind.__name__ == "PPCA":
        facts = {"converged": True, **facts}
    return Facts("facts", facts)


def _estimators() -> dict[str, Any]:
    from contrastive_lvm.estimators import (
        contrastive_lvm,
        contrastive_pca,
        contrastive_vae,
        ppca,
        vae,
    )

    kinds = (
        *(contrastive_lvm.ContrastiveLVM, contrastive_pca.ContrastivePCA, ppca.PPCA),
        *(contrastive_vae.ContrastiveVAE, vae.VAE),
    )
    return {kind.__name__: kind for kind in kinds}


def _parameters(estimator: Any) -> dict[str, Any]:
    parameters: dict[str, Any] = estimator.get_params(deep=False)
    return parameters
