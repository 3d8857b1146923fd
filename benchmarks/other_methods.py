"""Other methods beside this package: `python -m benchmarks.other_methods [PART ...]`.

The part `planted` simulates sets whose subgroups are known: every method gives two latents of each
row of the target, judged by how often ten nearest neighbours have the row's subgroup, and by how
much of the shared latents a linear regression predicts from them (0 is best). The part `real` uses
the problems of `benchmarks.default_answer`, and needs their data under `CONTRASTIVE_LVM_DATA`.

MOFA and contrastiveVI need mofapy2, and scvi-tools with PyTorch. Without them their lines are left
out. They are best installed into an environment of their own, with the sources of this package on
`PYTHONPATH`.

PLS-DA is told which rows are target and which are background, not the subgroups. Probabilistic
contrastive PCA (Li, Jones & Engelhardt 2020) has the closed form of its equation for the loadings:
leading eigenvectors of the target's scatter matrix minus gamma times the other's. MOFA has both
sets as groups and ten factors; the two are taken whose share of the variance is greatest in the
target relative to the background. ContrastiveVI has two salient and ten background dimensions.
"""

import contextlib
import io
import logging
import sys
import warnings
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from time import process_time
from typing import Any, NamedTuple

import numpy as np
from sklearn.decomposition import PCA
from sklearn.linear_model import LinearRegression

import contrastive_lvm as clvm
from benchmarks.default_answer import accuracy, problems
from contrastive_lvm.arrays import Array

GAMMAS = (0.2, 0.5, 0.8)
DATASETS = 3
LEAST = 1e-3  # share of the variance below which a factor of MOFA does not count
DEPTH = 1e4  # that counts of a row are scaled to before logarithms


class Planted(NamedTuple):
    """Two sets with known subgroups and shared latents; counts are raw."""

    target: Array
    background: Array
    labels: Any
    shared: Array
    counts: bool = False

    def sets(self) -> list[Array]:
        """Both sets as linear methods take them: counts as logarithms."""
        rows = [self.target, self.background]
        if self.counts:
            rows = [np.log1p(DEPTH * own / own.sum(axis=1, keepdims=True)) for own in rows]
        return rows


def pls_da(X: Array, B: Array) -> Array:
    """Two components of partial least squares on the label of the set (NIPALS)."""
    rows, y = np.concatenate([X, B]), np.repeat([1.0, 0.0], [len(X), len(B)])
    rows, y, scores = rows - rows.mean(axis=0), y - y.mean(), []
    for _ in range(2):
        w = rows.T @ y
        t = rows @ (w / np.linalg.norm(w))
        rows = rows - np.outer(t, rows.T @ t) / (t @ t)
        y = y - t * (t @ y) / (t @ t)
        scores.append(t)
    return np.stack(scores, axis=1)[: len(X)]


def pcpca(X: Array, B: Array, gamma: float) -> Array:
    """Latents along the two leading eigenvectors."""
    X, B = (rows - rows.mean(axis=0) for rows in (X, B))
    _, vectors = np.linalg.eigh(X.T @ X - gamma * B.T @ B)
    latents: Array = X @ vectors[:, -2:]
    return latents


def mofa(X: Array, B: Array, seed: int) -> Array:
    """Latents of the two of ten factors that explain most in X relative to B."""
    from mofapy2.run.entry_point import entry_point

    with contextlib.redirect_stdout(io.StringIO()):
        run = entry_point()
        run.set_data_options(scale_groups=False, scale_views=False)
        run.set_data_matrix([[X, B]])
        run.set_model_options(factors=10)
        run.set_train_options(seed=seed, quiet=True)
        run.build()
        run.run()
        shares = [np.ravel(own) for own in run.model.calculate_variance_explained()]
    factors = np.asarray(run.model.nodes["Z"].getExpectation())[: len(X)]
    ratios = (shares[0] + LEAST) / (shares[1] + LEAST)
    return factors[:, np.argsort(ratios)[-2:]]


