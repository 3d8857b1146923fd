"""`clvm reproduce`: the experiments of the paper."""

import json
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from contrastive_lvm.cli.options import Json
from contrastive_lvm.cli.output import aligned, as_text, folder, say
from contrastive_lvm.io.atomic import write_atomically, write_text_atomically

if TYPE_CHECKING:
    from contrastive_lvm.experiments.outcome import Outcome

EXPERIMENTS = ("synthetic", "generative", "outliers", "mice", "rnaseq", "sensors", "digits")


def reproduce(
    name: Annotated[str, typer.Argument(help=f"all, or one of {', '.join(EXPERIMENTS)}.")],
    *,
    output: Annotated[
        Path, typer.Option(metavar="DIR", help="Folder for figures, JSON and the summary.")
    ] = Path("reproduced"),
    skip: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Leave out of all. Repeatable."),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Use much smaller data, only to see that it runs.")
    ] = False,
    as_json: Json = False,
) -> int:
    """Repeat experiments of the paper, and compare the results with its claims.

    The exit code is 1 when a claim does not hold, or data of some experiment are absent.
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
        say(as_text(found if name == "all" else found[0]))
    if name == "all":
        from contrastive_lvm.experiments.markdown import page

        text = page(outcomes)
        write_text_atomically(place / "index.md", text)
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
        save = partial(figure.savefig, format="png", dpi=180)
        write_atomically(place / f"{outcome.name}_{name}.png", save)
    text = json.dumps(facts, indent=1) + "\n"
    write_text_atomically(place / f"{outcome.name}.json", text)


def _text(outcome: "Outcome") -> str:
    from contrastive_lvm.experiments.markdown import rows

    claims = [f"{claim}\n    {claim.says}" for claim in outcome.claims]
    table = [line.rstrip() for line in aligned(rows(outcome))]
    return "\n".join([outcome.title, outcome.data, "", *table, "", *claims, "", *outcome.notes])
