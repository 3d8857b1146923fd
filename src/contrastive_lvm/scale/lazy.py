"""Dask arrays: blocks are computed, worked on and added up where the scheduler puts them.

Threads, processes and clusters give the same sums: results are added in the blocks' order, a few
at a time, where they are, and only the last sum comes back. Sums over cells are the same for all
chunks too: cells that two chunks share are put together first. A block that is lost with its worker
is computed again by Dask. Within a task BLAS keeps to one thread.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from functools import partial, reduce
from importlib import import_module
from itertools import pairwise, repeat
from operator import getitem, itemgetter
from typing import Any, NamedTuple, TypeVar

import numpy as np

from contrastive_lvm.core import sums
from contrastive_lvm.core.blocks import one_blas_thread, own_rows, row_slices, stacked
from contrastive_lvm.core.sums import Cells, Stretch
from contrastive_lvm.core.types import Matrix
from contrastive_lvm.scale.kept import Spill
from contrastive_lvm.scale.source import Checks, Source, floats, precision, row_major

Result = TypeVar("Result")
SMALL = 1 << 17  # bytes of a function that is a part of every task
SUMMED_AT_ONCE = 4  # results of blocks that one task adds up


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
        self._cuts: dict[int, list[tuple[slice, Any, slice | None]]] = {}

    @property
    def on_cluster(self) -> bool:
        """As Dask is set now; a cluster may be on other machines."""
        owner = getattr(_dask("dask.base").get_scheduler(), "__self__", None)
        return owner is not None and hasattr(owner, "scheduler_info")

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
            parts = list(map(_task(_of_block, function), self._blocks))
            found: Result = _summed(parts, plus).compute()
            return found
        if kept is None:
            cells = Cells(function, plus, cell)
            parts = list(map(_task(_stretch, cells), self._blocks, self.slices))
            whole: Result = _summed(parts, cells.joined, cells.whole).compute()
            return whole
        swept: Result = self._sweep(Sweep(function, plus, cell, renews=False), kept)[0]
        return swept

    def renewed(
        self,
        function: Callable[[Matrix, Any], tuple[Result, Any]],
        plus: Callable[[Result, Result], Result],
        *,
        cell: int,
        kept: Any = None,
    ) -> tuple[Result, Any]:
        """On a cluster what is kept stays with the workers, otherwise it goes to files."""
        return self._sweep(Sweep(function, plus, cell, renews=True), kept)

    def _sweep(self, sweep: "Sweep", kept: Any) -> tuple[Any, Any]:
        task = _task(_swept, sweep)
        new = Spill() if sweep.renews and not self.on_cluster else None
        cut = self._cut(sweep.cell)
        numbers = [range(at.start // sweep.cell, -(-at.stop // sweep.cell)) for at, _, _ in cut]
        olds = [kept.paths(n) for n in numbers] if isinstance(kept, Spill) else kept
        news = [None if new is None else new.paths(n) for n in numbers]
        pairs = [
            task(*block, old, paths)
            for block, old, paths in zip(cut, olds or [None] * len(cut), news, strict=True)
        ]
        plus, whole = partial(sums.joined, sweep.plus), partial(sums.whole, sweep.plus)
        total = _summed([pair[0] for pair in pairs], plus, whole)
        if sweep.renews and new is None:
            total, *held = _dask().persist(total, *(pair[1] for pair in pairs))
            return total.compute(), held
        return total.compute(), new

    def _cut(self, cell: int) -> list[tuple[slice, Any, slice | None]]:
        """Blocks that begin and end where cells do: ours, and a cell where two of them meet in one.

        Of each its place, a block and which rows of it, or pieces of several blocks. Only such
        pieces are copied, and on a cluster travel.
        """
        if cell not in self._cuts:
            begins = [block.start for block in self.slices]
            before = {start // cell * cell for start in begins}
            after = {min(-(-start // cell) * cell, self.shape[0]) for start in begins}
            edges = sorted({*before, *after, self.shape[0]})
            self._cuts[cell] = [self._between(slice(a, b), begins) for a, b in pairwise(edges)]
        return self._cuts[cell]

    def _between(self, at: slice, begins: list[int]) -> tuple[slice, Any, slice | None]:
        first, last = bisect_right(begins, at.start) - 1, bisect_left(begins, at.stop)
        places = [
            slice(max(at.start - own.start, 0), min(at.stop, own.stop) - own.start)
            for own in self.slices[first:last]
        ]
        if len(places) == 1:
            return at, self._blocks[first], places[0]
        copied = _dask().delayed(_copied, pure=False)
        blocks = zip(self._blocks[first:last], places, strict=True)
        return at, [copied(block, place) for block, place in blocks], None

    def mapped(self, function: Callable[[Matrix, slice], Any]) -> Any:
        """Lazy, with a block for each of ours; the function shows its shapes on a row of zeros."""
        example = function(np.zeros((1, self.shape[1]), self.dtype), slice(0, 1))
        found = list(map(_task(_of_block, function), self._blocks, self.slices))

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
        task = _task(_of_block, getitem)
        found = [task(self._blocks[i], at) for i, at in picks.items()]
        return list(_dask().compute(*found))


def _dask(name: str = "dask") -> Any:
    """Imported when a Dask array is seen, which means that it is there."""
    return import_module(name)


def _task(run: Callable[..., Any], function: Any) -> Callable[..., Any]:
    """Makes tasks of the graph that run a function.

    A small function is a part of every task. A large one is a node of the graph, which travels once
    to each worker; but then the scheduler may choose a worker that has the function and not the
    block, which is larger still, and moves that.
    """
    delayed = _dask().delayed
    if len(_dask("cloudpickle").dumps(function)) <= SMALL:
        task: Callable[..., Any] = delayed(partial(run, function), pure=False)
        return task
    return partial(delayed(run, pure=False), delayed(function, traverse=False))


def _summed(parts: list[Any], plus: Any, whole: Any = None) -> Any:
    """A tree of sums in the blocks' order; `whole` is what is wanted of the last of them."""
    add = _task(_sum, plus)
    while len(parts) > SUMMED_AT_ONCE:
        groups = range(0, len(parts), SUMMED_AT_ONCE)
        parts = [add(parts[i : i + SUMMED_AT_ONCE]) for i in groups]
    return add(parts, whole)


