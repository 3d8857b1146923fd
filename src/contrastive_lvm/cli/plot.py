"""`clvm plot`: any plot of a model and its rows, as a picture for a paper."""

import inspect
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from contrastive_lvm.cli import options
from contrastive_lvm.cli.output import (
    Contrastive,
    announce,
    check_picture,
    say,
    show,
    write_picture,
)
from contrastive_lvm.cli.report import rows_of_model

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from contrastive_lvm.arrays import Array
    from contrastive_lvm.io.tables.prepare import Sets

CENTIMETRES = 2.54  # in an inch, the unit of Matplotlib
KIND: options.Group = {
    "kind": (
        Annotated[
            str,
            typer.Argument(
                metavar="PLOT",
                help="latents, shared, subgroups, uncertainty, loadings, relevance, scales, "
                "variance, spectrum, outliers, weights, missing, trace, history, null, dimensions "
                "or stability.",
            ),
        ],
        inspect.Parameter.empty,
    )
}


@dataclass(frozen=True)
class Picture:
    """The data of a plot: a model, its rows, and the options."""

    model: Contrastive
    sets: "Sets"
    color: str | None
    dimension: int  # from 0
    n: int | None  # features or rows to show
    seed: int

    def labels(self) -> Any:
        """Return the column whose values colour the rows of the target, if one was named."""
        from contrastive_lvm.io.tables.row_columns import annotation

        if self.color is None:
            return None
        known = ", ".join(map(repr, self.sets.target.annotations)) or "none"
        return annotation(self.sets.target, self.color, "--color", f"these describe rows: {known}")

    def target(self) -> Any:
        """Return the rows of the target as the model takes them."""
        return self.sets.frames()[0]

    def count(self) -> dict[str, Any]:
        """Return how many features or rows to show, if a number was given."""
        return {} if self.n is None else {"n": self.n}

    def arguments(self) -> dict[str, Any]:
        """Return the size factors and covariates of the rows of the target."""
        from contrastive_lvm.io.tables.row_columns import facts_of_rows

        return facts_of_rows(self.sets.target, self.sets.preparation)


@options.with_options(KIND, options.MODEL_FILE, options.SIDES)
def plot(
    *,
    kind: str,
    model: Path,
    file: options.RowsOfFit = None,
    background_file: options.BackgroundFile = None,
    color: options.Color = None,
    dimension: Annotated[
        int, typer.Option(metavar="K", min=1, help="Target dimension whose loadings are drawn.")
    ] = 1,
    n: Annotated[
        int | None,
        typer.Option("-n", min=1, metavar="N", help="How many features or rows to show."),
    ] = None,
    size: Annotated[
        str | None,
        typer.Option(metavar="WIDTHxHEIGHT", help="Size in centimetres, such as 8.5x7."),
    ] = None,
    dpi: Annotated[
        int, typer.Option(metavar="N", min=20, max=2400, help="Dots per inch of a .png file.")
    ] = 300,
    title: Annotated[str | None, typer.Option(metavar="TEXT", help="Title of the picture.")] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="FILE", help="A .png, .svg or .pdf file; by default PLOT.png."
        ),
    ] = None,
    yes: options.Yes = False,
    seed: options.Seed = 0,
    as_json: options.Json = False,
    **said: Any,
) -> None:
    """Draw one plot of a model and the rows that it was fitted to.

    Loadings have 90 % intervals if resampled rows give them. The plots null, dimensions and
    stability compute the test of contrast, the choice of dimensions and the bootstrap first.
    """
    from contrastive_lvm.checks import check_choice

    draw = PLOTS[check_choice("PLOT", kind, tuple(PLOTS))]
    output = Path(f"{kind}.png") if output is None else output
    inches = None if size is None else _inches(size)
    check_picture(output, "--output", inputs=[model, file, background_file])
    estimator, sets = rows_of_model(model, file, background_file, said, [output], yes=yes)
    announce(f"Drawing {kind}")
    drawn = draw(Picture(estimator, sets, color, dimension - 1, n, seed))
    figure = _titled(drawn, title)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "constrained_layout not applied")  # reported below
        if inches is not None:
            figure.set_size_inches(*inches)
            _warn_of_cut_text(figure, size)
        write_picture(output, figure, dpi)
    show({"plot": kind, "output": str(output)}, lambda _: f"picture: {output}", as_json=as_json)


def _inches(size: str) -> tuple[float, float]:
    """Return the inches that a size in centimetres stands for.

    >>> _inches("25.4x12.7")
    (10.0, 5.0)
    """
    parts = size.lower().split("x")
    try:
        width, height = (float(part) / CENTIMETRES for part in parts)
    except ValueError:
        width = height = 0.0
    if not (0.4 <= width <= 80 and 0.4 <= height <= 80):
        raise ValueError(
            f"--size={size} is not a width and a height from 1 to 200 centimetres; write it as "
            "8.5x7."
        )
    return width, height


def _warn_of_cut_text(figure: "Figure", size: str | None) -> None:
    """Warn if the size cuts text off, and name a size with room for it."""
    asked = figure.get_size_inches()
    while (missing := _cut_inches(figure)).any():
        figure.set_size_inches(*(figure.get_size_inches() + missing))
    needed = figure.get_size_inches() * CENTIMETRES
    figure.set_size_inches(*asked)
    if (needed > asked * CENTIMETRES).any():
        say(f"warning: --size={size} cuts text off; try {needed[0]:.1f}x{needed[1]:.1f}.", err=True)


