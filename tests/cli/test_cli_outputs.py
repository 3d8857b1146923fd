"""What commands write: no formulas, nothing that steers a terminal, nothing half after a signal."""

import ctypes
import io
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType

import numpy as np
import pandas as pd
import pytest

import contrastive_lvm as clvm
from contrastive_lvm.cli import entry_point, main
from contrastive_lvm.cli.main import run
from contrastive_lvm.cli.output import printable
from contrastive_lvm.io.tables.read_csv import read_csv
from contrastive_lvm.io.tables.write import write_csv

Capture = pytest.CaptureFixture[str]
DATA = clvm.datasets.make_contrastive(40, 30, n_features=5, n_shared=1, random_state=0)
NAMES = ["=cmd|' /C calc'!A0", "-log p", "a\x1b[2Jb", "@x", "plain"]
WORDS = ["=1+1", "+1", "-x", "@sum", "\tx", "\rx", "-5", "plain", "\x1b]0;title\x07", "-1e3"]


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Cases and controls whose names and notes mean harm, and a model of them."""
    monkeypatch.chdir(tmp_path)
    for name, rows in (("cases.csv", DATA.target), ("controls.csv", DATA.background)):
        frame = pd.DataFrame(rows, columns=NAMES)
        frame.insert(
            0, "note", np.resize([word for word in WORDS if word not in "-1e3"], len(rows))
        )
        frame.to_csv(name, index=False)
    return tmp_path


def fit(*arguments: str) -> int:
    options = ["--n-shared", "1", "--annotation", "note", "-o", "m.clvm"]
    return run(["fit", "cases.csv", "controls.csv", *options, *arguments])


@pytest.mark.parametrize("ending", ["csv", "tsv", "csv.gz"])
def test_no_cell_is_a_formula(ending: str, files: Path, capsys: Capture) -> None:
    assert fit() == 0
    assert run(["impute", "m.clvm", "cases.csv", "-o", f"out.{ending}"]) == 0
    separator = "\t" if ending == "tsv" else ","
    cells = pd.read_csv(f"out.{ending}", sep=separator, header=None, dtype=str).to_numpy().ravel()
    for cell in map(str, cells):
        number = pd.notna(pd.to_numeric(cell, errors="coerce"))
        assert number or not cell.startswith(("=", "+", "-", "@", "\t", "\r")), cell
    capsys.readouterr()
    assert run(["transform", "m.clvm", "cases.csv"]) == 0
    assert "'=1+1," in capsys.readouterr().out


def test_names_of_columns_come_back(files: Path) -> None:
    assert fit() == 0
    assert run(["impute", "m.clvm", "cases.csv", "-o", "out.csv"]) == 0
    assert read_csv(Path("out.csv"), annotations=["note"]).features == NAMES
    assert run(["transform", "m.clvm", "out.csv", "-o", "latents.npy"]) == 0


def test_kinds_of_words() -> None:
    frame = pd.DataFrame({"a": ["=x", None], "b": pd.Categorical(["+y", "z"]), "c": [-1.0, 2.0]})
    text = io.StringIO()
    write_csv(text, frame.set_axis(["@r", "-7"]))
    assert text.getvalue() == ",a,b,c\n'@r,'=x,'+y,-1.0\n-7,,z,2.0\n"


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_nothing_steers_the_terminal(options: list[str], files: Path, capsys: Capture) -> None:
    for command in (["fit"], ["transform"], ["impute"], ["select"]):
        if command == ["fit"]:
            assert fit(*options) == 0
        elif command == ["select"]:
            both = ["cases.csv", "controls.csv", "--annotation", "note", "--strengths", "3"]
            assert run(["select", *both, "--n-shared", "1", *options]) == 0
        else:
            assert run([*command, "m.clvm", "cases.csv", *options]) == 0
    assert run(["fit", "no\x1b[2J.csv", "controls.csv"]) == 2
    said = capsys.readouterr()
    for text in said:
        assert not [c for c in text if ord(c) < 32 and c not in "\t\n"]
    assert r"no\x1b[2J.csv" in said.err


def test_what_is_printable() -> None:
    assert printable("a\x00\x9b\x7f\r\u202e\udcff") == r"a\x00\x9b\x7f\r\u202e\udcff"
    assert printable("é\tb\n") == "é\tb\n"


def test_names_of_files_that_are_no_text(files: Path, capsys: Capture) -> None:
    """A name of bytes that are not UTF-8, from the command to the page."""
    name = os.fsdecode(b"case\xff.csv")
    try:
        Path("cases.csv").rename(name)
    except OSError:
        pytest.skip("this file system has no such names")
    options = ["--n-shared", "1", "--annotation", "note", "-o", os.fsdecode(b"m\xff.clvm")]
    report = ["--report", os.fsdecode(b"r\xff.html")]
    assert run(["fit", name, "controls.csv", *options, *report]) == 0
    assert r"case\udcff.csv" in capsys.readouterr().out
    assert run(["report", options[-1], "--yes", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["report"] == "report.html"
    assert run(["transform", os.fsdecode(b"no\xff.clvm"), name]) == 2
    assert r"no\udcff.clvm does not exist" in capsys.readouterr().err


SLOW = """
import os, signal, sys, time
from pathlib import Path
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # under nohup it is ignored, and stays so
import contrastive_lvm.io.container as container
from contrastive_lvm.cli.main import run

