"""The compiled functions of trained networks: posteriors of rows, predictions and bounds.

They are cached by architecture, so that nothing is compiled twice.
"""

from collections.abc import Callable
from functools import lru_cache, partial
from typing import NamedTuple, TypeVar

from contrastive_lvm._jax import JaxArray, OptimizerState, jax, jnp, optax, tree_map
from contrastive_lvm.vae.architecture import (
    Architecture,
    DiagonalGaussian,
    NetworkConstants,
    NetworkModel,
    NetworkWeights,
)
from contrastive_lvm.vae.objective import row_terms

RATE = 0.1  # of Adam in refinements, which falls to nothing in half a cosine
FLATNESS = 1.0  # nats per unit: at much smaller slopes a latent moves by less than the rate
PAIRS = 8  # of draws that decide whether a row's posterior became better
Carry = tuple[DiagonalGaussian, OptimizerState]
Result = TypeVar("Result")


class NetworkFunctions(NamedTuple):
    """Compiled functions of a model; each begins with its weights and constants.

    The set `of` and the numbers of steps and draws are static.
    """

    encoder_inputs: Callable[..., JaxArray]  # rows
    encode: Callable[..., DiagonalGaussian]  # rows, of, steps
    decode: Callable[..., JaxArray]  # t, z, covariates, of -> predictor
    lower_bounds: Callable[..., JaxArray]  # rows, key, of, draws -> (draws, B)
    weighted_bounds: Callable[..., JaxArray]  # rows, posterior, key, of, draws -> (B,)
    # rows, posterior, key, of, draws -> mean and mean square of the predictor, (B, D)
    predictor_moments: Callable[..., tuple[JaxArray, JaxArray]]
    target_gains: Callable[..., JaxArray]  # rows, key, draws -> (B,)


@lru_cache(maxsize=4)
def network_functions(architecture: Architecture) -> NetworkFunctions:
    """Return the compiled functions of an architecture."""

    def compiled(function: Callable[..., Result], *static: str) -> Callable[..., Result]:
        def call(
            weights: NetworkWeights,
            constants: NetworkConstants,
            *arrays: JaxArray | DiagonalGaussian,
            **words: str | int,
        ) -> Result:
            return function(NetworkModel(architecture, weights, constants), *arrays, **words)

        return jax.jit(call, static_argnames=static)

    return NetworkFunctions(
        compiled(NetworkModel.encoder_inputs),
        compiled(refine, "of", "steps"),
        compiled(NetworkModel.predictor, "of"),
        compiled(_lower_bounds, "of", "draws"),
        compiled(_weighted_bounds, "of", "draws"),
        compiled(_predictor_moments, "of", "draws"),
        compiled(_target_gains, "draws"),
    )


def _lower_bounds(
    model: NetworkModel, rows: JaxArray, key: JaxArray, *, of: str, draws: int
) -> JaxArray:
    """Return the lower bound of each row by each draw."""

    def one(i: JaxArray) -> JaxArray:
        terms = row_terms(model, rows, jax.random.fold_in(key, i), of)
        return terms.reconstruction - terms.target_kl - terms.shared_kl

    bounds: JaxArray = jax.lax.map(one, jnp.arange(draws))
    return bounds


def _target_gains(
    model: NetworkModel, rows: JaxArray, average: JaxArray, key: JaxArray, *, draws: int
) -> JaxArray:
    """Return what the target latents add to each row's lower bound, by the target's encoder.

    `E[ln p(x | z, t) - ln p(x | z)] - KL(q(t | x))`, where the second term has an average of `f_t`,
    (D,), in place of `f_t`.
    """
    posterior, k = model.encode(rows, "target"), model.architecture.n_target
    covariates = model.split(rows)[1]

    def one(i: JaxArray) -> JaxArray:
        h = posterior.draw(jax.random.fold_in(key, i))
        without = model.predictor(None, h[:, k:], covariates, "target") + average
        with_target = model.log_likelihood(rows, model.decode(h, covariates, "target"))
        return with_target - model.log_likelihood(rows, without)

    gains: JaxArray = jax.lax.map(one, jnp.arange(draws)).mean(axis=0)
    return gains - posterior.split(k)[0].divergence()


def _weighted_bounds(
    model: NetworkModel,
    rows: JaxArray,
    posterior: DiagonalGaussian,
    key: JaxArray,
    *,
    of: str,
    draws: int,
) -> JaxArray:
    """`ln mean_k p(x, h_k) / q(h_k | x)` (Burda et al. 2016, eq. 8), one draw at a time."""
    covariates = model.split(rows)[1]

    def add(total: JaxArray, i: JaxArray) -> tuple[JaxArray, None]:
        h = posterior.draw(jax.random.fold_in(key, i))
        standard = (h - posterior.mean) * jnp.exp(-posterior.log_std)
        log_ratio = (0.5 * (standard**2 - h**2) + posterior.log_std).sum(axis=-1)
        log_weight = model.log_likelihood(rows, model.decode(h, covariates, of)) + log_ratio
        return jnp.logaddexp(total, log_weight), None

    nothing = jnp.full(len(rows), -jnp.inf, dtype=rows.dtype)
    return jax.lax.scan(add, nothing, jnp.arange(draws))[0] - jnp.log(draws)


def _predictor_moments(
    model: NetworkModel,
    rows: JaxArray,
    posterior: DiagonalGaussian,
    key: JaxArray,
    *,
    of: str,
    draws: int,
) -> tuple[JaxArray, JaxArray]:
    """Return the mean and the mean square of the predictor over draws of the latents."""
    covariates = model.split(rows)[1]

    def add(
        total: tuple[JaxArray, JaxArray], i: JaxArray
    ) -> tuple[tuple[JaxArray, JaxArray], None]:
        eta = model.decode(posterior.draw(jax.random.fold_in(key, i)), covariates, of)
        return (total[0] + eta, total[1] + eta**2), None

    shape = (len(posterior.mean), model.architecture.n_features)
    zero = jnp.zeros(shape, dtype=posterior.mean.dtype)
    total, _ = jax.lax.scan(add, (zero, zero), jnp.arange(draws))
    return total[0] / draws, total[1] / draws


def refine(model: NetworkModel, rows: JaxArray, of: str, steps: int) -> DiagonalGaussian:
    """Improve the posteriors of rows; none gets a lower bound worse than the encoder's.

    An encoder learns one map for all rows. The difference to the best diagonal Gaussian of each row
    is the amortisation gap (Cremer, Li & Duvenaud 2018), which is wider for rows that were not used
    in training. A few gradient steps on a row's own bound, from the encoder's answer, close most of
    it (Kim et al. 2018, algorithm 1). The draws are antithetic pairs and the same for all rows, so
    that the result for a row does not depend on other rows.
    """
    first = model.encode(rows, of)
    if steps == 0:
        return first
    bounds = partial(_refined_bounds, model, rows, of)
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


def _refined_bounds(
    model: NetworkModel, rows: JaxArray, of: str, posterior: DiagonalGaussian, draws: JaxArray
) -> JaxArray:
    """Return the lower bound of each row, averaged over draws."""

    def fit(draw: JaxArray) -> JaxArray:
        h = posterior.mean + jnp.exp(posterior.log_std) * draw
        return model.log_likelihood(rows, model.decode(h, model.split(rows)[1], of))

    mean: JaxArray = jax.lax.map(fit, draws).mean(axis=0)
    return mean - posterior.divergence()
