"""Rows that responded: probabilities are calibrated, and intervals of the strength cover."""

import os

import numpy as np
import numpy.typing as npt
import pytest
from sklearn.metrics import roc_auc_score

import contrastive_lvm as clvm
from contrastive_lvm.exceptions import InvalidParameterError

Array = npt.NDArray[np.float64]
DIRECTION = np.array([1.0, -1.0, 0.5, 0.0, 1.0, 0.0, -0.5, 0.3])


def planted(seed: int, share: float = 0.6, n: int = 600) -> tuple[Array, Array, Array]:
    """Rows whose features move along one direction if they respond, by an amount of their own."""
    rng = np.random.default_rng(seed)
    S = rng.normal(size=(8, 2))

    def rows(strength: Array) -> Array:
        shared = rng.normal(size=(len(strength), 2)) @ S.T
        return np.outer(strength, DIRECTION) + shared + 0.6 * rng.normal(size=(len(strength), 8))

    strength = np.where(rng.random(n) < share, rng.normal(1.6, 0.5, size=n), 0.0)
    return rows(strength), rows(np.zeros(n)), strength


def test_probabilities_are_right_as_often_as_they_say() -> None:
    said, responded = [], []
    for seed in range(3):
        X, Y, strength = planted(seed)
        model = clvm.ContrastiveLVM(1, 2).fit(X, background=Y)
        found = clvm.responders(model, X, background=Y)
        said.append(found.probabilities)
        responded.append(strength != 0)
        assert found.share == pytest.approx(0.6, abs=0.08)
    p, y = np.concatenate(said), np.concatenate(responded)
    assert roc_auc_score(y, p) > 0.93
    for low in np.arange(0.0, 1.0, 0.2):
        own = (p >= low) & (p <= low + 0.2)
        assert y[own].mean() == pytest.approx(p[own].mean(), abs=0.12)


def test_intervals_of_the_strength_cover() -> None:
    X, Y, strength = planted(5, n=1500)
    model = clvm.ContrastiveLVM(1, 2).fit(X, background=Y)
    found = clvm.responders(model, X, background=Y, confidence_level=0.9)
    size = np.linalg.norm(model.target_components_[0]) / np.linalg.norm(DIRECTION)
    sign = np.sign(model.target_components_[0] @ DIRECTION)
    true = sign * strength / size  # in units of the target latents
    covered = (found.low[:, 0] <= true) & (true <= found.high[:, 0])
    assert covered[strength != 0].mean() == pytest.approx(0.9, abs=0.05)
    assert covered.mean() > 0.85


def test_rows_like_the_background_did_not_respond() -> None:
    X, Y, _ = planted(1, share=0.0)
    model = clvm.ContrastiveLVM(1, 2).fit(X, background=Y)
    assert clvm.responders(model, X, background=Y).probabilities.mean() < 0.35


def test_missing_entries_are_allowed_and_wrong_arguments_refused() -> None:
    X, Y, strength = planted(0)
    X[np.random.default_rng(0).random(X.shape) < 0.2] = np.nan
    model = clvm.ContrastiveLVM(1, 2).fit(X, background=Y)
    found = clvm.responders(model, X, background=Y)
    assert np.isfinite(found.low).all()
    assert roc_auc_score(strength != 0, found.probabilities) > 0.85
    with pytest.raises(InvalidParameterError, match="confidence_level"):
        clvm.responders(model, X, background=Y, confidence_level=2.0)
    with pytest.raises(InvalidParameterError, match="n_target"):
        clvm.responders(clvm.ContrastiveLVM(0, 2).fit(X, background=Y), X, background=Y)


@pytest.mark.skipif("CONTRASTIVE_LVM_DATA" not in os.environ, reason="the data is not here")
def test_stimulated_cells_are_the_ones_that_respond() -> None:
    data = clvm.datasets.fetch_kang_pbmc()
    sets = [np.asarray(rows, dtype=float) for rows in (data.target, data.background)]
    totals = [rows.sum(axis=1, keepdims=True) for rows in sets]
    X, Y = (np.log1p(1000 * rows / own) for rows, own in zip(sets, totals, strict=True))
    model = clvm.ContrastiveLVM(2, 20).fit(X, background=Y)
    p, y = clvm.responders(model, X, background=Y).probabilities, data.target_labels
    assert roc_auc_score(y, p) > 0.97
    bins = np.minimum((10 * p).astype(int), 9)
    error = sum(abs((p - y)[bins == b].sum()) for b in range(10)) / len(p)
    assert error < 0.05
