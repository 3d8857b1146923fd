"""What a likelihood has to do for black-box inference and for predictions without a closed form.

The linear predictor of entry (i, d) is `e = l_d' h_i + mean_d` (plus the log of the row's size
factor for counts). A likelihood has a NumPyro density, and in NumPy the expectations of its log
density and of its first two derivatives when `e ~ N(m, v)`: all that a Gaussian posterior of the
latents needs (Opper & Archambeau 2009).
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from contrastive_lvm._jax import load
from contrastive_lvm.arrays import Array, Matrix

LOG_2PI = float(np.log(2.0 * np.pi))


class Scales(NamedTuple):
    """What a likelihood makes of expected squared residuals."""

    weights: Array  # (B, D) or (B, 1): E[u]
    bound: Array  # (B,) without the noise's ln psi
    log_excess: float  # sum of E[ln u] - E[u], for learning the degrees of freedom
    n_scales: int


# (E[e^2] / psi, zero where missing (B, D); observed entries of each row (B,)) -> Scales
Scaler = Callable[[Array, Array], Scales]


class Nuisance(NamedTuple):
    """What a likelihood learns beside the predictor, a value a feature."""

    noise: Array  # (D,) noise variances, zero where a likelihood has none
    dispersion: Array  # (D,) of negative binomials, zero elsewhere
    df: float | None = None  # of Student-t noise

    def of(self, columns: Any) -> "Nuisance":
        """Of some features."""
        return Nuisance(self.noise[columns], self.dispersion[columns], self.df)


class Expected(NamedTuple):
    """Of the log density when the predictor is `N(m, v)`, (B, D)."""

    value: Array  # E[ln p]
    slope: Array  # E[d ln p / d e]
    curvature: Array  # -E[d^2 ln p / d e^2]


class Working(NamedTuple):
    """Rows in which the predictor is about linear, for a start."""

    rows: Matrix  # (N, D)
    slope: Array  # (D,) change of such a row's entry by the predictor's
    intercept: Array  # (D,) predictor of the mean row


@runtime_checkable
class Likelihood(Protocol):
    """Noise about a linear predictor."""

    def parameters(self, n_features: int, prefix: str = "") -> dict[str, Any]:
        """NumPyro sites of what it learns: some of noise, df and dispersion."""
        ...

    def observe(
        self,
        name: str,
        predictor: Any,
        rows: Any,
        parameters: dict[str, Any],
        *,
        augmented: bool = True,
    ) -> None:
        """NumPyro sites of the rows, NaN where missing, about their predictors, (N, D)."""
        ...

    def objection(self, rows: Matrix) -> str | None:
        """What is wrong with the values of rows, and the way out; None when they are fine."""
        ...

    def sized_columns(self, n_features: int) -> np.ndarray:
        """Features whose predictor has the log of the row's size factor added, (D,) bool."""
        ...

    def noisy_columns(self, n_features: int) -> np.ndarray:
        """Features with a noise variance, in units of their own, (D,) bool."""
        ...

    def constant(self, rows: Array, nuisance: Nuisance) -> Array:
        """Terms of each entry's log density that are free of the predictor, (B, D)."""
        ...

    def expected(
        self, rows: Array, m: Array, v: Array, nuisance: Nuisance, *, whole: bool = True
    ) -> Expected:
        """Of each entry; rows hold anything finite where missing.

        The value has the constant unless `whole=False`; its derivatives are the slope in m and
        minus half the curvature in v.
        """
        ...

    def response(self, m: Array, v: Array, nuisance: Nuisance) -> tuple[Array, Array]:
        """Mean and variance of a new entry."""
        ...

    def draw(self, predictor: Array, nuisance: Nuisance, rng: np.random.RandomState) -> Array:
        """New entries."""
        ...

    def working(self, rows: Matrix, log_sizes: Array) -> Working:
        """Rows for a Gaussian start."""
        ...

    def log_density(self, x: Any, predictor: Any, parameters: dict[str, Any]) -> Any:
        """Log density of each entry, in JAX, for likelihoods that networks can have."""
        ...

    def network_parameters(self, n_features: int) -> dict[str, Array] | None:
        """First values of the positive parameters that an autoencoder learns, by name.

        The names are those of `Nuisance`, a value is a number or has one entry per feature. None
        means that the likelihood cannot be the output of a network.
        """
        ...

    def link(self, mean: Array) -> Array:
        """Predictor at which an entry has this mean."""
        ...


class Entries:
    """What most likelihoods answer: nothing to learn, no objection, no sizes, no noise variance."""

    def parameters(self, n_features: int, prefix: str = "") -> dict[str, Any]:
        """None."""
        return {}

    def objection(self, rows: Matrix) -> str | None:
        """Any numbers will do."""
        return None

    def sized_columns(self, n_features: int) -> np.ndarray:
        """None."""
        return np.zeros(n_features, dtype=bool)

    def noisy_columns(self, n_features: int) -> np.ndarray:
        """None."""
        return np.zeros(n_features, dtype=bool)

    def log_density(self, x: Any, predictor: Any, parameters: dict[str, Any]) -> Any:
        """Refuse: entries are not independent given their predictors."""
        raise TypeError(f"{self!r} has no log density entry by entry.")

    def network_parameters(self, n_features: int) -> dict[str, Array] | None:
        """Not an output of networks."""
        return None

    def link(self, mean: Array) -> Array:
        """The mean itself."""
        return mean


class Entrywise(Entries, ABC):
    """A likelihood whose entries are independent given their predictors."""

    @abstractmethod
    def log_density(self, x: Any, predictor: Any, parameters: dict[str, Any]) -> Any:
        """Of each entry, in JAX."""

    def network_parameters(self, n_features: int) -> dict[str, Array] | None:
        """Nothing is learned beside the predictor."""
        return {}

    def observe(
        self,
        name: str,
        predictor: Any,
        rows: Any,
        parameters: dict[str, Any],
        *,
        augmented: bool = True,
    ) -> None:
        """A NumPyro factor: the sum of the log density over observed entries."""
        numpyro, _, jnp = load()
        observed = ~jnp.isnan(rows)
        density = self.log_density(jnp.where(observed, rows, 0.0), predictor, parameters)
        numpyro.factor(name, jnp.where(observed, density, 0.0).sum())
