"""The page of `clvm app` in a real browser: Debian's Chromium driven by Playwright."""

import base64
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import contrastive_lvm as clvm

playwright = pytest.importorskip("playwright.sync_api", reason="needs Playwright (group dev)")
pytest.importorskip("uvicorn", reason="needs the extra app")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium; apt install chromium")

FLAGS = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]
DATA = os.environ.get("CONTRASTIVE_LVM_DATA")
MOST_CLICKS = 6
CODE = "from contrastive_lvm.cli.main import run; raise SystemExit(run())"
EVIL = '<img src="x" onerror="document.title=1">'
LONG = 300_000  # milliseconds, for a machine that does other things as well


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a running `clvm app`, which leaves nothing when it is ended."""
    place = tmp_path_factory.mktemp("private")
    command = [sys.executable, "-c", CODE, "app", "--no-browser"]
    with subprocess.Popen(
        command, stderr=subprocess.PIPE, text=True, env=os.environ | {"TMPDIR": str(place)}
    ) as process:
        assert process.stderr is not None
        yield process.stderr.readline().strip()
        [folder] = place.iterdir()
        assert folder.stat().st_mode & 0o077 == 0
        process.terminate()
        assert process.wait(30) == 143
    assert list(place.iterdir()) == []


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield chromium
        chromium.close()


class Page:
    """A page that counts clicks."""

    def __init__(self, page: Any) -> None:
        self.page, self.clicks = page, 0

    def drop(self, path: Path) -> None:
        """Drop a file as a mouse does."""
        text = base64.b64encode(path.read_bytes()).decode()
        transfer = self.page.evaluate_handle(
            """async ([text, name]) => {
              const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
              const transfer = new DataTransfer();
              transfer.items.add(new File([bytes], name));
              return transfer;
            }""",
            [text, path.name],
        )
        self.page.dispatch_event("#drop", "drop", {"dataTransfer": transfer})

    def click(self, selector: str) -> None:
        self.page.click(selector, timeout=LONG)
        self.clicks += 1

    def choose(self, selector: str, value: str) -> None:
        self.page.wait_for_selector(selector, timeout=LONG)
        self.page.select_option(selector, value)
        self.clicks += 2  # one opens the list

    def split(self, by: str, row: int) -> None:
        self.choose("#by", by)
        self.click(f"label:has(#side-{row}-target)")

    def verdict(self) -> str:
        self.page.wait_for_selector("#answer, #failure", timeout=LONG)
        return str(self.page.inner_text("#answer, #failure"))

    def text(self, selector: str) -> str:
        return str(self.page.inner_text(selector))


Open = Callable[..., Page]


@pytest.fixture
def opened(browser: Any, address: str) -> Iterator[Open]:
    """Open a page; at the end it must have said nothing and asked nobody else."""
    contexts, troubles = [], []
    asked: list[str] = []
    home = address.partition("?")[0]

    def open_page(*, width: int = 1200, **words: Any) -> Page:
        context = browser.new_context(viewport={"width": width, "height": 800}, **words)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: troubles.append(message.text))
        page.on("pageerror", lambda error: troubles.append(str(error)))
        page.on("dialog", lambda dialog: troubles.append(dialog.message))
        page.on(
            "request",
            lambda r: (
                None if r.url.startswith((home, "data:", "blob:")) else troubles.append(r.url)
            ),
        )
        page.goto(address)
        page.wait_for_url("**/s/*")
        page.wait_for_selector("#drop-text:not(:empty)")
        return Page(page)

    yield open_page
    for context in contexts:
        context.close()
    assert troubles == []
    assert all(url.startswith((home, "data:", "blob:")) for url in asked)


def small(place: Path, **columns: Any) -> Path:
    data = clvm.datasets.make_subgroups(60, 60, random_state=0)
    rows = np.vstack([data.target, data.background])[:, :8].round(3)
    frame = pd.DataFrame(rows, columns=[f"gene{i}" for i in range(8)])
    frame["group"] = ["case"] * 60 + ["control"] * 60
    path = place / "small.csv"
    frame.assign(**columns).to_csv(path, index=False)
    return path


def mice() -> pd.DataFrame:
    if DATA is None or not (Path(DATA) / "mice_protein").is_dir():
        pytest.skip("needs CONTRASTIVE_LVM_DATA")
    return pd.read_csv(Path(DATA) / "mice_protein" / "Data_Cortex_Nuclear.csv")


# --- from a file to a verdict -------------------------------------------------------------------


@pytest.mark.parametrize("ending", ["xlsx", "csv"])
def test_mice(opened: Open, tmp_path: Path, ending: str) -> None:
    """A spreadsheet, or text with decimal commas."""
    path, frame = tmp_path / f"mice.{ending}", mice()
    if ending == "xlsx":
        frame.to_excel(path, index=False)
    else:
        frame = frame[::3]
        frame.to_csv(path, index=False, sep=";", decimal=",", encoding="utf-8")
    page = opened()
    page.drop(path)
    page.split("Behavior", row=1)  # S/C
    missing = f"{100 * frame.iloc[:, 1:78].isna().to_numpy().mean():.1f}"
    assert f"{len(frame):,} rows, 77 features, {missing} % missing" in page.text("#files")
    assert ("decimal commas" in page.text("#files")) == (ending == "csv")
    assert "MouseID" in page.text("#replicates")
    page.click("#run")
    assert page.verdict().startswith("Target and background differ")
    assert page.clicks <= MOST_CLICKS


def test_cells(opened: Open, tmp_path: Path) -> None:
    anndata = pytest.importorskip("anndata")
    if DATA is None or not (Path(DATA) / "kang_pbmc").is_dir():
        pytest.skip("needs CONTRASTIVE_LVM_DATA")
    [path] = [p for p in (Path(DATA) / "kang_pbmc").glob("*.npz") if "all" not in p.name]
    with np.load(path) as held:
        rows = np.r_[0:300, 1700:2000]
        genes = np.argsort(-held["X"].mean(axis=0))[:40]
        counts, names = held["X"][rows][:, genes], held["genes"][genes]
        stim = np.where(held["stim"][rows], "interferon", "control")
    obs = pd.DataFrame({"stim": stim}, index=[f"cell{i}" for i in rows])
    assert len(set(stim)) == 2
    var = pd.DataFrame(index=names)
    anndata.AnnData(counts.astype(np.float32), obs, var).write_h5ad(tmp_path / "kang.h5ad")
    page = opened()
    page.drop(tmp_path / "kang.h5ad")
    page.split("stim", row=1)
    assert page.page.is_checked("#values-counts")
    page.click("#run")
    assert page.verdict().startswith("Target and background differ")
    assert "--likelihood=negative_binomial" in page.text("#command")
    assert page.clicks <= MOST_CLICKS


def test_a_broken_file_says_so_and_can_be_replaced(opened: Open, tmp_path: Path) -> None:
    broken = tmp_path / f"{EVIL[:4]}mice.xlsx"
    broken.write_bytes(b"PK\x03\x04 this is not a workbook")
    page = opened()
    page.drop(broken)
    page.page.wait_for_selector("#files .care", timeout=LONG)
    assert "is not a workbook that can be read" in page.text("#files")
    assert page.page.is_hidden("#run")
    page.click("#remove-0")
    page.page.wait_for_selector("#files:empty", state="attached")
    page.drop(small(tmp_path))
    page.split("group", row=0)
    page.page.wait_for_selector("#run:not([disabled])", timeout=LONG)


def test_a_fit_that_is_refused_says_why(opened: Open, tmp_path: Path) -> None:
    page = opened()
    page.drop(small(tmp_path))
    page.split("group", row=0)
    page.click("#sets summary")
    page.page.click("summary:has-text('More settings')")
    page.choose("#n-shared", "30")
    page.click("#run")
    assert page.verdict().endswith(".")
    assert page.page.is_visible("#failure")


# --- everything else that can be clicked --------------------------------------------------------


def test_the_whole_way(opened: Open, tmp_path: Path) -> None:
    """Refine, compare, download, save and open again; nothing in the data is run."""
    path = small(tmp_path, **{EVIL: [EVIL, "b"] * 60})
    page = opened(accept_downloads=True)
    page.drop(path)
    page.split("group", row=0)
    page.click("#run")
    page.verdict()
    frame = page.page.frame_locator("iframe")
    with page.page.expect_download() as waiting:  # tables are made in the report
        frame.locator("#save-loadings").click(timeout=LONG)
    assert waiting.value.path().read_text(encoding="utf-8").startswith("feature,")
    with page.page.expect_download() as waiting:
        frame.get_by_role("button", name="PNG").first.click()
    assert waiting.value.path().read_bytes().startswith(b"\x89PNG")
    page.click("text=One more dimension")
    page.page.wait_for_selector("#tab-fit2[aria-pressed=true]")
    page.page.wait_for_selector("#compare-run", timeout=LONG)
    page.click("#compare-run")
    page.page.wait_for_selector("#agreement", timeout=LONG)
    assert "apart" in page.text("#agreement")
    with page.page.expect_download() as waiting:
        page.click("#save")
    saved = tmp_path / "session.zip"
    waiting.value.save_as(saved)
    other = opened()
    other.drop(saved)
    assert other.verdict() == page.verdict()
    assert other.page.locator("#tabs button").count() == 2
    assert other.page.title().startswith("What the target has")  # nothing was run


def test_the_shown_command_gives_the_shown_verdict(opened: Open, tmp_path: Path) -> None:
    path = small(tmp_path)
    page = opened()
    page.drop(path)
    page.split("group", row=0)
    page.click("#run")
    said = page.verdict()
    arguments = shlex.split(page.text("#command"))[1:]
    run = subprocess.run(
        [sys.executable, "-c", CODE, *arguments],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert run.stdout.splitlines()[0] == said


def test_a_fit_can_be_cancelled(opened: Open, tmp_path: Path) -> None:
    page = opened()
    page.drop(small(tmp_path))
    page.split("group", row=0)
    page.click("#run")
    page.click("#cancel")
    assert page.verdict() == "This fit was cancelled."


def test_two_files(opened: Open, tmp_path: Path) -> None:
    whole = pd.read_csv(small(tmp_path))
    for name, group in (("ill.csv", "case"), ("well.csv", "control")):
        whole[whole.group == group].to_csv(tmp_path / name, index=False)
    page = opened()
    page.page.set_input_files("#choose", [tmp_path / "well.csv", tmp_path / "ill.csv"])
    page.click("#swap")
    page.page.wait_for_selector("text=Target: ill.csv")
    page.click("#run:not([disabled])")
    assert "differ" in page.verdict()
    assert page.text("#command").startswith("clvm fit ill.csv well.csv")


def test_columns_are_changed_by_clicking(opened: Open, tmp_path: Path) -> None:
    page = opened()
    page.drop(small(tmp_path, sample=range(1, 121)))
    page.page.wait_for_selector("#by", timeout=LONG)
    assert "left out: sample" in page.text("#files")
    page.click("summary:has-text('read wrongly')")
    page.page.get_by_label("Use of gene0").select_option("none")
    page.page.get_by_label("Use of sample").select_option("feature")
    page.page.wait_for_selector("#command:has-text('--drop=gene0')")
    page.page.wait_for_selector("#command:has-text('--features=all')")


# --- every way to use it ------------------------------------------------------------------------


def test_with_the_keyboard_alone(opened: Open, tmp_path: Path) -> None:
    page = opened()
    page.page.set_input_files("#choose", small(tmp_path))  # the dialog is the browser's
    page.page.wait_for_selector("#by", timeout=LONG)
    keyboard = page.page.keyboard

    def tab_to(identity: str) -> None:
        for _ in range(60):
            if page.page.evaluate("document.activeElement?.id") == identity:
                return
            keyboard.press("Tab")
        raise AssertionError(f"{identity} cannot be reached")

    tab_to("by")
    keyboard.press("g")
    page.page.wait_for_selector("#side-0-target")
    tab_to("side-0-target")
    keyboard.press("Space")
    page.page.wait_for_selector("#run:not([disabled])")
    tab_to("run")
    keyboard.press("Enter")
    assert "differ" in page.verdict()


def test_on_a_phone_in_either_scheme(opened: Open, tmp_path: Path) -> None:
    page = opened(width=375, color_scheme="light", has_touch=True)
    page.drop(small(tmp_path, **{"a name that is far too long for a phone " * 3: ["x", "y"] * 60}))
    page.split("group", row=0)
    page.click("#run")
    page.verdict()
    for scheme in ("light", "dark"):
        page.page.emulate_media(color_scheme=scheme)
        wide, narrow = page.page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
        assert wide <= narrow
        # The page forbids eval, which wait_for_function needs.
        for _ in range(100):
            colour = page.page.evaluate("getComputedStyle(document.body).backgroundColor")
            if (colour == "rgb(255, 255, 255)") == (scheme == "light"):
                break
            page.page.wait_for_timeout(50)
        else:
            pytest.fail(f"the page stays {colour} in the {scheme} scheme")
