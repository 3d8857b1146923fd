"""Dask arrays: blocks are computed, worked on and added up where the scheduler puts them.

Threads, processes and clusters give the same sums: results are added in the blocks' order, a few
at a time, where they are, and only the last sum comes back. A block that is lost with its worker is
computed again by Dask. Within a task BLAS keeps to one thread.
"""

from collections.abc import Callable, Iterator
from functools import reduce
from importlib import import_module
from operator import getitem, itemgetter
from typing import Any, TypeVar

import numpy as np

from contrastive_lvm.core.blocks import one_blas_thread
from contrastive_lvm.core.types import Matrix
from contrastive_lvm.scale.kept import Spill
from contrastive_lvm.scale.source import Checks, Source, floats, precision

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

    def blocks(self) -> Iterator[Matrix]:
        """All rows in order, computed one block at a time."""
        for block in self._blocks:
            yield floats(block.compute())

    def total(
        self, function: Callable[[Matrix], Result], plus: Callable[[Result, Result], Result]
    ) -> Result:
        """In one graph."""
        task, shared = _task(_of_block, function)
        found: Result = _summed([task(shared, block) for block in self._blocks], plus).compute()
        return found

    def renewed(
        self, function: Callable[[Matrix, Any], tuple[Result, Any]], plus: Any, kept: Any
    ) -> tuple[Result, Any]:
        """On a cluster what is kept stays with the workers, otherwise it goes to files."""
        on_cluster = _on_cluster()
        return (self._on_workers if on_cluster else self._by_files)(function, plus, kept)

    def _by_files(self, function: Any, plus: Any, kept: Spill | None) -> tuple[Any, Spill]:
        task, shared = _task(_with_file, function)
        new = Spill()
        parts = [
            task(shared, block, None if kept is None else kept.path(i), new.path(i))
            for i, block in enumerate(self._blocks)
        ]
        return _summed(parts, plus).compute(), new

    def _on_workers(self, function: Any, plus: Any, kept: Any) -> tuple[Any, Any]:
        task, shared = _task(_with_kept, function)
        olds = kept or [None] * len(self._blocks)
        pairs = [task(shared, block, old) for block, old in zip(self._blocks, olds, strict=True)]
        total = _summed([pair[0] for pair in pairs], plus)
        total, *news = _dask().persist(total, *(pair[1] for pair in pairs))
        return total.compute(), news

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


def _with_kept(function: Any, block: Any, kept: Any) -> Any:
    return _of_block(function, block, kept)


def _with_file(function: Any, block: Any, old: str | None, new: str) -> Any:
    kept = None if old is None else np.load(old, allow_pickle=False)
    result, renewed = _of_block(function, block, kept)
    np.save(new, renewed, allow_pickle=False)
    return result


def _on_cluster() -> bool:
    """Whether Dask would compute on a cluster, which may be on other machines."""
    owner = getattr(_dask("dask.base").get_scheduler(), "__self__", None)
    return owner is not None and hasattr(owner, "scheduler_info")
