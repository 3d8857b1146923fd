"""The steps of a fit of a linear model: read the sets, check them, run the engine."""

import logging
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from contrastive_lvm.arrays import Array, Covariates, RowLabels
from contrastive_lvm.coordinate_ascent.activity_search import BlockSupport, find_sizes
from contrastive_lvm.coordinate_ascent.engine import CoordinateAscent, interrupted_posterior
from contrastive_lvm.coordinate_ascent.generalised_start import stand_in_of
from contrastive_lvm.estimators import parse_params
from contrastive_lvm.estimators.covariates import Given, check_effects, encode_sets
from contrastive_lvm.estimators.frames import RowNumbers
from contrastive_lvm.estimators.input_rows import (
    check_sample_weight,
    check_variances,
    refuse_empty_columns,
    refuse_too_many_dimensions,
    refuse_unsupported,
    refuse_values,
    rows_for_fit,
    warn_about_equal_sets,
)
from contrastive_lvm.estimators.prediction_model import sizes_of_sets
from contrastive_lvm.exceptions import InvalidDataError, InvalidParameterError
from contrastive_lvm.inference import Engine
from contrastive_lvm.likelihoods.base import Likelihood
from contrastive_lvm.linalg.anderson import AscentInterrupted
from contrastive_lvm.linalg.loadings import Loadings
from contrastive_lvm.linalg.matrices import column_variances
from contrastive_lvm.linalg.packed import unpack
from contrastive_lvm.model import Model
from contrastive_lvm.posterior import Posterior
from contrastive_lvm.progress import noting_interrupts
from contrastive_lvm.rows.data import Data
from contrastive_lvm.rows.masked_rows import MaskedRows
from contrastive_lvm.rows.reader import RowReader, Rows
from contrastive_lvm.rows.scatter import Scatter, first_pass

if TYPE_CHECKING:
    from contrastive_lvm.estimators.contrastive_lvm import ContrastiveLVM

logger = logging.getLogger(__name__)
MOST = np.iinfo(np.int32).max  # of a seed
EM_STEPS, EM_TOL = 20, 1e-3  # of the covariance of the background's latents
Sizes: TypeAlias = Sequence[RowNumbers]  # of the rows of each set


class FitInput(NamedTuple):
    """What a fit needs: the model, the engine and the rows of each set."""

    model: Model
    engine: Engine
    sets: list[Rows]  # in the order of the model's
    weights: list[Array | None]  # of the rows of each set, None where all are 1
    names: tuple[str, ...]  # of the sets in errors
    covariates: list[Array] | None = None  # of the rows of each set, encoded, (N, C)


def supported_dimensions(
    estimator: "ContrastiveLVM",
    X: Any,
    background: Any,
    groups: tuple[RowLabels, RowLabels],
    size_factors: Sizes = (None, None),
    covariates: Sequence[Covariates] = (None, None),
) -> int | None:
    """Check the replicates of rows, and return the number for `"auto"`, or None if one was given.

    Replicates with rows in both sets are pairs.
    """
    automatic = estimator.n_target == "auto"
    if background is None and automatic:
        raise ValueError(
            "background=None, but n_target='auto' compares X with it; pass background=... or "
            "give n_target as a number."
        )
    from contrastive_lvm.resampling.contrast_test import contrast_test
    from contrastive_lvm.resampling.replicates import check_replicates

    sets = [("X", X)] if background is None else [("X", X), ("background", background)]
    n_rows = [rows_for_fit(estimator, rows, name=name).shape[0] for name, rows in sets]
    replicates = check_replicates(groups[: len(n_rows)], n_rows)
    if not automatic:
        return None
    test = contrast_test(
        X,
        background=background,
        model=estimator,
        groups=groups[0],
        background_groups=groups[1],
        paired=replicates.in_several_sets,
        size_factors=size_factors[0],
        background_size_factors=size_factors[1],
        covariates=covariates[0],
        background_covariates=covariates[1],
        random_state=estimator.random_state,
    )
    return test.n_target


def check_groups(groups: RowLabels, n_rows: int) -> None:
    """Check the replicates of rows in one matrix."""
    if groups is None:
        return
    from contrastive_lvm.resampling.replicates import check_replicates

    check_replicates([groups], [n_rows])


