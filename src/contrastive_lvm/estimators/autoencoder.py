"""The common part of both autoencoders: validate, train, publish, and read rows to predict."""

import os
from abc import ABC, abstractmethod
from functools import partial
from itertools import zip_longest
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from contrastive_lvm.arrays import Array, Covariates, unnamed
from contrastive_lvm.black_box.devices import Placement, placement
from contrastive_lvm.checks import RandomState, check_choice, check_integer, check_number
from contrastive_lvm.estimators import parse_params
from contrastive_lvm.estimators.base_estimator import Estimator
from contrastive_lvm.estimators.covariates import (
    Encoding,
    Given,
    checked_encoding,
    encode_rows,
    encode_sets,
)
from contrastive_lvm.estimators.frames import RowNumbers, follows_output
from contrastive_lvm.estimators.input_rows import (
    check_latents,
    check_variances,
    mean_score,
    open_input,
    read_rows,
    refuse_unsupported,
    rows_for_fit,
)
from contrastive_lvm.estimators.network_checks import check_networks, check_outputs
from contrastive_lvm.estimators.units import scaling_of
from contrastive_lvm.exceptions import InvalidDataError, InvalidParameterError
from contrastive_lvm.io.model_files import SavedState
from contrastive_lvm.io.value_checks import array, check_values, flag, number, whole
from contrastive_lvm.likelihoods.base import Likelihood
from contrastive_lvm.progress import verbosity
from contrastive_lvm.rows.reader import LocalRows, RowReader, is_out_of_core
from contrastive_lvm.rows.scatter import Moments, first_pass
from contrastive_lvm.vae.architecture import Architecture
from contrastive_lvm.vae.fit_networks import NetworkFit, Resume, fit_networks
from contrastive_lvm.vae.networks import ACTIVATIONS, FullyConnected, Network
from contrastive_lvm.vae.trained_networks import DecoderInputs, TrainedNetworks
from contrastive_lvm.vae.training import HISTORY, TrainingPlan
from contrastive_lvm.vae.training_data import NetworkRows

SETS = ("target", "background")
NETWORK_STATE = ("weights", "units", "constants")
SIZES = {"n_target": whole(1), "n_shared": whole(), "encodes_missing": flag()}
LEARNED = {
    "lower_bound": number(),
    "lower_bound_error": number("not negative"),
    "n_iter": whole(),
    "converged": flag(),
}


class PreparedRows(NamedTuple):
    """The rows of a fit, checked, and where they are trained on."""

    sets: tuple[NetworkRows, ...]
    moments: tuple[Moments, ...]
    place: Placement


