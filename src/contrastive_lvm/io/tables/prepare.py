"""From files to the two sets of a fit, and new rows in the form that a model was fitted to."""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple, TypeAlias

import numpy as np
import pandas as pd

from contrastive_lvm.arrays import Matrix, NamedRows
from contrastive_lvm.io.tables.choose_rows import (
    Choice,
    Condition,
    Mask,
    matching_rows,
    refuse_merged_labels,
    refuse_named_summaries,
    refuse_similar_labels,
    refuse_summaries,
    rows_of,
    split_rows,
)
from contrastive_lvm.io.tables.on_disk import chosen, is_on_disk
from contrastive_lvm.io.tables.preparation import Origin, Preparation, fit_scaling
from contrastive_lvm.io.tables.read import (
    first_column,
    read_table,
    with_index,
    without_identifiers,
)
from contrastive_lvm.io.tables.recognize import SIGNS
from contrastive_lvm.io.tables.row_columns import categories_in
from contrastive_lvm.io.tables.table import Layout, Table, refuse_empty, some
from contrastive_lvm.linalg.matrices import blocks, is_sparse

LEAST_CODED = 4  # rows of a group, of which a column of codes is noticed
SetRows: TypeAlias = Matrix | pd.DataFrame | NamedRows


class Sets(NamedTuple):
    """Two sets with the same features, in the units of the model."""

    target: Table
    background: Table | None
    preparation: Preparation
    dropped: list[str]  # features that only one of two files has
    empty: Sequence[str] = ()  # features without a value in any row

    @property
    def tables(self) -> list[Table]:
        """The target, and the background if there is one."""
        return [self.target] if self.background is None else [self.target, self.background]

    def frames(self) -> "tuple[SetRows, SetRows | None]":
        """Return the rows of both sets as estimators take them."""
        target, *other = (frame(table, named=self.preparation.named) for table in self.tables)
        return target, other[0] if other else None


def read_sets(
    target_file: Path,
    background_file: Path | None,
    choice: Choice,
    scale: str = "none",
    features: Sequence[str] = (),
    *,
    alone: bool = False,
) -> Sets:
    r"""Read one file or two, choose rows, keep common columns, and scale both sets together.

    Parameters
    ----------
    target_file, background_file : Path
        The files of both sets; without the second, one file has both.
    choice : Choice
        Conditions on rows. A set without conditions of its own is all rows of its file; if both
        sets are in one file, the rows with another value in the column `by`.
    scale : {"standard", "robust", "none"}
    features : sequence of str
        The columns that are features; `["all"]` are all of numbers. By default, all of numbers but
        those that name rows (see `identifiers.is_identifier`).
    alone : bool
        Whether the target may go without a background.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "people.csv"
    >>> _ = path.write_text("group,age\ncase,40\ncontrol,30\ncase,50\n")
    >>> sets = read_sets(path, None, Choice(by="group", target=["case"]))
    >>> sets.target.values.tolist(), sets.background.values.tolist()
    ([[40.0], [50.0]], [[30.0]])
    """
    origin = Origin(target_file, background_file, choice)
    only = None if not features or list(features) == ["all"] else set(features)
    target, background, dropped = _chosen_sets(origin, only, alone=alone, recognize=not features)
    absent = sorted((only or set()).difference(target.features))
    if absent:
        raise ValueError(
            f"--features: {target.source} has no numeric column {some(absent)}; name other columns."
        )
    tables, empty = _without_empty(table for table in (target, background) if table is not None)
    scaling = fit_scaling(scale, [table.values for table in tables])
    about = (scaling, choice.layer, choice.sizes, origin, choice.replicates)
    known = tuple(choice.covariates)
    categories = categories_in(tables, known) if known else ()
    preparation = Preparation(tables[0].features, target.named, *about, known, categories)
    if scale != "none":
        tables = [table._replace(values=scaling.apply(table.values)) for table in tables]
    return Sets(tables[0], (*tables, None)[1], preparation, dropped, empty)


def read_again(preparation: Preparation, origin: Origin, *, alone: bool) -> Sets:
    """Read two sets with the features of a model and in its units."""
    target, background, _ = _chosen_sets(origin, _known_features(preparation), alone=alone)
    other = None if background is None else _prepare(background, preparation)
    return Sets(_prepare(target, preparation), other, preparation, [])


