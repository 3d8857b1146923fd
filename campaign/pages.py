"""Pages with hostile names in Chromium.

Each case draws the features, rows, annotations, groups and the title of a report from names that
try to run code, to reorder text, to break JSON or to become formulas of spreadsheets. The page must
draw itself, write nothing to the console, request nothing, keep its title, and download tables
without formulas.
"""

import io
import shutil
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import contrastive_lvm as clvm
from campaign.case import Report, TroubleError, generator, require

NAMES = (
    *("<script>document.title='taken'</script>", "</script><svg onload=document.title='taken'>"),
    *("<img src=x onerror=document.title='taken'>", "javascript:document.title='taken'", "]]>"),
    *("${document.title='taken'}", "{{constructor.constructor('1')()}}", "__proto__", "<!--"),
    *("constructor", "toString", "'", '"', "\\", "\\u003cscript", "&lt;b&gt;", "%DATA%", "%TITLE%"),
    *(
        "\u202egnp.exe",
        "\u2066\u2067",
        "\ud800",
        "\udfff\ud800",
        "\0",
        "\x1b[2J",
        "a\r\nb",
        "\t=1+1",
    ),
    *("\u2028", "\u2029", "\ufeff", "\uffff", "e\u0301" * 40, "\U0001f9ec", "\u0634\u0645\u0633"),
    *('=HYPERLINK("http://example.org")', "@SUM(1)", "+1+cmd", "-2+3+cmd", "-5", "+1e3", "=", "-"),
    *("", " ", "a" * 3000, "<" * 200, "NaN", "null", "undefined", "0", "1e999", "target1", "set"),
)


@cache
def browser() -> Any:
    """Start Chromium once in a process; it ends with the process."""
    from playwright.sync_api import sync_playwright

    flags = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]
    driver = sync_playwright().start()
    return driver.chromium.launch(executable_path=shutil.which("chromium"), args=flags)


def _names(rng: np.random.Generator, n: int) -> list[str]:
    return [str(name) for name in np.array(NAMES, dtype=object)[rng.integers(len(NAMES), size=n)]]


def _objects(names: list[str]) -> pd.Index:
    """Hold names that are no text to pandas 3.1, which keeps texts in UTF-8."""
    return pd.Index(names, dtype=object)


def _page(rng: np.random.Generator, folder: Path) -> Path:
    """Write a report whose names are all hostile; features need names that differ."""
    data = clvm.datasets.make_contrastive(24, 16, n_features=12, n_shared=2, random_state=0)
    features = [f"{name}{' ' * j}" for j, name in enumerate(_names(rng, 12))]
    target, background = (
        pd.DataFrame(rows, _objects(_names(rng, len(rows))), _objects(features))
        for rows in data[:2]
    )
    model = clvm.ContrastiveLVM(2, 2).fit(target, background=background)
    groups = _names(rng, 3)
    return model.report(
        folder / "report.html",
        target,
        background=background,
        labels={name: rng.choice(np.array(groups, dtype=object), 24) for name in _names(rng, 3)},
        background_labels={name: _names(rng, 16) for name in _names(rng, 2)},
        title="".join(_names(rng, 2)),
    )


def run(number: int) -> Report:
    """Open one page."""
    if shutil.which("chromium") is None:
        return Report("no Chromium on this machine", "answered")
    rng = generator("pages", number)
    with tempfile.TemporaryDirectory() as folder:
        path = _page(rng, Path(folder))
        troubles: list[str] = []
        page = browser().new_page()
        page.on("console", lambda message: troubles.append(message.text))
        page.on("pageerror", lambda error: troubles.append(str(error)))
        page.on("dialog", lambda dialog: troubles.append(dialog.message))
        page.on("request", lambda r: None if r.url == path.as_uri() else troubles.append(r.url))
        page.goto(path.as_uri())
        for _ in range(500):
            if page.evaluate("window.clvm?.ready && clvm.views.every((v) => v.squares)"):
                break
            page.wait_for_timeout(20)
        _use(page, rng)
        page.close()
    require(not troubles, f"the page says {troubles[:2]}")
    return Report("hostile names", "answered")


def _use(page: Any, rng: np.random.Generator) -> None:
    title = page.title()
    page.select_option(
        "#colour", index=int(rng.integers(1, page.locator("#colour option").count()))
    )
    page.fill("#find", "a")
    page.mouse.move(300, 400)
    require(page.title() == title, "the title changed")
    require(page.evaluate("window.clvm.ready"), "the page is not ready")
    hidden = page.evaluate(
        "/[\\u0000-\\u0008\\u202a-\\u202e\\u2066-\\u2069]/.test(document.body.innerText)"
    )
    require(not hidden, "the page shows characters that reorder or hide others")
    require(page.locator("main script, main img, h1 *").count() == 0, "a name became an element")
    for button in ("target-latents", "loadings"):
        with page.expect_download() as waiting:
            page.click(f"#save-{button}")
        table = Path(waiting.value.path()).read_bytes()
        _require_no_formula(table)


def _require_no_formula(table: bytes) -> None:
    found = pd.read_csv(io.BytesIO(table), dtype=str, keep_default_na=False)
    for cell in (*found.columns, *found.to_numpy(dtype=object).ravel()):
        if cell[:1] in tuple("=@+-\t\r"):
            try:
                float(cell)
            except ValueError:
                raise TroubleError(f"a table has the formula {cell[:40]!r}") from None
