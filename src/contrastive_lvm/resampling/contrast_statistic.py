"""The statistic of the test of contrast, for many divisions of the same rows into two sets.

Rows are whitened by the covariance of all of them, so that without contrast the second moment of
either set is the identity up to chance. With A the second moment of the first set, two numbers
measure excess variance of that set:

- *inside* the shared directions, the largest eigenvalue l of A's block, for variance so strong that
  it counts among the shared directions of all rows. The first set, with a share q of the rows, has
  the share `q l` of the variance of all rows along that direction; the number is the logarithm of
  the odds of that share, which has no upper limit;
- *outside* of them, the logarithm of `(sum_j l_j^16)^(1/16)` over the eigenvalues l, a maximum that
  also grows with the second and third of them: over the largest alone, it raised the power for two
  dimensions of half the noise variance from .28 to .30, and did not change it for one.

Most of a difference between the noise variances of the sets is removed before. For the rest, the
mean of all but the largest quarter of the eigenvalues is the noise v of the first set. Dividing by
it would cost power, since it grows with the contrast. Therefore log v is shrunk by James and
Stein's rule: with D its distance from its mean over divisions, and s^2 its variance over them, `D
(1 - 2 s^2 / D^2)_+` is subtracted. In simulations (150 + 150 rows, 20 features) that raised power
from .17 to .20 and from .62 to .70 for one dimension of half and of all the noise variance; sets
whose noise deviations differ by 4 %, too little to be seen, are called contrast in 9 % of cases.

Each is put on the scale on which its median over all divisions is 0 and its 95 % quantile is 1, and
the statistic is the greater of the outside one and 0.6 times the inside one. Strong contrast is far
above 1 inside, so that the factor leaves nearly the whole level to the outside number, which is the
more sensitive one to weak contrast. The observed division is treated like all others, so that ranks
of the statistic are uniform.

A is taken about the mean of the first set. In the observed division that mean is zero, since rows
were centred. The mean of any other R out of U replicates has the variance `(U - R) / (U - 1) / R`
of a sample without replacement, so that replicate means are stretched by one over what it leaves.
"""

import math
from functools import cached_property

import numpy as np

from contrastive_lvm.arrays import TINY, Array
from contrastive_lvm.resampling.exchangeable_rows import WhitenedRows
from contrastive_lvm.resampling.parallel import run_batches
from contrastive_lvm.resampling.replicates import Flags
from contrastive_lvm.resampling.set_labels import SetLabels
from contrastive_lvm.rows.threads import one_blas_thread

INSIDE = 0.6  # at 1, power fell from .76 to .65 where the contrast was one weak dimension
MOST_STORED = 1 << 24  # entries of the units' second moments, 128 MB
CHUNK = 1 << 22  # entries of the second moments that are formed at a time, 32 MB
SHRINKAGE = 2.0  # variances of log noise; with 1, the 9 % above would be 7 %, but power less


Measured = tuple[Array, Array, Array]


class UnitMoments:
    """Sums over units of rows, from which the second moments of every division follow.

    Parameters
    ----------
    rows : WhitenedRows
        The rows of both sets.
    labels : SetLabels
        Units and divisions.
    """

    def __init__(self, rows: WhitenedRows, labels: SetLabels) -> None:
        self.Y, self.n_shared, self.unit = rows.values, rows.n_shared, labels.unit
        self.in_first = labels.in_first
        n_units = self.in_first.shape[1]
        self.counts = np.bincount(self.unit, minlength=n_units).astype(np.float64)
        self.sums = np.zeros((n_units, self.Y.shape[1]))
        np.add.at(self.sums, self.unit, self.Y)
        n_first, n_all = (self.counts[self.in_first[0]] > 0).sum(), (self.counts > 0).sum()
        self.stretch = float(1.0 / (1.0 - (n_all - n_first) / (n_first * (n_all - 1.0))))

    def observed(self) -> Array:
        """Return the second moment of the observed first set, (R, R)."""
        own = self.Y[self.in_first[0][self.unit]]
        centred = own - own.mean(axis=0)
        return np.asarray(centred.T @ centred / len(own))

    def second_moments(self, in_first: Flags) -> Array:
        """Return second moments of the first set of other divisions, (divisions, R, R)."""
        flags = in_first.astype(np.float64)
        n = flags @ self.counts
        mean = flags @ self.sums / n[:, None]
        if self._parts is None:
            found = np.array([self._second_sum(each) for each in in_first])
        else:
            found = (flags @ self._parts).reshape(len(flags), *self.Y.shape[1:] * 2)
        found /= n[:, None, None]
        found -= self.stretch * mean[:, :, None] * mean[:, None, :]
        return found

    @cached_property
    def _parts(self) -> Array | None:
        """Return each unit's part of the second moments, (U, R R), if they are not too many."""
        n_units, r = self.sums.shape
        if n_units * r * r > MOST_STORED:
            return None
        if n_units == len(self.Y):  # every row is a unit
            parts = self.stretch * self.sums[:, :, None] * self.sums[:, None, :]
        else:
            parts = np.array([self._second_sum(own) for own in np.eye(n_units, dtype=bool)])
        return np.asarray(parts.reshape(n_units, r * r))

    @cached_property
    def _whole(self) -> Array:
        return self._second_sum(np.ones(self.in_first.shape[1], dtype=bool))

    def _second_sum(self, units: Flags) -> Array:
        """Return the second moment of some units about zero, unit means stretched, times rows."""
        chosen = units[self.unit]
        if len(self.Y) < 2 * int(chosen.sum()) < 2 * len(self.Y):  # the others are fewer
            return np.asarray(self._whole - self._second_sum(~units))
        own = self.Y[chosen]
        sums, counts = self.sums[units], np.maximum(self.counts[units], 1.0)
        more = (self.stretch - 1.0) * (sums / counts[:, None]).T @ sums
        return np.asarray(own.T @ own + more)

    def excess(self, moments: Array, n: Array) -> Measured:
        """Measure second moments of first sets of `n` rows: inside, outside, and log noise."""
        k, n_outside = self.n_shared, self.Y.shape[1] - self.n_shared
        outside = np.linalg.eigvalsh(moments[:, k:, k:])  # least first
        rank = min(n_outside, int(self.in_first[0] @ self.counts) - 1)
        noise = outside[:, : n_outside - math.ceil(rank / 4)].mean(axis=1)
        largest = np.maximum(outside[:, -1], TINY)
        relative = np.maximum(outside / largest[:, None], 0.0) ** 16
        largest = np.log(largest) + np.log(relative.sum(axis=1)) / 16
        inside: Array = np.zeros(len(moments))
        if k:
            share = n / len(self.Y) * np.linalg.eigvalsh(moments[:, :k, :k])[:, -1]
            share = np.clip(share, 0.001, 0.999)
            inside = np.log(share / (1.0 - share))
        return inside, largest, np.log(np.maximum(noise, TINY))

    def chunk_excess(self, in_first: Flags) -> Measured:
        """Measure a few divisions that were not observed."""
        with one_blas_thread:
            return self.excess(self.second_moments(in_first), in_first @ self.counts)


