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
from contrastive_lvm.report.findings import Fitted
from contrastive_lvm.report.page import page


def write_report(
    model: Fitted,
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
    if background is None and model.n_shared_:
        raise ValueError(
            "background=None, but the model has shared dimensions; give the rows of the background."
        )
    if background is None and background_labels is not None:
        raise ValueError("background_labels were given without a background; give both or neither.")
    if any(sizes is not None for sizes in size_factors):
        preparation = preparation._replace(sizes="size factor")
        _check_sizes("size_factors", X, size_factors[0])
        _check_sizes("background_size_factors", background, size_factors[1])
    features, other = preparation.features, None
    target = _table(read_rows(model, X), X, labels, "", features, size_factors[0])
    if background is not None:
        rows = read_rows(model, background, name="background")
        notes, sizes = background_labels, size_factors[1]
        other = _table(rows, background, notes, "background_", features, sizes)
    sets = Sets(target, other, preparation, [])
    return write_text_atomically(place, page(model, sets, title=title))


def _check_sizes(name: str, rows: Any, sizes: Any) -> None:
    if (rows is None) != (sizes is None):
        raise ValueError(f"{name}={sizes!r} does not match the rows; give one for each row.")


def _table(
    values: Matrix, given: Any, labels: Any, prefix: str, features: list[str], sizes: Any = None
) -> Table:
    """Return rows with their names, labels and size factors, which the page shows too."""
    n = values.shape[0]
    notes = _annotations(labels, f"{prefix}labels", n)
    if sizes is not None:
        column = _annotations({"size factor": sizes}, f"{prefix}size_factors", n)
        notes = pd.concat([notes, column], axis=1)
    index = getattr(given, "index", None)
    if index is None or isinstance(index, pd.RangeIndex) or callable(index):
        index = range(n)
    return Table(values, features, notes, [str(name) for name in index], named=True, source="")


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
    column = values if isinstance(values, pd.Series | pd.Categorical) else np.asarray(values)
    if column.ndim != 1:
        raise ValueError(f"shape {column.shape}")
    return column.array if isinstance(column, pd.Series) else column
