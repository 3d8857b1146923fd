"""K-means from several starts at once, beside scikit-learn's."""

import numpy as np
from sklearn.cluster import KMeans

from contrastive_lvm.linalg.clusters import kmeans


def test_inertias_are_those_of_the_clusters_and_the_best_is_scikit_learns() -> None:
    rng = np.random.default_rng(0)
    points = rng.standard_normal((200, 2)) + 3.0 * rng.integers(0, 2, (200, 2))
    weights = rng.integers(0, 3, 200).astype(float)
    labels, inertias = kmeans(points, weights, 4, n_starts=8, seed=0)
    for own, inertia in zip(labels, inertias, strict=True):
        parts = [own == c for c in np.unique(own)]
        means = [np.average(points[part], axis=0, weights=weights[part]) for part in parts]
        squares = [
            weights[part] @ ((points[part] - mean) ** 2).sum(axis=1)
            for part, mean in zip(parts, means, strict=True)
        ]
        np.testing.assert_allclose(inertia, np.sum(squares), rtol=1e-10)
    best = KMeans(4, n_init=10, random_state=0).fit(points, sample_weight=weights).inertia_
    np.testing.assert_allclose(inertias.min(), best, rtol=1e-6)


def test_a_cluster_of_every_point_and_points_that_are_equal() -> None:
    points = np.array([[0.0], [0.0], [1.0], [2.0]])
    labels, inertias = kmeans(points, np.ones(4), 3, n_starts=5, seed=1)
    np.testing.assert_allclose(inertias, 0.0, atol=1e-12)
    assert (labels[:, 0] == labels[:, 1]).all()
