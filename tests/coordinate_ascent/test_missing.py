"""Missing entries: every prediction against the conditional normal, and fits with them."""

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import contrastive_lvm as clvm
from tests.oracles import (
    MISSING,
    Array,
    Conditional,
    conditional,
    fitted_point,
    log_densities,
    planted,
    sets_with_missing,
    sides,
    with_missing,
)

NOISES = ("isotropic", "feature")
SETS = ("target", "background")
DIMENSIONS = [(2, 1), (1, 2), (0, 2), (2, 0)]  # k, t


def fit(
    X: Any, B: Any, k: int = 2, t: int = 1, noise: Any = "isotropic", tol: float = 1e-4
) -> clvm.ContrastiveLVM:
    likelihood, engine = clvm.Gaussian(noise=noise), clvm.EM(tol=tol)
    model = clvm.ContrastiveLVM(t, k, likelihood=likelihood, inference=engine)
    return model.fit(X, background=B)


def assert_same_fit(a: clvm.ContrastiveLVM, b: clvm.ContrastiveLVM, rtol: float = 1e-4) -> None:
    assert a.lower_bound_ == pytest.approx(b.lower_bound_, abs=1e-6)
    names = ("target_components_", "shared_components_", "mean_", "background_mean_")
    for name in (*names, "noise_variance_"):
        left, right = np.asarray(getattr(a, name)), np.asarray(getattr(b, name))
        atol = rtol * np.abs(right).max()
        np.testing.assert_allclose(left, right, rtol=0, atol=atol, err_msg=name)


def fitted(noise: str, k: int, t: int) -> tuple[clvm.ContrastiveLVM, Array, Array]:
    X, B = sets_with_missing(*planted(3, n=60, m=50, D=7, k=k, t=t, noise=noise)[1:], "both")
    return fit(X, B, k, t, noise), X, B


def probes(X: Array) -> Array:
    """Rows of all kinds: full, one entry missing, one or none left, repeated patterns."""
    rows = np.where(np.isnan(X[:12]), 0.5, X[:12])
    rows[1, 3] = rows[2, 6] = rows[3, 0] = np.nan
    rows[4, 1:] = rows[5, :-1] = np.nan
    rows[6] = np.nan
    rows[7, 3] = rows[8, 6] = np.nan
    rows[9, [0, 2, 4]] = np.nan
    rows[11, ::2] = np.nan
    return rows


def posteriors(model: clvm.ContrastiveLVM, rows: Array, of: str) -> list[Conditional]:
    side = sides(fitted_point(model))[SETS.index(of)]
    return [conditional(side, x) for x in rows]


CASES = [
    (noise, of, k, t)
    for noise in NOISES
    for of in SETS
    for k, t in DIMENSIONS
    if of == "target" or k > 0
]


@pytest.mark.parametrize(("noise", "of", "k", "t"), CASES)
def test_latents_are_the_conditional_normal(noise: str, of: str, k: int, t: int) -> None:
    model, X, _ = fitted(noise, k, t)
    rows = probes(X)
    latents = model.latents(rows, of=of)
    if of == "background":
        assert latents.target is None
        assert latents.target_std is None
        mean, std = latents.shared, latents.shared_std
    else:
        assert latents.target is not None
        assert latents.target_std is not None
        mean = np.hstack([latents.target, latents.shared])
        std = np.hstack([latents.target_std, latents.shared_std])
        np.testing.assert_allclose(model.transform(rows), latents.target, atol=1e-12)
    assert latents.cov.shape == (len(rows), *[k + (t if of == "target" else 0)] * 2)
    for i, expected in enumerate(posteriors(model, rows, of)):
        np.testing.assert_allclose(mean[i], expected.mean, atol=1e-8)
        np.testing.assert_allclose(latents.cov[i], expected.cov, atol=1e-8)
        np.testing.assert_allclose(std[i], np.sqrt(np.diag(expected.cov)), atol=1e-8)


@pytest.mark.parametrize(("noise", "of", "k", "t"), CASES)
def test_imputed_entries_are_the_conditional_normal(noise: str, of: str, k: int, t: int) -> None:
    model, X, _ = fitted(noise, k, t)
    rows = probes(X)
    filled, std = model.impute(rows, of=of, return_std=True)
    expected = posteriors(model, rows, of)
    np.testing.assert_allclose(filled, [e.entries for e in expected], atol=1e-8)
    np.testing.assert_allclose(std, [e.std for e in expected], atol=1e-8)
    np.testing.assert_array_equal(filled[~np.isnan(rows)], rows[~np.isnan(rows)])
    np.testing.assert_array_equal(model.impute(rows, of=of), filled)


