"""Latents as points or densities, one panel or several side by side."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from scipy.stats import gaussian_kde

from contrastive_lvm.arrays import Array, RowLabels
from contrastive_lvm.checks import check_choice, check_integer
from contrastive_lvm.plots import style
from contrastive_lvm.plots.inputs import Grouping, learned, read_points, row_groups

if TYPE_CHECKING:
    from contrastive_lvm.resampling.comparison import Comparison


def plot_latents(
    latents: Any,
    labels: RowLabels = None,
    *,
    kind: str = "points",
    ax: Axes | None = None,
    title: str | None = None,
) -> Axes:
    """Plot the first two latent dimensions in a plane, or a single one as histograms.

    Groups are named at their centres where the names fit, otherwise in a legend.

    Parameters
    ----------
    latents : array-like of shape (n, k)
        What `transform` returns; the columns of a data frame name the axes.
    labels : array-like of shape (n,), optional
        Group of each row, which decides its colour; missing labels are grey.
    kind : {"points", "density", "both"}
        Rows as points, or contours of the density of each group at 10, 35, 60 and 85 % of its
        peak, or both; for a single dimension histograms, curves, or both. Groups without a density
        (too few rows, or all on a line) are drawn as points in any case.
    ax : matplotlib.axes.Axes, optional
        Axes to draw on and return; by default those of a new figure, `ax.figure`.
    title : str, optional

    Examples
    --------
    >>> import contrastive_lvm as clvm
    >>> data = clvm.datasets.make_subgroups(random_state=0)
    >>> model = clvm.ContrastiveLVM()
    >>> latents = model.fit_transform(data.target, background=data.background)
    >>> ax = clvm.plots.plot_latents(latents, data.target_labels, title="cLVM")
    >>> ax.get_title(loc="left")
    'cLVM'
    """
    points = read_points(latents, "latents")
    groups = row_groups(labels, len(points))
    ax = style.axes_or_new(ax)
    centres = draw_rows(ax, points, groups, kind)
    _finish(ax, latents, points, title)
    if not name_centres(ax, centres, groups) and groups.names:
        # Not loc="best": it tries every point, slowly.
        ax.legend(handles=_handles(groups), loc="upper right", fontsize=9, edgecolor="none")
    return ax


def plot_comparison(
    panels: "Mapping[str, Any] | Comparison",
    labels: RowLabels = None,
    *,
    kind: str = "points",
    columns: int | None = None,
    figure: Figure | None = None,
) -> Figure:
    """Plot the same rows under several methods, side by side and in the same colours.

    Parameters
    ----------
    panels : mapping of str to array-like of shape (n, k), or Comparison
        Title and latents of each panel, from left to right; or what `compare_methods` returned.
    labels : array-like of shape (n,), optional
        Group of each row. Names are written at the centres of the groups in panels that separate
        them, or in one legend if no panel does.
    kind : {"points", "density", "both"}
        As in `plot_latents`.
    columns : int, optional
        Number of panels side by side; all of them by default.
    figure : matplotlib.figure.Figure, optional
        An empty figure or subfigure to draw in; by default a new one.

    Examples
    --------
    >>> import numpy as np
    >>> import contrastive_lvm as clvm
    >>> rows = np.random.default_rng(0).standard_normal((20, 2))
    >>> figure = clvm.plots.plot_comparison({"one": rows, "another": 2.0 * rows})
    >>> [ax.get_title(loc="left") for ax in figure.axes]
    ['one', 'another']
    """
    if not isinstance(panels, Mapping):  # a comparison
        titles = (f"{name}, stability {x:.2f}" for name, x in panels.table["stability"].items())
        panels = dict(zip(titles, panels.latents.values(), strict=True))
    points = _panels(panels)
    groups = row_groups(labels, len(next(iter(points.values()))))
    wide = min(len(points), check_integer("columns", columns or len(points), 1))
    figure, grid = style.panels(len(points), wide, figure=figure)
    named = False
    for ax, (title, array) in zip(grid, points.items(), strict=True):
        centres = draw_rows(ax, array, groups, kind)
        _finish(ax, panels[title], array, style.label(title, 100))
        named |= name_centres(ax, centres, groups)
    if groups.names and not named:
        _legend_below(figure, groups)
    return figure


def plot_shared(
    model: Any,
    X: Any,
    background: Any,
    *,
    dimensions: tuple[int, int] = (0, 1),
    kind: str = "points",
    ax: Axes | None = None,
    title: str | None = None,
) -> Axes:
    """Plot the shared latents of both sets together.

    The two clouds should coincide. If they do not, the shared latents describe structure that only
    the target has, or the background lacks some structure (`leakage` measures this).

    Parameters
    ----------
    model : ContrastiveLVM or ContrastiveVAE
        Fitted, with at least one shared dimension; a single one is drawn as histograms.
    X, background : array-like of shape (n, d) and (m, d)
        Rows of the two sets.
    dimensions : tuple of two int
        Which of the shared dimensions to draw, from 0.
    kind : {"points", "density", "both"}
        As in `plot_latents`.
    ax, title : as in `plot_latents`

    Examples
    --------
    >>> import contrastive_lvm as clvm
    >>> data = clvm.datasets.make_subgroups(random_state=0)
    >>> model = clvm.ContrastiveLVM().fit(data.target, background=data.background)
    >>> ax = clvm.plots.plot_shared(model, data.target, data.background)
    >>> [text.get_text() for text in ax.texts]
    ['target, 400 rows', 'background, 400 rows']
    """
    read = learned(model, "latents", "ContrastiveLVM or ContrastiveVAE")
    if not model.n_shared_:
        raise ValueError(f"model={model!r} has no shared dimensions; fit it with n_shared > 0.")
    columns = _columns(dimensions, model.n_shared_)
    sets = {"target": read(X).shared, "background": read(background, of="background").shared}
    points = np.vstack([rows[:, columns] for rows in sets.values()])
    sizes = [len(rows) for rows in sets.values()]
    ax = style.axes_or_new(ax)
    # The rows of the background are drawn like rows without a label, in grey.
    draw_rows(ax, points, Grouping(["target"], np.repeat([0, -1], sizes)), kind)
    words = [f"{name}, {size} rows" for name, size in zip(sets, sizes, strict=True)]
    style.names_in_corner(ax, [(words[0], style.PALETTE[0]), (words[1], style.BACKGROUND)])
    x, y = [*(f"shared {column + 1}" for column in columns), "rows"][:2]
    return style.finish(ax, title, x, y)


def _columns(dimensions: Any, n_shared: int) -> list[int]:
    """Return the positions of the shared dimensions to draw, one if there is only one."""
    if n_shared == 1:
        return [0]
    known = list(dimensions) if isinstance(dimensions, tuple | list) else []
    known = [c for c in known if c in range(n_shared)]
    if len(known) != 2 or len(dimensions) != 2 or known[0] == known[1]:
        raise ValueError(
            f"dimensions={dimensions!r} must be two different dimensions of the {n_shared} shared "
            f"ones, from 0 to {n_shared - 1}."
        )
    return [int(c) for c in known]


def _legend_below(figure: Figure, groups: Grouping) -> None:
    """Draw one legend for all panels, as wide as a rough width of a letter lets it be."""
    entry = 0.4 + 0.08 * max(len(name) for name in groups.names)
    most = int(float(figure.bbox.width) / float(figure.dpi) / entry)
    figure.legend(
        handles=_handles(groups),
        loc="outside lower center",
        ncols=max(1, min(len(groups.names) + 1, most)),
        fontsize=9,
        frameon=False,
        columnspacing=1.0,
        handletextpad=0.1,
    )


def _panels(panels: Mapping[str, Any]) -> dict[str, Array]:
    """Check latents of the same rows."""
    if not panels:
        raise ValueError("panels is empty; give at least one title with its latents.")
    points = {title: read_points(own, f"panels[{title!r}]") for title, own in panels.items()}
    rows = {title: len(array) for title, array in points.items()}
    if len(set(rows.values())) > 1:
        raise ValueError(f"panels have different numbers of rows, {rows}; give each the same rows.")
    return points


def _finish(ax: Axes, latents: Any, points: Array, title: str | None) -> None:
    columns = getattr(latents, "columns", ["dimension 1", "dimension 2"])
    names = [str(column) for column in columns[:2]]
    style.finish(ax, title, names[0], names[1] if points.shape[1] > 1 else "rows")


def draw_rows(ax: Axes, points: Array, groups: Grouping, kind: str) -> Array:
    """Draw the rows and return the places for the groups' names, (G, 2)."""
    check_choice("kind", kind, ("points", "density", "both"))
    if points.shape[1] == 1:
        return _histograms(ax, points[:, 0], groups, kind)
    plane = points[:, :2]
    if kind == "points":
        _scatter(ax, plane, groups)
        ax.margins(0.06)
    else:
        _densities(ax, plane, groups, points_too=kind == "both")
    return centres_of(plane, groups)


