"""Whether bootstrap intervals cover: `python -m benchmarks.coverage [--write] [SEED]`.

Datasets are simulated from models with two target and three shared dimensions, loadings drawn from
a standard normal distribution, a noise variance of 1. The model is fitted and resampled, and the
intervals of all target loadings are compared with the true ones in the canonical gauge, each
dimension with the sign that agrees best with the fit. The interval and its alignment were chosen
on other seeds than those reported.

A second table is about features that a group lasso selects: 8 of 60 features carry the target's
structure, or none does; the stated number of false selections must be an upper bound of the false
ones in at least 90 % of the datasets.

With `--write` the tables go to `docs/intervals.md`. Datasets have the seeds from SEED on, 7000
unless given.
"""

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from sklearn.base import clone

import contrastive_lvm as clvm
from contrastive_lvm.arrays import Array
from contrastive_lvm.linalg.gauge import canonical
from contrastive_lvm.resampling.bootstrap import aligned

LEVEL = 0.9
CLOSE = (0.87, 0.93)  # that the coverage must lie between
BOUND = 0.9  # share of datasets in which the stated number of false selections is an upper bound
PLANTED = 8  # features of the target's structure under a group lasso
PAGE = Path(__file__).parent.parent / "docs" / "intervals.md"

Labels = npt.NDArray[np.intp]
Block = tuple[str, float, float]  # its name, the coverage of its loadings, and the error of that


class Sets(NamedTuple):
    """A simulated target and background, and what is true of them."""

    target: Array
    background: Array
    components: Array  # (2, D) true target components in the canonical gauge
    groups: tuple[Labels, Labels] | None = None


class Case(NamedTuple):
    """A kind of data, the model that is fitted, and how much is simulated."""

    name: str
    draw: Callable[[np.random.Generator], Sets]
    model: clvm.ContrastiveLVM
    datasets: int
    resamples: int = 200
    must_cover: bool = True
    kept_by: clvm.ContrastiveLVM | None = None  # only features that this model keeps are looked at


def simulate(
    rng: np.random.Generator,
    n: int = 200,
    d: int = 20,
    *,
    replicate: int = 1,
    df: float = np.inf,
    missing: float = 0.0,
    scales: tuple[float, float] | None = None,
    planted: int | None = None,
    known: bool = True,
) -> Sets:
    """Draw loadings and rows; `replicate` rows in a row share most of their latents.

    `scales` gives the two target dimensions orthogonal loadings of these sizes, `planted` leaves
    the other features without target loadings, and `known` says whether groups are told.
    """
    S, W = rng.standard_normal((d, 3)), rng.standard_normal((d, 2))
    if scales is not None:
        W = np.linalg.qr(W)[0] * np.sqrt(d) * np.array(scales)
    if planted is not None:
        W[planted:] = 0.0
    groups = np.arange(n) // replicate

    def latents(k: int) -> Array:
        own, common = rng.standard_normal((n, k)), rng.standard_normal((n, k))[groups]
        return own if replicate == 1 else np.sqrt(0.7) * common + np.sqrt(0.3) * own

    def noise() -> Array:
        drawn = rng.standard_normal((n, d))
        return drawn if np.isinf(df) else drawn / np.sqrt(rng.chisquare(df, (n, d)) / df)

    X = latents(3) @ S.T + latents(2) @ W.T + noise()
    Y = latents(3) @ S.T + noise()
    for rows in (X, Y):
        rows[rng.random(rows.shape) < missing] = np.nan
    told = (groups, groups + n) if replicate > 1 and known else None
    return Sets(X, Y, canonical(W).T, told)


def case(
    name: str,
    model: clvm.ContrastiveLVM,
    datasets: int,
    resamples: int = 200,
    *,
    must_cover: bool = True,
    kept_by: clvm.ContrastiveLVM | None = None,
    **options: Any,
) -> Case:
    """Return a case of `simulate` with some options."""
    return Case(
        name,
        lambda rng: simulate(rng, **options),
        model,
        datasets,
        resamples,
        must_cover,
        kept_by,
    )


