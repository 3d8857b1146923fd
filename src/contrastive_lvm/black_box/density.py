"""One NumPyro density for every model, composed from its priors and its likelihood."""

from typing import Any, NamedTuple

from contrastive_lvm._jax import flat_site, load
from contrastive_lvm.black_box.marginal import marginal_factor
from contrastive_lvm.likelihoods.gaussian import Gaussian
from contrastive_lvm.model import Model


class Hidden(NamedTuple):
    """What a density draws, as JAX arrays; latents are None when they are integrated out."""

    shared_loadings: Any  # (D, n_shared) S
    target_loadings: Any  # (D, n_target) W
    target_latents: Any  # (n, n_target) t
    target_shared_latents: Any  # (n, n_shared) z of the target's rows
    background_shared_latents: Any  # (m, n_shared) z of the background's rows


def density(
    model: Model,
    target: Any,
    background: Any = None,
    *,
    augmented: bool = True,
    collapsed: bool = False,
    log_sizes: tuple[Any, Any] = (None, None),
    repeats: tuple[Any, Any] = (1.0, 1.0),
) -> Hidden:
    """The sites of a model and its data, to be called inside a NumPyro model.

    Sites are `S` and `W` with the scales of their priors (`"S variance"` and so on), the latents
    `"t"`, `"z target"` and `"z background"`, the means `"target mean"` and `"background mean"`,
    what the likelihood learns (`"log noise"`, `"log df"`, `"log dispersion"`), and the rows
    themselves. Means, log noise and log df have density 1.

    Parameters
    ----------
    model : Model
    target, background : array
        Rows of numbers, NaN where missing.
    augmented : bool
        Scales of priors and entries as sites of their own, loadings drawn given them: the model
        that `VariationalBayes` fits. False integrates the scales of entries out, takes half-Cauchys
        as they are and draws standardised loadings, which is easier to sample from.
    collapsed : bool
        Integrate the latents out, which a Gaussian likelihood allows in closed form.
    log_sizes : two arrays, (n,) and (m,)
        Logarithms of the size factors of each set's rows, for counts; None is zero.
    repeats : two numbers
        What each set's rows count for: the rows of a minibatch stand for N / B rows each.

    Returns
    -------
    Hidden
        Loadings and latents, for use in a larger model.

    Examples
    --------
    >>> import numpy as np
    >>> import contrastive_lvm as clvm
    >>> from numpyro import handlers
    >>> prior = clvm.ARD(a0=2.0, b0=1.0)
    >>> model = clvm.Model(1, 1, shared_prior=prior, target_prior=prior)
    >>> start = {"target mean": np.zeros(3), "background mean": np.zeros(3), "log noise": 0.0}
    >>> bound = handlers.substitute(handlers.seed(clvm.density, 0), start)
    >>> bound(model, np.ones((5, 3)), np.ones((4, 3))).target_latents.shape
    (5, 1)
    """
    numpyro, _, jnp = load()
    if collapsed and not isinstance(model.likelihood, Gaussian):
        raise TypeError(f"{model.likelihood!r} does not allow collapsed=True; use Gaussian().")
    D = target.shape[1]
    widths = (model.n_shared, model.n_target)
    S, W = (
        _loadings(name, prior, (D, width), augmented=augmented)
        for name, prior, width in zip(("S", "W"), model.priors, widths, strict=True)
    )
    learned = model.likelihood.parameters(D)
    sized = model.likelihood.sized_columns(D)
    found = []
    sets: list[tuple[str, Any, tuple[tuple[str, Any], ...]]] = [
        ("target", target, (("z target", S), ("t", W)))
    ]
    if background is not None:
        sets.append(("background", background, (("z background", S),)))
    for (name, data, blocks), sizes, repeat in zip(sets, log_sizes, repeats, strict=False):
        mean = flat_site(f"{name} mean", (D,))
        if collapsed:
            L = jnp.concatenate([block for _, block in blocks], axis=1)
            marginal_factor(f"{name} rows", data, mean, L, learned["noise"])
            found += [None] * len(blocks)
            continue
        rows = jnp.asarray(data)
        with numpyro.handlers.scale(scale=repeat):
            h = [_latents(latent, (len(rows), L.shape[1])) for latent, L in blocks]
            predictor = mean + sum(z @ L.T for z, (_, L) in zip(h, blocks, strict=True))
            if sizes is not None:
                predictor = predictor + jnp.where(sized, jnp.asarray(sizes)[:, None], 0.0)
            model.likelihood.observe(f"{name} rows", predictor, rows, learned, augmented=augmented)
        found += h
    z, t, y = (*found, None)[:3]
    return Hidden(S, W, t, z, y)


def _loadings(name: str, prior: Any, shape: tuple[int, int], *, augmented: bool) -> Any:
    if shape[1] == 0:
        return load().jnp.zeros(shape)
    if not hasattr(prior, "sample"):
        raise TypeError(
            f"{prior!r} has no NumPyro density; give it a method sample(name, shape, augmented)."
        )
    return prior.sample(name, shape, augmented=augmented)


def _latents(name: str, shape: tuple[int, int]) -> Any:
    numpyro, dist, jnp = load()
    if shape[1] == 0:
        return jnp.zeros(shape)
    return numpyro.sample(name, dist.Normal(0.0, 1.0).expand(shape).to_event(2))
