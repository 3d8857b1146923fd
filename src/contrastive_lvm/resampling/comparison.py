"""Comparison of methods on the same two sets: their latents, and how stable these are.

A method is fitted to a random half of the rows and to the other half, and both fits are applied to
all target rows. The picture is stable if the two sets of latents agree up to a linear map: their
squared canonical correlations, averaged over the dimensions, are 1 for the same picture and near 0
for unrelated ones. A method with a likelihood scores the target rows of the other half.
"""

import inspect
from collections.abc import Mapping
from functools import partial
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator, clone
from sklearn.decomposition import PCA
from sklearn.utils import get_tags

from contrastive_lvm.arrays import Array, Matrix, RowLabels
from contrastive_lvm.checks import Seed, check_integer
from contrastive_lvm.estimators.contrastive_lvm import ContrastiveLVM
from contrastive_lvm.estimators.contrastive_pca import ContrastivePCA
from contrastive_lvm.estimators.generalized_contrastive_pca import GeneralizedContrastivePCA
from contrastive_lvm.estimators.input_rows import check_variances, rows_for_fit
from contrastive_lvm.estimators.ppca import PPCA
from contrastive_lvm.exceptions import InvalidParameterError
from contrastive_lvm.linalg.matrices import column_space, has_missing, widen
from contrastive_lvm.resampling.parallel import resample, seed_sequence
from contrastive_lvm.resampling.replicates import Replicates, check_replicates, draw_halves
from contrastive_lvm.rows.reader import LocalRows, RowReader
from contrastive_lvm.rows.scatter import first_pass

TwoSets = tuple[Matrix, Matrix]


class Comparison(NamedTuple):
    """Target latents by method, and a table with one row per method."""

    table: pd.DataFrame  # columns: stability, log_likelihood (NaN where there is none), seconds
    latents: dict[str, Array]  # (n, n_components) latents of the fits to all rows


class _Half(NamedTuple):
    latents: Array  # of all target rows
    score: float  # mean log-likelihood of the target rows of the other half


