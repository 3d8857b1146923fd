"""Sums over cells: the same to the last digit for all cuts, threads and places."""

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from operator import or_
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from contrastive_lvm.rows.graph import Graph
from threadpoolctl import threadpool_limits

import contrastive_lvm as clvm
from contrastive_lvm import scale
from contrastive_lvm.coordinate_ascent import engine
from contrastive_lvm.linalg.anderson import ascend
from contrastive_lvm.rows import sums
from contrastive_lvm.rows.file_rows import LocalRows
from contrastive_lvm.rows.reader import Checks, RowReader
from contrastive_lvm.rows.row_cache import DiskCache, MemoryCache
from contrastive_lvm.rows.threads import _blas_threads, one_blas_thread

dask = pytest.importorskip("dask", reason="the extra dask is not installed")
da = pytest.importorskip("dask.array", reason="the extra dask is not installed")

from contrastive_lvm.rows.dask_rows import DaskRows  # noqa: E402

N, D = 523, 5
CHECKS = Checks(lambda rows: None, lambda counts: None)


def cuts(rng: np.random.Generator, n: int) -> tuple[int, ...]:
    """Sizes of random blocks, some of them without rows."""
    edges = np.sort(rng.integers(0, n + 1, rng.integers(0, 40)))
    return tuple(int(size) for size in np.diff([0, *edges, n]))


def test_one_blas_thread_whoever_comes_first_and_whoever_leaves_last() -> None:
    """Within and across threads; also where one of them has set a limit of its own."""
    with ThreadPoolExecutor(1) as first, ThreadPoolExecutor(1) as second, threadpool_limits(2):
        with one_blas_thread():
            assert _blas_threads() == 1
        assert _blas_threads() == 2
        outer, inner = one_blas_thread(), one_blas_thread()
        first.submit(outer.__enter__).result()
        second.submit(inner.__enter__).result()
        assert second.submit(_blas_threads).result() == 1
        first.submit(outer.__exit__, None, None, None).result()
        assert second.submit(_blas_threads).result() == 1
        second.submit(inner.__exit__, None, None, None).result()
        assert _blas_threads() == 2


