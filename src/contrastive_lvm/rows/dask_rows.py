"""Dask arrays: chunks are computed, worked on and added up where the scheduler puts them.

Threads, processes and clusters take the same sums: results are added in the order of the chunks, a
few at a time, where they are, and only the last sum comes back. A chunk that is lost with its
worker is computed again by Dask. Graphs are written as dictionaries, since `dask.delayed` merges
graphs at every call, which takes most of a millisecond per task.
"""

from collections.abc import Callable, Hashable, Iterator
from contextlib import suppress
from functools import partial, reduce
from importlib import import_module
from time import monotonic
from types import ModuleType
from typing import Any, NamedTuple, TypeVar
from uuid import uuid4

import numpy as np

from contrastive_lvm.arrays import Array, Matrix
from contrastive_lvm.exceptions import InvalidDataError
from contrastive_lvm.rows.reader import (
    Checks,
    Chunk,
    Positions,
    RowReader,
    RowResults,
    floats,
    make_chunk,
    precision,
)
from contrastive_lvm.rows.row_cache import Cache, DiskCache, WorkerCache
from contrastive_lvm.rows.threads import one_blas_thread

Result = TypeVar("Result")
SUMMED_AT_ONCE = 4  # results of chunks that one task adds up
SMALL = 1 << 17  # bytes of a function that is a part of every task
# Seconds between looks at a cluster, and for which one that has lost its workers may have none. A
# nanny of Dask does not restart a worker that ends while it starts, so that none may ever come.
LOOK, NO_WORKERS = 5.0, 120.0
Key = tuple[str, int]


def dask(name: str = "dask") -> ModuleType:
    """Import Dask, which is installed if there is a Dask array."""
    return import_module(name)


class DaskRows(RowReader):
    """A Dask array of known chunk sizes."""

    is_local = False

    def __init__(self, X: Any, name: str, checks: Checks) -> None:
        if any(np.isnan(size) for sizes in X.chunks for size in sizes):
            reason = (
                f"is a Dask array with unknown chunk sizes, shape {X.shape}; call "
                f"{name}.compute_chunk_sizes() first."
            )
            raise InvalidDataError(name, reason)
        self.name, self.checks = name, checks
        self._running: list[Any] = []  # futures of a cluster
        client = self._client
        self.on_cluster = client is not None
        self._had_workers = client is not None and bool(client.nthreads())
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
    def _client(self) -> Any:
        """Return the client of the cluster that Dask is set to use now; None if there is none."""
        owner = getattr(dask("dask.base").get_scheduler(), "__self__", None)
        return owner if hasattr(owner, "scheduler_info") else None

    @property
    def _in_process(self) -> bool:
        """Tell whether Dask is set to compute in this process, with or without threads."""
        schedulers = (None, dask("dask.threaded").get, dask("dask.local").get_sync)
        return dask("dask.base").get_scheduler() in schedulers

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
        covariates: Array | None = None,
        squares: bool = True,
    ) -> Result:
        """Sum a function of chunks in one graph."""
        graph = Graph(self._tasks)
        parts = self._run(graph, partial(_apply, function), weights, cache, covariates)
        total: Result = self._compute(graph, [graph.add_up(list(parts.values()), plus)])[0]
        return total

    def renew(
        self,
        function: Callable[[Chunk], tuple[Result, Any]],
        plus: Callable[[Result, Result], Result],
        *,
        weights: Array | None = None,
        cache: Cache | None = None,
        covariates: Array | None = None,
    ) -> tuple[Result, Cache]:
        """Sum results; on a cluster the new cache stays with the workers."""
        graph = Graph(self._tasks)
        if self._in_process:
            new = DiskCache()
            run = partial(_apply_and_store, function, new)
            parts = self._run(graph, run, weights, cache, covariates)
            return self._compute(graph, [graph.add_up(list(parts.values()), plus)])[0], new
        pairs = self._run(graph, partial(_apply, function), weights, cache, covariates)
        sums = [graph.add(_item, pair, i=0) for pair in pairs.values()]
        kept = [graph.add(_item, pair, i=1) for pair in pairs.values()]
        wanted = [graph.add_up(sums, plus), *kept]
        if self._client is None:
            total, *held = self._compute(graph, wanted)
        else:
            total, *held = self._submit(graph, wanted)
            total = self._gather([total])[0]
        return total, WorkerCache(dict(zip(pairs, held, strict=True)))

    def _run(
        self,
        graph: "Graph",
        run: Callable[..., object],
        weights: Array | None,
        cache: Cache | None,
        covariates: Array | None,
    ) -> dict[int, Key]:
        """Add a task for each chunk in use, and return their keys by the chunks' numbers."""
        source = cache if isinstance(cache, DiskCache) else None
        call, *keys = [run] if self._in_process else graph.call(run)
        return {
            i: graph.add(
                call,
                *keys,
                self._keys[i],
                graph.held(cache, i),
                number=i,
                weights=None if weights is None else weights[self.slices[i]],
                covariates=None if covariates is None else covariates[self.slices[i]],
                declared=self._declared(i),
                source=source,
            )
            for i in self.used_chunks(weights)
        }

    def _declared(self, i: int) -> "Declared":
        return Declared(self.name, (self.slices[i].stop - self.slices[i].start, self.shape[1]))

    def _compute(self, graph: "Graph", keys: list[Key]) -> list[Any]:
        """Compute results; in this process BLAS keeps to one thread, as on workers."""
        if self._client is not None:
            return self._gather(self._submit(graph, keys))
        with one_blas_thread:
            return list(dask().compute(*graph.delayed(keys)))

    def _submit(self, graph: "Graph", keys: list[Key]) -> list[Any]:
        self._running = self._client.compute(graph.delayed(keys))
        return self._running

    def _gather(self, futures: list[Any]) -> list[Any]:
        """Wait for results of a cluster, but not for workers that do not come back."""
        client, seen = self._client, monotonic()
        waiting = list(futures)
        while waiting:
            with suppress(TimeoutError):
                waiting[-1].exception(timeout=LOOK)
                waiting.pop()
                continue
            if client.nthreads():
                self._had_workers, seen = True, monotonic()
            elif self._had_workers and monotonic() - seen > NO_WORKERS:
                reason = (
                    f"is on a Dask cluster that lost all its workers {NO_WORKERS:.0f} seconds ago; "
                    "see in their logs what ended them, such as a lack of memory or a chunk that "
                    "crashes, and start the cluster again."
                )
                raise InvalidDataError(self.name, reason)
        return list(client.gather(futures))

    def cancel(self) -> None:
        """Cancel what a cluster computes for these rows."""
        client = self._client
        if client is not None:
            client.cancel(self._running)

    def map(self, function: Callable[[Matrix, slice], RowResults]) -> Any:
        """Apply a function lazily; it shows the shapes of its results on a row of zeros."""
        example = function(np.zeros((1, self.shape[1]), self.dtype), slice(0, 1))
        graph = Graph(self._tasks)
        call = graph.call(partial(_map, function))
        found = [
            graph.add(*call, key, at, declared=self._declared(i))
            for i, (key, at) in enumerate(zip(self._keys, self.slices, strict=True))
        ]
        if not isinstance(example, tuple):
            return self._array(graph, found, example)
        return tuple(
            self._array(graph, [graph.add(_item, chunk, i=i) for chunk in found], part)
            for i, part in enumerate(example)
        )

    def _array(self, graph: "Graph", parts: list[Key], example: np.ndarray | None) -> Any:
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
        found = [
            graph.add(_rows_at, self._keys[i], at=at, declared=self._declared(i))
            for i, at in picks.items()
        ]
        return self._compute(graph, found)


