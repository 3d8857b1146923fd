"""What sets subgroups apart: errors of the whole fit, and whether the subgroups exist."""

from typing import Any

import numpy as np
import pandas as pd
import pytest

import contrastive_lvm as clvm
from contrastive_lvm.resampling.parallel import seed_sequence
from contrastive_lvm.resampling.subgroup_refits import grouped_rows, subgroup_refits

W = np.array([[2.0, -1.5, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0]])


def rows(away: float, seed: int = 0, n: int = 150) -> tuple[Any, np.ndarray, np.ndarray]:
    """Draw rows of two subgroups, of which the second has a third; return their differences too."""
    rng = np.random.default_rng(seed)
    labels = (np.arange(n) % 3 == 0).astype(int)
    t = away * labels[:, None] + 0.5 * rng.standard_normal((n, 1))
    X = t @ W + 0.3 * rng.standard_normal((n, 8))
    truth = np.array([[-away / 3], [2 * away / 3]]) @ W
    return pd.DataFrame(X).add_prefix("f"), labels, truth


def compared(X: Any, **words: Any) -> clvm.SubgroupDifferences:
    model = clvm.ContrastiveLVM(1, 0, latent_prior=clvm.Mixture(2)).fit(X)
    return clvm.subgroup_differences(model, X, n_resamples=30, random_state=0, **words)


def test_features_that_set_planted_subgroups_apart_are_found_with_their_errors() -> None:
    X, _, truth = rows(4.0)
    found = compared(X)
    table = found.table
    assert (found.separation <= 0.05).all()
    assert table.feature.tolist() == 2 * list(X.columns)
    assert (table.low < table.difference).all()
    assert (table.difference < table.high).all()
    error = table.difference.to_numpy() - truth.ravel()
    assert (np.abs(error) < 4.0 * table["std"]).all()
    assert ((table.qvalue <= 0.05) == (truth.ravel() != 0.0)).mean() > 0.8
    assert (table.qvalue[truth.ravel() != 0.0] <= 0.05).all()
    wide = compared(X, confidence_level=0.99).table
    assert (wide.high - wide.low > 1.3 * (table.high - table.low)).all()


def test_one_cloud_that_is_cut_in_two_has_no_differences() -> None:
    """As if subgroups were known, every feature that varies along the cut would be significant."""
    for seed in range(3):
        X, _, _ = rows(0.0, seed)
        found = compared(X)
        assert (found.separation > 0.05).all()
        assert found.table[["std", "low", "high"]].isna().all(axis=None)
        assert (found.table[["pvalue", "qvalue"]] > 0.05).all(axis=None)


def test_errors_are_those_of_replicates() -> None:
    """Rows of a replicate are copies: the error is that of one row each."""
    X, _, _ = rows(4.0, n=60)
    copies = pd.concat([X] * 5, ignore_index=True)
    groups = np.tile(np.arange(60), 5)
    alone, together = compared(X).table["std"], compared(copies, groups=groups).table["std"]
    rows_apart = compared(copies).table["std"]
    np.testing.assert_allclose(together, alone, rtol=0.5)
    assert (rows_apart < 0.7 * together).mean() > 0.8


def test_subgroups_of_refits_are_numbered_like_those_of_the_model() -> None:
    X, labels, truth = rows(4.0)
    model = clvm.ContrastiveLVM(1, 0, latent_prior=clvm.Mixture(2)).fit(X)
    given = grouped_rows(model, (X, None), (None, None), (None, None))
    for refit in subgroup_refits(given, 5, seed_sequence(0)):
        assert (refit.labels == labels).mean() > 0.99
        np.testing.assert_allclose(refit.differences, truth, atol=1.0)


def test_covariates_are_those_of_the_fit() -> None:
    X, _, truth = rows(4.0)
    known = np.random.default_rng(1).standard_normal((len(X), 1))
    moved = X + known
    model = clvm.ContrastiveLVM(1, 0, latent_prior=clvm.Mixture(2))
    model.fit(moved, covariates=known)
    words: dict[str, Any] = {"covariates": known, "n_resamples": 5, "random_state": 0}
    found = clvm.subgroup_differences(model, moved, **words)
    np.testing.assert_allclose(found.table.difference, truth.ravel(), atol=0.5)
    assert (found.separation <= 0.05).all()
    assert clvm.subgroup_stability(model, moved, **words).adjusted_rand.min() > 0.95


def test_a_model_without_subgroups_is_refused() -> None:
    X, _, _ = rows(4.0)
    with pytest.raises(clvm.exceptions.InvalidParameterError, match="no subgroups"):
        clvm.subgroup_differences(clvm.ContrastiveLVM(1, 0).fit(X), X)


def test_bootstrap_of_loadings_says_what_to_use_with_subgroups() -> None:
    X, _, _ = rows(4.0)
    model = clvm.ContrastiveLVM(1, 0, latent_prior=clvm.Mixture(2)).fit(X)
    with pytest.raises(clvm.exceptions.InvalidParameterError, match="use subgroup_differences"):
        clvm.bootstrap(model, X, n_resamples=20)
