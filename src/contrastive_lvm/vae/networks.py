"""Fully connected networks, as plain functions of their weights."""

from itertools import pairwise
from typing import NamedTuple

import numpy as np

from contrastive_lvm._jax import JaxArray, JaxArrayLike, jax, jnp

ACTIVATIONS = ("relu", "elu", "gelu", "softplus", "tanh")
FIRST_OUTPUT = 0.1  # standard deviation of the outputs before training


class Layer(NamedTuple):
    """`h -> h @ weights + bias`."""

    weights: JaxArrayLike  # (I, O)
    bias: JaxArrayLike  # (O,)


Network = tuple[Layer, ...]


def initial_network(sizes: tuple[int, ...], rng: np.random.Generator) -> Network:
    """Draw weights that keep the variance of what passes through rectified layers.

    `N(0, 2 / I)` for hidden layers (He et al. 2015, eq. 10). The last layer starts small: decoders
    at the mean, encoders at the prior. NumPy draws them, since JAX would compile once per shape.
    """
    layers = []
    for i, (inputs, outputs) in enumerate(pairwise(sizes)):
        gain = FIRST_OUTPUT**2 if i == len(sizes) - 2 else 2.0
        weights = rng.standard_normal((inputs, outputs)) * np.sqrt(gain / max(inputs, 1))
        layers.append(Layer(weights.astype(np.float32), np.zeros(outputs, dtype=np.float32)))
    return tuple(layers)


def apply(network: Network, h: JaxArrayLike, activation: str) -> JaxArray:
    """Return the outputs, (..., O), for inputs (..., I)."""
    rectify = getattr(jax.nn, activation)
    for layer in network[:-1]:
        h = rectify(h @ layer.weights + layer.bias)
    return jnp.asarray(h @ network[-1].weights + network[-1].bias)
