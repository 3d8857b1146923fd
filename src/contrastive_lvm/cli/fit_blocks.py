"""`clvm fit --block`: fit a model of any number of sets, and print the blocks of each set."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from contrastive_lvm.cli.output import Facts, aligned, announce, show, user_warnings, with_warnings
from contrastive_lvm.estimators.summary import ending, leading, ranking_weights
from contrastive_lvm.exceptions import InvalidParameterError

if TYPE_CHECKING:
    import numpy as np

    from contrastive_lvm.designs import Block
    from contrastive_lvm.estimators.multi_set_lvm import MultiSetLVM
    from contrastive_lvm.io.tables.prepare import Sets

HOW = "write NAME=N for all sets, NAME=N:SET+SET for some, or auto."


def parse_blocks(texts: Sequence[str]) -> "dict[str, Block] | str":
    """Return the blocks that values of --block describe.

    >>> parse_blocks(["shared=10", "drugs=2:a+b"])["drugs"]
    Block(n_components=2, sets=('a', 'b'), prior=None)
    """
    from contrastive_lvm.designs import Block

    if list(texts) == ["auto"]:
        return "auto"
    found: dict[str, Block] = {}
    for text in texts:
        name, equals, rest = text.partition("=")
        size, _, sets = rest.partition(":")
        if not equals or not name or not (size == "auto" or size.isdecimal()):
            raise InvalidParameterError("--block", text, f"is not a block; {HOW}")
        if name in found:
            raise InvalidParameterError("--block", text, "defines a block twice; define it once.")
        try:
            found[name] = Block(
                size if size == "auto" else int(size), sets.split("+") if sets else None
            )
        except InvalidParameterError as error:
            raise InvalidParameterError("--block", text, f"{error.reason} {HOW}") from error
    return found


def fit_blocks(
    estimator: "MultiSetLVM",
    sets: "Sets",
    path: Path,
    report: Path | None,
    *,
    top: int,
    seed: int,
    as_json: bool,
) -> None:
    """Fit a model to the sets that a column tells apart, write it, and print the results."""
    from contrastive_lvm.io.model_files import write_model

    rows, arguments = rows_of_sets(sets)
    announce("Fitting")
    with user_warnings() as said:
        estimator.fit(rows, **arguments)
    write_model(estimator, path, sets.preparation)
    facts = findings_of_blocks(estimator, top) | {"warnings": said, "model": str(path)}
    if report is not None:
        announce("Writing the report")
        estimator.report(report, rows, **arguments, title=Path(sets.target.source).name)
    others = {"report": None if report is None else str(report), "seed": seed}
    show(facts | others, format_blocks, as_json=as_json)


def rows_of_sets(sets: "Sets") -> tuple[Any, dict[str, Any]]:
    """Return the rows whose set is known, and what belongs to them, as `MultiSetLVM` takes it."""
    from contrastive_lvm.io.tables.prepare import frame
    from contrastive_lvm.io.tables.row_columns import facts_of_rows, replicates_in

    origin, replicates = sets.preparation.origin, sets.preparation.replicates
    table, labels = rows_with_labels(sets.target, None if origin is None else origin.choice.by)
    arguments: dict[str, Any] = {"sets": labels, **facts_of_rows(table, sets.preparation)}
    if replicates is not None:
        arguments["groups"] = replicates_in([table], replicates)[0]
    return frame(table, named=sets.preparation.named), arguments


def rows_with_labels(table: Any, by: str | None) -> "tuple[Any, np.ndarray]":
    """Return the rows that have a value in the column `by`, and these values as text."""
    import numpy as np

    from contrastive_lvm.io.tables.choose_rows import rows_of
    from contrastive_lvm.io.tables.table import some

    if by is None or by not in table.annotations.columns:
        has = some(map(str, table.annotations.columns)) or "none"
        reason = f"must name a column of {table.source} that names the sets; it has {has}."
        raise InvalidParameterError("--by", by, reason)
    known = table.annotations[by].notna().to_numpy(dtype=np.bool_)
    if not known.any():
        raise InvalidParameterError("--by", by, f"is empty in all rows of {table.source}.")
    chosen = rows_of(table, known)
    return chosen, chosen.annotations[by].astype(str).to_numpy(dtype=object)


def findings_of_blocks(model: "MultiSetLVM", top: int) -> Facts:
    """Return the results of a fit as numbers and text for JSON."""
    names = getattr(model, "feature_names_in_", [f"x{i + 1}" for i in range(model.n_features_in_)])
    blocks, weights = {}, ranking_weights(model, model.n_features_in_)
    for name, block in model.blocks_.items():
        dimensions = [
            [
                {"feature": str(names[i]), "loading": float(row[i])}
                for i in leading(row, top, weights)
            ]
            for row in model.components_[name]
        ]
        blocks[name] = {"sets": list(block.sets or ()), "dimensions": dimensions}
    shares = {
        s: {str(k): float(v) for k, v in row.items()} for s, row in model.variance_ratio_.iterrows()
    }
    found: Facts = {
        "estimator": type(model).__name__,
        "sets": {
            name: {"rows": n, "variance": shares[name]} for name, n in model.set_sizes_.items()
        },
        "features": int(model.n_features_in_),
        "blocks": blocks,
        "iterations": int(model.n_iter_),
        "converged": bool(model.converged_),
        "lower_bound": float(model.lower_bound_),
        "evidence": None,
    }
    if model.block_evidence_ is not None:
        table = model.block_evidence_.astype(object).where(model.block_evidence_.notna(), None)
        found["evidence"] = {str(name): dict(row) for name, row in table.iterrows()}
    return found


def format_blocks(facts: Facts) -> str:
    """Return the findings as text."""
    blocks, sets = facts["blocks"], facts["sets"]
    head = ("set", "rows", *blocks, "noise")
    shares = [
        (name, f"{own['rows']:,}", *(_shown(own["variance"][b] or None, ".1%") for b in head[2:]))
        for name, own in sets.items()
    ]
    ended = ending(facts["iterations"], converged=facts["converged"])
    lines = [f"{facts['features']:,} features; {ended}", "", "share of each set's variance"]
    lines += [f"  {line}" for line in aligned([head, *shares])]
    for name, block in blocks.items():
        lines += ["", f"{name} ({', '.join(block['sets'])})"]
        for k, features in enumerate(block["dimensions"], 1):
            said = ", ".join(f"{f['feature']} {f['loading']:+.3g}" for f in features)
            lines.append(f"  {name} {k}: {said or 'all loadings are zero'}")
    lines += _evidence(facts["evidence"])
    report = [f"report: {facts['report']}"] if facts["report"] else []
    return with_warnings(facts, lines, f"model: {facts['model']}", *report)


def _evidence(table: dict[str, dict[str, float | None]] | None) -> list[str]:
    if table is None:
        return []
    head = ("block", "dimensions", "gain of the last", "of one more", "needed")
    gains = ("gain", "next_gain", "needed")
    rows = [
        (name, f"{own['n_components']}", *(_shown(own[k], ",.1f") for k in gains))
        for name, own in table.items()
    ]
    lines = [f"  {line}" for line in aligned([head, *rows])]
    return ["", "evidence, in nats of the log-likelihood", *lines]


def _shown(value: float | None, form: str) -> str:
    return "-" if value is None else f"{value:{form}}"