PLAIN = clvm.ContrastiveLVM(2, 3)
ROBUST = clvm.ContrastiveLVM(2, 3, likelihood=clvm.StudentT(df=4.0))
OWN_NOISE = clvm.ContrastiveLVM(2, 3, likelihood=clvm.Gaussian(noise="feature"))
AUTOMATIC = clvm.ContrastiveLVM(2, "auto")
LASSO = clvm.ContrastiveLVM(2, 3, target_prior=clvm.GroupLasso(40.0))
FEW = clvm.ContrastiveLVM(1, 2, target_prior=clvm.GroupLasso(20.0))
CASES = (
    case("Gaussian, 200 + 200 x 20", PLAIN, 300),
    case("dimensions of distinct variance", PLAIN, 300, scales=(1.5, 1.0)),
    case("Gaussian, 500 + 500 x 100", PLAIN, 100, n=500, d=100),
    case("noise variance of each feature", OWN_NOISE, 100),
    case('`n_shared="auto"`', AUTOMATIC, 60, 100),
    case("Student-t noise", ROBUST, 60, 100, df=4.0),
    case("20 % missing", PLAIN, 80, 100, missing=0.2),
    case("8 of 20 features, those a lasso keeps", PLAIN, 200, 100, planted=8, kept_by=LASSO),
    case("8 of 60 features, the same", PLAIN, 100, 100, d=60, planted=8, kept_by=LASSO),
    case("500 rows, 20 of 100, the same", PLAIN, 60, 100, n=500, d=100, planted=20, kept_by=LASSO),
    case("40 replicates of 5 rows, `groups`", PLAIN, 300, replicate=5),
    case("the same, `groups` left out", PLAIN, 100, replicate=5, known=False, must_cover=False),
)
SELECTIONS = (
    case("8 of 60 features", LASSO, 30, 60, d=60, planted=PLANTED),
    case("no structure", LASSO, 30, 60, d=60, planted=0),
    case("4 of 20 features", LASSO, 40, 60, planted=4),
    case("4 of 8 features, 1 + 2 dimensions, rho = 20", FEW, 40, 60, d=8, planted=4),
)


class Coverage(NamedTuple):
    """Coverage of a case, and the standard error of that."""

    case: Case
    share: float
    error: float


class Selection(NamedTuple):
    """What was selected in the datasets of a case, on average."""

    case: Case
    n_stable: float
    n_false: float
    stated: float
    bounded: float  # share of datasets in which no more were false than stated


def resampled(case: Case, seed: int) -> tuple[Sets, clvm.Bootstrap]:
    """Draw a dataset, fit and resample it."""
    sets = case.draw(np.random.default_rng(seed))
    groups = sets.groups or (None, None)
    found = clvm.bootstrap(
        case.model,
        sets.target,
        background=sets.background,
        groups=groups[0],
        background_groups=groups[1],
        n_resamples=case.resamples,
        confidence_level=LEVEL,
        random_state=seed,
    )
    return sets, found


def coverage(case: Case, first: int) -> Coverage:
    """Share of true loadings within their intervals, averaged over datasets."""
    shares = []
    for seed in range(first, first + case.datasets):
        sets, found = resampled(case, seed)
        truth = aligned(sets.components[None], found.target_components)[0]
        covered = (found.low <= truth) & (truth <= found.high)
        if case.kept_by is not None:
            by = clone(case.kept_by).fit(sets.target, background=sets.background)
            kept = by.selected_features_
            covered = covered[:, kept]
        if covered.size:
            shares.append(float(covered.mean()))
    return Coverage(
        case, float(np.mean(shares)), float(np.std(shares, ddof=1) / np.sqrt(len(shares)))
    )


def block_coverage(first: int, datasets: int = 100) -> list[Block]:
    """Coverage of the loadings of each block of three sets of 200, 150 and 120 rows."""
    names, shares = {"shared": "abc", "b+c": "bc", "c": "c"}, []
    for seed in range(first, first + datasets):
        rng = np.random.default_rng(seed)
        true = {b: rng.standard_normal((20, n)) for b, n in zip(names, (3, 2, 1), strict=True)}
        labels = np.repeat(list("abc"), (200, 150, 120))
        rows = rng.standard_normal((len(labels), 20))
        for block, L in true.items():
            active = np.isin(labels, list(names[block]))
            rows[active] += rng.standard_normal((active.sum(), L.shape[1])) @ L.T
        blocks = {b: clvm.Block(L.shape[1], sets=list(names[b])) for b, L in true.items()}
        model = clvm.MultiSetLVM(blocks)
        found = clvm.bootstrap(model, rows, sets=labels, random_state=seed)
        truth = {b: aligned(canonical(L).T[None], found.components[b])[0] for b, L in true.items()}
        shares.append(
            [np.mean((found.low[b] <= t) & (t <= found.high[b])) for b, t in truth.items()]
        )
    errors = np.std(shares, axis=0, ddof=1) / np.sqrt(datasets)
    return list(zip(names, np.mean(shares, axis=0).tolist(), errors.tolist(), strict=True))


def selection(case: Case, first: int) -> Selection:
    """Numbers of stable and of false features, averaged over datasets."""
    rows = []
    for seed in range(first, first + case.datasets):
        sets, found = resampled(case, seed)
        true = np.asarray(np.abs(sets.components).sum(axis=0) > 0)
        stable = np.asarray(found.stable_features)
        stated, false = float(found.expected_false_selections or 0.0), float((stable & ~true).sum())
        rows.append((float(stable.sum()), false, stated, float(false <= stated)))
    return Selection(case, *np.mean(rows, axis=0).tolist())