def _densities(ax: Axes, points: Array, groups: Grouping, *, points_too: bool) -> None:
    """Draw contours of each group, and its points if asked or if it has no density."""
    bare, corners = np.ones(len(points), dtype=bool), []
    for code in np.unique(groups.codes):
        own = groups.codes == code
        enclosed = _draw_contours(ax, points[own], groups.colour(code))
        bare[own] = points_too or enclosed is None
        corners.append(points[own] if enclosed is None else enclosed)
    if bare.any():
        _scatter(ax, points[bare], groups._replace(codes=groups.codes[bare]))
    # Matplotlib would show the whole grids.
    x, y = np.vstack([points[bare], *corners]).T
    ax.set(xlim=style.limits_of(x), ylim=style.limits_of(y))


def centres_of(points: Array, groups: Grouping) -> Array:
    """Return the medians of the groups, (G, 2)."""
    members = [points[groups.codes == code] for code in range(len(groups.names))]
    return np.array([np.median(rows, axis=0) for rows in members]).reshape(-1, 2)


def _scatter(ax: Axes, points: Array, groups: Grouping) -> None:
    """Draw small translucent points in an order that lets no group hide another."""
    order = np.random.default_rng(0).permutation(len(points))
    codes, colours = groups.codes[order], groups.colours()[order]
    markers = np.array([style.marker_of(code) for code in codes])
    for marker in np.unique(markers):
        chosen = markers == marker
        x, y = points[order[chosen]].T
        size, many = style.point_size(len(points)), len(points) > 10_000
        drawn = ax.scatter(
            x, y, s=size, c=colours[chosen], marker=marker, alpha=0.65, linewidths=0.0
        )
        drawn.set_rasterized(many)  # so that vector files stay small