def excess_variances(moments: UnitMoments, name: str) -> tuple[Array, Array]:
    """Return the excess variance of all divisions inside and outside, the observed one first.

    Chunks of divisions run side by side where `joblib.parallel_config` asks for workers.
    """
    others = moments.in_first[1:]
    size = max(1, CHUNK // moments.Y.shape[1] ** 2)
    chunks = [others[i : i + size] for i in range(0, len(others), size)]
    observed = moments.in_first[:1] @ moments.counts
    found = [moments.excess(moments.observed()[None], observed)]
    found += run_batches(moments.chunk_excess, chunks, name=name, unit="division")
    inside, outside, noise = (np.concatenate(each) for each in zip(*found, strict=True))
    return inside, outside - _shrunk(noise)


def combined(inside: Array, outside: Array) -> tuple[Array, bool]:
    """Return the statistic of all divisions, and whether the observed contrast is inside."""
    inside, outside = INSIDE * _standardized(inside), _standardized(outside)
    return np.maximum(inside, outside), bool(inside[0] > outside[0])


def contrast_direction(moment: Array, n_shared: int, *, inside: bool) -> Array:
    """Return the direction of the contrast in whitened coordinates, of length 1.

    The second moment is about `I + c g g'`. Its largest eigenvector v within one block, with
    eigenvalue l, is g's part there; its part in the other block is the covariance with v divided
    by `c = l - 1`.
    """
    own, other = slice(0, n_shared), slice(n_shared, len(moment))
    if not inside:
        own, other = other, own
    values, vectors = np.linalg.eigh(moment[own, own])
    found = np.empty(len(moment))
    found[own] = vectors[:, -1]
    found[other] = moment[other, own] @ vectors[:, -1] / max(values[-1] - 1.0, 0.1)
    return np.asarray(found / np.linalg.norm(found))


def without_direction(rows: WhitenedRows, direction: Array, *, inside: bool) -> WhitenedRows:
    """Project rows onto all directions orthogonal to one, in a basis of one column less.

    The block that holds most of the direction loses a column; the basis of the other stays as
    close as it can to its own.
    """
    k, n_columns = rows.n_shared, len(direction)
    own, other = np.arange(k), np.arange(k, n_columns)
    if not inside:
        own, other = other, own
    kept = np.eye(n_columns)[:, other]
    kept, _ = np.linalg.qr(kept - np.outer(direction, direction[other]))
    rest = np.linalg.svd(direction[own][None])[2][1:].T  # orthogonal to g's part in its block
    basis = np.zeros((n_columns, n_columns - 1))
    basis[own[:, None], np.arange(len(own) - 1)] = rest
    basis[:, len(own) - 1 :] = kept
    if not inside:
        basis = np.hstack([kept, basis[:, : len(own) - 1]])
    return WhitenedRows(rows.values @ basis, k - 1 if inside else k)


def _shrunk(log_noise: Array) -> Array:
    """Shrink values towards their mean, by what chance explains of their distance from it."""
    distance = log_noise - log_noise.mean()
    square = np.maximum(distance**2, TINY)
    return np.asarray(distance * np.maximum(0.0, 1.0 - SHRINKAGE * log_noise.var() / square))


def _standardized(values: Array) -> Array:
    """Return values whose median is 0 and upper quantile 1; minus infinity if they do not vary."""
    median, upper = np.quantile(values, [0.5, 0.95])
    if upper == median:
        return np.full(len(values), -np.inf)
    return np.asarray((values - median) / (upper - median))
