"""Counts, binary and mixed data by variational EM: bounds, derivatives, invariances."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.special import expit, gammaln, logsumexp
from scipy.stats import nbinom, poisson
from sklearn.base import clone

import contrastive_lvm as clvm
from contrastive_lvm.coordinate_ascent import generalised_start
from contrastive_lvm.coordinate_ascent.engine import CoordinateAscent
from contrastive_lvm.coordinate_ascent.tied_means import prior_precision, tied_means
from contrastive_lvm.likelihoods.values import CountTable, Nuisance
from contrastive_lvm.linalg import packed
from contrastive_lvm.linalg.loadings import Loadings, PackedCovariance
from contrastive_lvm.linalg.quadrature import logistic_bounds, logistic_moments
from contrastive_lvm.model import LoadingBlock, Model
from tests.oracles import Array

D = 8
LIKELIHOODS: dict[str, Any] = {
    "poisson": clvm.Poisson(),
    "negative_binomial": clvm.NegativeBinomial("none"),
    "shared": clvm.NegativeBinomial("none", dispersion="shared"),
    "bernoulli": clvm.Bernoulli(),
    "mixed": clvm.Mixed(
        {"gaussian": [0, 1], "student_t": [2], "bernoulli": [3, 4], "negative_binomial": [5, 6, 7]}
    ),
}
PRIORS: dict[str, Any] = {
    "flat": clvm.Flat(),
    "ridge": clvm.Ridge(),
    "ard": clvm.ARD(),
    "lasso": clvm.GroupLasso(3.0),
    "horseshoe": clvm.Horseshoe(),
}


def drawn(kind: str, n: int, m: int, seed: int = 0, missing: float = 0.0) -> tuple[Array, Array]:
    """Rows of a target and a background with one shared and one target dimension."""
    rng = np.random.default_rng(seed)
    S, W = rng.standard_normal((1, D)), rng.standard_normal((1, D))
    sets = []
    for rows, own in ((n, 1.0), (m, 0.0)):
        e = 0.7 * rng.standard_normal((rows, 1)) @ S
        e += own * 0.7 * rng.standard_normal((rows, 1)) @ W + 0.5
        X = rng.poisson(np.exp(e) * rng.gamma(2.0, 0.5, e.shape)).astype(float)
        if kind == "bernoulli":
            X = (rng.random(e.shape) < expit(2.0 * e)).astype(float)
        if kind == "mixed":
            X[:, :3] = e[:, :3] + 0.3 * rng.standard_normal((rows, 3))
            X[:, 3:5] = X[:, 3:5] > 1
        X[rng.random(X.shape) < missing] = np.nan
        sets.append(X)
    return sets[0], sets[1]


def fit(kind: str, X: Any, B: Any, engine: CoordinateAscent, **given: Any) -> clvm.ContrastiveLVM:
    n_shared = given.pop("n_shared", 1)
    model = clvm.ContrastiveLVM(
        1, n_shared, likelihood=LIKELIHOODS[kind], inference=engine, **given
    )
    return model.fit(X, background=B)


@pytest.mark.filterwarnings("ignore:EM was stopped", "ignore:VariationalBayes was stopped")
@pytest.mark.filterwarnings("ignore:none of 1 target dimension")  # ARD may drop it
@pytest.mark.parametrize("missing", [0.0, 0.2])
@pytest.mark.parametrize("prior", PRIORS)
@pytest.mark.parametrize("kind", LIKELIHOODS)
def test_no_sweep_lowers_the_bound(kind: str, prior: str, missing: float) -> None:
    X, B = drawn(kind, 40, 30, missing=missing)
    given = PRIORS[prior]
    posterior = given._why_no_points is not None
    engine = clvm.VariationalBayes if posterior else clvm.EM
    model = fit(kind, X, B, engine(max_iter=25), target_prior=given)
    assert (np.diff(model.lower_bounds_) >= -1e-9 * abs(model.lower_bound_)).all()
    assert np.isfinite(model.lower_bound_)
    for array in (model.target_components_, model.mean_, model.transform(X)):
        assert np.isfinite(array).all()


@pytest.mark.parametrize("kind", ["poisson", "negative_binomial", "bernoulli"])
def test_the_bound_is_just_below_the_exact_log_likelihood(kind: str) -> None:
    """One latent dimension is integrated numerically."""
    X = drawn(kind, 50, 1, seed=1)[0]
    model = clvm.ContrastiveLVM(
        1, 0, likelihood=LIKELIHOODS[kind], inference=clvm.EM(tol=1e-4)
    ).fit(X)
    nodes, weights = np.polynomial.hermite_e.hermegauss(120)
    sizes = X.sum(axis=1) / X.sum(axis=1).mean() if kind == "poisson" else np.ones(len(X))
    unit = model.posterior_.unit_loadings("target").T
    e = nodes[:, None] * unit + model.mean_  # (nodes, D)
    e = e[:, None] + np.log(sizes)[:, None]  # (nodes, N, D)
    if kind == "bernoulli":
        density = X * e - np.logaddexp(0.0, e)
    elif kind == "poisson":
        density = np.asarray(poisson.logpmf(X, np.exp(e)))
    else:
        c = 1.0 / np.asarray(model.dispersion_)
        density = np.asarray(nbinom.logpmf(X, c, c / (c + np.exp(e))))
    log_weights = np.log(weights / weights.sum())
    exact = float(logsumexp(density.sum(axis=2) + log_weights[:, None], axis=0).sum())
    parts = model.posterior_.bound_parts
    assert parts is not None
    gap = exact - parts["target rows"]
    assert 0.0 < gap < 0.05 * len(X)


@pytest.mark.parametrize("kind", ["poisson", "bernoulli"])
def test_the_end_is_a_maximum(kind: str) -> None:
    """Loadings and means in random directions about the end have a lower bound."""
    X, B = drawn(kind, 60, 50, seed=2)
    model = fit(kind, X, B, clvm.EM(tol=1e-9, max_iter=5000))
    assert model.converged_
    rng, prior = np.random.default_rng(0), clvm.Ridge(1.0 if kind == "bernoulli" else 0.5)

    def bound(step: float, way: Array) -> float:
        p = model.posterior_
        L = {name: p.loadings[name] + step * way[[i]].T for i, name in enumerate(p.loadings)}
        means = {name: mean + step * way[2] for name, mean in p.means.items()}
        moved = clvm.ContrastiveLVM(**model.get_params())
        moved.__dict__.update(model.__dict__)
        moved._publish(p._replace(loadings=L, means=means), model._model(p))
        rows = moved.score_samples(X).sum() + moved.score_samples(B, of="background").sum()
        both = Loadings(np.hstack(list(L.values())))
        columns = [np.arange(2), np.flatnonzero([name != "target" for name in L])]
        sized = np.full(D, kind == "poisson")
        tied = tied_means(list(means.values()), both, columns, np.ones(D), sized)
        rows += tied.log_densities(list(means.values()), both).sum()
        unit = [own * p.latent_scales(name) for name, own in L.items()]
        return float(rows) + sum(prior.bound(None, own**2) for own in unit)

    for _ in range(3):
        way = rng.standard_normal((3, D))
        middle, ends = bound(0.0, way), [bound(step, way) for step in (1e-3, -1e-3)]
        assert max(ends) <= middle + 1e-6
        assert abs(ends[0] - ends[1]) < 0.05 * (2.0 * middle - ends[0] - ends[1]) + 1e-5


@pytest.mark.parametrize("kind", ["poisson", "negative_binomial"])
def test_a_row_of_weight_two_is_two_rows(kind: str) -> None:
    X, B = drawn(kind, 40, 30, seed=3)
    engine = clvm.EM(tol=1e-6, max_iter=3000)
    weights = np.ones(40)
    weights[:5], weights[5:7] = 2.0, 0.0
    model = clvm.ContrastiveLVM(1, 1, likelihood=LIKELIHOODS[kind], inference=engine)
    sizes: dict[str, Any] = {}
    if kind != "negative_binomial":  # the average row would be another one
        sizes = {"size_factors": np.ones(40), "background_size_factors": np.ones(30)}
    weighted = model.fit(X, background=B, sample_weight=weights, **sizes)
    order = np.r_[0:5, 0:5, 7:40]
    if sizes:
        sizes["size_factors"] = np.ones(43)
    repeated = clvm.ContrastiveLVM(1, 1, likelihood=LIKELIHOODS[kind], inference=engine)
    repeated.fit(X[order], background=B, **sizes)
    assert weighted.lower_bound_ == pytest.approx(repeated.lower_bound_, abs=1e-3)
    np.testing.assert_allclose(weighted.target_components_, repeated.target_components_, atol=2e-3)


@pytest.mark.parametrize("kind", ["negative_binomial", "bernoulli"])
def test_order_of_rows_chunks_and_formats_change_only_rounding(kind: str, tmp_path: Path) -> None:
    X, B = drawn(kind, 60, 40, seed=4)
    engine = clvm.EM(tol=1e-7, max_iter=3000)
    first = fit(kind, X, B, engine)
    order = np.random.default_rng(0).permutation(60)
    np.save(tmp_path / "rows.npy", X)
    mapped = np.load(tmp_path / "rows.npy", mmap_mode="r")
    for rows in (X[order], sp.csr_array(X), mapped):
        other = fit(kind, rows, B, engine)
        assert other.lower_bound_ == pytest.approx(first.lower_bound_, abs=1e-5)
        np.testing.assert_allclose(other.target_components_, first.target_components_, atol=1e-4)


def test_three_sets_with_blocks_of_their_own() -> None:
    """The target's block, fitted among three sets, is found as that of two."""
    X, B = drawn("poisson", 150, 100, seed=5)
    blocks = (
        LoadingBlock("all", 1, ("a", "b", "c"), clvm.Ridge()),
        LoadingBlock("only a", 1, ("a",), clvm.Ridge()),
    )
    model = Model(("a", "b", "c"), blocks, clvm.Poisson("none"))
    engine = clvm.EM(tol=1e-5)
    three = engine._run(model, engine._prepare(model, [X, B[:50], B[50:]]))
    two = clvm.contrastive_model(1, 1, clvm.Poisson("none"), clvm.Ridge(), clvm.Ridge())
    pair = engine._run(two, engine._prepare(two, [X, B]))
    np.testing.assert_allclose(three.loadings["only a"], pair.loadings["target"], atol=0.1)
    assert three.converged


