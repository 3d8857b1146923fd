"""The same rows in unusual arrays and sparse matrices give the same answers, and stay unchanged."""

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import contrastive_lvm as clvm
from contrastive_lvm.rows import data

da = pytest.importorskip("dask.array", reason="the extra dask is not installed")

D = 6


@cache
def sets() -> tuple[Any, Any]:
    """Rows of eighths, which half precision holds exactly, some of them zero."""
    rng = np.random.default_rng(0)
    S, W = 2.0 * rng.standard_normal((2, D, 1))
    X = rng.standard_normal((120, 1)) @ S.T + rng.standard_normal((120, 1)) @ W.T
    B = rng.standard_normal((90, 1)) @ S.T
    X, B = (np.round(8.0 * (A + 0.5 * rng.standard_normal(A.shape))) / 8.0 for A in (X, B))
    X[3, 0] = X[5, 2] = np.nan
    return X, B


def read_only(X: Any) -> Any:
    copy = X.copy()
    copy.flags.writeable = False
    return copy


def backwards(X: Any) -> Any:
    return np.ascontiguousarray(X[::-1])[::-1]


def explicit_zeros(X: Any) -> Any:
    n, d = X.shape
    parts = (X.ravel().copy(), np.tile(np.arange(d), n), np.arange(0, n * d + 1, d))
    return sp.csr_array(parts, shape=X.shape)


def duplicates(X: Any) -> Any:
    """Every entry as two halves, with indices of 64 bits."""
    once = sp.csr_array(X)
    indices = np.repeat(once.indices, 2).astype(np.int64)
    parts = (np.repeat(once.data / 2.0, 2), indices, 2 * once.indptr.astype(np.int64))
    return sp.csr_array(parts, shape=X.shape)


def unsorted(X: Any) -> Any:
    once = sp.csr_array(X)
    pairs = zip(once.indptr[:-1], once.indptr[1:], strict=True)
    order = np.concatenate([np.arange(begin, end)[::-1] for begin, end in pairs])
    return sp.csr_array((once.data[order], once.indices[order], once.indptr), shape=X.shape)


def chunks(X: Any) -> Any:
    return da.from_array(X, chunks=(40, D))


def empty_chunks(X: Any) -> Any:
    nothing = da.zeros((0, D), chunks=(1, D))
    return da.concatenate([nothing, chunks(X[:50]), nothing, chunks(X[50:]), nothing])


FORMS: dict[str, Callable[[Any], Any]] = {
    "objects": lambda X: X.astype(object),
    "read-only": read_only,
    "negative strides": backwards,
    "big-endian": lambda X: X.astype(">f8"),
    "big-endian single": lambda X: X.astype(">f4"),
    "half precision": lambda X: X.astype(np.float16),
    "extended precision": lambda X: X.astype(np.longdouble),
    "explicit zeros": explicit_zeros,
    "duplicates": duplicates,
    "unsorted indices": unsorted,
    "CSC": sp.csc_matrix,
    "empty chunks": empty_chunks,
    "big-endian chunks": lambda X: chunks(X.astype(">f8")),
    "half-precision chunks": lambda X: chunks(X.astype(np.float16)),
    "read-only chunks": lambda X: chunks(read_only(X)),
    "chunks backwards": lambda X: chunks(np.ascontiguousarray(X[::-1]))[::-1],
    "chunks of duplicates": lambda X: chunks(X).map_blocks(duplicates, dtype=np.float64),
}


@cache
def of_plain_rows(likelihood: str) -> clvm.ContrastiveLVM:
    X, B = sets()
    return clvm.ContrastiveLVM(1, 1, likelihood=likelihood).fit(X, background=B)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("likelihood", ["gaussian", "student_t"])
def test_the_same_rows_in_another_form(
    form: str, likelihood: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(data, "MOST_LOADED", 0)
    (X, B), reference = sets(), of_plain_rows(likelihood)
    given: Any = [FORMS[form](A) for A in (X, B)]
    found = clvm.ContrastiveLVM(1, 1, likelihood=likelihood).fit(given[0], background=given[1])
    assert found.lower_bound_ == pytest.approx(reference.lower_bound_, rel=1e-7)
    ours, theirs = np.asarray(found.transform(given[0])), reference.transform(X)
    np.testing.assert_allclose(ours, theirs, atol=1e-5)
    if hasattr(given[0], "indices"):  # a sparse matrix
        again: Any = FORMS[form](X)
        np.testing.assert_array_equal(given[0].data, again.data)
        np.testing.assert_array_equal(given[0].indices, again.indices)
