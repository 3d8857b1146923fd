"""The combination of pieces as one frozen value."""

from dataclasses import dataclass, field

from contrastive_lvm.likelihoods.base import Likelihood
from contrastive_lvm.likelihoods.gaussian import Gaussian
from contrastive_lvm.likelihoods.student_t import StudentT
from contrastive_lvm.priors.ard import ARD
from contrastive_lvm.priors.base import Prior
from contrastive_lvm.priors.flat import Flat
from contrastive_lvm.priors.group_lasso import GroupLasso


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
    likelihood: Likelihood = field(default_factory=Gaussian)
    shared_prior: Prior | GroupLasso = field(default_factory=Flat)
    target_prior: Prior | GroupLasso = field(default_factory=Flat)

    @property
    def n_columns(self) -> int:
        """Columns of `L = [S | W]`."""
        return self.n_shared + self.n_target

    @property
    def priors(self) -> tuple[Prior | GroupLasso, Prior | GroupLasso]:
        """On S and on W."""
        return self.shared_prior, self.target_prior

    @property
    def blocks(self) -> tuple[slice, slice]:
        """Columns of S and of W."""
        return slice(0, self.n_shared), slice(self.n_shared, self.n_columns)

    @property
    def has_closed_form(self) -> bool:
        """Whether coordinate ascent can fit the likelihood."""
        return isinstance(self.likelihood, Gaussian | StudentT)

    @property
    def closed_likelihood(self) -> Gaussian | StudentT:
        """The likelihood, for coordinate ascent."""
        if not isinstance(self.likelihood, Gaussian | StudentT):
            raise TypeError(f"{self.likelihood!r} has no closed form; use inference='svi'.")
        return self.likelihood

    @property
    def sizes_itself(self) -> bool:
        """Whether columns that the data does not support are dropped."""
        return any(isinstance(prior, ARD) for prior in self.priors)

    @property
    def all_flat(self) -> bool:
        """Whether no block of loadings has a prior."""
        return all(isinstance(prior, Flat) for prior in self.priors)

    @property
    def features_alike(self) -> bool:
        """Whether the priors treat all features alike, so that they may be rotated."""
        return all(isinstance(prior, Flat | ARD) for prior in self.priors)
