"""Coordinates in which chains move well, and the way back to the sites of a density.

The posterior is constant along rotations of a block's columns (with their latents) where its prior
is, and a chain that has to walk around these rings takes ten times the steps. There loadings are
drawn as `L = T Q`, with T lower triangular in K pivot features and the rotation Q, which is uniform
whatever the data, left out: `dL = prod_i |T_ii|^(K-1-i) dT dQ`, i from 0 (Muirhead 1982, theorem
2.1.13). Pivots are positive, except for the last, whose sign may change.

Loadings with a prior variance v that is drawn too are `L = k l + sqrt(k) s x`, `k = v / (v + s^2)`,
with l their value at the start and s about their standard deviation given the data: what is left,
x, is then nearly standard normal whatever v is. Loadings themselves would hold small variances
fast, standardised ones large variances. Log noise is its floor, as in closed form, plus `exp(x)`:
where columns fit a feature exactly, its posterior would otherwise be improper.

Every coordinate is 0 at the start, and moves by about a posterior standard deviation per unit.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from scipy.linalg import qr

from contrastive_lvm._jax import AnyArray, JaxArray, jnp
from contrastive_lvm.arrays import Array, noise_of
from contrastive_lvm.black_box.sites import Site, initial_values, latent_sites, split_columns
from contrastive_lvm.black_box.start import StartingPoint
from contrastive_lvm.draws import Freedom
from contrastive_lvm.model import LoadingBlock, Model

LEAST_LOG_NOISE = 1.0  # above its floor, where chains begin


class NutsCoordinates(NamedTuple):
    """The origin and the unit of the coordinates of each site."""

    start: dict[str, Array]  # of loadings in place of standardised ones
    unit: dict[str, Array]  # of the real-valued form; zero above a pivot; (D, D) roots for means
    power: dict[str, Array]  # of blocks, (D, K): of positive pivots in `dL`, plus 1; else zero
    least: dict[str, Array]  # of log noise
    given: dict[str, Array]


def own_latents(block: LoadingBlock) -> list[str]:
    """Return the sites of a block's latents, in all sets that use it."""
    return [f"{block.name} latents of {name}" for name in block.sets]


def freedom(block: LoadingBlock, given: Collection[str]) -> Freedom:
    """Return the changes of a block's columns that leave the posterior as it is."""
    name, prior = f"{block.name} loadings", block.prior
    known = [name, f"{name}{prior._loading_site or ''}", *own_latents(block)]
    if any(site in given for site in known):
        return "none"
    if not prior._has_own_columns:
        return "rotation"
    return "sign" if any(f"{name} {s}" in given for s in prior._column_sites) else "permutation"


def values_at(
    z: Mapping[str, JaxArray], at: NutsCoordinates, sites: dict[str, Site], model: Model
) -> tuple[dict[str, JaxArray], JaxArray]:
    """Return values of all sites at coordinates, and the log of the volume of a unit cube."""
    values: dict[str, JaxArray] = {name: jnp.asarray(value) for name, value in at.given.items()}
    log_volume = jnp.zeros(())
    for name, site in sites.items():
        if name in at.power:
            continue
        start, unit = at.start[name], at.unit[name]
        move = unit @ z[name] if np.ndim(unit) > len(site.shape) else unit * z[name]
        if name in at.least:
            values[name] = jnp.exp(move) * (start - at.least[name]) + at.least[name]
            log_volume += move.sum()
        else:
            real = site.transform.inv(start) + move
            values[name] = site.transform(real)
            log_volume += site.transform.log_abs_det_jacobian(real, values[name]).sum()
    for block in model.blocks:
        own = _loading_site(block)
        if own in at.power:
            variance = _variance(block, values, len(at.start[own]))
            values[own], volume = _loadings_at(z[own], own, at, variance)
            log_volume += volume
    return values, log_volume


def _loadings_at(
    z: JaxArray, name: str, at: NutsCoordinates, variance: AnyArray | None
) -> tuple[JaxArray, JaxArray]:
    """Return loadings, standardised if they have a variance, and the log of their unit volume."""
    start, unit, power = at.start[name], at.unit[name], at.power[name]
    move, pivot = unit * z, power > 0
    # Entries above a pivot stay zero; their coordinates are standard normal.
    log_volume = (power * move).sum() - 0.5 * jnp.where(unit == 0, z**2, 0.0).sum()
    if variance is None:
        return jnp.where(pivot, start * jnp.exp(move), start + move), log_volume
    share = jnp.where(pivot, 1.0, variance / (variance + unit**2))
    L = jnp.where(pivot, start * jnp.exp(move), share * start + jnp.sqrt(share) * move)
    log_volume += 0.5 * (jnp.log(share) - jnp.log(variance)).sum()
    return L / jnp.sqrt(variance), log_volume


