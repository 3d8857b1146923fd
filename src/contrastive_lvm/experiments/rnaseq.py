"""How many shared dimensions single cells need (the paper, figures 2a and 2b)."""

import warnings
from typing import NamedTuple

import numpy as np
from matplotlib.figure import Figure
from sklearn.exceptions import ConvergenceWarning

from contrastive_lvm.arrays import Array
from contrastive_lvm.coordinate_ascent.em import EM
from contrastive_lvm.datasets import CellCounts, fetch_bmmc, fetch_kang_pbmc
from contrastive_lvm.datasets.download import BMMC, present
from contrastive_lvm.estimators.contrastive_lvm import ContrastiveLVM
from contrastive_lvm.experiments.drawing import grid_of_latents
from contrastive_lvm.experiments.measures import BASELINES, neighbour_accuracy, silhouette
from contrastive_lvm.experiments.outcome import (
    Claim,
    Outcome,
    SeedSpread,
    paragraphs,
    spread,
    tabulate,
)
from contrastive_lvm.plots import plot_spectrum
from contrastive_lvm.plots.spectra import component_shares
from contrastive_lvm.plots.style import panels
from contrastive_lvm.priors.ard import ARD

NEGLIGIBLE = 1e-5  # of the variance: columns below are not used
WITHOUT, WITH = "cLVM without ARD", "cLVM with ARD"
NOTES = """
Counts x become log(1 + 10,000 x / total), with the total of each cell. The paper uses bone marrow
(10x Genomics); if its files cannot be downloaded, blood cells with and without interferon take
their place.

With ARD there may be as many shared columns as features minus one, and without ARD minus two,
because the data cannot distinguish more. A column is in use if it explains a thousandth of a per
cent of the shared variance. Without ARD only the first draw is fitted, and the fit stops after 100
iterations: hundreds of columns without a prior do not converge within two thousand.
"""


class LogCounts(NamedTuple):
    """Log-normalised expression of two sets."""

    target: Array
    background: Array
    labels: np.ndarray


def run(*, quick: bool = False) -> Outcome:
    """Compare models with and without ARD, PCA and cPCA."""
    counts, which, names = _counts(quick=quick)
    seeds = range(1 if quick else 3)
    draws = [_drawn(counts, seed) for seed in seeds]
    models = {WITHOUT: [_without(draws[0])], WITH: [_with(d) for d in draws]}
    latents = {
        name: [method(d.target, d.background) for d in draws] for name, method in BASELINES.items()
    }
    for name, own in models.items():
        latents[name] = [m.transform(d.target) for m, d in zip(own, draws, strict=False)]
    columns = {
        name: spread(int((component_shares(m.shared_components_) > NEGLIGIBLE).sum()) for m in own)
        for name, own in models.items()
    }
    judged = {
        name: [(h, d.labels) for h, d in zip(own, draws, strict=False)]
        for name, own in latents.items()
    }
    shape = {name: spread(silhouette(*pair) for pair in own) for name, own in judged.items()}
    accuracy = {
        name: spread(neighbour_accuracy(*pair, n_neighbors=20) for pair in own)
        for name, own in judged.items()
    }
    table = {"silhouette": shape, "accuracy of 20 neighbours": accuracy}
    planes = {name: own[0] for name, own in latents.items() if name != WITHOUT}
    shown = [names[int(label)] for label in draws[0].labels]
    return Outcome(
        name="rnaseq",
        title="Single cells: how many shared dimensions",
        data=f"{which} {len(draws[0].target)} + {len(draws[0].background)} of the cells, "
        f"{counts.target.shape[1]} genes, {len(seeds)} draws of 90% of the cells",
        table=tabulate("method", table | {"shared columns in use": columns}),
        claims=_claims(columns, shape),
        figures={
            "latents": grid_of_latents(planes, shown),
            "columns": _draw({name: own[0] for name, own in models.items()}),
        },
        notes=paragraphs(NOTES),
    )


def _counts(*, quick: bool) -> tuple[CellCounts, str, tuple[str, str]]:
    n_genes = 60 if quick else 500
    if all(present(f"bmmc/{name}_filtered_gene_bc_matrices.tar.gz") for name in BMMC):
        return fetch_bmmc(n_genes), "Bone marrow (Zheng 2017):", ("before", "after transplant")
    which = "Kang PBMC, standing in for bone marrow:"
    return fetch_kang_pbmc(n_genes), which, ("control", "stimulated")


def _drawn(counts: CellCounts, seed: int) -> LogCounts:
    rng, sets = np.random.default_rng(seed), []
    for values, totals in (
        (counts.target, counts.target_totals),
        (counts.background, counts.background_totals),
    ):
        rows = np.sort(rng.permutation(len(values))[: round(0.9 * len(values))])
        sets.append((rows, np.log1p(1e4 * values[rows] / totals[rows, None])))
    (rows, target), (_, background) = sets
    seen = np.vstack([target, background]).std(axis=0) > 0  # a gene may have no count in a draw
    return LogCounts(target[:, seen], background[:, seen], counts.target_labels[rows])


def _with(cells: LogCounts) -> ContrastiveLVM:
    model = ContrastiveLVM(2, cells.target.shape[1] - 1, shared_prior=ARD())
    return model.fit(cells.target, background=cells.background)


def _without(cells: LogCounts) -> ContrastiveLVM:
    # Hundreds of columns without a prior need thousands of iterations.
    model = ContrastiveLVM(2, cells.target.shape[1] - 2, inference=EM(max_iter=100))
    with warnings.catch_warnings():  # the fit is stopped early on purpose
        warnings.simplefilter("ignore", ConvergenceWarning)
        return model.fit(cells.target, background=cells.background)


def _claims(columns: dict[str, SeedSpread], shape: dict[str, SeedSpread]) -> list[Claim]:
    fewer = columns[WITHOUT].least - columns[WITH].most
    return [
        Claim(
            "ARD uses over 100 fewer columns of the shared loadings.", "columns fewer", fewer, 100
        ),
        Claim(
            "cLVM with ARD shows the subgroups, PCA does not.",
            "silhouette minus that of PCA",
            shape[WITH].least - shape["PCA"].most,
            0.1,
        ),
        Claim(
            "cLVM without tuning is like cPCA with its heuristic.",
            "silhouette minus that of cPCA",
            shape[WITH].least - shape["cPCA"].most,
            -0.05,
        ),
    ]


def _draw(models: dict[str, ContrastiveLVM]) -> Figure:
    figure, (ax,) = panels(1, 1, (5.0, 3.2))
    title = "Variance explained by shared columns"
    plot_spectrum(models, negligible=NEGLIGIBLE, ax=ax, title=title)
    return figure
