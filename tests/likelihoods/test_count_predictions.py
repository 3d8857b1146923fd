"""Every method of a fitted model of counts, binary or mixed data, against its definition."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from scipy import stats
from scipy.special import expit

import contrastive_lvm as clvm
from contrastive_lvm.likelihoods.values import Nuisance
from contrastive_lvm.linalg import packed
from contrastive_lvm.posterior import Posterior
from contrastive_lvm.rows.size_factors import log_sizes
from tests.oracles import Array, with_missing

D, T, K = 8, 2, 3
NAMES = list("abcdefgh")
MIXED = {"poisson": ["b", "e"], "bernoulli": ["c", "h"], "gaussian": ["a", "g"]}
MIXED["negative_binomial"] = ["d", "f"]
LIKELIHOODS: dict[str, Any] = {
    "poisson": clvm.Poisson(),
    "negative_binomial": clvm.NegativeBinomial(),
    "bernoulli": clvm.Bernoulli(),
    "mixed": clvm.Mixed(MIXED, size_factors="total"),
}
SIZED = {
    "poisson": np.ones(D, dtype=bool),
    "negative_binomial": np.ones(D, dtype=bool),
    "bernoulli": np.zeros(D, dtype=bool),
    "mixed": np.isin(NAMES, list("bedf")),
}
GAUSSIAN, BINARY = np.isin(NAMES, list("ag")), np.isin(NAMES, list("ch"))


def applied(kind: str, *, uncertain: float = 0.0, n_shared: int = K) -> clvm.ContrastiveLVM:
    rng = np.random.default_rng(5)
    S, W = 0.5 * rng.standard_normal((D, n_shared)), 0.6 * rng.standard_normal((D, T))
    mean = rng.normal(1.2, 0.4, (2, D))
    profile = np.where(SIZED[kind], np.exp(mean[0] + 0.4), 0.0)
    size = n_shared + T
    model = clvm.ContrastiveLVM(T, n_shared, likelihood=LIKELIHOODS[kind])
    posterior = Posterior(
        {"shared": S, "target": W},
        {"target": mean[0], "background": mean[1]},
        np.where(GAUSSIAN & (kind == "mixed"), 0.3, 0.0),
        np.zeros(1),
        n_iter=1,
        converged=True,
        loading_covariance=(
            np.repeat(uncertain * packed.pack(np.eye(size)), D, axis=1) if uncertain else None
        ),
        dispersion=np.full(D, 0.3) if kind in ("negative_binomial", "mixed") else None,
        profile=profile,
    )
    model.n_features_in_, model.feature_names_in_ = D, np.array(NAMES, dtype=object)
    model._publish(posterior, model._model(posterior))
    return model


def rows_of(
    model: clvm.ContrastiveLVM, n: int = 30, of: str = "target", missing: float = 0.0
) -> pd.DataFrame:
    sizes = np.exp(np.random.default_rng(1).normal(0.0, 0.4, n))
    sized = model._fitted().likelihood._sized_features(D).any()
    drawn = model.sample(n, of=of, size_factors=sizes if sized else None, random_state=0)
    return pd.DataFrame(with_missing(drawn, missing, 1), columns=NAMES)


def inverse_link(kind: str, e: Array) -> Array:
    if kind == "bernoulli":
        return np.asarray(expit(e))
    if kind == "mixed":
        return np.where(GAUSSIAN, e, np.where(BINARY, expit(e), np.exp(e)))
    return np.exp(e)


@pytest.mark.parametrize("missing", [0.0, 0.2])
@pytest.mark.parametrize("kind", LIKELIHOODS)
def test_predictions_are_on_the_scale_of_the_data(kind: str, missing: float) -> None:
    model = applied(kind)
    X, p = rows_of(model, missing=missing), model.posterior_
    values, latents = X.to_numpy(), model.latents(X)
    assert latents.target is not None
    assert p.profile is not None
    target, shared = (
        latents.target @ p.loadings["target"].T,
        latents.shared @ p.loadings["shared"].T,
    )
    base = p.means["target"] + SIZED[kind] * log_sizes(values, p.profile)[:, None]
    np.testing.assert_array_equal(model.transform(X), latents.target)
    for parts, e in (
        (("shared", "target"), base + target + shared),
        (("target",), base + target),
        (("shared",), base + shared),
        ((), base),
    ):
        found = model.reconstruct(X, parts=parts)
        np.testing.assert_allclose(found, inverse_link(kind, e), rtol=1e-9)
    alone = inverse_link(kind, p.means["target"] + target)
    np.testing.assert_allclose(model.inverse_transform(latents.target), alone, rtol=1e-9)
    if kind == "mixed":
        left = np.where(np.isnan(values), alone, values - shared)
        alone = np.where(GAUSSIAN, left, alone)
    np.testing.assert_allclose(model.denoise(X), alone, rtol=1e-9)
    assert model.score(X) == pytest.approx(model.score_samples(X).mean())
    weights = np.arange(1.0, 31.0)
    average = np.average(model.score_samples(X), weights=weights)
    assert model.score(X, sample_weight=weights) == pytest.approx(average)


@pytest.mark.parametrize("uncertain", [0.0, 0.05])
@pytest.mark.parametrize("of", ["target", "background"])
@pytest.mark.parametrize("kind", LIKELIHOODS)
def test_missing_entries_get_the_moments_of_new_ones(kind: str, of: str, uncertain: float) -> None:
    model = applied(kind, uncertain=uncertain)
    X, p = rows_of(model, of=of, missing=0.3), model.posterior_
    latents = model.latents(X, of=of)
    L, h, mean = p.loadings["shared"], latents.shared, p.means["background"]
    if of == "target":
        assert latents.target is not None
        L, h = np.hstack([p.loadings["target"], L]), np.hstack([latents.target, h])
        mean = p.means["target"]
    else:
        assert latents.target is None
    assert p.profile is not None
    m = mean + h @ L.T + SIZED[kind] * log_sizes(X.to_numpy(), p.profile)[:, None]
    v = np.einsum("dk,nkl,dl->nd", L, latents.cov, L)
    spread = np.einsum("nkk->n", latents.cov) + (h**2).sum(axis=1)
    v = v + uncertain * spread[:, None]
    dispersion = np.zeros(D) if p.dispersion is None else p.dispersion
    given = Nuisance(p.noise_variance, dispersion)
    expected, variance = model._fitted().likelihood.response(m, v, given)
    filled, std = model.impute(X, of=of, return_std=True)
    missing = np.isnan(X.to_numpy())
    np.testing.assert_allclose(filled[missing], expected[missing], rtol=1e-9)
    np.testing.assert_allclose(std[missing] ** 2, variance[missing], rtol=1e-9)
    np.testing.assert_array_equal(filled[~missing], X.to_numpy()[~missing])
    assert not std[~missing].any()
    np.testing.assert_array_equal(model.impute(X, of=of), filled)


@pytest.mark.parametrize("of", ["target", "background", "denoised"])
@pytest.mark.parametrize("kind", ["poisson", "negative_binomial", "mixed"])
def test_samples_have_the_model_s_means(kind: str, of: str) -> None:
    model, n = applied(kind), 20_000
    p = model.posterior_
    square = {"target": 1.0, "background": 0.0, "denoised": 1.0}[of] * p.loadings["target"] ** 2
    log_mean = (p.means["background"] if of == "background" else p.means["target"]) + 0.5 * (
        square.sum(axis=1) + (of != "denoised") * (p.loadings["shared"] ** 2).sum(axis=1)
    )
    counts = SIZED[kind]
    for size in (None, 3.0):
        sizes = None if size is None else np.full(n, size)
        drawn = model.sample(n, of=of, size_factors=sizes, random_state=0)[:, counts]
        error = drawn.std(axis=0) / n**0.5
        expected = (size or 1.0) * np.exp(log_mean[counts])
        assert (np.abs(drawn.mean(axis=0) - expected) < 5.0 * error).all()
    again = model.sample(3, of=of, random_state=1)
    np.testing.assert_array_equal(again, model.sample(3, of=of, random_state=1))


@pytest.mark.parametrize("kind", LIKELIHOODS)
def test_sparse_and_single_precision_rows_are_the_same_rows(kind: str) -> None:
    model = applied(kind)
    X = rows_of(model).to_numpy().astype(np.float32)
    del model.feature_names_in_
    model.likelihood = (
        model.likelihood
        if kind != "mixed"
        else clvm.Mixed(
            {k: [NAMES.index(f) for f in features] for k, features in MIXED.items()},
            size_factors="total",
        )
    )
    for method in ("transform", "score_samples", "reconstruct", "denoise", "impute"):
        dense = getattr(model, method)(X.astype(np.float64))
        for other in (X, sp.csr_matrix(X), sp.csr_array(X)):
            np.testing.assert_allclose(getattr(model, method)(other), dense, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", ["poisson", "negative_binomial", "mixed"])
def test_given_size_factors_take_the_place_of_totals(kind: str) -> None:
    model = applied(kind)
    X = rows_of(model)
    assert model.posterior_.profile is not None
    sizes = np.exp(log_sizes(X.to_numpy(), model.posterior_.profile))
    for method in ("transform", "score_samples", "reconstruct", "denoise", "impute", "score"):
        call = getattr(model, method)
        np.testing.assert_allclose(call(X, size_factors=sizes), call(X), rtol=1e-6)
    assert np.abs(model.transform(X, size_factors=3.0 * sizes) - model.transform(X)).max() > 0.1
    np.testing.assert_array_equal(
        model.outliers(X, size_factors=sizes).rows, np.argsort(model.score_samples(X))
    )
    np.testing.assert_allclose(
        model.latents(X, of="background", size_factors=sizes).shared,
        model.latents(X, of="background").shared,
        atol=1e-6,
    )


def test_without_latents_rows_of_the_background_are_independent_counts() -> None:
    model = applied("poisson", n_shared=0)
    X = rows_of(model, of="background")
    p = model.posterior_
    assert p.profile is not None
    rate = np.exp(p.means["background"] + log_sizes(X.to_numpy(), p.profile)[:, None])
    exact = np.asarray(stats.poisson.logpmf(X.to_numpy(), rate)).sum(axis=1)
    np.testing.assert_allclose(model.score_samples(X, of="background"), exact, rtol=1e-10)
    assert model.latents(X, of="background").shared.shape == (30, 0)


@pytest.mark.parametrize("kind", LIKELIHOODS)
def test_rows_rank_by_their_score_and_weigh_the_same(kind: str) -> None:
    model = applied(kind)
    X = rows_of(model)
    found = model.outliers(X)
    np.testing.assert_array_equal(found.weights, np.ones((30, 1)))
    np.testing.assert_array_equal(found.row_weights, np.ones(30))
    assert (np.diff(model.score_samples(X)[found.rows]) >= 0).all()
    assert found.entries is None


@pytest.mark.parametrize(
    ("kind", "value", "sentence"),
    [
        ("poisson", -1.0, "X contains the value -1, which is negative"),
        ("negative_binomial", 0.5, "X contains the value 0.5, which is not a whole number"),
        ("bernoulli", 2.0, "X contains the value 2 where 0 or 1 is expected"),
        ("mixed", -3.0, "X contains in a poisson feature the value -3"),
    ],
)
def test_rows_that_cannot_be_are_refused(kind: str, value: float, sentence: str) -> None:
    model = applied(kind)
    X = rows_of(model)
    X.iloc[3, 1] = value
    with pytest.raises(ValueError, match=sentence):
        model.transform(X)
    with pytest.raises(ValueError, match=sentence):
        model.score_samples(X, of="background")
    if kind != "mixed":
        del model.feature_names_in_
        with pytest.raises(ValueError, match=sentence):
            model.denoise(sp.csr_matrix(X.to_numpy()))


@pytest.mark.parametrize(
    ("sizes", "kind", "sentence"),
    [
        (np.ones(29), "poisson", r"size_factors has shape \(29,\), but there are 30 rows"),
        (np.ones((30, 1)), "poisson", r"size_factors has shape \(30, 1\)"),
        (np.r_[np.ones(29), 0.0], "poisson", "size_factors contains 0, but"),
        (np.r_[np.ones(29), -2.0], "negative_binomial", "size_factors contains -2, but"),
        (np.r_[np.ones(29), np.nan], "mixed", "size_factors contains nan, but"),
        (np.ones(30), "bernoulli", r"size_factors were given, but Bernoulli\(\) has none"),
    ],
)
def test_size_factors_that_cannot_be_are_refused(sizes: Array, kind: str, sentence: str) -> None:
    model = applied(kind)
    X = rows_of(model)
    for method in ("transform", "latents", "denoise", "impute", "score", "outliers"):
        with pytest.raises(ValueError, match=sentence):
            getattr(model, method)(X, size_factors=sizes)
    with pytest.raises(ValueError, match=sentence):
        model.sample(30, size_factors=sizes)


def test_size_factors_must_be_numbers() -> None:
    model = applied("poisson")
    with pytest.raises(ValueError, match="must be one number per row"):
        model.sample(2, size_factors=["large", "small"])
