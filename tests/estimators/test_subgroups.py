"""Mixtures of target latents against brute force: joint normals, one component at a time."""

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from scipy.special import logsumexp
from scipy.stats import multivariate_normal
from sklearn.base import clone
from sklearn.metrics import adjusted_rand_score

import contrastive_lvm as clvm
from contrastive_lvm.exceptions import InvalidParameterError

Array = npt.NDArray[np.float64]
SIZES = (60, 40)


def planted(seed: int = 0, missing: float = 0.0) -> tuple[Array, Array, npt.NDArray[np.intp]]:
    """Three subgroups in two target dimensions, 7 features, one shared dimension."""
    rng = np.random.default_rng(seed)
    W, S = rng.normal(size=(7, 2)), rng.normal(size=(7, 1))
    labels = np.arange(SIZES[0]) % 3
    centres = np.array([[-2.0, 0.0], [1.5, 1.5], [1.0, -2.0]])
    t = centres[labels] + 0.4 * rng.normal(size=(SIZES[0], 2))
    X = t @ W.T + rng.normal(size=(SIZES[0], 1)) @ S.T + 0.5 * rng.normal(size=(SIZES[0], 7))
    Y = rng.normal(size=(SIZES[1], 1)) @ S.T + 0.5 * rng.normal(size=(SIZES[1], 7))
    X[rng.random(X.shape) < missing] = np.nan
    return X + 1.0, Y, labels


def fitted(X: Any, Y: Any, n: int = 3, **words: Any) -> clvm.ContrastiveLVM:
    prior = clvm.Mixture(n, words.pop("covariance", "full"))
    sizes = (words.pop("n_target", 2), words.pop("n_shared", 1))
    return clvm.ContrastiveLVM(*sizes, latent_prior=prior, **words).fit(X, background=Y)


def brute_force(model: clvm.ContrastiveLVM, x: Array) -> tuple[float, Array, Array, Array]:
    """Log-density, probabilities, mean and covariance of `[t; z]` of a row, by joint normals."""
    mixture = model.posterior_.latent_mixtures["target"]
    L = np.vstack([model.target_components_, model.shared_components_]).T
    K, T, seen = L.shape[1], model.n_target_, ~np.isnan(x)
    psi = np.broadcast_to(np.asarray(model.noise_variance_, dtype=float), (len(x),))
    logs, means, covs = [], [], []
    for weight, a, S in zip(*mixture, strict=True):
        centre, prior = np.zeros(K), np.eye(K)
        centre[:T], prior[:T, :T] = a, S
        cov = (L @ prior @ L.T + np.diag(psi))[np.ix_(seen, seen)]
        away = (x - model.mean_ - L @ centre)[seen]
        density = multivariate_normal(np.zeros(len(away)), cov).logpdf(away) if len(away) else 0.0
        logs.append(np.log(weight) + density)
        gain = prior @ L[seen].T @ np.linalg.inv(cov)
        means.append(centre + gain @ away)
        covs.append(prior - gain @ L[seen] @ prior)
    r = np.exp(np.array(logs) - logsumexp(logs))
    mean = r @ np.array(means)
    second = sum(p * (C + np.outer(m, m)) for p, m, C in zip(r, means, covs, strict=True))
    return float(logsumexp(logs)), r, mean, second - np.outer(mean, mean)


@pytest.mark.parametrize("missing", [0.0, 0.3])
@pytest.mark.parametrize("covariance", ["full", "shared", "spherical"])
@pytest.mark.parametrize("noise", ["isotropic", "feature"])
def test_methods_are_those_of_a_mixture_of_joint_normals(
    noise: Any, covariance: str, missing: float
) -> None:
    X, Y, _ = planted(missing=missing)
    X[0] = np.nan
    model = fitted(X, Y, covariance=covariance, likelihood=clvm.Gaussian(noise))
    wanted = [brute_force(model, x) for x in X[:15]]
    latents: Any = model.latents(X[:15])
    np.testing.assert_allclose(model.score_samples(X[:15]), [w[0] for w in wanted], atol=1e-8)
    np.testing.assert_allclose(model.predict_proba(X[:15]), [w[1] for w in wanted], atol=1e-8)
    means = np.hstack([latents.target, latents.shared])
    np.testing.assert_allclose(means, [w[2] for w in wanted], atol=1e-8)
    np.testing.assert_allclose(latents.cov, [w[3] for w in wanted], atol=1e-8)
    np.testing.assert_allclose(np.asarray(model.transform(X[:15])), latents.target, atol=1e-12)
    rows = X[~np.isnan(X).all(axis=1)]
    both = model.score_samples(rows).sum() + model.score_samples(Y, of="background").sum()
    assert both == pytest.approx(model.lower_bound_, abs=1e-6)


