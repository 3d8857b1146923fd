"""Counts of cells: files of 10x Genomics and GEO as published, but small."""

import gzip
import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array

from contrastive_lvm import datasets
from contrastive_lvm.datasets.geo import read_origins
from contrastive_lvm.datasets.single_cells import most_variable
from tests.datasets.published_files import isolate, matrix_market, put, tarred

COUNTS = np.array([[0, 1, 0], [5, 0, 2]])
INSIDE = "filtered_matrices_mex/hg19/"
GENES = b"ENSG1\tISG15\nENSG2\tCD3E\nENSG3\tCD3E\n"
RUNS = {"ctrl": ("GSM2560248_2.1", "GSM2560248"), "stim": ("GSM2560249_2.2", "GSM2560249")}
N_CELLS, N_GENES = 1100, 6


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return isolate(tmp_path, monkeypatch)


def parts(counts: np.ndarray = COUNTS, genes: bytes = GENES) -> dict[str, bytes]:
    barcodes = "".join(f"ACGT{'ACGT'[i % 4]}-1\n" for i in range(len(counts))).encode()
    return {"matrix.mtx": matrix_market(counts), "genes.tsv": genes, "barcodes.tsv": barcodes}


def archive(files: Mapping[str, bytes]) -> bytes:
    return tarred({INSIDE + name: raw for name, raw in files.items()})


def check(cells: datasets.TenX) -> None:
    np.testing.assert_array_equal(cells.counts.toarray(), COUNTS)
    assert cells.genes == ["ISG15", "CD3E (ENSG2)", "CD3E (ENSG3)"]
    assert cells.gene_ids == ["ENSG1", "ENSG2", "ENSG3"]
    assert cells.barcodes == ["ACGTA-1", "ACGTC-1"]


def test_10x_archives_and_folders_are_the_same(home: Path) -> None:
    check(datasets.read_10x(put(home, "cells.tar.gz", archive(parts()))))
    for name, raw in parts().items():
        put(home, f"plain/{INSIDE}{name}", raw)
        newer = name.replace("genes", "features")
        put(home, f"gz/{newer}.gz", gzip.compress(raw))
    check(datasets.read_10x(home / "plain"))
    check(datasets.read_10x(str(home / "gz")))


@pytest.mark.parametrize(
    ("raw", "pattern"),
    [
        (archive(parts())[:200], "cells.tar.gz is not a complete 10x archive"),
        (archive(parts())[:-30], "cells.tar.gz is not a complete 10x archive"),
        (b"words", r"cells.tar.gz is not a complete 10x archive \(file could not be opened succ"),
        (archive({"matrix.mtx": b""}), r"cells.tar.gz has no genes\.tsv"),
        (archive({}), r"cells.tar.gz has no matrix\.mtx"),
        (archive(parts() | {"x/matrix.mtx": b""}), "cells.tar.gz has more than one matrix"),
        (archive(parts() | {"matrix.mtx": b"7 7\n"}), "not sparse, of whole or real num"),
        (
            archive(parts() | {"matrix.mtx": parts()["matrix.mtx"][:-6]}),
            "not a complete matrix",
        ),
        (archive(parts() | {"matrix.mtx": parts()["matrix.mtx"][:-7]}), "cut off or not text"),
        (archive(parts() | {"matrix.mtx": parts()["matrix.mtx"] + b"\xc3"}), "cut off or not text"),
        (archive(parts() | {"genes.tsv": b"A\n"}), "3 genes x 2 cells, but names of 1 genes and 2"),
        (archive(parts() | {"genes.tsv.gz": b"A\n"}), "not a complete 10x archive .Not a gzipped"),
        (archive(parts(-COUNTS)), "negative counts"),
    ],
)
def test_damaged_10x_archives_are_a_sentence(home: Path, raw: bytes, pattern: str) -> None:
    with pytest.raises(ValueError, match=pattern):
        datasets.read_10x(put(home, "cells.tar.gz", raw))


def test_10x_that_is_not_there_is_named(home: Path) -> None:
    with pytest.raises(FileNotFoundError, match="nowhere does not exist; name a 10x archive"):
        datasets.read_10x(home / "nowhere")


def test_most_variable_genes_are_those_of_the_dense_ratio() -> None:
    counts = np.random.default_rng(0).negative_binomial(0.3, 0.05, (200, 30))
    counts[:, 4] = 0
    ratio = counts.var(axis=0) / np.maximum(counts.mean(axis=0), 1e-300)
    expected = np.sort(np.argsort(-ratio)[:7])
    np.testing.assert_array_equal(most_variable(csr_array(counts), 7), expected)
    assert 4 not in most_variable(csr_array(counts), 29)
    with pytest.raises(ValueError, match="n_genes=31 must be an integer from 1 to 30"):
        most_variable(csr_array(counts), 31)


