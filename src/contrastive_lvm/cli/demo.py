"""`clvm demo`: three methods on synthetic data."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from contrastive_lvm.cli.options import Json, Seed
from contrastive_lvm.cli.output import aligned, folder
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
    typer.echo("Fitting PCA, cPCA and cLVM to synthetic data ...", err=True)
    from contrastive_lvm.experiments.subgroups_demo import draw_demo, report_demo, run_demo

    result = run_demo(random_state=seed)
    figure = draw_demo(result)
    write_atomically(picture, lambda file: figure.savefig(file, format="png", dpi=150))
    write_atomically(report, lambda file: report_demo(result, file))
    if as_json:
        typer.echo(json.dumps(_facts(result, seed, picture, report), indent=2, allow_nan=False))
    else:
        typer.echo(_text(result, picture, report))


def _facts(result: "DemoResult", seed: int, picture: Path, report: Path) -> dict[str, Any]:
    methods = [
        {
            "method": method.name,
            "silhouette": method.silhouette,
            "ari": method.ari,
            "seconds": method.seconds,
        }
        for method in result.methods
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
