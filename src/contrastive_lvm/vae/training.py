"""Training: rounds of epochs, the bound of held-out rows after each, the best weights kept."""

import os
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from contrastive_lvm._jax import CHUNK_BYTES, OptimizerState, all_finite, jax, to_numpy
from contrastive_lvm.arrays import Array
from contrastive_lvm.black_box.devices import Placement
from contrastive_lvm.vae.architecture import LEAST_LOG_NOISE, Architecture, NetworkWeights
from contrastive_lvm.vae.objective import BoundTerms, Objective, StepInputs, training_functions
from contrastive_lvm.vae.training_data import TrainingData

LEAST_STEPS, LEAST_EPOCHS = 5000, 40  # when max_epochs is None
ROUND_STEPS = 50  # at least, between two looks at held-out rows
RISE_STEPS = 200  # over which the learning rate rises
FIRST_LOG_FLOOR, FLOOR_DROP = 3.0, 4.0  # of the noise in units of variance, and how far it falls
RATE_CUT, MOST_CUTS = 0.3, 6  # of the learning rate when training diverged
HISTORY = (
    "epoch",
    "bound",
    *BoundTerms._fields,
    "validation_bound",
    "learning_rate",
    "target_kl_weight",
)


@dataclass(frozen=True)
class TrainingPlan:
    """How to train; the estimators document each setting."""

    max_epochs: int | None
    batch_size: int
    learning_rate: float
    kl_warm_up: float
    clip: float
    patience: int | None
    separation: float = 0.0
    validation_fraction: float = 0.0
    checkpoint: str | os.PathLike[str] | None = None
    n_devices: int | None = 1
    crossed: bool = False  # half of the background rows go through the target's encoder


class TrainingState(NamedTuple):
    """Everything that training continues from, as NumPy arrays."""

    weights: NetworkWeights
    optimizer: OptimizerState
    best: NetworkWeights
    best_bound: float  # nats per row, of held-out rows
    n_rounds: int
    idle: int  # rounds since the best
    cuts: int  # of the learning rate
    history: dict[str, Array]  # one value per epoch
    seed: int
    fingerprint: str  # model and data that the state belongs to


