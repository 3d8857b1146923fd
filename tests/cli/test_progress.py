"""Progress: bars after two seconds, on terminals and in notebooks, and lines in logs."""

import io
import logging
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from rich.progress import Progress

from contrastive_lvm import progress_bars as bars
from contrastive_lvm.cli.cli_progress import reading, working
from contrastive_lvm.progress import progress

LOGGER = logging.getLogger("contrastive_lvm.test")
Patch = pytest.MonkeyPatch


class Terminal:
    """A terminal with a clock that only tests move; timers go off when it passes their time."""

    def __init__(self, patch: Patch) -> None:
        self.now, self.text = 100.0, io.StringIO()
        self.timers: list[tuple[float, Callable[[], None]]] = []
        patch.setattr(bars, "Timer", self.timer)
        patch.setattr(bars, "monotonic", lambda: self.now)
        patch.setattr(bars, "_rich", self.rich)
        for module in ("cli.bars", "inference.progress"):
            patch.setattr(f"contrastive_lvm.{module}.on_terminal", lambda: True)

    def timer(self, delay: float, ring: Callable[[], None]) -> Any:
        def cancel() -> None:
            self.timers = [timer for timer in self.timers if timer[1] != ring]

        def start() -> None:
            self.timers.append((self.now + delay, ring))

        return types.SimpleNamespace(start=start, cancel=cancel, daemon=False)

    def pass_seconds(self, seconds: float) -> None:
        self.now += seconds
        for due in [t for t in self.timers if t[0] <= self.now]:
            self.timers.remove(due)
            due[1]()

    def rich(self, columns: tuple[Any, ...]) -> Progress:
        console = Console(file=self.text, force_terminal=True, width=80, color_system=None)
        return Progress(
            *columns, console=console, auto_refresh=False, get_time=lambda: self.now, transient=True
        )


@pytest.fixture
def terminal(monkeypatch: Patch) -> Terminal:
    return Terminal(monkeypatch)


def test_work_of_less_than_two_seconds_shows_nothing(terminal: Terminal, tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("a\n1\n")
    with working("Fitting"):
        terminal.pass_seconds(1.9)
    with reading() as told:
        told(path)(3)
        terminal.pass_seconds(1.9)
    assert terminal.text.getvalue() == ""
    assert terminal.timers == []


def test_work_of_more_shows_a_bar_with_all_its_seconds(terminal: Terminal) -> None:
    with working("Fitting"):
        terminal.pass_seconds(2.0)
    assert "Fitting" in terminal.text.getvalue()
    assert "0:00:02" in terminal.text.getvalue()


def test_files_that_take_long_show_how_much_is_behind(terminal: Terminal, tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("a\n1\n")
    with reading() as told:
        behind = told(path)
        terminal.pass_seconds(2.5)
        behind(2)
        told(tmp_path)  # a folder, after the bar has appeared
    assert "Reading rows.csv" in terminal.text.getvalue()


def test_errors_take_the_bar_away(terminal: Terminal) -> None:
    def work() -> None:
        with working("Fitting"):
            terminal.pass_seconds(3.0)
            raise RuntimeError

    with pytest.raises(RuntimeError):
        work()
    shown = terminal.text.getvalue()
    assert "Fitting" in shown
    assert shown.endswith("\x1b[2K")  # the line is wiped
    assert terminal.timers == []


def test_a_timer_that_comes_too_late_shows_nothing(terminal: Terminal) -> None:
    with working("Fitting"):
        _, ring = terminal.timers[0]
    ring()
    assert terminal.text.getvalue() == ""


def test_fits_with_steps_show_messages(terminal: Terminal, monkeypatch: Patch) -> None:
    monkeypatch.setattr(LOGGER, "level", logging.INFO)
    with progress("SVI", 10, LOGGER) as advance:
        advance(3, "bound -5.0")
        terminal.pass_seconds(2.0)
    shown = terminal.text.getvalue()
    assert "SVI" in shown
    assert "30%" in shown
    assert "bound -5.0" in shown


def test_without_a_terminal_there_is_no_bar(monkeypatch: Patch, tmp_path: Path) -> None:
    def refuse(*arguments: object) -> None:
        raise AssertionError

    monkeypatch.setattr(bars, "Timer", refuse)
    with working("Fitting"), reading() as told:
        told(tmp_path)(1)


def test_logs_have_ten_lines(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger=LOGGER.name)
    with progress("SVI", 1000, LOGGER) as advance:
        for _ in range(1000):
            advance(1, "fine")
    assert len(caplog.messages) == 10
    assert caplog.messages[-1] == "SVI: step 1000, fine"


class Cell:
    """What a notebook shows."""

    def __init__(self) -> None:
        self.looks: list[dict[str, str]] = []

    def update(self, look: dict[str, str], *, raw: bool) -> None:
        assert raw
        self.looks.append(look)


@pytest.fixture
def cell(monkeypatch: Patch) -> Cell:
    shell = types.SimpleNamespace(kernel=object())
    monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace(get_ipython=lambda: shell))
    monkeypatch.setattr(LOGGER, "level", logging.INFO)
    found = Cell()

    def displayed(look: dict[str, str]) -> Cell:
        found.looks.append(look)
        return found

    monkeypatch.setattr(bars, "_displayed", displayed)
    return found


def test_notebooks_show_a_line_after_two_seconds(cell: Cell, monkeypatch: Patch) -> None:
    clock = types.SimpleNamespace(now=0.0)
    monkeypatch.setattr(bars, "monotonic", lambda: clock.now)
    with progress("ContrastiveVAE", 4, LOGGER) as advance:
        clock.now = 1.9
        advance(1, "early")
        assert cell.looks == []
        clock.now = 2.1
        advance(1, "bound <b>")
        assert cell.looks[-1]["text/plain"] == "ContrastiveVAE 50%, 0:02, bound <b>"
        assert "&lt;b&gt;" in cell.looks[-1]["text/html"]
        clock.now = 2.2
        advance(1, "too soon to be looked at")
        assert len(cell.looks) == 1
        clock.now = 63.0
    assert cell.looks[-1]["text/plain"] == "ContrastiveVAE 100%, 1:03, too soon to be looked at"


def test_an_interrupted_fit_keeps_its_share(cell: Cell, monkeypatch: Patch) -> None:
    times = iter([0.0, 3.0, 4.0])
    monkeypatch.setattr(bars, "monotonic", lambda: next(times))

    def interrupted() -> None:
        with progress("SVI", 4, LOGGER) as advance:
            advance(1, "going")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert cell.looks[-1]["text/plain"] == "SVI 25%, 0:04, going"


def test_notebooks_show_nothing_for_short_fits(cell: Cell, monkeypatch: Patch) -> None:
    monkeypatch.setattr(bars, "monotonic", lambda: 5.0)
    with progress("SVI", 4, LOGGER) as advance:
        advance(4, "done")
    assert cell.looks == []


def test_an_interactive_terminal_is_no_notebook(monkeypatch: Patch) -> None:
    shell = types.SimpleNamespace(kernel=None)
    monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace(get_ipython=lambda: shell))
    assert not bars.in_notebook()
