"""Every picture against a small stored one; `python tests/plots/test_plot_images.py` renews them.

A stored picture has two halves: as it is, and without letters. Halves are compared tile by tile
after a blur, the one with letters loosely, since they differ between versions of the font library,
the other strictly: an artist that is missing, moved or recoloured shows. There are tests of both.
"""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.image import imread, imsave
from matplotlib.text import Text
from scipy.ndimage import gaussian_filter

import contrastive_lvm as clvm
from contrastive_lvm import plots

BASELINES = Path(__file__).parent / "baselines"
INCHES, DPI = (4.0, 3.2), 70
TILE = 14  # pixels
LOOSELY, STRICTLY = 0.085, 0.03  # root mean square of a tile, colours from 0 to 1
KINDS = ["pulse", "pulse", "heat", "heat", "heat", "noise", "noise", "noise"]


# --- what is drawn ------------------------------------------------------------------------------


@cache
def data() -> SimpleNamespace:
    """Three subgroups of the target in two sets of eight features."""
    rng = np.random.default_rng(0)
    labels = np.repeat([0, 1, 2], 25)
    W, S = rng.standard_normal((2, 8)), rng.standard_normal((2, 8))
    centres = np.array([(-2.0, 0.0), (2.0, 1.0), (0.5, -2.5)])
    t = centres[labels] + 0.3 * rng.standard_normal((75, 2))
    noise = 0.5 * rng.standard_normal((135, 8))
    shared = rng.standard_normal((135, 2)) @ S
    target = t @ W + shared[:75] + noise[:75]
    target[3] += 12.0 * rng.standard_normal(8)  # an outlier
    return SimpleNamespace(
        target=target, background=(shared + noise)[75:], labels=labels, latents=t
    )


@cache
def fit(**words: Any) -> clvm.ContrastiveLVM:
    if words.get("likelihood") == "student_t":  # at the optimum, whatever way leads there
        words["inference"] = clvm.EM(tol=1e-9, max_iter=5000)
    return clvm.ContrastiveLVM(2, 2, **words).fit(data().target, background=data().background)


def names() -> Any:
    return np.array(["one", "two", "three"])[data().labels]


def draw_uncertainty(ax: Axes) -> None:
    rng = np.random.default_rng(1)
    roots = 0.4 * rng.standard_normal((75, 2, 2))
    latents = clvm.Latents(
        data().latents, None, np.zeros((75, 0)), np.zeros((75, 0)), roots @ roots.swapaxes(1, 2)
    )
    plots.plot_uncertainty(latents, names(), n=40, ax=ax)


def draw_intervals(ax: Axes) -> None:
    mean, std = np.linspace(-2.0, 2.0, 15)[:, None] ** 3, np.linspace(0.2, 1.0, 15)
    latents = clvm.Latents(
        mean, std[:, None], np.zeros((15, 0)), np.zeros((15, 0)), std[:, None, None] ** 2
    )
    plots.plot_uncertainty(latents, np.array(["early", "later"])[np.arange(15) % 2], ax=ax)


def loadings() -> SimpleNamespace:
    values = np.array([[0.1, -1.4, 0.9, 0.05, 2.0, -0.3, 0.6, 0.02]])
    return SimpleNamespace(
        target_components_=values,
        target_components_std_=0.15 + 0.1 * np.abs(values),
        posterior_=SimpleNamespace(draws="some"),
        feature_names_in_=["ab", "c", "defgh", "i", "jk", "l", "a name far too long for here", "m"],
        feature_relevance_=np.abs(values[0]),
        selected_features_=np.abs(values[0]) > 0.08,
    )


def draw_loadings(ax: Axes) -> None:
    plots.plot_loadings(loadings(), n=6, groups={"even": range(0, 8, 2), "odd": ["c"]}, ax=ax)


def draw_shares(ax: Axes) -> None:
    shares = np.geomspace(0.2, 0.001, 12)
    model = SimpleNamespace(
        target_variance_ratio_=np.array([0.1, 0.04]),
        shared_variance_ratio_=shares,
        noise_variance_ratio_=0.86 - shares.sum(),
    )
    plots.plot_variance_shares(model, ax=ax)


def draw_spectrum(ax: Axes) -> None:
    spectra = {"ARD": np.geomspace(3.0, 1.0, 5), "none": np.geomspace(3.0, 0.05, 12)}
    models = {
        name: SimpleNamespace(shared_components_=np.diag(own)) for name, own in spectra.items()
    }
    plots.plot_spectrum(models, ax=ax)


