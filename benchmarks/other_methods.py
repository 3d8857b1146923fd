"""Two methods that the package does not have, on the problems of `benchmarks.default_answer`.

PLS-DA is told which rows are target and which are background, not the labels within the target.
Probabilistic contrastive PCA (Li, Jones & Engelhardt 2020) has the closed form of its equation for
the loadings: leading eigenvectors of the target's scatter matrix minus gamma times the other's.
"""

import numpy as np

from benchmarks.default_answer import Labelled, accuracy, problems
from contrastive_lvm.arrays import Array

GAMMAS = (0.2, 0.5, 0.8)


def pls_da(problem: Labelled) -> Array:
    """Two components of partial least squares on the label of the set (NIPALS)."""
    X = np.concatenate([problem.target, problem.background])
    y = np.repeat([1.0, 0.0], [len(problem.target), len(problem.background)])
    X, y, scores = X - X.mean(axis=0), y - y.mean(), []
    for _ in range(2):
        w = X.T @ y
        t = X @ (w / np.linalg.norm(w))
        X = X - np.outer(t, X.T @ t) / (t @ t)
        y = y - t * (t @ y) / (t @ t)
        scores.append(t)
    return np.stack(scores, axis=1)[: len(problem.target)]


def pcpca(problem: Labelled, gamma: float) -> Array:
    """Latents along the two leading eigenvectors."""
    X, B = (rows - rows.mean(axis=0) for rows in (problem.target, problem.background))
    _, vectors = np.linalg.eigh(X.T @ X - gamma * B.T @ B)
    latents: Array = X @ vectors[:, -2:]
    return latents


def _filled(problem: Labelled) -> Labelled:
    """Means in place of missing entries, which neither method takes."""
    sets = [
        np.where(np.isnan(rows), np.nanmean(rows, axis=0), rows)
        for rows in (problem.target, problem.background)
    ]
    return problem._replace(target=sets[0], background=sets[1])


def main() -> None:
    """Print a line for each problem, and the means."""
    lines = []
    for problem in map(_filled, problems()):
        found = [accuracy(pls_da(problem), problem.labels)]
        found += [accuracy(pcpca(problem, gamma), problem.labels) for gamma in GAMMAS]
        lines.append(found)
        print(problem.name, *(f"{value:.3f}" for value in found), sep=" | ", flush=True)
    print("mean", *(f"{value:.3f}" for value in np.mean(lines, axis=0)), sep=" | ")


if __name__ == "__main__":
    main()
