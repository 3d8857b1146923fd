"""Everything a page shows, as one dictionary for JSON."""

from typing import Any

import numpy as np

from contrastive_lvm.arrays import Array
from contrastive_lvm.io.tables.prepare import Sets, frame
from contrastive_lvm.io.tables.size_factor_column import sizes_of
from contrastive_lvm.io.tables.table import Table
from contrastive_lvm.linalg.matrices import is_sparse, row_slices, widen
from contrastive_lvm.report.annotations import columns
from contrastive_lvm.report.encode_arrays import coded, packed
from contrastive_lvm.report.findings import Unusual, effects, findings, unusual
from contrastive_lvm.report.page_text import diagnostics
from contrastive_lvm.report.settings_table import settings

MOST_ROWS = 100_000  # of a set, drawn; more are a random choice
MOST_ENTRIES = 4_000_000  # observed values that the page carries, two bytes each
FEWEST_FEATURES = 20  # carried, however many the rows
TOP = 5  # features named in words
BLOCK = 1 << 21  # entries of rows whose latents are found at a time


def contents(model: Any, sets: Sets, *, title: str, random_state: int = 0) -> dict[str, Any]:
    """What is shown of a fitted model and the rows of both sets."""
    found = unusual(model, sets)
    facts = findings(model, sets, top=TOP, found=found)
    rng = np.random.RandomState(random_state)
    target = _shown(sets.target.n_rows, rng)
    background = None if sets.background is None else _shown(sets.background.n_rows, rng)
    drawn = sets._replace(
        target=_rows_of(sets.target, target),
        background=None if background is None else _rows_of(sets.background, background),
    )
    points = _points(model, drawn)
    loadings, stds = effects(model, sets)
    return {
        "title": title,
        "facts": facts,
        "settings": settings(model, facts),
        "diagnostics": diagnostics(model, sets, facts, points),
        "points": {name: packed(_alike(values)) for name, values in points.items()},
        "rows": _names(drawn.target, target),
        "background_rows": _names(drawn.background, background),
        "columns": _columns(drawn, found, target),
        "features": sets.preparation.features,
        "loadings": packed(loadings),
        "loading_stds": None if stds is None else packed(stds),
        "selected": _selected(model),
        "values": _values(model, drawn),
        "trace": [float(v) for v in _thinned(np.asarray(model.lower_bounds_))],
    }


def _shown(n: int, rng: np.random.RandomState) -> np.ndarray:
    """Positions of the rows that are drawn."""
    if n <= MOST_ROWS:
        return np.arange(n)
    return np.sort(rng.choice(n, MOST_ROWS, replace=False))


def _rows_of(table: Table | None, rows: np.ndarray) -> Table:
    assert table is not None  # a set that is not there has no rows
    if len(rows) == table.n_rows:
        return table
    names = table.row_names
    return table._replace(
        values=table.values[rows],
        annotations=table.annotations.iloc[rows],
        row_names=None if names is None else [names[i] for i in rows],
    )


def _points(model: Any, sets: Sets) -> dict[str, Array]:
    """Where rows lie; the background also as if its rows were of the target."""
    found = _latents(model, sets.target, sets, "target")
    if sets.background is not None:
        other = _latents(model, sets.background, sets, "background")
        as_target = _latents(model, sets.background, sets, "target")
        found |= {
            "background_shared": other["shared"],
            "background_shared_std": other["shared_std"],
            "background_target": as_target["target"],
        }
    return found


def _alike(values: Array) -> Array:
    """One row where all are equal, as standard deviations of complete rows are."""
    return values[:1] if values.size and bool((values == values[0]).all()) else values


def _latents(model: Any, table: Table, sets: Sets, of: str) -> dict[str, Array]:
    """Posterior means and standard deviations, some rows at a time: covariances take room."""
    parts: dict[str, list[Array]] = {}
    for rows in row_slices(*table.values.shape, elements=BLOCK, most=BLOCK):
        some = table._replace(values=table.values[rows], annotations=table.annotations.iloc[rows])
        latents = model.latents(
            frame(some, named=sets.preparation.named),
            of=of,
            **sizes_of(some, sets.preparation.sizes),
        )
        for name in ("target", "target_std", "shared", "shared_std"):
            if getattr(latents, name) is not None:
                parts.setdefault(name, []).append(getattr(latents, name))
    return {name: np.concatenate(own) for name, own in parts.items()}


def _names(table: Table | None, rows: np.ndarray | None) -> list[str] | None:
    if table is None or rows is None:
        return None
    return table.row_names or [str(i + 1) for i in rows]


def _columns(sets: Sets, found: Unusual, shown: np.ndarray) -> list[dict[str, Any]]:
    """Annotations, and how unusual rows of the target are."""
    other = None if sets.background is None else sets.background.annotations
    values = np.full(len(shown) + (0 if other is None else len(other)), np.nan)
    values[: len(shown)] = found.values[shown]
    names = {"weight": "weight (small: outlier)", "distance": "outlyingness (robust stds)"}
    own = {"name": names[found.measure], "kind": "number", "values": packed(values)}
    return [*columns(sets.target.annotations, other), own]


def _selected(model: Any) -> list[bool] | None:
    chosen = getattr(model, "selected_features_", None)
    return None if chosen is None or chosen.all() else [bool(c) for c in chosen]


def _values(model: Any, sets: Sets) -> dict[str, Any]:
    """Observed entries in the units of the data: of all features, or of the most relevant."""
    tables = [t for t in (sets.target, sets.background) if t is not None]
    n, d = sum(t.n_rows for t in tables), len(sets.preparation.features)
    most = min(d, max(FEWEST_FEATURES, MOST_ENTRIES // n))
    loadings = effects(model, sets)[0][: model.n_target_]
    ranked = np.argsort(-(loadings**2).sum(axis=0), kind="stable")
    chosen = np.arange(d) if most == d else np.sort(ranked[:most])
    scaling = sets.preparation.scaling
    dense = np.concatenate([widen(_some(t, chosen)) for t in tables])
    dense = dense * scaling.scale[chosen] + scaling.center[chosen]
    return coded(dense) | {"features": chosen.tolist()}


def _some(table: Table, chosen: np.ndarray) -> Any:
    if len(chosen) == table.values.shape[1]:
        return table.values
    return table.values.tocsc()[:, chosen] if is_sparse(table.values) else table.values[:, chosen]


def _thinned(trace: Array, most: int = 500) -> Array:
    """A long trace by fewer points, its ends among them."""
    if len(trace) <= most:
        return trace
    some: Array = trace[np.unique(np.linspace(0, len(trace) - 1, most).astype(int))]
    return some
