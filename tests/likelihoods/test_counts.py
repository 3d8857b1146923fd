"""Counts, binary and mixed data through the estimator."""

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from scipy.linalg import subspace_angles
from scipy.special import expit
from sklearn.base import clone

import contrastive_lvm as clvm
from tests.oracles import Array

N, M, D = 250, 200, 12


def planted(kind: str) -> tuple[Array, Array, Array, Array, Array]:
    """Rows of both sets, W, S and the target latents."""
    rng = np.random.default_rng(3)
    S, W = rng.standard_normal((D, 2)) * 0.6, rng.standard_normal((D, 1)) * 0.8
    t = rng.standard_normal((N, 1))
    eta_x = 1.0 + rng.standard_normal((N, 2)) @ S.T + t @ W.T
    eta_y = 1.0 + rng.standard_normal((M, 2)) @ S.T
    X: Any
    B: Any
    if kind == "poisson":
        X, B = rng.poisson(np.exp(eta_x)), rng.poisson(np.exp(eta_y))
    elif kind == "negative_binomial":
        X, B = (rng.poisson(np.exp(e) * rng.gamma(3.0, 1 / 3.0, e.shape)) for e in (eta_x, eta_y))
    elif kind == "bernoulli":
        X, B = (rng.random(e.shape) < expit(2.5 * (e - 1.0)) for e in (eta_x, eta_y))
    else:
        X, B = (np.hstack([e + 0.5 * rng.standard_normal(e.shape)]) for e in (eta_x, eta_y))
        for Y, e in ((X, eta_x), (B, eta_y)):
            Y[:, 4:8] = rng.poisson(np.exp(e[:, 4:8]))
            Y[:, 8:] = rng.random((len(e), 4)) < expit(2.0 * (e[:, 8:] - 1.0))
    return np.asarray(X, dtype=float), np.asarray(B, dtype=float), W, S, t


LIKELIHOODS: dict[str, Any] = {
    "poisson": clvm.Poisson("none"),
    "negative_binomial": clvm.NegativeBinomial("none"),
    "bernoulli": clvm.Bernoulli(),
    "mixed": clvm.Mixed({"gaussian": range(4), "poisson": range(4, 8), "bernoulli": range(8, 12)}),
}


@pytest.fixture(scope="module", params=list(LIKELIHOODS))
def fitted(request: pytest.FixtureRequest) -> tuple[str, clvm.ContrastiveLVM, Any]:
    kind = request.param
    X, B, W, S, t = planted(kind)
    X[::7, 3] = np.nan
    model = clvm.ContrastiveLVM(1, 2, likelihood=LIKELIHOODS[kind], random_state=0)
    return kind, model.fit(X, background=B), (X, B, W, S, t)


def test_finds_what_was_planted(fitted: tuple[str, clvm.ContrastiveLVM, Any]) -> None:
    kind, model, (X, _, W, _, t) = fitted
    assert model.converged_
    if kind != "mixed":  # whose features have scales of their own
        assert np.degrees(subspace_angles(model.target_components_.T, W).max()) < 20.0
    found = model.transform(X)
    assert abs(np.corrcoef(found[:, 0], t[:, 0])[0, 1]) > (0.7 if kind == "bernoulli" else 0.8)
    if kind == "negative_binomial":
        assert model.dispersion_ is not None
        assert 0.2 < np.median(model.dispersion_) < 0.5  # 1/3


def test_the_bound_is_the_sum_of_the_rows(
    fitted: tuple[str, clvm.ContrastiveLVM, Any],
) -> None:
    """Sweeps carry the rows' posteriors to where a prediction finds them from nothing."""
    kind, model, (X, B, *_) = fitted
    exact = model.score_samples(X).sum() + model.score_samples(B, of="background").sum()
    parts = model.posterior_.bound_parts
    assert parts is not None
    rows = parts["target rows"] + parts["background rows"]
    if kind == "negative_binomial":  # whose fit has a cheap lower bound of each entry
        assert 0.0 < exact - rows < 0.05 * (N + M)
    else:
        assert abs(exact - rows) < 1e-3
    assert sum(parts.values()) == pytest.approx(model.lower_bound_, rel=1e-12)


def test_every_method_is_finite(fitted: tuple[str, clvm.ContrastiveLVM, Any]) -> None:
    _, model, (X, B, *_) = fitted
    latents = model.latents(X[:20])
    assert latents.target is not None
    assert latents.target_std is not None
    filled, std = model.impute(X[:20], return_std=True)
    shown = (latents.target, latents.target_std, latents.shared, filled, std)
    more = (model.denoise(X[:20]), model.reconstruct(X[:20]), model.inverse_transform([[0.5]]))
    for array in (*shown, *more, model.score_samples(B[:9], of="background")):
        assert np.isfinite(array).all()
    assert np.isnan(X[:20]).any()
    for of in ("target", "background", "denoised"):
        assert (
            model._fitted().likelihood._unsupported_reason(model.sample(30, of=of, random_state=0))
            is None
        )


