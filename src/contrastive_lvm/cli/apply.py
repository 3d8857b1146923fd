"""`clvm transform`, `clvm impute` and `clvm denoise`: apply a model file to rows."""

import io
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from contrastive_lvm.cli import options
from contrastive_lvm.cli.layout_options import with_layout
from contrastive_lvm.cli.output import Contrastive, announce, as_text, say, user_warnings
from contrastive_lvm.exceptions import InvalidDataError, InvalidParameterError
from contrastive_lvm.io.atomic import destination, write_atomically

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

    from contrastive_lvm.arrays import Array, Matrix
    from contrastive_lvm.io.tables.layout import Layout
    from contrastive_lvm.io.tables.preparation import Preparation
    from contrastive_lvm.io.tables.table import Table


TWO_SETS = ("ContrastiveLVM", "ContrastiveVAE")
ANY_SETS = (*TWO_SETS, "MultiSetLVM")


class Applied(NamedTuple):
    """A model and the rows that it is applied to."""

    estimator: Contrastive
    preparation: "Preparation"
    table: "Table"  # the rows with their annotations
    rows: "Matrix | pd.DataFrame"  # as the estimator takes them
    facts: dict[str, Any]  # their size factors and covariates, if columns give them
    which: dict[str, Any]  # the set that they belong to, or the set of each


@with_layout
def transform(
    model: options.ModelFile,
    file: options.RowsFile,
    *,
    where: options.Where = None,
    of: options.Of = None,
    shared: Annotated[
        bool, typer.Option("--shared", help="Also give the shared latents of target rows.")
    ] = False,
    std: options.Std = False,
    output: options.TableOutput = None,
    as_json: options.Json = False,
    layout: "Layout | None" = None,
) -> None:
    """Compute the latents of rows: their coordinates in the dimensions that only the target has.

    Rows of the background have shared latents only. Models of several sets give all blocks that
    only some of the sets have, and those of all sets with --shared.
    """
    import numpy as np

    given = read_for_model(model, file, where, output, layout, of)
    if "sets" in given.which:
        give(
            given.table, *_latents_of_blocks(given, shared=shared, std=std), output, as_json=as_json
        )
        return
    of = given.which["of"]
    with warnings_about(file):
        if of == "target" and not (shared or std):
            parts = {"target": given.estimator.transform(given.rows, **given.facts)}
        else:
            parts = given.estimator.latents(given.rows, of=of, **given.facts)._asdict()
    blocks = ("target", "shared") if shared or of == "background" else ("target",)
    columns, values = [], []
    for block in [name for name in blocks if parts[name] is not None]:
        names = [f"{block}{k}" for k in range(1, parts[block].shape[1] + 1)]
        columns += [*names, *(f"{name}_std" for name in names)] if std else names
        values += [parts[block], parts[f"{block}_std"]] if std else [parts[block]]
    give(given.table, columns, np.hstack(values), output, as_json=as_json)


@with_layout
def impute(
    model: options.ModelFile,
    file: options.RowsFile,
    *,
    where: options.Where = None,
    of: options.Of = None,
    std: options.Std = False,
    output: options.TableOutput = None,
    as_json: options.Json = False,
    layout: "Layout | None" = None,
) -> None:
    """Fill in the missing entries of rows, in the units of the file."""
    import numpy as np

    given = read_for_model(model, file, where, output, layout, of)
    undo, names = given.preparation.scaling.undo, given.preparation.features
    with warnings_about(file):
        found = given.estimator.impute(given.rows, **given.which, return_std=std, **given.facts)
    values = undo(found[0] if std else found)
    if std:
        values = np.hstack([values, undo(found[1], spread=True)])
        names = [*names, *(f"{name}_std" for name in names)]
    give(given.table, names, values, output, as_json=as_json)


