"""Planted parameters come back within Monte-Carlo error, for every seed."""

import numpy as np
import pytest
from scipy.linalg import subspace_angles
from scipy.stats import norm

import contrastive_lvm as clvm
from tests.oracles import (
    Array,
    Point,
    conditional,
    draw,
    fitted_point,
    joint_update,
    log_likelihood,
    orthogonal_update,
    planted,
    scatter_about_mean,
    sides,
)

SEEDS = range(8)
NOISES = ("isotropic", "feature")


def fit(X: Array, B: Array, k: int, t: int, noise: str = "isotropic") -> clvm.ContrastiveLVM:
    likelihood = clvm.Gaussian(noise=noise)  # type: ignore[arg-type]
    return clvm.ContrastiveLVM(t, k, likelihood=likelihood).fit(X, background=B)


def largest_angle(a: Array, b: Array) -> float:
    return float(subspace_angles(a, b).max())


# --- parameters ---------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("noise", NOISES)
def test_target_subspace_error_falls_like_root_n(noise: str, seed: int) -> None:
    """Sixteen times the rows: a quarter of the angle, within Monte-Carlo error of a few draws."""
    point, _, _ = planted(seed, n=2, m=2, D=12, k=3, t=2, noise=noise)
    rng = np.random.default_rng(seed)

    def mean_angle(n: int) -> float:
        fits = [fit(*draw(point, n, n, rng), 3, 2, noise) for _ in range(5)]
        return float(np.mean([largest_angle(fitted_point(f).W, point.W) for f in fits]))

    few, many = mean_angle(400), mean_angle(6400)
    assert few < 0.3
    assert 2.2 < few / many < 7.0


def noise_standard_errors(point: Point, n: int, m: int, *, isotropic: bool) -> Array:
    """Of maximum likelihood, from the Fisher information of all covariance parameters.

    `I = sum_s n_s / 2 J_s' (C_s^-1 x C_s^-1) J_s` with `J_s` the derivative of the covariance of
    set s; rotations of the blocks change nothing, so it is singular and pseudo-inverted.
    """
    D, t = point.W.shape
    K = t + point.S.shape[1]
    information: Array = np.zeros((D * K + D, D * K + D))
    for rows, side, active in zip((n, m), sides(point), ((0, K), (t, K)), strict=True):
        J = np.zeros((D, D, D * K + D))
        for d in range(D):
            for j in range(*active):
                J[d, :, d * K + j] += side.L[:, j - active[0]]
                J[:, d, d * K + j] += side.L[:, j - active[0]]
            J[d, d, D * K + d] = 1.0
        precision = np.linalg.inv(side.cov)
        half = np.einsum("ab,bcp,cd->adp", precision, J, precision, optimize=True)
        information += 0.5 * rows * np.einsum("adp,adq->pq", half, J, optimize=True)
    if isotropic:
        change = np.zeros((D * K + D, D * K + 1))
        change[: D * K, : D * K], change[D * K :, -1] = np.eye(D * K), 1.0
        information = change.T @ information @ change
    variances = np.diag(np.linalg.pinv(information, rcond=1e-10, hermitian=True))
    errors: Array = np.sqrt(variances[D * K :])
    return errors


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("noise", NOISES)
def test_noise_variance_within_standard_errors(noise: str, seed: int) -> None:
    n, m = 4000, 3000
    point, X, B = planted(seed, n=n, m=m, D=12, k=3, t=2, noise=noise)
    isotropic = noise == "isotropic"
    psi = np.atleast_1d(fit(X, B, 3, 2, noise).noise_variance_)
    errors = noise_standard_errors(point, n, m, isotropic=isotropic)
    z = (psi - point.psi[: len(psi)]) / errors
    assert errors.shape == psi.shape
    assert np.abs(z).max() < 4.0
    assert isotropic or np.sqrt((z**2).mean()) > 0.3  # the errors are no wild overestimates


