"""Model files whose checksum is right but whose networks are not those of the model."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import contrastive_lvm as clvm
from contrastive_lvm.io.container import ModelFileError

FIXTURES = Path(__file__).parents[1] / "io" / "fixtures" / "models" / "v1"


def forged(model: Any, path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Save a model without any check, and load it again."""
    with monkeypatch.context() as unchecked:
        unchecked.setattr(type(model), "_check_state", lambda self, state: None)
        model.save(path)
    return clvm.load_model(path)


def with_layer(network: Any, change: Callable[[np.ndarray], np.ndarray]) -> Any:
    weights = network.weights
    first, *others = weights.target_decoder
    layer = first._replace(weights=change(first.weights))
    return network._replace(weights=weights._replace(target_decoder=(layer, *others)))


def with_unit(network: Any, factor: float) -> Any:
    return network._replace(units=network.units._replace(unit=network.units.unit * factor))


def with_noise(network: Any, log_noise: float) -> Any:
    logs = {name: np.full_like(v, log_noise) for name, v in network.weights.likelihood.items()}
    return network._replace(weights=network.weights._replace(likelihood=logs))


FORGED: dict[str, tuple[Callable[[Any], Any], str]] = {
    "shape": (lambda n: with_layer(n, lambda w: np.ones((9, 4), np.float32)), "weights has shape"),
    "weights": (lambda n: with_layer(n, lambda w: w + np.float32(1e18)), "outputs of the target"),
    "large unit": (lambda n: with_unit(n, 1e200), "unit has values that are out of range"),
    "small unit": (lambda n: with_unit(n, 1e-200), "unit has values that are out of range"),
    "noise": (lambda n: with_noise(n, 80.0), "noise has values that are out of range"),
}


@pytest.mark.parametrize("kind", ["vae", "contrastive_vae"])
@pytest.mark.parametrize("name", FORGED)
def test_networks_of_another_model_are_refused(
    name: str, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("jax", reason="the extra jax is not installed")
    change, sentence = FORGED[name]
    model = clvm.load_model(FIXTURES / f"{kind}.clvm")
    model.network_ = change(model.network_)
    with pytest.raises(ModelFileError, match=rf"is damaged: .*{sentence}.*; save it again\.$"):
        forged(model, tmp_path / "forged.clvm", monkeypatch)
