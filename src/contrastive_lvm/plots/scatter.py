"""Latents as points, one panel or several side by side.

Figures are made from `matplotlib.figure.Figure` directly: no backend is chosen, `pyplot` is never
loaded and no setting of Matplotlib is changed.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patheffects import withStroke

from contrastive_lvm.core.types import Array

# Okabe & Ito's colours, told apart with any colour vision; the faint yellow comes last.
PALETTE = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#000000", "#F0E442")
MARKERS = ("o", "^", "s", "D", "v", "P", "X")  # the next one whenever the colours are used up
UNLABELLED, INK = "#999999", "#222222"
PANEL_INCHES = (3.6, 3.4)


class Groups(NamedTuple):
    """Which group each row belongs to."""

    names: list[str]
    codes: npt.NDArray[np.intp]  # (N,) position in names; -1 for a row without a label

    def positions(self) -> range:
        """Positions of the groups in `names`."""
        return range(len(self.names))


def plot_latents(
    latents: Any, labels: Any = None, *, ax: Axes | None = None, title: str | None = None
) -> Axes:
    """Scatter plot of the first two latent dimensions, or histograms of a single one.

    Groups are named at their centres where the names have room, otherwise in a legend.

    Parameters
    ----------
    latents : array-like of shape (n, k)
        What `transform` returns; the columns of a data frame name the axes.
    labels : array-like of shape (n,), optional
        Group of each row, which decides its colour; missing labels are grey.
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
    >>> model = clvm.ContrastiveLVM()
    >>> latents = model.fit_transform(data.target, background=data.background)
    >>> ax = clvm.plots.plot_latents(latents, data.target_labels, title="cLVM")
    >>> ax.get_title(loc="left")
    'cLVM'
    """
    points = _points(latents, "latents")
    groups = _groups(labels, len(points))
    if ax is None:
        ax = Figure(figsize=(4.6, 4.2), layout="constrained").subplots()
    centres = _draw(ax, points, groups, _axis_names(latents), title)
    if not _name_centres(ax, centres, groups) and groups.names:
        # Not loc="best": it tries every point, slowly.
        ax.legend(handles=_handles(groups), loc="upper right", fontsize=8, edgecolor="none")
    return ax


def plot_comparison(
    panels: Mapping[str, Any], labels: Any = None, *, figure: Figure | None = None
) -> Figure:
    """The same rows under several methods, side by side and in the same colours.

    Parameters
    ----------
    panels : mapping of str to array-like of shape (n, k)
        Title and latents of each panel, from left to right.
    labels : array-like of shape (n,), optional
        Group of each row. Names stand at the centres of the groups in the panels that separate
        them, or in one legend if no panel does.
    figure : matplotlib.figure.Figure, optional
        An empty figure or subfigure to draw in; by default a new one.

    Returns
    -------
    matplotlib.figure.Figure

    Examples
    --------
    >>> import numpy as np
    >>> import contrastive_lvm as clvm
    >>> rows = np.random.default_rng(0).standard_normal((20, 2))
    >>> figure = clvm.plots.plot_comparison({"one": rows, "another": 2.0 * rows})
    >>> [ax.get_title(loc="left") for ax in figure.axes]
    ['one', 'another']
    """
    if not panels:
        raise ValueError("panels is empty; give at least one title with its latents.")
    points = {title: _points(latents, f"panels[{title!r}]") for title, latents in panels.items()}
    rows = {title: len(array) for title, array in points.items()}
    if len(set(rows.values())) > 1:
        raise ValueError(f"panels have different numbers of rows, {rows}; give each the same rows.")
    groups = _groups(labels, next(iter(rows.values())))
    if figure is None:
        width, height = PANEL_INCHES
        figure = Figure(figsize=(width * len(points), height), layout="constrained")
    named = False
    for ax, (title, array) in zip(_row_of_axes(figure, len(points)), points.items(), strict=True):
        centres = _draw(ax, array, groups, _axis_names(panels[title]), title)
        named |= _name_centres(ax, centres, groups)
    if groups.names and not named:
        handles = _handles(groups)
        figure.legend(
            handles=handles,
            loc="outside lower center",
            ncols=_legend_columns(figure, groups.names),
            frameon=False,
            fontsize=9,
            columnspacing=1.0,
            handletextpad=0.1,
        )
    return figure


def _legend_columns(figure: Figure, names: list[str]) -> int:
    """As many entries side by side as fit, by a rough width of a letter."""
    inches = float(figure.bbox.width) / float(figure.dpi)
    entry = 0.4 + 0.08 * max(len(name) for name in names)
    return max(1, min(len(names) + 1, int(inches / entry)))


def _points(latents: Any, name: str) -> Array:
    """Latents as a finite array with at least one row and one column."""
    points = np.asarray(latents, dtype=np.float64)
    if points.ndim != 2 or 0 in points.shape:
        raise ValueError(
            f"{name} has shape {points.shape}, but needs rows and at least one column; "
            "pass what transform returns."
        )
    bad = int((~np.isfinite(points)).any(axis=1).sum())
    if bad:
        raise ValueError(f"{name} holds NaN or infinity in {bad} row(s); drop those rows first.")
    return points


def _groups(labels: Any, n_rows: int) -> Groups:
    if labels is None:
        return Groups([], np.full(n_rows, -1))
    values = labels if isinstance(labels, pd.Series | pd.Categorical) else np.asarray(labels)
    if values.ndim != 1 or len(values) != n_rows:
        raise ValueError(
            f"labels has shape {values.shape}, but the latents have {n_rows} rows; "
            "give one label a row."
        )
    codes, names = pd.factorize(values, sort=True)
    return Groups([str(name) for name in names], codes)


def _axis_names(latents: Any) -> list[str]:
    columns = getattr(latents, "columns", None)
    if columns is None:
        return ["dimension 1", "dimension 2"]
    return [str(column) for column in columns[:2]]


def _row_of_axes(figure: Figure, count: int) -> list[Axes]:
    axes: list[Axes] = list(figure.subplots(1, count, squeeze=False)[0])
    return axes


def _draw(
    ax: Axes, points: Array, groups: Groups, axis_names: list[str], title: str | None
) -> Array:
    """Draw the rows; the places for the groups' names, (G, 2)."""
    if points.shape[1] == 1:
        centres = _histograms(ax, points[:, 0], groups)
        axis_names = [axis_names[0], "rows"]
    else:
        centres = _scatter(ax, points[:, :2], groups)
    ax.set_xlabel(axis_names[0], fontsize=9, color=INK)
    ax.set_ylabel(axis_names[1], fontsize=9, color=INK)
    if title is not None:
        ax.set_title(title, loc="left", fontsize=10, color=INK)
    thin_frame(ax)
    return centres