def _histograms(ax: Axes, values: Array, groups: Grouping, kind: str) -> Array:
    """Draw a translucent histogram of each group over common bins; names go to the peaks."""
    edges = np.histogram_bin_edges(values, bins=min(60, max(10, int(np.sqrt(len(values))))))
    at = np.linspace(*style.limits_of(values, margin=0.1), 200)
    centres = []
    for code in np.unique(groups.codes):
        members, colour = values[groups.codes == code], groups.colour(code)
        curve = None if kind == "points" else _density_curve(members, at)
        if curve is not None:
            curve *= edges[1] - edges[0]  # rows per bin, as the histogram has
            ax.plot(at, curve, color=colour, linewidth=1.5)
            ax.fill_between(at, curve, color=colour, alpha=0.1, linewidth=0.0)
        heights = np.zeros(1) if curve is None else curve
        if curve is None or kind == "both":
            counts, _, _ = ax.hist(members, bins=edges.tolist(), color=colour, alpha=0.6)
            heights = np.append(heights, counts)
        if code >= 0:
            centres.append([np.median(members), 1.04 * np.max(heights)])
    ax.margins(y=0.12)
    ax.set_ylim(bottom=0.0)
    return np.array(centres).reshape(-1, 2)


def name_centres(ax: Axes, centres: Array, groups: Grouping) -> bool:
    """Write each name at its centre if none would touch another; return whether it was done."""
    if not groups.names or _crowded(ax, centres, groups.names):
        return False
    for name, (x, y) in zip(groups.names, centres, strict=True):
        style.name_at(ax, x, y, style.label(name, 100), fontsize=10, ha="center")
    return True


def _crowded(ax: Axes, centres: Array, names: list[str]) -> bool:
    """Return whether two names would touch."""
    low, high = np.array([ax.get_xlim(), ax.get_ylim()]).T
    places = (centres - low) / (high - low)
    widths = style.LETTER / 2 * np.array([len(name) + 1 for name in names])  # half a name
    apart = np.abs(places[:, None] - places[None, :])  # (G, G, 2)
    touching = (apart[:, :, 0] < widths[:, None] + widths[None, :]) & (apart[:, :, 1] < 0.08)
    return bool(np.triu(touching, k=1).any())


def _handles(groups: Grouping) -> list[Line2D]:
    """Return the entries of a legend; points are not drawn group by group."""
    names = dict(enumerate(groups.names)) | ({-1: "unlabelled"} if -1 in groups.codes else {})
    handles = [
        Line2D([], [], linestyle="none", markersize=5, label=style.label(n, 100))
        for n in names.values()
    ]
    for handle, code in zip(handles, names, strict=True):
        handle.set(marker=style.marker_of(code), color=style.colour_of(code))
    return handles


def _draw_contours(ax: Axes, points: Array, colour: str) -> Array | None:
    """Draw contours of one group; return the corners around them, or None without a density."""
    kernel = _kernel(points)
    if kernel is None:
        return None
    reach = 3.0 * np.sqrt(np.diag(kernel.covariance))
    low, high = points.min(axis=0) - reach, points.max(axis=0) + reach
    x, y = np.meshgrid(*(np.linspace(a, b, 60) for a, b in zip(low, high, strict=True)))
    density = kernel(np.vstack([x.ravel(), y.ravel()])).reshape(x.shape)
    levels = density.max() * np.array([0.1, 0.35, 0.6, 0.85])
    ax.contourf(x, y, density, levels=[levels[0], 1.01 * density.max()], colors=colour, alpha=0.1)
    ax.contour(x, y, density, levels=levels, colors=colour, linewidths=1.0)
    seen = np.column_stack([x[density > levels[0]], y[density > levels[0]]])
    return np.array([seen.min(axis=0), seen.max(axis=0)])


def _density_curve(values: Array, at: Array) -> Array | None:
    """Return the rows per unit of length of one group, or None if it has no density."""
    kernel = _kernel(values[:, None])
    return None if kernel is None else np.asarray(len(values) * kernel(at[None, :]))


def _kernel(points: Array) -> gaussian_kde | None:
    """Return a kernel density, or None for rows that are too few or on a line."""
    if len(points) > 2000:  # more would not change it visibly
        points = points[np.random.default_rng(0).choice(len(points), 2000, replace=False)]
    if len(points) <= points.shape[1]:
        return None
    spread = np.linalg.eigvalsh(np.atleast_2d(np.cov(points.T)))
    if not spread[0] > 1e-10 * spread[-1]:
        return None
    return gaussian_kde(points.T)
