"""Rows and entries that a model does not explain."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap

from contrastive_lvm.arrays import RowLabels
from contrastive_lvm.checks import check_integer
from contrastive_lvm.plots import style
from contrastive_lvm.plots.inputs import learned, read_missing, row_groups


def plot_outliers(
    model: Any,
    X: Any,
    labels: RowLabels = None,
    *,
    of: str = "target",
    n: int = 10,
    ax: Axes | None = None,
    title: str | None = None,
) -> Axes:
    """Plot an outlier map: how extreme each row's latents are, and how badly the model fits it.

    Rows to the right have extreme latents but fit the model; rows at the top do not fit the model.
    The `n` rows that `model.outliers` ranks first are marked with their numbers.

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
    ax, title : as in `plot_latents`

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
    rank = learned(model, "outliers", "ContrastiveLVM")
    worst = rank(X, of=of).rows[: check_integer("n", n, 0)]
    latents, missing = model.latents(X, of=of), read_missing(X, "X")
    parts = [part for part in (latents.target, latents.shared) if part is not None]
    far = np.linalg.norm(np.hstack(parts), axis=1)  # in standard deviations of the prior
    observed = missing.shape[1] - missing.sum(axis=1)
    misfit = -model.score_samples(X, of=of) / np.maximum(observed, 1)
    names = np.arange(len(far)).astype(str) if labels is None else np.asarray(labels).astype(str)
    row_groups(names, len(far))
    ax = style.axes_or_new(ax)
    rest = np.setdiff1d(np.arange(len(far)), worst)
    size = style.point_size(len(far))
    ax.scatter(far[rest], misfit[rest], s=size, color=style.PALETTE[0], alpha=0.6, linewidths=0.0)
    ax.scatter(far[worst], misfit[worst], s=18, color=style.PALETTE[5], marker="^", linewidths=0.0)
    ax.margins(0.1)
    style.name_apart(ax, far[worst], misfit[worst], [style.label(names[i]) for i in worst])
    marked = f"\N{BLACK UP-POINTING TRIANGLE} {len(worst)} most outlying of {len(far)} rows"
    style.names_in_corner(ax, [(marked, style.PALETTE[5])] if len(worst) else [])
    style.finish(ax, title, "length of the latents", "\N{MINUS SIGN}log-likelihood per entry")
    ax.set_ylim(top=ax.get_ylim()[1] + 0.08 * np.ptp(ax.get_ylim()))
    return ax


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

    Light entries fit the model, dark entries are outliers, and white entries are missing. If a
    weight belongs to a whole row, the row has one colour.

    Parameters
    ----------
    model : ContrastiveLVM
        Fitted with Student-t noise.
    X : array-like or sparse matrix of shape (n_rows, d)
    of : {"target", "background"}
        Which set the rows belong to.
    n : int
        Number of rows to draw, the most outlying first.
    ax, title : as in `plot_latents`

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
    found = learned(model, "outliers", "ContrastiveLVM")(X, of=of)
    if (found.weights == 1.0).all():
        raise ValueError(
            f"model has likelihood={model.likelihood!r}, which gives all entries the same weight; "
            "fit it with likelihood='student_t'."
        )
    rows = found.rows[: check_integer("n", n, 1)]
    weights = found.weights[rows]
    if weights.shape[1] == 1:
        weights = np.repeat(weights, model.n_features_in_, axis=1)
    ax = style.axes_or_new(ax, (5.4, 1.3 + 0.16 * min(len(rows), 60)))
    shades = LinearSegmentedColormap.from_list("", [style.PALETTE[5], "#F5E6D8", "#F0F0F0"])
    image = ax.imshow(np.ma.masked_invalid(weights), shades, aspect="auto", interpolation="nearest")
    image.set_clim(0.0, 1.0)
    title = "Weights: dark entries are outliers" if title is None else title
    style.finish(ax, title, "feature", "row")
    every = -(-len(rows) // 30)  # at most thirty numbers fit
    ax.set_yticks(np.arange(0, len(rows), every), [str(row) for row in rows[::every]])
    return style.without_frame(ax)