def test_travels(fitted: tuple[str, clvm.ContrastiveLVM, Any], tmp_path: Path) -> None:
    _, model, (X, *_) = fitted
    model.save(tmp_path / "model")
    for other in (clvm.load_model(tmp_path / "model"), pickle.loads(pickle.dumps(model))):
        np.testing.assert_array_equal(other.transform(X[:5]), model.transform(X[:5]))
    assert clone(model).likelihood == model.likelihood


@pytest.fixture(scope="module")
def counts() -> tuple[Array, Array, Array, Array]:
    """Counts with size factors of their own."""
    rng = np.random.default_rng(5)
    X, B, *_ = planted("poisson")
    sizes = [rng.gamma(4.0, 0.25, len(Y)) for Y in (X, B)]
    X, B = (rng.poisson(Y * s[:, None]).astype(float) for Y, s in zip((X, B), sizes, strict=True))
    return X, B, sizes[0], sizes[1]


def test_sparse_rows_are_the_same_rows(counts: tuple[Array, Array, Array, Array]) -> None:
    X, B, *_ = counts
    model = clvm.ContrastiveLVM(1, 2, likelihood="poisson", inference=clvm.EM(tol=1e-3))
    dense = clone(model).fit(X, background=B)
    sparse = clone(model).fit(sp.csr_array(X), background=sp.csr_array(B))
    np.testing.assert_allclose(sparse.target_components_, dense.target_components_, rtol=1e-6)
    np.testing.assert_allclose(
        sparse.transform(sp.csr_array(X[:9])), dense.transform(X[:9]), rtol=1e-5, atol=1e-7
    )


def test_size_factors_given_and_from_totals(counts: tuple[Array, Array, Array, Array]) -> None:
    X, B, s, r = counts
    model = clvm.ContrastiveLVM(1, 2, likelihood="poisson", inference=clvm.EM(tol=1e-2))
    given = clone(model).fit(X, background=B, size_factors=s, background_size_factors=r)
    t = given.transform(X, size_factors=s)
    totals = model.fit(X, background=B).transform(X)
    truth = planted("poisson")[-1][:, 0]
    assert abs(np.corrcoef(t[:, 0], truth)[0, 1]) > 0.75
    assert np.isfinite(totals).all()
    doubled = given.transform(2.0 * X, size_factors=2.0 * s)
    unit = given.posterior_.latent_scales("target")
    np.testing.assert_allclose(doubled / unit, t / unit, atol=0.4)  # the same rates, better known
    with pytest.raises(ValueError, match="fitted with size factors of your own"):
        given.transform(X)
    with pytest.raises(ValueError, match="go together; give both or none"):
        model.fit(X, background=B, size_factors=s)
    with pytest.raises(ValueError, match="one number per row"):
        model.fit(X, background=B, size_factors=s[:-1], background_size_factors=r)
    with pytest.raises(ValueError, match=r"size_factors were given, but Gaussian"):
        clvm.ContrastiveLVM(1, 2).fit(X, background=B, size_factors=s)


def test_mixed_features_by_name() -> None:
    names = [f"f{i}" for i in range(D)]
    X, B = (pd.DataFrame(Y[:60], columns=names) for Y in planted("mixed")[:2])
    kinds = {"gaussian": names[:4], "poisson": names[4:8], "bernoulli": names[8:]}
    model = clvm.ContrastiveLVM(1, 1, likelihood=clvm.Mixed(kinds), inference=clvm.EM(tol=0.1)).fit(
        X, background=B
    )
    assert model.transform(X).shape == (60, 1)
    noise = np.asarray(model.noise_variance_)
    assert (noise[:4] > 0).all()
    assert not noise[4:].any()


def test_few_counts_of_mixed_data_keep_their_effect() -> None:
    """Six counts that all rise with one latent variable: their total would take it away."""
    rng = np.random.default_rng(0)
    z = rng.standard_normal((300, 1))
    X = np.hstack([z + 0.3 * rng.standard_normal((300, 4)), rng.poisson(np.exp(1.0 + z), (300, 6))])
    kinds = {"gaussian": range(4), "poisson": range(4, 10)}
    slopes = {}
    for sizes in ("auto", "total"):
        likelihood = clvm.Mixed(kinds, size_factors=sizes)
        model = clvm.ContrastiveLVM(1, 0, likelihood=likelihood, inference=clvm.EM(tol=1e-2))
        slopes[sizes] = np.abs(model.fit(X).target_components_[0, 4:]).mean()
    assert abs(slopes["auto"] - 1.0) < 0.15
    assert slopes["total"] < 0.5
    with pytest.raises(ValueError, match="size_factors"):
        clvm.Mixed(kinds, size_factors="rows")  # type: ignore[arg-type]
