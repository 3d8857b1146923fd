"""Standard errors, intervals and stability of a fit, by the bootstrap.

Replicates (rows, unless they are grouped) are drawn with replacement from each set and the model
is fitted again, from the fit. Loadings are compared in the canonical gauge, dimensions in the
order of their variance, each with the sign that agrees best with the fit. With `w_b` a loading of
resample b and `w` that of the fit, the standard error is

    se^2 = R / (R - 1) mean_b (w_b - w)^2,

which includes the shift of the resamples, and the interval is `w -/+ q se`, with q of Student's t
distribution with R - 1 degrees of freedom: the spread of draws from R replicates is too small by
(R - 1) / R on average (Hesterberg 2015, section 4). R is that of the set with fewer replicates.
Among percentile, basic, normal and bias-corrected intervals this one came closest to its level;
docs/intervals.md has the coverage. Where dimensions have nearly equal variances their loadings
turn from resample to resample, and the errors grow.

A feature that a prior selects is called stable if it is selected in at least a share p of B pairs
of complementary random halves of the replicates (stability selection). If q of D features are
selected on average and `q / D` is at most `1 / sqrt(3)`, then no more than `C q^2 / D` stable
features are expected to be false, with `C = 4 (1 - p + 1 / 2B) / (1 + 1 / B)` for p above 3/4 (Shah
& Samworth 2013, Theorem 2: for features selected less often than average, whose selections have
unimodal distributions). Where more features are selected, the bound is `q^2 / ((2 p - 1) D)`
(Meinshausen & Buehlmann 2010, Theorem 1).
"""

import math
from collections.abc import Callable, Sequence
from copy import copy
from functools import partial
from typing import Any, NamedTuple, overload

import numpy as np
import pandas as pd
from scipy.stats import t as student_t
from sklearn.base import clone

from contrastive_lvm.arrays import Array
from contrastive_lvm.checks import check_integer, check_positive
from contrastive_lvm.draws import signed_permutations
from contrastive_lvm.estimators.contrastive_lvm import ContrastiveLVM
from contrastive_lvm.estimators.covariates import effects_table
from contrastive_lvm.estimators.input_rows import read_rows
from contrastive_lvm.estimators.linear_fit import FitInput, read_input
from contrastive_lvm.estimators.multi_set_lvm import MultiSetLVM
from contrastive_lvm.estimators.units import scaling_of, without_preparation
from contrastive_lvm.exceptions import InvalidDataError, InvalidParameterError
from contrastive_lvm.linalg.gauge import ROTATIONS
from contrastive_lvm.model import LoadingBlock
from contrastive_lvm.resampling.block_rows import refuse_background
from contrastive_lvm.resampling.parallel import resample, seed_sequence
from contrastive_lvm.resampling.refit import Refit, Refitted, closed_form_engine
from contrastive_lvm.resampling.replicates import (
    Flags,
    Integers,
    Replicates,
    check_replicates,
    draw_halves,
    draw_weights,
    replicate_labels,
)

STABLE = 0.9  # of the halves in which a stable feature is selected
MOST_DRAWS = 100  # until one has enough rows and observed entries to fit the model
ANOTHER_FIT = 0.5  # nats that a refit of the same rows may gain
UNUSED = 1e-3  # of the largest norm: columns without support have less
SHRUNK = (
    "No intervals: {prior!r} shrinks the {block} loadings, and intervals around shrunk loadings "
    "have not been shown to cover; use {argument}=None for intervals."
)


class Bootstrap(NamedTuple):
    """What resampled rows say of a fit; components are rows, as in `target_components_`."""

    target_components: Array  # (n_target, D) of the fit
    target_components_std: Array | None  # (n_target, D) standard errors
    low: Array | None  # (n_target, D) ends of the intervals
    high: Array | None
    selection_frequency: Array  # (D,) share of resamples in which a feature is selected
    sign_stability: Array  # (n_target, D) share of resamples in which a loading keeps its sign
    subspace_angles: Array  # (B, n_target) between resample and fit, in radians, descending
    n_target: Integers  # (B,) target dimensions in use in each resample
    stable_features: Flags | None  # (D,) under a prior that selects features
    expected_false_selections: float | None  # at most, among the stable features
    confidence_level: float
    note: str  # why numbers are left out, or how they must be read; empty otherwise
    covariate_effects: pd.DataFrame | None = None  # on the target, of the fit
    covariate_effects_std: pd.DataFrame | None = None  # standard errors


