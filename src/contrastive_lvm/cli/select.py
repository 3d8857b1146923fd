"""`clvm select`: which features carry what the target has, or how many dimensions are shared."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from contrastive_lvm.cli import options
from contrastive_lvm.cli.cli_progress import working
from contrastive_lvm.cli.fit import read, save, sizes
from contrastive_lvm.cli.output import aligned, destination, user_warnings

if TYPE_CHECKING:
    from contrastive_lvm.io.tables.prepare import Sets

LISTED = 20  # features that are printed


def select(
    file: options.TargetFile,
    background_file: options.BackgroundFile = None,
    *,
    method: Annotated[
        str,
        typer.Option(
            metavar="METHOD",
            help="group_lasso (a path over its strength) or horseshoe for features, ard for the "
            "number of shared dimensions; with settings as in group_lasso:groups=FILE, "
            "horseshoe:scale=0.1.",
        ),
    ] = "group_lasso",
    strengths: Annotated[
        int, typer.Option(metavar="N", min=2, help="Strengths on the path of the group lasso.")
    ] = 30,
    by: options.By = None,
    target: options.Target = None,
    background: options.Background = None,
    where: options.Where = None,
    annotation: options.Annotation = None,
    scale: options.Scale = "none",
    layer: options.Layer = None,
    n_target: options.NTarget = 2,
    n_shared: options.NShared = None,
    likelihood: options.Likelihood = "gaussian",
    size_factors: options.SizeFactors = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Also write the chosen model."),
    ] = None,
    seed: options.Seed = 0,
    as_json: options.Json = False,
) -> None:
    """Say which features matter in the target, or how many dimensions both sets share."""
    from contrastive_lvm.cli.parse_options import Words, spelled
    from contrastive_lvm.io.tables.prepare import Choice

    path = None if output is None else destination(output)
    kind, _ = spelled("--method", method)
    if kind not in ("group_lasso", "horseshoe", "ard"):
        raise ValueError(f"--method {kind} is unknown; use group_lasso, horseshoe or ard.")
    words = Words(
        n_target=n_target,
        n_shared=n_shared or ("auto" if kind == "ard" else None),
        likelihood=likelihood,
        size_factors=size_factors,
        shared_prior=method if kind == "ard" else None,
        target_prior=None if kind == "ard" else method,
        seed=seed,
    )
    sides = (target or (), background or (), where or (), annotation or ())
    choice = Choice(by, *sides, layer=layer, sizes=options.size_column(size_factors))
    sets = read(file, background_file, choice, scale, words)
    estimator = words.estimator(sets.preparation.features)
    with user_warnings() as said:
        if kind == "group_lasso":
            facts, chosen = _path(estimator, sets, strengths)
        else:
            facts, chosen = _one(estimator, sets, kind)
    if path is not None:
        save(chosen, sets, path)
        facts["model"] = str(path)
    facts["warnings"] = said
    typer.echo(json.dumps(facts, indent=1, allow_nan=False) if as_json else _text(facts))


def _rows(sets: "Sets") -> tuple[Any, Any]:
    from contrastive_lvm.io.tables.prepare import frame

    named = sets.preparation.named
    others = None if sets.background is None else frame(sets.background, named=named)
    return frame(sets.target, named=named), others


def _path(estimator: Any, sets: "Sets", strengths: int) -> tuple[dict[str, Any], Any]:
    from contrastive_lvm.estimators.lasso_path import group_lasso_path

    rows, others = _rows(sets)
    with working("Following the path"):
        path = group_lasso_path(estimator, rows, background=others, n_rhos=strengths)
    chosen = path.models[path.steadiest]
    facts = {
        "method": "group_lasso",
        "path": [
            {"rho": float(rho), "features": int(n), "log_likelihood": float(likelihood)}
            for rho, n, likelihood in zip(
                path.rhos, path.n_selected, path.log_likelihoods, strict=True
            )
        ],
        "rho": float(path.rhos[path.steadiest]),
        **_features(chosen, sets),
    }
    return facts, chosen


def _one(estimator: Any, sets: "Sets", kind: str) -> tuple[dict[str, Any], Any]:
    rows, others = _rows(sets)
    with working("Fitting"):
        estimator.fit(rows, background=others, **sizes(sets))
    if kind == "horseshoe":
        return {"method": kind, **_features(estimator, sets)}, estimator
    shares = estimator.shared_variance_ratio_.tolist()
    return {"method": kind, "n_shared": int(estimator.n_shared_), "shares": shares}, estimator


def _features(model: Any, sets: "Sets") -> dict[str, Any]:
    from contrastive_lvm.report.findings import ranked_features

    position = {name: i for i, name in enumerate(sets.preparation.features)}
    selected = [
        {"feature": name, "relevance": float(model.feature_relevance_[position[name]])}
        for name in ranked_features(model, sets)
    ]
    return {"features": len(position), "selected": selected}


def _text(facts: dict[str, Any]) -> str:
    lines: list[str] = []
    if facts["method"] == "ard":
        each = ", ".join(f"{share:.1%}" for share in facts["shares"])
        lines += [f"{facts['n_shared']} shared dimensions, of the target's variance: {each}"]
    if "path" in facts:
        table = [("strength", "features", "log-likelihood")]
        table += [
            (f"{step['rho']:.4g}", str(step["features"]), f"{step['log_likelihood']:.1f}")
            for step in facts["path"]
        ]
        lines += [*aligned(table), "", f"longest plateau around strength {facts['rho']:.4g}"]
    if "selected" in facts:
        chosen = facts["selected"]
        lines += [f"{len(chosen)} of {facts['features']} features matter in the target"]
        lines += aligned(
            [(f"  {item['feature']}", f"{item['relevance']:.3g}") for item in chosen[:LISTED]]
        )
        if len(chosen) > LISTED:
            lines += [f"  and {len(chosen) - LISTED} more"]
    lines += [f"warning: {warning}" for warning in facts["warnings"]]
    return "\n".join(lines + ([f"model: {facts['model']}"] if "model" in facts else []))
