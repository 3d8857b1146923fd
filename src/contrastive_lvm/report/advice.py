"""Diagnostics of a fit and advice in plain words: what to trust, and how to mend the rest."""

from typing import NamedTuple

import numpy as np

from contrastive_lvm.arrays import TINY, Array
from contrastive_lvm.estimators.contrastive_lvm import ContrastiveLVM
from contrastive_lvm.estimators.leakage import is_judged, separation_warnings
from contrastive_lvm.io.tables.prepare import Sets, frame
from contrastive_lvm.io.tables.read import looks_transposed
from contrastive_lvm.io.tables.recognize import dominant_features, look_like_counts
from contrastive_lvm.io.tables.row_columns import replicate_sign
from contrastive_lvm.io.tables.table import some
from contrastive_lvm.likelihoods.base import FLOOR
from contrastive_lvm.linalg.matrices import column_variances, row_slices, widen
from contrastive_lvm.report.findings import Facts, Fitted, set_facts, some_rows

MOST_ROWS = 2000  # from which advice is derived
UNEQUAL = 10.0  # ratio of residual variances; 20 features with equal noise reach 1.6 in 100 rows


class Remedies(NamedTuple):
    """Remedies for problems, in the words of the command line or of the report."""

    scale: str
    noise: str
    counts: str
    dimensions: str
    uncertainty: str
    robust: str
    replicates: str
    fewer: str


COMMAND = Remedies(
    scale="use --scale standard, or --likelihood gaussian:noise=feature",
    noise="give each feature its own, as in --likelihood student_t:noise=feature",
    counts="try --likelihood negative_binomial, or take logarithms",
    dimensions="allow more dimensions (--n-shared auto)",
    uncertainty="look at --std",
    robust="try --likelihood student_t",
    replicates="if there are replicates, name them with --replicates COLUMN",
    fewer="use fewer dimensions (--n-shared), or --likelihood gaussian",
)
PAGE = Remedies(
    scale="bring them to a common scale, or give each feature its own noise variance",
    noise="give each feature its own",
    counts="try a negative binomial likelihood, or take logarithms",
    dimensions="allow more shared dimensions, or let their number be found automatically",
    uncertainty="look at the standard deviations",
    robust="try a Student-t likelihood",
    replicates="if there are replicates, name them (groups=..., or --replicates COLUMN)",
    fewer="use fewer dimensions, or one noise variance for all features",
)


def rows_advice(sets: Sets, remedies: Remedies = COMMAND) -> list[str]:
    """Return advice about the rows of two sets that does not depend on the model."""
    found = []
    if sets.dropped:
        found.append(
            f"{len(sets.dropped)} columns that only one of the two files has were left out: "
            f"{', '.join(sets.dropped[:3])}{' ...' if len(sets.dropped) > 3 else ''}."
        )
    censored = sorted({name for table in sets.tables for name in table.censored})
    if censored:
        found.append(
            f"Values outside the range of measurement (such as <LOD) are read as missing in "
            f"{some(censored)}, but they are not missing at random, as the model assumes: the "
            "means and loadings of these features are biased."
        )
    if any(looks_transposed(table) for table in sets.tables):
        found.append("The rows of the file look like features: if they are, add --transpose.")
    caution = replicates_advice(sets, remedies)
    return found if caution is None else [*found, caution]


def replicates_advice(sets: Sets, remedies: Remedies = COMMAND) -> str | None:
    """Return advice to name replicates, if rows look like replicates and none are named."""
    unnamed = sets.preparation.replicates is None
    sign = replicate_sign(sets.tables, sets.preparation.covariates) if unnamed else None
    if sign is None:
        return None
    return f"{sign}, and rows of one replicate are not independent: {remedies.replicates}."


def data_advice(sets: Sets, model: Fitted, remedies: Remedies = COMMAND) -> list[str]:
    """Return advice about the data, given the noise of a fitted model."""
    found = rows_advice(sets, remedies)
    uneven = scale_advice(sets, model, remedies)
    found += _noise_advice(sets, model, remedies) if uneven is None else [uneven]
    if _is_unscaled(sets, model) and look_like_counts(sets.target.values):
        found.append(f"The target looks like counts: {remedies.counts}.")
    return found


def scale_advice(sets: Sets, model: Fitted, remedies: Remedies = COMMAND) -> str | None:
    """Return advice to scale the features, if those of large variance determine the result."""
    if not _is_unscaled(sets, model) or np.ndim(model.noise_variance_):
        return None
    positions, share = dominant_features(sets.target.values)
    if not positions:
        return None
    names = [sets.preparation.features[i] for i in positions]
    has, determines = ("has", "determines") if len(names) == 1 else ("have", "determine")
    listed = " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))
    return (
        f"{listed} {has} {share:.0%} of the variance of all features and {determines} the result: "
        f"{remedies.scale}."
    )


