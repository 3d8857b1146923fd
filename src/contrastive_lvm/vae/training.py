"""Training: rounds of epochs, a look at held-out rows after each, the best state kept."""

import logging
import warnings
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from contrastive_lvm._jax import module
from contrastive_lvm.arrays import Array
from contrastive_lvm.black_box.devices import Placement
from contrastive_lvm.vae.design import LEAST_LOG_NOISE, Design, Parameters
from contrastive_lvm.vae.objective import Parts
from contrastive_lvm.vae.program import Feed, Weights, program
from contrastive_lvm.vae.vae_scaling import Data

logger = logging.getLogger(__name__)

STEPS, EPOCHS = 5000, 40  # at least, when the number of epochs is left to us
ROUND = 50  # steps at least between two looks
RISE = 200  # steps over which the learning rate rises
FIRST_LOG_FLOOR, FALL = 3.0, 4.0  # of the noise in units of variance, and how far it falls
CUT, MOST_CUTS = 0.3, 6  # of the learning rate when training diverged
CHUNK_BYTES = 1 << 26  # rows that are made ready for the device at a time
HISTORY = (
    "epoch",
    "bound",
    *Parts._fields,
    "validation_bound",
    "learning_rate",
    "target_kl_weight",
)


@dataclass(frozen=True)
class Plan:
    """How to train; the estimators document each."""

    max_epochs: int | None
    batch_size: int
    learning_rate: float
    kl_warm_up: float
    clip: float
    patience: int | None
    separation: float


class State(NamedTuple):
    """What training goes on from, as arrays of NumPy."""

    parameters: Parameters
    optimiser: Any
    best: Parameters
    best_bound: float  # nats a row, of held-out rows
    n_rounds: int
    idle: int  # rounds since the best
    cuts: int  # of the learning rate
    history: dict[str, Array]  # a value a round
    seed: int
    terms: str  # model and data it belongs to


