"""What `ContrastiveLVM()` shows: `python -m benchmarks.default_answer [--write]`.

The target of each problem has labels that no method sees. Latents of two dimensions are judged by
the accuracy of 10 nearest neighbours in five folds. With `--write` the table goes to
`docs/default_answer.md`. Real data is looked for under `CONTRASTIVE_LVM_DATA`.
"""

import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from time import process_time
from typing import Any, NamedTuple

import numpy as np
from sklearn.decomposition import PCA
from sklearn.model_selection import StratifiedKFold, cross_val_score
from sklearn.neighbors import KNeighborsClassifier

import contrastive_lvm as clvm
from benchmarks import contrast_problems as real
from contrastive_lvm.arrays import Array

PAGE = Path(__file__).parent.parent / "docs" / "default_answer.md"
CLOSE, SLOWER = 0.02, 5.0  # how far below the best other method, and how much slower, it may be
TIMES = 3  # that the fits of the default and of a given size are timed


class Labelled(NamedTuple):
    """Two sets, and the labels of the target."""

    name: str
    target: Array
    background: Array
    labels: Any


METHODS: dict[str, Any] = {
    "default": clvm.ContrastiveLVM(),
    "`n_shared=10`": clvm.ContrastiveLVM(n_shared=10),
    "gcPCA v4": clvm.GeneralizedContrastivePCA(),
    "cPCA": clvm.ContrastivePCA(),
    "PCA": PCA(2),
}
PEERS = ("gcPCA v4", "cPCA", "PCA")


def problems() -> Iterator[Labelled]:
    """Read all problems; signals in units of their own are standardised by both sets together."""
    mice = real.mice()
    yield Labelled("mice: genotype", mice.target, mice.background, real.mouse_genotypes())
    cells, _, stored = real.kang()
    sets = [cells[stored[name]] for name in ("target_idx", "background_idx")]
    yield Labelled("Kang: stimulated cells", sets[0], sets[1], stored["target_label"])
    for name, own, other in (("subject1", (15, 17), 3), ("pooled8", (15, 18), 2)):
        title = {3: "cycling, rowing against lying", 2: "cycling, jumping against standing"}[other]
        yield _standardised(f"daily sports: {title}", *real.activities(name, own, other))
    faults, normal = real.eastman_faults()
    numbers = sorted(faults)
    for i in range(len(numbers)):
        three = [numbers[(i + j) % len(numbers)] for j in range(3)]
        labels = np.repeat(three, [len(faults[n]) for n in three])
        rows = np.vstack([faults[n] for n in three])
        title = "Tennessee Eastman: faults {}, {}, {}".format(*three)
        yield _standardised(title, rows, normal, labels)


def _standardised(name: str, target: Array, background: Array, labels: Any) -> Labelled:
    centred = np.vstack([rows - rows.mean(axis=0) for rows in (target, background)])
    scale = centred.std(axis=0)
    return Labelled(name, target / scale, background / scale, labels)


def accuracy(latents: Array, labels: Any) -> float:
    """Return how often ten neighbours in other folds have the label of a row."""
    folds = StratifiedKFold(5, shuffle=True, random_state=0)
    return float(cross_val_score(KNeighborsClassifier(10), latents, labels, cv=folds).mean())


def answer(method: Any, problem: Labelled) -> Array:
    """Fit a method and return the latents of the target; the mean stands for missing entries."""
    sets = [problem.target, problem.background]
    if not isinstance(method, clvm.ContrastiveLVM):
        sets = [np.where(np.isnan(rows), np.nanmean(rows, axis=0), rows) for rows in sets]
    if isinstance(method, PCA):
        return np.asarray(method.fit_transform(sets[0]))
    return np.asarray(method.fit(sets[0], background=sets[1]).transform(sets[0]))


def seconds(n_shared: Any, problem: Labelled) -> float:
    """Return the processor time of a fit, the best of several."""
    found = []
    for _ in range(TIMES):
        start = process_time()
        model = clvm.ContrastiveLVM(n_shared=n_shared)
        model.fit(problem.target, background=problem.background)
        found.append(process_time() - start)
    return min(found)


