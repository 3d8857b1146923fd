"""What an autoencoder consists of: sizes, weights, and the constants of its data."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from contrastive_lvm._jax import JaxArrayLike
from contrastive_lvm.arrays import Array, Dense
from contrastive_lvm.likelihoods.base import Likelihood
from contrastive_lvm.vae.networks import Network, Weights

LikelihoodLogs = dict[str, JaxArrayLike]  # logarithms of positive parameters, by name


class NetworkWeights(NamedTuple):
    """Everything that training learns; a VAE has no networks for the shared latents."""

    background_encoder: Weights
    likelihood: LikelihoodLogs
    shared_decoder: Weights
    target_decoder: Weights
    target_encoder: Weights

    def encoder(self, of: str) -> Weights:
        """Return the weights of the encoder of a set."""
        return self.target_encoder if of == "target" else self.background_encoder


@dataclass(frozen=True)
class Architecture:
    """Sizes and kinds of the networks: everything that compiled functions depend on.

    Without shared dimensions it is a standard VAE of one set.
    """

    n_features: int
    n_target: int
    n_shared: int
    encoder: Network
    decoder: Network
    likelihood: Likelihood
    encodes_missing: bool  # encoders are told which entries are missing

    @property
    def network_sizes(self) -> dict[str, tuple[Network, int, int]]:
        """Each network with the numbers of its inputs and of its outputs."""
        n_inputs = self.n_features * (2 if self.encodes_missing else 1)
        both = self.n_target + self.n_shared
        sizes = {
            "target_encoder": (self.encoder, n_inputs, 2 * both),
            "target_decoder": (self.decoder, self.n_target, self.n_features),
        }
        if self.n_shared:
            sizes["background_encoder"] = (self.encoder, n_inputs, 2 * self.n_shared)
            sizes["shared_decoder"] = (self.decoder, self.n_shared, self.n_features)
        return sizes

    @property
    def initial_parameters(self) -> dict[str, Array]:
        """Positive parameters of the likelihood before training, by name."""
        return self.likelihood._network_parameters(self.n_features) or {}

    @property
    def has_noise(self) -> bool:
        """Whether features have units of their own and a noise variance in these units."""
        return "noise" in self.initial_parameters

    def initial_weights(self, rng: np.random.Generator) -> NetworkWeights:
        """Draw random networks; all variance is noise at first."""
        networks = {
            name: network.init(n_inputs, n_outputs, rng)
            for name, (network, n_inputs, n_outputs) in self.network_sizes.items()
        }
        logs: LikelihoodLogs = {
            name: np.log(value).astype(np.float32)
            for name, value in self.initial_parameters.items()
        }
        absent: dict[str, Weights] = {"background_encoder": (), "shared_decoder": ()}
        return NetworkWeights(**(absent | networks), likelihood=logs)


class FeatureUnits(NamedTuple):
    """Rows are standardised, `(x - shift) / unit`, before they become float32."""

    shift: Array  # (D,)
    unit: Array  # (D,) the same for all features under isotropic noise

    def standardize(self, rows: Dense) -> np.ndarray:
        """Standardise rows in place and return them in single precision."""
        rows -= self.shift.astype(rows.dtype)
        rows /= self.unit.astype(rows.dtype)
        return rows.astype(np.float32, copy=False)

    def restore(self, predictor: JaxArrayLike) -> Array:
        """Return a predictor on the scale of the data, in double precision."""
        restored: Array = self.shift + self.unit * np.asarray(predictor, dtype=np.float64)
        return restored


class NetworkConstants(NamedTuple):
    """Constants of the standardised data, float32."""

    target_mean: JaxArrayLike  # (D,) predictor of the mean row of the target
    background_mean: JaxArrayLike  # (D,)
    centre: JaxArrayLike  # (D,) of the encoders' inputs
    spread: JaxArrayLike  # (D,)
    profile: JaxArrayLike  # (D,) mean counts of features with size factors, zero elsewhere
    target_offset: JaxArrayLike  # (D,) what the outputs of a decoder are less, to be centred
    shared_offset: JaxArrayLike  # (D,)
