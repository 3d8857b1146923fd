"""Large files: their numbers stay on disk, and results are those in memory."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import contrastive_lvm as clvm
from contrastive_lvm.cli.main import run
from contrastive_lvm.io.tables.choose_rows import Choice
from contrastive_lvm.io.tables.on_disk import empty_map, is_on_disk
from contrastive_lvm.io.tables.prepare import Sets, read_sets
from contrastive_lvm.io.tables.table import layout_of
from contrastive_lvm.linalg.matrices import widen

BY = Choice(by="group", target=["case"])


def frame(dtype: str = "f8") -> pd.DataFrame:
    data = clvm.datasets.make_contrastive(60, 50, n_features=6, n_shared=1, random_state=0)
    rows = np.vstack([data.target, data.background]).astype(dtype)
    order = np.random.default_rng(0).permutation(len(rows))
    found = pd.DataFrame(rows[order], columns=[f"g{i}x" for i in range(6)])
    found.loc[3, "g1x"], found.loc[5, "g2x"] = -9.0, np.nan
    found["group"] = np.where(order < 60, "case", "control")
    found["note"] = pd.Categorical(["a", "b"] * 55)
    return found.set_axis([f"row{i}" for i in range(110)])


def written(path: Path, rows: pd.DataFrame) -> Path:
    if path.suffix == ".parquet":
        rows.to_parquet(path)
        return path
    anndata = pytest.importorskip("anndata")
    notes, X = rows[["group", "note"]], rows.drop(columns=["group", "note"])
    cells = anndata.AnnData(X.to_numpy(), obs=notes, var=pd.DataFrame(index=X.columns))
    cells.layers["half"] = X.to_numpy() / 2
    cells.write_h5ad(path)
    return path


def on_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("contrastive_lvm.io.tables.binary.LARGE", 0)


def check(found: Sets, wanted: Sets) -> None:
    assert found.preparation.features == wanted.preparation.features
    assert (found.dropped, found.empty) == (wanted.dropped, wanted.empty)
    for one, other in zip(found.tables, wanted.tables, strict=True):
        assert is_on_disk(one.values)
        assert not is_on_disk(other.values)
        assert one.values.dtype == other.values.dtype
        np.testing.assert_allclose(widen(one.values), widen(other.values), rtol=1e-6)
        assert one.row_names == other.row_names
        pd.testing.assert_frame_equal(one.annotations, other.annotations)


@pytest.mark.parametrize("dtype", ["f8", "f4"])
@pytest.mark.parametrize("scale", ["none", "standard", "robust"])
@pytest.mark.parametrize("ending", ["parquet", "h5ad"])
def test_rows_on_disk_are_those_in_memory(
    ending: str, scale: str, dtype: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(tmp_path / f"a.{ending}", frame(dtype))
    choice = BY._replace(layout=layout_of(na=["-9"], drop=["g4x"]), annotations=["g3x"])
    wanted = read_sets(path, None, choice, scale)
    on_disk(monkeypatch)
    check(read_sets(path, None, choice, scale), wanted)


def test_layers_and_files_of_another_form(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path / "a.h5ad", frame())
    mixed = tmp_path / "mixed.parquet"
    frame().assign(price=["1,5", "2"] * 55, empty=None).to_parquet(mixed)
    half = BY._replace(layer="half")
    wanted = [read_sets(path, None, half), read_sets(mixed, None, BY)]
    on_disk(monkeypatch)
    check(read_sets(path, None, half), wanted[0])
    whole = read_sets(mixed, None, BY)  # a column without any value has no type
    np.testing.assert_array_equal(whole.target.values, wanted[1].target.values)
    with pytest.raises(ValueError, match="has no layer 'none'; it has half, beside X"):
        read_sets(path, None, BY._replace(layer="none"))


@pytest.mark.parametrize("kind", ["f8", ">f4", "u1", "columns"])
def test_arrays(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = np.random.default_rng(0).poisson(5, (60, 4))
    given = np.asfortranarray(rows, "f8") if kind == "columns" else rows.astype(kind)
    first, second = tmp_path / "a.npy", tmp_path / "b.npy"
    np.save(first, given)
    np.save(second, given[:50] + 1)
    before = first.read_bytes()
    wanted = read_sets(first, second, Choice(), "standard")
    on_disk(monkeypatch)
    found = read_sets(first, second, Choice(), "standard")
    np.testing.assert_array_equal(found.target.values, wanted.target.values)
    assert is_on_disk(found.target.values) == (kind != "columns")
    assert first.read_bytes() == before


def test_commands_give_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """A fit and its report, latents and a picture; the test of contrast takes rows at random."""
    path, model = written(tmp_path / "a.parquet", frame()), str(tmp_path / "m.clvm")
    words = ["fit", str(path), "--by", "group", "--target", "case", "--n-shared", "1", "--json"]
    words += ["--bootstrap", "0", "--resamples", "19", "-o", model]
    assert run(words) == 0
    wanted = json.loads(capsys.readouterr().out)
    on_disk(monkeypatch)
    assert run([*words, "--report", str(tmp_path / "r.html")]) == 0
    found = json.loads(capsys.readouterr().out)
    said = " The test took 60 and 50 rows of the two sets, drawn at random."
    assert found["verdict"] == wanted["verdict"] + said
    assert found["lower_bound"] == pytest.approx(wanted["lower_bound"], rel=1e-8)
    assert [own["features"] for own in found["dimensions"]] == [
        [feature | {"loading": pytest.approx(feature["loading"], abs=1e-6)} for feature in own]
        for own in (dimension["features"] for dimension in wanted["dimensions"])
    ]
    assert run(["transform", model, str(path)]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 111
    assert run(["plot", "missing", model, "--yes", "-o", str(tmp_path / "m.png")]) == 0


def test_a_disk_without_room_is_said() -> None:
    with pytest.raises(OSError, match=r"has no room for .* GB of rows; set TMPDIR to a folder on"):
        empty_map((10**9, 10**6), np.float64)
