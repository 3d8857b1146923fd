"""A search over the sizes of automatic blocks: which sets have which dimensions.

A column of loadings costs the same number of parameters wherever it is active, so the block that a
dimension belongs to is decided by the likelihood alone; whether it exists at all is decided by a
price. That is the gain at which a column appears at the optimum of the variational bound under
`ARD` (`ard_rank.py`): for N rows of its sets and D features, a direction of the covariance in units
of the noise must reach `lambda* = (1 + tau)(1 + a / tau) max(N, D) / N`, where a column gains
`N / 2 (lambda* - 1 - ln lambda*)` nats: 1.7 D for N = 10 D, 2.3 D for N = 100 D, where pure noise
gains about D.

The search climbs the log-likelihood less the prices. A step adds a column to the block where it
gains most, moves the direction of a block that a set uses least (or would use most) to the block
without (or with) that set, makes similar directions of two blocks one direction of all their sets,
or drops a column. A step is kept if the fit after it is better by more than rounding. New columns
begin as in `starts.py`: the likeliest ones given all others.
"""

from collections.abc import Iterator
from itertools import combinations
from typing import NamedTuple

import numpy as np

from contrastive_lvm.arrays import Array, Parameters, noise_of
from contrastive_lvm.coordinate_ascent.ard_rank import price
from contrastive_lvm.coordinate_ascent.problem import Problem
from contrastive_lvm.coordinate_ascent.starts import next_loadings
from contrastive_lvm.linalg.anderson import ascend
from contrastive_lvm.model import LoadingBlock, Model
from contrastive_lvm.priors.flat import Flat
from contrastive_lvm.rows.data import Data

SETTLED = 0.02  # nats per sweep of a fit within the search
MOST_SWEEPS = 60  # of such a fit
BETTER = 0.5  # nats that a step must gain to be kept
MOST_TRIED = 3  # blocks in which a new column is tried
PROMISING = 0.5  # share of the price that a column must gain before others have adapted to it
ALIKE = 0.7  # least cosine of two directions that are tried as one
MEMORY = 10  # sweeps that the acceleration remembers


class BlockSupport(NamedTuple):
    """The evidence for the size of a block, in nats of the log-likelihood."""

    n_components: int
    gain: float  # of the least of its columns; NaN if it has none
    next_gain: float  # of one more column
    needed: float  # what a column must gain


class _Fit(NamedTuple):
    """Loadings by block, the other parameters, their bound and their score."""

    loadings: dict[str, Array]
    parameters: Parameters
    bound: float
    score: float  # less the prices of all columns


def find_sizes(model: Model, data: Data) -> dict[str, BlockSupport]:
    """Return the sizes of all blocks, those of automatic ones found from the rows."""
    return _Search(model, data).run()


