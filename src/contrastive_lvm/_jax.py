"""NumPyro and JAX, loaded when they are used, their types, and the sites that priors share."""

from collections.abc import Callable, Hashable
from contextlib import AbstractContextManager
from functools import lru_cache
from importlib import import_module
from itertools import count
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar

import numpy as np

__all__ = [
    "AnyArray",
    "JaxArray",
    "JaxArrayLike",
    "OptimizerState",
    "Tree",
    "all_finite",
    "cached_program",
    "dist",
    "double_precision",
    "flat_site",
    "jax",
    "jnp",
    "load",
    "module",
    "normal_loadings",
    "numpyro",
    "optax",
    "special",
    "to_numpy",
    "tree_map",
    "zeros_of",
]

Tree = TypeVar("Tree")  # tuples and dicts of arrays, nested in any way
Other = TypeVar("Other")
Layout = TypeVar("Layout", bound=Hashable)
Program = TypeVar("Program")
CHUNK_BYTES = 1 << 26  # of rows that are prepared for the device at a time
MOST_PROGRAMS = 4  # each takes about 25 MB, and compiling one some seconds
MOST_TRACED = 24  # programs; what JAX keeps of tracing one takes 2 to 5 MB


def module(name: str) -> ModuleType:
    """Import a module of JAX, NumPyro or optax, or say in one sentence what to install."""
    try:
        import_module("numpyro")
        return import_module(name)
    except ImportError as error:
        raise ImportError(
            "SVI, NUTS, densities and autoencoders need JAX and NumPyro, which are not installed; "
            "pip install 'contrastive-lvm[jax]'."
        ) from error


class LazyModule:
    """A module that is imported when one of its names is first used."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> object:
        found = getattr(module(self._name), attribute)
        setattr(self, attribute, found)  # the next time nothing is asked
        return found


if TYPE_CHECKING:
    import jax
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist
    import optax

    JaxArray: TypeAlias = jax.Array
    JaxArrayLike: TypeAlias = jax.Array | np.ndarray  # compiled functions accept both
    AnyArray: TypeAlias = np.ndarray[Any, Any] | jax.Array  # on the host or on a device
    OptimizerState: TypeAlias = optax.OptState
else:  # JAX is an extra
    JaxArray = JaxArrayLike = AnyArray = OptimizerState = Any
    jax, jnp, optax = LazyModule("jax"), LazyModule("jax.numpy"), LazyModule("optax")
    numpyro, dist = LazyModule("numpyro"), LazyModule("numpyro.distributions")


class Blackbox(NamedTuple):
    """The modules that densities are written with."""

    numpyro: ModuleType
    dist: ModuleType
    jnp: ModuleType


def load() -> Blackbox:
    """Import them."""
    return Blackbox(*map(module, ("numpyro", "numpyro.distributions", "jax.numpy")))


def tree_map(function: Callable[..., AnyArray], tree: Tree, *others: Tree) -> Tree:
    """Apply a function to corresponding arrays of trees of one structure."""
    mapped: Tree = jax.tree.map(function, tree, *others)
    return mapped


def to_numpy(tree: Tree) -> Tree:
    """Copy every array of a tree to NumPy."""
    return tree_map(np.asarray, tree)


def zeros_of(function: Callable[[Tree], Other], tree: Tree) -> Other:
    """Return zeros of the shapes that a function returns; nothing is compiled."""
    shapes: Other = jax.eval_shape(function, tree)
    return tree_map(lambda x: np.zeros(x.shape, x.dtype), shapes)


def all_finite(tree: object) -> bool:
    """Tell whether no array of a tree has a NaN or an infinity."""
    return all(bool(np.isfinite(np.asarray(leaf)).all()) for leaf in jax.tree.leaves(tree))


def double_precision() -> AbstractContextManager[None]:
    """Return a context in which JAX has 64 bits; outside nothing changes."""
    context: AbstractContextManager[None] = module("jax").enable_x64(True)  # noqa: FBT003
    return context


def cached_program(
    make: Callable[[Layout], Program], layout: Layout, shapes: Hashable = ()
) -> Program:
    """Return the program of a layout for data of some shapes, the last ones used being kept.

    JAX compiles a function anew for other shapes and keeps all versions as long as the function:
    with a function for each shape, what is no longer used can be freed. The program of an
    unhashable prior is made anew each time.

    What JAX's own functions (`jnp.where` and the like) looked like for each shape stays in caches
    of JAX that hold thousands of entries; some have no limit. There is no way to empty them for
    one program, so that all of JAX's are emptied after every `MOST_TRACED` programs. Functions
    that are in use are then compiled once more.
    """
    try:
        hash(layout)
    except TypeError:
        return _made(make, layout)
    program: Program = _cached(make, layout, shapes)
    return program


def _made(make: Callable[[Layout], Program], layout: Layout, _: Hashable = ()) -> Program:
    if next(_number) % MOST_TRACED == 0:
        module("jax").clear_caches()
    return make(layout)


_number = count(1)
_cached = lru_cache(MOST_PROGRAMS)(_made)


def special() -> ModuleType:
    """Return JAX's special functions."""
    return module("jax.scipy.special")


def flat_site(
    name: str, shape: tuple[int, ...], between: tuple[float, float] | None = None
) -> JaxArray:
    """Draw real values with density 1, everywhere or between two limits."""
    support = dist.constraints.real if between is None else dist.constraints.interval(*between)
    site: JaxArray = numpyro.sample(name, dist.ImproperUniform(support, (), shape))
    return site


def normal_loadings(
    name: str, scale: JaxArray, shape: tuple[int, int], *, augmented: bool
) -> JaxArray:
    """Draw `L ~ N(0, scale^2)`; when not augmented, as `scale` times a standard normal site."""
    scale = jnp.broadcast_to(scale, shape)
    if augmented:
        loadings: JaxArray = numpyro.sample(name, dist.Normal(0.0, scale).to_event(2))
        return loadings
    standard = numpyro.sample(f"{name} standard", dist.Normal(0.0, 1.0).expand(shape).to_event(2))
    scaled: JaxArray = numpyro.deterministic(name, scale * standard)
    return scaled
