"""Rows from anywhere: the answers of memory, few passes, lost workers."""

import os
import signal
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import cache, partial, reduce
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from contrastive_lvm.coordinate_ascent.sweep import Task
from contrastive_lvm.rows.streamed import StreamedGaps

import contrastive_lvm as clvm
from contrastive_lvm.rows import data, sums
from contrastive_lvm.rows import file_rows as stored
from contrastive_lvm.rows import streaming_median as selection
from contrastive_lvm.rows.dask_rows import DaskRows
from contrastive_lvm.rows.moments import Moments, moments_of
from contrastive_lvm.rows.reader import is_out_of_core

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
TOL, LOOSE = 1e-3, 1.0  # nats; where Dask's own time is what a sweep takes, a few sweeps say it all
NAMES = ("target_components_", "shared_components_", "mean_", "background_mean_", "noise_variance_")


@cache
def rows(name: str) -> tuple[Any, Any]:
    """Two shared and one target dimension far from the origin; gaps, and rows without entries."""
    rng = np.random.default_rng(3)
    S, W = 2.0 * rng.standard_normal((D, 2)), 3.0 * rng.standard_normal((D, 1))
    X = rng.standard_normal((600, 2)) @ S.T + rng.standard_normal((600, 1)) @ W.T + 20.0
    B = rng.standard_normal((400, 2)) @ S.T - 5.0
    X, B = (A + 0.5 * rng.standard_t(5, A.shape) for A in (X, B))
    if name not in COMPLETE:
        for A in (X, B):
            A[rng.random(A.shape) < 0.1] = np.nan
        X[7] = X[128:192] = np.nan  # a whole cell among them
    return X, B


@cache
def in_memory(name: str, tol: float = TOL) -> clvm.ContrastiveLVM:
    X, B = rows(name)
    return fit(name, X, B, tol)


def fit(name: str, X: Any, B: Any, tol: float = TOL) -> clvm.ContrastiveLVM:
    engine = clvm.VariationalBayes(tol=tol) if name == "ARD" else clvm.EM(tol=tol)
    return clvm.ContrastiveLVM(1, 2, inference=engine, **MODELS[name]).fit(X, background=B)


def assert_same(model: Any, reference: Any, names: tuple[str, ...] = NAMES) -> None:
    """To the last digit."""
    for name in (*names, "lower_bound_", "n_iter_"):
        ours, theirs = getattr(model, name), getattr(reference, name)
        np.testing.assert_array_equal(ours, theirs, err_msg=name)


def assert_alike(model: Any, reference: Any, names: tuple[str, ...] = NAMES) -> None:
    for name in names:
        ours, theirs = np.asarray(getattr(model, name)), np.asarray(getattr(reference, name))
        limit = 1e-8 * np.abs(theirs).max()
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=limit, err_msg=name)
    assert model.lower_bound_ == pytest.approx(reference.lower_bound_, rel=1e-10)


def mapped(X: Any, path: Path, dtype: Any = np.float64) -> Any:
    np.save(path, X.astype(dtype))
    return np.load(path, mmap_mode="r")


@pytest.fixture(autouse=True)
def streamed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small sets are worked on as large ones are: by cells, read again and again, not fetched."""
    monkeypatch.setattr(data, "MOST_FETCHED", 0)
    monkeypatch.setattr(sums, "MOST_ROWS", 64)


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are read 250 rows at a time, or in whole chunks."""
    monkeypatch.setattr(stored, "BLOCK_ENTRIES", 250 * D)


@pytest.fixture
def cluster(workers: Any) -> Iterator[Any]:
    with dask.config.set(scheduler=workers):
        yield workers


@pytest.fixture(scope="module")
def workers() -> Iterator[Any]:
    distributed = pytest.importorskip("distributed", reason="the extra dask is not installed")
    settings = {"distributed.worker.daemon": False, "distributed.logging.distributed": "critical"}
    with (
        dask.config.set(settings),
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0"
        ) as local,
        distributed.Client(local, set_as_default=False) as client,
    ):
        yield client


@pytest.mark.usefixtures("small_blocks")
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


def assert_close(ours: Any, theirs: Any) -> None:
    for one, other in zip(ours, theirs, strict=True):
        limit = 1e-9 * (1.0 + np.abs(other).max())
        np.testing.assert_allclose(one, other, rtol=0, atol=limit)


