"""The loop of stochastic variational inference: steps, looks at the bound, the learning rate."""

from typing import Any, NamedTuple

import numpy as np

from contrastive_lvm._jax import module
from contrastive_lvm.arrays import Array
from contrastive_lvm.black_box.devices import placement
from contrastive_lvm.black_box.initialization import Start
from contrastive_lvm.black_box.svi.amortization import first_parameters, scaling_of
from contrastive_lvm.black_box.svi.guides import Batch, RowLaws
from contrastive_lvm.black_box.svi.svi_batches import Order, Rows
from contrastive_lvm.black_box.svi.svi_step import Layout, program
from contrastive_lvm.priors.group_lasso import GroupLasso

WINDOW = 100  # steps between looks at the bound
DROP, DROPS = 0.3, 4  # of the learning rate, each time the bound stands still
PATIENCE = 2  # windows without a gain before that
LOOKS = 16  # draws that the bound is judged by, the same ones every time
FINAL_LOOKS = 256  # at the end
MOST_JOINT = 2000  # loadings and scales in a full-rank covariance
FALL = 1e12  # nats; steps that lose this much have lost their way
SMALL_GROUP = 0.05  # norm over the largest group's: a lasso may have meant zero


class SVIState(NamedTuple):
    """Where a fit stands; `SVI(start=state)` goes on from it."""

    parameters: Any  # of the variational family, nested dicts of arrays
    optimiser: Any
    learning_rate: float
    step: int
    trace: Array
    layout: Layout  # of the program, with the size in use
    units: dict[str, Array]  # of loadings and means
    turn: Array  # (K, K') from the family's columns [S | W] to the canonical ones
    latents: tuple[RowLaws, ...]  # of each set's rows, columns [S | W]


