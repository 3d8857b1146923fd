"""The report of a model of several sets: the blocks of each set, tests of them, and rows."""

import base64
import html
import io
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from contrastive_lvm.arrays import RowLabels, unnamed
from contrastive_lvm.coordinate_ascent.engine import CoordinateAscent
from contrastive_lvm.estimators import parse_params
from contrastive_lvm.estimators.multi_set_lvm import MultiSetLVM
from contrastive_lvm.estimators.summary import leading, ranking_weights
from contrastive_lvm.exceptions import InvalidDataError, InvalidParameterError
from contrastive_lvm.linalg.matrices import has_missing, is_sparse
from contrastive_lvm.plots import plot_activity, plot_latents
from contrastive_lvm.plots.style import visible
from contrastive_lvm.report.evidence import (
    ERROR_RESAMPLES,
    affordable_resamples,
    affords_errors,
    counted,
    rounded,
)
from contrastive_lvm.report.page import web
from contrastive_lvm.resampling.bootstrap import BlockBootstrap, bootstrap
from contrastive_lvm.resampling.contrast_test import contrast_test

POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; form-action 'none'"


class RowsOfSets(NamedTuple):
    """The rows of a model of several sets, as its methods take them."""

    X: Any
    sets: RowLabels
    groups: RowLabels
    facts: dict[str, Any]  # size factors and covariates


def block_page(model: MultiSetLVM, rows: RowsOfSets, *, title: str) -> str:
    """Return the HTML page of a fitted model and its rows: text and pictures, without a script."""
    errors = _errors(model, rows)
    parts = [
        _panel("Which blocks are real?", _list(_verdicts(model, rows))),
        f'<div class="pair">{_pictures(model, rows)}</div>',
        _panel("Loadings", _loadings(model, errors)),
    ]
    if model.block_evidence_ is not None:
        parts.append(_panel("Evidence for the sizes, in nats", _frame(model.block_evidence_)))
    parts += [_panel("The fit", _list(_fit(model))), _panel("Settings", _settings(model))]
    body = "\n".join(parts)
    lead = f"{model.n_samples_:,} rows of {len(model.set_sizes_)} sets"
    lead += f", {model.n_features_in_:,} features"
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
        f"<title>{_text(title)}</title><style>{web('page.css')}</style></head>\n"
        f'<body><header><div><h1>{_text(title)}</h1><p id="lead">{lead}</p></div></header>\n'
        f"<main>{body}</main></body></html>\n"
    )


def _pictures(model: MultiSetLVM, rows: RowsOfSets) -> str:
    """Draw the share of each block, and the rows along the first two dimensions."""
    shares = _picture(lambda ax: plot_activity(model, ax=ax), "Shares")
    found = _panel("Share of each set's variance", shares)
    latents = np.asarray(model.transform(rows.X, sets=rows.sets, **rows.facts))[:, :2]
    if not latents.shape[1]:
        return found
    sizes = {name: len(own) for name, own in model.components_.items()}
    axes = {f"{name}{k}": f"{name} {k + 1}" for name, n in sizes.items() for k in range(n)}
    names = [axes[str(name)] for name in model.get_feature_names_out()[:2]]
    points = pd.DataFrame(latents, columns=names)
    picture = _picture(lambda ax: plot_latents(points, rows.sets, ax=ax), "Latents")
    return found + _panel(f"Rows along {' and '.join(names)}", picture)


def _panel(head: str, content: str) -> str:
    return f'<section class="panel"><h2>{_text(head)}</h2>{content}</section>'


def _verdicts(model: MultiSetLVM, rows: RowsOfSets) -> list[str]:
    """Test every block that some sets lack, and describe the results."""
    n_resamples = affordable_resamples(model.n_samples_, model.n_features_in_)
    found = []
    for name, block in model.blocks_.items():
        have = " and ".join(block.sets or ())
        lack = " and ".join(s for s in model.set_sizes_ if s not in (block.sets or ()))
        if not lack:
            found.append(f"{name}: all sets have it, so there is nothing to compare it with.")
        elif not n_resamples:
            found.append(f"{name}: not tested because the data are large; use contrast_test.")
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
        said = f"no evidence that rows of {have} have structure that rows of {lack} lack"
        return f"{said} ({p}); it describes noise."
    return (
        f"rows of {have} have structure that rows of {lack} lack ({p}); the test supports "
        f"{counted(test.n_target)}, the model has {counted(int(shown), '')}."
    )


def _errors(model: MultiSetLVM, rows: RowsOfSets) -> BlockBootstrap | None:
    """Resample the fit where that takes about a second."""
    engine = parse_params.engine(model.inference, model._fitted_model())
    plain = isinstance(engine, CoordinateAscent) and not engine._posterior
    likelihood = parse_params.likelihood(model.likelihood)
    if not plain or not likelihood._has_closed_form or likelihood._is_scale_mixture:
        return None
    n_columns = int(model.activity_.max().sum())
    cheap = affords_errors(model.n_samples_, model.n_features_in_, n_columns)
    values = unnamed(rows.X)
    if not cheap or is_sparse(values) or has_missing(np.asarray(values)):
        return None
    given = {name: own for name, own in rows.facts.items() if name == "covariates"}
    options: dict[str, Any] = {"n_resamples": ERROR_RESAMPLES, "random_state": 0, **given}
    try:
        return bootstrap(model, rows.X, sets=rows.sets, groups=rows.groups, **options)
    except InvalidDataError:  # other rows than those of the fit, or too few
        return None


def _loadings(model: MultiSetLVM, errors: BlockBootstrap | None) -> str:
    names = getattr(model, "feature_names_in_", [f"x{i}" for i in range(model.n_features_in_)])
    lines, weights = [], ranking_weights(model, model.n_features_in_)
    for block, components in model.components_.items():
        std = None if errors is None else errors.components_std[block]
        for k, row in enumerate(components):
            of_row = [None] * len(row) if std is None else std[k]
            said = [
                f"{names[i]} {row[i]:+.3g}" + ("" if of_row[i] is None else f" ± {of_row[i]:.2g}")
                for i in leading(row, 8, weights)
            ]
            lines.append((f"{block} {k + 1}", ", ".join(said) or "all loadings are zero"))
    about = "The largest loadings of each dimension" + (
        "." if errors is None else f", with standard errors from {ERROR_RESAMPLES} resamples."
    )
    return f'<p class="small">{_text(about)}</p>{_table(lines)}'


def _fit(model: MultiSetLVM) -> list[str]:
    if model.converged_:
        return [f"The fit converged after {model.n_iter_:,} iterations."]
    return [f"The fit stopped after {model.n_iter_:,} iterations without converging."]


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


def _table(lines: Iterable[Iterable[object]]) -> str:
    rows = ("".join(f"<td>{_text(cell)}</td>" for cell in line) for line in lines)
    return "<table>" + "".join(f"<tr>{row}</tr>" for row in rows) + "</table>"


def _list(sentences: list[str]) -> str:
    return "<ul>" + "".join(f"<li>{_text(own)}</li>" for own in sentences) + "</ul>"


def _text(value: Any) -> str:
    return html.escape(visible(str(value)))
