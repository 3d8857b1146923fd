"""Bad files and bad places, for every command that reads or writes: one sentence, nothing left."""

import errno
import gzip
import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from safetensors import SafetensorError

import contrastive_lvm as clvm
from contrastive_lvm.cli.main import run

Capture = pytest.CaptureFixture[str]
Patch = pytest.MonkeyPatch
DATA = clvm.datasets.make_contrastive(40, 30, n_features=4, n_shared=1, random_state=0)
NAMES = list("abcd")
SMALL = ["--n-target", "1", "--n-shared", "1"]


def frame() -> pd.DataFrame:
    rows = pd.DataFrame(np.concatenate([DATA.target, DATA.background]).round(4), columns=NAMES)
    return rows.assign(group=["case"] * 40 + ["control"] * 30)


TEXT = frame().to_csv(index=False)
LINES = TEXT.splitlines()

BAD_FILES: dict[str, tuple[bytes, str]] = {
    "ragged.csv": ("\n".join([*LINES, "1,2"]).encode(), "has 2 values in row 71"),
    "long.csv": ("\n".join([*LINES, "1,2,3,4,case,6"]).encode(), "Expected 5 fields in line 72"),
    "mixed.csv": ("\n".join([*LINES, "1,2,x,4,case"]).encode(), "has 'x' in row 71 of column 'c'"),
    "twice.csv": (TEXT.replace("a,b", "a,a", 1).encode(), "has more than one column 'a'"),
    "latin.csv": (TEXT.replace("case", "cas\xe9\x90").encode("latin-1"), "is not UTF-8 text"),
    "sixteen.csv": (TEXT.encode("utf-16")[:-1], "is not UTF-"),
    "empty.csv": (b"", "is empty"),
    "blank.csv": (b"\n \n\n", "is empty|has no"),
    "header.csv": (LINES[0].encode(), "has no rows below its column names"),
    "cut.csv.gz": (gzip.compress(TEXT.encode())[:-30], "is not a complete gzip file"),
    "plain.csv.gz": (TEXT.encode(), "is not a complete gzip file"),
    "binary.csv": (bytes(range(256)) * 20, "is not UTF-8 text|is not a text file"),
    "nul.csv": (TEXT.replace("a,b", "a\0,b", 1).encode(), "is not a text file|cannot be read"),
    "words.csv": (b"group,a\ncase,x\ncontrol,y\n", "has no numeric column|lacks 4 of the 4"),
    "pickled.npy": (b"", "contains Python objects"),  # written below
    "header.npy": (b"\x93NUMPY\x01\x00\x10\x00{'descr': (((((\n", "is not a complete NumPy file"),
    "flat.npy": (b"", "needs two dimensions"),
    "cut.npz": (b"PK\x03\x04nothing", "is not a complete npz file"),
    "cut.h5ad": (b"\x89HDF\r\n\x1a\n123", "is not a complete h5ad file"),
    "text.parquet": (b"a,b\n1,2\n", "is not a complete Parquet file"),
    "odd.xlsx": (b"PK", "is not a workbook that can be read"),
    "odd.doc": (b"PK", "has an unknown ending"),
}
COMMANDS = ("fit", "select", "transform", "impute", "denoise", "report")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rows = frame()
    path = tmp_path_factory.mktemp("model") / "m.clvm"
    parts = [rows.loc[rows["group"] == name, NAMES] for name in ("case", "control")]
    clvm.ContrastiveLVM(1, 1).fit(parts[0], background=parts[1]).save(path)
    return path


def output_of(command: str, place: Path) -> Path:
    """A name that the command takes: its result is a model, or a table."""
    return place.with_suffix(".clvm") if command in ("fit", "select") else place


def arguments(command: str, path: Path, model: Path, output: Path) -> list[str]:
    by = ["--by", "group", "--target", "case"]
    if command in ("fit", "select"):
        return [command, str(path), *by, *SMALL, "-o", str(output)]
    if command == "report":
        return [command, str(model), str(path), *by, "-o", str(output)]
    return [command, str(model), str(path), "-o", str(output)]


def refused(command: list[str], capsys: Capture) -> str:
    assert run(command) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    error = captured.err[captured.err.index("clvm: ") :]  # what was read is said before
    assert error.count("\n") == 1
    assert error[-2] in ".?"
    return error


