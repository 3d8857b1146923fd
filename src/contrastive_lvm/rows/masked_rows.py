"""The row step: what one row says about its latents, missing entries marginalised exactly.

For a row with observed features O, `h ~ N(0, I)` and `x_O = L_O h + mean_O + noise`,

    A = I + sum_{d in O} l_d l_d' / psi_d          cov(h | x_O) = A^-1
    b = sum_{d in O} l_d (x_d - mean_d) / psi_d    E[h | x_O]   = A^-1 b
    ln p(x_O) = -1/2 ( |O| ln 2 pi + sum_O ln psi_d + ln|A| + sum_O r_d^2 / psi_d - b' A^-1 b )

(matrix inversion and determinant lemmas; the paper's supplement, "Expectation-maximization",
without its orthogonality shortcut). `A` depends on the row only through its pattern of missing
entries, so it is factorised once a pattern; all `A` of a block are one product
`(P, D) . (D, K(K+1)/2)`.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from contrastive_lvm.arrays import Array, Matrix, Statistics
from contrastive_lvm.linalg import packed
from contrastive_lvm.linalg.loadings import Loadings
from contrastive_lvm.linalg.matrices import (
    Block,
    is_sparse,
    make_block,
    missing_mask,
    patterns_of,
    row_slices,
    widen,
)
from contrastive_lvm.linalg.scratch import gathered, room

LOG_2PI = float(np.log(2.0 * np.pi))


class Coefficients(NamedTuple):
    """What the row step needs of the parameters, prepared once for all blocks."""

    pairs: Array  # (Q, D) packed l_d l_d' / psi_d
    scaled: Array  # (K, D) l_d / psi_d
    precision: Array  # (D,) 1 / psi_d
    constant: Array  # (D,) ln 2 pi psi_d


class RowMoments(NamedTuple):
    """Posterior of the latents of a block of rows."""

    mean: Array  # (K, B) E[h]
    cov: Array  # (Q, P) packed, one a pattern
    log_likelihood: Array  # (B,)


def prepare(loadings: Loadings, psi: Array) -> Coefficients:
    """The row step's view of the parameters; `E[l l']` stands for `l l'` under a posterior."""
    precision = 1.0 / psi
    scaled = np.ascontiguousarray((loadings.mean * precision[:, None]).T)
    return Coefficients(loadings.pairs() * precision, scaled, precision, LOG_2PI + np.log(psi))


def row_step(model: Coefficients, residual: Array, block: Block) -> RowMoments:
    """Posterior moments and exact log-density of each row; `residual` is zero where missing."""
    K, P, B = len(model.scaled), len(block.observed), len(residual)
    precision = room("precision", (len(model.pairs), P))
    np.matmul(model.pairs, block.observed.T, out=precision)  # (Q, P)
    precision += packed.pack(np.eye(len(model.scaled)))
    cov, logdet = packed.invert(precision, out=precision)
    b = np.matmul(model.scaled, residual.T, out=room("linear", (K, B)))
    mean = packed.multiply(_per_row(cov, block), b)
    constant = block.observed @ model.constant + logdet  # (P,)
    squares = np.square(residual, out=room("squares", residual.shape))
    quadratic = squares @ model.precision - np.einsum("kb,kb->b", b, mean)
    return RowMoments(mean, cov, -0.5 * (constant[block.pattern] + quadratic))


def _per_row(of_pattern: Array, block: Block) -> Array:
    """(Q, P) to (Q, B); no copy when every row has a pattern of its own."""
    if len(block.observed) == len(block.pattern):
        return of_pattern
    per_row: Array = gathered("of rows", of_pattern, block.pattern, axis=1)
    return per_row


def residual_of(block: Block, mean: Array) -> Array:
    """`x - mean` on the observed entries, zero elsewhere."""
    residual: Array = np.subtract(block.values, mean, out=room("residual", block.values.shape))
    if len(block.observed) == len(block.pattern):  # every row has a pattern of its own
        residual *= block.observed
    elif len(block.observed) > 1 or not block.observed.all():
        residual *= gathered("observed by rows", block.observed, block.pattern)
    return residual


