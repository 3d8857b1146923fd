"""Mixtures of normal distributions on a few dimensions, relative to the standard normal.

Let the posterior of `h` under the prior N(0, I) be N(m, V). With a component N(a, S) as its prior
the likelihood of the row changes by the factor

    E[ N(h; a, S) / N(h; 0, I) ] = |S|^-1/2 |I + V D|^-1/2 exp(q / 2),      D = S^-1 - I,
    q = -m' (I + D V)^-1 D m + 2 s' (I + V D)^-1 m + s' (I + V D)^-1 V s - a' s,      s = S^-1 a,

and the posterior to N(F (m + V s), F V) with `F = (I + V D)^-1` (completing the square; nothing is
divided by V, so that no digits are lost where a row determines `h`). Rows therefore enter a mixture
only through the results of the row step of the standard model.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from contrastive_lvm.arrays import Array
from contrastive_lvm.linalg.packed import pair_indices

# Least variance of a component in any direction, relative to that of the whole mixture: a guard
# against components that shrink to a few rows. In 60 simulated datasets (60 rows, and 18 replicates
# of 15 similar rows) agreement and calibration were the same from .0001 to .01, and at .1 slightly
# better.
LEAST_VARIANCE = 0.01
LEAST_WEIGHT = 1e-8  # of a component, so that its logarithm is finite
MOST_HALVINGS = 12  # of a step of the parameters that does not raise their objective


class NormalMixture(NamedTuple):
    """Weights, means and covariances of normal components."""

    weights: Array  # (C,)
    means: Array  # (C, T)
    covariances: Array  # (C, T, T)

    def standardized(self) -> "NormalMixture":
        """Return the mixture in the coordinates in which it has mean 0 and covariance I."""
        weights = np.maximum(self.weights, LEAST_WEIGHT)
        weights = weights / weights.sum()
        means = self.means - weights @ self.means
        total = np.einsum("c,ci,cj->ij", weights, means, means)
        total += np.einsum("c,cij->ij", weights, self.covariances)
        root = np.linalg.inv(np.linalg.cholesky(total))
        return NormalMixture(weights, means @ root.T, root @ self.covariances @ root.T)

    def rotated(self, R: Array) -> "NormalMixture":
        """Return the distribution of `R' h`."""
        return NormalMixture(self.weights, self.means @ R, R.T @ self.covariances @ R)

    def ordered(self) -> "NormalMixture":
        """Return the components by their weights, the greatest first; ties by their means."""
        order = np.lexsort((*-self.means.T[::-1], -self.weights.round(3)))
        return NormalMixture(*(part[order] for part in self))

    def draw(self, n: int, rng: np.random.RandomState) -> Array:
        """Draw latents, (n, T)."""
        component = rng.choice(len(self.weights), size=n, p=self.weights / self.weights.sum())
        roots = np.linalg.cholesky(self.covariances)
        noise = rng.standard_normal((n, self.means.shape[1]))
        drawn: Array = self.means[component] + np.einsum("nij,nj->ni", roots[component], noise)
        return drawn


def standard_normal(n_dimensions: int) -> NormalMixture:
    """Return the mixture of one component that is N(0, I)."""
    return NormalMixture(np.ones(1), np.zeros((1, n_dimensions)), np.eye(n_dimensions)[None])


class MixturePosterior(NamedTuple):
    """The posterior of a mixture's components and latents given rows."""

    log_ratio: Array  # (B,) log-likelihood, less that under N(0, I)
    probabilities: Array  # (B, C)
    means: Array  # (C, B, T) of the latents, given the component
    covariances: Array  # (C, P, T, T)

    def mean(self) -> Array:
        """Return the posterior mean of the latents, (B, T)."""
        mean: Array = np.einsum("bc,cbt->bt", self.probabilities, self.means)
        return mean

    def second_moment(self, pattern: npt.NDArray[np.intp]) -> Array:
        """Return `E[h h']`, (B, T, T)."""
        second = np.einsum("bc,cbi,cbj->bij", self.probabilities, self.means, self.means)
        if self.covariances.shape[1] == 1:
            second += np.einsum("bc,cij->bij", self.probabilities, self.covariances[:, 0])
        else:
            for r, cov in zip(self.probabilities.T, self.covariances, strict=True):
                second += r[:, None, None] * cov[pattern]
        return np.asarray(second)

    def sums(self, pattern: npt.NDArray[np.intp], weights: Array | None) -> Array:
        """Return `sum_i r_ic (1, h, h h')` of each component, (C, 1 + T + T^2)."""
        r = self.probabilities if weights is None else self.probabilities * weights[:, None]
        weighted = self.means * r.T[:, :, None]
        first = weighted.sum(axis=1)
        second = np.swapaxes(weighted, 1, 2) @ self.means
        n_patterns = self.covariances.shape[1]
        per_pattern = [np.bincount(pattern, weights=own, minlength=n_patterns) for own in r.T]
        second += np.einsum("cp,cpij->cij", np.array(per_pattern), self.covariances)
        return np.hstack([r.sum(axis=0)[:, None], first, second.reshape(len(first), -1)])