@pytest.mark.parametrize("seed", SEEDS)
def test_covariances_and_means_within_standard_errors(seed: int) -> None:
    n = 3000
    point, X, B = planted(seed, n=n, m=n, D=8, k=2, t=1)
    fitted = fitted_point(fit(X, B, 2, 1))
    for actual, expected in zip(sides(fitted), sides(point), strict=True):
        C, variance = expected.cov, np.diag(expected.cov)
        error = np.sqrt((C**2 + np.outer(variance, variance)) / n)  # of a sample covariance
        assert (np.abs(actual.cov - C) < 5.0 * error).all()
        assert (np.abs(actual.mean - expected.mean) < 5.0 * np.sqrt(variance / n)).all()


# --- latents ------------------------------------------------------------------------------------


@pytest.mark.parametrize("missing", [0.0, 0.3])
@pytest.mark.parametrize("seed", SEEDS)
def test_ninety_percent_intervals_cover(seed: int, missing: float) -> None:
    """Rows simulated from the fitted model, which many rows have made close to the truth."""
    point, X, B = planted(seed, n=4000, m=4000, D=8, k=2, t=2)
    model = fit(X, B, 2, 2)
    rng, rows = np.random.default_rng(seed + 100), 8000
    fitted = fitted_point(model)
    t, z = rng.standard_normal((rows, 2)), rng.standard_normal((rows, 2))
    noise = rng.standard_normal((rows, 8)) * np.sqrt(point.psi)
    # The truth's loadings in the fitted gauge: latents are compared axis by axis.
    W, S = aligned(point.W, fitted.W), aligned(point.S, fitted.S)
    new = point.mean + t @ W.T + z @ S.T + noise
    new[rng.random(new.shape) < missing] = np.nan
    latents = model.latents(new)
    reach = norm.ppf(0.95)
    assert latents.target is not None
    assert latents.target_std is not None
    inside = np.abs(latents.target - t) <= reach * latents.target_std
    assert 0.88 <= inside.mean() <= 0.92
    inside = np.abs(latents.shared - z) <= reach * latents.shared_std
    assert 0.88 <= inside.mean() <= 0.92


def aligned(truth: Array, fitted: Array) -> Array:
    """`truth @ Q` with the rotation Q that brings it closest (orthogonal Procrustes)."""
    U, _, V = np.linalg.svd(truth.T @ fitted)
    turned: Array = truth @ U @ V
    return turned


@pytest.mark.parametrize("seed", SEEDS)
def test_target_latents_find_planted_groups(seed: int) -> None:
    data = clvm.datasets.make_contrastive(random_state=seed)
    model = clvm.ContrastiveLVM(2, 8).fit(data.target, background=data.background)
    T = model.transform(data.target)
    centres = np.array([T[data.target_labels == g].mean(axis=0) for g in range(4)])
    nearest = np.linalg.norm(T[:, None] - centres, axis=2).argmin(axis=1)
    assert (nearest == data.target_labels).mean() > 0.98


# --- the paper's simplified updates -------------------------------------------------------------


def orthogonal_point(seed: int) -> tuple[Point, Array]:
    """Parameters with `W' S = 0`, and the axes they lie on."""
    rng = np.random.default_rng(seed)
    Q = np.linalg.qr(rng.standard_normal((7, 7)))[0]
    zero, psi = np.zeros(7), np.full(7, 0.5)
    return Point(2.0 * Q[:, :2], 1.5 * Q[:, 2:3], psi, zero, zero), Q


def uncorrelated_along(axes: Array, rows: Array) -> Array:
    """Rows whose principal axes are the given ones."""
    U, s, _ = np.linalg.svd(rows - rows.mean(axis=0), full_matrices=False)
    turned: Array = U @ np.diag(s) @ axes.T
    return turned


def at_sample_means(point: Point, X: Array, B: Array) -> Point:
    return point._replace(mean=X.mean(axis=0), background_mean=B.mean(axis=0))


