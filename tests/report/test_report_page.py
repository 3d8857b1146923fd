"""The report in a real browser: Debian's Chromium driven by Playwright."""

import io
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import numpy as np
import pandas as pd
import pytest

import contrastive_lvm as clvm

playwright = pytest.importorskip("playwright.sync_api", reason="needs Playwright (group dev)")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium; apt install chromium")

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
EVIL = '<img src="x" onerror="document.title=1">'
SUBGROUPS = np.array(list("ABCD"))


class Case:
    """A model, its rows, and its page."""

    def __init__(self, folder: Path, model: Any, n: int = 200, **labels: Any) -> None:
        self.data = clvm.datasets.make_subgroups(n, n // 2, random_state=0)
        names = [f"gene {i}" for i in range(30)]
        self.target = pd.DataFrame(self.data.target, columns=names).round(3)
        self.background = pd.DataFrame(self.data.background, columns=names).round(3)
        self.target.index = pd.Index([f"cell {i}" for i in range(n)])
        self.subgroups = SUBGROUPS[self.data.target_labels]
        alone = model.n_shared == 0
        self.model = model.fit(self.target, background=None if alone else self.background)
        self.path = model.report(
            folder / "report.html",
            self.target,
            background=None if alone else self.background,
            labels={"subgroup": self.subgroups, "age": np.linspace(20, 80, n), EVIL: [EVIL] * n}
            | labels,
            title=f"Cells {EVIL}",
        )


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Case:
    return Case(tmp_path_factory.mktemp("report"), clvm.ContrastiveLVM(2, 10))


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield chromium
        chromium.close()


Open = Callable[..., Any]


@pytest.fixture
def opened(browser: Any) -> Iterator[Open]:
    """Open a page; at the end it must have said nothing and asked for nothing."""
    contexts, troubles = [], []

    def open_page(case: Case, *, width: int = 1200, height: int = 900, **words: Any) -> Any:
        context = browser.new_context(viewport={"width": width, "height": height}, **words)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: troubles.append(message.text))
        page.on("pageerror", lambda error: troubles.append(str(error)))
        page.on("dialog", lambda dialog: troubles.append(dialog.message))
        address = case.path.as_uri()
        page.on("request", lambda r: None if r.url == address else troubles.append(r.url))
        page.goto(address)
        while not page.evaluate("window.clvm?.ready && clvm.views.every((v) => v.squares)"):
            page.wait_for_timeout(20)  # waiting in the page would need eval, which it forbids
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert troubles == []


def settle(page: Any) -> None:
    """Until what was asked for is drawn."""
    page.evaluate("() => new Promise((done) => requestAnimationFrame(() => setTimeout(done)))")


def place(page: Any, row: int, view: int = 0) -> tuple[float, float]:
    """Where a row is on the screen."""
    x, y = page.evaluate(
        """([view, row]) => {
          const v = clvm.views[view];
          v.top.scrollIntoView({ block: "center" });
          const box = v.top.getBoundingClientRect();
          return [box.left + v.px[row], box.top + v.py[row]];
        }""",
        [view, row],
    )
    return float(x), float(y)


def lasso(page: Any, x0: float, y0: float, x1: float, y1: float) -> None:
    page.mouse.move(x0, y0)
    page.mouse.down()
    for x, y in ((x1, y0), (x1, y1), (x0, y1), (x0, y0)):
        page.mouse.move(x, y, steps=6)
    page.mouse.up()
    settle(page)


def lasso_subgroup(page: Any, case: Case, name: str) -> np.ndarray:
    """Draw around most of a subgroup; the rows that must be selected."""
    rows = np.flatnonzero(case.subgroups == name)
    places = np.array([place(page, int(row)) for row in range(len(case.subgroups))])
    (x0, y0), (x1, y1) = places[rows].min(axis=0) - 4, places[rows].max(axis=0) + 4
    lasso(page, x0, y0, x1, y1)
    inside = ((places > [x0, y0]) & (places < [x1, y1])).all(axis=1)
    return np.flatnonzero(inside)


