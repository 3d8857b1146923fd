"""Fitted estimators in notebooks: a card with the results above scikit-learn's diagram."""

from html import escape
from typing import TYPE_CHECKING

from contrastive_lvm.estimators.summary import (
    Dimension,
    Share,
    Summary,
    n_dimensions,
    summary,
)

if TYPE_CHECKING:
    from contrastive_lvm.estimators.base_estimator import Estimator

SHOWN = 8  # dimensions that have a line
LONGEST = 40  # letters of a feature's name
# Blue and orange are told apart on white and on black; noise is the text's colour, faint.
COLOURS = {
    "target": "#2a8fd0",
    "shared": "#e69f00",
    "dimensions": "#2a8fd0",
    "noise": "currentColor",
}

# Everything else has the colour of the notebook's own text, so that it can be read in light and
# dark themes. Classes have a prefix because the styles of a cell apply to the whole page.
STYLE = """<style>
.clvm-card{color:inherit;font:13px/1.45 system-ui,sans-serif;max-width:56rem;margin:.3em 0 .6em;
padding:.6em .9em;border:1px solid;border-color:rgba(128,128,128,.45);border-radius:6px}
.clvm-card p{margin:.1em 0}
.clvm-card .clvm-quiet{opacity:.75}
.clvm-card .clvm-bar{display:flex;height:.7em;margin:.5em 0 .2em;border-radius:3px;overflow:hidden}
.clvm-card .clvm-bar span,.clvm-card .clvm-key,.clvm-card .clvm-small span{display:inline-block}
.clvm-card .clvm-key{width:.7em;height:.7em;border-radius:2px;margin:0 .3em 0 .9em}
.clvm-card .clvm-noise{opacity:.3}
.clvm-card .clvm-small span{height:.55em;border-radius:2px;min-width:1px}
.clvm-card table{border-collapse:collapse;margin:.5em 0 0;font-size:inherit;color:inherit}
.clvm-card th,.clvm-card td{text-align:left;vertical-align:top;padding:.1em .9em .1em 0;
font-weight:normal;background:none;color:inherit;border:0;white-space:normal}
.clvm-card th{opacity:.75}
.clvm-card td span{white-space:nowrap}
.clvm-card .clvm-small{width:7em;white-space:nowrap}
</style>"""


def card_of(model: "Estimator") -> str:
    """Return the card of a fitted estimator as HTML, or an empty string before the fit."""
    if not hasattr(model, "mean_"):  # learned by all estimators
        return ""
    try:
        found = summary(model, dimensions=SHOWN)
    except ImportError:  # networks of a model file, where JAX is not installed
        return ""
    return card(type(model).__name__, found, hidden=max(0, n_dimensions(model) - SHOWN))


def card(title: str, found: Summary, *, hidden: int = 0) -> str:
    """Return a summary as HTML that loads and runs nothing; `hidden` dimensions are not in it.

    Examples
    --------
    >>> found = Summary("fitted to 3 rows", "1 dimension", "converged", True, [], [])
    >>> "<b>PPCA</b>, fitted to 3 rows" in card("PPCA", found)
    True
    """
    mark = "" if found.converged else "&#9888; "  # a warning sign
    lines = [
        STYLE,
        '<div class="clvm-card">',
        f"<p><b>{escape(title)}</b>, {escape(found.data)}</p>",
        f'<p class="clvm-quiet">{escape(found.model)}</p>',
        f"<p>{mark}{escape(found.ended)}</p>",
        *_bar(found.shares),
        *_table(found.dimensions),
    ]
    if hidden:
        lines.append(f'<p class="clvm-quiet">and {hidden:,} more dimensions</p>')
    return "\n".join([*lines, "</div>"])


def _bar(shares: list[Share]) -> list[str]:
    """Return a bar of the parts of the variance, and a key to their colours."""
    if not shares:
        return []
    pieces = "".join(f"<span {_look(s.part, s.share)}></span>" for s in shares)
    key = "".join(f"<span {_look(s.part)}></span>{s.part} {s.share:.1%}" for s in shares)
    said = ", ".join(f"{s.part} {s.share:.1%}" for s in shares)
    return [
        f'<div class="clvm-bar" role="img" aria-label="{said}">{pieces}</div>',
        f'<p><span class="clvm-quiet">shares of the variance:</span>{key}</p>',
    ]


def _look(part: str, share: float | None = None) -> str:
    kinds = [] if share is not None else ["clvm-key"]
    kinds += ["clvm-noise"] if part == "noise" else []
    width = "" if share is None else f"width:{100 * share:.2f}%;"
    named = f'class="{" ".join(kinds)}" ' if kinds else ""
    return f'{named}style="{width}background:{COLOURS[part]}"'


def _table(dimensions: list[Dimension]) -> list[str]:
    if not dimensions:
        return []
    known = any(dimension.share is not None for dimension in dimensions)
    share = "<th>share</th>" if known else ""
    rows = [_row(dimension, known=known, most=_most(dimensions)) for dimension in dimensions]
    head = f"<tr><th>dimension</th>{share}<th>features that it moves most</th></tr>"
    return ["<table>", head, *rows, "</table>"]


def _most(dimensions: list[Dimension]) -> float:
    return max([d.share for d in dimensions if d.share is not None] + [1e-300])


def _row(dimension: Dimension, *, known: bool, most: float) -> str:
    features = ", ".join(
        f"<span>{escape(_cut(name))} {_signed(loading)}</span>"
        for name, loading in dimension.features
    )
    share = ""
    if known and dimension.share is not None:
        width = 3.5 * dimension.share / most  # em
        bar = f'<span style="width:{width:.2f}em;background:{COLOURS["target"]}"></span>'
        share = f'<td class="clvm-small">{bar} {dimension.share:.1%}</td>'
    return f"<tr><td>{escape(dimension.name)}</td>{share}<td>{features or 'none'}</td></tr>"


def _cut(name: str) -> str:
    return name if len(name) <= LONGEST else f"{name[: LONGEST - 1]}\N{HORIZONTAL ELLIPSIS}"


def _signed(loading: float) -> str:
    return f"{loading:+#.2g}".replace("-", "\N{MINUS SIGN}")
