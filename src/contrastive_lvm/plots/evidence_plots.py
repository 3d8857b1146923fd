"""Plots of the evidence for a fit: the null distribution of a test, held-out scores, stability."""

from typing import TYPE_CHECKING

import numpy as np
from matplotlib.axes import Axes

from contrastive_lvm.plots import style

if TYPE_CHECKING:
    from contrastive_lvm.resampling.bootstrap import Bootstrap
    from contrastive_lvm.resampling.contrast_test import ContrastTest
    from contrastive_lvm.resampling.dimensions import DimensionChoice


def plot_null_distribution(
    test: "ContrastTest", *, ax: Axes | None = None, title: str | None = None
) -> Axes:
    """Plot the statistic of a test of contrast among its values without any contrast.

    Parameters
    ----------
    test : ContrastTest
        What `contrast_test` returned.
    ax, title : as in `plot_latents`

    Examples
    --------
    >>> import contrastive_lvm as clvm
    >>> data = clvm.datasets.make_subgroups(100, 100, random_state=0)
    >>> test = clvm.contrast_test(
    ...     data.target, background=data.background, n_resamples=99, random_state=0
    ... )
    >>> ax = clvm.plots.plot_null_distribution(test)
    >>> ax.get_ylabel()
    'number of resamples'
    """
    null = np.asarray(test.null_distribution, dtype=np.float64)
    ax = style.axes_or_new(ax, (4.6, 3.2))
    ax.hist(null, bins="auto", color=style.UNLABELLED, linewidth=0.0)
    ax.axvline(test.statistic, color=style.PALETTE[0], linewidth=1.8)
    ax.margins(x=0.08, y=0.2)
    style.finish(ax, title, "statistic", "number of resamples")
    named = [
        ("without contrast", style.UNLABELLED),
        (f"data, p = {test.pvalue:.2g}", style.PALETTE[0]),
    ]
    style.names_in_corner(ax, named, right=bool(test.statistic < np.median(ax.get_xlim())))
    return ax


def plot_dimensions(
    choice: "DimensionChoice", *, ax: Axes | None = None, title: str | None = None
) -> Axes:
    """Plot held-out log-likelihoods against the number of shared dimensions.

    There is a line for each number of target dimensions, with bars of one standard error; a ring
    marks the sizes that were chosen.

    Parameters
    ----------
    choice : DimensionChoice
        What `choose_dimensions` returned.
    ax, title : as in `plot_latents`

    Examples
    --------
    >>> import contrastive_lvm as clvm
    >>> data = clvm.datasets.make_contrastive(150, 150, n_features=10, n_shared=2, random_state=0)
    >>> choice = clvm.choose_dimensions(
    ...     data.target, background=data.background, n_target=(0, 1), n_shared=(1, 2),
    ...     random_state=0,
    ... )
    >>> ax = clvm.plots.plot_dimensions(choice)
    >>> ax.get_xlabel(), len(ax.get_lines())
    ('shared dimensions', 3)
    """
    table = choice.table
    ax = style.axes_or_new(ax, (4.8, 3.6))
    ends = []
    for k, (n_target, own) in enumerate(table.sort_values("n_shared").groupby("n_target")):
        colour = style.colour_of(k)
        x, y = own["n_shared"].to_numpy(), own["log_likelihood"].to_numpy()
        ax.plot(x, y, marker="o", markersize=3.5, linewidth=1.4, color=colour)
        ax.vlines(
            x, y - own["standard_error"], y + own["standard_error"], color=colour, linewidth=0.8
        )
        ends.append((float(x[-1]), float(y[-1]), f"{n_target} target", colour))
    chosen = (table["n_target"] == choice.n_target) & (table["n_shared"] == choice.n_shared)
    score = float(table.loc[chosen, "log_likelihood"].iloc[0])
    (ring,) = ax.plot([choice.n_shared], [score], color=style.INK, linestyle="", marker="o")
    ring.set(markersize=11, markerfacecolor="none")
    ax.margins(x=0.12)
    ax.set_xlim(right=ax.get_xlim()[1] + 0.2 * (np.ptp(table["n_shared"]) or 1))
    style.finish(ax, title, "shared dimensions", "held-out log-likelihood")
    style.names_at_ends(ax, ends)
    return ax


def plot_stability(
    bootstrap: "Bootstrap", *, ax: Axes | None = None, title: str | None = None
) -> Axes:
    """Plot the angles between the target subspace of the fit and those of resampled rows.

    Angles near 0 mean that other rows from the same source would show the same dimensions; an
    angle near 90 degrees means that a dimension is not reproduced.

    Parameters
    ----------
    bootstrap : Bootstrap
        What `bootstrap` returned.
    ax, title : as in `plot_latents`

    Examples
    --------
    >>> import contrastive_lvm as clvm
    >>> data = clvm.datasets.make_contrastive(150, 150, n_features=10, n_shared=2, random_state=0)
    >>> model = clvm.ContrastiveLVM(1, 2).fit(data.target, background=data.background)
    >>> found = clvm.bootstrap(
    ...     model, data.target, background=data.background, n_resamples=20, random_state=0
    ... )
    >>> ax = clvm.plots.plot_stability(found)
    >>> ax.get_xlabel()
    'angle to the fit, in degrees'
    """
    angles = np.degrees(np.asarray(bootstrap.subspace_angles, dtype=np.float64))
    if not angles.size:
        raise ValueError("bootstrap has no target dimensions; fit a model with at least one.")
    ax = style.axes_or_new(ax, (4.6, 1.2 + 0.5 * angles.shape[1]))
    for k, own in enumerate(angles.T):
        spread = 0.25 * np.sin(np.arange(len(own)) * 2.399963)  # the golden angle
        ax.scatter(own, k + spread, s=9, color=style.PALETTE[0], alpha=0.4, linewidths=0.0)
        ax.plot([np.median(own)] * 2, [k - 0.35, k + 0.35], color=style.INK, linewidth=1.6)
    ax.set_xlim(0.0, 90.0)
    style.finish(ax, title, "angle to the fit, in degrees", "")
    ordinals = {1: "largest", 2: "2nd largest", 3: "3rd largest"}
    numbers = range(1, angles.shape[1] + 1)
    style.names_of_rows(ax, [f"{ordinals.get(k, f'{k}th largest')} angle" for k in numbers])
    return ax
