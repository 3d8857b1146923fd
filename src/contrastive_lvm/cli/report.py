"""`clvm report`: an HTML page about a model and its rows."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from contrastive_lvm.cli import options
from contrastive_lvm.cli.apply import load
from contrastive_lvm.cli.output import announce
from contrastive_lvm.io.atomic import destination, write_text_atomically

if TYPE_CHECKING:
    from contrastive_lvm.io.tables.preparation import Origin
    from contrastive_lvm.io.tables.prepare import Sets


def report(
    model: options.ModelFile,
    file: Annotated[
        Path | None,
        typer.Argument(metavar="FILE", help="The target set; by default, the files of the fit."),
    ] = None,
    background_file: options.BackgroundFile = None,
    *,
    by: options.By = None,
    target: options.Target = None,
    background: options.Background = None,
    where: options.Where = None,
    title: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="Title of the page; by default, the name of the file."),
    ] = None,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE", help="HTML file to write.")
    ] = Path("report.html"),
    as_json: options.Json = False,
) -> None:
    """Write an HTML page with the rows, loadings, diagnostics and numbers of a model.

    The page is one file that needs no network. By default, it shows the rows that the model was
    fitted to.
    """
    from contrastive_lvm.io.tables.choose_rows import Choice
    from contrastive_lvm.io.tables.preparation import Origin, origin_of
    from contrastive_lvm.io.tables.prepare import read_again

    path = destination(output, "--output")
    estimator, preparation = load(model)
    if file is None:
        given = {"--by": by, "--target": target, "--background": background, "--where": where}
        origin = origin_of(preparation, model)
        _check_origin(origin, model, [option for option, value in given.items() if value])
    else:
        sides = (target or (), background or (), where or ())
        choice = Choice(by, *sides, layer=preparation.layer, sizes=preparation.sizes)
        origin = Origin(file, background_file, choice)
    announce(f"Reading {origin.target.name}")
    sets = read_again(preparation, origin, alone=estimator.n_shared_ == 0)
    write_page(estimator, sets, path, title or origin.target.name)
    facts = {"report": str(path), "bytes": path.stat().st_size}
    typer.echo(json.dumps(facts) if as_json else f"report: {path}")


def write_page(estimator: Any, sets: "Sets", path: Path, title: str) -> None:
    """Write the page of a model and two sets."""
    from contrastive_lvm.report.page import page

    announce("Writing the report")
    text = page(estimator, sets, title=title)
    write_text_atomically(path, text)


def _check_origin(origin: "Origin", model: Path, options: list[str]) -> None:
    """Refuse conditions without a file, and files of a fit that have been moved since."""
    if options:
        raise ValueError(f"{options[0]} needs a file to choose rows from; name it after the model.")
    for file in (origin.target, origin.background):
        if file is not None and not file.exists():
            raise FileNotFoundError(
                f"{file}, which {model} was fitted to, does not exist; change to the folder of the "
                "fit, or name the files after the model."
            )
