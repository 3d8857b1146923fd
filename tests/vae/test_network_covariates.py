"""Covariates of autoencoders: what they explain is left out of the latents, in every method."""

from functools import cache
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_score

import contrastive_lvm as clvm
from contrastive_lvm.exceptions import InvalidDataError
from tests.vae.autoencoders import QUICK, quick

N, M, D = 300, 250, 8
RNG = np.random.default_rng(0)
BATCHES = np.array(["a", "b", "c"])
EFFECTS, W, S = 3.0 * RNG.normal(size=(3, D)), RNG.normal(size=(1, D)), RNG.normal(size=(2, D))
OF_TARGET, OF_BACKGROUND = RNG.integers(0, 3, N), RNG.integers(0, 3, M)
TIME = RNG.normal(size=(N, 1))
X = 1.5 * TIME @ W + RNG.normal(size=(N, 2)) @ S + EFFECTS[OF_TARGET]
X += 0.5 * RNG.normal(size=(N, D))
B = RNG.normal(size=(M, 2)) @ S + EFFECTS[OF_BACKGROUND] + 0.5 * RNG.normal(size=(M, D))
OURS, THEIRS = (
    pd.DataFrame({"batch": BATCHES[i], "depth": RNG.normal(size=len(i))})
    for i in (OF_TARGET, OF_BACKGROUND)
)


@cache
def model_of(*, known: bool = True) -> clvm.ContrastiveVAE:
    words = {"covariates": OURS, "background_covariates": THEIRS} if known else {}
    settings = {"hidden_layer_sizes": (16,), "max_epochs": 150, "learning_rate": 0.01}
    return quick(1, 2, **settings).fit(X, background=B, **words)


def joined(latents: Any) -> Any:
    return np.hstack([latents.target, latents.shared])


def batch_accuracy(latents: Any) -> float:
    judge = LogisticRegression(max_iter=1000)
    return float(cross_val_score(judge, latents, OF_TARGET, cv=5).mean())


@pytest.mark.filterwarnings("ignore:the (target|shared) latents:UserWarning")
def test_what_covariates_explain_is_not_in_the_latents() -> None:
    assert batch_accuracy(joined(model_of(known=False).latents(X))) > 0.9
    found: Any = model_of().latents(X, covariates=OURS)
    assert batch_accuracy(found.target) < 0.5
    assert batch_accuracy(joined(found)) < 0.7
    assert abs(np.corrcoef(found.target[:, 0], TIME[:, 0])[0, 1]) > 0.8
    assert model_of().lower_bound_ > model_of(known=False).lower_bound_ + N + M


def test_every_method_uses_the_covariates() -> None:
    model, other = model_of(), OURS.assign(batch=OURS["batch"].map({"a": "b", "b": "c", "c": "a"}))
    right = model.score(X, covariates=OURS)
    assert right > model.score(X, covariates=other) + 1.0
    rebuilt = model.reconstruct(X, covariates=OURS)
    assert ((rebuilt - X) ** 2).mean() < 0.2 * X.var()
    gaps = np.where(np.random.default_rng(1).random(X.shape) < 0.1, np.nan, X)
    filled = model.impute(gaps, covariates=OURS)
    assert ((filled - X)[np.isnan(gaps)] ** 2).mean() < 0.4 * X.var()
    drawn = model.sample(N, covariates=OURS, random_state=0)
    means = np.array([drawn[OF_TARGET == i].mean(axis=0) for i in range(3)])
    wanted = np.array([X[OF_TARGET == i].mean(axis=0) for i in range(3)])
    np.testing.assert_allclose(means, wanted, atol=1.5)
    found = clvm.leakage(model, X, B, covariates=OURS, background_covariates=THEIRS)
    assert found.set_auc < 0.7


def test_denoised_rows_keep_what_covariates_add_unless_asked() -> None:
    model = model_of()
    kept = model.denoise(X, covariates=OURS)
    removed = model.denoise(X, covariates=OURS, remove_covariates=True)
    assert batch_accuracy(kept) > 0.9 > 0.6 > batch_accuracy(removed)
    shared = model.reconstruct(X, covariates=OURS, parts=("shared", "covariates"))
    np.testing.assert_allclose(X - removed, shared - model.mean_, atol=1e-4)


def test_a_model_with_covariates_is_saved(tmp_path: Path) -> None:
    model_of().save(tmp_path / "model.clvm")
    again = clvm.load_model(tmp_path / "model.clvm")
    expected = model_of().transform(X, covariates=OURS)
    np.testing.assert_array_equal(again.transform(X, covariates=OURS), expected)
    with pytest.raises(InvalidDataError, match="covariates is None, but the model was fitted"):
        again.transform(X)


def test_rows_out_of_core_have_covariates_too() -> None:
    settings = {"max_epochs": 3, "validation_fraction": 0.2}
    known = {"covariates": OURS, "background_covariates": THEIRS}
    whole = quick(1, 2, **settings).fit(X, background=B, **known)
    array: Any = da.from_array
    chunked = array(X, chunks=(70, -1)), array(B, chunks=(60, -1))
    parts = quick(1, 2, **settings).fit(chunked[0], background=chunked[1], **known)
    np.testing.assert_allclose(parts.lower_bounds_, whole.lower_bounds_, rtol=1e-5)
    found = parts.transform(chunked[0], covariates=OURS)
    np.testing.assert_allclose(found, whole.transform(X, covariates=OURS), atol=1e-4)


def test_a_vae_decodes_rows_of_given_covariates() -> None:
    rows = np.random.default_rng(2).poisson(np.exp(0.3 * X.clip(-4, 4))).astype(float)
    model = clvm.VAE(2, **{**QUICK, "likelihood": "negative_binomial"})
    model.fit(rows, covariates=OURS)
    assert model.transform(rows, covariates=OURS).shape == (N, 2)
    assert np.isfinite(model.score_samples(rows, covariates=OURS)).all()
    first = model.reconstruct(rows, covariates=OURS)
    other = model.reconstruct(rows, covariates=OURS.assign(depth=OURS["depth"] + 3.0))
    assert np.abs(first - other).max() > 1e-3
    assert model.sample(4, covariates=OURS[:4], random_state=0).shape == (4, D)
    assert model.inverse_transform([[0.0, 0.0]]).shape == (1, D)


@pytest.mark.parametrize(
    ("known", "words"),
    [
        ({"covariates": OURS}, "background_covariates is None, but covariates was given"),
        (
            {"covariates": np.ones(N), "background_covariates": np.zeros(M)},
            "'c0' that the sets determine",
        ),
        ({"covariates": OURS[:9], "background_covariates": THEIRS}, "has 9 rows, but there are"),
    ],
)
def test_covariates_that_cannot_be_used_are_refused(known: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidDataError, match=words):
        quick(1, 2).fit(X, background=B, **known)


def test_covariates_of_a_model_without_them_are_refused() -> None:
    with pytest.raises(InvalidDataError, match="fitted without"):
        quick(1, 2, max_epochs=1).fit(X, background=B).transform(X, covariates=OURS)
