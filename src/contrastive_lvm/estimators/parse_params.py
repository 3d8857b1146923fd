"""The model and the engine that the parameters of an estimator stand for."""

from dataclasses import replace
from typing import Any

from contrastive_lvm.black_box.nuts.nuts import NUTS
from contrastive_lvm.black_box.svi.svi import SVI
from contrastive_lvm.checks import check_integer
from contrastive_lvm.coordinate_ascent.em import EM
from contrastive_lvm.coordinate_ascent.engine import CoordinateAscent
from contrastive_lvm.coordinate_ascent.variational_bayes import VariationalBayes
from contrastive_lvm.exceptions import InvalidParameterError
from contrastive_lvm.likelihoods.base import Likelihood
from contrastive_lvm.likelihoods.bernoulli import Bernoulli
from contrastive_lvm.likelihoods.gaussian import Gaussian
from contrastive_lvm.likelihoods.mixed import Mixed
from contrastive_lvm.likelihoods.negative_binomial import NegativeBinomial
from contrastive_lvm.likelihoods.poisson import Poisson
from contrastive_lvm.likelihoods.student_t import StudentT
from contrastive_lvm.model import Model
from contrastive_lvm.priors.ard import ARD
from contrastive_lvm.priors.base import Prior
from contrastive_lvm.priors.feature_groups import group_index
from contrastive_lvm.priors.flat import Flat
from contrastive_lvm.priors.group_lasso import GroupLasso
from contrastive_lvm.priors.horseshoe import Horseshoe

LIKELIHOODS = {
    "gaussian": Gaussian,
    "student_t": StudentT,
    "poisson": Poisson,
    "negative_binomial": NegativeBinomial,
    "bernoulli": Bernoulli,
}
PRIORS = {"flat": Flat, "ard": ARD, "group_lasso": GroupLasso, "horseshoe": Horseshoe}
ENGINES = {"em": EM, "vb": VariationalBayes, "svi": SVI, "nuts": NUTS}
Engine = CoordinateAscent | SVI | NUTS
MOST_SHARED = 50  # that n_shared="auto" starts from, where the data allows so many


def likelihood(value: Any) -> Likelihood:
    """Return the likelihood that a string or an object with its methods stands for."""
    found: Likelihood = _resolved("likelihood", value, LIKELIHOODS, Likelihood)
    return found


def fitted_likelihood(estimator: Any) -> Likelihood:
    """Return the likelihood of an estimator that knows its features, each by its position."""
    found: Likelihood = _resolved("likelihood", estimator.likelihood, LIKELIHOODS, Likelihood)
    if isinstance(found, Mixed):
        return found.bound_to(estimator.n_features_in_, feature_names(estimator))
    return found


def prior(name: str, value: Any) -> Prior | GroupLasso:
    """Return the prior that None, a string or an object with the methods of a prior stands for."""
    if value is None:
        return Flat()
    found: Prior | GroupLasso = _resolved(name, value, PRIORS, Prior | GroupLasso)
    return found


def engine(value: Any, model: Model) -> Engine:
    """Return the engine asked for; `"auto"` is the first that can fit the model."""
    if isinstance(value, str) and value == "auto":
        objections = []
        for kind in ENGINES.values():
            candidate: Engine = kind()
            objection = candidate.objection(model)
            if objection is None:
                return candidate
            objections.append(objection.rstrip("."))
        reason = f"finds no engine for this model: {', and '.join(objections)}."
        raise InvalidParameterError("inference", value, reason)
    chosen: Engine = _resolved("inference", value, ENGINES, Engine, "'auto', ")
    objection = chosen.objection(model)
    if objection is not None:
        raise InvalidParameterError("inference", value, f"does not suit this model: {objection}")
    return chosen


def model(estimator: Any, n_rows: int) -> Model:
    """Return the model that an estimator's parameters describe, for data of a given size."""
    n_target, n_features = (
        check_integer("n_target", estimator.n_target, 0),
        estimator.n_features_in_,
    )
    shared, target = (
        _with_group_numbers(prior(name, getattr(estimator, name)), estimator)
        for name in ("shared_prior", "target_prior")
    )
    n_shared = estimator.n_shared
    if isinstance(n_shared, str) and n_shared == "auto":
        n_shared = max(1, min(MOST_SHARED, n_features - 1, n_rows - n_target - 3))
        if estimator.shared_prior is None:
            shared = ARD()
        elif not isinstance(shared, ARD):
            reason = (
                f"needs the prior ARD on the shared loadings, not {shared!r}; leave that prior "
                "out, or choose a number of dimensions."
            )
            raise InvalidParameterError("n_shared", "auto", reason)
            raise InvalidParameterError("n_shared", "auto", reason)
    n_shared = check_integer("n_shared", n_shared, 0)
    if n_target + n_shared == 0:
        reason = "leaves no latent dimension when none is shared; use at least one of either kind."
        raise InvalidParameterError("n_target", n_target, reason)
    return Model(n_shared, n_target, fitted_likelihood(estimator), shared, target)


def feature_names(estimator: Any) -> list[str] | None:
    """Return the names of the features that an estimator was fitted to, if they had any."""
    names = getattr(estimator, "feature_names_in_", None)
    return None if names is None else list(names)


def _with_group_numbers(prior: Prior | GroupLasso, estimator: Any) -> Prior | GroupLasso:
    """Replace groups that are given by name by one number per feature."""
    if isinstance(prior, GroupLasso | Horseshoe) and prior.groups is not None:
        index = group_index(prior.groups, estimator.n_features_in_, feature_names(estimator))
        return replace(prior, groups=tuple(int(i) for i in index))
    return prior


def _resolved(name: str, value: Any, words: dict[str, Any], kind: Any, also: str = "") -> Any:
    if isinstance(value, kind) and not isinstance(value, type):
        return value
    example = next(iter(words.values()))()
    known = f"{also}{', '.join(map(repr, words))} or an object such as {example!r}"
    if isinstance(value, str):
        if value not in words:
            raise InvalidParameterError(name, value, f"is unknown; use {known}.")
        return words[value]()
    raise InvalidParameterError(name, value, f"is of type {type(value).__name__}; use {known}.")
