"""The common style of all plots: colours, frames, and names next to what they name.

In IPython, and wherever `pyplot` has been imported, new figures are registered with `pyplot`, so
that they are shown. Elsewhere `pyplot` is not loaded and no backend is chosen. No setting of
Matplotlib is changed.
"""

import builtins
import re
import sys
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke

from contrastive_lvm.arrays import Array

# Okabe & Ito's colours, told apart with any colour vision; the faint yellow comes last.
PALETTE = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#000000", "#F0E442")
MARKERS = ("o", "^", "s", "D", "v", "P", "X")  # the next one when all colours are in use
UNLABELLED, INK = "#999999", "#222222"
BACKGROUND = "#777777"  # rows of the background
LETTER = 0.024  # width of a letter of nine points, as a share of the width of the axes
NAME: dict[str, Any] = {
    "fontsize": 9,
    "fontweight": "bold",
    "path_effects": [withStroke(linewidth=2.5, foreground="white")],  # legible on top of anything
}


def axes_or_new(ax: Axes | None, inches: tuple[float, float] = (4.6, 4.2)) -> Axes:
    """Return the axes given, or those of a new figure."""
    if ax is None:
        return new_figure(inches).subplots()
    if not isinstance(ax, Axes):
        raise TypeError(f"ax={ax!r} is not a Matplotlib Axes; pass one, or leave it out.")
    return ax


def new_figure(inches: tuple[float, float]) -> Figure:
    """Make a figure, which is registered with `pyplot` where that is in use."""
    if "matplotlib.pyplot" in sys.modules or hasattr(builtins, "__IPYTHON__"):
        from matplotlib import pyplot as plt

        return plt.figure(figsize=inches, layout="constrained")
    return Figure(figsize=inches, layout="constrained")


