"""The command line: exit codes, one sentence for bad input, and what is written where."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from contrastive_lvm import __version__
from contrastive_lvm.cli.main import run

METHODS = ["PCA", "cPCA", "cLVM"]
Capture = pytest.CaptureFixture[str]


def refused(arguments: list[str], capsys: Capture) -> str:
    """The one sentence on stderr of a command that must end with exit code 2."""
    assert run(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    error = captured.err[captured.err.index("clvm: ") :]  # what was read is said before
    assert error.count("\n") == 1
    assert error[-2] in ".?"
    return error


def png_size(path: Path) -> tuple[int, int]:
    header = path.read_bytes()[:24]
    assert header.startswith(b"\x89PNG\r\n\x1a\n")
    return int.from_bytes(header[16:20], "big"), int.from_bytes(header[20:24], "big")


def test_demo_prints_an_aligned_table_and_the_place_of_the_picture(
    tmp_path: Path, capsys: Capture
) -> None:
    assert run(["demo", "--output", str(tmp_path / "new" / "folder")]) == 0
    captured = capsys.readouterr()
    lines = captured.out.splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("method"))
    assert lines[start].split() == ["method", "silhouette", "ARI", "seconds"]
    table = lines[start : start + 4]
    assert [line.split()[0] for line in table[1:]] == METHODS
    assert len({len(line) for line in table}) == 1
    assert float(table[3].split()[1]) > 0.5
    picture = tmp_path / "new" / "folder" / "comparison.png"
    report = picture.with_name("report.html")
    assert lines[-2:] == [f"picture: {picture}", f"report: {report}"]
    width, height = png_size(picture)
    assert width > 1000
    assert height > 300
    assert width > 2 * height


def test_demo_json_is_the_only_thing_on_stdout(tmp_path: Path, capsys: Capture) -> None:
    assert run(["demo", "--output", str(tmp_path), "--seed", "3", "--json"]) == 0
    captured = capsys.readouterr()
    facts = json.loads(captured.out)
    assert facts["seed"] == 3
    assert facts["shapes"] == {"target": [400, 30], "background": [400, 30]}
    assert [method["method"] for method in facts["methods"]] == METHODS
    pca, _, clvm = facts["methods"]
    assert clvm["ari"] > 0.9
    assert clvm["silhouette"] > max(0.5, pca["silhouette"])
    assert all(method["seconds"] > 0 for method in facts["methods"])
    assert Path(facts["picture"]) == tmp_path / "comparison.png"
    assert Path(facts["report"]) == tmp_path / "report.html"
    assert (tmp_path / "report.html").read_text(encoding="utf-8").startswith("<!doctype html>")
    assert captured.err


def test_demo_replaces_its_picture_and_leaves_nothing_else(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "demo"  # the default
    folder.mkdir()
    (folder / "comparison.png").write_text("old")
    (folder / "notes.txt").write_text("mine")
    assert run(["demo"]) == 0
    names = ["comparison.png", "notes.txt", "report.html"]
    assert sorted(path.name for path in folder.iterdir()) == names
    assert png_size(folder / "comparison.png")
    assert (folder / "notes.txt").read_text() == "mine"
    assert "picture: demo/comparison.png" in capsys.readouterr().out.replace("\\", "/")


def test_picture_that_cannot_be_replaced_is_one_sentence(tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "comparison.png").mkdir()
    assert run(["demo", "--output", str(tmp_path)]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert re.search(r"^clvm: .*comparison\.png is a folder", captured.err, re.MULTILINE)
    assert [path.name for path in tmp_path.iterdir()] == ["comparison.png"]


def test_output_that_is_a_file_is_refused(tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "file").write_text("mine")
    error = refused(["demo", "--output", str(tmp_path / "file")], capsys)
    assert "is a file, not a folder" in error
    assert (tmp_path / "file").read_text() == "mine"


def test_output_below_a_file_is_refused(tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "file").write_text("mine")
    assert "cannot be written to" in refused(["demo", "--output", f"{tmp_path}/file/in"], capsys)


def test_output_without_permission_is_refused(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def deny(**_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("tempfile.TemporaryFile", deny)  # a superuser may write anywhere
    assert "(Permission denied)" in refused(["demo", "--output", str(tmp_path)], capsys)


@pytest.mark.parametrize("seed", ["-1", "1.5", "x", "", "4294967296"])
def test_bad_seed_is_refused_with_its_value(seed: str, tmp_path: Path, capsys: Capture) -> None:
    error = refused(["demo", "--output", str(tmp_path), f"--seed={seed}"], capsys)
    assert f"'--seed': {seed!r} is not an integer" in error
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        (["dmo"], "'dmo'"),
        (["unheard-of"], "'unheard-of'"),
        (["--bogus"], "--bogus"),
        (["demo", "--bogus"], "--bogus"),
        (["demo", "--seed"], "--seed"),
        (["demo", "stray"], "stray"),
    ],
)
def test_unknown_commands_and_options_are_one_sentence(
    arguments: list[str], name: str, capsys: Capture
) -> None:
    assert name in refused(arguments, capsys)


def test_version(capsys: Capture) -> None:
    assert run(["--version"]) == 0
    assert capsys.readouterr().out == f"clvm {__version__}\n"


@pytest.mark.parametrize("arguments", [[], ["--help"]])
def test_help_names_the_commands(arguments: list[str], capsys: Capture) -> None:
    assert run(arguments) == 0
    out = capsys.readouterr().out
    assert "Usage: clvm" in out
    assert "demo" in out


@pytest.mark.parametrize("arguments", [["--help"], ["demo", "--help"], ["--version"]])
def test_help_loads_nothing_heavy(arguments: list[str]) -> None:
    program = f"""
import sys
from contrastive_lvm.cli.main import run
assert run({arguments!r}) == 0
heavy = {{"sklearn", "scipy", "numpy", "pandas", "matplotlib", "jax"}} & set(sys.modules)
assert not heavy, heavy
"""
    subprocess.run([sys.executable, "-c", program], check=True, capture_output=True)


def test_console_script_ends_with_the_exit_code() -> None:
    program = "import sys; from contrastive_lvm.cli.main import run; sys.exit(run())"
    command = [sys.executable, "-c", program, "demo", "--seed", "-1"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("clvm: ")
    assert "Traceback" not in done.stderr


def test_datasets_lists_what_is_here_what_is_damaged_and_where_the_rest_comes_from(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CONTRASTIVE_LVM_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for name in ("grass/grass_images.npz", "mice_protein/Data_Cortex_Nuclear.csv"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_bytes(b"something")
    assert run(["datasets", "--json"]) == 0
    states = {file["file"]: file["state"] for file in json.loads(capsys.readouterr().out)}
    assert states["grass/grass_images.npz"] == "here"
    assert states["mice_protein/Data_Cortex_Nuclear.csv"] == "damaged"
    assert states["mhealth/mhealth+dataset.zip"] == "absent"
    assert run(["datasets"]) == 0
    out = capsys.readouterr().out
    assert re.search(r"absent +mhealth/mhealth\+dataset\.zip\n +from https://archive", out)
