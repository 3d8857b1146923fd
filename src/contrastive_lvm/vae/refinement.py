"""Posteriors of single rows beyond what the encoders say.

An encoder learns one map for all rows; what it loses by that against the best diagonal Gaussian of
a row is the amortisation gap (Cremer, Li & Duvenaud 2018), and it is wider for rows that it was not
trained on. A few gradient steps on a row's own bound, from the encoder's answer, close most of it
(Kim et al. 2018, algorithm 1). The draws are antithetic pairs and the same for all rows, so that a
row's answer does not depend on the rows beside it.
"""

from functools import partial

from contrastive_lvm._jax import JaxArray, OptimizerState, jax, jnp, optax, tree_map
from contrastive_lvm.vae.network_model import DiagonalGaussian, NetworkModel

RATE = 0.1  # of Adam, which falls to nothing in half a cosine
FLATNESS = 1.0  # nats per unit: slopes far below move a latent by less than the rate
Carry = tuple[DiagonalGaussian, OptimizerState]
PAIRS = 8  # of draws that decide whether a row's posterior became better


def refine(model: NetworkModel, rows: JaxArray, of: str, steps: int) -> DiagonalGaussian:
    """Improve the posteriors of rows; none gets a lower bound worse than the encoder's."""
    first = model.encode(rows, of)
    if steps == 0:
        return first
    bounds = partial(_lower_bounds, model, rows, of)
    optimizer = optax.adam(optax.cosine_decay_schedule(RATE, steps), eps=FLATNESS)

    def loss(posterior: DiagonalGaussian, key: JaxArray) -> JaxArray:
        return -bounds(posterior, _antithetic_draws(key, 1, posterior)).sum()

    def step(carry: Carry, key: JaxArray) -> tuple[Carry, None]:
        posterior, state = carry
        change, state = optimizer.update(jax.grad(loss)(posterior, key), state)
        return (optax.apply_updates(posterior, change), state), None

    keys = jax.random.split(jax.random.key(0), steps + 1)
    (last, _), _ = jax.lax.scan(step, (first, optimizer.init(first)), keys[1:])
    draws = _antithetic_draws(keys[0], PAIRS, first)
    better = (bounds(last, draws) > bounds(first, draws))[:, None]
    return tree_map(lambda a, b: jnp.where(better, a, b), last, first)


def _antithetic_draws(key: JaxArray, n: int, posterior: DiagonalGaussian) -> JaxArray:
    """Return standard normal draws and their negatives, (2n, 1, K), shared by all rows."""
    shape = (n, 1, posterior.mean.shape[-1])
    half = jax.random.normal(key, shape, posterior.mean.dtype)
    return jnp.concatenate([half, -half])


def _lower_bounds(
    model: NetworkModel, rows: JaxArray, of: str, posterior: DiagonalGaussian, draws: JaxArray
) -> JaxArray:
    """Return the lower bound of each row, averaged over draws."""

    def fit(draw: JaxArray) -> JaxArray:
        h = posterior.mean + jnp.exp(posterior.log_std) * draw
        return model.log_likelihood(rows, model.decode(h, of))

    mean: JaxArray = jax.lax.map(fit, draws).mean(axis=0)
    return mean - posterior.divergence()
