"""Rows that users pass in, read and checked: in memory, or out of core, a chunk at a time.

Each error is one sentence with the argument, its value and the way out.
"""

import inspect
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted, validate_data

from contrastive_lvm.arrays import Array, Matrix, NamedRows, unnamed
from contrastive_lvm.estimators.frames import (
    RowNumbers,
    as_array,
    first_few,
    floats_of,
    is_frame,
    number_per_row,
    refuse_shape,
    values_of_frame,
)
from contrastive_lvm.estimators.units import to_model_units, with_own_columns
from contrastive_lvm.exceptions import InvalidDataError, InvalidParameterError
from contrastive_lvm.likelihoods.base import Likelihood
from contrastive_lvm.linalg.matrices import is_sparse, row_slices, widen
from contrastive_lvm.linalg.sparse_format import as_csr
from contrastive_lvm.rows.reader import (
    Checks,
    RowReader,
    Rows,
    is_out_of_core,
    open_rows,
)

if TYPE_CHECKING:
    from contrastive_lvm.estimators.base_estimator import Estimator

FLOATS = (np.float64, np.float32)
Method = TypeVar("Method", bound=Callable[..., Any])
MOST_VARIANCE = 1e240  # that of fits in which products of variances and least shares are numbers
ROW_OPTIONS = (
    "size_factors",
    "sets",
    "covariates",
)  # arguments of methods with a value for each row
WILD_RATIO = 1e4  # of the mean variances of two sets, of which only one was probably scaled


def read_rows(estimator: "Estimator", X: Any, *, name: str = "X", missing: bool = True) -> Matrix:
    """Read rows for a fitted model into float32, float64 or CSR, in its units."""
    prepared = "preparation_" in vars(estimator)
    X = with_own_columns(estimator, X) if prepared else X
    rows = as_rows(X, name)
    check_features(estimator, X, rows, name)
    refuse_values(rows, name, missing=missing)
    return to_model_units(estimator, rows) if prepared else rows


def as_rows(X: Any, name: str) -> Matrix:
    """Return rows of any kind as an array or a CSR matrix of floats; missing entries are NaN."""
    values: Any = X.values if isinstance(X, NamedRows) else X
    if type(values) is np.ndarray and values.dtype in FLOATS and values.ndim == 2 and values.size:
        return cast("Matrix", values)
    if is_frame(values):
        values = values_of_frame(values, name)
    elif not is_sparse(values):
        values = as_array(values, name)
    refuse_shape(values, name)
    return as_csr(values, name) if is_sparse(values) else floats_of(values, name)


def rows_for_fit(estimator: "Estimator", X: Any, *, name: str = "X", missing: bool = True) -> Rows:
    """Read rows of a fit; those out of core are checked when they are read."""
    vars(estimator).pop("preparation_", None)  # that of an earlier fit
    if type(X) is not np.ndarray and is_out_of_core(unnamed(X)):
        rows: Rows = open_input(estimator, X, name, missing=missing, reset=True)
    else:
        rows = as_rows(X, name)
        check_features(estimator, X, rows, name, reset=True)
        refuse_values(rows, name, missing=missing, columns=True)
    if rows.shape[0] < 2:
        reason = f"has {rows.shape[0]} sample (row), but fitting needs at least 2; add rows."
        raise InvalidDataError(name, reason)
    return rows


def check_features(
    estimator: "Estimator", X: Any, rows: Rows, name: str, *, reset: bool = False
) -> None:
    """Remember the features of X in a fit, or compare features with those of the fit."""
    own = vars(estimator)
    if type(X) is np.ndarray and name != "background":  # an array has no names
        if reset:
            own.pop("feature_names_in_", None)
            own["n_features_in_"] = rows.shape[1]
        if "feature_names_in_" not in own and own["n_features_in_"] == rows.shape[1]:
            return
    columns = X.names if isinstance(X, NamedRows) else getattr(X, "columns", None)
    header = rows if columns is None else pd.DataFrame(columns=pd.Index(columns))
    if name != "background":
        validate_data(estimator, header, reset=reset, skip_check_array=True)
        return
    names = [name for name in getattr(header, "columns", []) if isinstance(name, str)]
    known = list(getattr(estimator, "feature_names_in_", names))
    if names and set(known) != set(names):
        only_x, only_background = set(known) - set(names), set(names) - set(known)
        raise ValueError(
            f"X and background have different feature names: only X has {first_few(only_x)}, "
            f"only background has {first_few(only_background)}; give both the same columns."
        )
    if names and known != names:
        reason = "has the features of X in another order; pass background[X.columns]."
        raise InvalidDataError(name, reason)
    if rows.shape[1] != estimator.n_features_in_:
        n, m = rows.shape[1], estimator.n_features_in_
        reason = f"has {n} features, but X has {m}; give both sets the same columns."
        raise InvalidDataError(name, reason)


def open_input(
    estimator: "Estimator", X: Any, name: str, *, missing: bool = True, reset: bool = False
) -> RowReader:
    """Open rows out of core, which are checked when they are read."""
    values = partial(refuse_values, name=name, missing=missing)
    checks = Checks(values, partial(refuse_empty_columns, name=name))
    rows = open_rows(unnamed(X), name, checks)
    check_features(estimator, X, rows, name, reset=reset)
    return rows


