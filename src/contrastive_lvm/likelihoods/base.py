"""The base classes of likelihoods.

The linear predictor of entry (i, d) is `e = l_d' h_i + mean_d` (plus the log of the row's size
factor for counts). A likelihood of your own subclasses `Likelihood` and defines

- `log_density(x, predictor, parameters)` in JAX, which `SVI`, `NUTS` and `density` need, and by
  which `transform` and the scores of rows are found too (by quadrature, unless `_expected` is
  given in closed form);
- `response` to impute, and `draw` to sample.

Gaussian noise with a random scale subclasses `ScaleMixture` instead and defines `scales`, which
lets `EM` and `VariationalBayes` fit it in closed form.

Everything else has a default, so that no engine asks what kind of likelihood it has.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import fields, is_dataclass, replace
from functools import lru_cache
from typing import ClassVar, Literal, Self

import numpy as np
import numpy.typing as npt

from contrastive_lvm._jax import JaxArray, double_precision, flat_site, load, module
from contrastive_lvm.arrays import LOG_2PI, Array, Matrix
from contrastive_lvm.likelihoods.values import (
    CountTable,
    Expected,
    LeftOut,
    LinearizedRows,
    Nuisance,
    RowSite,
    Scales,
    SiteParameters,
)
from contrastive_lvm.linalg.matrices import column_means

BoolArray = npt.NDArray[np.bool_]
Noise = Literal["isotropic", "feature"]
NoiseSets = Literal["shared", "own"]
NODES = 32  # of quadrature over the predictor, for densities without expectations of their own
FLOOR = 1e-6  # least noise variance, relative to the variance of the data
CONSTANT = 1e-24  # a feature whose variance is below this share of the mean's does not vary


class Likelihood(ABC):
    """Noise about a linear predictor.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> import contrastive_lvm as clvm
    >>> class Cauchy(clvm.Likelihood):
    ...     def log_density(self, x, predictor, parameters):
    ...         return -jnp.log(jnp.pi * (1.0 + (x - predictor) ** 2))
    >>> round(float(Cauchy().log_density(1.0, 1.0, {})), 4)
    -1.1447
    """

    # Whether EM and variational Bayes have closed-form steps for it.
    _has_closed_form: ClassVar[bool] = False
    # Whether they may use its `_expected`, which must be exact and log-concave in the predictor.
    _has_expectations: ClassVar[bool] = False
    # Whether entries or rows carry expected scales from sweep to sweep.
    _is_scale_mixture: ClassVar[bool] = False
    # Whether degrees of freedom are learned from entries left out, between ascents.
    _has_df_of_entries: bool = False
    # Whether every number has a density, so that values need no check.
    _has_all_values: ClassVar[bool] = False
    # Whether it says by their positions how features differ, so that it does not suit some alone.
    _refers_to_features: ClassVar[bool] = False
    # Whether no row rules out long loadings, so that a flat prior stays improper.
    _needs_proper_prior: bool = False
    # Scale of the normal prior that loadings have by default; 0 where they need none, because those
    # of rare features cannot grow without limit.
    _shrinkage: float = 0.0
    # Whether loadings have variances to be learned by default, where they can have.
    _learns_shrinkage: bool = False

    @abstractmethod
    def log_density(self, x: JaxArray, predictor: JaxArray, parameters: SiteParameters) -> JaxArray:
        """Return the log density of each entry, in JAX."""

    @property
    def _is_isotropic(self) -> bool:
        """Tell whether one noise variance serves all features."""
        return False

    @property
    def _has_own_noise(self) -> bool:
        """Tell whether each set has noise variances of its own."""
        return False

    def parameters(self, n_features: int, prefix: str = "") -> SiteParameters:
        """Return what the likelihood learns from NumPyro sites; by default nothing."""
        return {}

    def _parameters_of_sets(self, n_features: int, n_sets: int) -> list[SiteParameters]:
        """Return what the likelihood learns from NumPyro sites, for each set."""
        return [self.parameters(n_features)] * n_sets

    def response(self, m: Array, v: Array, nuisance: Nuisance) -> tuple[Array, Array]:
        """Return mean and variance of new entries whose predictors are `N(m, v)`."""
        raise TypeError(f"{self!r} cannot predict entries; give it a method response(m, v, ...).")

    def draw(self, predictor: Array, nuisance: Nuisance, rng: np.random.RandomState) -> Array:
        """Draw new entries."""
        raise TypeError(f"{self!r} cannot draw entries; give it a method draw(predictor, ...).")

    def _bind(self, n_features: int, names: Sequence[str] | None) -> Self:
        """Return the likelihood with features named by position."""
        return self

    def _observe(self, site: RowSite) -> None:
        """Add rows to a NumPyro model: the sum of their log densities."""
        numpyro, _, jnp = load()
        observed = ~jnp.isnan(site.rows)
        filled = jnp.where(observed, site.rows, 0.0)
        density = self.log_density(filled, site.predictor, site.parameters)
        numpyro.factor(site.name, jnp.where(observed, density, 0.0).sum())

    def _unsupported_reason(self, rows: Matrix) -> str | None:
        """Say what is wrong with the values of rows, and the way out; None if nothing is."""
        return None

    def _sized_features(self, n_features: int) -> BoolArray:
        """Tell which features have the log of the row's size factor in their predictor, (D,)."""
        return np.zeros(n_features, dtype=bool)

    def _has_counts(self, n_features: int) -> BoolArray:
        """Tell which features have counts, of which a table is made, (D,)."""
        return np.zeros(n_features, dtype=bool)

    def _has_noise(self, n_features: int) -> BoolArray:
        """Tell which features have a noise variance, in units of their own, (D,)."""
        return np.zeros(n_features, dtype=bool)

    def _is_on_data_scale(self, n_features: int) -> BoolArray:
        """Tell which features have a predictor in the units of the data, (D,)."""
        return np.full(n_features, type(self)._linearize is Likelihood._linearize)

    def _constant(self, rows: Array, nuisance: Nuisance) -> Array:
        """Return the terms of each entry's log density that are free of the predictor, (B, D)."""
        return np.zeros(rows.shape)

    def _expected(
        self, rows: Array, m: Array, v: Array, nuisance: Nuisance, *, whole: bool = True
    ) -> Expected:
        """Return expectations for each entry; missing entries may hold any finite value.

        The value includes the terms of `_constant` unless `whole=False`; its derivatives are the
        slope in m and minus half the curvature in v. The default is quadrature over the predictor.
        """
        with double_precision():
            return Expected(*(np.asarray(x) for x in _quadrature(self)(rows, m, v)))

    def _expected_bound(self, rows: Array, m: Array, v: Array, nuisance: Nuisance) -> Expected:
        """Return a lower bound of `_expected` without the constant, for sweeps over all rows.

        By default it is exact; a likelihood whose expectations are expensive may have a cheaper
        bound.
        """
        return self._expected(rows, m, v, nuisance, whole=False)

    def _first_nuisance(self, noise: Array) -> Nuisance:
        """Return values to begin with, given noise variances, (D,), in case there are any."""
        return Nuisance(np.zeros(len(noise)), np.zeros(len(noise)))

    def _nuisance_statistics(
        self,
        rows: Array,
        expected: Expected,
        predictor: tuple[Array, Array],
        nuisance: Nuisance,
        weights: Array,
    ) -> Array:
        """Return sums over rows from which `_nuisance_step` learns, (2, D).

        `expected` is the result of `_expected` without the constant for the `predictor`, mean and
        variance; `weights`, (B, 1) or (B, D), are zero where an entry is missing.
        """
        return np.zeros((2, rows.shape[1]))

    def _nuisance_step(self, statistics: Array, table: CountTable, nuisance: Nuisance) -> Nuisance:
        """Return values under which the expected log density of the rows is greater."""
        return nuisance

    def _constants(self, table: CountTable, nuisance: Nuisance) -> Array:
        """Return the sums of `_constant` over the rows of a table, (D,)."""
        return np.zeros(len(table.entries))

    def _nuisance_bound(self, nuisance: Nuisance) -> float:
        """Return the log density of the values themselves."""
        return 0.0

    def _linearize(self, rows: Matrix, log_sizes: Array) -> LinearizedRows:
        """Return rows for a Gaussian start: by default the rows themselves."""
        return LinearizedRows(rows, np.ones(rows.shape[1]), column_means(rows))

    def _with_equal_means(
        self, sets: Sequence[Array], rng: np.random.Generator
    ) -> list[Array] | None:
        """Change rows of several sets at random, so that features have the same mean in all sets.

        Sets whose predictors differ only by their means then have the same covariances. None means
        that no such change is known.
        """
        return None

    def _link(self, mean: Array) -> Array:
        """Return the predictor at which an entry has this mean: by default the mean itself."""
        return mean

    def _with_feature_noise(self) -> "Likelihood | None":
        """Return the likelihood with a noise variance of each feature; None without such a one."""
        return None

    def _with_own_noise(self) -> "Likelihood | None":
        """Return the likelihood with noise variances of each set; None without such a one."""
        return None

    def _information(self, means: Array, nuisance: Nuisance) -> Array | None:
        """Return the Fisher information on the predictors of a row with given means, (D,).

        `EM` and `VariationalBayes` publish latents in units of the standard errors that it leaves;
        if it is None, latents have unit variance.
        """
        return None

    def _network_parameters(self, n_features: int) -> dict[str, Array] | None:
        """Return first values of the positive parameters that an autoencoder learns, by name.

        The names are those of `Nuisance` and of the parameters of `log_density`; a value is a
        number or has one entry per feature. None means that no network can have this output.
        """
        return {}

    def _scale_width(self, n_features: int) -> int:
        """Return how many scales a row has in an augmented density."""
        return 0

    def _site_values(self, nuisance: Nuisance) -> dict[str, Array]:
        """Return values of the likelihood's NumPyro sites at a start."""
        return {}

    def _learned(self, values: dict[str, Array], n_features: int) -> Nuisance:
        """Return the nuisance values that the values of NumPyro sites stand for."""
        return Nuisance(np.zeros(n_features), np.zeros(n_features))

    def _noise_of_features(self, noise: Array, n_features: int) -> Array:
        """Return noise variances, (D,) or (S, D), from values of the likelihood's site."""
        return noise

    def _public_draws(self, values: dict[str, Array], n_features: int) -> dict[str, Array]:
        """Return draws of the likelihood's sites, (chains, draws, ...), as users see them."""
        public = {"log noise": "noise variance", "log df": "df", "log dispersion": "dispersion"}
        return {
            public.get(site, site): np.exp(value) if site in public else value
            for site, value in values.items()
        }

    def _log_noise_floor(self, unit: Array) -> dict[str, Array]:
        """Return the least values of sites of log noise, by name."""
        return {}


