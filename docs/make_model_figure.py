"""Draw what rows consist of (`images/model.svg`), and a fit in four steps (`images/steps.svg`)."""

from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes

IMAGES = Path(__file__).parent / "images"
FEATURES, ROWS = 12, 18
BLUE, ORANGE, GREY = "#0072b2", "#e69f00", "#8a8f98"


def main() -> None:
    """Write both figures."""
    mpl.rcParams["svg.hashsalt"] = "model"
    _draw_parts()
    _draw_steps()


def _draw_parts() -> None:
    rng = np.random.default_rng(3)
    S, W = rng.standard_normal((2, FEATURES)), rng.standard_normal((1, FEATURES))
    figure, axes = plt.subplots(
        2, 7, figsize=(11, 6), layout="constrained", width_ratios=[5, 1.1, 5, 1.1, 5, 1.1, 5]
    )
    for panels, name, own in zip(axes, ("target", "background"), (1.0, 0.0), strict=True):
        shared = rng.standard_normal((ROWS, 2)) @ S
        target = own * rng.standard_normal((ROWS, 1)) @ W
        noise = 0.3 * rng.standard_normal((ROWS, FEATURES))
        parts = [(shared + target + noise, f"rows of the {name}", "black", "=")]
        if own:
            parts.append((target, "only the target: $W t$", BLUE, "+"))
        parts += [(shared, "shared: $S z$", ORANGE, "+"), (noise, "noise", GREY, "")]
        if not own:
            parts.insert(1, (np.full((ROWS, FEATURES), np.nan), "", "white", ""))
        for i, (values, title, colour, sign) in enumerate(parts):
            _draw(panels[2 * i], values, title, colour)
            if 2 * i + 1 < len(panels):
                _sign(panels[2 * i + 1], sign)
    figure.savefig(IMAGES / "model.svg", metadata={"Date": None}, transparent=False)


def _draw_steps() -> None:
    """Draw two features of both sets: the leading directions, and what remains of the target."""
    rng = np.random.default_rng(1)
    S, W = np.array([2.0, 1.2]), np.array([-0.6, 1.0])
    groups = np.repeat([-1.0, 1.0], 40)  # two kinds of rows, which no step uses
    target = rng.standard_normal((80, 1)) * S + groups[:, None] * W
    background = rng.standard_normal((80, 1)) * S
    target += 0.25 * rng.standard_normal(target.shape)
    background += 0.25 * rng.standard_normal(background.shape)
    shared = _leading(background)
    explained = target @ shared[:, None] * shared
    figure, axes = plt.subplots(1, 4, figsize=(12, 3.4), layout="constrained")
    titles = (
        "1. The target alone",
        "2. The background",
        "3. The target, explained by $S$",
        "4. The rest: two groups",
    )
    for ax, title in zip(axes, titles, strict=True):
        ax.set_title(title, fontsize=11)
        ax.set_xlabel("feature 1", fontsize=9)
        ax.set_ylabel("feature 2", fontsize=9)
        ax.set(xlim=(-6, 6), ylim=(-5, 5), xticks=[], yticks=[])
    axes[0].plot(*target.T, ".", color=BLUE)
    _arrow(axes[0], _leading(target), "black", "PC 1")
    axes[1].plot(*background.T, ".", color=GREY)
    _arrow(axes[1], shared, ORANGE, "$S$")
    axes[2].plot(*np.stack([target, explained], axis=2).transpose(1, 2, 0), color=GREY, lw=0.6)
    axes[2].plot(*target.T, ".", color=BLUE)
    axes[2].plot(*explained.T, ".", color=ORANGE, ms=4)
    axes[3].plot(*(target - explained).T, ".", color=BLUE)
    _arrow(axes[3], _leading(target - explained), BLUE, "$W$")
    figure.savefig(IMAGES / "steps.svg", metadata={"Date": None}, transparent=False)


def _leading(rows: np.ndarray) -> np.ndarray:
    """Return the direction of the largest variance, upwards."""
    direction = np.linalg.svd(rows - rows.mean(axis=0))[2][0]
    return direction * np.sign(direction[1])


def _arrow(ax: Axes, direction: np.ndarray, colour: str, name: str) -> None:
    tip = 3.6 * direction
    style = {"arrowstyle": "->", "color": colour, "lw": 2.0}
    ax.annotate("", tip, (0.0, 0.0), arrowprops=style)
    ax.annotate(
        name, tip + np.array([-0.3, 0.2]), color=colour, fontsize=11, ha="right", va="bottom"
    )


def _draw(ax: Axes, values: np.ndarray, title: str, colour: str) -> None:
    ax.set_xticks([])
    ax.set_yticks([])
    if np.isnan(values).all():
        ax.axis("off")
        return
    ax.imshow(values, cmap="RdBu_r", vmin=-4, vmax=4, aspect="auto")
    ax.set_title(title, color=colour, fontsize=11)
    ax.set_xlabel("features", fontsize=9)
    ax.set_ylabel("rows", fontsize=9)


def _sign(ax: Axes, sign: str) -> None:
    ax.axis("off")
    ax.text(0.5, 0.5, sign, ha="center", va="center", fontsize=22, transform=ax.transAxes)


if __name__ == "__main__":
    main()
