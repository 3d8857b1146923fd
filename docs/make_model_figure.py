"""Draw what a row of each set is made of, as `images/model.svg`."""

from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes

FEATURES, ROWS = 12, 18
BLUE, ORANGE, GREY = "#0072b2", "#e69f00", "#8a8f98"


def main() -> None:
    """Write the figure."""
    mpl.rcParams["svg.hashsalt"] = "model"
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
    path = Path(__file__).parent / "images" / "model.svg"
    figure.savefig(path, metadata={"Date": None}, transparent=False)


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
