"""The unobserved sites of a density: names, shapes, initial values, and what users see of them."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np

from contrastive_lvm._jax import JaxArray, dist, jax, numpyro
from contrastive_lvm.arrays import Array
from contrastive_lvm.black_box.density import density, sample_loadings
from contrastive_lvm.black_box.start import StartingPoint
from contrastive_lvm.model import Model
from contrastive_lvm.priors.base import LogMoments

Values = TypeVar("Values", Array, JaxArray)


class Site(NamedTuple):
    """An unobserved quantity of a density."""

    shape: tuple[int, ...]
    flat: bool  # of density 1: SVI has a point estimate for it, no posterior
    transform: "dist.transforms.Transform"  # from the real numbers to the support


def latent_sites(model: Model, set_name: str) -> dict[str, int]:
    """Return sites and widths of a set's latents, in the order of its active columns."""
    return {
        f"{block.name} latents of {set_name}": block.n_components
        for block in model.blocks
        if set_name in block.sets and block.n_components
    }


def split_columns(values: Values, widths: Mapping[str, int]) -> dict[str, Values]:
    """Return consecutive parts of the last axis, by name."""
    ends = np.cumsum(list(widths.values())).tolist()
    parts = zip(widths.items(), ends, strict=True)
    return {name: values[..., end - width : end] for (name, width), end in parts}


def turn_columns(
    model: Model, values: Mapping[str, Array], turns: Mapping[str, Array]
) -> dict[str, Array]:
    """Turn the columns of draws, (..., n): loadings, latents, and values of columns alike."""
    turned = dict(values)
    for block in model.blocks:
        name, R = f"{block.name} loadings", turns[block.name]
        for site in (name, *(f"{block.name} latents of {own}" for own in block.sets)):
            if site in values:
                turned[site] = values[site] @ R
        for site in (f"{name} {own}" for own in block.prior._column_sites):
            if site in values:
                turned[site] = (values[site][..., None, :] @ R**2)[..., 0, :]
    return turned


def unobserved_sites(
    model: Model,
    n_features: int,
    n_rows: Sequence[int],
    *,
    augmented: bool,
    collapsed: bool = False,
) -> dict[str, Site]:
    """Find all unobserved sites by tracing the density without computing it."""
    found: dict[str, Site] = {}

    def trace() -> None:
        rows = [np.zeros((n, n_features)) for n in n_rows]
        seeded = numpyro.handlers.seed(density, 0)
        feasible = numpyro.handlers.substitute(
            seeded, substitute_fn=numpyro.infer.init_to_feasible()
        )
        sites = numpyro.handlers.trace(feasible).get_trace(
            model, *rows, augmented=augmented, collapsed=collapsed
        )
        for name, site in sites.items():
            if site["type"] == "sample" and not site["is_observed"]:
                transform = dist.transforms.biject_to(site["fn"].support)
                flat = isinstance(site["fn"], dist.ImproperUniform)
                found[name] = Site(np.shape(site["value"]), flat, transform)

    jax.eval_shape(trace)
    return found


def loadings_at(
    model: Model, n_features: int, values: Mapping[str, JaxArray], *, augmented: bool
) -> dict[str, JaxArray]:
    """Return the loadings of all blocks, (D, n), at values of their sites."""
    known = numpyro.handlers.substitute(sample_loadings, values)
    loadings: dict[str, JaxArray] = known(model, n_features, augmented=augmented)
    return loadings


def initial_values(start: StartingPoint, *, augmented: bool) -> dict[str, Array]:
    """Return values of sites at a start, except those for which a prior gives none."""
    model, values = start.model, start.model.likelihood._site_values(start.nuisance)
    for block, columns in zip(model.blocks, model.columns, strict=True):
        if block.n_components == 0:
            continue
        name, L = f"{block.name} loadings", start.L[:, columns]
        unit = float((start.unit**2).mean())
        scales = block.prior._site_values(L, unit, augmented=augmented)
        values |= {f"{name} {site}": value for site, value in scales.items()}
        values[name] = L
        variance = block.prior._site_variance(scales, len(L)) if scales else None
        if variance is not None and not augmented:
            values[f"{name}{block.prior._loading_site}"] = L / np.sqrt(np.asarray(variance))
    for name, mean, latents in zip(model.sets, start.means, start.latents, strict=True):
        values |= {f"{name} mean": mean, **split_columns(latents, latent_sites(model, name))}
    return {name: np.asarray(value, dtype=np.float64) for name, value in values.items()}


def public_draws(model: Model, n_features: int, values: dict[str, Array]) -> dict[str, Array]:
    """Return draws, (chains, draws, ...), under the names and in the form that users see."""
    left = {name: value for name, value in values.items() if value.size}
    public: dict[str, Array] = {}
    for block in model.blocks:
        prefix = f"{block.name} loadings "
        own = {n.removeprefix(prefix): left.pop(n) for n in list(left) if n.startswith(prefix)}
        own.pop((block.prior._loading_site or "").strip(), None)
        scales = block.prior._public_draws(own)
        public |= {f"{prefix}{site}": value for site, value in scales.items()}
    kept = {"log density", *(f"{block.name} loadings" for block in model.blocks)}
    for name in model.sets:
        kept |= {f"{name} mean", f"{name} rows scale", *latent_sites(model, name)}
    found = {name: left.pop(name) for name in list(left) if name in kept}
    learned = model.likelihood._public_draws(left, n_features)
    if model.likelihood._has_own_noise:
        noise = learned.pop("noise variance")
        learned |= {f"{name} noise variance": noise[:, :, i] for i, name in enumerate(model.sets)}
    return found | learned | public


def prior_states(
    model: Model, n_features: int, log_moments: Callable[[str], LogMoments | None]
) -> dict[str, Any]:
    """Return the state of each block's prior from the log moments of its sites."""
    found = {}
    for block in model.blocks:

        def own(site: str, name: str = block.name) -> LogMoments | None:
            return log_moments(f"{name} loadings {site}")

        found[block.name] = block.prior._state_from(own, (n_features, block.n_components))
    return found
