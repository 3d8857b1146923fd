"""The estimate of memory is below what fits need, and refuses what cannot fit."""

import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import contrastive_lvm as clvm
from contrastive_lvm.exceptions import InvalidDataError
from contrastive_lvm.rows import data

FITS: dict[str, tuple[tuple[int, int], dict[str, Any]]] = {
    "many rows": ((2000, 40), {}),
    "scatter": ((1500, 700), {}),
    "operator": ((200, 900), {"likelihood": clvm.Gaussian("feature")}),
    "span": ((60, 5000), {}),
    "missing": ((300, 200), {}),
    "Student-t": ((300, 200), {"likelihood": clvm.StudentT()}),
    "map": ((60, 5000), {}),
}


def rows(name: str, folder: Path) -> Any:
    shape, _ = FITS[name]
    X = np.random.default_rng(0).standard_normal(shape)
    if name == "missing":
        X[::7, ::5] = np.nan
    if name != "map":
        return X
    np.save(folder / "X.npy", X)
    return np.load(folder / "X.npy", mmap_mode="r")


@pytest.mark.parametrize("name", FITS)
def test_fits_need_at_least_the_estimate(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    estimates, estimate = [], data.least_bytes

    def noted(*given: Any, **options: Any) -> int:
        estimates.append(estimate(*given, **options))
        return estimates[-1]

    monkeypatch.setattr(data, "least_bytes", noted)
    X = rows(name, tmp_path)
    model = clvm.ContrastiveLVM(3, 5, inference=clvm.EM(max_iter=2), **FITS[name][1])
    tracemalloc.start()
    try:
        with pytest.warns(match="max_iter"):
            model.fit(X, background=X[: len(X) // 2] + 0.0)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert 0 < estimates[0] < peak


def test_a_fit_that_cannot_fit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    X = np.random.default_rng(0).standard_normal((60, 5000))
    monkeypatch.setattr(data, "total_memory", lambda: 100_000)
    reason = (
        r"^X has 5000 features, and a fit of 3 dimensions needs .* memory, .* use fewer columns"
    )
    with pytest.raises(InvalidDataError, match=reason):
        clvm.ContrastiveLVM(1, 2).fit(X, background=X[:30])
    monkeypatch.setattr(data, "total_memory", lambda: None)  # unknown
    clvm.PPCA(2).fit(X)


def test_the_memory_of_this_machine() -> None:
    total = data.total_memory()
    assert total is None or total > 1e8
