"""Posteriors of single rows beyond what the encoders say.

An encoder learns one map for all rows; what it loses by that against the best diagonal Gaussian of
a row is the amortisation gap (Cremer, Li & Duvenaud 2018), and it is wider for rows that it was not
trained on. A few gradient steps on a row's own bound, from the encoder's answer, close most of it
(Kim et al. 2018, algorithm 1). The draws are antithetic pairs and the same for all rows, so that a
row's answer does not depend on the rows beside it.
"""

from functools import partial
from typing import Any

from contrastive_lvm._jax import load, module
from contrastive_lvm.vae.design import Design, Parameters, Scaling
from contrastive_lvm.vae.objective import Code, decoded, encode, log_likelihood

RATE = 0.1  # of Adam, which falls to nothing in half a cosine
FLATNESS = 1.0  # nats a unit: slopes far below move a latent by less than the rate
JUDGES = 8  # pairs of draws that decide whether a row's answer became better


def refined(
    design: Design, p: Parameters, scaling: Scaling, rows: Any, of: str, steps: int
) -> Code:
    """Posteriors of rows after some steps, never worse by their bounds than the encoder's."""
    jax, optax = module("jax"), module("optax")
    first = encode(design, p, scaling, rows, of)
    if steps == 0:
        return first
    bounds = partial(_bounds, design, p, scaling, rows, of)
    optimiser = optax.adam(optax.cosine_decay_schedule(RATE, steps), eps=FLATNESS)

    def loss(code: Code, key: Any) -> Any:
        return -bounds(code, _pairs(key, 1, code)).sum()

    def step(carry: Any, key: Any) -> Any:
        code, state = carry
        change, state = optimiser.update(jax.grad(loss)(code, key), state)
        return (optax.apply_updates(code, change), state), None

    keys = jax.random.split(jax.random.key(0), steps + 1)
    (last, _), _ = jax.lax.scan(step, (first, optimiser.init(first)), keys[1:])
    draws = _pairs(keys[0], JUDGES, first)
    better = (bounds(last, draws) > bounds(first, draws))[:, None]
    return Code(*(load().jnp.where(better, b, a) for a, b in zip(first, last, strict=True)))


def _pairs(key: Any, n: int, code: Code) -> Any:
    """Standard normal draws and their negatives, (2n, 1, K): one of each for all rows."""
    half = module("jax.random").normal(key, (n, 1, code.mean.shape[-1]), code.mean.dtype)
    return load().jnp.concatenate([half, -half])


def _bounds(
    design: Design, p: Parameters, scaling: Scaling, rows: Any, of: str, code: Code, draws: Any
) -> Any:
    """Of each row, the mean over draws."""
    jax, jnp = module("jax"), load().jnp

    def fit(draw: Any) -> Any:
        h = code.mean + jnp.exp(code.log_sd) * draw
        return log_likelihood(design, p, scaling, rows, decoded(design, p, scaling, h, of))

    return jax.lax.map(fit, draws).mean(axis=0) - code.divergence()
