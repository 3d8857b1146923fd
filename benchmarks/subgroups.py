"""Are subgroups right as often as they say? Rewrites docs/subgroups.md.

Run `python -m benchmarks.subgroups [DATASETS]`, with the number of datasets of each kind without
subgroups, by default 200; that takes about half an hour, and a minute with 5.
"""

import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt
from sklearn.decomposition import PCA
from sklearn.metrics import roc_auc_score
from sklearn.mixture import GaussianMixture
from sklearn.neighbors import NearestNeighbors

import contrastive_lvm as clvm

Array = npt.NDArray[np.float64]
PAGE = Path(__file__).parent.parent / "docs" / "subgroups.md"
N_DATASETS, N_ROWS, N_FEATURES = 20, 400, 10
CENTRES = np.array([[-1.0, 0.0], [1.0, 0.5]])
EDGES = (0.5, 0.6, 0.7, 0.8, 0.9, 0.99, 1.0)
HEAD = f"""# Probabilities of subgroups

`python -m benchmarks.subgroups` repeats the tables on this page.

## Are they right?

Two overlapping subgroups were planted in {N_DATASETS} datasets of {N_ROWS} rows and {N_FEATURES}
features, and a model with `latent_prior=Mixture(2)` was fitted to each. Rows are sorted by the
probability of their most probable subgroup.

| probability | rows | mean probability | share that is right |
|---|---|---|---|
"""
ONE = """
## One cloud is one subgroup

Rows of 20 features with one cloud of target latents, three shared dimensions and noise were drawn,
a model was fitted and `choose_subgroups` asked, all from the rows on. Two components fit a skewed
cloud better than one; a number is therefore considered only if there is a valley between every two
subgroups. Of five and eight dimensions 98 of 100 datasets of each kind, at least, had one subgroup
(before components had a least width of a tenth of the whole, and not repeated here).

| target latents | dimensions | rows | datasets | one subgroup |
|---|---|---|---|---|
"""
RESPONSE = """
## Which cells responded?

1,000 of 1,500 blood cells were given interferon (`fetch_kang_pbmc`); 500 others are the background.
Beside `responders` (log counts, `ContrastiveLVM(2)`) stands Mixscape's way: the mean of the 20
nearest controls is subtracted from each cell, and a mixture of two normal distributions is fitted
to the first principal components of the rest. The calibration error is the mean distance, over ten
bins of probability, of the mean probability from the share that had been treated.

| method | AUC | calibration error |
|---|---|---|
"""
STRENGTH = """
The strength of response has an interval. Of 20 planted datasets of 400 rows, half of which
responded, {inside:.1%} of the true strengths were in their 90 % intervals, which are given the
fitted model.
"""


def outcome(seed: int) -> tuple[Array, npt.NDArray[np.bool_]]:
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


def _banana(rng: np.random.Generator, size: tuple[int, int]) -> Array:
    h = rng.standard_normal(size)
    if size[1] > 1:
        h[:, 1] = 0.3 * h[:, 1] + h[:, 0] ** 2
    return h


CLOUDS: dict[str, Callable[[np.random.Generator, tuple[int, int]], Array]] = {
    "none (no target dimension)": lambda _, size: np.zeros(size),
    "normal": lambda rng, size: rng.standard_normal(size),
    "t, 5 degrees of freedom": lambda rng, size: rng.standard_t(5, size),
    "exponential": lambda rng, size: rng.exponential(size=size),
    "lognormal": lambda rng, size: np.exp(rng.standard_normal(size)),
    "bent": _banana,
}


def one_subgroup(name: str, n_dimensions: int, n: int, seed: int) -> bool:
    """Draw one cloud, and return whether one subgroup is found in it."""
    rng = np.random.default_rng(seed)
    W, S = rng.standard_normal((20, n_dimensions)), rng.standard_normal((20, 3))
    h = CLOUDS[name](rng, (n, n_dimensions))
    h = (h - h.mean(axis=0)) / np.maximum(h.std(axis=0), 1e-12)
    shared, noise = rng.standard_normal((2, n, 3)), 0.5 * rng.standard_normal((2, n, 20))
    X, Y = h @ W.T + shared[0] @ S.T + noise[0], shared[1] @ S.T + noise[1]
    model = clvm.ContrastiveLVM(n_dimensions, 3)
    found = clvm.choose_subgroups(X, background=Y, model=model, random_state=seed)
    return found.n_components == 1


