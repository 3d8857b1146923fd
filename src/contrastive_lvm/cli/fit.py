"""`clvm fit`: fit a model to two sets of rows, write it to a file and print what it found."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from contrastive_lvm.cli import options
from contrastive_lvm.cli.layout_options import with_layout
from contrastive_lvm.cli.output import Contrastive, Facts, announce, as_text, say, user_warnings
from contrastive_lvm.io.atomic import destination

if TYPE_CHECKING:
    from contrastive_lvm.io.tables.choose_rows import Choice
    from contrastive_lvm.io.tables.layout import Layout
    from contrastive_lvm.io.tables.prepare import Sets

WITHOUT_ERRORS = (
    "Loadings have no standard errors, which would take a while; --bootstrap 200 gives them."
)


@with_layout
def fit(
    file: options.TargetFile,
    background_file: options.BackgroundFile = None,
    *,
    by: options.By = None,
    target: options.Target = None,
    background: options.Background = None,
    where: options.Where = None,
    annotation: options.Annotation = None,
    features: options.Features = None,
    scale: options.Scale = "none",
    layer: options.Layer = None,
    model: options.Model = "clvm",
    n_target: options.NTarget = "2",
    n_shared: options.NShared = None,
    n_background: options.NBackground = 0,
    block: options.Blocks = None,
    likelihood: options.Likelihood = "gaussian",
    own_noise: options.OwnNoise = False,
    size_factors: options.SizeFactors = None,
    replicates: options.Replicates = None,
    covariate: options.Covariates = None,
    shared_prior: options.SharedPrior = None,
    target_prior: options.TargetPrior = None,
    subgroups: options.NSubgroups = None,
    inference: options.Inference = "auto",
    n_init: options.NInit = 1,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE", help="Model file to write.")
    ] = Path("model.clvm"),
    report: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Also write an HTML report, such as report.html."),
    ] = None,
    top: options.Top = 5,
    resamples: options.Resamples = None,
    bootstrap: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=0,
            help="Number of fits to resampled rows that give loadings standard errors; by default "
            "200 where that takes about a second, and none otherwise or with 0.",
        ),
    ] = None,
    seed: options.Seed = 0,
    as_json: options.Json = False,
    layout: "Layout | None" = None,
) -> None:
    """Fit a model to a target and a background set, and print what only the target has.

    The first line says whether the target has structure of its own (see clvm test). With --block
    the model has any number of sets instead, told apart by --by.

    Numeric columns are features; columns of text are kept as annotations. Empty fields, NA and NaN
    are missing entries, which the model integrates out.
    """
    from contrastive_lvm.cli.format_summary import format_summary, reading_facts
    from contrastive_lvm.cli.parse_options import build_estimator, fit_arguments, setting_files
    from contrastive_lvm.io.tables.choose_rows import Choice
    from contrastive_lvm.io.tables.layout import Layout
    from contrastive_lvm.report.advice import data_advice, fit_advice
    from contrastive_lvm.report.evidence import gather, has_errors
    from contrastive_lvm.report.findings import findings

    settings = setting_files(model, likelihood, shared_prior, target_prior, inference)
    inputs = [file, background_file, *settings]
    path = destination(output, "--output", inputs=inputs)
    if report is not None:
        destination(report, "--report", inputs=inputs, outputs=[output])
    if block:
        refuse_two_set_options(
            {
                "BACKGROUND": background_file,
                "--target": target,
                "--background": background,
                "--model": None if model == "clvm" else model,
                "--n-target": None if n_target == "2" else n_target,
                "--n-shared": n_shared,
                "--n-background": n_background or None,
                "--shared-prior": shared_prior,
                "--target-prior": target_prior,
                "--subgroups": subgroups,
                "--report": report,
                "--bootstrap": bootstrap,
                "--resamples": resamples,
            }
        )
    if covariate and not model.startswith("clvm"):
        raise ValueError(
            f"--covariate is for linear models, not for --model {model}; leave it out."
        )
    estimator = build_estimator(
        model=model,
        n_target=n_target,
        n_shared=n_shared,
        n_background=n_background,
        likelihood=likelihood,
        own_noise=own_noise,
        size_factors=size_factors,
        shared_prior=shared_prior,
        target_prior=target_prior,
        subgroups=subgroups,
        inference=inference,
        n_init=n_init,
        seed=seed,
        verbose=sys.stderr.isatty(),
        blocks=block or (),
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
    sets = read(file, background_file, choice, scale, estimator, features or ())
    if block:
        from contrastive_lvm.cli.fit_blocks import fit_blocks

        fit_blocks(estimator, sets, choice, path, top=top, seed=seed, as_json=as_json)
        return
    with user_warnings() as said:
        fit_sets(estimator, sets, **fit_arguments(model))
        announce("Resampling")
        evidence = gather(estimator, sets, n_resamples=resamples, n_bootstrap=bootstrap, seed=seed)
        found = findings(estimator, sets, evidence, top=top)
    advice = [
        *data_advice(sets, estimator),
        *said,
        *fit_advice(found, automatic=estimator.n_shared == "auto"),
    ]
    save(estimator, sets, path)
    if report is not None:
        from contrastive_lvm.cli.report import write_page

        write_page(estimator, sets, report, file.name, evidence)
    facts: Facts = {
        **found,
        "columns": reading_facts(sets),
        "warnings": list(dict.fromkeys(advice)),
        "model": str(path),
    }
    unsure = bootstrap is None and has_errors(estimator) and evidence.bootstrap is None
    facts["hint"] = WITHOUT_ERRORS if unsure else None
    facts |= {"seed": seed, "report": None if report is None else str(report)}
    if subgroups is not None:
        facts["subgroups"] = subgroup_shares(estimator)
    say(as_text(facts) if as_json else format_summary(facts))
    if subgroups is not None and not as_json:
        say(subgroup_line(facts["subgroups"]))


def subgroup_shares(estimator: Contrastive) -> list[float]:
    """Return the share of each subgroup in the target, the largest first."""
    mixture = estimator.posterior_.latent_mixtures.get("target")
    return [1.0] if mixture is None else [float(share) for share in mixture.weights]


def subgroup_line(shares: list[float]) -> str:
    """Say how many subgroups there are, and how large they are."""
    if len(shares) == 1:
        return "Subgroups: none; the rows of the target are one cloud."
    sizes = ", ".join(f"{100 * share:.0f} %" for share in shares)
    return f"Subgroups: {len(shares)}, with {sizes} of the target's rows."


def refuse_two_set_options(given: dict[str, object]) -> None:
    """Refuse options that have no meaning with --block."""
    for option, value in given.items():
        if value is not None and value != []:
            raise ValueError(f"{option} has no meaning with --block; leave one of them out.")


def read(
    file: Path,
    background_file: Path | None,
    choice: "Choice",
    scale: str,
    estimator: Contrastive,
    features: Sequence[str] = (),
) -> "Sets":
    """Read the two sets that the options of a command describe."""
    from contrastive_lvm.cli.format_summary import describe_reading, describe_rows, reading_facts
    from contrastive_lvm.cli.parse_options import check_size_column, locate_features
    from contrastive_lvm.io.tables.prepare import read_sets
    from contrastive_lvm.io.tables.standardize import check_method
    from contrastive_lvm.likelihoods.base import ScaleMixture

    scalable = isinstance(estimator.likelihood, ScaleMixture)
    if check_method(scale) != "none" and not scalable:
        raise ValueError(
            f"--scale={scale} has no meaning for {estimator.likelihood!r}, because counts and "
            "binary values have no units; leave it out."
        )
    announce(f"Reading {file.name}")
    alone = getattr(estimator, "n_shared", 0) == 0
    sets = read_sets(file, background_file, choice, scale=scale, alone=alone, features=features)
    facts = reading_facts(sets)
    for line in (describe_rows(facts), *describe_reading(facts)):
        say(line, err=True)
    locate_features(estimator, sets.preparation.features)
    check_size_column(estimator, choice.sizes, len(sets.preparation.features))
    return sets


def fit_sets(estimator: Contrastive, sets: "Sets", **arguments: object) -> None:
    """Fit an estimator to two sets, with the size factors and replicates that columns give."""
    from contrastive_lvm.report.evidence import facts_of_sets, replicates_of

    arguments |= facts_of_sets(sets)
    if hasattr(estimator, "inference"):  # networks have no test that replicates change
        arguments |= replicates_of(sets)
    target, background = sets.frames()
    announce("Fitting")
    estimator.fit(target, background=background, **arguments)


def save(estimator: Contrastive, sets: "Sets", path: Path) -> None:
    """Write a model file that also tells how its rows were prepared."""
    from contrastive_lvm.io.model_files import write_model

    write_model(estimator, path, sets.preparation)
