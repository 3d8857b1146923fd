"""The three synthetic data sets of the paper's supplement."""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from contrastive_lvm.checks import Seed, check_integer, check_positive

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.intp]


class ContrastiveData(NamedTuple):
    """A target set, its background, and facts about them."""

    target: Floats  # (n, d) rows
    background: Floats  # (m, d) rows
    target_labels: Integers  # (n,) subgroup of each row of the target
    feature_names: list[str]
    description: str


def make_subgroups(
    n_target: int = 400, n_background: int = 400, *, random_state: Seed = None
) -> ContrastiveData:
    """Make four subgroups hidden under strong shared noise: the paper's first data set.

    Thirty features in three blocks of ten, all normal. The supplement's table gives their means
    and standard deviations (its second argument of N is a standard deviation, as in the code of
    cPCA that it is taken from):

    ======== ========= ========= ========= ========= ==========
    features  A         B         C         D         background
    ======== ========= ========= ========= ========= ==========
    1-10      (0, 1)    (0, 1)    (6, 1)    (6, 1)    (0, 3)
    11-20     (0, 1)    (3, 1)    (0, 1)    (3, 1)    (0, 1)
    21-30     (0, 10)   (0, 10)   (0, 10)   (0, 10)   (0, 10)
    ======== ========= ========= ========= ========= ==========

    Parameters
    ----------
    n_target, n_background : int
        Numbers of rows; the sizes of the subgroups differ by at most one.
    random_state : int, generator or None

    Examples
    --------
    >>> import contrastive_lvm as clvm
    >>> data = clvm.datasets.make_subgroups(random_state=0)
    >>> data.target.shape, data.background.shape
    ((400, 30), (400, 30))
    """
    rng = np.random.default_rng(random_state)
    labels = np.arange(check_integer("n_target", n_target, 1)) * 4 // n_target
    target = rng.standard_normal((n_target, 30))
    target[:, :10] += 6.0 * (labels >= 2)[:, None]
    target[:, 10:20] += 3.0 * (labels % 2)[:, None]
    background = rng.standard_normal((check_integer("n_background", n_background, 1), 30))
    background[:, :10] *= 3.0
    target[:, 20:] *= 10.0
    background[:, 20:] *= 10.0
    words = "Four subgroups in features 1-20 under noise of standard deviation 10 in 21-30."
    return _data(target, background, labels, words)


def make_contrastive(
    n_target: int = 400,
    n_background: int = 400,
    *,
    n_features: int = 50,
    n_shared: int = 8,
    n_clusters: int = 4,
    noise_std: float = 0.5,
    random_state: Seed = None,
) -> ContrastiveData:
    """Draw rows from the model, the target latents in clusters: the paper's second data set.

    `x = S z + W t + noise`, `y = S z + noise` with standard normal loadings and `z`, and two target
    latents, normal about one of `n_clusters` points on a circle with standard deviation 0.25. The
    radius, 1.37, gives each target latent a variance of 1, as the model assumes. The paper gives no
    sizes; we chose these defaults.

    Parameters
    ----------
    n_target, n_background, n_features, n_shared, n_clusters : int
    noise_std : float
    random_state : int, generator or None

    Examples
    --------
    >>> import contrastive_lvm as clvm
    >>> clvm.datasets.make_contrastive(random_state=0).target.shape
    (400, 50)
    """
    rng = np.random.default_rng(random_state)
    for name, value in (("n_features", n_features), ("n_clusters", n_clusters)):
        check_integer(name, value, 1)
    check_positive("noise_std", noise_std)
    labels = np.arange(check_integer("n_target", n_target, 1)) * n_clusters // n_target
    angle = 2.0 * np.pi * labels / n_clusters
    t = np.sqrt(2.0 * (1.0 - 0.25**2)) * np.column_stack([np.cos(angle), np.sin(angle)])
    t += 0.25 * rng.standard_normal((n_target, 2))
    S, W = rng.standard_normal((n_features, n_shared)), rng.standard_normal((n_features, 2))

    def shared(rows: int) -> Floats:
        noise = noise_std * rng.standard_normal((rows, n_features))
        return rng.standard_normal((rows, n_shared)) @ S.T + noise

    target = shared(n_target) + t @ W.T
    background = shared(check_integer("n_background", n_background, 1))
    words = f"The generative model: {n_shared} shared dimensions, {n_clusters} target clusters."
    return _data(target, background, labels, words)


def make_outliers(
    n_target: int = 400,
    n_background: int = 400,
    *,
    n_outliers: int = 20,
    random_state: Seed = None,
    **settings: Any,
) -> ContrastiveData:
    """Make the second data set with outliers: the paper's third data set.

    `n_outliers` rows, uniform on [-20, 20] in every feature, are appended to each of the two sets
    of `make_contrastive` (same `random_state`, same other rows); their label is -1.

    Parameters
    ----------
    n_target, n_background, n_outliers : int
    random_state : int, generator or None
    **settings
        Passed to `make_contrastive`.

    Examples
    --------
    >>> import contrastive_lvm as clvm
    >>> data = clvm.datasets.make_outliers(random_state=0)
    >>> data.target.shape, int((data.target_labels == -1).sum())
    ((420, 50), 20)
    """
    clean = make_contrastive(n_target, n_background, random_state=random_state, **settings)
    seed: Seed | list[int] = random_state
    if isinstance(random_state, int | np.integer):
        seed = [int(random_state), 1]
    rng = np.random.default_rng(seed)
    size = (check_integer("n_outliers", n_outliers, 0), clean.target.shape[1])
    return clean._replace(
        target=np.vstack([clean.target, rng.uniform(-20.0, 20.0, size)]),
        background=np.vstack([clean.background, rng.uniform(-20.0, 20.0, size)]),
        target_labels=np.concatenate([clean.target_labels, np.full(n_outliers, -1)]),
        description=f"{clean.description} {n_outliers} outliers in each set.",
    )


def _data(target: Floats, background: Floats, labels: Integers, words: str) -> ContrastiveData:
    names = [f"feature {i + 1}" for i in range(target.shape[1])]
    return ContrastiveData(target, background, labels, names, words)
