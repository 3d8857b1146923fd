"""Subgroups on the command line: --subgroups."""

import json
from pathlib import Path

import pandas as pd
import pytest

import contrastive_lvm as clvm
from contrastive_lvm.cli.main import run


def test_subgroups_are_counted_printed_and_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    data = clvm.datasets.make_subgroups(random_state=0)
    for name in ("target", "background"):
        table = pd.DataFrame(getattr(data, name)).add_prefix("f")
        kinds = data.target_labels if name == "target" else 0 * data.target_labels
        table["kind"] = [f"kind {label}" for label in kinds]
        table.to_csv(f"{name}.csv", index=False)
    words = ["fit", "target.csv", "background.csv", "--n-shared", "10"]
    words += ["--resamples", "19", "--bootstrap", "0"]
    assert run([*words, "--subgroups", "4"]) == 0
    out = capsys.readouterr().out
    assert "Subgroups: 4, with 25 %, 25 %, 25 %, 25 %" in out
    assert "Subgroup 1 is all kind 3 (kind)." in out
    assert "Subgroup 4 differs from the average row in f" in out
    assert not any("differs from the average" in line and "±" in line for line in out.splitlines())
    assert run([*words[:-1], "20", "--subgroups", "4"]) == 0
    said = [
        line for line in capsys.readouterr().out.splitlines() if "differs from the average" in line
    ]
    assert len(said) == 4
    assert all(" ± " in line for line in said)
    rows = pd.read_csv("target.csv")
    assert clvm.load_model("model.clvm").predict_proba(rows).shape == (400, 4)
    assert run([*words, "--subgroups", "1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["subgroups"] == [1.0]
    assert run([*words, "--subgroups", "many"]) == 2
    assert "--subgroups=many" in capsys.readouterr().err
