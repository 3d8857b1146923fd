"""How well latents show what is known about rows, and how data are prepared for it."""

from typing import Any

import numpy as np
from sklearn.cluster import KMeans
from sklearn.decomposition import PCA
from sklearn.impute import SimpleImputer
from sklearn.metrics import adjusted_rand_score, silhouette_score
from sklearn.model_selection import GroupKFold, cross_val_score
from sklearn.neighbors import KNeighborsClassifier
from threadpoolctl import threadpool_limits

from contrastive_lvm.arrays import Array
from contrastive_lvm.estimators.contrastive_pca import ContrastivePCA


def ari(latents: Array, labels: Any) -> float:
    """Adjusted Rand index of as many k-means clusters as there are labels."""
    with threadpool_limits(1):  # threads that wait for each other cost seconds on a busy machine
        clusters = KMeans(len(np.unique(labels)), n_init=10, random_state=0).fit_predict(latents)
    return float(adjusted_rand_score(labels, clusters))


def silhouette(latents: Array, labels: Any) -> float:
    """Of the true groups."""
    return float(silhouette_score(latents, labels))


def told(latents: Array, labels: Any, groups: Any, n_neighbors: int = 10) -> float:
    """Accuracy of neighbours for rows of groups (of mice, say) that were left out."""
    judge = KNeighborsClassifier(n_neighbors)
    scores = cross_val_score(judge, latents, labels, groups=groups, cv=GroupKFold(5))
    return float(np.mean(scores))


def moved(before: Array, after: Array) -> float:
    """How far rows moved, relative to their spread, after the best rotation and scale."""
    before, after = before - before.mean(axis=0), after - after.mean(axis=0)
    U, values, Vt = np.linalg.svd(after.T @ before)
    turned = (values.sum() / (after**2).sum()) * after @ (U @ Vt)
    return float(np.linalg.norm(before - turned) / np.linalg.norm(before))


def turned_onto(before: Array, after: Array) -> Array:
    """The later latents, rotated and scaled to lie on the earlier ones, rows in common first."""
    own = after[: len(before)]
    centre, mean = before.mean(axis=0), own.mean(axis=0)
    U, values, Vt = np.linalg.svd((own - mean).T @ (before - centre))
    scale = values.sum() / ((own - mean) ** 2).sum()
    turned: Array = scale * (after - mean) @ (U @ Vt) + centre
    return turned


def over_own_spread(X: Array, B: Array) -> tuple[Array, Array]:
    """Both sets over the features' standard deviations about each set's own mean."""
    both = np.vstack([X - np.nanmean(X, axis=0), B - np.nanmean(B, axis=0)])
    std = np.nanstd(both, axis=0)
    return X / std, B / std


def over_common_spread(X: Array, B: Array) -> tuple[Array, Array]:
    """Both sets over the features' standard deviations about their common mean."""
    std = np.nanstd(np.vstack([X, B]), axis=0)
    return X / std, B / std


def pca(X: Array) -> Array:
    """Two components of the target alone, gaps filled with means."""
    latents: Array = PCA(2).fit_transform(SimpleImputer().fit_transform(X))
    return latents


def contrastive_pca(X: Array, B: Array) -> Array:
    """Two components with the strength chosen without labels, gaps filled with means."""
    X, B = (SimpleImputer().fit_transform(rows) for rows in (X, B))
    latents: Array = ContrastivePCA(2).fit(X, background=B).transform(X)
    return latents
