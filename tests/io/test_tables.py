"""Tables in files: every format, every damage, which rows and which units."""

import gzip
import os
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

from contrastive_lvm.io.tables.choose_rows import (
    Choice,
    matching_rows,
    parse_condition,
    split_rows,
)
from contrastive_lvm.io.tables.preparation import (
    Preparation,
    Scaling,
    check_preparation,
    fit_scaling,
)
from contrastive_lvm.io.tables.prepare import read_rows, read_sets
from contrastive_lvm.io.tables.read import read_table
from contrastive_lvm.io.tables.table import Table
from contrastive_lvm.linalg.matrices import is_sparse, widen

FRAME = pd.DataFrame(
    {
        "mouse": ["a", "b", "c", "d"],
        "weight": [21.5, np.nan, 19.25, 20.0],
        "legs": [4, 4, 3, 4],
        "group": ["case", "control", "case", "other"],
    }
)
VALUES = np.array([[21.5, 4.0], [np.nan, 4.0], [19.25, 3.0], [20.0, 4.0]])


def written(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


@pytest.mark.parametrize("ending", [".csv", ".tsv", ".csv.gz", ".tsv.gz", ".txt", ".parquet"])
def test_frames_come_back(ending: str, tmp_path: Path) -> None:
    path = tmp_path / f"mice.v1{ending}"
    if ending == ".parquet":
        FRAME.to_parquet(path)
    else:
        FRAME.to_csv(path, index=False, sep="," if ".csv" in ending else "\t")
    table = read_table(path)
    np.testing.assert_array_equal(table.values, VALUES)
    assert table.values.dtype == np.float64
    assert table.features == ["weight", "legs"]
    assert table.named
    pd.testing.assert_frame_equal(
        table.annotations, FRAME[["mouse", "group"]], check_dtype=False, check_column_type=False
    )
    assert table.row_names is None


@pytest.mark.parametrize("dtype", ["float32", "float64", "int16", "bool", "float16"])
def test_npy_keeps_single_precision_and_widens_the_rest(dtype: str, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.eye(3, 2).astype(dtype))
    table = read_table(tmp_path / "x.npy")
    single = dtype in ("float32", "float16")
    assert table.values.dtype == (np.float32 if single else np.float64)
    np.testing.assert_array_equal(table.values, np.eye(3, 2))
    assert table.features == ["x1", "x2"]
    assert not table.named


def test_npz_with_names_and_annotations(tmp_path: Path) -> None:
    np.savez(
        tmp_path / "x.npz",
        rows=VALUES,
        feature_names=["weight", "legs"],
        row_names=["a", "b", "c", "d"],
        group=FRAME["group"].to_numpy(dtype=np.str_),
    )
    table = read_table(tmp_path / "x.npz")
    assert table.features == ["weight", "legs"]
    assert table.row_names == ["a", "b", "c", "d"]
    assert table.annotations["group"].tolist() == FRAME["group"].tolist()


def test_sparse_npz_stays_sparse(tmp_path: Path) -> None:
    matrix = sparse.csr_array(np.eye(4, 3))
    sparse.save_npz(tmp_path / "x.npz", matrix)
    table = read_table(tmp_path / "x.npz")
    assert is_sparse(table.values)
    np.testing.assert_array_equal(widen(table.values), np.eye(4, 3))


@pytest.mark.parametrize("thin", [True, False])
def test_h5ad(thin: bool, tmp_path: Path) -> None:  # noqa: FBT001
    anndata = pytest.importorskip("anndata", reason="anndata is not installed")
    X = np.eye(4, 2, dtype=np.float32)
    obs = pd.DataFrame({"group": list("aabb"), "age": [1, 2, 3, 4]}, index=list("wxyz"))
    var = pd.DataFrame(index=["g1", "g2"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        held = sparse.csr_matrix(X) if thin else X
        anndata.AnnData(held, obs=obs, var=var).write_h5ad(tmp_path / "x.h5ad")
    table = read_table(tmp_path / "x.h5ad")
    assert is_sparse(table.values) == thin
    assert table.values.dtype == np.float32
    assert (table.features, table.row_names) == (["g1", "g2"], list("wxyz"))
    assert list(table.annotations) == ["group", "age"]


def test_10x_folder(tmp_path: Path) -> None:
    kind = "%%MatrixMarket matrix coordinate integer general"
    written(tmp_path / "matrix.mtx", f"{kind}\n2 3 2\n2 1 7\n1 3 4\n")
    written(tmp_path / "genes.tsv", "E1\tISG15\nE2\tCD3E\n")
    written(tmp_path / "barcodes.tsv", "A\nB\nC\n")
    table = read_table(tmp_path)
    np.testing.assert_array_equal(widen(table.values), [[0, 7], [0, 0], [4, 0]])
    assert (table.features, table.row_names) == (["ISG15", "CD3E"], ["A", "B", "C"])


def test_rows_may_be_named_as_pandas_and_as_r_do(tmp_path: Path) -> None:
    pandas = read_table(written(tmp_path / "p.csv", ",u,v\n007,1,2\nq,3,4\n"))
    r = read_table(written(tmp_path / "r.tsv", "u\tv\n007\t1\t2\nq\t3\t4\n"))
    for table in (pandas, r):
        assert table.row_names == ["007", "q"]
        assert table.features == ["u", "v"]
        np.testing.assert_array_equal(table.values, [[1, 2], [3, 4]])


def test_semicolons_quotes_marks_and_missing_words(tmp_path: Path) -> None:
    content = '\ufeff"a, b";c; d\n1;NA; x\n;NaN;"None"\n2;3;\n'
    table = read_table(written(tmp_path / "x.csv", content))
    np.testing.assert_array_equal(table.values, [[1, np.nan], [np.nan, np.nan], [2, 3]])
    assert table.features == ["a, b", "c"]
    assert table.annotations["d"].tolist()[:2] == ["x", "None"]
    assert table.annotations["d"].isna().tolist() == [False, False, True]


def test_words_and_missing_entries_that_begin_late(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(950, 3)).round(3), columns=list("xyz"))
    frame["late"] = [None] * 700 + ["word"] * 250
    frame.loc[:300, "y"] = np.nan
    frame["flag"] = frame["x"] > 0
    frame.to_csv(tmp_path / "x.csv", index=False)
    table = read_table(tmp_path / "x.csv")
    assert table.features == ["x", "y", "z"]
    np.testing.assert_array_equal(table.values, frame[["x", "y", "z"]])
    assert list(table.annotations) == ["late", "flag"]


def test_numbers_stay_numbers_unless_named_annotations(tmp_path: Path) -> None:
    path = written(tmp_path / "x.csv", "code,value\n1,0.5\n2,0.25\n")
    assert read_table(path).features == ["code", "value"]
    table = read_table(path, annotations=["code"])
    assert table.features == ["value"]
    assert table.annotations["code"].tolist() == [1, 2]
    np.save(tmp_path / "x.npy", np.arange(6.0).reshape(2, 3))
    table = read_table(tmp_path / "x.npy", annotations=["x2"])
    assert table.features == ["x1", "x3"]
    assert table.annotations["x2"].tolist() == [1, 4]
    with pytest.raises(ValueError, match=r"no column 'cod'; it has 'code', 'value'\."):
        read_table(path, annotations=["cod"])


ROWS = "".join(f"{i},{i}.5\n" for i in range(200))
BAD: dict[str, tuple[str | bytes, str]] = {
    "long.csv": ("a,b\n1,2\n1,2,3\n", r"long\.csv .*Expected 2 fields in line 3, saw 3"),
    "short.csv": ("a,b\n1,2\n1\n3,4\n", r"has 1 values in row 2, but its first line names 2 col"),
    "shorts.tsv": ("a\tb\n1\n", r"has 1 values in row 1, but its first line names 2 columns"),
    "trailing.csv": ("a,b\n1,2,\n1,2,\n", r"has 3 values in row 1"),
    "word.csv": (
        f"a,b\n{ROWS}7,oops\n",
        r"has 'oops' in row 201 of column 'b', where other rows have numbers; .*--annotation b\.",
    ),
    "number.csv": (
        "a,b\n1,x\n2,y\n3,4\n",
        r"has '4' in row 3 of column 'b', where other rows have words",
    ),
    "twice.csv": ("a,b,a\n1,2,3\n", r"more than one column 'a'; rename"),
    "nameless.csv": ("a,,b\n1,2,3\n", r"no name for column 2"),
    "latin.csv": (b"a,b\n1,caf\xe9\x90\n", r"is not UTF-8 text \(byte 0x90"),
    "utf16.csv": ("a,b\n1,2\n".encode("utf-16")[:-1], r"is not UTF-"),
    "empty.csv": ("", r"is empty; give a file"),
    "blank.csv": ("\n\n", r"is empty; give a file"),
    "header.csv": ("a,b\n", r"has no rows below its column names"),
    "words.csv": ("a,b\nx,y\n", r"has no numeric column for the model"),
    "binary.csv": (b"\0\1\2,\0\n1,2\n", r"is not a text file"),
    "cut.csv.gz": (gzip.compress(ROWS.encode())[:-200], r"is not a complete gzip file"),
    "no.csv.gz": ("a,b\n1,2\n", r"is not a complete gzip file"),
    "broken.npy": (b"\x93NUMPY\1\0", r"is not a complete NumPy file"),
    "broken.npz": (b"PK\3\4", r"is not a complete npz file"),
    "broken.h5ad": (b"HDF", r"is not a complete h5ad file"),
    "broken.parquet": (b"PAR1", r"is not a complete Parquet file"),
    "picture.png": (b"", r"unknown ending; use \.csv"),
}


@pytest.mark.parametrize("name", BAD)
def test_damaged_files_are_one_sentence(name: str, tmp_path: Path) -> None:
    if name.endswith(".h5ad"):
        pytest.importorskip("anndata", reason="anndata is not installed")
    content, sentence = BAD[name]
    with pytest.raises(ValueError, match=sentence) as caught:
        read_table(written(tmp_path / name, content))
    assert name in str(caught.value)
    assert str(caught.value).endswith(".")


def test_numbers_that_begin_late_among_words_are_refused(tmp_path: Path) -> None:
    late = "a,b\n" + "1,x\n" * 150 + "1,2\n"
    with pytest.raises(ValueError, match=r"has '?2'? in row 151 of column 'b', where .* words"):
        read_table(written(tmp_path / "y.csv", late))


@pytest.mark.parametrize(
    ("array", "sentence"),
    [
        (np.ones(3), r"shape \(3,\), but needs two dimensions"),
        (np.array([["a"]]), r"type <U1, which are not real numbers"),
        (np.ones((0, 3)), r"has no rows"),
        (np.array([[None]], dtype=object), r"is not a complete NumPy file"),
    ],
)
def test_arrays_that_are_no_tables(array: Any, sentence: str, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", array, allow_pickle=True)
    with pytest.raises(ValueError, match=sentence):
        read_table(tmp_path / "x.npy")


def test_two_matrices_without_the_name_x_are_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", a=np.eye(2), b=np.eye(2))
    with pytest.raises(ValueError, match=r"has 2 arrays of two dimensions \(a, b\)"):
        read_table(tmp_path / "x.npz")


def test_folders_absent_files_and_permissions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ValueError, match=r"has no matrix\.mtx"):
        read_table(tmp_path)
    for name in ("x.csv", "x.npy", "x.parquet", "x.h5ad"):
        with pytest.raises(FileNotFoundError, match=rf"{name} does not exist; check its name\."):
            read_table(tmp_path / name)
    path = written(tmp_path / "x.csv", "a\n1\n")
    if os.geteuid() == 0:  # who may read everything

        def deny(*_: object, **__: object) -> None:
            raise PermissionError(13, "Permission denied")

        monkeypatch.setattr(Path, "open", deny)
    else:
        path.chmod(0)
    with pytest.raises(PermissionError, match=r"cannot be opened \(permission denied\)"):
        read_table(path)


def test_extras_that_are_not_installed_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "anndata", None)
    with pytest.raises(ImportError, match=r"need anndata, .*contrastive-lvm\[anndata\]"):
        read_table(written(tmp_path / "x.h5ad", b""))


def mice(tmp_path: Path) -> Path:
    FRAME.to_csv(tmp_path / "mice.csv", index=False)
    return tmp_path / "mice.csv"


def test_conditions_on_one_column_are_alternatives_and_on_several_all_hold(tmp_path: Path) -> None:
    table = read_table(mice(tmp_path), annotations=["legs"])

    def found(*conditions: str) -> list[bool]:
        mask = matching_rows(table, [parse_condition("--where", c) for c in conditions])
        return [bool(met) for met in mask]

    assert found() == [True] * 4
    assert found("group=case", "group=other") == [True, False, True, True]
    assert found("group=case", "legs=4") == [True, False, False, False]
    assert found("group!=case", "legs=4.0") == [False, True, False, True]


@pytest.mark.parametrize(
    ("choice", "sentence"),
    [
        (Choice(by="grup", target=["case"]), "has no column 'grup'"),
        (Choice(where=["mous=a"], target=["group=case"]), "has no column 'mous'"),
        (Choice(by="group", target=["cas"]), r"--target: .*no value 'cas'; it has 'case', 'contr"),
        (Choice(by="group", target=["case"], background=["x"]), "--background: .*no value 'x'"),
        (Choice(by="group"), "--by group needs --target VALUE; the column has the values 'case'"),
        (
            Choice(target=["case"]),
            "--target 'case' is not a condition; write --target COLUMN=VALUE, ",
        ),
        (Choice(target=["group=case"]), "--background is missing"),
        (Choice(), "alone does not say which rows are the background"),
        (Choice(target=["legs=4"], background=["group=case"]), "1 rows of .* target and backgr"),
        (Choice(where=["mouse=b"], by="group", target=["case"]), "no row for the target"),
    ],
)
def test_groups_that_are_not_there(choice: Choice, sentence: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=sentence):
        read_sets(mice(tmp_path), None, choice)


def test_one_file_by_a_column(tmp_path: Path) -> None:
    sets = read_sets(mice(tmp_path), None, Choice(by="group", target=["case"]))
    assert sets.background is not None
    np.testing.assert_array_equal(sets.target.values, VALUES[[0, 2]])
    np.testing.assert_array_equal(sets.background.values, VALUES[[1, 3]])
    assert sets.target.annotations["mouse"].tolist() == ["a", "c"]
    assert sets.target.row_names == ["1", "3"]
    only = Choice(by="group", target=["case"], background=["other"])
    background = read_sets(mice(tmp_path), None, only).background
    assert background is not None
    assert background.annotations["mouse"].tolist() == ["d"]


def test_a_column_of_conditions_never_reaches_the_model(tmp_path: Path) -> None:
    path = written(tmp_path / "x.csv", "code,v\n0,1\n1,2\n0,3\n1,4\n")
    sets = read_sets(path, None, Choice(by="code", target=["1"], background=["0"]))
    assert sets.preparation.features == ["v"]
    np.testing.assert_array_equal(sets.target.values, [[2], [4]])


def test_division_is_the_same_whichever_set_is_larger() -> None:
    rng = np.random.default_rng(1)
    values = rng.normal(size=(3000, 400))
    first = rng.random(3000) < 0.7
    notes = pd.DataFrame({"i": range(3000)})
    for one, two in ((first, ~first), (~first, first & (rng.random(3000) < 0.9))):
        table = Table(values.copy(), [], notes, None, named=True, source="x")
        a, b = split_rows(table, one, two)
        np.testing.assert_array_equal(a.values, values[one])
        np.testing.assert_array_equal(b.values, values[two])
        np.testing.assert_array_equal(b.annotations["i"], np.flatnonzero(two))


def test_two_files_keep_common_columns_in_the_order_of_the_target(tmp_path: Path) -> None:
    one = written(tmp_path / "t.csv", "a,b,only,name\n1,2,3,x\n4,5,6,y\n")
    two = written(tmp_path / "b.csv", "other,b,a\n0,20,10\n0,50,40\n")
    sets = read_sets(one, two, Choice())
    assert sets.background is not None
    assert sets.target.features == sets.background.features == ["a", "b"]
    np.testing.assert_array_equal(sets.background.values, [[10, 20], [40, 50]])
    assert sets.dropped == ["only", "other"]


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("u,v\n1,2\n", r"have no numeric column in common \('a', 'b'; 'u', 'v'\)"),
        ("a,b\n1,x\n", r"has numbers in column 'b', .*b\.csv has text"),
    ],
)
def test_two_files_that_do_not_fit(content: str, sentence: str, tmp_path: Path) -> None:
    one = written(tmp_path / "t.csv", "a,b\n1,2\n")
    with pytest.raises(ValueError, match=sentence):
        read_sets(one, written(tmp_path / "b.csv", content), Choice())
    np.save(tmp_path / "x.npy", np.eye(3))
    with pytest.raises(ValueError, match=r"has 2 numeric columns, .*has 3, and without names"):
        read_sets(one, tmp_path / "x.npy", Choice())