def save_file(arrays, path, metadata):
    Path(path).write_bytes(b"half")
    Path("begun").touch()
    time.sleep(60)

container.save_file = save_file
sys.exit(run(sys.argv[1:]))
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_signals_leave_nothing_behind(number: signal.Signals, files: Path) -> None:
    Path("m.clvm").write_text("precious")
    before = sorted(files.iterdir())
    options = ["--n-shared", "1", "--annotation", "note", "-o", "m.clvm"]
    command = [sys.executable, "-c", SLOW, "fit", "cases.csv", "controls.csv", *options]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        while not Path("begun").exists():
            assert process.poll() is None
            time.sleep(0.05)
        process.send_signal(number)
        _, said = process.communicate()
    assert process.returncode == 128 + number
    assert said.endswith(f"\nclvm: ended by {number.name}; unfinished files have been removed.\n")
    Path("begun").unlink()
    assert sorted(files.iterdir()) == before
    assert Path("m.clvm").read_text() == "precious"


class Interrupted(ModuleType):
    """A module during whose import someone presses Ctrl-C."""

    def __getattr__(self, name: str) -> object:
        raise KeyboardInterrupt


def test_ctrl_c_is_heard_while_commands_are_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "contrastive_lvm.cli.main", Interrupted("main"))
    assert entry_point.run() == 130


def test_signals_are_as_before_after_a_command(capsys: Capture) -> None:
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)]
    assert run(["datasets"]) == 0
    assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)] == before


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_in_callbacks_are_not_lost(
    number: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python ignores exceptions there; libraries of BLAS, for one, are listed in a callback."""
    callback = ctypes.CFUNCTYPE(None)(lambda: signal.raise_signal(number))

    def command(*_: object, **__: object) -> None:
        callback()
        time.sleep(20)

    monkeypatch.setattr(main, "app", command)
    if number == signal.SIGTERM:
        assert run([]) == 128 + number
        return
    usual = signal.signal(signal.SIGINT, signal.default_int_handler)  # jobs of shells ignore it
    try:
        with pytest.raises(KeyboardInterrupt):
            run([])
    finally:
        signal.signal(signal.SIGINT, usual)


def test_standard_output_that_is_full(files: Path) -> None:
    options = ["--n-shared", "1", "--annotation", "note", "-o", "m.clvm"]
    code = "import sys; from contrastive_lvm.cli.main import run; sys.exit(run(sys.argv[1:]))"
    command = [sys.executable, "-c", code, "fit", "cases.csv", "controls.csv", *options]
    if not Path("/dev/full").exists():
        pytest.skip("there is no such device")
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 2
    sentence = "\nclvm: the output cannot be read or written (No space left on device)"
    assert sentence in done.stderr
