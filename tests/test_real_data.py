"""Real data, where `CONTRASTIVE_LVM_DATA` says it is: what the models find without tuning."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.cluster import KMeans
from sklearn.decomposition import PCA
from sklearn.metrics import adjusted_rand_score, silhouette_score
from sklearn.model_selection import cross_val_score
from sklearn.neighbors import KNeighborsClassifier

import contrastive_lvm as clvm
from contrastive_lvm.experiments.measures import scale_about_own_means
from contrastive_lvm.experiments.mice import with_missing
from tests.datasets.published_files import real


@pytest.mark.parametrize(
    ("share", "ari", "silhouette"),
    [
        pytest.param(0.0, 0.78, 0.42, marks=pytest.mark.slow),
        pytest.param(0.25, 0.77, 0.41, marks=pytest.mark.slow),
        pytest.param(0.5, 0.74, 0.37, marks=pytest.mark.slow),
        (0.75, 0.64, 0.31),
    ],
)
def test_mice_genotypes_show_without_labels(share: float, ari: float, silhouette: float) -> None:
    """The paper's robust model; means over five missing patterns."""
    real("mice_protein", "Data_Cortex_Nuclear.csv")
    data = clvm.datasets.fetch_mice_protein()
    genotype = data.target_labels
    found = []
    for seed in range(5 if share else 1):
        target, background = with_missing(data, share, seed)
        model = clvm.ContrastiveLVM(2, 2, likelihood="student_t")
        latents = model.fit_transform(target, background=background)
        clusters = KMeans(2, n_init=10, random_state=0).fit_predict(latents)
        agreement = adjusted_rand_score(genotype, clusters)
        found.append((agreement, silhouette_score(latents, genotype)))
    means = np.mean(found, axis=0)
    assert means[0] >= ari, found
    assert means[1] >= silhouette, found


@pytest.mark.slow
def test_kang_cells_need_fewer_than_120_of_499_shared_dimensions() -> None:
    with np.load(real("kang_pbmc", "kang_pbmc_500genes.npz"), allow_pickle=False) as file:
        counts, total = file["X"].astype(float), file["total_counts"]
        X = np.log1p(counts / total[:, None] * 1e4)
        target, background = X[file["target_idx"]], X[file["background_idx"]]
    model = clvm.ContrastiveLVM(2, 499, shared_prior="ard").fit(target, background=background)
    assert model.converged_
    assert 90 < model.n_shared_ < 120
    assert (np.diff(model.lower_bounds_) >= 0).all()


@pytest.mark.slow
def test_kang_counts_show_the_stimulus_and_leave_cell_types_to_the_shared_space() -> None:
    """Raw counts, negative binomial, against a Gaussian model of log-normalised data and PCA.

    Silhouettes of the Gaussian model are of `W t`, distances in the predictor: PCA's scores have
    their variances too, and latents of counts are in units of their errors.
    """
    pytest.importorskip("numpyro", reason="the extra jax is not installed")
    with np.load(real("kang_pbmc", "kang_pbmc_500genes.npz"), allow_pickle=False) as file:
        counts, total = file["X"].astype(np.float32), file["total_counts"]
        at, others = file["target_idx"], file["background_idx"]
        stimulated, cell_type = file["target_label"], file["cell_type"][at]
    logs = np.log1p(counts / total[:, None] * 1e4).astype(float)
    words: Any = {"shared_prior": "ard", "target_prior": "ard"}
    gaussian = clvm.ContrastiveLVM(2, 10, **words).fit(logs[at], background=logs[others])
    model = clvm.ContrastiveLVM(2, 10, likelihood="negative_binomial", random_state=0, **words).fit(
        counts[at], background=counts[others]
    )
    latents = model.latents(counts[at])
    assert latents.target is not None

    ours = silhouette_score(latents.target, stimulated)
    assert ours > 0.46
    effects = gaussian.transform(logs[at]) * np.linalg.norm(gaussian.target_components_, axis=1)
    assert ours > 0.03 + silhouette_score(effects, stimulated)
    assert ours > 0.1 + silhouette_score(PCA(2).fit_transform(logs[at]), stimulated)
    neighbours = KNeighborsClassifier(20)
    told = [
        cross_val_score(neighbours, space, cell_type, cv=5).mean()
        for space in (latents.target, latents.shared)
    ]
    assert told[0] < 0.55
    assert told[1] > 0.8


@pytest.mark.slow
def test_sensors_drop_by_type() -> None:
    """Three types of sensor as groups: each type stays or goes as one, magnetometers first."""
    with np.load(real("daily_sports", "daily_sports_subject1.npz"), allow_pickle=False) as f:
        X, activity, names = f["X"].astype(float), f["activity"], [str(c) for c in f["columns"]]
    types = [name.split("_")[1][1:] for name in names]  # T_xacc and so on
    target, background = scale_about_own_means(
        X[np.isin(activity, [15, 17])][::5], X[activity == 3][::5]
    )
    prior = clvm.GroupLasso(groups=types)
    path = clvm.group_lasso_path(
        clvm.ContrastiveLVM(2, 5, target_prior=prior), target, background=background, n_rhos=15
    )
    stays = pd.DataFrame(path.row_norms > 0, columns=types).T.groupby(level=0)
    assert (stays.all() == stays.any()).all(axis=None)
    left = stays.any().sum(axis=1)  # strengths that a type survives
    assert left.idxmin() == "mag"
    assert left.nunique() == 3
