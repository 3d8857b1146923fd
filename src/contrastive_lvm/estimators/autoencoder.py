"""What both autoencoders share: reading rows, training, and applying the networks."""

import logging
import os
import warnings
from abc import ABC, abstractmethod
from typing import Any

import numpy as np
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from contrastive_lvm.arrays import Array
from contrastive_lvm.black_box.devices import placement
from contrastive_lvm.checks import check_choice, check_integer, check_number
from contrastive_lvm.estimators import parse_params as resolve
from contrastive_lvm.estimators.base_estimator import Estimator
from contrastive_lvm.estimators.frames import unnamed
from contrastive_lvm.estimators.input_rows import check_features, read_rows
from contrastive_lvm.estimators.network_checks import check_networks
from contrastive_lvm.estimators.validation import refuse_constant, refuse_values
from contrastive_lvm.exceptions import InvalidDataError
from contrastive_lvm.io.value_checks import array, check_values, flag, number, whole
from contrastive_lvm.likelihoods.bernoulli import Bernoulli
from contrastive_lvm.likelihoods.gaussian import Gaussian
from contrastive_lvm.likelihoods.negative_binomial import NegativeBinomial
from contrastive_lvm.likelihoods.poisson import Poisson
from contrastive_lvm.linalg.matrices import widen
from contrastive_lvm.progress import progress, verbosity
from contrastive_lvm.rows.size_factors import log_sizes
from contrastive_lvm.vae.checkpoints import read_seed, read_state, write_state
from contrastive_lvm.vae.design import Design
from contrastive_lvm.vae.fitted_networks import Fitted
from contrastive_lvm.vae.networks import ACTIVATIONS
from contrastive_lvm.vae.training import HISTORY, Plan, State, Training
from contrastive_lvm.vae.vae_rows import Moments, Source, in_blocks, moments, source
from contrastive_lvm.vae.vae_scaling import prepared

logger = logging.getLogger(__name__)
Output = Gaussian | Bernoulli | Poisson | NegativeBinomial
NETWORK_STATE = ("networks", "units", "scaling")
LEARNED = {
    "lower_bound": number(),
    "lower_bound_error": number("not negative"),
    "n_iter": whole(),
    "converged": flag(),
}


