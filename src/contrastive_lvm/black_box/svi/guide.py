"""The guide: how unobserved quantities are drawn from a standard normal, and their density.

Every site is drawn in its real-valued form u and mapped to its support: loadings as they are,
scales by `exp` (a normal u is a log-normal scale, the paper's table of models). Sites of density 1
are points. These are jointly Gaussian, and everything else is independent:

- `"mean_field"`: nothing (the paper's).
- `"structured"`: the latents of a row; the loadings of a feature. The factorisation of
  `VariationalBayes`. Without it, target loadings turn away from shared ones until the posterior
  of the latents factorises, which can be tens of degrees.
- `"low_rank"`: the latents of a row; all loadings and scales, with a covariance
  `diag(s^2) + F F'`.

Parameters are in units of the data, so that one learning rate suits all. The log density of the
guide is taken at the draw with its own parameters held fixed: the same value, and a gradient
without bias whose noise vanishes where the guide is the posterior (Roeder, Wu & Duvenaud 2017).
"""

from collections.abc import Mapping
from itertools import pairwise
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import DTypeLike

from contrastive_lvm._jax import AnyArray, JaxArray, dist, jax, jnp, tree_map
from contrastive_lvm.arrays import LOG_2PI, Array
from contrastive_lvm.black_box.sites import (
    initial_values,
    latent_sites,
    split_columns,
    unobserved_sites,
)
from contrastive_lvm.black_box.start import StartingPoint
from contrastive_lvm.black_box.svi.svi_rows import SviBatch
from contrastive_lvm.model import Model

GuideFamily = Literal["structured", "mean_field", "low_rank"]
FIRST_STD, FIRST_SCALE_STD = 0.05, 0.2  # of loadings in units of the data, and of other sites
FIRST_FACTOR = 0.1  # zero would be a saddle: the two factors of a product, and no gradient


class Gaussians(NamedTuple):
    """Gaussian distributions of N vectors of K values, `u = loc + diag(std) (I + T) noise`.

    A single vector may have a covariance of low rank instead, `diag(std) (I + F F') diag(std)`.
    """

    loc: AnyArray  # (N, K)
    log_std: AnyArray  # (N, K)
    root: AnyArray | None = None  # (N, K(K-1)/2) strictly lower T, packed by rows; None for zero
    factor: AnyArray | None = None  # (K, rank) F

    @property
    def n_normals(self) -> int:
        """Return how many standard normals a draw takes."""
        rank = 0 if self.factor is None else self.factor.shape[1]
        return int(np.prod(self.loc.shape)) + rank

    def at(self, places: AnyArray | None) -> "Gaussians":
        """Return those of some vectors; of all for None."""
        if places is None:
            return self
        root = None if self.root is None else self.root[places]
        return Gaussians(self.loc[places], self.log_std[places], root)

    def draw(self, normals: JaxArray) -> tuple[JaxArray, JaxArray]:
        """Draw from each, (N, K), with the log density of the draw, by entry or in one number.

        The value of the log density is that of the noise, and its gradient in u alone is
        `-diag(1/std) (I + T)^-T noise`.
        """
        if self.factor is not None:
            return self._draw_of_low_rank(jnp.asarray(self.factor), normals)
        stop = jax.lax.stop_gradient
        noise, log_std = normals.reshape(self.loc.shape), stop(self.log_std)
        mixed = pull = noise
        if self.root is not None:
            K, n_below = noise.shape[1], self.root.shape[1]
            place = np.full((K, K), n_below)
            place[np.tril_indices(K, -1)] = np.arange(n_below)
            zero = jnp.zeros((self.root.shape[0], 1), self.root.dtype)
            T = jnp.concatenate([self.root, zero], axis=1)[:, place]
            mixed = noise + jnp.einsum("nij,nj->ni", T, noise)
            for j in reversed(range(1, K)):  # solve, the last column first
                pull = pull - stop(T)[:, j] * pull[:, j : j + 1]
        u = jnp.asarray(self.loc) + jnp.exp(self.log_std) * mixed
        value = -0.5 * (noise**2 + LOG_2PI) - log_std
        return u, value - (u - stop(u)) * pull * jnp.exp(-log_std)

    def _draw_of_low_rank(self, F: JaxArray, normals: JaxArray) -> tuple[JaxArray, JaxArray]:
        stop, loc, std = jax.lax.stop_gradient, self.loc[0], jnp.exp(self.log_std[0])
        noise, others = normals[: len(std)], normals[len(std) :]
        u = loc + std * (noise + F @ others)
        q = dist.LowRankMultivariateNormal(stop(loc), stop(std[:, None] * F), stop(std) ** 2)
        return u[None], q.log_prob(u)

    def roots(self) -> Array:
        """Return the matrices `diag(std) (I + T)`, (N, K, K)."""
        N, K = self.loc.shape
        roots = np.zeros((N, K, K))
        roots[:, np.arange(K), np.arange(K)] = 1.0
        if self.root is not None:
            i, j = np.tril_indices(K, -1)
            roots[:, i, j] = self.root
        return roots * np.exp(np.asarray(self.log_std, dtype=np.float64))[:, :, None]


