"""AnnData whose values are in a file or in a Dask array, and sizes of rows of counts."""

import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

import contrastive_lvm as clvm
from contrastive_lvm import anndata as adapter
from contrastive_lvm.rows import data
from contrastive_lvm.rows import reader as stored
from contrastive_lvm.rows import row_subset as chosen

anndata = pytest.importorskip("anndata", reason="the extra anndata is not installed")

D = 8
WORDS: dict[str, Any] = {"groupby": "condition", "target": "stim", "background": "ctrl"}
GROUPS = np.random.default_rng(0).permutation(np.repeat(["stim", "ctrl", "other"], [300, 250, 50]))
MODELS: dict[str, dict[str, Any]] = {
    "complete": {},
    "missing": {},
    "Student-t": {"likelihood": "student_t"},
}


def values(name: str) -> np.ndarray:
    found = clvm.datasets.make_contrastive(300, 300, n_features=D, n_shared=2, random_state=0)
    rows = np.concatenate([found.target, found.background])
    rows[np.abs(rows) < 0.5] = 0.0
    if name != "complete":
        rows[np.random.default_rng(1).random(rows.shape) < 0.05] = np.nan
    return rows


def cells(X: Any) -> Any:
    obs = pd.DataFrame({"condition": GROUPS}, index=[f"cell{i}" for i in range(len(GROUPS))])
    return anndata.AnnData(X, obs=obs, var=pd.DataFrame(index=[f"gene{i}" for i in range(D)]))


def fitted(adata: Any, name: str) -> Any:
    model = clvm.ContrastiveLVM(1, 2, inference=clvm.EM(tol=0.1), **MODELS[name])
    return adapter.fit(adata, model, **WORDS)


@pytest.fixture(autouse=True)
def streamed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small sets are worked on as large ones are, and files are read 50 rows at a time."""
    monkeypatch.setattr(data, "MOST_LOADED", 0)
    monkeypatch.setattr(stored, "CHUNK_ENTRIES", 50 * D)
    monkeypatch.setattr(chosen, "MOST_ENTRIES", 100 * D)


@pytest.fixture
def most_read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Rows of a file that are read at a time."""
    seen = [0]
    old = chosen.SelectedRows.__getitem__

    def spy(self: Any, rows: slice) -> Any:
        found = old(self, rows)
        seen.append(found.shape[0])
        return found

    monkeypatch.setattr(chosen.SelectedRows, "__getitem__", spy)
    return seen


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("form", [np.asarray, sp.csr_matrix])
@pytest.mark.filterwarnings("ignore:n_shared=", "ignore:The noise of some features")
def test_backed_files_are_read_by_blocks(
    form: Any, name: str, tmp_path: Path, most_read: list[int]
) -> None:
    held = cells(form(values(name)))
    held.write_h5ad(tmp_path / "cells.h5ad")
    backed = anndata.read_h5ad(tmp_path / "cells.h5ad", backed="r")
    theirs, ours = fitted(held, name), fitted(backed, name)
    assert 1 < max(most_read) <= 64
    assert list(ours.feature_names_in_) == list(held.var_names)
    for part in ("target", "shared"):
        a, b = (getattr(m, f"{part}_components_") for m in (ours, theirs))
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-8 * np.abs(b).max())
        latents = f"X_clvm_{part}"
        np.testing.assert_allclose(backed.obsm[latents], held.obsm[latents], atol=1e-8)
    backed.file.close()


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.filterwarnings("ignore:n_shared=", "ignore:The noise of some features")
def test_dask_arrays_are_computed_by_chunks(name: str) -> None:
    da = pytest.importorskip("dask.array", reason="the extra dask is not installed")
    X, reads = values(name), Counter[int]()

    def read(block: np.ndarray, block_info: Any = None) -> np.ndarray:
        reads[block_info[0]["chunk-location"][0]] += 1
        return block

    lazy = cells(da.from_array(X, chunks=(130, D)).map_blocks(read, dtype=X.dtype))
    reads.clear()
    held = cells(X)
    ours, theirs = fitted(lazy, name), fitted(held, name)
    np.testing.assert_allclose(ours.target_components_, theirs.target_components_, atol=1e-8)
    for latents in ("X_clvm_target", "X_clvm_shared"):
        assert type(lazy.obsm[latents]) is np.ndarray
        np.testing.assert_allclose(lazy.obsm[latents], held.obsm[latents], atol=1e-9)
    if name == "complete":  # once for each group, once for the latents of all
        assert reads == dict.fromkeys(range(5), 3)


