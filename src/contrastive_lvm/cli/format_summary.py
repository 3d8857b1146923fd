"""What a fit found, as text."""

from typing import Any

from contrastive_lvm.cli.output import aligned
from contrastive_lvm.estimators.summary import ending


def told(facts: dict[str, Any]) -> str:
    """The facts of a fit in lines."""
    lines = [*_data(facts), "", *_shares(facts)]
    for dimension in facts["dimensions"]:
        lines += ["", *_dimension(dimension)]
    if facts["selected_features"] is not None:
        lines += ["", f"{len(facts['selected_features'])} of {facts['features']} features matter"]
    lines += ["", *_outliers(facts["outliers"])]
    lines += [f"warning: {warning}" for warning in facts["warnings"]]
    page = facts["report"] or f"clvm report {facts['model']} writes a page to look at"
    return "\n".join([*lines, f"model: {facts['model']}", f"report: {page}"])


def _data(facts: dict[str, Any]) -> list[str]:
    sets = [
        f"{name:12}{facts[name]['rows']:,} rows of {facts[name]['file']}{_missing(facts[name])}"
        for name in ("target", "background")
        if name in facts
    ]
    ended = ending(facts["iterations"], converged=facts["converged"])
    scaled = "" if facts["scale"] == "none" else f", scale {facts['scale']}"
    model = (
        f"{'model':12}{facts['estimator']}, {facts['n_target']} target and {facts['n_shared']} "
        f"shared dimensions, {facts['likelihood']}; {ended}"
    )
    return [*sets, f"{'features':12}{facts['features']:,}{scaled}", model]


def _missing(facts: dict[str, Any]) -> str:
    return f", {facts['missing']:.1%} missing" if facts["missing"] > 0 else ""


def _shares(facts: dict[str, Any]) -> list[str]:
    variance = facts["variance"]
    rows = [("share of the target's variance", "", "each")]
    for name in ("target", "shared"):
        each = ", ".join(f"{share:.1%}" for share in variance[name][:8])
        more = ", ..." if len(variance[name]) > 8 else ""
        rows.append((f"  {name}", f"{sum(variance[name]):.1%}", each + more))
    rows.append(("  noise", f"{variance['noise']:.1%}", ""))
    widths = [max(len(row[i]) for row in rows) for i in (0, 1)]
    return [f"{a:{widths[0]}}  {b:>{widths[1]}}  {c}".rstrip() for a, b, c in rows]


def _dimension(facts: dict[str, Any]) -> list[str]:
    share = "" if facts["share"] is None else f", {facts['share']:.1%} of the variance"
    head = f"target dimension {facts['dimension']}{share}"
    if not facts["features"]:
        return [f"{head}: no feature has a loading"]
    rows = [("  feature", "loading", "std")]
    for feature in facts["features"]:
        std = "" if feature["std"] is None else f"± {feature['std']:.2g}"
        rows.append((f"  {feature['feature']}", f"{feature['loading']:.3g}", std))
    return [head, *(line.rstrip() for line in aligned(rows))]


def _outliers(facts: dict[str, Any]) -> list[str]:
    if not facts["count"]:
        return ["no row of the target is an outlier"]
    rows = ", ".join(str(row["row"]) for row in facts["rows"])
    return [f"{facts['count']} outlying rows of the target, first {rows}"]