class GuideScaling(NamedTuple):
    """Constants of the data that scale the parameters of a guide."""

    units: Mapping[str, AnyArray]  # of the real-valued forms of sites, where not 1
    least: Mapping[str, AnyArray]  # log noise variances


class GuideParameters(NamedTuple):
    """All parameters of a guide, in units."""

    points: dict[str, AnyArray]  # by site
    gaussians: dict[str, Gaussians]  # by group


class SviLayout(NamedTuple):
    """All that decides what has to be compiled, besides the shapes of the data."""

    model: Model
    n_features: int
    family: GuideFamily
    rank: int
    augmented: bool
    n_particles: int


class SiteGroup(NamedTuple):
    """Sites that are drawn together: vectors of their values, independent of each other."""

    widths: dict[str, int]  # values of each site in a vector
    correlated: bool  # whether the values of a vector are
    of_set: int | None = None  # whose rows have a vector each; None for features and single values


class Guide:
    """Draws of all sites and their density as functions of parameters."""

    def __init__(self, layout: SviLayout) -> None:
        model, D, family, self.layout = layout.model, layout.n_features, layout.family, layout
        self.sites = unobserved_sites(model, D, [1] * len(model.sets), augmented=layout.augmented)
        self.points = [name for name, site in self.sites.items() if site.flat]
        self.groups: dict[str, SiteGroup] = {}
        for i, name in enumerate(model.sets):
            latents, scales = latent_sites(model, name), f"{name} rows scale"
            if latents:
                self.groups[f"latents of {name}"] = SiteGroup(latents, family != "mean_field", i)
            if scales in self.sites:
                width = {scales: self.sites[scales].shape[1]}
                self.groups[scales] = SiteGroup(width, correlated=False, of_set=i)
        done = {*self.points, *(site for group in self.groups.values() for site in group.widths)}
        names = {
            f"{b.name} loadings{s or ''}" for b in model.blocks for s in ("", b.prior._loading_site)
        }
        left = {name: site.shape for name, site in self.sites.items() if name not in done}
        apart = family != "low_rank"
        loadings = {name: shape[1] for name, shape in left.items() if name in names and apart}
        others = {n: int(np.prod(shape)) for n, shape in left.items() if n not in loadings}
        if loadings:
            self.groups["loadings"] = SiteGroup(loadings, family == "structured")
        if others:
            self.groups["scales"] = SiteGroup(others, not apart)

    def draw(
        self,
        params: GuideParameters,
        key: AnyArray,
        units: Mapping[str, AnyArray],
        batch: SviBatch | None = None,
    ) -> tuple[dict[str, JaxArray], JaxArray]:
        """Draw all sites for a batch, or those without rows, with the log density of the draw.

        Rows count as often as the rows that they stand for.
        """
        chosen = {}
        for name, group in self.groups.items():
            if group.of_set is None:
                chosen[name] = params.gaussians[name]
            elif batch is not None:
                chosen[name] = params.gaussians[name].at(batch.places[group.of_set])
        ends = np.cumsum([0, *(q.n_normals for q in chosen.values())]).tolist()
        dtype = next(iter(params.points.values())).dtype
        # A single generator, of the kind that compiles and runs fastest.
        random = jax.random.wrap_key_data(jnp.asarray(key), impl="unsafe_rbg")
        normals = jax.random.normal(random, (ends[-1],), dtype)
        values, total = self.points_at(params, units), jnp.zeros((), dtype)
        for (name, q), part in zip(chosen.items(), pairwise(ends), strict=True):
            drawn, log_density = self._values(name, *q.draw(normals[slice(*part)]), units, batch)
            values |= drawn
            i = self.groups[name].of_set
            total += log_density if batch is None or i is None else batch.repeats[i] * log_density
        return values, total

    def points_at(
        self, params: GuideParameters, units: Mapping[str, AnyArray]
    ) -> dict[str, JaxArray]:
        """Return the values of the sites of density 1."""
        return {
            name: self.sites[name].transform(params.points[name] * units.get(name, 1.0))
            for name in self.points
        }

    def _values(
        self,
        name: str,
        u: JaxArray,
        log_density: JaxArray,
        units: Mapping[str, AnyArray],
        batch: SviBatch | None,
    ) -> tuple[dict[str, JaxArray], JaxArray]:
        """Return values of a group's sites from their real-valued forms, and their log density.

        Scales of entries or rows that are not observed are 1, with density 1.
        """
        group, values = self.groups[name], {}
        if batch is not None and group.of_set is not None and name in self.sites:
            seen = ~jnp.isnan(batch.rows[group.of_set])
            seen = seen if u.shape[1] > 1 else seen.any(axis=1, keepdims=True)
            u, log_density = jnp.where(seen, u, 0.0), jnp.where(seen, log_density, 0.0)
        total = log_density.sum()
        for site_name, part in split_columns(u, group.widths).items():
            site, unit = self.sites[site_name], units.get(site_name)
            x = part if group.of_set is not None else part.reshape(site.shape)
            if unit is not None:
                x = x * unit
                total -= jnp.broadcast_to(jnp.log(unit), x.shape).sum()
            values[site_name] = site.transform(x)
            total -= site.transform.log_abs_det_jacobian(x, values[site_name]).sum()
        return values, total

    def by_site(self, arrays: Mapping[str, AnyArray]) -> dict[str, Array]:
        """Cut arrays of groups, (vectors, values), into those of sites that belong to no rows."""
        found: dict[str, Array] = {}
        for name, group in self.groups.items():
            if group.of_set is None:
                parts = split_columns(np.asarray(arrays[name], dtype=np.float64), group.widths)
                found |= {n: part.reshape(self.sites[n].shape) for n, part in parts.items()}
        return found

    def begin(self, start: StartingPoint, dtype: DTypeLike) -> tuple[GuideParameters, GuideScaling]:
        """Return parameters that give the values of a start, with little spread, and units."""
        values, model = initial_values(start, augmented=self.layout.augmented), start.model
        units = {f"{block.name} loadings": start.unit[:, None] for block in model.blocks}
        units |= {f"{name} mean": start.unit for name in model.sets}
        real: dict[str, Array] = {}
        latents = {site for name in model.sets for site in latent_sites(model, name)}
        for name, value in values.items():
            if name in latents:  # a change of units would compile for every number of rows
                real[name] = value
            elif name in self.sites:
                unit = units.get(name, 1.0)
                real[name] = np.asarray(self.sites[name].transform.inv(value)) / unit
        points: dict[str, AnyArray] = {
            name: np.broadcast_to(real.get(name, 0.0), self.sites[name].shape)
            for name in self.points
        }
        gaussians = {name: self._first_gaussians(name, real, start) for name in self.groups}
        scaling = GuideScaling(units, model.likelihood._log_noise_floor(start.unit))
        return tree_map(
            lambda x: np.asarray(x, dtype=dtype), (GuideParameters(points, gaussians), scaling)
        )

    def _first_gaussians(
        self, name: str, real: Mapping[str, Array], start: StartingPoint
    ) -> Gaussians:
        group, n = self.groups[name], self.layout.n_features if name == "loadings" else 1
        if group.of_set is not None:
            n = len(start.latents[group.of_set])
        loc = np.empty((n, sum(group.widths.values())))
        for site, part in split_columns(loc, group.widths).items():
            whole = part.shape if group.of_set is not None else self.sites[site].shape
            part[:] = np.broadcast_to(real.get(site, 0.0), whole).reshape(part.shape)
        std = np.full(loc.shape, FIRST_STD if name == "loadings" else FIRST_SCALE_STD)
        if group.of_set is not None and name not in self.sites:
            std[:] = start.latent_stds[group.of_set]
        K = loc.shape[1]
        if not group.correlated:
            return Gaussians(loc, np.log(std))
        if name != "scales":
            return Gaussians(loc, np.log(std), np.zeros((n, K * (K - 1) // 2)))
        noise = np.random.default_rng(0).standard_normal((K, min(K, self.layout.rank)))
        return Gaussians(loc, np.log(std), factor=FIRST_FACTOR / np.sqrt(noise.shape[1]) * noise)
