"""`clvm select`: the features that are reliable, which may be none."""

import json
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from contrastive_lvm.cli.main import run

Capture = pytest.CaptureFixture[str]


def written(folder: Path, target: np.ndarray, background: np.ndarray) -> list[str]:
    """Write both sets, and return the arguments that name them."""
    for name, rows in (("t.csv", target), ("b.csv", background)):
        names = [f"g{i}" for i in range(rows.shape[1])]
        pd.DataFrame(rows, columns=names).to_csv(folder / name, index=False)
    return [str(folder / "t.csv"), str(folder / "b.csv"), "--n-shared", "2"]


TRUE = {"g0", "g1", "g2", "g3", "g4"}


def planted(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return rows of 30 features, five of which vary together in the target alone."""
    rng = np.random.default_rng(100 + seed)
    S, w = rng.normal(size=(2, 30)), np.zeros((1, 30))
    w[0, :5] = 1.5
    target = rng.normal(size=(200, 2)) @ S + rng.normal(size=(200, 1)) @ w
    target += rng.normal(size=(200, 30))
    return target, rng.normal(size=(200, 2)) @ S + rng.normal(size=(200, 30))


@pytest.mark.parametrize("seed", range(4))
def test_two_files_of_one_distribution_have_no_feature(
    seed: int, tmp_path: Path, capsys: Capture
) -> None:
    rows = np.random.default_rng(seed).normal(size=(2, 300, 30))
    options = [*written(tmp_path, *rows), "--strengths", "6", "--resamples", "20"]
    assert run(["select", *options, "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["stable"] == []
    assert facts["pvalue"] > 0.01  # one in twenty such pairs is below .05, as is that of seed 2
    assert facts["verdict"].startswith("No evidence") == (facts["pvalue"] > 0.05)


@pytest.mark.parametrize("seed", range(3))
def test_planted_features_are_stable(seed: int, tmp_path: Path, capsys: Capture) -> None:
    """False ones among them are no more than stated, which is promised in nine of ten runs."""
    files = [*written(tmp_path, *planted(seed)), "--n-target", "1", "--strengths", "12"]
    assert run(["select", *files, "--resamples", "20"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("Target and background differ: p = 0.001")
    found = re.search(
        r"(\d+) of 30 features selected, (\d+) of them stable "
        r"\(selected in 90 % of random halves\); "
        r"at most (\S+) expected by chance",
        "\n".join(lines),
    )
    assert found is not None
    n_stable, chance = int(found[2]), float(found[3])
    listed = {line.split()[0] for line in lines[-n_stable:]}
    assert TRUE <= listed
    assert len(listed) == n_stable <= int(found[1])
    assert len(listed - TRUE) <= chance < n_stable


def test_replicates_are_resampled_whole(tmp_path: Path, capsys: Capture) -> None:
    target, background = planted(0)
    files = written(tmp_path, target, background)
    for name, rows in zip(files, (target, background), strict=False):
        frame = pd.read_csv(name)
        frame["donor"] = [f"{Path(name).stem}{i % 10}" for i in range(len(rows))]
        frame.to_csv(name, index=False)
    options = ["--n-target", "1", "--strengths", "6", "--resamples", "20", "--json"]
    assert run(["select", *files, *options, "--replicates", "donor"]) == 0
    assert set(json.loads(capsys.readouterr().out)["stable"]) >= TRUE
    assert run(["select", *files, *options, "--replicates", "nobody"]) == 2
    assert "nobody" in capsys.readouterr().err


def test_no_resamples_and_models_that_cannot_be_resampled(tmp_path: Path, capsys: Capture) -> None:
    files = [*written(tmp_path, *planted(0)), "--n-target", "1", "--strengths", "6"]
    assert run(["select", *files, "--resamples", "0"]) == 0
    out = capsys.readouterr().out
    assert " of 30 features selected\nHow many are selected by chance is unknown: no resa" in out
    assert run(["select", *files, "--resamples", "5"]) == 2
    assert "--resamples=5 is too few" in capsys.readouterr().err
    assert run(["select", *files, "--method", "horseshoe", "--resamples", "20"]) == 0
    assert "g1" in capsys.readouterr().out


def test_features_of_which_most_may_be_false_are_not_listed(
    tmp_path: Path, capsys: Capture
) -> None:
    """Five of eight features are planted; four are stable, of which two are false."""
    rng = np.random.default_rng([78, 2, 8, 5])
    S, W = rng.standard_normal((8, 2)), np.zeros((8, 1))
    W[:5, 0] = 0.7 * rng.choice([-1, 1], 5)
    X = rng.standard_normal((100, 2)) @ S.T + rng.standard_normal((100, 1)) @ W.T
    np.save(tmp_path / "t.npy", X + 0.5 * rng.standard_normal((100, 8)))
    B = rng.standard_normal((100, 2)) @ S.T + 0.5 * rng.standard_normal((100, 8))
    np.save(tmp_path / "b.npy", B)
    files = [tmp_path / "t.npy", tmp_path / "b.npy"]
    assert run(["select", *map(str, files), "--strengths=20", "--resamples=40", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["selected"]
    assert facts["stable"] == []
