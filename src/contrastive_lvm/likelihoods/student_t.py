"""Student-t noise: heavy tails through a scale for every entry, or every row."""

from dataclasses import dataclass, replace
from typing import ClassVar, Literal, Self, get_args

import numpy as np
from scipy.optimize import brentq, minimize
from scipy.special import betaln, digamma, gammaln, polygamma

from contrastive_lvm._jax import JaxArray, flat_site, load, special
from contrastive_lvm.arrays import LOG_2PI, Array
from contrastive_lvm.checks import check_choice, check_positive
from contrastive_lvm.likelihoods.base import Noise, NoiseSets, ScaleMixture
from contrastive_lvm.likelihoods.gaussian import Gaussian
from contrastive_lvm.likelihoods.values import (
    Expected,
    LeftOut,
    Nuisance,
    RowSite,
    Scales,
    SiteParameters,
)

Per = Literal["element", "sample"]
LEAST_DF, MOST_DF = 0.2, 1000.0  # that are learned; at 1,000 the noise is almost Gaussian
START_DF = 4.0  # by default, and where learning begins
MOST_LOG_FACTOR = 14.0  # of the noise, where df are learned from entries: a million
# Of ln u, in standard deviations of its posterior: against ten times as many nodes, the log density
# of an entry is right to 2e-5 nats at df = 0.5 and to 2e-8 from df = 6 on.
NODES = np.arange(-10.0, 8.5, 0.5)[:, None]


