"""The steps of a fit of the linear model: read both sets, check them, run the engine."""

import logging
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from contrastive_lvm.arrays import Array, Matrix
from contrastive_lvm.coordinate_ascent.engine import CoordinateAscent
from contrastive_lvm.estimators import parse_params
from contrastive_lvm.estimators.input_rows import rows_for_fit
from contrastive_lvm.estimators.prediction_model import given_sizes, sizes_of_sets
from contrastive_lvm.estimators.validation import (
    check_sample_weight,
    refuse_constant,
    refuse_empty_columns,
    refuse_too_many_dimensions,
    warn_about_scales,
)
from contrastive_lvm.exceptions import InvalidDataError
from contrastive_lvm.inference import Engine
from contrastive_lvm.likelihoods.base import Likelihood
from contrastive_lvm.linalg.matrices import column_variances
from contrastive_lvm.model import Model
from contrastive_lvm.posterior import Posterior
from contrastive_lvm.rows.data import Data
from contrastive_lvm.rows.moments import first_pass
from contrastive_lvm.rows.reader import RowReader, Rows

logger = logging.getLogger(__name__)


class FitInput(NamedTuple):
    """What a fit needs: the model, the engine and the rows of each set."""

    model: Model
    engine: Engine
    sets: list[Rows]  # the target, then the background if there is one
    weights: list[Array | None]  # of the rows of each set, None where all are 1


def read_input(
    estimator: Any, X: Any, background: Any, weights: tuple[Any, Any] = (None, None)
) -> FitInput:
    """Check the data and the parameters of an estimator."""
    sets = [rows_for_fit(estimator, X)]
    if background is not None:
        sets.append(rows_for_fit(estimator, background, name="background"))
    elif estimator.n_shared != 0:
        raise ValueError(
            f"background=None, but n_shared={estimator.n_shared} shared dimensions are learned "
            "from it; pass background=... or set n_shared=0."
        )
    n_rows = sum(rows.shape[0] for rows in sets)
    model = parse_params.model(estimator, n_rows, background=background is not None)
    engine = parse_params.engine(estimator.inference, model)
    sizes = {f"n_{block.name}": block.n_components for block in reversed(model.blocks)}
    refuse_too_many_dimensions(sizes, sets, sized_by_data=model.drops_columns)
    names = ("X", "background")
    for i, rows in enumerate(sets):
        check = partial(refuse_unsupported, model.likelihood, names[i])
        if isinstance(rows, RowReader):
            checked = rows.checked(check)
            sets[i] = checked.load() if engine._needs_rows_in_memory else checked
        else:
            check(rows)
    estimator.n_samples_, estimator.n_background_samples_ = (*(X.shape[0] for X in sets), None)[:2]
    return FitInput(model, engine, sets, _checked_weights(weights, sets))


def _checked_weights(given: tuple[Any, Any], sets: list[Rows]) -> list[Array | None]:
    if len(sets) == 1 and given[1] is not None:
        raise ValueError("background_sample_weight was given without a background; leave it out.")
    names = ("sample_weight", "background_sample_weight")
    return [
        None if weights is None else check_sample_weight(name, weights, rows.shape[0])
        for name, weights, rows in zip(names, given, sets, strict=False)
    ]


def refuse_unsupported(likelihood: Likelihood, name: str, rows: Matrix) -> None:
    """Refuse values that a likelihood has no density for."""
    reason = likelihood._unsupported_reason(rows)
    if reason is not None:
        raise InvalidDataError(name, f"holds {reason}.")


def compress(given: FitInput, engine: CoordinateAscent) -> Data:
    """Compress both sets as far as coordinate ascent can use them so."""
    data = engine._prepare(given.model, given.sets, given.weights)
    for name, rows, weights in zip(("X", "background"), data.sets, given.weights, strict=False):
        if weights is not None:  # a feature may be observed only in rows of weight 0
            refuse_empty_columns(rows.counts, name)
    _check_variances(data.variances, data.variance, [s.mean for s in data.sets], given.model)
    return data


def _check_variances(
    variances: list[Array], pooled: Array, means: list[Array], model: Model
) -> None:
    refuse_constant(pooled, max(np.abs(mean).max() for mean in means))
    if len(variances) == 2 and model.likelihood._has_closed_form:  # other rows have no units
        warn_about_scales(*(float(variance.mean()) for variance in variances))


def run_engine(
    given: FitInput, size_factors: tuple[Any, Any], n_init: int, rng: np.random.RandomState
) -> list[Posterior]:
    """Fit the model `n_init` times, from different starts."""
    if isinstance(given.engine, CoordinateAscent):
        for factors in size_factors:
            if factors is not None:
                given_sizes(given.model.likelihood, factors, given.sets[0].shape)  # refuses them
        data = compress(given, given.engine)
        run: Callable[..., Posterior] = partial(given.engine._run, given.model, data)
        starts: list[Any] = [None, *rng.randint(2**31 - 1, size=n_init - 1).tolist()]
    else:
        run = _black_box(given, given.engine, size_factors)
        starts = list(enumerate(rng.randint(2**31 - 1, size=n_init).tolist()))
    fits: list[Posterior] = []
    for start in starts:
        fits.append(run(seed=start))
        logger.info(
            "fit %d of %d: log-likelihood or bound %.6g after %d sweeps",
            len(fits),
            n_init,
            fits[-1].lower_bound,
            fits[-1].n_iter,
        )
    return fits


def _black_box(
    given: FitInput, engine: Any, size_factors: tuple[Any, Any]
) -> Callable[..., Posterior]:
    """Return a run of an engine without a closed form, by its number and its seed."""
    if any(weights is not None for weights in given.weights):
        raise ValueError(
            f"inference={engine!r} cannot use sample_weight or background_sample_weight; "
            "use inference='em' or 'vb', or repeat rows."
        )
    moments = [_moments(X) for X in given.sets]
    variances, means = [variance for variance, _ in moments], [mean for _, mean in moments]
    _check_variances(variances, np.asarray(sum(variances)), means, given.model)
    sizes, profile = sizes_of_sets(given.model.likelihood, given.sets, size_factors)

    def run(seed: tuple[int, int]) -> Posterior:
        number, own = seed
        found: Posterior = engine._run(
            given.model, given.sets, log_sizes=sizes, seed=own, restart=number > 0
        )
        return found._replace(profile=profile)

    return run


def _moments(rows: Rows) -> tuple[Array, Array]:
    """Return variances and means of features; out of core, in the pass that checks all values."""
    if not isinstance(rows, RowReader):
        return column_variances(rows)
    with np.errstate(over="ignore", invalid="ignore"):
        found = first_pass(rows, scatter=False)
    return found.square / np.maximum(found.counts, 1.0), found.mean


def warn_about_fit(estimator: Any, engine: Engine) -> None:
    """Warn of a fit that did not converge, or that uses all dimensions it was allowed."""
    if isinstance(estimator.n_shared, str) and estimator.n_shared_ >= parse_params.MOST_SHARED:
        warnings.warn(
            f"n_shared='auto' uses all {estimator.n_shared_} dimensions that it allows; to allow "
            "more, give n_shared as a number and shared_prior='ard'.",
            UserWarning,
            stacklevel=4,
        )
    if not estimator.converged_:
        warnings.warn(engine._convergence_hint(), ConvergenceWarning, stacklevel=4)
