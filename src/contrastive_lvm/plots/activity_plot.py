"""A table plot of the dimensions that each set has, and the variance that they explain."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes

from contrastive_lvm.plots import style
from contrastive_lvm.plots.inputs import learned

MOST_INK = 0.75  # of the darkest cell, so that numbers on it can be read


def plot_activity(model: Any, *, ax: Axes | None = None, title: str | None = None) -> Axes:
    """Plot the blocks that each set has, with the share of its variance that each explains.

    Parameters
    ----------
    model : fitted MultiSetLVM
    ax, title : as in `plot_latents`

    Examples
    --------
    >>> import contrastive_lvm as clvm
    >>> data = clvm.datasets.make_multi_set(random_state=0)
    >>> model = clvm.MultiSetLVM("auto").fit(data.rows, sets=data.sets)
    >>> ax = clvm.plots.plot_activity(model)
    >>> [text.get_text() for text in ax.get_xticklabels()]
    ['shared (3)', 'b+c (1)', 'c (1)', 'noise']
    """
    shares, sizes = learned(model, "variance_ratio_", "MultiSetLVM"), model.activity_.max()
    names = [f"{style.label(name)} ({sizes[name]})" for name in sizes.index]
    values = shares.to_numpy(dtype=np.float64)
    rows, columns = values.shape
    ax = style.axes_or_new(ax, (1.6 + 0.9 * columns, 1.1 + 0.42 * rows))
    ax.imshow(MOST_INK * values, cmap="Blues", vmin=0.0, vmax=1.0, aspect="auto")
    for i, k in np.ndindex(rows, columns):
        if values[i, k] > 0:
            style.name_at(ax, k, i, f"{values[i, k]:.0%}", ha="center", va="center", fontsize=9)
    style.finish(ax, title, "block (dimensions)", "")
    ax.set_xticks(range(columns), [*names, "noise"])
    ax.set_yticks(range(rows), [style.label(str(name)) for name in shares.index])
    return ax
