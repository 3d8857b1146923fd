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
from typing import Any, NamedTuple, overload

import numpy as np
import pandas as pd
from scipy.stats import t as student_t

from contrastive_lvm.arrays import Array, Covariates, RowLabels
from contrastive_lvm.checks import Seed, check_integer, check_positive
from contrastive_lvm.estimators.contrastive_lvm import ContrastiveLVM
from contrastive_lvm.estimators.covariates import effects_table
from contrastive_lvm.estimators.input_rows import read_rows
from contrastive_lvm.estimators.multi_set_lvm import MultiSetLVM
from contrastive_lvm.estimators.units import scaling_of, without_preparation
from contrastive_lvm.exceptions import InvalidParameterError
from contrastive_lvm.model import LoadingBlock
from contrastive_lvm.resampling.compared_rows import refuse_background
from contrastive_lvm.resampling.parallel import seed_sequence
from contrastive_lvm.resampling.refit import Refitted
from contrastive_lvm.resampling.replicates import Flags, Integers, draw_halves
from contrastive_lvm.resampling.resampled_fit import (
    ResampledFit,
    draw_resample,
    of_several_sets,
    of_two_sets,
)

STABLE = 0.9  # share of the halves in which a stable feature is selected
UNUSED = 1e-3  # of the largest norm: columns without support have less
SHRUNK = (
    "No intervals: {prior!r} shrinks the {block} loadings, and intervals around shrunk loadings "
    "have not been shown to cover; use {argument}=None for intervals."
)


class Bootstrap(NamedTuple):
    """Results of refits to resampled rows; components are rows, as in `target_components_`."""

    target_components: Array  # (n_target, D) loadings of the fit
    target_components_std: Array | None  # (n_target, D) standard errors
    low: Array | None  # (n_target, D) lower ends of the intervals
    high: Array | None  # (n_target, D) upper ends of the intervals
    selection_frequency: Array  # (D,) share of resamples in which a feature is selected
    sign_stability: Array  # (n_target, D) share of resamples in which a loading keeps its sign
    subspace_angles: Array  # (B, n_target) angles of resamples to the fit, in radians, descending
    n_target: Integers  # (B,) target dimensions in use in each resample
    stable_features: Flags | None  # (D,) which are stable, under a prior that selects features
    expected_false_selections: float | None  # upper bound for the number of false stable features
    confidence_level: float  # level of the intervals
    note: str  # why numbers are left out, or how to read them; empty otherwise
    covariate_effects: pd.DataFrame | None = None  # effects on the target in the fit
    covariate_effects_std: pd.DataFrame | None = None  # their standard errors


class BlockBootstrap(NamedTuple):
    """Results of refits of several sets to resampled rows, by block, as in `components_`.

    Examples
    --------
    >>> import contrastive_lvm as clvm
    >>> data = clvm.datasets.make_multi_set({"a+b": 2, "a": 1}, n_features=6, random_state=0)
    >>> model = clvm.MultiSetLVM({"both": 2, "a": clvm.Block(1, sets=["a"])})
    >>> model = model.fit(data.rows, sets=data.sets)
    >>> found = clvm.bootstrap(model, data.rows, sets=data.sets, n_resamples=20, random_state=0)
    >>> found.components_std["a"].shape
    (1, 6)
    """

    components: dict[str, Array]  # (n, D) loadings of the fit
    components_std: dict[str, Array | None]  # (n, D) standard errors; None under shrinking priors
    low: dict[str, Array | None]  # (n, D) lower ends of the intervals
    high: dict[str, Array | None]  # (n, D) upper ends of the intervals
    sign_stability: dict[str, Array]  # (n, D) share of resamples in which a loading keeps its sign
    subspace_angles: dict[str, Array]  # (B, n) angles to the fit, in radians, descending
    confidence_level: float  # level of the intervals
    note: str  # why numbers are left out; empty otherwise
    covariate_effects: dict[str, pd.DataFrame] | None = None  # by set: effects in the fit
    covariate_effects_std: dict[str, pd.DataFrame] | None = None  # their standard errors


