"""Two published tests, written from their descriptions, to compare with the test of contrast.

*CDE* (Hawke, Ma and Li 2024) compares the leading eigenvectors V1, V2 of the two sets: a small
singular value of V1' V2 means a direction that only the target has. Its bootstrap draws both sets
from all rows, each centred by its set, and the p-value is the share of draws whose smallest
singular value is at most the observed one. The number of eigenvectors, the same in both sets, is
the greater of the sets' singular values above Gavish and Donoho's threshold.

*gcPCA* (version 4) takes the largest eigenvalue of (A - B) relative to (A + B). Its null
distribution shuffles each feature within each set.
"""

import numpy as np
from scipy import linalg

from benchmarks.contrast_problems import Problem
from contrastive_lvm.arrays import Array
from contrastive_lvm.resampling.exchangeable_rows import n_above_noise, principal_directions

RESAMPLES = 99


def cde_pvalue(problem: Problem, rng: np.random.Generator) -> float:
    """Return the bootstrap p-value of the smallest singular value."""
    sets = [rows - rows.mean(axis=0) for rows in problem[:2]]
    size = max(n_above_noise(principal_directions(rows)[0], rows.shape) for rows in sets)
    size = max(size, 1)
    observed = _smallest(sets[0], sets[1], size)
    rows = np.vstack(sets)
    null = []
    for _ in range(RESAMPLES):
        drawn = [rows[rng.integers(len(rows), size=len(own))] for own in sets]
        null.append(_smallest(drawn[0], drawn[1], size))
    return float((1 + (np.array(null) <= observed).sum()) / (1 + RESAMPLES))


def _smallest(X: Array, B: Array, size: int) -> float:
    V1, V2 = (principal_directions(rows - rows.mean(axis=0))[1][:size] for rows in (X, B))
    return float(np.linalg.svd(V1 @ V2.T, compute_uv=False)[-1])


def gcpca_pvalue(problem: Problem, rng: np.random.Generator) -> float:
    """Return the p-value of the largest eigenvalue under shuffled features."""
    sets = [rows - rows.mean(axis=0) for rows in problem[:2]]
    observed = _largest(sets[0], sets[1])
    shuffled = (_largest(*(rng.permuted(rows, axis=0) for rows in sets)) for _ in range(RESAMPLES))
    return float((1 + (np.fromiter(shuffled, float) >= observed).sum()) / (1 + RESAMPLES))


def _largest(X: Array, B: Array) -> float:
    A, C = X.T @ X / len(X), B.T @ B / len(B)
    return float(linalg.eigh(A - C, A + C, eigvals_only=True)[-1])
