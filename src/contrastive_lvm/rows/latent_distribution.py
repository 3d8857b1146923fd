"""The row step for latents that are not standard normal: a correction of the usual one.

The row step assumes `h ~ N(0, I)` and finds N(m, V). If some columns b of `h` follow a mixture
instead, their posterior is that of `linalg.normal_mixture`, and the others follow them as before:
`E[h | h_b] = m + G (h_b - m_b)` with `G = V_.b V_bb^-1`. So

    E[h] = m + G (E[h_b] - m_b),      cov(h) = V + G (cov(h_b) - V_bb) G'.

Where a bound needs the divergence of the posterior from the prior, `ln Z` of both posteriors gives
that of the mixture: with `change = E[h_b] - m_b` it is `1/2 (K + ln|V| - tr E[h h'])`, as if the
posterior were normal with covariance V, plus

    ln ratio + 1/2 tr( V_bb^-1 [ cov(h_b) - V_bb + change change' ] ).
"""

from functools import partial, reduce
from operator import add
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from contrastive_lvm.arrays import Array, Statistics
from contrastive_lvm.linalg import packed
from contrastive_lvm.linalg.loadings import Loadings
from contrastive_lvm.linalg.matrices import is_sparse, row_slices, widen
from contrastive_lvm.linalg.normal_mixture import (
    MixturePosterior,
    NormalMixture,
    condition,
    condition_equally,
)
from contrastive_lvm.rows.reader import Chunk, RowReader

if TYPE_CHECKING:
    from contrastive_lvm.rows.scatter import Scatter


class LatentDistribution(NamedTuple):
    """The distribution of some of a set's latents; the others are standard normal."""

    columns: npt.NDArray[np.intp]  # among the active ones
    mixture: NormalMixture

    @property
    def sums_shape(self) -> tuple[int, int]:
        """Return the shape of the sums over rows that the components' update needs."""
        C, T = self.mixture.means.shape
        return C, 1 + T + T * T


class CorrectedRows(NamedTuple):
    """Posterior of the latents of a block of rows."""

    mean: Array  # (K, B)
    cov: Array  # (Q, B)
    log_ratio: Array  # (B,) change of the log-likelihood
    kl_change: Array  # (B,) by which -KL(q || p) exceeds that of N(mean, V) about N(0, I)
    posterior: MixturePosterior


def correct(
    distribution: LatentDistribution, mean: Array, cov: Array, pattern: npt.NDArray[np.intp]
) -> CorrectedRows:
    """Correct the outcome of the row step: means (K, B) and packed covariances (Q, P)."""
    V, b = packed.unpack(cov), distribution.columns
    own = V[:, b[:, None], b]  # (P, T, T)
    found = condition(distribution.mixture, np.ascontiguousarray(mean[b].T), own, pattern)
    G = np.swapaxes(np.linalg.solve(own, V[:, b]), 1, 2)  # (P, K, T)
    change = found.mean() - mean[b].T  # (B, T)
    spread = found.second_moment(pattern)
    spread -= found.mean()[:, :, None] * found.mean()[:, None, :]
    spread -= own[pattern]
    inverse = np.linalg.inv(own)[pattern]
    gain = np.einsum("bij,bij->b", inverse, spread + change[:, :, None] * change[:, None, :])
    wide = G[pattern] @ spread @ np.swapaxes(G, 1, 2)[pattern]  # (B, K, K)
    i, j = packed.pair_indices(len(mean))
    moved = np.einsum("bkt,bt->kb", G[pattern], change)
    ratio = found.log_ratio
    corrected = cov[:, pattern] + wide[:, i, j].T
    return CorrectedRows(mean + moved, corrected, ratio, ratio + 0.5 * gain, found)


class CompleteSums(NamedTuple):
    """Sums that a mixture adds to the statistics of complete rows; `change` is `E[h_b] - m_b`."""

    crossed: Array  # (D, T) sum_i x_i change_i'
    change: Array  # (T,) sum_i change_i
    squared: Array  # (T, T) sum_i change_i change_i'
    spread: Array  # (T, T) sum_i cov(h_b)
    known: Array  # (C, T) sum_i c_i change_i' of centred covariates c
    components: Array  # (C, 1 + T + T^2)
    log_ratio: float

    def plus(self, other: "CompleteSums") -> "CompleteSums":
        """Return the sums of the rows of both."""
        return CompleteSums(*map(add, self, other))


