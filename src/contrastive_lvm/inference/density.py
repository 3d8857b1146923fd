"""One NumPyro density for every model, composed from its priors and its likelihood."""

from typing import Any, NamedTuple

from contrastive_lvm.core.blackbox import flat_site, load
from contrastive_lvm.likelihoods.student_t import StudentT
from contrastive_lvm.model import Model


class Hidden(NamedTuple):
    """What a density draws, as JAX arrays."""

    shared_loadings: Any  # (D, n_shared) S
    target_loadings: Any  # (D, n_target) W
    target_latents: Any  # (n, n_target) t
    target_shared_latents: Any  # (n, n_shared) z of the target's rows
    background_shared_latents: Any | None  # (m, n_shared) z of the background's rows


def density(model: Model, target: Any, background: Any = None, *, augmented: bool = True) -> Hidden:
    """The sites of a model and its data, to be called inside a NumPyro model.

    Sites are `S` and `W` with the scales of their priors (`"S variance"` and so on), the latents
    `"t"`, `"z target"` and `"z background"`, the means `"target mean"` and `"background mean"`,
    `"log noise"`, `"log df"` where it is learned, and the rows themselves. Means, log noise and
    log df have density 1.

    Parameters
    ----------
    model : Model
    target, background : array
        Rows of numbers, NaN where missing.
    augmented : bool
        Scales of priors and entries as sites of their own, loadings drawn given them: the model
        that `VariationalBayes` fits. False integrates the scales of entries out, takes half-Cauchys
        as they are and draws standardised loadings, which is easier to sample from.

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
    jnp = load().jnp
    target = jnp.asarray(target)
    D = target.shape[1]
    S, W = (
        _loadings(name, prior, (D, width), augmented=augmented)
        for name, prior, width in zip(
            ("S", "W"), model.priors, (model.n_shared, model.n_target), strict=True
        )
    )
    isotropic = model.likelihood.isotropic
    noise = jnp.exp(flat_site("log noise", () if isotropic else (D,)))
    facts = {"noise": noise, "df": _degrees_of_freedom(model), "augmented": augmented}
    z = _latents("z target", (target.shape[0], model.n_shared))
    t = _latents("t", (target.shape[0], model.n_target))
    mean = flat_site("target mean", (D,)) + z @ S.T + t @ W.T
    model.likelihood.observe("target rows", mean, rows=target, **facts)
    if background is None:
        return Hidden(S, W, t, z, None)
    background = jnp.asarray(background)
    y = _latents("z background", (background.shape[0], model.n_shared))
    mean = flat_site("background mean", (D,)) + y @ S.T
    model.likelihood.observe("background rows", mean, rows=background, **facts)
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


def _degrees_of_freedom(model: Model) -> Any:
    likelihood = model.likelihood
    if not isinstance(likelihood, StudentT):
        return None
    return load().jnp.exp(flat_site("log df", ())) if likelihood.learns_df else likelihood.start_df
