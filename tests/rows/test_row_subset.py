"""Rows chosen out of what is elsewhere: read by stretches, never as a whole."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from contrastive_lvm.linalg.matrices import is_sparse
from contrastive_lvm.rows import row_subset as chosen
from contrastive_lvm.rows.reader import UNCHECKED, is_out_of_core, open_rows
from contrastive_lvm.rows.row_subset import select_rows

D = 5
Store = Callable[[np.ndarray, Path], Any]


def values(n: int, seed: int) -> np.ndarray:
    rows = np.random.default_rng(seed).standard_normal((n, D))
    return np.where(np.abs(rows) > 0.7, rows, 0.0)


def as_map(X: np.ndarray, path: Path) -> Any:
    np.save(path / "rows.npy", X)
    return np.load(path / "rows.npy", mmap_mode="r")


def as_hdf5(X: np.ndarray, path: Path) -> Any:
    h5py = pytest.importorskip("h5py", reason="the extra anndata is not installed")
    file = h5py.File(path / "rows.h5", "w")
    return file.create_dataset("rows", data=X, chunks=(7, 2))


def as_zarr(X: np.ndarray, path: Path) -> Any:
    zarr = pytest.importorskip("zarr", reason="the extra dask is not installed")
    return zarr.create_array(store=str(path / "rows.zarr"), data=X, chunks=(7, D))


def as_backed(X: np.ndarray, path: Path) -> Any:
    anndata = pytest.importorskip("anndata", reason="the extra anndata is not installed")
    anndata.AnnData(sp.csr_matrix(X)).write_h5ad(path / "rows.h5ad")
    return anndata.read_h5ad(path / "rows.h5ad", backed="r").X


def as_dask(X: np.ndarray, _: Path) -> Any:
    da = pytest.importorskip("dask.array", reason="the extra dask is not installed")
    return da.from_array(X, chunks=(9, 3))


def as_dask_of_sparse(X: np.ndarray, _: Path) -> Any:
    da = pytest.importorskip("dask.array", reason="the extra dask is not installed")
    return da.from_array(X, chunks=(9, D)).map_blocks(sp.csr_matrix)


STORES = (as_map, as_hdf5, as_zarr, as_backed, as_dask, as_dask_of_sparse)


def dense(rows: Any) -> np.ndarray:
    return np.asarray(rows.toarray() if is_sparse(rows) else rows)


@pytest.mark.parametrize("share", [0.02, 0.5, 1.0])
@pytest.mark.parametrize("store", STORES)
def test_all_of_them_in_order(
    store: Store, share: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chosen, "MOST_ENTRIES", 20 * D)
    X, rng = values(200, 0), np.random.default_rng(1)
    wanted = rng.random(200) < share
    wanted[3] = True
    rows = select_rows(store(X, tmp_path), wanted)
    assert is_out_of_core(rows)
    assert rows.shape == (wanted.sum(), D)
    source = open_rows(rows, "X", UNCHECKED)
    found = np.concatenate([dense(block) for block in source.read()])
    np.testing.assert_array_equal(found, X[wanted])
    some = rng.permutation(int(wanted.sum()))[:10]
    np.testing.assert_array_equal(dense(source.take(some)), X[wanted][some])


class Recorded:
    """An array that remembers which slices of it were read."""

    chunks, dtype = None, np.dtype(np.float64)

    def __init__(self, X: np.ndarray) -> None:
        self.X, self.shape = X, X.shape
        self.read: list[tuple[int, int]] = []

    def __getitem__(self, rows: slice) -> np.ndarray:
        self.read.append((rows.start, rows.stop))
        return np.asarray(self.X[rows])


def test_what_lies_far_between_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chosen, "MOST_ENTRIES", 20 * D)
    X = Recorded(values(1000, 0))
    wanted = np.zeros(1000, dtype=bool)
    wanted[[5, 7, 300, 301, 319, 321, 999]] = True
    rows = select_rows(X, wanted)[0:7]
    np.testing.assert_array_equal(rows, X.X[wanted])
    assert X.read == [(5, 8), (300, 320), (321, 322), (999, 1000)]
    np.testing.assert_array_equal(select_rows(X, wanted)[4:6], X.X[[319, 321]])
