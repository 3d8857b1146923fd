"""The group lasso on rows: penalised maximum likelihood with exact zeros."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from contrastive_lvm._jax import flat_site, load
from contrastive_lvm.arrays import Array
from contrastive_lvm.checks import check_positive
from contrastive_lvm.priors.feature_groups import Groups, group_index

HALVINGS = 60


@dataclass(frozen=True)
class GroupLasso:
    """The penalty `rho sum_g sqrt(p_g) ||L_g||_2`, g a group of features and p_g its size.

    Without groups every feature is its own, with p = 1 (the paper's `r(W)`). The penalised step is
    exact: in the eigenbasis of each feature's curvature, `L_dj = c_dj / (gamma_dj + rho_g / n_g)`
    with `n_g = ||L_g||` the root of one scalar equation, and the whole group is zero, exactly,
    when `||c_g|| <= rho_g`. Only point loadings can be zero, so it goes with `EM`.

    Parameters
    ----------
    rho : float
        Strength; larger values leave fewer features. `group_lasso_path` shows what it does.
    groups : None, array-like or dict
        Features that stay or go together: one label a feature, or `{group: [features]}`.

    Examples
    --------
    >>> import contrastive_lvm as clvm
    >>> clvm.GroupLasso(rho=400.0)
    GroupLasso(rho=400.0, groups=None)
    """

    rho: float = 1.0
    groups: Groups = None

    def __post_init__(self) -> None:
        check_positive("rho", self.rho)

    def penalty(self, L: Array) -> float:
        """`rho sum_g sqrt(p_g) ||L_g||`."""
        group, strength = self.strengths(len(L))
        return float(strength @ np.sqrt(np.bincount(group, weights=(L**2).sum(axis=1))))

    def shrink(self, curvature: Array, linear: Array) -> Array:
        """Maximise `sum_d c_d' l_d - 1/2 l_d' diag(gamma_d) l_d - penalty` over (D, K) loadings."""
        group, strength = self.strengths(len(linear))
        size = np.sqrt(np.bincount(group, weights=(linear**2).sum(axis=1)))
        norm = _group_norms(curvature, linear, group, strength, size)
        alive = norm > 0
        ridge = np.where(alive, strength / np.where(alive, norm, 1.0), 0.0)[group][:, None]
        shrunk: Array = np.where(alive[group][:, None], linear / (curvature + ridge), 0.0)
        return shrunk

    def strength_to_drop(self, linear: Array) -> float:
        """The rho at which `shrink` of these (D, K) linear terms leaves no group."""
        group, strength = self.strengths(len(linear))
        size = np.sqrt(np.bincount(group, weights=(linear**2).sum(axis=1)))
        return float((size / strength).max() * self.rho)

    def sample(self, name: str, shape: tuple[int, int], *, augmented: bool = True) -> Any:
        """A NumPyro site of density `exp(-penalty)`, up to a constant."""
        numpyro, _, jnp = load()
        L = flat_site(name, shape)
        group, strength = self.strengths(shape[0])
        square = jnp.zeros(len(strength)).at[group].add((L**2).sum(axis=1))
        # The gradient of a norm at zero is undefined; this is zero there and exact elsewhere.
        norm = jnp.where(square > 0, jnp.sqrt(jnp.where(square > 0, square, 1.0)), 0.0)
        numpyro.factor(f"{name} penalty", -(strength * norm).sum())
        return L

    def strengths(self, n_features: int) -> tuple[np.ndarray, Array]:
        """The group of each feature, (D,), and each group's `rho sqrt(p_g)`."""
        group = group_index(self.groups, n_features)
        return group, self.rho * np.sqrt(np.bincount(group))


def _group_norms(
    curvature: Array, linear: Array, group: np.ndarray, strength: Array, size: Array
) -> Array:
    """The root n_g of `sum_dj (c_dj / (gamma_dj n + rho_g))^2 = 1`; 0 where `||c_g|| <= rho_g`.

    The left side falls with n, from `(||c_g|| / rho_g)^2` at 0. Bisection between the roots for
    the largest and the least curvature of the group, down to the last bit.
    """
    least = np.full(len(strength), np.inf)
    most = np.zeros(len(strength))
    np.minimum.at(least, group, curvature.min(axis=1))
    np.maximum.at(most, group, curvature.max(axis=1))
    excess = np.maximum(size - strength, 0.0)
    low, high = excess / most, excess / least
    for _ in range(HALVINGS):
        middle = 0.5 * (low + high)
        ratio = linear / (curvature * middle[group][:, None] + strength[group][:, None])
        above = np.bincount(group, weights=(ratio**2).sum(axis=1)) > 1.0
        low, high = np.where(above, middle, low), np.where(above, high, middle)
    norm: Array = np.where(excess > 0, 0.5 * (low + high), 0.0)
    return norm