def _is_unscaled(sets: Sets, model: Fitted) -> bool:
    return sets.preparation.scaling.method == "none" and bool(np.any(model.noise_variance_))


def _noise_advice(sets: Sets, model: Fitted, remedies: Remedies) -> list[str]:
    """Return advice about noise variances of a fit that vanish or differ too much."""
    noise, rows = np.asarray(model.noise_variance_), sets.target.values[:MOST_ROWS]
    known = sets.preparation.covariates  # their effects are not noise
    if not noise.any() or known or not isinstance(model, ContrastiveLVM):
        return []
    if noise.ndim and remedies is COMMAND:  # the fit itself has warned of it
        return []
    if noise.ndim:  # the least of a feature's over all sets
        variances, _ = column_variances(rows)
        floor = FLOOR * np.maximum(variances, TINY)
        least = (noise <= 10.0 * floor).reshape(-1, len(variances))
        n = int(least.any(axis=0).sum())
        if not n:
            return []
        said = f"{n} of {len(variances)} features have no noise left, because each has a dimension"
        return [f"{said} to itself: {remedies.fewer}."]
    some = some_rows(sets.target, slice(MOST_ROWS))
    left = model.reconstruct(frame(some, named=sets.preparation.named))
    for at in row_slices(*left.shape):
        left[at] -= widen(rows[at])
    low, high = np.nanquantile(column_variances(left)[0], [0.1, 0.9])
    if not high > UNEQUAL * low > 0.0:
        return []
    said = f"The residual variances of the features differ by a factor of {high / low:.0f} (of "
    said += "their 10% and 90% quantiles), but the model has a single noise variance: "
    return [f"{said}{remedies.noise}."]


def fit_advice(facts: Facts, remedies: Remedies = COMMAND, *, automatic: bool = False) -> list[str]:
    """Return advice about a fit; `automatic` says that the data chose the shared dimensions."""
    found = []
    noise, target = facts["variance"]["noise"], sum(facts["variance"]["target"])
    if noise >= 0.3 and not automatic and facts["n_supported"] != 0:
        found.append(
            f"{noise:.0%} of the target's variance is noise: {remedies.dimensions}, or leave out "
            "features without structure."
        )
    if facts["n_target"] and target < 0.02:
        found.append(
            f"The target dimensions explain only {target:.1%} of the target's variance, so little "
            "is enriched: check which set is the target, or use fewer target dimensions."
        )
    for name, own in set_facts(facts).items():
        if own["missing"] > 0.5:
            found.append(
                f"{own['missing']:.0%} of the {name}'s entries are missing: "
                f"{remedies.uncertainty} before you trust single rows."
            )
    outliers = facts["outliers"]
    unweighted = noise > 0 and any("distance" in row for row in outliers["rows"])
    if unweighted and outliers["count"] > 0.02 * facts["target"]["rows"]:
        found.append(
            f"{outliers['count']} rows of the target are far from what the model expects: "
            f"{remedies.robust}."
        )
    return found


def diagnostics(
    model: Fitted, sets: Sets, facts: Facts, points: dict[str, Array]
) -> list[dict[str, str]]:
    """Return sentences with a level: "good", "note" or "care"."""
    found = [_ending(model, facts), *_enrichment(points), *_certainty(points), _outliers(facts)]
    automatic = getattr(model, "n_shared", None) == "auto"
    advice = [*data_advice(sets, model, PAGE), *fit_advice(facts, PAGE, automatic=automatic)]
    advice += _separation(model)
    found += [("care", sentence) for sentence in advice]
    return [{"level": level, "text": text} for level, text in found]


def _separation(model: Fitted) -> list[str]:
    """Return sentences about how well an autoencoder separates latents of held-out rows."""
    if not hasattr(model, "leakage_"):
        return []
    if not is_judged(model):
        few = "Too few rows were held out to tell whether target and shared latents are separated"
        return [f"{few}: 500 rows in each set are enough."]
    return [sentence[0].upper() + sentence[1:] for sentence in separation_warnings(model)]


def _ending(model: Fitted, facts: Facts) -> tuple[str, str]:
    if hasattr(model, "leakage_"):  # the learning rate has fallen to zero after all epochs
        return "good", f"The networks were trained for {facts['iterations']:,} epochs."
    if facts["converged"]:
        return "good", f"The fit converged after {facts['iterations']:,} iterations."
    return "care", (
        f"The fit stopped after {facts['iterations']:,} iterations without converging: allow "
        "more (max_iter), or check whether the scales of the features are very different."
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
        text = f"Along target {k}, the target varies {times} as much as the background."
        if ratio < 1.5:
            text += " Little is enriched there, and what it shows may be noise."
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
                f"Target {k + 1} is uncertain: the posterior standard deviation of a row is "
                f"typically {np.sqrt(error):.2g}, and the standard deviation over rows is "
                f"{np.sqrt(spread):.2g}. Trust groups of rows there rather than single rows."
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
