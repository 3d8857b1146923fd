"""Progress: a bar on terminals, a line in notebooks, lines in logs; silence unless verbose."""

import io
import logging
import signal
import subprocess
import sys
import types

import pytest

from contrastive_lvm.progress import noting_interrupts, progress, verbosity

LOGGER = logging.getLogger("contrastive_lvm.test")


class Terminal(io.StringIO):
    """A stderr that somebody looks at."""

    def isatty(self) -> bool:
        return True


def run_steps(steps: int = 1000) -> None:
    with progress("SVI", steps, LOGGER) as advance:
        for _ in range(steps):
            advance(1, "bound -5.0")


def test_nothing_is_shown_unless_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    run_steps()
    with verbosity(enabled=False):
        run_steps()
    assert capsys.readouterr() == ("", "")


def test_logs_have_ten_lines_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    with verbosity(enabled=True):
        run_steps()
    run_steps()  # the logger is as it was
    captured = capsys.readouterr()
    assert captured.out == ""
    lines = captured.err.splitlines()
    assert len(lines) == 10
    assert lines[-1] == "SVI: step 1000, bound -5.0"


def test_terminals_show_a_bar_that_is_taken_away(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    with verbosity(enabled=True):
        run_steps()
    shown = terminal.getvalue()
    assert "SVI" in shown
    assert "100%" in shown
    assert "bound -5.0" in shown
    assert shown.endswith("\x1b[2K")  # the line is wiped


@pytest.mark.parametrize("kernel", [object(), None])
def test_notebooks_show_one_line(
    kernel: object, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shell = types.SimpleNamespace(kernel=kernel)
    monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace(get_ipython=lambda: shell))
    with verbosity(enabled=True):
        run_steps()
    shown = capsys.readouterr().err
    assert shown.count("\r") == (10 if kernel else 0)
    assert shown.count("\n") == (1 if kernel else 10)  # an interactive shell is no notebook


def test_errors_pass_through(caplog: pytest.LogCaptureFixture) -> None:
    def interrupted() -> None:
        with progress("SVI", 4, LOGGER) as advance:
            advance(1, "going")
            raise KeyboardInterrupt

    caplog.set_level(logging.INFO, logger=LOGGER.name)
    with pytest.raises(KeyboardInterrupt):
        interrupted()


def test_rich_is_imported_for_bars_only() -> None:
    program = "import sys, contrastive_lvm.progress; assert 'rich' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True)


class Interrupting:
    """Ctrl-C while Python collects garbage, where it ignores all exceptions."""

    def __del__(self) -> None:
        signal.raise_signal(signal.SIGINT)


def test_an_interrupt_that_python_ignores_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    ignored: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", ignored.append)
    usual = signal.signal(signal.SIGINT, signal.default_int_handler)  # jobs of shells ignore it
    before = signal.getsignal(signal.SIGINT)
    with noting_interrupts():
        Interrupting()
        with (
            pytest.raises(KeyboardInterrupt),
            progress("SVI", 10, LOGGER) as advance,
        ):
            advance(1, "")
    assert len(ignored) == 1
    assert signal.getsignal(signal.SIGINT) is before
    with progress("SVI", 10, LOGGER) as advance:
        advance(1, "")  # once is enough
    signal.signal(signal.SIGINT, usual)


def test_a_handler_of_interrupts_that_others_have_set_is_kept() -> None:
    def own(number: int, frame: object) -> None:
        raise AssertionError

    before = signal.signal(signal.SIGINT, own)
    try:
        with noting_interrupts():
            assert signal.getsignal(signal.SIGINT) is own
    finally:
        signal.signal(signal.SIGINT, before)
