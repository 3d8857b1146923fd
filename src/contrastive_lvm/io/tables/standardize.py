"""Columns in units of their own spread, which both sets share."""

from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array

from contrastive_lvm.arrays import Array, Matrix
from contrastive_lvm.linalg.matrices import column_sums, is_sparse, row_slices, widen

METHODS = ("standard", "robust", "none")


class Scaling(NamedTuple):
    """What is taken from each column, and what it is then divided by."""

    method: str
    center: Array  # (d,)
    scale: Array  # (d,)

    def apply(self, values: Matrix) -> Matrix:
        """Return the values in these units; a dense array is changed in place."""
        if self.method == "none":
            return values
        if is_sparse(values):
            return csr_array(values.multiply(1.0 / self.scale)).astype(values.dtype)
        for rows in row_slices(*values.shape):
            values[rows] = (values[rows] - self.center) / self.scale
        return values

    def undo(self, values: Array, *, spread: bool = False) -> Array:
        """Return values, or standard deviations (`spread`), in the units of the data."""
        return values * self.scale + (0.0 if spread else self.center)


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
            "--scale=robust needs medians, which sparse data has at zero; use --scale standard."
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
        for rows in row_slices(*values.shape):
            squares += np.nansum((widen(values[rows]) - mean) ** 2, axis=0)
    return mean, np.sqrt(squares / count)


def _robust(sets: list[Matrix]) -> tuple[Array, Array]:
    d = sets[0].shape[1]
    found = np.zeros((3, d))
    for start in range(0, d, 64):  # few columns at a time, for memory
        columns = slice(start, start + 64)
        block = np.concatenate([np.asarray(v[:, columns], dtype=np.float64) for v in sets])
        block[:, np.isnan(block).all(axis=0)] = 0.0
        found[:, columns] = np.nanpercentile(block, (25.0, 50.0, 75.0), axis=0)
    return found[1], (found[2] - found[0]) / 1.3489795  # that of a standard normal
