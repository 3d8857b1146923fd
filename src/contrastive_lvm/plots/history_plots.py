"""Plots of the training of an autoencoder: parts of its bound, leak and learning rate."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from contrastive_lvm.arrays import Array
from contrastive_lvm.plots import style
from contrastive_lvm.plots.inputs import learned

DIVERGENCES = {
    "target_kl": "target latents",
    "target_shared_kl": "shared, target rows",
    "background_shared_kl": "shared, background rows",
}


def plot_history(model: Any, *, figure: Figure | None = None) -> Figure:
    """Plot the history of a trained autoencoder, a value per epoch.

    The four panels show the lower bound of training rows and (dashed) of held-out rows; the
    divergences, which measure how much each kind of latents is used; what the shared latents reveal
    about the target; and the learning rate. Bounds and divergences are in nats per row.

    Parameters
    ----------
    model : fitted ContrastiveVAE or VAE
    figure : matplotlib Figure, optional
        Where to draw; by default a new one.

    Examples
    --------
    >>> import contrastive_lvm as clvm
    >>> rows = clvm.datasets.make_subgroups(random_state=0).target
    >>> model = clvm.VAE(2, hidden_layer_sizes=(8,), max_epochs=5, random_state=0).fit(rows)
    >>> [ax.get_ylabel() for ax in clvm.plots.plot_history(model).axes]
    ['lower bound, nats per row', 'divergence, nats per row', 'learning rate']
    """
    history: dict[str, Array] = learned(model, "history_", "ContrastiveVAE or VAE")
    contrastive = hasattr(model, "n_background_samples_")
    n_x, n_y = model.n_samples_, model.n_background_samples_ if contrastive else 0
    figure, axes = style.panels(4 if contrastive else 3, 2, figure=figure)
    _draw_bound(axes[0], history, n_x + n_y)
    rows = {"target_kl": n_x, "target_shared_kl": n_x, "background_shared_kl": n_y}
    shown = {name: history[name] / n for name, n in rows.items() if np.any(history[name])}
    _draw_divergences(axes[1], history["epoch"], shown)
    if contrastive:
        _draw_curve(axes[2], history, "leak", "leak of the shared latents")
        axes[2].axhline(0.0, color=style.INK, linewidth=0.8, linestyle=":")
    _draw_curve(axes[-1], history, "learning_rate", "learning rate")
    return figure


def _draw_bound(ax: Axes, history: dict[str, Array], n_rows: int) -> None:
    at, held = history["epoch"], history["validation_bound"] / n_rows
    ax.plot(at, history["bound"] / n_rows, color=style.PALETTE[0], linewidth=1.5)
    looked = np.isfinite(held)  # not after every epoch
    if looked.any():
        ax.plot(at[looked], held[looked], color=style.PALETTE[0], linewidth=1.2, linestyle="--")
    style.finish(ax, None, "epoch", "lower bound, nats per row")


def _draw_divergences(ax: Axes, at: Array, shown: dict[str, Array]) -> None:
    for (name, values), colour in zip(shown.items(), style.PALETTE, strict=False):
        ax.plot(at, values, color=colour, linewidth=1.5, label=DIVERGENCES[name])
    ax.set_ylim(0.0, 1.35 * max((float(np.max(v)) for v in shown.values()), default=1.0))
    names = zip((DIVERGENCES[name] for name in shown), style.PALETTE, strict=False)
    style.names_in_corner(ax, list(names), right=True)
    style.finish(ax, None, "epoch", "divergence, nats per row")


def _draw_curve(ax: Axes, history: dict[str, Array], name: str, title: str) -> None:
    ax.plot(history["epoch"], history[name], color=style.PALETTE[0], linewidth=1.5)
    style.finish(ax, None, "epoch", title)
