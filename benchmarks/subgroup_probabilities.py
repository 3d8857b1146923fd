"""Are probabilities of subgroups right as often as they say? Rewrites docs/subgroups.md.

Run `python -m benchmarks.subgroup_probabilities`; it takes a few seconds.
"""

from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt

import contrastive_lvm as clvm

PAGE = Path(__file__).parent.parent / "docs" / "subgroups.md"
N_DATASETS, N_ROWS, N_FEATURES = 20, 400, 10
CENTRES = np.array([[-1.0, 0.0], [1.0, 0.5]])
EDGES = (0.5, 0.6, 0.7, 0.8, 0.9, 0.99, 1.0)
HEAD = f"""# Probabilities of subgroups

Two overlapping subgroups were planted in {N_DATASETS} datasets of {N_ROWS} rows and {N_FEATURES}
features, and a model with `latent_prior=Mixture(2)` was fitted to each. Rows are sorted by the
probability of their most probable subgroup.
`python -m benchmarks.subgroup_probabilities` repeats it.

| probability | rows | mean probability | share that is right |
|---|---|---|---|
"""


def outcome(seed: int) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.bool_]]:
    """Return the probability of each row's most probable subgroup, and whether it is right."""
    rng = np.random.default_rng(seed)
    W, S = rng.normal(size=(N_FEATURES, 2)), rng.normal(size=(N_FEATURES, 2))
    labels = rng.integers(0, 2, N_ROWS)
    t = CENTRES[labels] + 0.55 * rng.normal(size=(N_ROWS, 2))
    rest = [rng.normal(size=(N_ROWS, 2)) @ S.T for _ in range(2)]
    noise = [0.7 * rng.normal(size=(N_ROWS, N_FEATURES)) for _ in range(2)]
    X, Y = t @ W.T + rest[0] + noise[0], rest[1] + noise[1]
    model = clvm.ContrastiveLVM(2, 2, latent_prior=clvm.Mixture(2)).fit(X, background=Y)
    probabilities = model.subgroups(X).probabilities
    right = probabilities.argmax(axis=1) == labels
    return probabilities.max(axis=1), right if right.mean() > 0.5 else ~right


def main() -> None:
    """Write the table."""
    found = [outcome(seed) for seed in range(N_DATASETS)]
    said, right = (np.concatenate(part) for part in zip(*found, strict=True))
    lines = []
    for low, high in pairwise(EDGES):
        own = (said >= low) & ((said < high) | (high == 1.0))
        numbers = f"{own.sum()} | {said[own].mean():.3f} | {right[own].mean():.3f}"
        lines.append(f"| {low:g} to {high:g} | {numbers} |")
    PAGE.write_text(HEAD + "\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
