"""Trained networks as arrays under flat names, for model files."""

from itertools import pairwise
from typing import Any

from contrastive_lvm.io.schema import Arrays, Values
from contrastive_lvm.vae.architecture import (
    Architecture,
    FeatureUnits,
    NetworkConstants,
    NetworkWeights,
)
from contrastive_lvm.vae.networks import Layer, Network
from contrastive_lvm.vae.trained_networks import TrainedNetworks

LEAST: dict[str, Values] = {
    "target_mean": "finite",
    "background_mean": "finite",
    "centre": "finite",
    "spread": "positive",
    "profile": "not negative",
}


def network_arrays(fitted: TrainedNetworks) -> dict[str, Any]:
    """All numbers of a trained model."""
    arrays: dict[str, Any] = {}
    for name, network in fitted.weights._asdict().items():
        if name == "likelihood":
            arrays |= {f"learned.log {key}": value for key, value in network.items()}
            continue
        for i, layer in enumerate(network):
            own = layer._asdict().items()
            arrays |= {f"{name.replace('_', ' ')}.{i}.{key}": value for key, value in own}
    arrays |= {f"units.{key}": value for key, value in fitted.units._asdict().items()}
    return arrays | {f"scaling.{key}": value for key, value in fitted.constants._asdict().items()}


def restored_network(architecture: Architecture, arrays: Arrays) -> TrainedNetworks:
    """The way back; networks are of single precision.

    Sizes are compared, never allocated: a file may claim any.
    """
    D, sizes = (architecture.n_features,), architecture.layer_sizes
    networks: dict[str, Network] = {"background_encoder": (), "shared_decoder": ()}
    for name, widths in sizes.items():
        stored = name.replace("_", " ")
        networks[name] = tuple(
            Layer(
                arrays.single(f"{stored}.{i}.weights", pair),
                arrays.single(f"{stored}.{i}.bias", pair[1:]),
            )
            for i, pair in enumerate(pairwise(widths))
        )
    learned = {
        name: arrays.single(f"learned.log {name}", value.shape)
        for name, value in architecture.initial_parameters.items()
    }
    weights = NetworkWeights(**networks, likelihood=learned)
    units = FeatureUnits(arrays.take("units.shift", D), arrays.take("units.unit", D, "positive"))
    fields = NetworkConstants._fields
    constants = NetworkConstants(*(arrays.single(f"scaling.{n}", D, LEAST[n]) for n in fields))
    return TrainedNetworks(architecture, weights, units, constants)
