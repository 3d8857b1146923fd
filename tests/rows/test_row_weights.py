"""Row weights: a row of weight 2 is that row twice, a row of weight 0 is absent."""

from collections.abc import Callable
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import contrastive_lvm as clvm
from contrastive_lvm.rows import data, masked_rows, reader, scale_mixture_rows, scatter

D = 7
MODELS: dict[str, dict[str, Any]] = {
    "isotropic": {},
    "feature noise": {"likelihood": clvm.Gaussian("feature")},
    "Student-t": {"likelihood": clvm.StudentT()},
    "learned df": {"likelihood": clvm.StudentT("learn")},
    "Student-t rows": {"likelihood": clvm.StudentT("learn", "sample")},
    "ARD": {"shared_prior": clvm.ARD()},
    "horseshoe": {"target_prior": clvm.Horseshoe()},
    "group lasso": {"target_prior": clvm.GroupLasso(5.0)},
}
NAMES = ("target_components_", "shared_components_", "noise_variance_", "mean_", "background_mean_")
Form = Callable[[Any, Path], Any]


@cache
def sets(*, missing: bool = False, n_features: int = D) -> tuple[Any, ...]:
    """Two sets far from the origin, and whole-number weights, zeros among them."""
    rng = np.random.default_rng(5)
    S, W = 2.0 * rng.standard_normal((n_features, 2)), 3.0 * rng.standard_normal((n_features, 1))
    X = rng.standard_normal((180, 2)) @ S.T + rng.standard_normal((180, 1)) @ W.T + 9.0
    B = rng.standard_normal((120, 2)) @ S.T - 5.0
    X, B = (A + 0.6 * rng.standard_t(6, A.shape) for A in (X, B))
    weights = [rng.integers(0, 4, len(A)).astype(np.float64) for A in (X, B)]
    weights[0][40:80] = 0.0  # whole chunks among them
    if missing:
        for A in (X, B):
            A[rng.random(A.shape) < 0.15] = np.nan
        X[7] = np.nan
        weights[0][7] = 2.0
    for A, w in zip((X, B), weights, strict=True):
        A[np.flatnonzero(w == 0)[0]] = np.nan  # what is absent says nothing
    return X, B, *weights


def repeated(X: Any, weights: Any) -> Any:
    return np.repeat(X, weights.astype(int), axis=0)


def dense(X: Any, folder: Path) -> Any:
    return X


def sparse(X: Any, folder: Path) -> Any:
    return sp.csr_matrix(np.where(np.isnan(X), np.nan, np.round(X) * (np.abs(X) > 4)))


def memory_map(X: Any, folder: Path) -> Any:
    path = folder / f"{len(X)}.npy"
    np.save(path, X)
    return np.load(path, mmap_mode="r")


def dask_array(X: Any, folder: Path) -> Any:
    return pytest.importorskip("dask.array").from_array(X, chunks=(33, 3))


FORMS: dict[str, Form] = {"memory": dense, "CSR": sparse, "map": memory_map, "Dask": dask_array}


def fit(name: str, rows: list[Any], weights: list[Any] | None = None) -> clvm.ContrastiveLVM:
    """Fit at the default tolerance."""
    w, v = (None, None) if weights is None else weights
    model = clvm.ContrastiveLVM(1, 2, **MODELS[name])
    return model.fit(rows[0], background=rows[1], sample_weight=w, background_sample_weight=v)