class BlockBootstrap(NamedTuple):
    """What resampled rows say of a fit of several sets, by block, as in `components_`."""

    components: dict[str, Array]  # (n, D) of the fit
    components_std: dict[str, Array | None]  # (n, D) standard errors; None under shrinking priors
    low: dict[str, Array | None]  # (n, D) ends of the intervals
    high: dict[str, Array | None]
    sign_stability: dict[str, Array]  # (n, D) share of resamples in which a loading keeps its sign
    subspace_angles: dict[str, Array]  # (B, n) between resample and fit, in radians, descending
    confidence_level: float
    note: str  # why numbers are left out; empty otherwise
    covariate_effects: dict[str, pd.DataFrame] | None = None  # by set, of the fit
    covariate_effects_std: dict[str, pd.DataFrame] | None = None  # standard errors


@overload
def bootstrap(
    model: ContrastiveLVM,
    X: Any,
    *,
    background: Any = ...,
    groups: Any = ...,
    background_groups: Any = ...,
    covariates: Any = ...,
    background_covariates: Any = ...,
    n_resamples: int = ...,
    confidence_level: float = ...,
    n_jobs: int | None = ...,
    random_state: Any = ...,
) -> Bootstrap: ...
@overload
def bootstrap(
    model: MultiSetLVM,
    X: Any,
    *,
    sets: Any,
    groups: Any = ...,
    covariates: Any = ...,
    n_resamples: int = ...,
    confidence_level: float = ...,
    n_jobs: int | None = ...,
    random_state: Any = ...,
) -> BlockBootstrap: ...
def bootstrap(
    model: Any,
    X: Any,
    *,
    background: Any = None,
    sets: Any = None,
    groups: Any = None,
    background_groups: Any = None,
    covariates: Any = None,
    background_covariates: Any = None,
    n_resamples: int = 200,
    confidence_level: float = 0.9,
    n_jobs: int | None = None,
    random_state: Any = None,
) -> Any:
    """Say how sure loadings are, by fits to resampled rows.

    Parameters
    ----------
    model : ContrastiveLVM or MultiSetLVM
        An estimator fitted to these rows by `EM` or `VariationalBayes`; one that has not been
        fitted is fitted first, as a copy.
    X, background : array-like
        The rows that the model was fitted to; a `MultiSetLVM` has no background.
    sets : array-like of shape (n,)
        The set of each row, for a `MultiSetLVM`: rows are resampled within their set.
    groups, background_groups : array-like of shape (n,) and (m,), optional
        The replicate (donor, mouse, run) of each row: whole replicates are resampled. Without
        them rows count as independent.
    covariates, background_covariates : frames or array-like, optional
        As in `ContrastiveLVM.fit`, if the model was fitted with covariates.
    n_resamples : int
        Number of resamples.
    confidence_level : float
        Level of the intervals, each of one loading.
    n_jobs : int or None
        Number of workers as in joblib; results do not depend on it.
    random_state : int, generator or None
        Seeds the resamples.

    Returns
    -------
    Bootstrap, or BlockBootstrap for a `MultiSetLVM`
        Standard errors, intervals, and how stable signs, subspace and selected features are.
        With covariates also their effects on the target and the standard errors of these. For a
        `MultiSetLVM` the same by block and set, without selected features.

    Notes
    -----
    A resample that leaves too few distinct rows, or a feature without any observed entry, is drawn
    again. Intervals of replicates suppose that there are a dozen or more of them in each set.

    Examples
    --------
    >>> import contrastive_lvm as clvm
    >>> data = clvm.datasets.make_subgroups(random_state=0)
    >>> model = clvm.ContrastiveLVM(2, 10).fit(data.target, background=data.background)
    >>> found = clvm.bootstrap(model, data.target, background=data.background, random_state=0)
    >>> found.target_components_std.shape, bool((found.low < found.high).all())
    ((2, 30), True)
    """
    n_resamples = check_integer("n_resamples", n_resamples, 2)
    level = _check_level(confidence_level, n_resamples)
    seeds, options = seed_sequence(random_state), _Options(n_resamples, n_jobs)
    if scaling_of(model) is not None:
        X = read_rows(model, X)
        background = None if background is None else read_rows(model, background, name="background")
        model = without_preparation(model)
    if isinstance(model, MultiSetLVM):
        refuse_background(background, background_groups, background_covariates)
        study = _study_of_sets(model, X, sets, groups, covariates, options)
        return _of_blocks(study, seeds, level, options)
    if sets is not None:
        raise InvalidParameterError("sets", "...", "is for a MultiSetLVM; give background=... .")
    known = (covariates, background_covariates)
    study = _study(model, (X, background), (groups, background_groups), known, n_resamples)
    selects = not _target_block(study).prior._treats_features_alike
    halves = options._replace(n_resamples=math.ceil(n_resamples / 2))
    drawn = (draw_halves, study, seeds, halves) if selects else (_draw, study, seeds, options)
    results = _resampled(*drawn)
    fit: Array = study.fitted.target_components_
    W = aligned(_components_of(study, results, "target"), fit)
    fewest = int(study.replicates.members().sum(axis=1).min())
    errors, half = _errors(W, fit, fewest, level)
    effects = _effect_errors(study, results, "target", fewest)
    found = Bootstrap(
        target_components=fit,
        target_components_std=errors,
        low=fit - half,
        high=fit + half,
        selection_frequency=np.mean([_selected(study, each) for each in results], axis=0),
        sign_stability=(np.sign(W) == np.sign(fit)).mean(axis=0),
        subspace_angles=_angles(W, fit),
        n_target=_in_use(W),
        stable_features=None,
        expected_false_selections=None,
        confidence_level=level,
        note="",
        covariate_effects=study.fitted.covariate_effects_,
        covariate_effects_std=effects,
    )
    return _of_selector(study, found) if selects else found


