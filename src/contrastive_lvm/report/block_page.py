"""The report of a model of several sets: which set has which blocks, how sure that is, and rows."""

import base64
import html
import io
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from contrastive_lvm.coordinate_ascent.engine import CoordinateAscent
from contrastive_lvm.estimators import parse_params
from contrastive_lvm.estimators.multi_set_lvm import MultiSetLVM
from contrastive_lvm.estimators.summary import leading
from contrastive_lvm.exceptions import InvalidDataError, InvalidParameterError
from contrastive_lvm.linalg.matrices import has_missing, is_sparse
from contrastive_lvm.plots import plot_activity, plot_latents
from contrastive_lvm.plots.style import visible
from contrastive_lvm.report.evidence import (
    ASCENT_SWEEPS,
    ERROR_RESAMPLES,
    MOST_BOOTSTRAP_WORK,
    counted,
    resamples_within,
    rounded,
)
from contrastive_lvm.report.page import web
from contrastive_lvm.resampling.bootstrap import BlockBootstrap, bootstrap
from contrastive_lvm.resampling.contrast_test import contrast_test

TOP = 8  # features of a dimension
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; form-action 'none'"


class RowsOfSets(NamedTuple):
    """The rows of a model of several sets, as its methods take them."""

    X: Any
    sets: Any
    groups: Any
    facts: dict[str, Any]  # size factors and covariates


def block_page(model: MultiSetLVM, rows: RowsOfSets, *, title: str) -> str:
    """Return the HTML page of a fitted model and its rows: text and pictures, without a script."""
    errors = _errors(model, rows)
    latents = np.asarray(model.transform(rows.X, sets=rows.sets, **rows.facts))
    names = model.get_feature_names_out()
    parts = [
        ("Which blocks are real?", _list(_verdicts(model, rows))),
        (
            "Share of each set's variance",
            _picture(lambda ax: plot_activity(model, ax=ax), "Shares"),
        ),
        ("Loadings", _loadings(model, errors)),
    ]
    if latents.shape[1]:
        shown = ", ".join(map(str, names[:2]))
        picture = _picture(lambda ax: plot_latents(latents[:, :2], rows.sets, ax=ax), "Latents")
        parts.insert(2, (f"Rows along {shown}", picture))
    if model.block_evidence_ is not None:
        parts.append(("Evidence for the sizes, in nats", _frame(model.block_evidence_)))
    parts += [("The fit", _list(_fit(model))), ("Settings", _settings(model))]
    body = "\n".join(
        f'<section class="panel"><h2>{_text(head)}</h2>{own}</section>' for head, own in parts
    )
    lead = f"{model.n_samples_:,} rows of {len(model.set_sizes_)} sets"
    lead += f", {model.n_features_in_:,} features"
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
        f"<title>{_text(title)}</title><style>{web('page.css')}</style></head>\n"
        f'<body><header><div><h1>{_text(title)}</h1><p id="lead">{lead}</p></div></header>\n'
        f"<main>{body}</main></body></html>\n"
    )


def _verdicts(model: MultiSetLVM, rows: RowsOfSets) -> list[str]:
    """Test every block that some sets lack, and say what was found."""
    n_resamples = resamples_within(model.n_samples_, model.n_features_in_)
    found = []
    for name, block in model.blocks_.items():
        have = ", ".join(block.sets or ())
        lack = ", ".join(s for s in model.set_sizes_ if s not in (block.sets or ()))
        if not lack:
            found.append(f"{name}: all sets have it, so that there is nothing to compare it with.")
        elif not n_resamples:
            found.append(f"{name}: not tested, since the data are large; use contrast_test.")
        else:
            found.append(f"{name}: {_tested(model, rows, name, have, lack, n_resamples)}")
    return found


def _tested(
    model: MultiSetLVM, rows: RowsOfSets, block: str, have: str, lack: str, n_resamples: int
) -> str:
    known = {name: own for name, own in rows.facts.items() if name == "covariates"}
    given = {"sets": rows.sets, "groups": rows.groups, "n_resamples": n_resamples, **known}
    try:
        test = contrast_test(rows.X, block=block, model=model, random_state=0, **given)
    except (InvalidParameterError, InvalidDataError, ValueError) as error:
        return f"not tested: {error}"
    p, shown = f"p = {rounded(test.pvalue)}", model.blocks_[block].n_components
    if not test.n_target:
        said = f"no evidence that rows of {have} have structure that those of {lack} lack"
        return f"{said} ({p}); it describes noise."
    return (
        f"rows of {have} have structure that those of {lack} lack: {p}, "
        f"{counted(test.n_target)} supported, of {counted(int(shown), '')} in the model."
    )


