"""Checks of the posterior of a linear model that was read from a file."""

import numpy as np

from contrastive_lvm.draws import Draws, dimensions
from contrastive_lvm.io.value_checks import array, check_values, flag, number, optional, whole
from contrastive_lvm.likelihoods.base import Likelihood
from contrastive_lvm.linalg import packed
from contrastive_lvm.linalg.normal_mixture import NormalMixture
from contrastive_lvm.model import LoadingBlock, Model
from contrastive_lvm.posterior import Posterior
from contrastive_lvm.priors.base import AnyPrior
from contrastive_lvm.priors.mixture import Mixture

TABLE = {
    "lower_bounds": array("sweeps"),
    "n_iter": whole(),
    "converged": flag(),
    "loading_covariance": optional(array("packed", "D")),
    "df": optional(number("positive")),
    "unit_variance": number("positive"),
    "dispersion": optional(array("D", values="not negative")),
    "lower_bound_error": number("not negative"),
    "profile": optional(array("D", values="not negative")),
}


def check_posterior(posterior: object, n_features: int, n_rows: dict[str, int]) -> None:
    """Refuse a posterior whose arrays do not fit together, or not the rows of the sets."""
    if not isinstance(posterior, Posterior):
        raise TypeError("its state is not a posterior")
    loadings, means, sizes = posterior.loadings, posterior.means, {"D": n_features}
    check_values({name: array("D", name) for name in loadings}, loadings, dict(sizes))
    check_values({name: array("D") for name in means}, means, dict(sizes))
    K = sum(L.shape[1] for L in loadings.values())
    check_values(TABLE, posterior, {**sizes, "packed": K * (K + 1) // 2})
    own = (len(means),) if np.ndim(posterior.noise_variance) == 2 else ()
    noise = array(*own, "D", values="not negative")
    check_values({"noise_variance": noise}, posterior, dict(sizes))
    if not len(posterior.lower_bounds):
        raise ValueError("lower_bounds is empty")
    if posterior.loading_covariance is not None:
        variances = posterior.loading_covariance[np.diagonal(packed.full_index(K))]
        if (variances < 0).any():
            raise ValueError("loading_covariance has a negative variance")
    if not set(posterior.rotations) <= set(loadings):
        raise ValueError("it rotates blocks that it does not have")
    _check_information(posterior)
    _check_bound_parts(posterior)
    _check_weights(posterior, n_features, n_rows)
    if posterior.draws is not None:
        _check_draws(posterior.draws)
        known = {f"{name}_component": L.shape[1] for name, L in loadings.items()}
        known |= {f"{name}_row": n for name, n in n_rows.items()}
        _check_axes(posterior.draws, {"feature": n_features, **known})


def _check_information(posterior: Posterior) -> None:
    if posterior.information and set(posterior.information) != set(posterior.loadings):
        raise ValueError("its information belongs to other blocks")
    for name, M in posterior.information.items():
        K = posterior.loadings[name].shape[1]
        check_values({name: array("K", "K")}, {name: M}, {"K": K})
        if not (np.diagonal(M) > 0).all():
            raise ValueError("its information has a diagonal that is not positive")


def _check_weights(posterior: Posterior, n_features: int, n_rows: dict[str, int]) -> None:
    if posterior.weights and [len(weights) for weights in posterior.weights] != [*n_rows.values()]:
        raise ValueError("weights are those of other rows")
    for weights in posterior.weights:
        if weights.shape[1] not in (1, n_features) or not (weights >= 0).all():
            raise ValueError("weights are not those of rows or entries")


def check_posterior_of(model: Model, posterior: Posterior) -> None:
    """Refuse a posterior without the values that the likelihood and the priors learn."""
    blocks, sets = tuple(block.name for block in model.blocks), set(model.sets)
    if tuple(posterior.loadings) != blocks or not set(posterior.means) <= sets:
        raise ValueError("its blocks and sets are not those of the model")
    if model.sets[0] not in posterior.means:
        raise ValueError(f"it lacks the mean of {model.sets[0]!r}")
    shape = (len(next(iter(posterior.means.values()))), len(model.covariates))
    sets_with_effects = tuple(posterior.means) if model.covariates else ()
    if tuple(posterior.effects) != sets_with_effects:
        raise ValueError("its effects are not those of its covariates")
    check_values({name: array(*shape) for name in sets_with_effects}, posterior.effects)
    for name in ("df", "dispersion"):
        if hasattr(model.likelihood, name) and getattr(posterior, name) is None:
            raise ValueError(f"it lacks what {model.likelihood!r} learns, {name!r}")
    _check_noise(model.likelihood, posterior)
    for block in model.blocks:
        _check_block(block, posterior)


def _check_noise(likelihood: Likelihood, posterior: Posterior) -> None:
    if (posterior.noise_variance.ndim == 2) != likelihood._has_own_noise:
        raise ValueError(f"its noise variances are not those of {likelihood!r}")
    zeros = np.zeros((1, posterior.noise_variance.shape[-1]))
    for name in posterior.means:
        with np.errstate(all="ignore"):
            nuisance = posterior.nuisance_of(name)
            density = likelihood._expected(zeros, zeros, zeros, nuisance).value
        if not np.isfinite(density).all():
            raise ValueError(f"its noise is out of the range of {likelihood!r}")


def _check_block(block: LoadingBlock, posterior: Posterior) -> None:
    L, state = posterior.loadings[block.name], posterior.prior_states.get(block.name)
    if L.shape[1] > block.n_components:
        sizes = f"{L.shape[1]} {block.name} dimensions in place of {block.n_components}"
        raise ValueError(f"it has {sizes}")
    if state is not None:
        _check_prior_state(block.prior, state, L)
    mixture, prior = posterior.latent_mixtures.get(block.name), block.latent_prior
    if prior is None and posterior.rotations.get(block.name) == "promax":
        prior = Mixture(1)  # normal latents that are correlated
    if (mixture is None) != (prior is None):
        raise ValueError(f"its {block.name} latents are not those of the model")
    if mixture is not None and prior is not None:
        _check_mixture(prior, mixture, L.shape[1])


def _check_mixture(prior: Mixture, mixture: object, n_dimensions: int) -> None:
    if not isinstance(mixture, NormalMixture):
        raise TypeError("its subgroups are not a mixture")
    sizes = {"C": prior._size, "T": n_dimensions}
    shapes = {
        "weights": array("C", values="not negative"),
        "means": array("C", "T"),
        "covariances": array("C", "T", "T"),
    }
    check_values(shapes, mixture, sizes)
    values = np.linalg.eigvalsh(mixture.covariances)
    if (values <= 0).any() or abs(mixture.weights.sum() - 1.0) > 1e-6 or not mixture.weights.all():
        raise ValueError("its subgroups have values that are out of range")


def _check_prior_state(prior: AnyPrior, state: object, L: np.ndarray) -> None:
    """Compare a state with the first one of the prior, and see whether the prior can use it."""
    if _shapes(state) != _shapes(prior.init(L.shape)):
        raise ValueError(f"the state of a prior does not belong to {prior!r}")
    with np.errstate(all="ignore"):
        precision = np.broadcast_to(prior.precision(state), L.shape)
        usable = np.isfinite(precision).all() and (precision >= 0).all()
        if not usable or not np.isfinite(prior.bound(state, L**2)):
            raise ValueError(f"the state of {prior!r} has values that are out of range")


def _shapes(state: object) -> object:
    """Return the classes, shapes and types of numbers of a nested value."""
    if isinstance(state, tuple):
        return type(state), [_shapes(part) for part in state]
    if isinstance(state, np.ndarray):
        return state.shape, state.dtype
    return type(state)


def _check_bound_parts(posterior: Posterior) -> None:
    parts = posterior.bound_parts
    if parts is None:
        return
    check_values(dict.fromkeys(parts, number()), parts)
    scale = sum(abs(part) for part in parts.values())
    if abs(sum(parts.values()) - posterior.lower_bound) > 1e-6 * scale:
        raise ValueError("the parts of its bound do not sum to it")


def _check_draws(draws: Draws) -> None:
    check_values({"divergences": whole()}, draws)
    values = draws.values
    if len({value.shape[:2] for value in values.values()}) != 1:
        raise ValueError("its draws have different lengths")
    for name, value in values.items():
        check_values({name: array(*value.shape)}, values)
    for diagnostics in (draws.rhat, draws.ess):
        for name in diagnostics:
            check_values({name: array(*values[name].shape[2:], values="any")}, diagnostics)


def _check_axes(draws: Draws, sizes: dict[str, int]) -> None:
    """Compare draws with the features, components and rows that the model has."""
    for name, value in draws.values.items():
        axes, shape = dimensions(name), value.shape[2:]
        wanted = tuple(sizes.get(axis, n) for axis, n in zip(axes, shape, strict=False))
        one_for_all = not shape and name.endswith(("noise variance", "dispersion"))
        if not one_for_all and (len(shape) < len(axes) or shape[: len(axes)] != wanted):
            raise ValueError(f"its draws of {name!r} have shape {shape} in place of {wanted}")
