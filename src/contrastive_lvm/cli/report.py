"""`clvm report`: a page about a model and its rows."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from contrastive_lvm.cli import options
from contrastive_lvm.cli.apply import loaded
from contrastive_lvm.cli.cli_progress import reading, working
from contrastive_lvm.io.atomic import destination, write_text_atomically

if TYPE_CHECKING:
    from contrastive_lvm.io.tables.preparation import Origin
    from contrastive_lvm.io.tables.prepare import Sets


def report(
    model: options.ModelFile,
    file: Annotated[
        Path | None,
        typer.Argument(metavar="FILE", help="The target; left out, the files of the fit."),
    ] = None,
    background_file: options.BackgroundFile = None,
    *,
    by: options.By = None,
    target: options.Target = None,
    background: options.Background = None,
    where: options.Where = None,
    title: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Heading of the page; the file's name.")
    ] = None,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE", help="The page to write.")
    ] = Path("report.html"),
    as_json: options.Json = False,
) -> None:
    """Write a page to look at: rows, loadings, diagnostics and numbers in one HTML file.

    It needs no network. Without files it shows the rows that the model was fitted to.
    """
    from contrastive_lvm.io.tables.choose_rows import Choice
    from contrastive_lvm.io.tables.preparation import Origin, origin_of
    from contrastive_lvm.io.tables.prepare import read_again

    path = destination(output, "--output")
    estimator, preparation = loaded(model)
    if file is None:
        _refuse_conditions(by, target, background, where)
        origin = origin_of(preparation, model)
    else:
        sides = (target or (), background or (), where or ())
        choice = Choice(by, *sides, layer=preparation.layer, sizes=preparation.sizes)
        origin = Origin(file, background_file, choice)
    _refuse_absent(origin, model, named=file is not None)
    with reading() as told:
        sets = read_again(preparation, origin, alone=estimator.n_shared_ == 0, progress=told)
    write_page(estimator, sets, path, title or origin.target.name)
    facts = {"report": str(path), "bytes": path.stat().st_size}
    typer.echo(json.dumps(facts) if as_json else f"report: {path}")


def write_page(estimator: Any, sets: "Sets", path: Path, title: str) -> None:
    """Write the page of a model and two sets."""
    from contrastive_lvm.report.page import page

    with working("Writing the page"):
        text = page(estimator, sets, title=title)
    write_text_atomically(path, text)


def _refuse_conditions(*given: Any) -> None:
    names = ("--by", "--target", "--background", "--where")
    for name, value in zip(names, given, strict=True):
        if value:
            raise ValueError(f"{name} needs a file that it chooses from; name it after the model.")


def _refuse_absent(origin: "Origin", model: Path, *, named: bool) -> None:
    """The files of a fit may have been moved since."""
    for file in (origin.target, origin.background):
        if not named and file is not None and not file.exists():
            raise FileNotFoundError(
                f"{file}, which {model} was fitted to, is not there; go to the folder of the fit, "
                "or name the files after the model."
            )