def _of_blocks(
    study: "_Study", seeds: np.random.SeedSequence, level: float, options: "_Options"
) -> BlockBootstrap:
    """Resample a model of several sets: the errors of a block are those of its smallest set."""
    results = _resampled(_draw, study, seeds, options)
    fitted, members = study.fitted, study.replicates.members().sum(axis=1)
    fewest = dict(zip(study.refit.model.sets, members.tolist(), strict=True))
    found = BlockBootstrap({}, {}, {}, {}, {}, {}, level, "", fitted.covariate_effects_)
    for name, block in zip(fitted.components_, study.refit.model.blocks, strict=True):
        fit: Array = fitted.components_[name]
        W = aligned(_components_of(study, results, name), fit)
        errors, half = _errors(W, fit, min(fewest[own] for own in block.sets), level)
        covers = block.prior._treats_features_alike
        found.components[name] = fit
        found.components_std[name] = errors if covers else None
        found.low[name] = fit - half if covers else None
        found.high[name] = fit + half if covers else None
        found.sign_stability[name] = (np.sign(W) == np.sign(fit)).mean(axis=0)
        found.subspace_angles[name] = _angles(W, fit)
    shrunk = [b for b in study.refit.model.blocks if not b.prior._treats_features_alike]
    notes = [SHRUNK.format(prior=b.prior, block=b.name, argument="prior") for b in shrunk]
    effects = {name: _effect_errors(study, results, name, n) for name, n in fewest.items()}
    known = {name: table for name, table in effects.items() if table is not None}
    return found._replace(note=" ".join(notes), covariate_effects_std=known or None)


def _errors(W: Array, fit: Array, fewest: int, level: float) -> tuple[Array, Array]:
    """Return standard errors of components, (K, D), and half the lengths of their intervals."""
    errors = np.sqrt(fewest / (fewest - 1) * ((W - fit) ** 2).mean(axis=0))
    return errors, float(student_t.ppf(0.5 + level / 2, fewest - 1)) * errors


class _Study(NamedTuple):
    """A fit, its rows ready for refits, and what is drawn."""

    fitted: Any  # ContrastiveLVM or MultiSetLVM
    refit: Refit
    replicates: Replicates


class _Options(NamedTuple):
    n_resamples: int
    n_jobs: int | None


def _check_level(confidence_level: float, n_resamples: int) -> float:
    what = "a number between 0 and 1, such as 0.9"
    level = check_positive("confidence_level", confidence_level, 1.0, what)
    if n_resamples * (1.0 - level) < 2.0 - 1e-9:
        reason = (
            f"is too few for a confidence level of {level:g}, which leaves less than one resample "
            f"outside at either end; use at least {math.ceil(2.0 / (1.0 - level) - 1e-9)}."
        )
        raise InvalidParameterError("n_resamples", n_resamples, reason)
    return level


