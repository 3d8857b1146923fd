"""How sure latents are, and whether both sets share what they should."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import EllipseCollection, LineCollection

from contrastive_lvm.arrays import Array
from contrastive_lvm.checks import check_choice, check_integer
from contrastive_lvm.plots.inputs import KINDS, Groups, able, row_groups
from contrastive_lvm.plots.scatter import centres_of, draw_rows, name_centres
from contrastive_lvm.plots.style import (
    BACKGROUND,
    PALETTE,
    axes_or_new,
    colour_of,
    finish,
    limits_of,
    names_in_corner,
)

WIDEST = 1.6448536269514722  # standard deviations either side that hold 90 %


def plot_uncertainty(
    latents: Any,
    labels: Any = None,
    *,
    n: int = 200,
    ax: Axes | None = None,
    title: str | None = None,
) -> Axes:
    """The first two target latents with an ellipse of one standard deviation about each.

    A single latent is drawn as intervals that hold 90 %, rows in the order of their means.

    Parameters
    ----------
    latents : Latents
        What `model.latents(X)` returns.
    labels : array-like of shape (n_rows,), optional
        Group of each row, which decides its colour; missing labels are grey.
    n : int
        Rows to draw at most, taken at random (the same ones each time).
    ax : matplotlib.axes.Axes, optional
        Where to draw; by default the axes of a new figure, `ax.figure`.
    title : str, optional

    Returns
    -------
    matplotlib.axes.Axes

    Examples
    --------
    >>> import contrastive_lvm as clvm
    >>> data = clvm.datasets.make_subgroups(random_state=0)
    >>> model = clvm.ContrastiveLVM().fit(data.target, background=data.background)
    >>> ax = clvm.plots.plot_uncertainty(model.latents(data.target), data.target_labels)
    >>> ax.get_xlabel()
    'dimension 1'
    """
    mean, cov = _target_block(latents)
    groups, n = row_groups(labels, len(mean)), check_integer("n", n, 1)
    shown = np.arange(len(mean))
    if len(mean) > n:
        shown = np.sort(np.random.default_rng(0).choice(len(mean), n, replace=False))
    colours = _colours(groups, shown)
    ax = axes_or_new(ax)
    if mean.shape[1] == 1:
        _draw_intervals(ax, mean[shown, 0], np.sqrt(cov[shown, 0, 0]), colours)
        finish(ax, title, "dimension 1, 90 % intervals", "row, ordered")
    else:
        _draw_ellipses(ax, mean[shown, :2], cov[shown, :2, :2], colours)
        finish(ax, title, "dimension 1", "dimension 2")
        if name_centres(ax, centres_of(mean[:, :2], groups), groups):
            return ax
    names_in_corner(ax, ((name, colour_of(code)) for code, name in enumerate(groups.names)))
    return ax


def _target_block(latents: Any) -> tuple[Array, Array]:
    """Means and covariances of the target's columns, which come first."""
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


def _colours(groups: Groups, shown: np.ndarray) -> list[str]:
    if not groups.names:
        return [PALETTE[0]] * len(shown)
    return [colour_of(int(code)) for code in groups.codes[shown]]


def _draw_ellipses(ax: Axes, mean: Array, cov: Array, colours: list[str]) -> None:
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
        edgecolors=colours,
        linewidths=0.6,
        alpha=0.6,
    )
    ax.add_collection(ellipses, autolim=False)
    ax.scatter(mean[:, 0], mean[:, 1], s=6, c=colours, linewidths=0.0)
    reach = np.sqrt(np.einsum("nkk->nk", cov))  # Matplotlib does not see how large ellipses are
    ax.set_xlim(limits_of((mean - reach)[:, 0], (mean + reach)[:, 0], margin=0.04))
    ax.set_ylim(limits_of((mean - reach)[:, 1], (mean + reach)[:, 1], margin=0.04))


