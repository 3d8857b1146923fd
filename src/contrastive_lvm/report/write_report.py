"""Write the report of rows in memory: check the arguments and write the file."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from contrastive_lvm.arrays import Matrix
from contrastive_lvm.estimators.input_rows import read_rows
from contrastive_lvm.io.atomic import destination, write_text_atomically
from contrastive_lvm.io.tables.preparation import unprepared
from contrastive_lvm.io.tables.prepare import Sets
from contrastive_lvm.io.tables.table import Table
from contrastive_lvm.report.page import page

SIZES = "size factor"


def write_report(
    model: Any,
    path: str | os.PathLike[str],
    X: Any,
    *,
    background: Any,
    labels: Any,
    background_labels: Any,
    size_factors: tuple[Any, Any],
    title: str,
) -> Path:
    """Write the report of a fitted estimator; see its method `report`."""
    place, preparation = destination(path), unprepared(model)
    if not hasattr(model, "feature_names_in_"):  # names from x0, as in scikit-learn
        features = [f"x{i}" for i in range(len(preparation.features))]
        preparation = preparation._replace(features=features)
    if not isinstance(title, str):
        raise TypeError(f"title={title!r} is not text; give a str.")
    rows = read_rows(model, X)
    target = _table(rows, X, labels, "labels", preparation.features)
    other = None
    if background is not None:
        others = read_rows(model, background, name="background")
        other = _table(
            others, background, background_labels, "background_labels", preparation.features
        )
    elif model.n_shared_:
        raise ValueError(
            "background=None, but the model has shared dimensions; give the rows of the background."
        )
    elif background_labels is not None:
        raise ValueError("background_labels were given without a background; give both or neither.")
    sets = _with_sizes(Sets(target, other, preparation, []), size_factors)
    return write_text_atomically(place, page(model, sets, title=title))


def _with_sizes(sets: Sets, given: tuple[Any, Any]) -> Sets:
    """Add the size factors as an annotation, which the page shows too."""
    if given[0] is None and given[1] is None:
        return sets
    tables = []
    names = ("size_factors", "background_size_factors")
    for table, name, sizes in zip((sets.target, sets.background), names, given, strict=True):
        if (table is None) != (sizes is None):
            raise ValueError(f"{name}={sizes!r} does not match the rows; give one for each row.")
        if table is not None:
            column = _annotations({SIZES: sizes}, name, table.n_rows)
            annotations = pd.concat([table.annotations, column], axis=1)
            tables.append(table._replace(annotations=annotations))
    preparation = sets.preparation._replace(sizes=SIZES)
    return Sets(tables[0], (*tables, None)[1], preparation, [])


def _table(values: Matrix, given: Any, labels: Any, name: str, features: list[str]) -> Table:
    n = values.shape[0]
    index = getattr(given, "index", None)
    named = index is not None and not isinstance(index, pd.RangeIndex) and not callable(index)
    row_names = [str(name) for name in (index if named and index is not None else range(n))]
    return Table(values, features, _annotations(labels, name, n), row_names, named=True, source="")


def _annotations(labels: Any, name: str, n: int) -> pd.DataFrame:
    """Return labels as columns with a value for each row."""
    if labels is None:
        return pd.DataFrame(index=range(n))
    try:
        frame = _frame(labels)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"{name} is not one value per row ({error}); give a sequence, a dict of sequences or a "
            "frame."
        ) from error
    if len(frame) != n:
        raise ValueError(
            f"{name} has {len(frame)} values, but there are {n} rows; give one for each row."
        )
    return frame.reset_index(drop=True)


def _frame(labels: Any) -> pd.DataFrame:
    if isinstance(labels, pd.DataFrame):
        return labels
    if isinstance(labels, Mapping):
        return pd.DataFrame({str(k): _one(v) for k, v in labels.items()})
    called = getattr(labels, "name", None)
    return pd.DataFrame({str(called) if isinstance(called, str) else "label": _one(labels)})


def _one(values: Any) -> Any:
    """Return a column of values without an index."""
    if isinstance(values, pd.Series):
        return values.reset_index(drop=True)
    if isinstance(values, pd.Categorical):
        return values
    array = np.asarray(values)
    if array.ndim != 1:
        raise ValueError(f"shape {array.shape}")
    return array
