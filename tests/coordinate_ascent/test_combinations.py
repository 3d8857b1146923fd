"""Every combination of likelihood, priors, data and engine fits, or says what to use instead."""

import warnings
from itertools import product
from typing import Any

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

import contrastive_lvm as clvm
from contrastive_lvm.estimators.linear_fit import read_input
from tests.oracles import Array, planted, sets_with_missing

LIKELIHOODS: dict[str, Any] = {
    "isotropic": clvm.Gaussian(),
    "feature": clvm.Gaussian(noise="feature"),
    "t element": clvm.StudentT(df=4.0),
    "t sample": clvm.StudentT(df=4.0, per="sample"),
}
ON_S: dict[str, Any] = {"S flat": clvm.Flat(), "S ARD": clvm.ARD()}
ON_W: dict[str, Any] = {
    "W flat": clvm.Flat(),
    "W ARD": clvm.ARD(),
    "W lasso": clvm.GroupLasso(20.0),
    "W horseshoe": clvm.Horseshoe(),
}
DATA = {"complete": "complete", "missing": "both"}
ENGINES: dict[str, Any] = {
    "EM": clvm.EM(max_iter=60),
    "VB": clvm.VariationalBayes(max_iter=60),
}
TABLE = list(product(LIKELIHOODS, ON_S, ON_W, DATA, ENGINES))
N_SHARED, N_TARGET, D = 3, 2, 8
SETS = ("target", "background")


def sets(data: str) -> tuple[Array, Array]:
    return sets_with_missing(*planted(11, n=60, m=50, D=D, k=N_SHARED, t=N_TARGET)[1:], DATA[data])


def parameters(likelihood: str, on_s: str, on_w: str) -> dict[str, Any]:
    return {
        "likelihood": LIKELIHOODS[likelihood],
        "shared_prior": ON_S[on_s],
        "target_prior": ON_W[on_w],
    }


def refused(on_s: str, on_w: str, engine: str) -> bool:
    """Priors that peak at zero need a posterior, exact zeros need points."""
    if engine == "EM":
        return on_s == "S ARD" or on_w in ("W ARD", "W horseshoe")
    return on_w == "W lasso"


FITTED = [row for row in TABLE if not refused(row[1], row[2], row[4])]
REFUSED = [row for row in TABLE if refused(row[1], row[2], row[4])]