class ScaleMixture(Likelihood):
    """Gaussian noise whose variance `psi_d / u` has a random scale u, for each entry or row.

    Subclasses have a field `noise` and define `scales`; with a field `sets`, which is `"own"` or
    `"shared"`, noise variances may differ between sets.

    Examples
    --------
    >>> import numpy as np
    >>> import contrastive_lvm as clvm
    >>> found = clvm.StudentT().scales(np.array([[1.0, 25.0]]), np.array([2]), 4.0)
    >>> found.weights.round(2)
    array([[1.  , 0.17]])
    """

    _has_closed_form: ClassVar[bool] = True
    _is_scale_mixture: ClassVar[bool] = True
    _has_all_values: ClassVar[bool] = True
    # Whether degrees of freedom are learned from the bound, in every sweep, and their limits.
    _has_df_step: bool = False
    _df_limits: ClassVar[tuple[float, float]] = (0.0, np.inf)
    # Degrees of freedom to begin with; 0 where there are none.
    _first_df: float = 0.0
    noise: Noise
    sets: NoiseSets = "shared"

    def _with_feature_noise(self) -> Likelihood | None:
        return self._with_field("noise", "feature")

    def _with_own_noise(self) -> Likelihood | None:
        return self._with_field("sets", "own")

    def _with_field(self, name: str, value: str) -> Likelihood | None:
        """Return the likelihood with another value of a field; None if it cannot be changed."""
        names: list[str] = []
        if is_dataclass(self):
            names = [field.name for field in fields(self)]
        if name not in names or getattr(self, name) == value:
            return None
        changed: Likelihood = replace(self, **{name: value})  # type: ignore[type-var]
        return changed

    def scales(self, chi2: Array, entries: Array, df: float) -> Scales:
        """Return weights `E[u]` and their part of the bound from `E[e^2] / psi`, (B, D).

        Missing entries have `chi2 = 0`; `entries` counts the observed ones of each row, (B,).
        """
        raise TypeError(f"{self!r} has no scales; give it a method scales(chi2, entries, df).")

    @property
    def _is_isotropic(self) -> bool:
        return self.noise == "isotropic"

    @property
    def _has_own_noise(self) -> bool:
        return self.sets == "own"

    def _noise_floor(self, variance: Array, n_features: int) -> Array:
        """Return the least noise variance of each feature, (D,), from the data's variances."""
        mean = float(variance.sum()) / n_features
        if self._is_isotropic:
            return np.full(len(variance), FLOOR * mean)
        return FLOOR * np.where(variance > CONSTANT * mean, variance, mean)

    def _noise_step(self, square: Array, count: Array, n_features: int) -> Array:
        """Maximise over the noise: expected squared residuals over observed entries, (D,).

        Sets with noise of their own have a row each, (S, D).
        """
        if square.ndim == 2:
            pairs = zip(square, count, strict=True)
            return np.stack([self._noise_step(own, n, n_features) for own, n in pairs])
        if self._is_isotropic:
            entries = float(count.sum()) * n_features / len(count)
            return np.full(len(square), float(square.sum()) / entries)
        return square / count

    def _with_df_of_entries(self, left_out: LeftOut, df: float) -> Self:
        """Return the likelihood with degrees of freedom that predict entries best."""
        return self

    def _df_step(self, log_excess: float, n_scales: float) -> float:
        """Maximise the bound over the degrees of freedom, given `sum E[ln u] - E[u]`."""
        return self._first_df

    def _variance_factor(self, df: float) -> float:
        """Return `E[1/u]`: the variance of an unobserved entry's noise over psi."""
        return 1.0

    def _draw_scales(self, df: float, rng: np.random.RandomState, shape: tuple[int, int]) -> Array:
        """Draw scales of new entries, (N, D), or rows, (N, 1)."""
        return np.ones((shape[0], 1))

    def parameters(self, n_features: int, prefix: str = "", n_sets: int = 1) -> SiteParameters:
        """Return the noise variance; its logarithm is a site of density 1."""
        sets = (n_sets,) if self._has_own_noise else ()
        shape = sets if self._is_isotropic else (*sets, n_features)
        return {"noise": load().jnp.exp(flat_site(f"{prefix}log noise", shape))}

    def _parameters_of_sets(self, n_features: int, n_sets: int) -> list[SiteParameters]:
        if not self._has_own_noise:
            return [self.parameters(n_features)] * n_sets
        found = self.parameters(n_features, n_sets=n_sets)
        return [{**found, "noise": found["noise"][i]} for i in range(n_sets)]

    def response(self, m: Array, v: Array, nuisance: Nuisance) -> tuple[Array, Array]:
        """Return the predictor, and its variance with the noise's."""
        factor = self._variance_factor(nuisance.df or self._first_df)
        return m, v + nuisance.noise * factor

    def draw(self, predictor: Array, nuisance: Nuisance, rng: np.random.RandomState) -> Array:
        """Draw new entries."""
        scales = self._draw_scales(nuisance.df or self._first_df, rng, _shape_of(predictor))
        noise: Array = rng.standard_normal(predictor.shape) * np.sqrt(nuisance.noise / scales)
        return predictor + noise

    def _with_equal_means(
        self, sets: Sequence[Array], rng: np.random.Generator
    ) -> list[Array] | None:
        return [rows - np.nanmean(rows, axis=0) for rows in sets]

    def _has_noise(self, n_features: int) -> BoolArray:
        return np.ones(n_features, dtype=bool)

    def _network_parameters(self, n_features: int) -> dict[str, Array] | None:
        """Return the noise variance, at first all the variance of standardised data."""
        if self._has_own_noise:
            return None
        return {"noise": np.ones(() if self._is_isotropic else (n_features,))}

    def _expected(
        self, rows: Array, m: Array, v: Array, nuisance: Nuisance, *, whole: bool = True
    ) -> Expected:
        """Return the bound with the scales at their best, one per entry, and its derivatives."""
        psi, residual, df = nuisance.noise, rows - m, nuisance.df or self._first_df
        chi2 = (residual**2 + v) / psi
        scales = self.scales(chi2.reshape(-1, 1), np.ones(chi2.size), df)
        value = scales.bound.reshape(chi2.shape) - 0.5 * (LOG_2PI + np.log(psi))
        precision = scales.weights.reshape(chi2.shape) / psi
        return Expected(value, precision * residual, precision)

    def _first_nuisance(self, noise: Array) -> Nuisance:
        return Nuisance(noise, np.zeros(noise.shape[-1]), self._first_df or None)

    def _nuisance_statistics(
        self,
        rows: Array,
        expected: Expected,
        predictor: tuple[Array, Array],
        nuisance: Nuisance,
        weights: Array,
    ) -> Array:
        """Return expected squared residuals times their scales, and how many there are."""
        square = ((rows - predictor[0]) ** 2 + predictor[1]) * expected.curvature * nuisance.noise
        square *= weights
        return np.stack([square.sum(axis=0), np.broadcast_to(weights, square.shape).sum(axis=0)])

    def _nuisance_step(self, statistics: Array, table: CountTable, nuisance: Nuisance) -> Nuisance:
        return nuisance._replace(
            noise=self._noise_step(statistics[0], statistics[1], statistics.shape[1])
        )

    def _site_values(self, nuisance: Nuisance) -> dict[str, Array]:
        log_noise = np.log(nuisance.noise)
        return {
            "log noise": np.asarray(log_noise.mean(axis=-1)) if self._is_isotropic else log_noise
        }

    def _learned(self, values: dict[str, Array], n_features: int) -> Nuisance:
        log_noise = values.get("log noise")
        noise, df = np.zeros(n_features), self._first_df or None
        if log_noise is not None:
            noise = self._noise_of_features(np.exp(log_noise), n_features)
        return Nuisance(noise, np.zeros(n_features), df)

    def _noise_of_features(self, noise: Array, n_features: int) -> Array:
        return np.repeat(noise[..., None], n_features, axis=-1) if self._is_isotropic else noise

    def _log_noise_floor(self, unit: Array) -> dict[str, Array]:
        least = np.log(FLOOR) + 2.0 * np.log(unit)
        return {"log noise": np.asarray(least.mean() if self._is_isotropic else least)}


