"""How the cost of a fit grows with rows, features, columns and workers.

`python -m benchmarks.cost --write` measures, draws docs/images/cost.svg and writes the tables of
docs/explanation/cost.md. Times are processor seconds of one thread, which other programs on the
machine hardly change; tasks and bytes are counted.
"""

import pickle
import re
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import dask
import dask.array as da
import numpy as np
from dask.callbacks import Callback
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from threadpoolctl import threadpool_limits

import contrastive_lvm as clvm

DOCS = Path(__file__).parents[1] / "docs"
SWEEPS = 10  # at most, of models that read the rows in every sweep
ROWS = (1_000, 3_000, 10_000, 30_000, 100_000)
FEATURES = (25, 50, 100, 200, 400)
COLUMNS = (3, 6, 12, 24)
CHUNKS = (4, 8, 16)
MODELS: dict[str, dict[str, Any]] = {
    "complete rows": {},
    "5 % missing": {},
    "Student-t noise": {"likelihood": "student_t"},
    "counts": {"likelihood": "poisson"},
}
PAGE_D, PAGE_CHUNK = 100, 100_000  # features and rows of a chunk of the billion rows
TASK = 1e-3  # seconds of the scheduler for each task, as Dask's documentation puts it


class Traffic(NamedTuple):
    """What a fit to Dask chunks costs the scheduler and the network."""

    chunks: int
    tasks: int  # beside those that make the chunks themselves
    n_bytes: int  # of all their results


def main() -> None:
    """Measure, and write the figure and the page if asked to."""
    with threadpool_limits(1):
        curves = {
            "rows": {name: [_seconds(name, n, 50, 7) for n in ROWS] for name in MODELS},
            "features": {name: [_seconds(name, 4_000, d, 7) for d in FEATURES] for name in MODELS},
            "columns": {name: [_seconds(name, 4_000, 100, k) for k in COLUMNS] for name in MODELS},
        }
        traffic = {name: [_traffic(name, n) for n in CHUNKS] for name in MODELS}
        row_seconds = {name: _row_seconds(name) for name in MODELS}
    growth = _growth(curves, traffic, row_seconds)
    billion = "\n".join(_billion(name, row_seconds[name], traffic[name][-1]) for name in MODELS)
    print(growth, billion, sep="\n\n")
    if "--write" in sys.argv:
        _draw(curves, traffic).savefig(DOCS / "images" / "cost.svg", metadata={"Date": None})
        path = DOCS / "explanation" / "cost.md"
        page = _insert(path.read_text(encoding="utf-8"), "growth", growth)
        path.write_text(_insert(page, "billion", billion), encoding="utf-8")


