"""The loop of stochastic variational inference: steps, looks at the bound, the learning rate."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from contrastive_lvm._jax import module
from contrastive_lvm.arrays import Array
from contrastive_lvm.black_box.devices import placement
from contrastive_lvm.black_box.initialization import StartingPoint
from contrastive_lvm.black_box.svi.guide_initialization import guide_scaling, initial_parameters
from contrastive_lvm.black_box.svi.guides import GuideParameters, SviBatch, SviLayout
from contrastive_lvm.black_box.svi.row_gaussians import RowGaussians
from contrastive_lvm.black_box.svi.svi_batches import ShuffledBatches, SviRows
from contrastive_lvm.black_box.svi.svi_step import compiled_svi

if TYPE_CHECKING:
    from contrastive_lvm._jax import AnyArray

WINDOW = 100  # steps between looks at the bound
DROP, DROPS = 0.3, 4  # of the learning rate, each time the bound stands still
PATIENCE = 2  # windows without a gain before that
LOOKS = 16  # draws that the bound is judged by, the same ones every time
FINAL_LOOKS = 256  # at the end
MOST_JOINT = 2000  # loadings and scales in a full-rank covariance
FALL = 1e12  # nats; steps that lose this much have lost their way


class SVIState(NamedTuple):
    """Where a fit stands; `SVI(start=state)` goes on from it."""

    parameters: GuideParameters
    optimiser: Any  # state of optax
    learning_rate: float
    step: int
    trace: Array
    layout: SviLayout  # with the sizes in use
    units: "dict[str, AnyArray]"  # of loadings and means
    turns: dict[str, Array]  # by block: (n, n') from the guide's columns to the canonical ones
    latents: tuple[RowGaussians, ...]  # of each set's rows, in the guide's columns


class StepSchedule(NamedTuple):
    """How far and how fast a fit goes."""

    max_iter: int
    tol: float  # nats per row
    learning_rate: float | Callable[[int], float]


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
        self.place = placement(rows.n_devices) if rows.n_devices > 1 else None
        self.whole = rows.everything() if rows.whole else None
        self.compiled = compiled_svi(layout)
        self.guide = self.compiled.guide
        self._refuse_size()
        self.scaling = guide_scaling(self.guide, start, rows, self.rng)
        self.parameters = initial_parameters(
            self.guide, start, rows, self.scaling, augmented=layout.augmented, rng=self.rng
        )
        self.optimiser = self.compiled.optimiser.init(self.parameters)
        rate = schedule.learning_rate
        self.rate = 1.0 if callable(rate) else float(rate)
        self.first_step = self.step = self.drops = self.idle = 0
        self.trace, self.converged = np.empty(0), False
        if state is not None:
            self._resume(state)
        if self.place is not None:
            self.parameters, self.optimiser, self.scaling = self.place.everywhere(
                (self.parameters, self.optimiser, self.scaling)
            )
        self.look_keys = self._keys(LOOKS)
        self.look_batch = self.whole or self._batches(LOOKS)
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
        jax = module("jax")
        shapes = [jax.tree.map(np.shape, p) for p in (self.parameters, state.parameters)]
        if shapes[0] != shapes[1]:
            raise ValueError(
                "start= is the state of another fit: its parameters have other shapes than this "
                "model and data need; use a state of the same model, data and settings."
            )
        self.parameters, self.optimiser = state.parameters, state.optimiser
        self.rate, self.step, self.trace = state.learning_rate, state.step, state.trace
        self.first_step = state.step

    @property
    def goes_on(self) -> bool:
        """Tell whether the fit has neither converged nor run out of steps."""
        return not self.converged and self.left > 0

    @property
    def left(self) -> int:
        """Return how many steps may still be made."""
        return int(self.schedule.max_iter) - (self.step - self.first_step)

    def window(self) -> int:
        """Make some steps, look at the bound at their mean, and set the rate for the next ones."""
        parameters, optimiser, n = self.parameters, self.optimiser, 0
        mean: Any = None
        length = min(WINDOW, self.left)
        while n < length:
            more = length if self.whole else min(length - n, self.rows.batches_per_chunk)
            batches = self.whole or self._batches(more)
            rates = np.array([self._rate(self.step + n + i) for i in range(more)])
            rates = rates.astype(self.rows.dtype)
            parameters, optimiser, own = self.compiled.steps(
                parameters, optimiser, self._keys(more), rates, batches, self.scaling
            )
            mean = own if mean is None else _blend(mean, own, more / (n + more))
            n += more
        looks = self._looks(mean)  # an interrupt up to here leaves the last window's state
        self.parameters, self.optimiser = parameters, optimiser
        self.step += length
        self._judge(mean, looks)
        return length

    def _batches(self, n: int) -> SviBatch:
        """Return the next minibatches, their rows spread over the devices."""
        batches = self.order.next(n)
        if self.place is None:
            return batches
        rows, sizes, places = self.place.batch(batches[:3])
        return SviBatch(rows, sizes, places, self.place.everywhere(batches.repeats))

    def _rate(self, step: int) -> float:
        rate = self.schedule.learning_rate
        return float(rate(step)) if callable(rate) else self.rate

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
        fell = not (gain > -FALL).all()  # too long a step: go back and be careful
        worth = max(self.tolerance, 0.0 if fell else float(gain.std() / np.sqrt(len(gain))))
        self.idle = 0 if gain.mean() > worth else self.idle + 1
        if gain.mean() > 0:
            self.best, self.best_looks = mean, looks
        self.trace = np.append(self.trace, (self.best_looks if fell else looks).mean())
        if self.idle < PATIENCE and not fell:
            return
        self.idle, self.drops = 0, self.drops + 1
        if self.drops > DROPS:
            if fell:
                self._refuse_infinite(looks)
            self.converged = True
        elif not callable(self.schedule.learning_rate):
            self.rate *= DROP
            self.parameters = self.best

    def finish(self) -> tuple[float, float]:
        """Set exact zeros; return the bound from all rows, and its Monte-Carlo error."""
        for block in self.start.model.blocks:
            if f"{block.name} loadings" in self.guide.points:
                self._set_exact_zeros(f"{block.name} loadings", block.prior._exact_zeros)
        total: list[Array] = []
        sizes = zip(self.rows.sets, self.rows.sizes, strict=True)
        epoch = 1 if self.whole else max(X.shape[0] // size for X, size in sizes)
        while sum(map(len, total)) < max(FINAL_LOOKS, epoch):
            batches = self.whole or self._batches(LOOKS)
            looks = self.compiled.bounds(self.best, self._keys(LOOKS), batches, self.scaling)
            total.append(np.asarray(looks, dtype=np.float64))
        bounds = np.concatenate(total)
        return float(bounds.mean()), float(bounds.std() / np.sqrt(len(bounds)))

    def _set_exact_zeros(
        self, name: str, exact_zeros: Callable[[Array, Callable[[Array], Array]], Array]
    ) -> None:
        """Set loadings to zero where their prior says so."""
        unit = np.asarray(self.scaling.units[name], dtype=np.float64)
        point = np.asarray(self.best.globals.points[name])
        L = np.asarray(point * unit, dtype=np.float64)

        def slope_at(other: Array) -> Array:
            moved = np.asarray(other / unit, dtype=point.dtype)
            return self._mean_slope(_with_point(self.best, name, moved), name) / unit

        zero = exact_zeros(L, slope_at) == 0
        if zero.any():
            self.best = _with_point(self.best, name, np.where(zero, 0.0, point).astype(point.dtype))

    def _mean_slope(self, parameters: GuideParameters, name: str) -> Array:
        """Return the gradient of the bound in a point, averaged over many draws."""
        total: Any = 0.0
        n_calls = FINAL_LOOKS // LOOKS
        for _ in range(n_calls):
            batches = self.whole or self._batches(LOOKS)
            slope = self.compiled.slope(parameters, self._keys(LOOKS), batches, self.scaling)
            total = total + np.asarray(slope.globals.points[name], dtype=np.float64)
        return np.asarray(total) / n_calls

    def latent_rows(self) -> tuple[RowGaussians, ...]:
        """Return the distributions of the latents of all rows, those of encoders written out."""
        found = []
        for which, latents in enumerate(self.best.latents):
            if isinstance(latents, RowGaussians):
                found.append(module("jax").tree.map(np.asarray, latents))
                continue
            parts = []
            for at, x, sizes in self.rows.in_order(which):
                n = len(self.rows.sets)
                batch = SviBatch((x,) * n, (sizes,) * n, (at,) * n, (1.0,) * n)
                part = self.guide.latent_rows(latents, which, batch, self.scaling)
                parts.append(module("jax").tree.map(np.asarray, part))
            found.append(_joined(parts))
        return tuple(found)

    def state(self, turns: dict[str, Array]) -> SVIState:
        """Return the best state, to go on from."""
        jax = module("jax")
        best, optimiser, units = (
            jax.tree.map(np.asarray, tree)
            for tree in (self.best, self.optimiser, self.scaling.units)
        )
        latents = self.latent_rows()
        where = (self.rate, self.step, self.trace, self.layout)
        return SVIState(best, optimiser, *where, units, turns, latents)

    def _keys(self, n: int) -> Any:
        """Return raw random keys."""
        return self.rng.integers(0, 2**32, size=(n, 4), dtype=np.uint32)


def _with_point(parameters: GuideParameters, name: str, value: "AnyArray") -> GuideParameters:
    """Return parameters with another value of one point."""
    points = {**parameters.globals.points, name: value}
    return parameters._replace(globals=parameters.globals._replace(points=points))


def _joined(parts: list[RowGaussians]) -> RowGaussians:
    """Return the distributions of consecutive parts of a set's rows as one."""
    return module("jax").tree.map(lambda *part: np.concatenate(part), *parts)  # type: ignore[no-any-return]


def _blend(mean: Any, own: Any, share: float) -> Any:
    return module("jax").tree.map(lambda a, b: a + share * (b - a), mean, own)
