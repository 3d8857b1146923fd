"""One NumPyro density for every model, composed from its priors and its likelihood.

Gaussian rows may have their latents integrated out, which is the row step of `rows/masked_rows.py`
in JAX: with `A = I + sum_{d observed} l_d l_d' / psi_d` and `b = sum_d l_d r_d / psi_d`, `h | x ~
N(A^-1 b, A^-1)` and `-2 ln p(x) = n ln 2 pi + sum_d ln psi_d + ln|A| + sum_d r_d^2 / psi_d - b'
A^-1 b`. Complete rows share A, and their density depends only on their number, mean and scatter.
"""

from collections.abc import Sequence
from typing import NamedTuple

from contrastive_lvm._jax import AnyArray, JaxArray, dist, flat_site, jax, jnp, numpyro
from contrastive_lvm.arrays import Array
from contrastive_lvm.likelihoods.values import RowSite
from contrastive_lvm.model import Model


class CompleteRows(NamedTuple):
    """Number, mean and scatter of rows without missing entries, in place of the rows."""

    n: float
    mean: AnyArray  # (D,)
    scatter: AnyArray  # (D, D) about the mean

    @property
    def shape(self) -> tuple[float, int]:
        """Return the shape of the rows."""
        return self.n, len(self.mean)


class Unobserved(NamedTuple):
    """Loadings and latents of a density; there are no latents when they are integrated out."""

    loadings: dict[str, JaxArray]  # by block: (D, n_components)
    latents: dict[str, dict[str, JaxArray]]  # by set, then by block: (N, n_components)


def density(
    model: Model,
    *rows: AnyArray | CompleteRows,
    augmented: bool = True,
    collapsed: bool = False,
    log_sizes: Sequence[AnyArray | None] = (),
    repeats: Sequence[AnyArray | float] = (),
) -> Unobserved:
    """Draw the sites of a model and of its data. Call this function inside a NumPyro model.

    Sites are the loadings of each block (`"shared loadings"`) with the scales of their prior
    (`"shared loadings variance"` and so on), the mean of each set (`"target mean"`), the latents
    of a block in each set that uses it (`"shared latents of target"`), what the likelihood learns
    (`"log noise"`, `"log df"`, `"log dispersion"`), and the rows of each set (`"target rows"`).
    Means, log noise and log df have density 1.

    Parameters
    ----------
    model : Model
    *rows : arrays
        Rows of each set, in the order of `model.sets`; NaN where missing.
    augmented : bool
        Whether scales of priors and entries are sites of their own, and loadings are drawn given
        them, as in the model that `VariationalBayes` fits. False integrates out the scales of
        entries, keeps half-Cauchys as they are and draws standardised loadings, which is easier to
        sample from.
    collapsed : bool
        Whether to integrate the latents out, which Gaussian noise allows in closed form.
    log_sizes : sequence of arrays of shape (N,), optional
        Logarithms of the size factors of each set's rows, for counts; None is zero.
    repeats : sequence of float, optional
        How many rows each row of a set stands for: N / B in a minibatch of B out of N rows.

    Returns
    -------
    Unobserved
        Loadings and latents, for use in a larger model.

    Examples
    --------
    >>> import numpy as np
    >>> import contrastive_lvm as clvm
    >>> from numpyro import handlers
    >>> prior = clvm.ARD(a0=2.0, b0=1.0)
    >>> model = clvm.contrastive_model(1, 1, shared_prior=prior, target_prior=prior)
    >>> start = {"target mean": np.zeros(3), "background mean": np.zeros(3), "log noise": 0.0}
    >>> bound = handlers.substitute(handlers.seed(clvm.density, 0), start)
    >>> bound(model, np.ones((5, 3)), np.ones((4, 3))).latents["target"]["shared"].shape
    (5, 1)
    """
    if len(rows) != len(model.sets):
        names = ", ".join(map(repr, model.sets))
        raise ValueError(f"density got the rows of {len(rows)} sets; give those of {names}.")
    if collapsed and not has_marginal(model):
        raise TypeError(f"{model.likelihood!r} does not allow collapsed=True; use Gaussian().")
    D = rows[0].shape[1]
    loadings = sample_loadings(model, D, augmented=augmented)
    learned = model.likelihood._parameters_of_sets(D, len(model.sets))
    latents = {}
    for i, (name, data) in enumerate(zip(model.sets, rows, strict=True)):
        mean = flat_site(f"{name} mean", (D,))
        active = {b.name: loadings[b.name] for b in model.blocks if name in b.sets}
        if collapsed:
            L = jnp.concatenate([jnp.zeros((D, 0)), *active.values()], axis=1)
            marginal_factor(f"{name} rows", data, mean, L, learned[i]["noise"])
            continue
        with numpyro.handlers.scale(scale=repeats[i] if repeats else 1.0):
            h = {block: _latents(block, name, len(data), L) for block, L in active.items()}
            predictor = mean + sum(h[block] @ L.T for block, L in active.items())
            if log_sizes:
                predictor = predictor + _offset(model, log_sizes[i], D)
            x = jnp.asarray(data)
            site = RowSite(f"{name} rows", predictor, x, learned[i], augmented)
            model.likelihood._observe(site)
        latents[name] = h
    return Unobserved(loadings, latents)


