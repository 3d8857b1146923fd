"""Dask arrays: blocks are computed, worked on and added up where the scheduler puts them.

Threads, processes and clusters give the same sums: results are added in the blocks' order, a few
at a time, where they are, and only the last sum comes back. Sums over cells are the same for all
chunks too: cells that two chunks share are put together first. A block that is lost with its worker
is computed again by Dask. Within a task BLAS keeps to one thread.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator
from functools import partial, reduce
from importlib import import_module
from itertools import pairwise, repeat
from operator import getitem, itemgetter
from typing import Any, NamedTuple, TypeVar

import numpy as np

from contrastive_lvm.core import sums
from contrastive_lvm.core.blocks import is_sparse, one_blas_thread, row_slices
from contrastive_lvm.core.types import Matrix
from contrastive_lvm.scale.kept import Spill
from contrastive_lvm.scale.source import Checks, Source, floats, precision, row_major, stacked

Result = TypeVar("Result")
SUMMED_AT_ONCE = 8  # results of blocks that one task adds up


class LazyRows(Source):
    """A Dask array of known chunks; one of its row chunks is a block."""

    def __init__(self, X: Any, name: str, checks: Checks) -> None:
        if any(np.isnan(size) for sizes in X.chunks for size in sizes):
            raise ValueError(
                f"{name} is a Dask array with unknown chunk sizes, shape {X.shape}; call "
                f"{name}.compute_chunk_sizes() first."
            )
        self.checks = checks
        self.shape = (int(X.shape[0]), int(X.shape[1]))
        self.dtype = np.dtype(precision(X.dtype))
        joined = X.rechunk({1: -1}) if X.numblocks[1] > 1 else X
        pairs = zip(joined.chunks[0], joined.to_delayed().ravel(), strict=True)
        self._sizes, self._blocks = zip(*((n, b) for n, b in pairs if n), strict=True)
        ends = np.cumsum(self._sizes).tolist()
        self.slices = [slice(end - n, end) for n, end in zip(self._sizes, ends, strict=True)]
        self._cuts: dict[int, list[tuple[slice, Any]]] = {}

    def blocks(self) -> Iterator[Matrix]:
        """All rows in order, computed one block at a time."""
        for block in self._blocks:
            yield floats(block.compute())

    def total(
        self,
        function: Callable[..., Result],
        plus: Callable[[Result, Result], Result],
        *,
        cell: int | None = None,
        kept: Any = None,
    ) -> Result:
        """In one graph."""
        if cell is None:
            task, shared = _task(_of_block, function)
            parts = [task(shared, block) for block in self._blocks]
            found: Result = _summed(parts, plus).compute()
            return found
        task, shared = _task(_of_cells, CellTask(function, plus, cell))
        olds = self._kept(kept, cell)
        parts = [
            task(shared, at, block, old)
            for (at, block), old in zip(self._cut(cell), olds, strict=True)
        ]
        whole: Result = sums.whole(plus, _summed(parts, partial(sums.joined, plus)).compute())
        return whole

    def renewed(
        self,
        function: Callable[[Matrix, Any], tuple[Result, Any]],
        plus: Callable[[Result, Result], Result],
        *,
        cell: int,
        kept: Any = None,
    ) -> tuple[Result, Any]:
        """On a cluster what is kept stays with the workers, otherwise it goes to files."""
        new = None if _on_cluster() else Spill()
        task, shared = _task(_renewed_cells, CellTask(function, plus, cell))
        olds = self._kept(kept, cell)
        pairs = [
            task(shared, at, block, old, None if new is None else new.paths(_numbers(at, cell)))
            for (at, block), old in zip(self._cut(cell), olds, strict=True)
        ]
        total = _summed([pair[0] for pair in pairs], partial(sums.joined, plus))
        if new is not None:
            return sums.whole(plus, total.compute()), new
        total, *news = _dask().persist(total, *(pair[1] for pair in pairs))
        return sums.whole(plus, total.compute()), news

    def _kept(self, kept: Any, cell: int) -> list[Any]:
        """What is kept of each block: paths of files, or what the workers have."""
        if kept is None:
            return [None] * len(self._cut(cell))
        if isinstance(kept, Spill):
            return [kept.paths(_numbers(at, cell)) for at, _ in self._cut(cell)]
        return list(kept)

    def _cut(self, cell: int) -> list[tuple[slice, Any]]:
        """Blocks that begin and end where cells do: ours, and a cell where two of them meet in one.

        Only such cells are copied, and on a cluster travel.
        """
        if cell not in self._cuts:
            begins = [block.start for block in self.slices]
            before = {start // cell * cell for start in begins}
            after = {min(-(-start // cell) * cell, self.shape[0]) for start in begins}
            edges = sorted({*before, *after, self.shape[0]})
            places = [slice(a, b) for a, b in pairwise(edges)]
            self._cuts[cell] = [(at, self._between(at, begins)) for at in places]
        return self._cuts[cell]

    def _between(self, at: slice, begins: list[int]) -> Any:
        delayed = _dask().delayed
        first, last = bisect_right(begins, at.start) - 1, bisect_left(begins, at.stop)
        if self.slices[first] == at:
            return self._blocks[first]
        places = [
            slice(max(at.start - own.start, 0), min(at.stop, own.stop) - own.start)
            for own in self.slices[first:last]
        ]
        if len(places) == 1:
            return delayed(getitem, pure=False)(self._blocks[first], places[0])
        copied = delayed(_copied, pure=False)
        pieces = [
            copied(block, place)
            for block, place in zip(self._blocks[first:last], places, strict=True)
        ]
        return delayed(_stacked, pure=False)(pieces)

    def mapped(self, function: Callable[[Matrix, slice], Any]) -> Any:
        """Lazy, with a block for each of ours; the function shows its shapes on a row of zeros."""
        example = function(np.zeros((1, self.shape[1]), self.dtype), slice(0, 1))
        task, shared = _task(_of_block, function)
        found = [task(shared, b, at) for b, at in zip(self._blocks, self.slices, strict=True)]

        def joined(part: Any, pick: Callable[[Any], Any]) -> Any:
            if part is None:
                return None
            arrays = _dask("dask.array")
            pieces = [
                arrays.from_delayed(pick(block), (n, *part.shape[1:]), dtype=part.dtype)
                for block, n in zip(found, self._sizes, strict=True)
            ]
            return arrays.concatenate(pieces)

        if not isinstance(example, tuple):
            return joined(example, lambda block: block)
        return tuple(joined(part, itemgetter(i)) for i, part in enumerate(example))

    def picked(self, picks: dict[int, Any]) -> list[Matrix]:
        """In one graph; only the rows asked for leave their blocks."""
        task, shared = _task(_of_block, getitem)
        found = [task(shared, self._blocks[i], at) for i, at in picks.items()]
        return list(_dask().compute(*found))


def _dask(name: str = "dask") -> Any:
    """Imported when a Dask array is seen, which means that it is there."""
    return import_module(name)


def _task(run: Callable[..., Any], function: Any) -> tuple[Any, Any]:
    """A task of the graph, and the function as one node of it: it travels once to each worker."""
    delayed = _dask().delayed
    return delayed(run, pure=False), delayed(function, traverse=False)


def _summed(parts: list[Any], plus: Any) -> Any:
    """A tree of sums in the blocks' order."""
    delayed = _dask().delayed
    add = delayed(_sum, pure=False)
    while len(parts) > 1:
        groups = range(0, len(parts), SUMMED_AT_ONCE)
        parts = [add(plus, parts[i : i + SUMMED_AT_ONCE]) for i in groups]
    return parts[0]


