"""The objective of training: the lower bound (the paper's last equation) less a penalty.

    bound = sum_i E[ln p(x_i | z, t)] - KL(q(t | x_i)) - KL(q(z | x_i))
          + sum_j E[ln p(y_j | z)] - KL(q(z | y_j)),

with the divergences from N(0, I) in closed form and the expectations by one reparameterised draw.
The penalty is on what the shared latents reveal about the target. A second training of counts (see
`ContrastiveVAE`) is crossed: the target's encoder describes half of the background rows, without
its target latents. This is a lower bound too, and teaches that encoder to describe what both sets
have by shared latents. The penalty is then also on how much its target latents vary over these
rows.
"""

from collections.abc import Callable, Hashable
from functools import lru_cache, partial
from typing import NamedTuple

from contrastive_lvm._jax import (
    JaxArray,
    JaxArrayLike,
    OptimizerState,
    jax,
    jnp,
    optax,
    tree_map,
)
from contrastive_lvm.vae.architecture import (
    LEAST_LOG_NOISE,
    Architecture,
    DiagonalGaussian,
    NetworkConstants,
    NetworkModel,
    NetworkWeights,
)

LIKELIHOOD_GAIN = 3.0  # noise and dispersions learn faster than networks
LEAST_VARIANCE = 1e-3  # of a latent dimension, so that an unused one is not scaled up
MOST_ROWS = 512  # of a set for which the leak is measured
WIDEST, N_WIDTHS = 2.0, 5  # of the kernel, times the number of dimensions; then halves of it
OF_VARIATION = 0.1  # weight of the target latents' variation over background rows, in the penalty
Scalar = JaxArrayLike | float
Carry = tuple[NetworkWeights, OptimizerState]


class BoundTerms(NamedTuple):
    """Terms of the lower bound of a batch, each scaled to its whole set, and the leak."""

    target_reconstruction: Scalar
    background_reconstruction: Scalar
    target_kl: Scalar
    target_shared_kl: Scalar
    background_shared_kl: Scalar
    leak: Scalar  # what the shared latents reveal; not a part of the bound

    def lower_bound(self, target_weight: Scalar = 1.0) -> Scalar:
        """Return reconstructions less divergences; that of the target latents has a weight."""
        reconstruction = self.target_reconstruction + self.background_reconstruction
        shared = self.target_shared_kl + self.background_shared_kl
        return reconstruction - target_weight * self.target_kl - shared


class RowTerms(NamedTuple):
    """Terms of the lower bound of each row, (B,), and its posteriors."""

    reconstruction: JaxArray
    target_kl: JaxArray
    shared_kl: JaxArray
    target: DiagonalGaussian
    shared: DiagonalGaussian


def row_terms(
    model: NetworkModel,
    rows: JaxArrayLike,
    key: JaxArray,
    of: str,
    log_floor: Scalar = LEAST_LOG_NOISE,
    encoder: str | None = None,
) -> RowTerms:
    """Return the terms of rows of a set, with one draw of their latents, by an encoder.

    Target latents are no part of background rows: their divergence is a term of target rows only.
    """
    keys, target, encoder = jax.random.split(key), of == "target", encoder or of
    k = model.architecture.n_target if encoder == "target" else 0
    t, z = model.encode(rows, encoder).split(k)
    t_draw, z_draw = t.draw(keys[0]), z.draw(keys[1])
    eta = model.predictor(t_draw if target else None, z_draw, model.split(rows)[1], of)
    reconstruction = model.log_likelihood(rows, eta, log_floor)
    return RowTerms(reconstruction, t.divergence(), z.divergence(), t, z)


def batch_terms(
    model: NetworkModel,
    batch: tuple[JaxArrayLike, ...],
    repeats: tuple[JaxArrayLike, ...],
    key: JaxArray,
    log_floor: Scalar = LEAST_LOG_NOISE,
    *,
    separated: bool = False,
    crossed: bool = False,
) -> BoundTerms:
    """Return the terms of a batch, each of whose rows stands for `repeats` rows of its set."""
    keys = jax.random.split(key)
    x = row_terms(model, batch[0], keys[0], "target", log_floor)
    n_x, n_y, zero = repeats[0], repeats[-1], 0.0 * repeats[0]
    terms = BoundTerms(
        target_reconstruction=n_x * x.reconstruction.sum(),
        background_reconstruction=zero,
        target_kl=n_x * x.target_kl.sum(),
        target_shared_kl=n_x * x.shared_kl.sum(),
        background_shared_kl=zero,
        leak=zero,
    )
    if len(batch) == 1:
        return terms
    crossed = crossed and len(batch[1]) > 1
    y = _background_terms(model, batch[1], keys[1], log_floor, crossed=crossed)
    found = zero
    if separated:
        found = leak(x.target.mean, x.shared, y.shared)
        if crossed:
            found = found + OF_VARIATION * variation(y.target.mean, x.target.mean)
    return terms._replace(
        background_reconstruction=n_y * y.reconstruction.sum(),
        background_shared_kl=n_y * y.shared_kl.sum(),
        leak=found,
    )


def _background_terms(
    model: NetworkModel, rows: JaxArrayLike, key: JaxArray, log_floor: Scalar, *, crossed: bool
) -> RowTerms:
    """Return the terms of background rows; if crossed, of one half by the target's encoder.

    The target latents are those of this half.
    """
    if not crossed:
        return row_terms(model, rows, key, "background", log_floor)
    n, keys = rows.shape[0] // 2, jax.random.split(key)
    own = row_terms(model, rows[:n], keys[0], "background", log_floor)
    other = row_terms(model, rows[n:], keys[1], "background", log_floor, "target")
    both = tree_map(
        lambda a, b: jnp.concatenate([a, b]),
        own._replace(target=own.shared),
        other._replace(target=other.shared),
    )
    return both._replace(target=other.target)


