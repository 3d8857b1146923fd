"""Any activity matrix of sets x blocks, against the brute-force joint Gaussian of all rows.

Given the parameters, rows of set s are independent `N(mean_s, L_s L_s' + psi)` with `L_s` the
active columns; with missing entries the marginal of what is observed. Under Student-t noise and
under ARD the bound is that of a plain loop over rows and features.
"""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.stats import multivariate_normal

import contrastive_lvm as clvm
from contrastive_lvm.arrays import noise_of
from contrastive_lvm.coordinate_ascent.em import EM
from contrastive_lvm.coordinate_ascent.problem import Problem
from contrastive_lvm.coordinate_ascent.starts import random_start
from contrastive_lvm.coordinate_ascent.variational_bayes import VariationalBayes
from contrastive_lvm.linalg import packed
from contrastive_lvm.linalg.loadings import Loadings
from contrastive_lvm.model import LoadingBlock, Model
from contrastive_lvm.posterior import Posterior
from tests.oracles import Array

D = 7
NOISE = [
    clvm.Gaussian(noise, sets) for noise in ("isotropic", "feature") for sets in ("shared", "own")
]
# Activity by blocks: the number of components, and the sets in which they are active.
DESIGNS: dict[str, dict[str, tuple[int, tuple[str, ...]]]] = {
    "one set": {"all": (2, ("a",))},
    "the paper's": {"shared": (2, ("a", "b")), "target": (1, ("a",))},
    "symmetric contrast": {"shared": (1, ("a", "b")), "a": (1, ("a",)), "b": (1, ("b",))},
    "several studies": {
        "common": (1, ("a", "b", "c")),
        "a": (1, ("a",)),
        "b": (1, ("b",)),
        "c": (1, ("c",)),
    },
    "drugs and pairs": {
        "ab": (1, ("a", "b")),
        "bc": (1, ("b", "c")),
        "shared": (1, ("a", "b", "c")),
        "c": (1, ("c",)),
    },
    "nothing in common": {"a": (2, ("a",)), "b": (1, ("b",))},
}


def model_of(design: str, likelihood: Any = None, prior: Any = None) -> Model:
    blocks = DESIGNS[design]
    sets = tuple(sorted({name for _, names in blocks.values() for name in names}))
    prior = clvm.Flat() if prior is None else prior
    made = tuple(LoadingBlock(name, n, names, prior) for name, (n, names) in blocks.items())
    return Model(sets, made, clvm.Gaussian() if likelihood is None else likelihood)


def rows_of(
    model: Model, seed: int, missing: float = 0.0, n_rows: int = 40, more_noise: float = 0.0
) -> list[Array]:
    rng = np.random.default_rng(seed)
    L = {block.name: 1.5 * rng.normal(size=(D, block.n_components)) for block in model.blocks}
    sets = []
    for i, name in enumerate(model.sets):
        active = [L[block.name] for block in model.blocks if name in block.sets]
        X = sum(rng.normal(size=(n_rows + 5 * i, W.shape[1])) @ W.T for W in active)
        noise = (0.6 + i * more_noise) * rng.normal(size=(n_rows + 5 * i, D))
        X = X + noise + rng.normal(size=D)
        sets.append(np.where(rng.random(X.shape) < missing, np.nan, X))
    return sets


def brute_force(model: Model, found: Posterior, sets: list[Array]) -> float:
    """Sum the normal log-densities of the observed entries of all rows."""
    total = 0.0
    for name, X in zip(model.sets, sets, strict=True):
        active = [found.loadings[block.name] for block in model.blocks if name in block.sets]
        cov = np.diag(found.nuisance_of(name).noise) + sum(W @ W.T for W in active)
        observed = ~np.isnan(X)
        for seen in np.unique(observed, axis=0):
            if seen.any():
                rows = X[(observed == seen).all(axis=1)][:, seen]
                density = multivariate_normal(found.means[name][seen], cov[np.ix_(seen, seen)])
                total += density.logpdf(rows).sum()
    return total


