"""Figures of experiments: latents in grids of panels."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure

from contrastive_lvm.arrays import Array
from contrastive_lvm.plots import plot_comparison
from contrastive_lvm.plots.style import empty_figure

PANEL = (2.7, 2.6)  # inches: names of nine points stay readable in two panels as wide as a phone
Labels = np.ndarray | Sequence[str]


def grid_of_latents(panels: Mapping[str, Array], labels: Labels) -> Figure:
    """Draw latents of the same rows in two panels side by side."""
    return plot_comparison(panels, labels, columns=2, figure=empty_figure(len(panels), 2, PANEL))


def grid_of_densities(panels: Mapping[str, Array], labels: Labels, columns: int) -> Figure:
    """Draw latents in small panels without ticks, with the density of each group."""
    figure = empty_figure(len(panels), columns, (2.0, 1.9))
    plot_comparison(panels, labels, kind="both", columns=columns, figure=figure)
    for ax in figure.axes:
        ax.set(xticks=[], yticks=[], xlabel="", ylabel="")
        ax.set_title(ax.get_title(loc="left"), loc="left", fontsize=9)
    return figure