LIKELIHOODS: list[Any] = [
    clvm.Gaussian(),
    clvm.Gaussian("feature"),
    clvm.Gaussian(sets="own"),
    clvm.StudentT(4.0),
    clvm.StudentT("learn", per="sample"),
]
VB = clvm.VariationalBayes
PRIORS: list[Any] = [None, clvm.ARD(), clvm.GroupLasso(0.5), clvm.Horseshoe()]


@pytest.mark.parametrize("prior", PRIORS, ids=repr)
@pytest.mark.parametrize("likelihood", LIKELIHOODS, ids=repr)
def test_bound_never_falls_and_exceeds_that_of_the_standard_model(
    likelihood: Any, prior: Any
) -> None:
    even = (LIKELIHOODS.index(likelihood) + PRIORS.index(prior)) % 2 == 0
    X, Y, labels = planted(missing=0.2 if even else 0.0)
    engine = clvm.EM if prior is None or isinstance(prior, clvm.GroupLasso) else VB
    words: dict[str, Any] = {"likelihood": likelihood, "target_prior": prior}
    words["inference"] = engine(tol=0.1)
    model = fitted(X, Y, **words)
    standard = clvm.ContrastiveLVM(2, 1, **words).fit(X, background=Y)
    assert (np.diff(model.lower_bounds_) >= -1e-9 * abs(model.lower_bound_)).all()
    assert model.lower_bound_ > standard.lower_bound_ + 10.0
    assert adjusted_rand_score(labels, model.predict(X)) > 0.8


