"""`clvm compare`: several methods on the same files, side by side."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from contrastive_lvm.cli import options
from contrastive_lvm.cli.fit import read
from contrastive_lvm.cli.output import (
    Facts,
    aligned,
    announce,
    check_picture,
    show,
    user_warnings,
    with_warnings,
    write_picture,
)

if TYPE_CHECKING:
    from contrastive_lvm.resampling.comparison import Comparison


@options.with_options(options.SETS)
def compare(
    *,
    n_components: Annotated[
        int, typer.Option(metavar="N", min=1, help="Number of dimensions for each method.")
    ] = 2,
    resamples: Annotated[
        int,
        typer.Option(metavar="N", min=1, help="Number of random splits of the rows into halves."),
    ] = 10,
    output: Annotated[
        Path,
        typer.Option("--output", "-o", metavar="FILE", help="Picture (.png, .svg or .pdf)."),
    ] = Path("comparison.png"),
    color: options.Color = None,
    seed: options.Seed = 0,
    as_json: options.Json = False,
    **said: Any,
) -> None:
    """Compare PCA, PPCA, cPCA, gcPCA and cLVM on the same rows.

    Write a picture and print a table. Stability is the agreement of fits to two halves of the rows,
    from 0 to 1; the log-likelihood is the mean over held-out target rows.
    """
    from contrastive_lvm.cli.parse_options import build_estimator
    from contrastive_lvm.io.tables.row_columns import annotation
    from contrastive_lvm.plots import plot_comparison
    from contrastive_lvm.report.evidence import replicates_of
    from contrastive_lvm.resampling.comparison import compare_methods

    source = options.take_source(said)
    check_picture(output, "--output", inputs=source[:2])
    sets, _ = read(source, build_estimator(n_shared="auto"))
    if sets.background is None:
        raise ValueError("there is no background; name a second file, or use --by and --target.")
    way = "name a column of text"
    labels = None if color is None else annotation(sets.target, color, "--color", way)
    announce("Comparing")
    with user_warnings() as warned:
        found = compare_methods(
            sets.target.values,
            background=sets.background.values,
            n_components=n_components,
            **replicates_of(sets),
            n_resamples=resamples,
            random_state=seed,
        )
        figure = plot_comparison(found, labels)
    write_picture(output, figure)
    facts = {"methods": _facts(found), "picture": str(output), "warnings": warned, "seed": seed}
    show(facts, _text, as_json=as_json)


def _facts(found: "Comparison") -> list[Facts]:
    table = found.table.reset_index(names="method").astype(object)
    rows = table.where(table.notna(), None).to_dict(orient="records")
    return [{str(name): value for name, value in row.items()} for row in rows]


def _text(facts: Facts) -> str:
    table = [("method", "stability", "log-likelihood", "seconds")]
    for row in facts["methods"]:
        score = row["log_likelihood"]
        shown = "" if score is None else f"{score:.3f}"
        table.append((row["method"], f"{row['stability']:.3f}", shown, f"{row['seconds']:.3f}"))
    return with_warnings(facts, [*aligned(table), "", f"picture: {facts['picture']}"])
