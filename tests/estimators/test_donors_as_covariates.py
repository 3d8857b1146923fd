"""Blood cells of eight donors: donors as covariates leave no trace in the target latents."""

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_score
from sklearn.neighbors import KNeighborsClassifier

import contrastive_lvm as clvm
from contrastive_lvm.datasets.download import present
from tests.oracles import Array


def log_rates(counts: Array) -> Array:
    totals = counts.sum(axis=1)
    return np.asarray(np.log1p(counts / totals[:, None] * np.median(totals)))


@pytest.mark.slow
def test_donors_are_not_seen_in_the_target_latents() -> None:
    if not present("kang_pbmc/kang_pbmc_500genes.npz") or not present("kang_pbmc/kang_donors.csv"):
        pytest.skip("kang_pbmc is not there")
    data = clvm.datasets.fetch_kang_pbmc()
    donors = [np.asarray(own, dtype=object) for own in (data.target_donors, data.background_donors)]
    known = [np.array([isinstance(d, str) and d != "" for d in own]) for own in donors]
    X, B = (
        log_rates(np.asarray(rows, dtype=float)[own])
        for rows, own in zip((data.target, data.background), known, strict=True)
    )
    C, E = (pd.DataFrame({"donor": own[at]}) for own, at in zip(donors, known, strict=True))
    stimulated = np.asarray(data.target_labels)[known[0]]
    plain = clvm.ContrastiveLVM(2, 10).fit(X, background=B).transform(X)
    model = clvm.ContrastiveLVM(2, 10)
    model.fit(X, background=B, covariates=C, background_covariates=E)
    T = model.transform(X, covariates=C)
    chance = C["donor"].value_counts(normalize=True).max()
    for classifier in (LogisticRegression(max_iter=500), KNeighborsClassifier(25)):
        assert cross_val_score(classifier, T, C["donor"], cv=5).mean() < chance + 0.05
        before, after = (
            cross_val_score(classifier, latents, stimulated, cv=5).mean() for latents in (plain, T)
        )
        assert after > before - 0.01
