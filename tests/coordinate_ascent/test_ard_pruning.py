"""Automatic size: the closed-form rank, changes of coordinates, columns that come and go."""

from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize
from sklearn.base import clone

import contrastive_lvm as clvm
from contrastive_lvm.arrays import Array
from contrastive_lvm.coordinate_ascent.ard_rank import supported_rank


def spiked(seed: int, n: int, d: int, sizes: list[float]) -> Array:
    """Rows with unit noise and columns of the given norms."""
    rng = np.random.default_rng(seed)
    directions = np.linalg.qr(rng.standard_normal((d, len(sizes))))[0]
    return rng.standard_normal((n, len(sizes))) @ (directions * sizes).T + rng.standard_normal(
        (n, d)
    )


def factorised_bound(X: Array, k: int) -> float:
    """Bound of `X = Z S' + noise` with k columns, `q(Z) q(S)`, at the best noise and scales.

    Written for matrices of any shape: along each singular pair the optimum has scalar posteriors
    (Nakajima et al. 2013, Lemma 1), so it is a sum over h of a function of four numbers.
    """
    N, D = X.shape
    gamma2 = np.linalg.svd(X, compute_uv=False)[:k] ** 2
    total = float((X**2).sum())

    def cost(v: Array) -> float:
        noise = np.exp(v[0])
        a, b, sa, sb = np.exp(v[1:]).reshape(4, k)  # means of z and s along h, their variances
        z2, s2 = a**2 + N * sa, b**2 + D * sb
        fit = (total - 2.0 * (np.sqrt(gamma2) * a * b).sum() + (z2 * s2).sum()) / noise
        latent = (z2 - N - N * np.log(sa)).sum()
        loading = (D * np.log(s2 / D) - D * np.log(sb)).sum()  # the column's variance at its best
        total_cost = fit + N * D * np.log(2 * np.pi * noise) + latent + loading
        return float(0.5 * total_cost / (N * D))

    scale = np.sqrt(np.maximum(gamma2 / N - 1.0, 0.1))
    start = np.concatenate(
        [[0.0], np.log(np.sqrt(N) * np.ones(k)), np.log(scale), np.log(1e-2 * np.ones(2 * k))]
    )
    found = minimize(cost, start, method="L-BFGS-B", options={"maxiter": 5000, "maxfun": 10**6})
    return float(-found.fun * N * D)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("n", "d", "sizes"),
    [
        (300, 20, [3.0, 2.0, 1.0]),
        (300, 20, [3.0, 2.0, 0.3]),
        (40, 60, [6.0, 3.5, 0.5]),
        (60, 60, [5.0, 4.0, 1.5]),
    ],
)
def test_the_supported_rank_has_the_greatest_bound(
    seed: int, n: int, d: int, sizes: list[float]
) -> None:
    X = spiked(seed, n, d, sizes)
    values = np.linalg.svd(X, compute_uv=False) ** 2 / n
    leading = min(n, d) - 1
    rank = supported_rank(values[:leading], float(values.sum()), n, d)
    fewer, best, more = (factorised_bound(X, k) for k in (rank - 1, rank, rank + 1))
    assert fewer < best - 0.1
    assert more < best + 0.01  # one more column ends without signal, or where the bound is lower


def test_the_rank_needs_only_the_leading_values() -> None:
    X = spiked(0, 200, 40, [4.0, 3.0, 2.0])
    values = np.linalg.svd(X, compute_uv=False) ** 2 / 200
    ranks = {supported_rank(values[:k], float(values.sum()), 200, 40) for k in (3, 5, 20, 40)}
    assert ranks == {3}
    assert supported_rank(values[:2], float(values.sum()), 200, 40) == 2


