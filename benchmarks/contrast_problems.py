"""Simulated and real problems for the test of contrast: sets with and without it."""

import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

import contrastive_lvm as clvm
from contrastive_lvm.arrays import Array

Draw = Callable[[np.random.Generator, tuple[int, int]], Array]


class Problem(NamedTuple):
    """Two sets, and the replicates of their rows."""

    target: Array
    background: Array
    groups: Any = None
    background_groups: Any = None
    paired: bool = False
    likelihood: str = "gaussian"


def normal(rng: np.random.Generator, shape: tuple[int, int]) -> Array:
    """Standard normal noise."""
    return rng.standard_normal(shape)


def heavy(rng: np.random.Generator, shape: tuple[int, int]) -> Array:
    """Noise from t with 5 degrees of freedom, of variance 1."""
    return np.asarray(rng.standard_t(5.0, shape) / np.sqrt(5.0 / 3.0))


def lognormal(rng: np.random.Generator, shape: tuple[int, int]) -> Array:
    """Skewed noise of mean 0 and variance 1."""
    values = np.exp(rng.standard_normal(shape)) - np.exp(0.5)
    return np.asarray(values / np.sqrt(math.e * (math.e - 1.0)))


def simulate(
    rng: np.random.Generator,
    rows: tuple[int, int] = (150, 150),
    *,
    n_features: int = 20,
    contrast: float = 0.0,
    n_target: int = 2,
    draw: Draw = normal,
    deviations: tuple[float, float] = (1.0, 1.0),
    unequal: bool = False,
    missing: float = 0.0,
) -> Problem:
    """Draw two sets with three shared dimensions, and `n_target` of the target's own.

    `contrast` is the eigenvalue of W W' over the noise variance; `unequal` draws standard
    deviations of the features' noise from a lognormal distribution, in which W W' is then measured.
    """
    S = rng.standard_normal((n_features, 3))
    noise = np.exp(0.5 * rng.standard_normal(n_features)) if unequal else np.ones(n_features)
    W = np.linalg.qr(rng.standard_normal((n_features, n_target)))[0] * np.sqrt(contrast)
    sets = []
    for n, deviation in zip(rows, deviations, strict=True):
        own = deviation * noise * draw(rng, (n, n_features))
        sets.append(rng.standard_normal((n, 3)) @ S.T + own + rng.standard_normal(n_features))
    sets[0] += rng.standard_normal((rows[0], n_target)) @ (W.T * noise * deviations[0])
    for one in sets:
        one[rng.random(one.shape) < missing] = np.nan
    return Problem(sets[0], sets[1])


def own_noise(
    rng: np.random.Generator, rows: tuple[int, int] = (150, 150), *, draw: Draw = normal
) -> Problem:
    """Draw two sets with three shared dimensions, each with noise of its own in each feature."""
    S = rng.standard_normal((20, 3))
    sets = []
    for n in rows:
        deviation = np.exp(0.5 * rng.standard_normal(20))
        sets.append(rng.standard_normal((n, 3)) @ S.T + deviation * draw(rng, (n, 20)))
    return Problem(sets[0], sets[1])


def counts(
    rng: np.random.Generator,
    *,
    contrast: float = 0.0,
    dispersion: float = 0.0,
    binary: bool = False,
    depth: float = 1.0,
    missing: float = 0.0,
) -> Problem:
    """Draw counts or binary entries of 150 + 150 rows, whose means differ between the sets.

    Log rates have three shared dimensions of variance 1/4 a feature, and two of the target's own of
    eigenvalue `contrast`; `depth` is how much more is counted in the target.
    """
    scale = 1.0 if binary else 0.5
    S, mean = scale * rng.standard_normal((20, 3)), rng.standard_normal(20) + (not binary)
    W = np.linalg.qr(rng.standard_normal((20, 2)))[0] * np.sqrt(contrast)
    sets = []
    for is_target in (True, False):
        e = rng.standard_normal((150, 3)) @ S.T + mean + 0.7 * rng.standard_normal(20)
        if is_target:
            e += rng.standard_normal((150, 2)) @ W.T + np.log(depth)
        rate = np.exp(e + (not binary) * 0.3 * rng.standard_normal((150, 1)))
        if dispersion:
            rate = rate * rng.gamma(1.0 / dispersion, dispersion, rate.shape)
        drawn = rng.random(e.shape) < rate / (1.0 + rate) if binary else rng.poisson(rate)
        sets.append(np.where(rng.random(e.shape) < missing, np.nan, drawn))
    kind = "bernoulli" if binary else "negative_binomial" if dispersion else "poisson"
    return Problem(sets[0], sets[1], likelihood=kind)


def subjects(rng: np.random.Generator, n_subjects: int = 10, per_subject: int = 15) -> Problem:
    """Draw subjects with an effect of their own, measured several times; no contrast."""
    S = rng.standard_normal((20, 3))
    sets, n = [], n_subjects * per_subject
    groups = np.repeat(np.arange(n_subjects), per_subject)
    for _ in range(2):
        own = 0.5 * rng.standard_normal((n_subjects, 20))
        z = rng.standard_normal((n_subjects, 3))[groups] + 0.5 * rng.standard_normal((n, 3))
        sets.append(z @ S.T + own[groups] + rng.standard_normal((n, 20)))
    return Problem(sets[0], sets[1], groups, groups + n_subjects)


# --- real data ----------------------------------------------------------------------------------


def _load(*parts: str) -> Any:
    return np.load(Path(os.environ["CONTRASTIVE_LVM_DATA"]).joinpath(*parts))