def test_size_factors_are_offsets() -> None:
    """Rates of every row times a number, and sizes over it, are the same model."""
    X, B = drawn("poisson", 60, 50, seed=6)
    model = clvm.ContrastiveLVM(1, 1, likelihood="poisson", inference=clvm.EM(tol=1e-6))
    sizes = np.full(60, 1.0), np.full(50, 1.0)
    one = model.fit(X, background=B, size_factors=sizes[0], background_size_factors=sizes[1])
    means, W = one.mean_.copy(), one.target_components_.copy()
    ten = model.fit(X, background=B, size_factors=sizes[0] / 10, background_size_factors=sizes[1])
    np.testing.assert_allclose(ten.mean_, means + np.log(10.0), atol=0.02)
    np.testing.assert_allclose(ten.target_components_, W, atol=0.02)


def test_slope_and_curvature_in_the_log_dispersion_are_derivatives() -> None:
    rng = np.random.default_rng(0)
    x = rng.poisson(3.0, (30, 2)).astype(float)
    m, v = rng.standard_normal((30, 2)), rng.uniform(0.0, 0.5, (30, 2))
    likelihood = clvm.NegativeBinomial()

    def value(t: float) -> Array:
        nuisance = Nuisance(np.zeros(2), np.full(2, np.exp(t)))
        c = np.exp(-t)
        constant = gammaln(x + c) - gammaln(c)
        return np.asarray(
            (likelihood._expected(x, m, v, nuisance, whole=False).value + constant).sum(axis=0)
        )

    t, h = -0.7, 1e-4
    nuisance = Nuisance(np.zeros(2), np.full(2, np.exp(t)))
    expected = likelihood._expected(x, m, v, nuisance, whole=False)
    statistics = likelihood._nuisance_statistics(x, expected, (m, v), nuisance, np.ones((30, 1)))
    i, d = np.nonzero(x)
    table = CountTable(d, x[i, d], np.ones(len(i)), np.full(2, 30.0))
    step = likelihood._nuisance_step(statistics, table, nuisance)
    slope = (value(t + h) - value(t - h)) / (2 * h) - t / 4.0
    bend = (value(t + h) - 2 * value(t) + value(t - h)) / h**2 - 0.25
    np.testing.assert_allclose(
        np.log(step.dispersion) - t, np.clip(-slope / bend, -1, 1), rtol=1e-3
    )


