"""Noise variances of each set's own, through the public methods of `ContrastiveLVM`."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.linalg import subspace_angles
from scipy.stats import multivariate_normal

import contrastive_lvm as clvm
from tests.oracles import Array

D, T, S = 6, 1, 2


def rows(seed: int = 0, n: int = 120, missing: float = 0.15) -> tuple[Array, Array]:
    """Return a target with noise of variance 4, and a background with a quarter of it."""
    rng = np.random.default_rng(seed)
    W, shared = 3.0 * rng.normal(size=(D, T)), 2.0 * rng.normal(size=(D, S))
    X = rng.normal(size=(n, S)) @ shared.T + rng.normal(size=(n, T)) @ W.T
    X += 2.0 * rng.normal(size=X.shape) + 1.0
    Y = rng.normal(size=(n + 20, S)) @ shared.T + rng.normal(size=(n + 20, D))
    for rows in (X, Y):
        rows[rng.random(rows.shape) < missing] = np.nan
    return X, Y


def fitted(noise: Any = "isotropic", **words: Any) -> clvm.ContrastiveLVM:
    X, Y = rows()
    model = clvm.ContrastiveLVM(T, S, likelihood=clvm.Gaussian(noise, sets="own"), **words)
    return model.fit(X, background=Y)


@pytest.mark.parametrize("noise", ["isotropic", "feature"])
@pytest.mark.parametrize("of", ["target", "background"])
def test_predictions_are_those_of_the_joint_normal(of: Any, noise: str) -> None:
    model, X = fitted(noise), dict(zip(("target", "background"), rows(seed=1), strict=True))[of]
    L = np.vstack([model.target_components_, model.shared_components_]).T
    mean, psi = model.mean_, model.noise_variance_
    if of == "background":
        L, mean, psi = L[:, T:], model.background_mean_, model.background_noise_variance_
    cov = L @ L.T + np.diag(np.broadcast_to(psi, (D,)))
    found, (filled, std) = model.latents(X, of=of), model.impute(X, of=of, return_std=True)
    parts = [part for part in (found.target, found.shared) if part is not None]
    latents = np.hstack(parts)
    scores = model.score_samples(X, of=of)
    for i, row in enumerate(X[:40]):
        seen = ~np.isnan(row)
        gain = cov[:, seen] @ np.linalg.inv(cov[np.ix_(seen, seen)])
        r = (row - mean)[seen]
        h = L[seen].T @ np.linalg.solve(cov[np.ix_(seen, seen)], r)
        np.testing.assert_allclose(latents[i], h, atol=1e-10)
        np.testing.assert_allclose(filled[i][~seen], (mean + gain @ r)[~seen], atol=1e-10)
        rest = np.diagonal(cov - gain @ cov[seen])
        np.testing.assert_allclose(std[i][~seen] ** 2, rest[~seen], atol=1e-10)
        density = multivariate_normal(mean[seen], cov[np.ix_(seen, seen)]).logpdf(row[seen])
        assert scores[i] == pytest.approx(density, abs=1e-10)


def test_the_noise_of_both_sets_comes_back() -> None:
    X, Y = rows(n=4000, missing=0.0)
    model = clvm.ContrastiveLVM(T, S, likelihood=clvm.Gaussian(sets="own"))
    model = model.fit(X, background=Y)
    assert model.noise_variance_ == pytest.approx(4.0, rel=0.05)
    assert model.background_noise_variance_ == pytest.approx(1.0, rel=0.05)
    total = model.target_variance_ratio_.sum() + model.shared_variance_ratio_.sum()
    assert total + model.noise_variance_ratio_ == pytest.approx(1.0)
    drawn = {of: model.sample(4000, of=of, random_state=0) for of in ("target", "background")}
    cov = model.shared_components_.T @ model.shared_components_ + np.eye(D)
    np.testing.assert_allclose(np.cov(drawn["background"].T), cov, atol=1.0)


@pytest.mark.filterwarnings("ignore:X and background contain the same rows")
@pytest.mark.parametrize("likelihood", [clvm.Gaussian, clvm.StudentT], ids=lambda k: k.__name__)
def test_shared_noise_is_the_same_model_when_the_sets_have_the_same_rows(likelihood: Any) -> None:
    X, _ = rows(n=60)
    models = [
        clvm.ContrastiveLVM(0, 2, likelihood=likelihood(sets=sets), inference=clvm.EM(tol=1e-10))
        for sets in ("shared", "own")
    ]
    one, two = (model.fit(X, background=X[::-1]) for model in models)
    assert two.noise_variance_ == pytest.approx(two.background_noise_variance_, rel=1e-4)
    assert one.lower_bound_ == pytest.approx(two.lower_bound_, abs=1e-6)


def test_wide_rows_are_fitted_in_their_span() -> None:
    rng = np.random.default_rng(0)
    X, Y = 2.0 * rng.normal(size=(12, 40)), rng.normal(size=(15, 40))
    X[:, :5] += 4.0 * rng.normal(size=(12, 1))
    model = clvm.ContrastiveLVM(1, 1, likelihood=clvm.Gaussian(sets="own"))
    model = model.fit(X, background=Y)
    both = model.score_samples(X).sum() + model.score_samples(Y, of="background").sum()
    assert both == pytest.approx(model.lower_bound_, abs=1e-6)
    assert model.noise_variance_ > 2.0 * model.background_noise_variance_


def test_files_keep_the_noise_of_both_sets(tmp_path: Path) -> None:
    model = fitted("feature")
    model.save(tmp_path / "model.clvm")
    again = clvm.load_model(tmp_path / "model.clvm")
    np.testing.assert_array_equal(again.noise_variance_, model.noise_variance_)
    np.testing.assert_array_equal(
        again.background_noise_variance_, model.background_noise_variance_
    )
    model.posterior_ = model.posterior_._replace(noise_variance=np.asarray(model.noise_variance_))
    with pytest.raises(ValueError, match="its noise variances are not those of Gaussian"):
        model.save(tmp_path / "forged.clvm")


def test_fits_can_be_resampled_and_dimensions_chosen() -> None:
    X, Y = rows(missing=0.0)
    model = clvm.ContrastiveLVM(T, S, likelihood=clvm.Gaussian("feature", sets="own"))
    found = clvm.bootstrap(
        model.fit(X, background=Y), X, background=Y, n_resamples=20, random_state=0
    )
    assert np.isfinite(np.asarray(found.target_components_std)).all()
    grid: dict[str, Any] = {"n_target": (0, 1), "n_shared": (2,), "random_state": 0}
    choice = clvm.choose_dimensions(X, background=Y, model=model, **grid)
    assert choice.n_target == 1


def test_networks_refuse_noise_of_each_sets_own() -> None:
    X, Y = rows(missing=0.0)
    pytest.importorskip("jax", reason="the extra jax is not installed")
    model = clvm.ContrastiveVAE(1, 1, likelihood=clvm.Gaussian(sets="own"), max_epochs=1)
    with pytest.raises(ValueError, match="likelihood=Gaussian"):
        model.fit(X, background=Y)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("likelihood", [clvm.Gaussian, clvm.StudentT], ids=lambda k: k.__name__)
def test_black_box_engines_learn_the_noise_of_both_sets(likelihood: Any) -> None:
    pytest.importorskip("numpyro", reason="the extra jax is not installed")
    X, Y = rows(n=150)
    prior: dict[str, Any] = {"shared_prior": "ard", "target_prior": "ard", "random_state": 0}
    engines: list[Any] = [clvm.SVI(max_iter=1500)]
    if likelihood is clvm.Gaussian:
        engines.append(clvm.NUTS(n_warmup=100, n_draws=100, n_chains=2))
    for engine in engines:
        model = clvm.ContrastiveLVM(
            T, S, likelihood=likelihood(sets="own"), inference=engine, **prior
        )
        model.fit(X, background=Y)
        assert model.noise_variance_ > 2.0 * model.background_noise_variance_
        names = model.draws(60, random_state=0).values
        assert {"target noise variance", "background noise variance"} <= set(names)


def with_background_structure(seed: int, size: float) -> tuple[Array, Array, Array]:
    """Return target, background with a dimension of its own, and the target's true loadings."""
    rng = np.random.default_rng(seed)
    shared, W, own = (rng.normal(size=(30, n)) for n in (4, 2, 1))
    X = 1.5 * rng.normal(size=(300, 4)) @ shared.T + rng.normal(size=(300, 2)) @ W.T
    Y = 1.5 * rng.normal(size=(300, 4)) @ shared.T + size * rng.normal(size=(300, 1)) @ own.T
    return X + rng.normal(size=X.shape), Y + rng.normal(size=Y.shape), W


