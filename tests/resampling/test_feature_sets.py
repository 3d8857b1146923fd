"""Tests of feature sets: the statistic against a slow oracle, level and power, GMT files."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.stats import norm, rankdata

import contrastive_lvm as clvm
from contrastive_lvm.cli.main import run
from contrastive_lvm.resampling.feature_sets import _test, normal_scores

NAMES = [f"g{i}" for i in range(40)]


def planted(seed: int, shift: float, together: float = 0.0) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Rows whose first ten features load by `shift` more, and share a nuisance in both sets."""
    rng = np.random.default_rng(seed)
    S, W = rng.normal(size=(40, 2)), rng.normal(size=(40, 1))
    S[:10, 0] += together
    W[:10] += shift
    X = rng.normal(size=(80, 2)) @ S.T + rng.normal(size=(80, 1)) @ W.T
    B = rng.normal(size=(80, 2)) @ S.T
    noisy = (rows + rng.normal(size=rows.shape) for rows in (X, B))
    first, second = (pd.DataFrame(rows, columns=NAMES) for rows in noisy)
    return first, second


def p_values(seed: int, shift: float, together: float = 0.0, **options: Any) -> pd.DataFrame:
    X, B = planted(seed, shift, together)
    model = clvm.ContrastiveLVM(1, 2).fit(X, background=B)
    sets = {"first": NAMES[:10], "absent": ["x"], "other": NAMES[25:]}
    settings = {"n_resamples": 30, "random_state": 0, **options}
    return clvm.feature_set_test(model, X, background=B, feature_sets=sets, **settings)


def test_statistic_is_the_one_derived() -> None:
    rng = np.random.default_rng(0)
    loadings, draws = rng.normal(size=12), rng.normal(size=(7, 12))
    inside = np.zeros(12, dtype=bool)
    inside[[1, 4, 5, 9]] = True
    scores = norm.ppf((rankdata(loadings) - 0.5) / 12)
    c = np.where(inside, 1 / 4, -1 / 8)
    variance = scores @ scores / 11 * (1 / 4 + 1 / 8)
    covariances = [np.outer(e, e) for e in draws - scores]
    off = np.mean([c @ (V - np.diag(np.diag(V))) @ c for V in covariances]) * 20 / 19
    found = _test(pd.DataFrame({"G": inside}), loadings, draws, 20)
    expected = c @ scores / np.sqrt(variance + max(off, 0.0))
    np.testing.assert_allclose(found["statistic"], [expected], rtol=1e-12)
    np.testing.assert_allclose(found["mean_loading"], [loadings[inside].mean()], rtol=1e-12)
    np.testing.assert_allclose(normal_scores(loadings), scores, rtol=1e-12)


def test_planted_set_is_found_and_others_are_not() -> None:
    found = [p_values(seed, 2.0).set_index("feature_set") for seed in range(4)]
    assert all(table["pvalue"].loc["first"] < 0.01 for table in found)
    assert all(table.index[0] == "first" and "absent" not in table.index for table in found)
    assert all((table["qvalue"] >= table["pvalue"] - 1e-15).all() for table in found)


def test_set_that_varies_together_in_both_sets_is_no_finding() -> None:
    pvalues = [p_values(seed, 0.0, 3.0).set_index("feature_set")["pvalue"] for seed in range(16)]
    assert np.mean([p["first"] < 0.05 for p in pvalues]) <= 0.25  # more in 1 of 100,000 by chance


def test_same_seed_gives_the_same_numbers() -> None:
    first, second = p_values(0, 1.0), p_values(0, 1.0, n_jobs=2)
    pd.testing.assert_frame_equal(first, second)


@pytest.mark.parametrize(
    ("sets", "sentence"),
    [
        ({"a": ["no such gene"] * 9}, "check that both use the same names, such as 'g0'"),
        ({}, "has no set with at least 5"),
        ({"all": NAMES}, "and as many outside"),
        ([NAMES[:9]], "is not a mapping"),
    ],
)
def test_sets_that_cannot_be_tested_are_refused(sets: Any, sentence: str) -> None:
    X, B = planted(0, 1.0)
    model = clvm.ContrastiveLVM(1, 2).fit(X, background=B)
    with pytest.raises((ValueError, TypeError), match=sentence):
        clvm.feature_set_test(model, X, background=B, feature_sets=sets)


def test_rows_without_names_are_refused() -> None:
    X, B = (rows.to_numpy() for rows in planted(0, 1.0))
    model = clvm.ContrastiveLVM(1, 2)
    with pytest.raises(ValueError, match="has no names of features"):
        clvm.feature_set_test(model, X, background=B, feature_sets={"a": NAMES[:9]})


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"a\tdescription\n", "has no set of features in line 1"),
        (b"\na\td\tx\ny z\n", "in line 3"),
        (b"a\td\tx\na\td\ty\n", "has two sets 'a'"),
        (b"a\td\t\xff\xfe\n", "is not text in UTF-8"),
    ],
)
def test_files_that_are_none_are_refused(content: bytes, sentence: str, tmp_path: Path) -> None:
    path = tmp_path / "sets.gmt"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=sentence):
        clvm.read_gmt(path)


def test_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.chdir(tmp_path)
    for name, rows in zip(("cases.csv", "controls.csv"), planted(0, 2.0), strict=True):
        rows.to_csv(name, index=False)
    Path("sets.gmt").write_text(
        "\n".join("\t".join(["first", "", *NAMES[:10]]) if i else "" for i in range(2))
    )
    options = ["--n-target", "1", "--n-shared", "2", "--bootstrap", "0", "--resamples", "0"]
    assert run(["fit", "cases.csv", "controls.csv", *options, "-o", "m.clvm"]) == 0
    command = ["feature-sets", "m.clvm", "sets.gmt", "--yes", "--resamples", "30"]
    capsys.readouterr()
    assert run([*command, "-o", "table.csv"]) == 0
    assert "first" in capsys.readouterr().out
    table = pd.read_csv("table.csv")
    X, B = planted(0, 2.0)
    model = clvm.load_model("m.clvm")
    own = clvm.feature_set_test(
        model, X, background=B, feature_sets={"first": NAMES[:10]}, n_resamples=30, random_state=0
    )
    np.testing.assert_allclose(table["pvalue"], own["pvalue"], rtol=1e-9)
    assert run([*command, "--min-size", "30"]) == 2
    assert "check that both use the same names" in capsys.readouterr().err
