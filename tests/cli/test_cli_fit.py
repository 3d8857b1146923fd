"""`clvm fit` and what applies its models: files in, the library's own numbers out."""

import gzip
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

import contrastive_lvm as clvm
from contrastive_lvm.cli.main import run
from contrastive_lvm.cli.parse_options import bind_to_features, build_estimator
from contrastive_lvm.io.model_files import read_model, write_model
from contrastive_lvm.io.tables.preparation import Scaling

Capture = pytest.CaptureFixture[str]
DATA = clvm.datasets.make_contrastive(90, 70, n_features=8, n_shared=2, random_state=0)
NAMES = list("abcdefgh")
SMALL = ["--n-target", "2", "--n-shared", "2"]
BY = ["--by", "group", "--target", "case", "--background", "control"]


def one_frame() -> pd.DataFrame:
    """Both sets shuffled, with words, gaps and columns in wild units."""
    values = np.concatenate([DATA.target, DATA.background]) * np.geomspace(1, 100, 8) + 5.0
    frame = pd.DataFrame(values.round(6), columns=NAMES)
    frame.insert(0, "name", [f"row {i}" for i in range(160)])
    frame["group"] = ["case"] * 90 + ["control"] * 70
    frame = frame.sample(frac=1.0, random_state=0).reset_index(drop=True)
    frame.loc[3, "b"] = frame.loc[40, "h"] = np.nan
    return frame


@pytest.fixture
def one(tmp_path: Path) -> Path:
    one_frame().to_csv(tmp_path / "one.csv", index=False)
    return tmp_path / "one.csv"


def ran(*arguments: object) -> None:
    assert run([str(argument) for argument in arguments]) == 0


