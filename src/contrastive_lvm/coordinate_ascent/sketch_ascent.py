"""Ascent in subspaces of the features, for scatters that are too large to be formed.

Sweeps within a subspace cost no pass over the rows. It grows by the directions in which an EM step
over all features would leave it, until such a step gains next to nothing, so that the optimum is
that over all features (`rows/sketch.py` derives the step).
"""

import numpy as np

from contrastive_lvm.coordinate_ascent.problem import SETTLED, Problem, RowResults, WarmStart
from contrastive_lvm.linalg import packed
from contrastive_lvm.linalg.anderson import Ascent, ascend
from contrastive_lvm.rows.data import Data
from contrastive_lvm.rows.sketch import Sketch, Step

INNER = 0.01  # gain at which sweeps in a subspace stop, in units of that of the last step outside
MOST_DIRECTIONS = 15  # of a subspace, for each column; with more, the leading ones are kept


def ascend_in_sketch(
    start: WarmStart, data: Data, sketch: Sketch, *, memory: int, max_sweeps: int, tol: float
) -> tuple[WarmStart, Ascent[RowResults]]:
    """Ascend in a subspace, then in larger ones, until a sweep would gain less than `tol`.

    Returns the state at the end, and the last ascent. Its start is in the subspace of the sketch.
    """
    model = start.problem.model
    settled = max(tol, SETTLED * sum(rows.n_rows for rows in data.sets))
    try:
        while True:
            left = max(1, max_sweeps - start.n_sweeps)
            problem, point, carry, *_ = start
            ascent = ascend(problem, point, carry, memory=memory, max_sweeps=left, tol=settled)
            start = start.after(ascent)
            step = _step_outside(problem, sketch, ascent)
            least = max(tol, 8 * np.finfo(float).eps * abs(ascent.trace[-1]))
            if start.n_sweeps >= max_sweeps or (step.gain < least and settled <= tol):
                break
            settled = max(tol, INNER * step.gain)
            if step.gain < least:
                continue
            if sketch.size > MOST_DIRECTIONS * model.n_columns:
                sketch, start = _with_fewer_directions(data, sketch, start)
            sketch = sketch.extended(step.directions)
            start = _moved(start, Problem(model, data.within(sketch)))
    except KeyboardInterrupt as stop:
        raise start.kept_after(stop) from None
    return start, ascent._replace(converged=ascent.converged and step.gain < least)


def _step_outside(problem: Problem, sketch: Sketch, ascent: Ascent[RowResults]) -> Step:
    """Return what an EM step at the end of an ascent would add outside the subspace."""
    p, K = problem.unflatten(ascent.point), problem.model.n_columns
    L, noise = p.L[:-1], np.atleast_2d(p.psi)[:, 0]
    moment, slopes = np.zeros((K, K)), []
    statistics = ascent.info.statistics
    for i, active in enumerate(problem.active):
        own, psi = L[:, active], float(noise[min(i, len(noise) - 1)])
        slope = np.zeros_like(L)
        inner = np.eye(len(active)) + own.T @ own / psi
        slope[:, active] = np.linalg.solve(inner, own.T).T * (noise[0] / psi**2)
        slopes.append(slope)
        moment[np.ix_(active, active)] += packed.unpack(statistics[i].statistics.moment)[0]
    return sketch.step(slopes, moment, float(noise[0]))


def _moved(start: WarmStart, problem: Problem) -> WarmStart:
    """Return a start in a larger subspace, whose first directions are those before."""
    p, size = start.problem.unflatten(start.point), len(problem.unit)
    L = np.zeros((size, p.L.shape[1]))
    L[: len(p.L) - 1] = p.L[:-1]
    psi = np.broadcast_to(p.psi[..., :1], (*p.psi.shape[:-1], size))
    means = tuple(rows.mean for rows in problem.data.sets)
    point = problem.flatten(p._replace(L=L, psi=psi, means=means))
    return start._replace(problem=problem, point=point, carry=problem.first_carry())


def _with_fewer_directions(
    data: Data, sketch: Sketch, start: WarmStart
) -> tuple[Sketch, WarmStart]:
    """Keep the loadings and as many leading directions of the rows in a subspace."""
    p = start.problem.unflatten(start.point)
    shares = [1.0 / rows.n_rows for rows in sketch.sources]
    pairs = zip(shares, sketch.matrices, strict=True)
    leading = np.linalg.eigh(sum(share * matrix for share, matrix in pairs))[1]
    U = np.linalg.qr(np.hstack([p.L[:-1], leading[:, : -3 * p.L.shape[1] : -1]]))[0]
    sketch = sketch.turned(U)
    problem = Problem(start.problem.model, data.within(sketch))
    L = np.vstack([U.T @ p.L[:-1], np.zeros((1, p.L.shape[1]))])
    psi = np.broadcast_to(p.psi[..., :1], (*p.psi.shape[:-1], len(L)))
    means = tuple(rows.mean for rows in problem.data.sets)
    point = problem.flatten(p._replace(L=L, psi=psi, means=means))
    return sketch, start._replace(problem=problem, point=point)
