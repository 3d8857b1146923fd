"""The combination of pieces as one frozen value."""

from dataclasses import dataclass, field

from contrastive_lvm.likelihoods.gaussian import Gaussian
from contrastive_lvm.priors.flat import Flat


@dataclass(frozen=True)
class Model:
    """Dimensions, likelihood and priors of a linear contrastive latent variable model.

    Examples
    --------
    >>> import contrastive_lvm as clvm
    >>> clvm.Model(n_shared=3, n_target=2).n_columns
    5
    """

    n_shared: int
    n_target: int
    likelihood: Gaussian = field(default_factory=Gaussian)
    shared_prior: Flat = field(default_factory=Flat)
    target_prior: Flat = field(default_factory=Flat)

    @property
    def n_columns(self) -> int:
        """Columns of `L = [S | W]`."""
        return self.n_shared + self.n_target
