"""Kernel densities of groups of rows, as contours in a plane or curves on a line."""

import numpy as np
from matplotlib.axes import Axes
from scipy.stats import gaussian_kde

from contrastive_lvm.arrays import Array


def draw_contours(ax: Axes, points: Array, colour: str) -> Array | None:
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


def density_curve(values: Array, at: Array) -> Array | None:
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