def _cut_inches(figure: "Figure") -> "Array":
    """Return by how much a figure is too narrow and too low for its text."""
    import numpy as np

    figure.draw_without_rendering()
    # Before version 3.11, a figure's box leaves out how wide the names of its axes are.
    axes = [axis for ax in figure.axes if ax.axison for axis in (ax.xaxis, ax.yaxis)]
    named = [
        np.divide(found.extents, figure.dpi) for axis in axes if (found := axis.get_tightbbox())
    ]
    boxes, inches = np.vstack([figure.get_tightbbox().extents, *named]), figure.get_size_inches()
    least, most = boxes[:, :2].min(axis=0), boxes[:, 2:].max(axis=0)
    cut = np.maximum(0.0, np.maximum(-least, most - inches))
    return np.where(cut > 0.02, np.ceil(20 * cut) / 10, 0.0)  # in steps, so that the search ends


def _titled(drawn: "Axes | Figure", title: str | None) -> "Figure":
    from matplotlib.figure import Figure

    if isinstance(drawn, Figure):
        if title is not None:
            drawn.suptitle(title)
        return drawn
    if title is not None:
        drawn.set_title(title, loc="left", fontsize=10)
    figure = drawn.get_figure(root=True)
    assert figure is not None, "axes of a plot belong to a figure"
    return figure


def _latents(picture: Picture) -> "Axes":
    import pandas as pd

    from contrastive_lvm.plots import plot_latents

    found = picture.model.transform(picture.target(), **picture.arguments())
    names = [f"target {k}" for k in range(1, found.shape[1] + 1)]
    return plot_latents(pd.DataFrame(found, columns=names), picture.labels())


def _loadings(picture: Picture) -> "Axes":
    from contrastive_lvm.plots import plot_loadings
    from contrastive_lvm.report.evidence import gather

    evidence = gather(picture.model, picture.sets, n_resamples=0, seed=picture.seed)
    own: dict[str, Any] = {"bootstrap": evidence.bootstrap, **picture.count()}
    return plot_loadings(picture.model, picture.dimension, **own)


def _null(picture: Picture) -> "Axes":
    from contrastive_lvm.plots import plot_null_distribution
    from contrastive_lvm.report.evidence import run_test

    return plot_null_distribution(run_test(picture.sets, picture.model, seed=picture.seed))


def _dimensions(picture: Picture) -> "Axes":
    from contrastive_lvm.plots import plot_dimensions
    from contrastive_lvm.report.evidence import replicates_of
    from contrastive_lvm.resampling.dimensions import choose_dimensions

    X, background = picture.sets.frames()
    groups = replicates_of(picture.sets)
    return plot_dimensions(
        choose_dimensions(
            X, background=background, model=picture.model, **groups, random_state=picture.seed
        )
    )


def _stability(picture: Picture) -> "Axes":
    from contrastive_lvm.plots import plot_stability
    from contrastive_lvm.report.evidence import resampled

    found = resampled(picture.model, picture.sets, n_resamples=200, seed=picture.seed)
    return plot_stability(found)


def _uncertainty(picture: Picture) -> "Axes":
    from contrastive_lvm.plots import plot_uncertainty

    found = picture.model.latents(picture.target(), **picture.arguments())
    return plot_uncertainty(found, picture.labels(), **picture.count())


def _of_model(name: str) -> "Callable[[Picture], Axes | Figure]":
    """Return a plot that needs nothing but the model."""

    def draw(picture: Picture) -> "Axes | Figure":
        from contrastive_lvm import plots

        drawn: Axes | Figure = getattr(plots, f"plot_{name}")(picture.model)
        return drawn

    return draw


def _of_rows(
    name: str, *, labels: bool = False, count: bool = False
) -> "Callable[[Picture], Axes | Figure]":
    """Return a plot of the model and the rows of the target."""

    def draw(picture: Picture) -> "Axes | Figure":
        from contrastive_lvm import plots

        own = (picture.labels(),) if labels else ()
        given = picture.count() if count else {}
        plot = getattr(plots, f"plot_{name}")
        drawn: Axes | Figure = plot(picture.model, picture.target(), *own, **given)
        return drawn

    return draw


def _shared(picture: Picture) -> "Axes":
    from contrastive_lvm.plots import plot_shared

    return plot_shared(picture.model, *picture.sets.frames())


def _missing(picture: Picture) -> "Axes":
    from contrastive_lvm.plots import plot_missing

    return plot_missing(*picture.sets.frames())


PLOTS: "dict[str, Callable[[Picture], Axes | Figure]]" = {
    "latents": _latents,
    "shared": _shared,
    "subgroups": _of_rows("subgroups"),
    "uncertainty": _uncertainty,
    "loadings": _loadings,
    "relevance": _of_model("relevance"),
    "scales": _of_model("scales"),
    "variance": _of_model("variance_shares"),
    "spectrum": _of_model("spectrum"),
    "outliers": _of_rows("outliers", labels=True, count=True),
    "weights": _of_rows("weights", count=True),
    "missing": _missing,
    "trace": _of_model("trace"),
    "history": _of_model("history"),
    "null": _null,
    "dimensions": _dimensions,
    "stability": _stability,
}
