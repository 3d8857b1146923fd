"""Readers: the same answers from memory, files and Dask, few passes, lost workers."""

import os
import signal
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from functools import cache, partial
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import contrastive_lvm as clvm
import contrastive_lvm.estimators.contrastive_lvm as contrastive_lvm_module
from contrastive_lvm.rows import data, reader
from contrastive_lvm.rows.dask_rows import DaskRows
from contrastive_lvm.rows.masked_rows import MaskedRows
from contrastive_lvm.rows.reader import UNCHECKED, Chunk, LocalRows, is_out_of_core
from contrastive_lvm.rows.row_cache import DiskCache, MemoryCache
from contrastive_lvm.rows.scatter import first_pass

dask = pytest.importorskip("dask", reason="the extra dask is not installed")
da = pytest.importorskip("dask.array", reason="the extra dask is not installed")

D = 8
MODELS: dict[str, dict[str, Any]] = {
    "complete": {},
    "feature noise": {"likelihood": clvm.Gaussian(noise="feature")},
    "missing": {},
    "Student-t": {"likelihood": clvm.StudentT()},
    "Student-t rows": {"likelihood": clvm.StudentT(per="sample")},
    "ARD": {"shared_prior": "ard"},
}
COMPLETE = ("complete", "feature noise", "ARD")
TOL, LOOSE = 1e-6, 1.0  # nats: the default; a few sweeps, where a sweep is mostly Dask's own time
NAMES = ("target_components_", "shared_components_", "mean_", "background_mean_", "noise_variance_")


@cache
def rows(name: str) -> tuple[Any, Any]:
    """Two shared and one target dimension far from the origin; some rows have no entry."""
    rng = np.random.default_rng(3)
    S, W = 2.0 * rng.standard_normal((D, 2)), 3.0 * rng.standard_normal((D, 1))
    X = rng.standard_normal((600, 2)) @ S.T + rng.standard_normal((600, 1)) @ W.T + 20.0
    B = rng.standard_normal((400, 2)) @ S.T - 5.0
    X, B = (A + 0.5 * rng.standard_t(5, A.shape) for A in (X, B))
    if name not in COMPLETE:
        for A in (X, B):
            A[rng.random(A.shape) < 0.1] = np.nan
        X[7] = X[128:192] = np.nan  # whole chunks among them
    return X, B


@cache
def in_memory(name: str, tol: float = TOL) -> clvm.ContrastiveLVM:
    X, B = rows(name)
    return fit(name, X, B, tol)


def fit(name: str, X: Any, B: Any, tol: float = TOL) -> clvm.ContrastiveLVM:
    engine = clvm.VariationalBayes(tol=tol) if name == "ARD" else clvm.EM(tol=tol)
    return clvm.ContrastiveLVM(1, 2, inference=engine, **MODELS[name]).fit(X, background=B)


def assert_same(
    model: Any, reference: Any, names: tuple[str, ...] = NAMES, limit: float = 1e-8
) -> None:
    """Up to rounding, of which an accelerated ascent of carried scales makes ten times more."""
    if isinstance(getattr(model, "likelihood", None), clvm.StudentT):
        limit *= 10.0
    for name in names:
        ours, theirs = np.asarray(getattr(model, name)), np.asarray(getattr(reference, name))
        scale = limit * np.abs(theirs).max()
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=scale, err_msg=name)
    assert model.lower_bound_ == pytest.approx(reference.lower_bound_, rel=limit)


def mapped(X: Any, path: Path, dtype: Any = np.float64) -> Any:
    np.save(path, X.astype(dtype))
    return np.load(path, mmap_mode="r")


