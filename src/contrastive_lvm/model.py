"""A model as one frozen value: sets of rows, blocks of loadings, and a likelihood.

Row i of set s follows `x = sum_b L_b h_b + mean_s + noise`, summed over the blocks b that are
active in s, with standard normal latents h. A matrix of zeros and ones says which block is active
in which set; the paper's model is [[1, 1], [1, 0]]. The model knows neither data nor engines.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from contrastive_lvm.likelihoods.base import Likelihood, ScaleMixture
from contrastive_lvm.likelihoods.gaussian import Gaussian
from contrastive_lvm.priors.base import Prior
from contrastive_lvm.priors.flat import Flat


@dataclass(frozen=True)
class Block:
    """A block of loadings: its size, the sets in which it is active, and its prior."""

    name: str
    n_components: int
    sets: tuple[str, ...]
    prior: Prior = field(default_factory=Flat)


@dataclass(frozen=True)
class Model:
    """Sets of rows, blocks of loadings and the likelihood of a linear latent variable model.

    Parameters
    ----------
    sets : tuple of str
        Names of the sets of rows.
    blocks : tuple of Block
        Blocks of loadings, in the order of the columns of `L`.
    likelihood : Likelihood
        Noise about the linear predictor, common to all sets.

    Examples
    --------
    >>> import contrastive_lvm as clvm
    >>> shared = clvm.Block("shared", 3, ("a", "b"))
    >>> model = clvm.Model(("a", "b"), (shared, clvm.Block("only a", 2, ("a",))))
    >>> model.n_columns, model.active_columns("b").tolist()
    (5, [0, 1, 2])
    """

    sets: tuple[str, ...]
    blocks: tuple[Block, ...]
    likelihood: Likelihood = field(default_factory=Gaussian)

    @property
    def n_columns(self) -> int:
        """Return the number of columns of `L`, all blocks together."""
        return sum(block.n_components for block in self.blocks)

    @property
    def columns(self) -> tuple[slice, ...]:
        """Return the columns of each block."""
        ends = np.cumsum([block.n_components for block in self.blocks]).tolist()
        return tuple(
            slice(end - block.n_components, end)
            for block, end in zip(self.blocks, ends, strict=True)
        )

    def active_columns(self, name: str) -> npt.NDArray[np.intp]:
        """Return the columns that rows of a set use, in increasing order."""
        active = [name in block.sets for block in self.blocks]
        sizes = [block.n_components for block in self.blocks]
        return np.flatnonzero(np.repeat(active, sizes))

    @property
    def priors(self) -> tuple[Prior, ...]:
        """Return the prior of each block."""
        return tuple(block.prior for block in self.blocks)

    @property
    def has_closed_form(self) -> bool:
        """Tell whether coordinate ascent can fit the likelihood."""
        return self.likelihood._has_closed_form

    @property
    def scale_mixture(self) -> ScaleMixture:
        """Return the likelihood, for coordinate ascent."""
        if not isinstance(self.likelihood, ScaleMixture):
            raise TypeError(f"{self.likelihood!r} has no closed form; use inference='svi'.")
        return self.likelihood

    @property
    def drops_columns(self) -> bool:
        """Tell whether columns that the data does not support are dropped."""
        return any(prior._drops_columns for prior in self.priors)

    @property
    def treats_features_alike(self) -> bool:
        """Tell whether the priors treat all features alike, so that they may be rotated."""
        return all(prior._treats_features_alike for prior in self.priors)

    def with_sizes(self, sizes: Mapping[str, int]) -> "Model":
        """Return the model with other numbers of components in some blocks."""
        blocks = (
            replace(block, n_components=sizes.get(block.name, block.n_components))
            for block in self.blocks
        )
        return replace(self, blocks=tuple(blocks))

    def with_priors(self, priors: Mapping[str, Prior]) -> "Model":
        """Return the model with other priors on some blocks."""
        blocks = (
            replace(block, prior=priors.get(block.name, block.prior)) for block in self.blocks
        )
        return replace(self, blocks=tuple(blocks))
