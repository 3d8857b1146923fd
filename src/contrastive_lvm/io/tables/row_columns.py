"""Columns of a file that describe its rows: size factors, covariates, and replicates."""

import re
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from contrastive_lvm.arrays import Array, Column
from contrastive_lvm.io.tables.choose_rows import alike
from contrastive_lvm.io.tables.preparation import Preparation
from contrastive_lvm.io.tables.recognize import certain_marks, examine, parse_written
from contrastive_lvm.io.tables.table import Layout, Table

# Words by which people name a column of replicates.
WORDS = {
    "animal", "batch", "donor", "individual", "mouse", "patient", "rat", "replicate", "run",
    "sample", "session", "subject",
}  # fmt: skip
NUMBERED = re.compile(r"(.+)[_.\-]\d+$")


def facts_of_rows(table: Table | None, prepared: Preparation, prefix: str = "") -> dict[str, Any]:
    """Return the size factors and covariates of rows as an estimator's methods take them."""
    found: dict[str, Any] = {}
    if table is not None and prepared.sizes is not None:
        way = "add it, one positive number per row"
        given = annotation(table, prepared.sizes, "--size-factors", way)
        found[f"{prefix}size_factors"], wrong = positive_numbers(given)
        if len(wrong):
            raise ValueError(
                f"--size-factors: column {prepared.sizes!r} of {table.source} has "
                f"{str(given.iloc[wrong[0]])!r} in row {table.labels()[wrong[0]]}; give one "
                "positive number per row."
            )
    if table is not None and prepared.covariates:
        columns = {
            name: covariate(table, name, is_text=name in prepared.categories)
            for name in prepared.covariates
        }
        found[f"{prefix}covariates"] = pd.DataFrame(columns)
    return found


def covariate(table: Table, name: str, *, is_text: bool) -> Column:
    """Return a covariate as numbers or as text, with a value in every row."""
    given = annotation(table, name, "--covariate", "add it, or name another")
    empty = np.flatnonzero(given.isna())
    if len(empty):
        others = f" and {len(empty) - 1} others" if len(empty) > 1 else ""
        raise ValueError(
            f"--covariate: column {name!r} of {table.source} is empty in row "
            f"{table.labels()[empty[0]]}{others}; fill it in, or leave rows out with --where."
        )
    values = given.reset_index(drop=True)
    if is_text:
        return values.map(str).astype(object)
    numbers = _as_numbers(values, table.source)
    wrong = np.flatnonzero(numbers.isna())
    if len(wrong):
        raise ValueError(
            f"--covariate: column {name!r} of {table.source} has {str(values.iloc[wrong[0]])!r} in "
            f"row {table.labels()[wrong[0]]}, but had numbers in the fit; give a number."
        )
    return numbers.astype(np.float64)


def categories_in(tables: Sequence[Table], names: Sequence[str]) -> tuple[str, ...]:
    """Return which covariates have a value that is no number."""
    found = []
    for name in names:
        columns = [annotation(t, name, "--covariate", "name one that it has") for t in tables]
        values = pd.concat([column.dropna().astype(object) for column in columns])
        if _as_numbers(values, tables[0].source).isna().any():
            _refuse_two_spellings("--covariate", name, values.map(str), "category")
            found.append(name)
    return tuple(found)


def _as_numbers(values: Column, source: str) -> Column:
    """Return a column as numbers, with decimal commas or not; NaN where it has words."""
    plain: Column = pd.to_numeric(values.astype(object), errors="coerce")
    found = examine(str(values.name), list(values), Layout()) if plain.isna().any() else None
    if found is None or found.odd or not found.positions:
        return plain
    numbers = np.full(len(values), np.nan)
    numbers[found.positions], _ = parse_written(found, certain_marks([found]), source)
    return pd.Series(numbers, index=values.index)


def _refuse_two_spellings(option: str, column: str, names: Iterable[str], what: str) -> None:
    """Refuse values that differ only in capitals or blanks."""
    spellings: dict[str, str] = {}
    for name in names:
        if spellings.setdefault(alike(name), name) != name:
            raise ValueError(
                f"{option}: column {column!r} has {name!r} besides {spellings[alike(name)]!r}; "
                f"use one spelling for each {what}."
            )


def positive_numbers(column: Column) -> tuple[Array, np.ndarray]:
    """Return a column as numbers, and the positions of values that are no positive numbers."""
    numbers: Array = pd.to_numeric(column.astype(object), errors="coerce").to_numpy(np.float64)
    return numbers, np.flatnonzero(~(np.isfinite(numbers) & (numbers > 0)))


def annotation(table: Table, column: str, option: str, way: str) -> Column:
    """Return a column that an option names, or refuse a table without it."""
    if column not in table.annotations.columns:
        raise ValueError(f"{option}: {table.source} has no column {column!r}; {way}.")
    return table.annotations[column]


def replicates_in(tables: Sequence[Table], column: str) -> list[np.ndarray]:
    """Return the replicate of each row of some tables.

    Where no value repeats but values are stems with numbers (309_1, 309_2, ...), the stems name
    the replicates.
    """
    names, way = [], "name a column that says which replicate each row belongs to"
    for table in tables:
        labels = annotation(table, column, "--replicates", way)
        missing = np.flatnonzero(labels.isna())
        if len(missing):
            raise ValueError(
                f"--replicates: column {column!r} of {table.source} is empty in row "
                f"{table.labels()[missing[0]]}; name a replicate for every row."
            )
        names.append([str(label) for label in labels])
    together = [name for own in names for name in own]
    _refuse_two_spellings("--replicates", column, together, "replicate")
    if len(set(together)) == len(together):
        if not _numbered(together):
            raise ValueError(
                f"--replicates: the values of column {column!r} are all different; name a column "
                "whose values repeat, or leave the option out."
            )
        names = [[NUMBERED.sub(r"\1", name) for name in own] for own in names]
    return [np.array(own, dtype=object) for own in names]


def replicate_sign(tables: Sequence[Table], known: Sequence[str] = ()) -> str | None:
    """Describe signs that rows are repeated measurements; None if there are none.

    Signs are row names or a column of text made of stems and numbers (309_1, 309_2, ...), and a
    column with a telling name (donor, mouse, ...) whose values repeat. Columns that are `known` as
    something else are no signs.
    """
    for table in tables:
        for name in table.annotations.columns.difference(list(known), sort=False):
            values = table.annotations[name].dropna()
            words = set(re.split(r"[^a-z]+", str(name).lower()))
            counts = values.value_counts()
            repeats = words & WORDS and len(counts) >= 3 and float(counts.median()) >= 2
            text = values.is_unique and not pd.api.types.is_numeric_dtype(values)
            if repeats or (text and _numbered([str(value) for value in values])):
                return f"The column {name!r} may name replicates"
    if any(_numbered(table.row_names) for table in tables):
        return "The names of the rows (such as a_1, a_2, b_1) look like repeated measurements"
    return None


def _numbered(names: list[str] | None) -> bool:
    """Whether names are stems with numbers, most stems several times.

    >>> _numbered(["a_1", "a_2", "b_1", "b_2", "c_1", "c_2"]), _numbered(["s_1", "s_2", "s_3"])
    (True, False)
    """
    found = [NUMBERED.fullmatch(name) for name in names or []]
    stems = [match[1] for match in found if match]
    if len(stems) < len(found) or not stems:
        return False
    _, counts = np.unique(stems, return_counts=True)
    return len(counts) >= 3 and float(np.median(counts)) >= 2
