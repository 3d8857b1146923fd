"""The bound of a contrastive autoencoder, in named parts (the paper's last equation).

Rows of the target follow `x = f_s(z) + f_t(t) + mean_x + noise`, rows of the background
`y = f_s(z) + mean_y + noise`, with standard normal latents and networks `f_s` and `f_t`. Two more
networks give Gaussian posteriors, `q(z, t | x)` and `q(z | y)`, with diagonal covariances, and

    bound = sum_i E[ln p(x_i | z, t)] - KL(q(t | x_i)) - KL(q(z | x_i))
          + sum_j E[ln p(y_j | z)] - KL(q(z | y_j)),

the divergences from N(0, I) in closed form, the expectations by one reparameterised draw. For
counts and binary data the sum of decoders is the linear predictor.
"""

from typing import Any, NamedTuple

from contrastive_lvm._jax import load, module
from contrastive_lvm.vae.design import LEAST_LOG_NOISE, Design, Parameters, Scaling
from contrastive_lvm.vae.networks import apply

LOG_SD = (-10.0, 5.0)  # of posteriors; rows far from all that was seen must not overflow
LEAST_VARIANCE = 1e-3  # of a dimension of codes
BANDWIDTHS = (0.125, 0.25, 0.5, 1.0, 2.0)  # of the kernel, times the number of dimensions


class Parts(NamedTuple):
    """Terms of the bound of a batch, each scaled to its whole set, and the leak."""

    target_reconstruction: Any
    background_reconstruction: Any
    target_kl: Any
    target_shared_kl: Any
    background_shared_kl: Any
    leak: Any  # what the shared codes give away; not a part of the bound

    def bound(self, target_weight: Any = 1.0) -> Any:
        """Reconstructions less divergences; that of the target latents may be weighed."""
        reconstruction = self.target_reconstruction + self.background_reconstruction
        shared = self.target_shared_kl + self.background_shared_kl
        return reconstruction - target_weight * self.target_kl - shared


class Code(NamedTuple):
    """A diagonal Gaussian."""

    mean: Any  # (B, K)
    log_sd: Any

    def draw(self, key: Any) -> Any:
        """A reparameterised draw."""
        noise = module("jax.random").normal(key, self.mean.shape, self.mean.dtype)
        return self.mean + load().jnp.exp(self.log_sd) * noise

    def divergence(self) -> Any:
        """From the standard normal, (B,)."""
        variance = load().jnp.exp(2.0 * self.log_sd)
        return 0.5 * (self.mean**2 + variance - 1.0 - 2.0 * self.log_sd).sum(axis=-1)

    def split(self, k: int) -> tuple["Code", "Code"]:
        """The first k dimensions, and the others."""
        mean, log_sd = self
        return Code(mean[..., :k], log_sd[..., :k]), Code(mean[..., k:], log_sd[..., k:])


def log_sizes(scaling: Scaling, rows: Any) -> Any:
    """Log of each row's total over that of an average row, observed entries only, (B, 1)."""
    jnp = load().jnp
    seen = jnp.where(jnp.isnan(rows), 0.0, scaling.profile).sum(axis=1, keepdims=True)
    total = jnp.where(scaling.profile > 0, jnp.nan_to_num(rows), 0.0).sum(axis=1, keepdims=True)
    return jnp.where(seen > 0, jnp.log(jnp.maximum(total, 0.5) / jnp.maximum(seen, 1e-30)), 0.0)


def inputs(design: Design, scaling: Scaling, rows: Any) -> Any:
    """What encoders see: standardised values (logarithms of counts), and gaps if there are any."""
    jnp = load().jnp
    missing, value = jnp.isnan(rows), rows
    if not design.likelihood.noisy_columns(design.n_features).all():
        value = jnp.log1p(rows * jnp.exp(-log_sizes(scaling, rows)))
    value = jnp.where(missing, 0.0, (value - scaling.centre) / scaling.spread)
    if not design.gaps:
        return value
    return jnp.concatenate([value, missing.astype(value.dtype)], axis=1)


def encode(design: Design, p: Parameters, scaling: Scaling, rows: Any, of: str) -> Code:
    """Posterior of the latents of rows, the target's first."""
    jnp = load().jnp
    found = apply(p[f"{of} encoder"], inputs(design, scaling, rows), design.activation)
    mean, log_sd = jnp.split(found, 2, axis=-1)
    return Code(mean, jnp.clip(log_sd, *LOG_SD))


def predictor(design: Design, p: Parameters, scaling: Scaling, t: Any, z: Any, of: str) -> Any:
    """The mean of a set plus the parts whose latents are given; None leaves a part out."""
    found = scaling.target_mean if of == "target" else scaling.background_mean
    if t is not None:
        found = found + apply(p["target decoder"], t, design.activation)
    if z is not None and design.n_shared:
        found = found + apply(p["shared decoder"], z, design.activation)
    return found


def decoded(design: Design, p: Parameters, scaling: Scaling, h: Any, of: str) -> Any:
    """The predictor at all latents of rows, the target's first."""
    k = design.n_target if of == "target" else 0
    return predictor(design, p, scaling, h[..., :k] if k else None, h[..., k:], of)


def learned(p: Parameters, log_floor: Any = LEAST_LOG_NOISE) -> dict[str, Any]:
    """What the likelihood learns, as its density expects it; noise has a floor."""
    jnp, found = load().jnp, {}
    if "log noise" in p["learned"]:
        found["noise"] = jnp.exp(jnp.maximum(p["learned"]["log noise"], log_floor))
    if "log dispersion" in p["learned"]:
        found["dispersion"] = jnp.exp(p["learned"]["log dispersion"])
    return found


