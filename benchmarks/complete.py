"""Complete data: against PCA on tall data, against the other contrastive tools at d = 300."""

import contextlib
import io
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.decomposition import PCA

import contrastive_lvm as clvm
from benchmarks.measure import Result, best_seconds, peak_megabytes


def planted(n: int, m: int, d: int, *, seed: int = 0) -> tuple[Any, Any]:
    """Ten shared and two target dimensions in unit noise, float32."""
    rng = np.random.default_rng(seed)
    S = rng.standard_normal((d, 10), dtype=np.float32)
    W = rng.standard_normal((d, 2), dtype=np.float32)

    def rows(count: int) -> Any:
        out = rng.standard_normal((count, d), dtype=np.float32)
        out += rng.standard_normal((count, 10), dtype=np.float32) @ S.T
        return out

    target = rows(n)
    target += rng.standard_normal((n, 2), dtype=np.float32) @ W.T
    return target, rows(m)


def tall(repeats: int = 15) -> list[Result]:
    """100,000 + 30,000 x 500 float32 against PCA, ten times fewer rows, and memory."""
    X, B = planted(100_000, 30_000, 500)
    both = np.vstack([X, B])
    seconds = best_seconds(
        {
            "clvm": lambda: clvm.ContrastiveLVM(2, 10).fit(X, background=B),
            "pca": lambda: PCA(12, svd_solver="covariance_eigh").fit(both),
            "tenth": lambda: clvm.ContrastiveLVM(2, 10).fit(X[:10_000], background=B[:3_000]),
        },
        repeats,
    )
    peak = peak_megabytes(lambda: clvm.ContrastiveLVM(2, 10).fit(X, background=B))
    share = 1e6 * peak / (X.nbytes + B.nbytes)
    return [
        Result(
            "130,000 x 500 float32: time / PCA(covariance_eigh)",
            seconds["clvm"] / seconds["pca"],
            1.3,
            f"{seconds['clvm']:.2f} s and {seconds['pca']:.2f} s",
        ),
        Result("the same: extra memory / data", share, 0.15, f"{peak:.1f} MB"),
        Result(
            "the same: time / time for a tenth of the rows",
            seconds["clvm"] / seconds["tenth"],
            11.0,
            f"{seconds['clvm']:.2f} s and {seconds['tenth']:.3f} s",
        ),
    ]


def peers(repeats: int = 5) -> list[Result]:
    """Against `contrastive` with automatic alpha and against gcPCA, 2,000 + 1,000 x 300."""
    from contrastive import CPCA
    from generalized_contrastive_PCA import gcPCA

    X, B = (rows.astype(np.float64) for rows in planted(2_000, 1_000, 300))

    def quietly_cpca() -> None:
        with contextlib.redirect_stdout(io.StringIO()):
            CPCA(n_components=2).fit_transform(X, B)

    ours = {"clvm": lambda: clvm.ContrastiveLVM(2, 10).fit_transform(X, background=B)}
    gc = best_seconds({**ours, "gcpca": lambda: gcPCA(method="v4").fit(X, B)}, 3 * repeats)
    cp = best_seconds({**ours, "cpca": quietly_cpca}, repeats)
    return [
        Result(
            "d = 300: contrastive's automatic cPCA / time",
            cp["cpca"] / cp["clvm"],
            20.0,
            f"{cp['cpca']:.2f} s and {cp['clvm']:.3f} s",
            at_least=True,
        ),
        Result(
            "d = 300: time / gcPCA",
            gc["clvm"] / gc["gcpca"],
            1.0,
            f"{gc['clvm']:.3f} s and {gc['gcpca']:.3f} s",
        ),
    ]


def sparse(repeats: int = 3) -> list[Result]:
    """Logs of sparse counts against PCA by ARPACK on the same rows, both sets stacked."""
    results = []
    for n, m, d in ((5_000, 2_000, 30_000), (80_000, 20_000, 2_000)):
        X, B = _log_counts(n, m, d)
        both = sp.csr_array(sp.vstack([X, B]))
        seconds = best_seconds(
            {
                "clvm": partial(clvm.ContrastiveLVM(2, 10).fit, X, background=B),
                "pca": partial(PCA(12, svd_solver="arpack").fit, both),
            },
            repeats,
        )
        results.append(
            Result(
                f"{n} + {m} x {d}, sparse: time / PCA(arpack)",
                seconds["clvm"] / seconds["pca"],
                2.0,
                f"{seconds['clvm']:.2f} s and {seconds['pca']:.2f} s, {both.nnz / (n + m) / d:.1%}",
            )
        )
    return results


def _log_counts(n: int, m: int, d: int) -> tuple[Any, Any]:
    """Log of one plus Poisson counts, ten shared and two target dimensions, 4 % filled."""
    rng = np.random.default_rng(0)
    S, base = 0.5 * rng.standard_normal((d, 10)), rng.gamma(0.4, 1.0, d)
    W = 0.5 * rng.standard_normal((d, 2)) * (rng.random((d, 1)) < 0.2)
    base *= 0.052 / base.mean()

    def rows(count: int, own: float) -> Any:
        predictor = rng.standard_normal((count, 10)) @ S.T - 1.25
        predictor += own * (rng.standard_normal((count, 2)) @ W.T)
        return sp.csr_array(np.log1p(rng.poisson(np.exp(predictor) * base)).astype(np.float32))

    parts = [
        sp.vstack([rows(500, own) for _ in range(size // 500)])
        for size, own in ((n, 1.0), (m, 0.0))
    ]
    return sp.csr_array(parts[0]), sp.csr_array(parts[1])
