"""Model files whose checksum is right but whose draws or networks are not those of the model."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import contrastive_lvm as clvm
from contrastive_lvm.draws import Draws
from contrastive_lvm.io.container import ModelFileError

FIXTURES = Path(__file__).parents[1] / "io" / "fixtures" / "models" / "v1"
RNG = np.random.default_rng(0)
N, M, D = 12, 11, 5


def forged(model: Any, path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Save a model without any check, and load it again."""
    with monkeypatch.context() as unchecked:
        unchecked.setattr(type(model), "_check_state", lambda self, state: None)
        model.save(path)
    return clvm.load_model(path)


def spread(value: Any) -> np.ndarray:
    """Draws of two chains about a mean, (2, 4, ...)."""
    noise = RNG.standard_normal((1, 4, *np.shape(value)))
    return np.asarray(value) * (1.0 + 0.1 * np.concatenate([noise, -noise]))


def sampled() -> clvm.ContrastiveLVM:
    """A model with draws, as NUTS leaves it."""
    model = clvm.ContrastiveLVM(1, 2).fit(
        RNG.standard_normal((N, D)), background=RNG.standard_normal((M, D))
    )
    p = model.posterior_
    values = {f"{name} loadings": spread(L) for name, L in p.loadings.items()}
    values |= {f"{name} mean": spread(mean) for name, mean in p.means.items()}
    values |= {"noise variance": spread(p.noise_variance[0]), "log density": spread(-7.0)}
    values |= {"target latents of target": spread(np.ones((N, 1)))}
    values |= {"shared latents of background": spread(np.ones((M, 2)))}
    draws = Draws(values, {name: np.ones(v.shape[2:]) for name, v in values.items()}, {})
    model.posterior_ = p._replace(draws=draws)
    return model


FORGED_DRAWS: dict[str, tuple[dict[str, np.ndarray | None], str]] = {
    "features": ({"target loadings": spread(np.ones((9, 1)))}, r"has shape \(2, 4, 9, 1\)"),
    "components": ({"shared loadings": spread(np.ones((D, 3)))}, r"has shape \(2, 4, 5, 3\)"),
    "rows": ({"target latents of target": spread(np.ones((N + 1, 1)))}, r"in place of \(2, 4, 12"),
    "axes": ({"target mean": spread(1.0)}, "2 dimensions in place of 3"),
    "number": ({"background mean": np.ones((2, 5, D))}, "different lengths"),
    "large": ({"shared latents of background": np.full((2, 4, M, 2), 1e200)}, "out of range"),
    "other loadings": ({"target loadings": np.ones((2, 4, D, 1))}, "do not have the mean"),
    "absent": ({"target mean": None}, "it lacks the draws of target mean"),
}


@pytest.mark.parametrize("name", FORGED_DRAWS)
def test_draws_of_another_model_are_refused(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes, sentence = FORGED_DRAWS[name]
    model = sampled()
    assert isinstance(forged(model, tmp_path / "whole.clvm", monkeypatch), clvm.ContrastiveLVM)
    draws = model.posterior_.draws
    assert draws is not None
    values = {n: v for n, v in {**draws.values, **changes}.items() if v is not None}
    rhat = {n: np.ones(v.shape[2:]) for n, v in values.items()}
    model.posterior_ = model.posterior_._replace(draws=Draws(values, rhat, {}))
    with pytest.raises(ModelFileError, match=rf"is damaged: .*{sentence}.*; save it again\.$"):
        forged(model, tmp_path / "forged.clvm", monkeypatch)
    with pytest.raises(ValueError, match=rf"cannot be saved: .*{sentence}"):
        model.save(tmp_path / "refused.clvm")


def with_layer(network: Any, change: Callable[[np.ndarray], np.ndarray]) -> Any:
    weights = network.weights
    first, *others = weights.target_decoder
    layer = first._replace(weights=change(first.weights))
    return network._replace(weights=weights._replace(target_decoder=(layer, *others)))


FORGED_NETWORKS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "shape": (lambda n: with_layer(n, lambda w: np.ones((9, 4), np.float32)), "weights has shape"),
    "large": (lambda n: with_layer(n, lambda w: w + np.float32(1e30)), "outputs of the target dec"),
    "unit": (lambda n: n._replace(units=n.units._replace(unit=n.units.unit * 1e200)), "unit has"),
    "no unit": (
        lambda n: n._replace(units=n.units._replace(unit=n.units.unit * 1e-200)),
        "of unit",
    ),
    "shift": (lambda n: n._replace(units=n.units._replace(shift=n.units.shift + 1e200)), "shift"),
    "mean": (
        lambda n: n._replace(
            constants=n.constants._replace(
                target_mean=np.full_like(n.constants.target_mean, np.float32(1e25))
            )
        ),
        "target_mean has values that are out of range",
    ),
}


@pytest.mark.parametrize("kind", ["vae", "contrastive_vae"])
@pytest.mark.parametrize("name", FORGED_NETWORKS)
def test_networks_of_another_model_are_refused(
    name: str, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("jax", reason="the extra jax is not installed")
    change, sentence = FORGED_NETWORKS[name]
    model = clvm.load_model(FIXTURES / f"{kind}.clvm")
    model.network_ = change(model.network_)
    with pytest.raises(ModelFileError, match=rf"is damaged: .*{sentence}.*; save it again\.$"):
        forged(model, tmp_path / "forged.clvm", monkeypatch)
