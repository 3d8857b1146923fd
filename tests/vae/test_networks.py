"""Networks of autoencoders: convolutional ones, and those that users write."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import contrastive_lvm as clvm
from tests.vae.autoencoders import DATA, quick

pytest.importorskip("jax", reason="the extra jax is not installed")

from contrastive_lvm.vae.networks import FullyConnected, halved


class Own(NamedTuple):
    """A network of one hidden layer, its weights in a dict; `extra` outputs too many."""

    width: int = 8
    extra: int = 0

    def init(self, n_inputs: int, n_outputs: int, rng: np.random.Generator) -> dict[str, Any]:
        sizes = {"first": (n_inputs, self.width), "second": (self.width, n_outputs + self.extra)}
        return {
            name: (0.3 * rng.standard_normal(size)).astype(np.float32)
            for name, size in sizes.items()
        }

    def apply(self, weights: dict[str, Any], inputs: Any) -> Any:
        import jax.numpy as jnp

        return jnp.tanh(inputs @ weights["first"]) @ weights["second"]


def test_networks_of_ones_own_are_trained_and_saved(tmp_path: Path) -> None:
    model = quick(encoder=Own(), decoder=Own(4), max_epochs=20, learning_rate=0.01)
    model.fit(DATA.target, background=DATA.background)
    assert model.lower_bounds_[-1] > model.lower_bounds_[0]
    network = model.network_
    assert network.weights.target_decoder["first"].shape == (2, 4)
    decoded = model.reconstruct(DATA.target, parts=("target",)) - model.mean_
    by_encoder = decoded.mean(axis=0)  # decoders are centred
    np.testing.assert_allclose(by_encoder, 0.0, atol=1e-4)
    model.save(tmp_path / "model")
    again = clvm.load_model(tmp_path / "model")
    assert again.encoder == Own()
    np.testing.assert_array_equal(again.transform(DATA.target), model.transform(DATA.target))


@pytest.mark.parametrize(
    ("words", "pattern"),
    [
        ({"encoder": "deep"}, "encoder='deep' must have the methods init"),
        ({"decoder": Own}, "decoder=.* must have the methods init"),
        ({"decoder": Own(extra=1)}, r"decoder=.* returns outputs of shape \(3, 9\) for inputs of"),
        ({"encoder": Own([1])}, "encoder=.* cannot be hashed"),  # type: ignore[arg-type]
        ({"encoder": clvm.ConvolutionalEncoder((9, 9))}, r"shape=\(9, 9\) has 81 pixels, but rows"),
        ({"decoder": clvm.ConvolutionalDecoder((9, 9))}, r"shape=\(9, 9\) has 81 pixels, but rows"),
    ],
)
def test_what_is_no_network_is_refused(words: Any, pattern: str) -> None:
    with pytest.raises(ValueError, match=pattern):
        quick(**words).fit(DATA.target, background=DATA.background)


@pytest.mark.parametrize(
    ("words", "name"),
    [
        ({"shape": (28,)}, "shape"),
        ({"shape": [8, 8]}, "shape"),
        ({"shape": (8, 8), "channels": ()}, "channels"),
        ({"shape": (8, 8), "channels": (4, 0)}, "channels"),
        ({"shape": (8, 8), "width": 0}, "width"),
    ],
)
def test_sizes_of_convolutions_are_checked(words: Any, name: str) -> None:
    for kind in (clvm.ConvolutionalEncoder, clvm.ConvolutionalDecoder):
        with pytest.raises(ValueError, match=f"{name}="):
            kind(**words)


def plain_convolution(image: np.ndarray, kernel: np.ndarray) -> np.ndarray:
    """Stride 2 with zeros around, one output at a time."""
    height, width = image.shape
    out = np.zeros(halved((height, width), 1))
    pads = [max(0, (n - 1) * 2 + 4 - size) for n, size in zip(out.shape, image.shape, strict=True)]
    padded = np.pad(image, [(p // 2, p - p // 2) for p in pads])
    for i, j in np.ndindex(*out.shape):
        out[i, j] = (padded[2 * i : 2 * i + 4, 2 * j : 2 * j + 4] * kernel).sum()
    return out


def test_the_encoder_convolves() -> None:
    rng = np.random.default_rng(0)
    network = clvm.ConvolutionalEncoder((7, 6), channels=(1,), width=5)
    weights = network.init(44, 3, rng)  # an image, and two numbers more
    rows = rng.standard_normal((4, 44)).astype(np.float32)
    kernel = np.asarray(weights[0].weights)[:, :, 0, 0]
    images = [np.maximum(plain_convolution(row[:42].reshape(7, 6), kernel), 0.0) for row in rows]
    flat = np.hstack([np.reshape(images, (4, -1)), rows[:, 42:]]).astype(np.float32)
    expected = FullyConnected((5,), "relu").apply(weights[1:], flat)
    np.testing.assert_allclose(network.apply(weights, rows), expected, rtol=1e-4, atol=1e-6)


def test_the_decoder_reaches_every_pixel() -> None:
    rng = np.random.default_rng(0)
    network = clvm.ConvolutionalDecoder((7, 6), channels=(4, 3), width=5)
    weights = network.init(2, 42, rng)
    out = np.asarray(network.apply(weights, rng.standard_normal((50, 2)).astype(np.float32)))
    assert out.shape == (50, 42)
    assert (out.std(axis=0) > 0).all()