def read_rows(
    path: Path,
    preparation: Preparation,
    where: Sequence[str] = (),
    layout: Layout = Layout(),  # noqa: B008
    by: str | None = None,
) -> Table:
    """Read rows to apply a model to, with its features and in its units.

    The file is laid out as those of the fit unless `layout` says something else; `by` is the column
    that names the set of each row.
    """
    known = preparation.covariates
    choice = Choice(by, where=where, sizes=preparation.sizes, covariates=known)
    fitted = Layout() if preparation.origin is None else preparation.origin.choice.layout
    as_fitted = layout == Layout()
    table = read_table(
        path,
        annotations=choice.columns(),
        features=_known_features(preparation),
        layer=preparation.layer,
        layout=fitted._replace(row_names=None, drop=()) if as_fitted else layout,
    )
    if as_fitted and fitted.row_names in table.annotations:
        table = with_index(table, fitted._replace(drop=()))
    return _prepare(_choose(table, choice.conditions("target")), preparation)


def frame(table: Table, *, named: bool) -> SetRows:
    """Return values as estimators take them: with names, unless they are sparse or nameless."""
    if not named or is_sparse(table.values):
        return table.values
    if is_on_disk(table.values):
        return NamedRows(table.values, table.features)
    return pd.DataFrame(table.values, columns=table.features, copy=False)


def _known_features(preparation: Preparation) -> set[str] | None:
    return set(preparation.features) if preparation.named else None


def _prepare(table: Table, preparation: Preparation) -> Table:
    """Return the table with the features of a model, in its order and its units."""
    wanted = preparation.features
    if table.named and preparation.named:
        absent = [name for name in wanted if name not in set(table.features)]
        if absent:
            raise ValueError(
                f"{table.source} lacks {len(absent)} of the {len(wanted)} columns of the model "
                f"({some(absent)}); add them, with unknown values left empty."
            )
        table = _columns_of(table, wanted)
    else:
        _refuse_other_number(table, len(wanted), "the model")
        table = table._replace(features=wanted)
    return table._replace(values=preparation.scaling.apply(table.values))


def _chosen_sets(
    origin: Origin, features: set[str] | None, *, alone: bool, recognize: bool = False
) -> tuple[Table, Table | None, list[str]]:
    """Return both sets unscaled, and the features that only one of two files has."""
    choice, files = origin.choice, [path for path in origin[:2] if path is not None]
    other = [path for path in files if path.suffix.lower() != ".h5ad"]
    if choice.layer is not None and other:
        raise ValueError(
            f"--layer={choice.layer} needs .h5ad files, but {other[0]} is not one; leave it out."
        )
    tables = [
        read_table(
            path,
            annotations=choice.columns(),
            features=features,
            layer=choice.layer,
            layout=choice.layout,
        )
        for path in files
    ]
    if recognize:
        tables = without_identifiers(*tables)
    if len(tables) > 1:
        _refuse_other_signs(*tables)
    conditions = [choice.conditions(name) for name in ("target", "background")]
    for table in tables if any(conditions) else ():
        refuse_similar_labels(table, [*conditions[0], *conditions[1]])
        refuse_merged_labels(table, [*conditions[0], *conditions[1]])
    if len(tables) == 1:
        return *_from_one_file(tables[0], choice, alone=alone), []
    pairs = zip(tables, conditions, strict=True)
    return _with_common_features(*(_choose(table, own) if own else table for table, own in pairs))


def _refuse_other_signs(one: Table, other: Table) -> None:
    """Refuse a feature that has per cent or currency signs in one of two files only."""
    ways = [dict(table.rewritten) for table in (one, other)]
    for name in set(one.features).intersection(other.features, {*ways[0], *ways[1]}):
        signs = [
            set(SIGNS.values()).intersection(re.split(" and ", own.get(name, ""))) for own in ways
        ]
        if signs[0] != signs[1]:
            raise ValueError(
                f"Column {name!r} has {min(signs[0] ^ signs[1])} in only one of {one.source} and "
                f"{other.source}, so its numbers may have different units; write both alike, or "
                f"keep the column out of the model with --annotation {name}."
            )


def _choose(table: Table, conditions: list[Condition]) -> Table:
    mask = matching_rows(table, conditions)
    if not mask.any():
        raise ValueError(
            f"{table.source} has no row that meets all conditions "
            f"({', '.join(map(str, conditions))}); drop one of them."
        )
    return rows_of(table, mask)


def _from_one_file(table: Table, choice: Choice, *, alone: bool) -> tuple[Table, Table | None]:
    if not choice.target:
        if alone and not choice.background:
            return _choose(table, choice.conditions("target")), None
        raise ValueError(_how_to_choose(table, choice))
    if not choice.background and choice.by is None:
        raise ValueError(
            "--background is missing; choose the background rows with --background COLUMN=VALUE, "
            "or name a second file."
        )
    first, second = (matching_rows(table, choice.conditions(s)) for s in ("target", "background"))
    if not choice.background:
        refuse_summaries(table, choice.by, choice.conditions("target"))
        second = second & ~first & table.annotations[choice.by].notna().to_numpy()
    refuse_named_summaries(table, first | second)
    both = int((first & second).sum())
    if both:
        raise ValueError(
            f"{both} rows of {table.source} are in both target and background; "
            "make --target and --background exclusive."
        )
    for option, mask in (("target", first), ("background", second)):
        if not mask.any():
            conditions = ", ".join(map(str, choice.conditions(option)))
            why = conditions or f"every row is a target in {choice.by}"
            raise ValueError(
                f"{table.source} has no row for the {option} ({why}); choose other rows."
            )
    unused = table.n_rows - int(first.sum() + second.sum())
    said = (f"without {unused:,} rows that are in neither set",) if unused else ()
    remarks = (*table.remarks, *said, *_codes_of_groups(table, first, second))
    return split_rows(table._replace(remarks=remarks), first, second)


