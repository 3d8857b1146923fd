"""The guide: how unobserved quantities are drawn from a standard normal, and their density.

Every site is drawn in its real-valued form u and mapped to its support: loadings as they are,
scales by `exp` (a normal u is a log-normal scale, the paper's table of models). Sites of density 1
are points. What is jointly Gaussian, everything else being independent:

- `"mean_field"`: nothing (the paper's).
- `"structured"`: the latents of a row; the loadings of a feature. The factorisation of
  `VariationalBayes`. Without it, target loadings turn away from shared ones until the posterior
  of the latents factorises, which can be tens of degrees.
- `"low_rank"`: the latents of a row; all loadings and scales, with a covariance
  `diag(s^2) + F F'`.

Parameters are in units of the data, so that one learning rate suits all.
"""

from collections.abc import Mapping
from itertools import pairwise
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import DTypeLike

from contrastive_lvm._jax import AnyArray, JaxArray, Tree, jax, jnp, tree_map
from contrastive_lvm.arrays import Array
from contrastive_lvm.black_box.sites import (
    initial_values,
    latent_sites,
    split_columns,
    units,
    unobserved_sites,
)
from contrastive_lvm.black_box.start import StartingPoint
from contrastive_lvm.black_box.svi.gaussians import Gaussians
from contrastive_lvm.black_box.svi.svi_rows import SviBatch
from contrastive_lvm.model import Model

GuideFamily = Literal["structured", "mean_field", "low_rank"]
FIRST_STD, FIRST_SCALE_STD = 0.05, 0.2  # of loadings in units of the data, and of other sites
FIRST_FACTOR = 0.1  # zero would be a saddle: the two factors of a product, and no gradient


class GuideScaling(NamedTuple):
    """Constants of the data."""

    units: Mapping[str, AnyArray]  # of the real-valued forms of sites, where not 1
    least: Mapping[str, AnyArray]  # log noise variances


class GuideParameters(NamedTuple):
    """All parameters of a guide, in units."""

    points: dict[str, AnyArray]  # by site
    gaussians: dict[str, Gaussians]  # by group

    def with_points(self, points: Mapping[str, AnyArray]) -> "GuideParameters":
        """Return parameters with other values of some points."""
        return self._replace(points={**self.points, **points})


class SviLayout(NamedTuple):
    """All that decides what has to be compiled, beside the shapes of the data."""

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
        chosen = self._chosen(params, batch)
        ends = np.cumsum([0, *(q.n_normals for q in chosen.values())]).tolist()
        # One generator to compile, of the kind that compiles and runs fastest.
        random = jax.random.wrap_key_data(jnp.asarray(key), impl="unsafe_rbg")
        normals = jax.random.normal(random, (ends[-1],), _dtype(params))
        values, total = self.points_at(params, units), jnp.zeros((), _dtype(params))
        for (name, q), part in zip(chosen.items(), pairwise(ends), strict=True):
            drawn, log_density = self._values(name, *q.draw(normals[slice(*part)]), units, batch)
            values |= drawn
            i = self.groups[name].of_set
            total += log_density if batch is None or i is None else batch.repeats[i] * log_density
        return values, total

    def _chosen(self, params: GuideParameters, batch: SviBatch | None) -> dict[str, Gaussians]:
        """Return the distributions of all groups for a batch, or of those without rows."""
        found = {}
        for name, group in self.groups.items():
            q = params.gaussians[name]
            if group.of_set is None:
                found[name] = q
            elif batch is not None:
                found[name] = q.at(batch.places[group.of_set])
        return found

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

    def scaling(self, start: StartingPoint, dtype: DTypeLike) -> GuideScaling:
        """Return units and limits of parameters."""
        floor = start.model.likelihood._log_noise_floor(start.unit)
        return _cast(GuideScaling(units(start), floor), dtype)

    def first_parameters(self, start: StartingPoint, dtype: DTypeLike) -> GuideParameters:
        """Return parameters that give the values of a start, with little spread."""
        values, scaling = initial_values(start, augmented=self.layout.augmented), units(start)
        real: dict[str, Array] = {}
        latents = {site for name in start.model.sets for site in latent_sites(start.model, name)}
        for name, value in values.items():
            if name in latents:  # JAX would compile a change of theirs for every number of rows
                real[name] = value
            elif name in self.sites:
                unit = scaling.get(name, 1.0)
                real[name] = np.asarray(self.sites[name].transform.inv(value)) / unit
        points: dict[str, AnyArray] = {
            name: np.broadcast_to(real.get(name, 0.0), self.sites[name].shape)
            for name in self.points
        }
        gaussians = {name: self._first_gaussians(name, real, start) for name in self.groups}
        return _cast(GuideParameters(points, gaussians), dtype)

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


def _dtype(params: GuideParameters) -> "np.dtype[np.floating]":
    return next(iter(params.points.values())).dtype


def _cast(tree: Tree, dtype: DTypeLike) -> Tree:
    """Return a tree with all arrays in one precision."""
    return tree_map(lambda x: np.asarray(x, dtype=dtype), tree)