def test_bone_marrow_is_three_archives(home: Path) -> None:
    rng = np.random.default_rng(1)
    names = ("aml027_pre_transplant", "aml027_post_transplant", "frozen_bmmc_healthy_donor1")
    genes = "".join(f"ENSG{i}\tG{i}\n" for i in range(9)).encode()
    drawn = [rng.poisson(3, (n, 9)) * rng.integers(0, 5, (n, 1)) for n in (5, 4, 3)]
    for name, counts in zip(names, drawn, strict=True):
        raw = archive(parts(counts, genes))
        put(home, f"bmmc/{name}_filtered_gene_bc_matrices.tar.gz", raw)
    data = datasets.fetch_bmmc(4)
    both = np.vstack(drawn)
    kept = np.sort(np.argsort(-both.var(axis=0) / both.mean(axis=0))[:4])
    np.testing.assert_array_equal(data.target, both[:9, kept])
    np.testing.assert_array_equal(data.background, drawn[2][:, kept])
    np.testing.assert_array_equal(data.target_totals, both[:9].sum(axis=1))
    np.testing.assert_array_equal(data.background_totals, drawn[2].sum(axis=1))
    assert data.target_labels.tolist() == [0] * 5 + [1] * 4
    assert data.feature_names == [f"G{i}" for i in kept]
    assert data.target_types is data.background_types is None
    other = archive(parts(drawn[1], genes.replace(b"ENSG3", b"ENSG33")))
    put(home, f"bmmc/{names[1]}_filtered_gene_bc_matrices.tar.gz", other)
    with pytest.raises(ValueError, match=r"post_transplant.* does not have the same genes as"):
        datasets.fetch_bmmc(4)


def kang_arrays(**changes: Any) -> dict[str, Any]:
    counts = np.random.default_rng(2).poisson(2, (6, 5)).astype(np.uint16)
    arrays = {
        "X": counts,
        "genes": np.array([f"G{i}" for i in range(5)]),
        "cell_type": np.array(["B", "NK", "B", "DC", "B", "NK"]),
        "total_counts": counts.sum(axis=1) + 10,
        "target_idx": np.array([0, 3, 5], dtype=np.int16),
        "target_label": np.array([0, 1, 1], dtype=np.int8),
        "background_idx": np.array([1, 2], dtype=np.int16),
    }
    return {name: value for name, value in (arrays | changes).items() if value is not None}


def stored(arrays: Mapping[str, Any]) -> bytes:
    out = io.BytesIO()
    np.savez(out, **arrays)
    return out.getvalue()


def sparse_arrays(counts: np.ndarray, **changes: Any) -> dict[str, Any]:
    sparse = csr_array(counts)
    return {
        "data": sparse.data,
        "indices": sparse.indices.astype(np.uint16),
        "indptr": sparse.indptr,
        "shape": np.array(counts.shape),
        "genes": np.array([f"A{i}" for i in range(counts.shape[1])]),
    } | changes


def test_blood_cells_from_arrays(home: Path) -> None:
    put(home, "kang_pbmc/kang_pbmc_500genes.npz", stored(kang_arrays()))
    data, X = datasets.fetch_kang_pbmc(), kang_arrays()["X"]
    np.testing.assert_array_equal(data.target, X[[0, 3, 5]])
    np.testing.assert_array_equal(data.background, X[[1, 2]])
    np.testing.assert_array_equal(data.background_totals, X[[1, 2]].sum(axis=1) + 10)
    assert data.target_labels.tolist() == [0, 1, 1]
    assert data.target_types is not None
    assert data.target_types.tolist() == ["B", "DC", "NK"]
    counts = np.random.default_rng(3).poisson(2, (6, 8)) * np.arange(8)
    everything = "kang_pbmc/kang_pbmc_allgenes_csr.npz"
    put(home, everything, stored(sparse_arrays(counts)))
    few = datasets.fetch_kang_pbmc(3)
    kept = most_variable(csr_array(counts[[0, 3, 5, 1, 2]]), 3)
    np.testing.assert_array_equal(few.target, counts[[0, 3, 5]][:, kept])
    np.testing.assert_array_equal(few.target_totals, counts[[0, 3, 5]].sum(axis=1))
    assert few.feature_names == [f"A{i}" for i in kept]
    put(home, everything, stored(sparse_arrays(counts[:4])))
    with pytest.raises(ValueError, match=r"allgenes_csr\.npz does not match the cells of"):
        datasets.fetch_kang_pbmc(3)
    put(home, everything, stored(sparse_arrays(counts, indices=np.full(3, 99))))
    with pytest.raises(ValueError, match=r"allgenes_csr\.npz is not a complete sparse array"):
        datasets.fetch_kang_pbmc(3)


@pytest.mark.parametrize(
    ("changes", "pattern"),
    [
        ({"target_idx": None}, "target_idx is not a file in the archive"),
        ({"background_idx": np.array([1, 77])}, r"not a complete list of cells \(index 77"),
        ({"genes": np.array(["A"])}, "sizes do not match"),
        (
            {"genes": np.array(["A"], dtype=object)},
            "not a complete npz file with the arrays X",
        ),
    ],
)
def test_damaged_blood_cells_are_a_sentence(home: Path, changes: Any, pattern: str) -> None:
    raw = stored(kang_arrays(**changes))
    put(home, "kang_pbmc/kang_pbmc_500genes.npz", raw)
    with pytest.raises(ValueError, match=pattern):
        datasets.fetch_kang_pbmc()


