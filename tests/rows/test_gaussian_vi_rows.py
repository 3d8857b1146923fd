"""Likelihoods without a closed form: their expectations, row step and predictions by brute force.

Whatever can be integrated on a grid is: expectations over a normal predictor, and the latents of
rows with one or two of them.
"""

from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pytest
from scipy import stats
from scipy.special import expit, logsumexp

import contrastive_lvm as clvm
from contrastive_lvm import prediction as predict
from contrastive_lvm.likelihoods.values import Nuisance
from contrastive_lvm.linalg import packed
from contrastive_lvm.linalg.loadings import Loadings, PackedCovariance
from contrastive_lvm.linalg.quadrature import LIMITS, logistic_moments
from contrastive_lvm.rows.gaussian_vi_rows import Generalised, Learned, row_ascents
from tests.oracles import Array, with_missing

NOISE, DISPERSION, DF = 0.7, 0.4, 3.0
MIXED = {"gaussian": [0, 6], "poisson": [1, 4], "bernoulli": [2, 7], "negative_binomial": [3, 5]}
LIKELIHOODS: dict[str, Any] = {
    "gaussian": clvm.Gaussian("feature"),
    "student_t": clvm.StudentT(DF),
    "poisson": clvm.Poisson(),
    "negative_binomial": clvm.NegativeBinomial(),
    "bernoulli": clvm.Bernoulli(),
    "mixed": clvm.Mixed(MIXED, size_factors="total"),
}
COUNTED = ("poisson", "negative_binomial", "bernoulli")
VALUES = {"bernoulli": [0.0, 1.0], "gaussian": [-2.0, 0.5], "student_t": [-2.0, 0.5]}
COUNTS = [0.0, 1.0, 7.0, 300.0]


def nuisance(D: int = 1, dispersion: float = DISPERSION) -> Nuisance:
    return Nuisance(np.full(D, NOISE), np.full(D, dispersion), DF)


def log_density(kind: str, x: Any, e: Any) -> Array:
    """As SciPy has it."""
    if kind == "gaussian":
        found = stats.norm.logpdf(x, e, NOISE**0.5)
    elif kind == "student_t":
        found = stats.t.logpdf(x, DF, e, NOISE**0.5)
    elif kind == "poisson":
        found = stats.poisson.logpmf(x, np.exp(e))
    elif kind == "negative_binomial":
        c = 1.0 / DISPERSION
        found = stats.nbinom.logpmf(x, c, expit(np.log(c) - e))
    else:
        found = stats.bernoulli.logpmf(1, expit(np.where(x > 0, e, -np.asarray(e))))
    return np.asarray(found)


def normal_grid(m: float, v: float, n: int = 20_001) -> tuple[Array, Array]:
    """Points and weights of `N(m, v)`, far into the tail that an exponential reaches."""
    z = np.linspace(-8.0, 8.0 + v**0.5, n)
    weights = stats.norm.pdf(z)
    return m + v**0.5 * z, weights / weights.sum()


# --- expectations ---------------------------------------------------------------------------------


@pytest.mark.parametrize("v", [1e-3, *LIMITS[1:], 12.0, 60.0, 400.0])
def test_moments_of_the_logistic_function_are_exact_to_1e_8(v: float) -> None:
    for m in (-700.0, -30.0, -6.0, -1.0, 0.0, 0.4, 3.0, 25.0, 700.0):
        e, weights = normal_grid(m, v, 200_001)
        dense = (np.logaddexp(0.0, e), expit(e), expit(e) * expit(-e))
        found = logistic_moments(np.array([m]), np.array([v]))
        for one, values in zip(found, dense, strict=True):
            exact = float(values @ weights)
            assert one[0] == pytest.approx(exact, abs=1e-8 * (1.0 + abs(exact)))


@pytest.mark.parametrize("v", [0.01, 0.2, 1.2, 4.0, 11.0])
@pytest.mark.parametrize("kind", [*COUNTED, "gaussian"])
def test_expected_log_densities_are_integrals(kind: str, v: float) -> None:
    likelihood = LIKELIHOODS[kind]
    for x in VALUES.get(kind, COUNTS):
        for m in (-3.0, 0.0, 1.5):
            e, weights = normal_grid(m, v)
            exact = float(log_density(kind, x, e) @ weights)
            entry = np.array([[x]])
            value = likelihood._expected(entry, np.array([[m]]), np.array([[v]]), nuisance()).value
            assert value[0, 0] == pytest.approx(exact, rel=1e-7, abs=1e-6)