def selected(page: Any) -> list[int]:
    found: list[int] = page.evaluate(
        "Array.from(clvm.selection.chosen).flatMap((c, i) => c ? [i] : [])"
    )
    return found


def pixels(page: Any, view: int) -> str:
    found: str = page.evaluate(f"clvm.views[{view}].base.toDataURL()")
    return found


def saved(page: Any, button: str) -> bytes:
    with page.expect_download() as waiting:
        page.click(button)
    return Path(waiting.value.path()).read_bytes()


def frame_of(page: Any, button: str) -> pd.DataFrame:
    return pd.read_csv(io.BytesIO(saved(page, button)))


def test_a_lasso_selects_rows_and_the_other_view_follows(case: Case, opened: Open) -> None:
    page = opened(case)
    before = [pixels(page, view) for view in (0, 1)]
    expected = lasso_subgroup(page, case, "B")
    assert len(expected) > 40
    assert selected(page) == expected.tolist()
    assert all(pixels(page, view) != before[view] for view in (0, 1))
    assert page.inner_text("#count") == f"{len(expected)} target rows selected"
    page.keyboard.press("Escape")
    settle(page)
    assert selected(page) == []
    assert [pixels(page, view) for view in (0, 1)] == before


def test_differences_are_those_of_the_observed_values(case: Case, opened: Open) -> None:
    page = opened(case)
    rows = lasso_subgroup(page, case, "B")
    chosen = np.zeros(len(case.target), dtype=bool)
    chosen[rows] = True
    a, b = case.target[chosen], case.target[~chosen]
    pooled = ((len(a) - 1) * a.var() + (len(b) - 1) * b.var()) / (len(a) + len(b) - 2)
    size = (a.mean() - b.mean()) / np.sqrt(pooled)
    error = np.sqrt(a.var() / len(a) + b.var() / len(b)) / np.sqrt(pooled)
    found = frame_of(page, "#save-differences").set_index("feature")
    np.testing.assert_allclose(found["standardized difference"], size[found.index], atol=1e-3)
    np.testing.assert_allclose(found["standard error"], error[found.index], atol=1e-3)
    np.testing.assert_allclose(found["mean of selected"], a.mean()[found.index], atol=1e-3)
    shown = page.locator("#differences-table tbody tr td:first-child").all_inner_texts()
    assert shown == found.index[:15].tolist()
    assert found["standardized difference"].abs().is_monotonic_decreasing


def test_a_click_selects_the_nearest_row_and_shift_adds(case: Case, opened: Open) -> None:
    page = opened(case)
    lonely = page.evaluate(  # rows with no other within the reach of the pointer
        """() => {
          const { px, py } = clvm.views[0], n = 200, found = [];
          for (let i = 0; i < n; i++) {
            let near = Infinity;
            for (let j = 0; j < n; j++) {
              if (j !== i) near = Math.min(near, Math.hypot(px[i] - px[j], py[i] - py[j]));
            }
            if (near > 8) found.push(i);
          }
          return found;
        }"""
    )
    first, second = lonely[:2]
    page.mouse.click(*place(page, first))
    assert selected(page) == [first]
    page.keyboard.down("Shift")
    page.mouse.click(*place(page, second))
    assert selected(page) == sorted([first, second])
    page.mouse.click(*place(page, second))
    page.keyboard.up("Shift")
    assert selected(page) == [first]
    page.click("#clear")
    assert selected(page) == []


def test_the_tip_has_annotations_as_plain_text(case: Case, opened: Open) -> None:
    page = opened(case)
    page.mouse.move(*place(page, 5))
    tip = page.inner_text("#tip")
    row = page.evaluate("clvm.views[0].nearest(clvm.views[0].px[5], clvm.views[0].py[5])")
    assert f"target row cell {row}" in tip
    assert EVIL in tip
    assert "\u00b1" in tip
    assert page.locator("img").count() == 0
    assert page.title() == f"Cells {EVIL}"
    assert page.inner_text("h1") == f"Cells {EVIL}"