def kang() -> tuple[Array, Any, Any]:
    """Read log counts of the cells with a donor, with their donors, and the stored indices."""
    stored = _load("kang_pbmc", "kang_pbmc_500genes.npz")
    path = Path(os.environ["CONTRASTIVE_LVM_DATA"]) / "kang_pbmc" / "kang_donors.csv"
    donors = pd.read_csv(path)["donor"].to_numpy()
    totals = stored["total_counts"][:, None]
    return np.log1p(stored["X"] / totals * np.median(totals)), donors, stored


def kang_paired() -> Problem:
    """Stimulated and control cells against control cells, of the same eight donors."""
    X, donors, stored = kang()
    target, background = (
        np.array([i for i in stored[name] if not pd.isna(donors[i])])
        for name in ("target_idx", "background_idx")
    )
    return Problem(X[target], X[background], donors[target], donors[background], paired=True)


def kang_controls() -> tuple[Array, Any]:
    """Read control cells, the 100 genes that vary most, and the cells' donors."""
    X, donors, stored = kang()
    keep = (np.asarray(stored["stim"]) == np.min(stored["stim"])) & ~pd.isna(donors)
    X = X[keep]
    return X[:, np.argsort(X.var(axis=0))[-100:]], donors[keep]


def _mice() -> tuple[pd.DataFrame, pd.DataFrame]:
    path = Path(os.environ["CONTRASTIVE_LVM_DATA"]) / "mice_protein" / "Data_Cortex_Nuclear.csv"
    table = pd.read_csv(path, encoding="utf-8-sig")
    saline = table["Treatment"] == "Saline"
    target = table[saline & (table["Behavior"] == "S/C")]
    return target, table[saline & (table["Behavior"] == "C/S") & (table["Genotype"] == "Control")]


def mouse_genotypes() -> Any:
    """Read whether each row of the target is of a trisomic mouse."""
    return (_mice()[0]["Genotype"] == "Ts65Dn").to_numpy()


def mice() -> Problem:
    """The paper's mice, 15 rows each; features are standardised together."""
    target, background = _mice()
    values = [each.iloc[:, 1:78].to_numpy(dtype=np.float64) for each in (target, background)]
    scale = np.nanstd(np.vstack([rows - np.nanmean(rows, axis=0) for rows in values]), axis=0)
    ids = [each["MouseID"].str.rsplit("_", n=1).str[0].to_numpy() for each in (target, background)]
    return Problem(values[0] / scale, values[1] / scale, ids[0], ids[1])


def eastman_blocks(rows_per_block: int = 20) -> tuple[Array, Any]:
    """Normal operation of the Tennessee Eastman process, blocks of consecutive rows."""
    X = _load("tennessee_eastman", "te_faults.npz")["test00"].astype(np.float64)
    return X / X.std(axis=0), np.arange(len(X)) // rows_per_block


def eastman_faults() -> tuple[dict[int, Array], Array]:
    """Read the rows of each fault of the Tennessee Eastman process, and of normal operation."""
    stored = _load("tennessee_eastman", "te_faults.npz")
    names = [name for name in stored.files if name.startswith("train")]
    rows = {int(name.removeprefix("train")): stored[name].astype(np.float64) for name in names}
    return rows, rows.pop(0)


def activities(name: str, own: tuple[int, ...], other: int) -> tuple[Array, Array, Any]:
    """Read every fifth row of some activities and of another one, and the activities."""
    stored = _load("daily_sports", f"daily_sports_{name}.npz")
    X, activity = stored["X"].astype(np.float64), stored["activity"]
    keep = np.flatnonzero(np.isin(activity, own))[::5]
    return X[keep], X[np.flatnonzero(activity == other)[::5]], activity[keep]


def sports(activities: list[int]) -> tuple[Array, Any]:
    """Motion sensors of one subject, every fifth row, and the segment of each row."""
    stored = _load("daily_sports", "daily_sports_subject1.npz")
    keep = np.flatnonzero(np.isin(stored["activity"], activities))[::5]
    names = [
        f"{a}/{s}" for a, s in zip(stored["activity"][keep], stored["segment"][keep], strict=True)
    ]
    return stored["X"][keep].astype(np.float64), np.array(names)


def sports_problem() -> Problem:
    """Cycling and rowing against lying, whole segments as replicates."""
    (X, groups), (B, background_groups) = sports([15, 17]), sports([3])
    scale = np.vstack([X, B]).std(axis=0)
    return Problem(X / scale, B / scale, groups, background_groups)


def digits_on_grass() -> Problem:
    """Handwritten digits on patches of grass against other patches, 500 each, 14 x 14 pixels."""
    data = clvm.datasets.fetch_mnist_on_grass(500, 500, 10, random_state=7)
    halves = [
        rows.reshape(-1, 14, 2, 14, 2).mean(axis=(2, 4)).reshape(-1, 196).astype(np.float64)
        for rows in (data.target, data.background)
    ]
    return Problem(halves[0], halves[1])


def split(X: Array, groups: Any, rng: np.random.Generator) -> Problem:
    """Divide replicates of one set at random into a target and a background of equal numbers."""
    names = np.unique(np.arange(len(X)) if groups is None else groups)
    labels = np.arange(len(X)) if groups is None else groups
    chosen = np.isin(labels, rng.permutation(names)[: len(names) // 2])
    if groups is None:
        return Problem(X[chosen], X[~chosen])
    return Problem(X[chosen], X[~chosen], labels[chosen], labels[~chosen])
