"""Which features a model uses: loadings of one dimension, and norms over all of them."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes

from contrastive_lvm.arrays import Array
from contrastive_lvm.checks import check_choice, check_integer
from contrastive_lvm.plots.inputs import Groups, feature_groups, feature_names, learned
from contrastive_lvm.plots.latents import WIDEST
from contrastive_lvm.plots.style import (
    INK,
    PALETTE,
    axes_or_new,
    colour_of,
    finish,
    name_at,
    names_in_corner,
    names_of_rows,
    shortened,
)

MOST_CROSSES = 150  # features, beyond which crosses would run together
MODELS = "ContrastiveLVM, PPCA or ContrastivePCA"


def plot_loadings(
    model: Any,
    dimension: int = 0,
    *,
    of: str = "target",
    n: int = 20,
    groups: Any = None,
    ax: Axes | None = None,
    title: str | None = None,
) -> Axes:
    """The largest loadings of one dimension, ranked, with 90 % intervals where there are any.

    Parameters
    ----------
    model : ContrastiveLVM, PPCA or ContrastivePCA
        Fitted; loadings have intervals under `inference="vb"`, `"svi"` or `"nuts"`, if they have a
        posterior there.
    dimension : int
        Which dimension, from 0.
    of : {"target", "shared"}
        Which loadings; PPCA and ContrastivePCA have only one kind.
    n : int
        Features to draw at most, those with the largest loadings.
    groups : array-like of shape (d,) or dict, optional
        Group of each feature, which decides its colour: one label a feature, or a dict from group
        to its features by name or position.
    ax : matplotlib.axes.Axes, optional
        Where to draw; by default the axes of a new figure, `ax.figure`.
    title : str, optional
        By default it names the dimension.

    Returns
    -------
    matplotlib.axes.Axes

    Examples
    --------
    >>> import contrastive_lvm as clvm
    >>> data = clvm.datasets.make_subgroups(random_state=0)
    >>> model = clvm.ContrastiveLVM(target_prior="ard", inference="vb")
    >>> model = model.fit(data.target, background=data.background)
    >>> ax = clvm.plots.plot_loadings(model, n=5)
    >>> len(ax.get_yticks()), ax.get_xlabel()
    (5, 'loading, with 90 % intervals')
    """
    components, stds = _components(model, check_choice("of", of, ("target", "shared")))
    dimension, n = _dimension(dimension, len(components)), check_integer("n", n, 1)
    loadings = components[dimension]
    names = feature_names(model, len(loadings))
    found = feature_groups(groups, len(loadings), names)
    order = np.argsort(-np.abs(loadings), kind="stable")[:n]
    ax = axes_or_new(ax, (4.6, 1.2 + 0.19 * len(order)))
    reach = None if stds is None else WIDEST * stds[dimension][order]
    _draw_ranked(ax, loadings[order], reach, _colours(found, order))
    label = "loading" if reach is None else "loading, with 90 % intervals"
    finish(ax, _title(title, of, dimension, len(order), len(loadings)), label, "")
    names_of_rows(ax, [shortened(names[i]) for i in order])
    _name_groups(ax, found, order, loadings)
    return ax


def _components(model: Any, of: str) -> tuple[Array, Array | None]:
    """Loadings, a dimension a row, and their standard deviations."""
    if hasattr(model, "components_") and of == "target":
        return np.asarray(model.components_), None
    components = np.asarray(learned(model, f"{of}_components_", MODELS))
    return components, getattr(model, f"{of}_components_std_", None)


def _dimension(dimension: Any, count: int) -> int:
    if count == 0:
        raise ValueError("model has no such dimensions; fit it with at least one.")
    chosen = check_integer("dimension", dimension, 0)
    if chosen >= count:
        raise ValueError(f"dimension={chosen} must be below {count}, the number of dimensions.")
    return chosen


def _title(title: str | None, of: str, dimension: int, shown: int, total: int) -> str:
    if title is not None:
        return title
    most = f", the largest {shown} of {total}" if shown < total else ""
    return f"{of.capitalize()} dimension {dimension + 1}{most}"


def _colours(groups: Groups, order: np.ndarray) -> list[str]:
    if not groups.names:
        return [PALETTE[0]] * len(order)
    return [colour_of(int(code)) for code in groups.codes[order]]


def _draw_ranked(ax: Axes, values: Array, reach: Array | None, colours: list[str]) -> None:
    at = np.arange(len(values))
    if reach is None:
        ax.hlines(at, 0.0, values, colors=colours, linewidth=1.8)
    else:
        ax.hlines(at, values - reach, values + reach, colors=colours, linewidth=1.8)
    ax.scatter(values, at, s=22, c=colours, zorder=3, linewidths=0.0)
    ax.axvline(0.0, color=INK, linewidth=0.6)


def _name_groups(ax: Axes, groups: Groups, order: np.ndarray, loadings: Array) -> None:
    """Names of the groups that are drawn, in the lower corner that small loadings leave free."""
    drawn = [code for code in groups.positions() if code in groups.codes[order]]
    names = [(shortened(groups.names[code]), colour_of(code)) for code in drawn]
    low, high = ax.get_xlim()
    small = loadings[order[len(order) // 2 :]]
    right = bool(high - small.max() > small.min() - low)
    names_in_corner(ax, names, right=right, top=False)


def plot_relevance(
    model: Any,
    *,
    groups: Any = None,
    ax: Axes | None = None,
    title: str | None = None,
) -> Axes:
    """Norm of every feature's target loadings, groups side by side.

    Dropped features are counted below, and crossed out while there are no more than 150.

    Parameters
    ----------
    model : ContrastiveLVM
        Fitted.
    groups : array-like of shape (d,) or dict, optional
        As in `plot_loadings`; features of a group stand together.
    ax : matplotlib.axes.Axes, optional
        Where to draw; by default the axes of a new figure, `ax.figure`.
    title : str, optional

    Returns
    -------
    matplotlib.axes.Axes

    Examples
    --------
    >>> import contrastive_lvm as clvm
    >>> data = clvm.datasets.make_contrastive(random_state=0)
    >>> model = clvm.ContrastiveLVM(2, 8, target_prior="horseshoe")
    >>> model = model.fit(data.target, background=data.background)
    >>> ax = clvm.plots.plot_relevance(model, groups={"first": range(25), "rest": range(25, 50)})
    >>> len(ax.patches), ax.get_ylabel()
    (50, 'norm of target loadings')
    """
    norms = np.asarray(learned(model, "feature_relevance_", "ContrastiveLVM"))
    dropped = ~np.asarray(model.selected_features_)
    found = feature_groups(groups, len(norms), feature_names(model, len(norms)))
    order = np.argsort(np.where(found.codes < 0, len(found.names), found.codes), kind="stable")
    ax = axes_or_new(ax, (5.4, 3.4))
    ax.bar(np.arange(len(norms)), norms[order], color=_colours(found, order), width=0.8)
    crosses = np.flatnonzero(dropped[order] & (len(norms) <= MOST_CROSSES))
    small = float(np.clip(600.0 / len(norms), 4.0, 16.0))
    ax.scatter(crosses, norms[order][crosses], marker="x", s=small, color=INK, linewidths=0.9)
    ax.margins(x=0.01, y=0.18)
    ax.set_ylim(bottom=min(0.0, -0.02 * float(norms.max())))
    axis = "feature"
    if dropped.any():
        axis += f" (\N{MULTIPLICATION SIGN} {int(dropped.sum())} of {len(norms)} dropped)"
    finish(ax, title, axis, "norm of target loadings")
    _name_blocks(ax, found, order)
    return ax


def _name_blocks(ax: Axes, groups: Groups, order: np.ndarray) -> None:
    """Names above the middles of blocks, or in a corner where they would touch."""
    codes = groups.codes[order]
    present = [code for code in groups.positions() if code in codes]
    middles = [float(np.flatnonzero(codes == code).mean()) for code in present]
    letters = np.array([len(groups.names[code]) for code in present])
    room = np.diff(middles) / len(codes)
    if (room < 0.012 * (letters[1:] + letters[:-1])).any():
        names_in_corner(ax, [(groups.names[code], colour_of(code)) for code in present])
        return
    top = ax.get_ylim()[1]
    for code, at in zip(present, middles, strict=True):
        name_at(ax, at, 0.99 * top, groups.names[code], colour_of(code), ha="center", va="top")