def _scatter(ax: Axes, points: Array, groups: Groups) -> Array:
    """Small translucent points, in an order that lets no group hide another."""
    order = np.random.default_rng(0).permutation(len(points))
    codes = groups.codes[order]
    styles = np.where(codes < 0, 0, codes // len(PALETTE) % len(MARKERS))
    colours = np.array([_colour(code, groups) for code in codes])
    size = float(np.clip(6000.0 / len(points), 2.0, 14.0))
    for style in np.unique(styles):
        chosen = styles == style
        x, y = points[order[chosen]].T
        ax.scatter(
            x,
            y,
            s=size,
            c=colours[chosen],
            marker=MARKERS[style],
            alpha=0.65,
            linewidths=0.0,
            rasterized=len(points) > 10_000,  # keeps vector files small
        )
    ax.margins(0.06)
    members = [points[groups.codes == code] for code in groups.positions()]
    return np.array([np.median(rows, axis=0) for rows in members]).reshape(-1, 2)


def _histograms(ax: Axes, values: Array, groups: Groups) -> Array:
    """One translucent histogram a group over common bins; names go to their peaks."""
    edges = np.histogram_bin_edges(values, bins=min(60, max(10, int(np.sqrt(len(values))))))
    centres = []
    present = [-1] if (groups.codes < 0).any() else []
    for code in [*present, *groups.positions()]:
        members = values[groups.codes == code]
        counts, _, _ = ax.hist(members, bins=edges.tolist(), color=_colour(code, groups), alpha=0.6)
        if code >= 0:
            centres.append([np.median(members), 1.04 * np.max(counts)])
    ax.margins(y=0.12)
    return np.array(centres).reshape(-1, 2)


def _colour(code: int, groups: Groups) -> str:
    if not groups.names:
        return PALETTE[0]
    return UNLABELLED if code < 0 else PALETTE[code % len(PALETTE)]


def _name_centres(ax: Axes, centres: Array, groups: Groups) -> bool:
    """Write each name at its centre if none would touch another; whether that was done."""
    if not groups.names or _crowded(ax, centres, groups.names):
        return False
    for name, (x, y) in zip(groups.names, centres, strict=True):
        ax.text(
            x,
            y,
            name,
            color=INK,
            fontsize=10,
            fontweight="bold",
            ha="center",
            va="center",
            path_effects=[withStroke(linewidth=2.5, foreground="white")],
        )
    return True


def _crowded(ax: Axes, centres: Array, names: list[str]) -> bool:
    """Whether two names would touch, in fractions of the axes and a rough width of a letter."""
    low, high = np.array([ax.get_xlim(), ax.get_ylim()]).T
    places = (centres - low) / (high - low)
    widths = 0.015 + 0.013 * np.array([len(name) for name in names])  # half a name
    gaps = np.abs(places[:, None] - places[None, :])  # (G, G, 2)
    touching = (gaps[:, :, 0] < widths[:, None] + widths[None, :]) & (gaps[:, :, 1] < 0.08)
    return bool(np.triu(touching, k=1).any())


def _handles(groups: Groups) -> list[Line2D]:
    """Entries of a legend, written by hand because points are not drawn group by group."""
    entries = [(code, name) for code, name in enumerate(groups.names)]
    if (groups.codes < 0).any():
        entries.append((-1, "unlabelled"))
    return [
        Line2D(
            [],
            [],
            linestyle="none",
            marker=MARKERS[max(code, 0) // len(PALETTE) % len(MARKERS)],
            color=_colour(code, groups),
            markersize=5,
            label=name,
        )
        for code, name in entries
    ]


def thin_frame(ax: Axes) -> None:
    """Two thin spines and small ticks."""
    ax.spines[["top", "right"]].set_visible(False)
    ax.spines[["left", "bottom"]].set_linewidth(0.6)
    for name in ("x", "y"):
        if getattr(ax, f"get_{name}scale")() == "linear":
            ax.locator_params(axis=name, nbins=5)
    ax.tick_params(width=0.6, length=3, labelsize=8, colors=INK)
