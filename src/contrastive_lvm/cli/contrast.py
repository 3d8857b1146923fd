"""`clvm test`: whether the target has structure that the background lacks."""

from typing import TYPE_CHECKING, Annotated

import typer

from contrastive_lvm.cli import options
from contrastive_lvm.cli.fit import read
from contrastive_lvm.cli.layout_options import with_layout
from contrastive_lvm.cli.output import Facts, aligned, announce, as_text, say, user_warnings

if TYPE_CHECKING:
    from contrastive_lvm.io.tables.layout import Layout
    from contrastive_lvm.io.tables.prepare import Sets
    from contrastive_lvm.resampling.contrast_test import ContrastTest


@with_layout
def contrast(
    file: options.TargetFile,
    background_file: options.BackgroundFile = None,
    *,
    by: options.By = None,
    target: options.Target = None,
    background: options.Background = None,
    where: options.Where = None,
    annotation: options.Annotation = None,
    scale: options.Scale = "none",
    layer: options.Layer = None,
    replicates: options.Replicates = None,
    covariate: options.Covariates = None,
    n_shared: options.NShared = None,
    likelihood: options.Likelihood = "gaussian",
    size_factors: options.SizeFactors = None,
    resamples: Annotated[
        int,
        typer.Option(metavar="N", min=1, help="Number of resamples, from which p is computed."),
    ] = 999,
    seed: options.Seed = 0,
    as_json: options.Json = False,
    layout: "Layout | None" = None,
) -> None:
    """Test whether the target has structure that the background lacks, and of how many dimensions.

    The labels of rows (or of whole replicates) are permuted between the sets; p is the share of
    permutations that look as different as the data. A replicate that has rows in both sets is a
    pair, whose labels are exchanged.
    """
    from contrastive_lvm.cli.parse_options import build_estimator
    from contrastive_lvm.io.tables.choose_rows import Choice
    from contrastive_lvm.io.tables.layout import Layout
    from contrastive_lvm.report.advice import rows_advice
    from contrastive_lvm.report.evidence import run_test

    estimator = build_estimator(
        n_shared=n_shared, likelihood=likelihood, size_factors=size_factors, seed=seed
    )
    sides = (target or (), background or (), where or (), annotation or ())
    sizes = options.size_column(size_factors)
    choice = Choice(
        by,
        *sides,
        layer=layer,
        sizes=sizes,
        replicates=replicates,
        layout=layout or Layout(),
        covariates=covariate or (),
    )
    sets = read(file, background_file, choice, scale, estimator)
    announce("Resampling")
    with user_warnings() as said:
        found = run_test(sets, estimator, n_resamples=resamples, seed=seed)
    facts = _facts(found, sets) | {"warnings": [*rows_advice(sets), *said], "seed": seed}
    say(as_text(facts) if as_json else _text(facts))


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
    lines = [facts["verdict"], "", *aligned(table), ""]
    lines += [f"{rows}, {facts['features']:,} features", facts["method"]]
    return "\n".join([*lines, *(f"warning: {warning}" for warning in facts["warnings"])])
