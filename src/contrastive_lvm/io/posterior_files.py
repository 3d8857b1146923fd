"""Posteriors of linear models as arrays under flat names, for model files."""

from typing import Any

import numpy as np

from contrastive_lvm.draws import Draws
from contrastive_lvm.io.container import clipped
from contrastive_lvm.io.schema import Arrays, Facts, Values
from contrastive_lvm.likelihoods.negative_binomial import NegativeBinomial
from contrastive_lvm.likelihoods.student_t import StudentT
from contrastive_lvm.linalg import packed
from contrastive_lvm.linalg.inverse_gamma import InverseGamma
from contrastive_lvm.model import Model
from contrastive_lvm.posterior import Posterior
from contrastive_lvm.priors.ard import ARD
from contrastive_lvm.priors.horseshoe import Horseshoe, HorseshoeState

DRAWN: dict[str, Values] = {"values": "finite", "rhat": "any", "ess": "any"}
LAW = ["InverseGamma", {"a": "array", "b": "array"}]
SCALES = ["HorseshoeState", {**dict.fromkeys(("rho2", "lam", "tau2", "xi"), LAW), "group": "array"}]


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
    parts = posterior.bound_parts
    return {
        "n_sweeps": int(posterior.n_sweeps),
        "converged": bool(posterior.converged),
        "bound_parts": None if parts is None else {k: float(v) for k, v in parts.items()},
        "df": posterior.df,
        "unit_variance": posterior.unit_variance,
        "bound_error": posterior.bound_error,
        "divergences": None if posterior.draws is None else int(posterior.draws.divergences),
        "n_weights": len(posterior.weights),
        "states": [_state_kind(state) for state in posterior.prior_states],
    }


def restored_posterior(n_features: int, arrays: Arrays, facts: Facts) -> Posterior:
    """The way back."""
    D = n_features
    mean = arrays.take("target_mean", (D,))
    S = arrays.take("shared_loadings", (D, None))
    W = arrays.take("target_loadings", (D, None))
    trace, n_weights = _trace(arrays), facts.whole("n_weights")
    return Posterior(
        shared_loadings=S,
        target_loadings=W,
        noise_variance=arrays.take("noise_variance", (D,), "not negative"),
        target_mean=mean,
        background_mean=arrays.take("background_mean", (D,)),
        bound_trace=trace,
        n_sweeps=facts.whole("n_sweeps"),
        converged=facts.flag("converged"),
        loading_covariance=_covariance(arrays, S.shape[1] + W.shape[1], D),
        bound_parts=_bound_parts(facts, float(trace[-1])),
        prior_states=_states(facts.take("states"), arrays, (S.shape, W.shape)),
        weights=tuple(_weights(arrays, f"weights.{i}", D) for i in range(n_weights)),
        df=facts.number("df", "positive") if facts.optional("df") else None,
        unit_variance=facts.number("unit_variance", "positive"),
        dispersion=_optional(arrays, "dispersion", D),
        bound_error=facts.number("bound_error", "not negative"),
        profile=_optional(arrays, "profile", D),
        draws=_draws(arrays, facts),
    )


def refuse_mismatch(posterior: Posterior, model: Model) -> None:
    """What likelihood and priors learn must be there, or predictions are another model's."""
    likelihood: Any = model.likelihood
    kinds = getattr(likelihood, "kinds", {})
    noisy = likelihood.noisy_columns(len(posterior.noise_variance))
    if (posterior.noise_variance[noisy] <= 0).any():
        raise ValueError("noise_variance holds zero for a feature that has noise")
    if isinstance(likelihood, StudentT) and posterior.df is None:
        raise ValueError("its facts lack the degrees of freedom")
    dispersed = isinstance(likelihood, NegativeBinomial) or "negative_binomial" in kinds
    if dispersed and posterior.dispersion is None:
        raise ValueError("it lacks the array 'dispersion'")
    for prior, state in zip(model.priors, posterior.prior_states, strict=True):
        known = {ARD: InverseGamma, Horseshoe: HorseshoeState}.get(type(prior))
        if state is not None and type(state) is not known:
            raise ValueError(f"a state of its priors is none of {prior!r}")


def _trace(arrays: Arrays) -> Any:
    trace = arrays.take("bound_trace", (None,))
    if not len(trace):
        raise ValueError("bound_trace is empty")
    return trace