@pytest.mark.filterwarnings("ignore:The background varies")
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.filterwarnings("ignore:n_shared=")
def test_structure_of_the_background_alone_does_not_turn_the_target(seed: int) -> None:
    angles = []
    cases: list[tuple[float, dict[str, Any]]]
    cases = [(0.0, {}), (2.0, {"n_background": 1}), (2.0, {})]
    for size, words in cases:
        X, Y, W = with_background_structure(seed, size)
        model = clvm.ContrastiveLVM(2, 4, **words).fit(X, background=Y)
        angles.append(subspace_angles(model.target_components_.T, W).max())
    assert angles[1] < 1.2 * angles[0] < angles[2]


def test_dimensions_of_the_background_have_latents_parts_and_files(tmp_path: Path) -> None:
    X, Y, _ = with_background_structure(0, 2.0)
    model = clvm.ContrastiveLVM(2, 4, n_background=1).fit(X, background=Y)
    assert model.background_components_.shape == (1, 30)
    assert model.n_background_ == 1
    found = model.latents(Y, of="background")
    assert isinstance(found, clvm.BackgroundLatents)
    assert found.target is None
    assert (found.background.shape, found.cov.shape) == ((300, 1), (300, 5, 5))
    assert model.latents(X)._fields == ("target", "target_std", "shared", "shared_std", "cov")
    own = model.reconstruct(Y, of="background", parts=("background",)) - model.background_mean_
    np.testing.assert_allclose(own, found.background @ model.background_components_, atol=1e-10)
    both = model.score_samples(X).sum() + model.score_samples(Y, of="background").sum()
    assert both == pytest.approx(model.lower_bound_, abs=1e-6)
    model.save(tmp_path / "model.clvm")
    again = clvm.load_model(tmp_path / "model.clvm")
    np.testing.assert_array_equal(again.background_components_, model.background_components_)


def test_dimensions_of_the_background_need_a_background() -> None:
    with pytest.raises(ValueError, match="n_background=1 dimensions are learned from a background"):
        clvm.ContrastiveLVM(1, 0, n_background=1).fit(rows()[0])
