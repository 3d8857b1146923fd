"""Stochastic variational inference of rows out of core."""

import os
import subprocess
import sys
import threading
import tracemalloc
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import contrastive_lvm as clvm
from contrastive_lvm.black_box import start as starting
from contrastive_lvm.black_box.start import starting_point
from contrastive_lvm.black_box.svi.svi_rows import SviRows
from contrastive_lvm.estimators.linear_fit import read_input
from contrastive_lvm.linalg.matrices import widen
from contrastive_lvm.rows import minibatches as shuffled
from contrastive_lvm.rows import reader as stored
from contrastive_lvm.rows.reader import Checks, RowReader, open_rows

pytest.importorskip("numpyro", reason="the extra jax is not installed")
da = pytest.importorskip("dask.array", reason="the extra dask is not installed")
dask = pytest.importorskip("dask", reason="the extra dask is not installed")

N, M, D, CHUNK = 300, 220, 8, 40
pytestmark = [
    pytest.mark.filterwarnings("ignore:SVI was stopped"),
    pytest.mark.filterwarnings("ignore:.*:FutureWarning"),  # of anndata's own imports
]


@cache
def counts() -> tuple[Any, Any]:
    """Rows of counts, those of the target with missing entries."""
    rng = np.random.default_rng(3)
    S, W = 0.5 * rng.standard_normal((D, 2)), 0.8 * rng.standard_normal((D, 1))
    eta = 1.0 + rng.standard_normal((N, 2)) @ S.T + rng.standard_normal((N, 1)) @ W.T
    X = rng.poisson(np.exp(eta)).astype(np.float64)
    X[rng.random(X.shape) < 0.05] = np.nan
    return X, rng.poisson(np.exp(1.0 + rng.standard_normal((M, 2)) @ S.T)).astype(np.float64)


def fit(X: Any, B: Any, **settings: Any) -> clvm.ContrastiveLVM:
    engine = clvm.SVI(max_iter=100, batch_size=52, **settings)
    model = clvm.ContrastiveLVM(1, 2, likelihood="poisson", inference=engine, random_state=0)
    return model.fit(X, background=B)


@cache
def in_memory() -> clvm.ContrastiveLVM:
    return fit(*counts())


def assert_same(model: Any, reference: Any, limit: float = 1e-6) -> None:
    for name in ("target_components_", "shared_components_", "mean_", "background_mean_"):
        ours, theirs = getattr(model, name), getattr(reference, name)
        atol = limit * np.abs(theirs).max()
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=atol, err_msg=name)
    assert model.lower_bound_ == pytest.approx(reference.lower_bound_, rel=limit)


def memory_map(X: Any, path: Path) -> Any:
    np.save(path, X)
    return np.load(path, mmap_mode="r")


def whole_numbers(X: Any, path: Path) -> Any:
    return memory_map(X if np.isnan(X).any() else X.astype(np.int16), path)


def lazy(X: Any, path: Path) -> Any:
    return da.from_array(X, chunks=(CHUNK, 3))


def sparse_blocks(X: Any, path: Path) -> Any:
    return da.from_array(X, chunks=(CHUNK, D)).map_blocks(sp.csr_matrix, dtype=X.dtype)


def hdf5(X: Any, path: Path) -> Any:
    h5py = pytest.importorskip("h5py", reason="h5py is not installed")
    return h5py.File(path, "w").create_dataset("X", data=X, chunks=(CHUNK, 3))


def zarr(X: Any, path: Path) -> Any:
    library = pytest.importorskip("zarr", reason="the extra dask is not installed")
    array = library.create_array(store=path, shape=X.shape, chunks=(CHUNK, 3), dtype=X.dtype)
    array[:] = X
    return array


def backed(X: Any, path: Path) -> Any:
    anndata = pytest.importorskip("anndata", reason="the extra anndata is not installed")
    anndata.AnnData(X).write_h5ad(path)
    return anndata.read_h5ad(path, backed="r").X


def backed_sparse(X: Any, path: Path) -> Any:
    return backed(sp.csr_matrix(X), path)


STORES = (memory_map, whole_numbers, lazy, sparse_blocks, hdf5, zarr, backed, backed_sparse)
Store = Callable[[Any, Path], Any]


@pytest.mark.parametrize("store", STORES)
def test_minibatches_are_those_of_memory(store: Store, tmp_path: Path) -> None:
    X, B = (store(A, tmp_path / f"{i}.npy") for i, A in enumerate(counts()))
    with dask.config.set(scheduler="threads", num_workers=2):
        assert_same(fit(X, B), in_memory())


class Spied:
    """An array in chunks that remembers how many rows were read, and at most at once."""

    def __init__(self, X: Any) -> None:
        self.X, self.shape, self.dtype, self.chunks = X, X.shape, X.dtype, (CHUNK, X.shape[1])
        self.most, self.total = 0, 0

    def __getitem__(self, at: slice) -> Any:
        rows = self.X[at]
        self.most, self.total = max(self.most, len(rows)), self.total + len(rows)
        return rows


