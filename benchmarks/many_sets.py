"""Several sets: against PCA on the same rows, and two sets against `ContrastiveLVM`."""

import numpy as np
from sklearn.decomposition import PCA

import contrastive_lvm as clvm
from benchmarks.complete import planted
from benchmarks.measure import Result, best_seconds


def sets(repeats: int = 9) -> list[Result]:
    """Ten sets of 10,000 x 200 with a dimension each, and two sets of 20,000 x 200."""
    rng = np.random.default_rng(0)
    rows, _ = planted(100_000, 1, 200)
    labels = np.repeat([f"set {i}" for i in range(10)], 10_000)
    for name in np.unique(labels):
        own = rng.standard_normal((10_000, 1), dtype=np.float32)
        rows[labels == name] += own @ rng.standard_normal((1, 200), dtype=np.float32)
    design = clvm.designs.each_its_own(np.unique(labels).tolist(), n_shared=12, n_each=1)
    wide = rows.astype(np.float64)
    X, B = planted(20_000, 20_000, 200)
    both, two = np.vstack([X, B]), np.repeat(["target", "background"], 20_000)
    contrast = clvm.designs.one_background("background", ["target"])
    seconds = best_seconds(
        {
            "ten": lambda: clvm.MultiSetLVM(design).fit(rows, sets=labels),
            "pca": lambda: PCA(22).fit(rows),
            "ten wide": lambda: clvm.MultiSetLVM(design).fit(wide, sets=labels),
            "pca wide": lambda: PCA(22).fit(wide),
            "two": lambda: clvm.MultiSetLVM(contrast).fit(both, sets=two),
            "clvm": lambda: clvm.ContrastiveLVM(2, 10).fit(X, background=B),
        },
        repeats,
    )
    return [
        Result(
            "ten sets of 10,000 x 200 float32: time / PCA",
            seconds["ten"] / seconds["pca"],
            1.3,
            f"{seconds['ten']:.3f} s and {seconds['pca']:.3f} s",
        ),
        Result(
            "the same, float64",
            seconds["ten wide"] / seconds["pca wide"],
            1.3,
            f"{seconds['ten wide']:.3f} s and {seconds['pca wide']:.3f} s",
        ),
        Result(
            "two sets of 20,000 x 200: MultiSetLVM / ContrastiveLVM",
            seconds["two"] / seconds["clvm"],
            1.1,
            f"{seconds['two']:.3f} s and {seconds['clvm']:.3f} s",
        ),
    ]
