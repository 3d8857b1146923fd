"""MNIST digits on photographs of grass: the images of the paper's last experiment."""

import gzip
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from contrastive_lvm.checks import Seed, check_integer, check_positive
from contrastive_lvm.datasets.download import find, load_arrays, reading

SIDE = 28
MNIST = {
    "train": ("train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz"),
    "test": ("t10k-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte.gz"),
}


class DigitsOnGrass(NamedTuple):
    """Digits on grass, grass alone, and held-out digits on other patches of grass."""

    target: npt.NDArray[np.float32]  # (n, 784) pixels
    background: npt.NDArray[np.float32]  # (m, 784) pixels
    target_labels: npt.NDArray[np.intp]  # (n,) digits
    feature_names: list[str]
    description: str
    held_out: npt.NDArray[np.float32]  # (k, 784) pixels of held-out images
    held_out_labels: npt.NDArray[np.intp]  # (k,) their digits


def fetch_mnist_on_grass(
    n_target: int = 30_000,
    n_background: int = 30_000,
    n_held_out: int = 5_000,
    *,
    intensity: float = 0.5,
    random_state: Seed = 0,
) -> DigitsOnGrass:
    """Fetch MNIST digits added to photographs of grass; the background is grass alone.

    `target = intensity * digit + patch`, both between 0 and 1. Patches are windows of 28 x 28
    pixels at random places; target and background never share a photograph. Held-out rows have
    digits of MNIST's test set. The folders are `mnist` (downloaded if absent, 12 MB) and `grass`,
    whose `grass_images.npz` cannot be downloaded: its photographs are not free to redistribute.

    Parameters
    ----------
    n_target, n_background, n_held_out : int
        Numbers of rows, at most 60,000 of the target and 10,000 held out.
    intensity : float
        Intensity of the digits. At 0.5 the grass has more variance than the digits, and at 1 it has
        less.
    random_state : int or None

    Examples
    --------
    >>> import contrastive_lvm as clvm
    >>> data = clvm.datasets.fetch_mnist_on_grass()
    >>> data.target.shape
    (30000, 784)
    """
    rng = np.random.default_rng(random_state)
    sizes = {"n_target": n_target, "n_background": n_background, "n_held_out": n_held_out}
    for (name, n), most in zip(sizes.items(), (60_000, 10**7, 10_000), strict=True):
        check_integer(name, n, 1, most)
    check_positive("intensity", intensity)
    grass = _Grass(find("grass/grass_images.npz"))
    target, labels = _digits("train", n_target, rng)
    held_out, held_out_labels = _digits("test", n_held_out, rng)
    return DigitsOnGrass(
        target=intensity * target + grass.patches(n_target, 0, rng),
        background=grass.patches(n_background, 1, rng),
        target_labels=labels,
        feature_names=[f"{row},{column}" for row in range(SIDE) for column in range(SIDE)],
        description=f"MNIST digits at intensity {intensity:g} on photographs of grass.",
        held_out=intensity * held_out + grass.patches(n_held_out, 0, rng),
        held_out_labels=held_out_labels,
    )


def _digits(
    part: str, n: int, rng: np.random.Generator
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.intp]]:
    """Draw digits as pixels between 0 and 1, (n, 784), and their labels."""
    images, labels = (read_idx(find(f"mnist/{name}")) for name in MNIST[part])
    chosen = rng.permutation(len(images))[:n]
    pixels = images[chosen].reshape(n, -1).astype(np.float32) / np.float32(255)
    return pixels, labels[chosen].astype(np.intp)


def read_idx(path: Path) -> npt.NDArray[np.uint8]:
    """Read a gzipped file of bytes in the idx format of MNIST."""
    with reading(path, "gzip file"):
        raw = gzip.decompress(path.read_bytes())
    dimensions = raw[3] if len(raw) > 4 and raw[:3] == b"\x00\x00\x08" else 0
    shape = np.frombuffer(raw[4 : 4 + 4 * dimensions], dtype=">u4").astype(int)
    data = np.frombuffer(raw, dtype=np.uint8, offset=min(4 + 4 * dimensions, len(raw)))
    if dimensions == 0 or len(shape) != dimensions or data.size != np.prod(shape):
        raise ValueError(f"{path} is not an idx file of bytes; download it again.")
    return data.reshape(shape)


class _Grass:
    """Photographs, and the windows in them that may be used."""

    def __init__(self, path: Path) -> None:
        self.images, self.pool, packed = load_arrays(path, "images", "pool", "valid_packed")
        with reading(path, "set of photographs"):
            self.span = self.images.shape[1] - SIDE + 1
            flags = np.unpackbits(packed, axis=1, count=self.span**2)
            self.places = [np.flatnonzero(flags[self.pool == pool]) for pool in (0, 1)]
        n, side = len(self.images), SIDE - 1 + self.span
        if self.images.shape != (n, side, side) or len(flags) != n or self.span < 1:
            raise ValueError(f"{path} has images and flags that do not match; make it again.")
        if not all(map(len, self.places)):
            raise ValueError(f"{path} has a pool without a window to use; make it again.")

    def patches(self, n: int, pool: int, rng: np.random.Generator) -> npt.NDArray[np.float32]:
        """Draw windows of the photographs of a pool, pixels between 0 and 1, (n, 784)."""
        place = self.places[pool][rng.integers(0, len(self.places[pool]), n)]
        images = self.images[self.pool == pool]
        at = np.unravel_index(place, (len(images), self.span, self.span))
        windows = np.lib.stride_tricks.sliding_window_view(images, (SIDE, SIDE), axis=(1, 2))
        return windows[at].reshape(n, -1).astype(np.float32) / np.float32(255)