@pytest.mark.parametrize("missing", [0.0, 0.2], ids=["complete", "missing"])
@pytest.mark.parametrize("noise", NOISE, ids=repr)
@pytest.mark.parametrize("design", DESIGNS)
def test_the_bound_is_the_joint_gaussian_log_density(
    design: str, noise: clvm.Gaussian, missing: float
) -> None:
    model = model_of(design, noise)
    sets = rows_of(model, seed=1, missing=missing, more_noise=0.4)
    engine = EM(max_iter=60)
    found = engine._run(model, engine._prepare(model, sets))
    assert found.lower_bound == pytest.approx(brute_force(model, found, sets), rel=1e-9)
    assert (np.diff(found.lower_bounds) >= -1e-9 * abs(found.lower_bound)).all()


@pytest.mark.parametrize("missing", [0.0, 0.2], ids=["complete", "missing"])
@pytest.mark.parametrize("noise", [NOISE[0], *NOISE[2:]], ids=repr)
@pytest.mark.parametrize("design", DESIGNS)
def test_it_ends_where_no_parameter_can_be_improved(
    design: str, noise: clvm.Gaussian, missing: float
) -> None:
    model = model_of(design, noise)
    sets = rows_of(model, seed=2, missing=missing, n_rows=150, more_noise=0.4)
    engine = EM(tol=1e-10, max_iter=5000)
    found = engine._run(model, engine._prepare(model, sets))
    best, rng = brute_force(model, found, sets), np.random.default_rng(0)
    for _ in range(6):
        for block in model.blocks:
            step = 1e-4 * rng.normal(size=found.loadings[block.name].shape)
            moved = {**found.loadings, block.name: found.loadings[block.name] + step}
            assert brute_force(model, found._replace(loadings=moved), sets) <= best + 5e-6
        one = np.s_[..., :1] if noise.noise == "isotropic" else np.s_[...]
        sign = rng.choice([-1.0, 1.0], size=found.noise_variance[one].shape)
        psi = found.noise_variance * (1.0 + 1e-4 * sign)
        assert brute_force(model, found._replace(noise_variance=psi), sets) <= best + 5e-6
        name = rng.choice(model.sets)
        means = {**found.means, name: found.means[name] + 1e-4 * rng.normal(size=D)}
        assert brute_force(model, found._replace(means=means), sets) <= best + 5e-6


def test_planted_covariances_come_back() -> None:
    model = model_of("several studies")
    sets, rng = rows_of(model, seed=3, n_rows=4000), np.random.default_rng(3)
    truth = {block.name: 1.5 * rng.normal(size=(D, block.n_components)) for block in model.blocks}
    engine = EM()
    found = engine._run(model, engine._prepare(model, sets))
    for name, W in truth.items():
        ours = found.loadings[name] @ found.loadings[name].T
        error = np.linalg.norm(ours - W @ W.T) / np.linalg.norm(W @ W.T)
        assert error < 0.1, (name, error)
    assert found.noise_variance[0] == pytest.approx(0.36, rel=0.03)


def student_bound(problem: Problem, sets: list[Array], point: Array) -> float:
    """Repeat one evaluation for Student-t rows, a row and an entry at a time."""
    p, likelihood, total = problem.unflatten(point), problem.likelihood, 0.0
    for i, (name, X, mean) in enumerate(zip(problem.model.sets, sets, p.means, strict=True)):
        psi = noise_of(p.psi, i)
        L = p.L[:, problem.model.active_columns(name)]
        for row in X:
            seen = np.flatnonzero(~np.isnan(row))
            A = np.eye(L.shape[1]) + (L[seen].T / psi[seen]) @ L[seen]
            h = np.linalg.solve(A, L[seen].T @ ((row - mean) / psi)[seen])
            second = np.linalg.inv(A) + np.outer(h, h)
            chi2 = np.zeros((1, D))
            for d in seen:
                r = row[d] - mean[d]
                chi2[0, d] = (r * r - 2 * r * L[d] @ h + L[d] @ second @ L[d]) / psi[d]
            scales = likelihood.scales(chi2, np.array([float(len(seen))]), df=p.df)
            divergence = 0.5 * (np.trace(second) - L.shape[1] + np.linalg.slogdet(A)[1])
            noise = 0.5 * np.log(2 * np.pi * psi[seen]).sum()
            total += float(scales.bound[0]) - noise - divergence
    return total