class Schedule:
    """How rows and steps are cut into batches, epochs and rounds."""

    def __init__(self, plan: Plan, sizes: tuple[int, ...], n_features: int, multiple: int) -> None:
        share = min(1.0, plan.batch_size / sum(sizes))
        self.batch_rows = tuple(max(1, round(share * n / multiple)) * multiple for n in sizes)
        steps = max(-(-n // b) for n, b in zip(sizes, self.batch_rows, strict=True))
        bytes_a_step = 4 * n_features * sum(self.batch_rows)
        self.chunks = -(-steps * bytes_a_step // CHUNK_BYTES)
        self.chunk_steps = -(-steps // self.chunks)
        self.epoch_steps = self.chunks * self.chunk_steps
        default = max(EPOCHS, -(-STEPS // self.epoch_steps))
        self.epochs = default if plan.max_epochs is None else plan.max_epochs
        self.round_epochs = min(self.epochs, -(-ROUND // self.epoch_steps))
        self.rounds = -(-self.epochs // self.round_epochs)
        self.steps = self.epochs * self.epoch_steps
        self.rise = min(RISE, self.steps // 10)
        self.warm_up = plan.kl_warm_up * self.steps
        self.learning_rate = plan.learning_rate

    def rates(self, numbers: np.ndarray) -> Array:
        """A short rise, then a cosine down to nothing (Loshchilov & Hutter 2017, eq. 5)."""
        fall = np.clip((numbers - self.rise) / max(1, self.steps - self.rise), 0.0, 1.0)
        rise = np.minimum(1.0, (numbers + 1.0) / max(1, self.rise))
        rates: Array = self.learning_rate * rise * 0.5 * (1.0 + np.cos(np.pi * fall))
        return rates

    def warmth(self, numbers: np.ndarray) -> tuple[Array, Array]:
        """Weights of the target latents' divergence, and floors of the log noise.

        At first there is more noise than variance and target latents cost nothing. As the noise
        falls, latents are put to use one after another, and what only the target has settles in
        the cheap ones.
        """
        done = np.minimum(1.0, (numbers + 1.0) / max(1.0, self.warm_up))
        floors = np.where(done < 1.0, FIRST_LOG_FLOOR - FALL * done, LEAST_LOG_NOISE)
        return done, floors


class Training:
    """One model in training: `round()` until `goes_on` is false, then `state.best`."""

    def __init__(self, design: Design, plan: Plan, data: Data, place: Placement, seed: int) -> None:
        self.plan, self.data, self.place = plan, data, place
        self.schedule = Schedule(plan, data.sizes, design.n_features, place.n_devices)
        separated = plan.separation > 0 and len(data.sources) == 2
        self.program = program(design, plan.clip, separated=separated)
        self.scaling = place.everywhere(data.scaling)
        self.held = place.everywhere(data.held)
        first = design.first_parameters(np.random.default_rng([seed, 0]))
        self.state = State(
            parameters=first,
            optimiser=_numpy(self.program.first_optimiser(first)),
            best=first,
            best_bound=-np.inf,
            n_rounds=0,
            idle=0,
            cuts=0,
            history={name: np.zeros(0) for name in HISTORY},
            seed=seed,
            terms=repr((design, data.sizes, plan.separation)),
        )

    def resume(self, state: State) -> None:
        """Go on from a state of the same model and data."""
        if state.terms != self.state.terms:
            raise ValueError(
                f"resume holds a training of {state.terms}, but this one is of "
                f"{self.state.terms}; use the same parameters and data, or begin with resume=None."
            )
        self.state = state

    @property
    def key(self) -> Any:
        """Of all draws."""
        return module("jax.random").key(self.state.seed)

    @property
    def goes_on(self) -> bool:
        """Whether another round is due."""
        s, patience = self.state, self.plan.patience
        tired = bool(self.data.held) and patience is not None and s.idle >= patience
        return s.n_rounds < self.schedule.rounds and not tired and not self.gave_up

    @property
    def gave_up(self) -> bool:
        """Whether it diverged too often."""
        return self.state.cuts > MOST_CUTS

    @property
    def epochs_done(self) -> int:
        """Through the data."""
        return min(self.schedule.epochs, self.state.n_rounds * self.schedule.round_epochs)

    def round(self) -> None:
        """Some epochs and a look; a round that diverged is undone and the rate cut."""
        first, last = self.epochs_done, self.schedule.epochs
        last = min(last, first + self.schedule.round_epochs)
        p = self.place.everywhere(self.state.parameters)
        optimiser = self.place.everywhere(self.state.optimiser)
        found: list[Parts] = []
        for epoch in range(first, last):
            for feed in self.feeds(epoch):
                # Steps run while the next rows are read, but rows must not pile up before them.
                module("jax").block_until_ready(found[-1:])
                p, optimiser, own = self.program.steps(
                    p, optimiser, feed, self.scaling, self.weights(), self.key
                )
                found.append(own)
        parts = self._in_units(np.mean([[float(v) for v in own] for own in found], axis=0))
        looked = self._look(p, parts)
        if np.isfinite(looked) and np.isfinite(parts.bound()) and _finite(p):
            self._keep(_numpy(p), _numpy(optimiser), parts, looked, last)
        else:
            self._undo()

    def feeds(self, epoch: int) -> Any:
        """The minibatches of an epoch, a chunk at a time; the same for the same seed."""
        s, streams = self.schedule, []
        for which, (rows, size) in enumerate(zip(self.data.sources, s.batch_rows, strict=True)):
            rng = np.random.default_rng([self.state.seed, 1 + which, epoch])
            streams.append(rows.epoch(rng, s.chunks, s.chunk_steps * size))
        for chunk, pieces in enumerate(zip(*streams, strict=True)):
            begin = epoch * s.epoch_steps + chunk * s.chunk_steps
            numbers = np.arange(begin, begin + s.chunk_steps)
            batches = tuple(
                self.data.units.standardised(piece).reshape(s.chunk_steps, size, -1)
                for piece, size in zip(pieces, s.batch_rows, strict=True)
            )
            rates = CUT**self.state.cuts * s.rates(numbers)
            yield Feed(
                self.place.batch(batches),
                *self.place.everywhere(
                    (
                        numbers.astype(np.uint32),
                        rates.astype(np.float32),
                        *(w.astype(np.float32) for w in s.warmth(numbers)),
                    )
                ),
            )

    def weights(self, rows: tuple[int, ...] | None = None) -> Weights:
        """Of batches, or of as many rows of each set."""
        sizes, rows = self.data.sizes, rows or self.schedule.batch_rows
        repeats = tuple(np.float32(n / b) for n, b in zip(sizes, rows, strict=True))
        total = sum(sizes) * self.data.sources[0].n_features
        return Weights(repeats, np.float32(self.plan.separation * sizes[0]), np.float32(total))

    def _look(self, p: Parameters, parts: Parts) -> float:
        """The objective on held-out rows, always with the same draws, nats a row."""
        total = sum(self.data.sizes)
        if self.data.held:
            weights = self.weights(tuple(len(h) for h in self.data.held))
            key = module("jax.random").fold_in(self.key, 2**31)
            parts = self._in_units(
                [float(v) for v in self.program.look(p, self.held, self.scaling, weights, key)]
            )
        return float(parts.bound() - self.plan.separation * self.data.sizes[0] * parts.leak) / total

    def _in_units(self, found: Any) -> Parts:
        """Parts on the scale of the data."""
        parts, (target, *background) = Parts(*found), self.data.log_units
        return parts._replace(
            target_reconstruction=parts.target_reconstruction - target,
            background_reconstruction=parts.background_reconstruction - sum(background),
        )

    def _keep(self, p: Parameters, optimiser: Any, parts: Parts, looked: float, epoch: int) -> None:
        s, step = self.state, np.array([epoch * self.schedule.epoch_steps - 1.0])
        target_weight = float(self.schedule.warmth(step)[0][0])
        better = looked > s.best_bound or not self.data.held
        row = {
            **parts._asdict(),
            "epoch": epoch,
            "bound": parts.bound(),
            "validation_bound": looked * sum(self.data.sizes) if self.data.held else np.nan,
            "learning_rate": CUT**s.cuts * float(self.schedule.rates(step)[0]),
            "target_kl_weight": target_weight,
        }
        self.state = State(
            parameters=p,
            optimiser=optimiser,
            best=p if better else s.best,
            best_bound=looked if better else s.best_bound,
            n_rounds=s.n_rounds + 1,
            idle=0 if better or target_weight < 1.0 else s.idle + 1,
            cuts=s.cuts,
            history={name: np.append(s.history[name], float(row[name])) for name in HISTORY},
            seed=s.seed,
            terms=s.terms,
        )

    def _undo(self) -> None:
        self.state = self.state._replace(cuts=self.state.cuts + 1)
        rate = CUT**self.state.cuts * self.plan.learning_rate
        what = (
            f"goes on from there with learning_rate={rate:.2g}"
            if not self.gave_up
            else "ends there; scale the data, or begin with a smaller learning_rate"
        )
        warnings.warn(
            f"training diverged after epoch {self.epochs_done}; the last good state is restored "
            f"and training {what}.",
            UserWarning,
            stacklevel=6,
        )

    def message(self) -> str:
        """Both parts of the bound, reconstruction and divergence, nats a row, for people."""
        h, n = self.state.history, sum(self.data.sizes)
        if not len(h["epoch"]):
            return ""
        at = {name: values[-1] / n for name, values in h.items()}
        reconstruction = at["target_reconstruction"] + at["background_reconstruction"]
        divergence = reconstruction - at["bound"]
        held = f", held out {at['validation_bound']:.5g}" if self.data.held else ""
        return f"bound {reconstruction:.5g} - {divergence:.4g}{held}"


def _numpy(tree: Any) -> Any:
    return module("jax").tree.map(np.asarray, tree)


def _finite(tree: Any) -> bool:
    leaves = module("jax").tree.leaves(tree)
    return all(bool(np.isfinite(np.asarray(leaf)).all()) for leaf in leaves)
