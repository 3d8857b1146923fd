"""Counts that vary more than a Poisson's."""

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from scipy.special import gammaln

from contrastive_lvm._jax import JaxArray, load, special
from contrastive_lvm.arrays import Array
from contrastive_lvm.checks import check_choice
from contrastive_lvm.likelihoods.base import (
    Expected,
    Nuisance,
    SiteParameters,
)
from contrastive_lvm.likelihoods.counts import CountLikelihood, SizeFactors, log_normal
from contrastive_lvm.likelihoods.poisson import MOST_LOG_RATE
from contrastive_lvm.linalg.quadrature import logistic_moments

Dispersion = Literal["feature", "shared"]
WIDTH = 2.0  # standard deviation of the prior on the log dispersion
FIRST_DISPERSION = 0.5  # of an autoencoder, before training
LEAST_DISPERSION = 1e-6  # below, this is a Poisson and its terms cancel


@dataclass(frozen=True)
class NegativeBinomial(CountLikelihood):
    """Counts with mean `r = size_i exp(l_d' h_i + mean_d)` and variance `r + dispersion_d r^2`.

    With `c = 1 / dispersion`, `ln p(x) = ln Gamma(x + c) - ln Gamma(c) - ln x! + x f - (x + c)
    ln(1 + exp(f))` and `f = ln(r / c)`: logistic in the predictor. Without overdispersion the
    likelihood is flat in the dispersion, so its logarithm has the weak prior `N(0, 2^2)`.

    Parameters
    ----------
    size_factors : {"total", "none"}
        As for `Poisson`.
    dispersion : {"feature", "shared"}
        One per feature, or one for all.

    Examples
    --------
    >>> import contrastive_lvm as clvm
    >>> clvm.NegativeBinomial()
    NegativeBinomial(size_factors='total', dispersion='feature')
    """

    size_factors: SizeFactors = "total"
    dispersion: Dispersion = "feature"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("dispersion", self.dispersion, get_args(Dispersion))

    def parameters(self, n_features: int, prefix: str = "") -> SiteParameters:
        """Return the dispersion, whose logarithm has a normal prior."""
        numpyro, dist, jnp = load()
        prior = dist.Normal(0.0, WIDTH)
        if self.dispersion == "feature":
            prior = prior.expand((n_features,)).to_event(1)
        return {"dispersion": jnp.exp(numpyro.sample(f"{prefix}log dispersion", prior))}

    def log_density(self, x: JaxArray, predictor: JaxArray, parameters: SiteParameters) -> JaxArray:
        """Return the negative binomial log density, in JAX."""
        jnp, gammaln_ = load().jnp, special().gammaln
        dispersion = jnp.maximum(parameters["dispersion"], LEAST_DISPERSION)
        c, f = 1.0 / dispersion, predictor + jnp.log(dispersion)
        constant = gammaln_(x + c) - gammaln_(c) - gammaln_(x + 1.0)
        density: JaxArray = constant + x * f - (x + c) * jnp.logaddexp(0.0, f)
        return density

    def _constant(self, rows: Array, nuisance: Nuisance) -> Array:
        c = 1.0 / np.maximum(nuisance.dispersion, LEAST_DISPERSION)
        constant: Array = gammaln(rows + c) - gammaln(c) - gammaln(rows + 1.0)
        return constant

    def _expected(
        self, rows: Array, m: Array, v: Array, nuisance: Nuisance, *, whole: bool = True
    ) -> Expected:
        dispersion = np.maximum(nuisance.dispersion, LEAST_DISPERSION)
        f, total = m + np.log(dispersion), rows + 1.0 / dispersion
        logistic = logistic_moments(f, v)
        value = rows * f - total * logistic.softplus
        if whole:
            value += self._constant(rows, nuisance)
        slope = rows - total * logistic.probability
        return Expected(value, slope, total * logistic.curvature)

    def response(self, m: Array, v: Array, nuisance: Nuisance) -> tuple[Array, Array]:
        """Return `E[r]` and `E[r] + var(r) + dispersion E[r^2]` at a log-normal rate r."""
        mean, variance = log_normal(m, v)
        return mean, mean + variance + nuisance.dispersion * (variance + mean**2)

    def draw(self, predictor: Array, nuisance: Nuisance, rng: np.random.RandomState) -> Array:
        """Draw Poisson counts of gamma rates."""
        c = 1.0 / np.maximum(nuisance.dispersion, LEAST_DISPERSION)
        rate = np.exp(np.minimum(predictor, MOST_LOG_RATE))
        return rng.poisson(rate * rng.gamma(c, 1.0 / c, rate.shape)).astype(np.float64)

    def _network_parameters(self, n_features: int) -> dict[str, Array]:
        shape = () if self.dispersion == "shared" else (n_features,)
        return {"dispersion": np.full(shape, FIRST_DISPERSION)}

    def _site_values(self, nuisance: Nuisance) -> dict[str, Array]:
        log = np.log(nuisance.dispersion)
        return {"log dispersion": np.asarray(log.mean() if self.dispersion == "shared" else log)}

    def _learned(self, values: dict[str, Array], n_features: int) -> Nuisance:
        log, none = values.get("log dispersion"), np.zeros(n_features)
        if log is None:
            return Nuisance(none, none)
        return Nuisance(none, np.broadcast_to(np.exp(log), (n_features,)).copy())