@overload
def bootstrap(
    model: ContrastiveLVM,
    X: Any,
    *,
    background: Any = ...,
    groups: RowLabels = ...,
    background_groups: RowLabels = ...,
    covariates: Covariates = ...,
    background_covariates: Covariates = ...,
    n_resamples: int = ...,
    confidence_level: float = ...,
    n_jobs: int | None = ...,
    random_state: Seed = ...,
) -> Bootstrap: ...
@overload
def bootstrap(
    model: MultiSetLVM,
    X: Any,
    *,
    sets: RowLabels,
    groups: RowLabels = ...,
    covariates: Covariates = ...,
    n_resamples: int = ...,
    confidence_level: float = ...,
    n_jobs: int | None = ...,
    random_state: Seed = ...,
) -> BlockBootstrap: ...
def bootstrap(
    model: Any,
    X: Any,
    *,
    background: Any = None,
    sets: RowLabels = None,
    groups: RowLabels = None,
    background_groups: RowLabels = None,
    covariates: Covariates = None,
    background_covariates: Covariates = None,
    n_resamples: int = 200,
    confidence_level: float = 0.9,
    n_jobs: int | None = None,
    random_state: Seed = None,
) -> Any:
    """Estimate the uncertainty of loadings by fits to resampled rows.

    Parameters
    ----------
    model : ContrastiveLVM or MultiSetLVM
        An estimator fitted to these rows by `EM` or `VariationalBayes`. If it has not been fitted,
        a copy of it is fitted first.
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
        Standard errors and intervals, and the stability of signs, of the subspace and of selected
        features. With covariates, also their effects on the target with standard errors. For a
        `MultiSetLVM` the same by block and set, without selected features.

    Notes
    -----
    A resample with too few distinct rows, or with a feature without any observed entry, is drawn
    again. Intervals from replicates need a dozen or more replicates in each set.

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
    seeds = seed_sequence(random_state)
    if scaling_of(model) is not None:
        X = read_rows(model, X)
        background = None if background is None else read_rows(model, background, name="background")
        model = without_preparation(model)
    if isinstance(model, MultiSetLVM):
        refuse_background(background, background_groups, background_covariates)
        fit = of_several_sets(model, X, sets, groups, covariates, n_resamples)
        return _bootstrap_blocks(fit, fit.results(draw_resample, n_resamples, seeds, n_jobs), level)
    if sets is not None:
        raise InvalidParameterError("sets", "...", "is for a MultiSetLVM; give background=... .")
    known = (covariates, background_covariates)
    fit = of_two_sets(model, (X, background), (groups, background_groups), known, n_resamples)
    if _shrinks(fit.block("target")):
        halves = fit.results(draw_halves, math.ceil(n_resamples / 2), seeds, n_jobs)
        return _select_features(fit, _bootstrap_target(fit, halves, level))
    return _bootstrap_target(fit, fit.results(draw_resample, n_resamples, seeds, n_jobs), level)


def _bootstrap_target(fit: ResampledFit, results: list[Refitted], level: float) -> Bootstrap:
    """Compare refits of a model of two sets with the fit."""
    fewest = min(fit.n_replicates.values())
    found = _spread(fit, results, "target", fit.fitted.target_components_, fewest, level)
    return Bootstrap(
        target_components=found.fit,
        target_components_std=found.std,
        low=found.low,
        high=found.high,
        selection_frequency=np.mean([_selected(fit, each) for each in results], axis=0),
        sign_stability=found.sign_stability,
        subspace_angles=found.angles,
        n_target=found.n_used,
        stable_features=None,
        expected_false_selections=None,
        confidence_level=level,
        note="",
        covariate_effects=fit.fitted.covariate_effects_,
        covariate_effects_std=_effect_errors(fit, results, "target", fewest),
    )


def _bootstrap_blocks(fit: ResampledFit, results: list[Refitted], level: float) -> BlockBootstrap:
    """Compare refits of a model of several sets; a block's smallest set says how sure it is."""
    model, fitted, n_replicates = fit.refit.model, fit.fitted, fit.n_replicates
    found = {}
    for block in model.blocks:
        fewest = min(n_replicates[own] for own in block.sets)
        W = fitted.components_[block.name]
        found[block.name] = _spread(fit, results, block.name, W, fewest, level)
    shrunk = [block for block in model.blocks if _shrinks(block)]
    notes = [SHRUNK.format(prior=b.prior, block=b.name, argument="prior") for b in shrunk]
    effects = {name: _effect_errors(fit, results, name, n) for name, n in n_replicates.items()}
    known = {name: table for name, table in effects.items() if table is not None}
    return BlockBootstrap(
        components={name: own.fit for name, own in found.items()},
        components_std={name: own.std for name, own in found.items()},
        low={name: own.low for name, own in found.items()},
        high={name: own.high for name, own in found.items()},
        sign_stability={name: own.sign_stability for name, own in found.items()},
        subspace_angles={name: own.angles for name, own in found.items()},
        confidence_level=level,
        note=" ".join(notes),
        covariate_effects=fitted.covariate_effects_,
        covariate_effects_std=known or None,
    )


