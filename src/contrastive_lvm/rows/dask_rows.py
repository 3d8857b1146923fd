"""Dask arrays: blocks are computed, worked on and added up where the scheduler puts them.

Threads, processes and clusters give the same sums: results are added in the blocks' order, a few
at a time, where they are, and only the last sum comes back. Sums over cells are the same for all
chunks too: cells that two chunks share are put together first. A block that is lost with its worker
is computed again by Dask. Within a task BLAS keeps to one thread.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from functools import partial, reduce
from itertools import pairwise, repeat
from typing import Any, NamedTuple, TypeVar

import numpy as np

from contrastive_lvm.arrays import Matrix
from contrastive_lvm.linalg.matrices import own_rows, row_slices, stacked
from contrastive_lvm.linalg.scratch import reused
from contrastive_lvm.rows import sums
from contrastive_lvm.rows.graph import Graph, Key, blocks_of, dask
from contrastive_lvm.rows.reader import Checks, RowReader, floats, precision, row_major
from contrastive_lvm.rows.row_cache import DiskCache
from contrastive_lvm.rows.sums import Cells, Stretch
from contrastive_lvm.rows.threads import one_blas_thread

Result = TypeVar("Result")
SUMMED_AT_ONCE = 4  # results of blocks that one task adds up
Piece = tuple[Any, slice]  # a block's key and which rows of it


class DaskRows(RowReader):
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
        keys, self._tasks = blocks_of(joined)
        pairs = zip(joined.chunks[0], keys, strict=True)
        self._sizes, self._keys = zip(*((n, key) for n, key in pairs if n), strict=True)
        ends = np.cumsum(self._sizes).tolist()
        self.slices = [slice(end - n, end) for n, end in zip(self._sizes, ends, strict=True)]
        self._cuts: dict[int, list[tuple[slice, list[Piece]]]] = {}

    @property
    def on_cluster(self) -> bool:
        """As Dask is set now; a cluster may be on other machines."""
        owner = getattr(dask("dask.base").get_scheduler(), "__self__", None)
        return owner is not None and hasattr(owner, "scheduler_info")

    def blocks(self) -> Iterator[Matrix]:
        """All rows in order, computed one block at a time."""
        for key in self._keys:
            yield floats(self._graph().collections([key])[0].compute())

    def total(
        self,
        function: Callable[..., Result],
        plus: Callable[[Result, Result], Result],
        *,
        cell: int | None = None,
        kept: Any = None,
    ) -> Result:
        """In one graph."""
        if kept is not None and cell is not None:
            swept: Result = self._sweep(Sweep(function, plus, cell, renews=False), kept)[0]
            return swept
        graph = self._graph()
        if cell is None:
            run = graph.runs(_of_block, function)
            parts = [graph.add(*run, key) for key in self._keys]
            last = _summed(graph, parts, plus)
        else:
            cells = Cells(function, plus, cell)
            run = graph.runs(_stretch, cells)
            pairs = zip(self._keys, self.slices, strict=True)
            parts = [graph.add(*run, key, start=at.start) for key, at in pairs]
            last = _summed(graph, parts, cells.joined, cells.whole)
        found: Result = graph.collections([last])[0].compute()
        return found

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

    def _graph(self, *more: Any) -> Graph:
        return Graph(self._tasks, *more)

    def _sweep(self, sweep: "Sweep", kept: Any) -> tuple[Any, Any]:
        held = kept if isinstance(kept, list) else []
        graph, cut = self._graph(*(old.dask for old in held)), self._cut(sweep.cell)
        new = DiskCache() if sweep.renews and not self.on_cluster else None
        cells = [range(at.start // sweep.cell, -(-at.stop // sweep.cell)) for at, _ in cut]
        nothing: list[Any] = [None] * len(cut)
        olds = [old.key for old in held] or nothing
        files = [kept.paths(own) for own in cells] if isinstance(kept, DiskCache) else nothing
        news = nothing if new is None else [new.paths(own) for own in cells]
        run = graph.runs(_swept, sweep)
        found = [
            graph.add(*run, *_rows(graph, pieces), old, first=own[0], files=read, paths=written)
            for own, (_, pieces), old, read, written in zip(
                cells, cut, olds, files, news, strict=True
            )
        ]
        plus, whole = partial(sums.joined, sweep.plus), partial(sums.whole, sweep.plus)
        if not sweep.renews or new is not None:
            last = _summed(graph, found, plus, whole)
            return graph.collections([last])[0].compute(), new
        parts, keep = ([graph.add(_item, pair, i=i) for pair in found] for i in (0, 1))
        last = _summed(graph, parts, plus, whole)
        total, *held = dask().persist(*graph.collections([last, *keep]))
        return total.compute(), held

    def _cut(self, cell: int) -> list[tuple[slice, list[Piece]]]:
        """Blocks that begin and end where cells do: ours, and a cell where two of them meet in one.

        Of each its place and the pieces of blocks that it has.
        """
        if cell not in self._cuts:
            begins = [block.start for block in self.slices]
            before = {start // cell * cell for start in begins}
            after = {min(-(-start // cell) * cell, self.shape[0]) for start in begins}
            edges = sorted({*before, *after, self.shape[0]})
            places = [slice(a, b) for a, b in pairwise(edges)]
            self._cuts[cell] = [(at, self._between(at, begins)) for at in places]
        return self._cuts[cell]

    def _between(self, at: slice, begins: list[int]) -> list[Piece]:
        first, last = bisect_right(begins, at.start) - 1, bisect_left(begins, at.stop)
        return [
            (key, slice(max(at.start - own.start, 0), min(at.stop, own.stop) - own.start))
            for key, own in zip(self._keys[first:last], self.slices[first:last], strict=True)
        ]

    def mapped(self, function: Callable[[Matrix, slice], Any]) -> Any:
        """Lazy, with a block for each of ours; the function shows its shapes on a row of zeros."""
        example = function(np.zeros((1, self.shape[1]), self.dtype), slice(0, 1))
        graph = self._graph()
        run = graph.runs(_of_block, function)
        found = [graph.add(*run, *pair) for pair in zip(self._keys, self.slices, strict=True)]
        if not isinstance(example, tuple):
            return self._array(graph, found, example)
        return tuple(
            self._array(graph, [graph.add(_item, block, i=i) for block in found], part)
            for i, part in enumerate(example)
        )

    def _array(self, graph: Graph, parts: list[Key], example: Any) -> Any:
        """Results of all blocks as an array; None where there are none."""
        if example is None:
            return None
        arrays, shape = dask("dask.array"), example.shape[1:]
        pieces = [
            arrays.from_delayed(part, (n, *shape), dtype=example.dtype)
            for part, n in zip(graph.collections(parts), self._sizes, strict=True)
        ]
        return arrays.concatenate(pieces)

    def picked(self, picks: dict[int, Any]) -> list[Matrix]:
        """In one graph; only the rows asked for leave their blocks."""
        graph = self._graph()
        found = [graph.add(_rows_at, self._keys[i], at=at) for i, at in picks.items()]
        return list(dask().compute(*graph.collections(found)))


def _rows(graph: Graph, pieces: list[Piece]) -> tuple[Any, slice | None]:
    """Rows of one block where they are; pieces of several as copies, which may travel."""
    if len(pieces) == 1:
        return pieces[0]
    return [graph.add(_copied, *piece) for piece in pieces], None


def _summed(graph: Graph, parts: list[Key], plus: Any, whole: Any = None) -> Key:
    """A tree of sums in the blocks' order; `whole` is what is wanted of the last of them."""
    run = graph.runs(_sum, plus)
    while len(parts) > SUMMED_AT_ONCE:
        groups = range(0, len(parts), SUMMED_AT_ONCE)
        parts = [graph.add(*run, parts[i : i + SUMMED_AT_ONCE]) for i in groups]
    return graph.add(*run, parts, whole=whole)