@pytest.mark.parametrize(("noise", "of", "k", "t"), CASES)
def test_reconstructions_add_the_parts_named(noise: str, of: str, k: int, t: int) -> None:
    model, X, _ = fitted(noise, k, t)
    rows, point = probes(X), fitted_point(model)
    t = t if of == "target" else 0
    means = np.array([e.mean for e in posteriors(model, rows, of)])
    centre = point.mean if of == "target" else point.background_mean
    shared = means[:, t:] @ point.S.T
    target = means[:, :t] @ point.W.T if t else np.zeros_like(shared)
    for parts, expected in (
        (("shared", "target"), centre + shared + target),
        (("shared",), centre + shared),
        (("target",), centre + target),
        ((), centre + 0.0 * shared),
    ):
        actual = model.reconstruct(rows, parts=parts, of=of)
        np.testing.assert_allclose(actual, expected, atol=1e-8, err_msg=str(parts))


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize(("k", "t"), DIMENSIONS)
def test_denoised_rows_lose_the_shared_part(noise: str, k: int, t: int) -> None:
    model, X, _ = fitted(noise, k, t)
    rows, point = probes(X), fitted_point(model)
    for row, denoised in zip(rows, model.denoise(rows), strict=True):
        expected = posteriors(model, row[None], "target")[0]
        shared = point.S @ expected.mean[t:]
        model_mean = point.mean + point.W @ expected.mean[:t]
        np.testing.assert_allclose(
            denoised, np.where(np.isnan(row), model_mean, row - shared), atol=1e-8
        )


@pytest.mark.parametrize("of", SETS)
@pytest.mark.parametrize("noise", NOISES)
def test_a_row_without_entries_has_the_prior(noise: str, of: str) -> None:
    model, X, _ = fitted(noise, 2, 1)
    rows = np.vstack([X[:1], np.full((1, 7), np.nan)])
    mean = model.mean_ if of == "target" else model.background_mean_
    latents = model.latents(rows, of=of)
    np.testing.assert_array_equal(latents.shared[1], np.zeros(2))
    np.testing.assert_array_equal(latents.shared_std[1], np.ones(2))
    np.testing.assert_array_equal(latents.cov[1], np.eye(len(latents.cov[1])))
    assert model.score_samples(rows, of=of)[1] == 0.0
    filled, std = model.impute(rows, of=of, return_std=True)
    np.testing.assert_allclose(filled[1], mean, rtol=1e-14)
    variance = np.diag(sides(fitted_point(model))[SETS.index(of)].cov)
    np.testing.assert_allclose(std[1], np.sqrt(variance), rtol=1e-12)


@pytest.mark.parametrize("first", ["complete", "missing"])
def test_predictions_over_several_blocks(first: str) -> None:
    """Missing entries that start in the first block of rows, or only later."""
    model, X, _ = fitted("isotropic", 2, 1)
    rng = np.random.default_rng(0)
    rows = np.where(np.isnan(X), 0.0, X)[rng.integers(len(X), size=6500)]
    partial = with_missing(rows, 0.3, 1)
    partial[4500:] = rows[4500:]
    partial[: 4100 if first == "complete" else 0] = rows[: 4100 if first == "complete" else 0]
    latents, (filled, std) = model.latents(partial), model.impute(partial, return_std=True)
    scores, transformed = model.score_samples(partial), model.transform(partial)
    ends = [0, 1, 2047, 2048, 4095, 4096, 4099, 4100, 4101, 4499, 4500, 6143, 6144, 6499]
    side = sides(fitted_point(model))[0]
    np.testing.assert_allclose(scores[ends], log_densities(side, partial[ends]), rtol=1e-9)
    for i in ends:
        expected = conditional(side, partial[i])
        np.testing.assert_allclose(transformed[i], expected.mean[:1], atol=1e-8)
        np.testing.assert_allclose(latents.cov[i], expected.cov, atol=1e-8)
        np.testing.assert_allclose(filled[i], expected.entries, atol=1e-8)
        np.testing.assert_allclose(std[i], expected.std, atol=1e-8)