class Autoencoder(Estimator, ABC):
    """Training and predictions of a network with one or two sets."""

    hidden: Any
    activation: str
    likelihood: Any
    learning_rate: float
    batch_size: int
    max_epochs: int | None
    kl_warm_up: float
    clip: float
    validation_fraction: float
    patience: int | None
    checkpoint: Any
    refine_steps: int
    n_devices: int | None
    random_state: Any
    verbose: bool
    network_: Fitted

    def _design(self, n_features: int, n_target: int, n_shared: int, *, gaps: bool) -> Design:
        hidden = self.hidden
        if isinstance(hidden, int | str) or not hasattr(hidden, "__iter__"):
            raise TypeError(f"hidden={hidden!r} must list the widths of hidden layers: (128, 256).")
        return Design(
            n_features,
            n_target,
            n_shared,
            tuple(check_integer("hidden", width, 1) for width in hidden),
            check_choice("activation", self.activation, ACTIVATIONS),
            self._output(),
            gaps,
        )

    def _output(self) -> Any:
        likelihood = resolve.likelihood(self.likelihood)
        if not isinstance(likelihood, Output):
            raise TypeError(
                f"likelihood={likelihood!r} is not an output of {type(self).__name__}; use "
                "'gaussian', 'bernoulli', 'poisson' or 'negative_binomial', or ContrastiveLVM."
            )
        return likelihood

    def _plan(self, separation: float) -> Plan:
        epochs, patience = self.max_epochs, self.patience
        return Plan(
            None if epochs is None else check_integer("max_epochs", epochs, 1),
            check_integer("batch_size", self.batch_size, 1),
            _positive("learning_rate", self.learning_rate),
            check_number("kl_warm_up", self.kl_warm_up, 0.0, 1.0, "a share of the epochs, 0 to 1"),
            _positive("clip", self.clip),
            None if patience is None else check_integer("patience", patience, 1),
            separation,
        )

    def _source(self, X: Any, name: str, *, reset: bool = False) -> Source:
        """Rows, checked; those that are read by blocks are checked when they are read."""
        if not in_blocks(unnamed(X)):
            return source(read_rows(self, X, name=name, reset=reset))
        rows = source(unnamed(X), name)
        check_features(self, X, name, reset=reset)
        return rows

    def _rows(self, X: Any, of: str = "target") -> tuple[Fitted, Source]:
        """Rows to apply the networks to."""
        check_is_fitted(self)
        check_choice("of", of, ("target", "background"))
        rows = self._source(X, "X")
        if in_blocks(X) or not isinstance(self._output(), Gaussian):
            for block in rows.blocks():
                self._check(block, "X")
        steps = check_integer("refine_steps", self.refine_steps, 0)
        return self.network_._replace(refine_steps=steps), rows

    def _check(self, block: Array, name: str) -> None:
        """Refuse values that are none."""
        refuse_values(block, name)
        reason = self._output()._unsupported_reason(block)
        if reason is not None:
            raise InvalidDataError(name, f"holds {reason}.")

    def _moments(self, rows: Source, name: str) -> Moments:
        if rows.n_rows < 2:
            raise ValueError(
                f"{name} has {rows.n_rows} sample(s), but fitting needs at least 2; add rows."
            )
        found = moments(rows, lambda block: self._check(block, name))
        empty = np.flatnonzero(found.count == 0)
        if len(empty):
            raise ValueError(
                f"{name} has no observed entry in columns {empty[:3].tolist()}; drop these columns "
                "from both sets."
            )
        return found

    def _train(
        self, sets: dict[str, Source], n_target: int, n_shared: int, separation: float, resume: Any
    ) -> None:
        """Train on one or two sets, the target first, and name the results."""
        plan = self._plan(separation)
        fraction = self._fraction()
        self._design(1, n_target, n_shared, gaps=False)  # refuse bad words before reading rows
        check_integer("refine_steps", self.refine_steps, 0)
        devices = self.n_devices
        place = placement(None if devices is None else check_integer("n_devices", devices, 1))
        found = tuple(self._moments(rows, name) for name, rows in sets.items())
        refuse_constant(sum(m.variance for m in found), max(np.abs(m.mean).max() for m in found))
        rows = tuple(sets.values())
        gaps = any((m.count < r.n_rows).any() for m, r in zip(found, rows, strict=True))
        design = self._design(self.n_features_in_, n_target, n_shared, gaps=gaps)
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        if resume is not None:
            seed = resume.seed if isinstance(resume, State) else read_seed(resume)
        data = prepared(design, rows, found, fraction, np.random.default_rng([seed, 1]))
        training = Training(design, plan, data, place, seed)
        if resume is not None:
            known = isinstance(resume, State)
            training.resume(resume if known else read_state(resume, training.state))
        with verbosity(enabled=self.verbose):
            finished = self._run(training)
        fitted = Fitted(design, training.state.best, data.units, data.scaling)
        self.state_ = training.state
        self._publish(fitted.centred(*rows), training.state.history)
        bounds = [
            self.network_.bound(r, of, training.state.seed)
            for r, of in zip(rows, ("target", "background"), strict=False)
        ]
        self.lower_bound_ = sum(value for value, _ in bounds)
        self.lower_bound_error_ = float(np.sqrt(sum(variance for _, variance in bounds)))
        self.n_iter_, self.converged_ = training.epochs_done, finished
        self.n_samples_ = rows[0].n_rows
        if len(rows) > 1:
            self.n_background_samples_ = rows[1].n_rows

    def _run(self, training: Training) -> bool:
        """Round by round; whether it came to its end."""
        name, total = type(self).__name__, training.schedule.epochs
        try:
            with progress(name, total, logger, unit="epoch") as advance:
                while training.goes_on:
                    before = training.epochs_done
                    training.round()
                    if self.checkpoint is not None and training.state.n_rounds:
                        write_state(self.checkpoint, training.state)
                    advance(training.epochs_done - before, training.message())
        except KeyboardInterrupt:
            if training.state.n_rounds == 0:
                raise
            warnings.warn(
                f"interrupted after epoch {training.epochs_done}; the best state so far is kept, "
                "and fit(..., resume=model.state_) goes on from the last.",
                UserWarning,
                stacklevel=4,
            )
            return False
        return not training.gave_up

    def _fitted_state(self) -> dict[str, Any]:
        fitted = self.network_
        return {
            "n_target": fitted.design.n_target,
            "n_shared": fitted.design.n_shared,
            "sees_missing": fitted.design.gaps,
            "networks": fitted.parameters,
            "units": fitted.units,
            "scaling": fitted.scaling,
            "history": self.history_,
            **{name: getattr(self, f"{name}_") for name in LEARNED},
        }

    def _check_state(self, state: dict[str, Any]) -> None:
        check_values({**LEARNED, "n_target": whole(1), "n_shared": whole()}, state)
        check_values({"sees_missing": flag()}, state)
        check_values({name: array("rounds", values="any") for name in HISTORY}, state["history"])
        check_networks(self._saved_design(state), *(state[name] for name in NETWORK_STATE))
        self._plan(0.0)
        self._fraction()
        check_integer("refine_steps", self.refine_steps, 0)
        if self.n_devices is not None:
            check_integer("n_devices", self.n_devices, 1)
        if not isinstance(self.checkpoint, str | os.PathLike | None):
            raise TypeError(f"checkpoint={self.checkpoint!r} must be a path or None.")

    def _saved_design(self, state: dict[str, Any]) -> Design:
        sizes = state["n_target"], state["n_shared"]
        return self._design(self.n_features_in_, *sizes, gaps=state["sees_missing"])

    def _restore(self, state: dict[str, Any]) -> None:
        fitted = Fitted(self._saved_design(state), *(state[name] for name in NETWORK_STATE))
        self._publish(fitted, state["history"])
        for name in LEARNED:
            setattr(self, f"{name}_", state[name])

    def _fraction(self) -> float:
        return check_number(
            "validation_fraction", self.validation_fraction, 0.0, 0.5, "a share of rows, 0 to 0.5"
        )

    def _decoded(
        self, t: Array | None, z: Array | None, n: int, of: str, sizes: Any = 0.0
    ) -> Array:
        """Expected rows of the parts that are given."""
        fitted = self.network_
        eta = fitted.predictor(n, t, z, of) + sizes
        law = fitted.design.likelihood.response(eta, np.zeros_like(eta), fitted.nuisance)
        expected: Array = law[0]
        return expected

    def _sizes(self, rows: Source) -> Any:
        """Log size factors of rows of counts, (N, D); 0 for other data."""
        profile = np.asarray(self.network_.scaling.profile, dtype=np.float64)
        if not profile.any():
            return 0.0
        found = np.concatenate([log_sizes(block, profile) for block in rows.blocks()])
        return np.where(profile > 0, found[:, None], 0.0)

    def _filled(self, X: Any, of: str, draws: int) -> tuple[Array, Array]:
        """Rows whose NaN are replaced, and the standard deviations of what replaced them."""
        fitted, rows = self._rows(X, of)
        sizes, begin = self._sizes(rows), 0
        values = np.concatenate([widen(block) for block in rows.blocks()])
        gaps, std = np.isnan(values), np.zeros(values.shape)
        for mean, variance in fitted.filled(rows, of, 0, draws):
            at = slice(begin, begin + len(mean))
            own = sizes[at] if isinstance(sizes, np.ndarray) else 0.0
            law = fitted.design.likelihood.response(mean + own, variance, fitted.nuisance)
            values[at] = np.where(gaps[at], law[0], values[at])
            std[at] = np.where(gaps[at], np.sqrt(law[1]), 0.0)
            begin = at.stop
        return values, std

    def _drawn(
        self, t: Array | None, z: Array | None, n: int, of: str, rng: np.random.RandomState
    ) -> Array:
        """New rows at given latents."""
        fitted = self.network_
        eta = fitted.predictor(n, t, z, of)
        drawn: Array = fitted.design.likelihood.draw(eta, fitted.nuisance, rng)
        return drawn

    def _latents_given(self, T: Any, k: int) -> Array:
        check_is_fitted(self)
        given: Array = np.asarray(T, dtype=np.float64)
        if given.ndim != 2 or given.shape[1] != k or not np.isfinite(given).all():
            raise ValueError(
                f"T has shape {given.shape}, but needs finite numbers in one column for each of "
                f"the {k} dimensions; pass what transform returns."
            )
        return given

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Mean (or weighted mean) of `score_samples`."""
        return float(np.average(self.score_samples(X), weights=sample_weight))

    @abstractmethod
    def score_samples(self, X: Any) -> Array:
        """Of each row; the estimators say more."""

    def _publish(self, fitted: Fitted, history: dict[str, Array]) -> None:
        """Name the results."""
        self.network_, self.history_ = fitted, history
        self.lower_bounds_ = history["bound"]
        self.mean_ = fitted.units.restored(fitted.scaling.target_mean)
        noise = fitted.nuisance
        one = getattr(fitted.design.likelihood, "isotropic", True)
        self.noise_variance_ = float(noise.noise[0]) if one else noise.noise
        self.dispersion_ = noise.dispersion if noise.dispersion.any() else None


def _positive(name: str, value: Any) -> float:
    single = np.finfo(np.float32)
    return check_number(name, value, float(single.tiny), float(single.max), "a positive number")
