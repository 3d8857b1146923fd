"""The model that the networks describe, as compiled functions compute it.

Rows of the target follow `x = f_s(z) + f_t(t) + mean_x + noise`, rows of the background
`y = f_s(z) + mean_y + noise`, with standard normal latents and networks `f_s` and `f_t`. Two more
networks give Gaussian posteriors, `q(z, t | x)` and `q(z | y)`, with diagonal covariances. For
counts and binary data the sum of the decoders is the linear predictor.
"""

from typing import NamedTuple

import numpy as np

from contrastive_lvm._jax import JaxArray, JaxArrayLike, jax, jnp
from contrastive_lvm.likelihoods.base import FLOOR
from contrastive_lvm.vae.architecture import Architecture, NetworkConstants, NetworkWeights

LOG_STD = (-10.0, 5.0)  # of posteriors; rows far from the training data must not overflow
LEAST_LOG_NOISE = float(np.log(FLOOR))


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

    def log_sizes(self, rows: JaxArrayLike) -> JaxArray:
        """Return the log of each row's total over that of an average row, (B, 1)."""
        profile = self.constants.profile
        expected = jnp.where(jnp.isnan(rows), 0.0, profile).sum(axis=1, keepdims=True)
        total = jnp.where(profile > 0, jnp.nan_to_num(rows), 0.0).sum(axis=1, keepdims=True)
        ratio = jnp.maximum(total, 0.5) / jnp.maximum(expected, 1e-30)
        return jnp.where(expected > 0, jnp.log(ratio), 0.0)

    def encoder_inputs(self, rows: JaxArrayLike) -> JaxArray:
        """Return standardised values (logarithms of counts), and which entries are missing."""
        missing, value = jnp.isnan(rows), rows
        if not self.architecture.has_noise:
            value = rows * jnp.exp(-self.log_sizes(rows))
            value = jnp.sign(value) * jnp.log1p(jnp.abs(value))
        scaled = (value - self.constants.centre) / self.constants.spread
        inputs: JaxArray = jnp.where(missing, 0.0, scaled)
        if self.architecture.encodes_missing:
            inputs = jnp.concatenate([inputs, missing.astype(inputs.dtype)], axis=1)
        return inputs

    def encode(self, rows: JaxArrayLike, of: str) -> DiagonalGaussian:
        """Return the posterior of the latents of rows of a set, target dimensions first."""
        encoder = self.architecture.encoder
        outputs = encoder.apply(self.weights.encoder(of), self.encoder_inputs(rows))
        mean, log_std = jnp.split(outputs, 2, axis=-1)
        return DiagonalGaussian(mean, jnp.clip(log_std, *LOG_STD))

    def predictor(self, t: JaxArray | None, z: JaxArray | None, of: str) -> JaxArray:
        """Return the mean of a set plus the decoded latents; None leaves a part out."""
        c, decoder, w = self.constants, self.architecture.decoder, self.weights
        mean = c.target_mean if of == "target" else c.background_mean
        total: JaxArray = jnp.asarray(mean)
        if t is not None:
            total = total + decoder.apply(w.target_decoder, t) - c.target_offset
        if z is not None and self.architecture.n_shared:
            total = total + decoder.apply(w.shared_decoder, z) - c.shared_offset
        return total

    def decode(self, h: JaxArray, of: str) -> JaxArray:
        """Return the predictor at all latents of rows, target dimensions first."""
        k = self.architecture.n_target if of == "target" else 0
        return self.predictor(h[..., :k] if k else None, h[..., k:], of)

    def information_unit(self, log_floor: JaxArrayLike | float = LEAST_LOG_NOISE) -> JaxArray:
        """Return what a row costs, in nats, if none of its variance is explained.

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
        log-likelihood instead, which is the same to what is large against the noise.
        """
        likelihood = self.architecture.likelihood
        sized = likelihood._sized_features(self.architecture.n_features)
        if sized.any():
            eta = eta + jnp.where(sized, self.log_sizes(rows), 0.0)
        observed, logs = ~jnp.isnan(rows), dict(self.weights.likelihood)
        if "noise" in logs:
            logs["noise"] = jnp.maximum(logs["noise"], log_floor)
        parameters = {name: jnp.exp(value) for name, value in logs.items()}
        density = likelihood.log_density(jnp.where(observed, rows, 0.0), eta, parameters)
        total: JaxArray = jnp.where(observed, density, 0.0).sum(axis=-1)
        return total if "noise" in logs else total * jnp.exp(-jnp.maximum(log_floor, 0.0))
