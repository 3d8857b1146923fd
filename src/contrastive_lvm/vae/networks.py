"""Fully connected networks, as plain functions of their weights."""

from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from contrastive_lvm._jax import module

ACTIVATIONS = ("relu", "elu", "gelu", "softplus", "tanh")
FIRST_OUTPUT = 0.1  # standard deviation of what a network returns


class Layer(NamedTuple):
    """`h -> h @ weights + bias`."""

    weights: Any  # (I, O)
    bias: Any  # (O,)


Network = tuple[Layer, ...]


def first_network(sizes: tuple[int, ...], rng: np.random.Generator) -> Network:
    """Random weights that keep the variance of what passes through rectified layers.

    `N(0, 2 / I)` for hidden layers (He et al. 2015, eq. 10). The last begins small: decoders with
    the mean, encoders with the prior. Drawn by NumPy: JAX would compile once a shape.
    """
    layers = []
    for i, (inputs, outputs) in enumerate(pairwise(sizes)):
        gain = FIRST_OUTPUT**2 if i == len(sizes) - 2 else 2.0
        weights = rng.standard_normal((inputs, outputs)) * np.sqrt(gain / max(inputs, 1))
        layers.append(Layer(weights.astype(np.float32), np.zeros(outputs, dtype=np.float32)))
    return tuple(layers)


def apply(network: Network, h: Any, activation: str) -> Any:
    """Outputs, (..., O), of inputs (..., I)."""
    rectify = getattr(module("jax.nn"), activation)
    for layer in network[:-1]:
        h = rectify(h @ layer.weights + layer.bias)
    return h @ network[-1].weights + network[-1].bias
