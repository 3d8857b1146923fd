"""`clvm monitor`: alarms for new rows, in comparison with normal ones."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from contrastive_lvm.cli import options
from contrastive_lvm.cli.apply import give, read_for_model, warnings_about
from contrastive_lvm.cli.output import check_picture, say, write_picture

if TYPE_CHECKING:
    from contrastive_lvm.estimators.monitoring import Monitoring


@options.with_options(options.APPLY)
def monitor(
    *,
    alpha: Annotated[
        float,
        typer.Option(metavar="SHARE", help="Share of normal rows that raise an alarm."),
    ] = 0.01,
    reference: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Normal rows that the model was not fitted to, used to set the limits; without "
            "them, the limits assume independent rows with normal noise.",
        ),
    ] = None,
    contributions: Annotated[
        bool,
        typer.Option("--contributions", help="Add the contribution of each feature."),
    ] = False,
    plot: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Also draw run charts (.png, .svg or .pdf)."),
    ] = None,
    **said: Any,
) -> None:
    """Compare new rows with normal ones, and raise alarms.

    Normal rows are like the background rows of the fit. The columns are t2
    (variation in the dimensions that only the target has), shared_t2 (in the shared dimensions),
    spe (outside of both) and alarm.
    """
    import numpy as np

    if plot is not None:
        inputs = [said["model"], said["file"], reference]
        check_picture(plot, "--plot", inputs=inputs, outputs=[said["output"]])
    given, normal = read_for_model(**said, method="monitor"), None
    if reference is not None:
        normal = read_for_model(**said | {"file": reference, "output": None}).rows
    with warnings_about(said["file"]):
        found = given.estimator.monitor(given.rows, alpha=alpha, reference=normal)
    names = list(given.preparation.features)
    for line in _summary(found, names):
        say(line, err=True)
    if plot is not None:
        from contrastive_lvm.plots import plot_monitoring

        write_picture(plot, plot_monitoring(found))
    columns = ["t2", "shared_t2", "spe", "alarm"]
    values = [np.column_stack([found.t2, found.shared_t2, found.spe, found.alarms])]
    if contributions:
        columns += [f"contribution_{name}" for name in names]
        values.append(found.contributions)
    give(given, columns, *values)


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
