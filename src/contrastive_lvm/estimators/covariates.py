"""Covariates as numbers: categories are coded, and all columns are centred and scaled.

A category of L levels becomes L - 1 columns of zeros and ones, one for each level but the first
(treatment coding): an effect is the difference from the first level. Engines see columns centred at
their mean over the rows of all sets and divided by their standard deviation.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from contrastive_lvm.arrays import Array, Column, Covariates
from contrastive_lvm.checks import check_choice
from contrastive_lvm.estimators.frames import as_array, first_few, is_frame
from contrastive_lvm.exceptions import InvalidDataError
from contrastive_lvm.io.value_checks import array, check_values
from contrastive_lvm.linalg.matrices import LEAST_SHARE, first_determined

Levels = tuple[str, ...]
Flags = npt.NDArray[np.bool_]


class Encoding(NamedTuple):
    """How the covariates of a fit are coded, so that new rows can be coded in the same way."""

    names: tuple[str, ...]  # of the columns given
    levels: tuple[Levels | None, ...]  # of categories, without the first level; None for numbers
    center: Array  # (C,) means of the coded columns over all rows
    scale: Array  # (C,) their standard deviations

    @property
    def columns(self) -> tuple[str, ...]:
        """Return the names of the coded columns, such as `age` and `sex[male]`."""
        pairs = zip(self.names, self.levels, strict=True)
        return tuple(
            name if levels is None else f"{name}[{level}]"
            for name, levels in pairs
            for level in ((None,) if levels is None else levels[1:])
        )

    def known_rows(self, given: pd.DataFrame) -> Flags:
        """Tell which rows have a value of every covariate, and only known levels."""
        known = given.notna().all(axis=1).to_numpy(dtype=bool)
        for name, levels in zip(self.names, self.levels, strict=True):
            if levels is not None:
                known = known & given[name].astype(str).isin(levels).to_numpy(dtype=bool)
        return np.asarray(known)

    def encode(self, given: Any, n_rows: int, argument: str = "covariates") -> Array:
        """Return the covariates of rows as engines see them, (N, C)."""
        if isinstance(given, EncodedRows):
            return given.values
        if given is None:
            reason = (
                f"is None, but the model was fitted with {first_few(self.names)}; give those of "
                "these rows too."
            )
            raise InvalidDataError(argument, reason)
        table = covariate_table(given, n_rows, argument)
        if set(table) != set(self.names):
            reason = (
                f"has the columns {first_few(table)}, but the model was fitted with "
                f"{first_few(self.names)}; give the same."
            )
            raise InvalidDataError(argument, reason)
        coded = _coded([table[name] for name in self.names], self.names, self.levels, argument)
        return np.asarray((coded - self.center) / self.scale)


@dataclass(frozen=True)
class EncodedRows:
    """Encoded covariates of rows, which can be cut into chunks."""

    values: Array  # (N, C)

    def __getitem__(self, rows: slice | np.ndarray) -> "EncodedRows":
        """Return those of some rows."""
        return EncodedRows(self.values[rows])


def encode_rows(encoding: Encoding | None, given: Any, n_rows: int) -> EncodedRows | None:
    """Return the covariates of rows of a fitted model, encoded; None if it has none."""
    if encoding is not None:
        return EncodedRows(encoding.encode(given, n_rows))
    if given is not None:
        reason = "were given, but the model was fitted without; leave them out."
        raise InvalidDataError("covariates", reason)
    return None


class Given(NamedTuple):
    """The covariates of one set's rows, as users gave them."""

    argument: str
    covariates: Covariates
    n_rows: int
    weights: Array | None = None


