"""A change of latent coordinates between blocks, for predictors without a closed form.

A row with latents u of a block, and latents h of other blocks that all sets of it have too (as
target rows have shared latents), has the same predictor with `h - A u` and `L_u + L_h A` in place
of h and L_u, and rows without u do not change. So A is free to raise what is left of the bound,

    - 1/2 sum_i E |h_i - A u_i|^2  - 1/2 sum_dk lambda_dk E (L_u + L_h A)_dk^2
    - 1/2 sum_sd q_d E (r_sd - l_hd' A p_s)^2,

where lambda are the precisions of the loadings L_u and the last line is the prior of the sets'
means: r_s is how far a mean is from where it is expected if the latents u are at p_s. That is
quadratic in A. Coordinate ascent alone walks along this valley in many small steps.
"""

from collections.abc import Sequence

import numpy as np

from contrastive_lvm.arrays import Array
from contrastive_lvm.coordinate_ascent.tied_means import TiedMeans
from contrastive_lvm.linalg.loadings import Columns, Loadings
from contrastive_lvm.model import Model


def blocks_within(model: Model, uncertain: Columns) -> list[tuple[Columns, Columns]]:
    """Return the columns of u and of h, for each block that some h may take up a part of.

    Penalties that make loadings exactly zero would no longer do so, and columns with and without a
    posterior are not mixed.
    """
    found = []
    number = np.arange(model.n_columns)
    for block, columns in zip(model.blocks, model.columns, strict=True):
        u = number[columns]
        outer = [
            number[other_columns]
            for other, other_columns in zip(model.blocks, model.columns, strict=True)
            if set(block.sets) < set(other.sets)
        ]
        h = np.concatenate([np.empty(0, dtype=np.intp), *outer])
        alike = len(set(np.isin(np.concatenate([u, h]), uncertain).tolist())) == 1
        if len(u) and len(h) and alike and not block.prior._has_proximal_step:
            found.append((u, h))
    return found


def best_mixing(
    u: Columns,
    h: Columns,
    loadings: Loadings,
    latents: Array,
    precision: Array,
    means: Sequence[Array],
    tied: TiedMeans,
) -> Array:
    """Return the change of all latents, (K, K): loadings become `L R`, latents `R^-1 (u, h)`.

    `latents` are the sums of their products over the rows of the sets that have u, about their
    places, and `means` are those of these sets, as are those in `tied`. Precisions are (D, K) or
    (1, K).
    """
    L, K, n = loadings.mean, loadings.mean.shape[1], len(u)
    matrix = np.kron(np.eye(len(h)), latents[np.ix_(u, u)]).reshape(len(h), n, len(h), n)
    side = latents[np.ix_(h, u)].copy()
    for k, column in enumerate(u):
        second = _second_moment(loadings, np.broadcast_to(precision[:, column], len(L)))
        matrix[:, k, :, k] += second[np.ix_(h, h)]
        side[:, k] -= second[h, column]
    spread = _second_moment(loadings, tied.precision)
    given = spread - (L.T * tied.precision) @ L  # of covariances alone
    for mean, center, place in zip(means, tied.centers, tied.places, strict=True):
        apart = tied.precision * (mean - center - L @ place)
        pull = L[:, h].T @ apart - given[h] @ place
        side += np.outer(pull, place[u])
        matrix += np.einsum("ij,k,l->ikjl", spread[np.ix_(h, h)], place[u], place[u])
    R = np.eye(K)
    if np.isfinite(matrix).all() and np.isfinite(side).all():  # else the bound is not finite
        system = matrix.reshape(side.size, side.size)
        R[np.ix_(h, u)] = np.linalg.solve(system, side.ravel()).reshape(side.shape)
    return R


def _second_moment(loadings: Loadings, weights: Array) -> Array:
    """Return `sum_d weights_d E[l_d l_d']`, (K, K)."""
    second: Array = (loadings.mean.T * weights) @ loadings.mean
    return second if loadings.cov is None else second + loadings.cov.weighted_sum(weights)
