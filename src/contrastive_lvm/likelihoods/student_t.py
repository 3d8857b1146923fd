"""Student-t noise: heavy tails through a scale for every entry, or every row."""

from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, get_args

import numpy as np
from scipy.optimize import brentq
from scipy.special import betaln, digamma, gammaln

from contrastive_lvm._jax import flat_site, load, special
from contrastive_lvm.arrays import Array, Matrix
from contrastive_lvm.checks import check_choice, check_positive
from contrastive_lvm.likelihoods.base import (
    LOG_2PI,
    Entries,
    Expected,
    Nuisance,
    Scaler,
    Scales,
    Working,
)
from contrastive_lvm.likelihoods.gaussian import Gaussian, Noise
from contrastive_lvm.linalg.matrices import column_means
from contrastive_lvm.linalg.scratch import room

Per = Literal["element", "sample"]
LEAST_DF, MOST_DF = 0.2, 1000.0
START_DF = 4.0


@dataclass(frozen=True)
class StudentT(Entries):
    """`x_id | h, u ~ N(l_d' h + mean_d, psi_d / u)`, `u ~ Gamma(df/2, df/2)`.

    One `u` an entry makes each entry Student-t (the paper's robust model: its marginal is a
    product over entries), one `u` a row the whole row. `q(u)` is a gamma, so that the weight of an
    entry is `(df + 1) / (df + E[e^2] / psi)` and its part of the bound the log-density of a
    Student-t at `E[e^2]`.

    Parameters
    ----------
    df : float or "learn"
        Degrees of freedom.
    per : {"element", "sample"}
        What a scale belongs to.
    noise : {"isotropic", "feature"}
        One `psi` for all features, or one a feature.

    Examples
    --------
    >>> import contrastive_lvm as clvm
    >>> clvm.StudentT(df="learn")
    StudentT(df='learn', per='element', noise='isotropic')
    """

    df: float | str = START_DF
    per: Per = "element"
    noise: Noise = "isotropic"

    def __post_init__(self) -> None:
        Gaussian(self.noise)
        check_choice("per", self.per, get_args(Per))
        if self.df != "learn":
            check_positive("df", self.df, what="a positive number or 'learn'")

    @property
    def isotropic(self) -> bool:
        """Whether all features share one variance."""
        return self.noise == "isotropic"

    @property
    def learns_df(self) -> bool:
        """Whether the degrees of freedom are estimated."""
        return self.df == "learn"

    @property
    def start_df(self) -> float:
        """Degrees of freedom to begin with."""
        return START_DF if self.learns_df else float(self.df)

    def floor(self, variance: Array, n_features: int) -> Array:
        """As for Gaussian noise."""
        return Gaussian(self.noise).floor(variance, n_features)

    def noise_step(self, square: Array, count: Array, n_features: int) -> Array:
        """As for Gaussian noise, of weighted squares."""
        return Gaussian(self.noise).noise_step(square, count, n_features)

    def scaler(self, df: float) -> Scaler:
        """The scale step at given degrees of freedom."""
        return partial(_element_scales if self.per == "element" else _row_scales, df)

    def parameters(self, n_features: int, prefix: str = "") -> dict[str, Any]:
        """Log noise and, when learned, log df, with density 1 (df within its limits)."""
        found = Gaussian(self.noise).parameters(n_features, prefix)
        if not self.learns_df:
            return {**found, "df": self.start_df}
        between = (float(np.log(LEAST_DF)), float(np.log(MOST_DF)))
        return {**found, "df": load().jnp.exp(flat_site(f"{prefix}log df", (), between))}

    def observe(
        self,
        name: str,
        predictor: Any,
        rows: Any,
        parameters: dict[str, Any],
        *,
        augmented: bool = True,
    ) -> None:
        """NumPyro sites of the scales and the rows; without scales when not augmented."""
        numpyro, dist, jnp = load()
        df, noise, observed = parameters["df"], parameters["noise"], ~jnp.isnan(rows)
        if augmented:
            width = rows.shape[1] if self.per == "element" else 1
            law = dist.Gamma(df / 2.0, df / 2.0).expand((rows.shape[0], width))
            seen = observed if width > 1 else observed.any(axis=1, keepdims=True)
            u = numpyro.sample(f"{name} scale", law.mask(seen).to_event(2))
            Gaussian(self.noise).observe(name, predictor, rows, {"noise": noise / u})
            return
        residual = jnp.where(observed, rows - predictor, 0.0)
        chi2, n, log_noise = residual**2 / noise, observed.astype(residual.dtype), jnp.log(noise)
        log_noise = jnp.where(observed, log_noise, 0.0)
        if self.per == "sample":
            chi2, n, log_noise = chi2.sum(axis=1), n.sum(axis=1), log_noise.sum(axis=1)
        gamma = special().gammaln(0.5 * (df + n)) - special().gammaln(0.5 * df)
        gamma -= 0.5 * n * jnp.log(jnp.pi * df)
        density = gamma - 0.5 * log_noise - 0.5 * (df + n) * jnp.log1p(chi2 / df)
        numpyro.factor(name, density.sum())

    def noisy_columns(self, n_features: int) -> np.ndarray:
        """All."""
        return np.ones(n_features, dtype=bool)

    def constant(self, rows: Array, nuisance: Nuisance) -> Array:
        """The log density of a residual of zero."""
        ratio = _log_gamma_ratio(nuisance.df or self.start_df, np.ones(1))
        return np.broadcast_to(ratio - 0.5 * (LOG_2PI + np.log(nuisance.noise)), rows.shape)

    def expected(
        self, rows: Array, m: Array, v: Array, nuisance: Nuisance, *, whole: bool = True
    ) -> Expected:
        """The bound with `q(u)` at its optimum, one u an entry (the class's docstring)."""
        psi, df, residual = nuisance.noise, nuisance.df or self.start_df, rows - m
        chi2 = (residual**2 + v) / psi
        value = -0.5 * (df + 1.0) * np.log1p(chi2 / df)
        if whole:
            value += self.constant(rows, nuisance)
        precision = (df + 1.0) / (df + chi2) / psi
        return Expected(value, precision * residual, precision)

    def response(self, m: Array, v: Array, nuisance: Nuisance) -> tuple[Array, Array]:
        """The predictor, and its variance with the noise's."""
        return m, v + nuisance.noise * self.variance_factor(nuisance.df or self.start_df)

    def draw(self, predictor: Array, nuisance: Nuisance, rng: np.random.RandomState) -> Array:
        """New entries."""
        scales = self.draw_scales(nuisance.df or self.start_df, rng, predictor.shape)
        noise: Array = rng.standard_normal(predictor.shape) * np.sqrt(nuisance.noise / scales)
        return predictor + noise

    def working(self, rows: Matrix, log_sizes: Array) -> Working:
        """The rows themselves."""
        return Working(rows, np.ones(rows.shape[1]), column_means(rows))

    def draw_scales(self, df: float, rng: np.random.RandomState, shape: tuple[int, int]) -> Array:
        """Scales of new entries or rows."""
        size = shape if self.per == "element" else (shape[0], 1)
        return np.asarray(rng.gamma(df / 2.0, 2.0 / df, size))

    def variance_factor(self, df: float) -> float:
        """`E[1/u]` of an entry that was not seen: its noise variance over psi."""
        return df / (df - 2.0) if df > 2 else np.inf


