"""Diagnostics of a fit in plain words: what can be trusted, and what to do about the rest."""

import numpy as np

from contrastive_lvm.arrays import Array
from contrastive_lvm.io.tables.prepare import Sets
from contrastive_lvm.report.advice import PAGE, data_advice, fit_advice
from contrastive_lvm.report.findings import Facts, Fitted


def diagnostics(
    model: Fitted, sets: Sets, facts: Facts, points: dict[str, Array]
) -> list[dict[str, str]]:
    """Return sentences with a level: "good", "note" or "care"."""
    found = [_ending(facts), *_enrichment(points), *_certainty(points), _outliers(facts)]
    advice = [*data_advice(sets, model, PAGE), *fit_advice(facts, PAGE)]
    found += [("care", sentence) for sentence in advice]
    return [{"level": level, "text": text} for level, text in found]


def _ending(facts: Facts) -> tuple[str, str]:
    if facts["converged"]:
        return "good", f"The fit converged after {facts['iterations']:,} iterations."
    return "care", (
        f"The fit stopped after {facts['iterations']:,} iterations, before it converged: allow "
        "more (max_iter), or check whether the features have very different scales."
    )


def _enrichment(points: dict[str, Array]) -> list[tuple[str, str]]:
    """Compare the variances of both sets along each target dimension.

    The dimensions were chosen where the target varies most, so that this is no evidence.
    """
    if "background_target" not in points or not points["target"].shape[1]:
        return []
    own, other = points["target"].var(axis=0), points["background_target"].var(axis=0)
    found = []
    for k, (a, b) in enumerate(zip(own, other, strict=True), start=1):
        ratio = a / b if b > 0 else np.inf
        times = f"{ratio:.1f} times" if ratio < 1000 else "over 1,000 times"
        text = f"Along target dimension {k} the target varies {times} as much as the background."
        if ratio < 1.5:
            text += " Little is enriched there; what it shows may be noise."
        found.append(("note" if ratio >= 1.5 else "care", text))
    return found


def _certainty(points: dict[str, Array]) -> list[tuple[str, str]]:
    """Warn where the data determine less than half of a latent's variance."""
    found = []
    for k in range(points["target"].shape[1]):
        spread = float(points["target"][:, k].var())
        error = float((points["target_std"][:, k] ** 2).mean())
        if not spread > error:
            text = (
                f"Target dimension {k + 1} is uncertain: a row's posterior standard deviation is "
                f"typically {np.sqrt(error):.2g}, while rows differ by {np.sqrt(spread):.2g}. "
                "Trust groups of rows there rather than single rows."
            )
            found.append(("care", text))
    return found


def _outliers(facts: Facts) -> tuple[str, str]:
    count = facts["outliers"]["count"]
    if not count:
        return "good", "No row of the target is an outlier."
    rows = ", ".join(str(row["row"]) for row in facts["outliers"]["rows"])
    verb = "row of the target is an outlier" if count == 1 else "rows of the target are outliers"
    return "note", f"{count:,} {verb}; the most outlying: {rows}."
