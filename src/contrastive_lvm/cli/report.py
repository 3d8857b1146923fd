"""`clvm report`: an HTML page about a model and its rows."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from contrastive_lvm.cli import options
from contrastive_lvm.cli.apply import ANY_SETS, TWO_SETS, load
from contrastive_lvm.cli.output import Contrastive, announce, printable, show
from contrastive_lvm.io.atomic import destination, page_destination, write_text_atomically

if TYPE_CHECKING:
    from contrastive_lvm.io.tables.preparation import Origin, Preparation
    from contrastive_lvm.io.tables.prepare import Sets
    from contrastive_lvm.report.evidence import Evidence


@options.with_options(options.MODEL_FILE, options.SIDES)
def report(
    *,
    model: Path,
    file: options.RowsOfFit = None,
    background_file: options.BackgroundFile = None,
    title: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="Title of the report; by default, the name of the file."),
    ] = None,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE", help="HTML file to write.")
    ] = Path("report.html"),
    yes: options.Yes = False,
    as_json: options.Json = False,
    **said: Any,
) -> None:
    """Write an HTML report about a model.

    The report shows the rows, the loadings, diagnostics and numbers in one file that works offline.
    By default, it uses the rows that the model was fitted to. The command asks before it reads
    their files, because a model from someone else may name any file.
    """
    page_destination(output, "--output", inputs=[model, file, background_file])
    estimator, sets = rows_of_model(model, file, background_file, said, [output], ANY_SETS, yes=yes)
    write_page(estimator, sets, output, title or Path(sets.target.source).name)
    facts = {"report": str(output), "bytes": output.stat().st_size}
    show(facts, lambda _: f"report: {output}", as_json=as_json)


def rows_of_model(
    model: Path,
    file: Path | None,
    background_file: Path | None,
    said: options.Said,
    outputs: list[Path],
    kinds: tuple[str, ...] = TWO_SETS,
    *,
    yes: bool,
) -> "tuple[Contrastive, Sets]":
    """Load a model, and read the rows that are named, or else those that it was fitted to."""
    from contrastive_lvm.io.tables.prepare import read_again

    estimator, preparation = load(model, kinds)
    if file is None:
        for name in options.SIDES:
            if said[name]:
                raise ValueError(f"--{name} needs a file to choose rows from; name it after MODEL.")
        if preparation.origin is None:
            raise ValueError(
                f"{model} does not record which files it was fitted to; name them after MODEL."
            )
        origin = preparation.origin
        _confirm(origin, model, yes=yes)
        for output in outputs:
            destination(output, "--output", inputs=origin[:2])
    else:
        origin = _named(file, background_file, preparation, said)
    announce(f"Reading {origin.target.name}")
    several = hasattr(estimator, "blocks_")
    if several and origin.choice.by:
        preparation = preparation._replace(origin=origin)
    alone = several or estimator.n_shared == 0
    return estimator, read_again(preparation, origin, alone=alone)


def _named(
    file: Path, background_file: Path | None, preparation: "Preparation", said: options.Said
) -> "Origin":
    """Return the rows that are chosen: those of the fit, if its files are named without more."""
    from contrastive_lvm.io.tables.choose_rows import Choice
    from contrastive_lvm.io.tables.preparation import Origin
    from contrastive_lvm.io.tables.table import Layout, layout_of

    fitted = preparation.origin
    sides = {name: said[name] for name in options.SIDES if said[name]}
    if fitted is not None and not sides and (file, background_file) == fitted[:2]:
        return fitted
    layout = layout_of(**{name: said[name] for name in options.LAYOUT})
    if fitted is not None and layout == Layout():
        layout = fitted.choice.layout
    choice = Choice(
        **sides,
        layer=preparation.layer,
        sizes=preparation.sizes,
        covariates=preparation.covariates,
        layout=layout,
    )
    return Origin(file, background_file, choice)


def write_page(
    estimator: Contrastive,
    sets: "Sets",
    path: Path,
    title: str,
    evidence: "Evidence | None" = None,
) -> None:
    """Write the page of a model and two sets."""
    from contrastive_lvm.report.page import page
    from contrastive_lvm.report.page_data import page_data

    announce("Writing the report")
    if hasattr(estimator, "blocks_"):
        from contrastive_lvm.cli.fit_blocks import rows_of_sets

        rows, arguments = rows_of_sets(sets)
        estimator.report(path, rows, **arguments, title=title)
        return
    facts = page_data(estimator, sets, title=title, evidence=evidence)
    write_text_atomically(path, page(facts))


def _confirm(origin: "Origin", model: Path, *, yes: bool) -> None:
    """Ask before reading files that only the model names, and refuse missing ones."""
    files = [file for file in origin[:2] if file is not None]
    names = " and ".join(map(str, files))
    if not yes and not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise ValueError(
            f"{model} was fitted to {names}, but a model from someone else may name any "
            "file, so no file is read without asking; add --yes, or name the files after the model."
        )
    if not yes:
        typer.confirm(printable(f"{model} was fitted to {names}. Read it?"), abort=True, err=True)
    for file in files:
        if not file.exists():
            raise FileNotFoundError(
                f"{file}, which {model} was fitted to, does not exist; change to the folder of the "
                "fit, or name the files after the model."
            )
