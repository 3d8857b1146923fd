"""Checks of the networks of an autoencoder that were read from a file."""

from itertools import pairwise
from typing import Any

import numpy as np

from contrastive_lvm.io.value_checks import Values, array, check_values
from contrastive_lvm.vae.design import Design, Parameters, Scaling, Units
from contrastive_lvm.vae.networks import Layer

RANGES: dict[str, Values] = {
    "target_mean": "finite",
    "background_mean": "finite",
    "centre": "finite",
    "spread": "positive",
    "profile": "not negative",
}


def check_networks(design: Design, networks: Parameters, units: Units, scaling: Scaling) -> None:
    """Refuse arrays that are not those of the design.

    Sizes are compared, never allocated: a file may claim any.
    """
    D, single = design.n_features, np.float32
    if set(networks) != {"learned", *design.sizes} or not isinstance(units, Units):
        raise ValueError("its networks are not those that its parameters describe")
    for name, sizes in design.sizes.items():
        _check_network(name, networks[name], sizes)
    shapes = design.learned_shapes
    if set(networks["learned"]) != set(shapes):
        raise ValueError("what its likelihood has learned belongs to another likelihood")
    learned = {name: array(*shape, dtype=single) for name, shape in shapes.items()}
    check_values(learned, networks["learned"])
    check_values({"shift": array(D), "unit": array(D, values="positive")}, units)
    constants = {name: array(D, values=v, dtype=single) for name, v in RANGES.items()}
    check_values(constants, scaling)


def _check_network(name: str, network: Any, sizes: tuple[int, ...]) -> None:
    if not isinstance(network, tuple) or len(network) != len(sizes) - 1:
        raise ValueError(f"the {name} has another number of layers than its parameters say")
    for layer, (inputs, outputs) in zip(network, pairwise(sizes), strict=True):
        if not isinstance(layer, Layer):
            raise TypeError(f"the {name} has a layer that is none")
        weights = array(inputs, outputs, dtype=np.float32)
        check_values({"weights": weights, "bias": array(outputs, dtype=np.float32)}, layer)
