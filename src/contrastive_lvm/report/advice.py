"""Warnings about a fit, each with what to do about it."""

from typing import Any, NamedTuple

import numpy as np

from contrastive_lvm.arrays import Matrix
from contrastive_lvm.io.tables.prepare import Sets
from contrastive_lvm.linalg.matrices import column_variances, widen

NOISY, LITTLE, GAPPY, UNEVEN = 0.3, 0.02, 0.5, 1e3
PEEK = 200  # rows that are looked at for counts
MANY = 0.02  # share of outlying rows


class Ways(NamedTuple):
    """What to do about it, in the words of where it is said."""

    scale: str
    counts: str
    dimensions: str
    uncertainty: str
    robust: str


COMMAND = Ways(
    scale="use --scale standard, or --likelihood gaussian:noise=feature",
    counts="try --likelihood negative_binomial, or take logarithms",
    dimensions="allow more dimensions (--n-shared auto)",
    uncertainty="look at --std",
    robust="try --likelihood student_t",
)
PAGE = Ways(
    scale="bring them to a common scale, or give each feature its own noise variance",
    counts="try a negative binomial likelihood, or take logarithms",
    dimensions="allow more shared dimensions, or an automatic number of them",
    uncertainty="look at their standard deviations",
    robust="try a Student-t likelihood",
)


def data_advice(sets: Sets, likelihood: str, ways: Ways = COMMAND) -> list[str]:
    """What the data itself calls for, before the fit."""
    found = []
    if sets.dropped:
        found.append(
            f"{len(sets.dropped)} columns are only in one of the two files and were left out: "
            f"{', '.join(sets.dropped[:3])}{' ...' if len(sets.dropped) > 3 else ''}."
        )
    gaussian = likelihood == "gaussian"
    if gaussian and sets.preparation.scaling.method == "none" and _uneven(sets.target.values):
        found.append(
            "The features' variances differ by more than a factor of 1,000, so a few of them "
            f"decide the result: {ways.scale}."
        )
    if gaussian and sets.preparation.scaling.method == "none" and _counts(sets.target.values):
        found.append(f"The target looks like counts: {ways.counts}.")
    return found


def fit_advice(facts: dict[str, Any], ways: Ways = COMMAND) -> list[str]:
    """What the fit calls for."""
    found = []
    noise, target = facts["variance"]["noise"], sum(facts["variance"]["target"])
    if noise >= NOISY:
        found.append(
            f"{noise:.0%} of the target's variance is noise: {ways.dimensions}, or leave out "
            "features that vary without structure."
        )
    if facts["n_target"] and target < LITTLE:
        found.append(
            f"The target dimensions have only {target:.1%} of the target's variance: little is "
            "enriched there; check which set is the target, or use fewer of them."
        )
    for name in ("target", "background"):
        missing = facts.get(name, {}).get("missing", 0.0)
        if missing > GAPPY:
            found.append(
                f"{missing:.0%} of the {name} is missing: {ways.uncertainty} before trusting "
                "single rows."
            )
    outliers = facts["outliers"]["count"]
    if outliers > MANY * facts["target"]["rows"] and facts["likelihood"].startswith("Gaussian"):
        found.append(
            f"{outliers} rows of the target are far from what the model expects: {ways.robust}."
        )
    return found


def _uneven(values: Matrix) -> bool:
    variances, _ = column_variances(values[: 10 * PEEK])
    varying = variances[variances > 0]
    return bool(len(varying) and varying.max() > UNEVEN * varying.min())


def _counts(values: Matrix) -> bool:
    block = widen(values[:PEEK])
    seen = block[~np.isnan(block)]
    whole = len(seen) > 0 and bool((seen >= 0).all() and (seen == np.round(seen)).all())
    return whole and float(seen.max()) > 1.0
