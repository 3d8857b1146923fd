"""Pictures of sparse target loadings, signals grouped by type of sensor."""

from typing import Any

import numpy as np
from matplotlib.figure import Figure

from contrastive_lvm.core.types import Array
from contrastive_lvm.datasets import SensorData
from contrastive_lvm.estimators.contrastive_lvm import ContrastiveLVM
from contrastive_lvm.estimators.path import LassoPath
from contrastive_lvm.experiments.drawing import axes_in_a_grid, finish, name_at
from contrastive_lvm.plots.scatter import INK, PALETTE

TYPES = {
    "acc": "accelerometers",
    "ecg": "electrocardiogram",
    "gyro": "gyroscopes",
    "mag": "magnetometers",
}


def draw_norms(
    data: SensorData, plain: ContrastiveLVM, lasso: ContrastiveLVM, horseshoe: ContrastiveLVM
) -> Figure:
    """Norms of the target loadings of each signal, types side by side."""
    types = np.array(data.sensor_types)
    order = np.argsort([list(TYPES).index(t) for t in types], kind="stable")
    figure, axes = axes_in_a_grid(3, 1, (5.2, 1.9))
    models = {"no penalty": plain, "group lasso": lasso, "horseshoe": horseshoe}
    for ax, (title, model) in zip(axes, models.items(), strict=True):
        norms = np.linalg.norm(model.target_components_, axis=0)[order]
        colours = [_colour(t) for t in types[order]]
        ax.bar(np.arange(len(norms)), norms, color=colours, width=0.8)
        dropped = np.flatnonzero(norms == 0)
        ax.scatter(dropped, np.zeros(len(dropped)), marker="x", s=14, color=INK, linewidths=0.9)
        finish(ax, title, "signal", "norm of loadings")
        ax.margins(y=0.16)
        for kind in dict.fromkeys(types[order]):
            at = float(np.flatnonzero(types[order] == kind).mean())
            top = ax.get_ylim()[1]
            name_at(ax, at, 0.98 * top, str(kind), _colour(kind), ha="center", va="top")
    return figure


def draw_path(data: SensorData, path: LassoPath, agreement: Array, chosen: int) -> Figure:
    """Norms along the strengths, and how well the activities stay apart."""
    figure, (left, right) = axes_in_a_grid(2, 1, (5.0, 2.4))
    for kind in dict.fromkeys(data.sensor_types):
        own = np.array(data.sensor_types) == kind
        left.plot(path.rhos, path.row_norms[:, own], color=_colour(kind), linewidth=0.9, alpha=0.7)
    names = [TYPES[kind] for kind in dict.fromkeys(data.sensor_types)]
    for i, (kind, name) in enumerate(zip(dict.fromkeys(data.sensor_types), names, strict=True)):
        place: dict[str, Any] = {"transform": left.transAxes, "ha": "right", "va": "top"}
        name_at(left, 0.98, 0.98 - 0.08 * i, name, _colour(kind), **place)
    share = path.n_selected / path.row_norms.shape[1]
    right.plot(path.rhos, share, color=PALETTE[0], linewidth=1.8)
    right.plot(path.rhos, agreement, color=PALETTE[1], linewidth=1.8)
    place = {"transform": right.transAxes}
    name_at(right, 0.03, 0.3, "share of signals left", PALETTE[0], **place)
    name_at(right, 0.03, 0.2, "ARI of the activities", PALETTE[1], **place)
    for ax in (left, right):
        ax.set_xscale("log")
        ax.axvline(path.rhos[chosen], color=INK, linewidth=0.8, linestyle=":")
    finish(left, "Group-lasso path", "strength", "norm of target loadings")
    finish(right, "What the penalty costs", "strength", "share, ARI")
    return figure


def draw_scales(data: SensorData, model: ContrastiveLVM) -> Figure:
    """Posterior densities of the scales that govern each signal's loadings."""
    at, found = np.geomspace(1e-7, 1e2, 400), model.posterior_
    prior = model.target_prior
    density = prior.scale_density(found.prior_states[1], at) * at[:, None]  # of the logarithm
    figure, (ax,) = axes_in_a_grid(1, 1, (5.0, 3.0))
    for kind in dict.fromkeys(data.sensor_types):
        own = np.array(data.sensor_types) == kind
        ax.plot(at, density[:, own], color=_colour(kind), linewidth=0.8, alpha=0.7)
    for i, kind in enumerate(dict.fromkeys(data.sensor_types)):
        place: dict[str, Any] = {"transform": ax.transAxes, "va": "top"}
        name_at(ax, 0.02, 0.98 - 0.08 * i, TYPES[kind], _colour(kind), **place)
    ax.axvline(prior.delta * found.unit_variance, color=INK, linewidth=0.8, linestyle=":")
    ax.set_xscale("log")
    finish(ax, "Scales of the horseshoe (dotted: pruning)", "scale", "density of its logarithm")
    return figure


def _colour(kind: Any) -> str:
    return PALETTE[list(TYPES).index(str(kind))]
