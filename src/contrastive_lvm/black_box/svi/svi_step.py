"""Compiled gradient steps on the bound."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from contrastive_lvm._jax import load, module
from contrastive_lvm.black_box.density import density
from contrastive_lvm.black_box.program_cache import cached_program
from contrastive_lvm.black_box.svi.guides import (
    Guide,
    GuideParameters,
    GuideScaling,
    SviBatch,
    SviLayout,
    random_key,
)

if TYPE_CHECKING:
    from jax import Array as JaxArray

    from contrastive_lvm._jax import AnyArray

# (parameters, key, batch, scaling) -> a value, or a gradient as parameters
BoundFunction = Callable[..., Any]


class CompiledSvi(NamedTuple):
    """Functions of a fit in JAX, compiled when first called with data of new shapes."""

    guide: Guide
    optimiser: Any  # of optax
    steps: Callable[..., Any]  # parameters, optimiser, keys, rates, batches, scaling -> and mean
    bounds: Callable[..., Any]  # parameters, keys, batches, scaling -> a bound for each key
    slope: Callable[..., Any]  # the same -> mean gradient of the bound


def compiled_svi(layout: SviLayout) -> CompiledSvi:
    """Return the functions for a layout."""
    return cached_program(_compiled, layout)


def _compiled(layout: SviLayout) -> CompiledSvi:
    jax = module("jax")
    guide, optimiser = Guide(layout), module("optax").scale_by_adam()
    bound = _bound(layout, guide)

    def one_bound(
        parameters: GuideParameters, key: "JaxArray", batch: SviBatch, scaling: GuideScaling
    ) -> "JaxArray":
        return bound(parameters, random_key(key), batch, scaling)  # type: ignore[no-any-return]

    def mean_bound(
        parameters: GuideParameters, key: "JaxArray", batch: SviBatch, scaling: GuideScaling
    ) -> "JaxArray":
        keys = jax.random.split(random_key(key), layout.n_particles)
        each = jax.vmap(lambda k: bound(parameters, k, batch, scaling))(keys)
        return each.mean()  # type: ignore[no-any-return]

    def slope(
        parameters: GuideParameters, keys: "JaxArray", batches: SviBatch, scaling: GuideScaling
    ) -> GuideParameters:
        each = _over_keys(jax.grad(one_bound))(parameters, keys, batches, scaling)
        return jax.tree.map(lambda g: g.mean(axis=0), each)  # type: ignore[no-any-return]

    steps = _steps(jax.grad(one_bound if layout.n_particles == 1 else mean_bound), optimiser)
    bounds = jax.jit(_over_keys(one_bound))
    return CompiledSvi(guide, optimiser, jax.jit(steps), bounds, jax.jit(slope))


def _bound(layout: SviLayout, guide: Guide) -> BoundFunction:
    """Return a function that estimates the bound by one draw's `ln p - ln q`."""
    log_density = module("numpyro.infer.util").log_density

    def bound(
        parameters: GuideParameters, key: "JaxArray", batch: SviBatch, scaling: GuideScaling
    ) -> "JaxArray":
        values, log_q = guide.draw(parameters, key, batch, scaling)
        options = {
            "augmented": layout.augmented,
            "log_sizes": batch.log_sizes,
            "repeats": batch.repeats,
        }
        log_p: JaxArray = log_density(density, (layout.model, *batch.rows), options, values)[0]
        return log_p - log_q

    return bound


def _steps(gradient: BoundFunction, optimiser: Any) -> Callable[..., Any]:
    """Return a function for several steps of ascent, with the mean of the parameters after each."""
    jax = module("jax")

    def step(
        carry: Any, key: "JaxArray", rate: "JaxArray", batch: SviBatch, scaling: GuideScaling
    ) -> Any:
        parameters, state, total = carry
        change, state = optimiser.update(gradient(parameters, key, batch, scaling), state)
        parameters = jax.tree.map(lambda p, c: p + rate * c, parameters, change)
        parameters = _above_floor(parameters, scaling.least)
        return parameters, state, jax.tree.map(lambda t, p: t + p, total, parameters)

    def steps(
        parameters: GuideParameters,
        state: Any,
        keys: "JaxArray",
        rates: "JaxArray",
        batches: SviBatch,
        scaling: GuideScaling,
    ) -> Any:
        whole = batches.places[0] is None

        def body(carry: Any, x: Any) -> Any:
            return step(carry, x[0], x[1], batches if whole else x[2], scaling), None

        zero = jax.tree.map(lambda p: 0.0 * p, parameters)
        xs = (keys, rates) if whole else (keys, rates, batches)
        carry, _ = jax.lax.scan(body, (parameters, state, zero), xs)
        return carry[0], carry[1], jax.tree.map(lambda t: t / len(keys), carry[2])

    return steps


def _over_keys(function: BoundFunction) -> BoundFunction:
    """Map a function of one key and batch over many."""
    jax = module("jax")

    def mapped(
        parameters: GuideParameters, keys: "JaxArray", batches: SviBatch, scaling: GuideScaling
    ) -> Any:
        if batches.places[0] is None:
            return jax.lax.map(lambda key: function(parameters, key, batches, scaling), keys)
        return jax.lax.map(lambda x: function(parameters, *x, scaling), (keys, batches))

    return mapped


def _above_floor(parameters: GuideParameters, least: "dict[str, AnyArray]") -> GuideParameters:
    """Keep noise variances above their floor."""
    jnp, points = load().jnp, parameters.globals.points
    kept = {n: jnp.maximum(v, least[n]) if n in least else v for n, v in points.items()}
    return parameters._replace(globals=parameters.globals._replace(points=kept))
