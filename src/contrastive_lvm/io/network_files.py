"""Trained networks as arrays under flat names, for model files."""

from itertools import pairwise
from typing import Any

from contrastive_lvm.io.schema import Arrays, Values
from contrastive_lvm.vae.design import Design, Scaling, Units
from contrastive_lvm.vae.fitted_networks import Fitted
from contrastive_lvm.vae.networks import Layer

LEAST: dict[str, Values] = {
    "target_mean": "finite",
    "background_mean": "finite",
    "centre": "finite",
    "spread": "positive",
    "profile": "not negative",
}
NETWORKS = ("target encoder", "target decoder", "background encoder", "shared decoder")


def network_arrays(fitted: Fitted) -> dict[str, Any]:
    """All numbers of a trained model."""
    arrays: dict[str, Any] = {}
    for name, network in fitted.parameters.items():
        if name == "learned":
            arrays |= {f"learned.{key}": value for key, value in network.items()}
            continue
        for i, layer in enumerate(network):
            arrays |= {f"{name}.{i}.{key}": value for key, value in layer._asdict().items()}
    arrays |= {f"units.{key}": value for key, value in fitted.units._asdict().items()}
    return arrays | {f"scaling.{key}": value for key, value in fitted.scaling._asdict().items()}


def restored_network(design: Design, arrays: Arrays) -> Fitted:
    """The way back; networks are of single precision.

    Sizes are compared, never allocated: a file may claim any.
    """
    D, sizes = (design.n_features,), design.sizes
    parameters: dict[str, Any] = {
        "learned": {
            name: arrays.single(f"learned.{name}", shape)
            for name, shape in design.learned_shapes.items()
        }
    }
    for name in NETWORKS:
        if name in sizes:
            parameters[name] = tuple(
                Layer(
                    arrays.single(f"{name}.{i}.weights", pair),
                    arrays.single(f"{name}.{i}.bias", pair[1:]),
                )
                for i, pair in enumerate(pairwise(sizes[name]))
            )
    units = Units(arrays.take("units.shift", D), arrays.take("units.unit", D, "positive"))
    scaling = Scaling(*(arrays.single(f"scaling.{n}", D, LEAST[n]) for n in Scaling._fields))
    return Fitted(design, parameters, units, scaling)