@dataclass(frozen=True)
class StudentT(ScaleMixture):
    """`x_id | h, u ~ N(l_d' h + mean_d, psi_d / u)`, `u ~ Gamma(df/2, df/2)`.

    With one `u` per entry, each entry has Student-t noise (the paper's robust model, whose marginal
    is a product over entries); with one `u` per row, the whole row does. `q(u)` is a gamma
    distribution, so the weight of an entry is `(df + 1) / (df + E[e^2] / psi)`, and its part of the
    bound is the log density of a Student-t at `E[e^2]`.

    Parameters
    ----------
    df : float or "learn"
        Degrees of freedom. With `"learn"`, `EM` and `VariationalBayes` estimate them from the bound
        if a scale belongs to a row. If it belongs to an entry, the bound overstates them, because
        `q(h) q(u)` treats the uncertainty of the latents as noise without tails (6 becomes 17 in 15
        features); in that case they maximise the density of each entry given the other entries of
        its row.
    per : {"element", "sample"}
        Whether a scale belongs to an entry or to a row.
    noise : {"isotropic", "feature"}
        One `psi` for all features, or one per feature.
    sets : {"shared", "own"}
        Whether all sets share `psi`, or each set has its own; they share the degrees of freedom.

    Examples
    --------
    >>> import contrastive_lvm as clvm
    >>> clvm.StudentT(df="learn")
    StudentT(df='learn', per='element', noise='isotropic', sets='shared')
    """

    df: float | str = START_DF
    per: Per = "element"
    noise: Noise = "isotropic"
    sets: NoiseSets = "shared"

    _df_limits: ClassVar[tuple[float, float]] = (LEAST_DF, MOST_DF)

    def __post_init__(self) -> None:
        check_choice("noise", self.noise, get_args(Noise))
        check_choice("sets", self.sets, get_args(NoiseSets))
        check_choice("per", self.per, get_args(Per))
        if self.df != "learn":
            check_positive("df", self.df, what="a positive number or 'learn'")
        object.__setattr__(self, "_first_df", START_DF if self._learns_df else float(self.df))
        object.__setattr__(self, "_has_df_step", self._learns_df and self.per == "sample")
        object.__setattr__(self, "_has_df_of_entries", self._learns_df and self.per == "element")

    def scales(self, chi2: Array, entries: Array, df: float) -> Scales:
        """Return gamma posteriors of the scales: their means, and the Student-t log density."""
        return (_element_scales if self.per == "element" else _row_scales)(df, chi2, entries)

    def parameters(self, n_features: int, prefix: str = "", n_sets: int = 1) -> SiteParameters:
        """Return noise and df, sites of density 1 in their logarithms (df within its limits)."""
        found = super().parameters(n_features, prefix, n_sets)
        if not self._learns_df:
            return {**found, "df": load().jnp.asarray(self._first_df)}
        between = (float(np.log(LEAST_DF)), float(np.log(MOST_DF)))
        return {**found, "df": load().jnp.exp(flat_site(f"{prefix}log df", (), between))}

    def log_density(self, x: JaxArray, predictor: JaxArray, parameters: SiteParameters) -> JaxArray:
        """Return the Student-t log density of each entry, in JAX, where scales are per element."""
        chi2 = (x - predictor) ** 2 / parameters["noise"]
        log_noise = load().jnp.log(parameters["noise"])
        return _log_student(chi2, 1.0, log_noise, parameters["df"])

    def _observe(self, site: RowSite) -> None:
        """Add sites of the scales and the rows, or the rows with their scales integrated out."""
        numpyro, dist, jnp = load()
        name, predictor, rows, parameters, augmented = site
        df, noise, observed = parameters["df"], parameters["noise"], ~jnp.isnan(rows)
        if augmented:
            width = self._scale_width(rows.shape[1])
            scales = dist.Gamma(df / 2.0, df / 2.0).expand((rows.shape[0], width))
            seen = observed if width > 1 else observed.any(axis=1, keepdims=True)
            u = numpyro.sample(f"{name} scale", scales.mask(seen).to_event(2))
            Gaussian(self.noise)._observe(site._replace(parameters={"noise": noise / u}))
            return
        residual = jnp.where(observed, rows - predictor, 0.0)
        chi2, n, log_noise = residual**2 / noise, observed.astype(residual.dtype), jnp.log(noise)
        log_noise = jnp.where(observed, log_noise, 0.0)
        if self.per == "sample":
            chi2, n, log_noise = chi2.sum(axis=1), n.sum(axis=1), log_noise.sum(axis=1)
        numpyro.factor(name, _log_student(chi2, n, log_noise, df).sum())

    @property
    def _learns_df(self) -> bool:
        """Tell whether degrees of freedom are estimated."""
        return self.df == "learn"

    def _with_df_of_entries(self, left_out: LeftOut, df: float) -> Self:
        return replace(self, df=df_of_entries(left_out, df))

    def _df_step(self, log_excess: float, n_scales: float) -> float:
        return df_step(log_excess, n_scales)

    def _scale_width(self, n_features: int) -> int:
        return n_features if self.per == "element" else 1

    def _constant(self, rows: Array, nuisance: Nuisance) -> Array:
        """Return the log density of a residual of zero."""
        ratio = _log_gamma_ratio(nuisance.df or self._first_df, np.ones(1))
        return np.broadcast_to(ratio - 0.5 * (LOG_2PI + np.log(nuisance.noise)), rows.shape)

    def _expected(
        self, rows: Array, m: Array, v: Array, nuisance: Nuisance, *, whole: bool = True
    ) -> Expected:
        """Return the bound with `q(u)` at its optimum, one u per entry, and its derivatives."""
        psi, df, residual = nuisance.noise, nuisance.df or self._first_df, rows - m
        chi2 = (residual**2 + v) / psi
        value = -0.5 * (df + 1.0) * np.log1p(chi2 / df)
        if whole:
            value += self._constant(rows, nuisance)
        precision = (df + 1.0) / (df + chi2) / psi
        return Expected(value, precision * residual, precision)

    def _draw_scales(self, df: float, rng: np.random.RandomState, shape: tuple[int, int]) -> Array:
        size = shape if self.per == "element" else (shape[0], 1)
        return np.asarray(rng.gamma(df / 2.0, 2.0 / df, size))

    def _variance_factor(self, df: float) -> float:
        return df / (df - 2.0) if df > 2 else np.inf

    def _network_parameters(self, n_features: int) -> dict[str, Array] | None:
        return None  # degrees of freedom would be learned too

    def _site_values(self, nuisance: Nuisance) -> dict[str, Array]:
        values = super()._site_values(nuisance)
        if self._learns_df:
            df = nuisance.df or self._first_df
            values["log df"] = np.log(np.clip(df, 1.1 * LEAST_DF, 0.9 * MOST_DF))
        return values

    def _learned(self, values: dict[str, Array], n_features: int) -> Nuisance:
        found, log_df = super()._learned(values, n_features), values.get("log df")
        return found if log_df is None else found._replace(df=float(np.exp(log_df)))


def _log_student(
    chi2: JaxArray, n: JaxArray | float, log_noise: JaxArray, df: JaxArray | float
) -> JaxArray:
    """Return the log density of n entries with a common scale, in JAX."""
    jnp = load().jnp
    gamma = special().gammaln(0.5 * (df + n)) - special().gammaln(0.5 * df)
    gamma -= 0.5 * n * jnp.log(jnp.pi * df)
    density: JaxArray = gamma - 0.5 * log_noise - 0.5 * (df + n) * jnp.log1p(chi2 / df)
    return density


