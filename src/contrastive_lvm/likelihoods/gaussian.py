"""Gaussian noise."""

from dataclasses import dataclass
from typing import ClassVar, get_args

import numpy as np

from contrastive_lvm._jax import JaxArray, load
from contrastive_lvm.arrays import LOG_2PI, Array
from contrastive_lvm.checks import check_choice
from contrastive_lvm.likelihoods.base import Noise, NoiseSets, ScaleMixture
from contrastive_lvm.likelihoods.values import (
    CountTable,
    Expected,
    Nuisance,
    RowSite,
    SiteParameters,
)


@dataclass(frozen=True)
class Gaussian(ScaleMixture):
    """Gaussian noise, `x_d | h ~ N(l_d' h + mean_d, psi_d)`.

    Parameters
    ----------
    noise : {"isotropic", "feature"}
        One noise variance for all features (the paper's `sigma^2`), or one per feature. It stays
        above 1e-6 of the variance of the data (for `"feature"`, of the feature; for a constant
        feature, of the mean over features), because the likelihood is unbounded if loadings fit a
        feature exactly.
    sets : {"shared", "own"}
        Whether all sets share the noise variances, or each set has its own. Use `"own"` if one set
        is merely noisier than the others.

    Examples
    --------
    >>> import contrastive_lvm as clvm
    >>> clvm.Gaussian(noise="feature")
    Gaussian(noise='feature', sets='shared')
    """

    noise: Noise = "isotropic"
    sets: NoiseSets = "shared"

    _is_scale_mixture: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_choice("noise", self.noise, get_args(Noise))
        check_choice("sets", self.sets, get_args(NoiseSets))

    def log_density(self, x: JaxArray, predictor: JaxArray, parameters: SiteParameters) -> JaxArray:
        """Return the normal log density, in JAX."""
        psi: JaxArray = parameters["noise"]
        square = (x - predictor) ** 2 / psi
        density: JaxArray = -0.5 * (square + load().jnp.log(psi) + LOG_2PI)
        return density

    def _observe(self, site: RowSite) -> None:
        numpyro, dist, jnp = load()
        observed, std = ~jnp.isnan(site.rows), jnp.sqrt(site.parameters["noise"])
        noise = dist.Normal(site.predictor, std).mask(observed).to_event(2)
        numpyro.sample(site.name, noise, obs=jnp.where(observed, site.rows, 0.0))

    def _constant(self, rows: Array, nuisance: Nuisance) -> Array:
        return np.broadcast_to(-0.5 * (LOG_2PI + np.log(nuisance.noise)), rows.shape)

    def _constants(self, table: CountTable, nuisance: Nuisance) -> Array:
        return -0.5 * (LOG_2PI + np.log(nuisance.noise)) * table.entries

    def _expected(
        self, rows: Array, m: Array, v: Array, nuisance: Nuisance, *, whole: bool = True
    ) -> Expected:
        psi, residual = nuisance.noise, rows - m
        value = -0.5 * (residual**2 + v) / psi
        if whole:
            value += self._constant(rows, nuisance)
        return Expected(value, residual / psi, np.broadcast_to(1.0 / psi, m.shape))