def compare_methods(
    X: Any,
    *,
    background: Any,
    methods: Mapping[str, Any] | None = None,
    n_components: int = 2,
    groups: RowLabels = None,
    background_groups: RowLabels = None,
    n_resamples: int = 10,
    random_state: Seed = None,
) -> Comparison:
    """Compare methods on two sets: their latents, stability, held-out likelihood and time.

    Parameters
    ----------
    X, background : array-like
        The two sets. For methods that do not accept missing entries, these are replaced by the
        means of the features in their set.
    methods : mapping of str to estimator, optional
        Unfitted estimators by name; estimators whose `fit` takes a background get the background.
        By default PCA and probabilistic PCA of the target, contrastive PCA, generalized contrastive
        PCA, and the contrastive latent variable model (`"cLVM"`).
    n_components : int
        Number of dimensions of the default methods.
    groups, background_groups : array-like of shape (n,) and (m,), optional
        The replicate of each row; halves are made of whole replicates.
    n_resamples : int
        Number of divisions into halves.
    random_state : int, generator or None
        Draws the halves.

    Returns
    -------
    Comparison
        `latents` by method, and a `table` by method: `stability`, the mean squared canonical
        correlation of the latents of two halves, between 0 and 1; `log_likelihood`, per target
        row of the half that was left out, NaN for methods without a likelihood (PCA has that of
        probabilistic PCA) and where it has no maximum; and `seconds`, of the fit to all rows.

    Examples
    --------
    >>> import contrastive_lvm as clvm
    >>> data = clvm.datasets.make_subgroups(random_state=0)
    >>> found = clvm.compare_methods(data.target, background=data.background, random_state=0)
    >>> found.table["stability"].round(2).to_dict()["cLVM"]
    0.99
    >>> figure = clvm.plots.plot_comparison(found, data.target_labels)
    """
    n_components = check_integer("n_components", n_components, 1)
    check_integer("n_resamples", n_resamples, 1)
    if methods is not None and not (isinstance(methods, Mapping) and methods):
        reason = 'must be unfitted estimators by name, such as {"PPCA": PPCA(2)}.'
        raise InvalidParameterError("methods", methods, reason)
    sets = _read(X, background)
    most = min(sets[0].shape[0] // 2, sets[0].shape[1] - 1)
    if methods is None and n_components > most:
        reason = (
            f"is too large for {sets[0].shape[0]} rows of {sets[0].shape[1]} feature(s), halves of "
            "which are fitted; use fewer dimensions, or give more rows."
        )
        raise InvalidParameterError("n_components", n_components, reason)
    chosen = default_methods(n_components) if methods is None else dict(methods)
    sizes = [rows.shape[0] for rows in sets]
    replicates = check_replicates([groups, background_groups], sizes)
    filled = (_fill(sets[0]), _fill(sets[1]))
    rows, latents = [], {}
    for name, estimator in chosen.items():
        given = sets if get_tags(estimator).input_tags.allow_nan else filled
        start = perf_counter()
        model = _fitted(estimator, *given)
        seconds = perf_counter() - start
        latents[name] = np.asarray(model.transform(given[0]))
        half = partial(_halves, estimator, given, replicates)
        halves = resample(half, n_resamples, seed_sequence(random_state), name=name)
        stability = [_agreement(first.latents, second.latents) for first, second in halves]
        scores = [part.score for pair in halves for part in pair]
        rows.append((float(np.mean(stability)), float(np.mean(scores)), seconds))
    columns = ["stability", "log_likelihood", "seconds"]
    return Comparison(pd.DataFrame(rows, index=list(chosen), columns=columns), latents)


def _read(X: Any, background: Any) -> TwoSets:
    """Read both sets into memory, which must be as a fit of any of the methods needs them."""
    shell = ContrastiveLVM()
    given = rows_for_fit(shell, X), rows_for_fit(shell, background, name="background")
    sets = [rows.load() if isinstance(rows, RowReader) else rows for rows in given]
    found = [first_pass(LocalRows(rows), scatter=False) for rows in sets]
    check_variances(np.sum([m.square / m.counts for m in found], axis=0), [m.mean for m in found])
    return sets[0], sets[1]


def default_methods(n_components: int) -> dict[str, BaseEstimator]:
    """Return the methods that are compared unless others are given."""
    return {
        "PCA": PCA(n_components),
        "PPCA": PPCA(n_components),
        "cPCA": ContrastivePCA(n_components),
        "gcPCA": GeneralizedContrastivePCA(n_components),
        "cLVM": ContrastiveLVM(n_components, "auto"),
    }


def _fitted(estimator: Any, target: Matrix, background: Matrix) -> Any:
    takes_background = "background" in inspect.signature(estimator.fit).parameters
    arguments = {"background": background} if takes_background else {}
    with np.errstate(divide="ignore", invalid="ignore"):  # shares of a half that does not vary
        return clone(estimator).fit(target, **arguments)


def _halves(
    estimator: Any, sets: TwoSets, replicates: Replicates, rngs: list[np.random.Generator]
) -> list[tuple[_Half, _Half]]:
    return [_two_halves(estimator, sets, replicates, rng) for rng in rngs]


def _two_halves(
    estimator: Any, sets: TwoSets, replicates: Replicates, rng: np.random.Generator
) -> tuple[_Half, _Half]:
    (target, background), (first, others) = sets, draw_halves(replicates, rng)[0]
    halves = []
    for in_target, in_background in ((first > 0, others > 0), (first == 0, others == 0)):
        model = _fitted(estimator, target[in_target], background[in_background])
        halves.append(_Half(np.asarray(model.transform(target)), _score(model, target[~in_target])))
    return halves[0], halves[1]


def _score(model: Any, rows: Matrix) -> float:
    """Return the mean log-likelihood of rows; NaN if the model has none, or no density."""
    if not hasattr(model, "score_samples"):
        return np.nan
    try:
        score = float(np.mean(model.score_samples(rows)))
    except np.linalg.LinAlgError:  # of a covariance without an inverse
        return np.nan
    return score if np.isfinite(score) else np.nan


def _agreement(first: Array, second: Array) -> float:
    """Return the mean squared canonical correlation of two sets of latents of the same rows.

    Latents that do not vary are no dimension of a picture, and have no correlation with others.
    """
    spaces = [column_space(latents - latents.mean(axis=0)) for latents in (first, second)]
    cosines = np.linalg.svd(spaces[0].T @ spaces[1], compute_uv=False)
    most = max(space.shape[1] for space in spaces)
    return float((cosines.clip(0.0, 1.0) ** 2).sum() / max(most, 1))


def _fill(rows: Matrix) -> Matrix:
    """Return rows with missing entries replaced by the means of their features."""
    if not has_missing(rows):
        return rows
    dense = widen(rows)
    return np.where(np.isnan(dense), np.nanmean(dense, axis=0), dense)
