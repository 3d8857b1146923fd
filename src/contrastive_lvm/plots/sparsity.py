"""Sparse target loadings: the path of the group lasso, and the scales of the horseshoe."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection

from contrastive_lvm.arrays import Array
from contrastive_lvm.checks import check_integer
from contrastive_lvm.estimators import parse_params as resolve
from contrastive_lvm.plots import style
from contrastive_lvm.plots.inputs import Grouping, feature_groups, feature_names, learned
from contrastive_lvm.priors.feature_groups import Groups


def plot_lasso_path(
    path: Any,
    *,
    mark: int | None = None,
    groups: Groups = None,
    ax: Axes | None = None,
    title: str | None = None,
) -> Axes:
    """Plot the norm of each feature's target loadings along the path of the group lasso.

    Parameters
    ----------
    path : LassoPath
        What `group_lasso_path` returns.
    mark : int, optional
        Index of a strength to mark, such as `path.steadiest`; without groups, features that it
        drops are grey.
    groups : array-like of shape (d,) or dict, optional
        Group of each feature, as in `plot_loadings`.
    ax, title : as in `plot_latents`

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
    if mark is not None:
        mark = check_integer("mark", mark, 0, len(rhos) - 1)
    names = feature_names(path.models[0] if path.models else None, norms.shape[1])
    grouping = feature_groups(groups, norms.shape[1], names)
    kept = np.ones(norms.shape[1], dtype=bool) if mark is None else norms[mark] > 0
    ax = style.axes_or_new(ax, (5.4, 3.8))
    _draw_curves(ax, rhos, norms, _colours(grouping, kept))
    ax.set_xlim(_log_limits(rhos))
    ax.set_ylim(-0.03 * float(norms.max() or 1.0), 1.12 * float(norms.max() or 1.0))
    style.finish(ax, title, "strength", "norm of target loadings")
    if mark is not None:
        side = "right" if rhos[mark] ** 2 > rhos[0] * rhos[-1] else "left"
        _mark(ax, float(rhos[mark]), f" {kept.sum()} of {len(kept)} left ", side)
    if grouping.names:
        style.names_in_corner(ax, grouping.legend(), right=True)
    else:
        _name_largest(ax, rhos, norms[0], names, kept)
    return ax


def _path(path: Any) -> tuple[Array, Array]:
    if not hasattr(path, "rhos") or not hasattr(path, "row_norms"):
        raise TypeError(
            f"path is a {type(path).__name__}, not a LassoPath; pass what group_lasso_path returns."
        )
    return np.asarray(path.rhos), np.asarray(path.row_norms)


def _log_limits(values: Array) -> tuple[float, float]:
    low, high = float(values.min()), float(values.max())
    margin = (high / low) ** 0.03 if high > low else 2.0
    return low / margin, high * margin


def _colours(grouping: Grouping, kept: np.ndarray) -> np.ndarray:
    by_use = np.where(kept, style.PALETTE[0], style.UNLABELLED)
    return grouping.colours() if grouping.names else by_use


def _draw_curves(ax: Axes, at: Array, curves: Array, colours: np.ndarray) -> None:
    """Draw one thin curve per column over a logarithmic axis."""
    lines = [np.column_stack([at, own]) for own in curves.T]
    ax.add_collection(LineCollection(lines, colors=list(colours), linewidths=0.9, alpha=0.75))
    ax.set_xscale("log")


def _mark(ax: Axes, at: float, words: str, side: str = "left") -> None:
    """Draw a vertical line with text next to it."""
    ax.axvline(at, color=style.INK, linewidth=0.9, linestyle=":")
    transform = ax.get_xaxis_transform()
    style.name_at(ax, at, 0.98, words, ha=side, va="top", transform=transform)


