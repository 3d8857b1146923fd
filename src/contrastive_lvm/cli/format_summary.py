"""The findings of a fit, as text."""

from typing import TYPE_CHECKING

from contrastive_lvm.cli.output import Facts, aligned, with_verdict, with_warnings

if TYPE_CHECKING:
    from contrastive_lvm.io.tables.prepare import Sets
    from contrastive_lvm.io.tables.table import Table


def format_summary(facts: Facts) -> str:
    """Return the findings of a fit, line by line."""
    lines = with_verdict(facts, *_data(facts), "", *_shares(facts["variance"]))
    for dimension in facts["dimensions"]:
        lines += ["", *_dimension(dimension)]
    if facts["means"] is not None:
        lines += ["", *_means(facts["means"])]
    if facts["selected_features"] is not None:
        lines += ["", f"{len(facts['selected_features'])} of {facts['features']} features selected"]
    lines += ["", _outliers(facts["outliers"])]
    if facts["shared_auc"] is not None:
        lines.append(
            "shared latents separate target and background with an area under the ROC curve of "
            f"{facts['shared_auc']:.2f} (0.5 is chance)"
        )
    lines += [facts["hint"]] if facts["hint"] else []
    report = facts["report"] or f"run clvm report {facts['model']} to write one"
    text = with_warnings(facts, lines, f"model: {facts['model']}", f"report: {report}")
    if "subgroups" not in facts:
        return text
    lines = [_subgroups(facts["subgroups"]), *_differences(facts["differences"])]
    return "\n".join([text, *lines, *facts["annotation_notes"]])


def reading_facts(sets: "Sets") -> Facts:
    """Return facts about what was read: rows of each set, and columns left out or rewritten."""
    from contrastive_lvm.io.tables.table import missing_share

    tables, origin = sets.tables, sets.preparation.origin
    by = None if origin is None else origin.choice.by
    identifiers = {name for table in tables for name in table.identifiers}
    text = {str(name) for table in tables for name in table.annotations.columns} - identifiers
    groups = [table.annotations[by].value_counts() for table in tables if by in table.annotations]
    names = ("target", "background")
    return {
        "rows": {name: table.n_rows for name, table in zip(names, tables, strict=False)},
        "features": len(sets.preparation.features),
        "feature_names": sets.preparation.features,
        "missing": missing_share(*(table.values for table in tables)),
        "groups": {str(name): int(n) for counts in groups for name, n in counts.items() if n},
        "annotations": sorted(text),
        "identifiers": sorted(identifiers),
        "one_file_only": sets.dropped,
        "empty": list(sets.empty),
        "rewritten": dict(pair for table in tables for pair in table.rewritten),
        "censored": sorted({name for table in tables for name in table.censored}),
        "remarks": list(dict.fromkeys(said for table in tables for said in table.remarks)),
    }


def describe_table(table: "Table") -> str:
    """Return the line that tells how many rows were read for a model, and in what way."""
    ways = sorted({f"with {how}" for _, how in table.rewritten} | set(table.remarks))
    from contrastive_lvm.io.tables.table import missing_share

    missing = f"{missing_share(table.values):.1%} missing"
    return f"{'read':12}{', '.join([f'{table.n_rows:,} rows', missing, *ways])}"


def describe_reading(facts: Facts) -> list[str]:
    """Return the lines that tell what was read, left out and rewritten."""
    rows = ", ".join(f"{n:,} rows of the {name}" for name, n in facts["rows"].items())
    features = f"{facts['features']:,} feature{'s' if facts['features'] != 1 else ''}"
    groups = ", ".join(f"{name} {n:,}" for name, n in facts["groups"].items())
    lines = [("read", f"{rows}, {features}, {facts['missing']:.1%} missing"), ("groups", groups)]
    lines.append(("features", _first_and_last(facts["feature_names"])))
    lines.append(("annotations", _listed(facts["annotations"])))
    for what, way in (
        ("identifiers", "identifiers; --features all keeps them"),
        ("empty", "no value in any row"),
        ("one_file_only", "in one of the files only"),
    ):
        lines.append(("left out", f"{_listed(facts[what])} ({way})" if facts[what] else ""))
    for how in sorted(set(facts["rewritten"].values())):
        names = [name for name, own in facts["rewritten"].items() if own == how]
        lines.append(("read with", f"{how}: {_listed(names)}"))
    lines += [("read", said) for said in facts["remarks"]]
    return [f"{name:12}{text}" for name, text in lines if text]


