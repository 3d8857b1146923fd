"""No prior: maximum likelihood."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy.linalg.lapack import dsyevd

from contrastive_lvm._jax import JaxArray, flat_site
from contrastive_lvm.arrays import Array
from contrastive_lvm.priors.base import Prior


@dataclass(frozen=True)
class Flat(Prior[None]):
    """A flat prior on loadings: `p(L) = 1`, so loadings are maximum-likelihood points.

    Loadings are points under `VariationalBayes` too, because a posterior under this improper prior
    would grow without limit with more features than rows.

    Examples
    --------
    >>> import contrastive_lvm as clvm
    >>> clvm.Flat().precision(None)
    array([[0.]])
    """

    _treats_features_alike: ClassVar[bool] = True
    _has_posterior: ClassVar[bool] = False
    _is_flat: ClassVar[bool] = True
    _loading_site: ClassVar[str | None] = ""

    def init(self, shape: tuple[int, int]) -> None:
        """Return None: there is nothing to learn."""

    def update(self, state: None, squares: Array) -> None:
        """Return None: there is nothing to learn."""

    def precision(self, state: None) -> Array:
        """Return zero."""
        return np.zeros((1, 1))

    def bound(self, state: None, squares: Array) -> float:
        """Return zero."""
        return 0.0

    def _best_coordinates(
        self, loadings: Array, latents: Array, n_rows: float, n_features: int
    ) -> Array:
        """Return the root of the mean of `E[h h']`, which has the identity for its prior mean.

        `L h = (L R)(R^-1 h)`, so that a change of coordinates of loadings and latents together
        moves only the latents' prior, and raises it most where their mean square is the identity
        (parameter-expanded EM: Liu, Rubin & Wu 1998). Without it a sweep changes the lengths of
        loadings by a share `psi / l' l`, and stands still where the noise is at its least.
        """
        values, U, _ = dsyevd(latents / n_rows)
        return np.asarray((U * np.sqrt(np.maximum(values, 0.0))) @ U.T)

    def sample(self, name: str, shape: tuple[int, int], *, augmented: bool = True) -> JaxArray:
        """Draw loadings from a NumPyro site of density 1."""
        return flat_site(name, shape)
