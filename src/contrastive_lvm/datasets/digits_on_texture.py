"""Digits on texture: like digits on grass, but without files."""

import numpy as np

from contrastive_lvm.checks import Seed, check_integer, check_number, check_positive
from contrastive_lvm.datasets.synthetic_sets import ContrastiveData, Floats, Integers

SIDE = 16  # pixels
BLOCK = 1000  # images whose fields are drawn at a time


def make_digits_on_texture(
    n_target: int = 1000,
    n_background: int = 1000,
    *,
    intensity: float = 0.5,
    spectrum: float | None = None,
    random_state: Seed = None,
) -> ContrastiveData:
    """Make handwritten digits on random texture; the background is texture alone.

    The function needs no file. The digits are the 8 x 8 images that come with scikit-learn, divided
    by 16 to lie between 0 and 1, with each pixel repeated to 2 x 2. The texture at row `u` and
    column `v` (from 0 to 1) of an image is a sum of four plane waves,

    `0.5 + 0.25 * sqrt(2 / 4) * sum_k cos(2 pi (f_k u + g_k v) + phase_k)`,

    with `f_k, g_k` uniform on [-1.5, 1.5] periods an image and uniform phases, drawn anew for every
    image: pixels of mean 0.5 and standard deviation 0.25. Then `target = intensity * digit +
    texture`. At an intensity of 0.5 the texture has more than three times the variance of the
    digits, so that principal components of the target show texture; twenty dimensions hold 99 % of
    the texture's variance, which a model can learn from the background.

    Parameters
    ----------
    n_target, n_background : int
        Numbers of rows. The 1,797 digits are drawn without replacement until all are used, then
        again.
    intensity : float
        Intensity of the digits; at 1 they have somewhat more variance than the texture.
    spectrum : float or None
        None makes the plane waves. A number b makes rough texture like that of soil or stone
        instead: Gaussian random fields whose power falls with the frequency as `f ** -b` (0 is
        white noise, 2 is like photographs), each image with a brightness and a contrast of its
        own; pixels have mean 0.5 and a standard deviation of about 0.13.
    random_state : int or None

    Returns
    -------
    ContrastiveData
        Rows of 256 pixels, the labels are the ten digits.

    Examples
    --------
    >>> from contrastive_lvm.datasets import make_digits_on_texture
    >>> data = make_digits_on_texture(random_state=0)
    >>> data.target.shape, data.background.shape
    ((1000, 256), (1000, 256))
    """
    check_integer("n_target", n_target, 1)
    check_integer("n_background", n_background, 1)
    check_positive("intensity", intensity)
    if spectrum is not None:
        spectrum = check_number("spectrum", spectrum, 0.0, 8.0, "a number from 0 to 8, or None")
    rng = np.random.default_rng(random_state)
    digits, labels = _digits(n_target, rng)
    return ContrastiveData(
        target=intensity * digits + texture(n_target, SIDE, spectrum, rng),
        background=texture(n_background, SIDE, spectrum, rng),
        target_labels=labels,
        feature_names=[f"{row},{column}" for row in range(16) for column in range(16)],
        description=f"Digits of 8 x 8 pixels at intensity {intensity:g} on "
        f"{'smooth random' if spectrum is None else 'rough'} texture.",
    )


def _digits(n: int, rng: np.random.Generator) -> tuple[Floats, Integers]:
    """Draw digits as pixels between 0 and 1, (n, 256), and their labels."""
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    chosen = np.resize(rng.permutation(len(images)), n)
    pixels = np.kron(images[chosen].reshape(n, 8, 8) / 16.0, np.ones((1, 2, 2)))
    return pixels.reshape(n, -1), labels[chosen].astype(np.intp)


def texture(n: int, side: int, spectrum: float | None, rng: np.random.Generator) -> Floats:
    """Draw square images of texture, (n, side * side)."""
    if spectrum is None:
        return _waves(n, side, rng)
    return np.concatenate(
        [_field(min(BLOCK, n - i), side, spectrum, rng) for i in range(0, n, BLOCK)]
    )


def _field(n: int, side: int, spectrum: float, rng: np.random.Generator) -> Floats:
    """Draw windows of periodic Gaussian fields with power `f ** -spectrum`, (n, side * side)."""
    size = side + side // 2  # windows of a larger field have no seams
    f = size * np.hypot(np.fft.fftfreq(size)[:, None], np.fft.fftfreq(size))
    power = np.maximum(f, 1.0) ** -spectrum * (f > 0)
    noise = np.fft.fft2(rng.standard_normal((n, size, size)))
    fields = np.fft.ifft2(noise * np.sqrt(power / power.mean())).real[:, :side, :side]
    contrast = np.exp(0.35 * rng.standard_normal((n, 1)))
    brightness = 0.08 * rng.standard_normal((n, 1))
    images: Floats = 0.5 + brightness + 0.1 * contrast * fields.reshape(n, -1)
    return images


def _waves(n: int, side: int, rng: np.random.Generator) -> Floats:
    """Draw sums of four smooth plane waves, (n, side * side)."""
    u, v = np.indices((side, side)).reshape(2, -1) / side
    total = np.zeros((n, side * side))
    for _ in range(4):
        f, g = rng.uniform(-1.5, 1.5, (2, n, 1))
        phase = rng.uniform(0.0, 2.0 * np.pi, (n, 1))
        total += np.cos(2.0 * np.pi * (f * u + g * v) + phase)
    images: Floats = 0.5 + 0.25 * np.sqrt(2.0 / 4.0) * total
    return images
