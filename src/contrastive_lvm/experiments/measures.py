"""Measures of how well latents show known groups of rows, and scaling of the data."""

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
from scipy.linalg import orthogonal_procrustes
from sklearn.cluster import KMeans
from sklearn.decomposition import PCA
from sklearn.impute import SimpleImputer
from sklearn.metrics import adjusted_rand_score, silhouette_score
from sklearn.model_selection import GroupKFold, cross_val_score
from sklearn.neighbors import KNeighborsClassifier
from threadpoolctl import threadpool_limits

from contrastive_lvm.arrays import Array
from contrastive_lvm.estimators.contrastive_pca import ContrastivePCA
from contrastive_lvm.experiments.outcome import SeedSpread, spread

Labels = npt.NDArray[np.intp]


def ari(latents: Array, labels: Labels) -> float:
    """Return the adjusted Rand index of as many k-means clusters as there are labels."""
    with threadpool_limits(1):  # threads that wait for each other cost seconds on a busy machine
        clusters = KMeans(len(np.unique(labels)), n_init=10, random_state=0).fit_predict(latents)
    return float(adjusted_rand_score(labels, clusters))


def silhouette(latents: Array, labels: Labels) -> float:
    """Return the silhouette of the true groups."""
    return float(silhouette_score(latents, labels))


def scores(latents: Sequence[Array], labels: Labels) -> dict[str, SeedSpread]:
    """Return both measures over the latents of several seeds."""
    return {
        "ARI": spread(ari(h, labels) for h in latents),
        "silhouette": spread(silhouette(h, labels) for h in latents),
    }


def neighbour_accuracy(
    latents: Array,
    labels: Labels,
    groups: npt.NDArray[np.str_] | None = None,
    n_neighbors: int = 10,
) -> float:
    """Return the cross-validated accuracy of nearest neighbours, whole groups left out."""
    judge = KNeighborsClassifier(n_neighbors)
    folds = 5 if groups is None else GroupKFold(5)
    return float(cross_val_score(judge, latents, labels, groups=groups, cv=folds).mean())


def procrustes(before: Array, after: Array) -> Array:
    """Rotate and scale the later latents onto the earlier ones, rows in common first."""
    own = after[: len(before)]
    centre, mean = before.mean(axis=0), own.mean(axis=0)
    rotation, values = orthogonal_procrustes(own - mean, before - centre)
    scale = values / ((own - mean) ** 2).sum()
    return np.asarray(scale * (after - mean) @ rotation + centre)


def displacement(before: Array, after: Array) -> float:
    """Return how far rows moved, relative to their spread, after the best rotation and scale."""
    moved = np.linalg.norm(before - procrustes(before, after)[: len(before)])
    return float(moved / np.linalg.norm(before - before.mean(axis=0)))


def scale_about_own_means(X: Array, B: Array) -> tuple[Array, Array]:
    """Divide both sets by the features' standard deviations about each set's own mean."""
    both = np.vstack([X - np.nanmean(X, axis=0), B - np.nanmean(B, axis=0)])
    std = np.nanstd(both, axis=0)
    return X / std, B / std


def pca(X: Array, _: Array) -> Array:
    """Return two principal components of the target, missing entries replaced by means."""
    return np.asarray(PCA(2).fit_transform(SimpleImputer().fit_transform(X)))


def contrastive_pca(X: Array, B: Array) -> Array:
    """Return two components of contrastive PCA, missing entries replaced by means."""
    X, B = (SimpleImputer().fit_transform(rows) for rows in (X, B))
    return np.asarray(ContrastivePCA(2).fit(X, background=B).transform(X))


# Methods for comparison, as functions of the target and the background.
BASELINES: dict[str, Callable[[Array, Array], Array]] = {"PCA": pca, "cPCA": contrastive_pca}