def _first_and_last(names: list[str]) -> str:
    """Name the first columns and the last ones, where other measurements often stand."""
    shown = names if len(names) <= 6 else [*names[:3], "...", *names[-3:]]
    return ", ".join(shown)


def _listed(names: list[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


def _subgroups(shares: list[float]) -> str:
    if len(shares) == 1:
        return "Subgroups: none; the target rows form a single cluster."
    sizes = ", ".join(f"{100 * share:.0f} %" for share in shares)
    return f"Subgroups: {len(shares)}, with {sizes} of the target's rows."


def _differences(sentences: list[str]) -> list[str]:
    pairs = enumerate(sentences, start=1)
    return [f"Subgroup {c} differs from the average row in {what}." for c, what in pairs]


def _data(facts: Facts) -> list[str]:
    from contrastive_lvm.estimators.summary import ending

    sets = [
        f"{name:12}{facts[name]['rows']:,} rows of {facts[name]['file']}"
        + (f", {facts[name]['missing']:.1%} missing" if facts[name]["missing"] > 0 else "")
        for name in ("target", "background")
        if name in facts
    ]
    scale = "" if facts["scale"] == "none" else f", {facts['scale']} scaling"
    ended = ending(facts["iterations"], converged=facts["converged"])
    if facts["estimator"] == "ContrastiveVAE":
        ended = f"trained for {facts['iterations']:,} epochs"
    model = f"{'model':12}{facts['estimator']}, {facts['size']}, {facts['likelihood']}; {ended}"
    features = f"{'features':12}{facts['features']:,}{scale}"
    known = [f"{'covariates':12}{', '.join(facts['covariates'])}"] if facts["covariates"] else []
    return [*sets, features, *known, model]


def _shares(variance: Facts) -> list[str]:
    table = [("share of the target's variance", "")]
    each = [""]
    for name in ("target", "shared"):
        table.append((f"  {name}", f"{sum(variance[name]):.1%}"))
        shown = ", ".join(f"{share:.1%}" for share in variance[name][:8])
        each.append(shown + (", ..." if len(variance[name]) > 8 else ""))
    table.append(("  noise", f"{variance['noise']:.1%}"))
    lines = zip(aligned(table), [*each, ""], strict=True)
    return [f"{total}  {shares}".rstrip() for total, shares in lines]


def _dimension(facts: Facts) -> list[str]:
    share = "" if facts["share"] is None else f", {facts['share']:.1%} of the variance"
    head = f"target {facts['dimension']}{share}"
    if not facts["features"]:
        return [f"{head}: all loadings are zero"]
    known = facts["features"][0]["standard_error"] is not None
    table = [("  feature", "loading", *(["standard error"] if known else []))]
    for feature in facts["features"]:
        error = [f"± {feature['standard_error']:.2g}"] if known else []
        table.append((f"  {feature['feature']}", f"{feature['loading']:.3g}", *error))
    return [head, *(line.rstrip() for line in aligned(table))]


def _means(facts: Facts) -> list[str]:
    table = [("  feature", "target - background", "standard error")]
    for feature in facts["features"]:
        error = f"± {feature['standard_error']:.2g}"
        table.append((f"  {feature['feature']}", f"{feature['difference']:+.3g}", error))
    return [facts["sentence"], *aligned(table)] if len(table) > 1 else [facts["sentence"]]


def _outliers(facts: Facts) -> str:
    if not facts["count"]:
        return "no outliers among the rows of the target"
    rows = ", ".join(str(row["row"]) for row in facts["rows"])
    return f"{facts['count']} outliers among the rows of the target, the strongest in rows {rows}"