def log_likelihood(
    design: Design,
    p: Parameters,
    scaling: Scaling,
    rows: Any,
    eta: Any,
    log_floor: Any = LEAST_LOG_NOISE,
) -> Any:
    """Of each row's observed entries about their predictors, (..., B).

    Where there is no noise to have a floor, one above 1 divides the log-likelihood instead, which
    is the same to what is large against the noise.
    """
    jnp, likelihood = load().jnp, design.likelihood
    sized = likelihood.sized_columns(design.n_features)
    if sized.any():
        eta = eta + jnp.where(sized, log_sizes(scaling, rows), 0.0)
    seen = ~jnp.isnan(rows)
    density = likelihood.log_density(jnp.where(seen, rows, 0.0), eta, learned(p, log_floor))
    found = jnp.where(seen, density, 0.0).sum(axis=-1)
    if "log noise" in p["learned"]:
        return found
    return found * jnp.exp(-jnp.maximum(log_floor, 0.0))


class RowParts(NamedTuple):
    """Terms of the bound of each row, (B,), and the means of its latents."""

    reconstruction: Any
    target_kl: Any
    shared_kl: Any
    target_mean: Any  # (B, n_target)
    shared_mean: Any  # (B, n_shared)


def row_parts(
    design: Design,
    p: Parameters,
    scaling: Scaling,
    rows: Any,
    key: Any,
    of: str,
    log_floor: Any = LEAST_LOG_NOISE,
) -> RowParts:
    """Of rows of a set, with one draw of their latents."""
    keys = module("jax.random").split(key)
    target = of == "target"
    t, z = encode(design, p, scaling, rows, of).split(design.n_target if target else 0)
    t_draw, z_draw = t.draw(keys[0]), z.draw(keys[1])
    eta = predictor(design, p, scaling, t_draw if target else None, z_draw, of)
    found = log_likelihood(design, p, scaling, rows, eta, log_floor)
    return RowParts(found, t.divergence(), z.divergence(), t.mean, z.mean)


def parts(
    design: Design,
    p: Parameters,
    scaling: Scaling,
    batch: tuple[Any, ...],
    repeats: tuple[Any, ...],
    key: Any,
    log_floor: Any = LEAST_LOG_NOISE,
    *,
    separated: bool = False,
) -> Parts:
    """Of a batch; each of its rows stands for `repeats` rows of its set."""
    keys = module("jax.random").split(key)
    x = row_parts(design, p, scaling, batch[0], keys[0], "target", log_floor)
    own, others, zero = repeats[0], repeats[-1], 0.0 * repeats[0]
    found = Parts(
        target_reconstruction=own * x.reconstruction.sum(),
        background_reconstruction=zero,
        target_kl=own * x.target_kl.sum(),
        target_shared_kl=own * x.shared_kl.sum(),
        background_shared_kl=zero,
        leak=zero,
    )
    if len(batch) == 1:
        return found
    y = row_parts(design, p, scaling, batch[1], keys[1], "background", log_floor)
    return found._replace(
        background_reconstruction=others * y.reconstruction.sum(),
        background_shared_kl=others * y.shared_kl.sum(),
        leak=leak(x.target_mean, x.shared_mean, y.shared_mean) if separated else zero,
    )


def leak(t: Any, z: Any, other: Any) -> Any:
    """What shared codes give away: the set a row is of, and the target codes of its row.

    The discrepancy between the shared codes of target (z) and background (other), plus the
    dependence between shared and target codes. Each dimension is first divided by its standard
    deviation: otherwise shrinking all codes would make them alike, and what small differences tell
    would stay. The target codes are not asked to change.
    """
    jax, jnp = module("jax"), load().jnp
    scale = _spread(jnp.concatenate([z, other]))
    t = jax.lax.stop_gradient(t)
    return discrepancy(z / scale, other / scale) + dependence(z / _spread(z), t / _spread(t))


def _spread(codes: Any) -> Any:
    return load().jnp.sqrt(codes.var(axis=0) + LEAST_VARIANCE)


def discrepancy(a: Any, b: Any) -> Any:
    """Squared maximum mean discrepancy of two samples (Gretton et al. 2012, eq. 3), unbiased."""
    n, m = len(a), len(b)
    within, without = _hollow(_kernel(a, a)).sum(), _hollow(_kernel(b, b)).sum()
    between = _kernel(a, b).mean()
    return within / max(1, n * (n - 1)) + without / max(1, m * (m - 1)) - 2.0 * between


def dependence(a: Any, b: Any) -> Any:
    """Hilbert-Schmidt criterion of paired samples (Song et al. 2012, eq. 4), unbiased."""
    n = len(a)
    if n < 4:  # too few for the estimate
        return 0.0 * a.sum()
    K, L = _hollow(_kernel(a, a)), _hollow(_kernel(b, b))
    joint = (K * L).sum() - 2.0 / (n - 2) * (K.sum(axis=0) @ L.sum(axis=0))
    return (joint + K.sum() * L.sum() / ((n - 1) * (n - 2))) / (n * (n - 3))


def _hollow(kernel: Any) -> Any:
    """Without its diagonal."""
    return kernel * (1.0 - load().jnp.eye(len(kernel), dtype=kernel.dtype))


def _kernel(a: Any, b: Any) -> Any:
    """A mean of Gaussian kernels, from narrow to wide."""
    jnp, k = load().jnp, a.shape[1]
    square = (a**2).sum(axis=1)[:, None] + (b**2).sum(axis=1) - 2.0 * a @ b.T
    return sum(jnp.exp(-square / (2.0 * width * k)) for width in BANDWIDTHS) / len(BANDWIDTHS)
