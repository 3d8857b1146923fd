"""From the words of `__init__` to the objects they stand for."""

from collections.abc import Sequence
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
from contrastive_lvm.likelihoods.negative_binomial import NegativeBinomial
from contrastive_lvm.likelihoods.poisson import Poisson
from contrastive_lvm.likelihoods.student_t import StudentT
from contrastive_lvm.model import Block, Model
from contrastive_lvm.priors.ard import ARD
from contrastive_lvm.priors.base import FourMethods, Prior, has_four_methods
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
CEILING = 50  # shared dimensions that n_shared="auto" starts from, data permitting


def likelihood(value: Any) -> Likelihood:
    """A word or a likelihood; anything with the methods of the role is one."""
    resolved: Likelihood = _resolved("likelihood", value, LIKELIHOODS, Likelihood)
    return resolved


def prior(name: str, value: Any) -> Prior:
    """None, a word or a prior; anything with the methods of the role is one."""
    if value is None:
        return Flat()
    if has_four_methods(value) and not isinstance(value, Prior | type):
        return FourMethods(value)
    resolved: Prior = _resolved(name, value, PRIORS, Prior)
    return resolved


def engine(value: Any, model: Model) -> Engine:
    """A word or an engine; `"auto"` is the first without an objection to the model."""
    if isinstance(value, str) and value == "auto":
        objections = []
        for kind in ENGINES.values():
            candidate: Engine = kind()
            objection = candidate._unsupported_reason(model)
            if objection is None:
                return candidate
            objections.append(objection.rstrip("."))
        reason = f"finds no engine for this model: {', and '.join(objections)}."
        raise InvalidParameterError("inference", value, reason)
    chosen: Engine = _resolved("inference", value, ENGINES, Engine, "'auto', ")
    objection = chosen._unsupported_reason(model)
    if objection is not None:
        raise InvalidParameterError("inference", value, f"does not suit this model: {objection}")
    return chosen


def model(
    estimator: Any, n_features: int, n_rows: int, names: Sequence[str] | None, n_sets: int = 2
) -> Model:
    """The model an estimator's parameters describe, for data of a given size."""
    n_target = check_integer("n_target", estimator.n_target, 0)
    priors = [
        prior(name, getattr(estimator, name))._bind(n_features, names)
        for name in ("shared_prior", "target_prior")
    ]
    n_shared = estimator.n_shared
    if isinstance(n_shared, str) and n_shared == "auto":
        n_shared = max(1, min(CEILING, n_features - 1, n_rows - n_target - 3))
        if estimator.shared_prior is None:
            priors[0] = ARD()
        elif not priors[0]._drops_columns:
            reason = (
                f"needs the prior ARD on the shared loadings, not {priors[0]!r}; leave that prior "
                "out, or choose a number of dimensions."
            )
            raise InvalidParameterError("n_shared", "auto", reason)
    n_shared = check_integer("n_shared", n_shared, 0)
    if n_target + n_shared == 0:
        reason = "leaves no latent dimension when none is shared; use at least one of either kind."
        raise InvalidParameterError("n_target", n_target, reason)
    noise = likelihood(estimator.likelihood)
    noise = noise._bind(n_features, names)
    return contrastive_model(n_target, n_shared, noise, *priors, background=n_sets > 1)


def contrastive_model(
    n_target: int,
    n_shared: int,
    likelihood: Likelihood | None = None,
    shared_prior: Prior | None = None,
    target_prior: Prior | None = None,
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
