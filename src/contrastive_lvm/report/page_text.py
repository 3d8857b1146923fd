"""Diagnostics in plain words: what can be trusted, and what to do where it cannot."""

from typing import Any

import numpy as np

from contrastive_lvm.arrays import Array
from contrastive_lvm.io.tables.prepare import Sets
from contrastive_lvm.report.advice import PAGE, data_advice, fit_advice

BLURRED = 0.5  # share of the latents' variance that is known, below which rows are blurred


def diagnostics(
    model: Any, sets: Sets, facts: dict[str, Any], points: dict[str, Array]
) -> list[dict[str, str]]:
    """Sentences with a level: "good", "note" or "care"."""
    found = [_ending(facts), *_enrichment(points), *_certainty(points), _outliers(facts)]
    likelihood = facts["likelihood"]
    kind = "gaussian" if likelihood.lower().startswith("gaussian") else likelihood
    advice = [*data_advice(sets, kind, PAGE), *fit_advice(facts, PAGE)]
    return [*found, *({"level": "care", "text": sentence} for sentence in advice)]


def _ending(facts: dict[str, Any]) -> dict[str, str]:
    if facts["converged"]:
        text = f"The fit settled after {facts['iterations']:,} iterations."
        return {"level": "good", "text": text}
    text = (
        f"The fit was stopped after {facts['iterations']:,} iterations before it had settled: "
        "allow it more (max_iter), or check whether features differ wildly in scale."
    )
    return {"level": "care", "text": text}


def _enrichment(points: dict[str, Array]) -> list[dict[str, str]]:
    """How much more the target varies along its dimensions than the background would."""
    if "background_target" not in points or not points["target"].shape[1]:
        return []
    own, other = points["target"].var(axis=0), points["background_target"].var(axis=0)
    found = []
    for k, (a, b) in enumerate(zip(own, other, strict=True), start=1):
        ratio = a / b if b > 0 else np.inf
        times = f"{ratio:.1f} times" if ratio < 1000 else "over 1,000 times"
        text = f"Along target dimension {k} the target varies {times} as much as the background."
        if ratio < 1.5:
            text += " Little is enriched there: what it shows may be noise."
        found.append({"level": "good" if ratio >= 1.5 else "care", "text": text})
    return found


def _certainty(points: dict[str, Array]) -> list[dict[str, str]]:
    """How much of each latent's variance the data determines."""
    found = []
    for k in range(points["target"].shape[1]):
        spread = float(points["target"][:, k].var())
        blur = float((points["target_std"][:, k] ** 2).mean())
        known = spread / (spread + blur) if spread + blur > 0 else 0.0
        if known < BLURRED:
            text = (
                f"Target dimension {k + 1} is blurred: a row's standard error is typically "
                f"{np.sqrt(blur):.2g}, while rows differ by {np.sqrt(spread):.2g}. Trust groups of "
                "rows there rather than single ones."
            )
            found.append({"level": "care", "text": text})
    return found


def _outliers(facts: dict[str, Any]) -> dict[str, str]:
    count = facts["outliers"]["count"]
    if not count:
        return {"level": "good", "text": "No row of the target is an outlier."}
    rows = ", ".join(str(row["row"]) for row in facts["outliers"]["rows"])
    verb = "row of the target is an outlier" if count == 1 else "rows of the target are outliers"
    return {"level": "note", "text": f"{count:,} {verb}, first {rows}."}