@pytest.mark.parametrize("hyper", [(1e-3, 1e-3), (2.0, 5.0)])
@pytest.mark.parametrize("n", [400, 12])
@pytest.mark.parametrize("seed", range(5))
def test_changes_of_coordinates_never_lower_the_bound(
    seed: int, n: int, hyper: tuple[float, float]
) -> None:
    rng = np.random.default_rng(seed)
    K, D = 5, 30
    M, Z = (a @ a.T for a in (rng.standard_normal((K, D)), rng.standard_normal((K, n))))
    prior, moved, R = clvm.ARD(*hyper), [], np.eye(K)
    for _ in range(200):
        moved.append(part_that_moves(R, M, Z, n, D, prior))
        inverse = np.linalg.inv(R)
        R = R @ prior._best_coordinates(R.T @ M @ R, inverse @ Z @ inverse.T, n, D)
    assert (np.diff(moved) >= -1e-8 * abs(moved[0])).all()
    # Where it ends, no small change in any direction gains: the closed form is the optimum.
    for _ in range(20 if prior.b0 < 1 else 0):
        small = R @ (np.eye(K) + 1e-4 * rng.standard_normal((K, K)))
        assert part_that_moves(small, M, Z, n, D, prior) <= moved[-1] + 1e-8 * abs(moved[0])


def part_that_moves(R: Array, M: Array, Z: Array, n: int, D: int, prior: clvm.ARD) -> float:
    """The part of the bound that a change of coordinates moves, written out."""
    inverse = np.linalg.inv(R)
    columns = prior.b0 + 0.5 * np.diagonal(R.T @ M @ R)
    energy = np.trace(inverse @ Z @ inverse.T)
    scales = (prior.a0 + D / 2) * np.log(columns).sum()
    return float((D - n) * np.linalg.slogdet(R)[1] - 0.5 * energy - scales)


def planted(seed: int) -> Any:
    return clvm.datasets.make_contrastive(400, 400, n_features=50, n_shared=8, random_state=seed)


def test_ard_counts_the_shared_dimensions() -> None:
    found = []
    for seed in range(10):
        data = planted(seed)
        model = clvm.ContrastiveLVM(2, 49, shared_prior="ard")
        found.append(model.fit(data.target, background=data.background).n_shared_)
    assert sum(n == 8 for n in found) >= 9, found


@pytest.mark.parametrize("share_missing", [0.0, 0.1])
@pytest.mark.parametrize(
    "settings",
    [
        {"n_shared": "auto", "shared_prior": "ard"},
        {"n_shared": "auto", "shared_prior": "ard", "likelihood": clvm.Gaussian("feature")},
        {"n_shared": "auto", "shared_prior": "ard", "likelihood": clvm.StudentT()},
        {"n_shared": "auto", "shared_prior": "ard", "target_prior": "horseshoe"},
        {"n_shared": "auto", "shared_prior": "ard", "n_target": 10, "target_prior": "ard"},
        {"n_shared": 8, "n_target": 10, "target_prior": "ard"},
    ],
    ids=str,
)
def test_both_sizes_are_found_in_all_models(settings: dict[str, Any], share_missing: float) -> None:
    data = planted(0)
    X = data.target.copy()
    X[np.random.default_rng(0).random(X.shape) < share_missing] = np.nan
    engine = clvm.VariationalBayes(tol=1e-2)
    model = clvm.ContrastiveLVM(**{"n_target": 2, **settings}, inference=engine)
    model.fit(X, background=data.background)
    assert (model.n_target_, model.n_shared_) == (2, 8)
    assert (np.diff(model.lower_bounds_) >= 0).all()


@pytest.mark.parametrize("seed", range(4))
def test_weak_columns_stay(seed: int) -> None:
    """Eight columns whose variances span a factor of 180."""
    rng = np.random.default_rng(seed)
    S = rng.standard_normal((50, 8)) * np.linspace(0.15, 2.0, 8)
    W = rng.standard_normal((50, 2))
    X, B = (
        rng.standard_normal((400, 8)) @ S.T + 0.5 * rng.standard_normal((400, 50)) for _ in range(2)
    )
    X += rng.standard_normal((400, 2)) @ W.T
    assert clvm.ContrastiveLVM(2, 49, shared_prior="ard").fit(X, background=B).n_shared_ == 8


def test_a_block_that_ard_empties_leaves_a_working_model() -> None:
    """No contrast at all: the target's columns may all go."""
    rng = np.random.default_rng(0)
    S = 3.0 * rng.standard_normal((8, 2))
    X, B = (rng.standard_normal((n, 2)) @ S.T + rng.standard_normal((n, 8)) for n in (300, 300))
    with pytest.warns(UserWarning, match=r"none of 2 target .*drop=False"):
        model = clvm.ContrastiveLVM(2, 2, target_prior="ard").fit(X, background=B)
    assert model.n_target_ == 0
    assert model.transform(X).shape == (300, 0)
    assert np.isfinite(model.score(X))


