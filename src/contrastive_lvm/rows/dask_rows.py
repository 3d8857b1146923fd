"""Dask arrays: chunks are computed, worked on and added up where the scheduler puts them.

Threads, processes and clusters take the same sums: results are added in the order of the chunks, a
few at a time, where they are, and only the last sum comes back. A chunk that is lost with its
worker is computed again by Dask. The graphs are written down as they are: objects of
`dask.delayed` merge their graphs at every call, which takes most of a millisecond per task.
"""

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import partial, reduce
from importlib import import_module
from typing import Any, TypeVar
from uuid import uuid4

import numpy as np

from contrastive_lvm.arrays import Array, Matrix
from contrastive_lvm.rows.reader import (
    Checks,
    Chunk,
    Positions,
    RowReader,
    floats,
    make_chunk,
    precision,
)
from contrastive_lvm.rows.row_cache import Cache, DiskCache, WorkerCache
from contrastive_lvm.rows.threads import one_blas_thread

Result = TypeVar("Result")
SUMMED_AT_ONCE = 4  # results of chunks that one task adds up
SMALL = 1 << 17  # bytes of a function that is a part of every task
Key = tuple[str, int]


def dask(name: str = "dask") -> Any:
    """Import Dask when a Dask array is seen, which means that it is installed."""
    return import_module(name)


class DaskRows(RowReader):
    """A Dask array of known chunk sizes."""

    def __init__(self, X: Any, name: str, checks: Checks) -> None:
        if any(np.isnan(size) for sizes in X.chunks for size in sizes):
            raise ValueError(
                f"{name} is a Dask array with unknown chunk sizes, shape {X.shape}; call "
                f"{name}.compute_chunk_sizes() first."
            )
        self.checks = checks
        self.shape = (int(X.shape[0]), int(X.shape[1]))
        self.dtype = precision(X.dtype)
        joined = X.rechunk({1: -1}) if X.numblocks[1] > 1 else X
        (fused,) = dask().optimize(joined)
        self._tasks = {**joined.dask, **fused.dask}  # chunks that a cluster holds are in the first
        pairs = zip(fused.chunks[0], fused.__dask_keys__(), strict=True)
        sizes, self._keys = zip(*((n, keys[0]) for n, keys in pairs if n), strict=True)
        ends = np.cumsum(sizes).tolist()
        self.slices = [slice(end - n, end) for n, end in zip(sizes, ends, strict=True)]

    @property
    def on_cluster(self) -> bool:
        """Whether Dask is set to use a cluster now."""
        owner = getattr(dask("dask.base").get_scheduler(), "__self__", None)
        return owner is not None and hasattr(owner, "scheduler_info")

    def read(self) -> Iterator[Matrix]:
        """Compute one chunk after the other."""
        for i in range(len(self._keys)):
            yield self.read_chunks({i: slice(None)})[0]

    def reduce(
        self,
        function: Callable[[Chunk], Result],
        plus: Callable[[Result, Result], Result],
        *,
        weights: Array | None = None,
        cache: Cache | None = None,
    ) -> Result:
        """Sum a function of chunks in one graph."""
        graph = Graph(self._tasks)
        parts = self._run(graph, partial(_apply, function), weights, cache, None)
        total = graph.add_up(list(parts.values()), plus)
        found: Result = self._compute(graph.delayed([total]))[0]
        return found

    def renew(
        self,
        function: Callable[[Chunk], tuple[Result, Any]],
        plus: Callable[[Result, Result], Result],
        *,
        weights: Array | None = None,
        cache: Cache | None = None,
    ) -> tuple[Result, Cache]:
        """Sum results; on a cluster the new cache stays with the workers."""
        graph = Graph(self._tasks)
        if not self.on_cluster:
            new = DiskCache()
            parts = self._run(graph, partial(_apply_and_store, function), weights, cache, new)
            total = graph.add_up(list(parts.values()), plus)
            return self._compute(graph.delayed([total]))[0], new
        pairs = self._run(graph, partial(_apply, function), weights, cache, None)
        sums = [graph.add(_item, pair, i=0) for pair in pairs.values()]
        kept = [graph.add(_item, pair, i=1) for pair in pairs.values()]
        total = graph.add_up(sums, plus)
        first, *held = dask().persist(*graph.delayed([total, *kept]))
        return first.compute(), WorkerCache(dict(zip(pairs, held, strict=True)))

    def _run(
        self, graph: "Graph", run: Any, weights: Array | None, cache: Any, new: DiskCache | None
    ) -> dict[int, Key]:
        """Add a task for each chunk in use, and return their keys by the chunks' numbers."""
        held = cache.held if isinstance(cache, WorkerCache) else {}
        for old in held.values():
            graph.tasks.update(old.dask)
        call = graph.call(run)
        return {
            i: graph.add(
                *call,
                self._keys[i],
                held[i].key if i in held else None,
                weights=None if weights is None else weights[self.slices[i]],
                source=cache.path(i) if isinstance(cache, DiskCache) else None,
                **({} if new is None else {"destination": new.path(i)}),
            )
            for i in self.used_chunks(weights)
        }

    def _compute(self, delayed: list[Any]) -> tuple[Any, ...]:
        """Compute results; in this process BLAS keeps to one thread, as on workers."""
        with nullcontext() if self.on_cluster else one_blas_thread():
            return tuple(dask().compute(*delayed))

    def map(self, function: Callable[[Matrix, slice], Any]) -> Any:
        """Apply a function lazily; it shows the shapes of its results on a row of zeros."""
        example = function(np.zeros((1, self.shape[1]), self.dtype), slice(0, 1))
        graph = Graph(self._tasks)
        call = graph.call(partial(_map, function))
        found = [graph.add(*call, *pair) for pair in zip(self._keys, self.slices, strict=True)]
        if not isinstance(example, tuple):
            return self._array(graph, found, example)
        return tuple(
            self._array(graph, [graph.add(_item, chunk, i=i) for chunk in found], part)
            for i, part in enumerate(example)
        )

    def _array(self, graph: "Graph", parts: list[Key], example: Any) -> Any:
        """Join the results of all chunks lazily; None where there are none."""
        if example is None:
            return None
        arrays, shape = dask("dask.array"), example.shape[1:]
        pairs = zip(graph.delayed(parts), self.slices, strict=True)
        return arrays.concatenate(
            [
                arrays.from_delayed(part, (at.stop - at.start, *shape), dtype=example.dtype)
                for part, at in pairs
            ]
        )

    def read_chunks(self, picks: dict[int, Positions]) -> list[Matrix]:
        """Compute chunks in one graph; only the rows asked for leave their chunks."""
        graph = Graph(self._tasks)
        found = [graph.add(_rows_at, self._keys[i], at=at) for i, at in picks.items()]
        return list(self._compute(graph.delayed(found)))