TEXT = """# The default answer

`make answers` writes this page. Every target below has labels that no method sees. The numbers are
accuracies: ten nearest neighbours among the two target latents predict the labels of rows in other
folds. `ContrastiveLVM()` finds the number of shared dimensions itself, and contrastive PCA chooses
its contrast parameter itself. Rows of the mice and of signals are not independent. The accuracies
can therefore be compared with each other, but say little about other mice.

The last column has two ratios of processor times. They compare the default fit with a fit of the
size that it finds, and with `n_shared=10`, the default of earlier versions.

{table}

On {kept} of {problems} problems the default is at most .02 below the best of gcPCA, contrastive PCA
and PCA. The greatest difference is {worst:.3f}.

## Where other methods are better

- If the labels of a target differ along directions in which the background varies too, PCA is
  better.
- On digits over grass (14 x 14 pixels, 500 + 500 rows) contrastive PCA reached .34 to .40 and the
  default .24 to .30.
- On three activities of eight subjects against a fourth, PCA reached .99 and the default .82 to
  1.00. There the noise of the target is greater than the noise of the background, and
  `Gaussian(sets="own")` reached .95 to 1.00. `fit` warns if this changes the direction of the
  target dimensions.

## What the default costs

Finding the size takes at most about a tenth of a fit. The fit of more dimensions takes longer: the
problems above need 20 to 50, with more and longer sweeps. The second ratio should be below 5. It is
above 5 on {slow} of the problems, and there the default fit takes .3 to 1 s. The slowest fit, to
faults 7, 8, 10, drifts past a saddle for some 1,460 sweeps. It once was stopped 65 nats lower,
after 2,000 sweeps, with an accuracy of .927.

## How the default was chosen

Shared dimensions are added until they describe 99 % of the variance of the background. This share
hardly matters. Between 80 and 99 % the mean accuracy over 20 such problems changed from .805 to
.799.

It does matter that the share refers to the background. The variance of all rows includes structure
of the target that two target dimensions cannot describe. On 16 other threes of Tennessee Eastman
faults, we fitted two halves of the rows. Their target latents agreed better under this rule: the
mean squared correlation was .74 instead of .71. The accuracy rose from .921 to .930, but fell by
.068 on one of them (faults 4, 10, 12). On 9 other problems of daily sports the two halves agreed to
.97 instead of .93.

This rule is one of six that were first tried on the problems above. They are therefore not
independent evidence for it.
"""


def main() -> int:
    """Print the table; the exit code says whether the default keeps up."""
    warnings.simplefilter("ignore")  # of fits that could be better
    lines = ["| target | " + " | ".join(METHODS) + " | time |", "|---|" + "---|" * 6]
    all_scores, good, slow = [], True, 0
    for problem in problems():
        scores = [accuracy(answer(m, problem), problem.labels) for m in METHODS.values()]
        found = METHODS["default"].n_shared_
        times = [seconds(n, problem) for n in ("auto", found, 10)]
        ratios = times[0] / times[1], times[0] / times[2]
        best = max(s for name, s in zip(METHODS, scores, strict=True) if name in PEERS)
        slow += max(ratios) > SLOWER
        good &= scores[0] > best - CLOSE
        all_scores.append([*scores, best])
        shown = " | ".join(f"{score:.3f}" for score in scores)
        lines.append(f"| {problem.name} | {shown} | {ratios[0]:.1f}, {ratios[1]:.1f} |")
        print(lines[-1], flush=True)
    means = np.mean(all_scores, axis=0)
    lines.append("| mean | " + " | ".join(f"{mean:.3f}" for mean in means[:-1]) + " | |")
    print(lines[-1])
    behind = np.array([best - own for own, *_, best in all_scores])
    if "--write" in sys.argv:
        kept = {"kept": int((behind <= CLOSE).sum()), "problems": len(behind), "slow": slow}
        text = TEXT.format(table="\n".join(lines), worst=behind.max(), **kept)
        PAGE.write_text(text, encoding="utf-8")
    return 0 if good and not slow and means[0] >= means[:-1].max() else 1


if __name__ == "__main__":
    sys.exit(main())