def encode_sets(
    sets: Sequence[Given], set_names: Sequence[str], *, own: bool
) -> tuple[Encoding | None, list[Array]]:
    """Find the encoding of the covariates of all sets, and return them encoded.

    Covariates that the sets or other covariates determine are refused, since their effects cannot
    be estimated; with effects of each set's `own` they must vary within each set.
    """
    missing = [one.argument for one in sets if one.covariates is None]
    if len(missing) == len(sets):
        return None, []
    if missing:
        present = next(one.argument for one in sets if one.covariates is not None)
        reason = f"is None, but {present} was given; give the covariates of all sets or of none."
        raise InvalidDataError(missing[0], reason)
    tables = [covariate_table(one.covariates, one.n_rows, one.argument) for one in sets]
    names = tuple(tables[0])
    for one, table in zip(sets, tables, strict=True):
        if set(table) != set(names):
            reason = (
                f"has the columns {first_few(table)}, but {sets[0].argument} has "
                f"{first_few(names)}; give all sets the same."
            )
            raise InvalidDataError(one.argument, reason)
    levels = tuple(_levels(name, [table[name] for table in tables]) for name in names)
    coded = [
        _coded([table[name] for name in names], names, levels, one.argument)
        for one, table in zip(sets, tables, strict=True)
    ]
    weights = [np.ones(one.n_rows) if one.weights is None else one.weights for one in sets]
    rows, w = np.vstack(coded), np.concatenate(weights)
    # Squares of large and small numbers overflow and vanish; powers of two divide without rounding.
    unit = 2.0 ** np.frexp(np.abs(rows).max(axis=0))[1]
    rows /= unit
    center = np.average(rows, axis=0, weights=w)
    scale = np.sqrt(np.average((rows - center) ** 2, axis=0, weights=w))
    scale = np.where(scale > 1e-12 * np.abs(center), scale, 0.0)
    center, scale = unit * center, unit * scale
    encoding = Encoding(names, levels, center, scale)
    _refuse_constant(encoding, sets[0].argument)
    encoded = [(values - center) / scale for values in coded]
    _refuse_determined(encoding, encoded, weights, sets, set_names, own=own)
    return encoding, encoded


def check_effects(value: object) -> bool:
    """Tell whether covariates have effects of their own in each set."""
    return check_choice("covariate_effects", value, ("shared", "own")) == "own"


def checked_encoding(value: object) -> Encoding | None:
    """Return the encoding that a model file holds."""
    if value is None:
        return None
    if not isinstance(value, Encoding) or len(value.names) != len(value.levels):
        raise ValueError("its covariates are not an encoding")
    texts = [value.names, *(levels for levels in value.levels if levels is not None)]
    for text in texts:
        known = isinstance(text, tuple) and all(isinstance(word, str) for word in text)
        if not known or len(set(text)) < len(text) or not text:
            raise ValueError("its covariates have wrong names or levels")
    C = len(value.columns)
    check_values({"center": array(C), "scale": array(C, values="positive")}, value)
    return value


def effects_table(encoding: Encoding, effects: Array, features: Sequence[object]) -> pd.DataFrame:
    """Return effects, (D, C), in units of the covariates: a row for each coded column."""
    values = (effects / encoding.scale).T
    return pd.DataFrame(values, index=list(encoding.columns), columns=list(features))


def _refuse_constant(encoding: Encoding, argument: str) -> None:
    single = [
        name
        for name, known in zip(encoding.names, encoding.levels, strict=True)
        if known is not None and len(known) == 1
    ]
    constant = np.array(encoding.columns)[encoding.scale == 0].tolist()
    for name in (*single, *constant):
        reason = f"has a column {name!r} that is the same in every row; leave it out."
        raise InvalidDataError(argument, reason)


def covariate_table(given: Any, n_rows: int, argument: str) -> dict[str, pd.Series]:
    """Return columns by name, refusing missing values; columns of an array are c0, c1 and so on."""
    frame = _frame(given, argument)
    if len(frame) != n_rows:
        reason = f"has {len(frame)} rows, but there are {n_rows}; give one row for each."
        raise InvalidDataError(argument, reason)
    names = [str(name) for name in frame.columns]
    if not names or len(set(names)) < len(names):
        reason = "needs at least one column, and a name of its own for each; name them once."
        raise InvalidDataError(argument, reason)
    found = {}
    for i, name in enumerate(names):
        column = frame.iloc[:, i]
        if column.dtype == np.object_:
            column = column.infer_objects()
        empty = np.flatnonzero(column.isna().to_numpy())
        if len(empty):
            reason = (
                f"has no value of {name!r} in {len(empty)} row(s), the first of them row "
                f"{empty[0]}; fill it in, or leave these rows out."
            )
            raise InvalidDataError(argument, reason)
        found[name] = _number_or_text(column, name, argument)
    return found


def _frame(given: Any, argument: str) -> pd.DataFrame:
    if isinstance(given, pd.DataFrame):
        return given
    if isinstance(given, pd.Series):
        return given.to_frame("c0" if given.name is None else given.name)
    if is_frame(given):  # a frame of polars
        return pd.DataFrame({name: given[name].to_list() for name in given.columns})
    values = np.ma.filled(as_array(given, argument), np.nan)
    values = values[:, None] if values.ndim == 1 else values
    if values.ndim != 2:
        reason = f"has shape {values.shape}, but needs rows and covariates."
        raise InvalidDataError(argument, reason)
    return pd.DataFrame(values, columns=[f"c{i}" for i in range(values.shape[1])])