@pytest.fixture(autouse=True)
def out_of_core(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small sets are worked on as large ones are: read again and again, not loaded."""
    monkeypatch.setattr(data, "MOST_LOADED", 0)


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are read 60 rows at a time, or in whole chunks."""
    monkeypatch.setattr(reader, "CHUNK_ENTRIES", 60 * D)


@pytest.fixture
def cluster(workers: Any) -> Iterator[Any]:
    with dask.config.set(scheduler=workers):
        yield workers


@pytest.fixture(scope="module")
def workers() -> Iterator[Any]:
    distributed = pytest.importorskip("distributed", reason="the extra dask is not installed")
    settings = {"distributed.worker.daemon": False, "distributed.logging.distributed": "critical"}
    with dask.config.set(settings):
        local = distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0"
        )
        with distributed.Client(local, set_as_default=False) as client:
            yield client
        with suppress(TimeoutError):  # before 2026, one that has lost a worker does not close
            local.close(timeout=30)


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("name", MODELS)
def test_chunks_of_memory_fit_alike(name: str) -> None:
    expected = in_memory(name)
    model = fit(name, *rows(name))
    assert_same(model, expected)
    assert len(model.posterior_.weights) == (2 if "Student" in name else 0)


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("name", MODELS)
def test_memory_maps_fit_alike(name: str, tmp_path: Path) -> None:
    X, B = (mapped(A, tmp_path / f"{i}.npy") for i, A in enumerate(rows(name)))
    assert_same(fit(name, X, B), in_memory(name))


@pytest.mark.parametrize(
    ("name", "chunks"),
    [*product(MODELS, [(233, D), (256, 3)]), ("missing", (17, D))],
    ids=str,
)
def test_dask_arrays_fit_alike(name: str, chunks: tuple[int, int]) -> None:
    X, B = (da.from_array(A, chunks=chunks) for A in rows(name))
    tol = TOL if chunks[0] == 233 else LOOSE
    with dask.config.set(scheduler="threads", num_workers=2):
        assert_same(fit(name, X, B, tol), in_memory(name, tol))


@pytest.mark.slow
def test_processes_fit_alike() -> None:
    with (
        ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool,
        dask.config.set(scheduler="processes", pool=pool),
    ):
        for name in ("complete", "Student-t"):
            X, B = (da.from_array(A, chunks=(300, D)) for A in rows(name))
            assert_same(fit(name, X, B, LOOSE), in_memory(name, LOOSE))


@pytest.mark.parametrize("name", ["complete", "missing", "Student-t rows", "ARD"])
def test_clusters_fit_alike(name: str, cluster: Any) -> None:
    X, B = (da.from_array(A, chunks=(200, D)).persist() for A in rows(name))
    assert_same(fit(name, X, B, LOOSE), in_memory(name, LOOSE))


