"""Limits where the answer is known, symmetries of the model, and equal data in other forms."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.stats import special_ortho_group
from sklearn.decomposition import PCA

import contrastive_lvm as clvm
from contrastive_lvm.linalg import packed
from contrastive_lvm.linalg.loadings import Loadings
from contrastive_lvm.rows.data import summarize
from contrastive_lvm.rows.masked_rows import MaskedRows
from contrastive_lvm.rows.reader import LocalRows
from contrastive_lvm.rows.scatter import DenseScatter, first_pass
from tests.oracles import (
    Array,
    Side,
    fitted_point,
    log_densities,
    log_likelihood,
    maximise,
    planted,
    scatter_about_mean,
    sets_with_missing,
    shape_of,
)

NOISES = ("isotropic", "feature")
SEEDS = range(3)


def fit(
    X: Any, B: Any, k: int, t: int, noise: Any = "isotropic", tol: float = 1e-9
) -> clvm.ContrastiveLVM:
    likelihood, engine = clvm.Gaussian(noise=noise), clvm.EM(tol=tol)
    model = clvm.ContrastiveLVM(t, k, likelihood=likelihood, inference=engine)
    return model.fit(X, background=B)


def products(model: clvm.ContrastiveLVM) -> tuple[Array, Array]:
    """`S S'` and `W W'`, which do not depend on rotations."""
    p = fitted_point(model)
    return p.S @ p.S.T, p.W @ p.W.T


def assert_close(actual: Any, expected: Any, rtol: float) -> None:
    """Equal relative to the largest entry."""
    size = float(np.abs(expected).max())
    np.testing.assert_allclose(actual, expected, rtol=0, atol=rtol * size)


def closed_form_ppca(cov: Array, q: int) -> tuple[Array, float]:
    """`W W'` and the noise variance (Tipping & Bishop 1999, eqs. 7-8)."""
    values, vectors = np.linalg.eigh(cov)
    noise = float(values[:-q].mean())
    V = vectors[:, -q:]
    WW: Array = V @ np.diag(values[-q:] - noise) @ V.T
    return WW, noise


# --- probabilistic PCA --------------------------------------------------------------------------


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("n", "D", "q"), [(60, 8, 2), (50, 6, 4), (15, 40, 3)])
def test_without_shared_part_and_background_is_ppca(n: int, D: int, q: int, seed: int) -> None:
    _, X, _ = planted(seed, n=n, D=D, k=1, t=q)
    model = fit(X, None, 0, q, tol=1e-10)
    WW, noise = closed_form_ppca(scatter_about_mean(X) / n, q)
    assert model.noise_variance_ == pytest.approx(noise, rel=1e-6)
    assert_close(products(model)[1], WW, 1e-4)
    np.testing.assert_allclose(model.mean_, X.mean(axis=0), rtol=1e-10)
    ppca = clvm.PPCA(q).fit(X)
    assert ppca.noise_variance_ == pytest.approx(noise, rel=1e-10)
    assert_close(ppca.components_.T @ ppca.components_, WW, 1e-9)
    L = ppca.components_.T
    density = log_densities(Side(L, ppca.mean_, np.full(D, noise)), X)
    assert ppca.lower_bound_ == pytest.approx(density.sum(), rel=1e-9)
    assert model.lower_bound_ == pytest.approx(ppca.lower_bound_, abs=1e-6)
    np.testing.assert_allclose(ppca.score_samples(X), density, rtol=1e-8)
    peer = PCA(q).fit(X)  # divides by n - 1, and averages over the min(n, D) - q values it has
    rest = peer.noise_variance_ * (n - 1) / n * (min(n, D) - q) / (D - q)
    assert ppca.noise_variance_ == pytest.approx(rest, rel=1e-9)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("missing", [0.0, 0.25])
def test_ppca_and_the_model_agree_with_missing_entries(seed: int, missing: float) -> None:
    _, X, B = planted(seed, n=80, D=6, k=1, t=2)
    X = sets_with_missing(X, B, "target" if missing else "complete", seed)[0]
    ppca, model = clvm.PPCA(2, tol=1e-9).fit(X), fit(X, None, 0, 2)
    assert ppca.lower_bound_ == pytest.approx(model.lower_bound_, abs=1e-6)
    assert_close(ppca.components_, model.target_components_, 1e-4)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("n", "m", "D", "q"), [(40, 60, 7, 2), (12, 14, 45, 2)])
def test_without_target_part_is_ppca_of_both_sets(
    n: int, m: int, D: int, q: int, seed: int
) -> None:
    _, X, B = planted(seed, n=n, m=m, D=D, k=q, t=1)
    model = fit(X, B, q, 0, tol=1e-10)
    pooled = (scatter_about_mean(X) + scatter_about_mean(B)) / (n + m)
    SS, noise = closed_form_ppca(pooled, q)
    assert model.noise_variance_ == pytest.approx(noise, rel=1e-6)
    assert_close(products(model)[0], SS, 1e-4)
    assert model.target_components_.shape == (0, D)
    assert model.transform(X).shape == (n, 0)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_background_informs_the_noise_even_without_shared_part(seed: int) -> None:
    _, X, B = planted(seed, n=60, m=60, D=6, k=0, t=1)
    B = B.mean(axis=0) + 3.0 * (B - B.mean(axis=0))
    alone, both = fit(X, None, 0, 1), fit(X, B, 0, 1)
    assert both.noise_variance_ > 2.0 * alone.noise_variance_
    shape = shape_of(fitted_point(both), isotropic=True)
    direct = maximise(shape, X, B, n_starts=2, seed=0)
    assert both.lower_bound_ == pytest.approx(direct.value, abs=1e-5)
    assert both.noise_variance_ == pytest.approx(direct.point.psi[0], rel=1e-4)


# --- symmetries ---------------------------------------------------------------------------------


@pytest.mark.parametrize("missing", ["complete", "both"])
@pytest.mark.parametrize("noise", NOISES)
def test_order_of_rows_does_not_matter(noise: str, missing: str) -> None:
    rng = np.random.default_rng(0)
    X, B = sets_with_missing(*planted(1, n=90, m=80, D=8, noise=noise)[1:], missing)
    a, b = fit(X, B, 2, 1, noise), fit(rng.permutation(X), rng.permutation(B), 2, 1, noise)
    assert a.lower_bound_ == pytest.approx(b.lower_bound_, abs=1e-7)
    assert_close(a.target_components_, b.target_components_, 1e-4)
    assert_close(a.shared_components_, b.shared_components_, 1e-4)


@pytest.mark.parametrize("missing", ["complete", "both"])
@pytest.mark.parametrize("noise", NOISES)
def test_columns_may_be_reordered(noise: str, missing: str) -> None:
    X, B = sets_with_missing(*planted(1, n=90, m=80, D=8, noise=noise)[1:], missing)
    order = np.random.default_rng(0).permutation(8)
    a, b = fit(X, B, 2, 1, noise), fit(X[:, order], B[:, order], 2, 1, noise)
    assert a.lower_bound_ == pytest.approx(b.lower_bound_, abs=1e-7)
    for left, right in zip(products(a), products(b), strict=True):
        assert_close(left[np.ix_(order, order)], right, 1e-4)
    psi = [fitted_point(model).psi for model in (a, b)]
    np.testing.assert_allclose(psi[0][order], psi[1], rtol=1e-4)


@pytest.mark.parametrize("shape", [(60, 50, 7), (12, 10, 30)])
def test_isotropic_noise_rotates_with_the_features(shape: tuple[int, int, int]) -> None:
    n, m, D = shape
    _, X, B = planted(1, n=n, m=m, D=D)
    Q = special_ortho_group.rvs(D, random_state=0)
    a, b = fit(X, B, 2, 1, tol=1e-10), fit(X @ Q.T, B @ Q.T, 2, 1, tol=1e-10)
    assert a.lower_bound_ == pytest.approx(b.lower_bound_, abs=1e-6)
    assert a.noise_variance_ == pytest.approx(b.noise_variance_, rel=1e-6)
    for left, right in zip(products(a), products(b), strict=True):
        assert_close(Q @ left @ Q.T, right, 1e-4)


@pytest.mark.parametrize("missing", ["complete", "both"])
@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("c", [1e-6, 0.01, 1e5])
def test_scaling_the_data_scales_the_loadings(noise: str, missing: str, c: float) -> None:
    X, B = sets_with_missing(*planted(1, n=90, m=80, D=8, noise=noise)[1:], missing)
    a, b = fit(X, B, 2, 1, noise), fit(c * X, c * B, 2, 1, noise)
    entries = (~np.isnan(X)).sum() + (~np.isnan(B)).sum()
    assert b.lower_bound_ == pytest.approx(a.lower_bound_ - entries * np.log(c), abs=1e-6)
    assert_close(b.target_components_, c * a.target_components_, 1e-4)
    assert_close(b.shared_components_, c * a.shared_components_, 1e-4)
    assert_close(b.noise_variance_, c**2 * a.noise_variance_, 1e-4)


@pytest.mark.parametrize("decades", [1, 2, 4])
@pytest.mark.parametrize("missing", ["complete", "both"])
def test_feature_noise_scales_feature_by_feature(missing: str, decades: int) -> None:
    X, B = sets_with_missing(*planted(1, n=90, m=80, D=8, noise="feature")[1:], missing)
    scale = np.geomspace(10.0**-decades, 10.0**decades, 8)
    a, b = fit(X, B, 2, 1, "feature"), fit(scale * X, scale * B, 2, 1, "feature")
    entries = (~np.isnan(X)).sum(axis=0) + (~np.isnan(B)).sum(axis=0)
    assert b.lower_bound_ == pytest.approx(a.lower_bound_ - entries @ np.log(scale), abs=1e-5)
    for left, right in zip(products(a), products(b), strict=True):
        assert_close(right / np.outer(scale, scale), left, 1e-3)
    np.testing.assert_allclose(b.noise_variance_, scale**2 * a.noise_variance_, rtol=1e-3)


@pytest.mark.parametrize("missing", ["complete", "both"])
@pytest.mark.parametrize("noise", NOISES)
def test_shifting_a_set_shifts_its_mean_alone(noise: str, missing: str) -> None:
    X, B = sets_with_missing(*planted(1, n=90, m=80, D=8, noise=noise)[1:], missing)
    shift = np.linspace(-50.0, 50.0, 8)
    a, b = fit(X, B, 2, 1, noise), fit(X, B + shift, 2, 1, noise)
    assert a.lower_bound_ == pytest.approx(b.lower_bound_, abs=1e-6)
    np.testing.assert_allclose(b.background_mean_, a.background_mean_ + shift, atol=1e-4)
    np.testing.assert_allclose(b.mean_, a.mean_, atol=1e-4)
    assert_close(b.target_components_, a.target_components_, 1e-4)


# --- equal data in other forms ------------------------------------------------------------------


def test_an_all_observed_mask_is_no_mask() -> None:
    point, X, _ = planted(2, n=40, D=6, k=2, t=1, noise="feature")
    L = np.hstack([point.S, point.W])
    reader = LocalRows(X)
    found = first_pass(reader, scatter=True)
    masked = MaskedRows(reader, found, None).statistics(Loadings(L), point.psi, found.mean)
    compressed = DenseScatter(found.n_rows, found.mean, found.scatter)
    complete = compressed.statistics(Loadings(L), point.psi, found.mean)
    assert masked.bound == pytest.approx(complete.bound, rel=1e-12)
    for name, wide in masked._asdict().items():
        narrow = np.broadcast_to(getattr(complete, name), np.shape(wide))
        np.testing.assert_allclose(wide, narrow, atol=1e-9, err_msg=name)
    assert packed.unpack(complete.moment).shape == (1, 3, 3)


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize(("n", "m", "D"), [(20, 15, 60), (30, 30, 50), (10, 8, 70)])
def test_fewer_rows_than_features(n: int, m: int, D: int, noise: str) -> None:
    """The span of the rows, or products with the rows: the likelihood is the dense one."""
    _, X, B = planted(0, n=n, m=m, D=D, k=2, t=1, noise=noise)
    model = fit(X, B, 2, 1, noise, tol=1e-6)
    assert model.lower_bound_ == pytest.approx(log_likelihood(fitted_point(model), X, B), rel=1e-9)


@pytest.mark.parametrize("seed", SEEDS)
def test_span_and_operator_paths_reach_the_dense_optimum(seed: int) -> None:
    """Sparse input takes the operator path, dense the span, a masked copy neither."""
    _, X, B = planted(seed, n=20, m=15, D=60, k=2, t=1)
    span, operator = fit(X, B, 2, 1), fit(sp.csr_array(X), sp.csr_array(B), 2, 1)
    nothing = np.full((1, 60), np.nan)
    masked = fit(np.vstack([X, nothing]), np.vstack([B, nothing]), 2, 1)
    for other in (operator, masked):
        assert other.lower_bound_ == pytest.approx(span.lower_bound_, abs=1e-5)
        assert other.noise_variance_ == pytest.approx(span.noise_variance_, rel=1e-5)
        assert_close(other.target_components_, span.target_components_, 1e-3)
        assert_close(other.shared_components_, span.shared_components_, 1e-3)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n", [7, 5000])
def test_every_scatter_is_the_dense_matrix(n: int, dtype: Any) -> None:
    rng = np.random.default_rng(n)
    X = (rng.poisson(0.7, (n, 9)) * rng.normal(3.0, 1.0, (n, 9))).astype(dtype)
    M = rng.standard_normal((9, 4))
    T = scatter_about_mean(X.astype(np.float64))
    for rows in (X, sp.csr_array(X), sp.csr_matrix(X)):
        for dense in (True, False):
            summary: Any = summarize(LocalRows(rows), None, dense=dense)
            rtol = 1e-5 if dtype is np.float32 else 1e-10
            assert summary.n_rows == n
            assert_close(summary.product(M), T @ M, rtol)
            assert_close(summary.square, np.diag(T), rtol)
            assert_close(summary.mean, X.mean(axis=0, dtype=np.float64), 1e-6)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    "form", [sp.csr_matrix, sp.csc_matrix, sp.coo_matrix, sp.csr_array, sp.csc_array, sp.coo_array]
)
@pytest.mark.parametrize(
    ("n", "D", "noise"), [(60, 8, "isotropic"), (60, 8, "feature"), (9, 40, "feature")]
)
def test_sparse_input_is_its_dense_copy(
    form: Callable[[Any], Any], dtype: Any, n: int, D: int, noise: str
) -> None:
    _, X, B = planted(0, n=n, m=n, D=D, k=1, t=1, noise=noise)
    X, B = (np.where(np.abs(rows) < 1.0, 0.0, rows).astype(dtype) for rows in (X, B))
    dense, sparse = fit(X, B, 1, 1, noise, 1e-6), fit(form(X), form(B), 1, 1, noise, 1e-6)
    rtol = 1e-3 if dtype is np.float32 else 1e-6
    assert sparse.lower_bound_ == pytest.approx(dense.lower_bound_, rel=rtol)
    assert_close(sparse.target_components_, dense.target_components_, rtol)
    assert_close(sparse.noise_variance_, dense.noise_variance_, rtol)
    for method in ("transform", "score_samples", "impute", "denoise", "reconstruct"):
        a, b = getattr(dense, method)(X), getattr(dense, method)(form(X))
        np.testing.assert_allclose(b, a, rtol=1e-5, atol=1e-5, err_msg=method)


@pytest.mark.parametrize("missing", ["complete", "both"])
@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize(("n", "D"), [(300, 8), (30, 70)])
def test_float32_agrees_even_far_from_the_origin(n: int, D: int, noise: str, missing: str) -> None:
    _, X, B = planted(1, n=n, m=n, D=D, k=2, t=1, noise=noise)
    X, B = sets_with_missing(X + 1000.0, B + 1000.0, missing)
    X, B = (rows.astype(np.float32).astype(np.float64) for rows in (X, B))
    X4, B4 = X.astype(np.float32), B.astype(np.float32)
    wide, narrow = fit(X, B, 2, 1, noise, 1e-7), fit(X4, B4, 2, 1, noise, 1e-7)
    assert narrow.lower_bound_ == pytest.approx(wide.lower_bound_, rel=1e-5)
    for left, right in zip(products(narrow), products(wide), strict=True):
        assert_close(left, right, 2e-4)
    np.testing.assert_allclose(narrow.noise_variance_, wide.noise_variance_, rtol=2e-4)
    np.testing.assert_allclose(narrow.mean_, wide.mean_, rtol=1e-7)
    assert_close(narrow.transform(X4), wide.transform(X), 2e-4)
