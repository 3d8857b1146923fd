"""How the rows of a fit were read and scaled, so that new rows can be treated in the same way."""

from collections.abc import Sequence
from pathlib import Path
from types import UnionType
from typing import Any, NamedTuple, get_args, get_origin, get_type_hints

import numpy as np
from scipy.sparse import csr_array

from contrastive_lvm.arrays import Array, Matrix
from contrastive_lvm.io.container import ModelFileError, clause, clipped
from contrastive_lvm.io.tables.choose_rows import Choice
from contrastive_lvm.io.tables.on_disk import columns_of, is_on_disk, writable
from contrastive_lvm.io.tables.table import numbered
from contrastive_lvm.io.value_checks import array, check_values
from contrastive_lvm.linalg.matrices import blocks, column_sums, is_sparse, widen

METHODS = ("standard", "robust", "none")


class Scaling(NamedTuple):
    """The values subtracted from each column, and those by which it is then divided."""

    method: str
    center: Array  # (d,)
    scale: Array  # (d,)

    def apply(self, values: Matrix) -> Matrix:
        """Return the values in these units; a dense array, but no file, is changed in place."""
        if self.method == "none":
            return values
        if is_sparse(values):
            return csr_array(values.multiply(1.0 / self.scale)).astype(values.dtype)
        values = writable(values)
        for rows, part in blocks(values):
            values[rows] = (part - self.center) / self.scale
        return values

    def undo(self, values: Array, *, spread: bool = False) -> Array:
        """Return values, or standard deviations (`spread`), in the units of the data."""
        return values * self.scale + (0.0 if spread else self.center)


class Origin(NamedTuple):
    """The files of the two sets (None: one file has both), and the choice of their rows."""

    target: Path
    background: Path | None
    choice: Choice


class Preparation(NamedTuple):
    """How new rows are prepared for the model; model files hold it."""

    features: list[str]
    named: bool  # whether the files name their features
    scaling: Scaling
    layer: str | None = None  # of h5ad files
    sizes: str | None = None  # the column of size factors
    origin: Origin | None = None  # where the rows of the fit came from
    replicates: str | None = None  # the column that names the replicate of each row
    covariates: tuple[str, ...] = ()  # columns whose effects the model knows
    categories: tuple[str, ...] = ()  # those of them that are no numbers


def unprepared(estimator: Any) -> Preparation:
    """Return the preparation of a model that was fitted in Python to data as it was."""
    d, names = int(estimator.n_features_in_), getattr(estimator, "feature_names_in_", None)
    features = numbered(d) if names is None else [str(name) for name in names]
    unscaled = Scaling("none", np.zeros(d), np.ones(d))
    found = Preparation(features, names is not None, unscaled)
    encoding = getattr(estimator, "_encoding", None)
    if encoding is None:
        return found
    categories = [n for n, own in zip(encoding.names, encoding.levels, strict=True) if own]
    return found._replace(covariates=encoding.names, categories=tuple(categories))


def check_preparation(section: Any, source: Path) -> Preparation:
    """Return the preparation that a model file holds, or refuse it."""
    try:
        _check_types(section)
        d = len(section.features)
        check_values({"center": array(d), "scale": array(d, values="positive")}, section.scaling)
        check_method(section.scaling.method)
    except (TypeError, ValueError) as error:
        raise ModelFileError(
            f"{source} is damaged: its preparation cannot be used ({clause(error)}); fit it again."
        ) from error
    prepared: Preparation = section
    if prepared.origin is None:
        return prepared
    target, background, choice = prepared.origin
    origin = Origin(Path(target), None if background is None else Path(background), choice)
    return prepared._replace(origin=origin)


def _check_types(section: object) -> None:
    if not isinstance(section, Preparation):
        raise TypeError(f"{clipped(section)} is not a preparation")
    for name, hint in get_type_hints(Preparation).items():
        if not _is_of(getattr(section, name), hint):
            raise TypeError(f"{name}={clipped(getattr(section, name))} has another type")


def _is_of(value: object, hint: Any) -> bool:
    """Return whether a value is of an annotated type; files hold paths as text."""
    kind, options = get_origin(hint), get_args(hint)
    if hasattr(kind, "__value__"):  # NDArray is an alias since NumPy 2.5
        kind = get_origin(kind.__value__)
    if kind is UnionType:
        return value is None or _is_of(value, options[0])
    if kind in (list, tuple, Sequence):
        return isinstance(value, list | tuple) and all(_is_of(v, options[0]) for v in value)
    if hasattr(hint, "_fields"):
        fields = get_type_hints(hint).items()
        return type(value) is hint and all(_is_of(getattr(value, n), own) for n, own in fields)
    return type(value) is (str if hint is Path else kind or hint)


# Columns in units of their own spread, which both sets share


def check_method(method: str) -> str:
    """Return the method if it is a known one."""
    if method not in METHODS:
        raise ValueError(f"--scale={method} is unknown; use {', '.join(METHODS)}.")
    return method


def fit_scaling(method: str, sets: list[Matrix]) -> Scaling:
    """Find the centre and spread of each column over the rows of all sets together.

    Parameters
    ----------
    method : {"standard", "robust", "none"}
        Mean and standard deviation, or median and interquartile range (over 1.349, so that both
        agree for normal data). Sparse rows stay sparse: they are divided but not centred.
    sets : list of matrices
        With the same columns; NaN does not count.

    Returns
    -------
    Scaling
        A column that does not vary is divided by 1.

    Examples
    --------
    >>> scaling = fit_scaling("standard", [np.array([[1.0], [3.0]]), np.array([[5.0]])])
    >>> scaling.center, scaling.scale.round(3)
    (array([3.]), array([1.633]))
    """
    check_method(method)
    d = sets[0].shape[1]
    if method == "none":
        return Scaling(method, np.zeros(d), np.ones(d))
    sparse = any(is_sparse(values) for values in sets)
    if method == "robust" and sparse:
        raise ValueError(
            "--scale=robust cannot scale sparse data, whose medians are 0; use --scale standard."
        )
    center, spread = _standard(sets)
    if method == "robust":
        center, middle = _robust(sets)
        spread = np.where(middle > 0, middle, spread)
    tiny = spread <= 1e-12 * np.abs(center)
    return Scaling(method, np.zeros(d) if sparse else center, np.where(tiny, 1.0, spread))


def _standard(sets: list[Matrix]) -> tuple[Array, Array]:
    sums = [column_sums(values) for values in sets]
    count = np.maximum(sum(number for _, number in sums), 1.0)
    mean: Array = sum(total for total, _ in sums) / count
    squares = np.zeros(len(mean))
    for values in sets:
        for _, rows in blocks(values):
            squares += np.nansum((widen(rows) - mean) ** 2, axis=0)
    return mean, np.sqrt(squares / count)


def _robust(sets: list[Matrix]) -> tuple[Array, Array]:
    d = sets[0].shape[1]
    found = np.zeros((3, d))
    n, mapped = sum(len(values) for values in sets), any(map(is_on_disk, sets))
    width = min(64, max(1, (1 << 23) // n)) if mapped else 64
    for start in range(0, d, width):  # few columns at a time, for memory
        columns = slice(start, start + width)
        block = np.concatenate([columns_of(v, columns).astype(np.float64) for v in sets])
        block[:, np.isnan(block).all(axis=0)] = 0.0
        found[:, columns] = np.nanpercentile(block, (25.0, 50.0, 75.0), axis=0)
    return found[1], (found[2] - found[0]) / 1.3489795  # that of a standard normal
