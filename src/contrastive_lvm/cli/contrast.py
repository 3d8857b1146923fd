"""`clvm test` and `clvm feature-sets`: tests of the contrast and of sets of features."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from contrastive_lvm.cli import options
from contrastive_lvm.cli.fit import read
from contrastive_lvm.cli.output import (
    Facts,
    aligned,
    announce,
    show,
    user_warnings,
    with_verdict,
    with_warnings,
)
from contrastive_lvm.cli.report import rows_of_model
from contrastive_lvm.io.atomic import destination, write_atomically

if TYPE_CHECKING:
    from contrastive_lvm.io.tables.prepare import Sets
    from contrastive_lvm.resampling.contrast_test import ContrastTest

SETS_FILE = options.file("SETS", "A .gmt file: each line has a name, a description and features.")


@options.with_options(options.SETS, options.MODEL)
def contrast(
    *,
    resamples: Annotated[
        int,
        typer.Option(metavar="N", min=1, help="Number of permutations."),
    ] = 999,
    seed: options.Seed = 0,
    as_json: options.Json = False,
    **said: Any,
) -> None:
    """Test whether the target has structure of its own.

    The test tries one dimension after another. It permutes the labels of rows (or of whole
    replicates) between the sets; p is the share of permutations in which the sets differ at least
    as much as in the data. If a replicate has rows in both sets, its labels are exchanged.
    """
    from contrastive_lvm.cli.parse_options import build_estimator
    from contrastive_lvm.report.advice import replicates_advice, rows_advice
    from contrastive_lvm.report.evidence import run_test

    source = options.take_source(said)
    estimator = build_estimator(**said, seed=seed)
    sets, _ = read(source, estimator)
    announce("Resampling")
    with user_warnings() as warned:
        found = run_test(sets, estimator, n_resamples=resamples, seed=seed)
    facts = _facts(found, sets) | {"warnings": [*rows_advice(sets), *warned], "seed": seed}
    caution = replicates_advice(sets)
    facts["cautions"] = [] if caution is None else [caution]
    show(facts, _text, as_json=as_json)


def _facts(found: "ContrastTest", sets: "Sets") -> Facts:
    from contrastive_lvm.report.evidence import verdict

    said = verdict(found)
    tables = {"target": sets.target, "background": sets.background}
    rows = {name: table.n_rows for name, table in tables.items() if table is not None}
    return {
        "verdict": said["sentence"],
        "pvalue": said["pvalue"],
        "statistic": float(found.statistic),
        "pvalues": said["pvalues"],
        "n_target": said["n_target"],
        "method": found.method,
        "rows": rows,
        "features": len(sets.preparation.features),
        "replicates": sets.preparation.replicates,
    }


def _text(facts: Facts) -> str:
    from contrastive_lvm.report.evidence import rounded

    table = [("dimension", "p-value")]
    table += [(f"target {k}", rounded(p)) for k, p in enumerate(facts["pvalues"], start=1)]
    rows = " and ".join(f"{n:,} {name} rows" for name, n in facts["rows"].items())
    about = f"{rows}, {facts['features']:,} features", facts["method"]
    lines = with_verdict(facts, *aligned(table), "", *about)
    return with_warnings(facts, lines)


@options.with_options(options.MODEL_FILE, {"feature_sets": SETS_FILE}, options.SIDES)
def feature_sets_command(
    *,
    model: Path,
    feature_sets: Path,
    file: options.RowsOfFit = None,
    background_file: options.BackgroundFile = None,
    min_size: Annotated[
        int, typer.Option(metavar="N", min=2, help="Leave out smaller sets of features.")
    ] = 5,
    resamples: Annotated[
        int, typer.Option(metavar="N", min=20, help="Number of fits to resampled rows.")
    ] = 200,
    top: Annotated[int, typer.Option(metavar="N", min=1, help="Number of lines to print.")] = 10,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Write all lines (.csv or .tsv)."),
    ] = None,
    yes: options.Yes = False,
    seed: options.Seed = 0,
    as_json: options.Json = False,
    **said: Any,
) -> None:
    """Test whether pathways or other sets of features load together.

    The test compares the loadings of each set on the target dimensions with those of the other
    features. The sign of a dimension is arbitrary: sets of opposite signs lie at opposite ends of
    it. The test resamples rows, or whole replicates, because features vary together.
    """
    from contrastive_lvm.io.gmt import read_gmt
    from contrastive_lvm.io.tables.write import write_frame
    from contrastive_lvm.report.evidence import facts_of_sets, replicates_of
    from contrastive_lvm.resampling.feature_sets import feature_set_test

    outputs = [] if output is None else [output]
    for place in outputs:
        destination(place, "--output", inputs=[model, feature_sets, file, background_file])
    known = read_gmt(feature_sets)
    estimator, sets = rows_of_model(model, file, background_file, said, outputs, yes=yes)
    X, background = sets.frames()
    effects = {name: own for name, own in facts_of_sets(sets).items() if "covariates" in name}
    announce("Resampling")
    table = feature_set_test(
        estimator,
        X,
        background=background,
        feature_sets=known,
        **replicates_of(sets),
        **effects,
        n_resamples=resamples,
        min_size=min_size,
        random_state=seed,
    )
    if output is not None:
        place, values = output, table.to_numpy()
        write_atomically(output, lambda path: write_frame(path, place, table, values))
    facts = {"feature_sets": table.to_dict("records"), "output": output and str(output)}
    show(facts, lambda _: _table_text(table, top, output), as_json=as_json)


def _table_text(table: Any, top: int, output: Path | None) -> str:
    lines = [("feature set", "dimension", "features", "mean loading", "statistic", "p", "q")]
    for row in table.head(top).itertuples():
        numbers = f"{row.mean_loading:.3g}", f"{row.statistic:.2f}"
        chances = f"{row.pvalue:.2g}", f"{row.qvalue:.2g}"
        lines.append(
            (row.feature_set, f"target {row.dimension}", str(row.n_features), *numbers, *chances)
        )
    rest = len(table) - top
    more = [f"and {rest:,} more"] if rest > 0 else []
    return "\n".join([*aligned(lines), *more, *([f"table: {output}"] if output else [])])
