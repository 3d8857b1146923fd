"""Check the built site in a browser: `make site`.

Every page must have one first-level heading, no level left out below it, an alternative text for
each image and a name for each link, enough contrast in light and in dark, at most 200 KB of text,
nothing that the browser has to load from elsewhere, and no link to a page that is not there. Every
public name must be two clicks away from the first page.
"""

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urlparse

import contrastive_lvm as clvm

MOST_TEXT = 200_000  # bytes
LEAST_CONTRAST = 4.5  # WCAG 2.2, level AA; 3 for large text
SCRIPT = (Path(__file__).parent / "check_page.js").read_text(encoding="utf-8")


def main(site: Path) -> None:
    """Print what is wrong and exit with 1 if anything is."""
    faults = [*_browse(site), *_unreachable(site)]
    for fault in faults:
        sys.stdout.write(f"{fault}\n")
    n_pages = len(_pages(site))
    sys.stdout.write(f"{n_pages} pages, {len(faults)} faults\n")
    sys.exit(bool(faults))


def _pages(site: Path) -> list[Path]:
    """Pages for readers; Sphinx's own lists of names and search results are left out."""
    own = {"genindex.html", "search.html", "py-modindex.html"}
    return [
        page
        for page in sorted(site.rglob("*.html"))
        if page.name not in own and "_static" not in page.parts and "_modules" not in page.parts
    ]


def _browse(site: Path) -> Iterator[str]:
    from playwright.sync_api import sync_playwright

    browser_path = shutil.which("chromium") or shutil.which("chromium-browser")
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=browser_path, args=["--no-sandbox"])
        page = browser.new_page(offline=True)
        loaded: list[str] = []
        page.on("request", lambda request: loaded.append(request.url))
        for path in _pages(site):
            name = path.relative_to(site)
            loaded.clear()
            page.goto(path.as_uri(), wait_until="load")
            yield from (f"{name}: loads {url}" for url in loaded if url.startswith("http"))
            for scheme in ("light", "dark"):
                page.evaluate("s => document.documentElement.dataset.theme = s", scheme)
                found = page.evaluate(SCRIPT, {"least": LEAST_CONTRAST, "scheme": scheme})
                yield from (f"{name}: {fault}" for fault in found["faults"])
            if found["text"] > MOST_TEXT:
                yield f"{name}: has {found['text']} bytes of text"
            yield from _dead_links(site, path, found["links"])
        browser.close()


def _dead_links(site: Path, page: Path, links: list[str]) -> Iterator[str]:
    for link in links:
        address = urlparse(link)
        target = Path(unquote(address.path))
        if address.scheme == "file" and not target.exists():
            yield f"{page.relative_to(site)}: leads to {target}, which is not there"


def _unreachable(site: Path) -> Iterator[str]:
    """Public names that the page of the reference, one click away, does not lead to."""
    text = (site / "reference" / "index.html").read_text(encoding="utf-8")
    modules = {"": clvm, "plots.": clvm.plots, "datasets.": clvm.datasets, "designs.": clvm.designs}
    for prefix, module in modules.items():
        for name in module.__all__:
            if name in ("__version__", "anndata", "datasets", "designs", "plots"):
                continue
            pages = [f"contrastive_lvm.{own}{name}.html" for own in (prefix, "")]
            if not any(page in text for page in pages):
                yield f"contrastive_lvm.{prefix}{name} is more than two clicks away"


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
