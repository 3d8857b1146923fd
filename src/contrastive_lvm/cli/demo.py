"""`clvm demo`: three methods on synthetic data."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from contrastive_lvm.cli.options import Json, Seed
from contrastive_lvm.cli.output import Facts, aligned, as_text, folder, say
from contrastive_lvm.io.atomic import write_atomically

if TYPE_CHECKING:
    from contrastive_lvm.experiments.subgroups_demo import DemoResult


def demo(
    *,
    output: Annotated[
        Path, typer.Option(metavar="DIR", help="Folder for the figure and the report.")
    ] = Path("demo"),
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Compare PCA, cPCA and cLVM on synthetic data with four hidden subgroups."""
    picture, report = folder(output) / "comparison.png", output / "report.html"
    say("Fitting PCA, cPCA and cLVM to synthetic data ...", err=True)
    from contrastive_lvm.experiments.subgroups_demo import draw_demo, report_demo, run_demo

    result = run_demo(random_state=seed)
    figure = draw_demo(result)
    write_atomically(picture, lambda file: figure.savefig(file, format="png", dpi=150))
    write_atomically(report, lambda file: report_demo(result, file))
    facts = _facts(result, seed, picture, report)
    say(as_text(facts) if as_json else _text(result, picture, report))


def _facts(result: "DemoResult", seed: int, picture: Path, report: Path) -> Facts:
    methods = [
        {"method": m.name, "silhouette": m.silhouette, "ari": m.ari, "seconds": m.seconds}
        for m in result.methods
    ]
    shapes = {"target": result.data.target.shape, "background": result.data.background.shape}
    files = {"picture": str(picture), "report": str(report)}
    return {"seed": seed, "shapes": shapes, "methods": methods, **files}


def _text(result: "DemoResult", picture: Path, report: Path) -> str:
    (rows, features), others = result.data.target.shape, len(result.data.background)
    table = [("method", "silhouette", "ARI", "seconds")]
    table += [
        (m.name, f"{m.silhouette:.3f}", f"{m.ari:.3f}", f"{m.seconds:.3f}") for m in result.methods
    ]
    lines = [
        f"{rows} target and {others} background rows, {features} features, four hidden subgroups",
        "",
        *aligned(table),
        "",
        f"picture: {picture}",
        f"report: {report}",
    ]
    return "\n".join(lines)
