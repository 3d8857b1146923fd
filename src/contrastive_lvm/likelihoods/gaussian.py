"""Gaussian noise."""

from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np

from contrastive_lvm._jax import flat_site, load
from contrastive_lvm.arrays import Array, Matrix
from contrastive_lvm.checks import check_choice
from contrastive_lvm.likelihoods.base import LOG_2PI, Entries, Expected, Nuisance, Working
from contrastive_lvm.linalg.matrices import column_means

Noise = Literal["isotropic", "feature"]
FLOOR = 1e-6  # least noise variance, relative to the variance of the data
CONSTANT = 1e-24  # a feature whose variance is below this share of the mean's does not vary


@dataclass(frozen=True)
class Gaussian(Entries):
    """Gaussian noise, `x_d | h ~ N(l_d' h + mean_d, psi_d)`.

    Parameters
    ----------
    noise : {"isotropic", "feature"}
        One noise variance for all features (the paper's `sigma^2`), or one a feature. Both are
        shared by the two sets. A variance is kept above 1e-6 of the data's (of the feature's own
        for `"feature"`; of the mean over features where a feature is constant), since the
        likelihood is unbounded where loadings fit a feature exactly.

    Examples
    --------
    >>> import contrastive_lvm as clvm
    >>> clvm.Gaussian(noise="feature")
    Gaussian(noise='feature')
    """

    noise: Noise = "isotropic"

    def __post_init__(self) -> None:
        check_choice("noise", self.noise, get_args(Noise))

    @property
    def isotropic(self) -> bool:
        """Whether all features share one variance."""
        return self.noise == "isotropic"

    def floor(self, variance: Array, n_features: int) -> Array:
        """Least noise variance of each feature, (D,), from the variances of the data."""
        mean = float(variance.sum()) / n_features
        if self.isotropic:
            return np.full(len(variance), FLOOR * mean)
        return FLOOR * np.where(variance > CONSTANT * mean, variance, mean)

    def noise_step(self, square: Array, count: Array, n_features: int) -> Array:
        """Maximise over the noise: expected squared residuals over observed entries, (D,)."""
        if self.isotropic:
            entries = float(count.sum()) * n_features / len(count)
            return np.full(len(square), float(square.sum()) / entries)
        return square / count

    def parameters(self, n_features: int, prefix: str = "") -> dict[str, Any]:
        """The log noise variance, with density 1."""
        shape = () if self.isotropic else (n_features,)
        return {"noise": load().jnp.exp(flat_site(f"{prefix}log noise", shape))}

    def observe(
        self,
        name: str,
        predictor: Any,
        rows: Any,
        parameters: dict[str, Any],
        *,
        augmented: bool = True,
    ) -> None:
        """A NumPyro site of the rows."""
        numpyro, dist, jnp = load()
        observed = ~jnp.isnan(rows)
        law = dist.Normal(predictor, jnp.sqrt(parameters["noise"])).mask(observed).to_event(2)
        numpyro.sample(name, law, obs=jnp.where(observed, rows, 0.0))

    def log_density(self, x: Any, predictor: Any, parameters: dict[str, Any]) -> Any:
        """In JAX."""
        psi = parameters["noise"]
        return -0.5 * ((x - predictor) ** 2 / psi + load().jnp.log(psi) + LOG_2PI)

    def noisy_columns(self, n_features: int) -> np.ndarray:
        """All."""
        return np.ones(n_features, dtype=bool)

    def constant(self, rows: Array, nuisance: Nuisance) -> Array:
        """`-1/2 ln(2 pi psi)`."""
        return np.broadcast_to(-0.5 * (LOG_2PI + np.log(nuisance.noise)), rows.shape)

    def expected(
        self, rows: Array, m: Array, v: Array, nuisance: Nuisance, *, whole: bool = True
    ) -> Expected:
        """Closed form."""
        psi, residual = nuisance.noise, rows - m
        value = -0.5 * (residual**2 + v) / psi
        if whole:
            value += self.constant(rows, nuisance)
        return Expected(value, residual / psi, np.broadcast_to(1.0 / psi, m.shape))

    def response(self, m: Array, v: Array, nuisance: Nuisance) -> tuple[Array, Array]:
        """The predictor, and its variance with the noise's."""
        return m, v + nuisance.noise

    def draw(self, predictor: Array, nuisance: Nuisance, rng: np.random.RandomState) -> Array:
        """New entries."""
        noise: Array = rng.standard_normal(predictor.shape) * np.sqrt(nuisance.noise)
        return predictor + noise

    def network_parameters(self, n_features: int) -> dict[str, Array]:
        """The noise variance, at first all the variance of standardised data."""
        return {"noise": np.ones(() if self.isotropic else (n_features,))}

    def working(self, rows: Matrix, log_sizes: Array) -> Working:
        """The rows themselves."""
        return Working(rows, np.ones(rows.shape[1]), column_means(rows))
