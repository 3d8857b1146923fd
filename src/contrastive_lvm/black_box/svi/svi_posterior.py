"""What a variational family says once it is fitted: loadings, gauge, scales, draws."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from contrastive_lvm._jax import module
from contrastive_lvm.arrays import Array
from contrastive_lvm.black_box.sites import learned_of, loadings_of
from contrastive_lvm.black_box.svi.guides import Family, globals_only, typed_key
from contrastive_lvm.black_box.svi.svi_loop import Climb
from contrastive_lvm.likelihoods.base import Nuisance
from contrastive_lvm.linalg import packed
from contrastive_lvm.linalg.gauge import canonical_rotation
from contrastive_lvm.linalg.inverse_gamma import from_log_moments
from contrastive_lvm.model import Model
from contrastive_lvm.posterior import Posterior
from contrastive_lvm.priors.ard import ARD
from contrastive_lvm.priors.feature_groups import group_index
from contrastive_lvm.priors.horseshoe import Horseshoe, HorseshoeState

N_DRAWS = 1000


@dataclass(frozen=True)
class Fitted:
    """Parameters of a family, and what is needed to draw from it."""

    family: Family
    model: Model
    parameters: dict[str, Any]
    n_features: int
    augmented: bool
    units: dict[str, Array]

    def draws(self, n: int, seed: int) -> dict[str, Array]:
        """Draws of the global sites and of `L`, (n, D, K), in opposite pairs."""
        jax = module("jax")
        keys = np.random.default_rng(seed).integers(0, 2**32, size=(n, 4), dtype=np.uint32)

        def one(key: Any) -> Any:
            values = globals_only(self.family, self.parameters, typed_key(key), self.units)
            hidden = loadings_of(self.model, self.n_features, values, augmented=self.augmented)
            L = jax.numpy.concatenate([hidden.shared_loadings, hidden.target_loadings], axis=1)
            return {**values, "L": L}

        drawn = jax.jit(lambda k: jax.lax.map(one, k))(keys)
        return {name: np.asarray(value, dtype=np.float64) for name, value in drawn.items()}

    def centre(self) -> dict[str, Array]:
        """Values of the global sites at the centre of their laws; medians of log-normal ones."""
        found = {}
        for kind, names in (("point", self.family.points), ("loc", self.family.laws)):
            for name in names:
                unit = self.units.get(name, 1.0)
                real = np.asarray(self.parameters["globals"][kind][name]) * unit
                found[name] = np.asarray(self.family.sites[name].transform(real))
        return found

    def log_moments(self, name: str) -> tuple[Array, Array]:
        """Mean and variance of the logarithm of a log-normal site."""
        loc = self.parameters["globals"]["loc"][name]
        sd = np.exp(self.parameters["globals"]["log_sd"][name])
        return np.asarray(loc, dtype=np.float64), np.asarray(sd**2, dtype=np.float64)


def loading_moments(fitted: Fitted, seed: int) -> tuple[Array, Array | None]:
    """Posterior mean (D, K) and packed covariances (Q, D) of the rows of `L = [S | W]`.

    Exact for independent Gaussian loadings; otherwise from draws.
    """
    names = [n for n, b in zip(("S", "W"), fitted.model.blocks, strict=True) if b.stop > b.start]
    sites = fitted.family.sites
    if all(name in sites and sites[name].flat for name in names):
        centre = fitted.centre()
        return np.hstack([centre[name] for name in names]).astype(np.float64), None
    if fitted.family.kind in ("mean_field", "structured") and all(name in sites for name in names):
        centre = fitted.centre()
        mean = np.hstack([centre[name] for name in names]).astype(np.float64)
        return mean, _exact_covariance(fitted, names)
    L = fitted.draws(N_DRAWS, seed)["L"]
    mean = L.mean(axis=0)
    i, j = packed.pair_indices(mean.shape[1])
    centred = L - mean
    return mean, np.einsum(
        "nqd,nqd->qd", *(centred[:, :, k].transpose(0, 2, 1) for k in (i, j))
    ) / len(L)


def _exact_covariance(fitted: Fitted, names: list[str]) -> Array:
    """Packed covariances of each feature's loadings, zero where they are points."""
    family, parameters = fitted.family, fitted.parameters["globals"]
    D, widths = fitted.n_features, [family.sites[name].shape[1] for name in names]
    K, uncertain = sum(widths), [name in family.loadings for name in names]
    columns = np.flatnonzero(np.repeat(uncertain, widths))
    root = np.zeros((D, K, K))
    root[:, columns, columns] = 1.0
    if "root" in parameters:
        i, j = np.tril_indices(len(columns), -1)
        root[:, columns[i], columns[j]] = parameters["root"]
    sd = [np.exp(parameters["log_sd"][name]) for name in names if name in family.loadings]
    root[:, columns] *= (np.hstack(sd) * fitted.units[names[0]])[:, :, None]
    covariance = root @ root.transpose(0, 2, 1)
    i, j = packed.pair_indices(K)
    return np.ascontiguousarray(covariance[:, i, j].T)