@pytest.mark.parametrize("v", [1e-3, 0.3, 3.0])
def test_the_tilted_bound_is_above_and_has_its_own_slopes(v: float) -> None:
    m, h = np.linspace(-12.0, 12.0, 49), 1e-5
    spread = np.full_like(m, v)
    found, exact = logistic_bounds(m, spread), logistic_moments(m, spread)
    assert (found.softplus >= exact.softplus - 1e-8).all()
    assert (found.softplus - exact.softplus <= 0.02 * v**2 + 1e-8).all()
    up, down = logistic_bounds(m + h, spread), logistic_bounds(m - h, spread)
    np.testing.assert_allclose(
        (up.softplus - down.softplus) / (2 * h), found.probability, atol=1e-4
    )
    wide, narrow = logistic_bounds(m, spread + h), logistic_bounds(m, spread - h)
    np.testing.assert_allclose((wide.softplus - narrow.softplus) / h, found.curvature, atol=1e-3)


def test_tied_means_are_at_their_best_and_one_row_has_their_slope() -> None:
    """No other centers or places have likelier means; a step of the means is as the row says."""
    rng = np.random.default_rng(0)
    means, L = list(rng.standard_normal((3, D))), Loadings(rng.standard_normal((D, 4)))
    active = [np.array([0, 1, 2]), np.array([0, 1]), np.array([0, 3])]
    tied = tied_means(means, L, active, np.ones(D), np.arange(D) < 5)
    assert (tied.places[:, 0] == 0).all()
    assert (tied.places[1, 2:] == 0).all()
    best = tied.log_densities(means, L).sum()
    for _ in range(20):
        places = tied.places + 0.1 * rng.standard_normal((3, 4)) * (tied.places != 0)
        shift = 0.1 * rng.standard_normal((3, 1)) * (np.arange(D) < 5)
        centers = tied.centers + shift + 0.1 * rng.standard_normal(D)
        other = tied._replace(places=places, centers=centers)
        assert other.log_densities(means, L).sum() < best
    step, columns = 1e-6, active[0]
    row = tied.row(0, means[0], columns)
    moved: Array = tied.log_densities([means[0] + step, *means[1:]], L)
    slope = row.residual - np.einsum("kd,dk->d", row.first, L.mean[:, columns])
    np.testing.assert_allclose((moved - tied.log_densities(means, L)) / step, slope, rtol=1e-2)


