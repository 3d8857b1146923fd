"""The unobserved sites of a density: which there are, and where they begin."""

from typing import Any, NamedTuple

import numpy as np

from contrastive_lvm._jax import load, module
from contrastive_lvm.arrays import Array
from contrastive_lvm.black_box.density import Hidden, density
from contrastive_lvm.black_box.initialization import Start
from contrastive_lvm.likelihoods.base import Nuisance
from contrastive_lvm.likelihoods.gaussian import FLOOR, Gaussian
from contrastive_lvm.likelihoods.mixed import Mixed
from contrastive_lvm.likelihoods.negative_binomial import NegativeBinomial
from contrastive_lvm.likelihoods.student_t import LEAST_DF, MOST_DF, StudentT
from contrastive_lvm.model import Model
from contrastive_lvm.priors.ard import ARD
from contrastive_lvm.priors.feature_groups import group_index
from contrastive_lvm.priors.horseshoe import Horseshoe

LATENTS = (("z target", "t"), ("z background",))  # of each set, in the order of L's columns
SCALES = ("target rows scale", "background rows scale")
LOCAL = frozenset({"z target", "t", "z background", *SCALES})


class Site(NamedTuple):
    """One unobserved quantity."""

    shape: tuple[int, ...]
    flat: bool  # of density 1: a point estimate, no posterior
    transform: Any  # from the real numbers to its support


def global_sites(model: Model, n_features: int, n_sets: int, *, augmented: bool) -> dict[str, Site]:
    """All sites that do not belong to rows, found by tracing the density without computing it."""
    handlers, jax = module("numpyro.handlers"), module("jax")
    biject_to = module("numpyro.distributions.transforms").biject_to
    found: dict[str, Site] = {}

    def trace() -> None:
        row = np.zeros((1, n_features))
        sets = [row] * n_sets
        blind = handlers.seed(_flat_as_zero(density), 0)
        for name, site in (
            handlers.trace(blind).get_trace(model, *sets, augmented=augmented).items()
        ):
            if site["type"] == "sample" and not site["is_observed"] and name not in LOCAL:
                law = site["fn"]
                flat = type(law).__name__ == "ImproperUniform"
                found[name] = Site(np.shape(site["value"]), flat, biject_to(law.support))

    jax.eval_shape(trace)
    return found


def _flat_as_zero(function: Any) -> Any:
    """Flat sites cannot be drawn; their shape is enough here."""
    handlers, jnp = module("numpyro.handlers"), load().jnp

    def value(site: Any) -> Any:
        if site["type"] == "sample" and type(site["fn"]).__name__ == "ImproperUniform":
            return jnp.zeros(site["fn"].event_shape)
        return None

    return handlers.substitute(function, substitute_fn=value)


def loadings_of(
    model: Model, n_features: int, values: dict[str, Any], *, augmented: bool
) -> Hidden:
    """The loadings that values of the global sites stand for."""
    handlers = module("numpyro.handlers")
    empty = np.zeros((0, n_features))
    blind = handlers.seed(_flat_as_zero(handlers.substitute(density, values)), 0)
    hidden: Hidden = handlers.block(blind)(model, empty, empty, augmented=augmented)
    return hidden


def first_values(start: Start, *, augmented: bool) -> dict[str, Array]:
    """Values of the global sites at a start; sites of unknown priors are left out."""
    model, D = start.model, len(start.L)
    values: dict[str, Array] = {}
    for name, prior, columns in zip(("S", "W"), model.priors, model.blocks, strict=True):
        L = start.L[:, columns]
        if L.shape[1] == 0:
            continue
        scales, scale = _scales(name, prior, L, float((start.unit**2).mean()), augmented=augmented)
        values |= scales
        values[name] = L
        if scales and not augmented:
            values[f"{name} standard"] = L / scale
    for name, mean in zip(("target mean", "background mean"), start.means, strict=False):
        values[name] = mean
    for prefix, likelihood, at in _parts(model, D):
        values |= _first_learned(prefix, likelihood, start.nuisance.of(at))
    return {name: np.asarray(value, dtype=np.float64) for name, value in values.items()}