def _number_or_text(column: Column, name: str, argument: str) -> Column:
    """Return a column of floats, or of text that is a category."""
    types, kind = pd.api.types, column.dtype
    if isinstance(kind, pd.CategoricalDtype):
        used = [level for level in kind.categories if (column == level).any()]
        text = column.map(str).astype(object)
        return text.astype(pd.CategoricalDtype([str(level) for level in used]))
    if types.is_numeric_dtype(kind) and not types.is_complex_dtype(kind):
        numbers = column.astype(np.float64)
        if not np.isfinite(numbers).all():
            reason = f"contains infinity in {name!r}; replace it."
            raise InvalidDataError(argument, reason)
        return numbers
    if kind == np.object_ or types.is_string_dtype(kind):
        return column.map(str).astype(object)
    reason = (
        f"has a column {name!r} of dtype {kind}, which is neither numbers nor categories; "
        "convert it."
    )
    raise InvalidDataError(argument, reason)


def _levels(name: str, columns: list[Column]) -> Levels | None:
    """Return the levels of a category in all sets: in its own order, if it has one, else sorted."""
    numeric = [column.dtype == np.float64 for column in columns]
    if all(numeric):
        return None
    if any(numeric):
        reason = f"has numbers in {name!r} in one set and text in another; give both the same."
        raise InvalidDataError("covariates", reason)
    ordered: dict[str, None] = {}
    for column in columns:
        own = column.dtype
        ordered |= dict.fromkeys(
            own.categories if isinstance(own, pd.CategoricalDtype) else sorted(column.unique())
        )
    has_order = all(isinstance(column.dtype, pd.CategoricalDtype) for column in columns)
    return tuple(ordered) if has_order else tuple(sorted(ordered))


def _coded(
    columns: list[Column],
    names: Sequence[str],
    levels: Sequence[Levels | None],
    argument: str,
) -> Array:
    """Return numbers as they are and categories as zeros and ones, (N, C)."""
    parts: list[Array] = []
    for column, name, known in zip(columns, names, levels, strict=True):
        if (known is None) != (column.dtype == np.float64):
            kinds = ("numbers", "text") if known is None else ("text", "numbers")
            reason = f"has {kinds[1]} in {name!r}, which has {kinds[0]} in the fit; convert it."
            raise InvalidDataError(argument, reason)
        values = column.to_numpy()
        if known is None:
            parts.append(values[:, None])
            continue
        new = set(values) - set(known)
        if new:
            reason = (
                f"has {first_few(new)} in {name!r}, but the fit had {first_few(known)} only; "
                "leave these rows out, or fit the model with them."
            )
            raise InvalidDataError(argument, reason)
        parts.append(np.array(values[:, None] == np.array(known[1:], dtype=object), dtype=float))
    return np.hstack(parts)


def _refuse_determined(
    encoding: Encoding,
    encoded: list[Array],
    weights: list[Array],
    sets: Sequence[Given],
    set_names: Sequence[str],
    *,
    own: bool,
) -> None:
    """Refuse a covariate whose effect cannot be told from means of sets and other effects."""
    moments, totals = [], []
    for values, w in zip(encoded, weights, strict=True):
        centred = values - np.average(values, axis=0, weights=w)
        moments.append(centred.T @ (w[:, None] * centred))
        totals.append(w.sum())
    if not own:
        moments, totals = [np.sum(moments, axis=0)], [np.sum(totals)]
    for i, (matrix, total) in enumerate(zip(moments, totals, strict=True)):
        j = first_determined(matrix, np.full(len(matrix), total))
        if j is None:
            continue
        where = f" in set {set_names[i]!r}, with covariate_effects='own'," if own else ""
        if matrix[j, j] <= LEAST_SHARE * total:
            within = "is the same in all rows of the set" if own else "the sets determine"
            why = "so its effect cannot be distinguished from the means of the sets"
        else:
            within, why = "the sets and the covariates before it determine", "as a sum of these"
        reason = f"has a column {encoding.columns[j]!r} that{where} {within}, {why}; leave it out."
        raise InvalidDataError(sets[i if own else 0].argument, reason)
