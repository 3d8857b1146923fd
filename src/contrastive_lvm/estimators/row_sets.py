"""Rows of several sets in one matrix: labels of rows, and the rows of each set."""

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from contrastive_lvm.arrays import Array, unnamed
from contrastive_lvm.estimators.frames import RowNumbers, first_few, number_per_row
from contrastive_lvm.estimators.input_rows import (
    check_sample_weight,
    refuse_empty_columns,
    refuse_values,
)
from contrastive_lvm.exceptions import InvalidDataError
from contrastive_lvm.rows.reader import Checks, RowReader, Rows, open_rows
from contrastive_lvm.rows.row_subset import select_rows

Labels = npt.NDArray[np.object_]  # (N,) the name of each row's set
Codes = npt.NDArray[np.intp]
Places = slice | npt.NDArray[np.intp]


def check_labels(given: Any, n_rows: int, known: Sequence[str] = ()) -> Labels:
    """Return the set of each row as text; one name stands for all rows where sets are `known`."""
    codes, names = coded_labels(given, n_rows, known)
    labels: Labels = np.array(names, dtype=object)[codes]
    return labels


def coded_labels(given: Any, n_rows: int, known: Sequence[str] = ()) -> tuple[Codes, list[str]]:
    """Return the number of each row's set, and the sets in the order of their names."""
    if isinstance(given, str) and known:
        given = np.full(n_rows, given, dtype=object)
    if given is None or isinstance(given, str) or not hasattr(given, "__len__"):
        reason = f"is {given!r}, but must name the set of each row; give one label per row."
        raise InvalidDataError("sets", reason)
    labels = given if isinstance(given, np.ndarray) else np.asarray(given, dtype=object)
    if labels.shape != (n_rows,):
        reason = f"has shape {labels.shape}, but there are {n_rows} rows; give one label per row."
        raise InvalidDataError("sets", reason)
    codes, distinct = _factorized(labels)
    missing = np.flatnonzero(codes < 0)
    if len(missing):
        reason = f"names no set for row {missing[0]}; label every row, or leave such rows out."
        raise InvalidDataError("sets", reason)
    texts = [str(label) for label in distinct]
    strange = set(texts) - set(known)
    if known and strange:
        reason = f"has {first_few(strange)}, but the model was fitted to {first_few(known)}."
        raise InvalidDataError("sets", reason)
    names = sorted(set(texts))
    place = np.array([names.index(text) for text in texts], dtype=np.intp)
    return place[codes], names


def _factorized(labels: np.ndarray) -> tuple[Codes, np.ndarray]:
    """Return the number of each label, -1 if it is missing, and the distinct ones.

    Text is compared with that of the row before, since sets often stand one after the other.
    """
    if labels.dtype.kind != "U":
        return pd.factorize(labels.astype(object))
    first = np.flatnonzero(np.append(True, labels[1:] != labels[:-1]))
    codes, distinct = pd.factorize(labels[first].astype(object))
    return np.repeat(codes, np.diff(np.append(first, len(labels)))), distinct


def places_of_sets(codes: Codes, names: Sequence[str]) -> dict[str, Places]:
    """Return where the rows of each set are."""
    found: dict[str, Places] = {}
    for code, name in enumerate(names):
        places = np.flatnonzero(codes == code)
        if not len(places):
            continue
        consecutive = places[-1] - places[0] == len(places) - 1
        found[name] = slice(int(places[0]), int(places[-1]) + 1) if consecutive else places
    return found


def size_of(places: Places) -> int:
    """Return the number of rows at some places."""
    return places.stop - places.start if isinstance(places, slice) else len(places)


class SetsOfRows(NamedTuple):
    """The rows of each set of a fit, in the order of the names of the sets."""

    places: dict[str, Places]
    rows: list[Rows]
    weights: list[Array | None]
    size_factors: list[Array | None]

    @property
    def n_rows(self) -> dict[str, int]:
        """Number of rows of each set."""
        return {name: rows.shape[0] for name, rows in zip(self.places, self.rows, strict=True)}


def split_rows(
    X: Any, rows: Rows, places: dict[str, Places], weights: RowNumbers, sizes: RowNumbers
) -> SetsOfRows:
    """Return the rows of each set with what belongs to them; `rows` are those of X, checked."""
    n = rows.shape[0]
    if weights is not None:
        weights = number_per_row("sample_weight", weights, n)
    if sizes is not None:
        sizes = number_per_row("size_factors", sizes, n)
    found = SetsOfRows(places, [], [], [])
    for name, at in places.items():
        found.rows.append(_rows_of_set(X, rows, at, f"X in set {name!r}"))
        own = None if weights is None else np.asarray(weights)[at]
        argument, size = f"sample_weight in set {name!r}", found.rows[-1].shape[0]
        found.weights.append(check_sample_weight(argument, own, size))
        found.size_factors.append(None if sizes is None else np.asarray(sizes)[at])
    return found


def _rows_of_set(X: Any, rows: Rows, at: Places, name: str) -> Rows:
    n = size_of(at)
    if n < 2:
        reason = f"has {n} sample (row), but fitting needs at least 2; add rows, or leave it out."
        raise InvalidDataError(name, reason)
    if not isinstance(rows, RowReader):
        return rows[at]
    values = partial(refuse_values, name=name)
    checks = Checks(values, partial(refuse_empty_columns, name=name))
    chosen = np.zeros(rows.shape[0], dtype=bool)
    chosen[at] = True
    return open_rows(select_rows(unnamed(X), chosen), name, checks)