class Autoencoder(Estimator, ABC):
    """An estimator with networks, for one or two sets."""

    hidden_layer_sizes: Any
    activation: str
    encoder: Any
    decoder: Any
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
    random_state: RandomState
    verbose: bool
    network_: TrainedNetworks
    _encoding: Encoding | None = None  # of covariates

    # Parameters

    def _architecture(
        self, n_features: int, n_target: int, n_shared: int, *, encodes_missing: bool
    ) -> Architecture:
        widths = self.hidden_layer_sizes
        if isinstance(widths, int | str) or not hasattr(widths, "__iter__"):
            reason = "must list the widths of the hidden layers, such as (128, 256)."
            raise InvalidParameterError("hidden_layer_sizes", widths, reason)
        connected = FullyConnected(
            tuple(check_integer("hidden_layer_sizes", width, 1) for width in widths),
            check_choice("activation", self.activation, ACTIVATIONS),
        )
        return Architecture(
            n_features,
            n_target,
            n_shared,
            connected if self.encoder is None else _network("encoder", self.encoder),
            connected if self.decoder is None else _network("decoder", self.decoder),
            self._output(),
            encodes_missing,
            0 if self._encoding is None else len(self._encoding.columns),
        )

    def _output(self) -> Likelihood:
        likelihood: Likelihood = parse_params.likelihood(self.likelihood)
        if likelihood._network_parameters(1) is None:
            reason = (
                f"is not an output of {type(self).__name__}; use 'gaussian', 'bernoulli', "
                "'poisson' or 'negative_binomial', or ContrastiveLVM."
            )
            raise InvalidParameterError("likelihood", likelihood, reason)
        return likelihood

    def _plan(self, separation: float = 0.0) -> TrainingPlan:
        epochs, patience, fraction = self.max_epochs, self.patience, self.validation_fraction
        devices = self.n_devices
        if not isinstance(self.checkpoint, str | os.PathLike | None):
            raise InvalidParameterError("checkpoint", self.checkpoint, "must be a path or None.")
        check_integer("refine_steps", self.refine_steps, 0)
        return TrainingPlan(
            None if epochs is None else check_integer("max_epochs", epochs, 1),
            check_integer("batch_size", self.batch_size, 1),
            _positive("learning_rate", self.learning_rate),
            check_number("kl_warm_up", self.kl_warm_up, 0.0, 1.0, "a share of the epochs, 0 to 1"),
            _positive("clip", self.clip),
            None if patience is None else check_integer("patience", patience, 1),
            separation,
            check_number("validation_fraction", fraction, 0.0, 0.5, "a share of rows, 0 to 0.5"),
            self.checkpoint,
            None if devices is None else check_integer("n_devices", devices, 1),
        )

    # Rows

    def _read(self, X: Any, name: str, *, fit: bool = False) -> RowReader:
        """Check rows in memory; those out of core are checked while they are read."""
        check = partial(refuse_unsupported, self._output(), name)
        if fit:
            rows = rows_for_fit(self, X, name=name)
        elif is_out_of_core(unnamed(X)):
            if scaling_of(self) is not None:
                reason = "is out of core, but this model scales its rows; give them in memory."
                raise InvalidDataError(name, reason)
            rows = open_input(self, X, name)
        else:
            rows = read_rows(self, X, name=name)
        if isinstance(rows, RowReader):
            return rows.checked(check)
        check(rows)
        return LocalRows(rows)

    def _rows(
        self, X: Any, of: str = "target", covariates: Covariates = None
    ) -> tuple[TrainedNetworks, NetworkRows]:
        """Return the networks, and rows to apply them to."""
        check_is_fitted(self)
        check_choice("of", of, ("target", "background"))
        steps = check_integer("refine_steps", self.refine_steps, 0)
        reader = self._read(X, "X")
        rows = NetworkRows(reader, covariates=self._encoded(covariates, reader.shape[0]))
        return self.network_._replace(refine_steps=steps), rows

    def _encoded(self, covariates: Covariates, n_rows: int) -> Array | None:
        known = encode_rows(self._encoding, covariates, n_rows)
        return None if known is None else known.values

    # Fit

    def _fit(
        self,
        given: dict[str, Any],
        covariates: dict[str, Any],
        sizes: tuple[int, int],
        separation: float,
        resume: Resume,
    ) -> None:
        """Train on one or two sets, the target first, and publish the results.

        Rows and covariates of the sets are dicts by the names of their arguments.
        """
        readers = [self._read(X, name, fit=True) for name, X in given.items()]
        encoded: list[Array] = []
        self._encoding = None
        if any(own is not None for own in covariates.values()):
            known = [
                Given(name, own, reader.shape[0])
                for (name, own), reader in zip(covariates.items(), readers, strict=True)
            ]
            self._encoding, encoded = encode_sets(known, SETS, own=False)
        sets = tuple(
            NetworkRows(reader, covariates=own) for reader, own in zip_longest(readers, encoded)
        )
        plan = self._plan(separation)
        place = placement(plan.n_devices)
        self._architecture(1, *sizes, encodes_missing=False)  # refuse before rows are read
        moments = tuple(first_pass(rows.reader, scatter=False) for rows in sets)
        variances = [m.square / np.maximum(m.counts, 1.0) for m in moments]
        check_variances(np.sum(variances, axis=0), [m.mean for m in moments])
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        prepared = PreparedRows(sets, moments, place)
        with verbosity(enabled=self.verbose):
            fit = self._train(prepared, sizes, plan, seed, resume)
        self._publish(fit, sets)

    def _train(
        self,
        rows: PreparedRows,
        sizes: tuple[int, int],
        plan: TrainingPlan,
        seed: int,
        resume: Resume,
    ) -> NetworkFit:
        architecture = self._architecture_for(rows, sizes)
        return fit_networks(architecture, plan, *rows, seed, resume)

    def _architecture_for(self, rows: PreparedRows, sizes: tuple[int, int]) -> Architecture:
        missing = not all(m.complete for m in rows.moments)
        architecture = self._architecture(self.n_features_in_, *sizes, encodes_missing=missing)
        check_outputs(architecture)
        return architecture

    def _publish(self, fit: NetworkFit, rows: tuple[NetworkRows, ...]) -> None:
        self.state_ = fit.state
        self._publish_networks(fit.networks, fit.state.history)
        self.lower_bound_, self.lower_bound_error_ = fit.lower_bound, fit.lower_bound_error
        self.n_iter_, self.converged_ = fit.n_epochs, fit.converged
        self.n_samples_ = rows[0].n_rows
        if len(rows) > 1:
            self.n_background_samples_ = rows[1].n_rows

    def _publish_networks(self, networks: TrainedNetworks, history: dict[str, Array]) -> None:
        self.network_, self.history_ = networks, history
        self.lower_bounds_ = history["bound"]
        self.mean_ = networks.units.restore(networks.constants.target_mean)
        learned, nuisance = networks.weights.likelihood, networks.nuisance
        one = np.ndim(learned.get("noise", 0.0)) == 0
        self.noise_variance_ = float(nuisance.noise[0]) if one else nuisance.noise
        self.dispersion_ = nuisance.dispersion if "dispersion" in learned else None

    # Files

    def _fitted_state(self) -> SavedState:
        networks = self.network_
        return {
            "n_target": networks.architecture.n_target,
            "n_shared": networks.architecture.n_shared,
            "encodes_missing": networks.architecture.encodes_missing,
            **{name: getattr(networks, name) for name in NETWORK_STATE},
            **({} if self._encoding is None else {"covariates": self._encoding}),
            "history": self.history_,
            **{name: getattr(self, f"{name}_") for name in LEARNED},
        }

    def _check_state(self, state: SavedState) -> None:
        check_values({**LEARNED, **SIZES}, state)
        self._encoding = checked_encoding(state.get("covariates"))
        check_values({name: array("epochs", values="any") for name in HISTORY}, state["history"])
        architecture = self._saved_architecture(state)
        check_networks(architecture, *(state[name] for name in NETWORK_STATE))
        self._plan()

    def _saved_architecture(self, state: SavedState) -> Architecture:
        missing, sizes = state["encodes_missing"], (state["n_target"], state["n_shared"])
        return self._architecture(self.n_features_in_, *sizes, encodes_missing=missing)

    def _restore(self, state: SavedState) -> None:
        self._encoding = checked_encoding(state.get("covariates"))
        arrays = (state[name] for name in NETWORK_STATE)
        networks = TrainedNetworks(self._saved_architecture(state), *arrays)
        self._publish_networks(networks, state["history"])
        for name in LEARNED:
            setattr(self, f"{name}_", state[name])

    # Predictions

    @property
    def _n_features_out(self) -> int:
        return self.network_.architecture.n_target

    def transform(self, X: Any, *, covariates: Covariates = None) -> Array:
        """Return the posterior mean of the target latents of rows, (n, n_target).

        Parameters
        ----------
        X : array-like, memory map, sparse matrix or Dask array of shape (n, d)
        covariates : optional, as in `fit`
        """
        networks, rows = self._rows(X, covariates=covariates)
        return networks.latents(rows, "target")[0][:, : self._n_features_out]

    @follows_output
    def inverse_transform(self, T: ArrayLike) -> Array:
        """Return features from target latents: the expected row at `mean_ + f_t(t)`.

        If a VAE was fitted with covariates, these are average.

        Parameters
        ----------
        T : array-like of shape (n, n_target)
        """
        check_is_fitted(self)
        given = check_latents(T, self._n_features_out)
        return self.network_.expected_rows(DecoderInputs(len(given), given, None), "target")

    def score(
        self,
        X: Any,
        y: object = None,
        sample_weight: RowNumbers = None,
        *,
        covariates: Covariates = None,
    ) -> float:
        """Return the (weighted) mean of `score_samples`."""
        return mean_score(self.score_samples(X, covariates=covariates), sample_weight)

    @abstractmethod
    def score_samples(self, X: Any, *, covariates: Covariates = None) -> Array:
        """Return a lower bound on the log-likelihood of each row."""


def _network(name: str, value: Any) -> Network:
    """Check a network that the user has written, and return it."""
    if not isinstance(value, Network) or isinstance(value, type):
        reason = "must have the methods init(n_inputs, n_outputs, rng) and apply(weights, inputs)."
        raise InvalidParameterError(name, value, reason)
    try:
        hash(value)
    except TypeError as error:
        reason = "cannot be hashed; make it a frozen dataclass of tuples and numbers."
        raise InvalidParameterError(name, value, reason) from error
    return value


def _positive(name: str, value: Any) -> float:
    single = np.finfo(np.float32)
    return check_number(name, value, float(single.tiny), float(single.max), "a positive number")