def test_colours_follow_any_column_and_the_legend_selects(case: Case, opened: Open) -> None:
    page = opened(case)
    seen = {pixels(page, 0)}
    names = page.locator("#colour option").all_inner_texts()
    assert names[:4] == ["nothing", "subgroup", "age", EVIL]
    for name in ("age", "set", "outlyingness (robust std)", "nothing"):
        page.select_option("#colour", label=name)
        settle(page)
        seen.add(pixels(page, 0))
    assert len(seen) >= 4  # of the set there is one colour, as of nothing
    page.select_option("#colour", label="subgroup")
    page.click("#legend button:has-text('C')")
    assert selected(page) == np.flatnonzero(case.subgroups == "C").tolist()
    assert page.get_attribute("#legend button:has-text('C')", "aria-pressed") == "true"
    page.click("#loadings-table .link >> nth=0")  # a feature
    settle(page)
    feature = page.inner_text("#loadings-table .link >> nth=0")
    assert page.inner_text("#legend strong") == feature


def test_axes_can_be_chosen(case: Case, opened: Open) -> None:
    page = opened(case)
    before = pixels(page, 0)
    page.select_option("#target-view select >> nth=1", label="shared 3")
    settle(page)
    assert pixels(page, 0) != before
    y = page.evaluate("Array.from(clvm.views[0].yAxis.values.slice(0, 200))")
    shared = case.model.latents(case.target).shared[:, 2]
    np.testing.assert_allclose(y, shared, rtol=1e-5, atol=1e-6)


def test_loadings_can_be_searched(case: Case, opened: Open) -> None:
    page = opened(case)
    page.select_option("#dimension", label="shared 2")
    page.fill("#search", "GENE 2")
    loadings = pd.Series(case.model.shared_components_[1], index=case.target.columns)
    matches = loadings[[name for name in loadings.index if "gene 2" in name]]
    expected = matches.abs().sort_values(ascending=False).index.tolist()
    shown = page.locator("#loading-rows td:first-child").all_inner_texts()
    assert shown == expected
    assert page.inner_text("#loading-count") == f"{len(expected)} of {len(expected)} features"
    page.fill("#search", "")
    page.click("#loading-more")
    assert page.locator("#loading-rows tr").count() == 30


