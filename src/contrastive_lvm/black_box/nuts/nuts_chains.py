"""Compiled chains of the no-U-turn sampler, kept for data of the same shapes."""

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from contrastive_lvm._jax import load, module
from contrastive_lvm.arrays import Array
from contrastive_lvm.black_box.density import density
from contrastive_lvm.black_box.marginal import row_law
from contrastive_lvm.black_box.nuts.nuts_parametrization import MEANS, Frame, free_sites, sites_at
from contrastive_lvm.model import Model

KEPT = 16  # programs
JITTER = 0.5  # of where chains begin, in posterior standard deviations


class Layout(NamedTuple):
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


class Rows(NamedTuple):
    """The data: rows or moments of each set, and log size factors."""

    sets: tuple[Any, ...]
    log_sizes: tuple[Any, Any]


def program(layout: Layout) -> "Program":
    """The program of a layout; that of an unhashable prior is made anew each time."""
    try:
        hash(layout)
    except TypeError:
        return Program(layout)
    return _kept(layout)


@lru_cache(maxsize=KEPT)
def _kept(layout: Layout) -> "Program":
    return Program(layout)


class Program:
    """A chain, and draws of latents that were integrated out."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.sites = free_sites(
            layout.model,
            layout.n_features,
            layout.n_rows,
            layout.given,
            collapsed=layout.collapsed,
        )
        self.sizes = {name: int(np.prod(site.shape)) for name, site in self.sites.items()}
        self.latents: Callable[..., Any] = module("jax").jit(self._latents)
        self._compiled: Callable[..., Any] | None = None

    def first(self, seed: int, number: int) -> Array:
        """Coordinates that a chain begins at."""
        rng = np.random.default_rng([seed, number])
        return JITTER * rng.standard_normal(sum(self.sizes.values()))

    def chain(self, *arguments: Any) -> Callable[..., Any]:
        """Compiled `(seed, coordinates, frame, rows) -> values of draws, divergent`."""
        if self._compiled is None:
            self._compiled = module("jax").jit(self._chain).lower(*arguments).compile()
        return self._compiled

    def _chain(self, seed: Any, first: Any, frame: Frame, rows: Rows) -> Any:
        jax, layout = module("jax"), self.layout
        begin, step = module("numpyro.infer.hmc").hmc(potential_fn_gen=self._potential)
        state = begin(
            first,
            layout.n_warmup,
            target_accept_prob=layout.target_accept,
            max_tree_depth=layout.max_tree_depth,
            model_args=(frame, rows),
            rng_key=jax.random.key(seed),
        )

        def advance(state: Any, _: Any) -> Any:
            state = step(state, (frame, rows), {})
            return state, (state.z, state.diverging)

        _, drawn = jax.lax.scan(advance, state, None, length=layout.n_warmup + layout.n_draws)
        z, diverging = jax.tree.map(lambda x: x[layout.n_warmup :], drawn)
        return jax.lax.map(lambda one: self._described(one, frame, rows), z), diverging

    def _values(self, z: Any, frame: Frame) -> Any:
        """Values of sites at a vector of coordinates, and the log of their unit volume."""
        cut, at = {}, 0
        for name, size in self.sizes.items():
            cut[name] = z[at : at + size].reshape(self.sites[name].shape)
            at += size
        return sites_at(cut, frame, self.sites, self.layout.model)

    def _potential(self, frame: Frame, rows: Rows) -> Callable[..., Any]:
        def potential(z: Any) -> Any:
            values, log_volume = self._values(z, frame)
            return -self._log_density(values, rows) - log_volume

        return potential

    def _log_density(self, values: dict[str, Any], rows: Rows) -> Any:
        log_density = module("numpyro.infer.util").log_density
        return log_density(density, (self.layout.model, *rows.sets), self._facts(rows), values)[0]

    def _facts(self, rows: Rows) -> dict[str, Any]:
        return {
            "augmented": False,
            "collapsed": self.layout.collapsed,
            "log_sizes": rows.log_sizes,
        }

    def _described(self, z: Any, frame: Frame, rows: Rows) -> dict[str, Any]:
        """Values of all sites, loadings and the log density at coordinates."""
        values = self._values(z, frame)[0]
        known = module("numpyro.handlers").substitute(density, values)
        hidden = known(self.layout.model, *rows.sets, **self._facts(rows))
        found = {"S": hidden.shared_loadings, "W": hidden.target_loadings}
        return {**values, **found, "log density": self._log_density(values, rows)}

    def _latents(self, seed: Any, drawn: dict[str, Any], sets: tuple[Any, ...]) -> dict[str, Any]:
        """Exact draws of Gaussian latents, given draws of all else: `h = mean + root^-T noise`."""
        jax, jnp = module("jax"), load().jnp
        solve = module("jax.scipy.linalg").solve_triangular
        k = self.layout.model.n_shared

        def one(key: Any, values: dict[str, Any]) -> dict[str, Any]:
            L = jnp.concatenate([values["S"], values["W"]], axis=1)
            found: dict[str, Any] = {}
            for i, (X, name, columns) in enumerate(zip(sets, MEANS, (L, L[:, :k]), strict=False)):
                law = row_law(X, values[name], columns, jnp.exp(values["log noise"]))
                noise = jax.random.normal(jax.random.fold_in(key, i), (*law.mean.shape, 1))
                h = law.mean + solve(law.root, noise, lower=True, trans=1)[:, :, 0]
                names = ("z target", "t") if i == 0 else ("z background",)
                found |= dict(zip(names, (h[:, :k], h[:, k:]), strict=False))
            return found

        keys = jax.random.split(jax.random.key(seed), len(drawn["S"]))
        return dict(jax.lax.map(lambda pair: one(*pair), (keys, drawn)))