def _sum(plus: Any, parts: list[Any], whole: Any = None) -> Any:
    with one_blas_thread(), np.errstate(all="ignore"):
        total = reduce(plus, parts)
        return total if whole is None else whole(total)


def _of_block(function: Any, block: Any, *more: Any) -> Any:
    with one_blas_thread(), np.errstate(all="ignore"):
        return function(floats(block), *more)


def _stretch(cells: Cells, block: Any, at: slice) -> Stretch:
    with one_blas_thread(), np.errstate(all="ignore"):
        return cells.of(row_major(block), at.start)


class Sweep(NamedTuple):
    """What is done with each cell and what is kept of it."""

    function: Any
    plus: Any
    cell: int
    renews: bool  # whether the function also says what to keep from now on


def _swept(sweep: Sweep, at: slice, block: Any, place: Any, kept: Any, paths: Any) -> Any:
    """Sums of a block's cells, and what is now kept of them unless that goes to files."""
    rows = stacked(block) if place is None else block[place]
    cells = (row_major(rows[some]) for some in row_slices(rows.shape[0], 1, most=sweep.cell))
    olds = repeat(None) if kept is None else map(_loaded, kept)
    held: list[Any] = []

    def results() -> Iterator[Any]:
        for i, found in enumerate(map(sweep.function, cells, olds)):
            if not sweep.renews:
                yield found
                continue
            result, renewed = found
            if paths is None:
                held.append(renewed)
            else:
                np.save(paths[i], renewed, allow_pickle=False)
            yield result

    with one_blas_thread(), np.errstate(all="ignore"):
        return sums.branches(sweep.plus, results(), at.start // sweep.cell), held


def _loaded(kept: Any) -> Any:
    return np.load(kept, allow_pickle=False) if isinstance(kept, str) else kept


def _copied(block: Any, at: slice) -> Matrix:
    return own_rows(floats(block)[at])
