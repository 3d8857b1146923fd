"""`clvm fit`: fit a model to two sets of rows, write it to a file and print the results."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from contrastive_lvm.cli import options
from contrastive_lvm.cli.format_summary import describe_reading, format_summary, reading_facts
from contrastive_lvm.cli.output import (
    Contrastive,
    Facts,
    announce,
    check_model_file,
    say,
    show,
    user_warnings,
)
from contrastive_lvm.io.atomic import page_destination

if TYPE_CHECKING:
    from contrastive_lvm.io.tables.prepare import Sets
    from contrastive_lvm.report.evidence import Evidence

WITHOUT_ERRORS = (
    "The loadings have no standard errors, which would take a while; add --bootstrap 200."
)
FEW_REPLICATES = "Two or three replicates in a set are too few for standard errors of the loadings."
ESTIMATOR: options.Group = {
    "model": options.option(
        "KIND",
        "clvm (linear) or vae (neural networks). Settings follow a colon, as in "
        "vae:hidden_layer_sizes=128+256,max_epochs=50.",
        kind=str,
        default="clvm",
    ),
    **options.N_TARGET,
    **options.MODEL,
    "n_background": options.option(
        "N", "Number of dimensions that only the background has.", kind=int, default=0, min=0
    ),
    "block": options.option(
        "NAME=N:SETS",
        "For any number of sets (see --by): N dimensions that only the named sets have, as in "
        "drugs=2:a+b, or that all sets share, as in shared=10. N may be auto, and --block auto "
        "alone finds which sets have which dimensions. Repeatable.",
        kind=options.Texts,
    ),
    "own_noise": options.option(None, "Give each set its own noise variances.", "--own-noise"),
    "shared_prior": options.option(
        "KIND", "Prior on the shared loadings: flat, ard, group_lasso or horseshoe."
    ),
    "target_prior": options.option(
        "KIND",
        "Prior on the target loadings. Settings follow a colon, as in group_lasso:rho=400 or "
        "horseshoe:scale=0.1,groups=FILE (a table with the columns feature and group).",
    ),
    "subgroups": options.option(
        "N",
        "Number of subgroups to find among the target rows, or auto for as many as low-density "
        "regions separate, which may be only one.",
    ),
    "inference": options.option(
        "ENGINE",
        "auto, em, vb, svi or nuts. Settings follow a colon, as in em:max_iter=5000 or "
        "nuts:n_draws=1000.",
        kind=str,
        default="auto",
    ),
    "n_init": options.option(
        "N", "Number of fits from different starts; the best one is kept.", kind=int, default=1
    ),
}
# Options that have no meaning with --block.
TWO_SETS_ONLY = (
    "background_file", "target", "background", "model", "n_target", "n_shared", "n_background",
    "shared_prior", "target_prior", "subgroups", "bootstrap", "resamples",
)  # fmt: skip
Output = Annotated[
    Path, typer.Option("--output", "-o", metavar="FILE", help="Model file to write.")
]
Report = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Also write an HTML report to this file."),
]
Top = Annotated[
    int, typer.Option(metavar="N", min=1, help="Number of features to print per dimension.")
]
Resamples = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        min=0,
        help="Number of permutations of the contrast test; 0 skips it. Default: 999, reduced to 99 "
        "or 0 for large data (rows x features^2 above 5e7 or 5e8).",
    ),
]


@options.with_options(options.SETS, ESTIMATOR)
def fit(
    *,
    output: Output = Path("model.clvm"),
    report: Report = None,
    top: Top = 5,
    resamples: Resamples = None,
    bootstrap: options.Bootstrap = None,
    seed: options.Seed = 0,
    as_json: options.Json = False,
    **said: Any,
) -> None:
    """Fit a model to a target and a background set.

    The first line of the output says whether the target has structure of its own (see clvm test).
    The rest describes that structure. With --block, the model has any number of sets: one for each
    value of the --by column.

    Numeric columns are features; text columns are kept as annotations. Empty fields, NA and NaN are
    missing entries, which the model integrates out.
    """
    from contrastive_lvm.cli.parse_options import MODELS, build_estimator, split_settings
    from contrastive_lvm.io.model_files import write_model

    others = {"report": report, "bootstrap": bootstrap, "resamples": resamples}
    _check_options(said | others, output)
    source, settings = (
        options.take_source(said),
        split_settings("--model", said["model"], MODELS)[1],
    )
    estimator = build_estimator(**said, seed=seed, verbose=sys.stderr.isatty())
    sets, columns = read(source, estimator)
    if said["block"]:
        from contrastive_lvm.cli.fit_blocks import fit_blocks

        fit_blocks(estimator, sets, output, report, top=top, seed=seed, as_json=as_json)
        return
    arguments = {name: value for name, value in settings.items() if name == "resume"}
    facts, evidence = _fit(estimator, sets, arguments, resamples, bootstrap, top=top, seed=seed)
    write_model(estimator, output, sets.preparation)
    if report is not None:
        from contrastive_lvm.cli.report import write_page

        write_page(estimator, sets, report, source.file.name, evidence)
    facts |= {"columns": columns, "seed": seed, "model": str(output)}
    facts["report"] = None if report is None else str(report)
    if said["subgroups"] is not None:
        from contrastive_lvm.report.subgroup_notes import differences_in_words, notes_of_fit

        mixture = estimator.posterior_.latent_mixtures.get("target")
        facts["subgroups"] = [1.0] if mixture is None else mixture.weights.tolist()
        apart = mixture is not None and len(mixture.weights) > 1
        facts["differences"] = differences_in_words(estimator, sets, evidence) if apart else []
        facts["annotation_notes"] = notes_of_fit(estimator, sets)
    show(facts, format_summary, as_json=as_json)


def _check_options(said: options.Said, output: Path) -> None:
    """Refuse options that contradict each other, and outputs that cannot be written."""
    from contrastive_lvm.cli.parse_options import setting_files

    texts = ("model", "likelihood", "shared_prior", "target_prior", "inference")
    files = setting_files(*(said[name] for name in texts))
    inputs = [said["file"], said["background_file"], *files]
    check_model_file(output, "--output", inputs=inputs)
    if said["report"] is not None:
        page_destination(said["report"], "--report", inputs=inputs, outputs=[output])
    for name in TWO_SETS_ONLY if said["block"] else ():
        if said[name] not in (None, [], ESTIMATOR.get(name, (None, None))[1]):
            option = "BACKGROUND" if "file" in name else f"--{name.replace('_', '-')}"
            raise ValueError(f"{option} cannot be combined with --block; leave one of them out.")


def read(source: options.Source, estimator: Contrastive) -> "tuple[Sets, Facts]":
    """Read the two sets that the options of a command describe, and print what was read.

    The printed lines are returned too.
    """
    from contrastive_lvm.cli.parse_options import bind_to_features
    from contrastive_lvm.io.tables.preparation import check_method
    from contrastive_lvm.io.tables.prepare import read_sets

    if check_method(source.scale) != "none" and not estimator.likelihood._has_closed_form:
        raise ValueError(
            f"--scale={source.scale} does not apply to {estimator.likelihood!r}, because counts "
            "and binary values have no units; leave it out."
        )
    announce(f"Reading {source.file.name}")
    sets = read_sets(*source, alone=getattr(estimator, "n_shared", 0) == 0)
    columns = reading_facts(sets)
    for line in describe_reading(columns):
        say(line, err=True)
    bind_to_features(estimator, sets.preparation.features, source.choice.sizes)
    return sets, columns


def fit_sets(estimator: Contrastive, sets: "Sets", **arguments: object) -> None:
    """Fit an estimator to two sets, with the size factors and replicates that columns give."""
    from contrastive_lvm.report.evidence import facts_of_sets, replicates_of

    arguments |= facts_of_sets(sets)
    if hasattr(estimator, "inference"):  # networks have no test that uses replicates
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
    """Fit the model, resample it, and return the results of both."""
    from contrastive_lvm.report.adequacy import shared_note
    from contrastive_lvm.report.advice import (
        data_advice,
        fit_advice,
        replicates_advice,
        scale_advice,
    )
    from contrastive_lvm.report.evidence import gather, has_errors, has_few_replicates
    from contrastive_lvm.report.findings import findings

    with user_warnings() as warned:
        fit_sets(estimator, sets, **arguments)
        announce("Resampling")
        evidence = gather(estimator, sets, n_resamples=resamples, n_bootstrap=bootstrap, seed=seed)
        found = findings(estimator, sets, evidence, top=top)
    automatic = estimator.n_shared == "auto"
    said = [*data_advice(sets, estimator), *warned, *fit_advice(found, automatic=automatic)]
    level, sentence = shared_note(found["shared_auc"] or 0.5)
    said += [sentence] if level == "care" else []
    unsure = bootstrap is None and has_errors(estimator) and evidence.bootstrap is None
    unsure = unsure and found["n_supported"] != 0
    cautions = [replicates_advice(sets), scale_advice(sets, estimator)]
    hint = FEW_REPLICATES if has_few_replicates(sets) else WITHOUT_ERRORS
    facts: Facts = {
        **found,
        "warnings": list(dict.fromkeys(said)),
        "cautions": [said for said in cautions if said is not None],
        "hint": hint if unsure else None,
    }
    return facts, evidence
