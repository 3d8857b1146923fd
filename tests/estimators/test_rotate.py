"""Rotations: loadings, latents and errors go together, and the rows keep their distribution."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.decomposition import FactorAnalysis

import contrastive_lvm as clvm
from contrastive_lvm.linalg.gauge import promax, varimax

DATA = clvm.datasets.make_contrastive(80, 70, n_features=12, n_shared=2, random_state=0)
RNG = np.random.default_rng(0)
MISSING = np.where(RNG.random(DATA.target.shape) < 0.1, np.nan, DATA.target)
MODELS: dict[str, dict[str, Any]] = {
    "gaussian": {},
    "student_t": {"likelihood": "student_t"},
    "subgroups": {"latent_prior": clvm.Mixture(2)},
    "posterior": {"target_prior": "horseshoe"},
}
FITTED = {
    name: clvm.ContrastiveLVM(2, 2, **given).fit(MISSING, background=DATA.background)
    for name, given in MODELS.items()
}


@pytest.mark.parametrize("block", ["target", "shared"])
@pytest.mark.parametrize("method", ["varimax", "promax"])
@pytest.mark.parametrize("name", MODELS)
def test_rows_keep_their_distribution(name: str, method: str, block: str) -> None:
    model, X = FITTED[name], MISSING
    if (name, method, block) == ("subgroups", "promax", "shared"):
        with pytest.raises(ValueError, match="one block only"):
            model.rotate(method, block=block)
        return
    rotated = model.rotate(method, block=block)
    changed = "target_components_" if block == "target" else "shared_components_"
    assert np.abs(getattr(rotated, changed) - getattr(model, changed)).max() > 0.01
    for method_name in ("score_samples", "impute", "reconstruct", "denoise", "enrichment"):
        np.testing.assert_allclose(
            getattr(rotated, method_name)(X), getattr(model, method_name)(X), atol=1e-9
        )
    np.testing.assert_allclose(
        rotated.inverse_transform(rotated.transform(X)),
        model.inverse_transform(model.transform(X)),
        atol=1e-9,
    )
    charts, expected = rotated.monitor(DATA.target), model.monitor(DATA.target)
    np.testing.assert_allclose(charts.t2, expected.t2, atol=1e-8)
    np.testing.assert_allclose(charts.shared_t2, expected.shared_t2, atol=1e-8)
    shares = (rotated.target_variance_ratio_, rotated.shared_variance_ratio_)
    assert sum(map(np.sum, shares)) + rotated.noise_variance_ratio_ == pytest.approx(1.0)


@pytest.mark.parametrize("method", ["varimax", "promax"])
def test_none_goes_back_and_files_keep_rotations(method: str, tmp_path: Path) -> None:
    model = FITTED["subgroups"]
    rotated = model.rotate(method)
    back = rotated.rotate(None)
    np.testing.assert_allclose(back.transform(MISSING), model.transform(MISSING), atol=1e-9)
    np.testing.assert_allclose(back.predict_proba(MISSING), model.predict_proba(MISSING), atol=1e-9)
    rotated.save(tmp_path / "rotated.clvm")
    loaded = clvm.load_model(tmp_path / "rotated.clvm")
    np.testing.assert_allclose(loaded.transform(MISSING), rotated.transform(MISSING), atol=1e-12)
    np.testing.assert_allclose(
        loaded.predict_proba(MISSING), model.predict_proba(MISSING), atol=1e-9
    )


def test_latents_of_promax_are_correlated_as_their_distribution_says() -> None:
    rotated = FITTED["gaussian"].rotate("promax")
    covariance = rotated.posterior_.latent_mixtures["target"].covariances[0]
    np.testing.assert_allclose(np.diagonal(covariance), 1.0)
    assert abs(covariance[0, 1]) > 1e-3
    found = rotated.latents(MISSING)
    assert found.target is not None
    second = found.target.T @ found.target + found.cov[:, :2, :2].sum(axis=0)
    np.testing.assert_allclose(second / len(MISSING), covariance, atol=0.15)


def test_varimax_is_that_of_scikit_learn() -> None:
    simple = RNG.normal(size=(3, 10)) * (np.arange(10) % 3 == np.arange(3)[:, None])
    rows = RNG.normal(size=(300, 3)) @ (2.0 * simple) + 0.5 * RNG.normal(size=(300, 10))
    plain = FactorAnalysis(3, tol=1e-8, max_iter=5000).fit(rows).components_
    expected = FactorAnalysis(3, tol=1e-8, max_iter=5000, rotation="varimax").fit(rows).components_
    found = (plain.T @ varimax(plain.T)).T
    for component in found:
        nearest = expected[np.abs(expected @ component).argmax()]
        nearest = nearest * np.sign(nearest @ component)
        np.testing.assert_allclose(component, nearest, atol=1e-3)


def test_bootstrap_rotates_every_resample() -> None:
    plain = clvm.ContrastiveLVM(2, 2).fit(DATA.target, background=DATA.background)
    for method in ("varimax", "promax"):
        model = plain.rotate(method)
        found = clvm.bootstrap(
            model, DATA.target, background=DATA.background, n_resamples=40, random_state=0
        )
        np.testing.assert_array_equal(found.target_components, model.target_components_)
        assert found.target_components_std is not None
        assert found.target_components_std.max() < 0.5 * np.abs(model.target_components_).max()


def test_several_sets() -> None:
    data = clvm.datasets.make_multi_set(random_state=0)
    design = clvm.designs.each_its_own(["a", "b", "c"], n_shared=3, n_each=1)
    model = clvm.MultiSetLVM(design).fit(data.rows, sets=data.sets)
    rotated = model.rotate("varimax", block="shared")
    np.testing.assert_allclose(
        rotated.score_samples(data.rows, sets=data.sets),
        model.score_samples(data.rows, sets=data.sets),
    )
    assert np.abs(rotated.components_["shared"] - model.components_["shared"]).max() > 0.01


def test_refusals() -> None:
    model = FITTED["gaussian"]
    with pytest.raises(ValueError, match="method='quartimax' is unknown"):
        model.rotate("quartimax")
    with pytest.raises(ValueError, match="block='both' is unknown"):
        model.rotate(block="both")
    ard = clvm.ContrastiveLVM(2, 2, target_prior="ard").fit(MISSING, background=DATA.background)
    with pytest.raises(ValueError, match="distinguishes columns"):
        ard.rotate("varimax")
    counts = np.random.default_rng(0).poisson(3.0, (40, 6))
    poisson = clvm.ContrastiveLVM(1, 1, likelihood="poisson").fit(counts, background=counts[:30])
    with pytest.raises(ValueError, match="use 'varimax'"):
        poisson.rotate("promax")


@pytest.mark.parametrize("unit", [1.0, 1e-90, 1e90])
def test_loadings_of_lower_rank_and_of_any_size_can_be_rotated(unit: float) -> None:
    rng = np.random.default_rng(0)
    block = unit * rng.normal(size=(8, 2)) @ rng.normal(size=(2, 3))  # rank 2
    A = promax(block)
    assert np.isfinite(np.linalg.inv(A)).all()
    rotated = block @ A
    sizes = (rotated**2).sum(axis=0) / unit / unit
    assert sizes[2] < 1e-20 < sizes[1]
    own = promax(block / unit)
    np.testing.assert_allclose(np.abs(rotated[:, :2]), unit * np.abs(block / unit @ own)[:, :2])
    np.testing.assert_array_equal(promax(np.zeros((8, 2))), np.eye(2))
