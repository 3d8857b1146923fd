"""A prior on how the means of sets differ, for predictors without a closed form.

If a feature is silent in a set, as genes that only a treatment switches on are in the background,
no row of counts can show that it does not vary. With means of its own such a set can have any
loadings at no cost, and a response of the target alone ends up in the shared columns. We do know
that target rows without a response are like background rows. So the means of set s are

    mean_s = common + c_s + L_s delta_s + r_s,    r_sd ~ N(0, scale^2),

where `L_s` has the columns that s uses and some other set does not: their latents have a place of
their own in each set, `delta_s`. `c_s` is one number, for the unit of the size factors, and zero
for features without. `common`, `c_s` and `delta_s` are free, and found by least squares. Given them
the prior is one more row of each set, with the latents `-delta_s` and weights `1 / scale^2`.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from contrastive_lvm.arrays import LOG_2PI, TINY, Array, Statistics
from contrastive_lvm.linalg import packed
from contrastive_lvm.linalg.loadings import Columns, Loadings

SCALE = 0.1  # in units of the predictor; docs/counts.md compares others


class TiedMeans(NamedTuple):
    """The prior means of the sets' means."""

    centers: Array  # (S, D) common + c_s
    places: Array  # (S, K) delta_s, zero in columns that all sets use
    precision: Array  # (D,)

    def row(self, i: int, mean: Array, columns: Columns, n_covariates: int = 0) -> Statistics:
        """Return the statistics of the row by which the prior enters the i-th set.

        Its covariates are zero.
        """
        h, none = np.append(-self.places[i][columns], np.zeros(n_covariates)), np.zeros(len(mean))
        weighted = self.precision * (self.centers[i] - mean)
        pairs = packed.pack(np.outer(h, h))
        return Statistics(
            moment=pairs * self.precision,
            first=h[:, None] * self.precision,
            cross=weighted[:, None] * h,
            residual=weighted,
            square=none,
            weight=self.precision,
            entries=none,
            latent=np.zeros(len(columns) * (len(columns) + 1) // 2),
            n_rows=0.0,
            bound=0.0,
        )

    def log_densities(self, means: Sequence[Array], loadings: Loadings) -> Array:
        """Return the expected log density of the means of each feature, (D,)."""
        residuals = np.stack(means) - self.centers - self.places @ loadings.mean.T
        squares = (residuals**2).sum(axis=0)
        if loadings.cov is not None:
            squares += loadings.cov.inner(packed.pack(self.places.T @ self.places))
        freedom = len(self.places) - 1
        squares = self.precision * squares + freedom * (LOG_2PI - np.log(self.precision))
        return np.asarray(-0.5 * squares)


def prior_precision(unit: Array) -> Array:
    """Return the precision of a set's means about their centers, (D,)."""
    precision: Array = 1.0 / (SCALE * unit) ** 2
    return precision


def tied_means(
    means: Sequence[Array],
    loadings: Loadings,
    active: Sequence[Columns],
    unit: Array,
    sized: np.ndarray,
    weights: Array | None = None,
) -> TiedMeans:
    """Return centers and places of latents for which the means are likeliest.

    That is a regression of the means on loadings and sizes, of which `common` is eliminated:
    `sum_s w_sd (mean_sd - common_d - x_d' b_s)^2` leaves weights `w_sd [s = t] - w_sd w_td / sum w`
    of the pairs of sets. The uncertainty of loadings adds `delta_s' C_d delta_s` times the prior's
    precision. Weights (S, D) other than that are those of means that have their own uncertainty.
    """
    S, K = len(means), loadings.mean.shape[1]
    precision = prior_precision(unit)
    uses = np.zeros((S, K + 1), dtype=bool)
    for i, columns in enumerate(active):
        uses[i, columns] = True
    uses &= ~uses.all(axis=0)
    uses[:, K] = sized.any()
    design, given = np.column_stack([loadings.mean, sized]), np.stack(means)
    w = np.broadcast_to(precision, given.shape) if weights is None else weights
    total = np.maximum(w.sum(axis=0), TINY)
    share, uncertainty = w / total, np.zeros((K + 1, K + 1))
    if loadings.cov is not None:
        uncertainty[:K, :K] = loadings.cov.weighted_sum(precision)
    normal = np.empty((S, K + 1, S, K + 1))
    for s in range(S):
        for t in range(S):
            pair = w[s] * (float(s == t) - share[t])
            normal[s, :, t] = (design.T * pair) @ design + float(s == t) * uncertainty
    pull = (w * (given - (share * given).sum(axis=0))) @ design
    at = np.flatnonzero(uses)
    matrix, side = normal.reshape(S * (K + 1), -1)[np.ix_(at, at)], pull.ravel()[at]
    found = np.zeros((S, K + 1))
    if np.isfinite(matrix).all() and np.isfinite(side).all():  # else the bound is not finite
        found[uses] = np.linalg.lstsq(matrix, side, rcond=None)[0]
    common = (share * (given - found @ design.T)).sum(axis=0)
    places, shifts = found[:, :K], found[:, K:]
    return TiedMeans(common + shifts * sized, places, precision)