def _loading_site(block: LoadingBlock) -> str:
    """Return the site as which a prior draws loadings; empty where it does not say."""
    suffix = block.prior._loading_site
    return "" if suffix is None else f"{block.name} loadings{suffix}"


def _variance(
    block: LoadingBlock, values: Mapping[str, JaxArray], n_features: int
) -> AnyArray | None:
    """Return the prior variance of loadings, broadcasting to (D, K); None if it has none."""
    prefix = f"{block.name} loadings "
    own = {n.removeprefix(prefix): v for n, v in values.items() if n.startswith(prefix)}
    return block.prior._site_variance(own, n_features)


def coordinates_at(
    start: StartingPoint, sites: dict[str, Site], n_rows: Sequence[int], given: dict[str, Array]
) -> NutsCoordinates:
    """Return coordinates about a start; unknown sites begin in the middle of their support."""
    middle = {n: np.asarray(site.transform(np.zeros(site.shape))) for n, site in sites.items()}
    first, unit, power = middle | initial_values(start, augmented=False), _units(start, n_rows), {}
    for block in start.model.blocks:
        name, own = f"{block.name} loadings", _loading_site(block)
        if own not in sites:
            continue
        first[own], power[own] = first[name], np.zeros(first[name].shape)
        unit[own] = unit[name]
        if freedom(block, given) == "rotation":
            Q, pivots = _triangular_turn(first[name] / start.unit[:, None])
            first |= {n: first[n] @ Q for n in own_latents(block) if n in first}
            first[own], unit[own], power[own] = _triangular(first[name] @ Q, unit[own], pivots)
    floor = start.model.likelihood._log_noise_floor(start.unit)
    least = {name: value for name, value in floor.items() if name in sites}
    for name, value in least.items():
        first[name] = np.maximum(first[name], value + LEAST_LOG_NOISE)
        unit[name] = np.sqrt(2.0 / sum(n_rows)) / (first[name] - value)
    means = {f"{name} mean" for name in start.model.sets}
    shapes = {n: site.shape * 2 if n in means else site.shape for n, site in sites.items()}
    whole = {n: np.broadcast_to(unit.get(n, 1.0), shape) for n, shape in shapes.items()}
    return NutsCoordinates({name: first[name] for name in sites}, whole, power, least, given)


def _units(start: StartingPoint, n_rows: Sequence[int]) -> dict[str, Array]:
    """Return rough posterior standard deviations of the real-valued forms, where they are not 1.

    Means vary as those of rows do, together: their unit is a root of the covariance.
    """
    model = start.model
    found: dict[str, Array] = {}
    noise = np.where(start.nuisance.noise > 0, start.nuisance.noise, start.unit**2)
    counts = dict(zip(model.sets, n_rows, strict=True))
    for i, (name, stds) in enumerate(zip(model.sets, start.latent_stds, strict=True)):
        L, own = start.L[:, model.active_columns(name)], noise_of(noise, i)
        covariance = (L @ L.T + np.diag(own)) / counts[name]
        found[f"{name} mean"] = np.asarray(np.linalg.cholesky(covariance), dtype=np.float64)
        found |= split_columns(stds, latent_sites(model, name))
    for block, columns in zip(model.blocks, model.columns, strict=True):
        square = (start.L[:, columns] ** 2).sum(axis=1) / max(1, block.n_components)
        n = sum(counts[name] for name in block.sets)
        noisy = np.atleast_2d(noise).mean(axis=0, dtype=np.float64)
        found[f"{block.name} loadings"] = np.sqrt((noisy + square) / n)[:, None]
    return found


def _triangular_turn(L: Array) -> tuple[Array, np.ndarray]:
    """Return the (K, K) rotation that makes L lower triangular in its pivot rows, and these."""
    K = L.shape[1]
    pivots: np.ndarray = qr(L.T, mode="r", pivoting=True)[1][:K]
    Q, R = np.linalg.qr(L[pivots].T)
    return np.asarray(Q * np.where(np.diagonal(R) < 0, -1.0, 1.0)), pivots


def _triangular(T: Array, unit: Array, pivots: np.ndarray) -> tuple[Array, Array, Array]:
    """Return start, unit and power of a turned block, pivots a unit or more from zero."""
    K = T.shape[1]
    i, above = np.arange(K), np.zeros(T.shape, dtype=bool)
    above[pivots] = i > i[:, None]
    start, power = np.where(above, 0.0, T), np.zeros(T.shape)
    unit = np.where(above, 0.0, unit)
    start[pivots, i] = np.maximum(start[pivots, i], unit[pivots, i])
    unit[pivots[:-1], i[:-1]] /= start[pivots[:-1], i[:-1]]
    power[pivots[:-1], i[:-1]] = K - i[:-1]
    return start, unit, power
