"""Pictures: what is drawn, what is refused, and that nothing global is touched."""

import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.collections import PathCollection
from matplotlib.figure import Figure

import contrastive_lvm as clvm
from contrastive_lvm.plots import plot_comparison, plot_latents
from contrastive_lvm.plots.style import MARKERS, PALETTE


def clusters(centres: list[tuple[float, float]], size: int = 30) -> tuple[Any, Any]:
    labels = np.repeat(np.arange(len(centres)), size)
    noise = 0.1 * np.random.default_rng(0).standard_normal((len(labels), 2))
    return np.array(centres)[labels] + noise, labels


def points(ax: Axes) -> Any:
    drawn = [c.get_offsets() for c in ax.collections if isinstance(c, PathCollection)]
    return np.vstack([np.asarray(offsets) for offsets in drawn])


def sorted_rows(rows: Any) -> Any:
    return rows[np.lexsort(rows.T)]


def test_every_row_is_drawn_once_in_its_groups_colour() -> None:
    latents, labels = clusters([(0, 0), (5, 0), (0, 5)])
    ax = plot_latents(latents, labels, title="three")
    assert ax.get_title(loc="left") == "three"
    np.testing.assert_allclose(sorted_rows(points(ax)), sorted_rows(latents))
    (scatter,) = ax.collections
    colours = np.array([mpl.colors.to_hex(c) for c in np.asarray(scatter.get_facecolor())])
    nearest = np.argmin(
        np.linalg.norm(points(ax)[:, None] - np.array([(0, 0), (5, 0), (0, 5)]), axis=2), axis=1
    )
    assert [set(colours[nearest == g]) for g in range(3)] == [{c.lower()} for c in PALETTE[:3]]


def test_separated_groups_are_named_at_their_centres() -> None:
    latents, labels = clusters([(0, 0), (5, 0), (0, 5)])
    ax = plot_latents(latents, np.array(["A", "B", "C"])[labels])
    places = {text.get_text(): text.get_position() for text in ax.texts}
    assert ax.get_legend() is None
    np.testing.assert_allclose([places[n] for n in "ABC"], [(0, 0), (5, 0), (0, 5)], atol=0.1)


def test_overlapping_groups_get_a_legend() -> None:
    latents, labels = clusters([(0, 0), (0, 0), (0, 0.01)])
    ax = plot_latents(latents, labels)
    legend = ax.get_legend()
    assert not ax.texts
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == ["0", "1", "2"]


def test_more_groups_than_colours_change_the_marker() -> None:
    n_groups = len(PALETTE) + 2
    latents, labels = clusters([(0, 0)] * n_groups)
    ax = plot_latents(latents, labels)
    assert len(ax.collections) == 2
    legend = ax.get_legend()
    assert legend is not None
    looks = {(line.get_color(), line.get_marker()) for line in legend.get_lines()}
    assert len(looks) == n_groups
    assert {marker for _, marker in looks} == set(MARKERS[:2])


@pytest.mark.parametrize(
    "labels",
    [
        pd.Series(["b", None, "a", "b"], index=[7, 7, 7, 7]),
        pd.Categorical(["b", None, "a", "b"], categories=["a", "b", "never"]),
        ["b", None, "a", "b"],
    ],
)
def test_missing_labels_are_grey_and_not_a_group(labels: Any) -> None:
    ax = plot_latents([[0.0, 0.0], [1.0, 1.0], [9.0, 0.0], [0.0, 9.0]], labels)
    assert {text.get_text() for text in ax.texts} == {"a", "b"}
    (scatter,) = ax.collections
    colours = [mpl.colors.to_hex(c) for c in np.asarray(scatter.get_facecolor())]
    assert colours.count("#999999") == 1


def test_without_labels_there_are_neither_names_nor_a_legend() -> None:
    ax = plot_latents(np.zeros((5, 3)))
    assert not ax.texts
    assert ax.get_legend() is None


def test_columns_of_a_frame_name_the_axes() -> None:
    ax = plot_latents(pd.DataFrame({"clvm0": [0.0, 1.0], "clvm1": [1.0, 0.0], "clvm2": [0.0, 0.0]}))
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("clvm0", "clvm1")


def test_one_column_is_drawn_as_histograms_that_count_every_row() -> None:
    latents, labels = clusters([(0, 0), (5, 0)])
    ax = plot_latents(latents[:, :1], labels)
    heights = [patch.get_height() for patch in ax.patches]  # type: ignore[attr-defined]
    assert sum(heights) == len(labels)
    assert [text.get_text() for text in ax.texts] == ["0", "1"]


def test_draws_into_the_axes_it_is_given() -> None:
    ax = Figure().subplots()
    assert plot_latents(np.zeros((3, 2)), ax=ax) is ax
    assert len(ax.collections) == 1


def test_comparison_has_a_panel_for_each_method_and_names_only_what_is_apart() -> None:
    apart, labels = clusters([(0, 0), (5, 0), (0, 5)])
    together, _ = clusters([(0, 0)] * 3)
    figure = plot_comparison({"PCA": together, "cLVM": apart}, labels)
    left, right = figure.axes
    assert [ax.get_title(loc="left") for ax in figure.axes] == ["PCA", "cLVM"]
    assert (len(left.texts), len(right.texts)) == (0, 3)
    assert not figure.legends


