"""Model files: arrays and settings in one safetensors file; reading one runs no code.

The settings travel as JSON in the file's metadata: the format's name and version, the estimator's
class, its parameters and a checksum of all arrays.
"""

import os
from dataclasses import asdict, is_dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from sklearn.utils.validation import check_is_fitted

from contrastive_lvm.core.inverse_gamma import InverseGamma
from contrastive_lvm.inference.draws import Draws
from contrastive_lvm.inference.em import EM
from contrastive_lvm.inference.nuts import NUTS
from contrastive_lvm.inference.posterior import Posterior
from contrastive_lvm.inference.svi import SVI
from contrastive_lvm.inference.vb import VariationalBayes
from contrastive_lvm.likelihoods.bernoulli import Bernoulli
from contrastive_lvm.likelihoods.gaussian import Gaussian
from contrastive_lvm.likelihoods.mixed import Mixed
from contrastive_lvm.likelihoods.negative_binomial import NegativeBinomial
from contrastive_lvm.likelihoods.poisson import Poisson
from contrastive_lvm.likelihoods.student_t import StudentT
from contrastive_lvm.priors.ard import ARD
from contrastive_lvm.priors.flat import Flat
from contrastive_lvm.priors.group_lasso import GroupLasso
from contrastive_lvm.priors.horseshoe import Horseshoe, HorseshoeState
from contrastive_lvm.sealed import read_sealed, write_sealed

FORMAT = "contrastive-lvm"
PIECES = (
    *(Gaussian, StudentT, Poisson, NegativeBinomial, Bernoulli, Mixed),
    *(Flat, ARD, GroupLasso, Horseshoe),
    *(EM, VariationalBayes, SVI, NUTS),
)
PREPARED = "preparation."  # before the names of its arrays; others have no such dot
ROWS = ("n_samples_", "n_background_samples_")
OBJECTS: dict[str, type] = {kind.__name__: kind for kind in PIECES}


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
        >>> clvm.load_model(path).bound_ == model.bound_
        True
        """
        write_model(self, path)

    def _fitted_arrays(self) -> dict[str, Any]:
        raise TypeError(f"{type(self).__name__} cannot be saved.")

    def _fitted_facts(self) -> dict[str, Any]:
        return {}

    def _restore(self, arrays: dict[str, Any], facts: dict[str, Any]) -> None:
        raise TypeError(f"{type(self).__name__} cannot be loaded.")


def write_model(
    estimator: Any, path: str | os.PathLike[str], preparation: Preparation | None = None
) -> None:
    """Write a fitted estimator, and what was done to its data before, if anything."""
    check_is_fitted(estimator)
    arrays = {
        name: np.asarray(array, dtype=np.float64)
        for name, array in estimator._fitted_arrays().items()
    }
    names = getattr(estimator, "feature_names_in_", None)
    settings = {
        "estimator": type(estimator).__name__,
        "parameters": {k: _encode(k, v) for k, v in _parameters(estimator).items()},
        "facts": estimator._fitted_facts(),
        "n_features": int(estimator.n_features_in_),
        "rows": {name: getattr(estimator, name) for name in ROWS if hasattr(estimator, name)},
        "feature_names": None if names is None else [str(n) for n in names],
    }
    if preparation is not None:
        settings["preparation"] = preparation.facts
        arrays |= {f"{PREPARED}{name}": array for name, array in preparation.arrays.items()}
    write_sealed(Path(path), FORMAT, arrays, settings)


def load_model(path: str | os.PathLike[str]) -> Any:
    """Read an estimator that `save` has written.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    ValueError
        If the file is not a whole model file of a version this package knows.

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
    estimators = _estimators()
    if settings.get("estimator") not in estimators:
        raise ValueError(f"{path} holds an unknown estimator {settings.get('estimator')!r}.")
    try:
        parameters = {k: _decode(v) for k, v in settings["parameters"].items()}
        estimator = estimators[settings["estimator"]](**parameters)
        estimator.n_features_in_ = int(settings["n_features"])
        if settings["feature_names"] is not None:
            estimator.feature_names_in_ = np.array(settings["feature_names"], dtype=object)
        for name, n in settings.get("rows", {}).items():
            setattr(estimator, ROWS[ROWS.index(name)], None if n is None else int(n))
        estimator._restore(arrays, settings["facts"])
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise ValueError(f"{path} is damaged: {error}.") from error
    if "preparation" not in settings:
        return estimator, None
    own = {n.removeprefix(PREPARED): a for n, a in arrays.items() if n.startswith(PREPARED)}
    return estimator, Preparation(settings["preparation"], own)


