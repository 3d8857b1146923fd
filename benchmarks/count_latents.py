"""How well latents of counts show a response: simulated cells, and the Kang cells.

`python -m benchmarks.count_latents [simulated] [kang] [genes]` prints the tables of docs/counts.md.
"""

import sys
import time
import warnings
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score, silhouette_score
from sklearn.neighbors import NearestNeighbors

import contrastive_lvm as clvm
from contrastive_lvm.arrays import Array

TYPES = np.array([0.35, 0.25, 0.2, 0.14, 0.06])  # shares of the types of cells
CASES: dict[str, dict[str, Any]] = {
    "as described": {},
    "half the response": {"strength": 0.5},
    "the same response in all types": {"own_response": False},
    "half of that": {"strength": 0.5, "own_response": False},
    "a third of the counts": {"depth": 250.0},
    "four times the counts": {"depth": 3000.0},
    "fewer cells respond": {"share": 0.4},
}


class Cells(NamedTuple):
    """Counts of both sets, and which cells of the target respond."""

    target: Array
    background: Array
    responds: np.ndarray


def simulate(
    seed: int,
    *,
    n: int = 600,
    m: int = 250,
    d: int = 300,
    share: float = 2 / 3,
    depth: float = 700.0,
    strength: float = 1.0,
    own_response: bool = True,
) -> Cells:
    """Draw cells of five types, with four programs and unequal depth, some of which respond.

    A tenth of the genes respond in all types, by a log fold change of 1.2 on average. About a third
    of these are nearly silent without a response and respond by 4.2. With a response of its own,
    the second type changes a twelfth of the genes more. How strongly a cell responds is random.
    """
    rng, N = np.random.default_rng(seed), n + m
    kind = rng.choice(len(TYPES), N, p=TYPES)
    base, markers = rng.normal(0.0, 1.6, d), np.zeros((len(TYPES), d))
    for own in markers:
        at = rng.choice(d, d // 8, replace=False)
        own[at] = rng.normal(1.0, 1.2, len(at))
    activity, programs = rng.standard_normal((N, 4)), np.zeros((4, d))
    for own in programs:
        at = rng.choice(d, d // 5, replace=False)
        own[at] = rng.normal(0.0, 0.45, len(at))
    responds = rng.random(N) < share
    responds[n:] = False
    response, at = np.zeros((len(TYPES), d)), rng.choice(d, d // 10, replace=False)
    change = np.abs(rng.normal(1.2, 0.9, len(at))) * np.where(rng.random(len(at)) < 0.2, -0.5, 1.0)
    silent = rng.random(len(at)) < 0.35
    base[at[silent]] -= 4.0
    change[silent] += 3.0
    response[:, at] = change
    if own_response:
        more = rng.choice(d, d // 12, replace=False)
        response[1, more] += rng.normal(1.0, 1.0, len(more))
    amount = np.where(responds, strength * rng.gamma(8.0, 1.0 / 8.0, N), 0.0)
    e = base + markers[kind] + activity @ programs + amount[:, None] * response[kind]
    size = depth * np.exp(rng.normal(-0.1, 0.45, N)) / np.exp(base).sum()
    mean, dispersion = size[:, None] * np.exp(e), np.exp(rng.normal(-1.2, 0.6, d))
    counts = rng.poisson(mean * rng.gamma(1.0 / dispersion, dispersion, mean.shape)).astype(float)
    counts = counts[:, counts.sum(axis=0) > 0]
    return Cells(counts[:n], counts[n:], responds[:n])


def votes(latents: Array, labels: np.ndarray) -> float:
    """Return the accuracy of a vote of the 20 nearest neighbours."""
    names, codes = np.unique(labels, return_inverse=True)
    near = NearestNeighbors(n_neighbors=21).fit(latents).kneighbors(return_distance=False)[:, :20]
    shares = np.stack([(codes[near] == i).sum(axis=1) for i in range(len(names))])
    return float((shares.argmax(axis=0) == codes).mean())


def scores(latents: Array, labels: np.ndarray) -> tuple[float, float, float]:
    """Return silhouette, adjusted Rand index of two k-means clusters, and votes."""
    found = KMeans(2, n_init=20, random_state=0).fit_predict(latents)
    return (
        float(silhouette_score(latents, labels)),
        float(adjusted_rand_score(labels, found)),
        votes(latents, labels),
    )


def in_units(model: clvm.ContrastiveLVM, latents: Array) -> Iterator[tuple[str, Array]]:
    """Yield latents in their own units, with unit variance, and as long as their components."""
    posterior = model.posterior_
    unit = latents / posterior.latent_scales("target")
    yield "standard errors", latents
    yield "unit variance", unit
    R: Array = np.linalg.qr(posterior.unit_loadings("target"))[1]
    yield "W t", unit @ R.T


def simulated(seeds: range) -> None:
    """Print means over simulated sets, for each case and unit."""
    for name, changes in CASES.items():
        found: dict[str, list[tuple[float, float, float]]] = {}
        for seed in seeds:
            cells = simulate(seed, **changes)
            model = clvm.ContrastiveLVM(2, 8, likelihood="negative_binomial")
            model.fit(cells.target, background=cells.background)
            for unit, latents in in_units(model, model.transform(cells.target)):
                found.setdefault(unit, []).append(scores(latents, cells.responds))
        for unit, each in found.items():
            print(f"{name} | {unit} |", *(f"{x:.2f}" for x in np.mean(each, axis=0)), flush=True)


def fit_and_print(name: str, cells: Any, model: clvm.ContrastiveLVM, rows: Any) -> None:
    """Fit a model to Kang cells and print a line of the table."""
    start = time.process_time()
    model.fit(rows[0], background=rows[1])
    seconds, latents = time.process_time() - start, model.latents(rows[0])
    target, labels = np.asarray(latents.target), cells.target_labels
    print(f"{name}: {model.lower_bound_:.1f}, {model.n_iter_} sweeps, {seconds:.1f} s")
    for unit, values in in_units(model, target):
        print(f"  {unit}:", *(f"{x:.3f}" for x in scores(values, labels)))
    of_cells = {"type": cells.target_types, "donor": cells.target_donors, "label": labels}
    for what, known in of_cells.items():
        own, shared = votes(target, known), votes(latents.shared, known)
        print(f"  {what}: target {own:.3f}, shared {shared:.3f}", flush=True)


def kang() -> None:
    """Print scores of fits to the Kang cells, and what another order of the rows changes."""
    cells = clvm.datasets.fetch_kang_pbmc()
    rows = (cells.target, cells.background)
    logs = [np.log1p(X / X.sum(axis=1, keepdims=True) * 1e4) for X in rows]
    counts = "negative_binomial"
    fit_and_print("Gaussian", cells, clvm.ContrastiveLVM(2, 10), logs)
    model = clvm.ContrastiveLVM(2, 10, likelihood=counts)
    fit_and_print("negative binomial", cells, model, rows)
    order, other = (np.random.default_rng(0).permutation(len(X)) for X in rows)
    again = clvm.ContrastiveLVM(2, 10, likelihood=counts, random_state=1)
    again.fit(rows[0][order], background=rows[1][other])
    change = np.abs(again.target_components_ - model.target_components_).max()
    print(f"  another order: {change:.1e} of {np.abs(model.target_components_).max():.2f}")
    flat: dict[str, Any] = {
        "shared_prior": clvm.Flat(),
        "target_prior": clvm.Flat(),
        "inference": "em",
    }
    points = clvm.ContrastiveLVM(2, 10, likelihood=counts, **flat)
    fit_and_print("EM, flat priors", cells, points, rows)
    fit_and_print("Poisson", cells, clvm.ContrastiveLVM(2, 10, likelihood="poisson"), rows)


def all_genes() -> None:
    """Print scores of a fit to all genes of the Kang cells."""
    cells = clvm.datasets.fetch_kang_pbmc(13215)
    rows = (cells.target, cells.background)
    model = clvm.ContrastiveLVM(2, 10, likelihood="negative_binomial")
    fit_and_print("all genes", cells, model, rows)


if __name__ == "__main__":
    warnings.simplefilter("ignore")  # of too few shared dimensions, which are given
    if "simulated" in sys.argv:
        simulated(range(300, 304))
    if "kang" in sys.argv:
        kang()
    if "genes" in sys.argv:
        all_genes()