@pytest.mark.parametrize("unit", [1.0, 1e-3])
def test_auto_counts_the_planted_dimensions_in_any_units_and_order(unit: float) -> None:
    """Point loadings are not shrunk: the fit is that of the number given by hand."""
    data = planted(0)
    X, B = unit * data.target, unit * data.background
    model = clvm.ContrastiveLVM(2).fit(X, background=B)
    assert model.n_shared_ == 8
    given = clvm.ContrastiveLVM(2, 8).fit(X[::-1], background=B[::-1])
    np.testing.assert_allclose(model.target_components_, given.target_components_, atol=1e-4 * unit)


def test_auto_leaves_a_dimension_for_the_noise_of_few_features() -> None:
    rng = np.random.default_rng(0)
    for n_features in (3, 4, 9):
        X, B = rng.standard_normal((2, 60, n_features))
        for noise in ("isotropic", "feature"):
            model = clvm.ContrastiveLVM(1, likelihood=clvm.Gaussian(noise))
            assert model.fit(X, background=B).n_shared_ <= n_features - 2


def test_auto_explains_at_most_99_percent_of_the_variance() -> None:
    """Directions that hardly vary count as noise, however well they are known."""
    rng = np.random.default_rng(0)
    deviation = np.geomspace(1.0, 1e-4, 20)
    X, B = deviation * rng.standard_normal((2, 2000, 20))
    share = np.cumsum(deviation**2) / (deviation**2).sum()
    with pytest.warns(UserWarning, match="The noise of some features has"):
        model = clvm.ContrastiveLVM(1).fit(X, background=B)
    assert abs(model.n_shared_ - int((share < 0.99).sum()) - 1) <= 1


def test_random_restarts_of_a_model_that_sizes_itself() -> None:
    """They begin with as many columns as the data supports, not with all that are allowed."""
    data = planted(0)
    model = clvm.ContrastiveLVM(2, 49, shared_prior="ard", n_init=3, random_state=0)
    model.fit(data.target, background=data.background)
    single = clvm.ContrastiveLVM(2, 49, shared_prior="ard")
    single.fit(data.target, background=data.background)
    assert model.n_shared_ == single.n_shared_ == 8
    assert model.lower_bound_ >= single.lower_bound_
    assert model.n_iter_ < 400


@pytest.mark.parametrize("seed", range(12))
def test_sizes_for_rows_of_rank_one_do_not_depend_on_their_order(seed: int) -> None:
    """Where the noise is at its least, a column far below it once was beyond doubt."""
    rng = np.random.default_rng(seed)
    X, B = (np.outer(rng.normal(size=n), rng.normal(size=7)) for n in (20, 10))
    model = clvm.ContrastiveLVM(2, 2, shared_prior="ard", target_prior="ard")
    one = clone(model).fit(X, background=B)
    other = clone(model).fit(X[::-1], background=B[::-1])
    assert (one.n_target_, one.n_shared_) == (other.n_target_, other.n_shared_)
    assert abs(one.lower_bound_ - other.lower_bound_) < 0.5


def test_sizes_for_degenerate_rows_do_not_depend_on_rounding() -> None:
    """With noise at its least, all columns are tried, however near rounding leaves it."""
    rng = np.random.default_rng(27)
    d, n, m = int(rng.integers(4, 30)), int(rng.integers(8, 30)), int(rng.integers(8, 30))
    directions = rng.normal(size=(2, d))
    X, B = rng.normal(size=(n, 2)) @ directions, rng.normal(size=(m, 2)) @ directions
    model = clvm.ContrastiveLVM(2, 2, shared_prior="ard", target_prior="ard")
    for rows in ((X, B), (X[::-1], B[::-1])):
        with pytest.warns(UserWarning, match="none of 2 target dimension"):
            found = clone(model).fit(rows[0], background=rows[1])
        assert (found.n_target_, found.n_shared_) == (0, 2)
