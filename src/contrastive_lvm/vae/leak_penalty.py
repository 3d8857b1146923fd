"""What the shared latents give away about the target, as a penalty of training."""

from contrastive_lvm._jax import JaxArray, jax, jnp

LEAST_VARIANCE = 1e-3  # of a latent dimension, so that one that is not used is not blown up
BANDWIDTHS = (0.125, 0.25, 0.5, 1.0, 2.0)  # of the kernel, times the number of dimensions


def leak(t: JaxArray, z: JaxArray, other: JaxArray) -> JaxArray:
    """Measure how far shared latents tell the set of a row, and its target latents.

    The discrepancy between the shared latents of target (z) and background (other) rows, plus the
    dependence between shared and target latents. Each dimension is first divided by its standard
    deviation: otherwise shrinking all latents would make them alike, and what small differences
    tell would stay. The target latents are not asked to change.
    """
    scale = _spread(jnp.concatenate([z, other]))
    t = jax.lax.stop_gradient(t)
    return discrepancy(z / scale, other / scale) + dependence(z / _spread(z), t / _spread(t))


def _spread(latents: JaxArray) -> JaxArray:
    return jnp.sqrt(latents.var(axis=0) + LEAST_VARIANCE)


def discrepancy(a: JaxArray, b: JaxArray) -> JaxArray:
    """Squared maximum mean discrepancy of two samples (Gretton et al. 2012, eq. 3), unbiased."""
    n, m = len(a), len(b)
    within_a = _without_diagonal(_kernel(a, a)).sum() / max(1, n * (n - 1))
    within_b = _without_diagonal(_kernel(b, b)).sum() / max(1, m * (m - 1))
    return within_a + within_b - 2.0 * _kernel(a, b).mean()


def dependence(a: JaxArray, b: JaxArray) -> JaxArray:
    """Hilbert-Schmidt criterion of paired samples (Song et al. 2012, eq. 4), unbiased."""
    n = len(a)
    if n < 4:  # too few for the estimate
        return 0.0 * a.sum()
    K, L = _without_diagonal(_kernel(a, a)), _without_diagonal(_kernel(b, b))
    joint = (K * L).sum() - 2.0 / (n - 2) * (K.sum(axis=0) @ L.sum(axis=0))
    return (joint + K.sum() * L.sum() / ((n - 1) * (n - 2))) / (n * (n - 3))


def _without_diagonal(kernel: JaxArray) -> JaxArray:
    return kernel * (1.0 - jnp.eye(len(kernel), dtype=kernel.dtype))


def _kernel(a: JaxArray, b: JaxArray) -> JaxArray:
    """Return a mean of Gaussian kernels, from narrow to wide."""
    k = a.shape[1]
    square = (a**2).sum(axis=1)[:, None] + (b**2).sum(axis=1) - 2.0 * a @ b.T
    widths = [jnp.exp(-square / (2.0 * width * k)) for width in BANDWIDTHS]
    return jnp.asarray(sum(widths)) / len(BANDWIDTHS)
