"""A shift that all rows of the target share is told beside the loadings, in units of the file."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from contrastive_lvm.cli.main import run


def _file(folder: Path, shift: float) -> Path:
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(110, 8)) * 5.0
    rows[:60, 3] += 5.0 * shift
    table = pd.DataFrame(rows, columns=[f"g{i}" for i in range(8)])
    table["group"] = ["patient"] * 60 + ["control"] * 50
    table.to_csv(folder / "all.csv", index=False)
    return folder / "all.csv"


@pytest.mark.parametrize("scale", ["none", "standard"])
def test_a_shift_is_told_and_is_no_contrast(
    scale: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, model = _file(tmp_path, 3.0), tmp_path / "m.clvm"
    command = ["fit", str(file), "--by", "group", "--target", "patient", "--scale", scale]
    assert run([*command, "-o", str(model), "--resamples", "99", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["means"]["n_different"] == 1
    assert "The test finds no other difference between the sets" in facts["means"]["sentence"]
    (found,) = facts["means"]["features"]
    assert found["feature"] == "g3"
    assert found["difference"] == pytest.approx(15.0, abs=3.0 * found["standard_error"])
    assert found["standard_error"] == pytest.approx(5.0 * np.sqrt(1 / 60 + 1 / 50), rel=0.25)


def test_no_shift_is_told_as_such(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, model = _file(tmp_path, 0.0), tmp_path / "m.clvm"
    command = ["fit", str(file), "--by", "group", "--target", "patient", "-o", str(model)]
    assert run([*command, "--resamples", "99"]) == 0
    assert "No feature has a mean that differs" in capsys.readouterr().out
