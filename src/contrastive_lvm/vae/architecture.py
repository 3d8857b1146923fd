"""The parts of an autoencoder, and the model that it describes.

Rows of the target follow `x = f_s(z) + f_t(t) + mean_x + noise`, rows of the background
`y = f_s(z) + mean_y + noise`, with standard normal latents and networks `f_s` and `f_t`. Two more
networks give Gaussian posteriors, `q(z, t | x)` and `q(z | y)`, with diagonal covariances. For
counts and binary data the sum of the decoders is the linear predictor.

Covariates c that were given with the rows, such as their batch, are inputs of the encoders and of
the decoder that describes all rows: `f_s(z, c)`, or `f(t, c)` of a VAE. `f_t` does not see them, so
that covariates have the same effect in both sets. In this package rows have their covariates in the
columns after their features.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from contrastive_lvm._jax import JaxArray, JaxArrayLike, jax, jnp
from contrastive_lvm.arrays import Array, Dense
from contrastive_lvm.likelihoods.base import FLOOR, Likelihood
from contrastive_lvm.vae.networks import Network, Weights

LOG_STD = (-10.0, 5.0)  # of posteriors; rows far from the training data must not overflow
LEAST_LOG_NOISE = float(np.log(FLOOR))
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
    n_covariates: int = 0

    @property
    def network_sizes(self) -> dict[str, tuple[Network, int, int]]:
        """Each network with the numbers of its inputs and of its outputs."""
        n_inputs = self.n_features * (2 if self.encodes_missing else 1) + self.n_covariates
        both, D = self.n_target + self.n_shared, self.n_features
        sizes = {"target_encoder": (self.encoder, n_inputs, 2 * both)}
        if self.n_shared == 0:
            sizes["target_decoder"] = (self.decoder, self.n_target + self.n_covariates, D)
            return sizes
        sizes["target_decoder"] = (self.decoder, self.n_target, D)
        sizes["background_encoder"] = (self.encoder, n_inputs, 2 * self.n_shared)
        sizes["shared_decoder"] = (self.decoder, self.n_shared + self.n_covariates, D)
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
        """Standardise the features of rows in place; return the rows in single precision."""
        D = len(self.shift)
        rows[:, :D] -= self.shift.astype(rows.dtype)
        rows[:, :D] /= self.unit.astype(rows.dtype)
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
    target_offset: JaxArrayLike  # (D,) subtracted from the outputs of a decoder
    shared_offset: JaxArrayLike  # (D,)


class DiagonalGaussian(NamedTuple):
    """Posteriors of the latents of rows."""

    mean: JaxArray  # (B, K)
    log_std: JaxArray  # (B, K)

    def draw(self, key: JaxArray) -> JaxArray:
        """Return one reparameterised draw per row."""
        noise = jax.random.normal(key, self.mean.shape, self.mean.dtype)
        return self.mean + jnp.exp(self.log_std) * noise

    def divergence(self) -> JaxArray:
        """Return the Kullback-Leibler divergence from the standard normal, (B,)."""
        variance = jnp.exp(2.0 * self.log_std)
        terms: JaxArray = self.mean**2 + variance - 1.0 - 2.0 * self.log_std
        return 0.5 * terms.sum(axis=-1)

    def split(self, k: int) -> tuple["DiagonalGaussian", "DiagonalGaussian"]:
        """Return the first k dimensions, and the others."""
        mean, log_std = self
        first = DiagonalGaussian(mean[..., :k], log_std[..., :k])
        return first, DiagonalGaussian(mean[..., k:], log_std[..., k:])


class NetworkModel(NamedTuple):
    """Networks with their weights and the constants of their data."""

    architecture: Architecture
    weights: NetworkWeights
    constants: NetworkConstants

    def split(self, rows: JaxArrayLike) -> tuple[JaxArrayLike, JaxArrayLike]:
        """Return the features of rows, and their covariates."""
        return rows[:, : self.architecture.n_features], rows[:, self.architecture.n_features :]

    def log_sizes(self, rows: JaxArrayLike) -> JaxArray:
        """Return the log of each row's total over that of an average row, (B, 1)."""
        rows, profile = self.split(rows)[0], self.constants.profile
        expected = jnp.where(jnp.isnan(rows), 0.0, profile).sum(axis=1, keepdims=True)
        total = jnp.where(profile > 0, jnp.nan_to_num(rows), 0.0).sum(axis=1, keepdims=True)
        ratio = jnp.maximum(total, 0.5) / jnp.maximum(expected, 1e-30)
        return jnp.where(expected > 0, jnp.log(ratio), 0.0)

    def encoder_inputs(self, rows: JaxArrayLike) -> JaxArray:
        """Return standardised values (of counts, logarithms), missing entries, and covariates."""
        value, covariates = self.split(rows)
        missing = jnp.isnan(value)
        if not self.architecture.has_noise:
            value = value * jnp.exp(-self.log_sizes(rows))
            value = jnp.sign(value) * jnp.log1p(jnp.abs(value))
        scaled = (value - self.constants.centre) / self.constants.spread
        inputs: JaxArray = jnp.where(missing, 0.0, scaled)
        if self.architecture.encodes_missing:
            inputs = jnp.concatenate([inputs, missing.astype(inputs.dtype)], axis=1)
        return jnp.concatenate([inputs, covariates], axis=1) if covariates.shape[1] else inputs

    def encode(self, rows: JaxArrayLike, of: str) -> DiagonalGaussian:
        """Return the posterior of the latents of rows of a set, target dimensions first."""
        encoder = self.architecture.encoder
        outputs = encoder.apply(self.weights.encoder(of), self.encoder_inputs(rows))
        mean, log_std = jnp.split(outputs, 2, axis=-1)
        return DiagonalGaussian(mean, jnp.clip(log_std, *LOG_STD))

    def predictor(
        self, t: JaxArray | None, z: JaxArray | None, covariates: JaxArrayLike, of: str
    ) -> JaxArray:
        """Return the mean of a set plus the decoded latents; None leaves a part out."""
        c, decoder, w = self.constants, self.architecture.decoder, self.weights
        mean = c.target_mean if of == "target" else c.background_mean
        total: JaxArray = jnp.asarray(mean)
        shared = self.architecture.n_shared > 0
        if t is not None:
            if covariates.shape[1] and not shared:
                t = jnp.concatenate([t, covariates], axis=1)
            total = total + decoder.apply(w.target_decoder, t) - c.target_offset
        if z is not None and shared:
            if covariates.shape[1]:
                z = jnp.concatenate([z, covariates], axis=1)
            total = total + decoder.apply(w.shared_decoder, z) - c.shared_offset
        return total

    def decode(self, h: JaxArray, covariates: JaxArrayLike, of: str) -> JaxArray:
        """Return the predictor at all latents of rows, target dimensions first."""
        k = self.architecture.n_target if of == "target" else 0
        return self.predictor(h[..., :k] if k else None, h[..., k:], covariates, of)

    def information_unit(self, log_floor: JaxArrayLike | float = LEAST_LOG_NOISE) -> JaxArray:
        """Return the cost of a row, in nats, if none of its variance is explained.

        Rows have unit variance, so that it is `D / (2 noise)`, with the noise that the likelihood
        has at present. It weighs a penalty against the lower bound, whatever the number of
        features and the noise, and is not differentiated.
        """
        log_noise = self.weights.likelihood.get("noise", 0.0)
        level = jnp.maximum(jnp.asarray(log_noise), log_floor).mean()
        return jax.lax.stop_gradient(0.5 * self.architecture.n_features * jnp.exp(-level))

    def log_likelihood(
        self, rows: JaxArrayLike, eta: JaxArray, log_floor: JaxArrayLike | float = LEAST_LOG_NOISE
    ) -> JaxArray:
        """Return the log-likelihood of each row's observed entries at its predictors, (..., B).

        The floor keeps the noise variance up. Where there is no noise, a floor above 1 divides the
        log-likelihood instead, which has the same effect on signals that are large compared with
        the noise.
        """
        likelihood, x = self.architecture.likelihood, self.split(rows)[0]
        sized = likelihood._sized_features(self.architecture.n_features)
        if sized.any():
            eta = eta + jnp.where(sized, self.log_sizes(rows), 0.0)
        observed, logs = ~jnp.isnan(x), dict(self.weights.likelihood)
        if "noise" in logs:
            logs["noise"] = jnp.maximum(logs["noise"], log_floor)
        parameters = {name: jnp.exp(value) for name, value in logs.items()}
        density = likelihood.log_density(jnp.where(observed, x, 0.0), eta, parameters)
        total: JaxArray = jnp.where(observed, density, 0.0).sum(axis=-1)
        return total if "noise" in logs else total * jnp.exp(-jnp.maximum(log_floor, 0.0))
