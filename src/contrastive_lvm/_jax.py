"""NumPyro and JAX, loaded when they are used, their types, and the sites that priors share."""

from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar

import numpy as np

if TYPE_CHECKING:
    import jax

    JaxArray: TypeAlias = jax.Array
    JaxArrayLike: TypeAlias = jax.Array | np.ndarray  # compiled functions accept both
    AnyArray: TypeAlias = np.ndarray[Any, Any] | jax.Array  # on the host or on a device
else:  # JAX is an extra
    JaxArray = JaxArrayLike = AnyArray = Any

Tree = TypeVar("Tree")  # tuples and dicts of arrays, nested in any way


class Blackbox(NamedTuple):
    """The modules that densities are written with."""

    numpyro: Any
    dist: Any
    jnp: Any


def load() -> Blackbox:
    """Import them, or say in one sentence what to install."""
    try:
        names = ("numpyro", "numpyro.distributions", "jax.numpy")
        return Blackbox(*(import_module(name) for name in names))
    except ImportError as error:
        raise ImportError(
            "SVI, NUTS, densities and autoencoders need JAX and NumPyro, which are not installed; "
            "pip install 'contrastive-lvm[jax]'."
        ) from error


def module(name: str) -> Any:
    """A module of JAX, NumPyro or optax."""
    load()
    return import_module(name)


def to_numpy(tree: Tree) -> Tree:
    """Copy every array of a tree to NumPy."""
    copied: Tree = module("jax").tree.map(np.asarray, tree)
    return copied


def all_finite(tree: object) -> bool:
    """Tell whether no array of a tree has a NaN or an infinity."""
    leaves = module("jax").tree.leaves(tree)
    return all(bool(np.isfinite(np.asarray(leaf)).all()) for leaf in leaves)


def double_precision() -> Any:
    """A context in which JAX has 64 bits; outside nothing changes."""
    return module("jax").enable_x64(True)  # noqa: FBT003


def special() -> Any:
    """JAX's special functions."""
    return module("jax.scipy.special")


def flat_site(
    name: str, shape: tuple[int, ...], between: tuple[float, float] | None = None
) -> JaxArray:
    """Draw real values with density 1, everywhere or between two limits."""
    numpyro, dist, _ = load()
    support = dist.constraints.real if between is None else dist.constraints.interval(*between)
    site: JaxArray = numpyro.sample(name, dist.ImproperUniform(support, (), shape))
    return site


def normal_loadings(
    name: str, scale: JaxArray, shape: tuple[int, int], *, augmented: bool
) -> JaxArray:
    """Draw `L ~ N(0, scale^2)`; when not augmented, as `scale` times a standard normal site."""
    numpyro, dist, jnp = load()
    scale = jnp.broadcast_to(scale, shape)
    if augmented:
        loadings: JaxArray = numpyro.sample(name, dist.Normal(0.0, scale).to_event(2))
        return loadings
    standard = numpyro.sample(f"{name} standard", dist.Normal(0.0, 1.0).expand(shape).to_event(2))
    scaled: JaxArray = numpyro.deterministic(name, scale * standard)
    return scaled