def test_downloads_hold_the_numbers_of_the_library(case: Case, opened: Open) -> None:
    page = opened(case)
    own, other = (
        case.model.latents(case.target),
        case.model.latents(case.background, of="background"),
    )
    found = frame_of(page, "#save-target-latents")
    np.testing.assert_allclose(found[["target1", "target2"]], own.target, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(found[["target1_std", "target2_std"]], own.target_std, rtol=1e-5)
    assert found["subgroup"].tolist() == case.subgroups.tolist()
    assert found["row"].tolist() == case.target.index.tolist()
    assert found[EVIL].tolist() == [EVIL] * 200
    found = frame_of(page, "#save-shared-latents")
    both = np.concatenate([own.shared, other.shared])
    names = [f"shared{k}" for k in range(1, 11)]
    np.testing.assert_allclose(found[names], both, rtol=1e-5, atol=1e-6)
    found = frame_of(page, "#save-loadings").set_index("feature")
    expected = case.model.target_components_.T
    np.testing.assert_allclose(found[["target1", "target2"]], expected, rtol=1e-5, atol=1e-6)
    facts = json.loads(saved(page, "#save-summary"))
    assert facts["lower_bound"] == case.model.lower_bound_
    page.fill("#find", "cell 19")
    found = frame_of(page, "#save-selected-rows")
    assert found["row"].tolist() == [f"cell {i}" for i in (19, *range(190, 200))]
    picture = saved(page, "#target-view button:has-text('PNG')")
    assert picture.startswith(b"\x89PNG")
    assert int.from_bytes(picture[16:20]) == 2126  # pixels: 180 mm at 300 dpi


def test_figures_have_axes_and_a_legend_and_are_white(case: Case, opened: Open) -> None:
    page = opened(case, color_scheme="dark")
    page.select_option("#colour", label="subgroup")
    root = ET.fromstring(saved(page, "#shared-view button:has-text('SVG')"))
    space = "{http://www.w3.org/2000/svg}"
    assert root.get("width") == "180mm"
    assert root.find(f"{space}rect").get("fill") == "#ffffff"  # type: ignore[union-attr]
    words = [text.text for text in root.iter(f"{space}text")]
    assert {"shared 1", "shared 2", "subgroup", "open: background"} <= set(words)
    levels = {name for name in case.subgroups.tolist() if name in words}
    assert levels == set(case.subgroups.tolist())
    points = root.findall(f"{space}g/*")
    assert len(points) == len(case.target) + len(case.background)


def test_the_first_screen_has_the_leading_features(case: Case, opened: Open) -> None:
    page = opened(case)
    own = case.model.target_components_[0]
    at = int(np.argmax(np.abs(own)))
    best, sign = case.target.columns[at], "+" if own[at] > 0 else "\u2212"
    cells = page.locator("#verdict-table td.leading").all_inner_texts()
    assert cells[0].startswith(f"{best}\u00a0{sign}, ")


def test_a_selection_says_who_is_in_it(case: Case, opened: Open) -> None:
    page = opened(case)
    page.fill("#find", "cell 19")
    who = page.locator("#selected-who").inner_text()
    rows = [19, *range(190, 200)]
    assert f"Rows: {', '.join(f'cell {i}' for i in rows)}." in who
    first = case.subgroups[rows[0]]
    n, total = np.sum(case.subgroups[rows] == first), np.sum(case.subgroups == first)
    assert f"{first} {n} of {total}" in who


def test_paper_is_white(case: Case, opened: Open) -> None:
    page = opened(case, color_scheme="dark")
    page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    assert page.evaluate("document.documentElement.dataset.theme") == "light"
    pixel = "Array.from(clvm.views[0].context.getImageData(2, 2, 1, 1).data)"
    assert page.evaluate(pixel) == [255, 255, 255, 255]
    page.evaluate("window.dispatchEvent(new Event('afterprint'))")
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"


def test_everything_can_be_done_with_the_keyboard(case: Case, opened: Open) -> None:
    page = opened(case)
    page.locator("#target-view canvas").last.focus()
    page.keyboard.press("ArrowRight")
    first = page.evaluate("clvm.views[0].cursor")
    assert page.inner_text("#spoken").startswith(f"target row cell {first}")
    page.keyboard.press("ArrowRight")
    second = page.evaluate("clvm.views[0].cursor")
    assert second != first
    assert place(page, second)[0] > place(page, first)[0]
    page.keyboard.press("Enter")
    assert selected(page) == [second]
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("Shift+Enter")
    assert len(selected(page)) == 2
    page.keyboard.press("+")
    settle(page)
    assert page.evaluate("clvm.views[0].zoomed !== null")
    page.keyboard.press("0")
    page.keyboard.press("Escape")
    assert selected(page) == []
    reached = set()
    page.evaluate("document.activeElement.blur()")
    for _ in range(60):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("document.activeElement.id || document.activeElement.tagName"))
    assert {"theme", "colour", "find", "overlay", "dimension", "search", "save-loadings"} <= reached
    assert "CANVAS" in reached


