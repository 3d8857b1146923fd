"""What users hand in, checked: one sentence with the argument, its value and the way out."""

import sys
import warnings
from types import FrameType
from typing import Any

import numpy as np
from sklearn.utils.validation import check_array, validate_data

from contrastive_lvm.arrays import Matrix
from contrastive_lvm.estimators.frames import NamedRows, some, unframed, unnamed
from contrastive_lvm.exceptions import InvalidDataError, InvalidParameterError
from contrastive_lvm.linalg.matrices import column_variances, is_sparse, row_slices
from contrastive_lvm.rows.source import Source
from contrastive_lvm.rows.streamed import first_pass

FLOATS = [np.float64, np.float32]
WILD_RATIO = 1e4  # of the two sets' mean variances: one of them was probably scaled alone


def read_rows(
    estimator: Any, X: Any, *, name: str = "X", reset: bool = False, missing: bool = True
) -> Matrix:
    """Rows as float32, float64 or CSR, with features remembered (`reset`) or checked."""
    X = _unframed_rows(X, name)
    try:
        if isinstance(X, NamedRows):
            X.settle(estimator, name, reset=reset)
            rows = check_array(X.values, accept_sparse="csr", dtype=FLOATS, ensure_all_finite=False)
        else:
            rows = validate_data(
                estimator,
                X,
                reset=reset,
                accept_sparse="csr",
                dtype=FLOATS,
                ensure_all_finite=False,
            )
    except ValueError as error:
        raise _clearer(error, name) from error
    refuse_values(rows, name, missing=missing)
    return rows


def remember_features(estimator: Any, X: Any) -> None:
    """Of rows elsewhere their features, with the names they were given."""
    if isinstance(X, NamedRows):
        X.settle(estimator, "X", reset=True)
    else:
        validate_data(estimator, X, reset=True, skip_check_array=True)


def read_background(estimator: Any, background: Any, *, missing: bool = True) -> Matrix:
    """Rows of the background, which must have the features of X in the same order."""
    name = "background"
    background = _unframed_rows(background, name)
    check_same_features(estimator, background)
    try:
        rows = check_array(
            unnamed(background),
            accept_sparse="csr",
            dtype=FLOATS,
            ensure_all_finite=False,
            input_name=name,
            estimator=estimator,
        )
    except ValueError as error:
        raise _clearer(error, name) from error
    check_feature_numbers(estimator, rows)
    refuse_values(rows, name, missing=missing)
    return rows


def check_feature_numbers(estimator: Any, background: Any) -> None:
    """Rows of the background have as many features as X."""
    if background.shape[1] != estimator.n_features_in_:
        raise ValueError(
            f"background has {background.shape[1]} features, but X has "
            f"{estimator.n_features_in_}; give both sets the same columns."
        )


def _unframed_rows(X: Any, name: str) -> Any:
    """Something of two dimensions, without columns of words."""
    if X is None:
        raise ValueError(f"{name}=None is not data; give an array of rows and features.")
    shape = getattr(X, "shape", None)
    if shape is not None and len(shape) != 2:
        raise ValueError(
            f"{name} has shape {tuple(shape)}, but needs two dimensions, rows and features: "
            "Reshape your data with .reshape(1, -1) for one row or .reshape(-1, 1) for one feature."
        )
    return unframed(X, name)


def _clearer(error: ValueError, name: str) -> ValueError:
    """scikit-learn's sentence, or ours where it leaves out the argument or the way out."""
    message = str(error)
    if "could not convert" in message:
        detail = message.partition(":")[2].strip()
        return ValueError(
            f"{name} holds text that is not a number ({detail}); drop or encode such columns."
        )
    return ValueError(message)


def refuse_values(X: Matrix, name: str, *, missing: bool = True) -> None:
    """Infinite values, and NaN where it is not welcome."""
    if is_sparse(X):
        infinite, gaps = bool(np.isinf(X.data).any()), bool(np.isnan(X.data).any())
    else:
        infinite, gaps = _dense_values(X)
    if infinite:
        reason = "contains infinity (inf); replace it by NaN, a missing entry, or drop the row."
        raise InvalidDataError(name, reason)
    if gaps and not missing:
        raise ValueError(
            f"{name} contains NaN, which this estimator cannot handle; "
            "use ContrastiveLVM or PPCA, which marginalise missing entries, or impute first."
        )


def _dense_values(X: Matrix) -> tuple[bool, bool]:
    """Whether any entry is infinite, and whether any is NaN; one sum when all is well."""
    with np.errstate(all="ignore"):
        if np.isfinite(X.sum()):
            return False, False
    infinite = gaps = False
    for rows in row_slices(*X.shape):
        infinite |= bool(np.isinf(X[rows]).any())
        gaps |= bool(np.isnan(X[rows]).any())
    return infinite, gaps


def check_same_features(estimator: Any, background: Any) -> None:
    """Rows of the background have the names of X in the same order, where both have some."""
    ours, theirs = getattr(estimator, "feature_names_in_", None), _feature_names(background)
    if ours is None or theirs is None or list(ours) == theirs:
        return
    only_x, only_background = set(ours) - set(theirs), set(theirs) - set(ours)
    if only_x or only_background:
        raise ValueError(
            f"X and background have different feature names: only X has {some(only_x)}, "
            f"only background has {some(only_background)}; give both the same columns."
        )
    raise ValueError(
        "background has the features of X in another order; pass background[X.columns]."
    )