@pytest.mark.parametrize("v", [0.01, 0.2, 1.2, 4.0, 11.0])
@pytest.mark.parametrize("kind", [*COUNTED, "gaussian", "student_t"])
def test_slope_and_curvature_are_derivatives(kind: str, v: float) -> None:
    def at(m: float, v: float) -> Any:
        return LIKELIHOODS[kind]._expected(x, np.full_like(x, m), np.full_like(x, v), nuisance())

    x, h = np.array([VALUES.get(kind, COUNTS)]), 1e-4
    for m in (-3.0, 0.0, 1.5):
        here, up, down = at(m, v), at(m + h, v), at(m - h, v)
        close: Any = {"rtol": 1e-5, "atol": 1e-5}
        np.testing.assert_allclose((up.value - down.value) / (2 * h), here.slope, **close)
        by_v = (at(m, v + h * v).value - at(m, v - h * v).value) / (2 * h * v)
        np.testing.assert_allclose(-2.0 * by_v, here.curvature, rtol=1e-4, atol=1e-4)
        if kind != "student_t":  # whose weight is not the second derivative
            np.testing.assert_allclose((down.slope - up.slope) / (2 * h), here.curvature, **close)


@pytest.mark.parametrize("kind", LIKELIHOODS)
def test_the_constant_is_what_the_predictor_does_not_move(kind: str) -> None:
    rng, likelihood, given = np.random.default_rng(0), LIKELIHOODS[kind], nuisance(8)
    rows = rng.integers(0, 2, (5, 8)).astype(float)
    for m, v in ((rng.normal(size=(5, 8)), np.ones((5, 8))), (np.zeros((5, 8)), np.zeros((5, 8)))):
        whole = likelihood._expected(rows, m, v, given)
        moving = likelihood._expected(rows, m, v, given, whole=False)
        constant = likelihood._constant(rows, given)
        np.testing.assert_allclose(moving.value + constant, whole.value, rtol=1e-12, atol=1e-12)
        np.testing.assert_array_equal(moving.slope, whole.slope)


@pytest.mark.parametrize("v", [0.0, 0.3, 2.5])
def test_counts_that_hardly_disperse_are_poisson(v: float) -> None:
    x, m = np.array([[0.0, 1.0, 6.0]]), np.array([[-9.0, -2.0, 0.5]])
    given = nuisance(3, dispersion=0.0)
    found = clvm.NegativeBinomial()._expected(x, m, np.full_like(m, v), given)
    poisson = clvm.Poisson()._expected(x, m, np.full_like(m, v), given)
    for one, other in zip(found, poisson, strict=True):
        np.testing.assert_allclose(one, other, atol=2e-3)


def test_at_a_known_predictor_student_t_is_exact() -> None:
    x, m = np.array([[-2.0, 0.0, 9.0]]), np.array([[0.5, 0.0, -1.0]])
    value = clvm.StudentT(DF)._expected(x, m, np.zeros_like(m), nuisance()).value
    np.testing.assert_allclose(value, log_density("student_t", x, m), rtol=1e-12)


@pytest.mark.parametrize("v", [0.0, 0.3, 1.5])
@pytest.mark.parametrize("kind", [*COUNTED, "gaussian"])
def test_responses_and_draws_have_the_moments_of_new_entries(kind: str, v: float) -> None:
    likelihood, m, n = LIKELIHOODS[kind], 0.4, 200_000
    mean, variance = likelihood.response(np.array([[m]]), np.array([[v]]), nuisance())
    e, weights = normal_grid(m, v)
    at, spread = likelihood.response(e[:, None], np.zeros((len(e), 1)), nuisance())
    first = float(at[:, 0] @ weights)
    total = float((spread + at**2)[:, 0] @ weights) - first**2
    assert mean[0, 0] == pytest.approx(first, rel=1e-7)
    assert variance[0, 0] == pytest.approx(total, rel=1e-6)
    rng = np.random.RandomState(0)
    drawn = likelihood.draw(m + v**0.5 * rng.standard_normal((n, 1)), nuisance(), rng)
    assert drawn.mean() == pytest.approx(first, abs=5.0 * float(drawn.std()) / n**0.5)
    fourth = float(((drawn - drawn.mean()) ** 4).mean())
    assert drawn.var() == pytest.approx(total, abs=5.0 * (fourth / n) ** 0.5)
    if kind != "gaussian":
        x = np.arange(2.0 if kind == "bernoulli" else 2000.0)
        known, spread = likelihood.response(np.array([[m]]), np.zeros((1, 1)), nuisance())
        chances = np.exp(log_density(kind, x, m))
        assert known[0, 0] == pytest.approx(x @ chances)
        assert spread[0, 0] == pytest.approx(x**2 @ chances - (x @ chances) ** 2)


