"""Digits on grass: the images of the paper's last experiment."""

import gzip
import os
import zlib
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

SIDE = 28
MNIST = {
    "train": ("train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz"),
    "test": ("t10k-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte.gz"),
}
GRASS = "grass_images.npz"


class DigitsOnGrass(NamedTuple):
    """Digits on grass, grass alone, and more digits on other patches of grass to try them on."""

    target: npt.NDArray[np.float32]  # (n, 784)
    background: npt.NDArray[np.float32]  # (m, 784)
    target_labels: npt.NDArray[np.intp]  # (n,)
    feature_names: list[str]
    description: str
    held_out: npt.NDArray[np.float32]  # (k, 784)
    held_out_labels: npt.NDArray[np.intp]  # (k,)


def fetch_mnist_on_grass(
    n_target: int = 30_000,
    n_background: int = 30_000,
    n_held_out: int = 5_000,
    *,
    intensity: float = 0.5,
    random_state: Any = 0,
) -> DigitsOnGrass:
    """MNIST digits added to photographs of grass; the background is grass alone.

    `target = intensity * digit + patch`, both between 0 and 1. Patches are windows of 28 x 28
    pixels at random places; target and background never share a photograph. Held-out rows have
    digits of MNIST's test set. The files are looked for in the folders `mnist` and `grass` of
    `$CONTRASTIVE_LVM_DATA`.

    Parameters
    ----------
    n_target, n_background, n_held_out : int
        Rows; at most 60,000 of the target and 10,000 held out.
    intensity : float
        Of the digits. At 0.5 the grass has more variance than the digits, at 1 less.
    random_state : int or None

    Returns
    -------
    DigitsOnGrass
        `target`, `background`, `target_labels`, `feature_names`, `description`, `held_out`,
        `held_out_labels`.

    Raises
    ------
    FileNotFoundError
        If a file is not there; the sentence says what to put where.
    """
    rng = np.random.default_rng(random_state)
    sizes = {"n_target": n_target, "n_background": n_background, "n_held_out": n_held_out}
    for (name, n), most in zip(sizes.items(), (60_000, 10**7, 10_000), strict=True):
        if not 1 <= n <= most:
            raise ValueError(f"{name}={n!r} must be a whole number from 1 to {most}.")
    if not 0 < intensity < np.inf:
        raise ValueError(f"intensity={intensity!r} must be a positive number.")
    grass = _Grass(_file("grass", GRASS))
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


def _file(*parts: str) -> Path:
    home = os.environ.get("CONTRASTIVE_LVM_DATA")
    where = "/".join(parts)
    if home is None:
        raise FileNotFoundError(
            f"{where} is needed, but CONTRASTIVE_LVM_DATA is not set; set it to a folder with "
            f"{where}."
        )
    path = Path(home).joinpath(*parts)
    if not path.is_file():
        raise FileNotFoundError(f"{path} is not there; put {parts[-1]} into that folder.")
    return path


def _digits(part: str, n: int, rng: np.random.Generator) -> tuple[Any, npt.NDArray[np.intp]]:
    """Random digits between 0 and 1, (n, 784), and what they are."""
    images, labels = (read_idx(_file("mnist", name)) for name in MNIST[part])
    chosen = rng.permutation(len(images))[:n]
    pixels = images[chosen].reshape(n, -1).astype(np.float32) / np.float32(255)
    return pixels, labels[chosen].astype(np.intp)


def read_idx(path: Path) -> npt.NDArray[np.uint8]:
    """Bytes of a gzipped file in the idx format of MNIST."""
    try:
        raw = gzip.decompress(path.read_bytes())
    except (OSError, EOFError, zlib.error) as error:
        raise ValueError(f"{path} is not a whole gzip file: {error}; fetch it again.") from error
    dimensions = raw[3] if len(raw) > 4 and raw[:3] == b"\x00\x00\x08" else 0
    shape = np.frombuffer(raw[4 : 4 + 4 * dimensions], dtype=">u4").astype(int)
    data = np.frombuffer(raw, dtype=np.uint8, offset=min(4 + 4 * dimensions, len(raw)))
    if dimensions == 0 or len(shape) != dimensions or data.size != np.prod(shape):
        raise ValueError(f"{path} is not an idx file of bytes; fetch it again.")
    return data.reshape(shape)


class _Grass:
    """Photographs, and the windows in them that touch no border."""

    def __init__(self, path: Path) -> None:
        with np.load(path, allow_pickle=False) as file:
            self.images, self.pool = file["images"], file["pool"]
            packed = file["valid_packed"]
        self.span = self.images.shape[1] - SIDE + 1
        flags = np.unpackbits(packed, axis=1, count=self.span**2)
        self.places = [np.flatnonzero(flags[self.pool == pool]) for pool in (0, 1)]

    def patches(self, n: int, pool: int, rng: np.random.Generator) -> Any:
        """Random windows of the photographs of a pool, between 0 and 1, (n, 784)."""
        place = self.places[pool][rng.integers(0, len(self.places[pool]), n)]
        image, row, column = np.unravel_index(
            place, (int((self.pool == pool).sum()), self.span, self.span)
        )
        windows = np.lib.stride_tricks.sliding_window_view(
            self.images[self.pool == pool], (SIDE, SIDE), axis=(1, 2)
        )
        found = windows[image, row, column].reshape(n, -1)
        return found.astype(np.float32) / np.float32(255)