def _study(
    model: ContrastiveLVM,
    sets: tuple[Any, Any],
    groups: tuple[Any, Any],
    covariates: tuple[Any, Any],
    n_resamples: int,
) -> _Study:
    X, background = sets
    fitted = copy(model)
    if not hasattr(model, "posterior_"):
        known = {"covariates": covariates[0], "background_covariates": covariates[1]}
        fitted = clone(model).fit(X, background=background, **known)
    fitted._prediction_model.encode(covariates[0], np.shape(X)[0])  # refuses wrong ones
    size = int(fitted.n_target_)
    given = read_input(copy(fitted), X, background, n_target=size, covariates=covariates)
    n_rows = [rows.shape[0] for rows in given.sets]
    replicates = check_replicates(groups[: len(n_rows)], n_rows)
    return _checked(fitted, given, replicates, n_resamples)


def _study_of_sets(
    model: MultiSetLVM, X: Any, sets: Any, groups: Any, covariates: Any, options: _Options
) -> _Study:
    fitted = model
    if not hasattr(model, "posterior_"):
        fitted = clone(model).fit(X, sets=sets, covariates=covariates)
    rows, given = copy(fitted)._read_input(X, sets, covariates=covariates, blocks=fitted.blocks_)
    labels = None if groups is None else replicate_labels("groups", groups, fitted.n_samples_)
    own = [None if labels is None else labels[at] for at in rows.places.values()]
    names = tuple(f"groups in set {name!r}" for name in rows.places)
    replicates = check_replicates(own, list(rows.n_rows.values()), names)
    return _checked(fitted, given, replicates, options.n_resamples)


def _checked(fitted: Any, given: FitInput, replicates: Replicates, n_resamples: int) -> _Study:
    """Return a study, unless the rows are not those of the fit."""
    closed_form_engine(given)
    posterior = fitted.posterior_
    for block in posterior.rotations:  # resamples are fitted with uncorrelated latents
        posterior = posterior.rotated(block, None)
    refit = Refit.of_fit(given, posterior, n_refits=n_resamples)
    gain = refit([np.ones(rows.shape[0]) for rows in given.sets]).lower_bound - fitted.lower_bound_
    if not abs(gain) < ANOTHER_FIT:
        reason = (
            f"is not what the model was fitted to: a refit changes the lower bound by {gain:.3g} "
            "nats; pass the rows of the fit, without weights, or a model that has not been fitted."
        )
        raise InvalidDataError("X", reason)
    return _Study(fitted, refit, replicates)


Draw = Callable[[Replicates, np.random.Generator], Sequence[tuple[Array, ...]]]


def _draw(replicates: Replicates, rng: np.random.Generator) -> list[tuple[Array, ...]]:
    return [draw_weights(replicates, rng)]


def _resampled(
    draw: Draw, study: _Study, seeds: np.random.SeedSequence, options: _Options
) -> list[Refitted]:
    """Refit the model under each of the weights that are drawn with each seed."""
    n_jobs = options.n_jobs if study.refit.can_travel else 1
    run = partial(_refits, draw, study.refit, study.replicates)
    batch = study.refit.batch
    return resample(run, options.n_resamples, seeds, batch=batch, name="bootstrap", n_jobs=n_jobs)


def _refits(
    draw: Draw, refit: Refit, replicates: Replicates, rngs: list[np.random.Generator]
) -> list[Refitted]:
    weights = [_allowed(draw, refit, replicates, rng) for rng in rngs]
    return refit.many([each for drawn in weights for each in drawn])


def _allowed(
    draw: Draw, refit: Refit, replicates: Replicates, rng: np.random.Generator
) -> Sequence[tuple[Array, ...]]:
    """Draw weights until the model can be fitted under them."""
    for _ in range(MOST_DRAWS):
        weights = draw(replicates, rng)
        if all(refit.allows(each) for each in weights):
            return weights
    kind = "groups" if replicates.labelled else "X"
    reason = (
        f"leaves too few distinct rows or observed entries to fit the model in {MOST_DRAWS} "
        "resamples in a row; use fewer dimensions, or features with more observed entries."
    )
    raise InvalidDataError(kind, reason)


