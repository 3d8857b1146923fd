"""`clvm report`: an HTML page about a model and its rows."""

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from contrastive_lvm.cli import options
from contrastive_lvm.cli.apply import load
from contrastive_lvm.cli.layout_options import with_layout
from contrastive_lvm.cli.output import Contrastive, announce, as_text, printable, say
from contrastive_lvm.io.atomic import destination, write_text_atomically

if TYPE_CHECKING:
    from contrastive_lvm.io.tables.choose_rows import Choice
    from contrastive_lvm.io.tables.layout import Layout
    from contrastive_lvm.io.tables.preparation import Origin, Preparation
    from contrastive_lvm.io.tables.prepare import Sets
    from contrastive_lvm.report.evidence import Evidence


@with_layout
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
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Read the files that the model names, unasked.")
    ] = False,
    as_json: options.Json = False,
    layout: "Layout | None" = None,
) -> None:
    """Write an HTML page with the rows, loadings, diagnostics and numbers of a model.

    The page is one file that needs no network. By default, it shows the rows that the model was
    fitted to; since a model of someone else may name any file, you are asked before one is read.
    """
    from contrastive_lvm.io.tables.choose_rows import Choice
    from contrastive_lvm.io.tables.preparation import Origin, layout_of_fit
    from contrastive_lvm.io.tables.prepare import read_again

    path = destination(output, "--output", inputs=[model, file, background_file])
    estimator, preparation = load(model)
    sides = (target or (), background or (), where or ())
    choice = Choice(
        by,
        *sides,
        layer=preparation.layer,
        sizes=preparation.sizes,
        covariates=preparation.covariates,
        layout=layout or layout_of_fit(preparation),
    )
    if file is None:
        origin = _origin_of_fit(preparation, model, choice)
        _confirm(origin, model, yes=yes)
        destination(output, "--output", inputs=origin[:2])
    else:
        named = Origin(file, background_file, choice)
        origin = _with_choice_of_fit(named, preparation)
    announce(f"Reading {origin.target.name}")
    sets = read_again(preparation, origin, alone=estimator.n_shared == 0)
    write_page(estimator, sets, path, title or origin.target.name)
    facts = {"report": str(path), "bytes": path.stat().st_size}
    say(as_text(facts) if as_json else f"report: {path}")


def write_page(
    estimator: Contrastive,
    sets: "Sets",
    path: Path,
    title: str,
    evidence: "Evidence | None" = None,
) -> None:
    """Write the page of a model and two sets."""
    from contrastive_lvm.report.page import page

    announce("Writing the report")
    text = page(estimator, sets, title=title, evidence=evidence)
    write_text_atomically(path, text)


def _origin_of_fit(preparation: "Preparation", model: Path, choice: "Choice") -> "Origin":
    """Return the files that a model names, or refuse conditions without a file."""
    from contrastive_lvm.io.tables.preparation import origin_of

    for option in ("by", "target", "background", "where"):
        if getattr(choice, option):
            raise ValueError(f"--{option} needs a file to choose rows from; name it after MODEL.")
    return origin_of(preparation, model)


def _with_choice_of_fit(named: "Origin", preparation: "Preparation") -> "Origin":
    """Choose the rows of the fit from its files, if they are named without other conditions."""
    fitted, choice = preparation.origin, named.choice
    conditions = choice.by or choice.target or choice.background or choice.where
    if fitted is None or conditions or named[:2] != fitted[:2]:
        return named
    return fitted


def _confirm(origin: "Origin", model: Path, *, yes: bool) -> None:
    """Ask whether files that only the model names may be read, and refuse those that are gone."""
    files = [file for file in origin[:2] if file is not None]
    names = " and ".join(map(str, files))
    if not yes and not (sys.stdin.isatty() and sys.stderr.isatty()):
        named = shlex.join(map(str, [model, *files]))
        raise ValueError(
            f"{model} asks to read {names}, and a model of someone else may name any file; type "
            f"clvm report {named}, or clvm report {shlex.quote(str(model))} --yes."
        )
    if not yes:
        typer.confirm(printable(f"{model} was fitted to {names}. Read it?"), abort=True, err=True)
    for file in files:
        if not file.exists():
            raise FileNotFoundError(
                f"{file}, which {model} was fitted to, does not exist; change to the folder of the "
                "fit, or name the files after the model."
            )