class TrainingSchedule:
    """How rows and steps are divided into batches, epochs and rounds."""

    def __init__(
        self, plan: TrainingPlan, sizes: tuple[int, ...], n_features: int, n_devices: int
    ) -> None:
        share = min(1.0, plan.batch_size / sum(sizes))
        self.batch_rows = tuple(max(1, round(share * n / n_devices)) * n_devices for n in sizes)
        steps = max(-(-n // b) for n, b in zip(sizes, self.batch_rows, strict=True))
        step_bytes = 4 * n_features * sum(self.batch_rows)
        self.chunks = -(-steps * step_bytes // CHUNK_BYTES)
        self.chunk_steps = -(-steps // self.chunks)
        self.epoch_steps = self.chunks * self.chunk_steps
        default = max(LEAST_EPOCHS, -(-LEAST_STEPS // self.epoch_steps))
        self.epochs = default if plan.max_epochs is None else plan.max_epochs
        self.round_epochs = min(self.epochs, -(-ROUND_STEPS // self.epoch_steps))
        self.rounds = -(-self.epochs // self.round_epochs)
        self.steps = self.epochs * self.epoch_steps
        self.rise = min(RISE_STEPS, self.steps // 10)
        self.warm_up = plan.kl_warm_up * self.steps
        self.learning_rate, self.crossed = plan.learning_rate, plan.crossed

    def rates(self, numbers: np.ndarray) -> Array:
        """Return learning rates: a short rise, then a cosine (Loshchilov & Hutter 2017, eq. 5)."""
        fall = np.clip((numbers - self.rise) / max(1, self.steps - self.rise), 0.0, 1.0)
        rise = np.minimum(1.0, (numbers + 1.0) / max(1, self.rise))
        rates: Array = self.learning_rate * rise * 0.5 * (1.0 + np.cos(np.pi * fall))
        return rates

    def warm_up_weights(self, numbers: np.ndarray) -> tuple[Array, Array]:
        """Return weights of the target latents' divergence, and floors of the log noise.

        At first there is more noise than variance and target latents cost nothing. As the noise
        falls, latents come into use one after another, and what only the target has goes to the
        cheap ones.
        """
        done = np.minimum(1.0, (numbers + 1.0) / max(1.0, self.warm_up))
        floors = np.where(done < 1.0, FIRST_LOG_FLOOR - FLOOR_DROP * done, LEAST_LOG_NOISE)
        return done, floors

    def leak_weights(self, numbers: np.ndarray) -> Array:
        """Return weights of the penalty; in a crossed training they rise from 0 to 1.

        Shared latents that describe nothing reveal nothing. With the penalty from the beginning
        they may never come into use.
        """
        if not self.crossed:
            return np.ones(len(numbers))
        done: Array = (numbers + 1.0) / self.steps
        return done**2


class Training:
    """One model in training: `round()` while `is_due`, then `state.best`."""

    def __init__(
        self,
        architecture: Architecture,
        plan: TrainingPlan,
        data: TrainingData,
        placement: Placement,
        seed: int,
    ) -> None:
        self.plan, self.data, self.placement = plan, data, placement
        self.schedule = TrainingSchedule(
            plan, data.sizes, architecture.n_features, placement.n_devices
        )
        separated = plan.separation > 0 and len(data.sets) == 2
        self.functions = training_functions(
            architecture,
            plan.clip,
            (data.sizes, plan.batch_size),
            separated=separated,
            crossed=plan.crossed,
        )
        self.constants = placement.put(data.constants)
        self.held_out = placement.put(data.held_out)
        first = architecture.initial_weights(np.random.default_rng([seed, 0]))
        self.state = TrainingState(
            weights=first,
            optimizer=to_numpy(self.functions.init_optimizer(first)),
            best=first,
            best_bound=-np.inf,
            n_rounds=0,
            idle=0,
            cuts=0,
            history={name: np.zeros(0) for name in HISTORY},
            seed=seed,
            fingerprint=repr((architecture, data.sizes, plan.separation)),
        )

    def resume(self, state: TrainingState) -> None:
        """Continue from a state of the same model and data."""
        if state.fingerprint != self.state.fingerprint:
            raise ValueError(
                f"resume contains a training of {state.fingerprint}, but this one is of "
                f"{self.state.fingerprint}; use the same parameters and data, or begin with "
                "resume=None."
            )
        self.state = state

    @property
    def is_due(self) -> bool:
        """Tell whether another round is due."""
        s = self.state
        return s.n_rounds < self.schedule.rounds and s.cuts <= MOST_CUTS and not self.settled

    @property
    def settled(self) -> bool:
        """Tell whether held-out rows gained nothing for as many rounds as patience allows."""
        patience = self.plan.patience
        return bool(self.data.held_out) and patience is not None and self.state.idle >= patience

    @property
    def n_epochs(self) -> int:
        """Number of epochs that were completed."""
        return min(self.schedule.epochs, self.state.n_rounds * self.schedule.round_epochs)

    def round(self) -> None:
        """Run some epochs and evaluate; a round that diverged is undone and the rate cut."""
        first = self.n_epochs
        last = min(self.schedule.epochs, first + self.schedule.round_epochs)
        weights = self.placement.put(self.state.weights)
        optimizer = self.placement.put(self.state.optimizer)
        found: list[BoundTerms] = []
        objective = self.objective()
        for epoch in range(first, last):
            for inputs in self.step_inputs(epoch):
                # Steps run while the next rows are read, but rows must not pile up before them.
                jax.block_until_ready(found[-1:])  # type: ignore[no-untyped-call]
                weights, optimizer, own = self.functions.steps(
                    weights, optimizer, inputs, objective
                )
                found.append(own)
        values = np.array([[float(v) for v in own] for own in found])
        terms = self._in_units(values.mean(axis=0))
        bound = self._validation_bound(weights, terms)
        if np.isfinite(bound) and np.isfinite(terms.lower_bound()) and all_finite(weights):
            epochs = values.reshape(last - first, self.schedule.chunks, -1).mean(axis=1)
            self._accept(to_numpy(weights), to_numpy(optimizer), epochs, bound)
        else:
            self._undo()

    def step_inputs(self, epoch: int) -> Iterator[StepInputs]:
        """Return the minibatches of an epoch, a chunk at a time; the same for the same seed."""
        s, streams = self.schedule, []
        for which, (rows, size) in enumerate(zip(self.data.sets, s.batch_rows, strict=True)):
            rng = np.random.default_rng([self.state.seed, 1 + which, epoch])
            streams.append(rows.epoch(rng, s.chunks, s.chunk_steps * size))
        for chunk, parts in enumerate(zip(*streams, strict=True)):
            begin = epoch * s.epoch_steps + chunk * s.chunk_steps
            numbers = np.arange(begin, begin + s.chunk_steps)
            batches = tuple(
                self.data.units.standardize(part).reshape(s.chunk_steps, size, -1)
                for part, size in zip(parts, s.batch_rows, strict=True)
            )
            rates = RATE_CUT**self.state.cuts * s.rates(numbers)
            changing = (rates, *s.warm_up_weights(numbers), s.leak_weights(numbers))
            single = tuple(values.astype(np.float32) for values in changing)
            yield StepInputs(
                self.placement.put(batches, None, "rows"),
                *self.placement.put((numbers.astype(np.uint32), *single)),
            )

    def objective(self, rows: tuple[int, ...] | None = None) -> Objective:
        """Return the objective of batches, or of as many rows of each set."""
        sizes = self.data.sizes
        pairs = zip(sizes, rows or self.schedule.batch_rows, strict=True)
        return Objective(
            self.constants,
            repeats=tuple(np.array(n / b, np.float32) for n, b in pairs),
            separation=np.array(self.plan.separation * sizes[0], np.float32),
            n_entries=np.array(sum(sizes) * self.data.sets[0].shape[1], np.float32),
            key=jax.random.key(self.state.seed),
        )

    def _validation_bound(self, weights: NetworkWeights, terms: BoundTerms) -> float:
        """Return the objective of held-out rows, by the same draws each time, nats per row."""
        penalty = 0.0
        if self.data.held_out:
            objective = self.objective(tuple(len(rows) for rows in self.data.held_out))
            key = jax.random.fold_in(objective.key, 2**31)
            objective = objective._replace(key=key)
            found, cost = self.functions.evaluate(weights, self.held_out, objective)
            terms, penalty = self._in_units([float(value) for value in found]), float(cost)
        return float(terms.lower_bound() - penalty) / sum(self.data.sizes)

    def _in_units(self, values: Sequence[float] | Array) -> BoundTerms:
        """Return the terms on the scale of the data."""
        terms, (target, *background) = BoundTerms(*values), self.data.log_units
        return terms._replace(
            target_reconstruction=terms.target_reconstruction - target,
            background_reconstruction=terms.background_reconstruction - sum(background),
        )

    def _accept(
        self, weights: NetworkWeights, optimizer: OptimizerState, epochs: Array, bound: float
    ) -> None:
        """Take over the state after a round; the terms of its epochs go into the history."""
        s, rows = self.state, []
        for epoch, values in enumerate(epochs, self.n_epochs + 1):
            step, terms = (
                np.array([epoch * self.schedule.epoch_steps - 1.0]),
                self._in_units(values),
            )
            settings = {  # of the last step
                "learning_rate": RATE_CUT**s.cuts * float(self.schedule.rates(step)[0]),
                "target_kl_weight": float(self.schedule.warm_up_weights(step)[0][0]),
            }
            own = {"epoch": epoch, "bound": terms.lower_bound(), "validation_bound": np.nan}
            rows.append({**terms._asdict(), **own, **settings})
        if self.data.held_out:
            rows[-1]["validation_bound"] = bound * sum(self.data.sizes)
        better = bound > s.best_bound or not self.data.held_out
        warm = rows[-1]["target_kl_weight"] < 1.0
        self.state = s._replace(
            weights=weights,
            optimizer=optimizer,
            best=weights if better else s.best,
            best_bound=bound if better else s.best_bound,
            n_rounds=s.n_rounds + 1,
            idle=0 if better or warm else s.idle + 1,
            history={
                name: np.append(s.history[name], [row[name] for row in rows]) for name in HISTORY
            },
        )

    def _undo(self) -> None:
        self.state = self.state._replace(cuts=self.state.cuts + 1)
        rate = RATE_CUT**self.state.cuts * self.plan.learning_rate
        what = (
            f"continues from there with learning_rate={rate:.2g}"
            if self.state.cuts <= MOST_CUTS
            else "ends there; scale the data, or begin with a smaller learning_rate"
        )
        warnings.warn(
            f"training diverged after epoch {self.n_epochs}; the last good state is restored "
            f"and training {what}.",
            UserWarning,
            stacklevel=8,
        )

    def message(self) -> str:
        """Describe reconstruction and divergence, nats per row, for progress."""
        h, n = self.state.history, sum(self.data.sizes)
        if not len(h["epoch"]):
            return ""
        at = {name: values[-1] / n for name, values in h.items()}
        reconstruction = at["target_reconstruction"] + at["background_reconstruction"]
        divergence = reconstruction - at["bound"]
        held_out = f", held out {at['validation_bound']:.5g}" if self.data.held_out else ""
        return f"lower bound {reconstruction:.5g} - {divergence:.4g}{held_out}"
