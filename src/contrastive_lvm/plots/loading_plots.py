"""Plots of the features that a model uses: loadings of a dimension, and norms over all."""

from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes

from contrastive_lvm.arrays import Array
from contrastive_lvm.checks import check_choice, check_integer
from contrastive_lvm.estimators.summary import ranking_weights
from contrastive_lvm.plots import style
from contrastive_lvm.plots.inputs import Grouping, feature_groups, feature_names, learned
from contrastive_lvm.plots.uncertainty import Z90
from contrastive_lvm.priors.feature_groups import Groups

if TYPE_CHECKING:
    from contrastive_lvm.resampling.bootstrap import BlockBootstrap, Bootstrap


def plot_loadings(
    model: Any,
    dimension: int = 0,
    *,
    of: str = "target",
    n: int = 20,
    groups: Groups = None,
    bootstrap: "Bootstrap | BlockBootstrap | None" = None,
    ax: Axes | None = None,
    title: str | None = None,
) -> Axes:
    """Plot the largest loadings of one dimension, with intervals where they are known to cover.

    Parameters
    ----------
    model : ContrastiveLVM, MultiSetLVM, PPCA or ContrastivePCA
        Fitted; under `inference="nuts"` loadings have 90 % intervals.
    dimension : int
        Which dimension, from 0.
    of : {"target", "shared"}, or a block of a `MultiSetLVM`
        Which loadings; PPCA and ContrastivePCA have only one kind.
    n : int
        Number of features to draw at most, those with the largest loadings.
    groups : array-like of shape (d,) or dict, optional
        Group of each feature, which decides its colour: one label per feature, or a dict from
        group to its features by name or position.
    bootstrap : Bootstrap or BlockBootstrap, optional
        What `bootstrap` returned for this model: target loadings, or those of a block, then have
        its intervals.
    ax : as in `plot_latents`
    title : str, optional
        By default it names the dimension.

    Examples
    --------
    >>> import contrastive_lvm as clvm
    >>> data = clvm.datasets.make_subgroups(random_state=0)
    >>> model = clvm.ContrastiveLVM(2, 10).fit(data.target, background=data.background)
    >>> errors = clvm.bootstrap(
    ...     model, data.target, background=data.background, n_resamples=20, random_state=0
    ... )
    >>> ax = clvm.plots.plot_loadings(model, n=5, bootstrap=errors)
    >>> len(ax.get_yticks()), ax.get_xlabel()
    (5, 'loading, with 90% intervals')
    """
    blocks = getattr(model, "blocks_", ("target", "shared"))
    components = _components(model, check_choice("of", of, tuple(blocks)))
    if not len(components):
        raise ValueError(f"model has no {of} dimensions; fit it with at least one.")
    dimension = check_integer("dimension", dimension, 0, len(components) - 1)
    loadings = components[dimension]
    names = feature_names(model, len(loadings))
    grouping = feature_groups(groups, len(loadings), names)
    sizes = ranking_weights(model, len(loadings)) * np.abs(loadings)
    order = np.argsort(-sizes, kind="stable")[: check_integer("n", n, 1)]
    ax = style.axes_or_new(ax, (4.6, 1.2 + 0.19 * len(order)))
    reach, level = _reach(model, of, bootstrap)
    own = None if reach is None else reach[dimension][order]
    _draw_ranked(ax, loadings[order], own, list(grouping.colours()[order]))
    label = "loading" if own is None else f"loading, with {level:.0%} intervals"
    if title is None:
        most = f", {len(order)} largest of {len(loadings)}" if len(order) < len(loadings) else ""
        title = f"{of} {dimension + 1}{most}"
    style.finish(ax, title, label, "")
    style.names_of_rows(ax, [style.label(names[i]) for i in order])
    low, high = ax.get_xlim()
    small = loadings[order[len(order) // 2 :]]  # next to which a lower corner is free
    right = bool(high - small.max() > small.min() - low)
    shown = grouping._replace(codes=grouping.codes[order])
    style.names_in_corner(ax, shown.legend(), right=right, top=False)
    return ax


def _components(model: Any, of: str) -> Array:
    """Return loadings, one row per dimension."""
    if hasattr(model, "blocks_"):
        return np.asarray(model.components_[of])
    if hasattr(model, "components_") and of == "target":
        return np.asarray(model.components_)
    which = "ContrastiveLVM, PPCA or ContrastivePCA"
    return np.asarray(learned(model, f"{of}_components_", which))


def _reach(
    model: Any, of: str, bootstrap: "Bootstrap | BlockBootstrap | None"
) -> tuple[Array | None, float]:
    """Return half the lengths of intervals of loadings, and their level.

    Standard deviations of variational posteriors treat the latents as known; intervals made from
    them cover far less than they should, and are not drawn.
    """
    low: Any
    high: Any
    if bootstrap is not None and isinstance(bootstrap.low, dict):
        low, high = bootstrap.low[of], bootstrap.high[of]
        return (None if low is None else (high - low) / 2.0), bootstrap.confidence_level
    if bootstrap is not None:
        if of != "target":
            raise ValueError("bootstrap has intervals of target loadings only; use of='target'.")
        if bootstrap.low is None or bootstrap.high is None:
            return None, bootstrap.confidence_level
        return (bootstrap.high - bootstrap.low) / 2.0, bootstrap.confidence_level
    draws = getattr(getattr(model, "posterior_", None), "draws", None)
    stds = getattr(model, f"{of}_components_std_", None)
    return (None if draws is None or stds is None else Z90 * stds), 0.9


def _draw_ranked(ax: Axes, values: Array, reach: Array | None, colours: list[str]) -> None:
    at = np.arange(len(values))
    low, high = (np.zeros(len(at)), values) if reach is None else (values - reach, values + reach)
    ax.hlines(at, low, high, colors=colours, linewidth=1.8)
    ax.scatter(values, at, s=22, c=colours, zorder=3, linewidths=0.0)
    ax.axvline(0.0, color=style.INK, linewidth=0.6)


def plot_relevance(
    model: Any, *, groups: Groups = None, ax: Axes | None = None, title: str | None = None
) -> Axes:
    """Plot the norm of each feature's target loadings, groups side by side.

    Dropped features are counted below, and crossed out if there are at most 150 features.

    Parameters
    ----------
    model : fitted ContrastiveLVM
    groups : array-like of shape (d,) or dict, optional
        As in `plot_loadings`; features of a group stand together.
    ax, title : as in `plot_latents`

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
    grouping = feature_groups(groups, len(norms), feature_names(model, len(norms)))
    codes = grouping.codes
    order = np.argsort(np.where(codes < 0, len(grouping.names), codes), kind="stable")
    ax = style.axes_or_new(ax, (5.4, 3.4))
    ax.bar(np.arange(len(norms)), norms[order], color=list(grouping.colours()[order]), width=0.8)
    crosses = np.flatnonzero(dropped[order] & (len(norms) <= 150))  # more would touch
    small = float(np.clip(600.0 / len(norms), 4.0, 16.0))
    ax.scatter(crosses, norms[order][crosses], marker="x", s=small, color=style.INK, linewidths=0.9)
    ax.margins(x=0.01, y=0.18)
    ax.set_ylim(bottom=min(0.0, -0.02 * float(norms.max())))
    axis = "feature"
    if dropped.any():
        axis += f" (\N{MULTIPLICATION SIGN} {int(dropped.sum())} of {len(norms)} dropped)"
    style.finish(ax, title, axis, "norm of target loadings")
    _name_groups(ax, grouping, codes[order])
    return ax


def _name_groups(ax: Axes, grouping: Grouping, codes: np.ndarray) -> None:
    """Write names above the middles of the groups, or in a corner where they would touch."""
    names = grouping.legend()
    middles = [float(np.flatnonzero(codes == code).mean()) for code in np.unique(codes[codes >= 0])]
    letters = np.array([len(name) for name, _ in names])
    if (np.diff(middles) / len(codes) < style.LETTER / 2 * (letters[1:] + letters[:-1])).any():
        style.names_in_corner(ax, names)
        return
    top = ax.get_ylim()[1]
    for (name, colour), at in zip(names, middles, strict=True):
        style.name_at(ax, at, 0.99 * top, name, colour, ha="center", va="top")