# --- the row step ---------------------------------------------------------------------------------


class Case(NamedTuple):
    """A model and rows drawn from it."""

    model: Generalised
    X: Array


def case(
    kind: str, K: int, *, D: int = 8, n: int = 40, scale: float = 0.7, cov: float = 0.0
) -> Case:
    rng, likelihood, given = np.random.default_rng(3), LIKELIHOODS[kind], nuisance(D)
    C = PackedCovariance(np.repeat(cov * packed.pack(np.eye(K)), D, axis=1), np.zeros(D), K)
    loadings = Loadings(scale * rng.standard_normal((D, K)), C if cov else None)
    mean, sizes = rng.normal(1.0, 0.5, D), rng.normal(0.0, 0.3, n)
    model = Generalised(
        loadings, mean, Learned(likelihood, given), sizes, likelihood._sized_features(D)
    )
    X = predict.draw(model, n, np.random.RandomState(0))
    return Case(model, X)


def kinds_of(kind: str, D: int) -> list[str]:
    if kind != "mixed":
        return [kind] * D
    return [next(k for k, features in MIXED.items() if d in features) for d in range(D)]


def posterior_on_a_grid(kind: str, model: Generalised, X: Array, h: Array) -> tuple[Array, Array]:
    """Log-likelihood, (N,), and posterior mean, (N, K), from a grid of latents, (G, K)."""
    width = np.diff(np.unique(h[:, 0]))[0]
    prior = stats.norm.logpdf(h).sum(axis=1) + h.shape[1] * np.log(width)
    log_joint = np.tile(prior, (len(X), 1))
    e = model.mean + h @ model.L.T
    for i, x in enumerate(X):
        for d, of in enumerate(kinds_of(kind, X.shape[1])):
            if not np.isnan(x[d]):
                log_joint[i] += log_density(of, x[d], e[:, d] + model.offset(slice(None))[i, d])
    total = logsumexp(log_joint, axis=1)
    return total, np.exp(log_joint - total[:, None]) @ h


def latent_grid(K: int) -> Array:
    side = np.linspace(-7.0, 7.0, 4001 if K == 1 else 281)
    return np.stack(np.meshgrid(*[side] * K), axis=-1).reshape(-1, K)


@pytest.mark.parametrize("missing", [0.0, 0.3])
@pytest.mark.parametrize("K", [1, 2])
@pytest.mark.parametrize("kind", [*COUNTED, "mixed"])
def test_bounds_are_close_below_log_likelihoods(kind: str, K: int, missing: float) -> None:
    model, X = case(kind, K, n=40 if K == 1 else 12)
    X = with_missing(X, missing, 1)
    exact, mean = posterior_on_a_grid(kind, model, X, latent_grid(K))
    gap = exact - predict.log_likelihoods(model, X)
    assert (gap > -1e-7).all()
    assert gap.max() < 0.05
    means, cov = predict.latent_moments(model, X)
    sd = np.sqrt(np.einsum("nkk->nk", cov))
    assert (np.abs(means - mean) / sd).max() < 0.1