def read_input(
    estimator: "ContrastiveLVM",
    X: Any,
    background: Any,
    weights: Sequence[RowNumbers] = (None, None),
    n_target: int | None = None,
    covariates: Sequence[Covariates] = (None, None),
) -> FitInput:
    """Check the data and the parameters of an estimator; `n_target` stands for "auto"."""
    sets = [rows_for_fit(estimator, X)]
    if background is not None:
        sets.append(rows_for_fit(estimator, background, name="background"))
        if sets[0].shape == sets[1].shape:
            warn_about_equal_sets(*sets)
    elif estimator.n_shared != 0:
        raise ValueError(
            f"background=None, but n_shared={estimator.n_shared!r} asks for shared dimensions, "
            "which are learned from it; pass background=... or set n_shared=0."
        )
    elif weights[1] is not None:
        raise ValueError("background_sample_weight was given without a background; leave it out.")
    elif covariates[1] is not None:
        raise ValueError("background_covariates were given without a background; leave them out.")
    sizes = [rows.shape[0] for rows in sets]
    checked: list[Array | None] = [
        None if own is None else check_sample_weight(name, own, n)
        for name, own, n in zip(
            ("sample_weight", "background_sample_weight"), weights, sizes, strict=False
        )
    ]
    n_rows = sum(n if w is None else float(w.sum()) for n, w in zip(sizes, checked, strict=True))
    encoded: list[Array] | None = None
    estimator._encoding, alone = None, background is None
    if any(known is not None for known in covariates):
        names = ("covariates", "background_covariates")
        of_sets = zip(names, covariates, sizes, checked, strict=False)
        own_effects = check_effects(estimator.covariate_effects)
        estimator._encoding, encoded = encode_sets(
            [Given(*one) for one in of_sets], ("X", "background"), own=own_effects
        )
    model = parse_params.model(estimator, n_rows, background=not alone, n_target=n_target)
    kinds = {f"n_{block.name}": block.n_components for block in reversed(model.blocks)}
    refuse_too_many_dimensions(
        kinds, sets, sized_by_data=model.drops_columns, n_effects=model.n_effects
    )
    estimator.n_samples_, estimator.n_background_samples_ = (*sizes, None)[:2]
    arguments = ("X", "background")[: len(sets)]
    return fit_input(model, estimator.inference, sets, checked, arguments, encoded)


def fit_input(
    model: Model,
    inference: parse_params.EngineLike,
    sets: list[Rows],
    weights: list[Array | None],
    names: tuple[str, ...],
    covariates: list[Array] | None = None,
) -> FitInput:
    """Find the engine for a model, and check that the likelihood has a density for all rows."""
    engine = parse_params.engine(inference, model)
    if not model.likelihood._has_all_values:
        sets = [_with_check(model.likelihood, name, X) for name, X in zip(names, sets, strict=True)]
    if engine._needs_rows_in_memory:
        sets = [X.load() if isinstance(X, RowReader) else X for X in sets]
    return FitInput(model, engine, sets, weights, names, covariates)


def _with_check(likelihood: Likelihood, name: str, rows: Rows) -> Rows:
    """Refuse rows without a density; those out of core are checked when they are read."""
    if isinstance(rows, RowReader):
        return rows.checked(partial(refuse_unsupported, likelihood, name))
    refuse_unsupported(likelihood, name, rows)
    return rows


def compress(
    given: FitInput, engine: CoordinateAscent, log_sizes: Sequence[Array] | None = None
) -> tuple[Model, Data]:
    """Compress all sets as far as coordinate ascent allows.

    The model is returned with its priors in the units of the data.
    """
    data = engine._prepare(given.model, given.sets, given.weights, given.covariates, log_sizes)
    if not data.complete:
        for name, rows in zip(given.names, data.sets, strict=True):  # rows of weight 0 do not count
            refuse_empty_columns(rows.counts, name)
    of_sets = [float(v.mean()) for v in data.variances] if data.linearized is None else ()
    check_variances(data.variance, [rows.mean for rows in data.sets], of_sets)
    return given.model.in_units_of(data.variance, data.n_features), data


