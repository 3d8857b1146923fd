"""The choice of numbers of dimensions by held-out log-likelihoods over a grid of sizes.

Each pair of sizes is fitted to all rows, and again, from there, to the rows outside of each fold;
the rows of the fold are then scored. Folds hold whole replicates. Where scatters suffice, that of
the training rows is the scatter of all rows less that of the fold. Scores of replicates are
independent, so that the difference `sum_r (best_r - pair_r)` of two pairs over R replicates has the
standard error `sqrt(R var_r(best_r - pair_r))`. The smallest pair whose difference from the best is
at most one such error, or a tie, is chosen.
"""

import warnings
from collections.abc import Sequence
from copy import copy
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from sklearn.base import clone

from contrastive_lvm import prediction
from contrastive_lvm.arrays import Array, Covariates, Matrix, RowLabels
from contrastive_lvm.checks import Seed, check_integer
from contrastive_lvm.coordinate_ascent.engine import CoordinateAscent
from contrastive_lvm.estimators.contrastive_lvm import ContrastiveLVM
from contrastive_lvm.estimators.input_rows import check_variances
from contrastive_lvm.estimators.linear_fit import FitInput, read_input
from contrastive_lvm.estimators.model_check import objections
from contrastive_lvm.estimators.prediction_model import (
    AVERAGE,
    PredictionModel,
    contrastive_predictions,
)
from contrastive_lvm.exceptions import InvalidParameterError
from contrastive_lvm.model import Model
from contrastive_lvm.posterior import Posterior
from contrastive_lvm.resampling.compared_rows import unfitted_model
from contrastive_lvm.resampling.parallel import seed_sequence
from contrastive_lvm.resampling.refit import Refit, Refitted, closed_form_engine
from contrastive_lvm.resampling.refit_rows import EngineRows, ScatterRows, joined, refit_rows
from contrastive_lvm.resampling.replicates import (
    Flags,
    Integers,
    Replicates,
    check_replicates,
    draw_folds,
)
from contrastive_lvm.rows.data import Data
from contrastive_lvm.rows.reader import RowReader, Rows

TOL = 1e-3  # nats per sweep of a fit: errors of sums of thousands of nats are larger
# Nats by which fits differ that describe rows alike: where a dimension stays empty, errors are as
# small as what is left to converge, up to .03 in examples.
TIE = 0.1
HOPELESS = 3.0  # standard errors behind the best, at two sizes in a row: smaller ones are left out
AROUND = 2  # shared dimensions that are tried beyond the automatic number
COARSE = (0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48)  # that are tried below it
SETS = ("target", "background")


class DimensionChoice(NamedTuple):
    """The smallest sizes that predict as well as the best, and the table of all sizes."""

    n_target: int  # chosen number of target dimensions
    n_shared: int  # chosen number of shared dimensions
    table: pd.DataFrame  # one row for each pair, the largest held-out log-likelihood first


def choose_dimensions(
    X: Any,
    *,
    background: Any,
    model: ContrastiveLVM | None = None,
    n_target: Sequence[int] = (0, 1, 2, 3),
    n_shared: int | str | Sequence[int] = "auto",
    groups: RowLabels = None,
    background_groups: RowLabels = None,
    covariates: Covariates = None,
    background_covariates: Covariates = None,
    cv: int = 5,
    random_state: Seed = None,
) -> DimensionChoice:
    """Choose the numbers of target and shared dimensions by cross-validation.

    Parameters
    ----------
    X, background : array-like
        The two sets, as in `ContrastiveLVM.fit`.
    model : ContrastiveLVM or None
        The model whose likelihood, priors and engine are used; None is `ContrastiveLVM()`.
    n_target : sequence of int
        Numbers of target dimensions to try; 0 means that there is no contrast.
    n_shared : "auto" or sequence of int
        Numbers of shared dimensions to try; `"auto"` tries numbers up to a little more than the
        automatic fit uses.
    groups, background_groups : array-like of shape (n,) and (m,), optional
        The replicate of each row; folds are made of whole replicates.
    covariates, background_covariates : frames or array-like, optional
        As in `ContrastiveLVM.fit`; their effects are estimated outside of each fold.
    cv : int
        Number of folds.
    random_state : int, generator or None
        Draws the folds.

    Returns
    -------
    DimensionChoice
        `n_target`, `n_shared`, and a `table` with the columns `n_shared`, `n_target`,
        `log_likelihood` (held out, of all rows of both sets), `standard_error` (of its difference
        from the best) and `lower_bound` (of the fit to all rows). As in `fit`, a warning says what
        to change if the model with these sizes does not fit the data.

    Examples
    --------
    >>> import contrastive_lvm as clvm
    >>> data = clvm.datasets.make_contrastive(200, 200, n_features=10, n_shared=2, random_state=0)
    >>> found = clvm.choose_dimensions(
    ...     data.target, background=data.background, n_shared=(1, 2, 3), random_state=0
    ... )
    >>> found.n_target, found.n_shared
    (2, 2)
    """
    estimator = unfitted_model(model)
    targets = _sizes("n_target", n_target)
    shared = None if _is_auto(n_shared) else _sizes("n_shared", n_shared)
    largest = {"n_target": max(targets), "n_shared": 1 if shared is None else max(*shared, 1)}
    known = (covariates, background_covariates)
    shell = copy(estimator).set_params(**largest)
    given = read_input(shell, X, background, covariates=known)
    n_rows = [rows.shape[0] for rows in given.sets]
    replicates = check_replicates([groups, background_groups], n_rows)
    folds = draw_folds(replicates, cv, np.random.default_rng(seed_sequence(random_state)))
    folded = _Folded.of(given, folds, cv)
    if not folded.allows(min(targets) + min(shared or [0])):
        reason = "leaves nothing for the noise, even at the smallest size; use fewer dimensions."
        raise InvalidParameterError("n_shared", n_shared, reason)
    grid = _Grid(folded, replicates, targets)
    if shared is not None:
        return grid.choice(shared)
    automatic = clone(estimator).set_params(n_target=max(targets), n_shared="auto")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # this fit only says where to begin
        options = {"covariates": covariates, "background_covariates": background_covariates}
        automatic.fit(X, background=background, **options)
    return grid.choice(_candidates(automatic.n_shared_), stop=True)


