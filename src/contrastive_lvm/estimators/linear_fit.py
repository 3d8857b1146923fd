"""The steps of a fit of the linear model: read both sets, check them, run the engine."""

import logging
import warnings
from collections.abc import Iterable
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
from contrastive_lvm.rows.reader import RowReader

logger = logging.getLogger(__name__)


class FitInput(NamedTuple):
    """What a fit needs: the model, the engine and the rows of each set."""

    model: Model
    engine: Engine
    sets: list[Matrix | RowReader]  # the target, then the background if there is one


def read_input(estimator: Any, X: Any, background: Any) -> FitInput:
    """Check the data and the parameters of an estimator."""
    sets = [rows_for_fit(estimator, X)]
    if background is not None:
        sets.append(rows_for_fit(estimator, background, name="background"))
    elif estimator.n_shared != 0:
        raise ValueError(
            f"background=None, but n_shared={estimator.n_shared} shared dimensions are learned "
            "from it; pass background=... or set n_shared=0."
        )
    n_rows = sum(X.shape[0] for X in sets)
    model = parse_params.model(estimator, n_rows, background=background is not None)
    engine = parse_params.engine(estimator.inference, model)
    if engine._needs_rows_in_memory:
        sets = [X.load() if isinstance(X, RowReader) else X for X in sets]
    sizes = {f"n_{block.name}": block.n_components for block in reversed(model.blocks)}
    refuse_too_many_dimensions(sizes, sets, sized_by_data=model.drops_columns)
    names = ("X", "background")
    sets = [check_support(model.likelihood, name, X) for name, X in zip(names, sets, strict=False)]
    estimator.n_samples_, estimator.n_background_samples_ = (*(X.shape[0] for X in sets), None)[:2]
    return FitInput(model, engine, sets)


def check_weights(given: FitInput, weights: tuple[Any, Any]) -> list[Array | None]:
    """Check the weights of the rows of each set, None where all are 1."""
    names = ("sample_weight", "background_sample_weight")
    if len(given.sets) == 1 and weights[1] is not None:
        raise ValueError(
            "background_sample_weight was given without a background; give both or none."
        )
    return [
        check_sample_weight(name, weight, X.shape[0])
        for name, weight, X in zip(names, weights, given.sets, strict=False)
    ]


def check_support(
    likelihood: Likelihood, name: str, rows: Matrix | RowReader
) -> Matrix | RowReader:
    """Refuse values that a likelihood has no density for; out of core, when they are read."""
    if isinstance(rows, RowReader):
        return rows.checked(partial(_refuse_unsupported, likelihood, name))
    _refuse_unsupported(likelihood, name, rows)
    return rows


def _refuse_unsupported(likelihood: Likelihood, name: str, rows: Matrix) -> None:
    reason = likelihood._unsupported_reason(rows)
    if reason is not None:
        raise InvalidDataError(name, f"holds {reason}.")


def compress(given: FitInput, engine: CoordinateAscent, weights: list[Array | None]) -> Data:
    """Compress both sets as far as coordinate ascent can use them so."""
    data = engine._prepare(given.model, given.sets, weights)
    _check_variances(data.variances, data.variance, [s.mean for s in data.sets], given.model)
    return data


def _check_variances(
    variances: list[Array], pooled: Array, means: list[Array], model: Model
) -> None:
    refuse_constant(pooled, max(np.abs(mean).max() for mean in means))
    if len(variances) == 2 and model.likelihood._has_closed_form:  # other rows have no units
        warn_about_scales(*(float(variance.mean()) for variance in variances))


def run_engine(
    given: FitInput,
    weights: list[Array | None],
    size_factors: tuple[Any, Any],
    n_init: int,
    rng: np.random.RandomState,
) -> list[Posterior]:
    """Fit the model `n_init` times, from different starts."""
    model, engine, sets = given
    if isinstance(engine, CoordinateAscent):
        for factors in size_factors:
            given_sizes(model.likelihood, factors, sets[0].shape)  # refuses them
        data = compress(given, engine, weights)
        seeds = [None, *rng.randint(2**31 - 1, size=n_init - 1).tolist()]
        return _logged((engine._run(model, data, seed=seed) for seed in seeds), n_init)
    if any(weight is not None for weight in weights):
        raise ValueError(
            f"inference={engine!r} cannot use sample_weight or background_sample_weight; "
            "use inference='em' or 'vb', or repeat rows."
        )
    moments = [_moments(X) for X in sets]
    variances, means = [variance for variance, _ in moments], [mean for _, mean in moments]
    _check_variances(variances, np.asarray(sum(variances)), means, model)
    sizes, profile = sizes_of_sets(model.likelihood, sets, size_factors)
    seeds = rng.randint(2**31 - 1, size=n_init).tolist()
    run = partial(engine._run, model, sets, log_sizes=sizes)
    runs = (run(seed=seed, restart=i > 0) for i, seed in enumerate(seeds))
    return _logged((posterior._replace(profile=profile) for posterior in runs), n_init)


def _moments(rows: Matrix | RowReader) -> tuple[Array, Array]:
    """Return variances and means of features; out of core, in the pass that checks all values."""
    if not isinstance(rows, RowReader):
        return column_variances(rows)
    with np.errstate(over="ignore", invalid="ignore"):
        found = first_pass(rows, scatter=False)
    return found.square / np.maximum(found.counts, 1.0), found.mean


def _logged(runs: Iterable[Posterior], n_init: int) -> list[Posterior]:
    fits: list[Posterior] = []
    for posterior in runs:
        fits.append(posterior)
        logger.info(
            "fit %d of %d: log-likelihood or bound %.6g after %d sweeps",
            len(fits),
            n_init,
            posterior.lower_bound,
            posterior.n_iter,
        )
    return fits


def warn_about_fit(estimator: Any, engine: Engine) -> None:
    """Warn of a fit that did not converge, or that uses all dimensions it was allowed."""
    if isinstance(estimator.n_shared, str) and estimator.n_shared_ >= parse_params.MOST_SHARED:
        warnings.warn(
            f"n_shared='auto' uses all {estimator.n_shared_} dimensions that it allows; to allow "
            "more, give n_shared as a number and shared_prior='ard'.",
            UserWarning,
            stacklevel=3,
        )
    if not estimator.converged_:
        warnings.warn(engine._convergence_hint(), ConvergenceWarning, stacklevel=3)