def with_found_sizes(given: FitInput) -> tuple[FitInput, dict[str, BlockSupport]]:
    """Find the sizes of automatic blocks, and leave out those that have none."""
    engine, model = given.engine, given.model
    if not isinstance(engine, CoordinateAscent):
        reason = f"needs inference='em' or 'vb', which {model.likelihood!r} may not allow"
        raise InvalidParameterError("blocks", "auto", f"{reason}; give numbers of dimensions.")
    sizes = sizes_of_sets(model.likelihood, given.sets, (None, None))[0]
    _, data = compress(given, engine, sizes)
    if data.linearized is None:
        found = find_sizes(model, data)
    else:
        found = find_sizes(stand_in_of(model), data.linearized.data)
    sized = model.with_sizes({name: support.n_components for name, support in found.items()})
    kept = tuple(b for b in sized.blocks if b.n_components)
    if not kept:
        reason = "supports no latent dimension in any set; give numbers of dimensions to insist."
        raise InvalidDataError("X", reason)
    return given._replace(model=replace(sized, blocks=kept)), found


class EngineRun(NamedTuple):
    """The best of several fits, and the model and the rows as coordinate ascent uses them."""

    best: Posterior  # the fit with the highest bound
    n_iter: int  # sweeps of all fits together
    model: Model  # with its priors in units of the data; blocks may still be automatic
    data: Data | None = None


def run_engine(
    given: FitInput, size_factors: Sizes, n_init: int, rng: np.random.RandomState
) -> EngineRun:
    """Fit the model `n_init` times, from different starts."""
    asked, data, closed = given.model, None, given.model.likelihood._has_closed_form
    if isinstance(given.engine, CoordinateAscent):
        sizes, profile = None, None
        if not closed or any(factors is not None for factors in size_factors):
            sizes, profile = sizes_of_sets(given.model.likelihood, given.sets, size_factors)
        asked, data = compress(given, given.engine, sizes)
        if not data.narrow:
            data = given.engine._sketched(asked, data)
        automatic = any(block.automatic for block in asked.blocks)
        model = given.engine._sized(asked, data) if automatic else asked
        seeds = (None, *rng.randint(MOST, size=n_init - 1).tolist())  # the first is not random
        runs = _ascents(given.engine, model, data, seeds)
        if not closed:
            runs = (posterior._replace(profile=profile) for posterior in runs)
    else:
        runs = _black_box(given, given.engine, size_factors, rng.randint(MOST, size=n_init))
    best, n_iter = None, 0
    for i, posterior in enumerate(runs):
        bound, n_sweeps = posterior.lower_bounds[-1], posterior.n_iter
        said = "fit %d of %d: log-likelihood or bound %.6g after %d sweeps"
        logger.info(said, i + 1, n_init, bound, n_sweeps)
        n_iter += n_sweeps
        if best is None or bound > best.lower_bounds[-1]:
            best = posterior
    if best is None:
        raise KeyboardInterrupt
    return EngineRun(best, n_iter, asked, data)


def _ascents(
    engine: CoordinateAscent, model: Model, data: Data, seeds: Sequence[int | None]
) -> Iterator[Posterior]:
    for seed in seeds:
        try:
            yield engine._run(model, data, seed=seed)
        except KeyboardInterrupt as interrupt:
            if not isinstance(interrupt, AscentInterrupted):
                if seed is None:
                    raise
                _warn_of_interrupt("before the first restart")
                return
            found = interrupted_posterior(interrupt)
            _warn_of_interrupt(f"after {found.n_iter} sweeps")
            yield found
            return


def _warn_of_interrupt(when: str) -> None:
    said = f"interrupted {when}; the best state so far is kept."
    warnings.warn(said, UserWarning, stacklevel=6)


def _black_box(
    given: FitInput, engine: Any, size_factors: Sizes, seeds: np.ndarray
) -> Iterator[Posterior]:
    if any(weights is not None for weights in given.weights):
        raise ValueError(
            f"inference={engine!r} cannot use sample_weight, weights of rows; use "
            "inference='em' or 'vb', or repeat rows."
        )
    if given.covariates is not None:
        raise ValueError(f"inference={engine!r} cannot use covariates; use inference='em' or 'vb'.")
    for name, rows in zip(given.names, given.sets, strict=True):
        if not isinstance(rows, RowReader):
            refuse_values(rows, name, columns=True)
    variances, means = zip(*map(_moments, given.sets), strict=True)
    pooled = np.average(variances, axis=0, weights=[X.shape[0] for X in given.sets])
    units = given.model.likelihood._has_closed_form  # counts and binary rows have none
    check_variances(pooled, means, [float(v.mean()) for v in variances] if units else ())
    model = given.model.in_units_of(pooled, len(pooled))
    sizes, profile = sizes_of_sets(given.model.likelihood, given.sets, size_factors)
    for i, seed in enumerate(seeds.tolist()):
        options = {"log_sizes": sizes, "seed": seed, "restart": i > 0}
        with noting_interrupts():
            found: Posterior = engine._run(model, given.sets, **options)
        yield found._replace(profile=profile)