def _feature_names(frame: Any) -> list[str] | None:
    """Column names of a data frame, if they are all strings."""
    names = frame.names if isinstance(frame, NamedRows) else list(getattr(frame, "columns", []))
    return names if names and all(isinstance(name, str) for name in names) else None


def check_rows_for_fit(X: Matrix, name: str) -> None:
    """At least two rows, and an observed entry in every column."""
    refuse_few_rows(X, name)
    refuse_empty_columns(_observed_somewhere(X), name)


def refuse_few_rows(X: Any, name: str) -> None:
    """A variance needs two rows."""
    if X.shape[0] < 2:
        reason = f"has {X.shape[0]} sample (row), but fitting needs at least 2; add rows."
        raise InvalidDataError(name, reason)


def refuse_empty_columns(observed: Any, name: str) -> None:
    """Columns whose number of observed entries is zero."""
    empty = np.flatnonzero(np.asarray(observed) == 0)
    if len(empty):
        reason = (
            f"has no observed entry in columns {some(empty)}; drop these columns from both sets."
        )
        raise InvalidDataError(name, reason)


def _observed_somewhere(X: Matrix) -> np.ndarray:
    observed = np.zeros(X.shape[1], dtype=bool)
    for rows in row_slices(*X.shape):
        block = X[rows].toarray() if is_sparse(X) else X[rows]
        observed |= ~np.isnan(block).all(axis=0)
        if observed.all():
            break
    return observed


def refuse_size_factors(likelihood: Any, *given: Any) -> None:
    """Size factors without counts would be forgotten."""
    if any(factors is not None for factors in given):
        raise ValueError(
            f"size_factors were given, but {likelihood!r} has none; leave them out, or use "
            'likelihood="negative_binomial".'
        )


def refuse_sliced_background(n_rows: int, n_background: int) -> None:
    """Cross-validation slices a background as long as X by the target's folds; refuse that.

    scikit-learn slices every routed argument that has as many rows as X (a background of another
    length is passed whole), and the estimator then sees a part of the background without a trace.
    The only evidence is the caller.
    """
    if n_rows != n_background:
        return
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        if frame.f_code.co_name == "_fit_and_score" and "train" in frame.f_locals:
            raise ValueError(
                f"background has as many rows as X ({n_background} in this fold), so "
                "cross-validation slices it by the target's folds; "
                "pass a background of another length, for example background[1:]."
            )
        frame = frame.f_back


def warn_about_scales(target_variance: float, background_variance: float) -> None:
    """A pipeline that scales X but not the background leaves this trace."""
    if background_variance > 0 and target_variance > 0:
        ratio = target_variance / background_variance
        if not 1 / WILD_RATIO < ratio < WILD_RATIO:
            warnings.warn(
                "The variances of the target and the background differ by a factor of "
                f"{ratio:.1g}; if a pipeline scales X, let it scale the background too with "
                'transform_input=["background"].',
                UserWarning,
                stacklevel=3,
            )


def refuse_too_many_dimensions(
    sizes: dict[str, int], target: Matrix, background: Matrix | None, *, sized_by_data: bool = False
) -> None:
    """Dimensions must leave something for the noise.

    Each kind alone must be fewer than the features. Without a prior that sizes itself, both
    together must be at most as many as the features, and fewer than the rows less one for each
    mean; otherwise the noise variance has no maximum-likelihood value.
    """
    rows = target.shape[0] - 1 + (0 if background is None else background.shape[0] - 1)
    features, total = target.shape[1], sum(sizes.values())
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


def check_variances(sets: list[Matrix], *, scaled: bool) -> None:
    """What compression finds out by the way for closed forms; `scaled` rows have units."""
    found = [_variances(X) if isinstance(X, Source) else column_variances(X) for X in sets]
    variances = [variance for variance, _ in found]
    refuse_constant(sum(variances), max(np.abs(mean).max() for _, mean in found))
    if len(variances) == 2 and scaled:
        warn_about_scales(*(float(v.mean()) for v in variances))


def _variances(rows: Source) -> tuple[Any, Any]:
    """As `column_variances`, in the pass that also checks all values."""
    with np.errstate(over="ignore", invalid="ignore"):
        found = first_pass(rows, scatter=False)
    return found.square / np.maximum(found.counts, 1.0), found.mean


def refuse_objectionable(likelihood: Any, name: str, rows: Matrix) -> None:
    """Values that a likelihood has no density for."""
    objection = likelihood.objection(rows)
    if objection is not None:
        raise InvalidDataError(name, f"holds {objection}.")


def refuse_constant(variance: Any, mean: Any) -> None:
    """Data that never varies has no likelihood; data that overflows neither."""
    if not np.isfinite(variance).all():
        raise ValueError(
            "The rows hold values whose squares overflow; divide all sets by a constant."
        )
    if not (variance > (1e-12 * np.abs(mean)) ** 2).any():
        raise ValueError(
            "The rows do not vary: every column is constant; "
            "check that the right columns were selected."
        )
