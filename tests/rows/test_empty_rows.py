"""Rows without any entry are left out, also in large sets where nothing else is missing."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import contrastive_lvm as clvm
from contrastive_lvm.rows import data, masked_rows, reader, scale_mixture_rows

D = 6
MODELS: dict[str, dict[str, Any]] = {
    "isotropic": {},
    "feature noise": {"likelihood": clvm.Gaussian("feature")},
    "Student-t": {"likelihood": clvm.StudentT()},
    "ARD": {"shared_prior": clvm.ARD()},
}


def sets() -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    S, W = 2.0 * rng.standard_normal((2, D, 1))
    X = rng.standard_normal((120, 1)) @ S.T + rng.standard_normal((120, 1)) @ W.T
    B = rng.standard_normal((90, 1)) @ S.T
    X, B = (A + 0.5 * rng.standard_normal(A.shape) for A in (X, B))
    return X, B


def held(form: str, X: Any, path: Path) -> Any:
    if form == "memory":
        return X
    if form == "Dask":
        return pytest.importorskip("dask.array").from_array(X, chunks=(30, D))
    np.save(path, X)
    return np.load(path, mmap_mode="r")


@pytest.fixture
def large_sets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small sets are treated as those of more than 8.4 million entries are."""
    monkeypatch.setattr(data, "MOST_LOADED", 0)
    monkeypatch.setattr(masked_rows, "MOST_LOADED", 0)
    monkeypatch.setattr(reader, "LEAST_ENTRIES", 30 * D)


@pytest.mark.usefixtures("large_sets")
@pytest.mark.parametrize("form", ["memory", "map", "Dask"])
@pytest.mark.parametrize("name", MODELS)
def test_empty_rows_of_large_sets(name: str, form: str, tmp_path: Path) -> None:
    X, B = sets()
    whole = clvm.ContrastiveLVM(1, 1, **MODELS[name]).fit(X, background=B)
    with_empty = np.insert(X, [0, 7, *[60] * 64], np.nan, axis=0)
    rows = [held(form, A, tmp_path / f"{i}.npy") for i, A in enumerate((with_empty, B))]
    found = clvm.ContrastiveLVM(1, 1, **MODELS[name]).fit(rows[0], background=rows[1])
    assert found.lower_bound_ == pytest.approx(whole.lower_bound_, rel=1e-8)
    np.testing.assert_allclose(found.noise_variance_, whole.noise_variance_, rtol=1e-7)


def test_medians_of_rows_that_are_all_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every other row is empty, just those that are looked at for medians."""
    X, B = sets()
    whole = clvm.ContrastiveLVM(1, 1, likelihood="student_t").fit(X, background=B)
    monkeypatch.setattr(scale_mixture_rows, "MOST_LOADED", len(X) * D)
    with_empty = np.full((2 * len(X), D), np.nan)
    with_empty[::2] = X
    found = clvm.ContrastiveLVM(1, 1, likelihood="student_t").fit(with_empty, background=B)
    assert found.lower_bound_ == pytest.approx(whole.lower_bound_, rel=1e-5)


@pytest.mark.usefixtures("large_sets")
@pytest.mark.parametrize("per", ["element", "sample"])
@pytest.mark.parametrize("empty", ["target", "background"])
def test_rows_without_a_part_have_weight_one_and_are_saved(
    per: Any, empty: str, tmp_path: Path
) -> None:
    left_out = np.r_[3, 30:60, 80]  # a whole chunk, too
    given = dict(zip(("target", "background"), sets(), strict=True))
    given[empty][left_out] = np.nan
    weights = np.ones(len(given["target"]))
    weights[:2] = 0.0
    model = clvm.ContrastiveLVM(1, 1, likelihood=clvm.StudentT(per=per))
    model.fit(given["target"], background=given["background"], sample_weight=weights)
    for rows, of, found in zip(given.values(), given, model.posterior_.weights, strict=True):
        absent = np.zeros(len(rows), dtype=bool)
        absent[left_out] = of == empty
        absent[:2] |= of == "target"
        assert found.shape == (len(rows), D if per == "element" else 1)
        assert (found[absent] == 1.0).all()
        expected = model.outliers(rows, of=of).weights[~absent]
        np.testing.assert_allclose(found[~absent], expected, atol=1e-2)
    model.save(tmp_path / "model.clvm")
    again = clvm.load_model(tmp_path / "model.clvm")
    X = given["target"]
    np.testing.assert_array_equal(again.transform(X), model.transform(X))