def leak(t: JaxArray, z: DiagonalGaussian, other: DiagonalGaussian) -> JaxArray:
    """Measure how much shared latents reveal about the set of a row and its target latents.

    The discrepancy between the shared latents (posterior means) of target (z) and background
    (other) rows, plus the dependence between shared and target latents (t, means), plus the excess
    precision of the target's shared latents. Each dimension is first divided by its standard
    deviation: otherwise shrinking all latents would hide the leak without removing it. The target
    latents get no gradient from it. The estimates are unbiased, so that batches of any size give
    the same penalty on average; at most 512 rows of a set count.
    """
    t, a, b = _some(t), _some(z.mean), _some(other.mean)
    scale = _spread(jnp.concatenate([a, b]))
    a, b, t = a / scale, b / scale, jax.lax.stop_gradient(t / _spread(t))
    within = kernel(a, a)
    apart = discrepancy(within, kernel(b, b), kernel(a, b))
    return apart + dependence(within, kernel(t, t)) + excess(z, other)


def variation(t: JaxArray, of_target: JaxArray) -> JaxArray:
    """Return the variance of the target latents of background rows, over that of target rows.

    Background rows lack what target latents should describe, and should all have the same ones. The
    rows of the target get no gradient from it.
    """
    spread = jax.lax.stop_gradient(_spread(of_target))
    return (t / spread).var(axis=0).mean()


def excess(z: DiagonalGaussian, other: DiagonalGaussian) -> JaxArray:
    """Return by how much shared latents are more precise for target rows, as a mean square.

    The averages over rows of ln standard deviations are compared. Target rows have more to explain
    than background rows and no more shared structure, so that their shared latents should not be
    more precise. If they are, they hold information in differences too fine for kernels. The
    background gets no gradient from this term.
    """
    less = jax.lax.stop_gradient(other.log_std).mean(axis=0) - z.log_std.mean(axis=0)
    return (jnp.maximum(less, 0.0) ** 2).mean()


def _some(rows: JaxArray) -> JaxArray:
    """Return at most `MOST_ROWS` of a batch, evenly spaced: kernels cost the square of it."""
    return rows[:: -(-len(rows) // MOST_ROWS)]


def _spread(latents: JaxArray) -> JaxArray:
    return jnp.sqrt(latents.var(axis=0) + LEAST_VARIANCE)


def discrepancy(within: JaxArray, within_other: JaxArray, between: JaxArray) -> JaxArray:
    """Squared maximum mean discrepancy of two samples (Gretton et al. 2012, eq. 3), unbiased.

    The kernels are 1 on their diagonals, which do not count.
    """
    n, m = between.shape
    first = (within.sum() - n) / max(1, n * (n - 1))
    second = (within_other.sum() - m) / max(1, m * (m - 1))
    return first + second - 2.0 * between.mean()


def dependence(K: JaxArray, L: JaxArray) -> JaxArray:
    """Hilbert-Schmidt criterion of paired samples (Song et al. 2012, eq. 4), unbiased.

    K and L are the kernels of the two samples, 1 on their diagonals, which do not count.
    """
    n = len(K)
    if n < 4:  # too few for the estimate
        return 0.0 * K.sum()
    row, other = K.sum(axis=0) - 1.0, L.sum(axis=0) - 1.0
    joint = ((K * L).sum() - n) - 2.0 / (n - 2) * (row @ other)
    return (joint + row.sum() * other.sum() / ((n - 1) * (n - 2))) / (n * (n - 3))


def kernel(a: JaxArray, b: JaxArray) -> JaxArray:
    """Return a mean of Gaussian kernels whose widths halve from one to the next."""
    square = (a**2).sum(axis=1)[:, None] + (b**2).sum(axis=1) - 2.0 * a @ b.T
    each = jnp.exp(-jnp.maximum(square, 0.0) / (2.0 * WIDEST * a.shape[1]))
    total = each
    for _ in range(N_WIDTHS - 1):  # exp(-2 s) is exp(-s) squared
        each = each**2
        total = total + each
    return total / N_WIDTHS


class StepInputs(NamedTuple):
    """Minibatches, stacked, and what changes from step to step."""

    batches: tuple[JaxArrayLike, ...]  # (C, B, D) for each set
    numbers: JaxArrayLike  # (C,) of the steps: seeds of their draws
    rates: JaxArrayLike  # (C,) learning rates
    kl_weights: JaxArrayLike  # (C,) of the target latents
    log_floors: JaxArrayLike  # (C,) of the noise
    leak_weights: JaxArrayLike  # (C,) of the penalty


class Objective(NamedTuple):
    """What the objective depends on besides weights and batches."""

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
    architecture: Architecture, clip: float, shapes: Hashable, *, separated: bool, crossed: bool
) -> TrainingFunctions:
    """Return the compiled functions of training an architecture on batches of some shapes.

    JAX keeps what it compiled for other shapes as long as the function; here it can be freed.
    """
    optimizer = optax.chain(optax.clip_by_global_norm(clip), optax.scale_by_adam())
    terms_of = partial(batch_terms, separated=separated, crossed=crossed)

    def loss(
        weights: NetworkWeights, inputs: StepInputs, objective: Objective
    ) -> tuple[JaxArray, BoundTerms]:
        model = NetworkModel(architecture, weights, objective.constants)
        key = jax.random.fold_in(objective.key, inputs.numbers)
        terms = terms_of(model, inputs.batches, objective.repeats, key, inputs.log_floors)
        unit = model.information_unit(inputs.log_floors)
        penalty = inputs.leak_weights * objective.separation * unit * terms.leak
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