def test_comparison_falls_back_to_one_legend() -> None:
    together, labels = clusters([(0, 0)] * 3)
    figure = plot_comparison({"one": together, "two": together}, labels)
    assert len(figure.legends) == 1
    assert all(ax.get_legend() is None for ax in figure.axes)


def test_comparison_draws_into_the_figure_it_is_given(tmp_path: Path) -> None:
    figure = Figure(figsize=(4, 2))
    assert plot_comparison({"a": np.eye(3)}, figure=figure) is figure
    figure.savefig(tmp_path / "a.svg")
    assert (tmp_path / "a.svg").stat().st_size > 1000


@pytest.mark.parametrize(
    ("latents", "labels", "message"),
    [
        (np.zeros(3), None, r"latents has shape \(3,\).*pass what transform returns"),
        (np.zeros((0, 2)), None, r"latents has shape \(0, 2\)"),
        (np.zeros((3, 0)), None, r"latents has shape \(3, 0\)"),
        ([[0.0, np.nan], [0.0, 1.0]], None, r"NaN or infinity in 1 row\(s\); drop"),
        (np.zeros((3, 2)), [0, 1], r"labels has shape \(2,\), but the latents have 3 rows"),
        (np.zeros((3, 2)), np.zeros((3, 1)), r"labels has shape \(3, 1\)"),
    ],
)
def test_bad_input_is_refused(latents: Any, labels: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        plot_latents(latents, labels)


@pytest.mark.parametrize(
    ("panels", "message"),
    [
        ({}, "panels is empty"),
        ({"a": np.zeros((3, 2)), "b": np.zeros((4, 2))}, "different numbers of rows"),
        ({"a": np.zeros(3)}, r"panels\['a'\] has shape"),
    ],
)
def test_bad_panels_are_refused(panels: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        plot_comparison(panels)


def test_settings_and_global_randomness_stay_as_they_were() -> None:
    settings = dict(mpl.rcParams)
    state = np.random.get_state(legacy=False)["state"]["key"]  # noqa: NPY002
    latents, labels = clusters([(0, 0), (5, 0)])
    plot_comparison({"a": latents}, labels)
    assert dict(mpl.rcParams) == settings
    after = np.random.get_state(legacy=False)["state"]["key"]  # noqa: NPY002
    np.testing.assert_array_equal(after, state)


def test_matplotlib_is_loaded_only_for_plots_and_pyplot_never(tmp_path: Path) -> None:
    program = f"""
import sys
import warnings
import contrastive_lvm
assert "matplotlib" not in sys.modules
figure = contrastive_lvm.plots.plot_comparison({{"a": [[0.0, 1.0], [1.0, 0.0]]}}, [0, 1])
figure.savefig({str(tmp_path / "a.png")!r})
assert "matplotlib.figure" in sys.modules
assert "matplotlib.pyplot" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.parametrize("name", ["$$", "a $x$ b \\frac", "\ud800", "\0\x1b", "\u202eabc"])
@pytest.mark.filterwarnings("ignore:The noise of")
def test_names_of_the_data_are_drawn_as_they_are(name: str) -> None:
    data = clvm.datasets.make_subgroups(40, 40, random_state=0)
    names = [f"{name}{i}" for i in range(30)]
    columns = pd.Index(names, dtype=object)  # texts of pandas 3.1 are UTF-8
    target, background = (pd.DataFrame(rows, columns=columns) for rows in data[:2])
    model = clvm.ContrastiveLVM(2, 4).fit(target, background=background)
    latents, labels = model.transform(target), [f"{name}{i % 3}" for i in range(40)]
    for drawn in (
        clvm.plots.plot_loadings(model, groups={name: names}),
        clvm.plots.plot_relevance(model, groups={name: names}),
        clvm.plots.plot_latents(latents, labels),
        clvm.plots.plot_comparison({name: latents}, labels).axes[0],
        clvm.plots.plot_trace({name: model, "other": model}),
        clvm.plots.plot_spectrum({name: model, "other": model}),
        clvm.plots.plot_outliers(model, target, labels),
    ):
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Glyph")  # not every font has every picture
            drawn.figure.canvas.draw()


def test_figures_are_shown_where_pyplot_is_in_use() -> None:
    code = """
import matplotlib
matplotlib.use("agg")
import matplotlib.pyplot as plt
import numpy as np
import contrastive_lvm as clvm
ax = clvm.plots.plot_latents(np.zeros((3, 2)))
assert plt.gcf() is ax.figure
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_activity_names_blocks_and_sets() -> None:
    data = clvm.datasets.make_multi_set(random_state=0)
    blocks = clvm.designs.each_its_own(["a", "b", "c"], n_shared=3, n_each=1)
    model = clvm.MultiSetLVM(blocks).fit(data.rows, sets=data.sets)
    ax = clvm.plots.plot_activity(model, title="sets")
    assert [tick.get_text() for tick in ax.get_yticklabels()] == ["a", "b", "c"]
    assert len(ax.texts) == 3 * 3  # shared, own and noise of each set
    with pytest.raises(TypeError, match="pass a fitted MultiSetLVM"):
        clvm.plots.plot_activity(clvm.PPCA(1).fit(data.rows))
