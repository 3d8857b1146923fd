"""A model as one frozen value: sets of rows, blocks of loadings, and a likelihood.

Row i of set s follows `x = sum_b L_b h_b + M c_i + mean_s + noise`, summed over the blocks b that
are active in s, with known covariates c and latents h that are standard normal unless their block
has another prior for them. A matrix of zeros and ones says which block is active in which set; the
paper's model is [[1, 1], [1, 0]]. The effects M of the covariates are the same in all sets, or each
set has its own. The model knows neither data nor engines.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import accumulate, chain, pairwise

import numpy as np
import numpy.typing as npt

from contrastive_lvm.arrays import Array
from contrastive_lvm.likelihoods.base import Likelihood
from contrastive_lvm.likelihoods.gaussian import Gaussian
from contrastive_lvm.priors.base import AnyPrior
from contrastive_lvm.priors.flat import Flat
from contrastive_lvm.priors.mixture import Mixture


@dataclass(frozen=True)
class LoadingBlock:
    """A block of loadings: its size, the sets in which it is active, and its prior.

    The size of an `automatic` block is its upper limit; the data determine the size.

    Examples
    --------
    >>> import contrastive_lvm as clvm
    >>> clvm.LoadingBlock("disease", 2, ("treated", "untreated"), prior=clvm.ARD()).n_components
    2
    """

    name: str
    n_components: int
    sets: tuple[str, ...]
    prior: AnyPrior = field(default_factory=Flat)
    automatic: bool = False
    latent_prior: Mixture | None = None  # of its latents; None is standard normal


@dataclass(frozen=True)
class Model:
    """Sets of rows, blocks of loadings and the likelihood of a linear latent variable model.

    Parameters
    ----------
    sets : tuple of str
        Names of the sets of rows.
    blocks : tuple of LoadingBlock
        Blocks of loadings, in the order of the columns of `L`.
    likelihood : Likelihood
        Noise about the linear predictor. All sets share its variances unless the likelihood says
        otherwise.
    covariates : tuple of str
        Names of the known columns of every row.
    own_effects : bool
        Whether covariates have effects of their own in each set.

    Examples
    --------
    >>> import contrastive_lvm as clvm
    >>> shared = clvm.LoadingBlock("shared", 3, ("a", "b"))
    >>> model = clvm.Model(("a", "b"), (shared, clvm.LoadingBlock("only a", 2, ("a",))))
    >>> model.n_columns, model.active_columns("b").tolist()
    (5, [0, 1, 2])
    """

    sets: tuple[str, ...]
    blocks: tuple[LoadingBlock, ...]
    likelihood: Likelihood = field(default_factory=Gaussian)
    covariates: tuple[str, ...] = ()
    own_effects: bool = False

    # Derived from the fields above, computed once.
    n_columns: int = field(init=False, repr=False, compare=False)  # of L, all blocks together
    n_effects: int = field(init=False, repr=False, compare=False)  # columns of effects, all sets
    columns: tuple[slice, ...] = field(init=False, repr=False, compare=False)  # of each block
    priors: tuple[AnyPrior, ...] = field(init=False, repr=False, compare=False)  # of each block
    is_flat: bool = field(init=False, repr=False, compare=False)  # whether all priors are
    # Whether columns that the data does not support are dropped.
    drops_columns: bool = field(init=False, repr=False, compare=False)
    # Whether the latents of all blocks are standard normal.
    has_standard_latents: bool = field(init=False, repr=False, compare=False)
    # Whether the priors treat all features alike, so that they may be rotated.
    treats_features_alike: bool = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        ends = [0, *accumulate(block.n_components for block in self.blocks)]
        priors = tuple(block.prior for block in self.blocks)
        derived = {
            "n_columns": ends[-1],
            "n_effects": len(self.covariates) * (len(self.sets) if self.own_effects else 1),
            "columns": tuple(slice(start, stop) for start, stop in pairwise(ends)),
            "priors": priors,
            "is_flat": all(prior._is_flat for prior in priors),
            "drops_columns": any(prior._drops_columns for prior in priors),
            "has_standard_latents": all(block.latent_prior is None for block in self.blocks),
            "treats_features_alike": all(prior._treats_features_alike for prior in priors),
        }
        for name, value in derived.items():
            object.__setattr__(self, name, value)

    def active_columns(self, name: str) -> npt.NDArray[np.intp]:
        """Return the columns that rows of a set use, in increasing order."""
        pairs = zip(self.blocks, self.columns, strict=True)
        used = [range(c.start, c.stop) for block, c in pairs if name in block.sets]
        return np.fromiter(chain(*used), dtype=np.intp)

    def effect_columns(self, i: int) -> npt.NDArray[np.intp]:
        """Return the columns of effects that rows of the i-th set use."""
        q = len(self.covariates)
        return np.arange(q) + (i * q if self.own_effects else 0)

    def with_sizes(self, sizes: Mapping[str, int]) -> "Model":
        """Return the model with given numbers of components in some blocks."""
        blocks = (
            replace(block, n_components=sizes[block.name], automatic=False)
            if block.name in sizes
            else block
            for block in self.blocks
        )
        return replace(self, blocks=tuple(blocks))

    def with_standard_latents(self) -> "Model":
        """Return the model with standard normal latents in all blocks."""
        blocks = (replace(block, latent_prior=None) for block in self.blocks)
        return replace(self, blocks=tuple(blocks))

    def in_units_of(self, variances: Array, n_features: int) -> "Model":
        """Return the model with priors in units of data, given the variances of its features.

        In a span of few rows there are fewer variances than features, with the same sum.
        """
        if self.is_flat:
            return self
        if not self.likelihood._has_closed_form:  # predictors of counts and binary data: no units
            variances = np.where(self.likelihood._is_on_data_scale(n_features), variances, 1.0)
        unit = float(variances.sum()) / n_features
        blocks = (replace(b, prior=b.prior._in_units_of(unit)) for b in self.blocks)
        return replace(self, blocks=tuple(blocks))

    def with_priors(self, priors: Mapping[str, AnyPrior]) -> "Model":
        """Return the model with other priors on some blocks."""
        blocks = (
            replace(block, prior=priors.get(block.name, block.prior)) for block in self.blocks
        )
        return replace(self, blocks=tuple(blocks))
