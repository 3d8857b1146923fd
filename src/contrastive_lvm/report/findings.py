"""The results of a fit, as facts for JSON."""

from typing import TYPE_CHECKING, NamedTuple, NotRequired, TypeAlias, TypedDict, TypeGuard

import numpy as np

from contrastive_lvm.arrays import Array
from contrastive_lvm.estimators.contrastive_lvm import ContrastiveLVM
from contrastive_lvm.estimators.leakage import told_apart
from contrastive_lvm.estimators.summary import (
    leading,
    ranking_weights,
    short,
    size_of,
    target_loadings,
)
from contrastive_lvm.io.tables.on_disk import chosen
from contrastive_lvm.io.tables.prepare import Sets, frame
from contrastive_lvm.io.tables.row_columns import facts_of_rows
from contrastive_lvm.io.tables.table import Table, missing_share
from contrastive_lvm.linalg.matrices import blocks, is_sparse

if TYPE_CHECKING:
    from contrastive_lvm.estimators.contrastive_vae import ContrastiveVAE
    from contrastive_lvm.report.evidence import Evidence
    from contrastive_lvm.report.shift import MeanFacts

FEWEST_ROWS, MOST_ROWS = 40, 500  # of each set, by whose shared latents the sets are told apart

Fitted: TypeAlias = "ContrastiveLVM | ContrastiveVAE"


class SetFacts(TypedDict):
    """Where the rows of a set came from, their number, and the share of missing entries."""

    file: str
    rows: int
    missing: float


class Shares(TypedDict):
    """Parts of the target's variance."""

    target: list[float]
    shared: list[float]
    noise: float


class OutlierFacts(TypedDict):
    """The number of outliers, and the strongest with their weight or distance."""

    count: int
    rows: list[dict[str, str | float]]


class Facts(TypedDict):
    """All that is printed about a fit."""

    verdict: str
    pvalue: float | None
    pvalues: list[float]
    n_supported: int | None  # target dimensions that the test supports
    method: str  # of the test
    estimator: str
    likelihood: str
    target: SetFacts
    background: NotRequired[SetFacts]
    features: int
    left_out: list[str]
    scale: str
    covariates: list[str]
    n_target: int
    n_shared: int
    n_background: int
    size: str
    variance: Shares
    dimensions: list[dict[str, object]]
    selected_features: list[str] | None
    outliers: OutlierFacts
    shared_auc: float | None  # of separating the sets by their shared latents; 0.5 is chance
    means: "MeanFacts | None"  # None without a background
    lower_bound: float
    iterations: int
    converged: bool


class Outlyingness(NamedTuple):
    """How badly each row of the target fits the model."""

    measure: str  # "weight", small for outliers, or "distance", large for them
    values: Array  # (n,)


def findings(
    model: Fitted, sets: Sets, evidence: "Evidence", *, top: int, rows: Outlyingness | None = None
) -> Facts:
    """Collect what is printed about a fit, without advice; `rows` may be known already."""
    facts: Facts = {
        "verdict": evidence.verdict["sentence"],
        "pvalue": evidence.verdict["pvalue"],
        "pvalues": evidence.verdict["pvalues"],
        "n_supported": evidence.verdict["n_target"],
        "method": evidence.verdict["method"],
        "estimator": type(model).__name__,
        "likelihood": short(model.likelihood),
        "target": _set(sets.target),
        "features": len(sets.preparation.features),
        "covariates": list(sets.preparation.covariates),
        "left_out": sets.dropped,
        "scale": sets.preparation.scaling.method,
        "n_target": int(model.n_target_),
        "n_shared": int(model.n_shared_),
        "n_background": int(getattr(model, "n_background_", 0)),
        "size": size_of(model),
        "variance": _shares(model, sets),
        "dimensions": _dimensions(model, sets, top, evidence.standard_errors(model)),
        "selected_features": ranked_features(model, sets) if drops_features(model) else None,
        "outliers": _outliers(rows or outlyingness(model, sets), sets.target),
        "shared_auc": shared_auc(model, sets),
        "means": None if evidence.means is None else evidence.means.leading(top),
        "lower_bound": float(model.lower_bound_),
        "iterations": int(model.n_iter_),
        "converged": bool(model.converged_),
    }
    if sets.background is not None:
        facts["background"] = _set(sets.background)
    return facts


def shared_auc(model: Fitted, sets: Sets) -> float | None:
    """Return how well the shared latents separate the sets, of some rows of each, evenly spaced.

    The area under the ROC curve, as in `leakage`: a background that varies in every way that the
    target does, but for the contrast, has 0.5. None where there are too few rows to say.
    """
    if sets.background is None or not model.n_shared_:
        return None
    if min(sets.target.n_rows, sets.background.n_rows) < FEWEST_ROWS:
        return None
    found, prepared = [], sets.preparation
    for table, of in ((sets.target, "target"), (sets.background, "background")):
        most = min(table.n_rows, MOST_ROWS)
        some = some_rows(table, np.linspace(0, table.n_rows - 1, most).astype(np.intp))
        facts = facts_of_rows(some, prepared)
        found.append(model.latents(frame(some, named=prepared.named), of=of, **facts).shared)
    return told_apart(found[0], found[1])