def written(name: str, folder: Path) -> Path:
    path = folder / name
    path.write_bytes(BAD_FILES[name][0])
    if name == "pickled.npy":
        np.save(path, np.array([{}], dtype=object), allow_pickle=True)
    if name == "flat.npy":
        np.save(path, np.ones(3))
    return path


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("name", BAD_FILES)
def test_malformed_files(
    name: str, command: str, model: Path, tmp_path: Path, capsys: Capture
) -> None:
    if name.endswith("h5ad"):
        pytest.importorskip("anndata", reason="anndata is not installed")
    path = written(name, tmp_path)
    error = refused(
        arguments(command, path, model, output_of(command, tmp_path / "out.csv")), capsys
    )
    assert name in error
    assert re.search(BAD_FILES[name][1], error), error
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("command", COMMANDS)
def test_places_that_cannot_be_read(
    command: str, model: Path, tmp_path: Path, capsys: Capture, monkeypatch: Patch
) -> None:
    output = output_of(command, tmp_path / "out.csv")
    (tmp_path / "folder.csv").mkdir()
    error = refused(arguments(command, tmp_path / "folder.csv", model, output), capsys)
    assert "folder.csv" in error
    error = refused(arguments(command, tmp_path / "none.csv", model, output), capsys)
    assert "none.csv does not exist; check its name" in error
    path = tmp_path / "locked.csv"
    path.write_text(TEXT)

    def locked(*_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    # root may read anything
    monkeypatch.setattr("contrastive_lvm.io.tables.read_csv.encoding_of", locked)
    error = refused(arguments(command, path, model, output), capsys)
    assert "locked.csv cannot be opened (permission denied)" in error
    assert not output.exists()


@pytest.mark.parametrize("command", COMMANDS)
def test_places_that_cannot_be_written(
    command: str, model: Path, tmp_path: Path, capsys: Capture
) -> None:
    path = tmp_path / "rows.csv"
    path.write_text(TEXT)
    absent = arguments(
        command, path, model, output_of(command, tmp_path / "no" / "such" / "out.csv")
    )
    assert "cannot be written (No such file or directory)" in refused(absent, capsys)
    folder = arguments(command, path, model, tmp_path)
    assert "is a folder; name a file in it" in refused(folder, capsys)
    assert list(tmp_path.iterdir()) == [path]


def full(*_: object, **__: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def full_for_safetensors(arrays: Any, path: str, **_: object) -> None:
    Path(path).write_text("half")
    raise SafetensorError("Error while serializing: I/O error: No space left on device")


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("ending", ["csv", "tsv.gz", "npy", "parquet"])
def test_a_full_disk_leaves_what_was_there(
    command: str, ending: str, model: Path, tmp_path: Path, capsys: Capture, monkeypatch: Patch
) -> None:
    path, output = tmp_path / "rows.csv", output_of(command, tmp_path / f"out.{ending}")
    path.write_text(TEXT)
    output.write_text("precious")
    monkeypatch.setattr("contrastive_lvm.io.container.save_file", full_for_safetensors)
    monkeypatch.setattr(pd.DataFrame, "to_csv", full)
    monkeypatch.setattr(pd.DataFrame, "to_parquet", full)
    monkeypatch.setattr(np, "save", full)
    monkeypatch.setattr(Path, "write_bytes", full)  # of the report
    error = refused(arguments(command, path, model, output), capsys)
    assert "No space left on device" in error
    assert output.read_text() == "precious"
    assert sorted(tmp_path.iterdir()) == sorted([path, output])


@pytest.mark.parametrize("command", [["demo"], ["reproduce", "generative", "--quick"]])
def test_a_full_disk_under_pictures(
    command: list[str], tmp_path: Path, capsys: Capture, monkeypatch: Patch
) -> None:
    monkeypatch.setattr("matplotlib.figure.Figure.savefig", full)
    assert run([*command, "--output", str(tmp_path)]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "(No space left on device)" in captured.err.splitlines()[-1]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("error", [TypeError, ValueError, OSError, ImportError, MemoryError])
@pytest.mark.parametrize("command", ["demo", "reproduce", "datasets"])
def test_no_command_shows_a_traceback(
    command: str, error: type[Exception], tmp_path: Path, capsys: Capture, monkeypatch: Patch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise error("something\nis wrong")

    for place in ("subgroups_demo.run_demo", "reproduce"):
        monkeypatch.setattr(f"contrastive_lvm.experiments.{place}", broken)
    monkeypatch.setattr("contrastive_lvm.datasets.download.present", broken)
    options = {"demo": ["--output", str(tmp_path)], "reproduce": ["mice"], "datasets": []}
    if command == "reproduce":
        options[command] += ["--output", str(tmp_path)]
    code = run([command, *options[command]])
    said = capsys.readouterr().err.splitlines()
    if (command, error) == ("datasets", ValueError):  # a damaged file is what it lists
        assert code == 0
        return
    assert code == 2
    assert said[-1].startswith("clvm: ")
    assert said[-1].endswith(".")


def test_sentences_name_options(model: Path, tmp_path: Path, capsys: Capture) -> None:
    path, output = tmp_path / "rows.csv", tmp_path / "m.clvm"
    path.write_text(TEXT)
    fit = ["fit", str(path), "--by", "group", "--target", "case", "-o", str(output)]
    cases = {
        "--n-shared 9": "--n-shared=9 is too large for 4 feature",
        "--n-target 3 --n-shared 2": "--n-target=3 is too large: the model has 5 dimensions in all",
        "--n-target 0 --n-shared 0": "--n-target=0 leaves no latent dimension",
        "--n-target -1": "--n-target=-1 must be",
        "--n-init 0 --n-shared 1": "--n-init=0 must be",
        "--n-shared 1 --target-prior ard --inference em": "EM cannot fit ARD",
        "--target-prior horseshoe:p0=x": "--target-prior horseshoe:p0=x must be a probability",
        "--likelihood poisson --n-shared 1": "the target contains the value",
        "--n-shared 1 --n-target 1 --shared-prior ard:a0=1e300": "bound is not a num|lower_bounds",
        "--model vae --n-shared 0": "--n-shared=0 must be an integer of at least 1",
    }
    for options, words in cases.items():
        error = refused([*fit, *options.split()], capsys)
        assert re.search(words, error), error
    path.write_text(TEXT.replace("\n", "\ninf,1,2,3,case\n", 1))
    error = refused(["transform", str(model), str(path)], capsys)
    assert f"{path} contains infinity" in error