class Graph:
    """Tasks on top of others, in one layer, within which Dask knows keys by their looks."""

    def __init__(self, below: dict[Any, Any]) -> None:
        self.tasks, self._token = dict(below), uuid4().hex

    def add(self, run: Any, *keys: Any, **given: Any) -> Key:
        """Add a task, and return its key.

        Positional arguments are keys, lists of keys, None or slices; everything else is given by
        name, where Dask does not look for keys.
        """
        key = (f"{getattr(run, 'func', run).__name__}-{self._token}", len(self.tasks))
        self.tasks[key] = (partial(run, **given) if given else run, *keys)
        return key

    def call(self, run: Any) -> tuple[Any, ...]:
        """Begin tasks that run a function; a large one travels once to each worker.

        A small one is a part of every task: the scheduler might otherwise choose a worker that has
        the function and not the chunk.
        """
        if len(dask("cloudpickle").dumps(run)) <= SMALL:
            return (run,)
        return _call, self.add(partial(_itself, run))

    def add_up(self, parts: list[Key], plus: Any) -> Key:
        """Add a tree of sums in the order of the parts."""
        while len(parts) > 1:
            groups = range(0, len(parts), SUMMED_AT_ONCE)
            parts = [self.add(partial(_sum, plus), parts[i : i + SUMMED_AT_ONCE]) for i in groups]
        return parts[0]

    def delayed(self, keys: list[Key]) -> list[Any]:
        """Return the results of tasks, to be computed."""
        name = f"rows-{self._token}"
        whole = dask("dask.highlevelgraph").HighLevelGraph.from_collections(name, self.tasks)
        return [dask("dask.delayed").Delayed(key, whole, layer=name) for key in keys]


def _itself(run: Any) -> Any:
    return run


def _call(run: Any, *keys: Any, **given: Any) -> Any:
    return run(*keys, **given)


@np.errstate(all="ignore")
def _apply(function: Any, rows: Any, kept: Any, *, weights: Array | None, source: Any) -> Any:
    cached = kept if source is None else np.load(source, allow_pickle=False)
    return function(make_chunk(floats(rows), weights, cached))


def _apply_and_store(
    function: Any, rows: Any, kept: Any, *, weights: Array | None, source: Any, destination: str
) -> Any:
    result, renewed = _apply(function, rows, kept, weights=weights, source=source)
    np.save(destination, renewed, allow_pickle=False)
    return result


@np.errstate(all="ignore")
def _map(function: Any, rows: Any, at: slice) -> Any:
    return function(floats(rows), at)


@np.errstate(all="ignore")
def _sum(plus: Any, parts: list[Any]) -> Any:
    return reduce(plus, parts)


def _item(results: Any, *, i: int) -> Any:
    return results[i]


def _rows_at(rows: Any, *, at: Any) -> Matrix:
    found: Matrix = floats(rows)[at]
    return found
