"""Rows and entries that a model does not explain."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap

from contrastive_lvm.arrays import Array
from contrastive_lvm.checks import check_integer
from contrastive_lvm.plots.inputs import able, read_missing, row_groups
from contrastive_lvm.plots.style import (
    LETTER,
    PALETTE,
    axes_or_new,
    finish,
    name_at,
    names_in_corner,
    point_size,
)

WEIGHTS = LinearSegmentedColormap.from_list("weights", [PALETTE[5], "#F5E6D8", "#F0F0F0"])


def plot_outliers(
    model: Any,
    X: Any,
    labels: Any = None,
    *,
    of: str = "target",
    n: int = 10,
    ax: Axes | None = None,
    title: str | None = None,
) -> Axes:
    """Plot an outlier map: how extreme each row's latents are, and how badly the model fits it.

    To the right are rows whose latents are extreme but which the model explains; at the top are
    rows that it does not explain. The `n` rows that `model.outliers` ranks first are marked with
    their numbers.

    Parameters
    ----------
    model : ContrastiveLVM
        Fitted; with Student-t noise outliers do not spoil the fit itself.
    X : array-like or sparse matrix of shape (n_rows, d)
    labels : array-like of shape (n_rows,), optional
        Names of the rows, in place of their numbers.
    of : {"target", "background"}
        Which set the rows belong to.
    n : int
        Number of rows to mark.
    ax : matplotlib.axes.Axes, optional
        Axes to draw on and return; by default those of a new figure, `ax.figure`.
    title : str, optional

    Examples
    --------
    >>> import contrastive_lvm as clvm
    >>> data = clvm.datasets.make_outliers(random_state=0)
    >>> model = clvm.ContrastiveLVM(2, 8, likelihood="student_t")
    >>> model = model.fit(data.target, background=data.background)
    >>> ax = clvm.plots.plot_outliers(model, data.target, n=5)
    >>> ax.get_xlabel()
    'length of the latents'
    """
    rank = able(model, "outliers", "ContrastiveLVM")
    n = check_integer("n", n, 0)
    worst = rank(X, of=of).rows[:n]
    far, observed = _lengths(model, X, of), np.maximum(read_missing(X, "X").observed(), 1)
    misfit = -model.score_samples(X, of=of) / observed
    names = np.arange(len(far)).astype(str) if labels is None else np.asarray(labels).astype(str)
    row_groups(names, len(far))
    ax = axes_or_new(ax)
    rest = np.setdiff1d(np.arange(len(far)), worst)
    size = point_size(len(far))
    ax.scatter(far[rest], misfit[rest], s=size, color=PALETTE[0], alpha=0.6, linewidths=0.0)
    ax.scatter(far[worst], misfit[worst], s=18, color=PALETTE[5], marker="^", linewidths=0.0)
    ax.margins(0.1)
    _name_apart(ax, far[worst], misfit[worst], names[worst])
    marked = f"\N{BLACK UP-POINTING TRIANGLE} {len(worst)} most outlying of {len(far)} rows"
    names_in_corner(ax, [(marked, PALETTE[5])] if len(worst) else [])
    finish(ax, title, "length of the latents", "\N{MINUS SIGN}log-likelihood per entry")
    ax.set_ylim(top=ax.get_ylim()[1] + 0.08 * np.ptp(ax.get_ylim()))
    return ax


def _lengths(model: Any, X: Any, of: str) -> Array:
    """Return the norm of all latents of each row, in standard deviations of the prior."""
    found = model.latents(X, of=of)
    parts = [part for part in (found.target, found.shared) if part is not None]
    length: Array = np.linalg.norm(np.hstack(parts), axis=1)
    return length


def _name_apart(ax: Axes, x: Array, y: Array, names: np.ndarray) -> None:
    """Write names beside points, except those that would touch one already there."""
    low, high = np.array([ax.get_xlim(), ax.get_ylim()]).T
    places = (np.column_stack([x, y]) - low) / (high - low)
    placed: list[tuple[Array, int]] = []
    for (at_x, at_y), place, name in zip(np.column_stack([x, y]), places, names, strict=True):
        touching = [
            abs(place[1] - other[1]) < 0.05
            and abs(place[0] - other[0]) < 0.03 + LETTER * max(len(name), letters)
            for other, letters in placed
        ]
        if not any(touching):
            left = place[0] > 0.85
            words = f"{name} " if left else f"  {name}"
            name_at(ax, at_x, at_y, words, ha="right" if left else "left", fontweight="normal")
            placed.append((place, len(name)))


def plot_weights(
    model: Any,
    X: Any,
    *,
    of: str = "target",
    n: int = 30,
    ax: Axes | None = None,
    title: str | None = None,
) -> Axes:
    """Plot the weights of entries in the rows that a robust model trusts least.

    Light entries fit the model, dark ones are outliers, white ones are missing. Where a weight
    belongs to a whole row, so does its colour.

    Parameters
    ----------
    model : ContrastiveLVM
        Fitted with Student-t noise.
    X : array-like or sparse matrix of shape (n_rows, d)
    of : {"target", "background"}
        Which set the rows belong to.
    n : int
        Number of rows to draw, the most outlying first.
    ax : matplotlib.axes.Axes, optional
        Axes to draw on and return; by default those of a new figure, `ax.figure`.
    title : str, optional

    Examples
    --------
    >>> import contrastive_lvm as clvm
    >>> data = clvm.datasets.make_outliers(random_state=0)
    >>> model = clvm.ContrastiveLVM(2, 8, likelihood="student_t")
    >>> model = model.fit(data.target, background=data.background)
    >>> ax = clvm.plots.plot_weights(model, data.target, n=25)
    >>> ax.images[0].get_array().shape
    (25, 50)
    """
    found = able(model, "outliers", "ContrastiveLVM")(X, of=of)
    if (found.weights == 1.0).all():
        raise ValueError(
            f"model has likelihood={model.likelihood!r}, which gives all entries the same weight; "
            "fit it with likelihood='student_t'."
        )
    rows = found.rows[: check_integer("n", n, 1)]
    weights = found.weights[rows]
    if weights.shape[1] == 1:
        weights = np.repeat(weights, model.n_features_in_, axis=1)
    ax = axes_or_new(ax, (5.4, 1.3 + 0.16 * min(len(rows), 60)))
    ax.imshow(
        np.ma.masked_invalid(weights),
        cmap=WEIGHTS,
        vmin=0.0,
        vmax=1.0,
        aspect="auto",
        interpolation="nearest",
    )
    finish(ax, "Weights: dark entries are outliers" if title is None else title, "feature", "row")
    every = -(-len(rows) // 30)  # at most thirty numbers fit
    ax.set_yticks(np.arange(0, len(rows), every), [str(row) for row in rows[::every]])
    ax.spines[["left", "bottom"]].set_visible(False)
    ax.tick_params(axis="y", length=0)
    return ax
