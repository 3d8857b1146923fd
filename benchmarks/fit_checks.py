"""How often `fit` warns of its model: `python -m benchmarks.fit_checks [--write] [SEED]`.

Prints the shares of simulated datasets with each kind of warning, where there is cause and where
there is none. With `--write` the table goes to `docs/fit_checks.md`.
"""

import sys
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import contrastive_lvm as clvm
from benchmarks.contrast_problems import Draw, heavy, lognormal, normal
from contrastive_lvm.arrays import Array

PAGE = Path(__file__).parent.parent / "docs" / "fit_checks.md"
DATASETS, N_FEATURES, N_SHARED = 200, 30, 4
WARNINGS = {  # words of each warning
    "unequal": "noise='feature'",
    "too few": "is too few",
    "own noise": "sets='own'",
    "background": "n_background=1 or more, or a larger n_shared",
}


def simulate(
    rng: np.random.Generator,
    *,
    n: int = 300,
    spread: float = 0.0,
    contrast: float = 2.0,
    draw: Draw = normal,
    factor: float = 1.0,
    own: int = 0,
) -> tuple[Array, Array, Array]:
    """Draw a target, a background and the target loadings.

    Logs of the features' noise deviations have the standard deviation `spread`; the background has
    `factor` times the noise deviation of the target, and `own` dimensions of its own.
    """
    S, B = (rng.standard_normal((N_FEATURES, k)) for k in (N_SHARED, own))
    noise = np.exp(spread * rng.standard_normal(N_FEATURES))
    noise /= np.sqrt((noise**2).mean())
    W = np.linalg.qr(rng.standard_normal((N_FEATURES, 2)))[0] * np.sqrt(contrast)
    X, Y = (rng.standard_normal((n, N_SHARED)) @ S.T for _ in range(2))
    X += rng.standard_normal((n, 2)) @ W.T + noise * draw(rng, X.shape)
    Y += rng.standard_normal((n, own)) @ B.T + factor * noise * draw(rng, Y.shape)
    return X, Y, W


KINDS: dict[str, Any] = {
    "equal noise": simulate,
    "equal noise, w = 0.5": partial(simulate, contrast=0.5),
    "equal noise, 60 + 60 rows": partial(simulate, n=60),
    "t with 5 degrees of freedom": partial(simulate, draw=heavy),
    "lognormal": partial(simulate, draw=lognormal),
    "lognormal, 60 + 60 rows": partial(simulate, n=60, draw=lognormal),
    "unequal noise, 0.25": partial(simulate, spread=0.25),
    "unequal noise, 0.5": partial(simulate, spread=0.5),
    "unequal noise, 0.5, w = 1": partial(simulate, spread=0.5, contrast=1.0),
    "unequal noise, 0.5, w = 8": partial(simulate, spread=0.5, contrast=8.0),
    "unequal noise, 0.5, lognormal": partial(simulate, spread=0.5, draw=lognormal),
    "noise 2 x in the background": partial(simulate, factor=2.0),
    "a dimension of the background's own": partial(simulate, own=1),
}
AUTOMATIC = ("equal noise", "lognormal", "unequal noise, 0.25", "unequal noise, 0.5, w = 1")


def row(make: Any, n_shared: int | str, seed: int) -> str:
    """Return shares of warnings, and squared cosines without and with noise of each feature."""
    found = np.array([_one(make, n_shared, [seed, i]) for i in range(DATASETS)])
    shares = " | ".join(f"{share:.3f}" for share in found[:, : len(WARNINGS)].mean(axis=0))
    cosines = " | ".join(f"{share:.2f}" for share in found[:, len(WARNINGS) :].mean(axis=0))
    return f"{shares} | {cosines}"


def _one(make: Any, n_shared: int | str, seed: list[int]) -> list[float]:
    X, Y, W = make(np.random.default_rng(seed))
    models = [
        clvm.ContrastiveLVM(n_shared=n_shared, likelihood=clvm.Gaussian(noise=noise))
        for noise in ("isotropic", "feature")
    ]
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        models[0].fit(X, background=Y)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        models[1].fit(X, background=Y)
    told = [any(words in str(each.message) for each in said) for words in WARNINGS.values()]
    return [*map(float, told), *(_cosine(model.target_components_.T, W) for model in models)]


def _cosine(found: Array, truth: Array) -> float:
    """Return the mean squared cosine of the angles between two spans."""
    bases = [np.linalg.qr(M)[0] for M in (found, truth)]
    return float((np.linalg.svd(bases[0].T @ bases[1])[1] ** 2).mean())


TEXT = """# What a fit notices about its model

`make checks` writes this page. After a fit, `ContrastiveLVM` checks its own assumptions and warns
of four things:

- noise that differs by feature (column "unequal"; the advice is `Gaussian(noise="feature")`);
- too few shared dimensions ("too few");
- noise that differs by set ("own noise"; the advice is `sets="own"`);
- structure that only the background has ("background").

`fit` gives a warning only if the target dimensions of the advised model have another direction.

The table has the share of {datasets} simulated datasets in which
`ContrastiveLVM(n_shared=...)` warns, with and without cause. Unless the first column says
otherwise, a dataset has 300 + 300 rows, 30 features, 4 shared dimensions and 2 target dimensions.
The strength of the contrast is w = 2, the eigenvalue of W W' over the mean noise variance. A number
after "unequal noise" is the standard deviation of the logarithms of the features' noise deviations.
With 0.25 the noisiest tenth of the features has at least 3.6 times the noise variance of the
quietest tenth, with 0.5 at least 13 times.

The last two columns show what is at stake: the mean squared cosine between the target dimensions
found and those planted. One is for a model with one noise variance, the other for a model with a
noise variance for each feature. The limits were chosen with other seeds.

{table}

With automatic sizes, additional shared dimensions describe noisy features one by one. If the noise
is very unequal, little is then left to gain, and warnings are rarer.

`fit` measures in both sets whether the noise is unequal. It estimates the variance of each feature
given all others. The errors of these estimates are independent between the sets, however heavy
their tails, so a rank correlation between the sets (at the level .001) is evidence. The covariance
of the logarithms measures how unequal the noise is. Sets with fewer than 1.5 rows per feature and
rows with missing entries are not checked.
"""


def main() -> None:
    """Print the table, and write the page if asked to."""
    seeds = [int(word) for word in sys.argv[1:] if word.isdigit()]
    seed = seeds[0] if seeds else 0
    head = ["data", "`n_shared`", *WARNINGS, "one noise variance", "one for each"]
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    cases: list[tuple[str, int | str]] = [(name, N_SHARED) for name in KINDS]
    cases += [(name, "auto") for name in AUTOMATIC] + [("equal noise", n) for n in (2, 3)]
    for name, n_shared in cases:
        lines.append(f"| {name} | {n_shared} | {row(KINDS[name], n_shared, seed)} |")
        print(lines[-1], flush=True)
    if "--write" in sys.argv:
        text = TEXT.format(table="\n".join(lines), datasets=DATASETS)
        PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
