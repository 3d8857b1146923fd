"""Counts: against PLNmodels' Poisson log-normal PCA, and against PCA of log counts.

Both sides of the first comparison have the same model, `x_id ~ Poisson(exp(l_d' h_i + mean_d +
offset_i))`, and the same kind of bound. PLNmodels' `q(h_i)` has a diagonal covariance, so that its
bound may end lower; it is computed here from its parameters, without the approximation of `ln x!`.
"""

import contextlib
import io
import sys
import time
import warnings
from importlib.util import find_spec
from types import ModuleType
from typing import Any

import numpy as np
from scipy.special import gammaln
from sklearn.decomposition import PCA

import contrastive_lvm as clvm
from benchmarks.measure import Result, best_seconds
from contrastive_lvm.arrays import Array

RANK = 5


def poisson_rows(n: int = 1000, d: int = 500, *, seed: int = 0) -> Array:
    """Draw counts of which two thirds are zero, as cells have them."""
    rng = np.random.default_rng(seed)
    log_rates = rng.standard_normal((n, RANK)) @ (0.4 * rng.standard_normal((RANK, d)))
    log_rates += rng.normal(-1.5, 1.2, d) + 0.3 * rng.standard_normal((n, 1))
    return rng.poisson(np.exp(log_rates)).astype(np.float64)


def _bound_of(pln: Any, X: Array, offsets: Array) -> float:
    """Return the bound at the parameters of a fitted `PlnPCA`."""
    C, m, s = (np.asarray(x) for x in (pln.components, pln.latent_mean, pln.latent_sqrt_variance))
    e, square = offsets + np.asarray(pln.coef) + m @ C.T, s**2
    rows = X * e - np.exp(e + 0.5 * square @ (C**2).T) - gammaln(X + 1.0)
    return float(rows.sum() + 0.5 * (1.0 + np.log(square) - square - m**2).sum())


def against_pln(X: Array) -> list[Result]:
    """Fit both models to rows without empty columns, one thread each."""
    import torch

    if find_spec("pkg_resources") is None:  # PLNmodels finds example data with it
        sys.modules["pkg_resources"] = ModuleType("pkg_resources")
    from pyPLNmodels import PlnPCA

    torch.set_num_threads(1)
    totals = X.sum(axis=1, keepdims=True)
    offsets = np.log(totals / totals.mean()) * np.ones_like(X)
    start = time.process_time()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        pln = PlnPCA(X, rank=RANK, offsets=offsets).fit(verbose=False)
    theirs = time.process_time() - start
    start = time.process_time()
    flat = clvm.Flat()  # as in PlnPCA
    model = clvm.ContrastiveLVM(
        RANK, 0, likelihood="poisson", inference="em", target_prior=flat
    ).fit(X)
    ours = time.process_time() - start
    parts = model.posterior_.bound_parts or {}
    bounds = (
        parts["target rows"] / X.size,
        _bound_of(pln, X, offsets) / X.size,
    )
    shape = f"{len(X):,} x {X.shape[1]}, rank {RANK}"
    return [
        Result(
            f"Poisson, {shape}: processor time of PlnPCA / time",
            theirs / ours,
            3.0,
            f"{theirs:.1f} and {ours:.1f} s",
            at_least=True,
        ),
        Result(
            "the same: bound less PlnPCA's, nats per entry",
            bounds[0] - bounds[1],
            0.0,
            f"{bounds[0]:.4f} and {bounds[1]:.4f}",
            at_least=True,
        ),
    ]


def peers() -> list[Result]:
    """Against PLNmodels, and a negative binomial fit against PCA of log counts."""
    X = poisson_rows()
    X = X[:, X.sum(axis=0) > 0]
    results = against_pln(X)
    logs = np.log1p(X / X.sum(axis=1, keepdims=True) * 1e4)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of dimensions that are not there
        seconds = best_seconds(
            {
                "clvm": lambda: clvm.ContrastiveLVM(2, 10, likelihood="negative_binomial").fit(
                    X[:700], background=X[700:]
                ),
                "pca": lambda: PCA(12).fit(logs),
            },
            1,
        )
    results.append(
        Result(
            "negative binomial, 700 + 300 x 500, 12 columns: time / PCA of log counts",
            seconds["clvm"] / seconds["pca"],
            30.0,
            f"{seconds['clvm']:.2f} s and {seconds['pca']:.3f} s",
        )
    )
    return results