def test_clusters_sweep_over_both_sets_at_once(
    workers: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that no worker waits for the last block of one set before it begins with the other."""
    expected = in_memory("missing", LOOSE)
    meeting, statistics = threading.Barrier(2), MaskedRows.statistics

    def met(self: MaskedRows, *args: Any) -> Any:
        meeting.wait(timeout=60)
        return statistics(self, *args)

    monkeypatch.setattr(MaskedRows, "statistics", met)
    # After the fit, what is normal is found from the background alone.
    monkeypatch.setattr(contrastive_lvm_module, "normal_components", lambda *_: None)
    X, B = (da.from_array(A, chunks=(400, D)) for A in rows("missing"))
    with dask.config.set(scheduler=workers):
        assert_same(fit("missing", X, B, LOOSE), expected)


def test_a_lost_worker_costs_nothing_but_time(
    cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of two is killed when a fit with weights in its memory is on its way."""
    X, B = (da.from_array(A, chunks=(200, D)) for A in rows("Student-t"))
    doomed = next(iter(cluster.run(os.getpid).values()))
    sweeps: list[int] = []

    def kill(self: DaskRows, *given: Any, **settings: Any) -> Any:
        sweeps.append(1)
        if len(sweeps) == 9:
            threading.Timer(0.02, os.kill, (doomed, signal.SIGKILL)).start()
        return renew(self, *given, **settings)

    renew = DaskRows.renew
    monkeypatch.setattr(DaskRows, "renew", kill)
    assert_same(fit("Student-t", X, B, LOOSE), in_memory("Student-t", LOOSE))
    assert len(sweeps) > 12
    assert doomed not in cluster.run(os.getpid).values()


class Counted:
    """An array that says how often its rows were read."""

    def __init__(self, X: Any, chunk: int = 110) -> None:
        self.X, self.shape, self.dtype = X, X.shape, X.dtype
        self.chunks = (chunk, X.shape[1])
        self.reads = np.zeros(len(X), dtype=int)

    def __getitem__(self, at: slice) -> Any:
        self.reads[at] += 1
        return self.X[at]


def counted_dask(X: Any, reads: Counter[int]) -> Any:
    lock = threading.Lock()

    def read(start: int) -> Any:
        with lock:
            reads[start] += 1
        return X[start : start + 90]

    blocks = [dask.delayed(read)(start) for start in range(0, len(X), 90)]
    sizes = [len(X[start : start + 90]) for start in range(0, len(X), 90)]
    return da.concatenate(
        [da.from_delayed(b, (n, D), X.dtype) for b, n in zip(blocks, sizes, strict=True)]
    )


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("name", COMPLETE)
def test_complete_rows_are_read_once(name: str) -> None:
    X, B = (Counted(A) for A in rows(name))
    assert_same(fit(name, X, B), in_memory(name))
    assert (X.reads == 1).all()
    assert (B.reads == 1).all()
    reads: Counter[int] = Counter()
    model = clvm.PPCA(2).fit(counted_dask(rows(name)[0], reads))
    assert set(reads.values()) == {1}
    assert len(reads) == 7
    names = ("components_", "mean_", "noise_variance_")
    assert_same(model, clvm.PPCA(2).fit(rows(name)[0]), names)


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize(("name", "first"), [("missing", 2), ("Student-t", 4)])
def test_other_rows_are_read_once_a_sweep(name: str, first: int) -> None:
    """And a few times for moments, medians and the start."""
    X, B = (Counted(A) for A in rows(name))
    model = fit(name, X, B)
    assert len(np.unique(X.reads)) == 1
    assert model.n_iter_ < X.reads[0] <= model.n_iter_ + first


def test_caches_have_no_names(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nothing can stay behind: the files are gone while they are in use."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    stored, store = [], DiskCache.store

    def noted(cache: DiskCache, chunk: int, value: Any) -> None:
        store(cache, chunk, value)
        stored.append(list(tmp_path.iterdir()))

    monkeypatch.setattr(DiskCache, "store", noted)
    X, B = rows("Student-t rows")
    model = fit("Student-t rows", Counted(X), Counted(B), LOOSE)
    assert model.posterior_.weights == ()
    assert len(stored) > 10
    assert not any(stored)


def test_a_missing_folder_for_caches_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", "/no/such/folder")
    X, B = rows("missing")
    with pytest.raises(OSError, match=r"^TMPDIR, the folder for .* set it to a folder with more"):
        fit("missing", Counted(X), Counted(B), LOOSE)


def test_a_full_folder_for_caches_is_a_sentence() -> None:
    resource = pytest.importorskip("resource", reason="a system without limits")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    X, B = rows("Student-t")
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    try:
        with pytest.raises(
            OSError, match=r"^TMPDIR, the folder for .* set it to a folder with more"
        ):
            fit("Student-t", Counted(X), Counted(B), LOOSE)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("change", [(-1, 0), (1, 0), (0, -1), (0, 1)])
@pytest.mark.parametrize("name", ["complete", "missing", "Student-t"])
def test_chunks_of_another_size_are_refused(name: str, change: tuple[int, int]) -> None:
    X, B = rows(name)

    def resized(block: Any) -> Any:
        n, d = (size + more for size, more in zip(block.shape, change, strict=True))
        return np.resize(block, (n, d))

    array = da.from_array(X, chunks=(100, D)).map_blocks(resized, dtype=X.dtype, meta=X[:0])
    reason = r"^X has a Dask chunk of shape \(\d+, \d\) that is declared as \(100, 8\); call X.comp"
    with pytest.raises(ValueError, match=reason):
        fit(name, array, B)
    with pytest.raises(ValueError, match=reason):
        np.asarray(in_memory(name).transform(array))


@pytest.mark.parametrize("kind", ["complex128", "str", "bytes", "object", "datetime64[s]"])
@pytest.mark.parametrize("name", ["complete", "missing", "Student-t"])
def test_chunks_that_are_no_real_numbers_are_refused(name: str, kind: str) -> None:
    """A chunk is computed only when it is read, and may not be what the array declares."""
    X, B = rows(name)
    lazy = da.from_array(X, chunks=(100, D))
    array = lazy.map_blocks(lambda block: block.astype(kind), dtype=X.dtype, meta=X[:0])
    reason = r"^X has entries of dtype \S+ in place of real numbers; convert them\.$"
    with pytest.raises(clvm.exceptions.InvalidDataError, match=reason):
        fit(name, array, B)
    with pytest.raises(clvm.exceptions.InvalidDataError, match=reason):
        np.asarray(in_memory(name).transform(array))


def failing(block: Any) -> Any:
    raise RuntimeError("this chunk fails")


def slow(folder: Path, block: Any) -> Any:
    """Wait until someone lets it go, or a minute has passed; other tasks may run meanwhile."""
    pytest.importorskip("distributed").secede()
    for _ in range(1200):
        if (folder / "stop").exists():
            return block
        time.sleep(0.05)
    (folder / "done").touch()
    return block


@pytest.mark.usefixtures("cluster")
@pytest.mark.parametrize("first", [True, False])
def test_an_error_on_one_set_ends_the_work_on_the_other(first: bool, tmp_path: Path) -> None:  # noqa: FBT001
    X, B = rows("complete")
    X, B = da.from_array(X, chunks=(60, D)), da.from_array(B, chunks=(len(B), D))
    bad = X.map_blocks(failing, dtype=X.dtype, meta=np.empty((0, 0)))
    endless = B.map_blocks(partial(slow, tmp_path), dtype=B.dtype, meta=np.empty((0, 0)))
    with pytest.raises(RuntimeError, match="this chunk fails"):
        fit("complete", bad if first else endless, endless if first else bad)
    (tmp_path / "stop").touch()
    assert not (tmp_path / "done").exists()


def h5py_array(X: Any, folder: Path) -> Any:
    h5py = pytest.importorskip("h5py", reason="h5py is not installed")
    return h5py.File(folder / "rows.h5", "w").create_dataset("X", data=X, chunks=(64, 4))


def zarr_array(X: Any, folder: Path) -> Any:
    zarr = pytest.importorskip("zarr", reason="the extra dask is not installed")
    array = zarr.create_array(
        store=str(folder / "rows.zarr"), shape=X.shape, chunks=(64, 4), dtype=X.dtype
    )
    array[:] = X
    return array


def backed(X: Any, folder: Path) -> Any:
    anndata = pytest.importorskip("anndata", reason="the extra anndata is not installed")
    path = folder / "rows.h5ad"
    anndata.AnnData(X).write_h5ad(path)
    return anndata.read_h5ad(path, backed="r").X


def backed_sparse(X: Any, folder: Path) -> Any:
    return backed(sp.csr_matrix(X), folder)


def sparse_blocks(X: Any, folder: Path) -> Any:
    return da.from_array(X, chunks=(130, D)).map_blocks(sp.csr_matrix, dtype=X.dtype)


STORES = (h5py_array, zarr_array, backed, backed_sparse, sparse_blocks)


@pytest.mark.filterwarnings("ignore:.*:FutureWarning")  # of anndata's own imports
@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("name", ["complete", "missing"])
def test_files_and_sparse_blocks_fit_alike(
    name: str, store: Callable[[Any, Path], Any], tmp_path: Path
) -> None:
    X, B = rows(name)
    out_of_core = store(X, tmp_path)
    assert is_out_of_core(out_of_core)
    model = fit(name, out_of_core, B, LOOSE)
    assert_same(model, in_memory(name, LOOSE))
    np.testing.assert_allclose(model.transform(out_of_core), model.transform(X), atol=1e-10)


PREDICTIONS: list[tuple[str, dict[str, Any]]] = [
    ("transform", {}),
    ("latents", {}),
    ("latents", {"of": "background"}),
    ("score_samples", {"of": "background"}),
    ("impute", {}),
    ("impute", {"return_std": True}),
    ("reconstruct", {"parts": ("target",)}),
    ("denoise", {}),
]


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize(("method", "options"), PREDICTIONS)
@pytest.mark.parametrize("name", ["complete", "Student-t"])
def test_predictions_of_rows_out_of_core(
    name: str, method: str, options: dict[str, Any], tmp_path: Path
) -> None:
    X = rows(name)[0]
    predicted = getattr(in_memory(name), method)
    expected = predicted(X, **options)
    from_map = predicted(mapped(X, tmp_path / "rows.npy"), **options)
    from_dask = predicted(da.from_array(X, chunks=(250, 3)), **options)
    assert type(from_map) is type(expected)
    if not isinstance(expected, tuple):
        expected, from_map, from_dask = (expected,), (from_map,), (from_dask,)
    for plain, read, lazy in zip(expected, from_map, from_dask, strict=True):
        if plain is None:
            assert read is None
            assert lazy is None
            continue
        assert isinstance(read, np.ndarray)
        assert isinstance(lazy, da.Array)
        assert lazy.chunks[0] == (250, 250, 100)
        assert lazy.dtype == plain.dtype
        np.testing.assert_allclose(read, plain, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(lazy.compute(), plain, rtol=1e-9, atol=1e-9)


def test_scores_and_outliers_of_lazy_rows() -> None:
    X, model = rows("Student-t")[0], in_memory("Student-t")
    lazy = da.from_array(X, chunks=(250, D))
    assert model.score(lazy) == pytest.approx(model.score(X))
    assert (model.outliers(lazy).rows == model.outliers(X).rows).all()


def test_predictions_of_a_cluster_are_its_own(cluster: Any) -> None:
    X = rows("missing")[0]
    lazy: Any = in_memory("missing").impute(da.from_array(X, chunks=(250, D)))
    np.testing.assert_allclose(lazy.compute(), in_memory("missing").impute(X), atol=1e-10)


def test_lazy_results_combine(cluster: Any) -> None:
    """With each other, and with the array that they come from, held by workers or not."""
    X, model = rows("missing")[0], in_memory("missing")
    for lazy in (da.from_array(X, chunks=(250, D)), da.from_array(X, chunks=(250, D)).persist()):
        part = lazy[100:]
        latents: Any = model.transform(part)
        scores, sums = model.score_samples(part), da.nansum(lazy, axis=0)
        found = dask.compute(2.0 * latents[:7], scores, sums)
        np.testing.assert_allclose(found[0], 2.0 * model.transform(X[100:107]), atol=1e-9)
        np.testing.assert_allclose(found[1], model.score_samples(X[100:]), atol=1e-9)
        np.testing.assert_allclose(found[2], np.nansum(X, axis=0))


def test_baselines_take_rows_out_of_core(tmp_path: Path) -> None:
    X, B = rows("complete")
    out_of_core = mapped(X, tmp_path / "X.npy"), da.from_array(B, chunks=(90, D))
    ours = clvm.ContrastivePCA(1, alpha=2.0).fit(out_of_core[0], background=out_of_core[1])
    theirs = clvm.ContrastivePCA(1, alpha=2.0).fit(X, background=B)
    np.testing.assert_allclose(ours.components_, theirs.components_, atol=1e-8)
    np.testing.assert_allclose(ours.transform(out_of_core[0]), theirs.transform(X), atol=1e-8)
    holes = rows("missing")[0]
    ppca, reference = (
        clvm.PPCA(2).fit(da.from_array(holes, chunks=(90, D))),
        clvm.PPCA(2).fit(holes),
    )
    assert_same(ppca, reference, ("components_", "mean_", "noise_variance_"))
    lazy: Any = ppca.impute(da.from_array(holes, chunks=(90, D)))
    np.testing.assert_allclose(lazy.compute(), reference.impute(holes), atol=1e-7)


@pytest.mark.parametrize("name", ["complete", "Student-t"])
def test_single_precision_and_columns_first(name: str, tmp_path: Path) -> None:
    X, B = (A.astype(np.float32) for A in rows(name))
    reference = fit(name, X, B, LOOSE)
    X_map = mapped(X, tmp_path / "X.npy", np.float32)
    for out_of_core in (X_map, da.from_array(X, chunks=(90, D)), np.asfortranarray(X)):
        model = fit(name, out_of_core, np.asfortranarray(B), LOOSE)
        assert_same(model, reference, limit=1e-5)


@pytest.mark.usefixtures("small_chunks")
def test_sparse_rows_with_missing_entries() -> None:
    X, B = (sp.csr_matrix(A) for A in rows("missing"))
    for name in ("missing", "Student-t"):
        assert_same(fit(name, X, B, LOOSE), in_memory(name, LOOSE))


def test_few_long_rows_are_fetched_once() -> None:
    rng = np.random.default_rng(0)
    X, B = rng.standard_normal((40, 60)), rng.standard_normal((15, 60))
    X[:, :20] += 3.0 * rng.standard_normal((40, 1))
    reference, seen = clvm.ContrastiveLVM(1, 2).fit(X, background=B), Counted(X, chunk=7)
    assert_same(clvm.ContrastiveLVM(1, 2).fit(seen, background=B), reference)
    assert (seen.reads == 1).all()


def test_numbers_of_other_kinds_are_read_as_floats(tmp_path: Path) -> None:
    X = np.random.default_rng(0).integers(0, 50, (300, D)).astype(np.int16)
    path = tmp_path / "rows.npy"
    np.save(path, X)
    model = clvm.PPCA(1).fit(np.load(path, mmap_mode="r"))
    assert_same(model, clvm.PPCA(1).fit(X), ("components_", "mean_", "noise_variance_"))


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("name", ["complete", "missing"])
def test_moments_add_up(name: str) -> None:
    X = rows(name)[0]
    found = first_pass(LocalRows(X), scatter=True)
    centred = np.nan_to_num(X - np.nanmean(X, axis=0))
    np.testing.assert_allclose(found.mean, np.nanmean(X, axis=0), rtol=1e-13)
    np.testing.assert_allclose(found.square, (centred**2).sum(axis=0), rtol=1e-11)
    assert found.complete == (name == "complete")
    assert found.n_empty == (0 if found.complete else 65)
    if found.complete:
        np.testing.assert_allclose(found.scatter, centred.T @ centred, rtol=1e-10, atol=1e-8)


def first_column(chunk: Chunk) -> tuple[float, Any]:
    """Sum the first column and how often rows were seen, and count that once more."""
    seen = np.zeros(len(chunk.rows)) if chunk.cached is None else chunk.cached
    weights = np.ones(len(chunk.rows)) if chunk.weights is None else chunk.weights
    return float(weights @ (chunk.rows[:, 0] + seen)), seen + 1.0


def plus(a: float, b: float) -> float:
    return a + b


@pytest.mark.parametrize("scheduler", ["sync", "threads", "another", "cluster"])
@pytest.mark.usefixtures("small_chunks")
def test_caches_stay_with_their_chunks(scheduler: str, request: pytest.FixtureRequest) -> None:
    X = rows("complete")[0]
    weights = np.random.default_rng(0).integers(0, 3, len(X)).astype(np.float64)
    weights[50:200] = 0.0
    readers = [
        LocalRows(X),
        LocalRows(Counted(X)),
        DaskRows(da.from_array(X, chunks=(77, 5)), "X", UNCHECKED),
    ]
    chosen: Any = request.getfixturevalue("workers") if scheduler == "cluster" else scheduler
    if scheduler == "another":  # one that may be in other processes, for all we know
        chosen = partial(dask.local.get_sync)
    with dask.config.set(scheduler=chosen):
        for reader in readers:
            first, cache = reader.renew(first_column, plus, weights=weights)
            second, cache = reader.renew(first_column, plus, weights=weights, cache=cache)
            third = reader.reduce(only_sum, plus, weights=weights, cache=cache)
            assert isinstance(cache, MemoryCache) == reader.in_memory
            expected = weights @ X[:, 0]
            np.testing.assert_allclose(
                [first, second, third], expected + weights.sum() * np.arange(3)
            )


def only_sum(chunk: Chunk) -> float:
    return first_column(chunk)[0]


def changed(X: Any, row: int, column: Any, value: float) -> Any:
    copy = X.copy()
    copy[row, column] = value
    return copy


@pytest.mark.parametrize("out_of_core", [Counted, partial(da.from_array, chunks=(90, D))])
@pytest.mark.parametrize("name", ["complete", "Student-t"])
def test_bad_values_are_refused_by_name(name: str, out_of_core: Callable[[Any], Any]) -> None:
    X, B = rows(name)
    with pytest.raises(ValueError, match=r"^X contains infinity"):
        fit(name, out_of_core(changed(X, 399, 2, np.inf)), B)
    with pytest.raises(ValueError, match=r"^background contains infinity"):
        fit(name, X, out_of_core(changed(B, 399, 2, -np.inf)))
    with pytest.raises(ValueError, match=r"^X has no observed entry in columns \['2'\]"):
        fit(name, out_of_core(np.where(np.arange(D) == 2, np.nan, X)), B)
    with pytest.raises(ValueError, match=r"^background has 7 features, but X has 8"):
        fit(name, X, out_of_core(B[:, :7]))
    with pytest.raises(ValueError, match="has 7 features, but ContrastiveLVM is expecting 8"):
        in_memory(name).transform(out_of_core(X[:, :7]))
    with pytest.raises(ValueError, match="The rows do not vary"):
        fit("complete", out_of_core(np.ones((50, D))), out_of_core(np.ones((40, D))))


def test_bad_arrays_are_refused() -> None:
    X, B = rows("complete")
    lazy = da.from_array(X, chunks=(90, D))
    with pytest.raises(ValueError, match=r"unknown chunk sizes.*X.compute_chunk_sizes\(\)"):
        fit("complete", lazy[lazy[:, 0] > 0], B)
    with pytest.raises(ValueError, match=r"X has shape \(600,\), but needs two dimensions"):
        fit("complete", lazy[:, 0], B)
    with pytest.raises(ValueError, match="X has dtype complex128"):
        fit("complete", lazy.astype(complex), B)
    with pytest.raises(ValueError, match="X has 1 sample"):
        fit("complete", lazy[:1], B)
    with pytest.raises(ValueError, match="X contains NaN, which this estimator cannot handle"):
        clvm.ContrastivePCA().fit(da.from_array(rows("missing")[0]), background=B)
    result: Any = in_memory("complete").transform(da.from_array(changed(X, 5, 0, np.inf)))
    with pytest.raises(ValueError, match="X contains infinity"):
        result.compute()
    with pytest.raises(ValueError, match="of='rows' is unknown"):
        in_memory("complete").score_samples(lazy, of="rows")
