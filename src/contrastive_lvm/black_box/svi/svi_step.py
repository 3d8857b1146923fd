"""Compiled gradient steps on the bound."""

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

from contrastive_lvm._jax import load, module
from contrastive_lvm.black_box.density import density
from contrastive_lvm.black_box.sites import global_sites
from contrastive_lvm.black_box.svi.guides import Batch, Family, Scaling, typed_key
from contrastive_lvm.model import Model

KEPT = 16  # programs


class Layout(NamedTuple):
    """All that decides what has to be compiled, beside the shapes of the data."""

    model: Model
    n_features: int
    n_sets: int
    family: str
    rank: int
    augmented: bool
    n_particles: int
    features: Callable[..., Any] | None  # what encoders see of rows


class Program(NamedTuple):
    """What a fit needs of JAX; compiled when first called, and kept for data of the same shapes."""

    family: Family
    optimiser: Any
    steps: Callable[..., Any]  # parameters, optimiser, keys, rates, batches, scaling -> and mean
    looks: Callable[..., Any]  # parameters, keys, batches, scaling -> a bound for each key
    slope: Callable[..., Any]  # the same -> mean gradient of the bound


def program(layout: Layout) -> Program:
    """Functions for a layout; those of unhashable priors are made anew each time."""
    try:
        return _kept(layout)
    except TypeError:
        return _made(layout)


@lru_cache(maxsize=KEPT)
def _kept(layout: Layout) -> Program:
    return _made(layout)


def _made(layout: Layout) -> Program:
    jax, model = module("jax"), layout.model
    sites = global_sites(model, layout.n_features, layout.n_sets, augmented=layout.augmented)
    widths = ((model.n_shared, model.n_target), (model.n_shared,))[: layout.n_sets]
    family = Family(sites, widths, kind=layout.family, rank=layout.rank, features=layout.features)
    optimiser = module("optax").scale_by_adam()
    bound = _bound(layout, family)

    def one_bound(parameters: Any, key: Any, batch: Batch, scaling: Scaling) -> Any:
        return bound(parameters, typed_key(key), batch, scaling)

    def mean_bound(parameters: Any, key: Any, batch: Batch, scaling: Scaling) -> Any:
        keys = jax.random.split(typed_key(key), layout.n_particles)
        return jax.vmap(lambda k: bound(parameters, k, batch, scaling))(keys).mean()

    def slope(parameters: Any, keys: Any, batches: Batch, scaling: Scaling) -> Any:
        each = _over_keys(jax.grad(one_bound))(parameters, keys, batches, scaling)
        return jax.tree.map(lambda g: g.mean(axis=0), each)

    steps = _steps(jax.grad(one_bound if layout.n_particles == 1 else mean_bound), optimiser)
    looks = jax.jit(_over_keys(one_bound))
    return Program(family, optimiser, jax.jit(steps), looks, jax.jit(slope))


def _bound(layout: Layout, family: Family) -> Callable[..., Any]:
    """A draw's `ln p - ln q`."""
    log_density = module("numpyro.infer.util").log_density

    def bound(parameters: Any, key: Any, batch: Batch, scaling: Scaling) -> Any:
        values, log_q = family.draw(parameters, key, batch, scaling)
        facts = {
            "augmented": layout.augmented,
            "log_sizes": batch.log_sizes,
            "repeats": batch.repeats,
        }
        return log_density(density, (layout.model, *batch.rows), facts, values)[0] - log_q

    return bound


def _steps(gradient: Callable[..., Any], optimiser: Any) -> Callable[..., Any]:
    """Several steps of ascent, and the mean of the parameters after each."""
    jax = module("jax")

    def step(carry: Any, key: Any, rate: Any, batch: Batch, scaling: Scaling) -> Any:
        parameters, state, total = carry
        change, state = optimiser.update(gradient(parameters, key, batch, scaling), state)
        parameters = jax.tree.map(lambda p, c: p + rate * c, parameters, change)
        parameters = _kept_above(parameters, scaling.least)
        return parameters, state, jax.tree.map(lambda t, p: t + p, total, parameters)

    def steps(
        parameters: Any, state: Any, keys: Any, rates: Any, batches: Batch, scaling: Scaling
    ) -> Any:
        whole = batches.places[0] is None

        def body(carry: Any, x: Any) -> Any:
            return step(carry, x[0], x[1], batches if whole else x[2], scaling), None

        zero = jax.tree.map(lambda p: 0.0 * p, parameters)
        xs = (keys, rates) if whole else (keys, rates, batches)
        carry, _ = jax.lax.scan(body, (parameters, state, zero), xs)
        return carry[0], carry[1], jax.tree.map(lambda t: t / len(keys), carry[2])

    return steps


def _over_keys(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of one key and batch, for many."""
    jax = module("jax")

    def mapped(parameters: Any, keys: Any, batches: Batch, scaling: Scaling) -> Any:
        if batches.places[0] is None:
            return jax.lax.map(lambda key: function(parameters, key, batches, scaling), keys)
        return jax.lax.map(lambda x: function(parameters, *x, scaling), (keys, batches))

    return mapped


def _kept_above(parameters: Any, least: dict[str, Any]) -> Any:
    """Noise variances above their floor."""
    jnp = load().jnp
    point = parameters["globals"]["point"]
    kept = {n: jnp.maximum(v, least[n]) if n in least else v for n, v in point.items()}
    return {**parameters, "globals": {**parameters["globals"], "point": kept}}
