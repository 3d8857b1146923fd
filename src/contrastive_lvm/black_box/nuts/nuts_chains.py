"""Compiled chains of the no-U-turn sampler, cached for data of the same shapes."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np

from contrastive_lvm._jax import (
    JaxArray,
    double_precision,
    jax,
    jnp,
    numpyro,
    to_numpy,
)
from contrastive_lvm.arrays import Array
from contrastive_lvm.black_box.density import CompleteRows, density, latent_gaussians
from contrastive_lvm.black_box.nuts.nuts_parametrization import NutsCoordinates, values_at
from contrastive_lvm.black_box.sites import (
    latent_sites,
    loadings_at,
    split_columns,
    unobserved_sites,
)
from contrastive_lvm.model import Model
from contrastive_lvm.rows.threads import in_order

if TYPE_CHECKING:
    ChainState: TypeAlias = numpyro.infer.hmc.HMCState

JITTER = 0.5  # of where chains begin, in posterior standard deviations
SEGMENT = 50  # draws of a chain in one call, after which an interrupt can end it


class NutsLayout(NamedTuple):
    """All that decides what has to be compiled."""

    model: Model
    n_features: int
    n_rows: tuple[int, ...]  # of each set
    complete: tuple[bool, ...]  # whether a set is given by its moments
    collapsed: bool  # whether latents are integrated out
    given: tuple[str, ...]  # sites
    n_warmup: int
    target_accept: float
    max_tree_depth: int


class NutsRows(NamedTuple):
    """Rows or moments of each set, and log size factors."""

    sets: tuple[Array | CompleteRows, ...]
    log_sizes: tuple[Array, ...] = ()


class Segment(NamedTuple):
    """Consecutive draws of a chain; a chain goes on from the state."""

    state: "ChainState"
    z: JaxArray  # (SEGMENT, coordinates), of which the first are filled
    diverging: JaxArray  # (SEGMENT,)


class CompiledNuts:
    """The beginning and the segments of a chain, and what its coordinates stand for."""

    def __init__(self, layout: NutsLayout) -> None:
        self.layout = layout
        sites = unobserved_sites(
            layout.model,
            layout.n_features,
            layout.n_rows,
            augmented=False,
            collapsed=layout.collapsed,
        )
        self.sites = {name: site for name, site in sites.items() if name not in layout.given}
        self.sizes = {name: int(np.prod(site.shape)) for name, site in self.sites.items()}
        self._kernel = numpyro.infer.hmc.hmc(potential_fn_gen=self._potential)
        self.begin = jax.jit(self._begin)  # seed, first, coordinates, rows -> state
        self.described = jax.jit(self._described)  # z, coordinates, rows -> values of draws
        self.latents = jax.jit(self._latents)  # seed, values, sets -> values of latents
        self._segment: Callable[..., Segment] | None = None

    def first(self, seed: int, number: int) -> Array:
        """Return coordinates that a chain begins at."""
        rng = np.random.default_rng([seed, number])
        return JITTER * rng.standard_normal(sum(self.sizes.values()))

    def advance(
        self, states: "Sequence[ChainState]", n_draws: int, at: NutsCoordinates, rows: NutsRows
    ) -> "tuple[list[ChainState], Array, np.ndarray]":
        """Make draws of all chains, side by side.

        Returns states, coordinates (chains, draws, ...) and which draws diverged.
        """
        if self._segment is None:
            lowered = jax.jit(self._draw_segment).lower(states[0], np.asarray(n_draws), at, rows)
            self._segment = lowered.compile()
        segment = self._segment

        def one(state: "ChainState") -> Segment:
            with double_precision():  # it holds for a thread
                drawn = segment(state, np.asarray(n_draws), at, rows)
                return Segment(drawn.state, *to_numpy(drawn[1:]))

        found = list(in_order(one, list(states)))
        z, diverging = (np.stack([s[i][:n_draws] for s in found]) for i in (1, 2))
        return [s.state for s in found], z, diverging

    def _begin(
        self, seed: int, first: JaxArray, at: NutsCoordinates, rows: NutsRows
    ) -> "ChainState":
        return self._kernel[0](
            first,
            self.layout.n_warmup,
            target_accept_prob=self.layout.target_accept,
            max_tree_depth=self.layout.max_tree_depth,
            model_args=(at, rows),
            rng_key=jax.random.key(seed),
        )

    def _draw_segment(
        self, state: "ChainState", n_draws: JaxArray, at: NutsCoordinates, rows: NutsRows
    ) -> Segment:
        def draw(i: JaxArray, so_far: Segment) -> Segment:
            state = self._kernel[1](so_far.state, (at, rows), {})
            z, diverging = so_far.z.at[i].set(state.z), so_far.diverging.at[i].set(state.diverging)
            return Segment(state, z, diverging)

        z, diverging = jnp.zeros((SEGMENT, *state.z.shape)), jnp.zeros(SEGMENT, dtype=bool)
        found: Segment = jax.lax.fori_loop(0, n_draws, draw, Segment(state, z, diverging))
        return found

    def _values(self, z: JaxArray, at: NutsCoordinates) -> tuple[dict[str, JaxArray], JaxArray]:
        """Return values of sites at a vector of coordinates, and the log of their unit volume."""
        cut = split_columns(z, self.sizes)
        shaped = {name: part.reshape(self.sites[name].shape) for name, part in cut.items()}
        return values_at(shaped, at, self.sites, self.layout.model)

    def _potential(self, at: NutsCoordinates, rows: NutsRows) -> Callable[[JaxArray], JaxArray]:
        def potential(z: JaxArray) -> JaxArray:
            values, log_volume = self._values(z, at)
            return -self._log_density(values, rows) - log_volume

        return potential

    def _log_density(self, values: dict[str, JaxArray], rows: NutsRows) -> JaxArray:
        arguments = (self.layout.model, *rows.sets)
        options = {"collapsed": self.layout.collapsed, "log_sizes": rows.log_sizes}
        found: JaxArray = numpyro.infer.util.log_density(
            density, arguments, {"augmented": False, **options}, values
        )[0]
        return found

    def _described(
        self, draws: JaxArray, at: NutsCoordinates, rows: NutsRows
    ) -> dict[str, JaxArray]:
        """Return values of all sites, loadings and the log density at coordinates of draws."""
        model, D = self.layout.model, self.layout.n_features

        def one(z: JaxArray) -> dict[str, JaxArray]:
            values = self._values(z, at)[0]
            loadings = loadings_at(model, D, values, augmented=False)
            named = {f"{name} loadings": L for name, L in loadings.items()}
            return {**values, **named, "log density": self._log_density(values, rows)}

        return dict(jax.lax.map(one, draws))

    def _latents(
        self, seed: int, drawn: Mapping[str, JaxArray], sets: Sequence[JaxArray]
    ) -> dict[str, JaxArray]:
        """Draw Gaussian latents exactly, given draws of all else: `h = mean + root^-T noise`."""
        model, solve = self.layout.model, jax.scipy.linalg.solve_triangular

        def one(pair: tuple[JaxArray, dict[str, JaxArray]]) -> dict[str, JaxArray]:
            key, values = pair
            found: dict[str, JaxArray] = {}
            for i, (X, name) in enumerate(zip(sets, model.sets, strict=True)):
                noise = jnp.exp(values["log noise"])
                noise = noise[i] if model.likelihood._has_own_noise else noise
                active = [values[f"{b.name} loadings"] for b in model.blocks if name in b.sets]
                L = jnp.concatenate(active, axis=1)
                rows = latent_gaussians(X, values[f"{name} mean"], L, noise)
                normals = jax.random.normal(jax.random.fold_in(key, i), (*rows.mean.shape, 1))
                h = rows.mean + solve(rows.root, normals, lower=True, trans=1)[:, :, 0]
                found |= split_columns(h, latent_sites(model, name))
            return found

        keys = jax.random.split(jax.random.key(seed), len(drawn["log noise"]))
        return dict(jax.lax.map(one, (keys, drawn)))
