"""K-means clusters of a few dimensions, from several starts at once.

Lloyd's algorithm from starts by k-means++ (Arthur & Vassilvitskii 2007), for points with weights.
All starts are computed as one array, since for a few thousand points in a few dimensions the
overhead of a call exceeds its work.
"""

import numpy as np
import numpy.typing as npt

from contrastive_lvm.arrays import Array

MOST_STEPS = 100  # of Lloyd's algorithm


def kmeans(
    points: Array, weights: Array, n_clusters: int, n_starts: int, seed: int
) -> tuple[npt.NDArray[np.intp], Array]:
    """Return the cluster of each point from each start, (R, N), and the weighted inertias, (R,).

    Examples
    --------
    >>> points = np.array([[0.0], [0.1], [5.0], [5.1]])
    >>> labels, inertias = kmeans(points, np.ones(4), 2, n_starts=1, seed=0)
    >>> bool(labels[0, 0] == labels[0, 1] != labels[0, 2] == labels[0, 3]), inertias.round(3)
    (True, array([0.01]))
    """
    centres = _seeded(points, weights, n_clusters, n_starts, np.random.default_rng(seed))
    labels = _nearest(points, centres)[0]
    for _ in range(MOST_STEPS):
        centres = _centres(points, weights, labels, centres)
        before, (labels, squares) = labels, _nearest(points, centres)
        if (labels == before).all():
            break
    return labels, squares @ weights


def _seeded(
    points: Array, weights: Array, n_clusters: int, n_starts: int, rng: np.random.Generator
) -> Array:
    """Draw centres that are far from those before, with probabilities by squared distance."""
    chosen, far = [], np.ones((n_starts, len(points)))
    for _ in range(n_clusters):
        cumulated = np.cumsum(far * weights, axis=1)
        at = (cumulated < rng.random((n_starts, 1)) * cumulated[:, -1:]).sum(axis=1)
        chosen.append(points[np.minimum(at, len(points) - 1)])
        own = _nearest(points, chosen[-1][:, None])[1]
        far = own if len(chosen) == 1 else np.minimum(far, own)
    return np.stack(chosen, axis=1)


def _nearest(points: Array, centres: Array) -> tuple[npt.NDArray[np.intp], Array]:
    """Return the centre that is nearest to each point, and the squared distance, (R, N) each."""
    (R, C, T), norms = centres.shape, np.square(centres).sum(axis=2)
    away = -2.0 * (centres.reshape(R * C, T) @ points.T).reshape(R, C, -1) + norms[:, :, None]
    squares = away.min(axis=1) + np.square(points).sum(axis=1)
    return away.argmin(axis=1), np.maximum(squares, 0.0)


def _centres(points: Array, weights: Array, labels: npt.NDArray[np.intp], before: Array) -> Array:
    """Return the weighted means of clusters; those without points stay where they were."""
    found = before.copy()
    for c in range(before.shape[1]):
        member = np.where(labels == c, weights, 0.0)  # (R, N)
        size = member.sum(axis=1)
        has = size > 0
        found[has, c] = (member[has] @ points) / size[has, None]
    return found