def _covariance(arrays: Arrays, K: int, D: int) -> Any:
    if "loading_covariance" not in arrays:
        return None
    covariance = arrays.take("loading_covariance", (K * (K + 1) // 2, D))
    if (covariance[np.diagonal(packed.full_index(K))] < 0).any():
        raise ValueError("loading_covariance holds a negative variance")
    return covariance


def _bound_parts(facts: Facts, bound: float) -> dict[str, float] | None:
    if not facts.optional("bound_parts"):
        return None
    parts = facts.take("bound_parts")
    inner = Facts("parts of the bound", parts)
    found = {name: inner.number(name) for name in parts}
    if abs(sum(found.values()) - bound) > 1e-6 * sum(map(abs, found.values())):
        raise ValueError("the parts of its bound do not sum to it")
    return found


def _weights(arrays: Arrays, name: str, D: int) -> Any:
    weights = arrays.take(name, (None, None), "any", narrow=True)
    if weights.shape[1] not in (1, D) or not (np.isnan(weights) | (weights >= 0)).all():
        raise ValueError(f"{name} are none of rows or entries")
    return weights


def _optional(arrays: Arrays, name: str, D: int) -> Any:
    return arrays.take(name, (D,), "not negative") if name in arrays else None


def _draws(arrays: Arrays, facts: Facts) -> Draws | None:
    if not facts.optional("divergences"):
        return None
    divergences, parts = facts.whole("divergences"), {}
    for part, values in DRAWN.items():
        prefix = f"draws.{part}."
        parts[part] = {
            name.removeprefix(prefix): _drawn(arrays, name, values)
            for name in arrays.starting(prefix)
        }
    shapes = {name: drawn.shape for name, drawn in parts["values"].items()}
    sizes = {shape[:2] for shape in shapes.values()}
    if len(sizes) != 1 or any(
        shapes.get(name, ())[2:] != value.shape
        for part in ("rhat", "ess")
        for name, value in parts[part].items()
    ):
        raise ValueError("its draws do not fit together")
    return Draws(**parts, divergences=divergences)


def _drawn(arrays: Arrays, name: str, values: Values) -> Any:
    return arrays.take(name, (None,) * arrays.dimensions(name), values)


def _state_kind(state: Any) -> Any:
    """The classes of a prior's state, nested as the state is."""
    if state is None:
        return None
    for kind, described in ((InverseGamma, LAW), (HorseshoeState, SCALES)):
        if isinstance(state, kind):
            return described
    raise TypeError(f"a model whose prior keeps a {type(state).__name__} cannot be saved.")


def _state_arrays(path: str, state: Any) -> dict[str, Any]:
    if state is None:
        return {}
    if isinstance(state, np.ndarray):
        return {path: state}
    arrays: dict[str, Any] = {}
    for name, value in state._asdict().items():
        arrays.update(_state_arrays(f"{path}.{name}", value))
    return arrays


def _states(kinds: Any, arrays: Arrays, shapes: Any) -> tuple[Any, Any]:
    if not isinstance(kinds, list) or len(kinds) != 2:
        raise ValueError(f"states={clipped(kinds)} must be those of two priors")
    shared, target = (
        _state(f"prior_states.{i}", kind, arrays, shapes[i]) for i, kind in enumerate(kinds)
    )
    return shared, target


def _state(path: str, kind: Any, arrays: Arrays, shape: tuple[int, int]) -> Any:
    if kind is None:
        return None
    if kind == LAW:
        return _law(path, arrays, shape[1])
    if kind != SCALES:
        raise ValueError(f"a prior has the unknown state {clipped(kind)}")
    rho2 = _law(f"{path}.rho2", arrays, None)
    n_groups = len(rho2.a)
    return HorseshoeState(
        rho2,
        _law(f"{path}.lam", arrays, n_groups),
        _law(f"{path}.tau2", arrays, 1),
        _law(f"{path}.xi", arrays, 1),
        arrays.positions(f"{path}.group", (shape[0],), n_groups),
    )


def _law(path: str, arrays: Arrays, length: int | None) -> InverseGamma:
    a = arrays.take(f"{path}.a", (length,), "positive")
    return InverseGamma(a, arrays.take(f"{path}.b", (len(a),), "positive"))
