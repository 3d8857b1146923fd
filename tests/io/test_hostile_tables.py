"""Tables that lie about their sizes, point outside of themselves, or are no files at all."""

import gzip
import io
import os
import resource
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

from contrastive_lvm.io.tables.read import read_table

ROWS = np.array([[1.0, 0.0, 2.0], [0.0, 3.0, 0.0]])


def written(path: Path, kind: str, **changes: object) -> Path:
    """An npz file as `save_npz` writes it, with parts of it changed."""
    sparse.save_npz(path, getattr(sparse.csr_array(ROWS), f"to{kind}")())
    with np.load(path) as file:
        parts = {name: file[name] for name in file.files}
    np.savez(path, **(parts | {name: np.array(value) for name, value in changes.items()}))
    return path


@pytest.mark.parametrize("kind", ["csr", "csc", "bsr", "coo", "dia"])
def test_sparse_files_of_every_format(kind: str, tmp_path: Path) -> None:
    table = read_table(written(tmp_path / "rows.npz", kind))
    assert sparse.issparse(table.values)
    np.testing.assert_array_equal(table.values.toarray(), ROWS)


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        ("csr", {"indices": [0, 9, 1]}),
        ("csr", {"indices": [0, -1, 1]}),
        ("csr", {"indices": [0, 2**30, 1]}),
        ("csc", {"indices": [0, 5, 0]}),
        ("csr", {"indptr": [0, 3, 2]}),
        ("csr", {"indptr": [1, 2, 3]}),
        ("csr", {"indptr": [0, 2, 2000]}),
        ("csr", {"indptr": [0, 2]}),
        ("coo", {"col": [0, 2, 7]}),
        ("coo", {"row": [0, 0, -4]}),
        ("csr", {"shape": [2, 2**31]}),
        ("csc", {"shape": [2**31, 3]}),
        ("coo", {"shape": [2, 2**40]}),
        ("dia", {"shape": [2, 2**31]}),
    ],
)
def test_sparse_files_that_contradict_themselves(
    kind: str, changes: dict[str, list[int]], tmp_path: Path
) -> None:
    path = written(tmp_path / "rows.npz", kind, **changes)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(ValueError, match=r"rows\.npz (is a damaged|is not a complete|claims)"):
        read_table(path)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < before + 300_000  # kilobytes


@pytest.mark.parametrize("place", ["X", "layers/counts", "raw/X"])
@pytest.mark.parametrize("wrong", ["indices", "claim", "shape"])
def test_h5ad_files_that_contradict_themselves(place: str, wrong: str, tmp_path: Path) -> None:
    anndata = pytest.importorskip("anndata", reason="anndata is not installed")
    h5py = pytest.importorskip("h5py")
    path, values = tmp_path / "cells.h5ad", sparse.csr_matrix(ROWS)
    cells = anndata.AnnData(values, layers={"counts": values.copy()})
    cells.raw = cells
    cells.write_h5ad(path)
    with h5py.File(path, "r+") as file:
        if wrong == "indices":
            file[place]["indices"][1] = 2**30
        elif wrong == "shape":
            file[place].attrs["shape"] = [2**34, 2]
        else:
            del file[place]
            file.create_dataset(place, shape=(2, 2**33), chunks=(1, 2**16), dtype="f8")
    layer = {"X": None, "layers/counts": "counts", "raw/X": "raw"}[place]
    with pytest.raises(ValueError, match=r"cells\.h5ad (is a damaged sparse|claims 137,43)"):
        read_table(path, layer=layer)


@pytest.mark.parametrize(
    ("sizes", "words"),
    [
        ("2147483647 1 1", "a matrix of 2147483647 genes x 1 cells, but names of 2 genes"),
        ("2 2147483647 1", "2147483647 cells, but names of 2 genes and 1 cells"),
        ("2 1 99999999999999", "a matrix of 99999999999999 entries, but fewer lines"),
        ("2 1 1\n3 1", "is not a complete matrix"),
    ],
)
def test_counts_of_10x_that_claim_too_much(sizes: str, words: str, tmp_path: Path) -> None:
    kind = "%%MatrixMarket matrix coordinate integer general\n%a comment\n"
    (tmp_path / "matrix.mtx").write_text(f"{kind}{sizes}\n2 1 7\n")
    (tmp_path / "genes.tsv").write_text("ENSG1\tISG15\nENSG2\tCD3E\n")
    (tmp_path / "barcodes.tsv").write_text("ACGT-1\n")
    with pytest.raises(ValueError, match=words):
        read_table(tmp_path)


