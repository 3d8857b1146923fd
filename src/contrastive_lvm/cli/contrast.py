"""`clvm test`: whether the target has structure that the background lacks."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from contrastive_lvm.cli import options
from contrastive_lvm.cli.fit import read
from contrastive_lvm.cli.output import Facts, aligned, announce, show, user_warnings, with_warnings

if TYPE_CHECKING:
    from contrastive_lvm.io.tables.prepare import Sets
    from contrastive_lvm.resampling.contrast_test import ContrastTest


@options.with_options(options.SETS, options.MODEL)
def contrast(
    *,
    resamples: Annotated[
        int,
        typer.Option(metavar="N", min=1, help="Number of resamples, from which p is computed."),
    ] = 999,
    seed: options.Seed = 0,
    as_json: options.Json = False,
    **said: Any,
) -> None:
    """Test whether the target has structure that the background lacks, and of how many dimensions.

    The labels of rows (or of whole replicates) are permuted between the sets; p is the share of
    permutations that look as different as the data. A replicate that has rows in both sets is a
    pair, whose labels are exchanged.
    """
    from contrastive_lvm.cli.parse_options import build_estimator
    from contrastive_lvm.report.advice import rows_advice
    from contrastive_lvm.report.evidence import run_test

    source = options.take_source(said)
    estimator = build_estimator(**said, seed=seed)
    sets = read(source, estimator)
    announce("Resampling")
    with user_warnings() as warned:
        found = run_test(sets, estimator, n_resamples=resamples, seed=seed)
    facts = _facts(found, sets) | {"warnings": [*rows_advice(sets), *warned], "seed": seed}
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
    lines = [facts["verdict"], "", *aligned(table), ""]
    lines += [f"{rows}, {facts['features']:,} features", facts["method"]]
    return with_warnings(facts, lines)