def path() -> clvm.LassoPath:
    rhos, ends = np.geomspace(1.0, 100.0, 20), np.array([4.0, 90.0, 15.0, 60.0, 2.0])
    norms = np.maximum(0.0, np.sqrt(ends / 90.0) * (1.0 - rhos[:, None] / ends))
    return clvm.LassoPath(rhos, norms, rhos, rhos, (norms > 0).sum(axis=1), [])


def draw_trace(ax: Axes) -> None:
    sweeps = np.arange(1, 21)
    history = {"epoch": 2.0 * sweeps, "validation_bound": -30.0 - 90.0 / sweeps + sweeps / 4.0}
    models = {
        "trained": SimpleNamespace(lower_bounds_=-20.0 - 90.0 / sweeps, history_=history),
        "fitted": SimpleNamespace(lower_bounds_=-30.0 - 50.0 / sweeps[:9]),
    }
    plots.plot_trace(models, ax=ax)


def draw_missing(ax: Axes) -> None:
    rng = np.random.default_rng(0)
    X, background = np.zeros((30, 9)), np.zeros((20, 9))
    X[rng.random(X.shape) < 0.2] = np.nan
    background[5:12, 3:6] = np.nan
    plots.plot_missing(X, background, ax=ax)


def draw_imputation(ax: Axes) -> None:
    hidden = np.random.default_rng(0).random(data().target.shape) < 0.1
    seen = np.where(hidden, np.nan, data().target)
    model = clvm.ContrastiveLVM(2, 2).fit(seen, background=data().background)
    plots.plot_imputation(model, data().target, hidden, ax=ax)


def draw_outliers(ax: Axes) -> None:
    """Points of given places: those of a fit would move by a pixel with its rounding."""
    rng = np.random.default_rng(2)
    far, misfit = rng.uniform(0.5, 3.0, 75).round(2), rng.uniform(1.0, 1.4, 75).round(2)
    misfit[3] = 4.0
    latents = clvm.Latents(
        far[:, None], None, np.zeros((75, 0)), np.zeros((75, 0)), np.zeros((75, 1, 1))
    )
    model = SimpleNamespace(
        n_features_in_=8,
        outliers=lambda X, of: SimpleNamespace(rows=np.argsort(-misfit)),
        latents=lambda X, of: latents,
        score_samples=lambda X, of: -8.0 * misfit,
    )
    plots.plot_outliers(model, data().target, n=3, ax=ax)


def draw_weights(ax: Axes) -> None:
    plots.plot_weights(fit(likelihood="student_t"), data().target, n=12, ax=ax)


CASES: dict[str, Callable[[Axes], Any]] = {
    "latents": lambda ax: plots.plot_latents(data().latents, names(), ax=ax, title="Points"),
    "latents_density": lambda ax: plots.plot_latents(
        data().latents, names(), kind="density", ax=ax
    ),
    "latents_both": lambda ax: plots.plot_latents(data().latents, kind="both", ax=ax),
    "latents_histograms": lambda ax: plots.plot_latents(
        data().latents[:, :1], names(), kind="both", ax=ax
    ),
    "uncertainty": draw_uncertainty,
    "uncertainty_intervals": draw_intervals,
    "shared": lambda ax: plots.plot_shared(fit(), data().target, data().background, ax=ax),
    "loadings": draw_loadings,
    "relevance": lambda ax: plots.plot_relevance(loadings(), groups=KINDS, ax=ax),
    "variance_shares": draw_shares,
    "spectrum": draw_spectrum,
    "scales": lambda ax: plots.plot_scales(fit(target_prior=clvm.Horseshoe(delta=0.1)), ax=ax),
    "lasso_path": lambda ax: plots.plot_lasso_path(path(), mark=12, ax=ax),
    "lasso_path_groups": lambda ax: plots.plot_lasso_path(path(), groups=KINDS[1:6], ax=ax),
    "trace": draw_trace,
    "missing": draw_missing,
    "imputation": draw_imputation,
    "outliers": draw_outliers,
    "weights": draw_weights,
}


NAMES = [*CASES, "comparison"]


