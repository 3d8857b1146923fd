"""Are subgroups right as often as they say? Rewrites docs/subgroups.md.

Run `python -m benchmarks.subgroups [DATASETS]`, with the number of datasets of each kind without
subgroups, by default 200; that takes about an hour, and some minutes with 5.
"""

import sys
import time
from collections.abc import Callable, Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.optimize import linear_sum_assignment
from sklearn.cluster import KMeans
from sklearn.decomposition import PCA
from sklearn.metrics import adjusted_rand_score, roc_auc_score
from sklearn.mixture import GaussianMixture
from sklearn.neighbors import NearestNeighbors

import contrastive_lvm as clvm
from contrastive_lvm.estimators.subgroups import linear_view
from contrastive_lvm.experiments.mice import with_missing
from contrastive_lvm.resampling.subgroup_number import latent_units, ratio_pvalue

Array = npt.NDArray[np.float64]
PAGE = Path(__file__).parent.parent / "docs" / "subgroups.md"
N_DATASETS, N_ROWS, N_FEATURES = 60, 400, 10
FIRST_SEED = 100  # of planted mixtures; others were looked at before
CENTRES = np.array([[-1.0, 0.0], [1.0, 0.5]])
EDGES = (0.5, 0.6, 0.7, 0.8, 0.9, 0.99, 1.0)
HEAD = f"""# Probabilities of subgroups

`python -m benchmarks.subgroups` repeats the tables on this page.

## Are they right?

We planted two overlapping subgroups in {N_DATASETS} datasets of {N_ROWS} rows and {N_FEATURES}
features, and fitted a model with `latent_prior=Mixture(2)` to each. The table sorts rows by the
probability of their most probable subgroup. If the probabilities are right, the last two columns
agree.

| probability | rows | mean probability | share that is right |
|---|---|---|---|
"""
ONE = """
## One cloud is one subgroup

We drew rows of 20 features with one cloud of target latents, three shared dimensions and noise. To
each dataset we fitted a model and applied `choose_subgroups`. Two normal distributions fit a skewed
cloud better than one. `choose_subgroups` therefore considers a number of subgroups only if there is
a valley between every two of them.

| target latents | dimensions | rows | datasets | one subgroup |
|---|---|---|---|---|
"""
LEVEL = """
`choose_subgroups` also compares the likelihood ratio of two subgroups against one with the ratios
of samples of the standard model (19 here). On its own this comparison should reject one normal
cloud in 5 % of the cases. Replicates have correlated rows, so the means of their latents take the
place of rows.

| one normal cloud | dimensions | rows | datasets | rejected at 5 % | at 10 % |
|---|---|---|---|---|---|
"""
APART = """
## What sets subgroups apart?

Of 20 features, ten differed between planted subgroups and ten did not. `subgroup_differences` used
40 resamples. A 90 % interval should contain the true difference in 90 % of the cases. Of features
without any difference, 5 % should have p-values of .05 or less.

| planted | datasets | coverage, features that differ | coverage, others | others: p <= .05 |
|---|---|---|---|---|
"""
FORCED = """
Any cloud that is cut in two has "differences". We split one cloud of {rows} rows with
`Mixture(2, "shared")`. The table has the share of datasets in which any of the 20 features had a
p-value of .05 or less. The last column has the same share for t-tests that take the subgroups as
known.

| target latents | dimensions | datasets | any p <= .05 | as if known |
|---|---|---|---|---|
"""
MICE = """
## Mice

We fitted two subgroups to 270 rows of 18 animals, with Student-t noise and without labels. The
table has their agreement with the genotype, the adjusted Rand index, over ten random patterns of
additional missing entries. The column "k-means" is for clusters of the latents of the model without
subgroups.

| target | patterns | `Mixture(2)` | k-means | higher in | lower in |
|---|---|---|---|---|---|
"""
COST = """
## What does it cost?

The table compares the processor time of a fit with two subgroups with the time of a fit without
subgroups to the same rows. It has the median of five datasets and the largest ratio.

| noise | rows | features | ratio | largest |
|---|---|---|---|---|
"""
RESPONSE = """
## Which cells responded?

Of 1,500 blood cells, 1,000 were given interferon (`fetch_kang_pbmc`). Another 500 cells are the
background. `responders` uses log counts and `ContrastiveLVM(2)`. Mixscape's way subtracts from each
cell the mean of its 20 nearest controls, and fits a mixture of two normal distributions to the
first principal components of the rest. For the calibration error, cells are sorted into ten bins of
probability. It is the mean distance between the mean probability of a bin and the share of its
cells that were given interferon.

| method | AUC | calibration error |
|---|---|---|
"""
STRENGTH = """
The strength of a response has an interval, given the fitted model. We planted responses in half of
the 400 rows of 40 datasets. The 90 % intervals contained {one:.1%} of the true strengths with one
target dimension, and {two:.1%} with two.
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


def covered(n_dimensions: int, seed: int) -> float:
    """Return the share of true strengths of response that are in their 90 % intervals."""
    rng, T = np.random.default_rng(seed), n_dimensions
    W, S = rng.normal(size=(N_FEATURES, T)), rng.normal(size=(N_FEATURES, 2))
    responded = rng.random((N_ROWS, 1)) < 0.5
    t, base = 0.3 * rng.normal(size=(2, N_ROWS, T))
    t = np.where(responded, 2.5 + rng.normal(size=(N_ROWS, T)), t)
    shared = rng.normal(size=(2, N_ROWS, 2)) @ S.T
    noise = 0.7 * rng.normal(size=(2, N_ROWS, N_FEATURES))
    X, Y = t @ W.T + shared[0] + noise[0], base @ W.T + shared[1] + noise[1]
    model = clvm.ContrastiveLVM(T, 2).fit(X, background=Y)
    found = clvm.responders(model, X, background=Y)
    true = t @ W.T @ np.linalg.pinv(model.target_components_)
    return float(((found.low <= true) & (true <= found.high)).mean())


def one_cloud(kind: str, n_dimensions: int, n: int, seed: int) -> tuple[Array, Array, Any]:
    """Draw one normal cloud, whose rows may be alike within replicates."""
    rng, groups = np.random.default_rng(seed), None
    W, S = rng.standard_normal((20, n_dimensions)), rng.standard_normal((20, 3))
    h = rng.standard_normal((n, n_dimensions))
    if kind != "rows":
        sizes = np.full(n // 5, 5) if kind == "replicates of 5" else np.tile([2, 8], n // 10)
        groups = np.repeat(np.arange(len(sizes)), sizes)
        h = (
            np.sqrt(0.7) * rng.standard_normal((len(sizes), n_dimensions))[groups]
            + np.sqrt(0.3) * h
        )
    shared, noise = rng.standard_normal((2, n, 3)), 0.5 * rng.standard_normal((2, n, 20))
    return h @ W.T + shared[0] @ S.T + noise[0], shared[1] @ S.T + noise[1], groups


def ratio(kind: str, n_dimensions: int, n: int, seed: int) -> float:
    """Return the p-value of the likelihood ratio alone for one normal cloud."""
    X, Y, groups = one_cloud(kind, n_dimensions, n, seed)
    model = clvm.ContrastiveLVM(n_dimensions, 3).fit(X, background=Y)
    units = latent_units(linear_view(model._fitted()), X, n_dimensions, groups)
    return ratio_pvalue(units, clvm.Mixture(2), 19, np.random.default_rng(seed))


LEVELS = [
    ("rows", 2, 100),
    ("replicates of 5", 2, 200),
    ("replicates of 2 and 8", 2, 200),
    ("rows", 2, 400),
    ("rows", 1, 100),
    ("replicates of 5", 1, 400),
]
PLANTED: dict[str, tuple[int, list[list[float]], list[float]]] = {
    "two in two dimensions, 200 rows": (200, [[-1.5, 0.0], [1.5, 0.5]], [0.5, 0.5]),
    "two of 70 and 30 % in one dimension, 200 rows": (200, [[-1.5], [1.5]], [0.7, 0.3]),
    "three, 400 rows": (400, [[-2.0, 0.0], [1.0, 1.7], [1.0, -1.7]], [0.5, 0.3, 0.2]),
    "two, 30 replicates of 8 rows": (240, [[-1.5, 0.0], [1.5, 0.5]], [0.5, 0.5]),
}


def apart(name: str, seed: int) -> tuple[list[bool], ...]:
    """Compare planted subgroups: what intervals cover, and p-values without any difference."""
    rng, (n, centres, shares) = np.random.default_rng(seed), PLANTED[name]
    mu, pi, size = np.array(centres), np.array(shares), 8 if "replicates" in name else 1
    W, S, T = rng.standard_normal((20, mu.shape[1])), rng.standard_normal((20, 3)), mu.shape[1]
    W[10:] = 0.0
    unit = np.repeat(np.arange(n // size), size)

    def alike(n_dimensions: int) -> Array:
        own = rng.standard_normal((n, n_dimensions))
        if size == 1:
            return own
        own += rng.standard_normal((n // size, n_dimensions))[unit]
        return np.asarray(np.sqrt(0.5) * own)

    labels = rng.choice(len(pi), n // size, p=pi)[unit]
    X = (mu[labels] + 0.6 * alike(T)) @ W.T + alike(3) @ S.T + 0.7 * rng.standard_normal((n, 20))
    Y = alike(3) @ S.T + 0.7 * rng.standard_normal((n, 20))
    model = clvm.ContrastiveLVM(T, 3, latent_prior=clvm.Mixture(len(pi))).fit(X, background=Y)
    given = {} if size == 1 else {"groups": unit, "background_groups": unit + n}
    words: dict[str, Any] = {"n_resamples": 40, "random_state": seed, **given}
    found = clvm.subgroup_differences(model, X, background=Y, **words)
    member = np.eye(len(pi))
    order = linear_sum_assignment(-(member[model.predict(X)].T @ member[labels]))[1]
    true = (((mu - pi @ mu) @ W.T)[order]).ravel()
    table, differs = found.table, np.tile(np.arange(20) < 10, len(pi))
    seen = table["std"].notna().to_numpy()
    inside = ((table.low <= true) & (true <= table.high)).to_numpy()
    small = (table.pvalue <= 0.05).to_numpy()
    parts = (inside[seen & differs], inside[seen & ~differs], small[~differs])
    return tuple(np.asarray(part).tolist() for part in parts)


def forced(name: str, n_dimensions: int, seed: int) -> tuple[bool, bool]:
    """Split one cloud in two, and return whether any feature is significant, here and naively."""
    from scipy.stats import ttest_ind

    rng = np.random.default_rng(seed)
    W, S = rng.standard_normal((20, n_dimensions)), rng.standard_normal((20, 3))
    h = CLOUDS[name](rng, (N_ROWS, n_dimensions))
    h = (h - h.mean(axis=0)) / np.maximum(h.std(axis=0), 1e-12)
    shared, noise = rng.standard_normal((2, N_ROWS, 3)), 0.5 * rng.standard_normal((2, N_ROWS, 20))
    X, Y = h @ W.T + shared[0] @ S.T + noise[0], shared[1] @ S.T + noise[1]
    prior = clvm.Mixture(2, "shared")
    model = clvm.ContrastiveLVM(n_dimensions, 3, latent_prior=prior).fit(X, background=Y)
    found = clvm.subgroup_differences(model, X, background=Y, n_resamples=5, random_state=seed)
    first = model.predict(X) == 0
    naive = first.any() and not first.all() and ttest_ind(X[first], X[~first]).pvalue.min() <= 0.05
    return bool((found.table.pvalue <= 0.05).any()), bool(naive)


def mice(share: float, seed: int) -> tuple[float, float]:
    """Return the agreement with genotype of two subgroups, and of k-means."""
    data = clvm.datasets.fetch_mice_protein()
    X, Y = with_missing(data, share, seed)
    plain = clvm.ContrastiveLVM(2, 2, likelihood="student_t").fit(X, background=Y)
    model = clvm.ContrastiveLVM(2, 2, likelihood="student_t", latent_prior=clvm.Mixture(2))
    clusters = KMeans(2, n_init=20, random_state=0).fit_predict(plain.transform(X))
    found = clusters, model.fit(X, background=Y).predict(X)
    k, own = (float(adjusted_rand_score(data.target_labels, labels)) for labels in found)
    return own, k


def cost(likelihood: str, n: int, n_features: int, seed: int) -> float:
    """Return the time of a fit with two subgroups over that of one without."""
    rng = np.random.default_rng(seed)
    W, S = rng.standard_normal((n_features, 2)), rng.standard_normal((n_features, 8))
    t = CENTRES[rng.integers(0, 2, n)] + 0.4 * rng.standard_normal((n, 2))
    shared, noise = rng.standard_normal((2, n, 8)), rng.standard_normal((2, n, n_features))
    X, Y = t @ W.T + shared[0] @ S.T + noise[0], shared[1] @ S.T + noise[1]

    def seconds(prior: clvm.Mixture | None) -> float:
        start = time.process_time()
        clvm.ContrastiveLVM(2, 8, likelihood=likelihood, latent_prior=prior).fit(X, background=Y)
        return time.process_time() - start

    pairs = [(seconds(None), seconds(clvm.Mixture(2))) for _ in range(5)]
    plain, mixed = (min(own) for own in zip(*pairs, strict=True))
    return float(mixed / plain)


def each(function: Callable[..., Any], *words: Any, seeds: Iterable[int]) -> list[Any]:
    """Return what a function finds with each seed."""
    return [function(*words, seed) for seed in seeds]


def probabilities() -> str:
    """Return the lines of the table of probabilities."""
    found = each(outcome, seeds=range(FIRST_SEED, FIRST_SEED + N_DATASETS))
    said, right = (np.concatenate(part) for part in zip(*found, strict=True))
    text = ""
    for low, high in pairwise(EDGES):
        own = (said >= low) & ((said < high) | (high == 1.0))
        numbers = f"{own.sum()} | {said[own].mean():.3f} | {right[own].mean():.3f}"
        text += f"| {low:g} to {high:g} | {numbers} |\n"
    return text


def clouds(n: int) -> str:
    """Return the lines of the tables of one cloud."""
    text, seeds = ONE, range(1000, 1000 + n)
    for name in CLOUDS:
        for T, rows in ((1, 100), (1, 400), (2, 100), (2, 400)):
            ones = np.mean(each(one_subgroup, name, T, rows, seeds=seeds))
            text += f"| {name} | {T} | {rows} | {n} | {ones:.1%} |\n"
    text += LEVEL
    for kind, T, rows in LEVELS:
        p = np.array(each(ratio, kind, T, rows, seeds=range(300_000, 300_000 + n)))
        level = [f"{(p <= share + 1e-9).mean():.1%}" for share in (0.05, 0.1)]
        text += f"| {kind} | {T} | {rows} | {n} | {' | '.join(level)} |\n"
    return text


def distinctions(n: int) -> str:
    """Return the lines of the tables of differences."""
    text, few = APART, max(2, 3 * n // 10)
    for name in PLANTED:
        parts = zip(*each(apart, name, seeds=range(9000, 9000 + few)), strict=True)
        shares = [f"{np.mean(np.concatenate(part)):.1%}" for part in parts]
        text += f"| {name} | {few} | {' | '.join(shares)} |\n"
    text += FORCED.format(rows=N_ROWS)
    for name in ("normal", "t, 5 degrees of freedom", "exponential"):
        for T in (1, 2):
            found = np.mean(each(forced, name, T, seeds=range(7000, 7000 + n // 2)), axis=0)
            text += f"| {name} | {T} | {n // 2} | {found[0]:.1%} | {found[1]:.1%} |\n"
    return text


def mice_and_cost(n_patterns: int) -> str:
    """Return the tables of the mice and of costs."""
    text = MICE
    for share in (0.0, 0.25, 0.5, 0.75):
        seeds = range(10, 10 + n_patterns) if share else range(1)
        own, k = np.array(each(mice, share, seeds=seeds)).T
        name = f"{share:.0%} missing" if share else "as it is"
        ahead = f"{(own > k + 1e-9).sum()} | {(own < k - 1e-9).sum()}"
        text += f"| {name} | {len(own)} | {own.mean():.3f} | {k.mean():.3f} | {ahead} |\n"
    text += COST
    for likelihood, n, d in (
        ("gaussian", 400, 30),
        ("gaussian", 2000, 50),
        ("gaussian", 20000, 100),
        ("student_t", 400, 30),
    ):
        ratios = [cost(likelihood, n, d, seed) for seed in range(5)]
        numbers = f"{np.median(ratios):.2f} | {np.max(ratios):.2f}"
        text += f"| {likelihood} | {n:,} | {d} | {numbers} |\n"
    return text


def main() -> None:
    """Write the page."""
    n = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    text = HEAD + probabilities() + clouds(n) + distinctions(n)
    text += RESPONSE + "\n".join(responses()) + "\n"
    one, two = (np.mean(each(covered, T, seeds=range(50, 90))) for T in (1, 2))
    text += STRENGTH.format(one=one, two=two) + mice_and_cost(min(10, n))
    PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