def df_step(log_excess: float, n_scales: float) -> float:
    """Maximise the bound over the degrees of freedom, given `sum E[ln u] - E[u]`."""

    def slope(log_df: float) -> float:
        half = np.exp(log_df) / 2.0
        return float(n_scales * (np.log(half) + 1.0 - digamma(half)) + log_excess)

    low, high = np.log(LEAST_DF), np.log(MOST_DF)
    if slope(low) <= 0:
        return LEAST_DF
    return MOST_DF if slope(high) >= 0 else float(np.exp(brentq(slope, low, high)))


def df_of_entries(left_out: LeftOut, first: float) -> float:
    """Maximise the density of entries left out over df and a common factor c of the noise.

    An entry has the density `int Gamma(u; df/2, df/2) N(e; 0, c psi / u + v) du`, by the
    trapezoidal rule in ln u about the posterior mean of u. By Fisher's identity its slope in df is
    `(E[ln u] - E[u] + ln(df/2) + 1 - digamma(df/2)) / 2`, expectations given the entry. The factor
    has limits: entries without residual and variance, as of constant features, have a density that
    grows without bound as c falls.
    """
    e2, v, psi, weights = left_out.residual**2, left_out.variance, left_out.noise, left_out.weights
    total = float(weights.sum())

    def cost(theta: Array) -> tuple[float, Array]:
        half, c = 0.5 * np.exp(theta[0]), np.exp(theta[1])
        centre = np.log((half + 0.5) / (half + 0.5 * e2 / (c * psi + v)))
        log_u = centre + np.sqrt(polygamma(1, half + 0.5)) * NODES
        u = np.exp(log_u)
        noise = c * psi / u
        spread = noise + v
        log_density = half * (log_u - u) - 0.5 * (np.log(spread) + e2 / spread)
        highest = log_density.max(axis=0)
        share = np.exp(log_density - highest)
        density = share.sum(axis=0)
        share /= density
        # The step between nodes depends on df alone.
        constant = half * np.log(half) - gammaln(half) + 0.5 * np.log(polygamma(1, half + 0.5))
        value = weights @ (highest + np.log(density)) + total * constant
        excess = weights @ (share * (log_u - u)).sum(axis=0)
        slope = half * (excess + total * (np.log(half) + 1.0 - digamma(half)))
        tilt = 0.5 * weights @ (share * noise * (e2 / spread - 1.0) / spread).sum(axis=0)
        return -value / total, -np.array([slope, tilt]) / total

    limits = [(np.log(LEAST_DF), np.log(MOST_DF)), (-MOST_LOG_FACTOR, MOST_LOG_FACTOR)]
    start = np.array([np.log(np.clip(first, LEAST_DF, MOST_DF)), 0.0])
    found = minimize(cost, start, jac=True, method="L-BFGS-B", bounds=limits)
    return float(np.exp(found.x[0]))


def _element_scales(df: float, chi2: Array, entries: Array) -> Scales:
    a = 0.5 * (df + 1.0)
    scaled = chi2 / df
    logs = np.log1p(scaled) if df > MOST_DF else None
    scaled += 1.0
    if logs is None:  # numpy's log is several times as fast as its log1p, and here as exact
        logs = np.log(scaled)
    tail = logs.sum(axis=1)
    weights = np.divide((df + 1.0) / df, scaled, out=scaled)
    unseen = (chi2.shape[1] - entries) * ((df + 1.0) / df)  # missing entries have chi2 = 0
    level = float(digamma(a)) - float(np.log(0.5 * df))
    excess = entries * level - tail - (weights.sum(axis=1) - unseen)
    constant = float(_log_gamma_ratio(df, np.ones(1))[0])
    return Scales(weights, entries * constant - a * tail, excess, entries)


def _row_scales(df: float, chi2: Array, entries: Array) -> Scales:
    total = chi2.sum(axis=1)
    a, tail = 0.5 * (df + entries), np.log1p(total / df)
    weights = (df + entries) / (df + total)
    excess = digamma(a) - np.log(0.5 * df) - tail - weights
    bound = _log_gamma_ratio(df, entries) - a * tail
    return Scales(weights[:, None], bound, excess, np.ones(len(total)))


def _log_gamma_ratio(df: float, entries: Array) -> Array:
    """`ln Gamma((df + n) / 2) - ln Gamma(df / 2) - (n / 2) ln(df / 2)`; tends to 0 with large df.

    As `gammaln(n/2) - betaln(df/2, n/2)`, which does not cancel terms of order df ln df.
    """
    half = 0.5 * np.maximum(entries, 1.0)
    ratio = gammaln(half) - betaln(0.5 * df, half) - half * np.log(0.5 * df)
    return np.asarray(np.where(entries > 0, ratio, 0.0))
