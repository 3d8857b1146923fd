"""The loop of stochastic variational inference: steps, looks at the bound, the learning rate."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from contrastive_lvm._jax import AnyArray, OptimizerState, jax, to_numpy, tree_map, zeros_of
from contrastive_lvm.arrays import Array
from contrastive_lvm.black_box.devices import placement
from contrastive_lvm.black_box.initialization import StartingPoint
from contrastive_lvm.black_box.svi.guide_initialization import guide_scaling, initial_parameters
from contrastive_lvm.black_box.svi.guides import GuideParameters, SviBatch, SviLayout
from contrastive_lvm.black_box.svi.row_gaussians import RowGaussians
from contrastive_lvm.black_box.svi.svi_batches import ShuffledBatches, SviRows
from contrastive_lvm.black_box.svi.svi_step import compiled_svi

MOST_JOINT = 2000  # loadings and scales in a full-rank covariance, 32 MB


class SVIState(NamedTuple):
    """Where a fit stands; `SVI(start=state)` goes on from it."""

    parameters: GuideParameters
    optimiser: OptimizerState
    learning_rate: float
    step: int
    trace: Array
    layout: SviLayout  # with the sizes in use
    units: Mapping[str, AnyArray]  # of loadings and means
    turns: dict[str, Array]  # by block: (n, n') from the guide's columns to the canonical ones
    latents: tuple[RowGaussians, ...]  # of each set's rows, in the guide's columns


class StepSchedule(NamedTuple):
    """How far and how fast a fit goes; `SVI` documents the settings."""

    max_iter: int
    tol: float  # nats per row
    learning_rate: float | Callable[[int], float]
    window: int = 100  # steps between looks at the bound
    patience: int = 2  # windows without a gain before the learning rate drops
    drop: float = 0.3  # factor of the learning rate
    n_drops: int = 4
    n_looks: int = 16  # draws that the bound is judged by, the same ones every time
    n_final_looks: int = 256
    fall: float = 1e12  # nats; steps that lose this much have lost their way

    def rate(self, step: int, current: float) -> float:
        """Return the learning rate of a step; a function of the step decides alone."""
        return float(self.learning_rate(step)) if callable(self.learning_rate) else current


class SviLoop:
    """One fit: `window` until it no longer `goes_on`; then `best` are the parameters."""

    def __init__(
        self,
        layout: SviLayout,
        rows: SviRows,
        start: StartingPoint,
        schedule: StepSchedule,
        seed: int,
        state: SVIState | None = None,
    ) -> None:
        self.layout, self.rows, self.start, self.schedule = layout, rows, start, schedule
        self.rng = np.random.default_rng(seed)
        self.order = ShuffledBatches(rows, self.rng)
        self.whole = rows.everything() if rows.whole else None
        self.compiled = compiled_svi(layout, rows.shapes)
        self.guide = self.compiled.guide
        self._refuse_size()
        self.scaling = guide_scaling(self.guide, start, rows, self.rng)
        self.parameters = initial_parameters(
            self.guide, start, rows, self.scaling, augmented=layout.augmented, rng=self.rng
        )
        self.optimiser = zeros_of(self.compiled.optimiser.init, self.parameters)
        self.rate = 1.0 if callable(schedule.learning_rate) else float(schedule.learning_rate)
        self.first_step = self.step = self.drops = self.idle = 0
        self.trace, self.converged = np.empty(0), False
        if state is not None:
            self._resume(state)
        self.place = placement(rows.n_devices) if rows.n_devices > 1 else None
        if self.place is not None:
            self.parameters, self.optimiser, self.scaling = self.place.everywhere(
                (self.parameters, self.optimiser, self.scaling)
            )
        self.look_keys = self._keys(schedule.n_looks)
        self.look_batch = self._batches(schedule.n_looks)
        self.best, self.best_looks = self.parameters, self._looks(self.parameters)
        self._refuse_infinite(self.best_looks)
        self.tolerance = schedule.tol * sum(X.shape[0] for X in rows.sets)

    def _refuse_size(self) -> None:
        if self.layout.family == "full_rank" and self.guide.size > MOST_JOINT:
            raise ValueError(
                f"family='full_rank' would need a covariance of {self.guide.size} loadings and "
                f"scales, and {MOST_JOINT} is the most; use family='low_rank' or 'structured'."
            )

    def _resume(self, state: SVIState) -> None:
        own, other = (jax.tree.map(np.shape, p) for p in (self.parameters, state.parameters))
        if own != other:
            raise ValueError(
                "start= is the state of another fit: its parameters have other shapes than this "
                "model and data need; use a state of the same model, data and settings."
            )
        self.parameters, self.optimiser = state.parameters, state.optimiser
        self.rate, self.step, self.trace = state.learning_rate, state.step, state.trace
        self.first_step = state.step

    @property
    def left(self) -> int:
        """Return how many steps may still be made."""
        return int(self.schedule.max_iter) - (self.step - self.first_step)

    @property
    def goes_on(self) -> bool:
        """Tell whether the fit has neither converged nor run out of steps."""
        return not self.converged and self.left > 0

    def window(self) -> int:
        """Make some steps, look at the bound at their mean, and set the rate for the next ones."""
        parameters, optimiser, mean, n = self.parameters, self.optimiser, self.parameters, 0
        length = min(self.schedule.window, self.left)
        while n < length:
            more = length if self.whole else min(length - n, self.rows.batches_per_chunk)
            rates = [self.schedule.rate(self.step + n + i, self.rate) for i in range(more)]
            batches = self._batches(more)
            parameters, optimiser, own = self.compiled.steps(
                parameters,
                optimiser,
                self._keys(more),
                np.array(rates, dtype=self.rows.dtype),
                batches,
                self.scaling,
            )
            mean = _blend(mean, own, more / (n + more)) if n else own
            n += more
        looks = self._looks(mean)  # an interrupt up to here leaves the last window's state
        self.parameters, self.optimiser = parameters, optimiser
        self.step += length
        self._judge(mean, looks)
        return length

    def _batches(self, n: int) -> SviBatch:
        """Return all rows, or the next minibatches with their rows spread over the devices."""
        if self.whole is not None:
            return self.whole
        batches = self.order.next(n)
        if self.place is None:
            return batches
        rows, sizes, places = self.place.batch(batches[:3])
        return SviBatch(rows, sizes, places, self.place.everywhere(batches.repeats))

    def _keys(self, n: int) -> np.ndarray:
        """Return raw random keys."""
        return self.rng.integers(0, 2**32, size=(n, 4), dtype=np.uint32)

    def _looks(self, parameters: GuideParameters) -> Array:
        looks = self.compiled.bounds(parameters, self.look_keys, self.look_batch, self.scaling)
        return np.asarray(looks, dtype=np.float64)

    def _refuse_infinite(self, looks: Array) -> None:
        if not np.isfinite(looks).all():
            raise ValueError(
                f"the bound is not finite at learning_rate={self.schedule.learning_rate!r}; lower "
                "it, or check the data for values far from all others."
            )

    def _judge(self, mean: GuideParameters, looks: Array) -> None:
        """Keep the best; when nothing is gained any more, lower the rate or stop."""
        gain = looks - self.best_looks
        fell = not (gain > -self.schedule.fall).all()  # too long a step: go back and be careful
        worth = max(self.tolerance, 0.0 if fell else float(gain.std() / np.sqrt(len(gain))))
        self.idle = 0 if gain.mean() > worth else self.idle + 1
        if gain.mean() > 0:
            self.best, self.best_looks = mean, looks
        self.trace = np.append(self.trace, (self.best_looks if fell else looks).mean())
        if self.idle < self.schedule.patience and not fell:
            return
        self.idle, self.drops = 0, self.drops + 1
        if self.drops > self.schedule.n_drops:
            if fell:
                self._refuse_infinite(looks)
            self.converged = True
        elif not callable(self.schedule.learning_rate):
            self.rate *= self.schedule.drop
            self.parameters = self.best

    def finish(self) -> tuple[float, float]:
        """Set exact zeros; return the bound from all rows, and its Monte-Carlo error."""
        for block in self.start.model.blocks:
            if f"{block.name} loadings" in self.guide.points:
                self._set_exact_zeros(f"{block.name} loadings", block.prior._exact_zeros)
        sizes = zip(self.rows.sets, self.rows.sizes, strict=True)
        epoch = 1 if self.whole else max(X.shape[0] // size for X, size in sizes)
        n = self.schedule.n_looks
        total: list[AnyArray] = []
        for _ in range(-(-max(self.schedule.n_final_looks, epoch) // n)):
            batches = self._batches(n)
            total.append(self.compiled.bounds(self.best, self._keys(n), batches, self.scaling))
        bounds = np.concatenate(total).astype(np.float64)
        return float(bounds.mean()), float(bounds.std() / np.sqrt(len(bounds)))

    def _set_exact_zeros(
        self, name: str, exact_zeros: Callable[[Array, Callable[[Array], Array]], Array]
    ) -> None:
        """Set loadings to zero where their prior says so."""
        unit = np.asarray(self.scaling.units[name], dtype=np.float64)
        point = np.asarray(self.best.globals.points[name])

        def slope_at(other: Array) -> Array:
            moved = np.asarray(other / unit, dtype=point.dtype)
            return self._mean_slope(self.best.with_points({name: moved}), name) / unit

        zero = exact_zeros(np.asarray(point * unit, dtype=np.float64), slope_at) == 0
        if zero.any():
            rounded = np.where(zero, 0.0, point).astype(point.dtype)
            self.best = self.best.with_points({name: rounded})

    def _mean_slope(self, parameters: GuideParameters, name: str) -> Array:
        """Return the gradient of the bound in a point, averaged over many draws."""
        n, slopes = self.schedule.n_looks, []
        for _ in range(self.schedule.n_final_looks // n):
            batches = self._batches(n)
            slope = self.compiled.slope(parameters, self._keys(n), batches, self.scaling)
            slopes.append(np.asarray(slope.globals.points[name], dtype=np.float64))
        return np.asarray(np.mean(slopes, axis=0))

    def latent_rows(self) -> tuple[RowGaussians, ...]:
        """Return the distributions of the latents of all rows, those of encoders written out."""
        found = []
        for which, latents in enumerate(self.best.latents):
            if isinstance(latents, RowGaussians):
                found.append(to_numpy(latents))
                continue
            n, parts = len(self.rows.sets), []
            for at, x, sizes in self.rows.in_order(which):
                batch = SviBatch((x,) * n, (sizes,) * n, (at,) * n, (1.0,) * n)
                part = self.guide.latent_rows(latents, which, batch, self.scaling)
                parts.append(to_numpy(part))
            found.append(tree_map(lambda *part: np.concatenate(part), *parts))
        return tuple(found)

    def state(self, turns: dict[str, Array]) -> SVIState:
        """Return the best state, to go on from."""
        best, optimiser, units = to_numpy((self.best, self.optimiser, self.scaling.units))
        where = (self.rate, self.step, self.trace, self.layout)
        return SVIState(best, optimiser, *where, units, turns, self.latent_rows())


def _blend(mean: GuideParameters, own: GuideParameters, share: float) -> GuideParameters:
    return tree_map(lambda a, b: a + share * (b - a), mean, own)