def _codes_of_groups(table: Table, first: Mask, second: Mask) -> tuple[str, ...]:
    """Say which columns of numbers have one value in each group, as codes of the groups have."""
    if not table.named or is_sparse(table.values) or min(first.sum(), second.sum()) < LEAST_CODED:
        return ()
    heads = [np.asarray(table.values[np.flatnonzero(own)[:1000]]) for own in (first, second)]
    one, other = (np.where((rows == rows[0]).all(axis=0), rows[0], np.nan) for rows in heads)
    names = [table.features[j] for j in np.flatnonzero(np.abs(one - other) > 0)]
    if not names:
        return ()
    said = f"{some(names)} as a measurement, although it has one value in each group"
    return (f"{said}; if it codes the groups, add --annotation {names[0]}",)


def _how_to_choose(table: Table, choice: Choice) -> str:
    if choice.by is None:
        return (
            f"{table.source} alone does not say which rows are the background; name a second file, "
            "or a column with --by COLUMN --target VALUE."
        )
    if choice.by not in table.annotations:
        return f"--by: {table.source} has no column {choice.by!r}; name one that it has."
    values = some(pd.unique(table.annotations[choice.by].dropna()))
    return f"--by {choice.by} needs --target VALUE; the column has the values {values}."


def _with_common_features(target: Table, background: Table) -> tuple[Table, Table, list[str]]:
    if not (target.named and background.named):
        _refuse_other_number(target, len(background.features), background.source)
        named = target if target.named else background
        target = target._replace(features=named.features, named=named.named)
        return target, background._replace(features=named.features, named=named.named), []
    if target.features == background.features:
        return target, background, []
    for one, other in ((target, background), (background, target)):
        odd = [name for name in one.features if name in other.annotations.columns]
        if odd:
            raise ValueError(
                f"{one.source} has numbers in column {some(odd)}, {other.source} has text; "
                f"correct one, or keep it out of the model with --annotation {odd[0]}."
            )
    shared = [name for name in target.features if name in set(background.features)]
    if not shared:
        same = set(first_column(target)).intersection(first_column(background))
        raise ValueError(
            f"{target.source} and {background.source} have no numeric column in common "
            f"({some(target.features)}; {some(background.features)}); give both the same names"
            f"{', or add --transpose if lines are features' if same else ''}."
        )
    dropped = sorted(set(target.features) ^ set(background.features))
    return _columns_of(target, shared), _columns_of(background, shared), dropped


def _refuse_other_number(table: Table, n_features: int, source: str) -> None:
    if len(table.features) != n_features:
        raise ValueError(
            f"{table.source} has {len(table.features)} numeric columns, {source} has {n_features}, "
            "and without names they cannot be matched; give both the same columns."
        )


def _columns_of(table: Table, features: list[str]) -> Table:
    if table.features == features:
        return table
    position = {name: i for i, name in enumerate(table.features)}
    columns = [position[name] for name in features]
    return table._replace(values=chosen(table.values, columns=columns), features=features)


def _without_empty(sets: Iterable[Table]) -> tuple[list[Table], list[str]]:
    """Leave out columns without a value in any set; refuse those that only one set lacks."""
    tables = list(sets)
    if any(is_sparse(table.values) for table in tables):
        return tables, []
    observed = np.zeros((len(tables), len(tables[0].features)), dtype=bool)
    for i, table in enumerate(tables):
        for _, rows in blocks(table.values):
            observed[i] |= ~np.isnan(np.asarray(rows)).all(axis=0)
            if observed[i].all():
                break
    if observed.all():
        return tables, []
    found, names = observed.any(axis=0), tables[0].features
    for table, own in zip(tables, observed, strict=True):
        absent = [names[i] for i in np.flatnonzero(found & ~own)]
        if absent:
            raise ValueError(
                f"{table.source} has no value in column {some(absent)} in one of the sets; "
                f"keep it out of the model with --annotation {absent[0]}."
            )
    kept = [names[i] for i in np.flatnonzero(found)]
    refuse_empty(tables[0].n_rows, len(kept), tables[0].source)
    return [_columns_of(table, kept) for table in tables], [n for n in names if n not in set(kept)]