@pytest.mark.parametrize("per", ["element", "sample"])
@pytest.mark.parametrize("missing", [0.0, 0.2], ids=["complete", "missing"])
@pytest.mark.parametrize("own", ["shared", "own"])
@pytest.mark.parametrize("design", DESIGNS)
def test_the_student_bound_is_that_of_a_plain_loop(
    design: str, own: Any, missing: float, per: Any
) -> None:
    model = model_of(design, clvm.StudentT(df=3.0, per=per, sets=own))
    sets = rows_of(model, seed=4, missing=missing, n_rows=12)
    problem = Problem(model, EM()._prepare(model, sets))
    n_noise = len(model.sets) if own == "own" else 1
    size = D * model.n_columns + n_noise + D * len(model.sets)  # loadings, noise, means
    point = 0.3 * np.random.default_rng(5).normal(size=size)
    value, _ = problem.evaluate(point, problem.first_carry())
    assert value == pytest.approx(student_bound(problem, sets, point), rel=1e-9)


@pytest.mark.parametrize("per", ["element", "sample"])
@pytest.mark.parametrize("own", ["shared", "own"])
@pytest.mark.parametrize("design", DESIGNS)
def test_student_fits_never_lower_their_bound(design: str, own: Any, per: Any) -> None:
    model = model_of(design, clvm.StudentT(df="learn", per=per, noise="feature", sets=own))
    engine = EM(max_iter=40)
    found = engine._run(model, engine._prepare(model, rows_of(model, seed=6, missing=0.1)))
    assert (np.diff(found.lower_bounds) >= -1e-9 * abs(found.lower_bound)).all()
    assert found.lower_bound > found.lower_bounds[0]


def rows_bound(model: Model, found: Posterior, sets: list[Array]) -> float:
    """Repeat the rows' part of the bound under uncertain loadings, a row at a time."""
    covariance = np.zeros((D, model.n_columns, model.n_columns))
    if found.loading_covariance is not None:
        i, j = np.tril_indices(model.n_columns)
        covariance[:, i, j] = covariance[:, j, i] = found.loading_covariance.T
    L, total = np.hstack(list(found.loadings.values())), 0.0
    for name, X in zip(model.sets, sets, strict=True):
        psi = found.nuisance_of(name).noise
        at = model.active_columns(name)
        second = L[:, at, None] * L[:, None, at] + covariance[:, at[:, None], at]
        for row in X:
            seen = ~np.isnan(row)
            r = (row - found.means[name])[seen]
            A = np.eye(len(at)) + (second[seen] / psi[seen, None, None]).sum(axis=0)
            b = L[seen][:, at].T @ (r / psi[seen])
            fit = (r**2 / psi[seen]).sum() - b @ np.linalg.solve(A, b)
            total -= 0.5 * (np.log(2 * np.pi * psi[seen]).sum() + np.linalg.slogdet(A)[1] + fit)
    return total


@pytest.mark.parametrize("missing", [0.0, 0.15], ids=["complete", "missing"])
@pytest.mark.parametrize("noise", [NOISE[0], *NOISE[2:]], ids=repr)
@pytest.mark.parametrize("design", DESIGNS)
def test_the_bound_under_ard_is_that_of_a_plain_loop(
    design: str, noise: clvm.Gaussian, missing: float
) -> None:
    prior = clvm.ARD(a0=2.0, b0=1.0)
    model = model_of(design, noise, prior)
    sets, engine = rows_of(model, seed=7, missing=missing), VariationalBayes(max_iter=30)
    found = engine._run(model, engine._prepare(model, sets))
    sized = model.with_sizes({name: L.shape[1] for name, L in found.loadings.items()})
    assert found.bound_parts is not None
    ours = sum(found.bound_parts[f"{name} rows"] for name in model.sets)
    assert ours == pytest.approx(rows_bound(sized, found, sets), rel=1e-9)
    assert sum(found.bound_parts.values()) == pytest.approx(found.lower_bound, rel=1e-12)
    assert (np.diff(found.lower_bounds) >= -1e-9 * abs(found.lower_bound)).all()


