"""Write docs/images/report.png: the report of the demo in Chromium, a subgroup selected.

Needs Chromium and Playwright (group dev); `python docs/make_report.py`.
"""

import shutil
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

from contrastive_lvm.experiments import report_demo, run_demo

PICTURE = Path(__file__).parent / "images" / "report.png"


def main() -> None:
    """Make the report, select a subgroup, and take the picture."""
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as driver:
        path = report_demo(run_demo(), Path(folder) / "report.html")
        browser = driver.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"]
        )
        page = browser.new_page(viewport={"width": 1240, "height": 1150})
        page.goto(path.as_uri())
        page.wait_for_function("window.clvm?.ready")
        page.click("#legend button >> nth=1")
        page.mouse.move(0, 0)
        page.wait_for_timeout(500)
        page.screenshot(path=PICTURE)
        browser.close()


if __name__ == "__main__":
    main()