@with_layout
def denoise(
    model: options.ModelFile,
    file: options.RowsFile,
    *,
    where: options.Where = None,
    remove_covariates: Annotated[
        bool,
        typer.Option("--remove-covariates", help="Also remove what the covariates explain."),
    ] = False,
    output: options.TableOutput = None,
    as_json: options.Json = False,
    layout: "Layout | None" = None,
) -> None:
    """Remove the shared part from rows of the target, in the units of the file.

    From rows of models of several sets what all sets share is removed.
    """
    given = read_for_model(model, file, where, output, layout)
    which = {name: value for name, value in given.which.items() if name == "sets"}
    if remove_covariates:
        if "covariates" not in given.facts:
            raise ValueError(f"--remove-covariates: {model} has none; leave it out.")
        which["remove_covariates"] = True
    with warnings_about(file):
        values = given.estimator.denoise(given.rows, **which, **given.facts)
    values = given.preparation.scaling.undo(values)
    give(given.table, given.preparation.features, values, output, as_json=as_json)


def read_for_model(
    model: Path,
    file: Path,
    where: list[str] | None,
    output: Path | None,
    layout: "Layout | None",
    of: str | None = None,
) -> Applied:
    """Read a model and rows in its units, and refuse an output that cannot be written."""
    from contrastive_lvm.cli.format_summary import describe_table
    from contrastive_lvm.io.tables.prepare import frame, read_rows
    from contrastive_lvm.io.tables.row_columns import facts_of_rows
    from contrastive_lvm.io.tables.write import ending_of

    if output is not None:
        ending_of(destination(output, "--output", inputs=[model, file]))
    estimator, preparation = load(model, ANY_SETS)
    several = hasattr(estimator, "set_sizes_")
    if of not in (None, *(estimator.set_sizes_ if several else ("target", "background"))):
        known = " or ".join(estimator.set_sizes_ if several else ("target", "background"))
        raise InvalidParameterError("--of", of, f"is unknown; use {known}.")
    by = preparation.origin.choice.by if several and preparation.origin is not None else None
    announce(f"Reading {file.name}")
    table = read_rows(file, preparation, where or (), layout, by)
    if several and of is None:
        table, labels = _labelled(table, by)
    say(describe_table(table), err=True)
    rows = frame(table, named=hasattr(estimator, "feature_names_in_"))
    which: dict[str, Any] = {"of": of or "target"}
    if several:
        which = {"sets": of or labels}
    facts = facts_of_rows(table, preparation)
    return Applied(estimator, preparation, table, rows, facts, which)


def _labelled(table: "Table", by: str | None) -> "tuple[Table, np.ndarray]":
    from contrastive_lvm.cli.fit_blocks import rows_with_labels

    if by is None or by not in table.annotations.columns:
        column = "the column that names the set of each row" if by is None else f"column {by!r}"
        raise ValueError(f"--of is needed, because {table.source} lacks {column}.")
    return rows_with_labels(table, by)


def _latents_of_blocks(given: Applied, *, shared: bool, std: bool) -> "tuple[list[str], Array]":
    """Return names of columns and latents of a model of several sets."""
    import numpy as np

    model, rows = given.estimator, given.rows
    if not (shared or std):
        names = [str(name) for name in model.get_feature_names_out()]
        return names, np.asarray(model.transform(rows, **given.which, **given.facts))
    latents = model.latents(rows, **given.which, **given.facts)
    columns, values = [], []
    for block, mean in latents.mean.items():
        names = [f"{block}{k}" for k in range(mean.shape[1])]
        columns += [*names, *(f"{name}_std" for name in names)] if std else names
        values += [mean, latents.std[block]] if std else [mean]
    return columns, np.hstack(values)


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
            f"{path} holds a {type(estimator).__name__}, which has no target and background; "
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


def give(
    table: "Table", columns: list[str], values: "Array", output: Path | None, *, as_json: bool
) -> None:
    """Write the columns to a file, or print them."""
    from contrastive_lvm.io.tables.write import described, ending_of, write_csv, write_frame

    if output is not None:
        ending, result = ending_of(output), described(table, columns, values)
        write_atomically(output, lambda path: write_frame(path, ending, result, values))
        facts = {"output": str(output), "rows": len(values), "columns": columns}
        text = f"{len(values):,} rows and {len(columns):,} columns: {output}"
        say(as_text(facts) if as_json else text)
    elif as_json:
        numbers = [[None if x != x else float(x) for x in row] for row in values]  # no NaN in JSON
        facts = {"rows": table.labels(), "columns": columns, "values": numbers}
        say(json.dumps(facts, allow_nan=False))
    else:
        printed = io.StringIO()
        write_csv(printed, described(table, columns, values))
        say(printed.getvalue(), nl=False)
