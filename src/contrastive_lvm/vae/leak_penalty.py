"""What the shared latents give away about the target, as a penalty of training."""

from contrastive_lvm._jax import JaxArray, jax, jnp
from contrastive_lvm.vae.network_model import DiagonalGaussian

LEAST_VARIANCE = 1e-3  # of a latent dimension, so that one that is not used is not blown up
MOST_ROWS = 512  # of a set
WIDEST, N_WIDTHS = 2.0, 5  # of the kernel, times the number of dimensions; then halves of it


def leak(t: JaxArray, z: DiagonalGaussian, other: DiagonalGaussian) -> JaxArray:
    """Measure how far shared latents tell the set of a row, and its target latents.

    The discrepancy between the shared latents (posterior means) of target (z) and background
    (other) rows, plus the dependence between shared and target latents (t, means), plus the excess
    precision of the target's shared latents. Each dimension is first divided by its standard
    deviation: otherwise shrinking all latents would make them alike, and what small differences
    tell would stay. The target latents are not asked to change. The estimates are unbiased, so
    that batches of any size give the same penalty on average; at most 512 rows of a set count.
    """
    t, a, b = _some(t), _some(z.mean), _some(other.mean)
    scale = _spread(jnp.concatenate([a, b]))
    a, b, t = a / scale, b / scale, jax.lax.stop_gradient(t / _spread(t))
    within = kernel(a, a)
    apart = discrepancy(within, kernel(b, b), kernel(a, b))
    return apart + dependence(within, kernel(t, t)) + excess(z, other)


def excess(z: DiagonalGaussian, other: DiagonalGaussian) -> JaxArray:
    """Return by how much shared latents are more precise for target rows, as a mean square.

    The averages over rows of ln standard deviations are compared. Target rows have more to explain
    than background rows and no more shared structure, so that their shared latents should not be
    more precise. If they are, they hold something else, in differences so fine that kernels do
    not see them. The background is not asked to change.
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
