"""`clvm select`: which features matter in the target, or how many dimensions are shared."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from contrastive_lvm.cli import options
from contrastive_lvm.cli.fit import fit_sets, read
from contrastive_lvm.cli.output import (
    Contrastive,
    Facts,
    aligned,
    announce,
    check_model_file,
    show,
    user_warnings,
    with_warnings,
)
from contrastive_lvm.exceptions import InvalidDataError, InvalidParameterError
from contrastive_lvm.progress import verbosity

if TYPE_CHECKING:
    from contrastive_lvm.io.tables.prepare import Sets

Method = Annotated[
    str,
    typer.Option(
        metavar="METHOD",
        help="group_lasso (along a path of strengths) or horseshoe to select features; ard to "
        "choose the number of shared dimensions. Settings follow a colon, as in "
        "group_lasso:groups=FILE or horseshoe:scale=0.1.",
    ),
]
Strengths = Annotated[
    int, typer.Option(metavar="N", min=2, help="Number of strengths on the path of group_lasso.")
]
Resamples = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        min=0,
        help="Number of random halves of the rows, at least 20, in which the selection is "
        "repeated to find the stable features; 0 skips this and the contrast test. Default: 100, "
        "or 20 for more than 5,000 features.",
    ),
]
Output = Annotated[
    Path | None,
    typer.Option("--output", "-o", metavar="FILE", help="Also write the selected model."),
]


@options.with_options(options.SETS, options.N_TARGET, options.MODEL)
def select(
    *,
    method: Method = "group_lasso",
    strengths: Strengths = 30,
    resamples: Resamples = None,
    output: Output = None,
    seed: options.Seed = 0,
    as_json: options.Json = False,
    **said: Any,
) -> None:
    """Select features, or the number of shared dimensions.

    Features are listed if the target has structure of its own (see clvm test) and if they are also
    selected in most random halves of the rows. There may be none.
    """
    from contrastive_lvm.cli.parse_options import build_estimator, setting_files, split_settings
    from contrastive_lvm.io.model_files import write_model

    kind, _ = split_settings("--method", method, ("group_lasso", "horseshoe", "ard"))
    files = setting_files(method, said["likelihood"])
    source = options.take_source(said)
    if output is not None:
        check_model_file(output, "--output", inputs=[*source[:2], *files])
    if kind == "ard":
        said["n_shared"] = said["n_shared"] or "auto"
    said["shared_prior" if kind == "ard" else "target_prior"] = method
    estimator = build_estimator(**said, seed=seed)
    sets, _ = read(source, estimator)
    facts: Facts = {"method": kind}
    with user_warnings() as warned, verbosity(enabled=True):
        if kind == "group_lasso":
            path, estimator = _follow_path(estimator, sets, strengths)
            facts |= path
        else:
            fit_sets(estimator, sets)
        facts |= _selection(estimator, sets, kind)
        if kind != "ard":
            facts |= _reliability(estimator, sets, facts["selected"], resamples, seed)
    if output is not None:
        write_model(estimator, output, sets.preparation)
        facts["model"] = str(output)
    show(facts | {"warnings": warned}, _text, as_json=as_json)


def _follow_path(estimator: Contrastive, sets: "Sets", strengths: int) -> tuple[Facts, Contrastive]:
    """Fit the group lasso at all strengths; return the path and the model chosen from it."""
    from contrastive_lvm.estimators.lasso_path import group_lasso_path
    from contrastive_lvm.report.evidence import facts_of_sets

    target, background = sets.frames()
    known = {name: value for name, value in facts_of_sets(sets).items() if "covariates" in name}
    announce("Fitting")
    path = group_lasso_path(estimator, target, background=background, n_rhos=strengths, **known)
    steps = zip(path.rhos, path.n_selected, path.log_likelihoods, strict=True)
    table = [
        {"rho": float(rho), "features": int(n), "log_likelihood": float(likelihood)}
        for rho, n, likelihood in steps
    ]
    facts = {"path": table, "rho": float(path.rhos[path.steadiest])}
    return facts, path.models[path.steadiest]


def _selection(model: Contrastive, sets: "Sets", kind: str) -> Facts:
    from contrastive_lvm.report.findings import ranked_features

    if kind == "ard":
        shares = model.shared_variance_ratio_.tolist()
        return {"n_shared": int(model.n_shared_), "shares": shares}
    position = {name: i for i, name in enumerate(sets.preparation.features)}
    selected = [
        {"feature": name, "relevance": float(model.feature_relevance_[position[name]])}
        for name in ranked_features(model, sets)
    ]
    return {"features": len(position), "selected": selected}


def _reliability(
    model: Contrastive, sets: "Sets", selected: list[Facts], resamples: int | None, seed: int
) -> Facts:
    """Test whether there is contrast, and find the features that most halves select."""
    from contrastive_lvm.report.evidence import judge

    if resamples is None:
        resamples = 100 if len(sets.preparation.features) <= 5000 else 20
    announce("Resampling")
    said = judge(model, sets, n_resamples=None if resamples else 0, seed=seed)
    facts: Facts = {"verdict": said["sentence"], "pvalue": said["pvalue"], "unknown": None}
    if said["n_target"] == 0:
        return facts | {"stable": [], "expected_false": 0.0}
    return facts | _stability(model, sets, [item["feature"] for item in selected], resamples, seed)


def _stability(
    model: Contrastive, sets: "Sets", selected: list[str], resamples: int, seed: int
) -> Facts:
    """Return the selected features that are stable, or why they are unknown."""
    from contrastive_lvm.report.evidence import resampled

    nothing: Facts = {"stable": None, "expected_false": None}
    if not resamples:
        return nothing | {"unknown": "no resamples were asked for."}
    try:
        found = resampled(model, sets, n_resamples=resamples, seed=seed)
    except InvalidParameterError as error:
        if error.parameter != "inference":
            raise
        return nothing | {"unknown": f"{type(error.value).__name__} {error.reason}"}
    except InvalidDataError as error:
        return nothing | {"unknown": f"the set {error.reason}"}
    flags = () if found.stable_features is None else found.stable_features.tolist()
    again = {
        name for name, is_stable in zip(sets.preparation.features, flags, strict=False) if is_stable
    }
    stable = [name for name in selected if name in again]
    chance = float(found.expected_false_selections or 0.0)
    if chance > 0.5 * len(stable):  # most of them may be false
        return {"stable": [], "expected_false": 0.0}
    return {"stable": stable, "expected_false": chance}


def _text(facts: Facts) -> str:
    lines = [*_dimensions(facts), *_path(facts)]
    if "selected" in facts:
        lines = [facts["verdict"], "", *lines, *_features(facts)]
    return with_warnings(facts, lines, *([f"model: {facts['model']}"] if "model" in facts else []))


def _dimensions(facts: Facts) -> list[str]:
    if facts["method"] != "ard":
        return []
    each = ", ".join(f"{share:.1%}" for share in facts["shares"])
    return [f"{facts['n_shared']} shared dimensions; shares of the target's variance: {each}"]


def _path(facts: Facts) -> list[str]:
    if "path" not in facts:
        return []
    table = [("strength", "features", "log-likelihood")]
    table += [
        (f"{step['rho']:.4g}", str(step["features"]), f"{step['log_likelihood']:.1f}")
        for step in facts["path"]
    ]
    return [*aligned(table), "", f"longest plateau around strength {facts['rho']:.4g}"]


def _features(facts: Facts) -> list[str]:
    """List the stable features, or all selected ones if stability is unknown."""
    chosen, stable = facts["selected"], facts["stable"]
    head = f"{len(chosen)} of {facts['features']} features selected"
    if stable is None:
        unknown = f"How many are selected by chance is unknown: {facts['unknown']}"
        return [head, unknown, *_listed(chosen)]
    if not stable:
        return ["No feature is selected reliably.", f"{head}, which may all be chance."]
    head += (
        f", {len(stable)} of them stable (selected in 90 % of random halves); at most "
        f"{facts['expected_false']:.2g} expected by chance"
    )
    return [head, *_listed([item for item in chosen if item["feature"] in stable])]


def _listed(chosen: list[Facts]) -> list[str]:
    lines = aligned([(f"  {item['feature']}", f"{item['relevance']:.3g}") for item in chosen[:20]])
    return lines + ([f"  and {len(chosen) - 20} more"] if len(chosen) > 20 else [])
