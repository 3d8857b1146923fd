"""Compiled gradient steps on the bound."""

from collections.abc import Callable, Hashable, Mapping
from typing import NamedTuple

from contrastive_lvm._jax import (
    AnyArray,
    JaxArray,
    OptimizerState,
    Tree,
    jax,
    jnp,
    numpyro,
    optax,
    tree_map,
)
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

BoundFunction = Callable[[GuideParameters, AnyArray, SviBatch, GuideScaling], JaxArray]
Gradient = Callable[[GuideParameters, AnyArray, SviBatch, GuideScaling], GuideParameters]
Carry = tuple[GuideParameters, OptimizerState, GuideParameters]  # the last: a sum or a mean
StepFunction = Callable[
    [GuideParameters, OptimizerState, AnyArray, AnyArray, SviBatch, GuideScaling], Carry
]


class CompiledSvi(NamedTuple):
    """Functions of a fit in JAX, compiled when first called with data of new shapes."""

    guide: Guide
    optimiser: "optax.GradientTransformation"
    steps: StepFunction  # parameters, optimiser, keys, rates, batches, scaling
    bounds: BoundFunction  # of many keys: a bound for each
    slope: Gradient  # of many keys: the mean gradient of the bound


def compiled_svi(layout: SviLayout, shapes: Hashable) -> CompiledSvi:
    """Return the functions for a layout and data of some shapes."""
    return cached_program(_compiled, layout, shapes)


def _compiled(layout: SviLayout) -> CompiledSvi:
    guide, optimiser = Guide(layout), optax.scale_by_adam()
    bound = _bound(layout, guide)

    def one_bound(
        parameters: GuideParameters, key: AnyArray, batch: SviBatch, scaling: GuideScaling
    ) -> JaxArray:
        return bound(parameters, random_key(key), batch, scaling)

    def mean_bound(
        parameters: GuideParameters, key: AnyArray, batch: SviBatch, scaling: GuideScaling
    ) -> JaxArray:
        keys = jax.random.split(random_key(key), layout.n_particles)
        return jax.vmap(lambda k: bound(parameters, k, batch, scaling))(keys).mean()

    steps = _steps(jax.grad(one_bound if layout.n_particles == 1 else mean_bound), optimiser)
    slopes = _over_keys(jax.grad(one_bound))

    def slope(
        parameters: GuideParameters, keys: AnyArray, batches: SviBatch, scaling: GuideScaling
    ) -> GuideParameters:
        each: GuideParameters = slopes(parameters, keys, batches, scaling)
        return tree_map(lambda g: g.mean(axis=0), each)

    bounds = jax.jit(_over_keys(one_bound))
    return CompiledSvi(guide, optimiser, jax.jit(steps), bounds, jax.jit(slope))


def _bound(layout: SviLayout, guide: Guide) -> BoundFunction:
    """Return a function that estimates the bound by one draw's `ln p - ln q`."""
    log_density = numpyro.infer.util.log_density

    def bound(
        parameters: GuideParameters, key: AnyArray, batch: SviBatch, scaling: GuideScaling
    ) -> JaxArray:
        values, log_q = guide.draw(parameters, key, batch, scaling)
        options = {"log_sizes": batch.log_sizes, "repeats": batch.repeats}
        arguments = (layout.model, *batch.rows), {"augmented": layout.augmented, **options}
        log_p: JaxArray = log_density(density, *arguments, values)[0]
        return log_p - log_q

    return bound


def _steps(gradient: Gradient, optimiser: "optax.GradientTransformation") -> StepFunction:
    """Return a function for several steps of ascent, with the mean of the parameters after each."""

    def steps(
        parameters: GuideParameters,
        state: OptimizerState,
        keys: AnyArray,
        rates: AnyArray,
        batches: SviBatch,
        scaling: GuideScaling,
    ) -> Carry:
        def step(carry: Carry, x: tuple[AnyArray, AnyArray, SviBatch | None]) -> tuple[Carry, None]:
            (parameters, state, total), (key, rate, batch) = carry, x
            slope = gradient(parameters, key, batch or batches, scaling)
            change, state = optimiser.update(slope, state)
            parameters = tree_map(lambda p, c: p + rate * c, parameters, change)
            parameters = _above_floor(parameters, scaling.least)
            return (parameters, state, tree_map(jnp.add, total, parameters)), None

        first = (parameters, state, tree_map(lambda p: 0.0 * p, parameters))
        last, _ = jax.lax.scan(step, first, (keys, rates, batches.stacked))
        return last[0], last[1], tree_map(lambda t: t / len(keys), last[2])

    return steps


def _over_keys(function: Callable[..., Tree]) -> Callable[..., Tree]:
    """Map a function of one key and batch over many."""

    def mapped(
        parameters: GuideParameters, keys: AnyArray, batches: SviBatch, scaling: GuideScaling
    ) -> Tree:
        def one(x: tuple[AnyArray, SviBatch | None]) -> Tree:
            return function(parameters, x[0], x[1] or batches, scaling)

        each: Tree = jax.lax.map(one, (keys, batches.stacked))
        return each

    return mapped


def _above_floor(parameters: GuideParameters, least: Mapping[str, AnyArray]) -> GuideParameters:
    """Keep noise variances above their floor."""
    points = parameters.globals.points
    return parameters.with_points(
        {n: jnp.maximum(points[n], floor) for n, floor in least.items() if n in points}
    )
