"""Plots of variances: shares of dimensions and noise, and spectra of loadings."""

from collections.abc import Iterable
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from contrastive_lvm.arrays import TINY, Array
from contrastive_lvm.checks import check_choice, check_number
from contrastive_lvm.plots import style
from contrastive_lvm.plots.inputs import learned, named_models


def plot_variance_shares(model: Any, *, ax: Axes | None = None, title: str | None = None) -> Axes:
    """Plot the shares of all dimensions and of the noise in the target set's variance.

    If a block has more than eight dimensions, the smallest are added up.

    Parameters
    ----------
    model : fitted ContrastiveLVM
    ax, title : as in `plot_latents`

    Examples
    --------
    >>> import contrastive_lvm as clvm
    >>> data = clvm.datasets.make_subgroups(random_state=0)
    >>> model = clvm.ContrastiveLVM(2, 10).fit(data.target, background=data.background)
    >>> ax = clvm.plots.plot_variance_shares(model)
    >>> len(ax.patches)
    11
    """
    target = learned(model, "target_variance_ratio_", "ContrastiveLVM")
    bars = [
        *_bars("target", target, style.PALETTE[0]),
        *_bars("shared", model.shared_variance_ratio_, style.PALETTE[1]),
        ("noise", float(model.noise_variance_ratio_), style.BACKGROUND),
    ]
    names, values, colours = zip(*bars, strict=True)
    ax = style.axes_or_new(ax, (4.6, 1.1 + 0.22 * len(bars)))
    shares = 100.0 * np.array(values)
    drawn = ax.barh(np.arange(len(bars)), shares, color=colours, height=0.72)
    ax.bar_label(drawn, fmt="%.3g%%", padding=4.0, fontsize=9, color=style.INK)
    ax.set_xlim(0.0, 1.18 * float(shares.max()))
    style.finish(ax, title, "% of the target set's modelled variance", "")
    style.names_of_rows(ax, names)
    return ax


def _bars(block: str, shares: Array, colour: str) -> Iterable[tuple[str, float, str]]:
    shares = np.asarray(shares, dtype=np.float64)
    shown = len(shares) if len(shares) <= 8 else 7
    for i, share in enumerate(shares[:shown]):
        yield (f"{block} {i + 1}", float(share), colour)
    rest = shares[shown:]
    if len(rest):
        yield (f"{len(rest)} more {block}", float(rest.sum()), colour)


def plot_spectrum(
    models: Any,
    *,
    of: str = "shared",
    negligible: float = 1e-5,
    ax: Axes | None = None,
    title: str | None = None,
) -> Axes:
    """Plot the variance that each component explains, the largest first.

    Under `ARD` the spectrum ends where the data support no more components; otherwise it tails off.

    Parameters
    ----------
    models : ContrastiveLVM, or a mapping of str to ContrastiveLVM
        One fitted model, or several with their names.
    of : {"shared", "target"}
        Which components.
    negligible : float
        Components that explain a smaller share are left out.
    ax, title : as in `plot_latents`

    Examples
    --------
    >>> import contrastive_lvm as clvm
    >>> data = clvm.datasets.make_contrastive(n_shared=8, random_state=0)
    >>> sized = clvm.ContrastiveLVM(2, "auto").fit(data.target, background=data.background)
    >>> fixed = clvm.ContrastiveLVM(2, 20).fit(data.target, background=data.background)
    >>> ax = clvm.plots.plot_spectrum({"ARD": sized, "none": fixed})
    >>> sorted(text.get_text() for text in ax.texts)
    ['ARD: 8', 'none: 20']
    """
    check_choice("of", of, ("shared", "target"))
    check_number("negligible", negligible, 0.0, 1.0, "a share between 0 and 1")
    spectra = {
        name: component_shares(learned(model, f"{of}_components_", "ContrastiveLVM"))
        for name, model in named_models(models).items()
    }
    used = {name: own[own > negligible] for name, own in spectra.items()}
    ax = style.axes_or_new(ax, (5.4, 3.8))
    for code, own in enumerate(used.values()):
        (line,) = ax.plot(np.arange(len(own)) + 1, 100.0 * own, ms=3.5, zorder=3.0 - 0.1 * code)
        line.set(color=style.colour_of(code), lw=1.5, marker="o" if len(own) <= 30 else "")
    _scale_spectra(ax, list(used.values()), named=len(used) > 1)
    style.finish(ax, title, "component, in order", f"% of the {of} variance")
    style.names_at_ends(ax, [_end(name, own, i) for i, (name, own) in enumerate(used.items())])
    return ax


def component_shares(components: Array) -> Array:
    """Return the shares of the variance that components explain, the largest first."""
    energy = np.sort((np.asarray(components) ** 2).sum(axis=1))[::-1]
    return np.asarray(energy / max(float(energy.sum()), TINY))


def _scale_spectra(ax: Axes, spectra: list[Array], *, named: bool) -> None:
    """Choose linear or logarithmic axes, with space for names to the right."""
    longest = max(1, *(len(own) for own in spectra))
    shares = np.concatenate(spectra)
    if len(shares) and shares.max() > 20.0 * shares.min():
        style.logarithmic(ax, "y")
    else:
        ax.set_ylim(0.0, 110.0 * float(shares.max(initial=0.01)))
    if longest > 30:
        style.logarithmic(ax, "x")
        ax.set_xlim(0.8, (8.0 if named else 1.3) * longest)
        return
    ax.set_xlim(0.5, (1.35 if named else 1.1) * longest + 0.5)
    ax.xaxis.set_major_locator(MaxNLocator(5, integer=True))


def _end(name: str, shares: Array, code: int) -> tuple[float, float, str, str]:
    """Return where a line ends, with its name and the number of its components."""
    words = f"{style.label(name)}: {len(shares)}" if name else f"{len(shares)} components"
    last = 100.0 * float(shares[-1]) if len(shares) else 0.0
    return max(1, len(shares)), last, words, style.colour_of(code)
