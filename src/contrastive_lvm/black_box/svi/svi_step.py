"""Compiled gradient steps on the bound."""

from contrastive_lvm._jax import (
    AnyArray,
    JaxArray,
    OptimizerState,
    jax,
    jnp,
    numpyro,
    optax,
    tree_map,
)
from contrastive_lvm.black_box.density import density
from contrastive_lvm.black_box.svi.guide import Guide, GuideParameters, GuideScaling, SviLayout
from contrastive_lvm.black_box.svi.svi_rows import SviBatch

# Parameters, the optimiser's state, and the sum of the parameters after each step.
Ascent = tuple[GuideParameters, OptimizerState, GuideParameters]


class CompiledSvi:
    """Functions of a fit in JAX, compiled when first called."""

    def __init__(self, layout: SviLayout) -> None:
        self.layout, self.guide, self.optimiser = layout, Guide(layout), optax.scale_by_adam()
        self.steps = jax.jit(self._steps)
        self.bounds = jax.jit(self._bounds)
        self.slope = jax.jit(jax.grad(lambda *given: self._bounds(*given).mean()))

    def _bound(
        self, parameters: GuideParameters, key: AnyArray, batch: SviBatch, scaling: GuideScaling
    ) -> JaxArray:
        """Estimate the bound by one draw's `ln p - ln q`."""
        values, log_q = self.guide.draw(parameters, key, scaling.units, batch)
        arguments = (self.layout.model, *batch.rows)
        options = {"log_sizes": batch.log_sizes, "repeats": batch.repeats}
        log_p: JaxArray = numpyro.infer.util.log_density(
            density, arguments, {"augmented": self.layout.augmented, **options}, values
        )[0]
        return log_p - log_q

    def _bounds(
        self, parameters: GuideParameters, keys: AnyArray, batches: SviBatch, scaling: GuideScaling
    ) -> JaxArray:
        """Estimate the bound for each key and its minibatch."""

        def one(x: tuple[AnyArray, SviBatch | None]) -> JaxArray:
            return self._bound(parameters, x[0], x[1] or batches, scaling)

        each: JaxArray = jax.lax.map(one, (keys, batches.stacked))
        return each

    def _steps(
        self,
        parameters: GuideParameters,
        optimiser: OptimizerState,
        keys: AnyArray,  # (steps, particles, 4)
        rates: AnyArray,
        batches: SviBatch,
        scaling: GuideScaling,
    ) -> Ascent:
        """Take several steps of ascent."""

        def mean_bound(p: GuideParameters, keys: AnyArray, batch: SviBatch) -> JaxArray:
            if len(keys) == 1:
                return self._bound(p, keys[0], batch, scaling)
            return jax.vmap(lambda key: self._bound(p, key, batch, scaling))(keys).mean()

        def step(at: Ascent, x: tuple[AnyArray, AnyArray, SviBatch | None]) -> tuple[Ascent, None]:
            (parameters, optimiser, total), (keys, rate, batch) = at, x
            slope = jax.grad(mean_bound)(parameters, keys, batch or batches)
            change, optimiser = self.optimiser.update(slope, optimiser)
            moved = tree_map(lambda p, c: p + rate * c, parameters, change)
            points = moved.points
            limited = {
                n: jnp.maximum(points[n], x) for n, x in scaling.least.items() if n in points
            }
            moved = moved.with_points(limited)
            return (moved, optimiser, tree_map(jnp.add, total, moved)), None

        first = (parameters, optimiser, tree_map(lambda p: 0.0 * p, parameters))
        last: Ascent = jax.lax.scan(step, first, (keys, rates, batches.stacked))[0]
        return last
