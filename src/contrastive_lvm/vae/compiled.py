"""The functions that are compiled: training steps, the held-out bound, and predictions.

Each is cached by what it depends on beside arrays, so that nothing is compiled twice.
"""

from collections.abc import Callable, Hashable
from functools import lru_cache, partial
from typing import NamedTuple, TypeVar

from contrastive_lvm._jax import (
    JaxArray,
    JaxArrayLike,
    OptimizerState,
    jax,
    jnp,
    optax,
    tree_map,
)
from contrastive_lvm.vae.architecture import Architecture, NetworkConstants, NetworkWeights
from contrastive_lvm.vae.network_model import DiagonalGaussian, NetworkModel
from contrastive_lvm.vae.objective import BoundTerms, batch_terms, row_terms
from contrastive_lvm.vae.refinement import refine

LIKELIHOOD_GAIN = 3.0  # noise and dispersions learn faster than networks
Carry = tuple[NetworkWeights, OptimizerState]
Result = TypeVar("Result")


class StepInputs(NamedTuple):
    """Minibatches, stacked, and what changes from step to step."""

    batches: tuple[JaxArrayLike, ...]  # (C, B, D) for each set
    numbers: JaxArrayLike  # (C,) of the steps: seeds of their draws
    rates: JaxArrayLike  # (C,) learning rates
    kl_weights: JaxArrayLike  # (C,) of the target latents
    log_floors: JaxArrayLike  # (C,) of the noise


class Objective(NamedTuple):
    """What the objective depends on beside weights and batches."""

    constants: NetworkConstants
    repeats: tuple[JaxArrayLike, ...]  # rows of a set that each row of its batch stands for
    separation: JaxArrayLike  # weight of the leak, in information units of all target rows
    n_entries: JaxArrayLike  # of both sets, by which the objective is divided
    key: JaxArray  # of all draws


class TrainingFunctions(NamedTuple):
    """Compiled functions of training."""

    init_optimizer: Callable[[NetworkWeights], OptimizerState]
    steps: Callable[
        [NetworkWeights, OptimizerState, StepInputs, Objective],
        tuple[NetworkWeights, OptimizerState, BoundTerms],
    ]
    evaluate: Callable[
        [NetworkWeights, tuple[JaxArrayLike, ...], Objective], tuple[BoundTerms, JaxArray]
    ]


@lru_cache(maxsize=4)
def training_functions(
    architecture: Architecture, clip: float, shapes: Hashable, *, separated: bool
) -> TrainingFunctions:
    """Return the compiled functions of training an architecture on batches of some shapes.

    JAX keeps what it compiled for other shapes as long as the function; here it can be freed.
    """
    optimizer = optax.chain(optax.clip_by_global_norm(clip), optax.scale_by_adam())
    terms_of = partial(batch_terms, separated=separated)

    def loss(
        weights: NetworkWeights, inputs: StepInputs, objective: Objective
    ) -> tuple[JaxArray, BoundTerms]:
        model = NetworkModel(architecture, weights, objective.constants)
        key = jax.random.fold_in(objective.key, inputs.numbers)
        terms = terms_of(model, inputs.batches, objective.repeats, key, inputs.log_floors)
        unit = model.information_unit(inputs.log_floors)
        penalty = objective.separation * unit * terms.leak
        loss = (penalty - terms.lower_bound(inputs.kl_weights)) / objective.n_entries
        return jnp.asarray(loss), terms

    def steps(
        weights: NetworkWeights, state: OptimizerState, inputs: StepInputs, objective: Objective
    ) -> tuple[NetworkWeights, OptimizerState, BoundTerms]:
        def step(carry: Carry, own: StepInputs) -> tuple[Carry, BoundTerms]:
            weights, state = carry
            slope, terms = jax.grad(loss, has_aux=True)(weights, own, objective)
            change, state = optimizer.update(slope, state, weights)
            faster = tree_map(lambda g: LIKELIHOOD_GAIN * g, change.likelihood)
            change = change._replace(likelihood=faster)
            weights = tree_map(lambda a, b: a - own.rates * b, weights, change)
            return (weights, state), terms

        (weights, state), terms = jax.lax.scan(step, (weights, state), inputs)
        return weights, state, tree_map(lambda each: each.mean(), terms)

    def evaluate(
        weights: NetworkWeights, batch: tuple[JaxArrayLike, ...], objective: Objective
    ) -> tuple[BoundTerms, JaxArray]:
        """Return the terms and the penalty."""
        model = NetworkModel(architecture, weights, objective.constants)
        terms = terms_of(model, batch, objective.repeats, objective.key)
        return terms, jnp.asarray(objective.separation * model.information_unit() * terms.leak)

    return TrainingFunctions(jax.jit(optimizer.init), jax.jit(steps), jax.jit(evaluate))


class NetworkFunctions(NamedTuple):
    """Compiled functions of a model; each begins with its weights and constants.

    The set `of` and the numbers of steps and draws are static.
    """

    encoder_inputs: Callable[..., JaxArray]  # rows
    encode: Callable[..., DiagonalGaussian]  # rows, of, steps
    decode: Callable[..., JaxArray]  # t, z, of -> predictor
    lower_bounds: Callable[..., JaxArray]  # rows, key, of, draws -> (draws, B)
    weighted_bounds: Callable[..., JaxArray]  # rows, posterior, key, of, draws -> (B,)
    # posterior, key, of, draws -> mean and mean square of the predictor, (B, D)
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


def _target_gains(model: NetworkModel, rows: JaxArray, key: JaxArray, *, draws: int) -> JaxArray:
    """Return what the target latents add to each row's lower bound, by the target's encoder.

    `E[ln p(x | z, t) - ln p(x | z)] - KL(q(t | x))`, where the second term leaves `f_t` out.
    """
    posterior, k = model.encode(rows, "target"), model.architecture.n_target

    def one(i: JaxArray) -> JaxArray:
        h = posterior.draw(jax.random.fold_in(key, i))
        without = model.predictor(None, h[:, k:], "target")
        with_target = model.log_likelihood(rows, model.decode(h, "target"))
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

    def add(total: JaxArray, i: JaxArray) -> tuple[JaxArray, None]:
        h = posterior.draw(jax.random.fold_in(key, i))
        standard = (h - posterior.mean) * jnp.exp(-posterior.log_std)
        log_ratio = (0.5 * (standard**2 - h**2) + posterior.log_std).sum(axis=-1)
        log_weight = model.log_likelihood(rows, model.decode(h, of)) + log_ratio
        return jnp.logaddexp(total, log_weight), None

    nothing = jnp.full(len(rows), -jnp.inf, dtype=rows.dtype)
    return jax.lax.scan(add, nothing, jnp.arange(draws))[0] - jnp.log(draws)


def _predictor_moments(
    model: NetworkModel, posterior: DiagonalGaussian, key: JaxArray, *, of: str, draws: int
) -> tuple[JaxArray, JaxArray]:
    """Return the mean and the mean square of the predictor over draws of the latents."""

    def add(
        total: tuple[JaxArray, JaxArray], i: JaxArray
    ) -> tuple[tuple[JaxArray, JaxArray], None]:
        eta = model.decode(posterior.draw(jax.random.fold_in(key, i)), of)
        return (total[0] + eta, total[1] + eta**2), None

    shape = (len(posterior.mean), model.architecture.n_features)
    zero = jnp.zeros(shape, dtype=posterior.mean.dtype)
    total, _ = jax.lax.scan(add, (zero, zero), jnp.arange(draws))
    return total[0] / draws, total[1] / draws