def dense_bound(model: Generalised, x: Array, i: int, m: Array, V: Array) -> float:
    """The bound of one row, straight from its definition."""
    o, L = ~np.isnan(x), model.L
    mu = model.mean + L @ m + model.offset(slice(None))[i]
    v = np.einsum("dk,kl,dl->d", L, V, L)
    if model.loadings.cov is not None:
        C = packed.unpack(model.loadings.cov.packed())
        v = v + np.einsum("dkl,kl->d", C, V + np.outer(m, m))
    observation: Any = model.observation
    value, _, _ = observation.expected(np.nan_to_num(x)[None], mu[None], v[None])
    value = value + observation.constant(np.nan_to_num(x)[None])
    kl = 0.5 * (np.trace(V) + m @ m - len(m) - np.linalg.slogdet(V)[1])
    return float(value[0, o].sum() - kl)


@pytest.mark.parametrize("cov", [0.0, 0.05])
@pytest.mark.parametrize("kind", [*COUNTED, "mixed", "student_t"])
def test_the_bound_is_at_its_maximum(kind: str, cov: float) -> None:
    model, X = case(kind, 3, n=6, cov=cov)
    X = with_missing(X, 0.2, 2)
    means, covs = predict.latent_moments(model, X)
    bounds, rng = predict.log_likelihoods(model, X), np.random.default_rng(0)
    for i, (x, m, V) in enumerate(zip(X, means, covs, strict=True)):
        assert bounds[i] == pytest.approx(dense_bound(model, x, i, m, V), abs=1e-9)
        root = np.linalg.cholesky(V)
        for size in (1e-3, 1e-2, 0.1):
            moved = m + size * root @ rng.standard_normal(3)
            turned = root @ (np.eye(3) + size * rng.standard_normal((3, 3)))
            assert dense_bound(model, x, i, moved, V) < bounds[i]
            assert dense_bound(model, x, i, m, turned @ turned.T) < bounds[i]


@pytest.mark.parametrize("missing", [0.0, 0.3])
@pytest.mark.parametrize("cov", [0.0, 0.2])
@pytest.mark.parametrize("kind", ["gaussian", "student_t"])
def test_closed_forms_come_out_again(kind: str, cov: float, missing: float) -> None:
    model, X = case(kind, 3, cov=cov)
    X = with_missing(X, missing, 1)
    X[0] = np.nan
    scaler = None if kind == "gaussian" else partial(clvm.StudentT(DF).scales, df=DF)
    linear = predict.Linear(model.loadings, model.mean, np.full(8, NOISE), scaler)
    for found, exact in zip(
        predict.latent_moments(model, X), predict.latent_moments(linear, X), strict=True
    ):
        np.testing.assert_allclose(found, exact, atol=1e-8 if kind == "gaussian" else 1e-6)
    scores = predict.log_likelihoods(model, X)
    np.testing.assert_allclose(scores, predict.log_likelihoods(linear, X), atol=1e-8)
    assert scores[0] == 0.0


@pytest.mark.parametrize("kind", [*COUNTED])
def test_missing_entries_are_left_out(kind: str) -> None:
    model, X = case(kind, 2, cov=0.05)
    assert model.loadings.cov is not None
    kept = np.array([0, 2, 3, 6])
    C = model.loadings.cov.packed()[:, kept]
    part = model._replace(
        loadings=Loadings(model.L[kept], PackedCovariance(C, np.zeros(4), 2)),
        mean=model.mean[kept],
        observation=Learned(LIKELIHOODS[kind], nuisance(4)),
        sized=model.sized[kept],
    )
    partly = np.full_like(X, np.nan)
    partly[:, kept] = X[:, kept]
    for found, exact in zip(
        predict.latent_moments(model, partly), predict.latent_moments(part, X[:, kept]), strict=True
    ):
        np.testing.assert_allclose(found, exact, atol=1e-10)


EXTREMES = np.zeros((7, 20))
EXTREMES[1, 0] = EXTREMES[2, :] = EXTREMES[3, 3] = 1e6
EXTREMES[4, ::2] = 1.0
EXTREMES[5] = np.nan
EXTREMES[6, 1:] = np.nan


