"""PCA, cPCA and cLVM on the paper's first synthetic data set (supplement, table 1)."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
from matplotlib.figure import Figure

from contrastive_lvm.arrays import Array
from contrastive_lvm.checks import check_integer
from contrastive_lvm.datasets import ContrastiveData, make_subgroups
from contrastive_lvm.estimators.contrastive_lvm import ContrastiveLVM
from contrastive_lvm.experiments.measures import BASELINES, ari, silhouette
from contrastive_lvm.plots import plot_comparison

SUBGROUPS = ("A", "B", "C", "D")  # the paper's names


class MethodResult(NamedTuple):
    """How well one method's two dimensions show the four subgroups."""

    name: str
    latents: Array  # (n, 2)
    silhouette: float  # of the true subgroups
    ari: float  # adjusted Rand index of k-means clusters against the true subgroups
    seconds: float  # to fit and transform, without imports


class DemoResult(NamedTuple):
    """The data and the results of each method."""

    data: ContrastiveData
    methods: tuple[MethodResult, ...]


def run_demo(*, random_state: int = 0) -> DemoResult:
    """Fit PCA, contrastive PCA and the contrastive LVM to 400 + 400 rows of 30 features.

    Parameters
    ----------
    random_state : int
        Seed of the data; the methods themselves have fixed seeds.

    Examples
    --------
    >>> from contrastive_lvm.experiments import run_demo
    >>> result = run_demo(random_state=0)
    >>> {method.name: round(method.ari, 1) for method in result.methods}["cLVM"]
    1.0
    """
    data = make_subgroups(random_state=check_integer("random_state", random_state, 0))
    fits = BASELINES | {"cLVM": lambda X, B: _model(X, B).transform(X)}
    return DemoResult(data, tuple(_measure(name, fit, data) for name, fit in fits.items()))


def draw_demo(result: DemoResult) -> Figure:
    """Draw the methods side by side, each with its silhouette.

    Examples
    --------
    >>> from contrastive_lvm.experiments import draw_demo, run_demo
    >>> len(draw_demo(run_demo()).axes)
    3
    """
    titles = [f"{m.name}  (silhouette {m.silhouette:.2f})" for m in result.methods]
    panels = {
        title.replace("-", "\N{MINUS SIGN}"): method.latents
        for title, method in zip(titles, result.methods, strict=True)
    }
    return plot_comparison(panels, np.array(SUBGROUPS)[result.data.target_labels])


def report_demo(result: DemoResult, path: Path) -> Path:
    """Write a report about the contrastive LVM.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from contrastive_lvm.experiments import report_demo, run_demo
    >>> report_demo(run_demo(), pathlib.Path(tempfile.mkdtemp()) / "report.html").name
    'report.html'
    """
    data = result.data
    return _model(data.target, data.background).report(
        path,
        data.target,
        background=data.background,
        labels={"subgroup": np.array(SUBGROUPS)[data.target_labels]},
        title="Four hidden subgroups",
    )


def _measure(
    name: str, fit: Callable[[Array, Array], Array], data: ContrastiveData
) -> MethodResult:
    fit(data.target, data.background)  # the first call also loads code and starts threads
    start = time.perf_counter()
    latents = fit(data.target, data.background)
    seconds = time.perf_counter() - start
    labels = data.target_labels
    return MethodResult(name, latents, silhouette(latents, labels), ari(latents, labels), seconds)


def _model(X: Array, B: Array) -> ContrastiveLVM:
    return ContrastiveLVM(n_target=2, n_shared=10).fit(X, background=B)
