"""Levels and power of `contrast_test`: `python -m benchmarks.contrast_levels [--write] [SEED]`.

Prints the share of datasets with a p-value of at most 5 %: on simulated and real sets without
contrast it should lie between 2 and 8 %, on sets with contrast it is the power. With `--write` the
tables go to `docs/contrast_test.md`. Real data is looked for under `CONTRASTIVE_LVM_DATA`.
Settings of the test were chosen with other seeds.
"""

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
from joblib import Parallel, delayed

import contrastive_lvm as clvm
from benchmarks import contrast_problems as problems
from benchmarks.contrast_peers import cde_pvalue, gcpca_pvalue
from benchmarks.contrast_problems import Problem, simulate
from contrastive_lvm.arrays import Array

DATASETS, PEER_DATASETS, SPLITS = 400, 200, 400
LEVEL = 0.05
PAGE = Path(__file__).parent.parent / "docs" / "contrast_test.md"
Make = Callable[[np.random.Generator], Problem]
PValue = Callable[[Problem, np.random.Generator], float]

NULLS: dict[str, Make] = {
    "Gaussian": simulate,
    "t with 5 degrees of freedom": partial(simulate, draw=problems.heavy),
    "lognormal": partial(simulate, draw=problems.lognormal),
    "noise unequal by feature": partial(simulate, unequal=True),
    "400 + 60 rows": partial(simulate, rows=(400, 60)),
    "60 + 400 rows": partial(simulate, rows=(60, 400)),
    "60 + 60 rows, 200 features": partial(simulate, rows=(60, 60), n_features=200),
    "20 % missing": partial(simulate, missing=0.2),
    "15 rows a subject, `groups`": problems.subjects,
    "noise deviation 1.5 x in the target": partial(simulate, deviations=(1.5, 1.0)),
    "noise deviation 1.5 x in the background": partial(simulate, deviations=(1.0, 1.5)),
    "noise of each set's own by feature": problems.own_noise,
    "the same, t with 5 degrees of freedom": partial(problems.own_noise, draw=problems.heavy),
    "the same, 60 + 400 rows": partial(problems.own_noise, rows=(60, 400)),
    "Poisson, means differ": problems.counts,
    "Poisson, target counted 3 x as deeply": partial(problems.counts, depth=3.0),
    "Poisson, 20 % missing": partial(problems.counts, missing=0.2),
    "negative binomial, means differ": partial(problems.counts, dispersion=0.5),
    "binary, means differ": partial(problems.counts, binary=True),
    "1.5 x in the target, unequal by feature": partial(
        simulate, deviations=(1.5, 1.0), unequal=True
    ),
    "1.5 x in the background, unequal by feature": partial(
        simulate, deviations=(1.0, 1.5), unequal=True
    ),
}
COMPARED = ("Gaussian", "t with 5 degrees of freedom", "lognormal", "noise unequal by feature")
CONTRASTS = (0.5, 1.0, 2.0, 4.0)


def own_pvalue(problem: Problem, rng: np.random.Generator, n_resamples: int = 99) -> float:
    """Return the p-value of `contrast_test`."""
    return test(problem, rng, n_resamples).pvalue


def test(problem: Problem, rng: np.random.Generator, n_resamples: int) -> clvm.ContrastTest:
    """Run `contrast_test` on a problem."""
    return clvm.contrast_test(
        problem.target,
        background=problem.background,
        groups=problem.groups,
        background_groups=problem.background_groups,
        paired=problem.paired,
        model=clvm.ContrastiveLVM(likelihood=problem.likelihood),
        n_resamples=n_resamples,
        random_state=rng,
    )


def rejections(make: Make, n_datasets: int, seed: int, pvalue: PValue = own_pvalue) -> float:
    """Return the share of datasets that are called contrast at 5 %."""
    calls = (delayed(_one)(make, pvalue, [seed, i]) for i in range(n_datasets))
    return float(np.mean(Parallel(n_jobs=2)(calls)))


