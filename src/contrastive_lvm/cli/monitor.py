"""`clvm score` and `clvm monitor`: how much new rows look like the target, and which alarm."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from contrastive_lvm.cli import options
from contrastive_lvm.cli.apply import Applied, give, read_for_model, warnings_about
from contrastive_lvm.cli.layout_options import with_layout
from contrastive_lvm.cli.output import say
from contrastive_lvm.io.atomic import destination, write_atomically

if TYPE_CHECKING:
    from contrastive_lvm.estimators.monitoring import Monitoring
    from contrastive_lvm.io.tables.layout import Layout


@with_layout
def score(
    model: options.ModelFile,
    file: options.RowsFile,
    *,
    where: options.Where = None,
    output: options.TableOutput = None,
    as_json: options.Json = False,
    layout: "Layout | None" = None,
) -> None:
    """Compute how much rows look like the target rather than the background.

    The column enrichment is the logarithm of the ratio of both likelihoods, above zero for rows
    that look like the target.
    """
    given = read_for_model(model, file, where, output, layout)
    _refuse_without(given, "enrichment", model)
    with warnings_about(file):
        values = given.estimator.enrichment(given.rows, **given.facts)
    give(given.table, ["enrichment"], values[:, None], output, as_json=as_json)


@with_layout
def monitor(
    model: options.ModelFile,
    file: options.RowsFile,
    *,
    where: options.Where = None,
    alpha: Annotated[
        float,
        typer.Option(metavar="SHARE", help="Share of normal rows that may raise an alarm."),
    ] = 0.01,
    reference: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Normal rows that the model was not fitted to, which the limits are taken from; "
            "without them, limits are those of independent rows with normal noise.",
        ),
    ] = None,
    contributions: Annotated[
        bool, typer.Option("--contributions", help="Add what each feature contributes.")
    ] = False,
    plot: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Also draw run charts: .png, .svg or .pdf."),
    ] = None,
    output: options.TableOutput = None,
    as_json: options.Json = False,
    layout: "Layout | None" = None,
) -> None:
    """Compare new rows with normal ones, which the background was: charts, limits and alarms.

    Columns are t2 (along the dimensions that only the target has), shared_t2 (along those of the
    background), spe (outside of these) and alarm.
    """
    import numpy as np

    if plot is not None:
        destination(plot, "--plot", inputs=[model, file, reference], outputs=[output])
        if plot.suffix.lower() not in (".png", ".svg", ".pdf"):
            raise ValueError(f"--plot={plot} is not a picture; end it with .png, .svg or .pdf.")
    given = read_for_model(model, file, where, output, layout)
    _refuse_without(given, "monitor", model)
    normal = None
    if reference is not None:
        normal = read_for_model(model, reference, where, None, layout).rows
    with warnings_about(file):
        found = given.estimator.monitor(given.rows, alpha=alpha, reference=normal)
    names = list(given.preparation.features)
    for line in _summary(found, names):
        say(line, err=True)
    if plot is not None:
        _draw(found, plot)
    columns = ["t2", "shared_t2", "spe", "alarm"]
    values = np.column_stack([found.t2, found.shared_t2, found.spe, found.alarms])
    if contributions:
        columns += [f"contribution_{name}" for name in names]
        values = np.hstack([values, found.contributions])
    give(given.table, columns, values, output, as_json=as_json)


def _refuse_without(given: Applied, method: str, model: Path) -> None:
    if not hasattr(given.estimator, method):
        kind = type(given.estimator).__name__
        raise ValueError(
            f"{model} holds a {kind}, which has no {method}; fit a linear model (--model clvm)."
        )


def _summary(found: "Monitoring", names: list[str]) -> list[str]:
    """Return the limits, and the features that contribute most to the alarms."""
    import numpy as np

    limits = zip(
        ("t2", "shared_t2", "spe"),
        (found.t2_limit, found.shared_t2_limit, found.spe_limit),
        strict=True,
    )
    lines = [f"{'limits':12}" + ", ".join(f"{name} {limit:.4g}" for name, limit in limits)]
    lines.append(f"{'alarms':12}{int(found.alarms.sum()):,} of {len(found.alarms):,} rows")
    if found.alarms.any():
        mean = found.contributions[found.alarms].mean(axis=0)
        top = [names[i] for i in np.argsort(-mean, kind="stable")[:5]]
        lines.append(f"{'signals':12}{', '.join(top)} (contribute most to the alarms)")
    return lines


def _draw(found: "Monitoring", path: Path) -> None:
    from contrastive_lvm.plots import plot_monitoring

    figure = plot_monitoring(found)
    kind = path.suffix.lower().removeprefix(".")
    write_atomically(path, lambda place: figure.savefig(place, format=kind, dpi=150))
