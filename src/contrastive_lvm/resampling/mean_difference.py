"""Differences between the means of two sets, which a contrastive model leaves out.

A shift that all rows of the target share is no contrast: each set has its own mean, and loadings
say how rows differ within the target. The shift is reported separately.

Rows of one replicate are not independent. With `r` the deviations from a set's mean and n its
observed entries, `n_g` of them of replicate g, the mean of a feature has the variance `sum_g
(sum_{i in g} r_i / n)^2 / (1 - n_g / n)` (the cluster-robust variance of Liang & Zeger 1986, with
the correction of Bell & McCaffrey 2002 for replicates of unequal sizes; without replicates that of
Welch). A replicate with rows in both sets contributes the square of its effect on the difference,
so that pairs count as pairs. A variance that is the sum of squares weighted by `a_g` has `(sum
a_g)^2 / sum a_g^2 - 1` degrees of freedom, `a_g = n_g^2` where replicates vary; those of two sets
are combined as by Satterthwaite. At a level of 5 %, between 4.6 and 5.2 % of features without a
difference were rejected in 200 simulated sets of each of six kinds: rows with unequal variances,
lognormal ones, 30 % missing, 22 replicates of equal and 26 of unequal sizes, and ten pairs.
"""

from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import false_discovery_control
from scipy.stats import t as student_t

from contrastive_lvm.arrays import Array, RowLabels
from contrastive_lvm.estimators.contrastive_lvm import ContrastiveLVM
from contrastive_lvm.estimators.frames import first_few
from contrastive_lvm.estimators.input_rows import MOST_VARIANCE, check_variances, rows_for_fit
from contrastive_lvm.exceptions import InvalidDataError
from contrastive_lvm.linalg.matrices import widen
from contrastive_lvm.resampling.replicates import check_replicates
from contrastive_lvm.rows.reader import LocalRows, RowReader
from contrastive_lvm.rows.scatter import Moments, first_pass


def mean_difference(
    X: Any, *, background: Any, groups: RowLabels = None, background_groups: RowLabels = None
) -> pd.DataFrame:
    """Compare the means of the features in a target and a background.

    Parameters
    ----------
    X, background : array-like or sparse matrix of shape (n, d) and (m, d)
        The two sets; missing entries are left out.
    groups, background_groups : array-like of shape (n,) and (m,), optional
        The replicate (donor, mouse, run) of each row. Replicates with rows in both sets are pairs.

    Returns
    -------
    DataFrame
        A row for each feature: `difference`, the mean of the target minus that of the background;
        its standard error `std`; `pvalue` of no difference; and `qvalue`, the share of false
        discoveries among all features with a value as small (Benjamini & Hochberg 1995).

    Examples
    --------
    >>> import contrastive_lvm as clvm
    >>> data = clvm.datasets.make_subgroups(random_state=0)
    >>> clvm.mean_difference(data.target, background=data.background).shape
    (30, 4)
    """
    shell = ContrastiveLVM()
    given = rows_for_fit(shell, X), rows_for_fit(shell, background, name="background")
    readers = [rows if isinstance(rows, RowReader) else LocalRows(rows) for rows in given]
    replicates = check_replicates((groups, background_groups), [r.shape[0] for r in readers])
    first, second = (first_pass(reader, scatter=False) for reader in readers)
    _check_columns(first, second)
    if replicates.labelled:
        of_sets = zip(readers, (first, second), replicates.rows, strict=True)
        (part, df), (other_part, other_df) = (
            _influence(*own, replicates.n_replicates) for own in of_sets
        )
        own, other = (part**2).sum(axis=0), (other_part**2).sum(axis=0)
    else:
        df, other_df = first.counts - 1.0, second.counts - 1.0
        with np.errstate(divide="ignore", invalid="ignore"):
            own, other = (
                np.where(m.counts > 1, m.square / m.counts / (m.counts - 1.0), np.inf)
                for m in (first, second)
            )
    variance = own + other
    if replicates.in_several_sets:
        variance, degrees = ((part - other_part) ** 2).sum(axis=0), np.minimum(df, other_df)
    else:
        with np.errstate(divide="ignore", invalid="ignore"):
            degrees = variance**2 / (own**2 / df + other**2 / other_df)
    difference, std = first.mean - second.mean, np.sqrt(variance)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(difference == 0, 0.0, np.abs(difference) / std)
        p = 2.0 * student_t.sf(ratio, np.maximum(np.nan_to_num(degrees), 1e-3))
    names = getattr(shell, "feature_names_in_", [f"x{i}" for i in range(len(first.mean))])
    columns = {
        "difference": difference,
        "std": std,
        "pvalue": p,
        "qvalue": false_discovery_control(p),
    }
    return pd.DataFrame(columns, index=pd.Index(names))


def _check_columns(*sets: Moments) -> None:
    """Refuse rows that do not vary, and columns whose squares overflow or vanish."""
    variances = np.array([m.square / m.counts for m in sets])
    means = np.array([m.mean for m in sets])
    check_variances(variances.sum(axis=0), list(means))
    tiny = (variances < 1.0 / MOST_VARIANCE) & (np.abs(means) < MOST_VARIANCE**-0.5)
    vanishing = np.flatnonzero((tiny & (means != 0)).any(axis=0))
    if len(vanishing):
        reason = (
            f"and background contain values whose squares vanish in columns "
            f"{first_few(vanishing)}; multiply these columns of both sets by a constant."
        )
        raise InvalidDataError("X", reason)


def _influence(
    reader: RowReader, moments: Moments, numbers: np.ndarray, n_replicates: int
) -> tuple[Array, Array]:
    """Return what each replicate adds to the error of a set's means, (G, D), and its df, (D,)."""
    mean, counts = moments.mean, moments.counts
    parts, entries = np.zeros((n_replicates, len(mean))), np.zeros((n_replicates, len(mean)))
    for at, rows in zip(reader.slices, reader.read(), strict=True):
        residuals = widen(rows) - mean
        np.add.at(parts, numbers[at], np.nan_to_num(residuals))
        np.add.at(entries, numbers[at], ~np.isnan(residuals))
    rest = 1.0 - entries / counts
    with np.errstate(divide="ignore", invalid="ignore"):  # observed in one replicate only
        scaled = np.where(rest > 0, parts / counts / np.sqrt(rest), np.inf)
    return scaled, (entries**2).sum(axis=0) ** 2 / (entries**4).sum(axis=0) - 1.0