def barcode(i: int) -> str:
    return "".join("ACGT"[i // 4**k % 4] for k in range(14))


def geo(home: Path, table: bytes | None = None) -> None:
    """Counts of the first gene tell the cell, those of the second the run."""
    members = {}
    rows = ["tsne1\ttsne2\tind\tstim\tcluster\tcell\tmultiplets"]
    for run, (matrix, sample) in RUNS.items():
        counts = np.ones((N_CELLS, N_GENES), dtype=int)
        counts[:, 0], counts[:, 1] = np.arange(N_CELLS), 10 * (run == "stim")
        members[f"{sample}_barcodes.tsv.gz"] = gzip.compress(
            "".join(f"{barcode(i)}-1\n" for i in range(N_CELLS)).encode()
        )
        members[f"{matrix}.mtx.gz"] = gzip.compress(matrix_market(counts))
        for i in range(N_CELLS):
            name = f"{barcode(i)}-1" + "1" * (run == "stim")  # R makes names of rows unique
            kind = "NA" if i % 50 == 7 else f"type {i % 3}"
            singlet = "doublet" if i % 50 == 9 else "singlet"
            rows.append(f"{name}\t0.1\t0.2\t101\t{run}\t1\t{kind}\t{singlet}")
    put(home, "kang_pbmc/GSE96583_RAW.tar", tarred(members, compressed=False))
    genes = "".join(f"ENSG{i}\tG{i}\n" for i in range(N_GENES)).encode()
    put(home, "kang_pbmc/GSE96583_batch2.genes.tsv.gz", gzip.compress(genes))
    text = "\n".join(rows).encode() if table is None else table
    put(home, "kang_pbmc/GSE96583_batch2.total.tsne.df.tsv.gz", gzip.compress(text))


def test_blood_cells_from_geo_are_a_fixed_draw_of_singlets(home: Path) -> None:
    geo(home)
    data = datasets.fetch_kang_pbmc(2)
    assert data.target.shape == (1500, 2)
    assert data.background.shape == (500, 2)
    assert data.feature_names == ["G0", "G1"]
    np.testing.assert_array_equal(data.target_labels, data.target[:, 1] == 10)
    assert np.bincount(data.target_labels).tolist() == [500, 1000]
    assert not data.background[:, 1].any()
    control = data.target[data.target_labels == 0, 0]
    assert not set(control) & set(data.background[:, 0])
    cells = np.concatenate([data.target[:, 0], data.background[:, 0]])
    assert not np.isin(cells % 50, [7, 9]).any()
    assert data.target_types is not None
    expected = [f"type {int(cell) % 3}" for cell in data.target[:, 0]]
    assert data.target_types.tolist() == expected
    assert data.target_donors is not None
    assert data.target_donors.shape == (1500,)
    np.testing.assert_array_equal(data.target_totals, data.target.sum(axis=1) + 4)
    np.testing.assert_array_equal(datasets.fetch_kang_pbmc(2).target, data.target)


HEADER = b"ind\tstim\tcell\tmultiplets\n"


@pytest.mark.parametrize(
    ("table", "pattern"),
    [
        (b"", "lacks the columns stim, cell, multiplets, ind"),
        (b"ind\tstim\n1\tctrl\n", "lacks the columns stim, cell, multiplets, ind"),
        (HEADER + b"ACGT-1\t1\tctrl\n", "has 3 columns in line 2 instead of 5"),
        (HEADER + b"ACGT-1\t1\tctrl\tB\tsinglet\n", "lists 0 singlets of the run ctrl"),
    ],
)
def test_damaged_tables_of_geo_are_a_sentence(home: Path, table: bytes, pattern: str) -> None:
    geo(home, table)
    with pytest.raises(ValueError, match=pattern):
        datasets.fetch_kang_pbmc(2)


def test_damaged_archives_of_geo_are_a_sentence(home: Path) -> None:
    geo(home)
    table = home / "kang_pbmc" / "GSE96583_batch2.total.tsne.df.tsv.gz"
    assert read_origins(table)["stim", barcode(3)].kind == "type 0"
    table.write_bytes(table.read_bytes()[:-50])
    with pytest.raises(ValueError, match=r"tsne\.df\.tsv\.gz is not a complete gzip file"):
        datasets.fetch_kang_pbmc(2)
    geo(home)
    archive = home / "kang_pbmc" / "GSE96583_RAW.tar"
    archive.write_bytes(archive.read_bytes()[:3000])
    with pytest.raises(ValueError, match=r"GSE96583_RAW\.tar is not a complete tar file with GSM"):
        datasets.fetch_kang_pbmc(2)
    archive.write_bytes(tarred({"other": b""}, compressed=False))
    with pytest.raises(ValueError, match=r"filename 'GSM2560248_2\.1\.mtx\.gz' not found"):
        datasets.fetch_kang_pbmc(2)
