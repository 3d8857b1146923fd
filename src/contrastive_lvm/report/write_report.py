"""Write the report of rows in memory: check the arguments and write the file."""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from contrastive_lvm.arrays import Covariates, Matrix, RowLabels
from contrastive_lvm.estimators.covariates import covariate_table
from contrastive_lvm.estimators.frames import RowNumbers
from contrastive_lvm.estimators.input_rows import read_rows
from contrastive_lvm.estimators.units import without_preparation
from contrastive_lvm.io.atomic import page_destination, write_text_atomically
from contrastive_lvm.io.tables.preparation import unprepared
from contrastive_lvm.io.tables.prepare import Sets
from contrastive_lvm.io.tables.table import Table
from contrastive_lvm.report.findings import Fitted
from contrastive_lvm.report.page import page
from contrastive_lvm.report.page_data import page_data

COLUMNS = {"size_factors": "size factor", "groups": "replicate"}  # as the page names them


class GivenRows(NamedTuple):
    """The rows of a set, and what users pass in with them."""

    X: Any
    labels: object
    size_factors: RowNumbers
    groups: RowLabels
    prefix: str = ""  # of the names of the arguments
    covariates: Covariates = None


def write_report(
    model: Fitted,
    path: str | os.PathLike[str],
    target: GivenRows,
    background: GivenRows,
    *,
    title: str,
) -> Path:
    """Write the report of a fitted estimator; see its method `report`."""
    place, preparation = page_destination(path), unprepared(model)
    if not hasattr(model, "feature_names_in_"):  # names from x0, as in scikit-learn
        features = [f"x{i}" for i in range(len(preparation.features))]
        preparation = preparation._replace(features=features)
    if not isinstance(title, str):
        raise TypeError(f"title={title!r} is not text; give a str.")
    if background.X is None and model.n_shared_:
        raise ValueError(
            "background=None, but the model has shared dimensions; give the rows of the background."
        )
    if background.X is None and background.labels is not None:
        raise ValueError("background_labels were given without a background; give both or neither.")
    preparation = preparation._replace(features=[_text(name) for name in preparation.features])
    used = [name for name in COLUMNS if _is_given(name, target, background)]
    preparation = preparation._replace(
        sizes=COLUMNS["size_factors"] if "size_factors" in used else None,
        replicates=COLUMNS["groups"] if "groups" in used else None,
    )
    first = _table(read_rows(model, target.X), target, preparation.features)
    second = None
    if background.X is not None:
        rows = read_rows(model, background.X, name="background")
        second = _table(rows, background, preparation.features)
    sets, bare = Sets(first, second, preparation, []), without_preparation(model)
    if hasattr(bare, "feature_names_in_"):
        bare.feature_names_in_ = np.array(preparation.features, dtype=object)
    return write_text_atomically(place, page(page_data(bare, sets, title=title)))


def _is_given(name: str, *sets: GivenRows) -> bool:
    """Tell whether rows have values of a kind; those of both sets must, or of none."""
    values = [getattr(own, name) for own in sets]
    if all(value is None for value in values):
        return False
    for own, value in zip(sets, values, strict=True):
        if (own.X is None) != (value is None):
            raise ValueError(
                f"{own.prefix}{name}={value!r} does not match the rows; give one value per row."
            )
    return True


def _table(values: Matrix, given: GivenRows, features: list[str]) -> Table:
    """Return rows with their names, and labels, size factors and replicates to show with them."""
    n = values.shape[0]
    notes = [_annotations(given.labels, f"{given.prefix}labels", n)]
    for name, column in COLUMNS.items():
        own = getattr(given, name)
        if own is not None:
            notes.append(_annotations({column: own}, f"{given.prefix}{name}", n))
    if given.covariates is not None:
        columns = covariate_table(given.covariates, n, f"{given.prefix}covariates")
        known = pd.DataFrame({name: own.to_numpy() for name, own in columns.items()})
        others = pd.concat(notes, axis=1)
        notes = [others[[name for name in others if name not in known]], known]
    index = getattr(given.X, "index", None)
    if index is None or isinstance(index, pd.RangeIndex) or callable(index):
        index = range(n)
    names = [_text(str(name)) for name in index]
    return Table(values, features, pd.concat(notes, axis=1), names, named=True, source="")


def _annotations(labels: object, name: str, n: int) -> pd.DataFrame:
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
            f"{name} has {len(frame)} values, but there are {n} rows; give one value per row."
        )
    return frame.reset_index(drop=True)


def _frame(labels: object) -> pd.DataFrame:
    if isinstance(labels, pd.DataFrame):
        return labels
    if isinstance(labels, Mapping):
        return pd.DataFrame({_text(str(k)): _one(v) for k, v in labels.items()})
    called = getattr(labels, "name", None)
    return pd.DataFrame({_text(called) if isinstance(called, str) else "label": _one(labels)})


def _one(values: Any) -> Any:
    """Return a column of values without an index."""
    column = values if isinstance(values, pd.Series | pd.Categorical) else np.asarray(values)
    if column.ndim != 1:
        raise ValueError(f"shape {column.shape}")
    if column.dtype.kind in "OU":
        return np.array([_text(value) for value in column], dtype=object)
    return column.array if isinstance(column, pd.Series) else column


def _text(value: Any) -> Any:
    r"""Replace halves of characters, which are no text to pandas from version 3.1 on.

    >>> _text("half \ud800") == "half \ufffd"
    True
    """
    return re.sub("[\ud800-\udfff]", "\ufffd", value) if isinstance(value, str) else value