def complete_statistics(
    rows: "Scatter",
    reader: RowReader,
    weights: Array | None,
    known: Array | None,
    given: tuple[Loadings, Array, Array, Array | None],
    distribution: LatentDistribution,
) -> Statistics:
    """Return the statistics of complete rows: those of their scatter, and one pass for the rest.

    With `B = psi^-1 L V` the row step finds `m = B' r`, of which only the columns b are needed
    from each row. The mean stays where it is: at the optimum it is the mean of the rows. `given`
    holds loadings, noise variances, mean and effects of the covariates `known`, which are centred.
    """
    loadings, psi, mean, effects = given
    plain = rows.statistics(*given)
    L, b = loadings.mean, distribution.columns
    scaled = L / psi[:, None]
    precision = np.eye(L.shape[1]) + L.T @ scaled
    if loadings.cov is not None:
        precision += loadings.cov.weighted_sum(1.0 / psi)
    V = np.asarray(np.linalg.inv(precision), dtype=float)
    B, own = scaled @ V, V[np.ix_(b, b)]
    offset = None if effects is None else effects.T @ B[:, b]  # (C, T)
    function = partial(_complete_sums, distribution.mixture, B[:, b], mean @ B[:, b], offset, own)
    sums = reader.reduce(function, CompleteSums.plus, weights=weights, covariates=known)
    G = np.linalg.solve(own, V[b]).T  # (K, T)
    crossed = sums.crossed - np.outer(mean, sums.change)
    crossed = (crossed if effects is None else crossed - effects @ sums.known) @ G.T  # (D, K)
    mixed, K = B.T @ crossed, L.shape[1]
    spread = sums.spread - rows.n_rows * own + sums.squared
    size = plain.cross.shape[1]
    extra = np.zeros((size, size))
    extra[:K, :K] = mixed + mixed.T + G @ spread @ G.T
    extra[K:, :K] = sums.known @ G.T
    cross = plain.cross.copy()
    cross[:, :K] += crossed
    return plain._replace(
        moment=plain.moment + packed.pack(extra),
        cross=cross,
        latent=plain.latent + packed.pack(extra[:K, :K])[:, 0],
        components=sums.components,
        bound=plain.bound + sums.log_ratio,
    )


def _complete_sums(
    mixture: NormalMixture,
    B: Array,
    centre: Array,
    offset: Array | None,
    own: Array,
    chunk: Chunk,
) -> CompleteSums:
    """Sum over a chunk of rows whose means under the standard model are `B' x` less a centre."""

    def posterior_means(at: slice) -> Array:
        rows = chunk.rows[at]
        found = np.asarray((rows if is_sparse(rows) else widen(rows)) @ B) - centre
        known = None if chunk.covariates is None else chunk.covariates[at]
        return found if offset is None or known is None else found - known @ offset

    parts = [
        _slice_sums(mixture, own, posterior_means(at), at, chunk)
        for at in row_slices(*chunk.rows.shape)
    ]
    return reduce(CompleteSums.plus, parts)


def _slice_sums(
    mixture: NormalMixture, own: Array, m: Array, at: slice, chunk: Chunk
) -> CompleteSums:
    weights, T, m = None if chunk.weights is None else chunk.weights[at], len(own), m.T
    found = condition_equally(mixture, np.ascontiguousarray(m), own)
    expected, components = found.mean(), found.sums(weights)
    change = expected - m  # (T, B)
    weighted, given = (
        (change, expected) if weights is None else (weights * change, weights * expected)
    )
    second = components[:, 1 + T :].sum(axis=0).reshape(T, T)
    known = np.zeros((0, T)) if chunk.covariates is None else chunk.covariates[at].T @ weighted.T
    rows = chunk.rows[at]
    return CompleteSums(
        np.asarray((rows if is_sparse(rows) else widen(rows)).T @ weighted.T),
        weighted.sum(axis=1),
        weighted @ change.T,
        second - given @ expected.T,
        known,
        components,
        float(found.log_ratio.sum() if weights is None else weights @ found.log_ratio),
    )