class EquallyCertain(NamedTuple):
    """The posterior of rows that share a covariance: linear in `1`, `m` and the products of `m`."""

    log_ratio: Array  # (B,) as above
    probabilities: Array  # (C, B)
    terms: Array  # (1 + T + T (T + 1) / 2, B)
    slopes: Array  # (C, T, T) given the component, the mean is slope m + offset
    offsets: Array  # (C, T)
    covariances: Array  # (C, T, T)

    def means(self) -> Array:
        """Return the mean of the latents given each component, (C, T, B)."""
        C, T = self.offsets.shape
        own = self.slopes.reshape(C * T, T) @ self.terms[1 : 1 + T]
        return np.asarray(own.reshape(C, T, -1) + self.offsets[:, :, None])

    def mean(self) -> Array:
        """Return the posterior mean of the latents, (T, B)."""
        return np.asarray((self.probabilities[:, None] * self.means()).sum(axis=0))

    def sums(self, weights: Array | None) -> Array:
        """Return `sum_i r_ic (1, h, h h')` of each component, (C, 1 + T + T^2)."""
        r = self.probabilities if weights is None else self.probabilities * weights
        (C, T), moments = self.offsets.shape, r @ self.terms.T
        n, first, F = moments[:, 0], moments[:, 1 : 1 + T, None], self.slopes
        square, (i, j) = np.empty((C, T, T)), pair_indices(T)
        square[:, i, j] = square[:, j, i] = moments[:, 1 + T :]
        moved, offset = F @ first, self.offsets[:, :, None]
        crossed = moved @ np.swapaxes(offset, 1, 2)
        second = F @ square @ np.swapaxes(F, 1, 2) + crossed + np.swapaxes(crossed, 1, 2)
        second += n[:, None, None] * (offset @ np.swapaxes(offset, 1, 2) + self.covariances)
        first = moved[:, :, 0] + n[:, None] * self.offsets
        return np.hstack([n[:, None], first, second.reshape(C, -1)])


def condition_equally(mixture: NormalMixture, mean: Array, cov: Array) -> EquallyCertain:
    """Condition on rows whose posteriors under N(0, I) have means (T, B) and one covariance."""
    T, (i, j) = len(mean), pair_indices(len(mean))
    D, s, F, V, constant, offsets = _conditional(mixture, cov[None])
    F, V, offsets = F[:, 0], V[:, 0], offsets[:, 0]
    terms = np.empty((1 + T + len(i), mean.shape[1]))
    terms[0], terms[1 : 1 + T], terms[1 + T :] = 1.0, mean, mean[i] * mean[j]
    squares = -(D @ F)[:, i, j] * np.where(i == j, 1.0, 2.0)
    linear = 2.0 * np.einsum("cji,cj->ci", F, s)
    joint = 0.5 * np.hstack([constant, linear, squares]) @ terms  # (C, B)
    return EquallyCertain(*_shares(joint), terms, F, offsets, 0.5 * (V + np.swapaxes(V, 1, 2)))


