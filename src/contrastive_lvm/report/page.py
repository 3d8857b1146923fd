"""The report as one self-contained HTML file: markup, style, script and data.

The data are in a block that browsers do not run, with `<`, `>` and `&` escaped, and the script
inserts them as text only. A content security policy allows that one script by its hash and no
connections at all, so nothing in the data can run or be sent.
"""

import base64
import hashlib
import html
import json
import re
from functools import cache
from importlib.resources import files

import numpy as np
from matplotlib import colormaps
from matplotlib.colors import to_hex

from contrastive_lvm.plots.style import PALETTE, visible


def page(facts: dict[str, object]) -> str:
    """Return the HTML page that shows what `page_data` has collected."""
    # Colours for numbers from low to high, in an order that people with any colour vision can see.
    ramp = [to_hex(colour) for colour in colormaps["viridis"](np.linspace(0.0, 1.0, 64))]
    facts = facts | {"palette": PALETTE, "ramp": ramp}
    script = _script()
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode("ascii")
    parts = {
        "TITLE": html.escape(visible(str(facts["title"]))),
        "POLICY": f"default-src 'none'; script-src 'sha256-{digest}'; "
        "style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'",
        "STYLE": web("page.css"),
        "DATA": escaped(_visible(facts)),
        "SCRIPT": script,
    }
    # In one pass, so that no placeholder is searched for inside another part.
    return re.sub(r"%([A-Z]+)%", lambda found: parts[found[1]], web("page.html"))


def escaped(facts: object) -> str:
    r"""Write JSON that is safe inside a script element, whatever it says.

    >>> print(escaped({"name": "</script>"}))
    {"name": "\u003c/script\u003e"}
    """
    text = json.dumps(facts, ensure_ascii=False, allow_nan=False)
    return re.sub("[<>&\u2028\u2029]", lambda found: f"\\u{ord(found[0]):04x}", text)


def _visible(value: object) -> object:
    """Make all text visible, however deep it is nested."""
    if isinstance(value, str):
        return visible(value)
    if isinstance(value, dict):
        return {visible(key): _visible(own) for key, own in value.items()}
    return [_visible(own) for own in value] if isinstance(value, list | tuple) else value


@cache
def _script() -> str:
    names = "data state colour drawing scatter views differences loadings subgroups summary"
    parts = "\n".join(web(f"{name}.js") for name in [*names.split(), "downloads", "figure", "main"])
    return f'(() => {{\n"use strict";\n{parts}}})();\n'


def web(name: str) -> str:
    """Return a part of the page."""
    return files("contrastive_lvm.report").joinpath("web", name).read_text(encoding="utf-8")