class _Scored(NamedTuple):
    """The fit and the scores of a pair of sizes."""

    model: Model  # with its priors in units of the data
    fit: Posterior  # to all rows
    scores: list[Array]  # held-out log-likelihoods of the rows of each set


class _Folded(NamedTuple):
    """The rows in folds, and the model that is fitted to them."""

    model: Model
    engine: CoordinateAscent
    sets: list[Rows]
    rows: ScatterRows | EngineRows
    whole: Data
    training: list[Data]  # without each fold
    folds: tuple[Integers, ...]
    covariates: list[Array] | None  # of the rows of each set

    @classmethod
    def of(cls, given: FitInput, folds: tuple[Integers, ...], cv: int) -> "_Folded":
        """Compress all rows, and those outside of each fold."""
        engine = replace(closed_form_engine(given), tol=TOL)
        rows = refit_rows(given.model, engine, given.sets, given.covariates)
        whole = rows.data([np.ones(len(own)) for own in folds])
        check_variances(whole.variance, [own.mean for own in whole.sets])
        training = _training(rows, folds, cv)
        return cls(given.model, engine, given.sets, rows, whole, training, folds, given.covariates)

    def allows(self, n_columns: int) -> bool:
        """Tell whether all training rows leave something for the noise."""
        fewest = min(sum(s.n_rows - 1 for s in data.sets) for data in self.training)
        return n_columns < min(self.whole.n_features, fewest - self.model.n_effects)

    def scored(self, n_shared: int, n_target: int) -> _Scored:
        """Fit the model to all rows and outside of each fold, and score the folds."""
        sized = self.model.with_sizes({"shared": n_shared, "target": n_target})
        model = sized.in_units_of(self.whole.variance, self.whole.n_features)
        fit = self.engine._run(model, self.whole)
        model = model.with_sizes({name: L.shape[1] for name, L in fit.loadings.items()})
        refit = Refit(model, self.engine, self.rows, self.whole, fit, n_refits=len(self.training))
        scores = [np.empty(len(own)) for own in self.folds]
        for fold, data in enumerate(self.training):
            predicted = _predictions(model, fit, refit.refitted(data))
            for i, (name, rows, own) in enumerate(zip(SETS, self.sets, self.folds, strict=True)):
                known = None if self.covariates is None else self.covariates[i]
                scores[i][own == fold] = _scores(predicted, name, rows, own == fold, known)
        return _Scored(model, fit, scores)


def _training(rows: ScatterRows | EngineRows, folds: tuple[Integers, ...], cv: int) -> list[Data]:
    """Compress the rows outside of each fold."""
    if isinstance(rows, EngineRows):
        return [rows.data([np.where(own == fold, 0.0, 1.0) for own in folds]) for fold in range(cv)]
    parts = [
        rows.scatters([np.where(own == fold, 1.0, 0.0) for own in folds]) for fold in range(cv)
    ]
    others = [parts[:fold] + parts[fold + 1 :] for fold in range(cv)]
    return [rows.compressed([joined(own) for own in zip(*p, strict=True)]) for p in others]


def _predictions(model: Model, fit: Posterior, found: Refitted) -> PredictionModel:
    posterior = fit._replace(
        loadings=found.loadings,
        means=dict(zip(model.sets, found.means, strict=True)),
        noise_variance=found.noise_variance,
        df=found.df,
        loading_covariance=None,
        effects=dict(zip(model.sets, found.effects, strict=False)),
    )
    return contrastive_predictions(posterior, model.likelihood)