def contrastive_vi(X: Array, B: Array, seed: int) -> Array:
    """Salient latents of raw counts, with early stopping."""
    import anndata
    import scvi
    from scvi.external import ContrastiveVI

    scvi.settings.seed, scvi.settings.verbosity = seed, logging.ERROR
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    both = anndata.AnnData(np.concatenate([X, B]).astype(np.float32))
    ContrastiveVI.setup_anndata(both)
    model = ContrastiveVI(both, n_salient_latent=2, n_background_latent=10)
    model.train(
        background_indices=list(range(len(X), len(X) + len(B))),
        target_indices=list(range(len(X))),
        accelerator="cpu",
        early_stopping=True,
        enable_progress_bar=False,
    )
    target = both[: len(X)]
    return np.asarray(model.get_latent_representation(target, representation_kind="salient"))


def ours(X: Array, B: Array, **params: Any) -> Array:
    """Latents of the model of this package, all else by default."""
    return projected(clvm.ContrastiveLVM(**params), X, B)


def projected(estimator: Any, X: Array, B: Array) -> Array:
    """Fit an estimator of this package and return the latents of X."""
    return np.asarray(estimator.fit(X, background=B).transform(X))


def methods(problem: Planted, seed: int) -> Iterator[tuple[str, Callable[[], Array]]]:
    """Yield what can be run on a problem, by name."""
    X, B = problem.sets()
    filled = _filled(X), _filled(B)
    yield "this package", lambda: ours(X, B)
    if problem.counts:
        raw = problem.target, problem.background
        yield "this package, negative binomial", lambda: ours(*raw, likelihood="negative_binomial")
        if find_spec("scvi"):
            yield "contrastiveVI", lambda: contrastive_vi(*raw, seed)
    if find_spec("mofapy2"):
        yield "MOFA", lambda: mofa(X, B, seed)
    gcpca, cpca = clvm.GeneralizedContrastivePCA(), clvm.ContrastivePCA()
    yield "gcPCA v4", lambda: projected(gcpca, *filled)
    yield "cPCA", lambda: projected(cpca, *filled)
    yield "PCPCA, gamma = 0.5", lambda: pcpca(*filled, 0.5)
    yield "PLS-DA", lambda: pls_da(*filled)
    yield "PCA", lambda: np.asarray(PCA(2).fit_transform(filled[0]))


def plant(
    seed: int,
    *,
    rows: tuple[int, int] = (450, 300),
    n_features: int = 100,
    strength: float = 3.0,
    responders: bool = False,
    curve: bool = False,
    missing: float = 0.0,
    counts: bool = False,
) -> Planted:
    """Draw three subgroups in two target dimensions, over five shared dimensions.

    Shared loadings are `strength` times as large as those of the target. The means of the
    subgroups form a triangle around the mean of the background; with `responders`, one of them is
    at this mean. With `curve`, the subgroups are thirds of a closed curve that bends through six
    dimensions. Counts are Poisson, with depths that vary between rows.
    """
    rng = np.random.default_rng([seed, 28])
    labels = rng.integers(0, 3, rows[0])
    corners = np.array([[1.0, 0.0], [-0.5, 3**0.5 / 2], [-0.5, -(3**0.5) / 2]])
    t = (corners - (corners[0] if responders else 0.0))[labels]
    t += 0.3 * rng.standard_normal((rows[0], 2))
    if curve:
        angles = 2.0 * np.pi * (labels + rng.random(rows[0])) / 3.0
        t = np.column_stack([f(k * angles) for k in (1, 2, 3) for f in (np.cos, np.sin)]) / 3**0.5
    W = rng.standard_normal((n_features, t.shape[1])) / 3.0
    S = strength * rng.standard_normal((n_features, 5)) / 3.0
    z = [rng.standard_normal((n, 5)) for n in rows]
    predictors = [z[0] @ S.T + t @ W.T, z[1] @ S.T]
    if not counts:
        sets = [x + rng.standard_normal(x.shape) for x in predictors]
        sets = [np.where(rng.random(x.shape) < missing, np.nan, x) for x in sets]
        return Planted(sets[0], sets[1], labels, z[0])
    levels = rng.normal(-1.0, 1.0, n_features)
    depths = [np.exp(0.4 * rng.standard_normal((n, 1))) for n in rows]
    rates = [d * np.exp(x + levels) for d, x in zip(depths, predictors, strict=True)]
    sets = [rng.poisson(np.minimum(own, 1e5)).astype(float) for own in rates]
    kept = [own.sum(axis=1) > 0 for own in sets]
    return Planted(sets[0][kept[0]], sets[1][kept[1]], labels[kept[0]], z[0][kept[0]], counts=True)