def _one(make: Make, pvalue: PValue, seed: list[int]) -> bool:
    rng = np.random.default_rng(seed)
    return pvalue(make(rng), rng) <= LEVEL


def levels(seed: int) -> list[str]:
    """Return the table of simulated sets without contrast."""
    lines = ["| sets without contrast | rejected |", "|---|---|"]
    for name, make in NULLS.items():
        lines.append(f"| {name} | {rejections(make, DATASETS, seed):.3f} |")
        print(lines[-1], flush=True)
    return lines


def powers(seed: int) -> list[str]:
    """Return the table of power by the size and the number of dimensions of the contrast."""
    head = " | ".join(f"w = {w:g}" for w in CONTRASTS)
    lines = [f"| dimensions of the contrast | {head} |", "|---|" + "---|" * len(CONTRASTS)]
    kinds: dict[str, Callable[..., Problem]] = {
        "2": partial(simulate, n_target=2),
        "1": partial(simulate, n_target=1),
        "2, Poisson": problems.counts,
    }
    for name, kind in kinds.items():
        makes = [partial(kind, contrast=w) for w in CONTRASTS]
        found = " | ".join(f"{rejections(make, DATASETS, seed):.3f}" for make in makes)
        lines.append(f"| {name} | {found} |")
        print(lines[-1], flush=True)
    return lines


def oracles(seed: int) -> list[str]:
    """Return the power of tests of one dimension that are told the shared directions."""
    rng, n_datasets = np.random.default_rng([seed, 1]), 5 * DATASETS
    null = np.array([_told_statistics(rng, 0.0) for _ in range(2 * n_datasets)])
    limits = np.quantile(null, 1.0 - LEVEL, axis=0)
    found = [
        (np.array([_told_statistics(rng, w) for _ in range(n_datasets)]) > limits).mean(axis=0)
        for w in CONTRASTS
    ]
    head = " | ".join(f"w = {w:g}" for w in CONTRASTS)
    lines = [f"| told | {head} |", "|---|" + "---|" * len(CONTRASTS)]
    told = ("shared directions and noise", "shared directions; noise of each set's own level")
    table = dict(zip((*told, "the same, of each feature"), np.transpose(found), strict=True))
    table["shared directions and noise, permutes rows"] = np.array(
        [np.mean([_told_pvalue(rng, w) <= LEVEL for _ in range(n_datasets)]) for w in CONTRASTS]
    )
    for name, power in table.items():
        lines.append(f"| {name} | " + " | ".join(f"{share:.3f}" for share in power) + " |")
        print(lines[-1], flush=True)
    return lines


def _told_statistics(rng: np.random.Generator, contrast: float) -> list[float]:
    """Return largest eigenvalues of the target outside its shared directions, all noise 1.

    As they are, over the mean of the others, and of the correlations of the residuals.
    """
    basis, residual = _told_residuals(rng, contrast)
    values = np.linalg.eigvalsh(residual.T @ residual / 149.0)
    features = np.corrcoef((residual @ basis).T)
    return [values[-1], values[-1] / values[:-1].mean(), np.linalg.eigvalsh(features)[-1]]


def _told_pvalue(rng: np.random.Generator, contrast: float) -> float:
    """Permute rows outside their known shared directions, all noise 1, with the test's statistic.

    Since the noise is known, rows need neither equal noise nor a correction for their own.
    """
    target = _told_residuals(rng, contrast)[1]
    rows = np.vstack([target, _told_residuals(rng, 0.0)[1]])
    squares = (rows[:, :, None] * rows[:, None, :]).reshape(300, -1)
    in_first = np.array([np.arange(300) < 150] + [rng.permutation(300) < 150 for _ in range(99)])
    moments = (in_first / 150.0 @ squares).reshape(100, rows.shape[1], rows.shape[1])
    statistic = (np.linalg.eigvalsh(moments) ** 16).sum(axis=1)
    return float((statistic >= statistic[0] * (1.0 - 1e-9)).mean())


