"""The model and the engine that the parameters of an estimator stand for."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np

from contrastive_lvm.checks import check_choice, check_integer
from contrastive_lvm.exceptions import InvalidParameterError
from contrastive_lvm.inference import Engine
from contrastive_lvm.likelihoods.base import Likelihood
from contrastive_lvm.likelihoods.bernoulli import Bernoulli
from contrastive_lvm.likelihoods.gaussian import Gaussian
from contrastive_lvm.likelihoods.negative_binomial import NegativeBinomial
from contrastive_lvm.likelihoods.poisson import Poisson
from contrastive_lvm.likelihoods.student_t import StudentT
from contrastive_lvm.model import LoadingBlock, Model
from contrastive_lvm.priors.ard import ARD
from contrastive_lvm.priors.base import AnyPrior, FourMethods, Prior, has_four_methods
from contrastive_lvm.priors.flat import Flat
from contrastive_lvm.priors.group_lasso import GroupLasso
from contrastive_lvm.priors.horseshoe import Horseshoe
from contrastive_lvm.priors.mixture import Mixture
from contrastive_lvm.priors.ridge import Ridge

if TYPE_CHECKING:
    from contrastive_lvm.estimators.contrastive_lvm import ContrastiveLVM

LIKELIHOODS: dict[str, type[Likelihood]] = {
    "gaussian": Gaussian,
    "student_t": StudentT,
    "poisson": Poisson,
    "negative_binomial": NegativeBinomial,
    "bernoulli": Bernoulli,
}
PRIORS: dict[str, type[AnyPrior]] = {
    "flat": Flat,
    "ard": ARD,
    "group_lasso": GroupLasso,
    "horseshoe": Horseshoe,
    "ridge": Ridge,
}
ENGINES = {  # in the order in which "auto" tries them; imported when they are asked for
    "em": "coordinate_ascent.em.EM",
    "vb": "coordinate_ascent.variational_bayes.VariationalBayes",
    "svi": "black_box.svi.svi.SVI",
    "nuts": "black_box.nuts.nuts.NUTS",
}
KNOWN_ENGINES = f"'auto', {', '.join(map(repr, ENGINES))} or an object such as EM()."
MOST_SHARED = 50  # that n_shared="auto" may choose, if the data allows it


class PriorMethods(Protocol):
    """The methods by which users write a prior."""

    @property
    def init(self) -> Callable[..., Any]:
        """The state before anything is known."""

    @property
    def update(self) -> Callable[..., Any]:
        """The state that maximises the bound."""

    @property
    def precision(self) -> Callable[..., Any]:
        """The expected precision of each loading."""

    @property
    def bound(self) -> Callable[..., Any]:
        """The prior's part of the bound."""


LikelihoodLike: TypeAlias = str | Likelihood
PriorLike: TypeAlias = str | AnyPrior | PriorMethods | None
EngineLike: TypeAlias = str | Engine


def likelihood(value: LikelihoodLike) -> Likelihood:
    """Return the likelihood that a string or an object with its methods stands for."""
    if isinstance(value, str) and value in LIKELIHOODS:
        return LIKELIHOODS[value]()
    if not isinstance(value, Likelihood):
        raise _unknown("likelihood", value, LIKELIHOODS)
    return value


def priors(
    given: Mapping[str, PriorLike], noise: Likelihood, inference: EngineLike
) -> list[AnyPrior]:
    """Return the priors that parameters stand for, by the names of these.

    None is `Flat()`; `Ridge` under a likelihood that needs it; and `ARD(drop=False)` for counts
    whose loadings have a posterior.
    """
    default: AnyPrior = Ridge(noise._shrinkage) if noise._shrinkage else Flat()
    found = [prior(name, value, default) for name, value in given.items()]
    if not noise._learns_shrinkage or any(p._why_no_posterior for p in found):
        return found
    if isinstance(inference, engine_class("vb")) or inference in ("auto", "vb"):
        return [prior(name, value, ARD(drop=False)) for name, value in given.items()]
    return found


def prior(name: str, value: PriorLike, default: AnyPrior | None = None) -> AnyPrior:
    """Return the prior that None, a string or an object with the methods of a prior stands for."""
    if value is None:
        return default or Flat()
    if isinstance(value, str) and value in PRIORS:
        return PRIORS[value]()
    if isinstance(value, Prior):
        return value
    if has_four_methods(value) and not isinstance(value, type):
        return FourMethods(value)
    raise _unknown(name, value, PRIORS)


def _unknown(name: str, value: object, words: Mapping[str, type[object]]) -> InvalidParameterError:
    example = next(iter(words.values()))()
    known = f"{', '.join(map(repr, words))} or an object such as {example!r}"
    what = "is unknown" if isinstance(value, str) else f"is of type {type(value).__name__}"
    return InvalidParameterError(name, value, f"{what}; use {known}.")


def engine(value: EngineLike, model: Model) -> Engine:
    """Return the engine asked for; `"auto"` is the first that can fit the model."""
    if isinstance(value, str) and value == "auto":
        reasons = []
        for name in ENGINES:
            candidate = engine_class(name)()
            reason = candidate._unsupported_reason(model)
            if reason is None:
                return candidate
            reasons.append(reason.rstrip("."))
        raise ValueError(f"no engine fits this model: {', and '.join(reasons)}.")
    if isinstance(value, str) and value not in ENGINES:
        raise InvalidParameterError("inference", value, f"is unknown; use {KNOWN_ENGINES}")
    chosen: object = engine_class(value)() if isinstance(value, str) else value
    if not isinstance(chosen, Engine):
        raise InvalidParameterError("inference", value, f"is not an engine; use {KNOWN_ENGINES}")
    reason = chosen._unsupported_reason(model)
    if reason is not None:
        raise ValueError(reason)
    return chosen