def empty_figure(count: int, columns: int, inches: tuple[float, float]) -> Figure:
    """Make a figure of the right size for a number of panels."""
    return new_figure((inches[0] * columns, inches[1] * -(-count // columns)))


def panels(
    count: int,
    columns: int,
    inches: tuple[float, float] = (3.6, 3.4),
    figure: Figure | None = None,
) -> tuple[Figure, list[Axes]]:
    """Make a grid of panels, in a figure of the right size unless one is given."""
    figure = empty_figure(count, columns, inches) if figure is None else figure
    axes = list(figure.subplots(-(-count // columns), columns, squeeze=False).flat)
    for empty in axes[count:]:
        empty.remove()
    return figure, axes[:count]


def finish(ax: Axes, title: str | None, x: str, y: str) -> Axes:
    """Set the title, the labels of the axes, two thin spines and small ticks."""
    if title is not None:
        ax.set_title(title, loc="left", fontsize=10, color=INK)
    ax.set_xlabel(x, fontsize=9, color=INK)
    ax.set_ylabel(y, fontsize=9, color=INK)
    ax.spines[["top", "right"]].set_visible(False)
    ax.spines[["left", "bottom"]].set_linewidth(0.6)
    for name in ("x", "y"):
        if getattr(ax, f"get_{name}scale")() == "linear":
            ax.locator_params(axis=name, nbins=5)
    ax.tick_params(width=0.6, length=3, labelsize=9, colors=INK)
    return ax


def name_at(ax: Axes, x: float, y: float, name: str, colour: str = INK, **words: Any) -> None:
    """Write a name next to what it names, in its colour."""
    ax.text(x, y, name, color=colour, **(NAME | {"ha": "left", "va": "center"} | words))


def names_in_corner(
    ax: Axes, names: Iterable[tuple[str, str]], *, right: bool = False, top: bool = True
) -> None:
    """Write names in their colours below each other in a corner, in place of a legend."""
    listed = list(names) if top else list(names)[::-1]
    for i, (name, colour) in enumerate(listed):
        ax.annotate(
            name,
            (0.98 if right else 0.02, 0.98 if top else 0.02),
            (0.0, (-13.0 if top else 13.0) * i),
            xycoords="axes fraction",
            textcoords="offset points",
            ha="right" if right else "left",
            va="top" if top else "bottom",
            color=colour,
            **NAME,
        )


def name_apart(
    ax: Axes,
    x: Array,
    y: Array,
    names: Sequence[str],
    *,
    left: bool = False,
    most: int | None = None,
) -> int:
    """Write names next to points, except those that would touch one already there.

    Names stand to the right of their points, or to the left if asked or near the right edge, and
    there are at most `most`. Return the number of letters of the longest one.
    """
    low, high = np.array([ax.get_xlim(), ax.get_ylim()]).T
    places = (np.column_stack([x, y]) - low) / (high - low)
    written: list[tuple[Array, int]] = []
    for at_x, at_y, place, name in zip(x, y, places, names, strict=True):
        touching = [
            abs(place[1] - other[1]) < 0.055
            and abs(place[0] - other[0]) < 0.03 + LETTER * max(len(name), letters)
            for other, letters in written
        ]
        if len(written) != most and not any(touching):
            before = left or place[0] > 0.85
            words = f"{name} " if before else f"  {name}"
            name_at(ax, at_x, at_y, words, ha="right" if before else "left", fontweight="normal")
            written.append((place, len(name)))
    return max((letters for _, letters in written), default=0)


def names_at_ends(ax: Axes, ends: Iterable[tuple[float, float, str, str]]) -> None:
    """Write names of lines, in their colours, at their ends (x, y), moved apart if they touch.

    Call this after the limits of the axes are final.
    """
    listed = list(ends)
    points = 72.0 / ax.figure.dpi
    heights = [float(ax.transData.transform((x, y))[1]) * points for x, y, _, _ in listed]
    lowest = -np.inf
    for i in np.argsort(heights, kind="stable"):
        x, y, name, colour = listed[i]
        lowest = max(lowest + 12.0, heights[i])
        place = (6.0, lowest - heights[i])
        ax.annotate(
            name, (x, y), place, textcoords="offset points", va="center", color=colour, **NAME
        )


def logarithmic(ax: Axes, name: str) -> None:
    """Make an axis logarithmic, with plain numbers at its ticks."""
    ax.set(**{f"{name}scale": "log"})
    getattr(ax, f"{name}axis").set_major_formatter(lambda value, _: f"{value:g}")


def without_frame(ax: Axes) -> Axes:
    """Remove the frame of a map, and the ticks of its rows."""
    ax.spines[["left", "bottom"]].set_visible(False)
    ax.tick_params(axis="y", length=0)
    return ax


def names_of_rows(ax: Axes, names: Sequence[str]) -> None:
    """Write a name at each integer of a vertical axis, from the top down."""
    ax.set_yticks(np.arange(len(names)), names)
    ax.set_ylim(len(names) - 0.4, -0.6)
    ax.tick_params(axis="y", length=0)


def visible(text: str) -> str:
    r"""Replace characters that browsers and pictures cannot show, or that reorder others.

    Control characters become their pictures; lone surrogates and marks of writing direction
    become the replacement character.

    >>> visible("gene\n"), ascii(visible("a\ud800\u202eb"))
    ('gene␊', "'a\\ufffd\\ufffdb'")
    """
    hidden = "[\0-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
    pictures = {chr(code): chr(0x2400 + code) for code in range(32)}
    if text.isprintable():
        return text
    return re.sub(hidden, lambda found: pictures.get(found[0], "\N{REPLACEMENT CHARACTER}"), text)


def label(name: str, most: int = 26) -> str:
    r"""Return a name as Matplotlib must receive it, with dollar signs that are not formulas.

    >>> print(label("$ per $"))
    \$ per \$
    """
    return visible(shortened(name, most)).replace("$", r"\$")


def shortened(name: str, most: int = 26) -> str:
    """Cut a name that would leave too little space for the picture."""
    return name if len(name) <= most else f"{name[: most - 1]}\N{HORIZONTAL ELLIPSIS}"


def colour_of(code: int) -> str:
    """Return the colour of a group by its position; grey for no group."""
    return UNLABELLED if code < 0 else PALETTE[code % len(PALETTE)]


def marker_of(code: int) -> str:
    """Return the marker of a group by its position."""
    return MARKERS[max(code, 0) // len(PALETTE) % len(MARKERS)]


def point_size(n_points: int) -> float:
    """Return the area of a point, smaller the more points there are."""
    return float(np.clip(6000.0 / max(n_points, 1), 2.0, 14.0))


def limits_of(*values: Array, margin: float = 0.06) -> tuple[float, float]:
    """Return the range of values with a margin on both sides."""
    low = min(float(np.min(v)) for v in values)
    high = max(float(np.max(v)) for v in values)
    space = margin * (high - low) or 1.0
    return low - space, high + space
