"""Methods side by side: stability, held-out likelihood, pictures and the command."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.decomposition import PCA

import contrastive_lvm as clvm
from contrastive_lvm.cli.main import run
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
    assert run([*command, "-o", str(picture), "--colour", "arm"]) == 0
    assert "stability" in capsys.readouterr().out
    for bad, reason in (
        (["-o", "out.txt"], "end it with .png"),
        (["--colour", "sex"], "no column"),
    ):
        assert run([*command, *bad]) == 2
        assert reason in capsys.readouterr().err
