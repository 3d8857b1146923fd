"""Test whether the target has structure of its own, and how many dimensions of it are real."""

from typing import Any, NamedTuple

import numpy as np

from contrastive_lvm.arrays import Array, Covariates, RowLabels
from contrastive_lvm.checks import Seed, check_integer
from contrastive_lvm.estimators.frames import RowNumbers
from contrastive_lvm.estimators.input_rows import read_rows
from contrastive_lvm.estimators.multi_set_lvm import MultiSetLVM
from contrastive_lvm.estimators.units import scaling_of, without_preparation
from contrastive_lvm.exceptions import InvalidParameterError
from contrastive_lvm.resampling import LEVEL
from contrastive_lvm.resampling.compared_rows import (
    ComparedRows,
    refuse_background,
    sides_of_block,
    two_sets,
)
from contrastive_lvm.resampling.contrast_statistic import (
    UnitMoments,
    combined,
    contrast_direction,
    excess_variances,
    without_direction,
)
from contrastive_lvm.resampling.covariate_residuals import independent_rows
from contrastive_lvm.resampling.exchangeable_rows import WhitenedRows, exchangeable_rows
from contrastive_lvm.resampling.parallel import seed_sequence
from contrastive_lvm.resampling.replicates import Replicates, check_replicates
from contrastive_lvm.resampling.set_labels import SetLabels, balanced_rows, label_sets


class ContrastTest(NamedTuple):
    """The result of `contrast_test`."""

    pvalue: float  # p-value of no contrast at all
    statistic: float  # contrast, relative to the 95 % quantile of the null distribution
    null_distribution: Array  # (n_resamples,) statistics of the permuted rows
    pvalues: Array  # p-value of each dimension given those before; the last is the first above 5 %
    n_target: int  # number of dimensions supported at 5 %
    method: str  # what was permuted


