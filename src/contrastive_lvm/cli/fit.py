"""`clvm fit`: two sets of rows in, a model file and what it found out."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from contrastive_lvm.cli import options
from contrastive_lvm.cli.cli_progress import reading, working
from contrastive_lvm.cli.output import destination, user_warnings, whole
from contrastive_lvm.progress_bars import on_terminal

if TYPE_CHECKING:
    from contrastive_lvm.cli.parse_options import Words
    from contrastive_lvm.io.tables.prepare import Choice, Sets


def fit(
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
    model: Annotated[
        str,
        typer.Option(
            metavar="KIND",
            help="clvm, or vae for nonlinear structure; with settings as in "
            "vae:hidden_layer_sizes=128+256,max_epochs=50.",
        ),
    ] = "clvm",
    n_target: options.NTarget = 2,
    n_shared: options.NShared = None,
    likelihood: options.Likelihood = "gaussian",
    size_factors: options.SizeFactors = None,
    shared_prior: options.SharedPrior = None,
    target_prior: options.TargetPrior = None,
    inference: options.Inference = "auto",
    n_init: options.NInit = 1,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE", help="The model file to write.")
    ] = Path("model.clvm"),
    report: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Also write a page to look at, such as report.html."),
    ] = None,
    top: options.Top = 5,
    seed: options.Seed = 0,
    as_json: options.Json = False,
) -> None:
    """Fit a model to a target and a background, and say what only the target has.

    Columns of words are kept as annotations; numbers are features. Empty cells, NA and NaN are
    missing entries, which the model integrates out.
    """
    from contrastive_lvm.cli.parse_options import Words
    from contrastive_lvm.io.tables.prepare import Choice

    path = destination(output)
    page = None if report is None else destination(report, option="--report")
    sides = (target or (), background or (), where or (), annotation or ())
    choice = Choice(by, *sides, layer=layer, sizes=options.size_column(size_factors))
    words = Words(
        model=model,
        n_target=n_target,
        n_shared=n_shared,
        likelihood=likelihood,
        size_factors=size_factors,
        shared_prior=shared_prior,
        target_prior=target_prior,
        inference=inference,
        n_init=n_init,
        seed=seed,
    )
    sets = read(file, background_file, choice, scale, words)
    facts = _fitted(words, sets, path, page, top) | {"seed": seed}
    if as_json:
        typer.echo(json.dumps(facts, indent=1, allow_nan=False))
    else:
        from contrastive_lvm.cli.format_summary import told

        typer.echo(told(facts))


def read(
    file: Path, background_file: Path | None, choice: "Choice", scale: str, words: "Words"
) -> "Sets":
    """The two sets that the options of a command describe."""
    from contrastive_lvm.io.tables.prepare import read_sets
    from contrastive_lvm.io.tables.reload import Origin
    from contrastive_lvm.io.tables.standardize import check_method

    if check_method(scale) != "none" and not words.scalable:
        raise ValueError(
            f"--scale={scale} does not go with --likelihood {words.likelihood}: counts and binary "
            "values have no other units; leave --scale out."
        )
    alone = words.n_shared == 0
    with reading() as told:
        sets = read_sets(file, background_file, choice, scale=scale, alone=alone, told=told)
    origin = Origin(file, background_file, choice).facts()
    return sets._replace(preparation=sets.preparation._replace(origin=origin))


def _fitted(
    words: "Words", sets: "Sets", path: Path, page: Path | None, top: int
) -> dict[str, Any]:
    """Fit, write the model file and the page, and collect the facts."""
    from contrastive_lvm.cli.report import write_page
    from contrastive_lvm.io.tables.prepare import frame
    from contrastive_lvm.report.advice import data_advice, fit_advice
    from contrastive_lvm.report.findings import findings

    named = sets.preparation.named
    estimator = words.estimator(sets.preparation.features, verbose=words.has_bar and on_terminal())
    others = None if sets.background is None else frame(sets.background, named=named)
    advice = data_advice(sets, words.likelihood)
    with user_warnings() as said:
        with working("Fitting", shown=not words.has_bar):
            estimator.fit(
                frame(sets.target, named=named),
                background=others,
                **words.fit_arguments,
                **sizes(sets),
            )
        with working("Looking at rows"):
            facts = findings(estimator, sets, top=top)
    save(estimator, sets, path)
    facts["warnings"] = list(dict.fromkeys([*advice, *said, *fit_advice(facts)]))
    if page is not None:
        write_page(estimator, sets, page, Path(sets.target.source).name)
    return facts | {"model": str(path), "report": None if page is None else str(page)}


def sizes(sets: "Sets") -> dict[str, Any]:
    """Size factors of both sets, if a column has them."""
    from contrastive_lvm.io.tables.size_factor_column import sizes_of

    column = sets.preparation.sizes
    return sizes_of(sets.target, column) | sizes_of(
        sets.background, column, "background_size_factors"
    )


def save(estimator: Any, sets: "Sets", path: Path) -> None:
    """Write a model file with the preparation of its data."""
    from contrastive_lvm.io.model_files import Preparation, write_model

    section = Preparation(sets.preparation.facts(), sets.preparation.arrays())
    whole(path, lambda file: write_model(estimator, file, section))