@pytest.mark.parametrize("missing", [0.0, 0.15], ids=["complete", "missing"])
@pytest.mark.parametrize("design", [name for name in DESIGNS if "pairs" not in name])
def test_ard_finds_the_size_of_each_block(design: str, missing: float) -> None:
    model = model_of(design)
    sets = rows_of(model, seed=7, missing=missing, n_rows=250)
    more = {block.name: min(block.n_components + 1, D - 1) for block in model.blocks}
    ard = {block.name: clvm.ARD() for block in model.blocks}
    engine = VariationalBayes()
    greedy = model.with_sizes(more).with_priors(ard)
    found = engine._run(greedy, engine._prepare(greedy, sets))
    sizes = {name: L.shape[1] for name, L in found.loadings.items()}
    assert sizes == {block.name: block.n_components for block in model.blocks}


@pytest.mark.parametrize("prior", [clvm.GroupLasso(8.0), clvm.Horseshoe()], ids=repr)
@pytest.mark.parametrize("noise", NOISE[:2], ids=repr)
@pytest.mark.parametrize("design", DESIGNS)
def test_priors_fit_every_design(design: str, noise: clvm.Gaussian, prior: Any) -> None:
    model = model_of(design, noise, prior)
    engine = VariationalBayes() if prior._why_no_points else EM()
    engine = replace(engine, max_iter=60)
    found = engine._run(model, engine._prepare(model, rows_of(model, seed=8, missing=0.1)))
    assert (np.diff(found.lower_bounds) >= -1e-9 * abs(found.lower_bound)).all()
    assert all(np.isfinite(L).all() for L in found.loadings.values())


def test_the_order_of_sets_and_blocks_does_not_matter() -> None:
    model = model_of("drugs and pairs")
    sets = rows_of(model, seed=9)
    other = Model(model.sets[::-1], model.blocks[::-1], model.likelihood)
    engine = EM(tol=1e-10, max_iter=5000)
    one = engine._run(model, engine._prepare(model, sets))
    two = engine._run(other, engine._prepare(other, sets[::-1]))
    assert one.lower_bound == pytest.approx(two.lower_bound, abs=1e-6)
    for name, L in one.loadings.items():
        np.testing.assert_allclose(L, two.loadings[name], atol=1e-3)


@pytest.mark.parametrize("missing", [0.0, 0.2], ids=["complete", "missing"])
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("design", DESIGNS)
def test_the_change_of_latent_coordinates_is_the_best_there_is(
    design: str, seed: int, missing: float
) -> None:
    """No other change that keeps every set's rows within its blocks raises the latents' prior."""
    model, rng = model_of(design), np.random.default_rng(seed)
    problem = Problem(model, EM()._prepare(model, rows_of(model, seed, missing)))
    point = random_start(problem, rng)
    _, found = problem.evaluate(point, problem.first_carry())
    R = problem._best_change(Loadings(found.parameters.L), found.statistics)
    assert R is not None
    sets = [set(block.sets) for block in model.blocks for _ in range(block.n_components)]
    allowed = np.array([[theirs <= own for theirs in sets] for own in sets])
    assert not R[~allowed].any()

    def prior(change: Array) -> float:
        total = 0.0
        for statistics, active, _ in found.statistics:
            inverse = np.linalg.inv(change[np.ix_(active, active)])
            moment = packed.unpack(statistics.latent[:, None])[0]
            total += statistics.n_rows * np.linalg.slogdet(inverse)[1]
            total -= 0.5 * np.trace(inverse @ moment @ inverse.T)
        return float(total)

    assert prior(R) > prior(np.eye(len(R))) + 0.1
    for step in np.repeat([1e-3, 0.1], 10):
        other = np.eye(len(R)) + step * np.where(allowed, rng.normal(size=R.shape), 0.0)
        assert prior(R @ other) < prior(R)