DRAWN = ("values", "rhat", "ess")
STATES: dict[str, Any] = {"InverseGamma": InverseGamma, "HorseshoeState": HorseshoeState}


def posterior_arrays(posterior: Posterior) -> dict[str, Any]:
    """All arrays of a posterior under flat names."""
    fields = posterior._asdict()
    arrays = {name: value for name, value in fields.items() if isinstance(value, np.ndarray)}
    for i, weights in enumerate(posterior.weights):
        arrays[f"weights.{i}"] = weights
    for i, state in enumerate(posterior.prior_states):
        arrays.update(_state_arrays(f"prior_states.{i}", state))
    if posterior.draws is not None:
        for part in DRAWN:
            named = getattr(posterior.draws, part).items()
            arrays.update({f"draws.{part}.{name}": value for name, value in named})
    return arrays


def posterior_facts(posterior: Posterior) -> dict[str, Any]:
    """Everything else of a posterior, ready for JSON."""
    return {
        "n_sweeps": posterior.n_sweeps,
        "converged": posterior.converged,
        "bound_parts": posterior.bound_parts,
        "df": posterior.df,
        "unit_variance": posterior.unit_variance,
        "bound_error": posterior.bound_error,
        "divergences": None if posterior.draws is None else posterior.draws.divergences,
        "n_weights": len(posterior.weights),
        "states": [_state_kind(state) for state in posterior.prior_states],
    }


def restored_posterior(arrays: dict[str, Any], facts: dict[str, Any]) -> Posterior:
    """The way back."""
    plain = {name: value for name, value in arrays.items() if "." not in name}
    shared, target = (
        _restored_state(f"prior_states.{i}", kind, arrays) for i, kind in enumerate(facts["states"])
    )
    return Posterior(
        **plain,
        n_sweeps=int(facts["n_sweeps"]),
        converged=bool(facts["converged"]),
        bound_parts=facts["bound_parts"],
        prior_states=(shared, target),
        weights=tuple(arrays[f"weights.{i}"] for i in range(int(facts["n_weights"]))),
        df=None if facts["df"] is None else float(facts["df"]),
        unit_variance=float(facts["unit_variance"]),
        bound_error=float(facts.get("bound_error", 0.0)),
        draws=_restored_draws(arrays, facts.get("divergences")),
    )


def _restored_draws(arrays: dict[str, Any], divergences: int | None) -> Draws | None:
    if divergences is None:
        return None
    parts: list[dict[str, Any]] = []
    for part in DRAWN:
        prefix = f"draws.{part}."
        named = {n.removeprefix(prefix): a for n, a in arrays.items() if n.startswith(prefix)}
        parts.append(named)
    return Draws(parts[0], parts[1], parts[2], int(divergences))


def _state_kind(state: Any) -> Any:
    """The classes of a prior's state, nested as the state is."""
    if state is None or isinstance(state, np.ndarray):
        return None if state is None else "array"
    if type(state).__name__ not in STATES:
        raise TypeError(f"a model whose prior keeps a {type(state).__name__} cannot be saved.")
    return [type(state).__name__, {k: _state_kind(v) for k, v in state._asdict().items()}]


def _state_arrays(path: str, state: Any) -> dict[str, Any]:
    if state is None:
        return {}
    if isinstance(state, np.ndarray):
        return {path: state}
    arrays: dict[str, Any] = {}
    for name, value in state._asdict().items():
        arrays.update(_state_arrays(f"{path}.{name}", value))
    return arrays


def _restored_state(path: str, kind: Any, arrays: dict[str, Any]) -> Any:
    if kind is None:
        return None
    if kind == "array":
        array = arrays[path]
        return array.astype(np.intp) if path.endswith(".group") else array
    name, fields = kind
    return STATES[name](**{k: _restored_state(f"{path}.{k}", v, arrays) for k, v in fields.items()})


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


def _encode(name: str, value: Any) -> Any:
    if isinstance(value, SVI):
        if callable(value.learning_rate):
            raise TypeError(
                "a model whose SVI has a function as learning_rate cannot be saved; set "
                "model.inference = 'svi' first, nothing fitted depends on it."
            )
        value = replace(value, start=None)  # where a fit went on from is not a setting
    if is_dataclass(value) and not isinstance(value, type) and type(value).__name__ in OBJECTS:
        return {"object": type(value).__name__, "fields": asdict(value)}
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if name == "random_state" and not isinstance(value, int | None):
        return None  # a generator's state is not a setting; nothing fitted depends on it any more
    return value


def _decode(value: Any) -> Any:
    if isinstance(value, dict):
        return OBJECTS[value["object"]](**value["fields"])
    return tuple(value) if isinstance(value, list) else value  # JSON has no tuples