PROBLEMS: dict[str, dict[str, Any]] = {
    "weak shared structure": {"strength": 1.0},
    "strong shared structure": {"strength": 3.0},
    "the same, 60 background rows": {"strength": 3.0, "rows": (450, 60)},
    "the same, a third does not respond": {"strength": 3.0, "responders": True},
    "strong shared structure, 20 % missing": {"strength": 3.0, "missing": 0.2},
    "counts, shared structure": {
        "strength": 1.0,
        "rows": (1200, 800),
        "n_features": 200,
        "counts": True,
    },
    "counts, a third of the cells does not respond": {
        "strength": 1.0,
        "rows": (1200, 800),
        "n_features": 200,
        "counts": True,
        "responders": True,
    },
    "counts, a response along a curve": {
        "strength": 1.0,
        "rows": (1200, 800),
        "n_features": 200,
        "counts": True,
        "curve": True,
    },
}


def planted(first: int) -> None:
    """Print a line for each planted problem and method: means over the datasets."""
    print("problem | method | accuracy (least) | R2 of shared latents | seconds")
    for name, params in PROBLEMS.items():
        found: dict[str, list[tuple[float, float, float]]] = {}
        for seed in range(first, first + DATASETS):
            problem = plant(seed, **params)
            for method, answer in methods(problem, seed):
                start = process_time()
                latents = answer()
                seconds = process_time() - start
                score = accuracy(latents, problem.labels)
                found.setdefault(method, []).append((score, _leak(latents, problem), seconds))
        for method, lines in found.items():
            score, leak, seconds = np.mean(lines, axis=0)
            least = min(line[0] for line in lines)
            print(f"{name} | {method} | {score:.2f} ({least:.2f}) | {leak:.2f} | {seconds:.2g}")
        sys.stdout.flush()


def _leak(latents: Array, problem: Planted) -> float:
    """Return the share of the shared latents' variance within subgroups that latents predict."""
    own = [problem.labels == label for label in np.unique(problem.labels)]
    centred = [np.array(rows, dtype=float) for rows in (latents, problem.shared)]
    for rows in centred:
        for chosen in own:
            rows[chosen] -= rows[chosen].mean(axis=0)
    return float(LinearRegression().fit(*centred).score(*centred))


def real() -> None:
    """Print a line for each real problem, and the means."""
    print("problem | this package | PLS-DA | PCPCA, gamma =", *GAMMAS)
    lines = []
    for problem in problems():
        sets = _filled(problem.target), _filled(problem.background)
        found = [accuracy(ours(problem.target, problem.background), problem.labels)]
        found.append(accuracy(pls_da(*sets), problem.labels))
        found += [accuracy(pcpca(*sets, gamma), problem.labels) for gamma in GAMMAS]
        lines.append(found)
        print(problem.name, *(f"{value:.3f}" for value in found), sep=" | ", flush=True)
    print("mean", *(f"{value:.3f}" for value in np.mean(lines, axis=0)), sep=" | ")


def _filled(rows: Array) -> Array:
    """Means in place of missing entries."""
    return np.where(np.isnan(rows), np.nanmean(rows, axis=0), rows)


def main() -> None:
    """Run the parts that were named, or both."""
    warnings.simplefilter("ignore")  # of fits that could be better, and of other packages
    words = sys.argv[1:]
    seeds = [int(word) for word in words if word.isdigit()]
    if "planted" in words or "real" not in words:
        planted(seeds[0] if seeds else 0)
    if "real" in words or "planted" not in words:
        real()


if __name__ == "__main__":
    main()