def test_baselines_and_dask_of_sparse_chunks() -> None:
    da = pytest.importorskip("dask.array", reason="the extra dask is not installed")
    X = values("complete")
    for estimator in (clvm.PPCA(2), clvm.ContrastivePCA(2, alpha=1.0)):
        lazy = cells(da.from_array(X, chunks=(130, D)).map_blocks(sp.csr_matrix))
        held = cells(X)
        for adata in (lazy, held):
            adapter.fit(adata, estimator, **WORDS)
        np.testing.assert_allclose(
            lazy.obsm["X_clvm_target"], held.obsm["X_clvm_target"], atol=1e-8
        )


def counts() -> Any:
    rng = np.random.default_rng(0)
    sizes = rng.lognormal(0.0, 0.5, len(GROUPS))
    adata = cells(rng.poisson(5.0 * sizes[:, None], (len(GROUPS), D)).astype(np.float32))
    adata.obs["size"], adata.obs["word"] = sizes, "a"
    adata.obs["broken"] = np.where(np.arange(len(sizes)) == 7, -1.0, sizes)
    return adata


def counted() -> clvm.ContrastiveLVM:
    engine = clvm.SVI(max_iter=40)
    return clvm.ContrastiveLVM(1, 1, likelihood="poisson", inference=engine, random_state=0)


def test_sizes_of_observations() -> None:
    pytest.importorskip("jax", reason="the extra jax is not installed")
    adata = counts()
    X, sizes = adata.X, adata.obs["size"].to_numpy()
    target, control = (groups == GROUPS for groups in (np.array("stim"), np.array("ctrl")))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # few steps
        ours = adapter.fit(adata, counted(), **WORDS, size_factors="size")
        theirs = counted().fit(
            X[target],
            background=X[control],
            size_factors=sizes[target],
            background_size_factors=sizes[control],
        )
    np.testing.assert_allclose(ours.target_components_, theirs.target_components_, rtol=1e-6)
    np.testing.assert_allclose(
        adata.obsm["X_clvm_target"], theirs.transform(X, size_factors=sizes), atol=1e-5
    )
    expected = theirs.latents(X[control], of="background", size_factors=sizes[control]).shared
    np.testing.assert_allclose(adata.obsm["X_clvm_shared"][control], expected, atol=1e-5)
    assert adata.uns["clvm"]["size_factors"] == "size"


@pytest.mark.parametrize(
    ("estimator", "column", "pattern"),
    [
        (counted(), "n", r"size_factors='n' is not a column of adata\.obs; it has 'condition', "),
        (
            counted(),
            "word",
            r"size_factors='word' has 'a', but a size factor must be a positive number; ",
        ),
        (
            counted(),
            "broken",
            r"size_factors='broken' has -1\.0, but a size factor must be a positive number",
        ),
        (
            clvm.PPCA(1),
            "size",
            r"size_factors='size' needs a model of counts with size factors",
        ),
        (clvm.ContrastiveLVM(1, 1), "size", r"size_factors were given, but Gaussian\("),
    ],
    ids=["no column", "words", "not positive", "PPCA", "Gaussian"],
)
def test_sizes_that_are_none(estimator: Any, column: str, pattern: str) -> None:
    adata = counts()
    with pytest.raises(ValueError, match=pattern) as caught:
        adapter.fit(adata, estimator, **WORDS, size_factors=column)
    assert str(caught.value).endswith(".")
    assert not len(adata.obsm)