def facts_of(capsys: Capture) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def refused(arguments: list[object], capsys: Capture) -> str:
    """The one sentence on stderr of a command that must end with exit code 2."""
    assert run([str(argument) for argument in arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    error = captured.err[captured.err.index("clvm: ") :]  # what was read is said before
    assert error.count("\n") == 1
    assert error[-2] in ".?"
    return error


def by_hand(scale: str) -> tuple[Any, pd.DataFrame, Any]:
    """The library called without the command: model, scaled target, and the pooled scaling."""
    frame = pd.read_csv("one.csv") if Path("one.csv").exists() else one_frame()
    center, spread = frame[NAMES].mean(), frame[NAMES].std(ddof=0)
    values = frame[NAMES] if scale == "none" else (frame[NAMES] - center) / spread
    target, background = (values[frame["group"] == name] for name in ("case", "control"))
    model = clvm.ContrastiveLVM(2, 2).fit(target, background=background)
    return model, target, (center.to_numpy(), spread.to_numpy())


@pytest.mark.parametrize("scale", ["none", "standard"])
@pytest.mark.filterwarnings("ignore:n_shared=")
def test_commands_are_the_library_with_columns_and_units_kept(
    scale: str, one: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(one.parent)
    ran("fit", one, *BY, *SMALL, "--scale", scale, "-o", "m.clvm", "--json")
    facts = facts_of(capsys)
    model, target, (center, spread) = by_hand(scale)
    assert facts["lower_bound"] == pytest.approx(model.lower_bound_, rel=1e-9)
    assert facts["target"] == {"file": str(one), "rows": 90, "missing": pytest.approx(2 / 720)}
    assert facts["background"]["rows"] == 70
    assert (facts["features"], facts["n_target"], facts["n_shared"]) == (8, 2, 2)
    shares = facts["variance"]
    assert sum(shares["target"]) + sum(shares["shared"]) + shares["noise"] == pytest.approx(1)

    # Columns in another order, more of them, and fewer rows.
    frame = one_frame().iloc[:, ::-1].assign(extra=1.0)
    frame.to_csv("new.csv", index=False)
    ran("transform", "m.clvm", "new.csv", "--where", "group=case", "-o", "latents.csv")
    latents = pd.read_csv("latents.csv", index_col=0)
    np.testing.assert_allclose(latents[["target1", "target2"]], model.transform(target), atol=1e-6)
    assert latents["name"].tolist() == one_frame().query("group == 'case'")["name"].tolist()
    assert latents.index.tolist() == (target.index + 1).tolist()
    ran("impute", "m.clvm", "new.csv", "--where", "group=case", "-o", "full.npy", "--std")
    full, std = np.split(np.load("full.npy"), 2, axis=1)
    units = (0.0, 1.0) if scale == "none" else (center, spread)
    expected, expected_std = model.impute(target, return_std=True)
    np.testing.assert_allclose(full, expected * units[1] + units[0], rtol=1e-6)
    np.testing.assert_allclose(std, expected_std * units[1], atol=1e-6)
    ran("denoise", "m.clvm", "new.csv", "--where", "group=case", "-o", "clean.tsv.gz")
    clean = pd.read_csv("clean.tsv.gz", sep="\t")[NAMES]
    expected = model.denoise(target) * units[1] + units[0]
    np.testing.assert_allclose(clean, expected, rtol=1e-4, atol=1e-5)
    names = {"one.csv", "m.clvm", "new.csv", "latents.csv", "full.npy", "clean.tsv.gz"}
    assert {path.name for path in one.parent.iterdir()} == names


def test_two_files_are_the_same_as_one(one: Path, tmp_path: Path, capsys: Capture) -> None:
    frame = one_frame()
    target, background = tmp_path / "t.tsv", tmp_path / "b.csv.gz"
    frame[frame["group"] == "case"].drop(columns="group").to_csv(target, sep="\t", index=False)
    frame[frame["group"] == "control"].drop(columns="name").to_csv(background, index=False)
    bounds = []
    for files in ([one, *BY], [target, background]):
        ran("fit", *files, *SMALL, "--scale", "robust", "-o", tmp_path / "m.clvm", "--json")
        bounds.append(facts_of(capsys)["lower_bound"])
    assert bounds[0] == pytest.approx(bounds[1], rel=1e-12)


def test_conditions_on_several_columns(one: Path, tmp_path: Path, capsys: Capture) -> None:
    frame = one_frame()
    frame["sex"] = np.where(np.arange(160) % 3 == 0, "f", "m")
    frame["age"] = np.arange(160) % 2
    frame.to_csv(one, index=False)
    chosen = ["--target", "group=case", "--background", "group=control", "--background", "age=1"]
    ran("fit", one, *chosen, "--where", "sex=m", *SMALL, "-o", tmp_path / "m.clvm", "--json")
    facts = facts_of(capsys)
    assert facts["target"]["rows"] == int(((frame.group == "case") & (frame.sex == "m")).sum())
    rows = (frame.group == "control") & (frame.age == 1) & (frame.sex == "m")
    assert facts["background"]["rows"] == int(rows.sum())
    assert facts["features"] == 8  # `age` is a condition, so no feature


def test_text_says_what_was_found(one: Path, tmp_path: Path, capsys: Capture) -> None:
    ran("fit", one, *BY, *SMALL, "-o", tmp_path / "m.clvm", "--top", "3")
    out = capsys.readouterr().out
    assert f"target      90 rows of {one}, 0.3% missing" in out
    assert "ContrastiveLVM, 2 target and 2 shared dimensions" in out
    assert "target 2, " in out
    assert out.startswith("Target and background differ: p = 0.001, ")
    assert "±" not in out  # entries are missing, so that refits would take a while
    assert "add --bootstrap 200." in out
    assert "outlier" in out
    caution = out.splitlines()[1]  # directly below the verdict
    assert re.match(r"warning: h has \d\d% of the variance of all features and determines", caution)
    assert out.count(caution) == 1
    assert out.splitlines()[-2] == f"model: {tmp_path / 'm.clvm'}"


def test_two_files_of_one_kind_have_no_findings(tmp_path: Path, capsys: Capture) -> None:
    rng = np.random.default_rng(3)
    for name in ("t", "b"):
        np.save(
            tmp_path / f"{name}.npy",
            rng.normal(size=(120, 3)) @ np.ones((3, 12)) + rng.normal(size=(120, 12)),
        )
    files = [tmp_path / "t.npy", tmp_path / "b.npy"]
    ran("fit", *files, *SMALL, "-o", tmp_path / "m.clvm", "--bootstrap", 40)
    out = capsys.readouterr().out
    assert out.startswith("No evidence that the target has structure of its own (p = 0.")
    assert "the dimensions below describe noise." in out
    assert "±" not in out  # such intervals do not cover loadings of zero
    ran("fit", *files, *SMALL, "-o", tmp_path / "m.clvm")
    out = capsys.readouterr().out
    assert "±" not in out
    assert "--bootstrap" not in out
    ran("test", *files, "--json")
    facts = facts_of(capsys)
    assert facts["pvalue"] > 0.05
    assert facts["n_target"] == 0
    ran("fit", *files, "--n-target", "auto", "--n-shared", 2, "-o", tmp_path / "m.clvm", "--json")
    assert facts_of(capsys)["n_target"] == 0


def test_a_contrast_has_standard_errors_unasked(tmp_path: Path, capsys: Capture) -> None:
    files = [tmp_path / "t.npy", tmp_path / "b.npy"]  # complete and small
    for path, rows in zip(files, (DATA.target, DATA.background), strict=True):
        np.save(path, rows)
    ran("fit", *files, *SMALL, "-o", tmp_path / "m.clvm")
    out = capsys.readouterr().out
    assert out.count("±") == 10
    assert "--bootstrap" not in out
    ran("fit", *files, *SMALL, "-o", tmp_path / "m.clvm", "--bootstrap", 0)
    out = capsys.readouterr().out
    assert "±" not in out
    assert "--bootstrap" not in out


def test_the_columns_that_are_features_are_named_to_the_last(
    tmp_path: Path, capsys: Capture
) -> None:
    rows = np.random.default_rng(0).normal(size=(60, 9))
    frame = pd.DataFrame(rows, columns=[*(f"p{i}" for i in range(8)), "age"])
    frame.assign(group=["a", "b"] * 30).to_csv(tmp_path / "all.csv", index=False)
    ran("fit", tmp_path / "all.csv", "--by", "group", "--target", "a", "-o", tmp_path / "m.clvm")
    assert "features    p0, p1, p2, ..., p6, p7, age" in capsys.readouterr().err


def test_automatic_dimensions_respect_replicates_and_have_errors(
    tmp_path: Path, capsys: Capture
) -> None:
    rng = np.random.default_rng(5)
    W = rng.normal(size=(1, 8))
    rows = [
        [
            f"a{i}",
            "case" if i < 40 else "control",
            *(i < 40) * 3.0 * rng.normal() * W[0] + rng.normal(size=8),
        ]
        for i in range(80)
        for _ in range(2)
    ]
    columns = ["animal", "group", *(f"f{i}" for i in range(8))]
    pd.DataFrame(rows, columns=columns).to_csv(tmp_path / "a.csv", index=False)
    command = ["fit", tmp_path / "a.csv", "--by", "group", "--target", "case", "--n-shared", 1]
    command += ["--n-target", "auto", "--replicates", "animal", "--bootstrap", 40]
    ran(*command, "-o", tmp_path / "m.clvm", "--json")
    facts = facts_of(capsys)
    assert facts["n_target"] == facts["n_supported"] == 1
    assert facts["dimensions"][0]["features"][0]["standard_error"] > 0
    assert "replicates" in facts["method"]


def test_replicates_are_permuted_whole(tmp_path: Path, capsys: Capture) -> None:
    rng = np.random.default_rng(0)
    rows = []
    for i in range(24):
        own, group = 3.0 * rng.normal(size=8), "case" if i < 12 else "control"
        rows += [[f"a{i}", group, *(own + rng.normal(size=8))] for _ in range(10)]
    columns = ["animal", "group", *(f"f{i}" for i in range(8))]
    pd.DataFrame(rows, columns=columns).to_csv(tmp_path / "a.csv", index=False)
    command = ["test", tmp_path / "a.csv", "--by", "group", "--target", "case"]
    ran(*command, "--json")
    facts = facts_of(capsys)
    assert any("The column 'animal' may name replicates" in w for w in facts["warnings"])
    ran(*command, "--replicates", "animal", "--json")
    found = facts_of(capsys)
    assert found["warnings"] == []
    assert "24 replicates" in found["method"]
    sentence = refused([*command, "--replicates", "cage"], capsys)
    assert "has no column 'cage'" in sentence


def test_too_few_replicates_for_a_test_can_be_fitted(tmp_path: Path, capsys: Capture) -> None:
    values = np.random.default_rng(0).normal(size=(40, 3))
    table = pd.DataFrame(values, columns=list("abc"))
    table.insert(0, "group", ["case", "control"] * 20)
    table.insert(0, "donor", [f"d{i // 2 % 3}" for i in range(40)])  # each in both groups
    table.to_csv(tmp_path / "a.csv", index=False)
    sets = [tmp_path / "a.csv", "--by", "group", "--target", "case", "--replicates", "donor"]
    sentence = refused(["test", *sets], capsys)
    assert "--replicates names 3 replicate(s) of both sets, which can be divided in 8" in sentence
    ran("fit", *sets, "--n-target", 1, "--n-shared", 1, "-o", tmp_path / "m.clvm")
    out = capsys.readouterr().out
    assert "was not tested: the column 'donor' names 3 replicate(s) of both sets" in out
    assert "Two or three replicates in a set are too few for standard errors" in out
    files = ["fit", *sets, "--bootstrap", 5]
    assert "--bootstrap=5 is too few for a confidence level" in refused(files, capsys)


def test_numbered_names_are_replicates_by_their_stems(tmp_path: Path, capsys: Capture) -> None:
    rng = np.random.default_rng(0)
    columns = {f"f{i}": rng.normal(size=240) for i in range(8)}
    ids = [f"m{i // 10}_{i % 10 + 1}" for i in range(240)]
    groups = ["case" if i < 120 else "control" for i in range(240)]
    table = pd.DataFrame({"MouseID": ids, "tube": [f"t{i}x" for i in range(240)], "group": groups})
    pd.concat([table, pd.DataFrame(columns)], axis=1).to_csv(tmp_path / "a.csv", index=False)
    command = ["test", tmp_path / "a.csv", "--by", "group", "--target", "case"]
    ran(*command, "--json")
    assert any("The column 'MouseID' may name" in w for w in facts_of(capsys)["warnings"])
    ran(*command, "--replicates", "MouseID", "--json")
    assert "24 replicates" in facts_of(capsys)["method"]
    sentence = refused([*command, "--replicates", "tube"], capsys)
    assert "the values of column 'tube' are all different" in sentence


def test_advice_about_noise_helps(tmp_path: Path, capsys: Capture) -> None:
    rng = np.random.default_rng(0)
    files = [tmp_path / "t.npy", tmp_path / "b.npy"]
    options = ["-o", tmp_path / "m.clvm", "--bootstrap", 0, "--json"]

    def warnings(target: np.ndarray, background: np.ndarray, *more: object) -> str:
        for file, rows in zip(files, (target, background), strict=True):
            np.save(file, rows)
        ran("fit", *files, "--n-target", 1, *options, *more)
        return " ".join(facts_of(capsys)["warnings"])

    one, other = rng.normal(size=(2, 90, 16))
    assert "noise" not in warnings(one, other)  # more dimensions would not help
    deviation, shared = np.repeat([0.3, 3.0], 8), rng.normal(size=(2, 90, 1)) * np.full(16, 2.0)
    unequal = shared + deviation * np.stack([one, other])
    assert "residual variances of the features differ" in warnings(*unequal, "--n-shared", 1)
    copies = unequal.copy()
    copies[:, :, 1] = copies[:, :, 0]
    own = ("--n-shared", 1, "--likelihood", "gaussian:noise=feature", "--resamples", 0)
    assert "2 of 16 features have no noise left" in warnings(*copies, *own)
    assert "noise left" not in warnings(*unequal, *own)


def test_noise_and_outliers_come_with_advice(tmp_path: Path, capsys: Capture) -> None:
    rng = np.random.default_rng(0)
    np.save(tmp_path / "b.npy", rng.normal(size=(80, 6)))
    target = rng.normal(size=(90, 6))
    target[:5] *= 30.0
    np.save(tmp_path / "t.npy", target)
    files = [tmp_path / "t.npy", tmp_path / "b.npy"]
    ran("fit", *files, "--n-target", 1, "--n-shared", 0, "-o", tmp_path / "m.clvm", "--json")
    facts = facts_of(capsys)
    assert facts["outliers"]["count"] >= 3
    assert {row["row"] for row in facts["outliers"]["rows"]} <= {str(i) for i in range(1, 6)}
    assert any(
        "are far from what the model expects: try --likelihood" in w for w in facts["warnings"]
    )
    assert not any("allow more" in w for w in facts["warnings"])  # there is no contrast
    ran("fit", *files, *SMALL, "--likelihood", "student_t", "-o", tmp_path / "m.clvm", "--json")
    rows = facts_of(capsys)["outliers"]["rows"]
    assert {row["row"] for row in rows} == {str(i) for i in range(1, 6)}
    assert all(row["weight"] < 0.5 for row in rows)


def test_latents_with_deviations_of_both_sets(one: Path, tmp_path: Path, capsys: Capture) -> None:
    ran("fit", one, *BY, *SMALL, "-o", tmp_path / "m.clvm")
    capsys.readouterr()
    ran("transform", tmp_path / "m.clvm", one, "--std", "--shared", "--json")
    facts = facts_of(capsys)
    parts = ("target1", "target2", "target1_std", "target2_std", "shared1", "shared2")
    assert facts["columns"] == [*parts, "shared1_std", "shared2_std"]
    assert np.shape(facts["values"]) == (160, 8)
    ran("transform", tmp_path / "m.clvm", one, "--of", "background", "--where", "group=control")
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == ",name,group,shared1,shared2"
    assert len(lines) == 71


def test_select_finds_the_features_and_the_dimensions(tmp_path: Path, capsys: Capture) -> None:
    rng = np.random.default_rng(3)
    S, W = rng.normal(size=(8, 2)), np.zeros((8, 1))
    W[[1, 4], 0] = 3.0
    noise = [0.3 * rng.normal(size=(n, 8)) for n in (150, 120)]
    target = rng.normal(size=(150, 2)) @ S.T + rng.normal(size=(150, 1)) @ W.T + noise[0]
    background = rng.normal(size=(120, 2)) @ S.T + noise[1]
    for name, rows in (("t.csv", target), ("b.csv", background)):
        pd.DataFrame(rows, columns=NAMES).to_csv(tmp_path / name, index=False)
    files = [tmp_path / "t.csv", tmp_path / "b.csv", "--n-target", 1]
    lasso = [*files, "--n-shared", 2, "--strengths", 12, "-o", tmp_path / "m.clvm"]
    ran("select", *lasso, "--json")
    facts = facts_of(capsys)
    assert {item["feature"] for item in facts["selected"]} == {"b", "e"}
    assert len(facts["path"]) == 12
    assert clvm.load_model(tmp_path / "m.clvm").selected_features_.sum() == 2
    ran("select", *files, "--n-shared", 2, "--method", "horseshoe:delta=0.01")
    assert "2 of 8 features selected" in capsys.readouterr().out
    ran("select", *files, "--method", "ard")
    assert capsys.readouterr().out.startswith("2 shared dimensions")


def test_groups_and_kinds_come_from_tables(tmp_path: Path) -> None:
    table = tmp_path / "groups.csv"
    table.write_text("feature,group\nb,left\nc,left\na,gaussian\n")
    made = build_estimator(target_prior=f"group_lasso:rho=3,groups={table}", n_shared="2")
    bind_to_features(made, ["a", "b", "c"])
    assert made.target_prior == clvm.GroupLasso(3, groups=(0, 1, 1))
    table.write_text("feature\tkind\na\tgaussian\nb\tpoisson\n")
    mixed = build_estimator(likelihood=f"mixed:features={table}")
    with pytest.raises(ValueError, match="names the feature 'b', which is not in the data"):
        bind_to_features(mixed, ["a"])
    bind_to_features(mixed, ["a", "b"])
    assert mixed.likelihood == clvm.Mixed({"gaussian": [0], "poisson": [1]})


def test_every_setting_has_a_word() -> None:
    made = build_estimator(
        n_shared="auto",
        likelihood="student-t:df=learn,per=sample",
        shared_prior="ard:a0=0.1",
        target_prior="horseshoe:scale=0.5,p0=0.9",
        inference="vb:max_iter=7,tol=0.5",
        n_init=3,
        seed=5,
    )
    assert made.n_shared == "auto"
    assert made.likelihood == clvm.StudentT("learn", per="sample")
    assert made.shared_prior == clvm.ARD(a0=0.1)
    assert made.target_prior == clvm.Horseshoe(0.5, p0=0.9)
    assert made.inference == clvm.VariationalBayes(max_iter=7, tol=0.5)
    assert (made.n_init, made.random_state) == (3, 5)
    network = build_estimator(
        model="vae:hidden_layer_sizes=16+32,activation=elu,patience=none,max-epochs=3,kl_warm_up=0.2",
        likelihood="bernoulli",
    )
    assert (
        network.get_params()
        == clvm.ContrastiveVAE(
            hidden_layer_sizes=(16, 32),
            activation="elu",
            patience=None,
            max_epochs=3,
            kl_warm_up=0.2,
            likelihood=clvm.Bernoulli(),
            random_state=0,
        ).get_params()
    )


BAD_OPTIONS = {
    "--likelihood normal": r"--likelihood normal is unknown; use gaussian, student_t",
    "--likelihood gaussian:df=3": r"--likelihood gaussian has no setting 'df'; it has noise",
    "--likelihood student_t:df": r"'df' is not a setting; write --likelihood student_t:NAME=VALUE",
    "--likelihood student_t:per=week": r"--likelihood student_t:per=week is unknown; use one of",
    "--likelihood mixed": r"--likelihood needs features=FILE",
    "--likelihood poisson --scale standard": r"--scale=standard does not apply to Poisson",
    "--target-prior group_lasso:groups=no.csv": r"groups=no\.csv cannot be read",
    "--inference annealing": r"--inference annealing is unknown; use em, vb, svi, nuts, auto",
    "--inference em:max_iter=0": r"--inference em:max_iter=0 must be an integer",
    "--n-shared many": r"--n-shared=many must be a non-negative integer or auto",
    "--n-shared 9": r"--n-shared=9 is too large for 8 feature",
    "--n-target -1": r"--n-target=-1 must be",
    "--model gan": r"--model gan is unknown; use clvm, vae",
    "--model vae:depth=3": r"--model vae has no setting 'depth'; it has activation, batch_size",
    "--model vae --target-prior ard": r"--target-prior does not apply to --model vae",
    "--model vae --n-shared auto": r"--n-shared=auto must be an integer",
    "--scale big": r"--scale=big is unknown; use standard, robust, none",
    "--where group=nobody": r"has no value 'nobody'; it has 'c",
    "--annotation nothing": r"has no column 'nothing'",
    "--output no/such/folder/m.clvm": r"cannot be written \(No such file or directory\)",
    "--output .": r"--output=\. is a folder; name a file in it",
    "--seed x": r"'--seed': 'x' is not an integer",
}


@pytest.mark.parametrize("arguments", BAD_OPTIONS)
def test_bad_options_are_one_sentence_and_leave_nothing(
    arguments: str, one: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(one.parent)
    error = refused(["fit", one, *BY, *arguments.split()], capsys)
    assert re.search(BAD_OPTIONS[arguments], error), error
    assert [path.name for path in one.parent.iterdir()] == ["one.csv"]


BAD_FILES: dict[str, bytes] = {
    "ragged.csv": b"a,group,b\n1,case,2\n3,control\n4,case\n",
    "mixed.csv": b"a,group,b\n1,case,2\n2,case,x\n3,control,3\n",
    "twice.csv": b"a,group,a\n1,case,2\n3,control,4\n",
    "latin.csv": "a,group\n1,caf\xe9\n".encode("latin-1"),
    "empty.csv": b"",
    "cut.csv.gz": gzip.compress(b"a,group\n1,case\n2,control\n" * 99)[:-30],
    "groups.csv": b"a,group\n1,x\n2,y\n",
}


@pytest.mark.parametrize("name", [*BAD_FILES, "folder", "absent.csv"])
def test_malformed_files_are_one_sentence_and_leave_nothing(
    name: str, tmp_path: Path, capsys: Capture
) -> None:
    path = tmp_path / name
    if name == "folder":
        path.mkdir()
    elif name in BAD_FILES:
        path.write_bytes(BAD_FILES[name])
    before = sorted(tmp_path.rglob("*"))
    error = refused(["fit", path, *BY, "-o", tmp_path / "m.clvm"], capsys)
    assert name in error
    assert sorted(tmp_path.rglob("*")) == before


def test_no_columns_in_common(one: Path, tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "b.csv").write_text("u,v\n1,2\n3,4\n")
    error = refused(["fit", one, tmp_path / "b.csv", "-o", tmp_path / "m.clvm"], capsys)
    assert "have no numeric column in common" in error
    assert not (tmp_path / "m.clvm").exists()


def test_a_model_that_is_there_survives_a_failure(
    one: Path, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran("fit", one, *BY, *SMALL, "-o", tmp_path / "m.clvm")
    before = (tmp_path / "m.clvm").read_bytes()

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("contrastive_lvm.io.container.save_file", full)
    assert run(["fit", str(one), *BY, *SMALL, "-o", str(tmp_path / "m.clvm")]) == 2
    assert "(No space left on device)" in capsys.readouterr().err
    assert (tmp_path / "m.clvm").read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["m.clvm", "one.csv"]


def test_what_applies_models_refuses_what_does_not_fit(
    one: Path, tmp_path: Path, capsys: Capture
) -> None:
    model, out = tmp_path / "m.clvm", tmp_path / "out.csv"
    ran("fit", one, *BY, *SMALL, "-o", model)
    capsys.readouterr()
    clvm.PPCA(1).fit(DATA.target).save(tmp_path / "ppca.clvm")
    one_frame().drop(columns="c").to_csv(tmp_path / "less.csv", index=False)
    bad: list[tuple[list[object], str]] = [
        ([one, one, "-o", out], "is not a complete model file"),
        ([tmp_path / "none.clvm", one, "-o", out], "name a model file written by clvm fit"),
        ([tmp_path / "ppca.clvm", one, "-o", out], "contains a PPCA"),
        ([model, tmp_path / "less.csv", "-o", out], "lacks 1 of the 8 columns of the model ('c')"),
        ([model, one, "--of", "both", "-o", out], "--of=both is unknown"),
        ([model, one, "-o", tmp_path / "out.xlsx"], "unknown ending; use .csv"),
    ]
    for arguments, sentence in bad:
        assert sentence in refused(["transform", *arguments], capsys)
    assert not out.exists()


def test_damaged_preparations_are_refused(one: Path, tmp_path: Path, capsys: Capture) -> None:
    ran("fit", one, *BY, *SMALL, "-o", tmp_path / "m.clvm", "--scale", "standard")
    capsys.readouterr()
    estimator, section = read_model(tmp_path / "m.clvm")
    short = Scaling("none", np.zeros(1), np.ones(1))
    for changed in (
        section._replace(scaling=section.scaling._replace(method="odd")),
        section._replace(features=NAMES[:3]),
        section._replace(scaling=None),
        "nothing",
        section._replace(features=["a"], scaling=short),
    ):
        write_model(estimator, tmp_path / "bad.clvm", changed)
        error = refused(["transform", tmp_path / "bad.clvm", one], capsys)
        assert "is damaged: its preparation" in error


@pytest.mark.filterwarnings("ignore:n_shared=")
def test_models_saved_in_python_apply_to_files(one: Path, tmp_path: Path, capsys: Capture) -> None:
    frame = one_frame()
    parts = [frame.loc[frame["group"] == name, NAMES] for name in ("case", "control")]
    model = clvm.ContrastiveLVM(2, 2).fit(parts[0], background=parts[1])
    model.save(tmp_path / "m.clvm")
    ran("transform", tmp_path / "m.clvm", one, "--where", "group=case", "--json")
    np.testing.assert_allclose(facts_of(capsys)["values"], model.transform(parts[0]), atol=1e-6)


def test_sparse_rows_stay_sparse(tmp_path: Path, capsys: Capture) -> None:
    rng = np.random.default_rng(0)
    counts = rng.poisson(0.7, size=(120, 9)).astype(float)
    for name, rows in (("t", counts[:70]), ("b", counts[70:])):
        sparse.save_npz(tmp_path / f"{name}.npz", sparse.csr_array(rows))
    files = [tmp_path / "t.npz", tmp_path / "b.npz"]
    ran("fit", *files, *SMALL, "--scale", "standard", "-o", tmp_path / "m.clvm", "--json")
    facts = facts_of(capsys)
    spread = counts.std(axis=0)
    sets = [sparse.csr_array(part / spread) for part in (counts[:70], counts[70:])]
    model = clvm.ContrastiveLVM(2, 2).fit(sets[0], background=sets[1])
    assert facts["lower_bound"] == pytest.approx(model.lower_bound_)
    ran("transform", tmp_path / "m.clvm", files[0], "--json")
    np.testing.assert_allclose(facts_of(capsys)["values"], model.transform(sets[0]), atol=1e-8)


def test_counts_are_recognised(tmp_path: Path, capsys: Capture) -> None:
    rng = np.random.default_rng(0)
    for name in ("t", "b"):
        np.save(tmp_path / f"{name}.npy", rng.poisson(4.0, size=(60, 5)))
    ran("fit", tmp_path / "t.npy", tmp_path / "b.npy", *SMALL, "-o", tmp_path / "m.clvm", "--json")
    assert any("looks like counts" in warning for warning in facts_of(capsys)["warnings"])


@pytest.mark.slow
def test_a_network_is_fitted_and_applied(one: Path, tmp_path: Path, capsys: Capture) -> None:
    pytest.importorskip("jax", reason="jax is not installed")
    model = "vae:hidden_layer_sizes=4,max_epochs=2,batch_size=64,refine_steps=0"
    command = ["fit", one, *BY, "--model", model, *SMALL, "-o", tmp_path / "m.clvm", "--seed", 3]
    ran(*command, "--json")
    facts = facts_of(capsys)
    assert facts["estimator"] == "ContrastiveVAE"
    assert [len(dimension["features"]) for dimension in facts["dimensions"]] == [5, 5]
    ran("transform", tmp_path / "m.clvm", one, "--where", "group=case", "--json")
    frame = one_frame()
    target = frame.loc[frame["group"] == "case", NAMES]
    expected = clvm.load_model(tmp_path / "m.clvm").transform(target)
    np.testing.assert_allclose(facts_of(capsys)["values"], expected, atol=1e-5)


def test_a_checkpoint_reaches_the_network(one: Path, capsys: Capture) -> None:
    pytest.importorskip("jax", reason="jax is not installed")
    command = ["fit", one, *BY, "--model", "vae:resume=absent.ckpt"]
    assert run([str(own) for own in command]) == 2
    assert "resume='absent.ckpt' is not a file" in capsys.readouterr().err


def test_completion_scripts_are_there() -> None:
    program = "import sys; from contrastive_lvm.cli.main import run; sys.exit(run())"
    environment = os.environ | {"_CLVM_COMPLETE": "source_bash"}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert "complete" in done.stdout
    assert "clvm" in done.stdout


def test_mice_by_conditions_are_the_published_sets(tmp_path: Path, capsys: Capture) -> None:
    home = os.environ.get("CONTRASTIVE_LVM_DATA")
    path = Path(home or "", "mice_protein", "Data_Cortex_Nuclear.csv")
    if not home or not path.is_file():
        pytest.skip("CONTRASTIVE_LVM_DATA has no mice")
    chosen = ["--target", "Behavior=S/C", "--background", "Behavior=C/S"]
    chosen += ["--background", "Genotype=Control", "--where", "Treatment=Saline"]
    ran("fit", path, *chosen, "--n-shared", 2, "-o", tmp_path / "m.clvm", "--json")
    facts = facts_of(capsys)
    mice = clvm.datasets.fetch_mice_protein()
    model = clvm.ContrastiveLVM(2, 2).fit(mice.target, background=mice.background)
    assert (facts["target"]["rows"], facts["background"]["rows"]) == (270, 135)
    assert facts["lower_bound"] == pytest.approx(model.lower_bound_, rel=1e-6)
    assert facts["features"] == 77


def test_what_was_read_is_said_first(tmp_path: Path, capsys: Capture) -> None:
    """A spreadsheet with decimal commas, per cent signs, sample numbers, dates and notes."""
    rng = np.random.default_rng(0)
    rows = [
        f"{i};{20250301 + i % 9};{'case' if i % 2 else 'control'};fine;"
        + f"{rng.normal():.4f};{rng.normal():.4f};{rng.normal():.2f}%".replace(".", ",")
        for i in range(1, 41)
    ]
    path, output = tmp_path / "rows.csv", str(tmp_path / "m.clvm")
    path.write_text("\n".join(["sample;day;group;note;a;b;c", *rows]) + "\n")
    command = ["fit", str(path), "--by", "group", "--target", "case", "--n-shared", "1"]
    command += ["--n-target", "1", "-o", output]
    assert run([*command, "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["features"] == 3
    assert facts["columns"] == {
        "rows": {"target": 20, "background": 20},
        "features": 3,
        "feature_names": ["a", "b", "c"],
        "missing": 0.0,
        "groups": {"case": 20, "control": 20},
        "annotations": ["group", "note"],
        "identifiers": ["day", "sample"],
        "one_file_only": [],
        "empty": [],
        "rewritten": {
            "a": "decimal commas",
            "b": "decimal commas",
            "c": "decimal commas and per cent signs",
        },
        "censored": [],
        "remarks": [],
    }
    assert run(command) == 0
    assert capsys.readouterr().err.splitlines() == [
        "read        20 rows of the target, 20 rows of the background, 3 features, 0.0% missing",
        "groups      case 20, control 20",
        "features    a, b, c",
        "annotations group, note",
        "left out    day, sample (identifiers; --features all keeps them)",
        "read with   decimal commas: a, b",
        "read with   decimal commas and per cent signs: c",
    ]
    assert run([*command, "--features", "a", "--features", "b", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["features"] == 2
    assert run(["transform", output, str(path)]) == 0  # with the same columns, read the same way
