"""What is compiled: steps of training, looks at the bound, and the networks themselves."""

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any, NamedTuple

from contrastive_lvm._jax import load, module
from contrastive_lvm.vae.design import Design, Parameters, Scaling
from contrastive_lvm.vae.objective import (
    Code,
    Parts,
    decoded,
    log_likelihood,
    parts,
    predictor,
    row_parts,
)
from contrastive_lvm.vae.refinement import refined

LEARNED_GAIN = 3.0  # noise and dispersions learn faster than networks


class Feed(NamedTuple):
    """Minibatches, stacked, and what changes from step to step."""

    batches: tuple[Any, ...]  # (C, B, D) of each set
    numbers: Any  # (C,) of the steps: seeds of their draws
    rates: Any  # (C,) of learning
    kl_weights: Any  # (C,) of the target latents, and of the penalty
    log_floors: Any  # (C,) of the noise


class Weights(NamedTuple):
    """How the terms of the objective are weighed."""

    repeats: tuple[Any, ...]  # rows of a set that each row of its batch stands for
    separation: Any  # of the leak, nats
    total: Any  # entries of both sets, which the objective is divided by


class Program(NamedTuple):
    """Compiled functions of parameters and scaling."""

    first_optimiser: Callable[..., Any]
    steps: Callable[..., Any]  # parameters, optimiser, feed, scaling, weights, key
    look: Callable[..., Any]  # parameters, batch, scaling, weights, key -> Parts


@lru_cache(maxsize=16)
def program(design: Design, clip: float, *, separated: bool) -> Program:
    """Of training; the same functions for the same arguments, so nothing is compiled twice."""
    jax, optax = module("jax"), module("optax")
    optimiser = optax.chain(optax.clip_by_global_norm(clip), optax.scale_by_adam())

    def loss(p: Parameters, feed: Feed, scaling: Scaling, weights: Weights, key: Any) -> Any:
        key = jax.random.fold_in(key, feed.numbers)
        found = parts(
            design,
            p,
            scaling,
            feed.batches,
            weights.repeats,
            key,
            feed.log_floors,
            separated=separated,
        )
        penalty = weights.separation * feed.kl_weights * found.leak
        return (penalty - found.bound(feed.kl_weights)) / weights.total, found

    def steps(
        p: Parameters, state: Any, feed: Feed, scaling: Scaling, weights: Weights, key: Any
    ) -> Any:
        def step(carry: Any, own: Feed) -> Any:
            p, state = carry
            slope, found = jax.grad(loss, has_aux=True)(p, own, scaling, weights, key)
            change, state = optimiser.update(slope, state, p)
            change["learned"] = jax.tree.map(lambda g: LEARNED_GAIN * g, change["learned"])
            p = jax.tree.map(lambda a, b: a - own.rates * b, p, change)
            return (p, state), found

        (p, state), found = jax.lax.scan(step, (p, state), feed)
        return p, state, jax.tree.map(lambda each: each.mean(), found)

    def look(
        p: Parameters, batch: tuple[Any, ...], scaling: Scaling, weights: Weights, key: Any
    ) -> Parts:
        return parts(design, p, scaling, batch, weights.repeats, key, separated=separated)

    return Program(jax.jit(optimiser.init), jax.jit(steps), jax.jit(look))


class Networks(NamedTuple):
    """Compiled functions of a trained model; `of` and numbers of steps and draws are static."""

    encode: Callable[..., Code]  # parameters, scaling, rows, of, steps
    decode: Callable[..., Any]  # parameters, scaling, t, z, of -> predictor
    bound: Callable[..., Any]  # parameters, scaling, rows, key, of, draws -> (draws, B)
    weigh: Callable[..., Any]  # parameters, scaling, rows, code, key, of, draws -> (B,)
    fill: Callable[
        ..., Any
    ]  # parameters, scaling, code, key, of, draws -> mean and mean square of predictors, (B, D)


@lru_cache(maxsize=16)
def networks(design: Design) -> Networks:
    """Of one design."""
    jit = module("jax").jit
    return Networks(
        jit(partial(refined, design), static_argnames=("of", "steps")),
        jit(partial(predictor, design), static_argnames="of"),
        jit(partial(_bound, design), static_argnames=("of", "draws")),
        jit(partial(_weigh, design), static_argnames=("of", "draws")),
        jit(partial(_fill, design), static_argnames=("of", "draws")),
    )


def _bound(
    design: Design, p: Parameters, scaling: Scaling, rows: Any, key: Any, of: str, draws: int
) -> Any:
    """The bound of each row by each draw."""
    jax = module("jax")

    def one(i: Any) -> Any:
        found = row_parts(design, p, scaling, rows, jax.random.fold_in(key, i), of)
        return found.reconstruction - found.target_kl - found.shared_kl

    return jax.lax.map(one, load().jnp.arange(draws))


def _weigh(
    design: Design,
    p: Parameters,
    scaling: Scaling,
    rows: Any,
    code: Code,
    key: Any,
    of: str,
    draws: int,
) -> Any:
    """`ln mean_k p(x, h_k) / q(h_k | x)` (Burda et al. 2016, eq. 8), a draw at a time."""
    jax, jnp = module("jax"), load().jnp

    def more(total: Any, i: Any) -> Any:
        h = code.draw(jax.random.fold_in(key, i))
        eta = decoded(design, p, scaling, h, of)
        standard = (h - code.mean) * jnp.exp(-code.log_sd)
        log_ratio = (0.5 * (standard**2 - h**2) + code.log_sd).sum(axis=-1)
        found = log_likelihood(design, p, scaling, rows, eta) + log_ratio
        return jnp.logaddexp(total, found), None

    none = jnp.full(len(rows), -jnp.inf, dtype=rows.dtype)
    return jax.lax.scan(more, none, jnp.arange(draws))[0] - jnp.log(draws)


def _fill(
    design: Design,
    p: Parameters,
    scaling: Scaling,
    code: Code,
    key: Any,
    of: str,
    draws: int,
) -> Any:
    """Mean and mean square of the predictor over draws of the latents."""
    jax, jnp = module("jax"), load().jnp

    def more(total: Any, i: Any) -> Any:
        eta = decoded(design, p, scaling, code.draw(jax.random.fold_in(key, i)), of)
        return (total[0] + eta, total[1] + eta**2), None

    zero = jnp.zeros((len(code.mean), design.n_features), dtype=code.mean.dtype)
    total, _ = jax.lax.scan(more, (zero, zero), jnp.arange(draws))
    return jax.tree.map(lambda each: each / draws, total)
