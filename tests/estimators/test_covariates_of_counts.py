"""Covariates of counts and binary data, fitted by variational EM."""

from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression, PoissonRegressor

import contrastive_lvm as clvm
from contrastive_lvm.arrays import Array

SETS, HALF = np.repeat(["a", "b"], [60, 50]), np.arange(110) % 2.0
KINDS = ("poisson", "negative_binomial", "bernoulli")


def rows_of(kind: str, missing: float = 0.0) -> tuple[Array, Array]:
    """Draw rows whose predictors a binary covariate moves, and its effects."""
    rng = np.random.default_rng(0)
    S, W, effects = (size * rng.standard_normal(8) for size in (0.5, 0.6, 0.7))
    eta = 1.0 + np.outer(rng.standard_normal(110), S) + np.outer(HALF, effects)
    eta += np.outer(rng.standard_normal(110) * (SETS == "a"), W)
    if kind == "bernoulli":
        X = (rng.random(eta.shape) < 1.0 / (1.0 + np.exp(-eta))).astype(float)
    else:
        spread = rng.gamma(4.0, 0.25, eta.shape) if kind == "negative_binomial" else 1.0
        X = rng.poisson(np.exp(eta) * spread).astype(float)
    X[rng.random(X.shape) < missing] = np.nan
    return X, effects


def facts(kind: str) -> dict[str, Any]:
    return {} if kind == "bernoulli" else {"size_factors": np.ones(110)}


def blocks(*sets: str) -> dict[str, Any]:
    return {"shared": 1, "a": clvm.Block(1, sets=sets)}


@pytest.mark.parametrize("missing", [0.0, 0.1])
@pytest.mark.parametrize("kind", ["poisson", "bernoulli"])
def test_without_structure_effects_are_those_of_a_regression(kind: str, missing: float) -> None:
    X, _ = rows_of(kind, missing)
    known = np.column_stack([HALF, np.linspace(-1.0, 1.0, 110)])
    block = clvm.Block(1, prior=clvm.Ridge(1e-4))
    model = clvm.MultiSetLVM({"shared": block}, likelihood=kind, inference="em")
    model.fit(X, sets=["a"] * 110, covariates=known, **facts(kind))
    assert model.covariate_effects_ is not None
    found = model.covariate_effects_["a"].to_numpy()
    for d in range(8):
        seen = ~np.isnan(X[:, d])
        regression: Any = PoissonRegressor(alpha=0.0, tol=1e-9)
        if kind == "bernoulli":
            regression = LogisticRegression(C=1e9, tol=1e-9)
        expected = regression.fit(known[seen], X[seen, d])
        np.testing.assert_allclose(found[:, d], expected.coef_.ravel(), atol=2e-3)
    assert (np.diff(model.lower_bounds_) > -1e-8).all()


@pytest.mark.parametrize("inference", ["em", "vb"])
@pytest.mark.parametrize("kind", KINDS)
def test_shared_effects_are_found_and_are_no_structure(kind: str, inference: str) -> None:
    X, effects = rows_of(kind)
    model = clvm.ContrastiveLVM(1, 1, likelihood=kind, inference=inference)
    target, other = SETS == "a", SETS == "b"
    model.fit(
        X[target],
        background=X[other],
        covariates=HALF[target],
        background_covariates=HALF[other],
        sample_weight=np.ones(60),
    )
    assert model.covariate_effects_ is not None
    assert np.corrcoef(model.covariate_effects_.to_numpy()[0], effects)[0, 1] > (
        0.5 if kind == "bernoulli" else 0.8
    )
    kept = model.denoise(X[target], covariates=HALF[target], remove_covariates=True)
    assert kept.shape == (60, 8)


def test_out_of_core_and_saved(tmp_path: Any) -> None:
    da = pytest.importorskip("dask.array")
    X, _ = rows_of("poisson")
    model = clvm.MultiSetLVM(blocks("a"), likelihood="poisson").fit(X, sets=SETS, covariates=HALF)
    chunked = clvm.MultiSetLVM(blocks("a"), likelihood="poisson")
    chunked.fit(da.from_array(X, chunks=(30, 8)), sets=SETS, covariates=HALF)
    assert chunked.lower_bound_ == pytest.approx(model.lower_bound_, rel=1e-8)
    model.save(tmp_path / "model.clvm")
    again = clvm.load_model(tmp_path / "model.clvm")
    given = {"sets": SETS, "covariates": HALF}
    np.testing.assert_array_equal(again.transform(X, **given), model.transform(X, **given))


def test_sampling_engines_say_that_they_take_none() -> None:
    X, _ = rows_of("poisson")
    model = clvm.MultiSetLVM(blocks("a"), likelihood="poisson", inference="svi")
    with pytest.raises(ValueError, match="cannot use covariates; use inference='em' or 'vb'"):
        model.fit(X, sets=SETS, covariates=HALF)
