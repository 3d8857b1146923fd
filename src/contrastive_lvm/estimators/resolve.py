"""From the words of `__init__` to the objects they stand for."""

from typing import Any

from contrastive_lvm.estimators.validation import check_whole
from contrastive_lvm.inference.em import EM
from contrastive_lvm.likelihoods.gaussian import Gaussian
from contrastive_lvm.model import Model
from contrastive_lvm.priors.flat import Flat


def likelihood(value: Any) -> Gaussian:
    """`"gaussian"` or a likelihood."""
    resolved: Gaussian = _resolved("likelihood", value, {"gaussian": Gaussian}, Gaussian)
    return resolved


def prior(name: str, value: Any) -> Flat:
    """None, `"flat"` or a prior."""
    return Flat() if value is None else _resolved(name, value, {"flat": Flat}, Flat)


def engine(value: Any) -> EM:
    """`"auto"`, `"em"` or an engine."""
    resolved: EM = _resolved("inference", value, {"auto": EM, "em": EM}, EM)
    return resolved


def model(estimator: Any) -> Model:
    """The model an estimator's parameters describe."""
    n_target = check_whole("n_target", estimator.n_target, 0)
    n_shared = check_whole("n_shared", estimator.n_shared, 0)
    if n_target + n_shared == 0:
        raise ValueError(
            "n_target=0 and n_shared=0 leave no latent dimension; make one of them positive."
        )
    return Model(
        n_shared,
        n_target,
        likelihood(estimator.likelihood),
        prior("shared_prior", estimator.shared_prior),
        prior("target_prior", estimator.target_prior),
    )


def _resolved(name: str, value: Any, words: dict[str, type], kind: type) -> Any:
    if isinstance(value, kind):
        return value
    known = f"{', '.join(map(repr, words))} or an object such as {kind()!r}"
    if isinstance(value, str):
        if value not in words:
            raise ValueError(f"{name}={value!r} is unknown; use {known}.")
        return words[value]()
    raise TypeError(f"{name}={value!r} is of type {type(value).__name__}; use {known}.")
