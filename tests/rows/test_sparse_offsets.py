"""Sparse rows far from zero: the answers are those of the same rows as a dense array."""

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import contrastive_lvm as clvm
from contrastive_lvm.rows import data
from contrastive_lvm.rows.data import prepare
from contrastive_lvm.rows.scatter import OperatorScatter

D = 6
MODELS: dict[str, dict[str, Any]] = {
    "isotropic": {},
    "feature noise": {"likelihood": clvm.Gaussian("feature")},
    "operator": {},
    "weights": {},
    "missing": {},
    "Student-t": {"likelihood": clvm.StudentT()},
    "Dask": {},
}


def sets(offset: float) -> tuple[Any, Any]:
    """Rows with zeros in most columns, and one column at the offset."""
    rng = np.random.default_rng(0)
    S, W = 2.0 * rng.standard_normal((2, D, 1))
    X = rng.standard_normal((120, 1)) @ S.T + rng.standard_normal((120, 1)) @ W.T
    B = rng.standard_normal((90, 1)) @ S.T
    X, B = (A + 0.5 * rng.standard_normal(A.shape) for A in (X, B))
    for A in (X, B):
        A[:, 1:] *= rng.random((len(A), D - 1)) < 0.7
        A[:, 0] += offset
    return X, B


def as_sparse(name: str, X: Any) -> Any:
    rows = sp.csr_array(X)
    if name != "Dask":
        return rows
    da = pytest.importorskip("dask.array", reason="the extra dask is not installed")
    return da.from_array(X, chunks=(50, D)).map_blocks(sp.csr_array)


@pytest.mark.parametrize("offset", [1e0, 1e2, 1e4, 1e6, 1e8, 1e10])
@pytest.mark.parametrize("name", MODELS)
def test_sparse_rows_give_the_answers_of_dense_ones(
    name: str, offset: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(data, "MOST_LOADED", 0)
    X, B = sets(offset)
    options: dict[str, Any] = {}
    if name == "missing":
        X[3, 0] = X[5, 2] = np.nan
    if name == "weights":
        rng = np.random.default_rng(1)
        options["sample_weight"] = rng.integers(0, 3, len(X)).astype(float)
    model = clvm.ContrastiveLVM(1, 1, **MODELS[name])
    reference = model.fit(X, background=B, **options)
    if name == "operator":
        monkeypatch.setattr(data, "MOST_FEATURES", 0)
    found = clvm.ContrastiveLVM(1, 1, **MODELS[name])
    found.fit(as_sparse(name, X), background=as_sparse(name, B), **options)
    limit = 1e-5  # rounding of the data, 1e-6 at 1e10, moves where an ascent stops
    for attribute in ("noise_variance_", "mean_", "target_components_", "lower_bound_"):
        ours, theirs = (np.asarray(getattr(m, attribute)) for m in (found, reference))
        np.testing.assert_allclose(ours, theirs, rtol=limit, atol=limit, err_msg=attribute)
    np.testing.assert_allclose(
        found.score_samples(sp.csr_array(X)), reference.score_samples(X), rtol=limit
    )


@pytest.mark.parametrize("offset", [0.0, 1e8])
def test_products_of_the_operator(offset: float) -> None:
    """Ten columns are far from zero, the others are not."""
    rng = np.random.default_rng(2)
    X = rng.standard_normal((40, 100)) * (rng.random((40, 100)) < 0.2)
    X[:, :10] = rng.standard_normal((40, 10)) + offset
    C = rng.standard_normal((40, 2))
    (scatter,) = prepare([sp.csr_array(X)], covariates=[C]).sets
    assert isinstance(scatter, OperatorScatter)
    M = rng.standard_normal((100, 3))
    centred = X - X.mean(axis=0)
    np.testing.assert_allclose(scatter.product(M), centred.T @ (centred @ M), rtol=1e-7, atol=1e-6)
    np.testing.assert_allclose(scatter.square, (centred**2).sum(axis=0), rtol=1e-7, atol=1e-7)
    assert scatter.covariates is not None
    expected = centred.T @ (C - C.mean(axis=0))
    np.testing.assert_allclose(scatter.covariates.cross, expected, rtol=0, atol=1e-10)