def _moments(rows: Rows) -> tuple[Array, Array]:
    """Return variances and means of features; out of core, in the pass that checks all values."""
    if not isinstance(rows, RowReader):
        return column_variances(rows)
    with np.errstate(over="ignore", invalid="ignore"):
        found = first_pass(rows, scatter=False)
    return found.square / np.maximum(found.counts, 1.0), found.mean


def normal_components(model: Model, data: Data | None, posterior: Posterior) -> Array | None:
    """Return the loadings of the background, (K, D), scaled by how much its own rows vary.

    Latents have unit variance in both sets together. Where the target varies more along a shared
    dimension, as a plant with a fault may, the background varies less than the model says, and its
    limits would be too wide. EM finds the covariance of its latents while everything else stays:
    `S <- S R` with `R R' = mean_i E[z_i z_i']` over its rows.

    None for rows that were not compressed as Gaussian ones are, and for models with covariates.
    """
    at = len(model.sets) - 1
    if data is None or at == 0 or model.covariates or data.span or data.linearized:
        return None
    rows = data.sets[at]
    if not isinstance(rows, Scatter | MaskedRows):
        return None
    name = model.sets[at]
    own = (block.name for block in model.blocks if name in block.sets)
    L = np.hstack([posterior.loadings[n] for n in own if n in posterior.loadings])
    psi, mean = np.atleast_2d(posterior.noise_variance)[-1], posterior.means[name]
    if isinstance(rows, Scatter):
        return np.ascontiguousarray((L @ _scales_of_rows(rows, L / psi[:, None], L)).T)
    for _ in range(EM_STEPS):
        sums = rows.statistics(Loadings(L, None), psi, mean)
        moment = unpack(sums.latent[:, None])[0] / sums.n_rows
        L = L @ np.linalg.cholesky(moment)
        if np.abs(moment - np.eye(len(moment))).max(initial=0.0) < EM_TOL:
            break
    return np.ascontiguousarray(L.T)


def _scales_of_rows(rows: Scatter, scaled: Array, L: Array) -> Array:
    """Return the R of all EM steps, (K, K), from one product of the scatter T.

    With `A = L' psi^-1 L` and `V = (I + R' A R)^-1`, the mean of `E[z_i z_i']` is
    `V + V R' L' psi^-1 T psi^-1 L R V / n`.
    """
    inner, outer = L.T @ scaled, scaled.T @ rows.product(scaled) / rows.n_rows
    R = identity = np.eye(L.shape[1])
    for _ in range(EM_STEPS):
        V = np.linalg.inv(identity + R.T @ inner @ R)
        moment = V + V @ (R.T @ outer @ R) @ V
        R = R @ np.linalg.cholesky((moment + moment.T) / 2.0)
        if np.abs(moment - identity).max(initial=0.0) < EM_TOL:
            break
    return R


def warn_about_convergence(engine: Engine) -> None:
    """Warn of a fit that did not converge."""
    warnings.warn(engine._convergence_hint(), ConvergenceWarning, stacklevel=4)


def warn_about_dropped_target(model: Model) -> None:
    """Warn of a prior that has dropped all target dimensions, and say what to try."""
    for block in model.blocks:
        if block.name == "target" and block.n_components and block.prior._drops_columns:
            said = (
                f"none of {block.n_components} target dimension(s) is left: under {block.prior!r} "
                "the rows are more likely without them. Ask contrast_test whether target and "
                "background differ at all; if they should, use fewer shared dimensions, which may "
                "have taken the difference, or keep all columns by target_prior=ARD(drop=False)."
            )
            warnings.warn(said, UserWarning, stacklevel=4)
