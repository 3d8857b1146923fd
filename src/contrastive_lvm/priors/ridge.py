"""A normal prior of fixed width: loadings of features that say little stay small."""

from dataclasses import dataclass, replace
from typing import ClassVar, Self

import numpy as np

from contrastive_lvm._jax import JaxArray, load
from contrastive_lvm.arrays import LOG_2PI, Array
from contrastive_lvm.checks import check_positive
from contrastive_lvm.priors.base import Prior


@dataclass(frozen=True)
class Ridge(Prior[None]):
    """`L_dk ~ N(0, scale^2)`, the same for all loadings.

    The loadings of a feature are multiplied by about `I / (I + 1 / scale^2)`, where I is the
    feature's information about them; for a Poisson feature, I is the sum of its counts. The prior
    hardly changes a feature with hundreds of counts and keeps the loadings of a rare feature small.
    It is the default for binary data, with the scale 1, and for counts with point loadings. Their
    likelihood may rise without limit as the loadings of a rare feature grow.

    Parameters
    ----------
    scale : float
        Standard deviation of loadings. Estimators read it as a multiple of the features' standard
        deviation. For counts and binary data, whose predictors are log rates and log odds, it is
        used as it is.

    Examples
    --------
    >>> import contrastive_lvm as clvm
    >>> clvm.Ridge()
    Ridge(scale=0.5)
    """

    scale: float = 0.5

    _treats_features_alike: ClassVar[bool] = True
    _loading_site: ClassVar[str | None] = ""

    def __post_init__(self) -> None:
        check_positive("scale", self.scale)

    def init(self, shape: tuple[int, int]) -> None:
        """Return None: there is nothing to learn."""

    def update(self, state: None, squares: Array) -> None:
        """Return None: there is nothing to learn."""

    def precision(self, state: None) -> Array:
        """Return `1 / scale^2`."""
        return np.full((1, 1), self.scale**-2)

    def bound(self, state: None, squares: Array) -> float:
        """Return the expected log density."""
        energy = float(squares.sum()) / self.scale**2
        return -0.5 * (energy + squares.size * (LOG_2PI + 2.0 * float(np.log(self.scale))))

    def sample(self, name: str, shape: tuple[int, int], *, augmented: bool = True) -> JaxArray:
        """Draw loadings from a NumPyro site."""
        numpyro, dist, _ = load()
        normal = dist.Normal(0.0, self.scale).expand(shape).to_event(2)
        drawn: JaxArray = numpyro.sample(name, normal)
        return drawn

    def _in_units_of(self, variance: float) -> Self:
        return replace(self, scale=self.scale * float(np.sqrt(variance)))
