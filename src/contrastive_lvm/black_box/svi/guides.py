"""Guides: how unobserved quantities are drawn from a standard normal, and their density.

Every site is drawn in its real-valued form u and mapped to its support: loadings as they are,
scales by `exp` (a normal u is a log-normal scale, the paper's table of models). Sites of density 1
are points. What is jointly Gaussian, everything else being independent:

- `"mean_field"`: nothing (the paper's).
- `"structured"`: the latents of a row; the loadings of a feature. The factorisation of
  `VariationalBayes`. Without it, target loadings turn away from shared ones until the posterior
  of the latents factorises, which can be tens of degrees.
- `"low_rank"`, `"full_rank"`: the latents of a row; all other sites, with a covariance
  `diag(s^2) + F F'`, or any.

Parameters are in units of the data, so that one learning rate suits all.
"""

from collections.abc import Mapping
from typing import Literal, NamedTuple

import numpy as np

from contrastive_lvm._jax import AnyArray, JaxArray, dist, jax, jnp
from contrastive_lvm.black_box.sites import (
    latent_sites,
    row_sites,
    split_columns,
    unobserved_sites,
)
from contrastive_lvm.black_box.svi.amortization import (
    LatentEncoder,
    RowFeatures,
    encode,
    row_features,
)
from contrastive_lvm.black_box.svi.row_gaussians import RowGaussians, StandardNormals, draw_rows
from contrastive_lvm.model import Model

GuideFamily = Literal["structured", "mean_field", "low_rank", "full_rank"]
Drawn = tuple[dict[str, JaxArray], JaxArray]  # values by site, and the log density of the draw


class SviBatch(NamedTuple):
    """Rows of all sets, or of a minibatch of them."""

    rows: tuple[AnyArray, ...]  # (B, D) of each set
    log_sizes: tuple[AnyArray, ...]  # (B,)
    places: tuple[AnyArray | None, ...]  # (B,) positions in their sets; None for all rows
    repeats: tuple[AnyArray | float, ...]  # how many rows each row stands for

    @property
    def stacked(self) -> "SviBatch | None":
        """Return minibatches to go through one after another; None if this is all rows."""
        return None if self.places[0] is None else self


class GuideScaling(NamedTuple):
    """Constants of the data."""

    units: Mapping[str, AnyArray]  # of the real-valued forms of sites, where not 1
    least: Mapping[str, AnyArray]  # log noise variances
    inputs: tuple[AnyArray, ...] = ()  # centre and spread of what encoders see


class GlobalParameters(NamedTuple):
    """Parameters of the sites that do not belong to rows, in units."""

    points: dict[str, AnyArray]
    loc: dict[str, AnyArray]
    log_std: dict[str, AnyArray]
    root: AnyArray | None = None  # of the loadings of a feature, or of everything
    factor: AnyArray | None = None  # (size, rank) F


class GuideParameters(NamedTuple):
    """All parameters of a guide."""

    globals: GlobalParameters
    latents: tuple[RowGaussians | LatentEncoder, ...]  # of each set's rows
    scales: tuple[RowGaussians, ...]  # of the logarithms of each set's scales of entries or rows

    def with_points(self, points: dict[str, AnyArray]) -> "GuideParameters":
        """Return parameters with other values of some points."""
        replaced = self.globals._replace(points=self.globals.points | points)
        return self._replace(globals=replaced)


class SviLayout(NamedTuple):
    """All that decides what has to be compiled, beside the shapes of the data."""

    model: Model
    n_features: int
    family: GuideFamily
    rank: int
    augmented: bool
    n_particles: int
    amortised: bool
    missing: bool = False  # whether encoders see what is missing


