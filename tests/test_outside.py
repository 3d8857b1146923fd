"""A prior and a likelihood written outside the package go through the whole table of checks.

Each works in every engine that its methods allow (`tests/black_box/test_user_defined.py` has SVI
and NUTS), in every form of data, is saved and read again, drawn and reported.
"""

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone

import contrastive_lvm as clvm
from tests.oracles import Array
from tests.outside import Contaminated, SoftplusPoisson, StudentLoadings

D = 9
PRIORS: dict[str, Any] = {"flat": None, "outside": StudentLoadings(), "ard": clvm.ARD()}
LIKELIHOODS: dict[str, Any] = {
    "gaussian": clvm.Gaussian(),
    "outside": Contaminated(),
    "outside, feature noise": Contaminated(noise="feature"),
    "student": clvm.StudentT(),
}
TABLE = [
    (prior, likelihood)
    for prior in PRIORS
    for likelihood in LIKELIHOODS
    if "outside" in prior or "outside" in likelihood
]


def rows(form: str) -> tuple[Any, Any]:
    rng = np.random.default_rng(1)
    S, W = rng.normal(size=(D, 2)), 2.0 * rng.normal(size=(D, 1))
    X = rng.normal(size=(90, 2)) @ S.T + rng.normal(size=(90, 1)) @ W.T
    B = rng.normal(size=(70, 2)) @ S.T
    X, B = (E + 0.5 * rng.normal(size=E.shape) for E in (X, B))
    X[rng.random(X.shape) < 0.03] += 8.0
    if form == "missing":
        X[rng.random(X.shape) < 0.15] = np.nan
    if form == "sparse":
        return sp.csr_matrix(np.where(np.abs(X) > 1, X, 0.0)), sp.csr_matrix(B)
    return X, B


def fitted(prior: str, likelihood: str, form: str = "complete", **settings: Any) -> Any:
    X, B = rows(form)
    model = clvm.ContrastiveLVM(
        1, 2, target_prior=PRIORS[prior], likelihood=LIKELIHOODS[likelihood], **settings
    )
    return model.fit(X, background=B)


@pytest.mark.parametrize("form", ["complete", "missing", "sparse"])
@pytest.mark.parametrize(("prior", "likelihood"), TABLE)
def test_fits_are_monotone_and_predict(prior: str, likelihood: str, form: str) -> None:
    X, B = rows(form)
    model = fitted(prior, likelihood, form)
    assert model.converged_
    assert (np.diff(model.lower_bounds_) >= -1e-9 * abs(model.lower_bound_)).all()
    assert np.isfinite(model.transform(X)).all()
    assert np.isfinite(model.score_samples(B, of="background")).all()
    assert np.isfinite(model.sample(4, random_state=0)).all()
    if form == "missing":
        filled, std = model.impute(X, return_std=True)
        assert np.isfinite(filled).all()
        assert (std[np.isnan(X)] > 0).all()


@pytest.mark.parametrize("inference", ["em", "vb"])
def test_both_closed_forms_take_them(inference: str) -> None:
    model = fitted("outside", "outside", inference=inference)
    assert (model.target_components_std_ is not None) == (inference == "vb")


@pytest.mark.parametrize("seed", range(3))
def test_weights_of_the_likelihood_are_its_slope(seed: int) -> None:
    rng = np.random.default_rng(seed)
    chi2, entries = rng.gamma(1.0, 5.0, (4, D)), np.full(4, float(D))
    scales = Contaminated().scales(chi2, entries, df=0.0)
    step = 1e-6
    for d in range(D):
        moved = chi2.copy()
        moved[:, d] += step
        slope = (Contaminated().scales(moved, entries, df=0.0).bound - scales.bound) / step
        np.testing.assert_allclose(scales.weights[:, d], -2.0 * slope, rtol=1e-4)


