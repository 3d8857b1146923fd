"""The result of a fit, as one frozen value; everything that follows a fit reads only this."""

from math import isqrt
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from contrastive_lvm.arrays import Array, RowWeights, noise_of
from contrastive_lvm.draws import Draws
from contrastive_lvm.likelihoods.values import Nuisance
from contrastive_lvm.linalg import packed
from contrastive_lvm.linalg.gauge import (
    ROTATIONS,
    canonical_rotation,
    in_standard_errors,
    signs,
)
from contrastive_lvm.linalg.loadings import Loadings, PackedCovariance
from contrastive_lvm.linalg.normal_mixture import NormalMixture, standard_normal

if TYPE_CHECKING:
    from contrastive_lvm.black_box.svi.svi_loop import SVIState


class Posterior(NamedTuple):
    """Fitted values of a linear model, with orthogonal loadings, and the trace of the fit.

    Examples
    --------
    >>> import contrastive_lvm as clvm
    >>> data = clvm.datasets.make_subgroups(random_state=0)
    >>> model = clvm.ContrastiveLVM(2, 10).fit(data.target, background=data.background)
    >>> model.posterior_.loadings["shared"].shape, model.posterior_.means["target"].shape
    ((30, 10), (30,))
    """

    loadings: dict[str, Array]  # (D, n) loadings of each block; means where they have a posterior
    means: dict[str, Array]  # (D,) mean of each set
    noise_variance: Array  # (D,) psi, zero where there is none; (S, D) if each set has its own
    lower_bounds: Array  # bounds after each accepted sweep; under NUTS log densities of draws
    n_iter: int  # number of sweeps, steps or draws
    converged: bool  # whether the stopping rule was met
    loading_covariance: Array | None = None  # (Q, D) packed, all blocks; None for points
    bound_parts: dict[str, float] | None = None  # named contributions; they sum to the bound
    prior_states: dict[str, Any] = {}  # noqa: RUF012 - states of the priors, by block
    weights: tuple[RowWeights, ...] = ()  # E[u] of the rows of each set, for scale mixtures
    df: float | None = None  # degrees of freedom of Student-t noise
    unit_variance: float = 1.0  # mean variance of the data's features
    dispersion: Array | None = None  # (D,) dispersions of negative binomial features, else zero
    lower_bound_error: float = 0.0  # Monte-Carlo standard error of the bound
    state: "SVIState | None" = None  # state of SVI to continue from
    profile: Array | None = None  # (D,) mean counts of features with size factors, zero elsewhere
    draws: Draws | None = None  # draws of all unobserved quantities, under NUTS
    effects: dict[str, Array] = {}  # noqa: RUF012 - (D, C) effects of covariates, by set
    latent_mixtures: dict[str, NormalMixture] = {}  # noqa: RUF012 - mixtures by block
    rotations: dict[str, str] = {}  # noqa: RUF012 - rotations of blocks
    # (K, K) information of an average row on the latents of each block, if these are published in
    # units of its standard errors; they have the roots of its diagonal as standard deviations.
    information: dict[str, Array] = {}  # noqa: RUF012

    @property
    def lower_bound(self) -> float:
        """Return the bound at the end: the log-likelihood for Gaussian noise and flat priors."""
        return float(self.lower_bounds[-1])

    def _samples(self, most: int) -> list["Posterior"]:
        """Return the fit at up to `most` evenly spaced draws of NUTS, if there are any."""
        if self.draws is None:
            return []
        values = self.draws._of_parameters()
        n = len(next(iter(values.values())))
        chosen = np.unique(np.linspace(0, n - 1, min(most, n)).astype(np.intp)).tolist()
        return [self._at({name: own[i] for name, own in values.items()}) for i in chosen]

    def _at(self, drawn: dict[str, Array]) -> "Posterior":
        """Return the fit at one draw of its parameters; other values do not change."""
        noise = drawn.get("noise variance", self.noise_variance)
        if self.noise_variance.ndim == 2:
            noise = np.stack(
                [
                    np.broadcast_to(drawn.get(f"{name} noise variance", own), own.shape)
                    for name, own in zip(self.means, self.noise_variance, strict=True)
                ]
            )
        dispersion = self.dispersion
        if dispersion is not None:
            dispersion = np.broadcast_to(drawn.get("dispersion", dispersion), dispersion.shape)
        return self._replace(
            loadings={n: drawn.get(f"{n} loadings", L) for n, L in self.loadings.items()},
            means={n: drawn.get(f"{n} mean", mean) for n, mean in self.means.items()},
            noise_variance=np.broadcast_to(noise, self.noise_variance.shape),
            df=float(drawn["df"]) if "df" in drawn else self.df,
            dispersion=dispersion,
            loading_covariance=None,
            draws=None,
        )

    def latent_scales(self, block: str) -> Array:
        """Return the prior standard deviations of a block's latents, (n,), without a mixture."""
        if block not in self.information:
            return np.ones(self.loadings[block].shape[1])
        return np.asarray(np.sqrt(np.diagonal(self.information[block])))

    def unit_loadings(self, block: str) -> Array:
        """Return the loadings of a block on latents of unit variance, (D, n)."""
        if block not in self.information:
            return self.loadings[block]
        return self.loadings[block] * self.latent_scales(block)

    def column_variances(self, block: str) -> Array:
        """Return the variance that each column of a block adds to the rows, (n,).

        For correlated latents it is `diag(L' L cov(h))`, whose sum is the variance of `L h`.
        """
        L = self.unit_loadings(block)
        if self.rotations.get(block) != "promax":
            return np.asarray((L**2).sum(axis=0))
        return np.asarray(((L.T @ L) * _covariance(self.latent_mixtures[block])).sum(axis=0))

    def rotated(self, block: str, method: str | None) -> "Posterior":
        """Return the same fit with the loadings and latents of a block in other coordinates.

        With `L' = L A` and `h' = A^-1 h` nothing else changes: the rows have the same distribution.
        Latents are correlated after `"promax"`, `cov(h') = (A' A)^-1`. None restores orthogonal
        loadings.
        """
        if block in self.information:
            return self._rotated_in_standard_errors(block, method)
        old, L = self.latent_mixtures.get(block), self.loadings[block]
        oblique = self.rotations.get(block) == "promax"
        root: Array = np.eye(L.shape[1])
        if oblique and old is not None:  # back to latents of unit covariance
            root = np.asarray(np.linalg.cholesky(_covariance(old)), dtype=np.float64)
        find = canonical_rotation if method is None else ROTATIONS[method]
        A = root @ find(L @ root)
        mixtures = dict(self.latent_mixtures)
        if old is not None or method == "promax":
            moved = (old or standard_normal(L.shape[1])).rotated(np.linalg.inv(A).T)
            mixtures[block] = moved
            if oblique and method != "promax" and len(moved.weights) == 1:
                del mixtures[block]  # standard normal again
        rotations = {name: how for name, how in self.rotations.items() if name != block}
        return self._in_coordinates(block, A)._replace(
            latent_mixtures=mixtures,
            rotations=rotations if method is None else {**rotations, block: method},
        )

    def _rotated_in_standard_errors(self, block: str, method: str | None) -> "Posterior":
        """Rotate latents of unit variance, then return to units of their standard errors."""
        scales, M = self.latent_scales(block), self.information[block]
        if method is None:
            A, M = in_standard_errors(M)
            A *= signs(self.unit_loadings(block) @ A)
        else:
            R = ROTATIONS[method](self.unit_loadings(block))
            M = R.T @ M @ R
            A = R / np.sqrt(np.diagonal(M))
        rotations = {name: how for name, how in self.rotations.items() if name != block}
        return self._in_coordinates(block, scales[:, None] * A)._replace(
            information={**self.information, block: M},
            rotations=rotations if method is None else {**rotations, block: method},
        )

    def _in_coordinates(self, block: str, A: Array) -> "Posterior":
        """Return the fit with loadings `L A` of a block, their errors and draws."""
        covariance, draws = self.loading_covariance, self.draws
        if covariance is not None:
            sizes = [L.shape[1] for L in self.loadings.values()]
            start = int(np.sum(sizes[: list(self.loadings).index(block)]))
            own = slice(start, start + len(A))
            whole = np.eye(sum(sizes))
            whole[own, own] = A
            none = np.zeros(covariance.shape[1])
            covariance = PackedCovariance(covariance, none, sum(sizes)).transformed(whole).values
        return self._replace(
            loadings={**self.loadings, block: np.ascontiguousarray(self.loadings[block] @ A)},
            loading_covariance=covariance,
            draws=None if draws is None else draws._in_coordinates(block, A),
            state=None,
        )

    def nuisance_of(self, name: str) -> Nuisance:
        """Return what the likelihood has learned about a set."""
        noise = noise_of(self.noise_variance, list(self.means).index(name))
        dispersion = np.zeros(len(noise)) if self.dispersion is None else self.dispersion
        return Nuisance(noise, dispersion, self.df)

    def joint_loadings(self, blocks: tuple[str, ...]) -> Loadings:
        """Return the loadings of some blocks side by side, in the given order."""
        sizes = [L.shape[1] for L in self.loadings.values()]
        ends = dict(zip(self.loadings, np.cumsum(sizes).tolist(), strict=True))
        columns = [
            i
            for name in blocks
            for i in range(ends[name] - self.loadings[name].shape[1], ends[name])
        ]
        cov = None
        if self.loading_covariance is not None:
            none = np.zeros(self.loading_covariance.shape[1])
            cov = PackedCovariance(self.loading_covariance, none, sum(sizes))
        everything = Loadings(np.hstack(list(self.loadings.values())), cov)
        return everything.columns(np.array(columns, dtype=np.intp))

    def loading_stds(self) -> dict[str, Array | None]:
        """Return posterior standard deviations of each block, (D, n); None where it is points."""
        if self.loading_covariance is None:
            return dict.fromkeys(self.loadings)
        diagonal = np.diagonal(packed.full_index(isqrt(2 * len(self.loading_covariance))))
        std = np.sqrt(self.loading_covariance[diagonal]).T
        ends = np.cumsum([L.shape[1] for L in self.loadings.values()])[:-1]
        parts = zip(self.loadings, np.split(std, ends, axis=1), strict=True)
        return {name: part if part.any() else None for name, part in parts}


def _covariance(mixture: NormalMixture) -> Array:
    """Return the covariance of latents that follow a mixture, whose mean is zero."""
    between = np.einsum("c,ci,cj->ij", mixture.weights, mixture.means, mixture.means)
    within = np.einsum("c,cij->ij", mixture.weights, mixture.covariances)
    return np.asarray(within + between)
