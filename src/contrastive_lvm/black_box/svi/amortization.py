"""Encoders: the latents of all rows of a set from one network, and what it sees of rows."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from contrastive_lvm._jax import AnyArray, JaxArray, jnp
from contrastive_lvm.arrays import Array
from contrastive_lvm.black_box.svi.row_gaussians import RowGaussians
from contrastive_lvm.likelihoods.base import Likelihood

HIDDEN_UNITS = 128
ENCODER_UNIT = 0.05  # of its weights: many add up, so each moves less than a single value
RIDGE = 1e-2  # per row, of the regression that an encoder begins with

# (rows, log sizes, centre, spread) -> what an encoder sees
RowFeatures = Callable[[AnyArray, AnyArray, AnyArray, AnyArray], JaxArray]


class LatentEncoder(NamedTuple):
    """Weights of a network with one hidden layer beside a linear map, in units of 0.05."""

    linear: AnyArray  # (F + 1, outputs)
    first: AnyArray  # (F + 1, hidden units)
    second: AnyArray  # (hidden units, outputs)


def row_features(likelihood: Likelihood, n_features: int, *, missing: bool) -> RowFeatures:
    """Return a function of rows: standardised values, logarithms of counts, and what is missing."""
    scaled = likelihood._is_on_data_scale(n_features)
    sized = likelihood._sized_features(n_features)

    def features(x: AnyArray, log_sizes: AnyArray, centre: AnyArray, spread: AnyArray) -> JaxArray:
        absent = jnp.isnan(x)
        shrunk = jnp.where(scaled, 0.0, x) * jnp.exp(-jnp.where(sized, log_sizes[:, None], 0.0))
        value = (jnp.where(scaled, x, jnp.log1p(shrunk)) - centre) / spread
        value = jnp.where(absent, 0.0, value).astype(x.dtype)
        return jnp.concatenate([value, absent.astype(x.dtype)], axis=1) if missing else value

    return features


def initial_encoder(
    inputs: Array, latents: Array, std: Array, rng: np.random.Generator, *, correlated: bool
) -> LatentEncoder:
    """Return an encoder that begins as the ridge regression of the latents on the inputs."""
    F, K = inputs.shape[1], latents.shape[1]
    n_out = 2 * K + (K * (K - 1) // 2 if correlated else 0)
    extended = np.column_stack([inputs, np.ones(len(inputs))])
    gram = extended.T @ extended + RIDGE * len(inputs) * np.eye(F + 1)
    linear = np.zeros((F + 1, n_out))
    linear[:, :K] = np.linalg.solve(gram, extended.T @ latents)
    linear[-1, K : 2 * K] = np.log(std)
    first = rng.standard_normal((F + 1, HIDDEN_UNITS)) * np.sqrt(2.0 / (F + 1))
    second = np.zeros((HIDDEN_UNITS, n_out))
    return LatentEncoder(linear / ENCODER_UNIT, first / ENCODER_UNIT, second)


def encode(encoder: LatentEncoder, inputs: JaxArray, n_latents: int) -> RowGaussians:
    """Return the distributions of the latents of rows, from what an encoder sees of them."""
    K = n_latents
    inputs = jnp.concatenate([inputs, jnp.ones((len(inputs), 1), inputs.dtype)], axis=1)
    linear, first, second = (ENCODER_UNIT * weights for weights in encoder)
    out = inputs @ linear + jnp.maximum(inputs @ first, 0.0) @ second
    root = out[:, 2 * K :] if out.shape[1] > 2 * K else None
    return RowGaussians(out[:, :K], out[:, K : 2 * K], root)
