"""Whether the target has structure of its own, and how many dimensions of it are real."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import clone

from contrastive_lvm.arrays import Array, Matrix
from contrastive_lvm.checks import check_integer
from contrastive_lvm.estimators import parse_params
from contrastive_lvm.estimators.contrastive_lvm import ContrastiveLVM
from contrastive_lvm.estimators.covariates import Given, check_effects, encode_sets
from contrastive_lvm.estimators.input_rows import check_variances, read_rows, rows_for_fit
from contrastive_lvm.estimators.linear_fit import refuse_unsupported
from contrastive_lvm.estimators.multi_set_lvm import MultiSetLVM
from contrastive_lvm.estimators.prediction_model import sizes_of_sets
from contrastive_lvm.estimators.units import scaling_of, without_preparation
from contrastive_lvm.exceptions import InvalidDataError, InvalidParameterError
from contrastive_lvm.likelihoods.base import Likelihood
from contrastive_lvm.linalg.matrices import is_sparse
from contrastive_lvm.resampling.block_rows import Sides, block_sides, refuse_background, two_sides
from contrastive_lvm.resampling.contrast_statistic import (
    UnitMoments,
    contrast_direction,
    excess_variances,
    without_direction,
)
from contrastive_lvm.resampling.covariate_residuals import design_basis, independent_rows
from contrastive_lvm.resampling.exchangeable_rows import WhitenedRows, exchangeable_rows
from contrastive_lvm.resampling.parallel import seed_sequence
from contrastive_lvm.resampling.replicates import Integers, Replicates, check_replicates
from contrastive_lvm.resampling.set_labels import SetLabels, balanced_rows, label_sets
from contrastive_lvm.rows.reader import RowReader

LEVEL = 0.05
MOST_DIMENSIONS = 10  # that are tested
MOST_ENTRIES = 1 << 28  # of both sets, 2 GB; the test makes several copies of them


class ContrastTest(NamedTuple):
    """What `contrast_test` found."""

    pvalue: float  # of no contrast at all
    statistic: float  # 1 is the 95 % quantile of the null distribution
    null_distribution: Array  # (n_resamples,)
    pvalues: Array  # of each dimension given those before; the last is the first above 5 %
    n_target: int  # dimensions supported at 5 %
    method: str  # what was permuted


def contrast_test(
    X: Any,
    *,
    background: Any = None,
    sets: Any = None,
    block: str | None = None,
    model: Any = None,
    groups: Any = None,
    background_groups: Any = None,
    paired: bool = False,
    size_factors: Any = None,
    background_size_factors: Any = None,
    covariates: Any = None,
    background_covariates: Any = None,
    n_resamples: int = 999,
    random_state: Any = None,
) -> ContrastTest:
    """Test whether the target has structure that the background has not.

    The null hypothesis is that both sets follow `x = S z + mean + noise` with the same loadings S;
    means and noise variances may differ between the sets, and features may have noise of their own.
    Rows are made exchangeable between the sets under this hypothesis, then sets are permuted. The
    statistic is the largest variance of the target beyond what all rows have in common.

    Counts vary with their mean, so that the hypothesis is about their log rates. Where the counts
    of a feature are larger in one set, they are thinned at random, which changes nothing but their
    mean; the test is about `log(1 + count / size factor)` of what is left. Binary entries are
    redrawn to the same end.

    The number of supported dimensions is found in turn: while the p-value is at most 5 %, the
    direction of the contrast is projected out of all rows, and what is left is tested again. At
    most ten dimensions are tested.

    With a `MultiSetLVM`, the test is of one `block`: whether the sets that have it have structure
    that the sets without it lack, and that no other block describes. Rows are centred by set, and
    what other blocks of some sets add is replaced by noise.

    Parameters
    ----------
    X : array-like of shape (n, d)
        The target set; NaN is a missing entry. Missing entries are drawn from their distribution
        under the null hypothesis.
    background : array-like of shape (m, d)
        The background set.
    sets : array-like of shape (n,), optional
        The set of each row of X, for a `MultiSetLVM`, which has no background.
    block : str, optional
        The block of a `MultiSetLVM` to test, which some sets lack.
    model : estimator or None
        A `ContrastiveLVM` whose likelihood the test is for; None is Gaussian noise. Its numbers of
        dimensions are not used, since a model with too few shared ones would find contrast
        everywhere; the test finds the shared directions itself. Or a `MultiSetLVM`, which is
        fitted to the rows if it is not; loadings of its other blocks are used.
    groups, background_groups : array-like of shape (n,) and (m,), or None
        The replicate of each row. Rows of one replicate, such as a donor or a mouse, are not
        independent, so that whole replicates are permuted. If replicates of one set have more rows
        than those of the other, as many rows are chosen at random.
    paired : bool
        Whether replicates with rows in both sets swap their sets, rather than being permuted among
        replicates. Replicates with rows in one set only are then left out.
    size_factors, background_size_factors : array-like of shape (n,) and (m,), or None
        Size factors of rows of counts, as in `fit`.
    covariates, background_covariates : frames or array-like, or None
        Known columns, as in `fit`. The test is about the residuals: of each set regressed on its
        own, or with replicates, or several sets, of all rows together. Not for counts and binary
        data.
    n_resamples : int
        Number of permutations, at least 19. If the replicates can be divided in fewer ways, all of
        them are used once.
    random_state : int, Generator, RandomState or None

    Returns
    -------
    ContrastTest
        Named tuple of `pvalue`, `statistic`, `null_distribution`, `pvalues` (one per dimension
        tested, never decreasing), `n_target` (dimensions supported at 5 %) and `method`.

    Notes
    -----
    `docs/contrast_test.md` has measured levels and power. Contrast in a single feature cannot be
    told from noise of that feature that differs between the sets, and is not found.

    Rows are read into memory, and more than 2 GB of them are refused. Permutations run
    side by side where `joblib.parallel_config` asks for workers; the result does not depend on
    their number.

    Examples
    --------
    >>> import contrastive_lvm as clvm
    >>> data = clvm.datasets.make_contrastive(random_state=0)
    >>> found = clvm.contrast_test(
    ...     data.target, background=data.background, n_resamples=99, random_state=0
    ... )
    >>> found.pvalue, found.n_target
    (0.01, 2)
    """
    detail = ", since with fewer no p-value can be 5 % or less"
    n_resamples = check_integer("n_resamples", n_resamples, 19, detail=detail)
    if isinstance(model, MultiSetLVM):
        refuse_background(background, background_groups, background_covariates)
        if scaling_of(model) is not None:
            X, model = read_rows(model, X), without_preparation(model)
        given = _sides_of_block(model, X, sets, block, groups, covariates)
    else:
        if sets is not None or block is not None:
            reason = "needs model=MultiSetLVM(...); give background=... for two sets."
            raise InvalidParameterError("sets" if block is None else "block", block, reason)
        known = (covariates, background_covariates)
        sizes = (size_factors, background_size_factors)
        given = _two_sets(model, (X, background), (groups, background_groups), sizes, known)
    pair, sides, likelihood = given.sets, given.sides, given.likelihood
    replicates = check_replicates(given.groups, [len(rows) for rows in pair])
    if paired and not replicates.labelled:
        reason = "needs groups and background_groups, which say what is paired."
        raise InvalidParameterError("paired", paired, reason)
    # Seeds of their own: rows drawn with the same random_state would repeat in the noise.
    of_labels, of_rows = map(np.random.default_rng, seed_sequence(random_state).spawn(2))
    kept = balanced_rows(replicates, of_rows, paired=paired)
    replicates = _some_rows(replicates, kept)
    bases = _bases(given, kept, together=replicates.labelled or sides.n_sets > 2)
    if bases is not None and len(bases) == 2:
        n_rows = [int(independent_rows(basis).sum()) for basis in bases]
        replicates = check_replicates([None, None], n_rows)
    labels = label_sets(replicates, n_resamples, of_labels, paired=paired)
    chosen = [own[rows] for own, rows in zip(pair, kept, strict=True)]
    logs = [own if own is None else own[rows] for own, rows in zip(given.sizes, kept, strict=True)]
    matched = _matched(likelihood, chosen, logs, of_rows)
    change = sides.change(_positions(kept, pair)) if sides.loadings.shape[1] else None
    rows = exchangeable_rows((matched[0], matched[1]), replicates, of_rows, bases, change)
    method = _method(likelihood, pair[0].shape[1], replicates, labels, paired=paired)
    return _in_turn(rows, labels, method)


class _Given(NamedTuple):
    """What is compared: rows of two sides, dense, and what belongs to them."""

    sets: tuple[Array, Array]
    sides: Sides
    likelihood: Likelihood
    groups: tuple[Any, Any]
    sizes: list[Array | None]  # logs of size factors
    covariates: Array | None  # (N, C) of the rows of both sides, encoded
    own_effects: bool  # of each set


def _two_sets(
    model: Any,
    rows: tuple[Any, Any],
    groups: tuple[Any, Any],
    sizes: tuple[Any, Any],
    covariates: tuple[Any, Any],
) -> _Given:
    names = ContrastiveLVM() if model is None else clone(_linear(model))
    if rows[1] is None:
        raise InvalidParameterError(
            "background", None, "is missing; give the rows to compare with."
        )
    sets = _read_sets(names, *rows)
    likelihood, logs = _likelihood(names, sets, sizes)
    parts = zip(("covariates", "background_covariates"), covariates, map(len, sets), strict=True)
    known = _covariates(likelihood, sets, [Given(*part) for part in parts])
    own = check_effects(names.covariate_effects)
    return _Given(sets, two_sides(sets), likelihood, groups, logs, known, own)


def _sides_of_block(
    model: MultiSetLVM, X: Any, sets: Any, block: Any, groups: Any, covariates: Any
) -> _Given:
    sides, names = block_sides(model, X, sets, block, covariates), ContrastiveLVM()
    names.likelihood = model.likelihood
    whole, order = _read(names, [("X", X)])[0], np.concatenate(sides.places)
    pair = whole[sides.places[0]], whole[sides.places[1]]
    likelihood, sizes = _likelihood(names, pair, (None, None))
    if not likelihood._is_on_data_scale(whole.shape[1]).all():
        reason = "has no test of a block; use Gaussian or Student-t noise."
        raise InvalidParameterError("likelihood", likelihood, reason)
    known = _covariates(likelihood, pair, [Given("covariates", covariates, len(order))])
    known, own = None if known is None else known[order], check_effects(model.covariate_effects)
    return _Given(pair, sides, likelihood, sides.of(groups, "groups"), sizes, known, own)


def _positions(kept: Sequence[Integers], sets: tuple[Array, Array]) -> Integers:
    """Return where the rows that are kept of either side are among those of both."""
    return np.concatenate([kept[0], len(sets[0]) + kept[1]])


def _bases(given: _Given, kept: Sequence[Integers], *, together: bool) -> list[Array] | None:
    """Return bases of what rows are regressed on: of all rows `together`, or of either side."""
    sides, known = given.sides, given.covariates
    if known is None and sides.n_sets == 2:
        return None
    rows = _positions(kept, given.sets)
    if together:
        if given.own_effects and known is not None:
            reason = (
                "is tested without replicates and for two sets only; use "
                "covariate_effects='shared', or leave the covariates or the replicates out."
            )
            raise InvalidParameterError("covariate_effects", "own", reason)
        return [design_basis(sides.design(known)[rows])]
    design = sides.design(known)[rows]
    n = len(kept[0])
    return [design_basis(design[:n]), design_basis(design[n:])]


def _some_rows(replicates: Replicates, kept: Sequence[np.ndarray]) -> Replicates:
    pairs = zip(replicates.rows, kept, strict=True)
    return replicates._replace(rows=tuple(numbers[own] for numbers, own in pairs))


def _in_turn(rows: WhitenedRows, labels: SetLabels, method: str) -> ContrastTest:
    """Test one dimension after the other, each without those before."""
    statistics: list[Array] = []
    pvalues: list[float] = []
    while len(pvalues) < MOST_DIMENSIONS and rows.values.shape[1] - rows.n_shared >= 2:
        moments = UnitMoments(rows, labels)
        excess = excess_variances(moments, f"dimension {len(pvalues) + 1}")
        statistics.append(excess.statistic())
        pvalues.append(_pvalue(statistics[-1]))
        if pvalues[-1] > LEVEL:
            break
        inside = excess.is_inside
        direction = contrast_direction(moments.observed(), rows.n_shared, inside=inside)
        rows = without_direction(rows, direction, inside=inside)
    if not pvalues:  # the shared directions leave nothing to test
        statistics, pvalues = [np.zeros(len(labels.in_first))], [1.0]
    in_order = np.maximum.accumulate(pvalues)
    first = statistics[0]
    null = first if labels.complete else first[1:]
    supported = int((in_order <= LEVEL).sum())
    return ContrastTest(pvalues[0], float(first[0]), null, in_order, supported, method)


def _pvalue(statistic: Array) -> float:
    """Return the share of divisions, the observed one included, with at least its statistic."""
    close = 1e-9 * max(1.0, abs(float(statistic[0])))
    return float((statistic >= statistic[0] - close).mean())


def _method(
    likelihood: Likelihood,
    n_features: int,
    replicates: Replicates,
    labels: SetLabels,
    *,
    paired: bool,
) -> str:
    what = "replicates" if replicates.labelled else "rows"
    ways = len(labels.in_first)
    number = f"all {ways}" if labels.complete else f"{ways - 1} random"
    as_they_are = likelihood._is_on_data_scale(n_features).all()
    how = "" if as_they_are else " whose counts or binary entries were matched at random"
    if paired:
        in_both = int(replicates.members().all(axis=0).sum())
        return f"{number} swaps of the sets within {in_both} replicates{how}"
    return f"{number} permutations of {replicates.n_replicates} {what}{how}"


def _read_sets(names: ContrastiveLVM, X: Any, background: Any) -> tuple[Array, Array]:
    first, second = _read(names, [("X", X), ("background", background)])
    return first, second


def _read(names: ContrastiveLVM, sets: Sequence[tuple[str, Any]]) -> list[Array]:
    """Read sets into memory, as dense rows in double precision; remember their features."""
    given = [rows_for_fit(names, rows, name=name) for name, rows in sets]
    n_entries = sum(rows.shape[0] * rows.shape[1] for rows in given)
    if n_entries > MOST_ENTRIES:
        reason = (
            f"and background have {n_entries:,} entries, but the test keeps all rows in memory and "
            f"takes at most {MOST_ENTRIES:,}; give rows or replicates drawn at random from both."
        )
        raise InvalidDataError("X", reason)
    found = [_dense(rows.load() if isinstance(rows, RowReader) else rows) for rows in given]
    if found[0].shape[1] < 2:
        reason = "has one feature, in which contrast cannot be told from noise; give at least two."
        raise InvalidDataError("X", reason)
    with np.errstate(over="ignore", invalid="ignore"):  # a variance is then not finite
        means = [np.nanmean(rows, axis=0) for rows in found]
        variances = [np.nanvar(rows, axis=0) for rows in found]
    check_variances(sum(variances, np.zeros(found[0].shape[1])), means)
    return found


def _dense(rows: Matrix) -> Array:
    return np.asarray(rows.toarray() if is_sparse(rows) else rows, dtype=np.float64)


def _linear(model: Any) -> ContrastiveLVM:
    if not isinstance(model, ContrastiveLVM):
        reason = "is no model with a likelihood; use a ContrastiveLVM, or leave it out."
        raise InvalidParameterError("model", model, reason)
    return model


def _likelihood(
    names: ContrastiveLVM, sets: tuple[Array, Array], sizes: tuple[Any, Any]
) -> tuple[Likelihood, list[Array | None]]:
    """Return the likelihood that the rows have, and the logs of given size factors."""
    features = getattr(names, "feature_names_in_", None)
    known = None if features is None else features.tolist()
    likelihood = parse_params.likelihood(names.likelihood)._bind(sets[0].shape[1], known)
    for name, rows in zip(("X", "background"), sets, strict=True):
        refuse_unsupported(likelihood, name, rows)
    if all(given is None for given in sizes):
        return likelihood, [None, None]
    return likelihood, list(sizes_of_sets(likelihood, list(sets), sizes)[0])


def _covariates(
    likelihood: Likelihood, sets: tuple[Array, Array], given: list[Given]
) -> Array | None:
    """Return the covariates of all rows, encoded."""
    encoding, encoded = encode_sets(given, ("X", "background")[: len(given)], own=False)
    if encoding is None:
        return None
    if not likelihood._is_on_data_scale(sets[0].shape[1]).all():
        reason = "has no test of contrast with covariates; leave them out, or use Gaussian noise."
        raise InvalidParameterError("likelihood", likelihood, reason)
    return np.vstack(encoded)


def _matched(
    likelihood: Likelihood,
    sets: list[Array],
    sizes: list[Array | None],
    rng: np.random.Generator,
) -> list[Array]:
    """Return rows whose covariances differ between the sets by noise only, without contrast.

    Means are made equal first, so that what is a function of them is equal too; size factors are
    then relative to the mean of their set.
    """
    equal = likelihood._with_equal_means(sets, rng)
    if equal is None:
        reason = "cannot be tested: it does not say how rows of other means compare."
        raise InvalidParameterError("likelihood", likelihood, reason)
    logs = sizes_of_sets(likelihood, list(equal), (None, None))[0]
    relative = [
        log if given is None else given - np.log(np.exp(given).mean())
        for log, given in zip(logs, sizes, strict=True)
    ]
    pairs = zip(equal, relative, strict=True)
    found = [_dense(likelihood._linearize(rows, own).rows) for rows, own in pairs]
    if not any(np.nanvar(rows, axis=0).any() for rows in found):
        reason = "and background have no varying feature in common once their means are equal."
        raise InvalidDataError("X", reason)
    return found