class Climb:
    """One fit: `window` until it no longer `goes_on`; then `best` are the parameters."""

    def __init__(self, settings: Any, rows: Rows, begin: Start, seed: int) -> None:
        self.settings, self.rows, self.begin = settings, rows, begin
        self.rng = np.random.default_rng(seed)
        self.order = Order(rows, self.rng)
        self.place = placement(rows.n_devices) if rows.n_devices > 1 else None
        self.whole = rows.everything() if rows.whole else None
        self.layout = settings.layout(begin.model, rows)
        self.compiled = program(self.layout)
        self._refuse_size()
        self.scaling = scaling_of(begin, rows, self.layout.features, self.rng)
        self.parameters = first_parameters(
            self.compiled.family,
            begin,
            rows,
            self.scaling,
            augmented=settings.augmented,
            rng=self.rng,
        )
        self.optimiser = self.compiled.optimiser.init(self.parameters)
        self.rate = 1.0 if callable(settings.learning_rate) else float(settings.learning_rate)
        self.first_step = self.step = self.drops = self.idle = 0
        self.trace, self.converged = np.empty(0), False
        if settings.start is not None:
            self._resume(settings.start)
        if self.place is not None:
            self.parameters, self.optimiser, self.scaling = self.place.everywhere(
                (self.parameters, self.optimiser, self.scaling)
            )
        self.look_keys = self._keys(LOOKS)
        self.look_batch = self.whole or self._batches(LOOKS)
        self.best, self.best_looks = self.parameters, self._looks(self.parameters)
        self._refuse_infinite(self.best_looks)
        self.tolerance = settings.tol * sum(X.shape[0] for X in rows.sets)

    def _refuse_size(self) -> None:
        size = self.compiled.family.size
        if self.settings.family == "full_rank" and size > MOST_JOINT:
            raise ValueError(
                f"family='full_rank' would need a covariance of {size} loadings and scales, and "
                f"{MOST_JOINT} is the most; use family='low_rank' or 'structured'."
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
        """Until converged or out of steps."""
        return not self.converged and self.left > 0

    @property
    def left(self) -> int:
        """Steps that may still be made."""
        return int(self.settings.max_iter) - (self.step - self.first_step)

    def window(self) -> int:
        """Some steps, a look at the bound at their mean, and the rate for the next ones."""
        parameters, optimiser, mean, n = self.parameters, self.optimiser, None, 0
        length = min(WINDOW, self.left)
        while n < length:
            more = length if self.whole else min(length - n, self.rows.batches_a_chunk)
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

    def _batches(self, n: int) -> Batch:
        """The next minibatches, their rows spread over the devices."""
        batches = self.order.next(n)
        if self.place is None:
            return batches
        rows, sizes, places, repeats = batches
        rows, sizes, places = self.place.batch((rows, sizes, places))
        return Batch(rows, sizes, places, self.place.everywhere(repeats))

    def _rate(self, step: int) -> float:
        rate = self.settings.learning_rate
        return float(rate(step)) if callable(rate) else self.rate

    def _looks(self, parameters: Any) -> Array:
        looks = self.compiled.looks(parameters, self.look_keys, self.look_batch, self.scaling)
        return np.asarray(looks, dtype=np.float64)

    def _refuse_infinite(self, looks: Array) -> None:
        if not np.isfinite(looks).all():
            raise ValueError(
                f"the bound is not finite at learning_rate={self.settings.learning_rate!r}; lower "
                "it, or check the data for values far from all others."
            )

    def _judge(self, mean: Any, looks: Array) -> None:
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
        elif not callable(self.settings.learning_rate):
            self.rate *= DROP
            self.parameters = self.best

    def finish(self) -> tuple[float, float]:
        """Exact zeros of lassos; then the bound from all rows, and its Monte-Carlo error."""
        for name, prior in zip(("S", "W"), self.begin.model.priors, strict=True):
            if isinstance(prior, GroupLasso) and name in self.compiled.family.sites:
                self._zero_groups(name, prior)
        total: list[Array] = []
        sizes = zip(self.rows.sets, self.rows.sizes, strict=True)
        epoch = 1 if self.whole else max(X.shape[0] // size for X, size in sizes)
        while sum(map(len, total)) < max(FINAL_LOOKS, epoch):
            batches = self.whole or self._batches(LOOKS)
            looks = self.compiled.looks(self.best, self._keys(LOOKS), batches, self.scaling)
            total.append(np.asarray(looks, dtype=np.float64))
        bounds = np.concatenate(total)
        return float(bounds.mean()), float(bounds.std() / np.sqrt(len(bounds)))

    def _zero_groups(self, name: str, prior: GroupLasso) -> None:
        """Set small groups of loadings to zero where that is the optimum.

        Gradient steps come close to zero but not there. A group belongs at zero when the gradient
        of the rest of the bound there is no longer than the penalty's strength (the optimality
        condition of the group lasso).
        """
        jax = module("jax")
        best = jax.tree.map(np.array, self.best)
        unit = np.asarray(self.scaling.units[name], dtype=np.float64)
        point = best["globals"]["point"][name]
        group, strength = prior.strengths(len(point))
        norm = group_norms(point * unit, group)
        candidates = norm < SMALL_GROUP * norm.max()
        kept = point.copy()
        point[candidates[group]] = 0.0
        pull = group_norms(self._mean_slope(best, name) / unit, group)
        wanted = candidates & (pull > strength)
        point[wanted[group]] = kept[wanted[group]]
        self.best = best

    def _mean_slope(self, parameters: Any, name: str) -> Array:
        """Gradient of the bound in a point, averaged over many draws."""
        total: Any = 0.0
        n_calls = FINAL_LOOKS // LOOKS
        for _ in range(n_calls):
            batches = self.whole or self._batches(LOOKS)
            slope = self.compiled.slope(parameters, self._keys(LOOKS), batches, self.scaling)
            total = total + np.asarray(slope["globals"]["point"][name], dtype=np.float64)
        return np.asarray(total) / n_calls

    def row_laws(self) -> tuple[RowLaws, ...]:
        """Of all rows, those of encoders written out."""
        family, found = self.compiled.family, []
        for which in range(len(self.rows.sets)):
            laws = module("jax").tree.map(np.asarray, self.best["rows"][which])
            if "loc" in laws:
                found.append(RowLaws(laws["loc"], laws["log_sd"], laws.get("root")))
                continue
            parts = []
            for at, x, sizes in self.rows.in_order(which):
                batch = Batch((x,) * 2, (sizes,) * 2, (at,) * 2, (1.0,) * 2)
                part = family.row_laws(self.best["rows"][which], which, batch, self.scaling)
                parts.append([None if p is None else np.asarray(p) for p in part])
            joined = (
                None if pieces[0] is None else np.concatenate(pieces)
                for pieces in zip(*parts, strict=True)
            )
            found.append(RowLaws(*joined))
        return tuple(found)

    def state(self, turn: Array) -> SVIState:
        """The best state, to go on from."""
        jax = module("jax")
        best, optimiser, units = (
            jax.tree.map(np.asarray, tree)
            for tree in (self.best, self.optimiser, self.scaling.units)
        )
        layout = self.layout._replace(features=None)
        laws = self.row_laws()
        return SVIState(
            best, optimiser, self.rate, self.step, self.trace, layout, units, turn, laws
        )

    def _keys(self, n: int) -> Any:
        """Raw random keys."""
        return self.rng.integers(0, 2**32, size=(n, 4), dtype=np.uint32)


def group_norms(values: Array, group: np.ndarray) -> Array:
    """Of rows, gathered by group."""
    return np.sqrt(np.bincount(group, weights=(values**2).sum(axis=1)))


def _blend(mean: Any, own: Any, share: float) -> Any:
    return module("jax").tree.map(lambda a, b: a + share * (b - a), mean, own)