def has_marginal(model: Model) -> bool:
    """Tell whether the latents can be integrated out, so that rows have a normal density."""
    return model.likelihood._has_closed_form and not model.likelihood._is_scale_mixture


def sample_loadings(model: Model, n_features: int, *, augmented: bool) -> dict[str, JaxArray]:
    """Draw the loadings of all blocks, with the scales of their priors."""
    found = {}
    for block in model.blocks:
        shape, name = (n_features, block.n_components), f"{block.name} loadings"
        empty = block.n_components == 0
        found[block.name] = (
            jnp.zeros(shape) if empty else block.prior.sample(name, shape, augmented=augmented)
        )
    return found


def _latents(block: str, set_name: str, n_rows: int, L: JaxArray) -> JaxArray:
    shape = (n_rows, L.shape[1])
    if shape[1] == 0:
        return jnp.zeros(shape)
    normal = dist.Normal(0.0, 1.0).expand(shape).to_event(2)
    latents: JaxArray = numpyro.sample(f"{block} latents of {set_name}", normal)
    return latents


def _offset(model: Model, log_sizes: AnyArray | None, n_features: int) -> JaxArray | float:
    """Return what size factors add to the predictor, (N, D)."""
    if log_sizes is None:
        return 0.0
    sized = model.likelihood._sized_features(n_features)
    return jnp.where(sized, jnp.asarray(log_sizes)[:, None], 0.0)


class LatentGaussians(NamedTuple):
    """Posterior of the latents of rows, and the marginal density of the rows."""

    mean: JaxArray  # (N, K)
    root: JaxArray  # (N, K, K) Cholesky factor of the precision A
    log_density: JaxArray  # (N,)


def latent_gaussians(
    rows: JaxArray, mean: JaxArray, L: JaxArray, noise: JaxArray
) -> LatentGaussians:
    """Condition the latents of every row on its observed entries; missing ones are NaN."""
    observed = ~jnp.isnan(rows)
    seen, precision = observed.astype(L.dtype), 1.0 / jnp.broadcast_to(noise, rows.shape[1:])
    residual = jnp.where(observed, rows - mean, 0.0)
    D, K = L.shape
    pairs = (L[:, :, None] * L[:, None, :]).reshape(D, K * K)
    A = jnp.eye(K) + ((seen * precision) @ pairs).reshape(len(rows), K, K)
    root = jnp.linalg.cholesky(A)
    b = (residual * precision) @ L
    half = jax.scipy.linalg.solve_triangular(root, b[:, :, None], lower=True)
    h = jax.scipy.linalg.solve_triangular(root, half, lower=True, trans=1)[:, :, 0]
    logdet = 2.0 * jnp.log(jnp.diagonal(root, axis1=1, axis2=2)).sum(axis=1)
    constant = seen @ (jnp.log(2.0 * jnp.pi) - jnp.log(precision))
    square = (residual**2) @ precision - (half**2).sum(axis=(1, 2))
    return LatentGaussians(h, root, -0.5 * (constant + logdet + square))


def complete_rows(rows: Array) -> CompleteRows:
    """Summarise rows without missing entries."""
    mean = rows.mean(axis=0)
    return CompleteRows(float(len(rows)), mean, (rows - mean).T @ (rows - mean))


def _joint_log_density(
    moments: CompleteRows, mean: JaxArray, L: JaxArray, noise: JaxArray
) -> JaxArray:
    """Return the log density of all rows together."""
    n, centre, scatter = moments
    precision, residual = 1.0 / jnp.broadcast_to(noise, mean.shape), centre - mean
    weighted = precision[:, None] * L
    root = jnp.linalg.cholesky(jnp.eye(L.shape[1]) + L.T @ weighted)
    half = jax.scipy.linalg.solve_triangular(root, weighted.T, lower=True)
    logdet = 2.0 * jnp.log(jnp.diagonal(root)).sum() - jnp.log(precision).sum()
    square = (jnp.diagonal(scatter) + n * residual**2) @ precision
    square -= ((half @ scatter) * half).sum() + n * ((half @ residual) ** 2).sum()
    return jnp.asarray(-0.5 * (n * (len(mean) * jnp.log(2.0 * jnp.pi) + logdet) + square))


def marginal_factor(
    name: str,
    rows: AnyArray | CompleteRows,
    mean: JaxArray,
    L: JaxArray,
    noise: JaxArray,
) -> None:
    """Add rows, or their summary, to a NumPyro model with their latents integrated out."""
    if isinstance(rows, CompleteRows):
        numpyro.factor(name, _joint_log_density(rows, mean, L, noise))
    else:
        each = latent_gaussians(jnp.asarray(rows), mean, L, noise).log_density
        numpyro.factor(name, each.sum())
