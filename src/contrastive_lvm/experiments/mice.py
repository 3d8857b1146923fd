"""Genotypes of mice from proteins with more and more missing entries (the paper, figure 1)."""

import numpy as np

from contrastive_lvm.arrays import Array
from contrastive_lvm.datasets import MiceProtein, fetch_mice_protein
from contrastive_lvm.estimators.contrastive_lvm import ContrastiveLVM
from contrastive_lvm.experiments.drawing import grid_of_densities
from contrastive_lvm.experiments.measures import (
    BASELINES,
    neighbour_accuracy,
    scale_about_own_means,
    scores,
)
from contrastive_lvm.experiments.outcome import (
    Claim,
    Entry,
    Outcome,
    SeedSpread,
    paragraphs,
    spread,
)

LEVELS = {"natural": 0.0, "25 % missing": 0.25, "50 % missing": 0.5, "75 % missing": 0.75}
OURS = "robust cLVM"
NOTES = """
Each mouse has 15 rows (repeated measurements), so held-out accuracy leaves out whole mice. The
models see no labels and are fitted to all rows. The data without removed entries involve no chance
and therefore have no spread.

The target is 18 animals measured 15 times each, and the background 9. The test of contrast gives p
= .004 (8 dimensions) if rows are permuted and p between .20 and .98 (eleven random seeds, none
supported) if animals are. The picture thus shows differences among these animals; this study cannot
say whether they hold for other animals. See docs/contrast_test.md.

Entries are removed as in the paper: runs of three to five rows of a protein. For PCA and cPCA,
column means take their place. Proteins are divided by their standard deviation about each set's
mean; the paper does not say how it scales.
"""


def run(*, quick: bool = False) -> Outcome:
    """Run PCA, cPCA and the robust model at four levels, each with several missing patterns."""
    data, n_patterns = fetch_mice_protein(), 1 if quick else 5
    levels = {"natural": 0.0, "75 % missing": 0.75} if quick else LEVELS
    methods = BASELINES | {OURS: _robust}
    latents = {
        (name, level): [
            method(*with_missing(data, share, seed)) for seed in range(n_patterns if share else 1)
        ]
        for name, method in methods.items()
        for level, share in levels.items()
    }
    found = {key: _scores(own, data) for key, own in latents.items()}
    table: list[dict[str, Entry]] = [
        {"method": name, "target": level, **own} for (name, level), own in found.items()
    ]
    panels = {f"{name}, {level}": latents[name, level][0] for level in levels for name in methods}
    genotypes = np.array(["control", "trisomic"])[data.target_labels]
    return Outcome(
        name="mice",
        title="Mice proteins with missing entries",
        data=f"{data.description} {len(data.target)} + {len(data.background)} rows, "
        f"{data.target.shape[1]} proteins, {n_patterns} missing patterns per level",
        table=table,
        claims=_claims(found, levels),
        figures={"latents": grid_of_densities(panels, genotypes, len(methods))},
        notes=paragraphs(NOTES),
    )


def with_missing(data: MiceProtein, share: float, seed: int) -> tuple[Array, Array]:
    """Remove runs of three to five rows of a column until a share of the target is missing."""
    rng, X = np.random.default_rng(seed), data.target.copy()
    while np.isnan(X).mean() < share:
        row, column, length = rng.integers(len(X)), rng.integers(X.shape[1]), rng.integers(3, 6)
        X[row : row + length, column] = np.nan
    return scale_about_own_means(X, data.background)


def _robust(X: Array, B: Array) -> Array:
    return ContrastiveLVM(2, 2, likelihood="student_t").fit_transform(X, background=B)


def _scores(latents: list[Array], data: MiceProtein) -> dict[str, SeedSpread]:
    labels, mice = data.target_labels, data.target_mice
    accuracy = spread(neighbour_accuracy(h, labels, mice) for h in latents)
    return scores(latents, labels) | {"accuracy for new mice": accuracy}


def _claims(
    found: dict[tuple[str, str], dict[str, SeedSpread]], levels: dict[str, float]
) -> list[Claim]:
    claims = [
        Claim(
            "PCA does not recover the subgroups.",
            "largest ARI of PCA at any level",
            max(found["PCA", level]["ARI"].most for level in levels),
            0.2,
            at_least=False,
        ),
        Claim(
            "Robust cLVM finds them in the data as they are.",
            "ARI",
            found[OURS, "natural"]["ARI"].least,
            0.7,
        ),
    ]
    for level in [name for name, share in levels.items() if share >= 0.5]:
        for measure in ("ARI", "silhouette"):
            says = f"Robust cLVM does better than cPCA at {level}."
            ahead = found[OURS, level][measure].least - found["cPCA", level][measure].most
            claims.append(Claim(says, f"{measure}: worst of cLVM minus best of cPCA", ahead, 0.0))
    return claims
