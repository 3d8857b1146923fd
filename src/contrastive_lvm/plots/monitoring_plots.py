"""Run charts: statistics of rows in their order, with limits and alarms."""

from typing import TYPE_CHECKING

import numpy as np
from matplotlib.figure import Figure

from contrastive_lvm.plots import style

if TYPE_CHECKING:
    from contrastive_lvm.estimators.monitoring import Monitoring

CHARTS = {"t2": "target T²", "shared_t2": "shared T²", "spe": "SPE"}


def plot_monitoring(monitoring: "Monitoring", *, title: str | None = None) -> Figure:
    """Plot the charts that `monitor` returned over the rows, with their limits.

    Parameters
    ----------
    monitoring : Monitoring
        The result of `monitor`.
    title : str, optional

    Examples
    --------
    >>> import contrastive_lvm as clvm
    >>> data = clvm.datasets.make_subgroups(random_state=0)
    >>> model = clvm.ContrastiveLVM().fit(data.target, background=data.background)
    >>> figure = clvm.plots.plot_monitoring(model.monitor(data.target))
    >>> [ax.get_ylabel() for ax in figure.axes]
    ['target T²', 'shared T²', 'SPE']
    """
    figure = style.new_figure((6.4, 5.4))
    rows = np.arange(1, len(monitoring.spe) + 1)
    for place, (name, said) in enumerate(CHARTS.items()):
        ax = figure.add_subplot(3, 1, place + 1)
        values, limit = getattr(monitoring, name), float(getattr(monitoring, f"{name}_limit"))
        ax.plot(rows, values, color=style.PALETTE[0], linewidth=0.8)
        beyond = values > limit
        size = style.point_size(len(rows))
        ax.scatter(rows[beyond], values[beyond], s=size, color=style.PALETTE[1], zorder=3)
        if np.isfinite(limit):
            ax.axhline(limit, color=style.INK, linewidth=1.0, linestyle="--")
            ax.set_yscale("symlog", linthresh=max(limit, 1e-12))
        seen = [value for value in (limit, *values) if 0.0 < value < np.inf]
        ax.set_ylim(0.0, 1.5 * max(seen, default=1.0))
        style.finish(ax, title if place == 0 else None, "row" if place == 2 else "", said)
    return figure