@pytest.mark.parametrize("form", [np.asarray, sp.csr_matrix])
@pytest.mark.parametrize(("name", "column"), [("X", 4), ("background", 0)])
def test_a_column_without_entries_is_refused(name: str, column: int, form: Any) -> None:
    X, B = planted(0)[1:]
    rows = {"X": X, "background": B}
    rows[name][:, column] = np.nan
    with pytest.raises(ValueError, match=rf"{name} has no observed entry in columns .*{column}"):
        fit(form(rows["X"]), form(rows["background"]))


@pytest.mark.parametrize("missing", MISSING)
@pytest.mark.parametrize("noise", NOISES)
def test_rows_without_entries_do_not_change_the_fit(noise: str, missing: str) -> None:
    X, B = sets_with_missing(*planted(1, n=90, m=80, D=8, noise=noise)[1:], missing)
    nothing = np.full((4, 8), np.nan)
    longer = np.vstack([nothing[:2], X[:30], nothing[2:], X[30:]]), np.vstack([B, nothing])
    assert_same_fit(fit(*longer, noise=noise, tol=1e-9), fit(X, B, noise=noise, tol=1e-9))


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("n_patterns", [3, 90])
def test_order_of_patterns_does_not_change_the_fit(noise: str, n_patterns: int) -> None:
    X, B = planted(1, n=90, m=80, D=8, noise=noise)[1:]
    rng = np.random.default_rng(0)
    table = rng.random((n_patterns, 8)) < 0.2
    X = np.where(table[np.arange(90) % n_patterns], np.nan, X)
    order = np.argsort(np.arange(90) % n_patterns, kind="stable")
    a = fit(X, B, noise=noise, tol=1e-9)
    assert_same_fit(a, fit(X[order], B, noise=noise, tol=1e-9))
    assert_same_fit(a, fit(X[::-1], B[::-1], noise=noise, tol=1e-9))


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("of", SETS)
@pytest.mark.parametrize("noise", NOISES)
def test_thirty_percent_missing_are_recovered(noise: str, of: str, seed: int) -> None:
    """Held-out entries: nearly as good as with the true parameters, with honest deviations."""
    point, X, B = planted(seed, n=200, m=180, D=12, k=2, t=1, noise=noise)
    sets = with_missing(X, 0.3, seed + 1), with_missing(B, 0.3, seed + 2)
    model = fit(*sets, 2, 1, noise)
    truth, rows = (X, sets[0]) if of == "target" else (B, sets[1])
    hidden, side = np.isnan(rows), sides(point)[SETS.index(of)]
    filled, std = model.impute(rows, of=of, return_std=True)
    error = (filled - truth)[hidden]
    ideal = (np.array([conditional(side, x).entries for x in rows]) - truth)[hidden]
    plain = (np.nanmean(rows, axis=0) - truth)[hidden]
    assert (error**2).mean() < 0.7 * (plain**2).mean()
    assert (error**2).mean() < 1.2 * (ideal**2).mean()
    assert 0.9 < (error / std[hidden]).std() < 1.15


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("noise", NOISES)
def test_stored_nan_in_sparse_input_is_missing(noise: str, dtype: Any) -> None:
    X, B = planted(2, n=60, m=50, D=7, noise=noise)[1:]
    X, B = (np.where(np.abs(rows) < 1.0, 0.0, rows).astype(dtype) for rows in (X, B))
    X, B = with_missing(X, 0.2, 1).astype(dtype), with_missing(B, 0.1, 2).astype(dtype)
    dense, sparse = fit(X, B, noise=noise), fit(sp.csr_matrix(X), sp.csc_matrix(B), noise=noise)
    assert_same_fit(sparse, dense, 1e-6)
    for method in ("transform", "score_samples", "impute", "denoise"):
        a, b = getattr(dense, method)(X), getattr(dense, method)(sp.csr_matrix(X))
        np.testing.assert_allclose(b, a, rtol=1e-6, atol=1e-6, err_msg=method)
        assert not np.isnan(b).any()


def test_missing_entries_in_one_set_leave_the_other_set_complete() -> None:
    """A complete set's mean is its sample mean, whatever the other set misses."""
    X, B = sets_with_missing(*planted(1)[1:], "target")
    model = fit(X, B)
    np.testing.assert_allclose(model.background_mean_, B.mean(axis=0), rtol=1e-10)
    assert np.abs(model.mean_ - np.nanmean(X, axis=0)).max() > 1e-4
