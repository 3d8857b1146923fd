"""`clvm demo`, `clvm reproduce` and `clvm datasets`: experiments, and the data that they use."""

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from contrastive_lvm.cli.options import Json, Seed
from contrastive_lvm.cli.output import Facts, aligned, folder, say, show, write_picture
from contrastive_lvm.io.atomic import write_atomically, write_text_atomically

if TYPE_CHECKING:
    from contrastive_lvm.experiments.outcome import Outcome

EXPERIMENTS = ("synthetic", "generative", "outliers", "mice", "rnaseq", "sensors", "digits")


def demo(
    *,
    output: Annotated[
        Path, typer.Option(metavar="DIR", help="Folder for the figure and the report.")
    ] = Path("demo"),
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Compare PCA, cPCA and cLVM on synthetic data."""
    picture, report = folder(output) / "comparison.png", output / "report.html"
    say("Fitting PCA, cPCA and cLVM to synthetic data ...", err=True)
    from contrastive_lvm.experiments.subgroups_demo import draw_demo, report_demo, run_demo

    result = run_demo(random_state=seed)
    write_picture(picture, draw_demo(result))
    write_atomically(report, lambda file: report_demo(result, file))
    facts = {
        "seed": seed,
        "shapes": {"target": result.data.target.shape, "background": result.data.background.shape},
        "methods": [
            {"method": m.name, "silhouette": m.silhouette, "ari": m.ari, "seconds": m.seconds}
            for m in result.methods
        ],
        "picture": str(picture),
        "report": str(report),
    }
    show(facts, _demo_text, as_json=as_json)


def _demo_text(facts: Facts) -> str:
    (rows, features), others = facts["shapes"]["target"], facts["shapes"]["background"][0]
    table = [("method", "silhouette", "ARI", "seconds")]
    table += [
        (own["method"], *(f"{own[name]:.3f}" for name in ("silhouette", "ari", "seconds")))
        for own in facts["methods"]
    ]
    lines = [
        f"{rows} target and {others} background rows, {features} features, four hidden subgroups",
        "",
        *aligned(table),
        "",
        f"picture: {facts['picture']}",
        f"report: {facts['report']}",
    ]
    return "\n".join(lines)


def reproduce(
    name: Annotated[str, typer.Argument(help=f"all, or one of {', '.join(EXPERIMENTS)}.")],
    *,
    output: Annotated[
        Path, typer.Option(metavar="DIR", help="Folder for figures, JSON and the summary.")
    ] = Path("reproduced"),
    skip: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Experiment to leave out of all. Repeatable."),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Use much smaller data, to check that it runs.")
    ] = False,
    as_json: Json = False,
) -> int:
    """Repeat experiments of the paper.

    Compare the results with its claims. The exit code is 1 if a claim does not hold, or if the data
    of an experiment are missing.
    """
    names = _names(name, skip or [])
    place = folder(output)
    outcomes, found, absent = [], [], 0
    for own in names:
        try:
            outcome, seconds = _run(own, quick=quick)
        except FileNotFoundError as error:
            if name != "all":
                raise
            say(f"clvm: {own} was left out: {error}", err=True)
            absent += 1
            continue
        outcomes.append(outcome)
        found.append(outcome.facts() | {"seconds": round(seconds, 1)})
        _write(outcome, found[-1], place)
        if not as_json:
            say(f"{_text(outcome)}\n")
    if as_json:
        say(json.dumps(found if name == "all" else found[0], indent=1, allow_nan=False))
    if name == "all":
        from contrastive_lvm.experiments.markdown import page

        write_text_atomically(place / "index.md", page(outcomes))
    say(f"figures and numbers: {place}", err=True)
    return 0 if absent == 0 and all(outcome.met for outcome in outcomes) else 1


def _names(name: str, skip: list[str]) -> list[str]:
    for given in (name, *skip):
        if given not in (*EXPERIMENTS, "all"):
            known = ", ".join(EXPERIMENTS)
            raise ValueError(f"{given!r} is not an experiment; use all, or one of {known}.")
    return [own for own in EXPERIMENTS if own not in skip] if name == "all" else [name]


def _run(name: str, *, quick: bool) -> tuple["Outcome", float]:
    say(f"Running {name} ...", err=True)
    from contrastive_lvm.experiments import reproduce as run

    begin = time.perf_counter()
    return run(name, quick=quick), time.perf_counter() - begin


def _write(outcome: "Outcome", facts: dict[str, object], place: Path) -> None:
    for name, figure in outcome.figures.items():
        write_picture(place / f"{outcome.name}_{name}.png", figure, dpi=180)
    write_text_atomically(place / f"{outcome.name}.json", json.dumps(facts, indent=1) + "\n")


def _text(outcome: "Outcome") -> str:
    from contrastive_lvm.experiments.markdown import rows

    claims = [f"{claim}\n    {claim.says}" for claim in outcome.claims]
    table = [line.rstrip() for line in aligned(rows(outcome))]
    return "\n".join([outcome.title, outcome.data, "", *table, "", *claims, "", *outcome.notes])


def datasets(*, as_json: Json = False) -> None:
    """List the data files of the experiments.

    For each missing file, print where to get it.
    """
    from contrastive_lvm.datasets.download import SOURCES

    found = [
        {"file": name, "state": _state(name), "from": source.address or f"you: {source.remark}"}
        for name, source in SOURCES.items()
    ]
    if as_json:
        say(json.dumps(found, indent=1))
        return
    for file in found:
        say(f"{file['state']:8}{file['file']}")
        if file["state"] != "here":
            say(f"        from {file['from']}")
    say("Files are looked up in $CONTRASTIVE_LVM_DATA and in the user cache.", err=True)


def _state(name: str) -> str:
    from contrastive_lvm.datasets.download import present

    try:
        return "here" if present(name) else "absent"
    except ValueError:  # the checksum differs
        return "damaged"
