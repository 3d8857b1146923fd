"""Whether the target has structure of its own, and how many dimensions of it are real."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import clone

from contrastive_lvm.arrays import Array, Matrix
from contrastive_lvm.checks import check_integer
from contrastive_lvm.estimators import parse_params
from contrastive_lvm.estimators.contrastive_lvm import ContrastiveLVM
from contrastive_lvm.estimators.covariates import Given, encode_sets
from contrastive_lvm.estimators.input_rows import check_variances, rows_for_fit
from contrastive_lvm.estimators.linear_fit import refuse_unsupported
from contrastive_lvm.estimators.prediction_model import sizes_of_sets
from contrastive_lvm.exceptions import InvalidDataError, InvalidParameterError
from contrastive_lvm.likelihoods.base import Likelihood
from contrastive_lvm.linalg.matrices import is_sparse
from contrastive_lvm.resampling.contrast_statistic import (
    UnitMoments,
    contrast_direction,
    excess_variances,
    without_direction,
)
from contrastive_lvm.resampling.covariate_residuals import design_basis, independent_rows
from contrastive_lvm.resampling.exchangeable_rows import WhitenedRows, exchangeable_rows
from contrastive_lvm.resampling.parallel import seed_sequence
from contrastive_lvm.resampling.replicates import Replicates, check_replicates
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
    background: Any,
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

    Parameters
    ----------
    X : array-like of shape (n, d)
        The target set; NaN is a missing entry. Missing entries are drawn from their distribution
        under the null hypothesis.
    background : array-like of shape (m, d)
        The background set.
    model : estimator or None
        A `ContrastiveLVM` whose likelihood the test is for; None is Gaussian noise. Its numbers of
        dimensions are not used, since a model with too few shared ones would find contrast
        everywhere; the test finds the shared directions itself.
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
        Known columns, as in `fit`. Each set is regressed on its own, and the test is about the
        residuals; not for counts and binary data, and not with replicates.
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
    names = ContrastiveLVM() if model is None else clone(_linear(model))
    sets = _read_sets(names, X, background)
    likelihood, sizes = _likelihood(names, sets, (size_factors, background_size_factors))
    known = _covariates(likelihood, sets, (covariates, background_covariates))
    if known is not None and (groups is not None or background_groups is not None):
        reason = (
            "cannot be given with covariates, because residuals of whole replicates are not "
            "exchangeable; leave the replicates or the covariates out."
        )
        raise InvalidDataError("groups", reason)
    replicates = check_replicates([groups, background_groups], [len(rows) for rows in sets])
    if paired and not replicates.labelled:
        reason = "needs groups and background_groups, which say what is paired."
        raise InvalidParameterError("paired", paired, reason)
    # Seeds of their own: rows drawn with the same random_state would repeat in the noise.
    of_labels, of_rows = map(np.random.default_rng, seed_sequence(random_state).spawn(2))
    kept = balanced_rows(replicates, of_rows, paired=paired)
    replicates = _some_rows(replicates, kept)
    bases = None
    if known is not None:
        bases = [design_basis(own[rows]) for own, rows in zip(known, kept, strict=True)]
        n_rows = [int(independent_rows(basis).sum()) for basis in bases]
        replicates = check_replicates([None, None], n_rows)
    labels = label_sets(replicates, n_resamples, of_labels, paired=paired)
    chosen = [own[rows] for own, rows in zip(sets, kept, strict=True)]
    sizes = [own if own is None else own[rows] for own, rows in zip(sizes, kept, strict=True)]
    matched = _matched(likelihood, chosen, sizes, of_rows)
    rows = exchangeable_rows((matched[0], matched[1]), replicates, of_rows, bases)
    n_features = sets[0].shape[1]
    method = _method(likelihood, n_features, replicates, labels, paired=paired)
    return _in_turn(rows, labels, method)


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
    """Read both sets into memory, as dense rows in double precision; remember their features."""
    given = [
        rows_for_fit(names, rows, name=name)
        for name, rows in (("X", X), ("background", background))
    ]
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
    check_variances(variances[0] + variances[1], means)
    return found[0], found[1]


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
    likelihood: Likelihood, sets: tuple[Array, Array], given: tuple[Any, Any]
) -> list[Array] | None:
    """Return the covariates of both sets, encoded."""
    arguments = ("covariates", "background_covariates")
    parts = zip(arguments, given, map(len, sets), strict=True)
    encoding, encoded = encode_sets(
        [Given(*part) for part in parts], ("X", "background"), own=False
    )
    if encoding is None:
        return None
    if not likelihood._is_on_data_scale(sets[0].shape[1]).all():
        reason = "has no test of contrast with covariates; leave them out, or use Gaussian noise."
        raise InvalidParameterError("likelihood", likelihood, reason)
    return encoded


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
