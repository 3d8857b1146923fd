"""Everything that the page shows, as one dictionary for JSON."""

import platform

import numpy as np
import scipy

from contrastive_lvm import __version__
from contrastive_lvm.arrays import Array
from contrastive_lvm.estimators.summary import ranking_weights
from contrastive_lvm.io.tables.on_disk import columns_of
from contrastive_lvm.io.tables.prepare import Sets, frame
from contrastive_lvm.io.tables.row_columns import facts_of_rows
from contrastive_lvm.io.tables.table import Table
from contrastive_lvm.linalg.matrices import row_slices, widen
from contrastive_lvm.plots.style import shortened
from contrastive_lvm.report.adequacy import background_notes
from contrastive_lvm.report.advice import PAGE, diagnostics, replicates_advice
from contrastive_lvm.report.encode_arrays import Packed, coded, columns, packed
from contrastive_lvm.report.evidence import Evidence, gather
from contrastive_lvm.report.findings import (
    Facts,
    Fitted,
    Outlyingness,
    SetFacts,
    drops_features,
    effects,
    findings,
    outlyingness,
    set_facts,
    some_rows,
)
from contrastive_lvm.report.subgroup_notes import (
    COLUMN,
    annotation_notes,
    probabilities_of,
    subgroup_facts,
)

MOST_ROWS = 100_000  # of a set that are drawn, chosen at random if there are more
MOST_ENTRIES = 4_000_000  # observed values in the page, two bytes each
FEWEST_FEATURES = 20  # whose values are in the page, however many rows there are


def page_data(
    model: Fitted, sets: Sets, *, title: str, evidence: Evidence | None = None
) -> dict[str, object]:
    """Collect what the page shows of a fitted model and the rows of both sets."""
    evidence = gather(model, sets) if evidence is None else evidence
    fits = outlyingness(model, sets)
    facts = findings(model, sets, evidence, top=5, rows=fits)
    rng = np.random.RandomState(0)
    target = _shown(sets.target.n_rows, rng)
    drawn = sets._replace(target=_rows_of(sets.target, target))
    if sets.background is not None:
        background = _rows_of(sets.background, _shown(sets.background.n_rows, rng))
        drawn = drawn._replace(background=background)
    points, probabilities = _points(model, drawn), probabilities_of(model, drawn)
    loadings = effects(model)
    weights = ranking_weights(model, loadings.shape[1])
    return {
        "title": title,
        "facts": facts,
        "settings": _settings(model, facts),
        "diagnostics": diagnostics(model, sets, facts, points),
        "background_notes": background_notes(model, sets, facts["shared_auc"]),
        "points": {name: packed(_alike(values)) for name, values in points.items()},
        "rows": drawn.target.row_names,
        "background_rows": drawn.background and drawn.background.row_names,
        "columns": _columns(drawn, fits, target, probabilities),
        "subgroups": subgroup_facts(model, sets, evidence, probabilities),
        "annotation_notes": annotation_notes(drawn, points, probabilities),
        "features": sets.preparation.features,
        "loadings": packed(loadings),
        "ranking_weights": packed(weights),
        "loading_errors": _loading_errors(loadings, evidence.standard_errors(model)),
        "level": evidence.verdict["level"],
        "caution": replicates_advice(sets, PAGE),
        "stability": _stability(evidence),
        "selected": model.selected_features_.tolist() if drops_features(model) else None,
        "values": _values(weights * loadings[: model.n_target_], drawn),
        "trace": _thinned(np.asarray(model.lower_bounds_)),
    }


def _loading_errors(loadings: Array, errors: Array | None) -> Packed | None:
    """Encode standard errors of loadings, NaN for those of the shared dimensions."""
    if errors is None:
        return None
    unknown = np.full((len(loadings) - len(errors), loadings.shape[1]), np.nan)
    return packed(np.vstack([errors, unknown]))


def _stability(evidence: Evidence) -> str:
    """Describe how much the target dimensions turn when other rows are drawn."""
    if evidence.bootstrap is None or not evidence.bootstrap.subspace_angles.size:
        return ""
    angles = np.degrees(evidence.bootstrap.subspace_angles.max(axis=1))
    return (
        f"In {len(angles)} fits to resampled rows, the median angle to the target dimensions of "
        f"this fit was {np.median(angles):.0f} degrees; in 90% of them it was at most "
        f"{np.quantile(angles, 0.9):.0f} degrees."
    )


