"""The posterior of a fitted guide: loadings, gauge, scales, draws."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from scipy.linalg import block_diag

from contrastive_lvm._jax import AnyArray, JaxArray, double_precision, jax, to_numpy
from contrastive_lvm.arrays import Array
from contrastive_lvm.black_box.sites import (
    latent_sites,
    loadings_at,
    prior_states,
    public_draws,
    split_columns,
    turn_columns,
)
from contrastive_lvm.black_box.svi.guide import Guide, GuideParameters
from contrastive_lvm.black_box.svi.svi_loop import SviLoop, SVIState
from contrastive_lvm.draws import Draws, packed_covariance
from contrastive_lvm.linalg import packed
from contrastive_lvm.linalg.gauge import canonical_rotation
from contrastive_lvm.model import Model
from contrastive_lvm.posterior import Posterior
from contrastive_lvm.priors.base import LogMoments

MOMENT_DRAWS = 1000  # of loadings whose moments have no closed form


class FittedGuide(NamedTuple):
    """A guide with its parameters."""

    guide: Guide
    parameters: GuideParameters
    units: Mapping[str, AnyArray]

    def draws(self, n: int, seed: int) -> dict[str, Array]:
        """Draw the sites that do not belong to rows, and the loadings of all blocks."""
        layout = self.guide.layout
        keys = np.random.default_rng(seed).integers(0, 2**32, size=(n, 4), dtype=np.uint32)

        def one(key: JaxArray) -> dict[str, JaxArray]:
            values = self.guide.draw(self.parameters, key, self.units)[0]
            L = loadings_at(layout.model, layout.n_features, values, augmented=layout.augmented)
            return {**values, **{f"{name} loadings": own for name, own in L.items()}}

        drawn = jax.jit(lambda k: jax.lax.map(one, k))(keys)
        return {name: np.asarray(value, dtype=np.float64) for name, value in drawn.items()}

    def centre(self) -> dict[str, Array]:
        """Return values of sites at the centre of their distributions; medians of log-normals."""
        found = self.guide.points_at(self.parameters, self.units)
        loc = {name: q.loc for name, q in self.parameters.gaussians.items()}
        for name, real in self.guide.by_site(loc).items():
            found[name] = self.guide.sites[name].transform(real * self.units.get(name, 1.0))
        return {name: np.asarray(value, dtype=np.float64) for name, value in found.items()}

    def loading_moments(self, seed: int) -> tuple[Array, Array | None]:
        """Return posterior mean (D, K) and packed covariances (Q, D) of the rows of L.

        They are exact where loadings are points or Gaussians; otherwise from draws.
        """
        sites, layout = self.guide.sites, self.guide.layout
        names = [f"{block.name} loadings" for block in layout.model.blocks if block.n_components]
        if layout.family == "low_rank" or any(name not in sites for name in names):
            drawn = self.draws(MOMENT_DRAWS, seed)
            L = np.concatenate([drawn[name] for name in names], axis=2)
            return L.mean(axis=0), packed_covariance(L)
        centre = self.centre()
        mean = np.hstack([centre[name] for name in names])
        widths = [sites[name].shape[1] for name in names]
        columns = np.flatnonzero(np.repeat([not sites[name].flat for name in names], widths))
        if not len(columns):
            return mean, None
        roots = np.zeros((*mean.shape, mean.shape[1]))
        unit = np.asarray(self.units[names[0]])[:, :, None]
        roots[:, columns[:, None], columns] = self.parameters.gaussians["loadings"].roots() * unit
        i, j = packed.pair_indices(mean.shape[1])
        return mean, np.ascontiguousarray((roots @ roots.transpose(0, 2, 1))[:, i, j].T)


def svi_posterior(loop: SviLoop) -> Posterior:
    """Return the best parameters of a fit in the canonical gauge, with their bound and state."""
    bound, error = loop.finish()
    model, D = loop.layout.model, loop.rows.n_features
    best, optimiser, units = to_numpy((loop.best, loop.optimiser, loop.scaling.units))
    fitted = FittedGuide(loop.guide, best, units)
    mean, covariance = fitted.loading_moments(seed=int(loop.rng.integers(2**31)))
    turns, centre = canonical_turns(model, mean, covariance), fitted.centre()
    learned = model.likelihood._learned(centre, D)
    named = zip(turns.items(), model.columns, strict=True)
    scales = [best.gaussians.get(f"{name} rows scale") for name in model.sets]
    return Posterior(
        loadings={n: np.ascontiguousarray(mean[:, c] @ turn) for (n, turn), c in named},
        means={name: centre[f"{name} mean"] for name in model.sets},
        noise_variance=learned.noise,
        lower_bounds=np.append(loop.trace, bound),
        n_iter=loop.step,
        converged=loop.converged,
        loading_covariance=_turned_covariance(covariance, turns),
        prior_states=_prior_states(fitted, turns),
        weights=tuple(np.exp(s.loc + 0.5 * np.exp(2.0 * s.log_std)) for s in scales if s),
        df=learned.df,
        unit_variance=float((loop.start.unit**2).mean()),
        dispersion=learned.dispersion if learned.dispersion.any() else None,
        lower_bound_error=error,
        state=SVIState(
            best, optimiser, loop.rate, loop.step, loop.trace, loop.layout, units, turns
        ),
    )


def canonical_turns(model: Model, mean: Array, covariance: Array | None) -> dict[str, Array]:
    """Return for each block the (n, n') matrix that turns its columns to canonical ones.

    Where a prior drops columns, those without support are left out: their posterior mean is
    smaller than its uncertainty, `sum_d E[L]^2 < sum_d var(L)`.
    """
    turns = {}
    for block, columns in zip(model.blocks, model.columns, strict=True):
        L = mean[:, columns]
        turn = canonical_rotation(L, keep_columns=block.prior._has_own_columns)
        if block.prior._drops_columns and covariance is not None:
            diagonal = np.diagonal(packed.full_index(mean.shape[1]))[columns]
            supported = (L**2).sum(axis=0) > covariance[diagonal].sum(axis=1)
            turn = turn[:, (np.abs(turn) * supported[:, None]).any(axis=0)]
        turns[block.name] = turn
    return turns


def _turned_covariance(covariance: Array | None, turns: dict[str, Array]) -> Array | None:
    """Return packed covariances of the turned loadings."""
    if covariance is None:
        return None
    R = block_diag(*turns.values())
    full = R.T @ packed.unpack(covariance) @ R
    i, j = packed.pair_indices(R.shape[1])
    return np.ascontiguousarray(full[:, i, j].T)


def _prior_states(fitted: FittedGuide, turns: dict[str, Array]) -> dict[str, object]:
    """Return the states of the priors, values per column in the canonical order."""
    guide, gaussians = fitted.guide, fitted.parameters.gaussians
    model = guide.layout.model
    means = guide.by_site({name: q.loc for name, q in gaussians.items()})
    stds = guide.by_site({name: np.exp(q.log_std) for name, q in gaussians.items()})
    means = turn_columns(model, means, turns)
    variances = turn_columns(model, {name: std**2 for name, std in stds.items()}, turns)
    kept = model.with_sizes({name: turn.shape[1] for name, turn in turns.items()})
    return prior_states(
        kept,
        guide.layout.n_features,
        lambda name: LogMoments(means[name], variances[name]) if name in means else None,
    )


def guide_draws(state: SVIState, n: int, seed: int) -> Draws:
    """Return `n` independent draws as one chain; points are the same in each."""
    model, rng = state.layout.model, np.random.default_rng(seed)
    with double_precision():
        values = FittedGuide(Guide(state.layout), state.parameters, state.units).draws(n, seed)
    for name in model.sets:
        sites = latent_sites(model, name)
        if sites:
            latents = state.parameters.gaussians[f"latents of {name}"]
            noise = rng.standard_normal((n, *latents.loc.shape))
            drawn = latents.loc + np.einsum("nij,snj->sni", latents.roots(), noise)
            values |= split_columns(drawn, sites)
    turned = turn_columns(model, values, state.turns)
    chain = {name: value[None] for name, value in turned.items()}
    return Draws(public_draws(model, state.layout.n_features, chain), {}, {})
