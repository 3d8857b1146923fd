"""Posteriors of rows beyond the encoders' word, against exact ones and by their bounds."""

from functools import cache
from typing import Any

import numpy as np
import pytest

import contrastive_lvm as clvm
from tests.vae.autoencoders import DATA, QUICK, fitted, known


@cache
def refined(steps: int) -> clvm.ContrastiveVAE:
    """The model that was fitted once, with more care for single rows."""
    model: clvm.ContrastiveVAE = _with_steps(known(), steps)
    return model


def _with_steps(model: Any, steps: int) -> Any:
    other = type(model)(**(model.get_params() | {"refine_steps": steps}))
    vars(other).update({k: v for k, v in vars(model).items() if k.endswith("_")})
    return other


@pytest.mark.parametrize("of", [pytest.param("target", marks=pytest.mark.slow), "background"])
def test_linear_posteriors_become_exact(of: str) -> None:
    """The best diagonal Gaussian has the exact means, and variances that invert the precision's."""
    model = _with_steps(fitted(hidden_layer_sizes=()), 500)
    fit, rows = model.network_, getattr(DATA, of)[:50]
    w = fit.weights
    decoders = [w.target_decoder, w.shared_decoder] if of == "target" else [w.shared_decoder]
    loadings = np.vstack([np.asarray(decoder[0].weights) for decoder in decoders])
    loadings = loadings.astype(float) * fit.units.unit
    noise = np.broadcast_to(model.noise_variance_, loadings.shape[1])
    mean = model.mean_ if of == "target" else model.background_mean_
    c = fit.constants
    centred = c.shared_offset + (c.target_offset if of == "target" else 0.0)
    offset = (sum(np.asarray(decoder[0].bias) for decoder in decoders) - centred) * fit.units.unit
    precision = np.eye(len(loadings)) + loadings / noise @ loadings.T
    exact = np.linalg.solve(precision, loadings / noise @ (rows - mean - offset).T).T
    found = model.latents(rows, of=of)
    parts = [found.target, found.shared] if of == "target" else [found.shared]
    stds = [found.target_std, found.shared_std] if of == "target" else [found.shared_std]
    np.testing.assert_allclose(np.hstack(parts), exact, atol=0.02)
    best = np.broadcast_to(1 / np.sqrt(np.diag(precision)), exact.shape)
    np.testing.assert_allclose(np.hstack(stds), best, rtol=0.03)


def test_bounds_rise() -> None:
    plain, better = (m.score_samples(DATA.target, n_draws=1) for m in (known(), refined(30)))
    assert better.mean() > plain.mean() + 0.1


def test_a_row_does_not_depend_on_its_neighbours() -> None:
    whole = refined(30).transform(DATA.target)
    some = np.array([7, 3, 250])
    np.testing.assert_allclose(refined(30).transform(DATA.target[some]), whole[some], atol=1e-4)


@pytest.mark.slow
def test_rows_with_missing_entries_are_refined_too() -> None:
    rows = DATA.target.copy()
    rows[::2, 1] = np.nan
    model = clvm.VAE(2, **(QUICK | {"refine_steps": 20})).fit(rows)
    bare = _with_steps(model, 0)
    assert np.isfinite(model.transform(rows)).all()
    better, plain = (m.score_samples(rows, n_draws=1) for m in (model, bare))
    assert better.mean() > plain.mean()


@pytest.mark.parametrize("steps", [-1, 2.5, "many"])
def test_bad_steps_are_refused(steps: Any) -> None:
    with pytest.raises((TypeError, ValueError), match=r"refine_steps="):
        fitted(refine_steps=steps)
