"""Checks of the networks of an autoencoder that were read from a file."""

from itertools import pairwise
from typing import Any

import numpy as np

from contrastive_lvm._jax import jax
from contrastive_lvm.exceptions import InvalidParameterError
from contrastive_lvm.io.value_checks import Values, array, check_values
from contrastive_lvm.vae.architecture import (
    Architecture,
    FeatureUnits,
    NetworkConstants,
    NetworkWeights,
)
from contrastive_lvm.vae.networks import FullyConnected, Layer, Network, Weights

SINGLE = np.float32
RANGES: dict[str, Values] = {
    "target_mean": "finite",
    "background_mean": "finite",
    "centre": "finite",
    "spread": "positive",
    "profile": "not negative",
    "target_offset": "finite",
    "shared_offset": "finite",
}


def check_networks(
    architecture: Architecture,
    weights: NetworkWeights,
    units: FeatureUnits,
    constants: NetworkConstants,
) -> None:
    """Refuse arrays that are not those of the architecture.

    Sizes are compared, never allocated: a file may claim any.
    """
    D, sizes = architecture.n_features, architecture.network_sizes
    if not isinstance(weights, NetworkWeights) or not isinstance(units, FeatureUnits):
        raise TypeError("its networks are not those that its parameters describe")
    for name, network in weights._asdict().items():
        words = name.replace("_", " ")
        if name in sizes:
            _check_network(words, network, *sizes[name])
        elif name != "likelihood" and network != ():
            raise ValueError(f"the {words} has no place in its model")
    initial = architecture.initial_parameters
    if set(weights.likelihood) != set(initial):
        raise ValueError("what its likelihood has learned belongs to another likelihood")
    logs = {name: array(*value.shape, dtype=SINGLE) for name, value in initial.items()}
    check_values(logs, weights.likelihood)
    check_values({"shift": array(D), "unit": array(D, values="positive")}, units)
    check_values({n: array(D, values=v, dtype=SINGLE) for n, v in RANGES.items()}, constants)
    for name, value in weights.likelihood.items():
        _check_range(name, np.exp(value))
    _check_range("unit", np.maximum(units.unit, 1.0 / units.unit))


def check_outputs(architecture: Architecture) -> None:
    """Refuse a user's network whose outputs do not have the shape that is needed."""
    rng = np.random.default_rng(0)
    for name, (network, n_inputs, n_outputs) in architecture.network_sizes.items():
        if isinstance(network, FullyConnected):
            continue
        weights = network.init(n_inputs, n_outputs, rng)
        inputs = np.zeros((3, n_inputs), dtype=SINGLE)
        shape = tuple(jax.eval_shape(network.apply, weights, inputs).shape)
        if shape != (3, n_outputs):
            raise InvalidParameterError(
                name.split("_")[1],
                network,
                f"returns outputs of shape {shape} for inputs of shape {inputs.shape}, but has to "
                f"return {(3, n_outputs)}.",
            )


def _check_network(
    name: str, weights: Weights, network: Network, n_inputs: int, n_outputs: int
) -> None:
    if isinstance(network, FullyConnected):
        _check_layers(name, weights, (n_inputs, *network.hidden_layer_sizes, n_outputs))
        return
    like = network.init(n_inputs, n_outputs, np.random.default_rng(0))
    leaves, wanted = jax.tree.leaves(weights), jax.tree.leaves(like)
    same = str(jax.tree.structure(weights)) == str(jax.tree.structure(like))
    shapes = [(np.shape(leaf), np.asarray(leaf).dtype) for leaf in leaves]
    if not same or shapes != [(np.shape(w), np.asarray(w).dtype) for w in wanted]:
        raise ValueError(f"the {name} has other weights than its parameters say")
    for leaf in leaves:
        _check_range(f"weights of the {name}", leaf)


def _check_layers(name: str, network: Any, sizes: tuple[int, ...]) -> None:
    if not isinstance(network, tuple) or len(network) != len(sizes) - 1:
        raise ValueError(f"the {name} has another number of layers than its parameters say")
    for layer, (inputs, outputs) in zip(network, pairwise(sizes), strict=True):
        if not isinstance(layer, Layer):
            raise TypeError(f"the {name} has a layer that is not one")
        weights = array(inputs, outputs, dtype=SINGLE)
        check_values({"weights": weights, "bias": array(outputs, dtype=SINGLE)}, layer)
    _check_range(f"outputs of the {name}", _largest_outputs(network, sizes[0]))


def _largest_outputs(network: tuple[Layer, ...], n_inputs: int) -> np.ndarray:
    """Bound the outputs of a network for inputs up to 100, far from any that is standardised.

    No activation adds more than 1 to the absolute value of its argument.
    """
    h = np.full(n_inputs, 100.0, dtype=SINGLE)
    with np.errstate(over="ignore", invalid="ignore"):
        for layer in network:
            h = h @ np.abs(layer.weights) + np.abs(layer.bias) + SINGLE(1.0)
    return h


def _check_range(name: str, values: np.ndarray) -> None:
    """Refuse values whose squares overflow in their precision."""
    with np.errstate(over="ignore"):
        finite = np.isfinite(np.square(values)).all()
    if not finite:
        raise ValueError(f"{name} has values that are out of range")