def calibration_error(probabilities: Array, right: npt.NDArray[np.intp]) -> float:
    """Return the expected calibration error over ten bins."""
    bins = np.minimum((10 * probabilities).astype(int), 9)
    own = [bins == b for b in np.unique(bins)]
    gaps = [m.mean() * abs(probabilities[m].mean() - right[m].mean()) for m in own]
    return float(np.sum(gaps))


def mixscape(X: Array, Y: Array, n_components: int) -> Array:
    """Return probabilities of response from components of what nearest controls leave."""
    whole = PCA(30, random_state=0).fit(np.vstack([X, Y]))
    near = NearestNeighbors(n_neighbors=21).fit(whole.transform(Y))
    left = X - Y[near.kneighbors(whole.transform(X), n_neighbors=20)[1]].mean(axis=1)
    control = Y - Y[near.kneighbors(whole.transform(Y))[1][:, 1:]].mean(axis=1)
    few = PCA(n_components, random_state=0).fit(left)
    mixture = GaussianMixture(2, n_init=10, random_state=0).fit(few.transform(left))
    away = ((mixture.means_ - few.transform(control).mean(axis=0)) ** 2).sum(axis=1)
    return np.asarray(mixture.predict_proba(few.transform(left))[:, away.argmax()])


def responses() -> list[str]:
    """Return the lines of the table of responding cells."""
    data = clvm.datasets.fetch_kang_pbmc()
    X, Y = (np.log1p(np.asarray(rows, dtype=float)) for rows in (data.target, data.background))
    model = clvm.ContrastiveLVM(2).fit(X, background=Y)
    found = {"`responders`": clvm.responders(model, X, background=Y).probabilities}
    for k in (1, 2, 3):
        found[f"Mixscape's way, {k} component{'s' if k > 1 else ''}"] = mixscape(X, Y, k)
    y = data.target_labels
    return [
        f"| {name} | {roc_auc_score(y, p):.3f} | {calibration_error(p, y):.3f} |"
        for name, p in found.items()
    ]


def covered(seed: int) -> float:
    """Return the share of true strengths of response that are in their 90 % intervals."""
    rng = np.random.default_rng(seed)
    W, S = rng.normal(size=(N_FEATURES, 1)), rng.normal(size=(N_FEATURES, 2))
    t = np.where(
        rng.random(N_ROWS) < 0.5, 0.3 * rng.normal(size=N_ROWS), 2.5 + rng.normal(size=N_ROWS)
    )
    base = 0.3 * rng.normal(size=N_ROWS)
    shared = rng.normal(size=(2, N_ROWS, 2)) @ S.T
    noise = 0.7 * rng.normal(size=(2, N_ROWS, N_FEATURES))
    X, Y = t[:, None] @ W.T + shared[0] + noise[0], base[:, None] @ W.T + shared[1] + noise[1]
    model = clvm.ContrastiveLVM(1, 2).fit(X, background=Y)
    found = clvm.responders(model, X, background=Y)
    w = model.target_components_[0]
    true = t * float(np.linalg.norm(W)) / float(np.linalg.norm(w)) * np.sign(w @ W[:, 0])
    return float(((found.low[:, 0] <= true) & (true <= found.high[:, 0])).mean())


def main() -> None:
    """Write the page."""
    n_clouds = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    found = [outcome(seed) for seed in range(N_DATASETS)]
    said, right = (np.concatenate(part) for part in zip(*found, strict=True))
    text = HEAD
    for low, high in pairwise(EDGES):
        own = (said >= low) & ((said < high) | (high == 1.0))
        numbers = f"{own.sum()} | {said[own].mean():.3f} | {right[own].mean():.3f}"
        text += f"| {low:g} to {high:g} | {numbers} |\n"
    text += ONE
    for name in CLOUDS:
        for T, n in ((1, 100), (1, 400), (2, 100), (2, 400)):
            ones = sum(one_subgroup(name, T, n, 1000 + seed) for seed in range(n_clouds))
            text += f"| {name} | {T} | {n} | {n_clouds} | {ones / n_clouds:.1%} |\n"
    text += RESPONSE + "\n".join(responses()) + "\n"
    text += STRENGTH.format(inside=np.mean([covered(seed) for seed in range(20)]))
    PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
