"""Kang cells: the deep models of counts and the linear one, `python -m benchmarks.deep_counts`.

1,500 target cells, of which 1,000 had interferon, 500 background cells, 500 genes, raw counts; two
target and ten shared dimensions. ContrastiveVI, with its defaults, has a line where scvi-tools is
installed. The table has for each fit: the silhouette of the stimulation in the target latents, the
adjusted Rand index of two k-means clusters of them, and how many cells 20 neighbours recognise in
the target and in the shared latents, with five folds: stimulation, type of cell and donor.
Latents of the linear model are given as effects on the log rates, `W t` and `W z`, too.
"""

import sys
import time
import warnings
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score, silhouette_score
from sklearn.model_selection import StratifiedKFold, cross_val_predict
from sklearn.neighbors import KNeighborsClassifier

import contrastive_lvm as clvm
from contrastive_lvm.arrays import Array
from contrastive_lvm.datasets.single_cells import CellCounts

SEEDS, N_TARGET, N_SHARED = (0, 1, 2), 2, 10
COLUMNS = (
    *("fit", "silhouette", "ARI", "stimulation, t", "stimulation, z", "type, t", "type, z"),
    *("donor, t", "donor, z", "seconds", "what it says"),
)


class Latents(NamedTuple):
    """Target and shared latents of the target's cells, and what a fit said."""

    target: Array
    shared: Any
    said: str = ""


def main() -> None:
    """Print the lines of a table, one as soon as it is known."""
    data = clvm.datasets.fetch_kang_pbmc()
    chosen = sys.argv[1:] or ["linear", "ours", "contrastivevi"]
    print(f"| {' | '.join(COLUMNS)} |\n{'|---' * len(COLUMNS)}|", flush=True)
    if "linear" in chosen:
        seconds, model = _timed(partial(_linear, data))
        found = model.latents(data.target)
        _line("linear", Latents(found.target, found.shared), data, seconds)
        lengths = [
            np.linalg.norm(W, axis=1) for W in (model.target_components_, model.shared_components_)
        ]
        scaled = Latents(found.target * lengths[0], found.shared * lengths[1])
        _line("linear, effects", scaled, data, seconds)
    for seed in SEEDS:
        if "ours" in chosen:
            seconds, latents = _timed(partial(_deep, data, seed))
            _line(f"ContrastiveVAE, seed {seed}", latents, data, seconds)
        if "contrastivevi" in chosen and find_spec("scvi") is not None:
            seconds, latents = _timed(partial(_contrastive_vi, data, seed))
            _line(f"ContrastiveVI, seed {seed}", latents, data, seconds)


def _timed(fit: Callable[[], Any]) -> tuple[float, Any]:
    begin = time.process_time()
    found = fit()
    return time.process_time() - begin, found


def _linear(data: CellCounts) -> clvm.ContrastiveLVM:
    model = clvm.ContrastiveLVM(N_TARGET, N_SHARED, likelihood="negative_binomial")
    return model.fit(data.target, background=data.background)


def _deep(data: CellCounts, seed: int) -> Latents:
    model = clvm.ContrastiveVAE(
        N_TARGET, N_SHARED, likelihood="negative_binomial", random_state=seed
    )
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(data.target, background=data.background)
    found = model.latents(data.target)
    said = "; ".join(str(each.message).split(":")[0][:80] for each in caught)
    said += f" ({model.n_shared_} shared)"
    return Latents(np.asarray(found.target), found.shared, said)


def _contrastive_vi(data: CellCounts, seed: int) -> Latents:
    import anndata
    import scvi
    import torch
    from scvi.external import ContrastiveVI

    torch.set_num_threads(1)
    scvi.settings.seed = seed
    n = len(data.target)
    cells = anndata.AnnData(np.vstack([data.target, data.background]).astype(np.float32))
    ContrastiveVI.setup_anndata(cells)
    model = ContrastiveVI(cells, n_background_latent=N_SHARED, n_salient_latent=N_TARGET)
    model.train(
        background_indices=list(range(n, cells.n_obs)),
        target_indices=list(range(n)),
        enable_progress_bar=False,
    )
    target = cells[:n].copy()
    kinds = ("salient", "background")
    return Latents(*(model.get_latent_representation(target, representation_kind=k) for k in kinds))


def _line(name: str, found: Latents, data: CellCounts, seconds: float) -> None:
    labels, t, z = data.target_labels, found.target, found.shared
    clusters = KMeans(2, n_init=10, random_state=0).fit_predict(t)
    numbers = [silhouette_score(t, labels), adjusted_rand_score(labels, clusters)]
    for known in (labels, data.target_types, data.target_donors):
        numbers += [_recognised(latents, known) for latents in (t, z)]
    cells = [f"{number:.2f}" for number in numbers]
    print(f"| {name} | {' | '.join(cells)} | {seconds:.0f} | {found.said} |", flush=True)


def _recognised(latents: Array, known: Any) -> float:
    """Return the share of rows that 20 neighbours recognise; rows without a name do not count."""
    names = np.asarray(known).astype(str)
    kept = names != ""
    folds = StratifiedKFold(5, shuffle=True, random_state=0)
    judge = KNeighborsClassifier(20)
    guess = cross_val_predict(judge, latents[kept], names[kept], cv=folds)
    return float((guess == names[kept]).mean())


if __name__ == "__main__":
    main()
