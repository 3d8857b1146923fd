"""Compiled chains of the no-U-turn sampler, kept for data of the same shapes."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from contrastive_lvm._jax import load, module
from contrastive_lvm.arrays import Array
from contrastive_lvm.black_box.density import Unobserved, density
from contrastive_lvm.black_box.marginal import CompleteRows, latent_gaussians
from contrastive_lvm.black_box.nuts.nuts_parametrization import NutsCoordinates, values_at
from contrastive_lvm.black_box.program_cache import cached_program
from contrastive_lvm.black_box.sites import latent_sites, unobserved_sites
from contrastive_lvm.model import Model

if TYPE_CHECKING:
    from jax import Array as JaxArray

JITTER = 0.5  # of where chains begin, in posterior standard deviations


class NutsLayout(NamedTuple):
    """All that decides what has to be compiled."""

    model: Model
    n_features: int
    n_rows: tuple[int, ...]  # of each set
    complete: tuple[bool, ...]  # whether a set is given by its moments
    collapsed: bool  # whether latents are integrated out
    given: tuple[str, ...]  # sites
    n_warmup: int
    n_draws: int
    target_accept: float
    max_tree_depth: int


class NutsRows(NamedTuple):
    """Rows or moments of each set, and log size factors."""

    sets: tuple[Array | CompleteRows, ...]
    log_sizes: tuple[Array, ...] = ()


def compiled_nuts(layout: NutsLayout) -> "CompiledNuts":
    """Return the chains of a layout."""
    return cached_program(CompiledNuts, layout)


class CompiledNuts:
    """A chain, and draws of latents that were integrated out."""

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
        self.latents: Callable[..., Any] = module("jax").jit(self._latents)
        self._compiled: Callable[..., Any] | None = None

    def first(self, seed: int, number: int) -> Array:
        """Return coordinates that a chain begins at."""
        rng = np.random.default_rng([seed, number])
        return JITTER * rng.standard_normal(sum(self.sizes.values()))

    def chain(self, *arguments: Any) -> Callable[..., Any]:
        """Compile `(seed, first, coordinates, rows) -> values of draws, divergent`."""
        if self._compiled is None:
            self._compiled = module("jax").jit(self._chain).lower(*arguments).compile()
        return self._compiled

    def _chain(self, seed: int, first: "JaxArray", at: NutsCoordinates, rows: NutsRows) -> Any:
        jax, layout = module("jax"), self.layout
        begin, step = module("numpyro.infer.hmc").hmc(potential_fn_gen=self._potential)
        state = begin(
            first,
            layout.n_warmup,
            target_accept_prob=layout.target_accept,
            max_tree_depth=layout.max_tree_depth,
            model_args=(at, rows),
            rng_key=jax.random.key(seed),
        )

        def advance(state: Any, _: Any) -> Any:
            state = step(state, (at, rows), {})
            return state, (state.z, state.diverging)

        _, drawn = jax.lax.scan(advance, state, None, length=layout.n_warmup + layout.n_draws)
        z, diverging = jax.tree.map(lambda x: x[layout.n_warmup :], drawn)
        return jax.lax.map(lambda one: self._described(one, at, rows), z), diverging

    def _values(self, z: "JaxArray", at: NutsCoordinates) -> "tuple[dict[str, JaxArray], JaxArray]":
        """Return values of sites at a vector of coordinates, and the log of their unit volume."""
        cut, begin = {}, 0
        for name, size in self.sizes.items():
            cut[name] = z[begin : begin + size].reshape(self.sites[name].shape)
            begin += size
        return values_at(cut, at, self.sites, self.layout.model)

    def _potential(self, at: NutsCoordinates, rows: NutsRows) -> "Callable[[JaxArray], JaxArray]":
        def potential(z: "JaxArray") -> "JaxArray":
            values, log_volume = self._values(z, at)
            return -self._log_density(values, rows) - log_volume

        return potential

    def _log_density(self, values: "dict[str, JaxArray]", rows: NutsRows) -> "JaxArray":
        log_density, arguments = module("numpyro.infer.util").log_density, self._arguments(rows)
        found: JaxArray = log_density(density, *arguments, values)[0]
        return found

    def _arguments(self, rows: NutsRows) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the arguments of the density."""
        options = {"collapsed": self.layout.collapsed, "log_sizes": rows.log_sizes}
        return (self.layout.model, *rows.sets), {"augmented": False, **options}

    def _described(
        self, z: "JaxArray", at: NutsCoordinates, rows: NutsRows
    ) -> "dict[str, JaxArray]":
        """Return values of all sites, loadings and the log density at coordinates."""
        values = self._values(z, at)[0]
        known = module("numpyro.handlers").substitute(density, values)
        arguments, options = self._arguments(rows)
        unobserved: Unobserved = known(*arguments, **options)
        loadings = {f"{name} loadings": L for name, L in unobserved.loadings.items()}
        return {**values, **loadings, "log density": self._log_density(values, rows)}

    def _latents(
        self, seed: int, drawn: "dict[str, JaxArray]", sets: "Sequence[JaxArray]"
    ) -> "dict[str, JaxArray]":
        """Draw Gaussian latents exactly, given draws of all else: `h = mean + root^-T noise`."""
        jax, model = module("jax"), self.layout.model

        def one(key: "JaxArray", values: "dict[str, JaxArray]") -> "dict[str, JaxArray]":
            found: dict[str, JaxArray] = {}
            for i, (X, name) in enumerate(zip(sets, model.sets, strict=True)):
                found |= self._set_latents(jax.random.fold_in(key, i), values, X, name)
            return found

        keys = jax.random.split(jax.random.key(seed), len(drawn["log noise"]))
        return dict(jax.lax.map(lambda pair: one(*pair), (keys, drawn)))

    def _set_latents(
        self, key: "JaxArray", values: "dict[str, JaxArray]", X: "JaxArray", name: str
    ) -> "dict[str, JaxArray]":
        """Draw the latents of the rows of one set, by site."""
        jax, jnp, model = module("jax"), load().jnp, self.layout.model
        solve = module("jax.scipy.linalg").solve_triangular
        active = [values[f"{b.name} loadings"] for b in model.blocks if name in b.sets]
        L = jnp.concatenate(active, axis=1)
        rows = latent_gaussians(X, values[f"{name} mean"], L, jnp.exp(values["log noise"]))
        noise = jax.random.normal(key, (*rows.mean.shape, 1))
        h = rows.mean + solve(rows.root, noise, lower=True, trans=1)[:, :, 0]
        widths = latent_sites(model, name)
        ends = np.cumsum(list(widths.values()))[:-1].tolist()
        return dict(zip(widths, jnp.split(h, ends, axis=1), strict=True)) if widths else {}