def drawn(name: str) -> Figure:
    """A picture in a fixed place, so that fonts do not move what they stand beside."""
    figure = Figure(figsize=INCHES, dpi=DPI)
    if name == "comparison":
        turn = np.array([[0.6, -0.8], [0.8, 0.6]])
        panels = {"one": data().latents, "another": data().latents @ turn}
        plots.plot_comparison(panels, names(), figure=figure)
        figure.subplots_adjust(0.13, 0.16, 0.97, 0.9, wspace=0.45)
        return figure
    CASES[name](figure.add_axes((0.28, 0.16, 0.69, 0.74)))
    return figure


# --- how it is compared -------------------------------------------------------------------------


def rendered(figure: Figure, *, letters: bool = True) -> Any:
    """(height, width, 3), from 0 to 1."""
    hidden = [] if letters else [t for t in figure.findobj(Text) if t.get_visible()]
    for text in hidden:
        text.set_visible(False)
    canvas: Any = FigureCanvasAgg(figure)
    canvas.draw()
    for text in hidden:
        text.set_visible(True)
    return np.asarray(canvas.buffer_rgba())[:, :, :3] / 255.0


@cache
def baseline(name: str) -> tuple[Any, Any]:
    """The picture with letters, and without."""
    above, below = np.split(imread(BASELINES / f"{name}.png")[:, :, :3], 2)
    return above, below


def worst_tile(one: Any, other: Any, blur: float) -> float:
    """The greatest root mean square difference of any tile, after a blur."""
    assert one.shape == other.shape
    squares = gaussian_filter(one - other, (blur, blur, 0.0)) ** 2
    height, width = (TILE * -(-size // TILE) for size in squares.shape[:2])
    padded = np.zeros((height, width, 3))
    padded[: squares.shape[0], : squares.shape[1]] = squares
    tiles = padded.reshape(height // TILE, TILE, width // TILE, TILE, 3).mean(axis=(1, 3, 4))
    return float(np.sqrt(tiles.max()))


def letters_alike(figure: Figure, name: str) -> bool:
    return worst_tile(rendered(figure), baseline(name)[0], blur=3.0) < LOOSELY


def shapes_alike(figure: Figure, name: str) -> bool:
    return worst_tile(rendered(figure, letters=False), baseline(name)[1], blur=0.7) < STRICTLY


@pytest.mark.parametrize("name", NAMES)
def test_picture_is_as_stored(name: str) -> None:
    if name in ("missing", "weights") and mpl.__version_info__ < (3, 11):
        pytest.skip("Matplotlib before 3.11 resamples images in another way")
    figure, way_out = drawn(name), "run `python tests/plots/test_plot_images.py` if this is meant"
    assert shapes_alike(figure, name), way_out
    assert letters_alike(figure, name), way_out
    failing_without_any_artist(figure, name)


def failing_without_any_artist(figure: Figure, name: str) -> None:
    """The comparison is worth something: it misses one artist of each kind."""
    ax = figure.axes[0]
    for kind in (ax.collections, ax.lines, ax.patches, ax.texts, ax.images):
        for artist in list(kind)[-1:]:
            artist.set_visible(False)
            alike = letters_alike if isinstance(artist, Text) else shapes_alike
            assert not alike(figure, name), artist
            artist.set_visible(True)


@pytest.mark.parametrize("name", ["latents", "loadings", "lasso_path", "missing"])
def test_a_picture_with_other_limits_fails(name: str) -> None:
    figure = drawn(name)
    low, high = figure.axes[0].get_xlim()
    figure.axes[0].set_xlim(low, high * 1.1 + 0.05 * (high - low))
    assert not shapes_alike(figure, name)
    assert not shapes_alike(drawn("latents"), "latents_density")


@pytest.mark.parametrize("name", ["loadings", "relevance", "lasso_path", "variance_shares"])
def test_another_rendering_of_letters_passes(name: str) -> None:
    with mpl.rc_context({"text.hinting": "no_hinting"}):
        figure = drawn(name)
        for text in figure.findobj(Text):
            text.set_fontsize(1.01 * float(text.get_fontsize()))
        assert letters_alike(figure, name)


def test_every_stored_picture_belongs_to_a_case() -> None:
    assert sorted(file.stem for file in BASELINES.glob("*.png")) == sorted(NAMES)


def store() -> None:
    BASELINES.mkdir(exist_ok=True)
    for name in NAMES:
        figure = drawn(name)
        halves = np.vstack([rendered(figure), rendered(figure, letters=False)])
        image = (255.0 * halves).round().astype(np.uint8)
        imsave(BASELINES / f"{name}.png", image)


if __name__ == "__main__":
    store()