def test_columns_without_values_in_a_set_are_named(tmp_path: Path) -> None:
    path = written(tmp_path / "x.csv", "g,a,b\nt,1,2\nt,2,3\nc,1,\nc,5,NA\n")
    with pytest.raises(ValueError, match=r"no value in column 'b' in one of .* --annotation b\."):
        read_sets(path, None, Choice(by="g", target=["t"]))


@pytest.mark.parametrize("method", ["standard", "robust"])
def test_scaling_is_of_both_sets_together(method: str) -> None:
    rng = np.random.default_rng(0)
    sets = [rng.normal(3.0, [1, 5, 9], (n, 3)) for n in (40, 61)]
    sets[0][3, 1] = np.nan
    sets[1][:, 2] = sets[0][:, 2] = 7.0
    pooled = np.concatenate(sets)
    scaling = fit_scaling(method, list(sets))
    if method == "standard":
        center, spread = np.nanmean(pooled, axis=0), np.nanstd(pooled, axis=0)
    else:
        low, center, high = np.nanpercentile(pooled, [25, 50, 75], axis=0)
        spread = (high - low) / 1.3489795
    spread[2] = 1.0  # it does not vary
    np.testing.assert_allclose(scaling.center, center)
    np.testing.assert_allclose(scaling.scale, spread)
    scaled = widen(scaling.apply(sets[0].copy()))
    np.testing.assert_allclose(scaling.undo(scaled), sets[0])
    np.testing.assert_allclose(scaled, (sets[0] - center) / spread)


