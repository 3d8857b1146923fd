"""`clvm fit --block` and what applies its models."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import contrastive_lvm as clvm
from contrastive_lvm.cli.main import run

Capture = pytest.CaptureFixture[str]
DATA = clvm.datasets.make_multi_set({"a+b+c": 2, "b+c": 1, "c": 1}, n_features=10, random_state=0)
BLOCKS = ["--block", "shared=2", "--block", "late=1:b+c", "--block", "c=1:c"]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    frame = pd.DataFrame(DATA.rows.round(6), columns=list("qrstuvwxyz"))
    frame.insert(0, "condition", DATA.sets)
    frame.sample(frac=1.0, random_state=0).to_csv(tmp_path / "all.csv", index=False)
    return tmp_path / "all.csv"


def fitted(file: Path, *more: str) -> Path:
    path = file.with_name("model.clvm")
    arguments = ["fit", str(file), "--by", "condition", *(more or BLOCKS), "-o", str(path)]
    assert run(arguments) == 0
    return path


def test_the_library_s_own_numbers(file: Path, capsys: Capture) -> None:
    path = fitted(file, *BLOCKS, "--json")
    facts: dict[str, Any] = json.loads(capsys.readouterr().out)
    frame = pd.read_csv(file)
    blocks: Any = {
        "shared": 2,
        "late": clvm.Block(1, sets=["b", "c"]),
        "c": clvm.Block(1, sets=["c"]),
    }
    model = clvm.MultiSetLVM(blocks).fit(frame.iloc[:, 1:], sets=frame["condition"])
    assert facts["lower_bound"] == pytest.approx(model.lower_bound_, rel=1e-9)
    assert facts["blocks"]["late"]["sets"] == ["b", "c"]
    assert facts["sets"]["a"]["variance"]["c"] == 0
    assert clvm.load_model(path).blocks_ == model.blocks_


def test_text_and_latents(file: Path, capsys: Capture, tmp_path: Path) -> None:
    path = fitted(file)
    text = capsys.readouterr().out
    assert "share of each set's variance" in text
    assert "late 1:" in text
    out = tmp_path / "latents.csv"
    assert run(["transform", str(path), str(file), "-o", str(out)]) == 0
    table = pd.read_csv(out)
    assert list(table.columns)[-2:] == ["late0", "c0"]
    assert (table.loc[table["condition"] == "a", "late0"] == 0).all()
    assert run(["transform", str(path), str(file), "--shared", "--std", "-o", str(out)]) == 0
    table = pd.read_csv(out)
    assert {"shared1_std", "c0"} <= set(table.columns)
    assert table.loc[table["condition"] == "a", "c0"].isna().all()
    for command in ("impute", "denoise"):
        assert run([command, str(path), str(file), "-o", str(out)]) == 0
        assert len(pd.read_csv(out)) == 300


def test_rows_of_one_set_without_the_column(file: Path, tmp_path: Path, capsys: Capture) -> None:
    path = fitted(file)
    rows = tmp_path / "new.csv"
    pd.read_csv(file).query("condition == 'b'").drop(columns="condition").to_csv(rows, index=False)
    out = tmp_path / "out.csv"
    assert run(["transform", str(path), str(rows), "--of", "b", "-o", str(out)]) == 0
    assert np.abs(pd.read_csv(out)["late0"]).max() > 0
    capsys.readouterr()
    assert run(["transform", str(path), str(rows)]) == 2
    assert "--of SET is required" in capsys.readouterr().err
    assert run(["transform", str(path), str(rows), "--of", "zebra"]) == 2
    assert "use a or b or c" in capsys.readouterr().err


def test_sizes_that_are_found(file: Path, capsys: Capture) -> None:
    fitted(file, "--block", "auto", "--own-noise", "--json")
    facts = json.loads(capsys.readouterr().out)
    sizes = {name: len(block["dimensions"]) for name, block in facts["blocks"].items()}
    assert sizes == {"shared": 2, "b+c": 1, "c": 1}
    assert facts["evidence"]["a"]["n_components"] == 0
    fitted(file, "--block", "auto")
    assert "gain of the last" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--by", "condition", "--block", "shared"], "is not a block"),
        (["--by", "condition", "--block", "x=1", "--block", "x=2"], "twice"),
        (["--by", "condition", "--block", "x=1:zebra", "--block", "s=1"], "sets without rows"),
        (["--by", "condition", "--block", "x=1:a+a"], "twice"),
        (["--block", "x=1"], "that names the sets"),
        (["--by", "zebra", "--block", "x=1"], "zebra"),
        (
            ["--by", "condition", "--block", "x=1", "--n-target", "3"],
            "cannot be combined with --block",
        ),
        (
            ["--by", "condition", "--block", "x=1", "--target", "a"],
            "cannot be combined with --block",
        ),
    ],
)
def test_refusals(file: Path, options: list[str], message: str, capsys: Capture) -> None:
    assert run(["fit", str(file), *options, "-o", str(file.with_name("m.clvm"))]) == 2
    assert message in capsys.readouterr().err
    assert not file.with_name("m.clvm").exists()


def test_a_scaled_model_takes_rows_as_they_are(file: Path) -> None:
    path = fitted(file, *BLOCKS, "--scale", "standard")
    model, frame = clvm.load_model(path), pd.read_csv(file)
    rows, scale = frame.iloc[:, 1:], model.preparation_.scaling.scale
    total = model.score_samples(rows, sets=frame["condition"]).sum()
    assert total == pytest.approx(model.lower_bound_ - len(rows) * np.log(scale).sum(), rel=1e-6)
    filled = model.impute(rows.mask(rows > 1.5), sets=frame["condition"])
    np.testing.assert_allclose(filled[rows <= 1.5], rows.to_numpy()[rows <= 1.5], atol=1e-9)


def test_reports(file: Path, tmp_path: Path, capsys: Capture) -> None:
    page, again, other = (tmp_path / f"{name}.html" for name in ("page", "again", "other"))
    path = fitted(file, *BLOCKS, "--scale", "standard", "--report", str(page))
    assert f"report: {page}" in capsys.readouterr().out
    text = page.read_text(encoding="utf-8")
    assert "all.csv" in text
    assert "have structure that rows of" in text
    assert run(["report", str(path), "--yes", "-o", str(again)]) == 0
    assert again.read_text(encoding="utf-8") == text
    frame = pd.read_csv(file)
    model = clvm.load_model(path)
    model.report(other, frame.iloc[:, 1:], sets=frame["condition"], title=file.name)
    sentences = text.split("<ul>")[1]
    assert other.read_text(encoding="utf-8").split("<ul>")[1].split("</ul>")[0] in sentences