def test_a_parquet_file_that_claims_too_much(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    pd.DataFrame({"a": np.zeros(3_000_000)}).to_parquet(path)
    assert read_table(path).n_rows == 3_000_000
    from contrastive_lvm.io.atomic import refuse_claim

    with pytest.raises(ValueError, match="claims 16,000,000,000 bytes, but only 700 are stored"):
        refuse_claim(path, 16 * 10**9, 700)


@pytest.mark.parametrize("name", ["rows.npy", "rows.csv", "rows.npz"])
def test_files_of_holes(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(b"a,b\n1,2\n")
    os.truncate(path, 60 << 30)
    if path.stat().st_blocks * 512 > 1 << 30:
        pytest.skip("this file system has no holes")
    with pytest.raises(ValueError, match=f"{name} claims 64,424,509,440 bytes, but only"):
        read_table(path)


TEXT = "group,a,b\nx,1,2\ny,12\x0034,4\n"


@pytest.mark.parametrize("name", ["rows.csv", "rows.csv.gz", "rows.tsv"])
@pytest.mark.parametrize(
    ("text", "place"),
    [
        (TEXT, "line 3, column 2"),
        (TEXT.replace("group", '"gr,oup"'), "line 3, column 2"),
        (TEXT.replace("y,12\x0034,4", "y,1,2\n" * 200 + "z,1,\x005"), "line 203, column 3"),
        (TEXT.replace("x,1", "x\x00,1"), "line 2, column 1"),
    ],
)
def test_nul_bytes_are_refused(name: str, text: str, place: str, tmp_path: Path) -> None:
    raw = text.replace(",", "\t").replace("r\to", "r,o") if name.endswith("tsv") else text
    data = gzip.compress(raw.encode()) if name.endswith("gz") else raw.encode()
    (tmp_path / name).write_bytes(data)
    with pytest.raises(ValueError, match=f"{name} has a NUL byte in {place}; remove it"):
        read_table(tmp_path / name)


@pytest.mark.parametrize("name", ["ROWS.CSV", "rows.csv.GZ", "rows.Tsv.Gz", "rows.NPY", "rows.Npz"])
def test_endings_in_capitals(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    frame = pd.DataFrame(ROWS, columns=list("abc"))
    if "sv" in name.lower():
        text = frame.to_csv(index=False, sep="\t" if "tsv" in name.lower() else ",").encode()
        path.write_bytes(gzip.compress(text) if name.lower().endswith("gz") else text)
    else:
        buffer = io.BytesIO()
        (np.save if name.endswith("NPY") else np.savez)(buffer, ROWS)
        path.write_bytes(buffer.getvalue())
    np.testing.assert_array_equal(read_table(path).values, ROWS)


@pytest.mark.parametrize("name", ["rows.csv", "rows.npz", "rows.h5ad", "rows", "cells.tar"])
def test_pipes_are_not_waited_for(name: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / name)
    with pytest.raises(ValueError, match=f"{name} is a pipe; save its contents to a file"):
        read_table(tmp_path / name)


def test_bytes_are_text_or_refused(tmp_path: Path) -> None:
    names = np.array([b"age", "größe".encode(), b"z"])
    np.savez(tmp_path / "rows.npz", X=ROWS, feature_names=names, group=np.array([b"a", b"b"]))
    table = read_table(tmp_path / "rows.npz")
    assert table.features == ["age", "größe", "z"]
    assert table.annotations["group"].tolist() == ["a", "b"]
    np.savez(tmp_path / "rows.npz", X=ROWS, feature_names=np.array([b"\xff", b"b", b"c"]))
    with pytest.raises(ValueError, match=r"rows\.npz is not a complete npz file of words in UTF-8"):
        read_table(tmp_path / "rows.npz")
    pd.DataFrame({"a": [1.0, 2.0], "b": [b"12", b"13"]}).to_parquet(tmp_path / "rows.parquet")
    with pytest.raises(TypeError, match=r"rows\.parquet has bytes in column 'b', which are"):
        read_table(tmp_path / "rows.parquet")


@pytest.mark.parametrize("ending", ["csv", "csv.gz", "npy", "npz", "parquet", "h5ad", "tar"])
@pytest.mark.parametrize("what", ["empty", "folder"])
def test_empty_files_and_folders(what: str, ending: str, tmp_path: Path) -> None:
    if ending == "h5ad":
        pytest.importorskip("anndata", reason="anndata is not installed")
    path = tmp_path / f"rows.{ending}"
    if what == "empty":
        path.touch()
    else:
        path.mkdir()
    with pytest.raises(ValueError, match=rf"rows\.{ending} (is|has) .*; .*\.$"):
        read_table(path)
