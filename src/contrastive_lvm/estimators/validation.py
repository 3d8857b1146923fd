"""Checks of parameters and values: one sentence with the argument, its value and the way out."""

import warnings
from typing import Any

import numpy as np

from contrastive_lvm.arrays import Array, Matrix
from contrastive_lvm.estimators.frames import first_few
from contrastive_lvm.linalg.matrices import is_sparse, row_slices

WILD_RATIO = 1e4  # of the two sets' mean variances: one of them was probably scaled alone


def check_sample_weight(name: str, given: Any, n_rows: int) -> Array | None:
    """Return one weight per row; None where all are 1."""
    if given is None:
        return None
    try:
        weights: Array = np.asarray(given, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise TypeError(f"{name}={given!r} must be one number per row.") from error
    if weights.shape != (n_rows,):
        raise ValueError(
            f"{name} has shape {weights.shape}, but there are {n_rows} rows; "
            "give one number per row."
        )
    wrong = ~(np.isfinite(weights) & (weights >= 0))
    if wrong.any():
        raise ValueError(
            f"{name} holds {weights[wrong][0]:g}, but a weight is a finite number that is not "
            "negative; give weight 0 to rows that should not count."
        )
    if (weights > 0).sum() < 2:
        raise ValueError(
            f"{name} is zero for all but {(weights > 0).sum()} row(s), but fitting needs at least "
            "2; give more rows a positive weight."
        )
    return None if (weights == 1.0).all() else weights


def refuse_values(X: Matrix, name: str, *, missing: bool = True) -> bool:
    """Refuse infinite values, and NaN where it is not welcome; return whether there is NaN."""
    with np.errstate(all="ignore"):
        if np.isfinite(X.sum()):
            return False
    infinite = has_nan = False
    for values in [X.data] if is_sparse(X) else (X[rows] for rows in row_slices(*X.shape)):
        infinite |= bool(np.isinf(values).any())
        has_nan |= bool(np.isnan(values).any())
    if infinite:
        raise ValueError(
            f"{name} contains infinity (inf); replace it by NaN, a missing entry, or drop the row."
        )
    if has_nan and not missing:
        raise ValueError(
            f"{name} contains NaN, which this estimator cannot handle; "
            "use ContrastiveLVM or PPCA, which marginalise missing entries, or impute first."
        )
    return has_nan


def refuse_few_rows(n_rows: int, name: str) -> None:
    """Refuse fewer than the two rows that a variance needs."""
    if n_rows < 2:
        raise ValueError(
            f"{name} has {n_rows} sample (row), but fitting needs at least 2; add rows to {name}."
        )


def refuse_empty_columns(observed: Any, name: str) -> None:
    """Refuse columns whose number of observed entries is zero."""
    empty = np.flatnonzero(np.asarray(observed) == 0)
    if len(empty):
        raise ValueError(
            f"{name} has no observed entry in columns {first_few(empty)}; "
            "drop these columns from both sets."
        )


def observed_columns(X: Matrix) -> np.ndarray:
    """Return which columns have an observed entry, (D,) bool."""
    observed = np.zeros(X.shape[1], dtype=bool)
    for rows in row_slices(*X.shape):
        block = X[rows].toarray() if is_sparse(X) else X[rows]
        observed |= ~np.isnan(block).all(axis=0)
        if observed.all():
            break
    return observed


def refuse_too_many_dimensions(
    sizes: dict[str, int], sets: list[Matrix], *, sized_by_data: bool = False
) -> None:
    """Refuse dimensions that leave nothing for the noise.

    Each kind alone must be fewer than the features. Without a prior that sizes itself, both
    together must be at most as many as the features, and fewer than the rows less one for each
    mean; otherwise the noise variance has no maximum-likelihood value.
    """
    rows = sum(X.shape[0] - 1 for X in sets)
    features, total = sets[0].shape[1], sum(sizes.values())
    named = " and ".join(f"{name}={size}" for name, size in sizes.items())
    together = "" if sized_by_data else ", and together at most as many"
    if max(sizes.values()) >= features or (total > features and not sized_by_data):
        raise ValueError(
            f"{named} is too large for {features} feature(s): each must be fewer{together}, or "
            "nothing is left for the noise; use fewer dimensions."
        )
    if total >= rows and not sized_by_data:
        raise ValueError(
            f"{named} must be fewer in all than {rows}, the rows less one for each mean, or "
            "nothing is left for the noise; use fewer dimensions or more rows."
        )


def refuse_constant(variance: Any, mean: Any) -> None:
    """Refuse data that never varies or that overflows: neither has a likelihood."""
    if not np.isfinite(variance).all():
        raise ValueError(
            "X or background holds values whose squares overflow; divide both sets by a constant."
        )
    if not (variance > (1e-12 * np.abs(mean)) ** 2).any():
        raise ValueError(
            "X and background do not vary: every column is constant; "
            "check that the right columns were selected."
        )


def warn_about_scales(target_variance: float, background_variance: float) -> None:
    """Warn when the sets' variances differ as if a pipeline had scaled X but not the background."""
    if background_variance > 0 and target_variance > 0:
        ratio = target_variance / background_variance
        if not 1 / WILD_RATIO < ratio < WILD_RATIO:
            warnings.warn(
                f"The variances of X and background differ by a factor of {ratio:.1g}; if a "
                "pipeline scales X, let it scale the background too with "
                'transform_input=["background"].',
                UserWarning,
                stacklevel=3,
            )