def test_sparse_rows_are_divided_but_not_centred() -> None:
    dense = np.array([[0.0, 2.0], [0.0, 0.0], [3.0, 4.0]])
    scaling = fit_scaling("standard", [sparse.csr_array(dense)])
    scaled = scaling.apply(sparse.csr_array(dense))
    assert is_sparse(scaled)
    np.testing.assert_allclose(scaled.toarray(), dense / dense.std(axis=0))
    with pytest.raises(ValueError, match="use --scale standard"):
        fit_scaling("robust", [sparse.csr_array(dense)])


def test_new_rows_get_the_columns_and_units_of_the_fit(tmp_path: Path) -> None:
    path = mice(tmp_path)
    sets = read_sets(path, None, Choice(by="group", target=["case"]), scale="standard")
    new = written(tmp_path / "new.csv", "extra,legs,when,weight\n1,3,mixed,19\n2,4,7,20\n")
    table = read_rows(new, sets.preparation)
    center, scale = sets.preparation.scaling[1:]
    np.testing.assert_allclose(widen(table.values), (np.array([[19, 3], [20, 4]]) - center) / scale)
    assert list(table.annotations) == ["extra", "when"]
    with pytest.raises(ValueError, match=r"columns of the model \('legs'\)"):
        read_rows(written(tmp_path / "n.csv", "weight\n1\n"), sets.preparation)