def test_expected_means_are_where_data_and_prior_are_likeliest_together() -> None:
    """No other centers cost less: `n_s (b_s - y_s)^2 + q (b_s - center_s)^2`, b at its best."""
    rng = np.random.default_rng(1)
    own, n = rng.standard_normal((2, D)), rng.uniform(1.0, 500.0, (2, D))
    cov = rng.standard_normal((D, 2, 4))
    i, j = packed.pair_indices(2)
    spread = 0.1 * np.einsum("dik,djk->dij", cov, cov)
    L = Loadings(
        rng.standard_normal((D, 2)), PackedCovariance(spread[:, i, j].T.copy(), np.zeros(D), 2)
    )
    active, q = [np.array([0, 1]), np.array([0])], prior_precision(np.ones(D))
    tied = tied_means(list(own), L, active, np.ones(D), np.ones(D, bool), n * q / (n + q))

    def cost(centers: Array, places: Array) -> float:
        expected = centers + places @ L.mean.T
        b = (n * own + q * expected) / (n + q)
        uncertain = sum(q @ np.einsum("dij,i,j->d", spread, p, p) for p in places)
        return float((n * (b - own) ** 2 + q * (b - expected) ** 2).sum() + uncertain)

    best = cost(tied.centers, tied.places)
    assert (tied.places[:, 0] == 0).all()
    for _ in range(50):
        size = 10.0 ** rng.uniform(-4, 0)
        places = tied.places + size * rng.standard_normal((2, 2)) * (tied.places != 0)
        centers = tied.centers + size * (rng.standard_normal(D) + rng.standard_normal((2, 1)))
        assert cost(centers, places) > best


@pytest.mark.parametrize(
    ("engine", "prior", "limit"),
    [
        (clvm.EM(tol=1e-8, max_iter=3000), clvm.Ridge(), 2e-3),
        # Uncertain loadings weigh rows by their counts.
        (clvm.VariationalBayes(tol=1e-8, max_iter=3000), clvm.ARD(drop=False), 0.05),
    ],
)
def test_means_take_over_where_latents_are_on_average(
    engine: CoordinateAscent, prior: Any, limit: float
) -> None:
    """At the end, latents of all rows in shared columns, and of the target in its own, balance."""
    X, B = drawn("poisson", 80, 60, seed=7)
    model = fit("poisson", X, B, engine, shared_prior=prior, target_prior=prior)
    t, z = model.latents(X).target, model.latents(X).shared
    assert t is not None
    other = model.latents(B, of="background").shared
    assert abs(t.mean()) < limit
    assert abs(np.vstack([z, other]).mean()) < limit


