"""Trained networks as arrays under flat names, for model files."""

from typing import Any

import numpy as np

from contrastive_lvm.vae.design import Design, Scaling, Units
from contrastive_lvm.vae.fitted import Fitted
from contrastive_lvm.vae.networks import Layer

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


def restored_network(design: Design, arrays: dict[str, Any]) -> Fitted:
    """The way back; networks are of single precision."""
    like = design.first_parameters(np.random.default_rng(0))
    learned = {k: _single(arrays, f"learned.{k}", v) for k, v in like["learned"].items()}
    parameters: dict[str, Any] = {"learned": learned}
    for name in NETWORKS:
        if name in like:
            parameters[name] = tuple(
                Layer(
                    _single(arrays, f"{name}.{i}.weights", layer.weights),
                    _single(arrays, f"{name}.{i}.bias", layer.bias),
                )
                for i, layer in enumerate(like[name])
            )
    units = Units(*(_shaped(arrays, f"units.{key}", (design.n_features,)) for key in Units._fields))
    scaling = Scaling(
        *(
            _shaped(arrays, f"scaling.{key}", (design.n_features,)).astype(np.float32)
            for key in Scaling._fields
        )
    )
    return Fitted(design, parameters, units, scaling)


def _single(arrays: dict[str, Any], name: str, like: Any) -> Any:
    return _shaped(arrays, name, np.shape(like)).astype(np.float32)


def _shaped(arrays: dict[str, Any], name: str, shape: tuple[int, ...]) -> Any:
    if arrays[name].shape != shape:
        raise ValueError(f"{name} has shape {arrays[name].shape} in place of {shape}")
    return arrays[name]