def _told_residuals(rng: np.random.Generator, contrast: float) -> tuple[Array, Array]:
    """Draw 150 rows outside of three shared directions of 20 features, and a basis of the rest."""
    S, w = rng.standard_normal((20, 3)), rng.standard_normal(20)
    w *= np.sqrt(contrast) / np.linalg.norm(w)
    X = rng.standard_normal((150, 20)) + np.outer(rng.standard_normal(150), w)
    basis = np.linalg.svd(S.T)[2][3:]
    return basis, (X - X.mean(axis=0)) @ basis.T


def peers(seed: int) -> list[str]:
    """Return the table of the same tests with two published ones beside them."""
    cases = {f"{name}, no contrast": NULLS[name] for name in COMPARED}
    cases |= {f"Gaussian, w = {w:g}": partial(simulate, contrast=w) for w in CONTRASTS}
    lines = ["| sets | `contrast_test` | CDE, bootstrap | gcPCA, shuffling |", "|---|---|---|---|"]
    for name, make in cases.items():
        tests = (own_pvalue, cde_pvalue, gcpca_pvalue)
        found = [rejections(make, PEER_DATASETS, seed, each) for each in tests]
        lines.append(f"| {name} | " + " | ".join(f"{share:.3f}" for share in found) + " |")
        print(lines[-1], flush=True)
    return lines


def real_nulls(seed: int) -> list[str]:
    """Return the table of one real set divided at random."""
    cells, donors = problems.kang_controls()
    mice = problems.mice()
    sources: dict[str, tuple[Array, Array | None]] = {
        "Kang, control cells": (cells, None),
        "Kang, control cells by donor": (cells, donors),
        "mice, controls by mouse": (mice.background, mice.background_groups),
        "Tennessee Eastman, normal operation by blocks of 20 rows": problems.eastman_blocks(),
        "daily sports, lying by segment": problems.sports([3]),
    }
    lines = ["| one set, divided at random | rejected |", "|---|---|"]
    for name, (rows, groups) in sources.items():
        found = rejections(partial(problems.split, rows, groups), SPLITS, seed)
        lines.append(f"| {name} | {found:.3f} |")
        print(lines[-1], flush=True)
    return lines


def real_contrasts(seed: int) -> list[str]:
    """Return the table of real sets with contrast, and of the mice."""
    mice = problems.mice()
    cases = {
        "Kang, sets swapped within donors": problems.kang_paired(),
        "digits on grass": problems.digits_on_grass(),
        "daily sports, whole segments": problems.sports_problem(),
        "mice, by animals": mice,
        "mice, by rows": Problem(mice.target, mice.background),
    }
    lines = ["| sets | p | dimensions at 5 % | permuted |", "|---|---|---|---|"]
    for name, problem in cases.items():
        found = test(problem, np.random.default_rng(seed), 255)
        lines.append(f"| {name} | {found.pvalue:.3f} | {found.n_target} | {found.method} |")
        print(lines[-1], flush=True)
    return lines


def further_dimensions(seed: int) -> list[str]:
    """Return how often more dimensions are found than were planted."""
    lines = ["| planted | w = 2 | w = 4 |", "|---|---|---|"]
    for n_target in (1, 2):
        found = []
        for w in CONTRASTS[2:]:
            make = partial(simulate, contrast=w, n_target=n_target)
            calls = (delayed(_n_target)(make, [seed, i]) for i in range(DATASETS))
            more = np.array(Parallel(n_jobs=2)(calls)) > n_target
            found.append(f"{more.mean():.3f}")
        lines.append(f"| {n_target} | {' | '.join(found)} |")
        print(lines[-1], flush=True)
    return lines


def _n_target(make: Make, seed: list[int]) -> int:
    rng = np.random.default_rng(seed)
    return int(test(make(rng), rng, 99).n_target)


