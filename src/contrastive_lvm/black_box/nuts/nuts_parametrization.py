"""Coordinates in which chains move well, and back to the sites of a density.

The posterior is constant along rotations of a block's columns (with their latents) where its prior
is, and a chain that has to walk around these rings takes ten times the steps. There loadings are
drawn as `L = T Q`, with T lower triangular in K pivot features and the rotation Q, which is uniform
whatever the data, left out: `dL = prod_i |T_ii|^(K-1-i) dT dQ`, i from 0 (Muirhead 1982, theorem
2.1.13). Pivots are positive but for the last, whose sign may change.

Loadings with a prior variance v that is drawn too are `L = k l + sqrt(k) s x`, `k = v / (v + s^2)`,
with l their value at the start and s about their standard deviation given the data: what is left,
x, is then nearly standard normal whatever v is. Loadings themselves would hold small variances
fast, standardised ones large variances. Log noise is its floor, as in closed form, plus `exp(x)`:
where columns fit a feature exactly, its posterior would otherwise be improper.

Every coordinate is 0 at the start, and moves by about a posterior standard deviation per unit.
"""

from collections.abc import Collection
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import qr

from contrastive_lvm._jax import load, module
from contrastive_lvm.arrays import Array
from contrastive_lvm.black_box.density import density
from contrastive_lvm.black_box.initialization import Start
from contrastive_lvm.black_box.sites import Site, first_values, floors
from contrastive_lvm.draws import Freedom
from contrastive_lvm.model import Model
from contrastive_lvm.priors.ard import ARD
from contrastive_lvm.priors.feature_groups import group_index
from contrastive_lvm.priors.flat import Flat
from contrastive_lvm.priors.group_lasso import GroupLasso
from contrastive_lvm.priors.horseshoe import Horseshoe

BLOCKS = ("S", "W")
OWN_LATENTS = (("z target", "z background"), ("t",))  # of each block
MEANS = ("target mean", "background mean")


class Frame(NamedTuple):
    """Where coordinates begin and how far a unit goes, a value for each site."""

    start: dict[str, Any]  # of loadings in place of standardised ones
    unit: dict[str, Any]  # of the real-valued form; zero above a pivot; (D, D) roots for means
    power: dict[str, Any]  # of blocks, (D, K): of positive pivots in `dL`, plus 1; zero elsewhere
    least: dict[str, Any]  # of log noise
    given: dict[str, Any]


def freedom(model: Model, which: int, given: Collection[str]) -> Freedom:
    """Under what the posterior does not change: turns of the columns of S (0) or W (1)."""
    name, prior = BLOCKS[which], model.priors[which]
    if any(site in given for site in (name, f"{name} standard", *OWN_LATENTS[which])):
        return "none"
    if isinstance(prior, ARD):
        return "sign" if f"{name} variance" in given else "permutation"
    return "rotation"


def free_sites(
    model: Model,
    n_features: int,
    n_rows: tuple[int, ...],
    given: Collection[str],
    *,
    collapsed: bool,
) -> dict[str, Site]:
    """All that is drawn, found by tracing the density without computing it."""
    handlers, infer = module("numpyro.handlers"), module("numpyro.infer")
    biject_to = module("numpyro.distributions.transforms").biject_to
    found: dict[str, Site] = {}

    def trace() -> None:
        seeded = handlers.seed(density, 0)
        anywhere = handlers.substitute(seeded, substitute_fn=infer.init_to_uniform)
        rows = [np.zeros((n, n_features)) for n in n_rows]
        for name, site in (
            handlers.trace(anywhere)
            .get_trace(model, *rows, augmented=False, collapsed=collapsed)
            .items()
        ):
            if site["type"] == "sample" and not site["is_observed"] and name not in given:
                flat = type(site["fn"]).__name__ == "ImproperUniform"
                found[name] = Site(site["value"].shape, flat, biject_to(site["fn"].support))

    module("jax").eval_shape(trace)
    return found


def sites_at(z: dict[str, Any], frame: Frame, sites: dict[str, Site], model: Model) -> Any:
    """Values of all sites at coordinates, and the log of the volume that a unit cube takes."""
    values, log_volume = dict(frame.given), 0.0
    for name, site in sites.items():
        if name in frame.power:
            continue
        start, unit = frame.start[name], frame.unit[name]
        move = unit @ z[name] if name in MEANS else unit * z[name]
        if name in frame.least:
            values[name] = frame.least[name] + (start - frame.least[name]) * load().jnp.exp(move)
            log_volume += move.sum()
        else:
            real = site.transform.inv(start) + move
            values[name] = site.transform(real)
            log_volume += site.transform.log_abs_det_jacobian(real, values[name]).sum()
    for name, prior in zip(BLOCKS, model.priors, strict=True):
        own = _loading_site(name, prior)
        if own in frame.power:
            variance = _variance(name, prior, values, len(frame.start[own]))
            values[own], volume = _loadings_at(z[own], own, frame, variance)
            log_volume += volume
    return values, log_volume