def condition(
    mixture: NormalMixture, mean: Array, cov: Array, pattern: npt.NDArray[np.intp]
) -> MixturePosterior:
    """Return the posterior of rows under a mixture from that under N(0, I).

    `mean` has a row for each row, (B, T), `cov` a matrix for each pattern of missing entries,
    (P, T, T), and `pattern` says which of them is a row's, (B,).
    """
    if len(cov) == 1:
        found = condition_equally(mixture, np.ascontiguousarray(mean.T), cov[0])
        means = found.means().swapaxes(1, 2)
        return MixturePosterior(
            found.log_ratio, found.probabilities.T, means, found.covariances[:, None]
        )
    D, s, F, V, constant, offsets = _conditional(mixture, cov)
    moved = np.stack([np.einsum("bij,bj->bi", own[pattern], mean) for own in F])
    quadratic = -np.einsum("bi,cbi->cb", mean, moved @ D)
    quadratic += 2.0 * np.einsum("cbi,ci->cb", moved, s)
    log_ratio, shares = _shares(0.5 * (constant[:, pattern] + quadratic))
    return MixturePosterior(
        log_ratio, shares.T, moved + offsets[:, pattern], 0.5 * (V + np.swapaxes(V, 2, 3))
    )


def _conditional(
    mixture: NormalMixture, cov: Array
) -> tuple[Array, Array, Array, Array, Array, Array]:
    """Return `D` and `s` of components, then `F`, `F V`, twice the constant and `F V s`, (C, P)."""
    weights, a, S = mixture
    eye, inverse = np.eye(a.shape[1]), np.linalg.inv(S)
    D, s = inverse - eye, np.einsum("cij,cj->ci", inverse, a)
    F: Array = np.asarray(np.linalg.inv(eye + cov @ D[:, None]), dtype=float)  # (C, P, T, T)
    V = F @ cov
    offsets = np.einsum("cpij,cj->cpi", V, s)
    constant = 2.0 * np.log(weights) - np.linalg.slogdet(S)[1] - np.einsum("ci,ci->c", a, s)
    constant = constant[:, None] + np.linalg.slogdet(F)[1]
    return D, s, F, V, constant + np.einsum("ci,cpi->cp", s, offsets), offsets


def _shares(joint: Array) -> tuple[Array, Array]:
    """Return the logarithm of the sum of exponentials, (B,), and the share of each, (C, B)."""
    most = joint.max(axis=0)
    relative = np.exp(joint - most)
    total = relative.sum(axis=0)
    return most + np.log(total), np.asarray(relative / total)


def objective(mixture: NormalMixture, sums: Array) -> float:
    """Return the expected log-density of components and latents, up to a constant."""
    n, first, second = split_sums(sums)
    weights, means, covs = mixture
    scatter = second - _outer(first, means) - _outer(means, first)
    scatter = scatter + n[:, None, None] * _outer(means, means)
    traces = np.trace(np.linalg.solve(covs, scatter), axis1=1, axis2=2)
    logs = n * (np.log(weights) - 0.5 * np.linalg.slogdet(covs)[1])
    return float(logs.sum() - 0.5 * traces.sum())


def split_sums(sums: Array) -> tuple[Array, Array, Array]:
    """Split sums into numbers (C,), first moments (C, T) and second moments (C, T, T)."""
    T = int((np.sqrt(4 * sums.shape[1] - 3) - 1) / 2 + 0.5)
    return sums[:, 0], sums[:, 1 : 1 + T], sums[:, 1 + T :].reshape(-1, T, T)


def sums_of(mixture: NormalMixture, n_rows: float) -> Array:
    """Return the expected sums over a number of rows that follow the mixture."""
    weights, means, covs = mixture
    second = covs + _outer(means, means)
    each = np.hstack([np.ones((len(weights), 1)), means, second.reshape(len(weights), -1)])
    return np.asarray(n_rows * weights[:, None] * each)


def _outer(left: Array, right: Array) -> Array:
    return np.asarray(left[:, :, None] * right[:, None, :])
