"""`clvm transform`, `clvm impute` and `clvm denoise`: a model file applied to rows."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from contrastive_lvm.cli import options
from contrastive_lvm.cli.cli_progress import reading, working
from contrastive_lvm.cli.output import destination, user_warnings, whole
from contrastive_lvm.exceptions import InvalidDataError

if TYPE_CHECKING:
    import numpy as np

    from contrastive_lvm.io.tables.prepare import Preparation
    from contrastive_lvm.io.tables.table import Table

    Named = tuple[list[str], "np.ndarray"]  # columns and their values, (n, c)


CONTRASTIVE = ("ContrastiveLVM", "ContrastiveVAE")


def transform(
    model: options.ModelFile,
    file: options.RowsFile,
    *,
    where: options.Where = None,
    of: options.Of = "target",
    shared: Annotated[bool, typer.Option("--shared", help="Add the shared latents.")] = False,
    std: options.Std = False,
    output: options.TableOutput = None,
    as_json: options.Json = False,
) -> None:
    """Latents of rows: where they lie in the dimensions that only the target has.

    Rows of the background have shared latents alone.
    """

    def latents(estimator: Any, rows: Any, preparation: "Preparation", **sizes: Any) -> "Named":
        import numpy as np

        if of == "target" and not (shared or std):
            values = estimator.transform(rows, **sizes)
            return _numbered("target", values.shape[1]), values
        found, columns, parts = estimator.latents(rows, of=of, **sizes), [], []
        for name in ("target", "shared"):
            mean = getattr(found, name)
            if mean is None or (name == "shared" and of == "target" and not shared):
                continue
            columns += _numbered(name, mean.shape[1])
            parts.append(mean)
            if std:
                columns += [f"{c}_std" for c in _numbered(name, mean.shape[1])]
                parts.append(getattr(found, f"{name}_std"))
        return columns, np.hstack(parts)

    _apply(model, file, where, latents, output, as_json=as_json, of=of)


def impute(
    model: options.ModelFile,
    file: options.RowsFile,
    *,
    where: options.Where = None,
    of: options.Of = "target",
    std: options.Std = False,
    output: options.TableOutput = None,
    as_json: options.Json = False,
) -> None:
    """Rows with their missing entries filled in, in the units of the file."""

    def filled(estimator: Any, rows: Any, preparation: "Preparation", **sizes: Any) -> "Named":
        import numpy as np

        undone, names = preparation.scaling.undone, preparation.features
        if not std:
            return names, undone(estimator.impute(rows, of=of, **sizes))
        values, spread = estimator.impute(rows, of=of, return_std=True, **sizes)
        both = np.hstack([undone(values), undone(spread, spread=True)])
        return [*names, *(f"{name}_std" for name in names)], both

    _apply(model, file, where, filled, output, as_json=as_json, of=of)


def denoise(
    model: options.ModelFile,
    file: options.RowsFile,
    *,
    where: options.Where = None,
    output: options.TableOutput = None,
    as_json: options.Json = False,
) -> None:
    """Rows of the target with the shared part removed, in the units of the file."""

    def rest(estimator: Any, rows: Any, preparation: "Preparation", **sizes: Any) -> "Named":
        return preparation.features, preparation.scaling.undone(estimator.denoise(rows, **sizes))

    _apply(model, file, where, rest, output, as_json=as_json)


def _numbered(name: str, n: int) -> list[str]:
    return [f"{name}{k}" for k in range(1, n + 1)]


def _apply(
    model: Path,
    file: Path,
    where: list[str] | None,
    compute: "Callable[..., Named]",
    output: Path | None,
    *,
    as_json: bool,
    of: str = "target",
) -> None:
    """Read the model and the rows, compute, and write or print."""
    from contrastive_lvm.io.tables.prepare import frame, read_rows
    from contrastive_lvm.io.tables.size_factor_column import sizes_of
    from contrastive_lvm.io.tables.write import ending_of

    if of not in ("target", "background"):
        raise ValueError(f"--of={of} is unknown; use target or background.")
    if output is not None:
        ending_of(destination(output))
    estimator, preparation = loaded(model)
    with reading() as told:
        table = read_rows(file, preparation, where or (), told=told)
    named = hasattr(estimator, "feature_names_in_")
    sizes = sizes_of(table, preparation.sizes)
    try:
        with working("Computing"), user_warnings() as said:
            columns, values = compute(estimator, frame(table, named=named), preparation, **sizes)
    except InvalidDataError as error:
        raise InvalidDataError(str(file), error.reason) from error
    for sentence in said:
        typer.echo(f"warning: {sentence}", err=True)
    _give(table, columns, values, output, as_json=as_json)


def loaded(path: Path) -> "tuple[Any, Preparation]":
    """The contrastive model of a file, and how its rows are prepared."""
    from contrastive_lvm.io.model_files import read_model
    from contrastive_lvm.io.tables.prepare import restored, unprepared

    try:
        estimator, section = read_model(path)
    except FileNotFoundError as error:
        raise FileNotFoundError(f"{path} is not a file; name what clvm fit has written.") from error
    if type(estimator).__name__ not in CONTRASTIVE:
        raise ValueError(
            f"{path} holds a {type(estimator).__name__}, which has no target and background; "
            "name what clvm fit has written."
        )
    if section is None:  # written by save() in Python
        return estimator, unprepared(estimator)
    preparation = restored(section.facts, section.arrays, path)
    known = list(getattr(estimator, "feature_names_in_", preparation.features))
    if len(known) != estimator.n_features_in_ or known != preparation.features:
        raise ValueError(f"{path} is damaged: its preparation is of another model; fit it again.")
    return estimator, preparation


def _give(
    table: "Table", columns: list[str], values: Any, output: Path | None, *, as_json: bool
) -> None:
    from contrastive_lvm.io.tables.write import described, ending_of, write_frame

    if output is not None:
        ending, result = ending_of(output), described(table, columns, values)
        whole(output, lambda path: write_frame(path, ending, result, values))
        facts = {"output": str(output), "rows": len(values), "columns": columns}
        text = f"{len(values):,} rows and {len(columns):,} columns: {output}"
        typer.echo(json.dumps(facts, indent=1) if as_json else text)
    elif as_json:
        facts = {"rows": table.labels(), "columns": columns, "values": _plain(values)}
        typer.echo(json.dumps(facts, allow_nan=False))
    else:
        result = described(table, columns, values)
        named = table.row_names is not None
        typer.echo(result.to_csv(index=named, lineterminator="\n"), nl=False)


def _plain(values: Any) -> list[list[float | None]]:
    """Numbers as JSON has them, which knows no NaN."""
    return [[None if value != value else float(value) for value in row] for row in values]