@pytest.mark.parametrize("prior", PRIORS, ids=repr)
@pytest.mark.parametrize("likelihood", LIKELIHOODS, ids=repr)
def test_missing_entries_weights_and_rows_out_of_core_together(
    likelihood: Any, prior: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every likelihood with a closed form and every prior: a few sweeps, from chunks of rows."""
    dask = pytest.importorskip("dask.array")
    X, Y, _ = planted(missing=0.2)
    weights = np.r_[np.full(20, 2.0), np.ones(39), 0.0]
    engine = clvm.EM if prior is None or isinstance(prior, clvm.GroupLasso) else VB
    words: dict[str, Any] = {"likelihood": likelihood, "target_prior": prior}
    model = clvm.ContrastiveLVM(2, 1, latent_prior=clvm.Mixture(3), **words)
    model.set_params(inference=engine(tol=1.0, memory=0))
    wanted = clone(model).fit(X, background=Y, sample_weight=weights)
    monkeypatch.setattr("contrastive_lvm.rows.data.MOST_LOADED", 0)
    sets = [dask.from_array(Z, chunks=(17, 7)) for Z in (X, Y)]
    found = clone(model).fit(sets[0], background=sets[1], sample_weight=weights)
    assert found.lower_bound_ == pytest.approx(wanted.lower_bound_, abs=1e-3)
    np.testing.assert_allclose(found.predict_proba(X), wanted.predict_proba(X), atol=1e-3)
    np.testing.assert_allclose(found.predict_proba(sets[0]), found.predict_proba(X), atol=1e-9)


@pytest.mark.parametrize("missing", [0.0, 0.2])
@pytest.mark.parametrize("noise", ["isotropic", "feature"])
def test_optimum_is_stationary(noise: Any, missing: float) -> None:
    """Neither other components nor other loadings have a greater likelihood."""
    X, Y, _ = planted(missing=missing)
    model = fitted(X, Y, likelihood=clvm.Gaussian(noise), inference=clvm.EM(tol=1e-10))
    posterior, rng = model.posterior_, np.random.default_rng(0)
    mixture = posterior.latent_mixtures["target"]

    def likelihood(step: float) -> float:
        means = mixture.means + step * change
        roots = np.linalg.cholesky(mixture.covariances) + step * np.tril(turn)
        other = mixture._replace(means=means, covariances=roots @ np.swapaxes(roots, 1, 2))
        loadings = {k: L + step * moved[k] for k, L in posterior.loadings.items()}
        model._publish(
            posterior._replace(latent_mixtures={"target": other}, loadings=loadings),
            model._model(posterior),
        )
        return float(model.score_samples(X).sum()) + float(
            model.score_samples(Y, of="background").sum()
        )

    for _ in range(4):
        change, turn = rng.normal(size=mixture.means.shape), rng.normal(size=(3, 2, 2))
        moved = {k: rng.normal(size=L.shape) for k, L in posterior.loadings.items()}
        step = 1e-4
        slope = (likelihood(step) - likelihood(-step)) / (2 * step)
        curvature = (likelihood(step) + likelihood(-step) - 2 * likelihood(0.0)) / step**2
        assert abs(slope) < 1e-3 * abs(curvature)


@pytest.mark.parametrize("prior", PRIORS, ids=repr)
@pytest.mark.parametrize("likelihood", LIKELIHOODS, ids=repr)
def test_one_component_is_the_standard_model(likelihood: Any, prior: Any) -> None:
    X, Y, _ = planted(missing=0.1)
    words: dict[str, Any] = {"likelihood": likelihood, "target_prior": prior}
    engine = clvm.EM if prior is None or isinstance(prior, clvm.GroupLasso) else VB
    words["inference"] = engine(tol=0.1)
    one = fitted(X, Y, 1, **words)
    standard = clvm.ContrastiveLVM(2, 1, **words).fit(X, background=Y)
    assert one.lower_bound_ == pytest.approx(standard.lower_bound_, abs=1e-8)
    np.testing.assert_allclose(one.transform(X), standard.transform(X), atol=1e-8)
    np.testing.assert_allclose(one.latents(X).cov, standard.latents(X).cov, atol=1e-8)
    np.testing.assert_allclose(one.score_samples(X), standard.score_samples(X), atol=1e-8)
    np.testing.assert_array_equal(one.predict_proba(X), np.ones((len(X), 1)))


def test_latents_as_a_whole_have_mean_zero_and_unit_covariance() -> None:
    X, Y, _ = planted()
    weights, means, covs = fitted(X, Y).posterior_.latent_mixtures["target"]
    np.testing.assert_allclose(weights @ means, 0.0, atol=1e-10)
    whole = np.einsum("c,cij->ij", weights, covs) + (means.T * weights) @ means
    np.testing.assert_allclose(whole, np.eye(2), atol=1e-10)


@pytest.mark.parametrize("missing", [0.0, 0.2])
@pytest.mark.parametrize("likelihood", [clvm.Gaussian(), clvm.StudentT(4.0)], ids=repr)
def test_row_of_weight_two_counts_as_two_rows(likelihood: Any, missing: float) -> None:
    X, Y, _ = planted(missing=missing)
    weights = np.r_[np.full(20, 2.0), np.ones(39), 0.0]
    prior, engine = clvm.Mixture(3), clvm.EM(tol=1e-5)
    model = clvm.ContrastiveLVM(2, 1, latent_prior=prior, likelihood=likelihood, inference=engine)
    weighted = clone(model).fit(X, background=Y, sample_weight=weights)
    repeated = clone(model).fit(np.vstack([X[:59], X[:20]]), background=Y)
    assert weighted.lower_bound_ == pytest.approx(repeated.lower_bound_, abs=1e-4)
    np.testing.assert_allclose(weighted.predict_proba(X), repeated.predict_proba(X), atol=1e-3)


def test_fewer_rows_than_features_are_fitted_in_their_span() -> None:
    rng = np.random.default_rng(1)
    X, Y, labels = planted()
    spread = np.linalg.qr(rng.normal(size=(150, 7)))[0].T
    noise = [0.3 * rng.normal(size=(len(Z), 150)) for Z in (X, Y)]
    X, Y = X @ spread + noise[0], Y @ spread + noise[1]
    model = fitted(X, Y)
    both = model.score_samples(X).sum() + model.score_samples(Y, of="background").sum()
    assert both == pytest.approx(model.lower_bound_, rel=1e-9)
    assert adjusted_rand_score(labels, model.predict(X)) == 1.0


@pytest.mark.parametrize("missing", [0.0, 0.2])
def test_rows_out_of_core_give_the_same_answer(
    tmp_path: Path, missing: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    X, Y, _ = planted(missing=missing)
    wanted = fitted(X, Y)
    monkeypatch.setattr("contrastive_lvm.rows.data.MOST_LOADED", 0)
    dask = pytest.importorskip("dask.array")
    for rows in (np.lib.format.open_memmap, dask.from_array):
        if rows is dask.from_array:
            sets = [rows(Z, chunks=(17, 7)) for Z in (X, Y)]
        else:
            sets = []
            for i, Z in enumerate((X, Y)):
                mapped = rows(tmp_path / f"{i}.npy", mode="w+", dtype=float, shape=Z.shape)
                mapped[:] = Z
                sets.append(mapped)
        found = fitted(*sets)
        assert found.lower_bound_ == pytest.approx(wanted.lower_bound_, abs=1e-6)
        np.testing.assert_allclose(found.predict_proba(X), wanted.predict_proba(X), atol=1e-4)


def test_samples_are_drawn_from_the_mixture() -> None:
    X, Y, _ = planted()
    model = fitted(X, Y)
    drawn = model.sample(4000, random_state=0)
    found = model.subgroups(drawn)
    shares = found.probabilities.mean(axis=0)
    np.testing.assert_allclose(shares, found.weights, atol=0.03)
    np.testing.assert_allclose(model.transform(drawn).mean(axis=0), 0.0, atol=0.1)
    assert model.sample(5, of="denoised", random_state=0).shape == (5, 7)


def test_file_and_pickle_keep_the_subgroups(tmp_path: Path) -> None:
    X, Y, _ = planted()
    model = fitted(X, Y, covariance="spherical")
    model.save(tmp_path / "m.clvm")
    for other in (clvm.load_model(tmp_path / "m.clvm"), pickle.loads(pickle.dumps(model))):
        assert other.latent_prior == clvm.Mixture(3, "spherical")
        np.testing.assert_array_equal(other.predict_proba(X), model.predict_proba(X))


def test_order_of_rows_does_not_matter() -> None:
    X, Y, _ = planted()
    order = np.random.default_rng(0).permutation(len(X))
    first, second = fitted(X, Y), fitted(X[order], Y)
    np.testing.assert_allclose(second.predict_proba(X), first.predict_proba(X), atol=1e-3)


def test_what_cannot_be_done_is_refused_in_one_sentence() -> None:
    X, Y, _ = planted()
    standard = clvm.ContrastiveLVM(2, 1).fit(X, background=Y)
    with pytest.raises(InvalidParameterError, match="latent_prior=None has no subgroups"):
        standard.subgroups(X)
    assert not hasattr(standard, "predict")
    for engine in ("svi", "nuts"):
        with pytest.raises(ValueError, match="cannot fit a mixture of latents"):
            fitted(X, Y, inference=engine)
    with pytest.raises(ValueError, match="no engine fits this model"):
        fitted(np.round(np.exp(X / 4)), np.round(np.exp(Y / 4)), likelihood="poisson")
    with pytest.raises(InvalidParameterError, match="is not a prior of latents"):
        clvm.ContrastiveLVM(2, 1, latent_prior="mixture").fit(X, background=Y)  # type: ignore[arg-type]
    with pytest.raises(InvalidParameterError, match="distinct rows"):
        fitted(X, Y, 61)
    with pytest.raises(InvalidParameterError, match="covariance"):
        clvm.Mixture(2, "round")


def test_anndata_has_subgroups_of_the_target() -> None:
    anndata = pytest.importorskip("anndata")
    X, Y, labels = planted()
    cells = anndata.AnnData(np.vstack([X, Y]).astype(np.float32))
    cells.obs["set"] = ["a"] * len(X) + ["b"] * len(Y)
    model = clvm.ContrastiveLVM(2, 1, latent_prior=clvm.Mixture(3))
    clvm.anndata.fit(cells, model, groupby="set", target="a", background="b")
    assert cells.obsm["clvm_subgroup_probabilities"].shape == (100, 3)
    assert adjusted_rand_score(labels, cells.obs["clvm_subgroup"][:60]) == 1.0
    assert cells.obs["clvm_subgroup"][60:].isna().all()
    model.set_params(latent_prior=None)
    clvm.anndata.fit(cells, model, groupby="set", target="a", background="b")
    assert "clvm_subgroup" not in cells.obs
    assert "clvm_subgroup_probabilities" not in cells.obsm