def _scores(
    predicted: PredictionModel, name: str, rows: Rows, held_out: Flags, known: Array | None
) -> Array:
    """Score the held-out rows of a set, whose covariates are encoded."""

    def score(chunk: Matrix, at: slice | Integers) -> Array:
        (view,) = prediction.fixed(predicted.for_rows(name, chunk, AVERAGE))
        view = view if known is None else view._replace(covariates=known[at])
        return prediction.log_likelihoods(view, chunk)

    if isinstance(rows, RowReader):
        return np.asarray(rows.map(score))[held_out]
    at = np.flatnonzero(held_out)
    return score(rows[at], at)


class _Grid:
    """Pairs of sizes and the held-out log-likelihoods of the replicates."""

    def __init__(self, folded: _Folded, replicates: Replicates, targets: list[int]) -> None:
        self.folded, self.replicates, self.targets = folded, replicates, targets
        self.pairs: list[tuple[int, int]] = []  # n_shared, n_target
        self.models: list[Model] = []
        self.fits: list[Posterior] = []  # to all rows
        self.totals: list[Array] = []  # (replicates,) of each pair

    def choice(self, shared: list[int], *, stop: bool = False) -> DimensionChoice:
        """Try all pairs, the most shared dimensions first; `stop` where fewer are hopeless."""
        hopeless = 0
        for k in reversed(shared):
            allowed = [t for t in self.targets if self.folded.allows(k + t)]
            if not allowed and not self.pairs:
                continue
            for t in allowed:
                self._try(k, t)
            behind, errors = self._behind()
            worse = behind.sum(axis=1) > HOPELESS * errors
            hopeless = hopeless + 1 if worse[len(worse) - len(allowed) :].all() else 0
            if stop and hopeless == 2 and allowed:
                break
        return self._least()

    def _try(self, n_shared: int, n_target: int) -> None:
        scored = self.folded.scored(n_shared, n_target)
        numbers, n = np.concatenate(self.replicates.rows), self.replicates.n_replicates
        self.pairs.append((n_shared, n_target))
        self.models.append(scored.model)
        self.fits.append(scored.fit)
        totals = np.bincount(numbers, weights=np.concatenate(scored.scores), minlength=n)
        self.totals.append(np.asarray(totals, dtype=np.float64))

    def _behind(self) -> tuple[Array, Array]:
        """Return what pairs lack to the best, (pairs, replicates), and standard errors."""
        totals = np.reshape(self.totals, (len(self.pairs), self.replicates.n_replicates))
        behind = totals[totals.sum(axis=1).argmax()] - totals
        return behind, np.sqrt(behind.shape[1] * behind.var(axis=1, ddof=1))

    def _least(self) -> DimensionChoice:
        behind, errors = self._behind()
        close = np.flatnonzero(behind.sum(axis=1) <= np.maximum(errors, TIE))
        least = min(close, key=lambda i: (sum(self.pairs[i]), self.pairs[i][1]))
        n_shared, n_target = self.pairs[least]
        engine, whole = self.folded.engine, self.folded.whole
        for said in objections(self.models[least], engine, whole, self.fits[least]):
            warnings.warn(said, UserWarning, stacklevel=4)
        table = pd.DataFrame(self.pairs, columns=["n_shared", "n_target"])
        table["log_likelihood"] = np.sum(self.totals, axis=1)
        table["standard_error"] = errors
        table["lower_bound"] = [fit.lower_bound for fit in self.fits]
        best_first = table.sort_values("log_likelihood", ascending=False, ignore_index=True)
        return DimensionChoice(n_target, n_shared, best_first)


def _is_auto(value: object) -> bool:
    return isinstance(value, str) and value == "auto"


def _sizes(name: str, given: Any) -> list[int]:
    """Return numbers of dimensions to try, each once, in order."""
    several = np.iterable(given) and not isinstance(given, str)
    values = list(given) if several else [given] if isinstance(given, int | np.integer) else []
    if not values:
        reason = "must be a sequence of numbers of dimensions, such as (0, 1, 2)."
        raise InvalidParameterError(name, given, reason)
    return sorted({check_integer(name, value, 0) for value in values})


def _candidates(automatic: int) -> list[int]:
    """Return numbers of shared dimensions to try, given that of an automatic fit.

    >>> _candidates(3), _candidates(10)
    ([0, 1, 2, 3, 4, 5], [0, 1, 2, 3, 4, 6, 8, 9, 10, 11, 12])
    """
    near = range(max(0, automatic - 1), automatic + AROUND + 1)
    return sorted({*(k for k in COARSE if k < automatic), *near})