def luminance(colour: str) -> float:
    """Relative luminance of the web's accessibility guidelines (WCAG 2.2)."""
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_both_schemes_are_readable(scheme: str, case: Case, opened: Open) -> None:
    page = opened(case, color_scheme=scheme)
    assert page.evaluate("document.documentElement.dataset.theme") == scheme
    colours = {
        name: page.evaluate(
            f"getComputedStyle(document.documentElement).getPropertyValue('--{name}').trim()"
        )
        for name in ("paper", "panel", "ink", "muted", "accent", "good", "care")
    }
    for ground in ("paper", "panel"):
        for text in ("ink", "muted", "accent", "good", "care"):
            light, dark = sorted((luminance(colours[ground]), luminance(colours[text])))[::-1]
            assert (light + 0.05) / (dark + 0.05) >= 4.5, (ground, text)
    before = pixels(page, 0)
    page.click("#theme")
    settle(page)
    assert page.evaluate("document.documentElement.dataset.theme") != scheme
    assert pixels(page, 0) != before


def test_a_phone_needs_no_scrolling_to_the_side(case: Case, opened: Open) -> None:
    page = opened(case, width=360, height=740, has_touch=True, is_mobile=True)
    page.click("#legend button:has-text('A')")
    assert page.evaluate("document.scrollingElement.scrollWidth") <= 360
    boxes = [page.locator(f"#{name}-view .plot").bounding_box() for name in ("target", "shared")]
    assert boxes[1]["y"] > boxes[0]["y"] + boxes[0]["height"]  # below each other
    page.locator("#target-view .plot").scroll_into_view_if_needed()
    x, y = place(page, 3)
    page.touchscreen.tap(x, y)
    assert len(selected(page)) == 1
    style = "getComputedStyle(clvm.views[0].top).touchAction"
    assert page.evaluate(style) == "pan-y pinch-zoom"  # fingers scroll over the plots


def test_the_background_can_be_laid_over_the_target(case: Case, opened: Open) -> None:
    page = opened(case)
    assert page.evaluate("clvm.views[0].drawn") == 200
    page.check("#overlay")
    settle(page)
    assert page.evaluate("clvm.views[0].drawn") == 300
    x = page.evaluate("Array.from(clvm.views[0].xAxis.values.slice(200))")
    expected = case.model.transform(case.background)[:, 0]
    np.testing.assert_allclose(x, expected, rtol=1e-5, atol=1e-6)


MODELS = {
    "one dimension": clvm.ContrastiveLVM(1, 1),
    "no background": clvm.ContrastiveLVM(2, 0),
    "no target dimension": clvm.ContrastiveLVM(0, 2),
    "robust": clvm.ContrastiveLVM(2, 3, likelihood="student_t"),
    "dropped features": clvm.ContrastiveLVM(2, 3, target_prior=clvm.Horseshoe()),
}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.filterwarnings("ignore:n_shared=", "ignore:The noise of")
def test_every_model_is_drawn(name: str, tmp_path: Path, opened: Open) -> None:
    case = Case(tmp_path, MODELS[name], n=60)
    page = opened(case)
    views = page.evaluate("clvm.views.length")
    assert views == (case.model.n_target_ > 0) + (case.model.n_shared_ > 0)
    page.click("#legend button >> nth=0")
    assert len(selected(page)) > 0
    assert page.locator("#differences-table tbody tr").count() == 15
    for _ in range(2):
        page.click("#theme")


@pytest.mark.filterwarnings("ignore:n_shared=", "ignore:The noise of")
def test_many_points_are_drawn_and_selected(tmp_path: Path, opened: Open) -> None:
    case = Case(tmp_path, clvm.ContrastiveLVM(2, 2), n=24_000)
    page = opened(case)
    assert page.evaluate("clvm.views.map((v) => v.fine)") == [True, True]
    before = pixels(page, 1)
    box = page.locator("#target-view canvas").last.bounding_box()
    x, y, w, h = box["x"], box["y"], box["width"], box["height"]
    lasso(page, x + 0.3 * w, y + 0.3 * h, x + 0.8 * w, y + 0.8 * h)
    assert 100 < len(selected(page)) < 24_000
    assert pixels(page, 1) != before