def engine_class(name: str) -> type[Engine]:
    """Import an engine by its short name."""
    module, _, attribute = ENGINES[name].rpartition(".")
    found: type[Engine] = getattr(import_module(f"contrastive_lvm.{module}"), attribute)
    return found


def model(
    estimator: "ContrastiveLVM",
    n_rows: float,
    *,
    background: bool = True,
    n_target: int | None = None,
    n_subgroups: int | None = None,
) -> Model:
    """Return the model that an estimator's parameters describe, for data of a given size.

    `n_rows` is the total weight of the rows; `n_target` and `n_subgroups` are the numbers of target
    dimensions and of subgroups where these parameters are `"auto"`.
    """
    if n_target is None or estimator.n_target != "auto":
        n_target = check_integer("n_target", estimator.n_target, 0)
    n_features, names = estimator.n_features_in_, getattr(estimator, "feature_names_in_", None)
    names = None if names is None else list(names)
    known = () if estimator._encoding is None else estimator._encoding.columns
    effects = check_choice("covariate_effects", estimator.covariate_effects, ("shared", "own"))
    own = effects == "own"
    n_rows -= len(known) * (1 + (own and background))
    noise = likelihood(estimator.likelihood)
    given = {"shared_prior": estimator.shared_prior, "target_prior": estimator.target_prior}
    found_priors = priors(given, noise, estimator.inference)
    noise = noise._bind(n_features, names)
    shared, target = (found._bind(n_features, names) for found in found_priors)
    n_background = check_integer("n_background", estimator.n_background, 0)
    n_shared = estimator.n_shared
    automatic = isinstance(n_shared, str) and n_shared == "auto"
    if automatic:
        n_others = n_target + n_background
        n_shared = _most_shared(n_features, n_rows, n_others, isotropic=noise._is_isotropic)
    n_shared = check_integer("n_shared", n_shared, 0)
    if n_background and not background:
        reason = "dimensions are learned from a background; pass background=... or use 0."
        raise InvalidParameterError("n_background", n_background, reason)
    if n_target + n_shared == 0:
        reason = "leaves no latent dimension when none is shared; use at least one of either kind."
        raise InvalidParameterError("n_target", n_target, reason)
    mixture = estimator.latent_prior
    found = contrastive_model(
        n_target,
        n_shared,
        noise,
        shared,
        target,
        latent_prior=None if mixture is None else latent_prior(mixture, n_subgroups),
        n_background=n_background,
        background_prior=shared,
        background=background,
    )
    if known:
        found = replace(found, covariates=known, own_effects=own)
    if not automatic or shared._drops_columns:
        return found
    block, *others = found.blocks
    return replace(found, blocks=(replace(block, automatic=n_shared > 0), *others))


def latent_prior(value: object, n_subgroups: int | None = None) -> Mixture | None:
    """Return the prior of the target latents, with a number of subgroups in place of `"auto"`.

    While that number is not known, latents are standard normal.
    """
    if not isinstance(value, Mixture):
        reason = "is not a prior of latents; use None or an object such as Mixture(2)."
        raise InvalidParameterError("latent_prior", value, reason)
    if value.n_components != "auto":
        return value
    return None if n_subgroups is None else replace(value, n_components=n_subgroups)


def _most_shared(n_features: int, n_rows: float, n_others: int, *, isotropic: bool) -> int:
    """Return the largest number of shared dimensions that `"auto"` may choose.

    The noise needs a dimension, or as many as the D covariances of the features allow where each
    has a noise variance (Ledermann's bound, `K <= D + 1/2 - sqrt(2 D + 1/4)` for all columns),
    beside `n_others` target and background dimensions.
    """
    columns = n_features - 1 if isotropic else n_features + 0.5 - np.sqrt(2 * n_features + 0.25)
    return max(0, int(min(MOST_SHARED, columns - n_others, n_rows - n_others - 3)))


def contrastive_model(
    n_target: int,
    n_shared: int,
    likelihood: Likelihood | None = None,
    shared_prior: AnyPrior | None = None,
    target_prior: AnyPrior | None = None,
    *,
    n_background: int = 0,
    background_prior: AnyPrior | None = None,
    background: bool = True,
    latent_prior: Mixture | None = None,
) -> Model:
    """Return the paper's model: a block that both sets share, and one that only the target has.

    With `n_background` there is also one that only the background has.

    Examples
    --------
    >>> import contrastive_lvm as clvm
    >>> clvm.contrastive_model(n_target=2, n_shared=3).n_columns
    5
    """
    sets = ("target", "background") if background else ("target",)
    shared = LoadingBlock("shared", n_shared, sets, shared_prior or Flat())
    target = LoadingBlock(
        "target", n_target, ("target",), target_prior or Flat(), latent_prior=latent_prior
    )
    blocks: tuple[LoadingBlock, ...] = (shared, target)
    if n_background:
        blocks += (LoadingBlock("background", n_background, sets[1:], background_prior or Flat()),)
    return Model(sets, blocks, likelihood or Gaussian())
