"""Methods side by side: stability, held-out likelihood, pictures and the command."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.decomposition import PCA

import contrastive_lvm as clvm
from contrastive_lvm.cli.main import run
from contrastive_lvm.exceptions import InvalidParameterError
from contrastive_lvm.resampling.comparison import _agreement

DATA = clvm.datasets.make_subgroups(160, 160, random_state=0)
METHODS = {"PCA": PCA(2), "cLVM": clvm.ContrastiveLVM(2, 10)}


def value(found: clvm.Comparison, method: str, column: str) -> float:
    return float(found.table[column].to_dict()[method])


def test_agreement_ignores_linear_maps_and_is_the_share_of_common_directions() -> None:
    rng = np.random.default_rng(0)
    rows = np.linalg.qr(rng.standard_normal((50, 4)) - 0.0)[0]
    rows -= rows.mean(axis=0)
    assert _agreement(
        rows[:, :2], rows[:, :2] @ rng.standard_normal((2, 2)) + 3.0
    ) == pytest.approx(1)
    basis = np.linalg.qr(rows)[0]
    assert _agreement(basis[:, :2], basis[:, 1:3]) == pytest.approx(0.5)
    assert _agreement(basis[:, :2], basis[:, 2:]) == pytest.approx(0.0, abs=1e-12)


def test_the_table_has_what_each_method_reaches() -> None:
    found = clvm.compare_methods(
        DATA.target, background=DATA.background, methods=METHODS, n_resamples=3, random_state=0
    )
    assert list(found.table.index) == ["PCA", "cLVM"]
    assert found.table["stability"].between(0.0, 1.0).all()
    assert value(found, "cLVM", "stability") > 0.9 > value(found, "PCA", "stability")
    assert value(found, "cLVM", "log_likelihood") > value(found, "PCA", "log_likelihood")
    model = clvm.ContrastiveLVM(2, 10).fit(DATA.target, background=DATA.background)
    np.testing.assert_array_equal(found.latents["cLVM"], model.transform(DATA.target))
    again = clvm.compare_methods(
        DATA.target, background=DATA.background, methods=METHODS, n_resamples=3, random_state=0
    )
    kept = ["stability", "log_likelihood"]
    pd.testing.assert_frame_equal(found.table[kept], again.table[kept])


def test_the_log_likelihood_is_that_of_rows_left_out() -> None:
    rng = np.random.default_rng(1)
    noise = rng.standard_normal((20, 60)), rng.standard_normal((20, 60))
    methods = {"PPCA": clvm.PPCA(5)}
    found = clvm.compare_methods(*noise[:1], background=noise[1], methods=methods, random_state=0)
    seen = clvm.PPCA(5).fit(noise[0]).score(noise[0])
    assert value(found, "PPCA", "log_likelihood") < seen


def test_missing_entries_are_filled_only_where_a_method_cannot_have_them() -> None:
    rows = DATA.target.copy()
    rows[::7, 3] = np.nan
    found = clvm.compare_methods(
        rows, background=DATA.background, methods=METHODS, n_resamples=1, random_state=0
    )
    exact = clvm.ContrastiveLVM(2, 10).fit(rows, background=DATA.background)
    np.testing.assert_array_equal(found.latents["cLVM"], exact.transform(rows))
    filled = np.where(np.isnan(rows), np.nanmean(rows, axis=0), rows)
    np.testing.assert_allclose(found.latents["PCA"], PCA(2).fit_transform(filled))


def test_halves_hold_whole_replicates() -> None:
    groups = np.repeat(np.arange(16), 10)
    found = clvm.compare_methods(
        DATA.target,
        background=DATA.background,
        methods=METHODS,
        groups=groups,
        background_groups=groups + 100,
        n_resamples=2,
        random_state=0,
    )
    assert np.isfinite(found.table["stability"]).all()
    with pytest.raises(ValueError, match="background_groups"):
        clvm.compare_methods(DATA.target, background=DATA.background, groups=groups)


def test_the_command_writes_a_picture_and_a_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = [f"g{i}" for i in range(30)]
    rows = pd.DataFrame(np.vstack([DATA.target, DATA.background]), columns=names)
    rows["arm"] = np.repeat(["case", "control"], 160)
    file, picture = tmp_path / "rows.csv", tmp_path / "out.svg"
    rows.to_csv(file, index=False)
    command = ["compare", str(file), "--by", "arm", "--target", "case", "--resamples", "1"]
    assert run([*command, "-o", str(picture), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert [row["method"] for row in facts["methods"]] == ["PCA", "PPCA", "cPCA", "gcPCA", "cLVM"]
    assert [row["log_likelihood"] is None for row in facts["methods"]] == [0, 0, 1, 1, 0]
    assert "<svg" in picture.read_text(encoding="utf-8")
    assert run([*command, "-o", str(picture), "--color", "arm"]) == 0
    assert "stability" in capsys.readouterr().out
    for bad, reason in (
        (["-o", "out.txt"], "use the ending .png"),
        (["--color", "sex"], "no column"),
    ):
        assert run([*command, *bad]) == 2
        assert reason in capsys.readouterr().err


def test_both_sets_need_the_same_features_in_the_same_order() -> None:
    data = clvm.datasets.make_subgroups(20, 20, random_state=0)
    names = [f"g{j}" for j in range(data.target.shape[1])]
    X, B = (pd.DataFrame(rows, columns=names) for rows in (data.target, data.background))
    with pytest.raises(ValueError, match="in another order"):
        clvm.compare_methods(X, background=B[names[::-1]])
    with pytest.raises(ValueError, match="has 3 features, but X has"):
        clvm.compare_methods(data.target, background=data.background[:, :3])


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda X: np.where(X == X[0, 0], np.inf, X), "infinity"),
        (lambda X: np.where(np.arange(X.shape[1]) == 1, np.nan, X), "no observed entry"),
        (lambda X: 1e170 * X, "overflow"),
        (np.zeros_like, "do not vary"),
        (lambda X: X[:3], "too large for 3 rows"),
        (lambda X: X[:, :1], "too large for 20 rows of 1 feature"),
    ],
)
def test_rows_that_no_method_can_be_fitted_to_are_refused(change: Any, says: str) -> None:
    data = clvm.datasets.make_subgroups(20, 20, random_state=0)
    with pytest.raises(ValueError, match=says):
        clvm.compare_methods(change(data.target), background=change(data.background))


def test_a_picture_without_dimensions_is_not_stable() -> None:
    rows = np.random.default_rng(0).normal(size=(30, 2))
    assert _agreement(np.zeros((30, 2)), np.zeros((30, 2))) == 0.0
    assert _agreement(np.zeros((30, 2)), rows) == 0.0
    one = np.column_stack([rows[:, 0], np.zeros(30)])
    assert _agreement(one, 2.0 * one) == pytest.approx(1.0)


def test_half_of_the_rows_may_not_vary() -> None:
    X = np.zeros((20, 4))
    X[3] = [1.0, 2.0, 0.5, 3.0]
    B = np.random.default_rng(0).normal(size=(20, 4))
    methods = {"PCA": PCA(1)}
    found = clvm.compare_methods(X, background=B, methods=methods, n_resamples=2, random_state=0)
    assert 0.0 <= value(found, "PCA", "stability") <= 1.0
    assert np.isnan(value(found, "PCA", "log_likelihood"))  # no density


@pytest.mark.parametrize("methods", ["PPCA", ["PPCA"], [clvm.PPCA(1)], {}])
def test_methods_without_names_are_refused(methods: Any) -> None:
    with pytest.raises(InvalidParameterError, match="must be unfitted estimators by name"):
        clvm.compare_methods(np.eye(6), background=np.eye(6), methods=methods)