def test_the_closed_form_density_is_the_black_box_density() -> None:
    jax = pytest.importorskip("jax", reason="the extra jax is not installed")
    rng = np.random.default_rng(0)
    x, psi = rng.normal(size=(3, D)) * 3.0, 0.7
    with jax.enable_x64(True):  # noqa: FBT003
        density = Contaminated().log_density(x, np.zeros((3, D)), {"noise": psi})
    scales = Contaminated().scales(x**2 / psi, np.full(3, float(D)), df=0.0)
    ours = scales.bound - 0.5 * D * np.log(2 * np.pi * psi)
    np.testing.assert_allclose(np.asarray(density).sum(axis=1), ours, rtol=1e-10)


def test_outlying_entries_have_small_weights() -> None:
    X, _ = rows("complete")
    spoiled = X.copy()
    spoiled[::10, 3] += 40.0
    weights = fitted("flat", "outside").outliers(spoiled).weights
    assert weights[::10, 3].max() < 0.1 < np.median(weights)


def test_weights_of_rows_are_repetitions() -> None:
    X, B = rows("missing")
    w = np.random.default_rng(2).integers(0, 3, len(X))
    settings = {"target_prior": PRIORS["outside"], "likelihood": LIKELIHOODS["outside"]}
    one = clvm.ContrastiveLVM(1, 2, **settings).fit(X, background=B, sample_weight=w)
    two = clvm.ContrastiveLVM(1, 2, **settings).fit(np.repeat(X, w, axis=0), background=B)
    assert one.lower_bound_ == pytest.approx(two.lower_bound_, rel=1e-9)
    np.testing.assert_allclose(one.target_components_, two.target_components_, atol=1e-6)


@pytest.mark.parametrize(("prior", "likelihood"), TABLE)
def test_files_say_what_the_model_says(prior: str, likelihood: str, tmp_path: Path) -> None:
    X, _ = rows("complete")
    model = fitted(prior, likelihood)
    model.save(tmp_path / "model.clvm")
    again = clvm.load_model(tmp_path / "model.clvm")
    assert repr(again) == repr(model)
    np.testing.assert_array_equal(again.transform(X), model.transform(X))


def test_they_are_cloned_drawn_and_reported(tmp_path: Path) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    X, B = rows("complete")
    model = fitted("outside", "outside")
    assert repr(clone(model)) == repr(model)
    clvm.plots.plot_loadings(model)
    clvm.plots.plot_outliers(model, X)
    clvm.plots.plot_trace(model)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.report(tmp_path / "report.html", X, background=B)
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "StudentLoadings" in page
    assert "Contaminated" in page


def test_any_object_with_the_four_methods_is_a_prior() -> None:
    class Ridge:
        def init(self, shape: tuple[int, int]) -> None:
            return None

        def update(self, state: None, squares: Array) -> None:
            return None

        def precision(self, state: None) -> Array:
            return np.full((1, 1), 4.0)

        def bound(self, state: None, squares: Array) -> float:
            return float((0.5 * np.log(4.0 / (2 * np.pi)) - 2.0 * squares).sum())

    X, B = rows("missing")
    model = clvm.ContrastiveLVM(1, 2, target_prior=Ridge()).fit(X, background=B)
    plain = clvm.ContrastiveLVM(1, 2).fit(X, background=B)
    assert np.abs(model.target_components_).sum() < np.abs(plain.target_components_).sum()
    with pytest.raises(TypeError, match="cannot be saved"):
        model.save("model.clvm")


def test_a_density_alone_gives_latents_scores_and_samples() -> None:
    pytest.importorskip("numpyro", reason="the extra jax is not installed")
    rng = np.random.default_rng(0)
    X, B = (rng.poisson(4.0, (n, 5)).astype(float) for n in (30, 25))
    engine = clvm.SVI(max_iter=200)
    model = clvm.ContrastiveLVM(1, 1, likelihood=SoftplusPoisson(), inference=engine)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # few steps
        model.fit(X, background=B)
    assert np.isfinite(model.transform(X)).all()
    assert np.isfinite(model.score_samples(X)).all()
    assert (model.sample(3, random_state=0) >= 0).all()
    with pytest.raises(ValueError, match="no closed form"):
        clvm.ContrastiveLVM(1, 1, likelihood=SoftplusPoisson(), inference="em").fit(X, background=B)