class MaskedRows:
    """A row set with missing entries, kept as blocks sorted by missingness pattern.

    Values are zero-filled in the input's own precision and patterns stored as booleans; a sparse
    matrix stays sparse and is widened a block at a time. Rows without any observed entry say
    nothing and are left out.
    """

    def __init__(self, X: Matrix) -> None:
        order = _pattern_order(X)
        self.n_rows, self.n_features = len(order), X.shape[1]
        blocks = row_slices(self.n_rows, self.n_features)
        self._stored = [_store(X[order[rows]]) for rows in blocks]
        counts, sums = np.zeros(self.n_features), np.zeros(self.n_features)
        for block in self.blocks():
            repeats = np.bincount(block.pattern, minlength=len(block.observed))
            counts += repeats @ block.observed
            sums += block.values.sum(axis=0)
        self.counts = counts  # (D,) observed entries of each feature
        self.mean = sums / np.maximum(counts, 1.0)
        self.square = np.zeros(self.n_features)  # (D,) squares about the observed mean
        for block in self.blocks():
            self.square += (residual_of(block, self.mean) ** 2).sum(axis=0)

    def blocks(self) -> Iterator[Block]:
        """The blocks, widened to float64 one at a time."""
        for values, observed, pattern in self._stored:
            if observed is None:
                yield make_block(values)
            else:
                yield Block(widen(values), observed.astype(np.float64), pattern)

    def covariance_product(self, M: Array) -> Array:
        """About `cov(x) @ M` from the available entries; good for a start, not for a fit.

        With a fraction `p_d` observed at random, zero-filling shrinks a covariance by `p_d p_e`
        and a variance by `p_d`; both are undone.
        """
        share = self.counts / self.n_rows
        product = np.zeros_like(M)
        for block in self.blocks():
            R = residual_of(block, self.mean) / share
            product += R.T @ (R @ M)
        product /= self.n_rows
        variance = self.square / self.counts
        return product + (variance - variance / share)[:, None] * M

    def statistics(self, loadings: Loadings, psi: Array, mean: Array) -> Statistics:
        """Expected sufficient statistics at the given parameters: one pass over the blocks."""
        found = statistics_of(self.blocks(), loadings, psi, mean)
        return found._replace(n_rows=self.n_rows)


def statistics_of(
    blocks: Iterable[Block], loadings: Loadings, psi: Array, mean: Array
) -> Statistics:
    """Expected sufficient statistics of blocks that are sorted by pattern, their sum."""
    D, K = loadings.mean.shape
    i, j = packed.pair_indices(K)
    moment, first = np.zeros((len(i), D)), np.zeros((K, D))
    cross, residual, square, n = np.zeros((D, K)), np.zeros(D), np.zeros(D), np.zeros(D)
    latent, bound, n_rows, model = np.zeros(len(i)), 0.0, 0, prepare(loadings, psi)
    for block in blocks:
        R = residual_of(block, mean)
        rows = row_step(model, R, block)
        outer = gathered("outer", rows.mean, i)  # (Q, B)
        outer *= gathered("others", rows.mean, j)
        weight = np.bincount(block.pattern, minlength=len(block.observed))
        second = np.multiply(rows.cov, weight, out=room("second", rows.cov.shape))  # (Q, P)
        second += _sum_patterns(outer, block)
        moment += second @ block.observed
        latent += second.sum(axis=1)
        first += _sum_patterns(rows.mean, block) @ block.observed
        cross += R.T @ rows.mean.T
        residual += R.sum(axis=0)
        square += np.einsum("bd,bd->d", R, R)
        n += weight @ block.observed
        n_rows += len(R)
        bound += float(rows.log_likelihood.sum())
    return Statistics(moment, first, cross, residual, square, n, n, latent, n_rows, bound)


def sorting(rows: Matrix) -> npt.NDArray[np.int32]:
    """Where a cell's rows with an observed entry are, by pattern, and those patterns, (2, B)."""
    missing = missing_mask(rows)
    seen = np.flatnonzero(~missing.all(axis=1))
    representative, pattern = patterns_of(missing[seen])
    if len(representative) == len(seen):  # every row has its own: keep the rows' order
        return np.stack([seen, np.arange(len(seen))]).astype(np.int32)
    order = np.argsort(pattern, kind="stable")
    return np.stack([seen[order], pattern[order]]).astype(np.int32)


def sorted_block(rows: Matrix, order: npt.NDArray[np.int32]) -> Block:
    """A cell's rows in the order that `sorting` found."""
    places, pattern = order
    values = widen(rows[places] if is_sparse(rows) else gathered("given", rows, places))
    missing = np.isnan(values, out=room("missing", values.shape, bool))
    np.copyto(values, 0.0, where=missing)  # a copy of the cell's rows already
    first = np.flatnonzero(np.diff(pattern, prepend=-1))
    some = gathered("missing by patterns", missing, first)
    observed = np.logical_not(some, out=room("observed", some.shape))
    return Block(values, observed, pattern)


def _sum_patterns(of_row: Array, block: Block) -> Array:
    """(., B) summed within patterns to (., P); the rows of a fitted block are sorted by pattern."""
    if len(block.observed) == len(block.pattern):
        return of_row
    starts = np.searchsorted(block.pattern, np.arange(len(block.observed)))
    out = room("summed", (len(of_row), len(starts)))
    summed: Array = np.add.reduceat(of_row, starts, axis=1, out=out)
    return summed


def _pattern_order(X: Matrix) -> np.ndarray:
    """Indices of the rows that have an observed entry, sorted by missingness pattern."""
    missing = [np.packbits(missing_mask(X[rows]), axis=1) for rows in row_slices(*X.shape)]
    bits = np.unpackbits(np.concatenate(missing), axis=1, count=X.shape[1]).astype(bool)
    _, pattern = patterns_of(bits)
    order = np.argsort(pattern, kind="stable")
    return order[~bits[order].all(axis=1)]


def _store(rows: Matrix) -> tuple[Matrix, np.ndarray | None, np.ndarray]:
    if is_sparse(rows):
        return rows, None, np.empty(0, dtype=np.intp)
    block = make_block(rows)
    return np.nan_to_num(rows, nan=0.0), block.observed.astype(bool), block.pattern
