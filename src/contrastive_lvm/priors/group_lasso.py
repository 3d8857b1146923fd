"""The group lasso on rows: penalised maximum likelihood with exact zeros."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple, Self

import numpy as np

from contrastive_lvm._jax import JaxArray, flat_site, load
from contrastive_lvm.arrays import TINY, Array
from contrastive_lvm.checks import check_positive
from contrastive_lvm.priors.base import Prior
from contrastive_lvm.priors.feature_groups import Groups, bound_groups, group_index

MOST_STEPS = 60  # of Newton's method, which takes five or so
SMALL_GROUP = 0.05  # relative to the largest norm; smaller groups may be zeros that steps miss


class GroupNorms(NamedTuple):
    """Norms of the groups of loadings."""

    norm: Array  # (G,)
    group: np.ndarray  # (D,) group of each feature


@dataclass(frozen=True)
class GroupLasso(Prior[GroupNorms]):
    """The penalty `rho sum_g sqrt(p_g) ||L_g||_2`, g a group of features and p_g its size.

    Without groups, every feature is a group of its own, with p = 1 (the paper's `r(W)`). The
    penalised step is exact: in the eigenbasis of each feature's curvature,
    `L_dj = c_dj / (gamma_dj + rho_g / n_g)` with `n_g = ||L_g||` the root of one scalar equation,
    and the whole group is zero, exactly, when `||c_g|| <= rho_g`. Only point loadings can be
    exactly zero, so this prior needs `EM`.

    As a scale mixture, `-rho_g ||L_g|| = max_n -1/2 rho_g (||L_g||^2 / n + n)`: the state is n.

    Parameters
    ----------
    rho : float
        Strength of the penalty; larger values keep fewer features. `group_lasso_path` shows its
        effect. It is the paper's rho, in nats per unit of the loadings: data multiplied by c have
        the same fit, multiplied by c, at `rho / c`.
    groups : None, array-like or dict
        Features that are kept or dropped together: one label per feature, or `{group: [features]}`.

    Examples
    --------
    >>> import contrastive_lvm as clvm
    >>> clvm.GroupLasso(rho=400.0)
    GroupLasso(rho=400.0, groups=None)
    """

    rho: float = 1.0
    groups: Groups = None

    _has_proximal_step: ClassVar[bool] = True
    _why_no_posterior: ClassVar[str | None] = (
        "its exact zeros need point loadings; use inference=EM(), or the prior Horseshoe() for a "
        "posterior"
    )
    _loading_site: ClassVar[str | None] = ""

    def __post_init__(self) -> None:
        check_positive("rho", self.rho)

    def init(self, shape: tuple[int, int]) -> GroupNorms:
        """Return norms of one."""
        group, strength = self._strengths(shape[0])
        return GroupNorms(np.ones(len(strength)), group)

    def update(self, state: GroupNorms, squares: Array) -> GroupNorms:
        """Return the norms of the groups."""
        norm = _norms_of_groups(squares, state.group, len(state.norm))
        return GroupNorms(np.maximum(norm, TINY**0.5), state.group)

    def precision(self, state: GroupNorms) -> Array:
        """Return `rho_g / ||L_g||`, (D, 1)."""
        strength = self.rho * np.sqrt(np.bincount(state.group))
        precision: Array = (strength / state.norm)[state.group][:, None]
        return precision

    def bound(self, state: GroupNorms, squares: Array) -> float:
        """Return minus the penalty, or a lower bound to it where the state is not at its best."""
        strength = self.rho * np.sqrt(np.bincount(state.group))
        energy = np.bincount(state.group, weights=squares.sum(axis=1))
        return -0.5 * float(strength @ (energy / state.norm + state.norm))

    def sample(self, name: str, shape: tuple[int, int], *, augmented: bool = True) -> JaxArray:
        """Draw loadings from a NumPyro site of density `exp(-penalty)`, up to a constant."""
        numpyro, _, jnp = load()
        L = flat_site(name, shape)
        group, strength = self._strengths(shape[0])
        square = jnp.zeros(len(strength)).at[group].add((L**2).sum(axis=1))
        # The gradient of a norm at zero is undefined; this is zero there and exact elsewhere.
        norm = jnp.where(square > 0, jnp.sqrt(jnp.where(square > 0, square, 1.0)), 0.0)
        numpyro.factor(f"{name} penalty", -(strength * norm).sum())
        return L

    def _bind(self, n_features: int, names: Sequence[str] | None) -> Self:
        return replace(self, groups=bound_groups(self.groups, n_features, names))

    def _proximal_step(self, curvature: Array, linear: Array) -> Array:
        group, strength = self._strengths(len(linear))
        size = _norms_of_groups(linear**2, group, len(strength))
        norm = _shrunk_norms(curvature, linear, group, strength, size)
        alive = norm > 0
        ridge = np.where(alive, strength / np.where(alive, norm, 1.0), 0.0)[group][:, None]
        shrunk: Array = np.where(alive[group][:, None], linear / (curvature + ridge), 0.0)
        return shrunk

    def _strength_without_features(self, linear: Array) -> float:
        """Return the rho at which the proximal step of these linear terms leaves no group."""
        group, strength = self._strengths(len(linear))
        size = _norms_of_groups(linear**2, group, len(strength))
        return float((size / strength).max() * self.rho)

    def _exact_zeros(self, L: Array, slope_at: Callable[[Array], Array]) -> Array:
        """Set small groups to zero where that is the optimum.

        A group belongs at zero when the gradient of the rest of the bound there is no longer than
        the penalty's strength (the optimality condition of the group lasso).
        """
        group, strength = self._strengths(len(L))
        norm = _norms_of_groups(L**2, group, len(strength))
        small = norm < SMALL_GROUP * norm.max()
        without = np.where(small[group][:, None], 0.0, L)
        pull = _norms_of_groups(slope_at(without) ** 2, group, len(strength))
        return np.where((small & (pull <= strength))[group][:, None], 0.0, L)

    def _strengths(self, n_features: int) -> tuple[np.ndarray, Array]:
        """Return the group of each feature, (D,), and each group's `rho sqrt(p_g)`."""
        group = group_index(self.groups, n_features)
        return group, self.rho * np.sqrt(np.bincount(group))


def _norms_of_groups(squares: Array, group: np.ndarray, n_groups: int) -> Array:
    """Return the Euclidean norm of each group from the squares of its entries."""
    return np.sqrt(np.bincount(group, weights=squares.sum(axis=1), minlength=n_groups))


def _shrunk_norms(
    curvature: Array, linear: Array, group: np.ndarray, strength: Array, size: Array
) -> Array:
    """Return the root n_g of `v(n) = sum_dj (c_dj / (gamma_dj n + rho_g))^2 = 1`.

    It is 0 where `||c_g|| <= rho_g`, and only the other groups need work. There `v^(-1/2)` is
    concave and increases, as in the secular equation of trust regions (More and Sorensen 1983):
    Newton steps towards `v^(-1/2) = 1` from below the root rise to it, in one step where all
    curvatures of a group are alike.
    """
    alive = size > strength
    norm = np.zeros(len(strength))
    if not alive.any():
        return norm
    rows = alive[group]
    place = (np.cumsum(alive) - 1)[group[rows]]
    rho, c2, gamma = strength[alive][place][:, None], linear[rows] ** 2, curvature[rows]
    most = np.zeros(int(alive.sum()))
    np.maximum.at(most, place, gamma.max(axis=1))
    n = (size[alive] - strength[alive]) / most
    for _ in range(MOST_STEPS):
        shift = gamma * n[place][:, None] + rho
        value = np.bincount(place, weights=(c2 / shift**2).sum(axis=1))
        slope = np.bincount(place, weights=(c2 * gamma / shift**3).sum(axis=1))
        step = value * (np.sqrt(value) - 1.0) / slope
        n = np.maximum(n + step, n)
        if (step <= 1e-15 * n).all():
            break
    norm[alive] = n
    return norm
