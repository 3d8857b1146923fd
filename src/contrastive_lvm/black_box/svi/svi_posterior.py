"""What a guide says once it is fitted: loadings, gauge, scales, draws."""

from collections.abc import Mapping
from dataclasses import dataclass

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
from contrastive_lvm.black_box.svi.guides import Guide, GuideParameters, SviLayout, random_key
from contrastive_lvm.black_box.svi.row_gaussians import RowGaussians
from contrastive_lvm.black_box.svi.svi_loop import SviLoop, SVIState
from contrastive_lvm.draws import Draws, packed_covariance
from contrastive_lvm.linalg import packed
from contrastive_lvm.linalg.gauge import canonical_rotation
from contrastive_lvm.model import Model
from contrastive_lvm.posterior import Posterior
from contrastive_lvm.priors.base import LogMoments


@dataclass(frozen=True)
class FittedGuide:
    """A guide with its parameters."""

    guide: Guide
    layout: SviLayout
    parameters: GuideParameters
    units: Mapping[str, AnyArray]

    def draws(self, n: int, seed: int) -> dict[str, Array]:
        """Draw the sites that do not belong to rows, and `L`, (n, D, K)."""
        layout = self.layout
        keys = np.random.default_rng(seed).integers(0, 2**32, size=(n, 4), dtype=np.uint32)

        def one(key: JaxArray) -> dict[str, JaxArray]:
            values = self.guide.draw_without_rows(self.parameters, random_key(key), self.units)
            L = loadings_at(layout.model, layout.n_features, values, augmented=layout.augmented)
            return {**values, "L": L}

        drawn = jax.jit(lambda k: jax.lax.map(one, k))(keys)
        return {name: np.asarray(value, dtype=np.float64) for name, value in drawn.items()}

    def centre(self) -> dict[str, Array]:
        """Return values of sites at the centre of their distributions; medians of log-normals."""
        found = {}
        for name, real in {**self.parameters.globals.points, **self.parameters.globals.loc}.items():
            value = self.guide.sites[name].transform(np.asarray(real) * self.units.get(name, 1.0))
            found[name] = np.asarray(value, dtype=np.float64)
        return found

    def log_moments(self, name: str) -> LogMoments | None:
        """Return moments of the logarithm of a log-normal site."""
        parameters = self.parameters.globals
        if name not in parameters.loc:
            return None
        loc, std = np.asarray(parameters.loc[name]), np.exp(parameters.log_std[name])
        return LogMoments(loc.astype(np.float64), np.asarray(std**2, dtype=np.float64))

    def loading_moments(self, seed: int) -> tuple[Array, Array | None]:
        """Return posterior mean (D, K) and packed covariances (Q, D) of the rows of L.

        They are exact where loadings are points or independent Gaussians; otherwise from draws.
        """
        blocks = self.layout.model.blocks
        names = [f"{block.name} loadings" for block in blocks if block.n_components]
        direct, guide = all(name in self.guide.sites for name in names), self.guide
        points = direct and all(guide.sites[name].flat for name in names)
        if points or (direct and guide.family in ("mean_field", "structured")):
            centre = self.centre()
            mean = np.hstack([centre[name] for name in names])
            return mean, None if points else self._exact_covariance(names)
        L = self.draws(1000, seed)["L"]
        return L.mean(axis=0), packed_covariance(L)

    def _exact_covariance(self, names: list[str]) -> Array:
        """Return packed covariances of each feature's loadings, zero where they are points."""
        guide, parameters = self.guide, self.parameters.globals
        D, widths = self.layout.n_features, [guide.sites[name].shape[1] for name in names]
        K, uncertain = sum(widths), [name in guide.loadings for name in names]
        columns = np.flatnonzero(np.repeat(uncertain, widths))
        root = np.zeros((D, K, K))
        root[:, columns, columns] = 1.0
        if parameters.root is not None:
            i, j = np.tril_indices(len(columns), -1)
            root[:, columns[i], columns[j]] = parameters.root
        std = [np.exp(parameters.log_std[name]) for name in names if name in guide.loadings]
        root[:, columns] *= (np.hstack(std) * self.units[names[0]])[:, :, None]
        i, j = packed.pair_indices(K)
        return np.ascontiguousarray((root @ root.transpose(0, 2, 1))[:, i, j].T)


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


def svi_posterior(loop: SviLoop) -> Posterior:
    """Return the best parameters of a fit in the canonical gauge, with their bound and state."""
    bound, error = loop.finish()
    model, D = loop.layout.model, loop.rows.n_features
    best = to_numpy(loop.best)
    fitted = FittedGuide(loop.guide, loop.layout, best, loop.scaling.units)
    mean, covariance = fitted.loading_moments(seed=int(loop.rng.integers(2**31)))
    turns, centre = canonical_turns(model, mean, covariance), fitted.centre()
    learned = model.likelihood._learned(centre, D)
    named = zip(turns.items(), model.columns, strict=True)
    return Posterior(
        loadings={n: np.ascontiguousarray(mean[:, c] @ turn) for (n, turn), c in named},
        means={name: centre[f"{name} mean"] for name in model.sets},
        noise_variance=learned.noise,
        lower_bounds=np.append(loop.trace, bound),
        n_iter=loop.step,
        converged=loop.converged,
        loading_covariance=_turned_covariance(covariance, turns),
        prior_states=_prior_states(fitted, turns),
        weights=tuple(np.exp(s.loc + 0.5 * np.exp(2.0 * s.log_std)) for s in best.scales),
        df=learned.df,
        unit_variance=float((loop.start.unit**2).mean()),
        dispersion=learned.dispersion if learned.dispersion.any() else None,
        lower_bound_error=error,
        state=loop.state(turns),
    )


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
    model, sites = fitted.layout.model, fitted.guide.sizes
    found = {name: moments for name in sites if (moments := fitted.log_moments(name)) is not None}
    means, variances = (
        turn_columns(model, {name: m[i] for name, m in found.items()}, turns) for i in (0, 1)
    )
    kept = model.with_sizes({name: turn.shape[1] for name, turn in turns.items()})
    return prior_states(
        kept,
        fitted.layout.n_features,
        lambda name: LogMoments(means[name], variances[name]) if name in found else None,
    )


def guide_draws(state: SVIState, n: int, seed: int) -> Draws:
    """Return `n` independent draws as one chain; points are the same in each."""
    layout, model = state.layout, state.layout.model
    with double_precision():
        guide = FittedGuide(Guide(layout), layout, state.parameters, state.units)
        values = guide.draws(n, seed)
    L, rng = values.pop("L"), np.random.default_rng(seed)
    for block, columns in zip(model.blocks, model.columns, strict=True):
        values[f"{block.name} loadings"] = L[:, :, columns]
    for name, latents in zip(model.sets, state.latents, strict=True):
        values |= split_columns(_draw_latents(latents, n, rng), latent_sites(model, name))
    turned = turn_columns(model, values, state.turns)
    chain = {name: value[None] for name, value in turned.items()}
    return Draws(public_draws(model, layout.n_features, chain), {}, {})


def _draw_latents(rows: RowGaussians, n: int, rng: np.random.Generator) -> Array:
    """Draw the latents of all rows, (n, N, K)."""
    N, K = rows.loc.shape
    noise = rng.standard_normal((n, N, K))
    mixed = noise.copy()
    if rows.root is not None:
        T = np.zeros((N, K, K))
        i, j = np.tril_indices(K, -1)
        T[:, i, j] = rows.root
        mixed += np.einsum("nij,snj->sni", T, noise)
    return np.asarray(rows.loc + np.exp(rows.log_std) * mixed)