def _sets(name: str, n: int, d: int) -> tuple[np.ndarray, np.ndarray]:
    """Two thirds of n rows as target, the others as background."""
    rng = np.random.default_rng(0)
    S, W = 0.3 * rng.standard_normal((5, d)), 0.3 * rng.standard_normal((2, d))
    rows = rng.standard_normal((n, 5)) @ S
    rows[: 2 * n // 3] += rng.standard_normal((2 * n // 3, 2)) @ W
    if name == "counts":
        rows = rng.poisson(np.exp(np.minimum(0.5 * rows, 3.0))).astype(float)
    else:
        rows += rng.standard_normal((n, d))
    if name == "5 % missing":
        rows[rng.random(rows.shape) < 0.05] = np.nan
    return rows[: 2 * n // 3], rows[2 * n // 3 :]


def _model(name: str, n_columns: int, n_sweeps: int = SWEEPS) -> clvm.ContrastiveLVM:
    """A model whose sweeps can be counted: complete rows until they converge, others ten."""
    engine = clvm.EM() if name == "complete rows" else clvm.EM(max_iter=n_sweeps, tol=1e-300)
    n_target = max(1, n_columns // 3)
    return clvm.ContrastiveLVM(n_target, n_columns - n_target, inference=engine, **MODELS[name])


def _fit(name: str, model: clvm.ContrastiveLVM, X: Any, B: Any) -> float:
    """Processor seconds of a fit; of one sweep where every sweep reads the rows."""
    begin = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # ten sweeps are too few to converge
        model.fit(X, background=B)
    seconds = time.process_time() - begin
    return seconds if name == "complete rows" else seconds / model.n_iter_


def _seconds(name: str, n: int, d: int, n_columns: int) -> float:
    X, B = _sets(name, n, d)
    return _fit(name, _model(name, n_columns), X, B)


def _row_seconds(name: str) -> float:
    """Processor seconds that one more row costs, with PAGE_D features and 12 columns."""
    few, many = (_seconds(name, n, PAGE_D, 12) for n in (10_000, 30_000))
    return (many - few) / 20_000


def _traffic(name: str, n_chunks: int) -> Traffic:
    """Tasks and bytes of a fit, or of a sweep without its start, to chunks of 3,000 x 50."""
    X, B = _sets(name, 3_000 * n_chunks, 50)
    from_array: Callable[..., Any] = da.from_array
    rows = from_array(X, chunks=(3_000, -1)), from_array(B, chunks=(3_000, -1))
    chunks = len(rows[0].chunks[0]) + len(rows[1].chunks[0])
    first = _count(name, rows, 3)
    if name == "complete rows":
        return Traffic(chunks, first.tasks, first.n_bytes)
    more = _count(name, rows, 6)
    tasks, n_bytes = more.tasks - first.tasks, more.n_bytes - first.n_bytes
    return Traffic(chunks, tasks // 3, n_bytes // 3)


def _count(name: str, rows: tuple[Any, Any], n_sweeps: int) -> "_Counter":
    """Fit to chunks, however small, and count what Dask does."""
    counter = _Counter({rows[0].name, rows[1].name})
    with (
        mock.patch("contrastive_lvm.rows.data.MOST_LOADED", 0),  # or small sets are read as a whole
        dask.config.set(scheduler="synchronous"),
        counter,
    ):
        _fit(name, _model(name, 7, n_sweeps), *rows)
    return counter


class _Counter(Callback):
    """Count the tasks that a fit adds to those of its arrays, and the bytes of their results."""

    def __init__(self, arrays: set[str]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.arrays, self.tasks, self.n_bytes = arrays, 0, 0

    def _posttask(self, key: Any, result: Any, *_: Any) -> None:
        if not (isinstance(key, tuple) and key[0] in self.arrays):
            self.tasks += 1
            self.n_bytes += len(pickle.dumps(result))


def _draw(curves: dict[str, dict[str, list[float]]], traffic: dict[str, list[Traffic]]) -> Figure:
    figure = Figure(figsize=(10, 7), layout="constrained")
    axes = figure.subplots(2, 2).ravel()
    places = {"rows": ROWS, "features": FEATURES, "columns": COLUMNS}
    for ax, (what, lines) in zip(axes, curves.items(), strict=False):
        for name, seconds in lines.items():
            ax.loglog(places[what], seconds, "o-", label=name)
        ax.set(xlabel=what, ylabel="processor seconds")
        _name_places(ax, places[what])
    axes[0].legend(title="a fit, or one sweep of it", frameon=False)
    for name, found in traffic.items():
        axes[3].loglog(
            [own.chunks for own in found], [own.tasks for own in found], "o-", label=name
        )
    axes[3].set(xlabel="chunks", ylabel="tasks")
    _name_places(axes[3], [own.chunks for own in next(iter(traffic.values()))])
    for ax in axes:
        ax.spines[["top", "right"]].set_visible(False)
        ax.grid(alpha=0.3)
    return figure


def _name_places(ax: Axes, places: Sequence[int]) -> None:
    """Write numbers in full, where something was measured and nowhere else."""
    ax.set_xticks(places, [f"{place:,}" for place in places])
    ax.tick_params(axis="x", which="minor", labelbottom=False)


def _growth(
    curves: dict[str, dict[str, list[float]]],
    traffic: dict[str, list[Traffic]],
    row_seconds: dict[str, float],
) -> str:
    """A line for each model: times, powers, and what one more row or chunk costs."""
    lines = []
    places = {"rows": ROWS, "features": FEATURES, "columns": COLUMNS}
    for name, per_row in row_seconds.items():
        seconds, last = curves["rows"][name], traffic[name][-1]
        cells = [name, f"{seconds[0]:.3f} s", f"{seconds[-1]:.2f} s"]
        cells += [f"{_power(places[what], curves[what][name]):.2f}" for what in places]
        cells += [f"{1e6 * per_row:.1f} µs", f"{last.tasks / last.chunks:.1f}"]
        lines.append(_line(*cells, f"{last.n_bytes / last.chunks / 1e3:.0f} kB"))
    return "\n".join(lines)


def _line(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def _insert(page: str, name: str, lines: str) -> str:
    """Put the lines of a table between its header and the comment that ends it."""
    pattern = rf"(<!-- {name} -->\n(?:.*\n){{3}})(?:.*\n)*?(<!-- end -->)"
    return re.sub(pattern, lambda found: f"{found[1]}{lines}\n\n{found[2]}", page)


def _power(places: tuple[int, ...], seconds: list[float]) -> float:
    """The power by which the last three points grow."""
    slope: float = np.polyfit(np.log(places[-3:]), np.log(seconds[-3:]), 1)[0]
    return slope


def _billion(name: str, per_row: float, found: Traffic) -> str:
    """A line of the table of a billion rows on a hundred workers."""
    chunks = 10**9 / PAGE_CHUNK
    tasks = chunks * found.tasks / found.chunks
    wait, work = tasks * TASK, 1e9 * per_row / 100
    square, halves = (PAGE_D / 50) ** 2, PAGE_D / 50 * (12 * 13) / (7 * 8)
    scale = (
        square if name == "complete rows" else halves
    )  # features by features; columns by columns
    sent = tasks / found.tasks * found.n_bytes * scale / 1e9
    each = "in all" if name == "complete rows" else "a sweep"
    return (
        f"| {name} | {work / 60:.1f} minutes {each} | {tasks:,.0f} | {wait:.0f} s | {sent:.1f} GB |"
    )


if __name__ == "__main__":
    main()