@pytest.mark.parametrize("name", MODELS)
def test_cells_say_what_all_rows_say(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Start, bound and statistics of two sweeps, and where a fit ends."""
    X, B = rows(name)
    by_cells, settings = in_memory(name), MODELS[name]
    model = clvm.Model(1, 2, settings.get("likelihood", clvm.Gaussian()))
    ours = Task(model, data.prepare(model, X, B))
    monkeypatch.setattr(data, "MOST_FETCHED", 600 * D)
    theirs = Task(model, data.prepare(model, X, B))
    for cells, whole in zip(ours.data.sets, theirs.data.sets, strict=True):
        mine, its = (data.covariance(s) for s in (cells, whole))
        np.testing.assert_allclose(mine.variance, its.variance, rtol=1e-12)
        found_product, expected = (c.product(np.eye(D)) for c in (mine, its))
        np.testing.assert_allclose(found_product, expected, rtol=0, atol=1e-3 * its.variance.max())
    point = theirs.spectral_starts()[0]
    carries = [task.start_carry(task.unflatten(point).L) for task in (ours, theirs)]
    for _ in range(2):
        (value, found), (best, reference) = (
            task.evaluate(point, carry) for task, carry in zip((ours, theirs), carries, strict=True)
        )
        assert value == pytest.approx(best, rel=1e-12)
        for some, others in zip(found.statistics, reference.statistics, strict=True):
            assert_close(some, others)
        carries = [found.carry, reference.carry]
    assert len(by_cells.posterior_.weights) == (2 if "Student" in name else 0)
    assert by_cells.lower_bound_ == pytest.approx(fit(name, X, B).lower_bound_, abs=0.1)


@pytest.mark.parametrize("elsewhere", ["map", "threads", "cluster"])
@pytest.mark.parametrize("name", MODELS)
def test_small_sets_are_fetched_and_give_the_same_digits(
    name: str,
    elsewhere: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    monkeypatch.setattr(data, "MOST_FETCHED", 600 * D)
    if elsewhere == "map":
        X, B = (mapped(A, tmp_path / f"{i}.npy") for i, A in enumerate(rows(name)))
    else:
        X, B = (da.from_array(A, chunks=(101, 3)) for A in rows(name))
    scheduler = request.getfixturevalue("workers") if elsewhere == "cluster" else "threads"
    with dask.config.set(scheduler=scheduler):
        assert_same(fit(name, X, B), fit(name, *rows(name)))


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
    meeting, statistics = threading.Barrier(2), StreamedGaps.statistics

    def met(self: StreamedGaps, *args: Any) -> Any:
        meeting.wait(timeout=60)
        return statistics(self, *args)

    monkeypatch.setattr(StreamedGaps, "statistics", met)
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
        return renewed(self, *given, **settings)

    renewed = DaskRows.renewed
    monkeypatch.setattr(DaskRows, "renewed", kill)
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


@pytest.mark.usefixtures("small_blocks")
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


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize(("name", "first"), [("missing", 2), ("Student-t", 10)])
def test_other_rows_are_read_once_a_sweep(name: str, first: int) -> None:
    """And a few times for moments, medians and the start."""
    X, B = (Counted(A) for A in rows(name))
    model = fit(name, X, B)
    assert len(np.unique(X.reads)) == 1
    assert model.n_iter_ < X.reads[0] <= model.n_iter_ + first


def test_weights_of_rows_elsewhere_leave_no_files(monkeypatch: pytest.MonkeyPatch) -> None:
    folders: list[Path] = []
    make = tempfile.mkdtemp

    def noted(*args: Any, **settings: Any) -> str:
        folders.append(Path(make(*args, **settings)))
        return str(folders[-1])

    monkeypatch.setattr(tempfile, "mkdtemp", noted)
    X, B = rows("Student-t rows")
    model = fit("Student-t rows", Counted(X), Counted(B), LOOSE)
    assert model.posterior_.weights == ()
    assert len(folders) > 10
    assert not any(folder.exists() for folder in folders)


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
@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("name", ["complete", "missing"])
def test_files_and_sparse_blocks_fit_alike(
    name: str, store: Callable[[Any, Path], Any], tmp_path: Path
) -> None:
    X, B = rows(name)
    elsewhere = store(X, tmp_path)
    assert is_out_of_core(elsewhere)
    model = fit(name, elsewhere, B, LOOSE)
    sparse = "sparse" in store.__name__ and name == "complete"  # whose squares are of zeros too
    (assert_alike if sparse else assert_same)(model, in_memory(name, LOOSE))
    np.testing.assert_allclose(model.transform(elsewhere), model.transform(X), atol=1e-10)


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


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize(("method", "options"), PREDICTIONS)
@pytest.mark.parametrize("name", ["complete", "Student-t"])
def test_predictions_of_rows_elsewhere(
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


def test_baselines_take_rows_elsewhere(tmp_path: Path) -> None:
    X, B = rows("complete")
    elsewhere = mapped(X, tmp_path / "X.npy"), da.from_array(B, chunks=(90, D))
    ours = clvm.ContrastivePCA(1, alpha=2.0).fit(elsewhere[0], background=elsewhere[1])
    theirs = clvm.ContrastivePCA(1, alpha=2.0).fit(X, background=B)
    np.testing.assert_allclose(ours.components_, theirs.components_, atol=1e-8)
    np.testing.assert_allclose(ours.transform(elsewhere[0]), theirs.transform(X), atol=1e-8)
    gaps = rows("missing")[0]
    ppca, reference = clvm.PPCA(2).fit(da.from_array(gaps, chunks=(90, D))), clvm.PPCA(2).fit(gaps)
    assert_same(ppca, reference, ("components_", "mean_", "noise_variance_"))
    lazy: Any = ppca.impute(da.from_array(gaps, chunks=(90, D)))
    np.testing.assert_allclose(lazy.compute(), reference.impute(gaps), atol=1e-7)


@pytest.mark.parametrize("name", ["complete", "Student-t"])
def test_single_precision_and_columns_first(name: str, tmp_path: Path) -> None:
    X, B = (A.astype(np.float32) for A in rows(name))
    reference = fit(name, X, B, LOOSE)
    X_map = mapped(X, tmp_path / "X.npy", np.float32)
    for elsewhere in (X_map, da.from_array(X, chunks=(90, D)), np.asfortranarray(X)):
        assert_same(fit(name, elsewhere, np.asfortranarray(B), LOOSE), reference)


def test_sparse_rows_with_gaps_are_worked_on_by_cells() -> None:
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


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("few", [40, 1 << 19])
def test_medians_are_exact(dtype: Any, few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    X = rng.standard_t(2, (1001, 6))
    X[:, 1], X[:, 2], X[:, 3] = rng.integers(-2, 3, 1001), -0.0, X[:, 3] * 1e-30
    X[:, 4] += 1e9
    X[rng.random(X.shape) < 0.1] = np.nan
    X = X.astype(dtype)
    monkeypatch.setattr(selection, "FEW", few)

    def total(function: Any, plus: Any) -> Any:
        return reduce(plus, [function(X[i : i + 130]) for i in range(0, len(X), 130)])

    counts, wide = (~np.isnan(X)).sum(axis=0).astype(np.float64), X.astype(np.float64)
    centre = selection.medians(total, counts)
    np.testing.assert_array_equal(centre, np.nanmedian(wide, axis=0))
    spread = selection.deviations(total, counts, centre)
    np.testing.assert_array_equal(spread, np.nanmedian(np.abs(wide - centre), axis=0))


@pytest.mark.parametrize("name", ["complete", "missing"])
def test_moments_add_up(name: str) -> None:
    X = rows(name)[0]
    of = partial(moments_of, lambda block: None, scatter=True)
    found = reduce(Moments.plus, [of(X[i : i + 77]) for i in range(0, len(X), 77)])
    centred = np.nan_to_num(X - np.nanmean(X, axis=0))
    np.testing.assert_allclose(found.mean, np.nanmean(X, axis=0), rtol=1e-13)
    np.testing.assert_allclose(found.square, (centred**2).sum(axis=0), rtol=1e-12)
    assert found.complete == (name == "complete")
    if found.scatter is not None:
        np.testing.assert_allclose(found.scatter, centred.T @ centred, rtol=1e-10, atol=1e-8)


def changed(X: Any, row: int, column: Any, value: float) -> Any:
    copy = X.copy()
    copy[row, column] = value
    return copy


@pytest.mark.parametrize("elsewhere", [Counted, partial(da.from_array, chunks=(90, D))])
@pytest.mark.parametrize("name", ["complete", "Student-t"])
def test_bad_values_are_refused_by_name(name: str, elsewhere: Callable[[Any], Any]) -> None:
    X, B = rows(name)
    with pytest.raises(ValueError, match=r"^X contains infinity"):
        fit(name, elsewhere(changed(X, 399, 2, np.inf)), B)
    with pytest.raises(ValueError, match=r"^background contains infinity"):
        fit(name, X, elsewhere(changed(B, 399, 2, -np.inf)))
    with pytest.raises(ValueError, match=r"^X has no observed entry in columns \['2'\]"):
        fit(name, elsewhere(np.where(np.arange(D) == 2, np.nan, X)), B)
    with pytest.raises(ValueError, match=r"^background has 7 features, but X has 8"):
        fit(name, X, elsewhere(B[:, :7]))
    with pytest.raises(ValueError, match="has 7 features, but ContrastiveLVM is expecting 8"):
        in_memory(name).transform(elsewhere(X[:, :7]))
    with pytest.raises(ValueError, match="The rows do not vary"):
        fit("complete", elsewhere(np.ones((50, D))), elsewhere(np.ones((40, D))))


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
