"""Rows of several sets that share some latent dimensions, drawn from the model."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from contrastive_lvm.checks import Seed, check_integer, check_positive
from contrastive_lvm.exceptions import InvalidParameterError

Floats = npt.NDArray[np.float64]
BLOCKS = {"a+b+c": 3, "b+c": 1, "c": 1}


class MultiSetData(NamedTuple):
    """Rows of several sets, and what they were made from."""

    rows: Floats  # (n, d) rows of all sets
    sets: npt.NDArray[np.str_]  # (n,) the set of each row
    activity: dict[str, tuple[str, ...]]  # the sets that have each block
    loadings: dict[str, Floats]  # (d, n_components) loadings of each block
    latents: dict[str, Floats]  # (n, n_components) latents of each block; NaN in sets without it
    noise_std: Floats  # (number of sets, d) noise deviations, sets in the order of their names
    feature_names: list[str]
    description: str


def make_multi_set(
    blocks: Mapping[str, int] | None = None,
    *,
    n_rows: int | Sequence[int] = 100,
    n_features: int = 20,
    noise_std: float | Sequence[float] = 0.5,
    random_state: Seed = None,
) -> MultiSetData:
    """Draw rows of several sets from the model.

    Row i of set s is `x = sum_b L_b h_b + mean_s + noise` over the blocks b that set s has, with
    standard normal loadings, latents and means.

    Parameters
    ----------
    blocks : dict of str to int
        Number of dimensions by the sets that have them, joined by "+". By default there are three
        sets: all share three dimensions, two of them share one more, and one of these has another
        of its own.
    n_rows : int or sequence of int
        Number of rows of every set, or one number for each set in the order of their names.
    n_features : int
    noise_std : float or sequence of float
        Standard deviation of the noise of every set, or one number for each set.
    random_state : int, generator or None

    Returns
    -------
    MultiSetData
        Named tuple `rows, sets, activity, loadings, latents, noise_std, feature_names,
        description`.

    Examples
    --------
    >>> import contrastive_lvm as clvm
    >>> data = clvm.datasets.make_multi_set({"a+b": 2, "b": 1}, n_rows=50, random_state=0)
    >>> data.rows.shape, data.activity
    ((100, 20), {'a+b': ('a', 'b'), 'b': ('b',)})
    """
    given = BLOCKS if blocks is None else dict(blocks)
    activity = {name: tuple(name.split("+")) for name in given}
    names = sorted({s for sets in activity.values() for s in sets})
    d = check_integer("n_features", n_features, 1)
    sizes = [check_integer("n_rows", n, 1) for n in _of_each("n_rows", n_rows, len(names))]
    stds = [check_positive("noise_std", v) for v in _of_each("noise_std", noise_std, len(names))]
    rng = np.random.default_rng(random_state)
    sets = np.repeat(names, sizes)
    rows = np.vstack([np.tile(rng.standard_normal(d), (n, 1)) for n in sizes])
    loadings, latents = {}, {}
    for name, n in given.items():
        L = rng.standard_normal((d, check_integer(f"blocks[{name!r}]", n, 0)))
        h = rng.standard_normal((len(rows), n))
        active = np.isin(sets, activity[name])
        rows[active] += h[active] @ L.T
        loadings[name], latents[name] = L, np.where(active[:, None], h, np.nan)
    noise = np.repeat(np.array(stds)[:, None], d, axis=1)
    rows += rng.standard_normal(rows.shape) * np.repeat(noise, sizes, axis=0)
    words = f"{len(names)} sets with {sum(given.values())} dimensions in {len(given)} blocks."
    features = [f"feature {i + 1}" for i in range(d)]
    return MultiSetData(rows, sets, activity, loadings, latents, noise, features, words)


def _of_each(name: str, value: Any, n: int) -> list[Any]:
    """Return a value for each set, from one for all or a sequence."""
    if np.ndim(value) == 0:
        return [value] * n
    if len(value) != n:
        reason = f"has {len(value)} values for {n} sets; give one for all, or one for each."
        raise InvalidParameterError(name, value, reason)
    return list(value)
