"""`clvm export`: the results of a model as tables for a spreadsheet or a paper."""

from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from contrastive_lvm.cli import options
from contrastive_lvm.cli.output import announce, folder, show
from contrastive_lvm.cli.report import rows_of_model
from contrastive_lvm.io.atomic import destination, write_atomically

TABLES = ("loadings", "latents", "background", "means", "variance", "settings")


@options.with_options(options.MODEL_FILE, options.SIDES)
def export(
    *,
    model: Path,
    file: options.RowsOfFit = None,
    background_file: options.BackgroundFile = None,
    rotate: Annotated[
        str | None,
        typer.Option(metavar="METHOD", help="Rotation of the target loadings: varimax or promax."),
    ] = None,
    bootstrap: options.Bootstrap = None,
    output: Annotated[
        Path,
        typer.Option(
            "--output", "-o", metavar="PLACE", help="A workbook (.xlsx), or a folder of .csv files."
        ),
    ] = Path("tables"),
    yes: options.Yes = False,
    seed: options.Seed = 0,
    as_json: options.Json = False,
    **said: Any,
) -> None:
    """Write the results of a model as tables.

    The tables contain the loadings with their standard errors, the latents and subgroups of the
    rows, the differences of means, the shares of variance and the settings. Each table is a sheet
    of a workbook, or a file in a folder.
    """
    from contrastive_lvm.io.tables.write import write_frame
    from contrastive_lvm.report.evidence import gather
    from contrastive_lvm.report.tables import tables_of_model, write_workbook

    workbook = output.suffix.lower() == ".xlsx"
    if output.suffix and not workbook:
        raise ValueError(f"--output={output} is not a workbook (.xlsx) or a folder; name one.")
    outputs = [output] if workbook else [folder(output) / f"{name}.csv" for name in TABLES]
    for place in outputs:
        destination(place, "--output", inputs=[model, file, background_file])
    estimator, sets = rows_of_model(model, file, background_file, said, outputs, yes=yes)
    if rotate is not None:
        estimator = estimator.rotate(rotate)
    announce("Resampling")
    evidence = gather(estimator, sets, n_bootstrap=bootstrap, seed=seed)
    tables = tables_of_model(estimator, sets, evidence)
    if workbook:
        write_atomically(output, lambda place: write_workbook(place, tables))
    else:
        for name, table in tables.items():
            path = output / f"{name}.csv"
            values = table.to_numpy()
            write_atomically(path, partial(write_frame, asked=path, frame=table, values=values))
    facts = {"output": str(output), "tables": {name: len(table) for name, table in tables.items()}}
    lines = [f"{name:12}{len(table):,} rows" for name, table in tables.items()]
    show(facts, lambda _: "\n".join([*lines, f"tables: {output}"]), as_json=as_json)