def _sum(plus: Any, parts: list[Any]) -> Any:
    return reduce(plus, parts)


def _of_block(function: Any, block: Any, *more: Any) -> Any:
    with one_blas_thread(), np.errstate(all="ignore"):
        return function(floats(block), *more)


class CellTask(NamedTuple):
    """What is done with each cell of a block; pickled once a graph."""

    function: Any
    plus: Any
    cell: int

    def cells(self, block: Any) -> Iterator[Matrix]:
        """The block's rows, so many at a time."""
        return (row_major(block[some]) for some in row_slices(block.shape[0], 1, most=self.cell))

    def branches(self, at: slice, results: Iterable[Any]) -> list[Any]:
        """Sums of the block's cells."""
        with one_blas_thread(), np.errstate(all="ignore"):
            return sums.branches(self.plus, results, at.start // self.cell)


def _of_cells(task: CellTask, at: slice, block: Any, kept: Any) -> Any:
    cells = task.cells(block)
    if kept is None:
        return task.branches(at, map(task.function, cells))
    return task.branches(at, map(task.function, cells, map(_loaded, kept)))


def _renewed_cells(task: CellTask, at: slice, block: Any, kept: Any, paths: Any) -> Any:
    """Sums of cells, and what is now kept of them, unless that goes to files."""
    new: list[Any] = []

    def results() -> Iterator[Any]:
        olds = repeat(None) if kept is None else map(_loaded, kept)
        for i, (rows, old) in enumerate(zip(task.cells(block), olds, strict=False)):
            result, renewed = task.function(rows, old)
            if paths is None:
                new.append(renewed)
            else:
                np.save(paths[i], renewed, allow_pickle=False)
            yield result

    return task.branches(at, results()), new


def _loaded(kept: Any) -> Any:
    return np.load(kept, allow_pickle=False) if isinstance(kept, str) else kept


def _numbers(at: slice, cell: int) -> range:
    """Of the cells of a block, in the set."""
    return range(at.start // cell, -(-at.stop // cell))


def _copied(block: Any, at: slice) -> Matrix:
    """Some rows, without what else is in the block."""
    rows = floats(block)[at]
    return rows if is_sparse(rows) else np.array(rows)


def _stacked(pieces: list[Any]) -> Matrix:
    return stacked(pieces)


def _on_cluster() -> bool:
    """Whether Dask would compute on a cluster, which may be on other machines."""
    owner = getattr(_dask("dask.base").get_scheduler(), "__self__", None)
    return owner is not None and hasattr(owner, "scheduler_info")
