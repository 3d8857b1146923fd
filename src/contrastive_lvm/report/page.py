"""One self-contained file: markup, style, script and data, with nothing to fetch.

The data stands in a block that browsers do not run, with `<`, `>` and `&` written as escapes, and
the script writes it as text only. A content security policy admits that one script by its hash and
no connection whatever, so nothing in the data can run or be sent.
"""

import base64
import hashlib
import html
import json
import re
from functools import cache
from importlib.resources import files
from typing import Any

from matplotlib import colormaps

from contrastive_lvm.io.tables.prepare import Sets
from contrastive_lvm.plots.style import PALETTE
from contrastive_lvm.report.page_data import contents

SCRIPTS = (
    "data",
    "state",
    "colour",
    "drawing",
    "scatter",
    "views",
    "differences",
    "loadings",
    "summary",
    "downloads",
    "main",
)  # in the order in which they stand


def page(model: Any, sets: Sets, *, title: str) -> str:
    """The page of a fitted model and the rows of both sets."""
    facts = contents(model, sets, title=title) | {"palette": PALETTE, "ramp": _ramp()}
    script = _script()
    parts = {
        "TITLE": html.escape(title),
        "POLICY": f"default-src 'none'; script-src 'sha256-{_digest(script)}'; "
        "style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'",
        "STYLE": _web("page.css"),
        "DATA": escaped(facts),
        "SCRIPT": script,
    }
    # In one go, so that no part is looked for inside another.
    return re.sub(r"%([A-Z]+)%", lambda found: parts[found[1]], _web("page.html"))


def escaped(facts: Any) -> str:
    r"""JSON that can stand inside a script element, whatever it says.

    >>> print(escaped({"name": "</script>"}))
    {"name": "\u003c/script\u003e"}
    """
    text = json.dumps(facts, ensure_ascii=False, allow_nan=False)
    return re.sub("[<>&\u2028\u2029]", lambda found: f"\\u{ord(found[0]):04x}", text)


@cache
def _script() -> str:
    parts = "\n".join(_web(f"{name}.js") for name in SCRIPTS)
    return f'(() => {{\n"use strict";\n{parts}}})();\n'


def _web(name: str) -> str:
    return files("contrastive_lvm.report").joinpath("web", name).read_text(encoding="utf-8")


def _digest(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode("ascii")


def _ramp() -> list[str]:
    """Colours of numbers from low to high, which any colour vision can order."""
    colours = colormaps["viridis"].resampled(64)
    return ["#" + "".join(f"{round(255 * c):02x}" for c in colours(i)[:3]) for i in range(64)]