@pytest.mark.parametrize(("n_features", "threads"), [(256, 1), (257, 2)])
def test_threads_work_on_wide_scatters_only(
    n_features: int, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others would leave a thread of BLAS that waits for more, as busy as if it worked."""
    seen = []

    def watched(*args: Any, **options: Any) -> Any:
        seen.append(_blas_threads())
        return ascend(*args, **options)

    monkeypatch.setattr(engine, "ascend", watched)
    X = np.random.default_rng(0).standard_normal((2 * n_features, n_features))
    with threadpool_limits(2):
        clvm.ContrastiveLVM(1, 0, inference=clvm.EM(tol=1.0)).fit(X)
        assert _blas_threads() == 2
    assert set(seen) == {threads}


def test_wide_products_of_other_threads_are_the_same() -> None:
    """Large enough for BLAS to share them out, were it allowed to."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((3 * 4096, 60))
    expected = LocalRows(X, CHECKS).total(partial(powers, 0.5), np.add, cell=4096)
    for scheduler in ("sync", "threads"):
        with threadpool_limits(2), dask.config.set(scheduler=scheduler):
            rows = DaskRows(da.from_array(X, chunks=(5000, 60)), "X", CHECKS)
            found = rows.total(partial(powers, 0.5), np.add, cell=4096)
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("seed", range(40))
def test_a_tree_does_not_depend_on_how_it_is_cut(seed: int) -> None:
    rng = np.random.default_rng(seed)
    values = rng.standard_normal(rng.integers(1, 300)) * 10.0 ** rng.integers(-9, 9)
    expected = sums.whole(float.__add__, sums.branches(float.__add__, values.tolist()))
    parts, start = [], 0
    for size in cuts(rng, len(values)):
        if size:
            some = values[start : start + size].tolist()
            parts.append(sums.branches(float.__add__, some, start))
        start += size
    while len(parts) > 1:  # joined in any order of neighbours
        i = int(rng.integers(0, len(parts) - 1))
        parts[i : i + 2] = [sums.joined(float.__add__, parts[i], parts[i + 1])]
    assert len(parts[0]) <= 2 * len(values).bit_length()
    assert sums.whole(float.__add__, parts[0]) == expected
    assert expected == pytest.approx(values.sum(), abs=1e-12 * np.abs(values).sum())


def test_branches_are_the_largest_there_are() -> None:
    found = sums.branches(int.__add__, range(3, 13), 3)
    assert [(b.level, b.place) for b in found] == [(0, 3), (2, 1), (2, 2), (0, 12)]
    assert [b.sum for b in found] == [3, 22, 38, 12]


@pytest.mark.parametrize(("n_features", "rows"), [(1, 8192), (32, 8192), (100, 2048), (10**6, 1)])
def test_cells_are_powers_of_two(n_features: int, rows: int) -> None:
    assert sums.cell_rows(n_features) == rows


class Chunked:
    """A file that gives rows in chunks."""

    def __init__(self, X: Any, chunk: int) -> None:
        self.X, self.shape, self.dtype, self.chunks = X, X.shape, X.dtype, (chunk, X.shape[1])

    def __getitem__(self, at: slice) -> Any:
        return self.X[at]


def sources(X: Any, rng: np.random.Generator, folder: Path) -> list[RowReader]:
    np.save(folder / "X.npy", X)
    whole = da.from_array(X, chunks=(cuts(rng, len(X)), D))
    return [
        LocalRows(X, CHECKS),
        LocalRows(np.asfortranarray(X), CHECKS),
        LocalRows(np.load(folder / "X.npy", mmap_mode="r"), CHECKS),
        LocalRows(Chunked(X, int(rng.integers(1, 200))), CHECKS),
        DaskRows(whole, "X", CHECKS),
        DaskRows(whole.rechunk((70, 2)), "X", CHECKS),
    ]


def powers(power: float, rows: Any) -> Any:
    return rows.T @ np.abs(rows) ** power


def counted(rows: Any, kept: Any) -> tuple[Any, Any]:
    """A sum in which the number of earlier passes has a part, and that number, for each row."""
    before = np.zeros(len(rows)) if kept is None else kept
    assert len(before) == len(rows)
    return powers(1.5, rows * (1.0 + before[:, None])), before + 1.0


def scaled(rows: Any, kept: Any) -> Any:
    return powers(0.5, rows) * kept.mean()


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("cell", [8, 32, 1024])
def test_all_sources_sum_alike(
    seed: int, cell: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(seed)
    monkeypatch.setattr("contrastive_lvm.rows.file_rows.BLOCK_ENTRIES", 100 * D)
    X = rng.standard_t(3, (N, D))
    expected: dict[str, Any] = {}
    for threads, rows in enumerate(sources(X, rng, tmp_path)):
        with threadpool_limits(1 + threads % 3), dask.config.set(scheduler="threads"):
            found = {"plain": rows.total(partial(powers, 0.5), np.add, cell=cell)}
            found["first"], kept = rows.renewed(counted, np.add, cell=cell)
            found["second"], kept = rows.renewed(counted, np.add, cell=cell, kept=kept)
            found["third"] = rows.total(scaled, np.add, cell=cell, kept=kept)
        assert isinstance(kept, MemoryCache if threads < 2 else DiskCache)
        for name, value in found.items():
            np.testing.assert_array_equal(value, expected.setdefault(name, value), err_msg=name)
    np.testing.assert_allclose(expected["plain"], powers(0.5, X), rtol=1e-10)
    np.testing.assert_allclose(expected["second"], powers(1.5, 2.0 * X), rtol=1e-10)
    np.testing.assert_allclose(expected["third"], 2.0 * powers(0.5, X), rtol=1e-10)


def threads_of(rows: Any) -> set[int]:
    return {_blas_threads()}


def test_blas_is_bounded_in_shared_cells_too() -> None:
    """Also in the last, which ends with the rows, and whoever puts it together."""
    lazy = DaskRows(da.zeros((100, D), chunks=((32, 28, 40), D)), "X", CHECKS)
    with threadpool_limits(2), dask.config.set(scheduler="threads"):
        assert lazy.total(threads_of, or_, cell=16) == {1}


@pytest.mark.parametrize("small", [0, 1 << 17])
def test_functions_are_nodes_or_parts_of_tasks(small: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small ones bring no dependency, for which a scheduler might move blocks."""
    monkeypatch.setattr(scale.graph, "SMALL", small)
    X = np.arange(100.0 * D).reshape(100, D)
    lazy = DaskRows(da.from_array(X, chunks=(30, D)), "X", CHECKS)
    whole = [slice(None)] * 4
    np.testing.assert_array_equal(np.concatenate(lazy.picked(dict(enumerate(whole)))), X)
    np.testing.assert_array_equal(lazy.mapped(lambda rows, at: rows + at.start)[95], X[95] + 90)
    found = lazy.total(partial(np.sum, axis=0), np.add, cell=16)
    np.testing.assert_array_equal(found, X.sum(axis=0))
    graph = Graph()
    [task] = graph.collections([graph.add(*graph.runs(np.multiply, 3.0), 2.0)])
    assert task.compute() == 6.0
    assert len(dict(task.dask)) == (1 if small else 2)


def test_functions_may_look_like_tasks() -> None:
    """A tuple that begins with something to be called is a task to Dask."""
    for small in (0, 1 << 17):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(scale.graph, "SMALL", small)
            graph = Graph()
            [task] = graph.collections([graph.add(*graph.runs(_third, (max, 1, 5)))])
            assert task.compute() == 5


def test_keys_may_look_like_numbers() -> None:
    """Places are numbers too, and are not taken for keys."""
    X = np.arange(60.0).reshape(12, D)
    load = dask.delayed(lambda rows: rows)
    parts = [load(X[i : i + 4], dask_key_name=i) for i in range(0, 12, 4)]
    blocks = [da.from_delayed(part, (4, D), X.dtype) for part in parts]
    lazy = DaskRows(da.concatenate(blocks), "X", CHECKS)
    total = X.sum(axis=0)
    found = lazy.total(partial(np.sum, axis=0), np.add, cell=8)
    np.testing.assert_array_equal(found, total)
    first, kept = lazy.renewed(_renewed, np.add, cell=8)
    second, _ = lazy.renewed(_renewed, np.add, cell=8, kept=kept)
    np.testing.assert_array_equal(first, total)
    np.testing.assert_array_equal(second, 2.0 * total)
    np.testing.assert_array_equal(lazy.mapped(lambda rows, at: rows + at.start)[9], X[9] + 8)


def _renewed(rows: Any, kept: Any) -> tuple[Any, Any]:
    total = rows.sum(axis=0) + (0.0 if kept is None else kept)
    return total, rows.sum(axis=0)


def _third(function: tuple[Any, ...]) -> Any:
    return function[2]


def test_rows_that_cells_have_already_are_not_copied() -> None:
    """Only cells that two chunks meet in are put together; the others are parts of chunks."""
    lazy = DaskRows(da.zeros((100, D), chunks=((32, 28, 40), D)), "X", CHECKS)
    found = [(at.start, at.stop, [place for _, place in pieces]) for at, pieces in lazy._cut(16)]
    assert found == [
        (0, 32, [slice(0, 32)]),
        (32, 48, [slice(0, 16)]),
        (48, 64, [slice(16, 28), slice(0, 4)]),
        (64, 100, [slice(4, 40)]),
    ]
