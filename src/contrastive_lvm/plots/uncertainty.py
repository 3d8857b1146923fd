"""Latents with their posterior uncertainty."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import EllipseCollection

from contrastive_lvm.arrays import Array, RowLabels
from contrastive_lvm.checks import check_integer
from contrastive_lvm.plots import style
from contrastive_lvm.plots.inputs import row_groups
from contrastive_lvm.plots.latent_plots import centres_of, name_centres

Z90 = 1.6448536269514722  # standard deviations either side of the mean that hold 90 %


def plot_uncertainty(
    latents: Any,
    labels: RowLabels = None,
    *,
    n: int = 200,
    ax: Axes | None = None,
    title: str | None = None,
) -> Axes:
    """Plot the first two target latents, each with an ellipse of one standard deviation.

    A single latent is drawn as 90 % intervals, rows in the order of their means.

    Parameters
    ----------
    latents : Latents
        What `model.latents(X)` returns.
    labels : array-like of shape (n_rows,), optional
        Group of each row, which decides its colour; missing labels are grey.
    n : int
        Number of rows to draw at most, chosen at random (the same ones each time).
    ax, title : as in `plot_latents`

    Examples
    --------
    >>> import contrastive_lvm as clvm
    >>> data = clvm.datasets.make_subgroups(random_state=0)
    >>> model = clvm.ContrastiveLVM().fit(data.target, background=data.background)
    >>> ax = clvm.plots.plot_uncertainty(model.latents(data.target), data.target_labels)
    >>> ax.get_xlabel()
    'target 1'
    """
    mean, cov = _target_block(latents)
    groups, n = row_groups(labels, len(mean)), check_integer("n", n, 1)
    shown = np.arange(len(mean))
    if len(mean) > n:
        shown = np.sort(np.random.default_rng(0).choice(len(mean), n, replace=False))
    colours = groups.colours()[shown]
    ax = style.axes_or_new(ax)
    if mean.shape[1] == 1:
        _draw_intervals(ax, mean[shown, 0], np.sqrt(cov[shown, 0, 0]), colours)
        style.finish(ax, title, "target 1, with 90% intervals", "row, in order")
    else:
        _draw_ellipses(ax, mean[shown, :2], cov[shown, :2, :2], colours)
        style.finish(ax, title, "target 1", "target 2")
        if name_centres(ax, centres_of(mean[:, :2], groups), groups):
            return ax
    style.names_in_corner(ax, groups.legend())
    return ax


def _target_block(latents: Any) -> tuple[Array, Array]:
    """Return means and covariances of the target latents, which come first."""
    if not hasattr(latents, "target") or not hasattr(latents, "cov"):
        raise TypeError(
            f"latents is a {type(latents).__name__}, which has no covariances; "
            "pass model.latents(X)."
        )
    mean = latents.target
    if mean is None or 0 in mean.shape:
        raise ValueError(
            "latents has no target part; pass model.latents(X) of rows of the target, "
            "from a model with n_target of at least 1."
        )
    return np.asarray(mean), np.asarray(latents.cov)[:, : mean.shape[1], : mean.shape[1]]


def _draw_ellipses(ax: Axes, mean: Array, cov: Array, colours: np.ndarray) -> None:
    values, vectors = np.linalg.eigh(cov)
    lengths = 2.0 * np.sqrt(np.maximum(values, 0.0))
    ellipses = EllipseCollection(
        list(lengths[:, 1]),
        list(lengths[:, 0]),
        list(np.degrees(np.arctan2(vectors[:, 1, 1], vectors[:, 0, 1]))),
        units="xy",
        offsets=mean,
        offset_transform=ax.transData,
        facecolors="none",
        edgecolors=list(colours),
        linewidths=0.6,
        alpha=0.6,
    )
    ax.add_collection(ellipses, autolim=False)
    ax.scatter(mean[:, 0], mean[:, 1], s=6, c=colours, linewidths=0.0)
    reach = np.sqrt(np.einsum("nkk->nk", cov))  # Matplotlib ignores the size of ellipses
    ax.set_xlim(style.limits_of((mean - reach)[:, 0], (mean + reach)[:, 0], margin=0.04))
    ax.set_ylim(style.limits_of((mean - reach)[:, 1], (mean + reach)[:, 1], margin=0.04))


def _draw_intervals(ax: Axes, mean: Array, std: Array, colours: np.ndarray) -> None:
    order = np.argsort(mean, kind="stable")
    at, centre, reach = np.arange(len(mean)) + 1.0, mean[order], Z90 * std[order]
    ax.hlines(at, centre - reach, centre + reach, colors=list(colours[order]), linewidths=0.8)
    ax.scatter(centre, at, s=6, c=colours[order], linewidths=0.0)
    ax.set_xlim(style.limits_of(centre - reach, centre + reach, margin=0.04))