def check_latents(T: ArrayLike, n_columns: int) -> Array:
    """Return latents with one column per dimension."""
    latents = widen(as_rows(T, "T"))
    if latents.shape[1] != n_columns or not np.isfinite(latents).all():
        reason = (
            f"has shape {latents.shape}, but needs finite numbers in one column for each of the "
            f"{n_columns} target dimensions; pass what transform returns."
        )
        raise InvalidDataError("T", reason)
    return latents


def refuse_background_as_y(X: Any, y: Any) -> None:
    """Refuse a background that was passed as the second argument, which is `y` and ignored."""
    shape, columns = getattr(y, "shape", ()), getattr(X, "shape", ())[1:]
    if len(shape) == 2 and shape[1:] == columns:
        reason = (
            f"has shape {tuple(shape)} and would be ignored, although it looks like a background; "
            "pass background=..., or leave y out."
        )
        raise InvalidDataError("y", reason)


def by_chunks(method: Method) -> Method:
    """Decorate a method of rows so that it is applied to each chunk of rows out of core.

    The results are in memory for rows in files, and lazy for Dask arrays.
    """

    @wraps(method)
    def mapped(self: "Estimator", X: Any, **options: Any) -> Any:
        if type(X) is np.ndarray or not is_out_of_core(unnamed(X)):
            return method(self, X, **options)
        check_is_fitted(self)
        rows = open_input(self, X, "X")
        options |= self._check_row_options(rows.shape[0], options)
        return rows.map(partial(_applied, self._without_rows(), method.__name__, options))

    return cast("Method", mapped)


def _applied(
    estimator: "Estimator", name: str, options: dict[str, Any], chunk: Matrix, rows: slice
) -> Any:
    """Apply a method to a chunk, whose rows are at the given places."""
    own = {n: options[n][rows] for n in ROW_OPTIONS if options.get(n) is not None}
    options = {**options, **own}
    bare = inspect.unwrap(getattr(type(estimator), name))  # frames, if any, are made at the end
    return bare(estimator, chunk, **options)


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
            f"contains {weights[wrong][0]:g}, but a weight must be finite and not negative; "
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
    """Refuse infinite values, NaN unless it may be `missing`, and empty `columns` if asked for."""
    by_blas = not is_sparse(X) and (X.flags.c_contiguous or X.flags.f_contiguous)
    with np.errstate(all="ignore"):  # a sum by BLAS takes half the time
        total = (np.ones(X.shape[0], X.dtype) @ X).sum() if by_blas else X.sum()
    if np.isfinite(total):
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
            "drop these columns from all sets."
        )
        raise InvalidDataError(name, reason)


def refuse_unsupported(likelihood: Likelihood, name: str, rows: Matrix) -> None:
    """Refuse values for which a likelihood has no density."""
    reason = likelihood._unsupported_reason(rows)
    if reason is not None:
        raise InvalidDataError(name, f"contains {reason}.")


def refuse_too_many_dimensions(
    sizes: dict[str, int], sets: list[Rows], *, sized_by_data: bool = False, n_effects: int = 0
) -> None:
    """Refuse dimensions that leave nothing for the noise.

    Each kind alone must be fewer than the features. Without a prior that sizes itself, both
    together must be at most as many as the features, and fewer than the rows less one for each
    mean and each effect of a covariate; otherwise the noise variance has no maximum-likelihood
    value.
    """
    rows = sum(X.shape[0] - 1 for X in sets) - n_effects
    features, total = sets[0].shape[1], sum(sizes.values())
    largest = max(sizes, key=lambda name: sizes[name])
    if sizes[largest] >= features:
        reason = f"is too large for {features} feature(s)"
    elif total > features and not sized_by_data:
        reason = f"is too large: the model has {total} dimensions in all for {features} feature(s)"
    elif total >= rows and not sized_by_data:
        reason = (
            f"is too large: the model has {total} dimensions in all, which must be fewer than "
            f"{rows}, the number of rows minus one for each mean{' and effect' * bool(n_effects)}"
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
            "The rows contain values whose squares overflow; divide all sets by a constant."
        )
    small = not (variance > 1.0 / MOST_VARIANCE).any()
    if small and (variance.any() or 0 < mean < MOST_VARIANCE**-0.5):
        raise ValueError(
            "The rows contain values whose squares vanish; multiply all sets by a constant."
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
    """Warn when both sets hold the same rows, in any order."""
    if isinstance(target, RowReader) or isinstance(background, RowReader):
        return
    if target.shape == background.shape and _equal(target, background):
        warnings.warn(
            "X and background contain the same rows, so the target has no structure of its own; "
            "pass other rows as background.",
            UserWarning,
            stacklevel=5,
        )


def _equal(one: Matrix, other: Matrix) -> bool:
    """Compare the rows of two sets of one shape, a block at a time; only equal ones take long."""
    if one is other:
        return True
    first, second = (np.sort(widen(rows[:, :1]).ravel()) for rows in (one, other))
    if not np.array_equal(first, second, equal_nan=True):
        return False
    counts = Counter(_row_bytes(one))
    counts.subtract(_row_bytes(other))
    return not any(counts.values())


def _row_bytes(rows: Matrix) -> Iterator[int]:
    """Return a number for each row, equal for equal rows whatever their precision."""
    for block in row_slices(*rows.shape):
        values = widen(rows[block]) + 0.0  # without negative zeros
        values[np.isnan(values)] = np.nan
        yield from (hash(row.tobytes()) for row in values)