def _effect_errors(
    study: _Study, results: list[Refitted], name: str, fewest: int
) -> pd.DataFrame | None:
    """Return standard errors of the effects of covariates on a set."""
    fitted, fit = study.fitted, study.refit.fit.effects
    if fitted._encoding is None or not fit:
        return None
    draws = np.array([found.effects[list(fit).index(name)] for found in results])
    squares = ((draws - fit[name]) ** 2).mean(axis=0)
    errors = np.sqrt(fewest / (fewest - 1) * squares)
    effects = fitted.covariate_effects_
    table = effects[name] if isinstance(effects, dict) else effects
    return effects_table(fitted._encoding, errors, table.columns.tolist())


def _components_of(study: _Study, results: list[Refitted], block: str) -> Array:
    """Return the components of all resamples, (B, K, D), rotated as those of the fit are."""
    method = study.fitted.posterior_.rotations.get(block)
    if method is None:
        return np.array([found.loadings[block].T for found in results])
    blocks = [found.loadings[block] for found in results]
    L = np.array([own @ ROTATIONS[method](own) for own in blocks])
    turns = signed_permutations(L, study.fitted.posterior_.loadings[block])
    return np.swapaxes(L @ turns, 1, 2)


def aligned(components: Array, fit: Array) -> Array:
    """Give resampled components, (B, K, D), the signs that agree best with a fit, (K, D).

    Examples
    --------
    >>> aligned(np.array([[[-1.0, 2.0]]]), np.array([[2.0, -3.0]]))
    array([[[ 1., -2.]]])
    """
    signs = np.where((components * fit).sum(axis=2) < 0, -1.0, 1.0)
    return np.asarray(components * signs[:, :, None])


def _angles(components: Array, fit: Array) -> Array:
    """Return principal angles between row spaces, (B, K), descending; right where a row is zero."""
    bases = [
        np.linalg.qr(np.swapaxes(rows, -1, -2))[0]
        * (np.linalg.norm(rows, axis=-1) > 0)[..., None, :]
        for rows in (components, fit)
    ]
    cosines = np.linalg.svd(np.swapaxes(bases[0], -1, -2) @ bases[1], compute_uv=False)
    return np.asarray(np.arccos(np.minimum(cosines, 1.0))[:, ::-1])


def _in_use(components: Array) -> Integers:
    """Count the rows of each of B components, (B, K, D), that are not negligible."""
    norms = np.linalg.norm(components, axis=2)
    return np.asarray((norms > UNUSED * norms.max(axis=1, initial=0.0, keepdims=True)).sum(axis=1))


def _target_block(study: _Study) -> LoadingBlock:
    return next(block for block in study.refit.model.blocks if block.name == "target")


def _selected(study: _Study, found: Refitted) -> Flags:
    """Tell which features the target's prior selects in a refit, (D,)."""
    norms = np.linalg.norm(found.loadings["target"], axis=1)
    unit = study.fitted.posterior_.unit_variance
    prior = _target_block(study).prior
    return prior._selected_features(found.states.get("target"), norms, unit)


def _most_false(n_selected: float, n_features: int, n_pairs: int) -> float:
    """Return how many stable features are expected to be false at most.

    >>> round(_most_false(8.0, 60, 50), 2), round(_most_false(7.0, 8, 50), 2)
    (0.46, 7.66)
    """
    if n_selected / n_features <= 1.0 / math.sqrt(3.0):
        factor = 4.0 * (1.0 - STABLE + 0.5 / n_pairs) / (1.0 + 1.0 / n_pairs)
    else:
        factor = 1.0 / (2.0 * STABLE - 1.0)
    return factor * n_selected**2 / n_features


def _of_selector(study: _Study, found: Bootstrap) -> Bootstrap:
    """Replace intervals by stability selection from complementary halves of the replicates."""
    frequency = found.selection_frequency
    n_pairs = len(found.subspace_angles) // 2
    bound = _most_false(float(np.sum(frequency)), len(frequency), n_pairs)
    return found._replace(
        target_components_std=None,
        low=None,
        high=None,
        stable_features=frequency >= STABLE,
        expected_false_selections=min(bound, float((frequency >= STABLE).sum())),
        note=SHRUNK.format(
            prior=_target_block(study).prior, block="target", argument="target_prior"
        ),
    )