@pytest.fixture
def little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """A block is a chunk; three of them are shuffled together; a start sees a third of the rows."""
    monkeypatch.setattr(stored, "CHUNK_ENTRIES", CHUNK * D)
    monkeypatch.setattr(shuffled, "MOST_LOADED", 3 * CHUNK * D)
    monkeypatch.setattr(starting, "START_ENTRIES", (N + M) * D // 3)
    monkeypatch.setattr(starting, "START_ROWS", 10)


@pytest.mark.usefixtures("little_memory")
def test_nothing_reads_all_rows_at_once() -> None:
    X, B = (Spied(A) for A in counts())
    model = fit(X, B)
    assert max(X.most, B.most) <= CHUNK
    # Passes for checks, sizes and the start, then one an epoch.
    epochs = 1 + (100 + 16 + 256) * 52 / (N + M)
    assert X.total < N * (8 + epochs)
    from_dask = fit(*(da.from_array(A, chunks=(CHUNK, D)) for A in counts()))
    assert_same(from_dask, model, 1e-9)
    ours, theirs = model.target_components_[0], in_memory().target_components_[0]
    cosine = ours @ theirs / np.linalg.norm(ours) / np.linalg.norm(theirs)
    assert cosine > 0.95


@pytest.mark.usefixtures("little_memory")
def test_a_start_from_some_rows_has_latents_of_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    X, B = counts()
    state = in_memory().posterior_.state
    assert state is not None
    model = state.layout.model
    sizes = [np.zeros(N), np.zeros(M)]
    sets: list[Any] = [source(memory_map(X, tmp_path / "X.npy")), source(Spied(B))]
    start = starting_point(model, sets, sizes, seed=1)
    monkeypatch.setattr(starting, "START_ROWS", N)
    whole = starting_point(model, [X, B], sizes)
    assert [len(h) for h in start.latents] == [N, M]
    for which in (0, 1):
        fits = np.linalg.lstsq(start.latents[which], whole.latents[which], rcond=None)
        assert fits[1].sum() < 0.1 * (whole.latents[which] ** 2).sum()


def source(X: Any) -> RowReader:
    return open_rows(X, "X", Checks(lambda block: None, lambda observed: None))


@pytest.mark.usefixtures("little_memory")
@pytest.mark.parametrize("store", [memory_map, lazy, sparse_blocks, hdf5, backed_sparse])
def test_an_epoch_has_every_row_once(store: Store, tmp_path: Path) -> None:
    X = counts()[0]
    stream = shuffled.shuffled(source(store(X, tmp_path / "X.npy")), np.random.default_rng(0))
    orders = []
    for _ in range(2):
        places, rows = zip(*(stream.next(n) for n in (7, 250, N - 257)), strict=True)
        orders.append(np.concatenate(places))
        for at, some in zip(places, rows, strict=True):
            np.testing.assert_array_equal(widen(some), X[at])
    for order in orders:
        np.testing.assert_array_equal(np.sort(order), np.arange(N))
    assert (orders[0] != orders[1]).any()
    assert len(np.unique(orders[0][:50] // CHUNK)) >= 3


@pytest.mark.usefixtures("little_memory")
def test_chunks_are_computed_once_an_epoch() -> None:
    computed, lock = [], threading.Lock()

    def noted(block: Any) -> Any:
        with lock:
            computed.append(len(block))
        return block

    X = counts()[0]
    array = da.from_array(X, chunks=(CHUNK, D)).map_blocks(noted, dtype=X.dtype, meta=X[:0])
    rows = SviRows([source(array)], [np.zeros(N)], 30, np.random.default_rng(0))
    computed.clear()
    for _ in range(20):
        rows.next(1)
    assert sum(computed) == 2 * N


def test_memory_maps_are_not_copied(tmp_path: Path) -> None:
    """Half a gigabyte on a disk that keeps no zeros, minibatches of 32 rows."""
    big = np.memmap(tmp_path / "X", dtype=np.float64, mode="w+", shape=(1 << 17, 512))
    rows = SviRows([source(big)], [np.zeros(len(big))], 32, np.random.default_rng(0))
    tracemalloc.start()
    try:
        batch = rows.next(4)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert batch.rows[0].shape == (4, 32, 512)
    assert peak < big.nbytes / 50


@pytest.mark.parametrize("store", [memory_map, lazy, hdf5, zarr, backed_sparse])
def test_rows_are_taken_in_the_order_asked_for(store: Store, tmp_path: Path) -> None:
    X = counts()[0]
    at = np.random.default_rng(0).integers(N, size=70)
    found = source(store(X, tmp_path / "X.npy")).take(at)
    np.testing.assert_array_equal(widen(found), X[at])


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (-1.0, "X contains the value -1, which is negative"),
        (0.5, "X contains the value 0.5, which is not a whole number"),
        (np.inf, "X contains infinity"),
    ],
)
def test_values_are_refused_wherever_they_are(value: float, message: str, tmp_path: Path) -> None:
    X, B = counts()
    wrong = X.copy()
    wrong[-1, -1] = value
    for store in (memory_map, lazy, hdf5):
        with pytest.raises(ValueError, match=message):
            fit(store(wrong, tmp_path / f"{store.__name__}.npy"), B)


def test_empty_columns_are_refused() -> None:
    X, B = counts()
    with pytest.raises(ValueError, match=r"background has no observed entry in columns \['2'\]"):
        fit(X, da.from_array(np.where(np.arange(D) == 2, np.nan, B), chunks=(CHUNK, D)))


def test_nuts_has_all_rows_in_memory(tmp_path: Path) -> None:
    X, B = counts()
    model = clvm.ContrastiveLVM(1, 2, likelihood="poisson", inference="nuts")
    given = read_input(model, hdf5(X, tmp_path / "X.h5"), lazy(B, tmp_path))
    target, background = given.sets
    assert isinstance(target, np.ndarray)
    np.testing.assert_array_equal(target, X)
    np.testing.assert_array_equal(background, B)


PREDICTIONS: list[tuple[str, dict[str, Any]]] = [
    ("transform", {}),
    ("latents", {}),
    ("score_samples", {}),
    ("impute", {"return_std": True}),
    ("reconstruct", {}),
]


@pytest.mark.parametrize("sizes", ["totals", "given"])
@pytest.mark.parametrize(("method", "options"), PREDICTIONS)
def test_predictions_of_counts_elsewhere(
    method: str, options: dict[str, Any], sizes: str, tmp_path: Path
) -> None:
    X = counts()[0]
    factors = np.random.default_rng(0).uniform(0.5, 2.0, N)
    predicted = partial(getattr(in_memory(), method), **options)
    predicted = partial(predicted, size_factors=factors) if sizes == "given" else predicted
    expected = predicted(X)
    from_map, from_dask = predicted(memory_map(X, tmp_path / "X.npy")), predicted(lazy(X, tmp_path))
    if not isinstance(expected, tuple):
        expected, from_map, from_dask = (expected,), (from_map,), (from_dask,)
    for plain, read, computed in zip(expected, from_map, dask.compute(*from_dask), strict=True):
        np.testing.assert_allclose(read, plain, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(computed, plain, rtol=1e-5, atol=1e-6)


def test_size_factors_of_another_length_are_refused(tmp_path: Path) -> None:
    elsewhere = lazy(counts()[0], tmp_path)
    with pytest.raises(ValueError, match=rf"size_factors has shape \({N + 1},\), but there are"):
        in_memory().transform(elsewhere, size_factors=np.ones(N + 1))


TWO_DEVICES = """
import sys, warnings
import jax, numpy as np
from contrastive_lvm.black_box.svi.svi_rows import SviRows
from tests.black_box.test_svi_sources import counts, fit
assert len(jax.devices()) == 2
warnings.simplefilter("ignore")
next_batches, parts = SviRows.next, set()
def spied(self, n):
    batches = next_batches(self, n)
    parts.update(shard.data.shape[1:] for shard in batches.rows[0].addressable_shards)
    return batches
SviRows.next = spied
model = fit(*counts(), n_devices=2)
assert parts == {(15, 8)}, parts  # of 30 rows
W, S = model.target_components_, model.shared_components_
np.savez(sys.argv[1], W=W, S=S, bound=model.lower_bound_)
"""


def test_two_devices_give_what_one_gives(tmp_path: Path) -> None:
    flags = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=2"
    run = subprocess.run(
        [sys.executable, "-c", TWO_DEVICES, str(tmp_path / "found.npz")],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parents[2],
        env={**os.environ, "XLA_FLAGS": flags},
    )
    assert run.returncode == 0, run.stderr
    found, one = np.load(tmp_path / "found.npz"), in_memory()
    np.testing.assert_allclose(found["W"], one.target_components_, atol=1e-6)
    np.testing.assert_allclose(found["S"], one.shared_components_, atol=1e-6)
    assert found["bound"] == pytest.approx(one.lower_bound_, rel=1e-8)


def test_more_devices_than_there_are_are_refused() -> None:
    with pytest.raises(ValueError, match=r"n_devices=99 is more than the \d+ that JAX has"):
        fit(*counts(), n_devices=99)
    with pytest.raises(ValueError, match="n_devices=0 must be an integer of at least 1 or"):
        clvm.SVI(n_devices=0)


def test_devices_are_not_of_the_model(tmp_path: Path) -> None:
    model = fit(*counts(), n_devices=1)
    model.save(tmp_path / "counts.clvm")
    restored = clvm.load_model(tmp_path / "counts.clvm")
    assert restored.inference.n_devices is None
    assert restored.inference.max_iter == 100
    assert_same(restored, model, 0.0)
