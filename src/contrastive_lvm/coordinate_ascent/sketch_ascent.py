"""Ascent in subspaces of the features, for scatters that are too large to be formed.

Sweeps within a subspace cost no pass over the rows. It grows by the directions in which an EM step
over all features would leave it, until such a step gains next to nothing, so that the optimum is
that over all features (`rows/sketch.py` derives the step).
"""

import numpy as np

from contrastive_lvm.arrays import EPS, Array
from contrastive_lvm.coordinate_ascent.problem import SETTLED, Problem, RowResults, WarmStart
from contrastive_lvm.linalg import packed
from contrastive_lvm.linalg.anderson import Ascent, ascend
from contrastive_lvm.rows.data import Data
from contrastive_lvm.rows.sketch import Sketch, Step

INNER = 0.01  # gain at which sweeps in a subspace stop, in units of that of the last step outside
EXACT = 1e-6  # gain of rounding, in units of the tolerance; bounds err by 1e5 times as much
RISING = 10.0  # gain at which directions have lost their orthogonality, in units of the least
MOST_DIRECTIONS = 15  # of a subspace, for each column; with more, the leading ones are kept


def ascend_in_sketch(
    start: WarmStart, data: Data, sketch: Sketch, *, memory: int, max_sweeps: int, tol: float
) -> tuple[WarmStart, Ascent[RowResults]]:
    """Ascend in a subspace, then in larger ones, until a sweep would gain less than `tol`.

    Returns the state at the end, and the last ascent. Its start is in the subspace of the sketch.
    """
    model = start.problem.model
    settled, least_gain = max(tol, SETTLED * sum(rows.n_rows for rows in data.sets)), np.inf
    try:
        while True:
            left = max(1, max_sweeps - start.n_sweeps)
            problem, point, carry, *_ = start
            ascent = ascend(problem, point, carry, memory=memory, max_sweeps=left, tol=settled)
            # Bounds in single precision may lie above the optimum.
            before = start.lower_bounds[start.lower_bounds <= ascent.trace[-1]]
            start = start._replace(lower_bounds=before).after(ascent)
            step = _step_outside(problem, sketch, ascent)
            least = max(tol, 8 * EPS * abs(ascent.trace[-1]))
            optimal = step.gain < least and step.rounding < EXACT * least
            if start.n_sweeps >= max_sweeps or (optimal and settled <= tol):
                break
            settled = max(tol, INNER * step.gain)
            if optimal:
                continue
            least_gain = min(least_gain, step.gain)
            if step.gain < max(least, step.rounding) or step.gain > RISING * least_gain:
                L = sketch.lift(problem.unflatten(start.point).L)
                sketch, least_gain = sketch.renewed(L), np.inf
                start = _moved(start, data, sketch, sketch.coordinates(L))
                continue
            if sketch.size > MOST_DIRECTIONS * model.n_columns:
                sketch, start = _with_fewer_directions(data, sketch, start)
            L = start.problem.unflatten(start.point).L[:-1]
            sketch = sketch.extended(step.directions)
            start = _moved(start, data, sketch, L)
    except KeyboardInterrupt as stop:
        raise start.kept_after(stop) from None
    return start, ascent._replace(converged=ascent.converged and optimal)


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


def _moved(start: WarmStart, data: Data, sketch: Sketch, L: Array) -> WarmStart:
    """Return a start in another subspace, from loadings over its first directions."""
    p, problem = (
        start.problem.unflatten(start.point),
        Problem(start.problem.model, data.within(sketch)),
    )
    size = len(problem.unit)
    psi = np.broadcast_to(p.psi[..., :1], (*p.psi.shape[:-1], size))
    means = tuple(rows.mean for rows in problem.data.sets)
    L = np.pad(L, ((0, size - len(L)), (0, 0)))
    point = problem.flatten(p._replace(L=L, psi=psi, means=means))
    return start._replace(problem=problem, point=point, carry=problem.first_carry())


def _with_fewer_directions(
    data: Data, sketch: Sketch, start: WarmStart
) -> tuple[Sketch, WarmStart]:
    """Keep the loadings and as many leading directions of the rows in a subspace."""
    L = start.problem.unflatten(start.point).L[:-1]
    shares = [1.0 / rows.n_rows for rows in sketch.sources]
    pairs = zip(shares, sketch.matrices, strict=True)
    leading = np.linalg.eigh(sum(share * matrix for share, matrix in pairs))[1]
    U = np.linalg.qr(np.hstack([L, leading[:, : -3 * L.shape[1] : -1]]))[0]
    sketch = sketch.turned(U)
    return sketch, _moved(start, data, sketch, U.T @ L)