def df_step(log_excess: float, n_scales: int) -> float:
    """Maximise the bound over the degrees of freedom, given `sum E[ln u] - E[u]`."""

    def slope(log_df: float) -> float:
        half = np.exp(log_df) / 2.0
        return float(n_scales * (np.log(half) + 1.0 - digamma(half)) + log_excess)

    low, high = np.log(LEAST_DF), np.log(MOST_DF)
    if slope(low) <= 0:
        return LEAST_DF
    return MOST_DF if slope(high) >= 0 else float(np.exp(brentq(slope, low, high)))


def _element_scales(df: float, chi2: Array, entries: Array) -> Scales:
    a, n = 0.5 * (df + 1.0), float(entries.sum())
    scaled, logs = room("scaled", chi2.shape), room("logs", chi2.shape)
    np.divide(chi2, df, out=scaled)
    if df > MOST_DF:
        np.log1p(scaled, out=logs)
    scaled += 1.0
    if df <= MOST_DF:  # numpy's log is several times as fast as its log1p, and here as exact
        np.log(scaled, out=logs)
    tail = logs.sum(axis=1)
    weights = np.divide((df + 1.0) / df, scaled, out=scaled)
    unseen = (chi2.size - n) * (df + 1.0) / df  # missing entries have chi2 = 0
    level = float(digamma(a)) - float(np.log(0.5 * df))
    excess = n * level - float(tail.sum()) - (float(weights.sum()) - unseen)
    constant = float(_log_gamma_ratio(df, np.ones(1))[0])
    return Scales(weights, entries * constant - a * tail, excess, int(n))


def _row_scales(df: float, chi2: Array, entries: Array) -> Scales:
    total = chi2.sum(axis=1)
    a, tail = 0.5 * (df + entries), np.log1p(total / df)
    weights = (df + entries) / (df + total)
    excess = digamma(a) - np.log(0.5 * df) - tail - weights
    bound = _log_gamma_ratio(df, entries) - a * tail
    return Scales(weights[:, None], bound, float(excess.sum()), len(a))


def _log_gamma_ratio(df: float, entries: Array) -> Array:
    """`ln Gamma((df + n) / 2) - ln Gamma(df / 2) - (n / 2) ln(df / 2)`; tends to 0 with large df.

    As `gammaln(n/2) - betaln(df/2, n/2)`, which does not cancel terms of order df ln df.
    """
    half = 0.5 * np.maximum(entries, 1.0)
    ratio = gammaln(half) - betaln(0.5 * df, half) - half * np.log(0.5 * df)
    return np.asarray(np.where(entries > 0, ratio, 0.0))