class _Search:
    """The search, for one model and its rows."""

    def __init__(self, model: Model, data: Data) -> None:
        flat = model.with_priors(dict.fromkeys((b.name for b in model.blocks), Flat()))
        self.data, self.sets = data, data.covariances()
        self.free = [block for block in model.blocks if block.automatic]
        fixed = {b.name: 0 if b.automatic else b.n_components for b in model.blocks}
        self.model = flat.with_sizes(fixed)
        self.problem = Problem(self.model, data)
        by_name = dict(zip(model.sets, self.sets, strict=True))
        weights = {b.name: sum(by_name[s].weight for s in b.sets) for b in model.blocks}
        self.prices = {name: price(n, data.n_features) for name, n in weights.items()}
        self.most = self._most_columns()

    def _most_columns(self) -> int:
        """Return how many columns a set may have, so that its covariances can tell them apart."""
        D = len(self.problem.unit)
        isotropic = self.problem.likelihood._is_isotropic
        return int(D // 2 if isotropic else max(1.0, D + 0.5 - np.sqrt(2 * D + 0.25)))

    def run(self) -> dict[str, BlockSupport]:
        """Climb until no step is better, and return the evidence for the size of each block."""
        at = self._grow(self._first())
        while True:
            better = self._first_better(at, self._moves(at))
            if better is None:
                return self._support(at)
            at = self._grow(better)

    # Fits

    def _first(self) -> _Fit:
        """Start from the fixed blocks alone, the widest first."""
        D = len(self.problem.unit)
        loadings = {b.name: np.empty((D, 0)) for b in self.model.blocks}
        psi = np.array([s.variance for s in self.sets]) / 2.0
        if self.problem.floor.ndim == 1:
            psi = psi.mean(axis=0)
        if self.problem.likelihood._is_isotropic:
            psi = np.broadcast_to(psi.mean(axis=-1, keepdims=True), psi.shape)
        means = tuple(s.mean for s in self.data.sets)
        effects = tuple(s.effects for s in self.data.sets if s.effects is not None)
        p = Parameters(np.empty((D, 0)), psi, means, self.problem.likelihood._first_df, effects)
        for block in sorted(self.model.blocks, key=lambda b: -len(b.sets)):
            for _ in range(block.n_components):
                new = self._next_column(block, _Fit(loadings, p, 0.0, 0.0))
                loadings = loadings | {block.name: np.hstack([loadings[block.name], new])}
        return self._fitted(loadings, p)

    def _fitted(self, loadings: dict[str, Array], p: Parameters) -> _Fit:
        """Ascend from given loadings; a single column that stays zero stands for none."""
        cost = sum(L.shape[1] * self.prices[name] for name, L in loadings.items())
        if not any(L.shape[1] for L in loadings.values()):
            name = self.model.blocks[0].name
            loadings = loadings | {name: np.zeros((len(self.problem.unit), 1))}
        sizes = {name: L.shape[1] for name, L in loadings.items()}
        problem = self.problem.with_model(self.model.with_sizes(sizes))
        L = np.hstack([loadings[b.name] for b in self.model.blocks])
        psi = np.clip(p.psi, problem.floor, problem.ceiling)
        start = problem.flatten(p._replace(L=L, psi=psi))
        ascent = ascend(
            problem,
            start,
            problem.first_carry(),
            memory=MEMORY,
            max_sweeps=MOST_SWEEPS,
            tol=SETTLED,
        )
        found, bound = problem.unflatten(ascent.point), float(ascent.trace[-1])
        columns = zip(problem.model.blocks, problem.model.columns, strict=True)
        own = {block.name: found.L[:, c] for block, c in columns}
        return _Fit({n: M[:, M.any(axis=0)] for n, M in own.items()}, found, bound, bound - cost)

    # Steps

    def _grow(self, at: _Fit) -> _Fit:
        """Add columns where they gain most, as long as that pays."""
        while True:
            better = self._first_better(at, self._additions(at))
            if better is None:
                return at
            at = better

    def _first_better(self, at: _Fit, steps: Iterator[dict[str, Array]]) -> _Fit | None:
        for loadings in steps:
            trial = self._fitted(loadings, at.parameters)
            if trial.score > at.score + BETTER:
                return trial
        return None

    def _additions(self, at: _Fit) -> Iterator[dict[str, Array]]:
        """Yield loadings with one more column, the most promising blocks first."""
        gains = []
        for block in self.free:
            if self._can_grow(block, at):
                new = self._next_column(block, at)
                gains.append((self._gain(block.sets, at, new), block.name, new))
        gains.sort(key=lambda each: self.prices[each[1]] - each[0])
        for gain, name, new in gains[:MOST_TRIED]:
            if gain > PROMISING * self.prices[name]:
                yield at.loadings | {name: np.hstack([at.loadings[name], new])}

    def _can_grow(self, block: LoadingBlock, at: _Fit) -> bool:
        used = [
            sum(at.loadings[b.name].shape[1] for b in self.model.blocks if s in b.sets)
            for s in block.sets
        ]
        return bool(max(used) < self.most)

    def _next_column(self, block: LoadingBlock, at: _Fit) -> Array:
        """Return the likeliest next column of a block given all others, (D, 1)."""
        psi = at.parameters.psi
        if psi.ndim == 2:
            psi = psi[[name in block.sets for name in self.model.sets]].mean(axis=0)
        sources = dict(zip(self.model.sets, self.sets, strict=True))
        return next_loadings(block.sets, self.model.blocks, at.loadings, psi, sources, 1)

    def _gain(self, sets: tuple[str, ...], at: _Fit, new: Array) -> float:
        """Return what a column gains while nothing else changes, in nats.

        With `C_s` a set's covariance under the model and `S_s` that of its rows,
        `sum_s N_s / 2 (q / (1 + p) - ln(1 + p))`, `p = l' C_s^-1 l`, `q = l' C_s^-1 S_s C_s^-1 l`.
        """
        total = 0.0
        for i, name in enumerate(self.model.sets):
            if name in sets:
                u = self._whiten(i, at, new)
                p, q = float((new * u).sum()), float((u * self.sets[i].product(u)).sum())
                total += 0.5 * self.sets[i].weight * (q / (1.0 + p) - np.log1p(p))
        return total

    def _whiten(self, i: int, at: _Fit, M: Array) -> Array:
        """Return `C_s^-1 M` of a set."""
        psi = noise_of(at.parameters.psi, i)[:, None]
        names = [b.name for b in self.model.blocks if self.model.sets[i] in b.sets]
        L = np.hstack([M[:, :0], *(at.loadings[name] for name in names)])
        inner = np.eye(L.shape[1]) + L.T @ (L / psi)
        whitened: Array = M / psi - (L / psi) @ np.linalg.solve(inner, L.T @ (M / psi))
        return whitened

    def _moves(self, at: _Fit) -> Iterator[dict[str, Array]]:
        """Yield loadings with a column dropped, or moved to a block with one set more or less."""
        by_sets = {frozenset(block.sets): block.name for block in self.free}
        for block in self.free:
            L = at.loadings[block.name]
            if not L.shape[1]:
                continue
            for i, name in enumerate(self.model.sets):
                other = by_sets.get(frozenset(block.sets) ^ {name})
                if other is not None:
                    kept, moved = self._split(L, i, at, leaves=name in block.sets)
                    joined = np.hstack([at.loadings[other], moved])
                    yield at.loadings | {block.name: kept, other: joined}
        for one, two in combinations(self.free, 2):
            union = by_sets.get(frozenset(one.sets) | frozenset(two.sets))
            if union is not None and not set(one.sets) & set(two.sets):
                yield from self._merged(one.name, two.name, union, at)
        for block in self.free:
            yield from self._without_least(block.name, at)

    def _split(self, L: Array, i: int, at: _Fit, *, leaves: bool) -> tuple[Array, Array]:
        """Divide a block into the direction that a set supports least or most, and the rest."""
        u = self._whiten(i, at, L)
        _, V = np.linalg.eigh(u.T @ self.sets[i].product(u) - L.T @ u)  # E[h h'] - I
        turned = L @ (V if leaves else V[:, ::-1])
        return turned[:, 1:], turned[:, :1]

    def _merged(self, one: str, other: str, union: str, at: _Fit) -> Iterator[dict[str, Array]]:
        """Yield one column for all sets in place of the two most alike of two blocks."""
        L, M = at.loadings[one], at.loadings[other]
        if not L.shape[1] or not M.shape[1]:
            return
        root = np.sqrt(np.atleast_2d(at.parameters.psi).mean(axis=0))[:, None]
        (U, s, Vt), (W, t, Zt) = (np.linalg.svd(x / root, full_matrices=False) for x in (L, M))
        A, cosine, Bt = np.linalg.svd(U.T @ W)
        if cosine[0] < ALIKE:
            return
        L, M = (x @ _basis_from(w) for x, w in ((L, Vt.T @ (A[:, 0] / s)), (M, Zt.T @ (Bt[0] / t))))
        yield at.loadings | {
            one: L[:, 1:],
            other: M[:, 1:],
            union: np.hstack([at.loadings[union], 0.5 * (L[:, :1] + M[:, :1])]),
        }

    def _without_least(self, name: str, at: _Fit) -> Iterator[dict[str, Array]]:
        L = at.loadings[name]
        if L.shape[1]:
            _, V = np.linalg.eigh(L.T @ L)
            yield at.loadings | {name: (L @ V)[:, 1:]}

    # Evidence

    def _support(self, at: _Fit) -> dict[str, BlockSupport]:
        found = {}
        for block in self.model.blocks:
            name, gain, more = block.name, np.nan, 0.0
            for loadings in self._without_least(name, at):
                gain = at.bound - self._fitted(loadings, at.parameters).bound
            if self._can_grow(block, at):
                new = np.hstack([at.loadings[name], self._next_column(block, at)])
                more = self._fitted(at.loadings | {name: new}, at.parameters).bound - at.bound
            size = at.loadings[name].shape[1]
            found[name] = BlockSupport(size, gain, max(more, 0.0), self.prices[name])
        return found


def _basis_from(w: Array) -> Array:
    """Return an orthonormal basis whose first vector points along w."""
    basis = np.linalg.qr(np.column_stack([w, np.eye(len(w))]))[0]
    return np.asarray(basis * np.where(np.arange(len(w)) == 0, np.sign(basis[:, 0] @ w), 1.0))
