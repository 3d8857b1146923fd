"""`clvm report` and `clvm fit --report`: from files to a page."""

import base64
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import typer

import contrastive_lvm as clvm
from contrastive_lvm.cli.main import run

Capture = pytest.CaptureFixture[str]
DATA = clvm.datasets.make_contrastive(90, 70, n_features=8, n_shared=2, random_state=0)
NAMES = list("abcdefgh")
UNITS = np.geomspace(1, 100, 8)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two files of cases and controls, and one of both, in an otherwise empty folder."""
    monkeypatch.chdir(tmp_path)
    cases = pd.DataFrame(DATA.target * UNITS + 5.0, columns=NAMES).round(4)
    cases.insert(0, "sex", ["f", "m", "m"] * 30)
    controls = pd.DataFrame(DATA.background * UNITS + 5.0, columns=NAMES).round(4)
    controls.insert(3, "sex", ["f"] * 70)
    cases.to_csv("cases.csv", index=False)
    controls.to_csv("controls.csv", index=False)
    both = pd.concat([cases.assign(group="case"), controls.assign(group="control")])
    both.to_csv("both.csv", index=False)
    return tmp_path


def ran(*arguments: object) -> None:
    assert run([str(argument) for argument in arguments]) == 0


def refused(capsys: Capture, *arguments: object) -> str:
    capsys.readouterr()
    assert run([str(argument) for argument in arguments]) == 2
    sentence = capsys.readouterr().err
    assert sentence.startswith("clvm: ")
    assert sentence.count("\n") == 1
    return sentence


def data_of(path: str) -> dict[str, Any]:
    text = Path(path).read_text(encoding="utf-8")
    block = text.split('id="data">', 1)[1].split("</script>", 1)[0]
    found: dict[str, Any] = json.loads(block)
    return found


def points(data: dict[str, Any], name: str) -> np.ndarray:
    packed = data["points"][name]
    raw = np.frombuffer(base64.b64decode(packed["bytes"]), dtype="<f4")
    return raw.reshape(packed["shape"])


def values(data: dict[str, Any]) -> np.ndarray:
    packed = data["values"]
    codes = np.frombuffer(base64.b64decode(packed["bytes"]), dtype="<u2").reshape(packed["shape"])
    found: np.ndarray = packed["low"] + codes * np.array(packed["step"])
    return found


def test_two_commands_and_no_reading(capsys: Capture) -> None:
    ran("fit", "cases.csv", "controls.csv", "--n-shared", 2)
    hint = capsys.readouterr().out.splitlines()[-1]
    assert hint == "report: run clvm report model.clvm to write one"
    ran("report", "model.clvm", "--yes")
    assert capsys.readouterr().out == "report: report.html\n"
    data = data_of("report.html")
    assert data["title"] == "cases.csv"
    assert data["columns"][0]["name"] == "sex"
    model = clvm.load_model("model.clvm")
    expected = model.transform(pd.read_csv("cases.csv")[NAMES])
    np.testing.assert_allclose(points(data, "target"), expected, rtol=1e-5, atol=1e-5)
    assert data["features"] == NAMES


def test_one_command_writes_the_same_page(capsys: Capture) -> None:
    ran("fit", "cases.csv", "controls.csv", "--n-shared", 2, "--report", "one.html", "--json")
    assert json.loads(capsys.readouterr().out)["report"] == "one.html"
    ran("report", "model.clvm", "-y", "--output", "two.html", "--json")
    facts = json.loads(capsys.readouterr().out)
    assert facts == {"report": "two.html", "bytes": Path("two.html").stat().st_size}
    assert Path("one.html").read_bytes() == Path("two.html").read_bytes()


@pytest.mark.parametrize("scale", ["standard", "robust", "none"])
def test_values_are_in_the_units_of_the_file_and_latents_in_those_of_the_fit(scale: str) -> None:
    by = ["--by", "group", "--target", "case"]
    ran("fit", "both.csv", *by, "--n-shared", 2, "--scale", scale, "--report", "one.html")
    ran("report", "model.clvm", "cases.csv", "controls.csv", "-o", "two.html")
    one, two = data_of("one.html"), data_of("two.html")
    np.testing.assert_allclose(points(one, "target"), points(two, "target"), atol=1e-5)
    frame = pd.read_csv("both.csv")[NAMES].to_numpy()
    tolerance = 0.51 * np.ptp(frame, axis=0) / 65534 + 1e-9
    assert (np.abs(values(one) - frame) <= tolerance).all()
    assert (np.abs(values(two) - frame) <= tolerance).all()


def test_conditions_of_the_fit_are_remembered_and_others_can_be_given() -> None:
    by = ["--by", "group", "--target", "case", "--background", "control", "--where", "sex=f"]
    ran("fit", "both.csv", *by, "--n-shared", 2)
    ran("report", "model.clvm", "-y", "--title", "<Women>")
    data = data_of("report.html")
    assert data["title"] == "<Women>"
    assert len(data["rows"]) == 30
    assert [c["levels"] for c in data["columns"] if c["name"] == "sex"] == [["f"]]
    ran("report", "model.clvm", "both.csv", "--by", "group", "--target", "case")
    assert len(data_of("report.html")["rows"]) == 90


def test_models_of_python_and_without_a_background() -> None:
    rows = pd.read_csv("cases.csv")[NAMES]
    clvm.ContrastiveLVM(2, 0).fit(rows).save("alone.clvm")
    ran("report", "alone.clvm", "cases.csv")
    assert data_of("report.html")["background_rows"] is None
    ran("fit", "cases.csv", "--n-shared", 0, "-o", "alone.clvm")
    ran("report", "alone.clvm", "--yes")
    assert data_of("report.html")["background_rows"] is None


def test_what_cannot_be_is_said_in_one_sentence(capsys: Capture) -> None:
    ran("fit", "cases.csv", "controls.csv", "--n-shared", 2)
    assert "needs a file" in refused(capsys, "report", "model.clvm", "--by", "group")
    assert "does not exist" in refused(capsys, "report", "absent.clvm")
    assert "alone does not say which rows" in refused(capsys, "report", "model.clvm", "cases.csv")
    rows = pd.read_csv("cases.csv")[NAMES]
    clvm.ContrastiveLVM(2, 0).fit(rows).save("python.clvm")
    assert "does not record which files" in refused(capsys, "report", "python.clvm")
    folder = refused(capsys, "report", "model.clvm", "-o", "no/report.html")
    table = refused(capsys, "fit", "cases.csv", "controls.csv", "-o", "table.csv")
    assert "table.csv would be a model file; use the ending .clvm, and clvm export" in table
    assert "--output=no" in folder
    assert "--report=no" in refused(capsys, "fit", "cases.csv", "controls.csv", "--report", "no/r")
    Path("cases.csv").rename("moved.csv")
    moved = refused(capsys, "report", "model.clvm", "--yes")
    assert "cases.csv, which model.clvm was fitted to, does not exist" in moved
    assert not Path("report.html").exists()
    assert not [p for p in Path().iterdir() if p.name.startswith(".")]


def test_a_model_cannot_make_the_report_read_a_file(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran("fit", "cases.csv", "controls.csv", "--n-shared", 2)
    sentence = refused(capsys, "report", "model.clvm")
    assert "model.clvm was fitted to cases.csv and controls.csv, but" in sentence
    assert "add --yes, or name the files after the model." in sentence
    assert not Path("report.html").exists()
    Path("cases.csv").rename("moved.csv")
    assert refused(capsys, "report", "model.clvm") == sentence  # not even whether it is there
    Path("moved.csv").rename("cases.csv")
    ran("report", "model.clvm", "cases.csv", "controls.csv")
    for name in ("stdin", "stderr"):
        monkeypatch.setattr(f"sys.{name}.isatty", lambda: True)
    Path("report.html").unlink()
    asked: list[str] = []

    def answered(text: str, **_: object) -> bool:
        asked.append(text)
        if len(asked) == 1:
            raise typer.Abort
        return True

    monkeypatch.setattr("typer.confirm", answered)
    assert run(["report", "model.clvm"]) == 130
    assert not Path("report.html").exists()
    assert run(["report", "model.clvm"]) == 0
    assert Path("report.html").exists()
    assert asked == ["model.clvm was fitted to cases.csv and controls.csv. Read it?"] * 2


def test_files_of_the_fit_bring_their_conditions(capsys: Capture) -> None:
    ran("fit", "both.csv", "--by", "group", "--target", "case", "--where", "sex=f", "--n-shared", 2)
    ran("report", "model.clvm", "both.csv")
    assert len(data_of("report.html")["rows"]) == 30


@pytest.mark.parametrize("output", ["model.clvm", "cases.csv", "controls.csv", "link"])
def test_a_report_never_replaces_what_it_reads(output: str, capsys: Capture) -> None:
    ran("fit", "cases.csv", "controls.csv", "--n-shared", 2)
    Path("link").hardlink_to("cases.csv")
    before = Path(output).read_bytes()
    files = ["cases.csv", "controls.csv"]
    for arguments in (["--yes"], files):
        error = refused(capsys, "report", "model.clvm", *arguments, "-o", output)
        assert f"--output={output} is also an input" in error
    same = refused(capsys, "fit", *files, "-o", "m", "--report", "m")
    assert "--report=m is also another output" in same
    assert Path(output).read_bytes() == before


def test_a_damaged_origin_is_refused(capsys: Capture) -> None:
    from contrastive_lvm.io.tables.choose_rows import Choice
    from contrastive_lvm.io.tables.preparation import Origin, check_preparation, unprepared

    rows = pd.read_csv("cases.csv")[NAMES]
    preparation = unprepared(clvm.ContrastiveLVM(2, 0).fit(rows))
    whole: Any = Origin("a.csv", None, Choice())  # type: ignore[arg-type]
    assert check_preparation(preparation._replace(origin=whole), Path("m")).origin is not None
    damaged: list[Any] = [{}, whole._replace(target=3), whole._replace(choice=None)]
    for origin in [*damaged, whole._replace(choice=Choice(target=[3]))]:  # type: ignore[list-item]
        with pytest.raises(ValueError, match="is damaged"):
            check_preparation(preparation._replace(origin=origin), Path("model.clvm"))
