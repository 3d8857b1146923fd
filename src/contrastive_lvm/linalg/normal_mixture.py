"""Mixtures of normal distributions on a few dimensions, beside a standard normal one.

Let the posterior of `h` under the prior N(0, I) be N(m, V). With a component N(a, S) as its prior
the likelihood of the row changes by the factor

    E[ N(h; a, S) / N(h; 0, I) ] = |S|^-1/2 |I + V D|^-1/2 exp(q / 2),      D = S^-1 - I,
    q = -m' (I + D V)^-1 D m + 2 s' (I + V D)^-1 m + s' (I + V D)^-1 V s - a' s,      s = S^-1 a,

and the posterior to N(F (m + V s), F V) with `F = (I + V D)^-1` (completing the square; nothing is
divided by V, so that a row that says everything about `h` costs no digits). Rows therefore enter a
mixture only through what the row step of the standard model finds.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from contrastive_lvm.arrays import Array

LEAST_VARIANCE = 1e-3  # of a component in any direction, where all together have variance 1
LEAST_WEIGHT = 1e-8  # of a component
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
    """What rows say about a mixture's components and latents."""

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


def condition(
    mixture: NormalMixture, mean: Array, cov: Array, pattern: npt.NDArray[np.intp]
) -> MixturePosterior:
    """Return what rows say under a mixture, from their posteriors under N(0, I).

    `mean` has a row for each row, (B, T), `cov` a matrix for each pattern of missing entries,
    (P, T, T), and `pattern` says which of them is a row's, (B,).
    """
    T, logs, means, covs = mean.shape[1], [], [], []
    one = len(cov) == 1

    def times(matrices: Array, vectors: Array) -> Array:
        if one:
            return np.asarray(vectors @ matrices[0].T)
        return np.asarray(np.einsum("bij,bj->bi", matrices[pattern], vectors))

    for weight, a, S in zip(*mixture, strict=True):
        inverse = np.linalg.inv(S)
        D, s = inverse - np.eye(T), inverse @ a
        F: Array = np.asarray(np.linalg.inv(np.eye(T) + cov @ D), dtype=float)  # (P, T, T)
        V = F @ cov
        constant = np.linalg.slogdet(F)[1] - np.linalg.slogdet(S)[1] - a @ s
        constant = constant + np.einsum("i,pij,j->p", s, V, s)  # (P,)
        moved = times(F, mean)
        quadratic = -np.einsum("bi,bi->b", mean, moved @ D) + 2.0 * moved @ s
        logs.append(np.log(weight) + 0.5 * (constant[pattern] + quadratic))
        means.append(moved + (V @ s)[pattern])
        covs.append(0.5 * (V + np.swapaxes(V, 1, 2)))
    joint = np.stack(logs, axis=1)
    most = joint.max(axis=1)
    relative = np.exp(joint - most[:, None])
    total = relative.sum(axis=1)
    probabilities = relative / total[:, None]
    return MixturePosterior(most + np.log(total), probabilities, np.stack(means), np.stack(covs))


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
    """Return numbers (C,), first moments (C, T) and second moments (C, T, T)."""
    T = int((np.sqrt(4 * sums.shape[1] - 3) - 1) / 2 + 0.5)
    return sums[:, 0], sums[:, 1 : 1 + T], sums[:, 1 + T :].reshape(-1, T, T)


def sums_of(mixture: NormalMixture, n_rows: float) -> Array:
    """Return what so many rows would sum to, if they were as the mixture says."""
    weights, means, covs = mixture
    second = covs + _outer(means, means)
    each = np.hstack([np.ones((len(weights), 1)), means, second.reshape(len(weights), -1)])
    return np.asarray(n_rows * weights[:, None] * each)


def _outer(left: Array, right: Array) -> Array:
    return np.asarray(left[:, :, None] * right[:, None, :])
