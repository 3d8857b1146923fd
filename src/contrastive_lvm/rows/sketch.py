"""Many features: work in a subspace that holds the leading directions of all sets.

With an orthonormal basis `Q` (D, r), loadings `L = Q A` have the likelihood of r features whose
scatters are `Q' T_s Q`, and of another that has no loadings, stands for all directions outside and
varies by `tr T_s - tr Q' T_s Q`. Nothing is approximated under isotropic noise, but that loadings
are sought in the subspace alone. How far that is from the optimum is known without another pass
over the rows, from the products `T_s Q`: with `B_s = A (I + A' A / psi_s)^-1 / psi_s` over the
columns that a set uses, the EM step adds `G M^-1` to the loadings, where

    G = (I - Q Q') sum_s (psi_1 / psi_s) T_s Q B_s,   M = sum_s (psi_1 / psi_s) sum_i E[h_i h_i'],

and its part outside the subspace raises the bound by `tr(G M^-1 G') / (2 psi_1)`. A basis with
these K directions costs one pass, and the optimum in it is at least that much better. This is a
block Krylov method (one set without other blocks: Halko et al. 2011; Musco & Musco 2015), which
needs a tenth of the passes of accelerated sweeps over all features.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from contrastive_lvm.arrays import Array
from contrastive_lvm.rows.scatter import DenseScatter, OperatorScatter

FIRST_COLUMNS = 10  # of the first directions, beyond the model's columns, as in Halko et al.
LEAST_GAIN = 1e-3  # of a direction, relative to the one with the largest
Blocks = tuple[Array, ...]  # columns of a (D, r) matrix, some at a time


class Step(NamedTuple):
    """The part of an EM step outside a subspace."""

    directions: Array  # (D, n), those with most of the gain
    gain: float  # of the bound


class Sketch(NamedTuple):
    """Row sets in a subspace of their features, and the way back."""

    sources: Sequence[OperatorScatter]
    basis: Blocks  # orthonormal
    products: tuple[Blocks, ...]  # T_s Q of each set
    matrices: tuple[Array, ...]  # Q' T_s Q, (r, r)

    @property
    def means(self) -> list[Array]:
        """Return the mean of each set, (D,)."""
        return [rows.mean for rows in self.sources]

    @property
    def size(self) -> int:
        """Return the dimension of the subspace."""
        return sum(block.shape[1] for block in self.basis)

    def scatters(self) -> list[DenseScatter]:
        """Return the scatters of the subspace, with a last feature for all directions outside."""
        return [
            _with_rest(rows, matrix)
            for rows, matrix in zip(self.sources, self.matrices, strict=True)
        ]

    def lift(self, L: Array) -> Array:
        """Lift loadings over the subspace, (r + 1, K), to loadings over the features, (D, K)."""
        return _times(self.basis, L[:-1])

    def extended(self, directions: Array) -> "Sketch":
        """Return the subspace with more directions outside it, (D, n): a pass over the rows."""
        new = np.linalg.qr(directions)[0]
        if self.basis:
            new = np.linalg.qr(_outside(self.basis, new))[0]
        products, matrices = [], []
        for rows, old, matrix in zip(self.sources, self.products, self.matrices, strict=True):
            product = rows.product(new)
            mixed, own = _inner(self.basis, product), new.T @ product
            matrices.append(np.block([[matrix, mixed], [mixed.T, (own + own.T) / 2.0]]))
            products.append((*old, product))
        return Sketch(self.sources, (*self.basis, new), tuple(products), tuple(matrices))

    def turned(self, U: Array) -> "Sketch":
        """Return the subspace of some orthonormal directions in this one, (r, n)."""
        return Sketch(
            self.sources,
            (_times(self.basis, U),),
            tuple((_times(product, U),) for product in self.products),
            tuple(U.T @ matrix @ U for matrix in self.matrices),
        )

    def step(self, slopes: Sequence[Array], moment: Array, psi: float) -> Step:
        """Return what the EM step adds outside, from `(psi_1 / psi_s) B_s` of all sets, (r, K)."""
        images = [_times(T, B) for T, B in zip(self.products, slopes, strict=True)]
        G = _outside(self.basis, np.asarray(sum(images)))
        G = np.linalg.solve(np.linalg.cholesky(moment), G.T).T
        gains, V = np.linalg.eigh(G.T @ G)
        return Step(G @ V[:, gains > LEAST_GAIN * gains[-1]], float(gains.sum()) / (2.0 * psi))


def first_sketch(sources: Sequence[OperatorScatter], n_columns: int, n_steps: int) -> Sketch:
    """Find directions along which rows vary: steps of block Krylov iteration, a pass each.

    All sets weigh the same, so that those of few rows are not lost beside others.
    """
    shares = [1.0 / rows.n_rows for rows in sources]
    D, n = len(sources[0].mean), n_columns + FIRST_COLUMNS
    rng = np.random.default_rng(0)
    first = np.zeros((D, n))
    for rows in sources:
        first += rows.random_combinations(n, rng) / np.sqrt(rows.n_rows)
    nothing = Sketch(sources, (), ((),) * len(sources), (np.empty((0, 0)),) * len(sources))
    sketch = nothing.extended(first)
    for _ in range(n_steps):
        pairs = zip(shares, sketch.products, strict=True)
        image = np.asarray(sum(share * product[-1] for share, product in pairs))
        sketch = sketch.extended(_outside(sketch.basis, image))
    return sketch


def _with_rest(rows: OperatorScatter, matrix: Array) -> DenseScatter:
    r = len(matrix)
    rest = max(float(rows.square.sum()) - float(np.trace(matrix)), 0.0)
    found = DenseScatter(
        rows.n_rows, np.zeros(r + 1), np.pad(matrix, (0, 1)), len(rows.mean) - r - 1
    )
    found.square = np.append(np.diagonal(matrix), rest)
    return found


def _times(blocks: Blocks, A: Array) -> Array:
    """Return the product of a matrix with A."""
    ends = np.cumsum([block.shape[1] for block in blocks])[:-1]
    pairs = zip(blocks, np.split(A, ends), strict=True)
    return np.asarray(sum(block @ part for block, part in pairs))


def _inner(blocks: Blocks, M: Array) -> Array:
    return np.vstack([np.empty((0, M.shape[1])), *(block.T @ M for block in blocks)])


def _outside(blocks: Blocks, M: Array) -> Array:
    """Return what is left of the columns of M outside the subspace."""
    return M - _times(blocks, _inner(blocks, M)) if blocks else M
