"""What sparse priors leave of the target loadings: paths of the lasso, scales of the horseshoe."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection

from contrastive_lvm.arrays import Array
from contrastive_lvm.checks import check_integer
from contrastive_lvm.estimators import parse_params as resolve
from contrastive_lvm.plots.inputs import Groups, feature_groups, feature_names, learned
from contrastive_lvm.plots.style import (
    INK,
    PALETTE,
    UNLABELLED,
    axes_or_new,
    colour_of,
    finish,
    name_at,
    names_in_corner,
    shortened,
)
from contrastive_lvm.priors.horseshoe import Horseshoe

FAINT = 0.01  # of a density's peak: what is below is cut off
MOST_NAMES, SHORT = 8, 16  # of features, and letters of each


def plot_lasso_path(
    path: Any,
    *,
    mark: int | None = None,
    groups: Any = None,
    ax: Axes | None = None,
    title: str | None = None,
) -> Axes:
    """Norms of every feature's target loadings along the strengths of the group lasso.

    Parameters
    ----------
    path : LassoPath
        What `group_lasso_path` returns.
    mark : int, optional
        Index of a strength to mark, such as `path.steadiest`; without groups, features that it
        drops are grey.
    groups : array-like of shape (d,) or dict, optional
        Group of each feature, which decides its colour: one label a feature, or a dict from group
        to its features by name or position.
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
    >>> path = clvm.group_lasso_path(
    ...     clvm.ContrastiveLVM(2, 8), data.target, background=data.background, n_rhos=5
    ... )
    >>> ax = clvm.plots.plot_lasso_path(path, mark=path.steadiest)
    >>> ax.get_xscale()
    'log'
    """
    rhos, norms = _path(path)
    mark = _mark(mark, len(rhos))
    names = feature_names(path.models[0] if path.models else None, norms.shape[1])
    found = feature_groups(groups, norms.shape[1], names)
    kept = np.ones(norms.shape[1], dtype=bool) if mark is None else norms[mark] > 0
    colours = _colours(found, kept)
    ax = axes_or_new(ax, (5.4, 3.8))
    lines = [np.column_stack([rhos, own]) for own in norms.T]
    ax.add_collection(LineCollection(lines, colors=colours, linewidths=0.9, alpha=0.75))
    ax.set_xscale("log")
    ax.set_xlim(_log_limits(rhos))
    ax.set_ylim(-0.03 * float(norms.max() or 1.0), 1.12 * float(norms.max() or 1.0))
    finish(ax, title, "strength", "norm of target loadings")
    _mark_path(ax, rhos, mark, int(kept.sum()), len(kept))
    if found.names:
        _name_groups(ax, found, right=True)
    else:
        _name_largest(ax, rhos, norms, names, kept)
    return ax


def _path(path: Any) -> tuple[Array, Array]:
    if not hasattr(path, "rhos") or not hasattr(path, "row_norms"):
        raise TypeError(
            f"path is a {type(path).__name__}, not a LassoPath; pass what group_lasso_path returns."
        )
    return np.asarray(path.rhos), np.asarray(path.row_norms)


def _mark(mark: Any, count: int) -> int | None:
    if mark is None:
        return None
    chosen = check_integer("mark", mark, 0)
    if chosen >= count:
        raise ValueError(f"mark={chosen} must be below {count}, the number of strengths.")
    return chosen


def _log_limits(values: Array) -> tuple[float, float]:
    low, high = float(values.min()), float(values.max())
    room = (high / low) ** 0.03 if high > low else 2.0
    return low / room, high * room


def _colours(groups: Groups, kept: np.ndarray) -> list[str]:
    if groups.names:
        return [colour_of(int(code)) for code in groups.codes]
    return [PALETTE[0] if keep else UNLABELLED for keep in kept]


def _mark_path(ax: Axes, rhos: Array, mark: int | None, kept: int, total: int) -> None:
    if mark is None:
        return
    ax.axvline(float(rhos[mark]), color=INK, linewidth=0.9, linestyle=":")
    right = np.log(rhos[mark] / rhos[0]) > 0.5 * np.log(rhos[-1] / rhos[0])
    words = f" {kept} of {total} left "
    name_at(
        ax,
        float(rhos[mark]),
        0.98,
        words,
        ha="right" if right else "left",
        va="top",
        transform=ax.get_xaxis_transform(),
    )


def _name_groups(ax: Axes, groups: Groups, *, right: bool) -> None:
    names = [(shortened(name), colour_of(code)) for code, name in enumerate(groups.names)]
    names_in_corner(ax, names, right=right)


def _name_largest(ax: Axes, rhos: Array, norms: Array, names: list[str], kept: np.ndarray) -> None:
    """Names of the largest features where their lines begin, as far as they do not touch."""
    apart = 0.065 * float(norms.max())
    placed: list[float] = []
    room = 0.03
    for i in np.argsort(-norms[0], kind="stable"):
        if not kept[i] or not norms[0, i] > 0 or len(placed) == MOST_NAMES:
            continue
        if all(abs(norms[0, i] - other) > apart for other in placed):
            placed.append(float(norms[0, i]))
            words = f"{shortened(names[i], SHORT)} "
            room = max(room, 0.03 + 0.022 * len(words))  # as a share of the axes
            name_at(ax, rhos[0], norms[0, i], words, ha="right", fontweight="normal")
    ax.set_xlim(rhos[0] / (rhos[-1] / rhos[0]) ** (room / (1.0 - room)), None)


def plot_scales(
    model: Any,
    *,
    groups: Any = None,
    ax: Axes | None = None,
    title: str | None = None,
) -> Axes:
    """Posterior densities of the scales of a horseshoe, with the threshold of its pruning rule.

    Each curve belongs to a feature (or to a group that shares a scale) and shows the logarithm of
    `rho^2 tau^2`, the variance of its target loadings. A feature is dropped when more than `p0` of
    its curve lies below the threshold.

    Parameters
    ----------
    model : ContrastiveLVM
        Fitted with a `Horseshoe` as `target_prior`, by variational Bayes.
    groups : array-like of shape (d,) or dict, optional
        Group of each feature, which decides its colour, as in `plot_lasso_path`; without, features
        that are kept are blue and those dropped grey.
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
    >>> ax = clvm.plots.plot_scales(model.fit(data.target, background=data.background))
    >>> ax.get_xlabel()
    'variance of loadings, ρ²τ²'
    """
    prior, state, unit = _horseshoe(model)
    names = feature_names(model, len(state.group))
    found = feature_groups(groups, len(state.group), names)
    _, first = np.unique(state.group, return_index=True)  # one curve a scale
    kept, threshold = np.asarray(model.selected_features_), prior.delta * unit
    at = np.geomspace(1e-9, 1e6, 900) * threshold
    curves = prior.scale_density(state, at)[:, first] * at[:, None]  # of the logarithm
    colours = [_colours(found, kept)[i] for i in first]
    ax = axes_or_new(ax, (5.4, 3.8))
    lines = [np.column_stack([at, own]) for own in curves.T]
    ax.add_collection(LineCollection(lines, colors=colours, linewidths=0.9, alpha=0.75))
    ax.set_xscale("log")
    ax.set_xlim(_log_limits(np.append(at[_visible(curves)], threshold * np.array([0.3, 3.0]))))
    ax.set_ylim(0.0, 1.3 * float(curves.max()))
    ax.axvline(threshold, color=INK, linewidth=0.9, linestyle=":")
    finish(ax, title, "variance of loadings, ρ²τ²", "density of its logarithm")
    place: dict[str, Any] = {"va": "top", "transform": ax.get_xaxis_transform()}
    name_at(ax, threshold, 0.98, " threshold", **place)
    low, high = np.log(ax.get_xlim())
    _name_scales(ax, found, kept, right=bool(np.log(threshold) < (low + high) / 2.0))
    return ax


def _visible(curves: Array) -> np.ndarray:
    seen: np.ndarray = (curves > FAINT * curves.max(axis=0)).any(axis=1)
    return seen


def _horseshoe(model: Any) -> tuple[Horseshoe, Any, float]:
    """The prior, its state and the unit of its threshold."""
    found = learned(model, "posterior_", "ContrastiveLVM")
    prior = resolve.prior("target_prior", getattr(model, "target_prior", None))
    if not isinstance(prior, Horseshoe):
        raise TypeError(
            f"model has target_prior={model.target_prior!r}, which has no such scales; "
            "fit it with target_prior='horseshoe'."
        )
    if found.prior_states[1] is None:
        raise ValueError(
            f"model was fitted with inference={model.inference!r}, which keeps no densities of "
            "scales; use inference='vb'."
        )
    return prior, found.prior_states[1], float(found.unit_variance)


def _name_scales(ax: Axes, groups: Groups, kept: np.ndarray, *, right: bool) -> None:
    """Names on the side where the threshold is not."""
    if groups.names:
        _name_groups(ax, groups, right=right)
        return
    counts = {"kept": (int(kept.sum()), PALETTE[0]), "dropped": (int((~kept).sum()), "#777777")}
    names = [(f"{n} {name}", colour) for name, (n, colour) in counts.items() if n]
    names_in_corner(ax, names, right=right)