def _settings(model: Fitted, facts: Facts) -> list[tuple[str, str]]:
    """List, as text, what is needed to repeat the fit: data, model and versions."""
    pairs = [(f"{name} set", _set(own)) for name, own in set_facts(facts).items()]
    pairs += [("features", f"{facts['features']:,}"), ("scale", facts["scale"])]
    pairs += [("estimator", type(model).__name__)]
    for name, value in sorted(model.get_params(deep=False).items()):
        pairs.append((name, shortened(repr(value), 300)))
    versions = f"contrastive-lvm {__version__}, NumPy {np.__version__}, SciPy {scipy.__version__}"
    return [*pairs, ("written with", f"{versions}, Python {platform.python_version()}")]


def _set(facts: SetFacts) -> str:
    missing = f", {facts['missing']:.1%} missing" if facts["missing"] else ""
    source = f" from {facts['file']}" if facts["file"] else ""
    return f"{facts['rows']:,} rows{source}{missing}"


def _shown(n: int, rng: np.random.RandomState) -> np.ndarray:
    """Choose the positions of the rows that are drawn."""
    return np.arange(n) if n <= MOST_ROWS else np.sort(rng.choice(n, MOST_ROWS, replace=False))


def _rows_of(table: Table, rows: np.ndarray) -> Table:
    """Choose rows of a table, which then have names: their numbers if there are no others."""
    names = table.labels()
    table = table._replace(row_names=[names[i] for i in rows])
    return table if len(rows) == table.values.shape[0] else some_rows(table, rows)


def _points(model: Fitted, sets: Sets) -> dict[str, Array]:
    """Compute the latents of all rows; the background also as if its rows were of the target."""
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
    """Return a single row if all are equal, as standard deviations of complete rows are."""
    return values[:1] if values.size and bool((values == values[0]).all()) else values


def _latents(model: Fitted, table: Table, sets: Sets, of: str) -> dict[str, Array]:
    """Compute posterior means and standard deviations, some rows at a time to save memory."""
    parts: dict[str, list[Array]] = {}
    prepared = sets.preparation
    for rows in row_slices(*table.values.shape, elements=1 << 21, most=1 << 21):
        some = some_rows(table, rows)
        facts = facts_of_rows(some, prepared)
        latents = model.latents(frame(some, named=prepared.named), of=of, **facts)
        for name in ("target", "target_std", "shared", "shared_std"):
            if getattr(latents, name) is not None:
                parts.setdefault(name, []).append(getattr(latents, name))
    return {name: np.concatenate(own) for name, own in parts.items()}


def _columns(
    sets: Sets, fits: Outlyingness, shown: np.ndarray, probabilities: Array | None
) -> list[Packed]:
    """Collect subgroups, the annotations, and how outlying rows of the target are."""
    other = None if sets.background is None else sets.background.annotations
    values = np.full(len(shown) + (0 if other is None else len(other)), np.nan)
    values[: len(shown)] = fits.values[shown]
    names = {"weight": "weight (small: outlier)", "distance": "outlyingness (robust std)"}
    own: Packed = {"name": names[fits.measure], "kind": "number", "values": packed(values)}
    found = [] if probabilities is None else [_subgroups(probabilities, len(values))]
    return [*found, *columns(sets.target.annotations, other), own]


def _subgroups(probabilities: Array, n_rows: int) -> Packed:
    """Encode the most probable subgroup of the target's rows; the background's have none."""
    codes = np.full(n_rows, -1)
    codes[: len(probabilities)] = probabilities.argmax(axis=1)
    levels = [f"subgroup {c + 1}" for c in range(probabilities.shape[1])]
    return {"name": COLUMN, "kind": "group", "levels": levels, "codes": packed(codes, "<i4")}


def _values(loadings: Array, sets: Sets) -> Packed:
    """Encode observed values, in the units of the data, of all or of the most relevant features."""
    tables = sets.tables
    n, d = sum(t.n_rows for t in tables), len(sets.preparation.features)
    most = min(d, max(FEWEST_FEATURES, MOST_ENTRIES // n))
    ranked = np.argsort(-(loadings**2).sum(axis=0), kind="stable")
    chosen = np.arange(d) if most == d else np.sort(ranked[:most])
    scaling = sets.preparation.scaling
    dense = np.concatenate([widen(columns_of(t.values, chosen)) for t in tables])
    dense = dense * scaling.scale[chosen] + scaling.center[chosen]
    return coded(dense) | {"features": chosen.tolist()}


def _thinned(trace: Array) -> list[float]:
    """Thin out a trace of more than 500 points; its ends are kept."""
    shown = np.linspace(0, len(trace) - 1, min(len(trace), 500)).astype(int)
    return [float(value) for value in trace[shown]]