@pytest.mark.slow
def test_a_hundred_thousand_points(tmp_path: Path, opened: Open) -> None:
    case = Case(tmp_path, clvm.ContrastiveLVM(2, 10), n=100_000)
    page = opened(case)
    page.click("#legend button:has-text('A')")
    assert len(selected(page)) == 25_000
    work = """() => {
      const t = performance.now(), event = { clientX: 9, clientY: 9 };
      for (let i = 0; i < 200; i++) clvm.views[0].pointAt(100 + i, 100 + i, event);
      return (performance.now() - t) / 200;
    }"""
    took = {
        "hover": page.evaluate(work),
        "draw": page.evaluate("clvm.views.map((v) => v.milliseconds)"),
    }
    print(took)  # noqa: T201  for whoever wants to know; machines differ


HOSTILE = [
    "<script>document.title = 'taken'</script>",
    "</script><svg onload=document.title='taken'>",
    "\u202egnp.exe\u2066",
    "\ud800lone",
    "a\0b\x1b[2Jc\r\nd",
    "javascript:document.title='taken'",
    "${document.title='taken'}",
    "__proto__",
    "' onfocus='document.title=1' autofocus='",
    '=HYPERLINK("http://example.org","x")',
    "@SUM(1+1)*cmd|' /C calc'!A0",
    "+1+cmd",
    "-2+3+cmd",
    "\t=1+1",
    "-5",
    "+1.5e3",
]


def objects(names: list[str]) -> pd.Index:
    """Hold names that are no text to pandas 3.1, which keeps texts in UTF-8."""
    return pd.Index(names, dtype=object)


class HostileCase(Case):
    """A page whose features, rows, annotations, groups and title are all hostile."""

    def __init__(self, folder: Path) -> None:
        self.data = clvm.datasets.make_subgroups(64, 32, random_state=0)
        names = objects([HOSTILE[i % 16] + " " * (i // 16) for i in range(30)])
        self.target = pd.DataFrame(self.data.target, objects(HOSTILE * 4), names)
        self.background = pd.DataFrame(self.data.background, objects(HOSTILE * 2), names)
        self.model = clvm.ContrastiveLVM(2, 3).fit(self.target, background=self.background)
        self.path = self.model.report(
            folder / "report.html",
            self.target,
            background=self.background,
            labels=dict.fromkeys(HOSTILE, HOSTILE * 4),
            background_labels=dict.fromkeys(HOSTILE, HOSTILE[::-1] * 2),
            title="".join(HOSTILE),
        )


@pytest.mark.filterwarnings("ignore:n_shared=", "ignore:The noise of")
def test_hostile_names_are_text_on_the_page_and_in_its_tables(tmp_path: Path, opened: Open) -> None:
    case = HostileCase(tmp_path)
    page = opened(case)
    title = page.title()
    assert "taken" in title  # as text
    for name in page.locator("#colour option").all_inner_texts()[1:8]:
        page.select_option("#colour", label=name)
        page.click("#legend button >> nth=0")
        settle(page)
    page.mouse.move(*place(page, 5))
    assert page.title() == title
    assert page.locator("h1 *, #tip script, main script, main img, main svg[onload]").count() == 0
    assert not set("\u202e\u2066\0\x1b") & set(page.content())
    for button in ("target-latents", "shared-latents", "loadings", "selected-rows", "differences"):
        found = pd.read_csv(io.BytesIO(saved(page, f"#save-{button}")), dtype=str)
        cells = [*found.columns, *found.to_numpy(dtype=object).ravel()]
        begins = [cell for cell in cells if isinstance(cell, str) and cell[:1] in tuple("=@+-\t\r")]
        assert begins
        assert all(np.isfinite(float(cell.rstrip())) for cell in begins)  # numbers, "-5" among them