def _first_learned(prefix: str, likelihood: Any, begun: Nuisance) -> dict[str, Array]:
    """Values of what a likelihood learns."""
    values: dict[str, Any] = {}
    if isinstance(likelihood, Gaussian | StudentT):
        log_noise = np.log(begun.noise)
        values["log noise"] = log_noise.mean() if likelihood.isotropic else log_noise
    if isinstance(likelihood, StudentT) and likelihood.learns_df:
        df = begun.df or likelihood.start_df
        values["log df"] = np.log(np.clip(df, 1.1 * LEAST_DF, 0.9 * MOST_DF))
    if isinstance(likelihood, NegativeBinomial):
        log_dispersion = np.log(begun.dispersion)
        shared = likelihood.dispersion == "shared"
        values["log dispersion"] = log_dispersion.mean() if shared else log_dispersion
    return {f"{prefix}{name}": value for name, value in values.items()}


def learned_of(model: Model, n_features: int, values: dict[str, Array]) -> Nuisance:
    """What the likelihood learned, a value a feature, from values of the global sites."""
    noise, dispersion, df = np.zeros(n_features), np.zeros(n_features), None
    for prefix, likelihood, at in _parts(model, n_features):
        if f"{prefix}log noise" in values:
            noise[at] = np.exp(values[f"{prefix}log noise"])
        if f"{prefix}log dispersion" in values:
            dispersion[at] = np.exp(values[f"{prefix}log dispersion"])
        if isinstance(likelihood, StudentT):
            log_df = values.get(f"{prefix}log df")
            df = likelihood.start_df if log_df is None else float(np.exp(log_df))
    return Nuisance(noise, dispersion, df)


def units(start: Start) -> dict[str, Array]:
    """The scale on which each site's real-valued form varies, where it is not 1."""
    means = {"target mean": start.unit, "background mean": start.unit}
    return {"S": start.unit[:, None], "W": start.unit[:, None], **means}


def floors(start: Start) -> dict[str, Array]:
    """The least log noise, as in closed form."""
    least = np.log(FLOOR) + 2.0 * np.log(start.unit)
    found = {}
    for prefix, likelihood, at in _parts(start.model, len(start.L)):
        if isinstance(likelihood, Gaussian | StudentT):
            own = least[at]
            found[f"{prefix}log noise"] = np.asarray(own.mean() if likelihood.isotropic else own)
    return found


def _parts(model: Model, n_features: int) -> list[tuple[str, Any, np.ndarray]]:
    """Prefix of the sites, likelihood and features, of each kind of a mixed likelihood."""
    if isinstance(model.likelihood, Mixed):
        return [(f"{kind} ", part, at) for kind, part, at in model.likelihood.parts]
    return [("", model.likelihood, np.arange(n_features))]


def _scales(
    name: str, prior: Any, L: Array, unit: float, *, augmented: bool
) -> tuple[dict[str, Array], Array]:
    """Scales of a prior that suit its loadings, and the standard deviation they give these."""
    least = 1e-4 * unit
    if isinstance(prior, ARD):
        variance = np.maximum((L**2).mean(axis=0), least)
        return {f"{name} variance": variance}, np.sqrt(variance)
    if not isinstance(prior, Horseshoe):
        return {}, np.ones(1)
    group = group_index(prior.groups, len(L))
    energy = np.bincount(group, weights=(L**2).mean(axis=1)) / np.bincount(group)
    energy = np.maximum(energy, least)
    tau2 = np.median(energy)
    rho2 = energy / tau2
    scales: dict[str, Any]
    if augmented:
        scales = {"rho2": rho2, "lambda": 1.0 + 1.0 / rho2, "tau2": tau2}
        scales["xi"] = 1.0 / prior.scale**2 + 1.0 / tau2
    else:
        scales = {"rho": np.sqrt(rho2), "tau": np.sqrt(tau2)}
    return {f"{name} {k}": v for k, v in scales.items()}, np.sqrt(energy[group])[:, None]