def page(covered: list[Coverage], blocks: list[Block], selected: list[Selection]) -> str:
    """Return the tables as a page of the documentation."""
    lines = [
        "# Intervals",
        "",
        "`make coverage` writes this page. It runs `bootstrap` on simulated datasets with two",
        "target and three shared dimensions. A 90 % interval of a loading should contain the true",
        "loading in 90 % of cases. The last column is the standard error of the average over",
        "datasets.",
        "",
        "| data | datasets | resamples | coverage | standard error |",
        "|---|---|---|---|---|",
        *(
            f"| {c.case.name} | {c.case.datasets} | {c.case.resamples} | {100 * c.share:.1f} % "
            f"| {100 * c.error:.1f} % |"
            for c in covered
        ),
        "",
        "Rows of one replicate are not independent. If they are resampled as if they were, the",
        "intervals are too short, as the last line shows. Always pass `groups` if there are",
        "replicates.",
        "",
        "If there are few replicates, intervals use wider quantiles. With 2, 3, 4, 8, 12 and 20",
        "replicates of 10 rows in each set, they cover 99, 94, 90, 87, 88 and 90 % of the",
        "loadings of dimensions with distinct variances (40 to 60 datasets each, standard errors",
        "up to 2 %). If the variances of the dimensions are drawn as in the first line, they cover",
        "83 to 89 % from 4 replicates on.",
        "",
        "Dimensions are orthogonal and ordered by variance. If two of them have nearly equal",
        "variances (a ratio below 1.2, say), they mix from resample to resample, and intervals",
        "cover less than their nominal level. `subspace_angles` and `sign_stability` show whether",
        "this matters. We chose the kind of interval on other datasets than these.",
        "",
        "In 100 datasets of three sets with 200, 150 and 120 rows, intervals of a `MultiSetLVM` "
        "cover "
        + ", ".join(
            f"{100 * share:.1f} % (± {100 * error:.1f}) in `{b}`" for b, share, error in blocks
        )
        + ".",
        "",
        "A group lasso shrinks loadings, so intervals around them would not be centred at the",
        "true loadings. `bootstrap` therefore offers none. For the features that the lasso keeps,",
        "intervals of a model without the prior do cover, although the features were chosen from",
        "the same rows. Three lines of the first table show this. Under a lasso, `bootstrap` lists",
        "the features that are stable, with an upper bound on how many of them are expected to be",
        "false. This bound is far from sharp if many features are selected. The prior is",
        f"`{LASSO.target_prior}` unless the table says otherwise:",
        "",
        "| data | datasets | stable features | false ones | stated | false at most as stated in |",
        "|---|---|---|---|---|---|",
        *(
            f"| {s.case.name} | {s.case.datasets} | {s.n_stable:.2f} | {s.n_false:.2f} "
            f"| {s.stated:.2f} | {100 * s.bounded:.0f} % |"
            for s in selected
        ),
        "",
        "There are no intervals for variance shares, for noise variances and for the",
        "contributions `W t` of rows, because nobody has shown that such intervals cover. Noise",
        "variances of resamples lie one standard error below the fit, and the fit lies as far",
        "below the truth. Percentiles of resamples therefore cover only 29 % (300 datasets of 200",
        "+ 200 x 20, 100 resamples). We tried intervals like those of loadings, on the scale of",
        "logarithms. In these datasets they covered 91 % for noise variances and 88 to 90 % for",
        "shares. With 40 replicates they covered 89 % and 83 to 89 % (150 datasets), which is too",
        "little.",
        "",
    ]
    return "\n".join(lines)


def _timed(task: Callable[[Case, int], Any], case: Case, first: int) -> Any:
    begin = time.perf_counter()
    result = task(case, first)
    print(f"{case.name}: {time.perf_counter() - begin:.0f} s", result, file=sys.stderr, flush=True)
    return result


def main(*arguments: str) -> int:
    """Print the tables; the exit code says whether everything covers."""
    first = next((int(a) for a in arguments if a != "--write"), 7000)
    covered: list[Coverage] = [_timed(coverage, case, first) for case in CASES]
    blocks = block_coverage(first)
    selected: list[Selection] = [_timed(selection, case, first) for case in SELECTIONS]
    text = page(covered, blocks, selected)
    print(text)
    if "--write" in arguments:
        PAGE.write_text(text, encoding="utf-8")
    good = all(CLOSE[0] <= c.share <= CLOSE[1] for c in covered if c.case.must_cover)
    good = good and all(CLOSE[0] <= share <= CLOSE[1] for _, share, _ in blocks)
    return 0 if good and all(s.bounded >= BOUND for s in selected) else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