class Guide:
    """Draws of all sites and their density as functions of parameters."""

    def __init__(self, layout: SviLayout) -> None:
        model, D, self.family = layout.model, layout.n_features, layout.family
        sites = unobserved_sites(model, D, [1] * len(model.sets), augmented=layout.augmented)
        of_rows = row_sites(model)
        self.sites = {name: site for name, site in sites.items() if name not in of_rows}
        self.latents = [latent_sites(model, name) for name in model.sets]
        self.scales = [f"{name} rows scale" for name in model.sets]
        self.features: RowFeatures | None = None  # what encoders see of rows
        if layout.amortised:
            self.features = row_features(model.likelihood, D, missing=layout.missing)
        self.points = [name for name, site in self.sites.items() if site.flat]
        uncertain = {name: site.shape for name, site in self.sites.items() if not site.flat}
        self.sizes = {name: int(np.prod(shape)) for name, shape in uncertain.items()}
        suffixes = {f"{block.name} loadings": block.prior._loading_site for block in model.blocks}
        loadings = {*suffixes, *(f"{name}{own or ''}" for name, own in suffixes.items())}
        self.loadings = {name: shape[1] for name, shape in uncertain.items() if name in loadings}
        self.size = sum(self.sizes.values())
        self.rank = min(layout.rank, self.size) if self.family == "low_rank" else 0
        self.correlated = self.family != "mean_field"  # whether the latents of a row are

    def latent_rows(
        self,
        latents: RowGaussians | LatentEncoder,
        which: int,
        batch: SviBatch,
        scaling: GuideScaling,
    ) -> RowGaussians:
        """Return the distributions of the latents of a batch's rows of one set."""
        if isinstance(latents, RowGaussians):
            return latents.at(batch.places[which])
        if self.features is None:
            raise TypeError("an encoder needs a guide with local='amortised'.")
        centre, spread = scaling.inputs
        inputs = self.features(batch.rows[which], batch.log_sizes[which], centre, spread)
        return encode(latents, inputs, sum(self.latents[which].values()))

    def draw(
        self, params: GuideParameters, key: AnyArray, batch: SviBatch, scaling: GuideScaling
    ) -> Drawn:
        """Draw all sites for a batch, with the log density of the draw.

        Rows count as often as the rows that they stand for.
        """
        normals = StandardNormals(self._n_normals(params, batch), key, _dtype(params))
        values, total = self._draw_globals(params.globals, normals, scaling.units)
        for which, repeat in enumerate(batch.repeats):
            if self.latents[which]:
                rows = self.latent_rows(params.latents[which], which, batch, scaling)
                h, log_density = draw_rows(rows, normals)
                values |= split_columns(h, self.latents[which])
                total += repeat * log_density.sum()
            if params.scales:
                drawn, density = _draw_scales(params.scales[which], which, batch, normals)
                values[self.scales[which]] = drawn
                total += repeat * density
        return values, total

    def _n_normals(self, params: GuideParameters, batch: SviBatch) -> int:
        n = self.size + self.rank
        for which, rows in enumerate(batch.rows):
            width = sum(self.latents[which].values())
            width += params.scales[which].loc.shape[1] if params.scales else 0
            n += len(rows) * width
        return n

    def draw_without_rows(
        self, params: GuideParameters, key: AnyArray, units: Mapping[str, AnyArray]
    ) -> dict[str, JaxArray]:
        """Draw the sites that do not belong to rows."""
        normals = StandardNormals(self.size + self.rank, key, _dtype(params))
        return self._draw_globals(params.globals, normals, units)[0]

    def _draw_globals(
        self, params: GlobalParameters, normals: StandardNormals, units: Mapping[str, AnyArray]
    ) -> Drawn:
        """Draw the sites that do not belong to rows, with the log density of the draw."""
        values = {
            name: self.sites[name].transform(params.points[name] * units.get(name, 1.0))
            for name in self.points
        }
        joint = self.family in ("full_rank", "low_rank") and self.size
        real, total = (self._draw_jointly if joint else self._draw_apart)(params, normals)
        for name, drawn in real.items():
            unit, site = units.get(name), self.sites[name]
            u = drawn.reshape(site.shape) if unit is None else drawn.reshape(site.shape) * unit
            values[name] = site.transform(u)
            total -= site.transform.log_abs_det_jacobian(u, values[name]).sum()
            if unit is not None:
                total -= jnp.broadcast_to(jnp.log(unit), site.shape).sum()
        return values, total

    def _draw_apart(self, params: GlobalParameters, normals: StandardNormals) -> Drawn:
        """Draw real-valued forms, in units; those of a feature's loadings may be correlated."""
        real, total = {}, jnp.asarray(0.0)
        together = self.loadings if self.family == "structured" else {}
        for name in self.sizes:
            if name not in together:
                loc, log_std = (x[name].reshape(1, -1) for x in (params.loc, params.log_std))
                real[name], log_density = draw_rows(RowGaussians(loc, log_std, None), normals)
                total += log_density.sum()
        if together:
            loc, log_std = (
                jnp.concatenate([x[n] for n in together], axis=1)
                for x in (params.loc, params.log_std)
            )
            u, log_density = draw_rows(RowGaussians(loc, log_std, params.root), normals)
            real |= split_columns(u, together)
            total += log_density.sum()
        return real, total

    def _draw_jointly(self, params: GlobalParameters, normals: StandardNormals) -> Drawn:
        """Draw all real-valued forms, in units, as one vector."""
        stop = jax.lax.stop_gradient
        loc, log_std = (
            jnp.concatenate([x[n].ravel() for n in self.sizes])
            for x in (params.loc, params.log_std)
        )
        std, noise = jnp.exp(log_std), normals.take((self.size,))
        # Many terms add up: each in units of one over the root of their number.
        if params.factor is None:
            T = jnp.tril(jnp.asarray(params.root), -1) / np.sqrt(self.size)
            root = std[:, None] * (T + jnp.eye(self.size, dtype=std.dtype))
            u = loc + root @ noise
            q = dist.MultivariateNormal(stop(loc), scale_tril=stop(root))
        else:
            F = std[:, None] * params.factor / np.sqrt(self.rank)
            u = loc + std * noise + F @ normals.take((self.rank,))
            q = dist.LowRankMultivariateNormal(stop(loc), stop(F), stop(std) ** 2)
        return split_columns(u, self.sizes), q.log_prob(u)


def _dtype(params: GuideParameters) -> "np.dtype[np.floating]":
    return next(iter(params.globals.points.values())).dtype


def _draw_scales(
    scales: RowGaussians, which: int, batch: SviBatch, normals: StandardNormals
) -> tuple[JaxArray, JaxArray]:
    """Draw log-normal scales of the entries or rows of a batch; those not observed are 1."""
    own = scales.at(batch.places[which])
    u, log_density = draw_rows(own, normals)
    seen = ~jnp.isnan(batch.rows[which])
    seen = seen if own.loc.shape[1] > 1 else seen.any(axis=1, keepdims=True)
    return jnp.exp(jnp.where(seen, u, 0.0)), jnp.where(seen, log_density - u, 0.0).sum()


def random_key(data: AnyArray) -> JaxArray:
    """Return a random key from four integers, of the generator that compiles and runs fastest."""
    key: JaxArray = jax.random.wrap_key_data(jnp.asarray(data), impl="unsafe_rbg")
    return key