class _Spread(NamedTuple):
    """The variation of a block's components over resamples; no intervals under shrinking priors."""

    fit: Array  # (K, D)
    std: Array | None
    low: Array | None
    high: Array | None
    sign_stability: Array  # (K, D)
    angles: Array  # (B, K)
    n_used: Integers  # (B,) dimensions that are not negligible


def _spread(
    fit: ResampledFit, results: list[Refitted], name: str, own: Array, fewest: int, level: float
) -> _Spread:
    W = aligned(fit.components(results, name), own)
    signs, angles = (np.sign(W) == np.sign(own)).mean(axis=0), _angles(W, own)
    if _shrinks(fit.block(name)):
        return _Spread(own, None, None, None, signs, angles, _n_used(W))
    std = _standard_errors(W, own, fewest)
    half = float(student_t.ppf(0.5 + level / 2, fewest - 1)) * std
    return _Spread(own, std, own - half, own + half, signs, angles, _n_used(W))


def _standard_errors(draws: Array, fit: Array, fewest: int) -> Array:
    """Return standard errors from resamples, about the fit."""
    return np.asarray(np.sqrt(fewest / (fewest - 1) * ((draws - fit) ** 2).mean(axis=0)))


def _shrinks(block: LoadingBlock) -> bool:
    return not block.prior._treats_features_alike


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


def _effect_errors(
    fit: ResampledFit, results: list[Refitted], name: str, fewest: int
) -> pd.DataFrame | None:
    """Return standard errors of the effects of covariates on a set."""
    fitted, effects = fit.fitted, fit.refit.fit.effects
    if fitted._encoding is None or not effects:
        return None
    draws = np.array([found.effects[list(effects).index(name)] for found in results])
    known = fitted.covariate_effects_
    table = known[name] if isinstance(known, dict) else known
    errors = _standard_errors(draws, effects[name], fewest)
    return effects_table(fitted._encoding, errors, table.columns.tolist())


def aligned(components: Array, fit: Array) -> Array:
    """Flip resampled components, (B, K, D), to the signs that agree best with a fit, (K, D).

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


def _n_used(components: Array) -> Integers:
    """Count the rows of each of B components, (B, K, D), that are not negligible."""
    norms = np.linalg.norm(components, axis=2)
    return np.asarray((norms > UNUSED * norms.max(axis=1, initial=0.0, keepdims=True)).sum(axis=1))


def _selected(fit: ResampledFit, found: Refitted) -> Flags:
    """Tell which features the target's prior selects in a refit, (D,)."""
    norms = np.linalg.norm(found.loadings["target"], axis=1)
    prior, unit = fit.block("target").prior, fit.fitted.posterior_.unit_variance
    return prior._selected_features(found.states.get("target"), norms, unit)


def _most_false(n_selected: float, n_features: int, n_pairs: int) -> float:
    """Return a bound on the expected number of false stable features.

    >>> round(_most_false(8.0, 60, 50), 2), round(_most_false(7.0, 8, 50), 2)
    (0.46, 7.66)
    """
    if n_selected / n_features <= 1.0 / math.sqrt(3.0):
        factor = 4.0 * (1.0 - STABLE + 0.5 / n_pairs) / (1.0 + 1.0 / n_pairs)
    else:
        factor = 1.0 / (2.0 * STABLE - 1.0)
    return factor * n_selected**2 / n_features


def _select_features(fit: ResampledFit, found: Bootstrap) -> Bootstrap:
    """Add the features that are stable over complementary halves of the replicates."""
    frequency = found.selection_frequency
    stable, n_pairs = frequency >= STABLE, len(found.subspace_angles) // 2
    bound = _most_false(float(np.sum(frequency)), len(frequency), n_pairs)
    prior = fit.block("target").prior
    return found._replace(
        stable_features=stable,
        expected_false_selections=min(bound, float(stable.sum())),
        note=SHRUNK.format(prior=prior, block="target", argument="target_prior"),
    )
