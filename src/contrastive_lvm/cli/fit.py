"""`clvm fit`: fit a model to two sets of rows, write it to a file and print what it found."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from contrastive_lvm.cli import options
from contrastive_lvm.cli.format_summary import describe_reading, format_summary, reading_facts
from contrastive_lvm.cli.output import Contrastive, Facts, announce, say, show, user_warnings
from contrastive_lvm.io.atomic import destination

if TYPE_CHECKING:
    from contrastive_lvm.io.tables.prepare import Sets
    from contrastive_lvm.report.evidence import Evidence

WITHOUT_ERRORS = (
    "Loadings have no standard errors, which would take a while; --bootstrap 200 gives them."
)
ESTIMATOR: options.Group = {
    "model": options.option(
        "KIND",
        "clvm (linear) or vae (neural networks); settings follow a colon, as in "
        "vae:hidden_layer_sizes=128+256,max_epochs=50.",
        kind=str,
        default="clvm",
    ),
    **options.N_TARGET,
    **options.MODEL,
    "n_background": options.option(
        "N", "Number of dimensions only the background has.", kind=int, default=0, min=0
    ),
    "block": options.option(
        "NAME=N:SETS",
        "For any number of sets, told apart by --by: dimensions that the named sets have and "
        "others have not, as in drugs=2:a+b; without names, all sets (shared=10). Repeatable. N "
        "may be auto, and --block auto alone finds which sets have which dimensions.",
        kind=options.Texts,
    ),
    "own_noise": options.option(None, "Give each set noise variances of its own.", "--own-noise"),
    "shared_prior": options.option(
        "KIND", "Prior of the shared loadings: flat, ard, group_lasso or horseshoe."
    ),
    "target_prior": options.option(
        "KIND",
        "Prior of the target loadings; settings follow a colon, as in group_lasso:rho=400 or "
        "horseshoe:scale=0.1,groups=FILE (a table with the columns feature and group).",
    ),
    "subgroups": options.option(
        "N",
        "Look for so many subgroups of the target's rows, or auto for as many as are separated by "
        "valleys, which may be one.",
    ),
    "inference": options.option(
        "ENGINE",
        "auto, em, vb, svi or nuts; settings follow a colon, as in em:max_iter=5000 or "
        "nuts:n_draws=1000.",
        kind=str,
        default="auto",
    ),
    "n_init": options.option(
        "N", "Number of fits from different starts; the best is kept.", kind=int, default=1
    ),
}
# What has no meaning with --block.
TWO_SETS_ONLY = (
    "background_file", "target", "background", "model", "n_target", "n_shared", "n_background",
    "shared_prior", "target_prior", "subgroups", "bootstrap", "resamples",
)  # fmt: skip
Output = Annotated[
    Path, typer.Option("--output", "-o", metavar="FILE", help="Model file to write.")
]
Report = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Also write an HTML report, such as report.html."),
]
Top = Annotated[
    int, typer.Option(metavar="N", min=1, help="Number of features to print per dimension.")
]
Resamples = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        min=0,
        help="Number of resamples of the test of contrast; 0 leaves it out. By default 999; 99 or "
        "none for data so large (rows x features^2 above 5e7 or 5e8) that it would take long.",
    ),
]
Bootstrap = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        min=0,
        help="Number of fits to resampled rows that give loadings standard errors; by default 200 "
        "where that takes about a second, and none otherwise or with 0.",
    ),
]


@options.with_options(options.SETS, ESTIMATOR)
def fit(
    *,
    output: Output = Path("model.clvm"),
    report: Report = None,
    top: Top = 5,
    resamples: Resamples = None,
    bootstrap: Bootstrap = None,
    seed: options.Seed = 0,
    as_json: options.Json = False,
    **said: Any,
) -> None:
    """Fit a model to a target and a background set, and print what only the target has.

    The first line says whether the target has structure of its own (see clvm test). With --block
    the model has any number of sets instead, told apart by --by.

    Numeric columns are features; columns of text are kept as annotations. Empty fields, NA and NaN
    are missing entries, which the model integrates out.
    """
    from contrastive_lvm.cli.parse_options import build_estimator, fit_arguments
    from contrastive_lvm.io.model_files import write_model

    others = {"report": report, "bootstrap": bootstrap, "resamples": resamples}
    _check_options(said | others, output)
    source, arguments = options.take_source(said), fit_arguments(said["model"])
    estimator = build_estimator(**said, seed=seed, verbose=sys.stderr.isatty())
    sets = read(source, estimator)
    if said["block"]:
        from contrastive_lvm.cli.fit_blocks import fit_blocks

        fit_blocks(estimator, sets, output, report, top=top, seed=seed, as_json=as_json)
        return
    facts, evidence = _fit(estimator, sets, arguments, resamples, bootstrap, top=top, seed=seed)
    write_model(estimator, output, sets.preparation)
    if report is not None:
        from contrastive_lvm.cli.report import write_page

        write_page(estimator, sets, report, source.file.name, evidence)
    facts |= {"model": str(output), "report": None if report is None else str(report)}
    if said["subgroups"] is not None:
        from contrastive_lvm.report.subgroup_notes import notes_of_fit

        mixture = estimator.posterior_.latent_mixtures.get("target")
        facts["subgroups"] = [1.0] if mixture is None else mixture.weights.tolist()
        facts["annotation_notes"] = notes_of_fit(estimator, sets)
    show(facts, format_summary, as_json=as_json)


def _check_options(said: options.Said, output: Path) -> None:
    """Refuse options that contradict each other, and outputs that cannot be written."""
    from contrastive_lvm.cli.parse_options import setting_files

    texts = ("model", "likelihood", "shared_prior", "target_prior", "inference")
    files = setting_files(*(said[name] for name in texts))
    inputs = [said["file"], said["background_file"], *files]
    destination(output, "--output", inputs=inputs)
    if said["report"] is not None:
        destination(said["report"], "--report", inputs=inputs, outputs=[output])
    for name in TWO_SETS_ONLY if said["block"] else ():
        if said[name] not in (None, [], ESTIMATOR.get(name, (None, None))[1]):
            option = "BACKGROUND" if "file" in name else f"--{name.replace('_', '-')}"
            raise ValueError(f"{option} has no meaning with --block; leave one of them out.")
    if said["covariate"] and not said["model"].startswith("clvm"):
        raise ValueError(
            f"--covariate is for linear models, not for --model {said['model']}; leave it out."
        )


def read(source: options.Source, estimator: Contrastive) -> "Sets":
    """Read the two sets that the options of a command describe, and say what was read."""
    from contrastive_lvm.cli.parse_options import bind_to_features
    from contrastive_lvm.io.tables.prepare import read_sets
    from contrastive_lvm.io.tables.standardize import check_method
    from contrastive_lvm.likelihoods.base import ScaleMixture

    if check_method(source.scale) != "none" and not isinstance(estimator.likelihood, ScaleMixture):
        raise ValueError(
            f"--scale={source.scale} has no meaning for {estimator.likelihood!r}, because counts "
            "and binary values have no units; leave it out."
        )
    announce(f"Reading {source.file.name}")
    sets = read_sets(*source, alone=getattr(estimator, "n_shared", 0) == 0)
    for line in describe_reading(reading_facts(sets)):
        say(line, err=True)
    bind_to_features(estimator, sets.preparation.features, source.choice.sizes)
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


def _fit(
    estimator: Contrastive,
    sets: "Sets",
    arguments: options.Said,
    resamples: int | None,
    bootstrap: int | None,
    *,
    top: int,
    seed: int,
) -> tuple[Facts, "Evidence"]:
    """Fit the model, resample it, and return what both found."""
    from contrastive_lvm.report.advice import data_advice, fit_advice
    from contrastive_lvm.report.evidence import gather, has_errors
    from contrastive_lvm.report.findings import findings

    with user_warnings() as warned:
        fit_sets(estimator, sets, **arguments)
        announce("Resampling")
        evidence = gather(estimator, sets, n_resamples=resamples, n_bootstrap=bootstrap, seed=seed)
        found = findings(estimator, sets, evidence, top=top)
    automatic = estimator.n_shared == "auto"
    said = [*data_advice(sets, estimator), *warned, *fit_advice(found, automatic=automatic)]
    unsure = bootstrap is None and has_errors(estimator) and evidence.bootstrap is None
    facts: Facts = {
        **found,
        "columns": reading_facts(sets),
        "warnings": list(dict.fromkeys(said)),
        "hint": WITHOUT_ERRORS if unsure else None,
        "seed": seed,
    }
    return facts, evidence