def contrast_test(
    X: Any,
    *,
    background: Any = None,
    sets: RowLabels = None,
    block: str | None = None,
    model: Any = None,
    groups: RowLabels = None,
    background_groups: RowLabels = None,
    paired: bool = False,
    size_factors: RowNumbers = None,
    background_size_factors: RowNumbers = None,
    covariates: Covariates = None,
    background_covariates: Covariates = None,
    n_resamples: int = 999,
    random_state: Seed = None,
) -> ContrastTest:
    """Test whether the target has structure that the background lacks.

    The null hypothesis is that both sets follow `x = S z + mean + noise` with the same loadings S;
    means and noise variances may differ between the sets, and each feature may have its own noise
    variance. Rows are made exchangeable between the sets under this hypothesis, and then the sets
    are permuted. The statistic is the largest variance of the target beyond what all rows have in
    common.

    The variance of counts depends on their mean, so the hypothesis is about their log rates. If the
    counts of a feature are larger in one set, they are thinned at random, which changes only their
    mean; the test uses `log(1 + count / size factor)` of the thinned counts. Binary entries are
    redrawn for the same purpose.

    The number of supported dimensions is found step by step: while the p-value is at most 5 %, the
    direction of the contrast is projected out of all rows, and the rest is tested again. At most
    ten dimensions are tested.

    With a `MultiSetLVM`, the test is about one `block`: whether the sets that have the block have
    structure that the sets without it lack and that no other block describes. Rows are centred by
    set, and the contributions of other blocks that only some sets have are replaced by noise.

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
        A `ContrastiveLVM`, of which the test uses only the likelihood; None means Gaussian noise.
        The test finds the shared directions itself, because a model with too few shared dimensions
        would show contrast everywhere. Or a `MultiSetLVM`, which is fitted to the rows if
        necessary; the test uses the loadings of its other blocks.
    groups, background_groups : array-like of shape (n,) and (m,), or None
        The replicate of each row. Rows of one replicate, such as a donor or a mouse, are not
        independent, so whole replicates are permuted. If the replicates of one set have more rows
        than those of the other, an equal number of their rows is drawn at random.
    paired : bool
        Whether replicates with rows in both sets swap their sets, rather than being permuted among
        replicates. Replicates with rows in one set only are then left out.
    size_factors, background_size_factors : array-like of shape (n,) and (m,), or None
        Size factors of rows of counts, as in `fit`.
    covariates, background_covariates : frames or array-like, or None
        Known columns, as in `fit`. The test then uses residuals: from a regression of each set
        alone or, with replicates or several sets, of all rows together. Not for counts and binary
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
    `docs/contrast_test.md` has measured levels and power. The test does not find contrast in a
    single feature, because it looks like noise of that feature that differs between the sets.

    Rows are read into memory, and more than 2 GB of them raise an error. Permutations run in
    parallel if `joblib.parallel_config` asks for workers; the result does not depend on their
    number.

    Examples
    --------
    >>> import contrastive_lvm as clvm
    >>> data = clvm.datasets.make_contrastive(random_state=1)
    >>> found = clvm.contrast_test(data.target, background=data.background, random_state=0)
    >>> found.pvalue, found.n_target
    (0.001, 2)
    """
    detail = ", because with fewer no p-value can be 5 % or less"
    n_resamples = check_integer("n_resamples", n_resamples, 19, detail=detail)
    if isinstance(model, MultiSetLVM):
        refuse_background(background, background_groups, background_covariates)
        if scaling_of(model) is not None:
            X, model = read_rows(model, X), without_preparation(model)
        given = sides_of_block(model, X, sets, block, groups, covariates)
    elif sets is not None or block is not None:
        reason = "needs model=MultiSetLVM(...); give background=... for two sets."
        raise InvalidParameterError("sets" if block is None else "block", block, reason)
    else:
        known = (covariates, background_covariates)
        sizes = (size_factors, background_size_factors)
        given = two_sets(model, (X, background), (groups, background_groups), sizes, known)
    replicates = check_replicates(given.groups, [len(rows) for rows in given.sides])
    if paired and not replicates.labelled:
        reason = "needs groups and background_groups, which say what is paired."
        raise InvalidParameterError("paired", paired, reason)
    # Seeds of their own: rows drawn with the same random_state would repeat in the noise.
    of_labels, of_rows = map(np.random.default_rng, seed_sequence(random_state).spawn(2))
    if replicates.labelled:
        kept = balanced_rows(replicates, of_rows, paired=paired)
        given, replicates = given.take(kept), replicates.take(kept)
    bases = given.bases(together=replicates.labelled or given.n_sets > 2)
    if bases is not None and len(bases) == 2:
        n_rows = [int(independent_rows(basis).sum()) for basis in bases]
        replicates = check_replicates([None, None], n_rows)
    labels = label_sets(replicates, n_resamples, of_labels, paired=paired)
    change = None if given.others is None else given.others.replace
    rows = exchangeable_rows(given.matched(of_rows), replicates, of_rows, bases, change)
    method = _method(given, replicates, labels, paired=paired)
    return _in_turn(rows, labels, method)


def _in_turn(rows: WhitenedRows, labels: SetLabels, method: str) -> ContrastTest:
    """Test one dimension after the other, with earlier ones projected out."""
    statistics: list[Array] = []
    pvalues: list[float] = []
    while len(pvalues) < 10 and rows.values.shape[1] - rows.n_shared >= 2:
        moments = UnitMoments(rows, labels)
        excess = excess_variances(moments, f"dimension {len(pvalues) + 1}")
        statistic, inside = combined(*excess)
        statistics.append(statistic)
        pvalues.append(_pvalue(statistic))
        if pvalues[-1] > LEVEL:
            break
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


def _method(given: ComparedRows, replicates: Replicates, labels: SetLabels, *, paired: bool) -> str:
    what = "replicates" if replicates.labelled else "rows"
    ways = len(labels.in_first)
    number = f"all {ways}" if labels.complete else f"{ways - 1} random"
    as_they_are = given.likelihood._is_on_data_scale(given.sides[0].shape[1]).all()
    how = "" if as_they_are else " whose counts or binary entries were matched at random"
    if paired:
        in_both = int(replicates.members().all(axis=0).sum())
        return f"{number} swaps of the sets within {in_both} replicates{how}"
    return f"{number} permutations of {replicates.n_replicates} {what}{how}"
