"""Subgroups of a target: its rows, and where the fitted components lie."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Ellipse, Rectangle
from scipy.stats import norm

from contrastive_lvm.arrays import Array, Covariates
from contrastive_lvm.linalg.normal_mixture import NormalMixture
from contrastive_lvm.plots import style
from contrastive_lvm.plots.inputs import Grouping
from contrastive_lvm.plots.latent_plots import draw_rows, name_centres

RADIUS = float(np.sqrt(-2.0 * np.log(0.1)))  # standard deviations around 90 % of a plane's rows


def plot_subgroups(
    model: Any,
    X: Any,
    *,
    covariates: Covariates = None,
    ax: Axes | None = None,
    title: str | None = None,
) -> Axes:
    """Plot the first two target latents in the colours of their subgroups.

    Each ellipse contains 90 % of a fitted component, and its label gives the component's share of
    the target. Rows whose subgroup has a probability below 90 % are grey. A single dimension is
    drawn as histograms, with the densities of the components.

    Parameters
    ----------
    model : ContrastiveLVM
        A model fitted with `latent_prior=Mixture(...)`.
    X : array-like or sparse matrix of shape (n, d)
        Rows of the target.
    covariates : optional, as in `fit`
    ax, title : as in `plot_latents`

    Examples
    --------
    >>> import contrastive_lvm as clvm
    >>> data = clvm.datasets.make_subgroups(random_state=0)
    >>> model = clvm.ContrastiveLVM(2, 10, latent_prior=clvm.Mixture(4))
    >>> model = model.fit(data.target, background=data.background)
    >>> ax = clvm.plots.plot_subgroups(model, data.target)
    >>> [text.get_text() for text in ax.texts][:2]
    ['subgroup 1, 25%', 'subgroup 2, 25%']
    """
    known = {} if covariates is None else {"covariates": covariates}
    found, points = model.subgroups(X, **known), np.asarray(model.latents(X, **known).target)
    mixture = model.posterior_.latent_mixtures["target"]
    certain = found.probabilities.max(axis=1) >= 0.9
    names = [f"subgroup {c + 1}, {share:.0%}" for c, share in enumerate(found.weights)]
    groups = Grouping(names, np.where(certain, found.labels, -1))
    ax = style.axes_or_new(ax)
    draw_rows(ax, points, groups, "points")
    if points.shape[1] == 1:
        _draw_densities(ax, len(points), mixture)
        style.names_in_corner(ax, groups.legend())
        return style.finish(ax, title, "target 1", "rows")
    tops = _draw_ellipses(ax, mixture)
    ax.margins(0.15)
    style.finish(ax, title, "target 1", "target 2")
    if not name_centres(ax, tops, groups):
        style.names_in_corner(ax, groups.legend())
    return ax


def _draw_densities(ax: Axes, n_rows: int, mixture: NormalMixture) -> None:
    """Draw the density of each component, in rows per bin."""
    bins = [patch for patch in ax.patches if isinstance(patch, Rectangle)]
    at, bin_width = np.linspace(*ax.get_xlim(), 300), bins[0].get_width()
    for c, (weight, mean, cov) in enumerate(zip(*mixture, strict=True)):
        density = norm(mean[0], np.sqrt(cov[0, 0])).pdf(at)
        ax.plot(at, n_rows * bin_width * weight * density, color=style.colour_of(c), linewidth=1.5)


def _draw_ellipses(ax: Axes, mixture: NormalMixture) -> Array:
    """Draw an ellipse around each component, and return places above them, (C, 2)."""
    values, vectors = np.linalg.eigh(mixture.covariances[:, :2, :2])
    sizes = 2.0 * RADIUS * np.sqrt(values[:, ::-1])
    angles = np.degrees(np.arctan2(vectors[:, 1, 1], vectors[:, 0, 1]))
    for c, (mean, size, angle) in enumerate(zip(mixture.means, sizes, angles, strict=True)):
        colour = style.colour_of(c)
        ax.add_patch(Ellipse(mean[:2], *size, angle=angle, fill=False, edgecolor=colour))
    ax.autoscale_view()
    tops = mixture.means[:, :2].copy()
    tops[:, 1] += RADIUS * np.sqrt(mixture.covariances[:, 1, 1])
    tops[:, 1] += 0.04 * np.ptp(ax.get_ylim())
    return tops