def _draw_intervals(ax: Axes, mean: Array, std: Array, colours: list[str]) -> None:
    order = np.argsort(mean, kind="stable")
    hues = [colours[i] for i in order]
    at, centre, reach = np.arange(len(mean)) + 1.0, mean[order], WIDEST * std[order]
    ends = np.stack([np.column_stack([centre - reach, at]), np.column_stack([centre + reach, at])])
    ax.add_collection(LineCollection(list(ends.swapaxes(0, 1)), colors=hues, linewidths=0.8))
    ax.scatter(centre, at, s=6, c=hues, linewidths=0.0)
    ax.set_xlim(limits_of(centre - reach, centre + reach, margin=0.04))


def plot_shared(
    model: Any,
    X: Any,
    background: Any,
    *,
    dimensions: tuple[int, int] = (0, 1),
    kind: str = "points",
    ax: Axes | None = None,
    title: str | None = None,
) -> Axes:
    """Shared latents of both sets together.

    What both sets have in common looks alike in both, so the two clouds should cover each other;
    where they do not, something of the target went into the shared space, or the background lacks
    something (see `leakage` for a number).

    Parameters
    ----------
    model : ContrastiveLVM or ContrastiveVAE
        Fitted, with at least one shared dimension; a single one is drawn as histograms.
    X, background : array-like of shape (n, d) and (m, d)
        Rows of the two sets.
    dimensions : tuple of two int
        Which of the shared dimensions to draw, from 0.
    kind : {"points", "density", "both"}
        As in `plot_latents`.
    ax : matplotlib.axes.Axes, optional
        Where to draw; by default the axes of a new figure, `ax.figure`.
    title : str, optional

    Returns
    -------
    matplotlib.axes.Axes

    Examples
    --------
    >>> import contrastive_lvm as clvm
    >>> data = clvm.datasets.make_subgroups(random_state=0)
    >>> model = clvm.ContrastiveLVM().fit(data.target, background=data.background)
    >>> ax = clvm.plots.plot_shared(model, data.target, data.background)
    >>> [text.get_text() for text in ax.texts]
    ['target, 400 rows', 'background, 400 rows']
    """
    check_choice("kind", kind, KINDS)
    read = able(model, "latents", "ContrastiveLVM or ContrastiveVAE")
    if not model.n_shared_:
        raise ValueError(f"model={model!r} has no shared dimensions; fit it with n_shared > 0.")
    columns = _columns(dimensions, model.n_shared_)
    sets = {"target": read(X).shared, "background": read(background, of="background").shared}
    points = np.vstack([rows[:, columns] for rows in sets.values()])
    sizes = [len(rows) for rows in sets.values()]
    ax = axes_or_new(ax)
    # The background takes the place of rows without a label, which are grey.
    draw_rows(ax, points, Groups(["target"], np.repeat([0, -1], sizes)), kind)
    shades = (PALETTE[0], BACKGROUND)
    words = [f"{name}, {size} rows" for name, size in zip(sets, sizes, strict=True)]
    names_in_corner(ax, zip(words, shades, strict=True))
    names = [f"shared dimension {column + 1}" for column in columns]
    return finish(ax, title, names[0], names[1] if len(names) > 1 else "rows")


def _columns(dimensions: Any, n_shared: int) -> list[int]:
    """Positions of the shared dimensions to draw: a single one if there are no more."""
    if n_shared == 1:
        return [0]
    wrong = ValueError(
        f"dimensions={dimensions!r} must be two different dimensions of the {n_shared} shared "
        f"ones, from 0 to {n_shared - 1}."
    )
    chosen = list(dimensions) if isinstance(dimensions, tuple | list) else []
    if len(set(chosen)) != 2 or len(chosen) != 2:
        raise wrong
    if not all(isinstance(c, int | np.integer) and 0 <= c < n_shared for c in chosen):
        raise wrong
    return [int(c) for c in chosen]
