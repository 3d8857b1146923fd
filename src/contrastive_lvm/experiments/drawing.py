"""Pictures of experiments: panels of latents, densities, bars and curves in one style."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy.stats import gaussian_kde

from contrastive_lvm.core.types import Array
from contrastive_lvm.plots import plot_comparison
from contrastive_lvm.plots.scatter import INK, PALETTE, thin_frame

PANEL = (2.7, 2.6)  # inches: two of them, as wide as a phone, leave names of nine points readable
GRID = 60  # points of a density, each way


def grid_of_latents(panels: Mapping[str, Array], labels: Any) -> Figure:
    """Planes of the same rows, two beside each other, then below."""
    names = list(panels)
    rows = [names[i : i + 2] for i in range(0, len(names), 2)]
    width, height = PANEL
    figure = Figure(figsize=(2 * width, height * len(rows)), layout="constrained")
    for part, own in zip(figure.subfigures(len(rows), 1, squeeze=False)[:, 0], rows, strict=True):
        whole = part if len(own) == 2 else part.subfigures(1, 2)[0]
        plot_comparison({name: panels[name] for name in own}, labels, figure=whole)
    return figure


def axes_in_a_grid(
    count: int, columns: int = 2, panel: tuple[float, float] = PANEL
) -> tuple[Figure, list[Axes]]:
    """A figure of panels, some beside each other, then below."""
    rows = -(-count // columns)
    figure = Figure(figsize=(panel[0] * columns, panel[1] * rows), layout="constrained")
    axes = list(figure.subplots(rows, columns, squeeze=False).ravel())
    for ax in axes[count:]:
        ax.set_axis_off()
    return figure, axes[:count]


def finish(ax: Axes, title: str, x: str, y: str) -> None:
    """Titles and names of axes, as everywhere in the project."""
    ax.set_title(title, loc="left", fontsize=10, color=INK)
    ax.set_xlabel(x, fontsize=9, color=INK)
    ax.set_ylabel(y, fontsize=9, color=INK)
    thin_frame(ax)


def name_at(ax: Axes, x: float, y: float, name: str, colour: str, **words: Any) -> None:
    """A name beside what it names, in its colour."""
    place = {"ha": "left", "va": "center"} | words
    text = ax.text(x, y, name, color=colour, fontsize=9, fontweight="bold", **place)
    text.set_in_layout(False)  # axes keep their place


def densities(
    methods: Mapping[str, Mapping[str, Array]], labels: Any, names: Sequence[str]
) -> Figure:
    """A grid of planes with the density of each group: methods beside each other.

    `methods` holds for each of them the latents of every panel of its column.
    """
    rows = max(len(panels) for panels in methods.values())
    figure = Figure(figsize=(2.0 * len(methods), 1.9 * rows), layout="constrained")
    grid = figure.subplots(rows, len(methods), squeeze=False)
    for own, (method, panels) in zip(grid.T, methods.items(), strict=True):
        for ax, (title, latents) in zip(own, panels.items(), strict=True):
            _density(ax, latents, np.asarray(labels))
            ax.set_title(f"{method}, {title}", loc="left", fontsize=8, color=INK)
            ax.set(xticks=[], yticks=[])
            thin_frame(ax)
    place: dict[str, Any] = {"va": "top", "transform": grid[0, 0].transAxes}
    for code, name in enumerate(names):
        name_at(grid[0, 0], 0.02, 0.99 - 0.12 * code, name, PALETTE[code], **place)
    return figure


def _density(ax: Axes, latents: Array, labels: np.ndarray) -> None:
    low, high = latents.min(axis=0), latents.max(axis=0)
    margin = 0.12 * (high - low)
    axes = [np.linspace(a, b, GRID) for a, b in zip(low - margin, high + margin, strict=True)]
    x, y = np.meshgrid(*axes)
    for code, label in enumerate(np.unique(labels)):
        points = latents[labels == label]
        ax.scatter(points[:, 0], points[:, 1], s=5, color=PALETTE[code], alpha=0.5, linewidths=0)
        density = gaussian_kde(points.T)(np.vstack([x.ravel(), y.ravel()])).reshape(x.shape)
        levels = density.max() * np.array([0.1, 0.35, 0.6, 0.85])
        ax.contour(x, y, density, levels=levels, colors=PALETTE[code], linewidths=1.0)
