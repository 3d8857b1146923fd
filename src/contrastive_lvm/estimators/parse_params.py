"""The model and the engine that the parameters of an estimator stand for."""

from importlib import import_module
from typing import Any

from contrastive_lvm.checks import check_integer
from contrastive_lvm.exceptions import InvalidParameterError
from contrastive_lvm.inference import Engine
from contrastive_lvm.likelihoods.base import Likelihood
from contrastive_lvm.likelihoods.bernoulli import Bernoulli
from contrastive_lvm.likelihoods.gaussian import Gaussian
from contrastive_lvm.likelihoods.negative_binomial import NegativeBinomial
from contrastive_lvm.likelihoods.poisson import Poisson
from contrastive_lvm.likelihoods.student_t import StudentT
from contrastive_lvm.model import Block, Model
from contrastive_lvm.priors.ard import ARD
from contrastive_lvm.priors.base import AnyPrior, FourMethods, Prior, has_four_methods
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
ENGINES = {  # in the order in which "auto" tries them; imported when they are asked for
    "em": "coordinate_ascent.em.EM",
    "vb": "coordinate_ascent.variational_bayes.VariationalBayes",
    "svi": "black_box.svi.svi.SVI",
    "nuts": "black_box.nuts.nuts.NUTS",
}
MOST_SHARED = 50  # that n_shared="auto" starts from, where the data allows so many


def likelihood(value: Any) -> Likelihood:
    """Return the likelihood that a string or an object with its methods stands for."""
    found: Likelihood = _resolved("likelihood", value, LIKELIHOODS, Likelihood)
    return found


def fitted_likelihood(estimator: Any) -> Likelihood:
    """Return the likelihood of an estimator that knows its features, each by its position."""
    found: Likelihood = _resolved("likelihood", estimator.likelihood, LIKELIHOODS, Likelihood)
    return found._bind(estimator.n_features_in_, feature_names(estimator))


def prior(name: str, value: Any) -> AnyPrior:
    """Return the prior that None, a string or an object with the methods of a prior stands for."""
    if value is None:
        return Flat()
    if has_four_methods(value) and not isinstance(value, Prior | type):
        return FourMethods(value)
    found: AnyPrior = _resolved(name, value, PRIORS, Prior)
    return found


def engine(value: Any, model: Model) -> Engine:
    """Return the engine asked for; `"auto"` is the first that can fit the model."""
    if isinstance(value, str) and value == "auto":
        reasons = []
        for name in ENGINES:
            candidate = _named_engine(name)
            reason = candidate._unsupported_reason(model)
            if reason is None:
                return candidate
            reasons.append(reason.rstrip("."))
        raise ValueError(f"no engine fits this model: {', and '.join(reasons)}.")
    chosen: Engine = _named_engine(value) if isinstance(value, str) else value
    if not isinstance(chosen, Engine):
        raise InvalidParameterError("inference", value, f"is not an engine; use {_known_engines()}")
    reason = chosen._unsupported_reason(model)
    if reason is not None:
        raise ValueError(reason)
    return chosen


def _known_engines() -> str:
    return f"'auto', {', '.join(map(repr, ENGINES))} or an object such as EM()."


def _named_engine(name: str) -> Engine:
    if name not in ENGINES:
        raise InvalidParameterError("inference", name, f"is unknown; use {_known_engines()}")
    return engine_class(name)()


def engine_class(name: str) -> type[Engine]:
    """Import an engine by its short name."""
    module, _, attribute = ENGINES[name].rpartition(".")
    found: type[Engine] = getattr(import_module(f"contrastive_lvm.{module}"), attribute)
    return found


def model(estimator: Any, n_rows: int, *, background: bool = True) -> Model:
    """Return the model that an estimator's parameters describe, for data of a given size."""
    n_target = check_integer("n_target", estimator.n_target, 0)
    n_features, names = estimator.n_features_in_, feature_names(estimator)
    shared, target = (
        prior(name, getattr(estimator, name))._bind(n_features, names)
        for name in ("shared_prior", "target_prior")
    )
    n_shared = estimator.n_shared
    if isinstance(n_shared, str) and n_shared == "auto":
        n_shared = max(1, min(MOST_SHARED, n_features - 1, n_rows - n_target - 3))
        if estimator.shared_prior is None:
            shared = ARD()
        elif not shared._drops_columns:
            reason = (
                f"needs the prior ARD on the shared loadings, not {shared!r}; leave that prior "
                "out, or choose a number of dimensions."
            )
            raise InvalidParameterError("n_shared", "auto", reason)
    n_shared = check_integer("n_shared", n_shared, 0)
    if n_target + n_shared == 0:
        reason = "leaves no latent dimension when none is shared; use at least one of either kind."
        raise InvalidParameterError("n_target", n_target, reason)
    noise = fitted_likelihood(estimator)
    return contrastive_model(n_target, n_shared, noise, shared, target, background=background)


def contrastive_model(
    n_target: int,
    n_shared: int,
    likelihood: Likelihood | None = None,
    shared_prior: AnyPrior | None = None,
    target_prior: AnyPrior | None = None,
    *,
    background: bool = True,
) -> Model:
    """Return the paper's model: a block that both sets share, and one that only the target has.

    Examples
    --------
    >>> import contrastive_lvm as clvm
    >>> clvm.contrastive_model(n_target=2, n_shared=3).n_columns
    5
    """
    sets = ("target", "background") if background else ("target",)
    shared = Block("shared", n_shared, sets, shared_prior or Flat())
    target = Block("target", n_target, ("target",), target_prior or Flat())
    return Model(sets, (shared, target), likelihood or Gaussian())


def feature_names(estimator: Any) -> list[str] | None:
    """Return the names of the features that an estimator was fitted to, if they had any."""
    names = getattr(estimator, "feature_names_in_", None)
    return None if names is None else list(names)


def _resolved(name: str, value: Any, words: dict[str, Any], kind: Any) -> Any:
    if isinstance(value, kind) and not isinstance(value, type):
        return value
    example = next(iter(words.values()))()
    known = f"{', '.join(map(repr, words))} or an object such as {example!r}"
    if isinstance(value, str):
        if value not in words:
            raise InvalidParameterError(name, value, f"is unknown; use {known}.")
        return words[value]()
    raise InvalidParameterError(name, value, f"is of type {type(value).__name__}; use {known}.")
