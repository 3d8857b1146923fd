"""Draws from a fitted variational family, in the form of the sampler's."""

from typing import Any

import numpy as np

from contrastive_lvm._jax import double_precision
from contrastive_lvm.arrays import Array
from contrastive_lvm.black_box.sites import learned_of
from contrastive_lvm.black_box.svi.guides import RowLaws
from contrastive_lvm.black_box.svi.svi_loop import SVIState
from contrastive_lvm.black_box.svi.svi_posterior import Fitted
from contrastive_lvm.black_box.svi.svi_step import program
from contrastive_lvm.draws import Draws
from contrastive_lvm.priors.ard import ARD
from contrastive_lvm.priors.horseshoe import Horseshoe


def variational_draws(state: SVIState, n: int, seed: int) -> Draws:
    """`n` independent draws as one chain; points are the same in each."""
    layout, turn = state.layout, state.turn
    with double_precision():
        family = program(layout).family
        D, augmented = layout.n_features, layout.augmented
        fitted = Fitted(family, layout.model, state.parameters, D, augmented, state.units)
        drawn = fitted.draws(n, seed)
    L, k = drawn["L"] @ turn, int(np.abs(turn[: layout.model.n_shared]).any(axis=0).sum())
    values = {"S": L[:, :, :k], "W": L[:, :, k:]}
    rng = np.random.default_rng(seed)
    h = _row_draws(state.latents[0], n, rng) @ turn
    values |= {"z target": h[:, :, :k], "t": h[:, :, k:]}
    if len(state.latents) > 1:
        shared = turn[: layout.model.n_shared, :k]
        values["z background"] = _row_draws(state.latents[1], n, rng) @ shared
    values |= {name: drawn[name] for name in ("target mean", "background mean") if name in drawn}
    values |= _learned(fitted, drawn, n) | _prior_scales(fitted, drawn, turn)
    kept = {name: value[None] for name, value in values.items() if 0 not in value.shape}
    return Draws(kept, {}, {})


def _row_draws(laws: RowLaws, n: int, rng: np.random.Generator) -> Array:
    """Latents of all rows, (n, N, K)."""
    N, K = laws.loc.shape
    noise = rng.standard_normal((n, N, K))
    mixed = noise.copy()
    if laws.root is not None:
        T = np.zeros((N, K, K))
        i, j = np.tril_indices(K, -1)
        T[:, i, j] = laws.root
        mixed += np.einsum("nij,snj->sni", T, noise)
    drawn: Array = laws.loc + np.exp(laws.log_sd) * mixed
    return drawn


def _learned(fitted: Fitted, drawn: dict[str, Array], n: int) -> dict[str, Array]:
    """Noise variances, dispersions and degrees of freedom of each draw."""
    each = [
        learned_of(fitted.model, fitted.n_features, {k: v[i] for k, v in drawn.items()})
        for i in range(n)
    ]
    noise, dispersion = (np.stack([getattr(e, k) for e in each]) for k in ("noise", "dispersion"))
    values = {"noise variance": noise, "dispersion": dispersion}
    if each[0].df is not None:
        values["df"] = np.array([e.df for e in each])
    return {name: value for name, value in values.items() if value.any()}


def _prior_scales(fitted: Fitted, drawn: dict[str, Array], turn: Array) -> dict[str, Any]:
    """Variances of columns in their canonical order; squared scales of horseshoes."""
    found = {}
    for name, prior, columns in zip(
        ("S", "W"), fitted.model.priors, fitted.model.blocks, strict=True
    ):
        own = turn[columns][:, np.abs(turn[columns]).any(axis=0)]
        if isinstance(prior, ARD) and own.size:
            found[f"{name} variance"] = drawn[f"{name} variance"][:, np.abs(own).argmax(axis=0)]
        if isinstance(prior, Horseshoe) and own.size:
            for scale in ("rho", "tau"):
                square = drawn.get(f"{name} {scale}2")
                found[f"{name} {scale}2"] = (
                    drawn[f"{name} {scale}"] ** 2 if square is None else square
                )
    return found
