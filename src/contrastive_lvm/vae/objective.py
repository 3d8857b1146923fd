"""The lower bound of a contrastive autoencoder, in named terms (the paper's last equation).

    bound = sum_i E[ln p(x_i | z, t)] - KL(q(t | x_i)) - KL(q(z | x_i))
          + sum_j E[ln p(y_j | z)] - KL(q(z | y_j)),

with the divergences from N(0, I) in closed form and the expectations by one reparameterised draw.
"""

from typing import NamedTuple

from contrastive_lvm._jax import JaxArray, JaxArrayLike, jax
from contrastive_lvm.vae.leak_penalty import leak
from contrastive_lvm.vae.network_model import LEAST_LOG_NOISE, DiagonalGaussian, NetworkModel

Scalar = JaxArrayLike | float


class BoundTerms(NamedTuple):
    """Terms of the lower bound of a batch, each scaled to its whole set, and the leak."""

    target_reconstruction: Scalar
    background_reconstruction: Scalar
    target_kl: Scalar
    target_shared_kl: Scalar
    background_shared_kl: Scalar
    leak: Scalar  # what the shared latents give away; not a part of the bound

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
) -> RowTerms:
    """Return the terms of rows of a set, with one draw of their latents."""
    keys, target = jax.random.split(key), of == "target"
    t, z = model.encode(rows, of).split(model.architecture.n_target if target else 0)
    t_draw, z_draw = t.draw(keys[0]), z.draw(keys[1])
    eta = model.predictor(t_draw if target else None, z_draw, of)
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
    y = row_terms(model, batch[1], keys[1], "background", log_floor)
    return terms._replace(
        background_reconstruction=n_y * y.reconstruction.sum(),
        background_shared_kl=n_y * y.shared_kl.sum(),
        leak=leak(x.target.mean, x.shared, y.shared) if separated else zero,
    )
