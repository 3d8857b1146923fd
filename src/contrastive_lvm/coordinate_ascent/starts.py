"""Starts: deterministic ones from spectra, random ones for restarts.

Blocks are started one after another, those that are active in most sets first. Given the part
`C = L L' + psi` of the covariance that earlier blocks explain, the loadings of the next block that
maximise the likelihood of one set are closed form: with `R = C^-1/2` and
`R cov R = V diag(lambda) V'`, they are `R^-1 V (lambda - 1)^1/2` over the leading eigenpairs
(probabilistic PCA in the whitened space). Only products of covariances with a few columns are
needed, so every kind of row set starts alike; features are measured in units of their noise
throughout. Where each set has noise variances of its own, these begin as those of its own
probabilistic PCA with as many columns.
"""

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import NamedTuple

import numpy as np

from contrastive_lvm.arrays import TINY, Array, Parameters
from contrastive_lvm.coordinate_ascent.ard_rank import supported_rank
from contrastive_lvm.coordinate_ascent.problem import Problem
from contrastive_lvm.likelihoods.base import CONSTANT
from contrastive_lvm.model import LoadingBlock, Model
from contrastive_lvm.rows.data import CovarianceOperator, Data, Product
from contrastive_lvm.rows.sketch import Sketch

DENSE_BELOW = 150  # dimensions up to which a full eigendecomposition is as cheap as iterating
POWER_STEPS = 6  # fits of 400 features take 107 sweeps; 119 after two steps, 107 after twelve
STANDS_STILL = 1e-2  # relative change of eigenvalues at which the iteration ends earlier
OVERSAMPLING = 10  # extra columns, as in Halko et al.; without them fits take as many sweeps
LEAST_NOISE = 1e-3  # share of the variance left to isotropic noise at the start
LEAST_FEATURE_NOISE = 0.05  # of each feature's variance, to its own noise
EXCESS = 0.01  # least variance of a column at the start, in units of the noise's
# Largest share of the variance that an automatic block explains, in the sets with fewest other
# blocks. In directions beyond it, which hardly vary, contrasts are unreliable: target latents
# fitted to two halves of the rows of eight real problems agreed best between 98 and 99.9 % (mean
# squared correlation .65 to .68), worse at 95 % (.62) and at 99.99 % (.48). With 99 % of the
# variance of all sets, to which the target adds structure that its own dimensions have no room for,
# they agreed less: .71 in place of .74 on 16 other problems, and .93 in place of .97 on 9.
EXPLAINED = 0.99
MOST_OF_ROWS = 20  # automatic columns if a sweep costs their square for every row


class Start(NamedTuple):
    """Loadings of each block by name, and noise variances."""

    loadings: dict[str, Array]  # (D, n)
    psi: Array  # (D,), or (S, D) of each set's own


def deterministic_starts(problem: Problem) -> list[tuple[Problem, Array]]:
    """Return problems and where they start, the most promising first.

    If columns are dropped during the fit there is one start, with no more columns in the most
    active block than the data supports. Otherwise there are two where the sets differ in their
    blocks: the most active block from the sets with fewest other blocks, or from all of them.
    """
    data, floor, found = problem.data, problem.floor, []
    starts = SpectralStarts(
        problem.model,
        data.covariances(),
        floor,
        data.n_features,
        sketched=isinstance(data.span, Sketch),
    )
    for loadings, psi in starts.deterministic():
        own = problem
        if problem.model.drops_columns:
            sizes = {name: L.shape[1] for name, L in loadings.items()}
            own = problem.with_model(problem.model.with_sizes(sizes))
        L = np.hstack([loadings[block.name] for block in own.model.blocks])
        found.append((own, point_at(own, L, psi)))
    return found


def with_supported_sizes(model: Model, data: Data) -> Model:
    """Return the model with as many columns in an automatic block as the data supports.

    That is the number at the optimum of the bound under `ARD` (`ard_rank.py`), counted in the
    covariance of all sets of the block less what the other blocks explain, but no more than it
    takes to explain 99 % of the variance of the sets that have fewest other blocks.
    """
    floor = Problem(model, data).floor
    starts = SpectralStarts(
        model, data.covariances(), floor, data.n_features, sketched=isinstance(data.span, Sketch)
    )
    return starts.sized_model(None if data.complete else MOST_OF_ROWS)


