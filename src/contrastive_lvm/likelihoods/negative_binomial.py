"""Counts that vary more than a Poisson's."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from scipy.special import gammaln, psi, zeta

from contrastive_lvm._jax import JaxArray, load, special
from contrastive_lvm.arrays import LOG_2PI, Array
from contrastive_lvm.checks import check_choice
from contrastive_lvm.likelihoods.counts import (
    CountLikelihood,
    SizeFactors,
    log_normal,
)
from contrastive_lvm.likelihoods.poisson import MOST_LOG_RATE
from contrastive_lvm.likelihoods.values import CountTable, Expected, Nuisance, SiteParameters
from contrastive_lvm.linalg.quadrature import Logistic, logistic_bounds, logistic_moments

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
        One dispersion per feature, or one for all features.

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
        found = _expected_by(logistic_moments, rows, m, v, nuisance)
        return (
            found._replace(value=found.value + self._constant(rows, nuisance)) if whole else found
        )

    def _expected_bound(self, rows: Array, m: Array, v: Array, nuisance: Nuisance) -> Expected:
        return _expected_by(logistic_bounds, rows, m, v, nuisance)

    def _first_nuisance(self, noise: Array) -> Nuisance:
        return Nuisance(np.zeros(len(noise)), np.full(len(noise), FIRST_DISPERSION))

    def _nuisance_statistics(
        self,
        rows: Array,
        expected: Expected,
        predictor: tuple[Array, Array],
        nuisance: Nuisance,
        weights: Array,
    ) -> Array:
        """Return slope and curvature of `x f - (x + c) E[s(f)]` in `t = ln dispersion`.

        With `c = exp(-t)`, `f = e + t` and the softplus s with derivatives p and p', these are
        `g + c E[s]` and `2 c E[p] - w - c E[s]`, where `g = x - (x + c) E[p]` and
        `w = (x + c) E[p']` are the slope and the curvature in e.
        """
        dispersion = np.maximum(nuisance.dispersion, LEAST_DISPERSION)
        c = 1.0 / dispersion
        share = c / (rows + c)
        softplus = rows * (predictor[0] + np.log(dispersion))
        softplus -= expected.value
        softplus *= share
        share *= rows - expected.slope  # c E[p]
        slope = expected.slope + softplus
        bend = 2.0 * share - expected.curvature - softplus
        if weights.shape[1] > 1:
            return np.stack([(weights * slope).sum(axis=0), (weights * bend).sum(axis=0)])
        return np.stack([weights[:, 0] @ slope, weights[:, 0] @ bend])

    def _nuisance_step(self, statistics: Array, table: CountTable, nuisance: Nuisance) -> Nuisance:
        """Take a Newton step of the log dispersion t, or a short step uphill where it is convex.

        The rest of the log density, `ln Gamma(x + c) - ln Gamma(c)`, has the derivatives `-a` and
        `a + b` in t, where `a = c (psi(x + c) - psi(c))` and `b = c^2 (psi'(x + c) - psi'(c))`.
        """
        log = np.log(np.maximum(nuisance.dispersion, LEAST_DISPERSION))
        of_features, at = np.exp(-log), table.feature
        c, x = of_features[at], table.value
        a = table.sums(c * (psi(x + c) - psi(of_features)[at]))
        b = table.sums(c**2 * (zeta(2.0, x + c) - zeta(2.0, of_features)[at]))  # psi' is zeta(2)
        slope, bend = statistics[0] - a, statistics[1] + a + b
        if self.dispersion == "shared":
            slope, bend = (np.full(len(log), x.sum()) for x in (slope, bend))
        slope, bend = slope - log / WIDTH**2, bend - 1.0 / WIDTH**2
        step = np.clip(slope / np.maximum(-bend, 0.1 * np.abs(slope) + 1e-12), -1.0, 1.0)
        found = np.maximum(np.exp(log + step), LEAST_DISPERSION)
        return nuisance._replace(dispersion=found)

    def _constants(self, table: CountTable, nuisance: Nuisance) -> Array:
        of_features, at = 1.0 / np.maximum(nuisance.dispersion, LEAST_DISPERSION), table.feature
        x, least = table.value, gammaln(of_features)[at]
        return table.sums(gammaln(x + of_features[at]) - least - gammaln(x + 1.0))

    def _nuisance_bound(self, nuisance: Nuisance) -> float:
        log = np.log(np.maximum(nuisance.dispersion, LEAST_DISPERSION))
        log = log[:1] if self.dispersion == "shared" else log
        return float(-0.5 * ((log / WIDTH) ** 2 + LOG_2PI + 2.0 * np.log(WIDTH)).sum())

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


def _expected_by(
    moments: Callable[[Array, Array], Logistic], rows: Array, m: Array, v: Array, nuisance: Nuisance
) -> Expected:
    """Return expectations without the constant from those of the softplus."""
    dispersion = np.maximum(nuisance.dispersion, LEAST_DISPERSION)
    f = m + np.log(dispersion)
    value, slope, curvature = moments(f, v)
    total = rows + 1.0 / dispersion
    f *= rows
    value *= total
    slope *= total
    curvature *= total
    return Expected(
        np.subtract(f, value, out=value), np.subtract(rows, slope, out=slope), curvature
    )