def set_facts(facts: Facts) -> dict[str, SetFacts]:
    """Return the facts about each set by its name."""
    own = {"target": facts["target"]}
    return own | {"background": facts["background"]} if "background" in facts else own


def _set(table: Table) -> SetFacts:
    missing = missing_share(table.values)
    return {"file": table.source, "rows": table.n_rows, "missing": missing}


def _shares(model: Fitted, sets: Sets) -> Shares:
    """Divide the target's variance among target, shared and noise.

    For autoencoders these are the variances of what the decoders give for some rows of the target.
    """
    if isinstance(model, ContrastiveLVM):
        return {
            "target": model.target_variance_ratio_.tolist(),
            "shared": model.shared_variance_ratio_.tolist(),
            "noise": float(model.noise_variance_ratio_),
        }
    some = some_rows(sets.target, slice(2000))
    rows, facts = frame(some, named=sets.preparation.named), facts_of_rows(some, sets.preparation)
    target, shared = (
        float(model.reconstruct(rows, parts=(name,), **facts).var(axis=0).sum())
        for name in ("target", "shared")
    )
    noise = float(np.sum(np.broadcast_to(model.noise_variance_, (model.n_features_in_,))))
    total = target + shared + noise
    return {"target": [target / total], "shared": [shared / total], "noise": noise / total}


def some_rows(table: Table, rows: slice | np.ndarray) -> Table:
    """Choose rows of a table, with their annotations."""
    own = table.values[rows] if isinstance(rows, slice) else chosen(table.values, rows)
    return table._replace(values=own, annotations=table.annotations.iloc[rows])


def _dimensions(
    model: Fitted, sets: Sets, top: int, errors: Array | None
) -> list[dict[str, object]]:
    shares = model.target_variance_ratio_.tolist() if isinstance(model, ContrastiveLVM) else None
    found: list[dict[str, object]] = []
    weights = ranking_weights(model, len(sets.preparation.features))
    for k, row in enumerate(effects(model)[: model.n_target_]):
        features = [
            {
                "feature": sets.preparation.features[i],
                "loading": float(row[i]),
                "standard_error": None if errors is None else float(errors[k, i]),
            }
            for i in leading(row, top, weights)
        ]
        share = None if shares is None else shares[k]
        found.append({"dimension": k + 1, "share": share, "features": features})
    return found


def effects(model: Fitted) -> Array:
    """Return what a unit of each dimension adds to each feature, (K, D).

    For linear models these are the loadings, target dimensions first; for autoencoders they are
    half of the change from a step from -1 to 1 along each target dimension.
    """
    if not isinstance(model, ContrastiveLVM):
        return target_loadings(model)
    return np.vstack([model.target_components_, model.shared_components_])


def drops_features(model: Fitted) -> TypeGuard[ContrastiveLVM]:
    """Return whether the model dropped some features."""
    return isinstance(model, ContrastiveLVM) and not model.selected_features_.all()


def ranked_features(model: ContrastiveLVM, sets: Sets) -> list[str]:
    """Return the names of the selected features, the most relevant first."""
    order = np.argsort(
        -ranking_weights(model, len(sets.preparation.features)) * model.feature_relevance_,
        kind="stable",
    )
    return [sets.preparation.features[i] for i in order if model.selected_features_[i]]


def outlyingness(model: Fitted, sets: Sets) -> Outlyingness:
    """Return the weights of rows if the model weights them, else how improbable they are."""
    prepared, table = sets.preparation, sets.target
    rows, facts = frame(table, named=prepared.named), facts_of_rows(table, prepared)
    if not isinstance(model, ContrastiveLVM):
        scores = model.score_samples(rows, n_draws=10, **facts)
        return Outlyingness("distance", _distances(scores, table))
    one = some_rows(table, slice(1))
    probe = model.outliers(frame(one, named=prepared.named), **facts_of_rows(one, prepared))
    if (probe.weights != 1.0).any():
        return Outlyingness("weight", model.outliers(rows, **facts).row_weights)
    return Outlyingness("distance", _distances(model.score_samples(rows, **facts), table))


def _outliers(rows: Outlyingness, table: Table) -> OutlierFacts:
    """List the five worst rows with a weight below 0.5, or six standard deviations away."""
    labels, weights = table.labels(), rows.measure == "weight"
    outlying = rows.values < 0.5 if weights else rows.values > 6.0
    order = np.argsort(rows.values if weights else -rows.values, kind="stable")
    listed: list[dict[str, str | float]] = [
        {"row": labels[i], rows.measure: float(rows.values[i])} for i in order[:5] if outlying[i]
    ]
    return {"count": int(outlying.sum()), "rows": listed}


def _distances(scores: Array, table: Table) -> Array:
    """Return how far each row's log-likelihood per entry is below the median.

    The unit is a robust standard deviation: 1.4826 times the median absolute deviation.
    """
    if not is_sparse(table.values):
        counts = [(~np.isnan(rows)).sum(axis=1) for _, rows in blocks(table.values)]
        scores = scores / np.maximum(np.concatenate(counts), 1)
    below = np.median(scores) - scores
    spread = 1.4826 * np.median(np.abs(below))
    return np.asarray(below / spread if spread > 0 else np.zeros(len(scores)))
