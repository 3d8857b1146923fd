"""Digits on grass: the files' formats, and what autoencoders make of the real images."""

import gzip
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from contrastive_lvm.datasets import DigitsOnGrass, fetch_mnist_on_grass
from contrastive_lvm.datasets.mnist_on_grass import MNIST, read_idx
from tests.datasets.published_files import isolate


def write_idx(path: Path, values: np.ndarray) -> None:
    sizes = b"".join(int(n).to_bytes(4, "big") for n in values.shape)
    path.write_bytes(gzip.compress(bytes([0, 0, 8, values.ndim]) + sizes + values.tobytes()))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Files as published, but small: digits are blank but for their label in the first pixel."""
    rng = np.random.default_rng(0)
    (tmp_path / "mnist").mkdir()
    (tmp_path / "grass").mkdir()
    for part, n in (("train", 50), ("test", 20)):
        labels = rng.integers(0, 10, n).astype(np.uint8)
        images = np.zeros((n, 28, 28), dtype=np.uint8)
        images[:, 0, 0] = 20 * labels
        for name, values in zip(MNIST[part], (images, labels), strict=True):
            write_idx(tmp_path / "mnist" / name, values)
    pool = np.array([0, 1, 0, 1], dtype=np.int8)
    photographs = np.repeat(pool[:, None, None] * 100 + 50, 100, axis=1).repeat(100, axis=2)
    valid = np.ones((4, 73 * 73), dtype=np.uint8)
    np.savez(
        tmp_path / "grass" / "grass_images.npz",
        images=photographs.astype(np.uint8),
        pool=pool,
        valid_packed=np.packbits(valid, axis=1),
    )
    return isolate(tmp_path, monkeypatch)


def small(**words: Any) -> DigitsOnGrass:
    return fetch_mnist_on_grass(30, 25, 10, **words)


@pytest.mark.usefixtures("folder")
def test_digits_are_added_to_grass_of_their_own() -> None:
    data = small(intensity=0.5, random_state=1)
    assert data.target.shape == (30, 784)
    assert data.background.shape == (25, 784)
    assert data.target.dtype == np.float32
    np.testing.assert_allclose(data.background, 150 / 255, rtol=1e-6)
    for rows, labels in (
        (data.target, data.target_labels),
        (data.held_out, data.held_out_labels),
    ):
        np.testing.assert_allclose(rows[:, 0], (50 + 0.5 * 20 * labels) / 255, rtol=1e-5)
        np.testing.assert_allclose(rows[:, 1:], 50 / 255, rtol=1e-6)
    again = small(intensity=0.5, random_state=1)
    np.testing.assert_array_equal(again.target, data.target)


def test_what_is_missing_or_broken_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="n_target=0 must be an integer from 1"):
        fetch_mnist_on_grass(0)
    with pytest.raises(ValueError, match="intensity=-1 must be a positive number"):
        small(intensity=-1)
    images = folder / "mnist" / MNIST["train"][0]
    whole = images.read_bytes()
    images.write_bytes(whole[:40])
    with pytest.raises(ValueError, match="is not a complete gzip file"):
        small()
    images.write_bytes(gzip.compress(b"something else"))
    with pytest.raises(ValueError, match="is not an idx file"):
        read_idx(images)
    images.unlink()
    with pytest.raises(FileNotFoundError, match=r"put it at .*train-images-idx3-ubyte\.gz"):
        small()
    monkeypatch.delenv("CONTRASTIVE_LVM_DATA")
    with pytest.raises(FileNotFoundError, match=r"not free .* set CONTRASTIVE_LVM_DATA to that"):
        small()


@pytest.mark.parametrize(
    ("changes", "pattern"),
    [
        ({"pool": None}, "pool is not a file in the archive"),
        ({"pool": np.zeros(4, dtype=np.int8)}, "has a pool without a window to use"),
        ({"images": np.zeros((4, 100, 90), dtype=np.uint8)}, "images and flags that do not match"),
        ({"images": np.zeros(4, dtype=np.uint8)}, "is not a complete set of photographs"),
        ({"images": np.zeros((9, 100, 100), dtype=np.uint8)}, "images and flags that do not match"),
    ],
)
def test_damaged_photographs_are_a_sentence(
    folder: Path, changes: dict[str, Any], pattern: str
) -> None:
    path = folder / "grass" / "grass_images.npz"
    with np.load(path) as file:
        arrays: dict[str, Any] = dict(file) | changes
    np.savez(path, **{name: value for name, value in arrays.items() if value is not None})
    with pytest.raises(ValueError, match=pattern):
        small()
    path.write_bytes(path.read_bytes()[:500])
    with pytest.raises(ValueError, match="is not a complete npz file with the arrays images, pool"):
        small()


@pytest.mark.slow
@pytest.mark.parametrize("intensity", [0.5, 1.0])
def test_digits_settle_in_the_target_latents(intensity: float) -> None:
    """The paper's sizes; what docs/digits.md reports, with a margin."""
    pytest.importorskip("jax", reason="the extra jax is not installed")
    from contrastive_lvm.experiments.digits import contrastive

    home = os.environ.get("CONTRASTIVE_LVM_DATA")
    if home is None or not (Path(home) / "grass" / "grass_images.npz").is_file():
        pytest.skip("the images are not in CONTRASTIVE_LVM_DATA")
    data = fetch_mnist_on_grass(intensity=intensity)
    found = contrastive(data)
    least, most = (0.68, 0.16) if intensity == 0.5 else (0.75, 0.30)
    assert found.spaces[0].accuracy >= least
    assert found.spaces[1].accuracy <= most
