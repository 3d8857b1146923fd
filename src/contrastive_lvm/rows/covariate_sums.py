"""Complete rows with covariates, compressed: what a scatter lacks if means depend on covariates.

With rows and covariates c about the means of their set, `T_xx = sum_i x_i x_i'`, `T_xc` and `T_cc`
(weighted by the rows' weights), the residuals `r = x - M c` have

    T_rr = T_xx - M T_cx - T_xc M' + M T_cc M'        T_rc = T_xc - M T_cc

so that effects M change from sweep to sweep at a cost that does not depend on the number of rows.
Residuals about the means sum to zero for every M: the sample mean of a set stays its mean at the
mean of its covariates.
"""

from typing import NamedTuple

import numpy as np

from contrastive_lvm.arrays import Array, Floats


class CovariateSums(NamedTuple):
    """Sums of the residuals and covariates of complete rows, both about their means."""

    mean: Array  # (C,) of the covariates
    cross: Array  # (D, C) T_rc
    second: Array  # (C, C) T_cc
    effects: Array  # (D, C) M, which the residuals are without

    def less(self, change: Array) -> "CovariateSums":
        """Return the sums after a change of the effects, (D, C)."""
        return self._replace(cross=self.cross - change @ self.second, effects=self.effects + change)

    def product(self, change: Array, product: Array, V: Floats) -> Array:
        """Return `T_rr V` at changed effects from that at the present ones."""
        inner: Floats = change.T @ V  # (C, .)
        outer = self.cross.T @ V - self.second @ inner
        changed: Array = product - change @ outer - self.cross @ inner
        return changed

    def square(self, change: Array, square: Array) -> Array:
        """Return the diagonal of `T_rr` at changed effects from that at the present ones."""
        part = change @ self.second - 2.0 * self.cross
        return np.asarray(np.maximum(square + (change * part).sum(axis=1), 0.0))