def gauge(model: Model, mean: Array, covariance: Array | None) -> Array:
    """The (K, K') matrix that turns columns to canonical ones; ARD leaves out unsupported ones.

    A column under ARD is unsupported when its posterior mean is smaller than its uncertainty:
    `sum_d E[L]^2 < sum_d var(L)`.
    """
    blocks = []
    for prior, columns in zip(model.priors, model.blocks, strict=True):
        block = mean[:, columns]
        turn = canonical_rotation(block, keep_columns=isinstance(prior, ARD))
        if isinstance(prior, ARD) and covariance is not None:
            diagonal = np.diagonal(packed.full_index(mean.shape[1]))[columns]
            doubt = covariance[diagonal].sum(axis=1)
            supported = (block**2).sum(axis=0) > doubt
            turn = turn[:, (np.abs(turn) * supported[:, None]).any(axis=0)]
        blocks.append(turn)
    K = [sum(b.shape[axis] for b in blocks) for axis in (0, 1)]
    R = np.zeros((K[0], K[1]))
    R[: blocks[0].shape[0], : blocks[0].shape[1]] = blocks[0]
    R[blocks[0].shape[0] :, blocks[0].shape[1] :] = blocks[1]
    return R


def turned(covariance: Array | None, R: Array) -> Array | None:
    """Packed covariances of `l' R`."""
    if covariance is None:
        return None
    full = R.T @ packed.unpack(covariance) @ R
    i, j = packed.pair_indices(R.shape[1])
    return np.ascontiguousarray(full[:, i, j].T)


def nuisance(fitted: Fitted) -> Nuisance:
    """Noise, dispersion and df at the centre of their laws."""
    return learned_of(fitted.model, fitted.n_features, fitted.centre())


def prior_state(fitted: Fitted, which: int, R: Array) -> Any:
    """Scales of a prior as the inverse gammas that share mean and variance of the logarithm."""
    prior, name = fitted.model.priors[which], ("S", "W")[which]
    columns = fitted.model.blocks[which]
    if columns.stop == columns.start:
        return prior.init((fitted.n_features, 0)) if isinstance(prior, ARD) else None
    if isinstance(prior, ARD):
        order = np.flatnonzero(np.abs(R[columns]).any(axis=0))
        chosen = np.abs(R[columns][:, order]).argmax(axis=0)
        mean, variance = fitted.log_moments(f"{name} variance")
        return from_log_moments(mean[chosen], variance[chosen])
    if not isinstance(prior, Horseshoe):
        return None
    power = 1.0 if fitted.augmented else 2.0
    names = ("rho2", "tau2") if fitted.augmented else ("rho", "tau")
    rho2, tau2 = (
        from_log_moments(
            *(np.atleast_1d(m) * power**p for m, p in zip(moments, (1, 2), strict=True))
        )
        for moments in (fitted.log_moments(f"{name} {n}") for n in names)
    )
    one = np.ones_like(rho2.a)
    return HorseshoeState(
        rho2,
        type(rho2)(one, 1.0 + rho2.mean_inverse()),
        tau2,
        type(rho2)(np.ones(1), 1.0 / prior.scale**2 + tau2.mean_inverse()),
        group_index(prior.groups, fitted.n_features),
    )


def summarised(climb: Climb) -> Posterior:
    """The best parameters of a fit in the canonical gauge, with their bound and state."""
    bound, error = climb.finish()
    fitted = Fitted(
        climb.compiled.family,
        climb.begin.model,
        module("jax").tree.map(np.asarray, climb.best),
        climb.rows.n_features,
        climb.settings.augmented,
        climb.scaling.units,
    )
    mean, covariance = loading_moments(fitted, seed=int(climb.rng.integers(2**31)))
    R = gauge(fitted.model, mean, covariance)
    k = int(np.abs(R[: fitted.model.n_shared]).any(axis=0).sum())
    L, centre, learned = mean @ R, fitted.centre(), nuisance(fitted)
    target_mean = np.asarray(centre["target mean"], dtype=np.float64)
    background_mean = np.asarray(centre.get("background mean", target_mean), dtype=np.float64)
    return Posterior(
        shared_loadings=np.ascontiguousarray(L[:, :k]),
        target_loadings=np.ascontiguousarray(L[:, k:]),
        noise_variance=learned.noise,
        target_mean=target_mean,
        background_mean=background_mean,
        bound_trace=np.append(climb.trace, bound),
        n_sweeps=climb.step,
        converged=climb.converged,
        loading_covariance=turned(covariance, R),
        prior_states=(prior_state(fitted, 0, R), prior_state(fitted, 1, R)),
        weights=_weights(fitted),
        df=learned.df,
        unit_variance=float((climb.begin.unit**2).mean()),
        dispersion=learned.dispersion if learned.dispersion.any() else None,
        bound_error=error,
        state=climb.state(R),
    )


def _weights(fitted: Fitted) -> tuple[Any, ...]:
    """`E[u]` of log-normal scales."""
    return tuple(
        np.exp(s["loc"] + 0.5 * np.exp(2.0 * s["log_sd"])) for s in fitted.parameters["scales"]
    )
