"""Graphs of tasks for Dask, written down as they are.

Objects of `dask.delayed` merge their graphs at every call, which takes most of a millisecond a task
before any of them can run.
"""

from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from typing import Any
from uuid import uuid4

SMALL = 1 << 17  # bytes of a function that is a part of every task
Key = tuple[str, int]


def dask(name: str = "dask") -> Any:
    """Imported when a Dask array is seen, which means that it is there."""
    return import_module(name)


def blocks_of(X: Any) -> tuple[list[Any], dict[Any, Any]]:
    """Keys of an array's row blocks, and the tasks behind them as Dask has simplified them.

    A block that is another one under a new name has the key of the other. What has been computed
    and is held by a cluster is only in the graph as it was.
    """
    delayed = X.to_delayed().ravel()
    tasks = {**X.dask, **delayed[0].dask}
    keys = []
    for block in delayed:
        key = block.key
        while type(tasks.get(key)).__name__ == "Alias":
            key = tasks[key].target
        keys.append(key)
    return keys, tasks


class Graph:
    """Tasks on top of others, whose keys they may name.

    All are in one layer, since Dask knows keys by their looks only within a layer.
    """

    def __init__(self, *below: Mapping[Any, Any]) -> None:
        self._token = uuid4().hex
        self._tasks: dict[Any, Any] = {}
        for tasks in below:
            self._tasks.update(tasks)

    def add(self, run: Callable[..., Any], *keys: Any, **given: Any) -> Key:
        """A task, and the key by which others name what it gives.

        What looks like a key is taken for one, be it a number. So positional arguments are keys,
        lists of them, None or slices; all else is given by name, where Dask does not look.
        """
        name = getattr(run, "func", run).__name__
        key = (f"{name}-{self._token}", len(self._tasks))
        self._tasks[key] = (partial(run, **given) if given else run, *keys)
        return key

    def runs(self, run: Callable[..., Any], function: Any) -> tuple[Any, ...]:
        """How tasks begin that run a function.

        A small function is a part of every task. A large one is a task of its own, whose result
        travels once to each worker; but then the scheduler may choose a worker that has the
        function and not the block, which is larger still, and moves that.
        """
        if len(dask("cloudpickle").dumps(function)) <= SMALL:
            return (partial(run, function),)
        return run, self.add(partial(_itself, function))

    def collections(self, keys: list[Key]) -> list[Any]:
        """What tasks give, to be computed."""
        layers = dask("dask.highlevelgraph").HighLevelGraph
        name = f"graph-{self._token}"
        whole = layers.from_collections(name, self._tasks)
        delayed = dask("dask.delayed").Delayed
        return [delayed(key, whole, layer=name) for key in keys]


def _itself(function: Any) -> Any:
    """As a result, a tuple is not taken for a task."""
    return function
