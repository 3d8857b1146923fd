"""The horseshoe on rows: most features near zero, the others left alone."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple, Self

import numpy as np

from contrastive_lvm._jax import AnyArray, JaxArray, load, normal_loadings
from contrastive_lvm.arrays import LOG_2PI, Array
from contrastive_lvm.checks import check_number, check_positive
from contrastive_lvm.linalg.inverse_gamma import (
    InverseGamma,
    expected_log_prior,
    from_log_moments,
    probability_product_below,
    product_density,
)
from contrastive_lvm.priors.base import (
    LEAST_SHARE,
    PEAKS_AT_ZERO,
    BoolArray,
    LogMoments,
    Prior,
)
from contrastive_lvm.priors.feature_groups import Groups, bound_groups, group_index

PASSES = 3  # over the scales in an update: a fit takes 44 sweeps; 46 with 1 pass, 42 with 10


class HorseshoeState(NamedTuple):
    """Posterior of the scales: `rho^2` and `lambda` per group, `tau^2` and `xi` for all."""

    rho2: InverseGamma  # (G,)
    lam: InverseGamma  # (G,)
    tau2: InverseGamma  # (1,)
    xi: InverseGamma  # (1,)
    group: np.ndarray  # (D,) group of each feature


@dataclass(frozen=True)
class Horseshoe(Prior[HorseshoeState]):
    """`L_d ~ N(0, rho_g^2 tau^2 I)`, `rho_g ~ C+(0, 1)`, `tau ~ C+(0, scale)`, g the group of d.

    A half-Cauchy is a mixture of inverse gammas: `a^2 | l ~ IG(1/2, 1/l)`, `l ~ IG(1/2, 1/b^2)`
    (Wand et al. 2011; the paper's supplement puts the second one on 1/l, which is wrong), so all
    updates are conjugate. A group is dropped if `P(rho_g^2 tau^2 < delta) > p0`, with delta in
    units of the features' variance.

    Parameters
    ----------
    scale : float
        Scale of the global half-Cauchy. Estimators read it as a multiple of the root mean variance
        of the features (of 1 for counts and binary data). In a `density` it is in the units of the
        data.
    groups : None, array-like or dict
        Features that share a scale: one label per feature, or `{group: [features]}`.
    delta, p0 : float
        Constants of the rule that drops features.

    Examples
    --------
    >>> import contrastive_lvm as clvm
    >>> clvm.Horseshoe(scale=0.1)
    Horseshoe(scale=0.1, groups=None, delta=0.005, p0=0.5)
    """

    scale: float = 1.0
    groups: Groups = None
    delta: float = 5e-3
    p0: float = 0.5

    _why_no_points: ClassVar[str | None] = PEAKS_AT_ZERO
    _loading_site: ClassVar[str | None] = " standard"

    def __post_init__(self) -> None:
        what = "a positive number whose square neither overflows nor vanishes"
        check_number("scale", self.scale, 1e-150, 1e150, what)
        check_positive("delta", self.delta)
        check_positive("p0", self.p0, 1.0, "a probability between 0 and 1")

    def init(self, shape: tuple[int, int]) -> HorseshoeState:
        """Return local scales of one, and a global one as in the prior."""
        group = group_index(self.groups, shape[0])
        sizes: Array = np.bincount(group).astype(np.float64) * shape[1]
        all_groups, a, square = np.ones(len(sizes)), 0.5 * (1.0 + sizes.sum()), self.scale**2
        return HorseshoeState(
            InverseGamma(0.5 * (1.0 + sizes), 0.5 * (1.0 + sizes)),
            InverseGamma(all_groups, 2.0 * all_groups),
            InverseGamma(np.array([a]), np.array([a * square])),
            InverseGamma(np.ones(1), np.array([2.0 / square])),
            group,
        )

    def update(self, state: HorseshoeState, squares: Array) -> HorseshoeState:
        """Update all scales in turn by their conjugate posteriors, a few times."""
        energy = _energy(state, squares)
        rho2, lam, tau2, xi, group = state
        for _ in range(PASSES):
            rho2 = InverseGamma(rho2.a, lam.mean_inverse() + 0.5 * tau2.mean_inverse() * energy)
            lam = InverseGamma(lam.a, 1.0 + rho2.mean_inverse())
            spread = 0.5 * np.atleast_1d((rho2.mean_inverse() * energy).sum())
            tau2 = InverseGamma(tau2.a, xi.mean_inverse() + spread)
            xi = InverseGamma(xi.a, 1.0 / self.scale**2 + tau2.mean_inverse())
        return HorseshoeState(rho2, lam, tau2, xi, group)

    def precision(self, state: HorseshoeState) -> Array:
        """Return `E[1/rho_g^2] E[1/tau^2]`, (D, 1)."""
        group_precision = state.rho2.mean_inverse() * state.tau2.mean_inverse()
        precision: Array = group_precision[state.group][:, None]
        return precision

    def bound(self, state: HorseshoeState, squares: Array) -> float:
        """Return the contribution of the loadings and all scales."""
        rho2, lam, tau2, xi, group = state
        sizes = np.bincount(group) * float(squares.shape[1])
        given = -0.5 * sizes * (LOG_2PI + rho2.mean_log() + tau2.mean_log())
        given -= 0.5 * rho2.mean_inverse() * tau2.mean_inverse() * _energy(state, squares)
        scales = (
            expected_log_prior(rho2, 0.5, lam.mean_inverse(), -lam.mean_log())
            + expected_log_prior(lam, 0.5, 1.0, 0.0)
            + expected_log_prior(tau2, 0.5, xi.mean_inverse(), -xi.mean_log())
            + expected_log_prior(xi, 0.5, 1.0 / self.scale**2, -2.0 * np.log(self.scale))
        )
        entropy = sum(scale.entropy() for scale in (rho2, lam, tau2, xi))
        return float(given.sum()) + scales + entropy

    def sample(self, name: str, shape: tuple[int, int], *, augmented: bool = True) -> JaxArray:
        """Draw from NumPyro sites: the inverse gammas of the closed form, or plain half-Cauchys."""
        numpyro, dist, jnp = load()
        group = group_index(self.groups, shape[0])
        n_groups = int(group.max()) + 1
        if augmented:
            half = 0.5 * jnp.ones(n_groups)
            lam = numpyro.sample(f"{name} lambda", dist.InverseGamma(half, 1.0).to_event(1))
            rho2 = numpyro.sample(f"{name} rho2", dist.InverseGamma(half, 1.0 / lam).to_event(1))
            xi = numpyro.sample(f"{name} xi", dist.InverseGamma(0.5, 1.0 / self.scale**2))
            tau2 = numpyro.sample(f"{name} tau2", dist.InverseGamma(0.5, 1.0 / xi))
            scale = jnp.sqrt(rho2 * tau2)
        else:
            half_cauchy = dist.HalfCauchy(jnp.ones(n_groups)).to_event(1)
            scale = numpyro.sample(f"{name} rho", half_cauchy)
            scale = scale * numpyro.sample(f"{name} tau", dist.HalfCauchy(self.scale))
        return normal_loadings(name, scale[group][:, None], shape, augmented=augmented)

    def _bind(self, n_features: int, names: Sequence[str] | None) -> Self:
        return replace(self, groups=bound_groups(self.groups, n_features, names))

    def _in_units_of(self, variance: float) -> Self:
        return replace(self, scale=self.scale * variance**0.5)

    def _selected_features(
        self, state: HorseshoeState | None, relevance: Array, unit_variance: float
    ) -> BoolArray:
        """Apply the pruning rule; `delta` is in units of the features' variance."""
        if state is None:
            return relevance > 0
        below = probability_product_below(
            state.rho2, state.tau2, self._pruning_threshold(unit_variance)
        )
        selected: BoolArray = (below <= self.p0)[state.group]
        return selected

    def _pruning_threshold(self, unit_variance: float) -> float:
        return self.delta * unit_variance

    def _scale_density(self, state: HorseshoeState, at: Array) -> Array:
        density: Array = product_density(state.rho2, state.tau2, at)[:, state.group]
        return density

    def _site_values(self, L: Array, unit: float, *, augmented: bool) -> dict[str, Array]:
        group = group_index(self.groups, len(L))
        energy = np.bincount(group, weights=(L**2).mean(axis=1)) / np.bincount(group)
        energy = np.maximum(energy, LEAST_SHARE * unit)
        tau2 = np.asarray(np.median(energy))
        rho2 = energy / tau2
        if not augmented:
            return {"rho": np.sqrt(rho2), "tau": np.sqrt(tau2)}
        scales = {"rho2": rho2, "lambda": 1.0 + 1.0 / rho2, "tau2": tau2}
        return {**scales, "xi": np.asarray(1.0 / self.scale**2 + 1.0 / tau2)}

    def _site_variance(self, values: Mapping[str, AnyArray], n_features: int) -> AnyArray:
        rho2, tau2 = (
            values[f"{name}2"] if f"{name}2" in values else values[name] ** 2
            for name in ("rho", "tau")
        )
        variance: AnyArray = (rho2[group_index(self.groups, n_features)] * tau2)[:, None]
        return variance

    def _public_draws(self, values: dict[str, Array]) -> dict[str, Array]:
        squares = {f"{name}2": values[name] ** 2 for name in ("rho", "tau") if name in values}
        return {n: v for n, v in values.items() if n in ("rho2", "tau2")} | squares

    def _state_from(
        self, log_moments: Callable[[str], LogMoments | None], shape: tuple[int, int]
    ) -> HorseshoeState | None:
        rho2, tau2 = (_squared_scale(log_moments, name) for name in ("rho", "tau"))
        if rho2 is None or tau2 is None:
            return None
        return HorseshoeState(
            rho2,
            InverseGamma(np.ones_like(rho2.a), 1.0 + rho2.mean_inverse()),
            tau2,
            InverseGamma(np.ones(1), 1.0 / self.scale**2 + tau2.mean_inverse()),
            group_index(self.groups, shape[0]),
        )


def _squared_scale(
    log_moments: Callable[[str], LogMoments | None], name: str
) -> InverseGamma | None:
    """Return the posterior of a squared scale, from its own moments or those of its root."""
    square, root = log_moments(f"{name}2"), log_moments(name)
    if square is not None:
        return from_log_moments(*map(np.atleast_1d, square))
    if root is None:
        return None
    return from_log_moments(np.atleast_1d(2.0 * root.mean), np.atleast_1d(4.0 * root.variance))


def _energy(state: HorseshoeState, squares: Array) -> Array:
    """Return `sum_{d in g} E[L_d^2]`, (G,)."""
    return np.asarray(np.bincount(state.group, weights=squares.sum(axis=1)), dtype=np.float64)