def test_a_response_of_features_silent_in_the_background_is_the_targets() -> None:
    """With more to explain than shared columns: untied means have .36 here."""
    found = []
    for seed in range(2):
        rng = np.random.default_rng(seed)
        responds = rng.random(300) < 0.6
        program = 0.5 * rng.standard_normal((6, 40))
        sets = []
        for own in (responds, np.zeros(200, dtype=bool)):
            e = rng.standard_normal((len(own), 6)) @ program
            e[:, :10] += np.where(own, 0.0, -3.0)[:, None]
            sets.append(rng.poisson(np.exp(e)).astype(float))
        model = clvm.ContrastiveLVM(1, 3, likelihood="poisson").fit(sets[0], background=sets[1])
        found.append(abs(np.corrcoef(model.transform(sets[0])[:, 0], responds)[0, 1]))
    assert np.mean(found) > 0.6


@pytest.mark.parametrize("likelihood", ["poisson", "negative_binomial"])
def test_counts_that_differ_in_the_sizes_of_rows_alone_have_no_loadings(likelihood: str) -> None:
    """All counts are in one column, so that sizes explain them: a start divided by zero."""
    rng = np.random.default_rng(0)
    X, B = (np.pad(rng.integers(400, 20000, (n, 1)), ((0, 0), (0, 2))) for n in (20, 15))
    model = clvm.ContrastiveLVM(1, 1, likelihood=likelihood).fit(X, background=B)
    assert np.isfinite(model.lower_bound_)
    assert np.abs(model.target_components_).max() < 1e-6
    assert np.abs(model.shared_components_).max() < 1e-6


def test_posterior_means_of_binary_rows_are_exact_to_a_hundredth_of_their_spread() -> None:
    """One latent dimension is integrated numerically; so small a bias no chain would show."""
    rng = np.random.default_rng(0)
    W = rng.standard_normal((1, 20))
    X = (rng.random((60, 20)) < expit(rng.standard_normal((60, 1)) @ W)).astype(float)
    model = clvm.ContrastiveLVM(1, 0, likelihood="bernoulli", inference="em").fit(X)
    assert np.abs(model.target_components_).max() > 0.5
    nodes, weights = np.polynomial.hermite_e.hermegauss(120)
    e = nodes[:, None] * model.target_components_ + model.mean_
    density = (X * e[:, None] - np.logaddexp(0.0, e)[:, None]).sum(axis=2)
    density += np.log(weights / weights.sum())[:, None]
    share = np.exp(density - logsumexp(density, axis=0))
    mean = nodes @ share
    spread = np.sqrt(nodes**2 @ share - mean**2)
    assert (np.abs(model.transform(X)[:, 0] - mean) / spread).max() < 0.01


@pytest.mark.parametrize("inference", ["em", "vb"])
def test_a_fit_that_begins_with_some_features_ends_at_the_same_bound(
    monkeypatch: pytest.MonkeyPatch, inference: str
) -> None:
    rng = np.random.default_rng(5)
    S, W, sets = rng.normal(size=(2, 30)), rng.normal(size=(1, 30)), []
    group = [rng.integers(2, size=n) for n in (60, 40)]
    for n, own, member in zip((60, 40), (0.7, 0.0), group, strict=True):
        e = 0.5 * rng.normal(size=(n, 2)) @ S + own * rng.normal(size=(n, 1)) @ W
        sets.append(rng.poisson(np.exp(1.0 + e + 0.5 * member[:, None])).astype(float))
    X, B = sets
    model = clvm.ContrastiveLVM(1, 2, likelihood="negative_binomial", inference=inference)
    given = {"covariates": group[0], "background_covariates": group[1]}
    whole = clone(model).fit(X, background=B, **given)
    monkeypatch.setattr(generalised_start, "LEADING", 7)
    some = clone(model).fit(sp.csr_array(X), background=sp.csr_array(B), **given)
    assert some.n_iter_ != whole.n_iter_  # sweeps of few features count too
    assert some.lower_bound_ == pytest.approx(whole.lower_bound_, abs=0.05)
    np.testing.assert_allclose(some.target_components_, whole.target_components_, atol=0.02)
