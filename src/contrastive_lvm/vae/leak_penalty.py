"""What the shared latents give away about the target, as a penalty of training."""

from contrastive_lvm._jax import JaxArray, jax, jnp

LEAST_VARIANCE = 1e-3  # of a latent dimension, so that one that is not used is not blown up
MOST_ROWS = 512  # of a set
WIDEST, N_WIDTHS = 2.0, 5  # of the kernel, times the number of dimensions; then halves of it


def leak(t: JaxArray, z: JaxArray, other: JaxArray) -> JaxArray:
    """Measure how far shared latents tell the set of a row, and its target latents.

    The discrepancy between the shared latents of target (z) and background (other) rows, plus the
    dependence between shared and target latents. Each dimension is first divided by its standard
    deviation: otherwise shrinking all latents would make them alike, and what small differences
    tell would stay. The target latents are not asked to change. The estimates are unbiased, so
    that batches of any size give the same penalty on average; at most 512 rows of a set count.
    """
    t, z, other = _some(t), _some(z), _some(other)
    scale = _spread(jnp.concatenate([z, other]))
    z, other, t = z / scale, other / scale, jax.lax.stop_gradient(t / _spread(t))
    within = without_diagonal(kernel(z, z))
    apart = discrepancy(within, without_diagonal(kernel(other, other)), kernel(z, other))
    return apart + dependence(within, without_diagonal(kernel(t, t)))


def _some(rows: JaxArray) -> JaxArray:
    """Return at most `MOST_ROWS` of a batch, evenly spaced: kernels cost the square of it."""
    return rows[:: -(-len(rows) // MOST_ROWS)]


def _spread(latents: JaxArray) -> JaxArray:
    return jnp.sqrt(latents.var(axis=0) + LEAST_VARIANCE)


def discrepancy(within: JaxArray, within_other: JaxArray, between: JaxArray) -> JaxArray:
    """Squared maximum mean discrepancy of two samples (Gretton et al. 2012, eq. 3), unbiased.

    Kernels within the samples have zeros on their diagonals.
    """
    n, m = between.shape
    first, second = within.sum() / max(1, n * (n - 1)), within_other.sum() / max(1, m * (m - 1))
    return first + second - 2.0 * between.mean()


def dependence(K: JaxArray, L: JaxArray) -> JaxArray:
    """Hilbert-Schmidt criterion of paired samples (Song et al. 2012, eq. 4), unbiased.

    K and L are the kernels of the two samples, with zeros on their diagonals.
    """
    n = len(K)
    if n < 4:  # too few for the estimate
        return 0.0 * K.sum()
    joint = (K * L).sum() - 2.0 / (n - 2) * (K.sum(axis=0) @ L.sum(axis=0))
    return (joint + K.sum() * L.sum() / ((n - 1) * (n - 2))) / (n * (n - 3))


def without_diagonal(kernel: JaxArray) -> JaxArray:
    """Return a kernel with zeros on its diagonal."""
    return kernel * (1.0 - jnp.eye(len(kernel), dtype=kernel.dtype))


def kernel(a: JaxArray, b: JaxArray) -> JaxArray:
    """Return a mean of Gaussian kernels whose widths halve from one to the next."""
    square = (a**2).sum(axis=1)[:, None] + (b**2).sum(axis=1) - 2.0 * a @ b.T
    each = jnp.exp(-jnp.maximum(square, 0.0) / (2.0 * WIDEST * a.shape[1]))
    total = each
    for _ in range(N_WIDTHS - 1):  # exp(-2 s) is exp(-s) squared
        each = each**2
        total = total + each
    return total / N_WIDTHS