def _shape_of(rows: Array) -> tuple[int, int]:
    return rows.shape[0], rows.shape[1]


@lru_cache(maxsize=16)
def _quadrature(likelihood: Likelihood) -> Callable[[Array, Array, Array], list[JaxArray]]:
    """Return a compiled function (rows, m, v) -> expectations under `N(m, v)`, entry by entry.

    By Bonnet's and Price's identities `E[(ln p)'] = dE[ln p]/dm` and
    `E[(ln p)''] = 2 dE[ln p]/dv`; here the derivatives are JAX's, at Gauss-Hermite nodes.
    """
    jax, jnp = module("jax"), load().jnp
    nodes, weights = np.polynomial.hermite_e.hermegauss(NODES)
    weights = weights / weights.sum()

    def log_density(e: JaxArray, x: JaxArray) -> JaxArray:
        return likelihood.log_density(x, e, {})

    slope = jax.grad(log_density)
    derivatives = (log_density, slope, jax.grad(slope))

    def expectations(rows: JaxArray, m: JaxArray, v: JaxArray) -> list[JaxArray]:
        def add_node(
            total: list[JaxArray], node: tuple[JaxArray, JaxArray]
        ) -> tuple[list[JaxArray], None]:
            x, weight = node
            e = m + x * jnp.sqrt(v)
            each = [jnp.vectorize(f)(e, rows) for f in derivatives]
            return [t + weight * f for t, f in zip(total, each, strict=True)], None

        zero = [jnp.zeros(m.shape)] * 3
        (value, first, second), _ = jax.lax.scan(add_node, zero, (nodes, weights))
        return [value, first, -second]

    compiled: Callable[[Array, Array, Array], list[JaxArray]] = jax.jit(expectations)
    return compiled