def counts(seed: int) -> list[str]:
    """Return how often exactly the planted number of dimensions is found."""
    lines = ["| planted | found in 20 seeds |", "|---|---|"]
    for make in (clvm.datasets.make_contrastive, clvm.datasets.make_subgroups):
        found = []
        for i in range(20):
            data = make(random_state=1000 + seed + i)
            problem = Problem(data.target, data.background)
            found.append(test(problem, np.random.default_rng([seed, i]), 199).n_target)
        lines.append(f"| 2, `{make.__name__}` | {found.count(2)} times 2 |")
        print(lines[-1], flush=True)
    return lines


TEXT = """# Levels and power of the test of contrast

`make levels` writes this page. Each number is the share of datasets for which `contrast_test` with
99 permutations gives a p-value of at most 5 %. Unless the table says otherwise, a dataset has 150 +
150 rows, 20 features and 3 shared dimensions. The test does not know this number. It uses no
dimensions of a model, so a model with too few shared dimensions changes nothing.

## Level

{levels}

({datasets} datasets each)

{real_nulls}

({splits} divisions each, 99 permutations)

Divisions of one set are not independent of each other. Their shares therefore vary more than the
shares of simulated sets.

Eight donors have 70 divisions, so p is 1/70, 2/70 and so on. With so few donors the test is
conservative: it hardly ever rejects one of the 70, where its level allows 3. An earlier form of the
test rejected 3 when the means of the donors were removed from the cells and all cells were kept.
Two steps of the test cause the difference. It centres cells by set, which corrects the other
divisions on average only. It also leaves out cells, so that every donor counts alike.

The test is also conservative if each set has its own noise with heavy tails. The .018 in the table
is 7 of 400 sets, and 11 of 400 others were rejected. This is below 5 % by more than chance. The
test removes measured differences between the noise of the sets, together with most of what chance
adds to them. Chance adds most if tails are heavy. The observed sets then differ less than the
permuted ones. Putting chance back makes the test reject 8.5 % of such sets.

An earlier form of the test rejected 8.5 % of 400 sets with lognormal noise and 6.9 % of 1200
others. We changed it for that reason, and the test rejects 5.8 % of the same 1200. The tables were
made after this change, with a new seed.

The least favourable case known to us has noise deviations that differ by about 4 % between the
sets. Such a difference is too small to be seen in 150 + 150 rows. The test rejected 8 % of 800 such
sets.

## Power

For Gaussian data, w is the eigenvalue of W W' divided by the noise variance. Log rates of counts
have no noise, and w is the eigenvalue of W W' itself. The test does not find contrast in a single
feature. Such contrast looks like noise of that feature that is greater in the target, and the
hypothesis allows such noise.

{powers}

({datasets} datasets each)

How much power is possible for one dimension? The tests in the next table know the shared
directions and project them out. The first three compare the largest eigenvalue of the target with
its exact distribution without contrast. They do not keep their level if there are more shared
directions than they know. A test that keeps its level for every shared structure must permute rows
(Lehmann and Stein 1949). The last line does this, with the statistic of `contrast_test` and known
noise.

The last line is therefore the limit for `contrast_test`, which has to find the shared directions
and allows noise that differs by set and by feature. Another statistic hardly changes this limit. If
all directions of the contrast are equally likely, the permutation test with the most power uses the
mean of the likelihood ratio over the directions. It had power .245 and .800 at w = 0.5 and 1, on
400 sets on which the statistic of `contrast_test` had .242 and .795. Power .25 at w = 0.5 is thus
out of reach in practice.

{oracles}

({oracle_datasets} datasets each)

The next table shows what we tried for one dimension. Every block has its own 400 sets, which no
other table uses. The third column is the share of 400 sets without contrast that are rejected, each
with its own noise by feature.

| w = 0.5 | w = 1 | none | equalisation of the noise |
|---|---|---|---|
| .163 | .655 | .055 | a first form of the test |
| .175 | .703 | .055 | + noise deviations of the features shrunk towards each other (in use) |
| .207 | .738 | .100 | + noise compared without the contrast that fits best |
| .177 | .715 | .070 | the same, but mean noise compared with this contrast |
| | | | |
| .160 | .665 | .068 | the first form |
| .182 | .705 | .068 | + noise deviations shrunk (in use) |
| .190 | .738 | .065 | + only what is beyond chance removed from differences of noise (in use) |
| .190 | .720 | .070 | + chance put back into the differences |
| .193 | .733 | .068 | differences removed whole if three standard errors beyond chance, not two |

The test in use is the line with .190 and .738. The next block knows the shared directions and the
noise, permutes rows, and compares statistics.

| w = 0.5 | w = 1 | statistic |
|---|---|---|
| .242 | .795 | that of `contrast_test` |
| .235 | .795 | the largest eigenvalue |
| .212 | .767 | the largest eigenvalue over the root of the variance of all rows along it |
| .165 | .635 | the largest eigenvalue over the variance of all rows along it |
| .130 | .350 | the largest eigenvalue after all directions are whitened |
| .095 | .405 | the sum of the squared differences of the covariances |
| .182 | .725 | that of `contrast_test` over the noise of the first set, not shrunk |

Without added noise, the power on 600 other sets was .23 and .76. But a test without added noise
calls nearly all sets with noise of their own contrast.

## Dimensions

{counts}

The test found more dimensions than planted in these shares of the datasets of the power table:

{further_dimensions}

It tests at most ten dimensions.

## Beside published tests

We implemented both peers from their descriptions (`benchmarks/contrast_peers.py`). CDE compares
estimates of the two sets' subspaces. gcPCA shuffles each feature within its set, which tests
whether there is any correlation. That is another question, and this test does not keep the level.

{peers}

({peer_datasets} datasets each)

## Real sets

{real_contrasts}

The target of the mice is 18 animals and the background 9, each measured 15 times. Permuting rows
treats 15 measurements of one animal as 15 animals, so permuting animals is the right test. Its
p-value depends on the random numbers with which missing entries and noise are drawn. Eleven seeds
gave .36 to .59, with a median of .45.

Raw counts of the Kang cells give p = .039, and log counts give .004 (sets swapped within donors).
The test thins counts until the means of both sets agree. Interferon raises the genes that carry the
contrast 10 to 300 times, so the test keeps only .3 to 18 % of their counts. The difference between
stimulated and other cells then falls from 8 to 2 % of the variance. If means differ as much as
this, the test of logarithms is more powerful.

## How the settings were chosen

The settings of the test were chosen on simulated sets with other seeds. Three settings are
exceptions: we chose them while looking at the Kang cells. The p-value of these cells is therefore
not independent evidence for the test. Simulated sets support all three settings (100 to 300 sets
each).

- Rows count at most 3 standard deviations along a shared direction. Without that limit, power falls
  from 1.00 to .95 if shared latents have 3 degrees of freedom (w = 8).
- A pair keeps equally many rows of both sets. With the 30 + 10 rows a replicate that were drawn,
  the level is .003 instead of .017, and the power .21 instead of .78 (ten replicates, w = 2).
- Variances along shared directions are compared as log odds. Compared as logarithms, the power for
  eight pairs with heavy tails is .48, .60 and .63 instead of .70, .88 and .95 (w = 10, 30 and 100).
"""


def main() -> None:
    """Print all tables, and write the page if asked to."""
    seeds = [int(word) for word in sys.argv[1:] if word.isdigit()]
    seed = seeds[0] if seeds else 0
    tables = {
        function.__name__: "\n".join(function(seed))
        for function in (
            *(levels, powers, oracles, counts, further_dimensions),
            *(peers, real_nulls, real_contrasts),
        )
    }
    if "--write" in sys.argv:
        sizes = {"datasets": DATASETS, "splits": SPLITS, "peer_datasets": PEER_DATASETS}
        sizes["oracle_datasets"] = 5 * DATASETS
        PAGE.write_text(TEXT.format(**tables, **sizes), encoding="utf-8")


if __name__ == "__main__":
    main()
