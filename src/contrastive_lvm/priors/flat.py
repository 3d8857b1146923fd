"""No prior: maximum likelihood."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from contrastive_lvm._jax import flat_site
from contrastive_lvm.arrays import Array


@dataclass(frozen=True)
class Flat:
    """A flat prior on loadings: `p(L) = 1`, so that they are points of maximum likelihood.

    Also under `VariationalBayes`: a posterior under an improper prior would grow without limit
    when there are more features than rows.
    """

    def init(self, shape: tuple[int, int]) -> None:
        """Nothing to learn."""

    def update(self, state: None, squares: Array) -> None:
        """Nothing to learn."""

    def precision(self, state: None) -> Array:
        """Zero."""
        return np.zeros((1, 1))

    def bound(self, state: None, squares: Array) -> float:
        """Zero."""
        return 0.0

    def sample(self, name: str, shape: tuple[int, int], *, augmented: bool = True) -> Any:
        """A NumPyro site of density 1."""
        return flat_site(name, shape)