class Declared(NamedTuple):
    """What an array says about one of its chunks."""

    name: str
    shape: tuple[int, int]

    def rows(self, chunk: Any) -> Matrix:
        """Convert a chunk to floating-point numbers; refuse another shape or kind of entries."""
        shape = tuple(np.shape(chunk))
        if shape != self.shape:
            reason = (
                f"has a Dask chunk of shape {shape} that is declared as {self.shape}; "
                f"call {self.name}.compute_chunk_sizes(), or correct the code that makes the chunk."
            )
            raise InvalidDataError(self.name, reason)
        return floats(chunk, self.name)


class Graph:
    """Tasks on top of others, in one layer, in which Dask recognises keys by their form."""

    def __init__(self, below: dict[Hashable, object]) -> None:
        self.tasks, self._token = dict(below), uuid4().hex

    def add(self, run: Callable[..., object], *keys: object, **given: object) -> Key:
        """Add a task, and return its key.

        Positional arguments are keys, lists of keys, None or slices; everything else is given by
        name, where Dask does not look for keys.
        """
        name = getattr(run, "func", run).__name__
        key = (f"{name}-{self._token}", len(self.tasks))
        self.tasks[key] = (partial(run, **given) if given else run, *keys)
        return key

    def held(self, cache: Cache | None, chunk: int) -> object:
        """Return what a cache holds of a chunk, as an argument of a task."""
        if not isinstance(cache, WorkerCache):
            return None
        value = cache.held[chunk]
        if isinstance(value, np.ndarray):
            return value
        self.tasks[value.key] = value  # a future
        key: object = value.key
        return key

    def call(self, run: Callable[..., object]) -> tuple[Any, ...]:
        """Return how tasks call a function; a large function travels only once to each worker.

        A small one is a part of every task: the scheduler might otherwise choose a worker that has
        the function and not the chunk.
        """
        if len(dask("cloudpickle").dumps(run)) <= SMALL:
            return (run,)
        return _call, self.add(partial(_itself, run))

    def add_up(self, parts: list[Key], plus: Callable[..., object]) -> Key:
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


def _itself(run: Callable[..., object]) -> Callable[..., object]:
    return run


def _call(run: Callable[..., Result], *keys: object, **given: object) -> Result:
    return run(*keys, **given)


@np.errstate(all="ignore")
def _apply(
    function: Callable[[Chunk], Result],
    rows: object,
    cached: object,
    *,
    number: int,
    weights: Array | None,
    covariates: Array | None,
    declared: Declared,
    source: DiskCache | None = None,
) -> Result:
    cached = cached if source is None else source.load(number)
    return function(make_chunk(declared.rows(rows), weights, cached, covariates))


def _apply_and_store(
    function: Callable[[Chunk], tuple[Result, np.ndarray]],
    new: DiskCache,
    rows: object,
    cached: object,
    *,
    number: int,
    **given: Any,
) -> Result:
    result, renewed = _apply(function, rows, cached, number=number, **given)
    new.store(number, renewed)
    return result


@np.errstate(all="ignore")
def _map(
    function: Callable[[Matrix, slice], Result], rows: object, at: slice, *, declared: Declared
) -> Result:
    return function(declared.rows(rows), at)


@np.errstate(all="ignore")
def _sum(plus: Callable[[Result, Result], Result], parts: list[Result]) -> Result:
    return reduce(plus, parts)


def _item(results: tuple[object, ...], *, i: int) -> object:
    return results[i]


def _rows_at(rows: object, *, at: Positions, declared: Declared) -> Matrix:
    found: Matrix = declared.rows(rows)[at]
    return found