def assert_same(found: Any, expected: Any, limit: float = 1e-8) -> None:
    for name in NAMES:
        ours, theirs = getattr(found, name), getattr(expected, name)
        scale = limit * np.abs(theirs).max()
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=scale, err_msg=name)
    assert found.lower_bound_ == pytest.approx(expected.lower_bound_, rel=limit)


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows stay where they are, in chunks of 20 rows."""
    monkeypatch.setattr(data, "MOST_LOADED", 0)
    monkeypatch.setattr(reader, "CHUNK_ENTRIES", 20 * D)


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("entries", ["complete", "missing"])
@pytest.mark.parametrize(
    ("name", "form"),
    [
        *product(MODELS, ["memory"]),
        *product(["isotropic", "Student-t rows", "ARD"], ["CSR", "map", "Dask"]),
    ],
)
def test_weights_are_repetitions(name: str, form: str, entries: str, tmp_path: Path) -> None:
    """At the default tolerance, starts and all."""
    X, B, *weights = sets(missing=entries == "missing")
    given = [FORMS[form](A, tmp_path) for A in (X, B)]
    plain = [FORMS["CSR" if form == "CSR" else "memory"](A, tmp_path) for A in (X, B)]
    twice = [
        A[np.repeat(np.arange(len(w)), w.astype(int))] for A, w in zip(plain, weights, strict=True)
    ]
    assert_same(fit(name, given, weights), fit(name, twice))


@pytest.mark.parametrize("n_features", [60, 600])
@pytest.mark.parametrize("name", ["isotropic", "feature noise"])
def test_many_features(
    name: str, n_features: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Through products with the rows; with fewer rows than features through the Gram matrix."""
    monkeypatch.setattr(data, "MOST_FEATURES", 50)
    X, B, *weights = sets(n_features=n_features)
    X, B = (np.nan_to_num(A, nan=1e3) for A in (X, B))
    twice = [repeated(A, w) for A, w in zip((X, B), weights, strict=True)]
    prepared = data.prepare([X, B], weights=weights, span=name == "isotropic")
    spans = name == "isotropic" and n_features == 600
    assert (prepared.span is not None) == spans
    assert spans or all(isinstance(s, scatter.OperatorScatter) for s in prepared.sets)
    assert_same(fit(name, [X, B], weights), fit(name, twice), 1e-7)


@pytest.mark.parametrize("name", ["isotropic", "Student-t"])
def test_single_precision(name: str) -> None:
    """Sums of products in single precision differ by their rounding."""
    X, B, *weights = sets()
    X, B = X.astype(np.float32), B.astype(np.float32)
    twice = [repeated(A, w) for A, w in zip((X, B), weights, strict=True)]
    assert_same(fit(name, [X, B], weights), fit(name, twice), 1e-6)


def test_large_sets_begin_where_their_repetition_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """Medians come from evenly spaced rows, of each as many as its weight says."""
    monkeypatch.setattr(scale_mixture_rows, "MOST_LOADED", 50 * D)
    monkeypatch.setattr(masked_rows, "MOST_LOADED", 0)
    X, B, *weights = sets(missing=True)
    twice = [repeated(A, w) for A, w in zip((X, B), weights, strict=True)]
    for name in ("isotropic", "Student-t"):
        assert_same(fit(name, [X, B], weights), fit(name, twice))


def test_fractions_scale_the_bound() -> None:
    """Half of every weight halves what the rows add, and leaves the optimum where it is."""
    X, B, *_ = sets()
    X, B = (A[~np.isnan(A).all(axis=1)] for A in (X, B))
    found, whole = (
        fit("isotropic", [X, B], [np.full(len(A), 0.5) for A in (X, B)]),
        fit("isotropic", [X, B]),
    )
    assert 2.0 * found.lower_bound_ == pytest.approx(whole.lower_bound_, abs=1e-4)
    np.testing.assert_allclose(found.target_components_, whole.target_components_, atol=1e-3)


def test_weighted_medians() -> None:
    rng = np.random.default_rng(0)
    X, weights = rng.standard_normal((50, 4)).round(1), rng.integers(0, 4, 50).astype(np.float64)
    X[rng.random(X.shape) < 0.2] = np.nan
    found = scale_mixture_rows._weighted_median(X, weights)
    np.testing.assert_allclose(found, np.nanmedian(repeated(X, weights), axis=0))
