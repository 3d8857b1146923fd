"""A mixture of normal distributions as the prior of a block's latents.

`p(h) = sum_c weight_c N(mean_c, cov_c)` stands in place of N(0, I). Loadings and latents are
defined up to a linear map, and intercepts up to the mean of `h`; the mixture as a whole has mean 0
and covariance I, which fixes both, and makes one component the standard model.

Given the sums of a row step, the best components are those of the EM algorithm (Dempster, Laird &
Rubin 1977, section 4.3), after which they are standardized. Standardizing alone could lower the
bound while loadings are still far from their optimum, so the sums are then mixed with those that
the present components predict, ever more of them, until the expected log-density does not fall.
"""

from dataclasses import dataclass

import numpy as np

from contrastive_lvm.arrays import Array
from contrastive_lvm.checks import check_choice, check_integer
from contrastive_lvm.linalg.normal_mixture import (
    LEAST_VARIANCE,
    LEAST_WEIGHT,
    MOST_HALVINGS,
    NormalMixture,
    objective,
    split_sums,
    sums_of,
)
from contrastive_lvm.linalg.packed import pair_indices

COVARIANCES = ("full", "shared", "spherical")


@dataclass(frozen=True)
class Mixture:
    """Subgroups: a mixture of normal distributions on the latents of a block.

    Parameters
    ----------
    n_components : int or "auto"
        Number of subgroups; 1 is the standard model. `"auto"` uses the number that
        `choose_subgroups` finds; it may be 1, which means no subgroups.
    covariance : {"full", "shared", "spherical"}
        Whether every subgroup has its own covariance (`"full"`), all have the same, or all have the
        same up to a scale factor (`"spherical"`).

    Examples
    --------
    >>> import contrastive_lvm as clvm
    >>> data = clvm.datasets.make_subgroups(random_state=0)
    >>> model = clvm.ContrastiveLVM(2, latent_prior=clvm.Mixture(4))
    >>> model = model.fit(data.target, background=data.background)
    >>> found = model.subgroups(data.target)
    >>> found.weights.round(2)
    array([0.25, 0.25, 0.25, 0.25])
    """

    n_components: int | str = "auto"
    covariance: str = "full"

    def __post_init__(self) -> None:
        check_choice("covariance", self.covariance, COVARIANCES)
        if self.n_components != "auto":
            check_integer("n_components", self.n_components, 1)

    @property
    def _size(self) -> int:
        """Return the number of components, which must not be `"auto"` any more."""
        return int(self.n_components)

    def _updated(self, old: NormalMixture, sums: Array) -> NormalMixture:
        """Return standardized components that raise the expected log-density of the latents."""
        at, predicted = objective(old, sums), sums_of(old, float(sums[:, 0].sum()))
        for halving in range(MOST_HALVINGS):
            share = 0.5**halving
            new = self._maximized(old, share * sums + (1.0 - share) * predicted).standardized()
            if objective(new, sums) >= at:
                return new
        return old

    def _maximized(self, old: NormalMixture, sums: Array) -> NormalMixture:
        """Return the components that maximise the expected log-density, of any scale."""
        n, first, second = split_sums(sums)
        n = np.maximum(n, LEAST_WEIGHT * n.sum())
        means = first / n[:, None]
        covs = second / n[:, None, None] - means[:, :, None] * means[:, None, :]
        if self.covariance == "shared":
            covs = np.broadcast_to(np.einsum("c,cij->ij", n / n.sum(), covs), covs.shape)
        if self.covariance == "spherical":
            covs = _proportional(n, covs, old.covariances)
        return NormalMixture(n / n.sum(), means, at_least(covs, LEAST_VARIANCE))

    def _to_vector(self, mixture: NormalMixture) -> Array:
        """Return components as one vector, for acceleration."""
        roots = np.linalg.cholesky(mixture.covariances)
        diagonal = np.arange(roots.shape[1])
        roots[:, diagonal, diagonal] = np.log(roots[:, diagonal, diagonal])
        lower = pair_indices(len(diagonal))
        parts = (np.log(mixture.weights), mixture.means.ravel(), roots[:, *lower].ravel())
        return np.concatenate(parts)

    def _from_vector(self, vector: Array, n_dimensions: int) -> NormalMixture:
        """Return the components of a vector, standardized, with a covariance of the right kind."""
        C, T = self._size, n_dimensions
        logs, means, packed = np.split(vector, [C, C + C * T])
        lower, diagonal = pair_indices(T), np.arange(T)
        roots = np.zeros((C, T, T))
        roots[:, *lower] = packed.reshape(C, -1)
        roots[:, diagonal, diagonal] = np.exp(roots[:, diagonal, diagonal])
        weights = np.exp(logs - logs.max())
        covs = at_least(roots @ np.swapaxes(roots, 1, 2), LEAST_VARIANCE)
        if self.covariance != "full":  # combinations of roots lose the restricted form
            covs = _proportional(weights, covs, covs)
        if self.covariance == "shared":
            covs = np.broadcast_to(covs[:1], covs.shape)
        return NormalMixture(weights, means.reshape(C, T), covs).standardized()


def _proportional(n: Array, covs: Array, old: Array) -> Array:
    """Return covariances that are multiples of one matrix: scales, then the matrix, then scales.

    Each maximises given the other; the iteration begins with the matrix of `old`.
    """
    T = covs.shape[1]

    def scales(shape: Array) -> Array:
        return np.asarray(np.trace(np.linalg.solve(shape, covs), axis1=1, axis2=2) / T)

    s = scales(old[0])
    shape = np.einsum("c,cij->ij", n / s, covs) / n.sum()
    return np.asarray(scales(shape)[:, None, None] * shape)


def at_least(covs: Array, variance: float) -> Array:
    """Return covariances with no smaller variance in any direction."""
    values, vectors = np.linalg.eigh(covs)
    if (values >= variance).all():
        return covs
    clipped = np.maximum(values, variance)
    return np.asarray((vectors * clipped[:, None, :]) @ np.swapaxes(vectors, 1, 2))