def fitted(
    likelihood: str, on_s: str, on_w: str, data: str, engine: str
) -> tuple[clvm.ContrastiveLVM, Array, Array]:
    X, B = sets(data)
    model = clvm.ContrastiveLVM(
        N_TARGET, N_SHARED, inference=ENGINES[engine], **parameters(likelihood, on_s, on_w)
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # sixty sweeps are for speed
        return model.fit(X, background=B), X, B


def rows_of_all_kinds(X: Array) -> Array:
    """New rows: as fitted, full, one entry, no entry, one far away."""
    rows = np.vstack([X[:4], np.where(np.isnan(X[4:10]), 0.0, X[4:10])])
    rows[5, 1:], rows[6], rows[7, 0], rows[8] = np.nan, np.nan, np.nan, 1e3
    return rows


def assert_finite(*arrays: Any) -> None:
    for array in arrays:
        assert np.isfinite(np.asarray(array, dtype=float)).all()


def test_the_table_is_whole() -> None:
    assert len(TABLE) == 4 * 2 * 4 * 2 * 2
    assert len(FITTED) == 4 * 2 * (2 + 6)


@pytest.mark.parametrize(("likelihood", "on_s", "on_w", "data", "engine"), REFUSED)
def test_an_engine_that_cannot_fit_names_what_can(
    likelihood: str, on_s: str, on_w: str, data: str, engine: str
) -> None:
    given = parameters(likelihood, on_s, on_w)
    model = clvm.contrastive_model(N_TARGET, N_SHARED, **given)
    reason = ENGINES[engine]._unsupported_reason(model)
    assert reason is not None
    assert "; use " in reason
    assert reason.endswith(".")
    X, B = sets(data)
    estimator = clvm.ContrastiveLVM(N_TARGET, N_SHARED, inference=ENGINES[engine], **given)
    with pytest.raises(ValueError, match="cannot fit") as caught:
        estimator.fit(X, background=B)
    assert str(caught.value) == reason
    assert not hasattr(estimator, "posterior_")


@pytest.mark.parametrize(("likelihood", "on_s", "on_w", "data", "engine"), FITTED)
def test_a_fit_climbs_and_every_method_is_finite(
    likelihood: str, on_s: str, on_w: str, data: str, engine: str
) -> None:
    asked = clvm.contrastive_model(2, 3, **parameters(likelihood, on_s, on_w))
    assert ENGINES[engine]._unsupported_reason(asked) is None
    model, X, B = fitted(likelihood, on_s, on_w, data, engine)
    check_results(model, on_s, on_w, engine)
    for of, rows in zip(SETS, (rows_of_all_kinds(X), rows_of_all_kinds(B)), strict=True):
        check_methods(model, rows, of)
    t = model.transform(rows_of_all_kinds(X))
    assert t.shape == (10, model.n_target_)
    assert_finite(t, model.denoise(rows_of_all_kinds(X)), model.inverse_transform(t))
    assert_finite(model.sample(7, of="denoised", random_state=0))


def check_results(model: clvm.ContrastiveLVM, on_s: str, on_w: str, engine: str) -> None:
    posterior = model.posterior_
    assert (np.diff(model.lower_bounds_) >= 0).all()
    parts = posterior.bound_parts
    assert parts is not None
    assert sum(parts.values()) == pytest.approx(model.lower_bound_, rel=1e-12)
    assert_finite(model.lower_bounds_, list(parts.values()))
    assert_finite(model.target_components_, model.shared_components_, model.noise_variance_)
    assert_finite(model.mean_, model.background_mean_, model.feature_relevance_)
    assert (np.asarray(model.noise_variance_) > 0).all()
    assert on_s == "S ARD" or model.n_shared_ == N_SHARED
    assert on_w == "W ARD" or model.n_target_ == N_TARGET
    uncertain = engine == "VB" and (on_s, on_w) != ("S flat", "W flat")
    assert (posterior.loading_covariance is not None) == uncertain


def check_methods(model: clvm.ContrastiveLVM, rows: Array, of: str) -> None:
    latents = model.latents(rows, of=of)
    if latents.target is None:
        assert of == "background"
    else:
        assert_finite(latents.target, latents.target_std)
    assert_finite(latents.shared, latents.shared_std, latents.cov)
    std = np.sqrt(np.einsum("nkk->nk", latents.cov))
    assert (std > 0).all()
    assert (std <= 1.0 + 1e-9).all()  # nothing is less certain than the prior
    np.testing.assert_allclose(std[6], 1.0)  # and a row without an entry is the prior
    filled, std = model.impute(rows, of=of, return_std=True)
    seen = ~np.isnan(rows)
    np.testing.assert_array_equal(filled[seen], rows[seen])
    assert_finite(filled, std)
    assert (std[seen] == 0).all()
    assert (std[~seen] > 0).all()
    scores = model.score_samples(rows, of=of)
    assert_finite(scores)
    assert scores[6] == pytest.approx(0.0, abs=1e-9)
    assert scores[8] == scores.min()
    assert_finite(model.sample(7, of=of, random_state=0), model.reconstruct(rows, of=of))
    check_outliers(model, rows, of)


def check_outliers(model: clvm.ContrastiveLVM, rows: Array, of: str) -> None:
    outliers = model.outliers(rows, of=of)
    assert outliers.rows[0] == 8
    assert_finite(outliers.row_weights)
    assert (outliers.row_weights > 0).all()
    assert sorted(outliers.rows) == list(range(len(rows)))
    weights = outliers.weights
    if weights.shape == rows.shape and outliers.entries is not None:
        np.testing.assert_array_equal(np.isfinite(weights), ~np.isnan(rows))
        assert len(outliers.entries) == int(np.isfinite(weights).sum())
        assert outliers.entries[0][0] == 8


@pytest.mark.parametrize("on_s", ON_S)
@pytest.mark.parametrize("on_w", ON_W)
def test_auto_takes_the_engine_that_can(on_s: str, on_w: str) -> None:
    X, B = sets("complete")
    model = clvm.ContrastiveLVM(N_TARGET, N_SHARED, **parameters("isotropic", on_s, on_w))
    engines = [e for e in ENGINES if not refused(on_s, on_w, e)]
    chosen = read_input(model, X, B).engine
    expected = ENGINES[engines[0]] if engines else clvm.SVI()  # no closed form has both
    assert type(chosen) is type(expected)
