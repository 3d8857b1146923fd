"""`clvm transform`, `impute`, `denoise` and `score`: apply a model file to rows."""

import io
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from contrastive_lvm.cli import options
from contrastive_lvm.cli.format_summary import describe_table
from contrastive_lvm.cli.output import Contrastive, announce, say, show, user_warnings
from contrastive_lvm.exceptions import InvalidDataError, InvalidParameterError
from contrastive_lvm.io.atomic import destination, write_atomically

if TYPE_CHECKING:
    from contrastive_lvm.arrays import Array
    from contrastive_lvm.io.tables.preparation import Preparation
    from contrastive_lvm.io.tables.prepare import SetRows
    from contrastive_lvm.io.tables.table import Table


TWO_SETS = ("ContrastiveLVM", "ContrastiveVAE")
ANY_SETS = (*TWO_SETS, "MultiSetLVM")


class Applied(NamedTuple):
    """A model and the rows that it is applied to."""

    estimator: Contrastive
    preparation: "Preparation"
    table: "Table"  # the rows with their annotations
    rows: "SetRows"  # as the estimator takes them
    facts: dict[str, Any]  # their size factors and covariates, if columns give them
    which: dict[str, Any]  # the set that they belong to, or the set of each
    output: Path | None
    as_json: bool


@options.with_options(options.APPLY, options.OF)
def transform(
    *,
    std: bool,
    shared: Annotated[
        bool, typer.Option("--shared", help="Also compute the shared latents of target rows.")
    ] = False,
    **said: Any,
) -> None:
    """Compute the latents of rows.

    Latents are coordinates in the dimensions that only the target has. Background rows have shared
    latents only. For a model of several sets, the blocks are those that only some of the sets have,
    and with --shared also those that all sets have.
    """
    given = read_for_model(**said)
    model, of, arguments = given.estimator, given.which.get("of"), given.facts
    with warnings_about(said["file"]):
        if of != "background" and not (shared or std):
            values = model.transform(given.rows, **({} if of else given.which), **arguments)
            names = [f"target{k}" for k in range(1, values.shape[1] + 1)]
            give(given, names if of else list(model.get_feature_names_out()), values)
            return
        found = model.latents(given.rows, **given.which, **arguments)
    if of is None:
        blocks = {name: (mean, found.std[name]) for name, mean in found.mean.items()}
    else:
        blocks = {"target": (found.target, found.target_std)} if found.target is not None else {}
        if shared or of == "background":
            blocks["shared"] = (found.shared, found.shared_std)
    columns, values = [], []
    for block, (mean, spread) in blocks.items():
        names = [f"{block}{k + (of is not None)}" for k in range(mean.shape[1])]
        columns += [*names, *(f"{name}_std" for name in names)] if std else names
        values += [mean, spread] if std else [mean]
    give(given, columns, *values)


@options.with_options(options.APPLY, options.OF)
def impute(*, std: bool, **said: Any) -> None:
    """Impute the missing entries of rows.

    The result has the units of the file.
    """
    given = read_for_model(**said)
    undo, names = given.preparation.scaling.undo, list(given.preparation.features)
    with warnings_about(said["file"]):
        found = given.estimator.impute(given.rows, **given.which, return_std=std, **given.facts)
    if std:
        names += [f"{name}_std" for name in names]
        give(given, names, undo(found[0]), undo(found[1], spread=True))
    else:
        give(given, names, undo(found))


@options.with_options(options.APPLY)
def denoise(
    *,
    remove_covariates: Annotated[
        bool,
        typer.Option("--remove-covariates", help="Also remove what the covariates explain."),
    ] = False,
    **said: Any,
) -> None:
    """Remove the shared part from target rows.

    The result has the units of the file. For a model of several sets, the part that all sets share
    is removed.
    """
    given = read_for_model(**said)
    which = {name: value for name, value in given.which.items() if name == "sets"}
    if remove_covariates:
        if "covariates" not in given.facts:
            raise ValueError(f"--remove-covariates: {said['model']} has no covariates.")
        which["remove_covariates"] = True
    with warnings_about(said["file"]):
        values = given.estimator.denoise(given.rows, **which, **given.facts)
    give(given, given.preparation.features, given.preparation.scaling.undo(values))


@options.with_options(options.APPLY)
def score(**said: Any) -> None:
    """Score how much rows resemble the target.

    The column enrichment is the log-likelihood ratio of target and background, which is positive
    for rows that resemble the target.
    """
    given = read_for_model(**said, method="enrichment")
    with warnings_about(said["file"]):
        values = given.estimator.enrichment(given.rows, **given.facts)
    give(given, ["enrichment"], values[:, None])