def _loadings_at(z: Any, name: str, frame: Frame, variance: Any) -> tuple[Any, Any]:
    """Loadings, standardised if they have a variance, and the log of their unit volume."""
    jnp = load().jnp
    start, unit, power = frame.start[name], frame.unit[name], frame.power[name]
    move, pivot = unit * z, power > 0
    # Entries above a pivot stay zero; their coordinates are standard normal.
    log_volume = (power * move).sum() - 0.5 * jnp.where(unit == 0, z**2, 0.0).sum()
    if variance is None:
        return jnp.where(pivot, start * jnp.exp(move), start + move), log_volume
    share = jnp.where(pivot, 1.0, variance / (variance + unit**2))
    L = jnp.where(pivot, start * jnp.exp(move), share * start + jnp.sqrt(share) * move)
    log_volume += 0.5 * (jnp.log(share) - jnp.log(variance)).sum()
    return L / jnp.sqrt(variance), log_volume


def _loading_site(name: str, prior: Any) -> str:
    """The site that a known prior draws loadings as; empty for others."""
    if isinstance(prior, Flat | GroupLasso):
        return name
    return f"{name} standard" if isinstance(prior, ARD | Horseshoe) else ""


def _variance(name: str, prior: Any, values: dict[str, Any], n_features: int) -> Any:
    """Of loadings under a prior, broadcasting to (D, K); None when it has none."""
    if isinstance(prior, ARD):
        return values[f"{name} variance"]
    if isinstance(prior, Horseshoe):
        group = group_index(prior.groups, n_features)
        return ((values[f"{name} rho"][group] * values[f"{name} tau"]) ** 2)[:, None]
    return None


def frame_of(
    start: Start, sites: dict[str, Site], n_rows: tuple[int, ...], given: dict[str, Array]
) -> Frame:
    """The frame about a start; sites of unknown priors begin in the middle of their support."""
    begun, unit, power = _begun(start, sites), _units(start, n_rows), {}
    for which, (name, prior) in enumerate(zip(BLOCKS, start.model.priors, strict=True)):
        own = _loading_site(name, prior)
        if own not in sites:
            continue
        begun[own], power[own] = begun[name], np.zeros(begun[name].shape)
        unit[own] = unit[name]
        if freedom(start.model, which, given) == "rotation":
            Q, pivots = _turn(begun[name] / start.unit[:, None])
            begun |= {n: begun[n] @ Q for n in OWN_LATENTS[which] if n in begun}
            begun[own], unit[own], power[own] = _triangular(begun[name] @ Q, unit[own], pivots)
    least = {name: value for name, value in floors(start).items() if name in sites}
    for name, value in least.items():
        begun[name] = np.maximum(begun[name], value + 1.0)
        unit[name] = np.sqrt(2.0 / sum(n_rows)) / (begun[name] - value)
    whole = {n: np.broadcast_to(unit.get(n, 1.0), _unit_shape(n, s)) for n, s in sites.items()}
    return Frame({name: begun[name] for name in sites}, whole, power, least, given)


def _unit_shape(name: str, site: Site) -> tuple[int, ...]:
    return site.shape * 2 if name in MEANS else site.shape


def _begun(start: Start, sites: dict[str, Site]) -> dict[str, Array]:
    """Values of sites at a start."""
    k = start.model.n_shared
    found = first_values(start, augmented=False)
    found |= {"z target": start.latents[0][:, :k], "t": start.latents[0][:, k:]}
    if len(start.latents) > 1:
        found["z background"] = start.latents[1]
    for name, site in sites.items():
        if name not in found:
            found[name] = np.asarray(site.transform(np.zeros(site.shape)))
    return found


def _units(start: Start, n_rows: tuple[int, ...]) -> dict[str, Array]:
    """About the posterior standard deviation of each site's real-valued form, where it is not 1.

    Means vary as those of rows do, together: their unit is a root of the covariance.
    """
    k, found = start.model.n_shared, {}
    noise = np.where(start.nuisance.noise > 0, start.nuisance.noise, start.unit**2)
    for name, n, L in zip(MEANS, n_rows, (start.L, start.L[:, :k]), strict=False):
        found[name] = np.linalg.cholesky((L @ L.T + np.diag(noise)) / n)
    for name, columns, n in zip(BLOCKS, start.model.blocks, (sum(n_rows), n_rows[0]), strict=True):
        square = (start.L[:, columns] ** 2).sum(axis=1) / max(1, columns.stop - columns.start)
        found[name] = np.sqrt((noise + square) / n)[:, None]
    found |= {"z target": start.spreads[0][:k], "t": start.spreads[0][k:]}
    return {**found, "z background": start.spreads[-1][:k]}


def _turn(L: Array) -> tuple[Array, np.ndarray]:
    """The (K, K) rotation that makes L lower triangular in its pivot rows, and these."""
    K = L.shape[1]
    pivots: np.ndarray = qr(L.T, mode="r", pivoting=True)[1][:K]
    Q, R = np.linalg.qr(L[pivots].T)
    return np.asarray(Q * np.where(np.diagonal(R) < 0, -1.0, 1.0)), pivots


def _triangular(T: Array, unit: Array, pivots: np.ndarray) -> tuple[Array, Array, Array]:
    """Start, unit and power of a turned block, pivots a unit or more from zero."""
    K = T.shape[1]
    i, above = np.arange(K), np.zeros(T.shape, dtype=bool)
    above[pivots] = i > i[:, None]
    start, power = np.where(above, 0.0, T), np.zeros(T.shape)
    unit = np.where(above, 0.0, unit)
    start[pivots, i] = np.maximum(start[pivots, i], unit[pivots, i])
    unit[pivots[:-1], i[:-1]] /= start[pivots[:-1], i[:-1]]
    power[pivots[:-1], i[:-1]] = K - i[:-1]
    return start, unit, power