@pytest.mark.parametrize("cov", [0.0, 0.3])
@pytest.mark.parametrize("level", [-20.0, -5.0, 0.0, 8.0])
@pytest.mark.parametrize("dispersion", [0.0, 1e-3, 50.0])
@pytest.mark.parametrize("kind", COUNTED)
def test_extreme_rows_settle(kind: str, dispersion: float, level: float, cov: float) -> None:
    """Huge counts, none at all, rare features, loadings of 5: finite, and a fixed point."""
    rng, K, D = np.random.default_rng(1), 4, EXTREMES.shape[1]
    C = PackedCovariance(np.repeat(cov * packed.pack(np.eye(K)), D, axis=1), np.zeros(D), K)
    loadings = Loadings(rng.uniform(-5.0, 5.0, (D, K)), C if cov else None)
    observation = Learned(LIKELIHOODS[kind], nuisance(D, dispersion))
    sizes = np.array([0.0, 0.0, 0.0, -9.0, 5.0, 0.0, 0.0])
    model = Generalised(loadings, np.full(D, level), observation, sizes, np.ones(D, dtype=bool))
    X = np.minimum(EXTREMES, 1.0) if kind == "bernoulli" else EXTREMES
    means, covs = predict.latent_moments(model, X)
    bounds = predict.log_likelihoods(model, X)
    filled, std = predict.fill(model, X, with_std=True)
    assert std is not None
    for found in (means, covs, bounds, filled, std):
        assert np.isfinite(found).all()
    (_, _, state), *_ = row_ascents(model, X)
    sd = np.sqrt(state.cov[np.diagonal(packed.full_index(K))])
    assert (np.abs(packed.multiply(state.cov, state.slope)) / sd).max() < 2e-7
    np.testing.assert_allclose(state.precision, state.aim, rtol=2e-7, atol=1e-5 * state.aim.max())
    np.testing.assert_array_equal(means[5], 0.0)
    np.testing.assert_array_equal(covs[5], np.eye(K))
    assert bounds[5] == 0.0
    assert (np.linalg.eigvalsh(covs) > 0).all()
    assert (bounds <= 1e-9).all()


# --- kinds of features ----------------------------------------------------------------------------


def test_a_mixed_likelihood_is_the_sum_of_its_parts() -> None:
    model, X = case("mixed", 2)
    mixed, given = LIKELIHOODS["mixed"], nuisance(8)
    rng = np.random.default_rng(0)
    m, v = rng.normal(size=X.shape), rng.uniform(0.0, 2.0, X.shape)
    whole, means = mixed._expected(X, m, v, given), mixed.response(m, v, given)
    for kind, features in MIXED.items():
        at = np.array(features)
        part = LIKELIHOODS[kind]._expected(X[:, at], m[:, at], v[:, at], given.of(at))
        for all_kinds, one in zip(whole, part, strict=True):
            np.testing.assert_array_equal(all_kinds[:, at], one)
        response = LIKELIHOODS[kind].response(m[:, at], v[:, at], given.of(at))
        np.testing.assert_array_equal(means[0][:, at], response[0])
        np.testing.assert_array_equal(means[1][:, at], response[1])
    np.testing.assert_array_equal(mixed._sized_features(8), [d in (1, 3, 4, 5) for d in range(8)])
    assert model.offset(slice(3)).any(axis=0).tolist() == mixed._sized_features(8).tolist()


@pytest.mark.parametrize(
    ("kinds", "sentence"),
    [
        (
            {"gaussian": [0, 1], "poisson": [2, 7]},
            "names the feature 7, which is not in the data",
        ),
        ({"gaussian": ["a", "z"], "poisson": ["b", "c"]}, "names the feature 'z'"),
        ({"gaussian": ["a", "b"]}, "leaves out 1 of 3 features, the first is 'c'"),
        ({"gaussian": ["a", "b"], "poisson": ["b", "c"]}, "'b' twice, as 'gaussian' and 'poisson'"),
    ],
)
def test_mixed_features_must_be_there_once(kinds: Any, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        clvm.Mixed(kinds)._bind(3, ["a", "b", "c"])


def test_mixed_kinds_must_be_known() -> None:
    with pytest.raises(ValueError, match="unknown likelihood 'gamma'"):
        clvm.Mixed({"gamma": [0]})
    with pytest.raises(TypeError, match="must be a dict"):
        clvm.Mixed([0, 1])
    assert clvm.Mixed({"gaussian": np.int64(0), "poisson": "b"})._bind(2, ["a", "b"]).kinds == {
        "gaussian": (0,),
        "poisson": (1,),
    }