def _errors(model: MultiSetLVM, rows: RowsOfSets) -> BlockBootstrap | None:
    """Resample the fit where that takes about a second."""
    engine = parse_params.engine(model.inference, model._fitted_model())
    plain = isinstance(engine, CoordinateAscent) and not engine._posterior
    likelihood = parse_params.likelihood(model.likelihood)
    if not plain or not likelihood._has_closed_form or likelihood._is_scale_mixture:
        return None
    n, rank = model.n_samples_, min(model.n_samples_, model.n_features_in_)
    sweeps = ASCENT_SWEEPS * int(model.activity_.max().sum())
    work = ERROR_RESAMPLES * (n + sweeps) * rank**2
    if work > MOST_BOOTSTRAP_WORK or is_sparse(rows.X) or has_missing(np.asarray(rows.X)):
        return None
    given = {name: own for name, own in rows.facts.items() if name == "covariates"}
    options: dict[str, Any] = {"n_resamples": ERROR_RESAMPLES, "random_state": 0, **given}
    try:
        return bootstrap(model, rows.X, sets=rows.sets, groups=rows.groups, **options)
    except InvalidDataError:  # rows other than those of the fit, or too few
        return None


def _loadings(model: MultiSetLVM, errors: BlockBootstrap | None) -> str:
    names = getattr(model, "feature_names_in_", [f"x{i}" for i in range(model.n_features_in_)])
    lines = []
    for block, components in model.components_.items():
        std = None if errors is None else errors.components_std[block]
        for k, row in enumerate(components):
            of_row = [None] * len(row) if std is None else std[k]
            said = [
                f"{names[i]} {row[i]:+.3g}" + ("" if of_row[i] is None else f" ± {of_row[i]:.2g}")
                for i in leading(row, TOP)
            ]
            lines.append((f"{block} {k + 1}", ", ".join(said) or "all loadings are zero"))
    about = "Largest loadings of each dimension" + (
        "." if errors is None else f", with standard errors from {ERROR_RESAMPLES} resamples."
    )
    return f'<p class="small">{_text(about)}</p>{_table(lines)}'


def _fit(model: MultiSetLVM) -> list[str]:
    if model.converged_:
        return [f"The fit converged after {model.n_iter_:,} iterations."]
    return [f"The fit stopped after {model.n_iter_:,} iterations, before it converged."]


def _settings(model: MultiSetLVM) -> str:
    pairs = [(f"set {name}", f"{n:,} rows") for name, n in model.set_sizes_.items()]
    return _table([*pairs, *((k, repr(v)) for k, v in sorted(model.get_params().items()))])


def _picture(draw: Callable[[Axes], Axes], name: str) -> str:
    """Draw on axes of a figure, and return it as an image within the page."""
    figure = Figure(figsize=(7.0, 4.2), layout="constrained")
    FigureCanvasSVG(figure)
    draw(figure.add_subplot())
    written = io.BytesIO()
    with rc_context({"svg.hashsalt": name}):  # the same page for the same fit
        figure.savefig(written, format="svg", metadata={"Date": None})
    data = base64.b64encode(written.getvalue()).decode("ascii")
    how = 'style="max-width: 100%; background: white"'
    return f'<img alt="{name}" {how} src="data:image/svg+xml;base64,{data}">'


def _frame(table: Any) -> str:
    head = ("block", *map(str, table.columns))
    return _table([head, *((str(i), *(f"{v:.4g}" for v in row)) for i, *row in table.itertuples())])


def _table(lines: Any) -> str:
    rows = ("".join(f"<td>{_text(cell)}</td>" for cell in line) for line in lines)
    return "<table>" + "".join(f"<tr>{row}</tr>" for row in rows) + "</table>"


def _list(sentences: list[str]) -> str:
    return "<ul>" + "".join(f"<li>{_text(own)}</li>" for own in sentences) + "</ul>"


def _text(value: Any) -> str:
    return html.escape(visible(str(value)))