def _name_largest(ax: Axes, rhos: Array, norms: Array, names: list[str], kept: np.ndarray) -> None:
    """Write the names of the largest features where their lines begin, with space for them."""
    order = [i for i in np.argsort(-norms, kind="stable") if kept[i] and norms[i] > 0]
    starts, words = np.full(len(order), rhos[0]), [style.label(names[i], 16) for i in order]
    letters = style.name_apart(ax, starts, norms[order], words, left=True, most=8)
    space = 0.03 + style.LETTER * (letters + 1)  # as a share of the axes
    ax.set_xlim(rhos[0] / (rhos[-1] / rhos[0]) ** (space / (1.0 - space)), None)


def plot_scales(
    model: Any, *, groups: Groups = None, ax: Axes | None = None, title: str | None = None
) -> Axes:
    """Plot the posterior densities of the scales of a sparse prior, with its pruning threshold.

    Each curve belongs to a feature (or to a group that shares a scale) and shows the logarithm of
    `rho^2 tau^2`, the variance of its target loadings. The horseshoe drops a feature when more than
    `p0` of its curve lies below the threshold.

    Parameters
    ----------
    model : ContrastiveLVM
        Fitted with a `Horseshoe` as `target_prior`, by variational Bayes.
    groups : array-like of shape (d,) or dict, optional
        Group of each feature, as in `plot_loadings`; by default features that are kept are blue
        and dropped ones grey.
    ax, title : as in `plot_latents`

    Examples
    --------
    >>> import contrastive_lvm as clvm
    >>> data = clvm.datasets.make_contrastive(random_state=0)
    >>> model = clvm.ContrastiveLVM(2, 8, target_prior="horseshoe")
    >>> ax = clvm.plots.plot_scales(model.fit(data.target, background=data.background))
    >>> ax.get_xlabel()
    'variance of loadings, ρ²τ²'
    """
    at, density, threshold = _scale_densities(model)
    grouping = feature_groups(groups, density.shape[1], feature_names(model, density.shape[1]))
    first = np.sort(np.unique(density, axis=1, return_index=True)[1])  # one curve per scale
    curves = density[:, first] * at[:, None]  # densities of the logarithm
    kept = np.asarray(model.selected_features_)
    ax = style.axes_or_new(ax, (5.4, 3.8))
    _draw_curves(ax, at, curves, _colours(grouping, kept)[first])
    visible = at[(curves > 0.01 * curves.max(axis=0)).any(axis=1)]
    ax.set_ylim(0.0, 1.3 * float(curves.max()))
    style.finish(ax, title, "variance of loadings, ρ²τ²", "density of its logarithm")
    ax.set_xlim(_log_limits(np.append(visible, (threshold or visible[0]) * np.array([0.3, 3.0]))))
    right = True
    if threshold is not None:
        _mark(ax, threshold, " threshold")
        right = bool(threshold**2 < np.prod(ax.get_xlim()))  # on the side without the threshold
    style.names_in_corner(ax, grouping.legend() or _counts(kept), right=right)
    return ax


def _scale_densities(model: Any) -> tuple[Array, Array, float | None]:
    """Return squared scales, their densities for each feature, and the pruning threshold."""
    found = learned(model, "posterior_", "ContrastiveLVM")
    prior = resolve.prior("target_prior", model.target_prior)
    state, unit = found.prior_states["target"], float(found.unit_variance)
    threshold = prior._pruning_threshold(unit)
    at = np.geomspace(1e-9, 1e6, 900) * (threshold or unit)
    density = None if state is None else prior._scale_density(state, at)
    if density is not None:
        return at, density, threshold
    if threshold is None:
        raise TypeError(
            f"model has target_prior={model.target_prior!r}, which has no scale for each feature; "
            "fit it with target_prior='horseshoe'."
        )
    raise ValueError(
        f"model was fitted with inference={model.inference!r}, which keeps no densities of "
        "scales; use inference='vb'."
    )


def _counts(kept: np.ndarray) -> list[tuple[str, str]]:
    """Return how many features are kept and dropped, in words and with their colours."""
    uses = (("kept", kept, style.PALETTE[0]), ("dropped", ~kept, style.BACKGROUND))
    return [(f"{own.sum()} {name}", colour) for name, own, colour in uses if own.any()]