def random_start(problem: Problem, rng: np.random.Generator) -> Array:
    """Return loadings in random directions of the data, half the variance left to the noise."""
    pooled = _pooled(problem.data.covariances())
    variance = np.maximum(pooled.variance, TINY)
    L = pooled.product(rng.standard_normal((len(variance), problem.model.n_columns)))
    L /= max(float(np.abs(L).max(initial=0.0)), TINY)  # its squares may overflow
    L *= np.sqrt(0.5 * variance.sum() / max(float((L**2).sum()), TINY))
    return point_at(problem, L, np.full(problem.floor.shape, 0.5 * variance.mean()))


def point_at(problem: Problem, L: Array, psi: Array) -> Array:
    """Return the point with given loadings and noise, and the means and effects of the sets."""
    means, df = tuple(s.mean for s in problem.data.sets), problem.likelihood._first_df
    effects: tuple[Array, ...] = ()
    if problem.model.n_effects:
        effects = tuple(s.effects for s in problem.data.sets if s.effects is not None)
    psi = np.clip(psi, problem.floor, problem.ceiling)
    return problem.flatten(Parameters(L, psi, means, df, effects))


class SpectralStarts:
    """The covariances of the sets by name, and blocks in the order in which they start."""

    def __init__(
        self,
        model: Model,
        covariances: Sequence[CovarianceOperator],
        floor: Array,  # least noise variances, (D,), or (S, D) of each set's own
        n_features: int,
        *,
        sketched: bool = False,
    ) -> None:
        self.model, self.n_features = model, n_features
        # Dimensions that share the noise: of a sketch, also those outside.
        self.n_noisy = n_features if sketched else floor.shape[-1]
        self.isotropic = model.likelihood._is_isotropic
        self.own_noise, self.floors = floor.ndim == 2, floor
        self.floor = floor.mean(axis=0) if self.own_noise else floor
        self.sets = dict(zip(model.sets, covariances, strict=True))
        self.blocks = sorted(model.blocks, key=lambda block: -len(block.sets))

    def deterministic(self) -> list[Start]:
        """Return the starts that `deterministic_starts` describes."""
        first, *others = self.blocks
        exclusive = self.least_shared_sets(first, others)
        every = _pooled([self.sets[name] for name in first.sets])
        if exclusive is None or first.n_components == 0:
            return [self.from_source(every)]
        if self.model.drops_columns:
            # A first block started from pooled sets, with columns to spare, would take the
            # directions of the other blocks, and coordinate ascent is slow to return them.
            return [self.from_source(self.without_others(first, others, exclusive))]
        fewest = _pooled([self.sets[name] for name in exclusive])
        return [self.from_source(fewest), self.from_source(every)]

    def sized_model(self, most: int | None = None) -> Model:
        """Return the model with as many columns in its automatic block as the data supports."""
        first, *others = self.blocks
        most = first.n_components if most is None else min(first.n_components, most)
        exclusive = self.least_shared_sets(first, others)
        source = self.without_others(first, others, exclusive)
        alone = _pooled([self.sets[name] for name in exclusive or first.sets])
        return self.model.with_sizes({first.name: self.supported(source, most, alone)})

    def least_shared_sets(
        self, first: LoadingBlock, others: list[LoadingBlock]
    ) -> tuple[str, ...] | None:
        """Return the sets of a block in which fewest others are active; None if these are all."""
        used = [block for block in others if block.n_components]
        if not used:
            return None
        beside = {name: sum(name in block.sets for block in used) for name in first.sets}
        fewest = tuple(name for name in first.sets if beside[name] == min(beside.values()))
        return None if fewest == first.sets else fewest

    def from_source(self, source: CovarianceOperator) -> Start:
        """Start the first block from a covariance, then each other block from all of its sets."""
        first, *others = self.blocks
        n = first.n_components
        if (first.prior._drops_columns or first.automatic) and n > 0:
            n = self.supported(source, n)
        beside = sum(block.n_components for block in others)
        L, psi = self._first_loadings(source, n, beside, self.floor)
        loadings = {first.name: L}
        if self.own_noise:
            psi = self._noise_of_sets()
        for block in others:
            own = [name in block.sets for name in self.sets]
            noise = psi[own].mean(axis=0) if self.own_noise else psi
            loadings[block.name] = next_loadings(
                block.sets, self.blocks, loadings, noise, self.sets, block.n_components
            )
        return Start(loadings, psi)

    def _first_loadings(
        self, source: CovarianceOperator, n: int, beside: int, floor: Array
    ) -> tuple[Array, Array]:
        """Return loadings (D, n) from the leading eigenvectors, and noise variances (D,).

        The search includes as many more directions as `beside` says, which makes the leading ones
        exact. Rows that do not vary have noise at its `floor` and columns that are nearly zero.
        """
        root = np.sqrt(_first_noise(source, floor, isotropic=self.isotropic))
        values, V = leading_eigenpairs(_scaled(source, root), len(root), n + beside)
        values, V = values[:n], V[:, :n]
        total = float((source.variance / root**2).sum())
        level = max(total - float(values.sum()), LEAST_NOISE * total) / max(self.n_noisy - n, 1)
        level = max(level, float((floor / root**2).min()))
        L = root[:, None] * V * np.sqrt(np.maximum(values - level, EXCESS * level))
        if self.isotropic:
            return L, level * root**2
        rest = source.variance - (L**2).sum(axis=1)
        return L, np.maximum(rest, LEAST_FEATURE_NOISE * np.maximum(source.variance, root**2))

    def _noise_of_sets(self) -> Array:
        """Return the noise that each set has when it is fitted alone, (S, D)."""
        found = []
        for (name, source), floor in zip(self.sets.items(), self.floors, strict=True):
            n = sum(block.n_components for block in self.blocks if name in block.sets)
            n = min(n, len(floor) // 2)
            found.append(self._first_loadings(source, n, 0, floor)[1])
        return np.stack(found)

    def without_others(
        self, first: LoadingBlock, others: list[LoadingBlock], exclusive: Sequence[str] | None
    ) -> CovarianceOperator:
        """Return the covariance of a block's sets, less what the other blocks explain of them.

        The other blocks are those that follow from a first block started in its least shared sets.
        """
        if exclusive is None:
            return _pooled([self.sets[name] for name in first.sets])
        rough = self.from_source(_pooled([self.sets[name] for name in exclusive]))
        cleaned = []
        for name in first.sets:
            parts = (rough.loadings[b.name] for b in others if name in b.sets and b.n_components)
            cleaned.append(reduce(_without, parts, self.sets[name]))
        return _pooled(cleaned)

    def supported(
        self, source: CovarianceOperator, most: int, alone: CovarianceOperator | None = None
    ) -> int:
        """Return how many columns a covariance supports, at least one.

        Without the last, they explain no more than 99 % of the variance of rows `alone`.
        """
        root = np.sqrt(_first_noise(source, self.floor, isotropic=self.isotropic))
        values, V = leading_eigenpairs(_scaled(source, root), len(root), most)
        if alone is not None:
            along = (V * _scaled(alone, root)(V)).sum(axis=0)
            enough = EXPLAINED * float((alone.variance / root**2).sum())
            most = min(most, 1 + int((np.cumsum(along) < enough).sum()))
        rows = source.weight
        if rows <= self.n_features:  # directions that the means and other blocks have taken
            others = sum(block.n_components for block in self.blocks[1:])
            rows = max(rows - len(self.sets) - others, 1.0)
        total = float((source.variance / root**2).sum())
        return max(1, min(supported_rank(values, total, rows, self.n_features), most))


def next_loadings(
    sets: Sequence[str],
    blocks: Sequence[LoadingBlock],
    started: Mapping[str, Array],
    psi: Array,
    sources: Mapping[str, CovarianceOperator],
    n: int,
) -> Array:
    """Return the likeliest n columns (D, n) for some sets given the loadings of earlier blocks."""
    D, earlier = len(psi), [b for b in blocks if b.name in started]
    common = [b.name for b in earlier if set(sets) <= set(b.sets)]
    base = np.hstack([np.empty((D, 0)), *(started[name] for name in common)])
    cleaned = []
    for name in sets:
        own = [b.name for b in earlier if name in b.sets and b.name not in common]
        parts = (started[other] for other in own if started[other].size)
        cleaned.append(reduce(_without, parts, sources[name]))
    return _whitened_loadings(_pooled(cleaned), base, psi, n)


def _first_noise(source: CovarianceOperator, floor: Array, *, isotropic: bool) -> Array:
    """Return half of the variance; for features that do not vary, that of the mean variance."""
    variance = source.variance
    mean = float(variance.mean())
    own = np.full(len(variance), mean)
    if not isotropic:
        own = np.where(variance > CONSTANT * mean, variance, mean)
    return np.maximum(0.5 * own, floor)


def _whitened_loadings(source: CovarianceOperator, base: Array, psi: Array, n: int) -> Array:
    """Return the likeliest loadings (D, n) in addition to the loadings `base`."""
    root = np.sqrt(psi)
    U, s, _ = np.linalg.svd(base / root[:, None], full_matrices=False)
    shrink = 1.0 / np.sqrt(1.0 + s**2)

    def whiten(M: Array, factor: Array) -> Array:
        return M + U @ ((factor - 1.0)[:, None] * (U.T @ M))

    scaled = _scaled(source, root)
    values, V = leading_eigenpairs(
        lambda M: whiten(scaled(whiten(M, shrink)), shrink), len(root), n
    )
    W: Array = whiten(V * np.sqrt(np.maximum(values - 1.0, EXCESS)), 1.0 / shrink)
    return root[:, None] * W


def _scaled(source: CovarianceOperator, root: Array) -> Product:
    """Return products with the covariance of `x / root`."""
    return lambda M: source.product(M / root[:, None]) / root[:, None]


def _pooled(sources: Sequence[CovarianceOperator]) -> CovarianceOperator:
    """Return the covariance of the rows of several sets, each about its own mean."""
    if len(sources) == 1:
        return sources[0]
    total = sum(source.weight for source in sources)
    shares = [source.weight / total for source in sources]
    pairs = list(zip(shares, sources, strict=True))
    variance = np.asarray(sum(share * source.variance for share, source in pairs))
    matrices = [share * source.matrix for share, source in pairs if source.matrix is not None]
    if len(matrices) == len(sources):  # one product instead of one for each set
        matrix = np.asarray(sum(matrices))
        return CovarianceOperator(matrix.__matmul__, variance, total, matrix)
    return CovarianceOperator(
        lambda M: np.asarray(sum(share * source.product(M) for share, source in pairs)),
        variance,
        total,
    )


def _without(source: CovarianceOperator, W: Array) -> CovarianceOperator:
    """Return the covariance less `W W'`; variances stay positive."""
    variance = np.maximum(source.variance - (W**2).sum(axis=1), 1e-3 * source.variance)
    return CovarianceOperator(lambda M: source.product(M) - W @ (W.T @ M), variance, source.weight)


def leading_eigenpairs(product: Product, dim: int, rank: int) -> tuple[Array, Array]:
    """Return the largest eigenvalues, descending, and eigenvectors of a symmetric operator.

    Beyond the dimensions there are, both are zero. Exact up to `DENSE_BELOW` dimensions; above,
    subspace iteration (Halko et al. 2011, alg. 4.4) from a fixed random matrix, which is all that a
    start needs.
    """
    if rank == 0:
        return np.empty(0), np.empty((dim, 0))
    if dim <= DENSE_BELOW or rank + OVERSAMPLING >= dim:
        dense = product(np.eye(dim))
        values, V = np.linalg.eigh((dense + dense.T) / 2.0)
    else:
        V = np.random.default_rng(0).standard_normal((dim, rank + OVERSAMPLING))
        lengths = np.zeros(rank)
        for _ in range(POWER_STEPS):
            V, R = np.linalg.qr(product(V))
            before, lengths = lengths, np.abs(np.diagonal(R)[:rank])
            if (np.abs(lengths - before) <= STANDS_STILL * lengths).all():
                break
        small = V.T @ product(V)
        values, rotation = np.linalg.eigh((small + small.T) / 2.0)
        V = V @ rotation
    values, V = values[::-1][:rank], V[:, ::-1][:, :rank]
    more = rank - dim
    return (values, V) if more <= 0 else (np.pad(values, (0, more)), np.pad(V, ((0, 0), (0, more))))