@pytest.mark.parametrize(
    "change",
    [
        {"features": ["a"]},
        {"features": None},
        {"named": "yes"},
        {"scale": "odd"},
        {"center": np.array([np.nan, 0.0])},
        {"divisor": np.zeros(2)},
    ],
)
def test_a_preparation_that_is_damaged_is_refused(change: dict[str, Any]) -> None:
    whole: dict[str, Any] = {"features": ["a", "b"], "named": True, "scale": "standard"}
    whole |= {"center": np.zeros(2), "divisor": np.ones(2)}

    def preparation(held: dict[str, Any]) -> Preparation:
        scaling = Scaling(held["scale"], held["center"], held["divisor"])
        return Preparation(held["features"], held["named"], scaling)

    assert check_preparation(preparation(whole), Path("m")).features == ["a", "b"]
    with pytest.raises(ValueError, match="m is damaged: its preparation"):
        check_preparation(preparation(whole | change), Path("m"))


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("n", [1, 7, 16, 333])
def test_dividing_keeps_the_order_of_both_sets_and_the_array(n: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    kinds = rng.integers(0, 3, size=n)  # the third set is in neither
    rows = rng.normal(size=(n, 3))
    array = rows.copy()
    notes = pd.DataFrame({"kind": kinds})
    table = Table(array, list("abc"), notes, None, named=True, source="here.csv")
    for found, kind in zip(split_rows(table, kinds == 0, kinds == 1), (0, 1), strict=True):
        np.testing.assert_array_equal(found.values, rows[kinds == kind])
        assert np.shares_memory(found.values, array) or not len(found.values)
        assert (found.annotations["kind"] == kind).all()
        assert found.labels() == [str(i + 1) for i in np.flatnonzero(kinds == kind)]
