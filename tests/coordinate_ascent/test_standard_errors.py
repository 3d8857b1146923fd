"""Latents of counts in units of their standard errors: the same model, and what the units mean."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import contrastive_lvm as clvm
from tests.oracles import Array

D = 40


def counts(*, n_sets: int = 2, seed: int = 0) -> list[Array]:
    rng = np.random.default_rng(seed)
    S, W = 0.5 * rng.standard_normal((D, 2)), rng.standard_normal((D, 2)) * [0.9, 0.4]
    mean, sets = rng.normal(0.5, 1.0, D), []
    for i in range(n_sets):
        e = mean + rng.standard_normal((300, 2)) @ S.T
        e += (i == 0) * rng.standard_normal((300, 2)) @ W.T
        sets.append(rng.poisson(np.exp(e)).astype(float))
    return sets


X, B = counts()
FITS: dict[str, Any] = {
    "poisson": clvm.ContrastiveLVM(2, 2, likelihood="poisson").fit(X, background=B),
    "points": clvm.ContrastiveLVM(
        2, 2, likelihood="negative_binomial", inference="em", shared_prior=clvm.Flat()
    ).fit(X, background=B),
}


@pytest.mark.parametrize("kind", FITS)
def test_latents_are_in_units_of_the_errors_of_an_average_row(kind: str) -> None:
    """A row with average counts has the posterior precision prior + sum_d w_d l_d l_d'."""
    p, blocks = FITS[kind].posterior_, ("target", "shared")
    L = np.hstack([p.loadings[name] for name in blocks])
    scales = np.concatenate([p.latent_scales(name) for name in blocks])
    mean = X.mean(axis=0)
    w = mean / (1.0 + (0.0 if p.dispersion is None else p.dispersion) * mean)
    V = np.linalg.inv(np.diag(1.0 / scales**2) + (L.T * w) @ L)
    for b in (slice(0, 2), slice(2, 4)):
        alone = np.linalg.inv(V[b, b]) - np.diag(1.0 / scales[b] ** 2)
        np.testing.assert_allclose(alone, np.eye(2), atol=1e-8)
        assert (np.diff(scales[b]) < 0).all()


@pytest.mark.parametrize("kind", FITS)
def test_errors_of_rows_are_about_one(kind: str) -> None:
    found, p = FITS[kind].latents(X), FITS[kind].posterior_
    for name, mean, std in (
        ("target", found.target, found.target_std),
        ("shared", found.shared, found.shared_std),
    ):
        assert 0.7 < np.median(std) < 1.6
        # Given the model, latents vary as their prior says.
        varied = (mean**2 + std**2).mean(axis=0)
        np.testing.assert_allclose(varied, p.latent_scales(name) ** 2, rtol=0.4)


@pytest.mark.parametrize("kind", FITS)
def test_nothing_but_the_units_is_new(kind: str, tmp_path: Path) -> None:
    """The same fit with latents of unit variance predicts the same."""
    model = FITS[kind]
    p = model.posterior_
    plain = p
    for name in ("shared", "target"):
        plain = plain._in_coordinates(name, np.diag(p.latent_scales(name)))
    unit = clvm.ContrastiveLVM(**model.get_params())
    unit.__dict__.update(model.__dict__)
    unit._publish(plain._replace(information={}), model._model(p))
    T = model.transform(X)
    np.testing.assert_allclose(T, unit.transform(X) * p.latent_scales("target"), rtol=1e-6)
    np.testing.assert_allclose(model.score_samples(X), unit.score_samples(X), rtol=1e-9)
    np.testing.assert_allclose(
        model.score_samples(B, of="background"), unit.score_samples(B, of="background"), rtol=1e-9
    )
    np.testing.assert_allclose(model.reconstruct(X), unit.reconstruct(X), rtol=1e-6)
    np.testing.assert_allclose(model.denoise(X), unit.denoise(X), rtol=1e-6)
    rows = np.where(np.random.default_rng(1).random(X.shape) < 0.2, np.nan, X)
    for mine, its in zip(
        model.impute(rows, return_std=True), unit.impute(rows, return_std=True), strict=True
    ):
        np.testing.assert_allclose(mine, its, rtol=1e-6)
    np.testing.assert_array_equal(model.sample(50, random_state=0), unit.sample(50, random_state=0))
    for name in ("feature_relevance_", "target_variance_ratio_", "shared_variance_ratio_"):
        np.testing.assert_allclose(getattr(model, name), getattr(unit, name), rtol=1e-9)
    np.testing.assert_allclose(
        model.inverse_transform(T), np.exp(model.mean_ + T @ model.target_components_), rtol=1e-9
    )
    model.save(tmp_path / "model.clvm")
    again = clvm.load_model(tmp_path / "model.clvm")
    np.testing.assert_array_equal(again.latents(X).target_std, model.latents(X).target_std)


def test_rotations_return() -> None:
    model = clvm.ContrastiveLVM(
        2, 2, likelihood="poisson", inference="em", target_prior=clvm.Ridge()
    ).fit(X, background=B)
    rotated = model.rotate("varimax")
    assert rotated.score(X) == pytest.approx(model.score(X), abs=1e-8)
    M = rotated.posterior_.information["target"]
    np.testing.assert_allclose(
        np.linalg.det(M), np.prod(model.posterior_.latent_scales("target") ** 2)
    )
    before, after = (np.asarray(fit.latents(X).target_std) for fit in (model, rotated))
    np.testing.assert_allclose(before.mean(), after.mean(), rtol=0.1)
    np.testing.assert_allclose(
        rotated.rotate(None).target_components_, model.target_components_, atol=1e-9
    )


def test_blocks_of_several_sets_have_their_own_units() -> None:
    sets = counts(n_sets=3, seed=1)
    rows, names = np.vstack(sets), np.repeat(["a", "b", "c"], 300)
    blocks: dict[str, Any] = {
        "shared": 2,
        "only": clvm.Block(2, sets=["a"]),
        "empty": clvm.Block(1, sets=["b"]),
    }
    model = clvm.MultiSetLVM(blocks, likelihood="poisson").fit(rows, sets=names)
    found = model.latents(sets[0], sets="a")
    np.testing.assert_allclose(np.median(found.std["only"], axis=0), 1.5, rtol=0.4)
    # A block without structure has short latents, not noise of unit variance.
    p = model.posterior_
    assert p.latent_scales("empty")[0] < 0.2 * p.latent_scales("only")[0]