def joint_moments(point: Point, X: Array) -> tuple[Array, Array]:
    """`sum E[h h']` and `sum r E[h]'` of the target rows, by brute force."""
    rows = [conditional(sides(point)[0], x) for x in X]
    H = np.array([row.mean for row in rows])
    moment: Array = np.sum([row.cov for row in rows], axis=0) + H.T @ H
    cross: Array = (X - point.mean).T @ H
    return moment, cross


@pytest.mark.parametrize("seed", SEEDS)
def test_orthogonal_updates_hold_at_orthogonal_parameters(seed: int) -> None:
    """There they are the exact update of each block with the other held at its old value."""
    point, _ = orthogonal_point(seed)
    X, B = draw(point, 40, 30, np.random.default_rng(seed))
    point = at_sample_means(point, X, B)
    moment, cross = joint_moments(point, X)
    t = 1
    exact_W = (cross[:, :t] - point.S @ moment[t:, :t]) @ np.linalg.inv(moment[:t, :t])
    new_S, new_W = orthogonal_update(point, X, B)
    np.testing.assert_allclose(new_W, exact_W, atol=1e-9)
    others = [conditional(sides(point)[1], y) for y in B]
    H = np.array([row.mean for row in others])
    shared = moment[t:, t:] + np.sum([row.cov for row in others], axis=0) + H.T @ H
    both = cross[:, t:] - point.W @ moment[:t, t:] + (B - point.background_mean).T @ H
    np.testing.assert_allclose(new_S, both @ np.linalg.inv(shared), atol=1e-9)
    cov = conditional(sides(point)[0], X[0]).cov
    np.testing.assert_allclose(cov[:t, t:], 0.0, atol=1e-12)


@pytest.mark.parametrize("seed", SEEDS)
def test_orthogonal_updates_are_the_joint_step_when_the_data_are_orthogonal_too(
    seed: int,
) -> None:
    """If also `W' T S = 0` the blocks do not see each other and the joint step is the same."""
    point, Q = orthogonal_point(seed)
    rng = np.random.default_rng(seed)
    X, B = draw(point, 40, 30, rng)
    X, B = uncorrelated_along(Q, X), uncorrelated_along(Q, B)
    point = at_sample_means(point, X, B)
    np.testing.assert_allclose(point.W.T @ scatter_about_mean(X) @ point.S, 0.0, atol=1e-9)
    joint = joint_update(point, X, B, isotropic=True)
    new_S, new_W = orthogonal_update(point, X, B)
    np.testing.assert_allclose(new_S, joint.S, atol=1e-9)
    np.testing.assert_allclose(new_W, joint.W, atol=1e-9)


@pytest.mark.parametrize("seed", SEEDS)
def test_orthogonal_updates_fail_at_other_parameters(seed: int) -> None:
    """At a maximum with oblique blocks the joint step stays; the paper's leaves and falls."""
    rng = np.random.default_rng(seed)
    S, W = rng.standard_normal((7, 2)), rng.standard_normal((7, 1))
    W += S @ np.array([[0.8], [0.8]])  # oblique
    point = Point(S, W, np.full(7, 0.5), np.zeros(7), np.zeros(7))
    X, B = draw(point, 150, 150, rng)
    model = clvm.ContrastiveLVM(1, 2, inference=clvm.EM(tol=1e-10)).fit(X, background=B)
    best = fitted_point(model)
    joint = joint_update(best, X, B, isotropic=True)
    np.testing.assert_allclose(joint.W, best.W, atol=1e-3)
    np.testing.assert_allclose(joint.S, best.S, atol=1e-3)
    new_S, new_W = orthogonal_update(best, X, B)
    moved = np.linalg.norm(new_S - best.S) + np.linalg.norm(new_W - best.W)
    assert moved > 0.1 * np.linalg.norm(best.W)
    after = log_likelihood(best._replace(S=new_S, W=new_W), X, B)
    assert after < model.lower_bound_ - 1.0
