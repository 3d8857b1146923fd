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

Products are in single precision until G could be their rounding. A new basis then begins with the
loadings, whose products are in double precision, and further directions only correct them: their
own products may stay in single precision, since rounding errors of a correction are as much
smaller as it is (iterative refinement). Single precision and a copy of sparse rows by columns save
a third of the time, and do not change where a fit ends.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import reduce
from typing import NamedTuple

import numpy as np

from contrastive_lvm.arrays import Array, Floats, Precision
from contrastive_lvm.rows.scatter import DenseScatter, OperatorScatter

FIRST_COLUMNS = 10  # of the first directions, beyond the model's columns, as in Halko et al.
LEAST_GAIN = 1e-3  # of a direction, relative to the one with the largest
ROUNDING = 10.0  # errors of G in units of the precision; fits were seen to stand still at twice
FAR_FROM_ONE = 1e20  # a variance whose products over many rows leave the range of single precision
Blocks = tuple[Floats, ...]  # columns of a (D, r) matrix, some at a time


class Step(NamedTuple):
    """The part of an EM step outside a subspace."""

    directions: Floats  # (D, n), those with most of the gain
    gain: float  # of the bound
    rounding: float  # gain that may be errors of rounding


class Sketch(NamedTuple):
    """Row sets in a subspace of their features, and the way back."""

    sources: Sequence[OperatorScatter]
    dtype: Precision  # of new products
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
        return _times(self.basis, L[:-1]).astype(np.float64)

    def extended(self, directions: Floats) -> "Sketch":
        """Return the subspace with more directions outside it, (D, n): a pass over the rows."""
        Q: Floats = np.linalg.qr(_outside(self.basis, directions))[0]
        new: Floats = Q.astype(self.dtype, copy=False)
        products, matrices = [], []
        for rows, old, matrix in zip(self.sources, self.products, self.matrices, strict=True):
            product = rows.product(new)
            mixed, own = _inner(old, new), new.T @ product
            matrices.append(np.block([[matrix, mixed], [mixed.T, (own + own.T) / 2.0]]))
            products.append((*old, product))
        basis = (*self.basis, new)
        return self._replace(basis=basis, products=tuple(products), matrices=tuple(matrices))

    def renewed(self, L: Array) -> "Sketch":
        """Return the subspace of loadings (D, K) alone, in double precision: a pass."""
        return _empty(self.sources, np.float64).extended(L)._replace(dtype=self.dtype)

    def turned(self, U: Array) -> "Sketch":
        """Return the subspace of some orthonormal directions in this one, (r, n)."""
        return self._replace(
            basis=(_times(self.basis, U).astype(self.dtype),),
            products=tuple((_times(T, U).astype(self.dtype),) for T in self.products),
            matrices=tuple(U.T @ matrix @ U for matrix in self.matrices),
        )

    def coordinates(self, L: Array) -> Array:
        """Return loadings in the subspace, (D, K), by its directions, (r, K)."""
        return _inner(self.basis, L)

    def step(self, slopes: Sequence[Array], moment: Array, psi: float) -> Step:
        """Return what the EM step adds outside, from `(psi_1 / psi_s) B_s` of all sets, (r, K)."""
        whiten = np.linalg.inv(np.linalg.cholesky(moment)).T
        terms = [list(_terms(T, B @ whiten)) for T, B in zip(self.products, slopes, strict=True)]
        errors = sum(_rounding(term) for image in terms for term in image)
        G = _outside(self.basis, _total(map(_total, terms)))
        gains, V = np.linalg.eigh((G.T @ G).astype(np.float64))
        directions = G @ V[:, gains > LEAST_GAIN * gains[-1]].astype(G.dtype)
        return Step(directions, float(gains.sum()) / (2.0 * psi), errors / (2.0 * psi))


def first_sketch(
    sources: Sequence[OperatorScatter], n_columns: int, n_steps: int, dtype: Precision
) -> Sketch:
    """Find directions along which rows vary: steps of block Krylov iteration, a pass each.

    All sets weigh the same, so that those of few rows are not lost beside others.
    """
    if dtype == np.float32:
        sources = [rows.with_columns() for rows in sources]
    shares = [float(1.0 / rows.n_rows) for rows in sources]
    D, n = len(sources[0].mean), n_columns + FIRST_COLUMNS
    rng = np.random.default_rng(0)
    first = np.zeros((D, n))
    for rows in sources:
        first += rows.random_combinations(n, rng) / np.sqrt(rows.n_rows)
    sketch = _empty(sources, dtype).extended(first)
    for _ in range(n_steps):
        pairs = zip(shares, sketch.products, strict=True)
        image = np.asarray(sum(share * product[-1] for share, product in pairs))
        sketch = sketch.extended(_outside(sketch.basis, image))
    return sketch


def first_precision(sources: Sequence[OperatorScatter]) -> Precision:
    """Return single precision, except for rows whose variances leave its range."""
    variances = [float(rows.square.sum()) / rows.n_rows for rows in sources]
    far = max(variances) > FAR_FROM_ONE or min(variances) < 1.0 / FAR_FROM_ONE
    return np.float64 if far else np.float32


def _empty(sources: Sequence[OperatorScatter], dtype: Precision) -> Sketch:
    n = len(sources)
    return Sketch(sources, dtype, (), ((),) * n, (np.empty((0, 0)),) * n)


def _with_rest(rows: OperatorScatter, matrix: Array) -> DenseScatter:
    r = len(matrix)
    rest = max(float(rows.square.sum()) - float(np.trace(matrix)), 0.0)
    found = DenseScatter(
        rows.n_rows, np.zeros(r + 1), np.pad(matrix, (0, 1)), len(rows.mean) - r - 1
    )
    found.square = np.append(np.diagonal(matrix), rest)
    return found


def _rounding(image: Floats) -> float:
    """Return the square of the errors that rounding may have made in a product with the rows."""
    return (ROUNDING * float(np.finfo(image.dtype).eps)) ** 2 * float(np.vdot(image, image))


def _terms(blocks: Blocks, A: Array) -> Iterator[Floats]:
    """Yield the products of blocks with their rows of A, each in the precision of its block."""
    ends = np.cumsum([block.shape[1] for block in blocks])[:-1]
    for block, part in zip(blocks, np.split(A, ends), strict=True):
        yield block @ part.astype(block.dtype, copy=False)


def _total(terms: Iterable[Floats]) -> Floats:
    """Add up arrays in the place of the first, whose precision is the highest."""
    return reduce(lambda total, term: np.add(total, term, out=total), terms)


def _times(blocks: Blocks, A: Array) -> Floats:
    """Return the product of a matrix with A."""
    return _total(_terms(blocks, A))


def _inner(blocks: Blocks, M: Floats) -> Array:
    return np.vstack([np.empty((0, M.shape[1])), *(block.T @ M for block in blocks)])


def _outside(blocks: Blocks, M: Floats) -> Floats:
    """Return what is left of the columns of M outside the subspace."""
    return M - _times(blocks, _inner(blocks, M)) if blocks else M
