"""Checks of rows and their weights: one sentence with the argument, its value and the way out."""

import warnings
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from contrastive_lvm.arrays import Array, Matrix
from contrastive_lvm.estimators.frames import first_few
from contrastive_lvm.estimators.object_arrays import RowNumbers, number_per_row
from contrastive_lvm.exceptions import InvalidDataError, InvalidParameterError
from contrastive_lvm.linalg.matrices import densify, is_sparse, row_slices
from contrastive_lvm.rows.reader import RowReader, Rows

MOST_VARIANCE = 1e240  # that of fits in which products of variances and least shares are numbers
WILD_RATIO = 1e4  # of the two sets' mean variances: one of them was probably scaled alone


def check_sample_weight(
    name: str, given: RowNumbers, n_rows: int, *, least: int = 2
) -> Array | None:
    """Return one weight per row, `least` of them positive; None where all are 1."""
    if given is None:
        return None
    weights = number_per_row(name, given, n_rows)
    wrong = ~(np.isfinite(weights) & (weights >= 0))
    if wrong.any():
        reason = (
            f"holds {weights[wrong][0]:g}, but a weight is a finite number that is not negative; "
            "give weight 0 to rows that should not count."
        )
        raise InvalidDataError(name, reason)
    positive = int((weights > 0).sum())
    if positive < least:
        reason = (
            f"is zero for all but {positive} row(s), but at least {least} must count; "
            "give more rows a positive weight."
        )
        raise InvalidDataError(name, reason)
    return None if (weights == 1.0).all() else weights


def mean_score(scores: ArrayLike, sample_weight: RowNumbers) -> float:
    """Return the mean of scores of rows, weighted where weights are given."""
    values: Array = np.asarray(scores)
    weights = check_sample_weight("sample_weight", sample_weight, len(values), least=1)
    return float(np.average(values, weights=weights))


def refuse_values(X: Matrix, name: str, *, missing: bool = True, columns: bool = False) -> None:
    """Refuse infinite values, NaN where it is not welcome, and `columns` without an entry."""
    with np.errstate(all="ignore"):
        if np.isfinite(X.sum()):
            return
    infinite, observed = False, np.zeros(X.shape[1])
    for rows in row_slices(*X.shape):
        block = X[rows].toarray() if is_sparse(X) else X[rows]
        infinite |= bool(np.isinf(block).any())
        observed += (~np.isnan(block)).sum(axis=0)
    if infinite:
        reason = "contains infinity (inf); replace it by NaN, a missing entry, or drop the row."
        raise InvalidDataError(name, reason)
    if not missing and observed.sum() < X.shape[0] * X.shape[1]:
        reason = (
            "contains NaN, which this estimator cannot handle; use ContrastiveLVM or PPCA, which "
            "marginalise missing entries, or impute first."
        )
        raise InvalidDataError(name, reason)
    if columns:
        refuse_empty_columns(observed, name)


def refuse_empty_columns(observed: Array, name: str) -> None:
    """Refuse columns whose number of observed entries is zero."""
    empty = np.flatnonzero(observed == 0)
    if len(empty):
        reason = (
            f"has no observed entry in columns {first_few(empty)}; "
            "drop these columns from both sets."
        )
        raise InvalidDataError(name, reason)


def refuse_too_many_dimensions(
    sizes: dict[str, int], sets: list[Rows], *, sized_by_data: bool = False
) -> None:
    """Refuse dimensions that leave nothing for the noise.

    Each kind alone must be fewer than the features. Without a prior that sizes itself, both
    together must be at most as many as the features, and fewer than the rows less one for each
    mean; otherwise the noise variance has no maximum-likelihood value.
    """
    rows = sum(X.shape[0] - 1 for X in sets)
    features, total = sets[0].shape[1], sum(sizes.values())
    largest = max(sizes, key=lambda name: sizes[name])
    if sizes[largest] >= features:
        reason = f"is too large for {features} feature(s)"
    elif total > features and not sized_by_data:
        reason = f"is too large: the model has {total} dimensions in all for {features} feature(s)"
    elif total >= rows and not sized_by_data:
        reason = (
            f"is too large: the model has {total} dimensions in all, which must be fewer than "
            f"{rows}, the number of rows less one for each mean"
        )
    else:
        return
    end = "nothing is left for the noise; use fewer dimensions."
    raise InvalidParameterError(largest, sizes[largest], f"{reason}, so {end}")


def check_variances(variance: Array, means: Sequence[Array], of_sets: Sequence[float] = ()) -> None:
    """Refuse data that never varies or that overflows, as neither has a likelihood.

    Mean variances of two sets (`of_sets`) that differ as if a pipeline had scaled X but not the
    background give a warning.
    """
    mean = max(np.abs(mean).max() for mean in means)
    if not (variance < MOST_VARIANCE).all():
        raise ValueError(
            "The rows hold values whose squares overflow; divide all sets by a constant."
        )
    small = not (variance > 1.0 / MOST_VARIANCE).any()
    if small and (variance.any() or 0 < mean < MOST_VARIANCE**-0.5):
        raise ValueError(
            "The rows hold values whose squares vanish; multiply all sets by a constant."
        )
    if not (variance > (1e-12 * mean) ** 2).any():
        raise ValueError(
            "The rows do not vary: every column is constant; "
            "check that the right columns were selected."
        )
    if len(of_sets) == 2 and min(of_sets) > 0 and max(of_sets) > WILD_RATIO * min(of_sets):
        warnings.warn(
            "The variances of the target and the background differ by a factor of "
            f"{of_sets[0] / of_sets[1]:.1g}; if a pipeline scales X, let it scale the background "
            'too with transform_input=["background"].',
            UserWarning,
            stacklevel=4,
        )


def warn_about_equal_sets(target: Rows, background: Rows) -> None:
    """Warn when both sets hold the same rows, in the same order."""
    if isinstance(target, RowReader) or isinstance(background, RowReader):
        return
    if target.shape == background.shape and _equal(target, background):
        warnings.warn(
            "X and background hold the same rows, so the target has nothing of its own; pass the "
            "rows that X is to be compared with as background.",
            UserWarning,
            stacklevel=5,
        )


def _equal(one: Matrix, other: Matrix) -> bool:
    """Whether rows are equal, a block at a time, until the first block that differs."""
    return one is other or all(
        np.array_equal(densify(one[rows]), densify(other[rows]), equal_nan=True)
        for rows in row_slices(*one.shape)
    )
