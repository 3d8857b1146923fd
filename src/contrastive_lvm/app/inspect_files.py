"""Descriptions of files and comparisons of models, as JSON, for a process of its own."""

import contextlib
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from contrastive_lvm.arrays import Column
from contrastive_lvm.io.tables.on_disk import columns_of, is_on_disk
from contrastive_lvm.io.tables.preparation import check_preparation
from contrastive_lvm.io.tables.read import (
    WORKBOOK,
    looks_transposed,
    open_workbook,
    read_table,
    without_identifiers,
)
from contrastive_lvm.io.tables.recognize import look_like_counts, look_uneven
from contrastive_lvm.io.tables.row_columns import replicate_sign, replicates_in
from contrastive_lvm.io.tables.table import Table, layout_of, missing_share
from contrastive_lvm.linalg.matrices import blocks, is_sparse


def describe(path: str, said: dict[str, Any]) -> dict[str, Any]:
    """Read a file and describe its content."""
    words = ("sheet", "decimal", "skip_rows")
    layout = layout_of(
        **{name: said[name] or None for name in words}, na=said["na"], transpose=said["transpose"]
    )
    place = Path(path)
    sheets = list(open_workbook(place).sheet_names) if WORKBOOK.search(path) else []
    table = read_table(place, layer=said["layer"] or None, layout=layout)
    (table,) = without_identifiers(table)
    return {
        "rows": table.n_rows,
        "features": len(table.features),
        "missing": missing_share(table.values),
        "columns": _columns(table, described=place.suffix.lower() == ".h5ad"),
        "sheets": sheets,
        "rewritten": sorted({how for _, how in table.rewritten}),
        "remarks": list(table.remarks),
        "censored": list(table.censored),
        "transposed": looks_transposed(table),
        "values": _kind(table),
        "uneven": look_uneven(table.values),
        "replicates": _replicates(table),
        "sign": replicate_sign([table]),
    }


def _replicates(table: Table) -> list[tuple[str, int]]:
    """List the columns that may name replicates, and how many each names."""
    found = []
    for name in table.annotations.columns:
        with contextlib.suppress(ValueError):
            n = len(np.unique(replicates_in([table], str(name))[0].astype(str)))
            found += [(str(name), n)] if 1 < n < table.n_rows else []
    return found


def _kind(table: Table) -> str:
    """Say what the values seem to be."""
    if look_like_counts(table.values):
        return "counts"
    values = table.values[:200]
    observed = values.data if is_sparse(values) else values[np.isfinite(values)]
    return "binary" if np.isin(observed, (0.0, 1.0)).all() else "measurements"


def _columns(table: Table, *, described: bool) -> list[dict[str, Any]]:
    """Describe the columns: annotations with their values first, then features.

    A column whose values may tell sets apart has up to 40 different words, or eight numbers; in a
    file with a table that describes its rows, no feature is one.
    """
    found = []
    for name, column in table.annotations.items():
        kind = "identifier" if name in table.identifiers else "annotation"
        found.append({"name": str(name), "kind": kind, **_values(column, most=40)})
    missing, few = _missing_of_features(table), [] if described else _with_few_values(table)
    for i, name in enumerate(table.features[:2000]):  # more than a page can list
        own: dict[str, Any] = {
            "name": name,
            "kind": "feature",
            "values": None,
            "missing": missing[i],
        }
        if i in few:
            own |= _values(pd.Series(columns_of(table.values, i)), most=8)
        found.append(own)
    return found


def _with_few_values(table: Table) -> list[int]:
    """List features with up to eight values in the first rows, or none if many are on disk."""
    if is_sparse(table.values):
        return []
    first = np.asarray(table.values[:200])
    found = [i for i in range(len(table.features)) if len(np.unique(first[:, i])) <= 8]
    return [] if is_on_disk(table.values) and len(found) > 20 else found


def _missing_of_features(table: Table) -> list[int]:
    found = np.zeros(len(table.features), dtype=np.intp)
    for _, rows in blocks(table.values) if not is_sparse(table.values) else ():
        found += np.isnan(rows).sum(axis=0)
    return [int(n) for n in found]


def _values(column: Column, most: int) -> dict[str, Any]:
    """Count the values of a column, if there are not too many."""
    counts = column.value_counts(sort=False)
    missing = int(column.isna().sum())
    counts = counts[counts > 0]
    different = len(counts)
    if different > most:
        return {"values": None, "different": different, "missing": missing}
    named = sorted(((_written(value), int(n)) for value, n in counts.items()), key=lambda v: v[0])
    return {"values": named, "different": different, "missing": missing}


def _written(value: object) -> str:
    """Write a value as a condition on rows names it."""
    return f"{value:g}" if isinstance(value, float) and value == round(value) else str(value)


def agreement(first: str, second: str) -> dict[str, Any]:
    """Compare the target dimensions of two models: the angles between them, in degrees."""
    from scipy.linalg import subspace_angles

    from contrastive_lvm.io.model_files import read_model

    found = [read_model(Path(path)) for path in (first, second)]
    one, two = (check_preparation(section, Path(first)) for _, section in found)
    if one.features != two.features:
        return {"angles": None, "why": "they have different features"}
    if not np.array_equal(one.scaling.scale, two.scaling.scale):
        return {"angles": None, "why": "their features have different units"}
    loadings = [np.asarray(model.target_components_) for model, _ in found]
    if not all(np.linalg.matrix_rank(own) for own in loadings):
        return {"angles": None, "why": "one of them has no target dimension"}
    angles = np.degrees(subspace_angles(*(own.T for own in loadings)))
    return {"angles": angles.tolist(), "why": ""}


def answer(asked: dict[str, Any]) -> dict[str, Any]:
    """Answer a question; refusals are a sentence under `error`."""
    try:
        if "models" in asked:
            return agreement(*asked["models"])
        return describe(asked["file"], asked["choices"])
    except MemoryError:
        return {"error": "there is not enough memory to read the file; use a smaller one."}
    except (ValueError, TypeError, OSError, ImportError, ArithmeticError) as error:
        return {"error": " ".join(str(error).split()) or "the file cannot be read."}


def main() -> None:
    """Answer the question on stdin."""
    json.dump(answer(json.load(sys.stdin)), sys.stdout)