def _sum(plus: Any, parts: list[Any], *, whole: Any = None) -> Any:
    with one_blas_thread(), np.errstate(all="ignore"):
        total = reduce(plus, parts)
        return total if whole is None else whole(total)


def _of_block(function: Any, block: Any, *more: Any) -> Any:
    with one_blas_thread(), np.errstate(all="ignore"):
        return function(floats(block), *more)


def _item(results: Any, *, i: int) -> Any:
    return results[i]


def _rows_at(block: Any, *, at: Any) -> Matrix:
    return floats(block)[at]


def _stretch(cells: Cells, block: Any, *, start: int) -> Stretch:
    with one_blas_thread(), np.errstate(all="ignore"):
        return cells.of(row_major(block), start)


class Sweep(NamedTuple):
    """What is done with each cell and what is kept of it."""

    function: Any
    plus: Any
    cell: int
    renews: bool  # whether the function also says what to keep from now on


def _swept(
    sweep: Sweep, block: Any, place: slice | None, kept: Any, *, first: int, files: Any, paths: Any
) -> Any:
    """Sums of a block's cells; if what is kept of them does not go to files, that too."""
    rows = stacked(block) if place is None else block[place]
    cells = (row_major(rows[some]) for some in row_slices(rows.shape[0], 1, most=sweep.cell))
    olds = repeat(None) if kept is None else kept
    olds = olds if files is None else map(_loaded, files)
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

    with one_blas_thread(), np.errstate(all="ignore"), reused({}):
        found = sums.branches(sweep.plus, results(), first)
    return (found, held) if sweep.renews and paths is None else found


def _loaded(path: str) -> Any:
    return np.load(path, allow_pickle=False)


def _copied(block: Any, at: slice) -> Matrix:
    return own_rows(floats(block)[at])
