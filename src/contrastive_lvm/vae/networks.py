"""Networks as plain functions of their weights: fully connected, convolutional, or your own.

A network is any hashable object with two methods:

- `init(n_inputs, n_outputs, rng)` returns its weights before training: tuples, lists, dicts or
  NamedTuples of float32 arrays, nested in any way, drawn with a `numpy.random.Generator`;
- `apply(weights, inputs)` returns outputs of shape (B, n_outputs) for inputs of shape
  (B, n_inputs), by functions that JAX can differentiate.

It depends on nothing but its constants, so that equal objects compute the same. A frozen dataclass
is the natural form. A NamedTuple with these methods, at the top level of a module, can be saved in
model files too.
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from contrastive_lvm._jax import JaxArray, JaxArrayLike, jax, jnp
from contrastive_lvm.checks import check_integer
from contrastive_lvm.exceptions import InvalidParameterError

ACTIVATIONS = ("relu", "elu", "gelu", "softplus", "tanh")
FIRST_OUTPUT = 0.1  # standard deviation of the outputs before training
KERNEL = 4  # pixels of a convolution in each direction; twice the stride, so that none is favoured
Weights = Any  # a tree of arrays, of the network's own making


@runtime_checkable
class Network(Protocol):
    """An encoder or a decoder."""

    def init(self, n_inputs: int, n_outputs: int, rng: np.random.Generator) -> Weights:
        """Return weights before training."""
        ...

    def apply(self, weights: Weights, inputs: JaxArrayLike) -> JaxArray:
        """Return outputs, (B, n_outputs), for inputs (B, n_inputs)."""
        ...


class Layer(NamedTuple):
    """`h -> h @ weights + bias`, or a convolution."""

    weights: JaxArrayLike  # (I, O), or (KERNEL, KERNEL, I, O)
    bias: JaxArrayLike  # (O,)


@dataclass(frozen=True)
class FullyConnected:
    """Layers of the given widths, each with an activation, and a linear one at the end."""

    hidden_layer_sizes: tuple[int, ...]
    activation: str

    def init(self, n_inputs: int, n_outputs: int, rng: np.random.Generator) -> tuple[Layer, ...]:
        """Draw weights that keep the variance of what passes through rectified layers."""
        widths = tuple(pairwise((n_inputs, *self.hidden_layer_sizes, n_outputs)))
        return tuple(
            draw_layer((i, o), rng, last=k == len(widths) - 1) for k, (i, o) in enumerate(widths)
        )

    def apply(self, weights: tuple[Layer, ...], inputs: JaxArrayLike) -> JaxArray:
        """Return outputs, (B, n_outputs)."""
        rectify, h = getattr(jax.nn, self.activation), inputs
        for layer in weights[:-1]:
            h = rectify(h @ layer.weights + layer.bias)
        return jnp.asarray(h @ weights[-1].weights + weights[-1].bias)


@dataclass(frozen=True)
class ConvolutionalEncoder:
    """A network that reads images: convolutions that halve the image, then two dense layers.

    Parameters
    ----------
    shape : tuple of int
        Height and width of an image; a row contains its pixels line by line.
    channels : tuple of int
        Channels of each convolution.
    width : int
        Width of the dense layer after them.

    Examples
    --------
    >>> import contrastive_lvm as clvm
    >>> data = clvm.datasets.make_digits_on_texture(100, 80, random_state=0)
    >>> shape = (16, 16)
    >>> model = clvm.ContrastiveVAE(
    ...     encoder=clvm.ConvolutionalEncoder(shape, channels=(4, 8), width=16),
    ...     decoder=clvm.ConvolutionalDecoder(shape, channels=(8, 4), width=16),
    ...     max_epochs=2, refine_steps=0, random_state=0,
    ... )
    >>> model.fit(data.target, background=data.background).transform(data.target).shape
    (100, 2)
    """

    shape: tuple[int, int]
    channels: tuple[int, ...] = (16, 32)
    width: int = 128

    def __post_init__(self) -> None:
        _check_sizes(self.shape, self.channels, self.width)

    def init(self, n_inputs: int, n_outputs: int, rng: np.random.Generator) -> tuple[Layer, ...]:
        """Draw weights; inputs may hold several images of a row, and numbers after them."""
        pixels = self.shape[0] * self.shape[1]
        images, others = divmod(n_inputs, pixels)
        if not images:
            raise ValueError(
                f"shape={self.shape} has {pixels} pixels, but rows have {n_inputs} features; give "
                "the height and width of the images."
            )
        layers = [
            draw_layer((KERNEL, KERNEL, i, o), rng) for i, o in pairwise((images, *self.channels))
        ]
        height, width = halved(self.shape, len(self.channels))
        flat = height * width * self.channels[-1] + others
        dense = FullyConnected((self.width,), "relu").init(flat, n_outputs, rng)
        return (*layers, *dense)

    def apply(self, weights: tuple[Layer, ...], inputs: JaxArrayLike) -> JaxArray:
        """Return outputs, (B, n_outputs)."""
        pixels = self.shape[0] * self.shape[1]
        images = inputs.shape[1] // pixels
        own, others = inputs[:, : images * pixels], inputs[:, images * pixels :]
        h = jnp.moveaxis(own.reshape(-1, images, *self.shape), 1, -1)
        for layer in weights[:-2]:
            h = jax.nn.relu(_convolved(h, layer.weights) + layer.bias)
        flat = jnp.concatenate([h.reshape(len(h), -1), others], axis=1)
        return FullyConnected((self.width,), "relu").apply(weights[-2:], flat)


@dataclass(frozen=True)
class ConvolutionalDecoder:
    """A network that makes images: two dense layers, then convolutions that double the image.

    Parameters
    ----------
    shape : tuple of int
        Height and width of an image.
    channels : tuple of int
        Channels before each convolution; the last one gives the image.
    width : int
        Width of the first dense layer.

    Examples
    --------
    >>> import numpy as np
    >>> import contrastive_lvm as clvm
    >>> network = clvm.ConvolutionalDecoder((28, 28))
    >>> weights = network.init(2, 784, np.random.default_rng(0))
    >>> network.apply(weights, np.zeros((5, 2), dtype=np.float32)).shape
    (5, 784)
    """

    shape: tuple[int, int]
    channels: tuple[int, ...] = (32, 16)
    width: int = 128

    def __post_init__(self) -> None:
        _check_sizes(self.shape, self.channels, self.width)

    def init(self, n_inputs: int, n_outputs: int, rng: np.random.Generator) -> tuple[Layer, ...]:
        """Draw weights."""
        if n_outputs != self.shape[0] * self.shape[1]:
            raise ValueError(
                f"shape={self.shape} has {self.shape[0] * self.shape[1]} pixels, but rows have "
                f"{n_outputs} features; give the height and width of the images."
            )
        first = self._first_image
        flat = first[0] * first[1] * first[2]
        dense = [draw_layer((n_inputs, self.width), rng), draw_layer((self.width, flat), rng)]
        sizes = tuple(pairwise((*self.channels, 1)))
        layers = [
            draw_layer((KERNEL, KERNEL, i, o), rng, last=k == len(sizes) - 1)
            for k, (i, o) in enumerate(sizes)
        ]
        return (*dense, *layers)

    @property
    def _first_image(self) -> tuple[int, int, int]:
        """Height, width and channels of what the dense layers give."""
        return (*halved(self.shape, len(self.channels)), self.channels[0])

    def apply(self, weights: tuple[Layer, ...], inputs: JaxArrayLike) -> JaxArray:
        """Return outputs, (B, n_outputs)."""
        h = jnp.asarray(inputs)
        for layer in weights[:2]:
            h = jax.nn.relu(h @ layer.weights + layer.bias)
        h = h.reshape(-1, *self._first_image)
        for k, layer in enumerate(weights[2:]):
            h = jax.nn.relu(h) if k else h
            h = jax.lax.conv_transpose(h, jnp.asarray(layer.weights), (2, 2), "SAME") + layer.bias
        return h[:, : self.shape[0], : self.shape[1], 0].reshape(len(h), -1)


def _check_sizes(shape: object, channels: object, width: object) -> None:
    if not isinstance(shape, tuple) or len(shape) != 2:
        raise InvalidParameterError("shape", shape, "must be a tuple (height, width).")
    if not isinstance(channels, tuple) or not channels:
        raise InvalidParameterError("channels", channels, "must be a tuple such as (16, 32).")
    for name, numbers in (("shape", shape), ("channels", channels), ("width", (width,))):
        for number in numbers:
            check_integer(name, number, 1)


def halved(shape: tuple[int, int], times: int) -> tuple[int, int]:
    """Return the height and width of an image after convolutions of stride 2."""
    height, width = shape
    for _ in range(times):
        height, width = -(-height // 2), -(-width // 2)
    return height, width


def _convolved(h: JaxArray, kernel: JaxArrayLike) -> JaxArray:
    """Convolve images (B, H, W, I) with stride 2."""
    names = ("NHWC", "HWIO", "NHWC")
    convolved: JaxArray = jax.lax.conv_general_dilated(
        h, jnp.asarray(kernel), (2, 2), "SAME", dimension_numbers=names
    )
    return convolved


def draw_layer(shape: tuple[int, ...], rng: np.random.Generator, *, last: bool = False) -> Layer:
    """Draw `N(0, 2 / I)` for hidden layers of I inputs (He et al. 2015, eq. 10).

    The last layer starts small: decoders at the mean, encoders at the prior. NumPy draws them,
    since JAX would compile once per shape.
    """
    gain = FIRST_OUTPUT**2 if last else 2.0
    inputs = int(np.prod(shape[:-1]))
    weights = rng.standard_normal(shape) * np.sqrt(gain / max(inputs, 1))
    return Layer(weights.astype(np.float32), np.zeros(shape[-1], dtype=np.float32))
