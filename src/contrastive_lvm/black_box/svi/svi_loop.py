"""The loop of stochastic variational inference: steps, estimates of the bound, learning rates."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from contrastive_lvm._jax import (
    AnyArray,
    JaxArray,
    OptimizerState,
    cached_program,
    jax,
    jnp,
    numpyro,
    optax,
    to_numpy,
    tree_map,
    zeros_of,
)
from contrastive_lvm.arrays import Array
from contrastive_lvm.black_box.density import density
from contrastive_lvm.black_box.start import StartingPoint
from contrastive_lvm.black_box.svi.guide import Guide, GuideParameters, GuideScaling, SviLayout
from contrastive_lvm.black_box.svi.svi_rows import SviBatch, SviRows
from contrastive_lvm.model import LoadingBlock

WINDOW = 100  # steps between looks at the bound
PATIENCE = 2  # windows without a gain before the learning rate drops
DROP, N_DROPS = 0.3, 4  # factor of the learning rate, and how often it is applied
N_LOOKS, N_FINAL_LOOKS = 16, 256  # fixed draws that estimate the bound, at each look and at the end
FALL = 1e12  # nats; steps that lose as much are undone
# Parameters, the optimiser's state, and the sum of the parameters after each step.
Ascent = tuple[GuideParameters, OptimizerState, GuideParameters]


class SVIState(NamedTuple):
    """The state of a fit, from which `SVI(start=state)` continues.

    Examples
    --------
    >>> import warnings
    >>> import contrastive_lvm as clvm
    >>> data = clvm.datasets.make_contrastive(40, 40, n_features=5, n_shared=1, random_state=0)
    >>> model = clvm.ContrastiveLVM(1, 1, inference=clvm.SVI(max_iter=100), random_state=0)
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("ignore")  # 100 steps are too few to converge
    ...     model = model.fit(data.target, background=data.background)
    >>> model.posterior_.state.step
    100
    """

    parameters: GuideParameters  # parameters of the posterior
    optimiser: OptimizerState  # state of Adam
    learning_rate: float  # present learning rate
    step: int  # number of steps so far
    trace: Array  # bounds so far
    layout: SviLayout  # the model and its sizes
    units: Mapping[str, AnyArray]  # units of loadings and means
    turns: dict[str, Array]  # by block: (n, n') from the guide's columns to the canonical ones


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
        each: JaxArray = jax.lax.map(
            lambda x: self._bound(parameters, x[0], x[1] or batches, scaling),
            (keys, batches.stacked),
        )
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
            points, gaussians = tree_map(lambda p, c: p + rate * c, parameters, change)
            least = {name: x for name, x in scaling.least.items() if name in points}
            points |= {name: jnp.maximum(points[name], x) for name, x in least.items()}
            moved = GuideParameters(points, gaussians)
            return (moved, optimiser, tree_map(jnp.add, total, moved)), None

        first = (parameters, optimiser, tree_map(lambda p: 0.0 * p, parameters))
        last: Ascent = jax.lax.scan(step, first, (keys, rates, batches.stacked))[0]
        return last


class SviLoop:
    """One fit: `window` until it has `converged` or made its `last_step`; `best` is the result.

    `SVI` documents the settings.
    """

    def __init__(
        self,
        layout: SviLayout,
        rows: SviRows,
        start: StartingPoint,
        rng: np.random.Generator,
        *,
        max_iter: int,
        tol: float,
        learning_rate: float | Callable[[int], float],
        state: SVIState | None = None,
    ) -> None:
        self.layout, self.rows, self.start, self.rng = layout, rows, start, rng
        self.learning_rate, self.tolerance = learning_rate, tol * sum(rows.n_rows)
        self.compiled = cached_program(CompiledSvi, layout, rows.shapes)
        self.guide = self.compiled.guide
        self.parameters, self.scaling = self.guide.begin(start, rows.dtype)
        self.optimiser = zeros_of(self.compiled.optimiser.init, self.parameters)
        self.rate = 1.0 if callable(learning_rate) else float(learning_rate)
        self.step = self.drops = self.idle = 0
        self.trace, self.converged = np.empty(0), False
        if state is not None:
            self._resume(state)
        self.last_step = self.step + int(max_iter)
        if rows.devices is not None:
            self.parameters, self.optimiser, self.scaling = rows.devices.put(
                (self.parameters, self.optimiser, self.scaling)
            )
        self.look_keys, self.look_batch = self._keys(N_LOOKS), rows.next(N_LOOKS)
        self.best, self.best_looks = self.parameters, self._looks(self.parameters)
        self._refuse_infinite(self.best_looks)

    def _resume(self, state: SVIState) -> None:
        own, other = (jax.tree.map(np.shape, p) for p in (self.parameters, state.parameters))
        if own != other:
            raise ValueError(
                "start= is the state of another fit: the shapes of its parameters do not match "
                "this model and data; use a state of the same model, data and settings."
            )
        self.parameters, self.optimiser = state.parameters, state.optimiser
        self.rate, self.step, self.trace = state.learning_rate, state.step, state.trace

    def window(self) -> int:
        """Make some steps, estimate the bound at their mean, and set the rate for the next ones."""
        length = min(WINDOW, self.last_step - self.step)
        most = length if self.rows.whole else self.rows.batches_per_chunk
        parameters, optimiser, totals = self.parameters, self.optimiser, []
        for begin in range(self.step, self.step + length, most):
            n = min(most, self.step + length - begin)
            given = self.learning_rate  # a function of the step decides alone
            rates = [float(given(begin + i)) if callable(given) else self.rate for i in range(n)]
            parameters, optimiser, total = self.compiled.steps(
                parameters,
                optimiser,
                self._keys(n, self.layout.n_particles),
                np.array(rates, dtype=self.rows.dtype),
                self.rows.next(n),
                self.scaling,
            )
            totals.append(to_numpy(total))  # in JAX, sums would be compiled for every shape
        mean = tree_map(lambda *parts: np.asarray(sum(parts) / length), *totals)
        looks = self._looks(mean)  # an interrupt up to here leaves the last window's state
        self.parameters, self.optimiser = parameters, optimiser
        self.step += length
        self._judge(mean, looks)
        return length

    def _keys(self, *shape: int) -> np.ndarray:
        """Return raw random keys."""
        return self.rng.integers(0, 2**32, size=(*shape, 4), dtype=np.uint32)

    def _looks(self, parameters: GuideParameters) -> Array:
        looks = self.compiled.bounds(parameters, self.look_keys, self.look_batch, self.scaling)
        return np.asarray(looks, dtype=np.float64)

    def _refuse_infinite(self, looks: Array) -> None:
        if not np.isfinite(looks).all():
            raise ValueError(
                f"the bound is not finite at learning_rate={self.learning_rate!r}; lower "
                "it, or check the data for values far from all others."
            )

    def _judge(self, mean: GuideParameters, looks: Array) -> None:
        """Keep the best parameters; when the bound no longer rises, lower the rate or stop."""
        gain = looks - self.best_looks
        fell = not (gain > -FALL).all()  # too long a step: go back and be careful
        worth = max(self.tolerance, 0.0 if fell else float(gain.std() / np.sqrt(len(gain))))
        self.idle = 0 if gain.mean() > worth else self.idle + 1
        if gain.mean() > 0:
            self.best, self.best_looks = mean, looks
        self.trace = np.append(self.trace, (self.best_looks if fell else looks).mean())
        if self.idle < PATIENCE and not fell:
            return
        self.idle, self.drops = 0, self.drops + 1
        if self.drops > N_DROPS:
            if fell:
                self._refuse_infinite(looks)
            self.converged = True
        elif not callable(self.learning_rate):
            self.rate *= DROP
            self.parameters = self.best

    def finish(self) -> tuple[float, float]:
        """Set exact zeros; return the bound from all rows, and its Monte-Carlo error."""
        for block in self.layout.model.blocks:
            if f"{block.name} loadings" in self.guide.points:
                self._set_exact_zeros(block)
        n_looks = max(N_FINAL_LOOKS, 1 if self.rows.whole else self.rows.batches_per_epoch)
        found = [
            self.compiled.bounds(self.best, self._keys(N_LOOKS), batch, self.scaling)
            for batch in (self.rows.next(N_LOOKS) for _ in range(-(-n_looks // N_LOOKS)))
        ]
        bounds = np.concatenate(found).astype(np.float64)
        return float(bounds.mean()), float(bounds.std() / np.sqrt(len(bounds)))

    def _set_exact_zeros(self, block: LoadingBlock) -> None:
        """Set loadings that are points to zero where their prior says so."""
        name, dtype = f"{block.name} loadings", self.rows.dtype
        unit = np.asarray(self.scaling.units[name], dtype=np.float64)
        point = np.asarray(self.best.points[name], dtype=np.float64)

        def with_point(value: Array) -> GuideParameters:
            return self.best._replace(points={**self.best.points, name: value.astype(dtype)})

        def slope_at(loadings: Array) -> Array:
            moved = with_point(loadings / unit)
            slopes = [
                self.compiled.slope(moved, self._keys(N_LOOKS), batch, self.scaling).points[name]
                for batch in (self.rows.next(N_LOOKS) for _ in range(N_FINAL_LOOKS // N_LOOKS))
            ]
            return np.asarray(np.mean(slopes, axis=0) / unit, dtype=np.float64)

        zero = block.prior._exact_zeros(point * unit, slope_at) == 0
        if zero.any():
            self.best = with_point(np.where(zero, 0.0, point))
