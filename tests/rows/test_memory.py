"""The estimate of memory is close to what fits need and below it; what cannot fit is refused."""

import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse

import contrastive_lvm as clvm
from contrastive_lvm.exceptions import InvalidDataError
from contrastive_lvm.rows import data as memory
from contrastive_lvm.rows.reader import LocalRows

FITS: dict[str, tuple[tuple[int, int], Any]] = {
    "many rows": ((20000, 40), clvm.Gaussian()),
    "scatter": ((1500, 700), clvm.Gaussian()),
    "scatter of fewer rows": ((1100, 1600), clvm.Gaussian("feature")),
    "operator": ((300, 9000), clvm.Gaussian("feature")),
    "span": ((60, 20000), clvm.Gaussian()),
    "missing": ((9000, 200), clvm.Gaussian()),
    "missing, wide": ((300, 900), clvm.Gaussian()),
    "Student-t": ((9000, 200), clvm.StudentT()),
    "Student-t, wide": ((300, 900), clvm.StudentT()),
    "Student-t of rows": ((9000, 200), clvm.StudentT(per="sample")),
    "sparse": ((9000, 500), clvm.Gaussian()),
    "sparse, wide": ((300, 20000), clvm.Gaussian()),
    "counts": ((3000, 60), clvm.Poisson()),
    "binary": ((3000, 60), clvm.Bernoulli()),
}


def rows(name: str) -> Any:
    rng = np.random.default_rng(0)
    X = rng.standard_normal(FITS[name][0])
    if "missing" in name:
        X[rng.random(X.shape) < 0.1] = np.nan
    if "sparse" in name:
        return sparse.csr_array(np.where(X > 2.0, X, 0.0))
    if name in ("counts", "binary"):
        counts = rng.poisson(1.0, X.shape).astype(float)
        return np.minimum(counts, 1.0) if name == "binary" else counts
    return X


def fitted_peak(name: str) -> tuple[int, int]:
    """Fit two sets, and return the estimate and the most memory that rows and fit took."""
    X = rows(name)
    sets = [X, X[: 2 * X.shape[0] // 3] + 0.0 * X[: 2 * X.shape[0] // 3]]
    model = clvm.ContrastiveLVM(3, 5, likelihood=FITS[name][1], inference=clvm.EM(max_iter=2))
    stored = ("data", "indices", "indptr") if sparse.issparse(X) else ("real",)
    held = sum(getattr(own, part).nbytes for own in sets for part in stored)
    tracemalloc.start()
    try:
        with pytest.warns(match="max_iter"):
            model.fit(sets[0], background=sets[1])
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    return memory.least_bytes(sets, 8, FITS[name][1]), held + peak


@pytest.mark.parametrize("name", FITS)
def test_the_estimate_is_below_the_peak_and_close(name: str) -> None:
    estimate, peak = fitted_peak(name)
    blocks = 30e6  # of rows that threads work on, which larger fits do not have more of
    assert estimate < peak < 2 * estimate + blocks


def test_rows_out_of_core_are_not_counted(tmp_path: Path) -> None:
    X = rows("many rows")
    np.save(tmp_path / "X.npy", X)
    kept = LocalRows(np.load(tmp_path / "X.npy", mmap_mode="r"))
    assert memory.least_bytes([kept], 2, clvm.Gaussian()) < X.nbytes / 10
    assert memory.least_bytes([X], 2, clvm.Gaussian()) > X.nbytes


@pytest.mark.parametrize(
    ("likelihood", "bytes_of_entry"), [("gaussian", 8), ("student_t", 16), ("poisson", 16)]
)
def test_a_fit_that_cannot_fit_is_refused(
    likelihood: str, bytes_of_entry: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    X = np.random.default_rng(0).poisson(1.0, (400, 500)).astype(float)
    model = clvm.ContrastiveLVM(1, 2, likelihood=likelihood, inference=clvm.EM(max_iter=3))
    monkeypatch.setattr(memory, "total_memory", lambda: bytes_of_entry * 600 * 500)
    reason = (
        r"^X is too large: a fit of 3 dimensions to 600 rows of 500 features needs at least .* GB "
        r"of memory, but there are .* GB; use fewer columns .* out of core"
    )
    with pytest.raises(InvalidDataError, match=reason):
        model.fit(X, background=X[:200])
    monkeypatch.setattr(memory, "total_memory", lambda: None)  # unknown
    with pytest.warns(match="max_iter"):
        model.fit(X, background=X[:200])


PROJECTIONS: dict[str, tuple[Any, tuple[int, int]]] = {
    "covariances": (clvm.ContrastivePCA(2, alpha=1.0), (1200, 700)),
    "in the span": (clvm.ContrastivePCA(2, alpha=1.0), (120, 9000)),
    "gcPCA": (clvm.GeneralizedContrastivePCA(2), (900, 500)),
    "gcPCA, few rows": (clvm.GeneralizedContrastivePCA(2), (200, 700)),
}


@pytest.mark.parametrize("name", PROJECTIONS)
def test_the_estimate_of_a_projection_is_below_its_peak_and_close(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, shape = PROJECTIONS[name]
    X, B = np.random.default_rng(0).standard_normal((2, *shape))
    tracemalloc.start()
    try:
        model.fit(X, background=B)
        peak = X.nbytes + B.nbytes + tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    monkeypatch.setattr(memory, "total_memory", lambda: peak)
    model.fit(X, background=B)
    monkeypatch.setattr(memory, "total_memory", lambda: peak // 3)
    with pytest.raises(InvalidDataError, match=r"X is too large: a fit to .* use fewer columns"):
        model.fit(X, background=B)


@pytest.mark.parametrize("model", [clvm.ContrastivePCA(2), clvm.GeneralizedContrastivePCA(2)])
def test_a_small_sparse_matrix_of_many_columns_is_refused_before_it_is_dense(model: Any) -> None:
    wide = sparse.eye_array(3 * 10**6, format="csr")[: 2 * 10**6]
    with pytest.raises(InvalidDataError, match=r"needs at least .* GB of memory"):
        model.fit(wide, background=wide[1:])


def test_the_memory_of_this_machine() -> None:
    total = memory.total_memory()
    assert total is None or total > 1e8
