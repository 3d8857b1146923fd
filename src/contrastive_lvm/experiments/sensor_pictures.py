"""Figures of sparse target loadings, signals grouped by type of sensor."""

from matplotlib.figure import Figure

from contrastive_lvm.arrays import Array
from contrastive_lvm.datasets import SensorData
from contrastive_lvm.estimators.contrastive_lvm import ContrastiveLVM
from contrastive_lvm.estimators.lasso_path import LassoPath
from contrastive_lvm.experiments.drawing import axes_in_a_grid
from contrastive_lvm.plots import plot_lasso_path, plot_relevance, plot_scales
from contrastive_lvm.plots.style import INK, PALETTE, finish, names_in_corner

TYPES = {
    "acc": "accelerometers",
    "ecg": "electrocardiogram",
    "gyro": "gyroscopes",
    "mag": "magnetometers",
}


def draw_norms(
    data: SensorData, plain: ContrastiveLVM, lasso: ContrastiveLVM, horseshoe: ContrastiveLVM
) -> Figure:
    """Draw the norms of each signal's target loadings, types side by side."""
    figure, axes = axes_in_a_grid(3, 1, (5.2, 1.9))
    models = {"no penalty": plain, "group lasso": lasso, "horseshoe": horseshoe}
    for ax, (title, model) in zip(axes, models.items(), strict=True):
        plot_relevance(model, groups=data.sensor_types, ax=ax, title=title)
        ax.set_ylabel("norm of loadings")
    return figure


def draw_path(data: SensorData, path: LassoPath, agreement: Array, chosen: int) -> Figure:
    """Draw the path of the norms, and how well the activities stay apart."""
    figure, (left, right) = axes_in_a_grid(2, 1, (5.0, 2.4))
    plot_lasso_path(path, mark=chosen, groups=_kinds(data), ax=left, title="Group-lasso path")
    right.plot(
        path.rhos, path.n_selected / path.row_norms.shape[1], color=PALETTE[0], linewidth=1.8
    )
    right.plot(path.rhos, agreement, color=PALETTE[1], linewidth=1.8)
    right.set_xscale("log")
    right.axvline(path.rhos[chosen], color=INK, linewidth=0.8, linestyle=":")
    curves = {"share of signals left": PALETTE[0], "ARI of the activities": PALETTE[1]}
    names_in_corner(right, curves.items(), top=False)
    finish(right, "What the penalty costs", "strength", "share, ARI")
    right.set_ylim(bottom=-0.2)
    return figure


def draw_scales(data: SensorData, model: ContrastiveLVM) -> Figure:
    """Draw the posterior densities of the scales of each signal's loadings."""
    figure, (ax,) = axes_in_a_grid(1, 1, (5.0, 3.0))
    plot_scales(model, groups=_kinds(data), ax=ax, title="Scales of the horseshoe")
    return figure


def _kinds(data: SensorData) -> list[str]:
    """Return the type of each signal in full."""
    return [TYPES[kind] for kind in data.sensor_types]