def read_for_model(
    model: Path,
    file: Path,
    where: list[str] | None,
    output: Path | None,
    *,
    as_json: bool,
    of: str | None = None,
    method: str | None = None,
    **layout: Any,
) -> Applied:
    """Read a model that has a method, and rows in its units; refuse an output before any work."""
    from contrastive_lvm.cli.fit_blocks import rows_with_labels
    from contrastive_lvm.io.tables.prepare import frame, read_rows
    from contrastive_lvm.io.tables.row_columns import facts_of_rows
    from contrastive_lvm.io.tables.table import layout_of
    from contrastive_lvm.io.tables.write import ending_of

    if output is not None:
        ending_of(destination(output, "--output", inputs=[model, file]))
    estimator, preparation = load(model, ANY_SETS)
    if method is not None and not hasattr(estimator, method):
        kind = type(estimator).__name__
        raise ValueError(
            f"{model} contains a {kind}, which has no {method}; fit a linear model (--model clvm)."
        )
    several = hasattr(estimator, "set_sizes_")
    known = list(estimator.set_sizes_) if several else ["target", "background"]
    if of not in (None, *known):
        raise InvalidParameterError("--of", of, f"is unknown; use {' or '.join(known)}.")
    by = preparation.origin.choice.by if several and preparation.origin is not None else None
    announce(f"Reading {file.name}")
    table = read_rows(file, preparation, where or (), layout_of(**layout), by)
    which: dict[str, Any] = {"sets": of} if several else {"of": of or "target"}
    if several and of is None:
        if by is None or by not in table.annotations.columns:
            column = "the column that names the set of each row" if by is None else f"column {by!r}"
            raise ValueError(f"--of SET is required, because {table.source} lacks {column}.")
        table, which["sets"] = rows_with_labels(table, by)
    say(describe_table(table), err=True)
    rows = frame(table, named=hasattr(estimator, "feature_names_in_"))
    facts = facts_of_rows(table, preparation)
    return Applied(estimator, preparation, table, rows, facts, which, output, as_json)


@contextmanager
def warnings_about(file: Path) -> Iterator[None]:
    """Print warnings on stderr, and name the file in errors about its rows."""
    try:
        with user_warnings() as said:
            yield
    except InvalidDataError as error:
        raise InvalidDataError(str(file), error.reason) from error
    for sentence in said:
        say(f"warning: {sentence}", err=True)


def load(path: Path, kinds: tuple[str, ...] = TWO_SETS) -> "tuple[Contrastive, Preparation]":
    """Return the contrastive model of a file, and how its rows are prepared."""
    from contrastive_lvm.io.model_files import read_model
    from contrastive_lvm.io.tables.preparation import check_preparation, unprepared

    try:
        estimator, section = read_model(path)
    except FileNotFoundError as error:
        raise FileNotFoundError(
            f"{path} does not exist; name a model file written by clvm fit."
        ) from error
    if type(estimator).__name__ not in kinds:
        raise ValueError(
            f"{path} contains a {type(estimator).__name__}, which has no target and background; "
            "name a model file written by clvm fit."
        )
    if section is None:  # written by the method `save` in Python
        return estimator, unprepared(estimator)
    preparation = check_preparation(section, path)
    known = list(getattr(estimator, "feature_names_in_", preparation.features))
    if len(known) != estimator.n_features_in_ or known != preparation.features:
        raise ValueError(
            f"{path} is damaged: its preparation belongs to another model; fit it again."
        )
    return estimator, preparation


def give(given: Applied, columns: list[str], *parts: "Array") -> None:
    """Write columns to a file, or print them, with the names and annotations of the rows."""
    import numpy as np

    from contrastive_lvm.io.tables.write import described, write_csv, write_frame

    table, output, values = given.table, given.output, np.hstack(parts)
    if output is not None:
        result = described(table, columns, values)
        write_atomically(output, lambda path: write_frame(path, output, result, values))
        facts = {"output": str(output), "rows": len(values), "columns": columns}
        text = f"{len(values):,} rows and {len(columns):,} columns: {output}"
        show(facts, lambda _: text, as_json=given.as_json)
    elif given.as_json:
        numbers = [[None if x != x else float(x) for x in row] for row in values]  # no NaN in JSON
        facts = {"rows": table.labels(), "columns": columns, "values": numbers}
        say(json.dumps(facts, allow_nan=False))
    else:
        printed = io.StringIO()
        write_csv(printed, described(table, columns, values))
        say(printed.getvalue(), nl=False)
