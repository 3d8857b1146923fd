"""`clvm export`: tables agree with the model, as files and as a workbook."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import contrastive_lvm as clvm
from contrastive_lvm.cli.main import run


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("export")
    data = clvm.datasets.make_subgroups(60, 50, random_state=0)
    table = pd.DataFrame(np.vstack([data.target, data.background]))
    table.columns = pd.Index([f"g{i}" for i in range(table.shape[1])])
    table["group"] = ["=patient"] * len(data.target) + ["control"] * len(data.background)
    table.to_csv(folder / "all.csv", index=False)
    sets = ["--by", "group", "--target", "=patient", "--n-shared", "3"]
    command = ["fit", str(folder / "all.csv"), *sets, "--resamples", "0", "--bootstrap", "0"]
    assert run([*command, "-o", str(folder / "m.clvm")]) == 0
    assert run([*command, "--subgroups", "2", "-o", str(folder / "subgroups.clvm")]) == 0
    return folder


def test_files_hold_what_the_model_has(fitted: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, place = clvm.load_model(fitted / "m.clvm"), fitted / "tables"
    assert run(["export", str(fitted / "m.clvm"), "--yes", "-o", str(place), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert set(facts["tables"]) == {path.stem for path in place.iterdir()}
    loadings = pd.read_csv(place / "loadings.csv", index_col=0)
    np.testing.assert_allclose(loadings["target1"], model.target_components_[0])
    assert (loadings["target1_std"] > 0).all()
    latents = pd.read_csv(place / "latents.csv", index_col=0)
    rows = pd.read_csv(fitted / "all.csv")
    own = rows[rows["group"] == "=patient"].drop(columns="group")
    np.testing.assert_allclose(latents[["target1", "target2"]], model.transform(own), atol=1e-9)
    assert latents["group"].tolist() == ["'=patient"] * len(own)  # no formula
    means = pd.read_csv(place / "means.csv", index_col=0)
    np.testing.assert_allclose(means["difference"], model.mean_difference_, atol=1e-9)


def test_subgroups_of_rows(fitted: Path) -> None:
    place = fitted / "tables of subgroups"
    assert run(["export", str(fitted / "subgroups.clvm"), "--yes", "-o", str(place)]) == 0
    latents = pd.read_csv(place / "latents.csv", index_col=0)
    rows = pd.read_csv(fitted / "all.csv")
    own = rows[rows["group"] == "=patient"].drop(columns="group")
    found = clvm.load_model(fitted / "subgroups.clvm").predict_proba(own)
    np.testing.assert_allclose(latents["probability1"], found[:, 0], atol=1e-9)
    np.testing.assert_array_equal(latents["subgroup"], found.argmax(axis=1) + 1)


def test_a_workbook_of_rotated_loadings(fitted: Path) -> None:
    place = fitted / "tables.xlsx"
    command = ["export", str(fitted / "m.clvm"), "--yes", "-o", str(place), "--bootstrap", "0"]
    assert run([*command, "--rotate", "varimax"]) == 0
    sheets = pd.read_excel(place, sheet_name=None, index_col=0, engine="openpyxl")
    model = clvm.load_model(fitted / "m.clvm").rotate("varimax")
    np.testing.assert_allclose(sheets["loadings"]["target2"], model.target_components_[1])
    assert "target1_std" not in sheets["loadings"]
    assert sheets["variance"]["share"].sum() == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["-o", "out.pdf"], "is not a workbook"),
        (["--rotate", "quartimax", "--yes"], "quartimax"),
        ([], "add --yes, or name the files"),
    ],
)
def test_refusals(
    options: list[str],
    said: str,
    fitted: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["export", str(fitted / "m.clvm"), *options]) == 2
    assert said in capsys.readouterr().err
