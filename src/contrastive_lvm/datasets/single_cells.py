"""Counts of genes in single cells: blood with interferon, and bone marrow, the paper's set."""

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from contrastive_lvm.checks import check_integer
from contrastive_lvm.datasets.download import BMMC, find, load_arrays, present, reading
from contrastive_lvm.datasets.geo import draw_cells
from contrastive_lvm.datasets.tenx import read_10x

if TYPE_CHECKING:
    from scipy.sparse import csr_array


class CellCounts(NamedTuple):
    """Raw counts of some genes, with each cell's total over all genes, its type and its donor."""

    target: npt.NDArray[np.float64]  # (n, d) counts
    background: npt.NDArray[np.float64]  # (m, d) counts
    target_labels: npt.NDArray[np.intp]  # (n,) labels of the target
    feature_names: list[str]
    description: str
    target_totals: npt.NDArray[np.float64]  # (n,) counts of all genes
    background_totals: npt.NDArray[np.float64]  # (m,) counts of all genes
    target_types: npt.NDArray[np.str_] | None  # (n,) types of cells, if known
    background_types: npt.NDArray[np.str_] | None  # (m,) types of cells, if known
    target_donors: npt.NDArray[np.str_] | None = None  # (n,) donors, empty for doublets
    background_donors: npt.NDArray[np.str_] | None = None  # (m,) donors; None if unknown


class _Roles(NamedTuple):
    """Rows and labels of the target, rows of the background, types and donors of all cells."""

    target: npt.NDArray[np.intp]
    labels: npt.NDArray[np.intp]
    background: npt.NDArray[np.intp]
    types: npt.NDArray[np.str_] | None
    donors: npt.NDArray[np.str_] | None = None

    def of(
        self,
        counts: npt.NDArray[np.float64],
        totals: npt.NDArray[np.float64],
        genes: Sequence[str],
        description: str,
    ) -> CellCounts:
        """Divide the cells' counts into target and background."""
        types, donors = self.types, self.donors
        return CellCounts(
            target=counts[self.target],
            background=counts[self.background],
            target_labels=self.labels.astype(np.intp),
            feature_names=[str(gene) for gene in genes],
            description=description,
            target_totals=totals[self.target],
            background_totals=totals[self.background],
            target_types=None if types is None else types[self.target],
            background_types=None if types is None else types[self.background],
            target_donors=None if donors is None else donors[self.target],
            background_donors=None if donors is None else donors[self.background],
        )


def fetch_kang_pbmc(n_genes: int = 500) -> CellCounts:
    """Fetch blood cells with and without interferon beta: Kang et al.

    Target: 1,000 cells stimulated with interferon (label 1) and 500 control cells (label 0).
    Background: 500 other control cells. The type of cell, in `target_types` and `background_types`,
    has more variance than the stimulus and is shared by both sets. Eight donors gave cells of both
    conditions; `target_donors` and `background_donors` name them. Pass these as `groups` to tests
    and intervals.

    Looked for in turn, in the folder `kang_pbmc`:

    1. `kang_pbmc_500genes.npz`, a fixed draw of cells and 500 of their variable genes, if
       `n_genes` is 500;
    2. with it `kang_pbmc_allgenes_csr.npz`, all genes of the same cells, and `kang_donors.csv`,
       the donor of each cell in a column `donor` (without it, donors are None);
    3. the files of the series GSE96583 of GEO, which are downloaded if absent, 77 MB:
       `GSE96583_RAW.tar`, `GSE96583_batch2.genes.tsv.gz`, `GSE96583_batch2.total.tsne.df.tsv.gz`.

    From the files of GEO, cells are drawn with a fixed seed among singlets of known type, so the
    cells and the names of their types differ from those of the npz files. The genes kept are those
    with the largest ratio of variance to mean of the raw counts of both sets.

    Parameters
    ----------
    n_genes : int
        Number of genes to keep.

    References
    ----------
    Kang et al. (2018), Multiplexed droplet single-cell RNA-sequencing using natural genetic
    variation, Nature Biotechnology 36.

    Examples
    --------
    >>> import contrastive_lvm as clvm
    >>> data = clvm.datasets.fetch_kang_pbmc()
    >>> data.target.shape
    (1500, 500)
    """
    check_integer("n_genes", n_genes, 1)
    description = "Blood cells with (1) and without (0) interferon beta, and others without."
    if small := present("kang_pbmc/kang_pbmc_500genes.npz"):
        if n_genes == 500:
            return _stored_genes(small, description)
        if everything := present("kang_pbmc/kang_pbmc_allgenes_csr.npz"):
            counts, genes, roles = _all_genes(small, everything)
            return _variable_genes(counts, genes, roles, n_genes, description)
    return _variable_genes(*_from_geo(), n_genes, description)


def fetch_bmmc(n_genes: int = 500) -> CellCounts:
    """Fetch bone marrow of a patient with leukaemia and of a healthy donor: the paper's data.

    Target: mononuclear cells of patient AML027 before (label 0, 3,933 cells) and after (label 1,
    3,965) a transplant of stem cells. Background: 1,985 cells of a healthy donor. Types of cells
    are not known, so `target_types` and `background_types` are None. The genes kept, of 32,738, are
    those with the largest ratio of variance to mean of the raw counts of all cells.

    The files are the archives `<name>_filtered_gene_bc_matrices.tar.gz` in the folder `bmmc`, with
    the names `aml027_pre_transplant`, `aml027_post_transplant` and `frozen_bmmc_healthy_donor1`.

    Parameters
    ----------
    n_genes : int
        Number of genes to keep.

    References
    ----------
    Zheng et al. (2017), Massively parallel digital transcriptional profiling of single cells,
    Nature Communications 8, 14049.

    Examples
    --------
    >>> import contrastive_lvm as clvm
    >>> data = clvm.datasets.fetch_bmmc()  # doctest: +SKIP
    >>> data.target.shape  # doctest: +SKIP
    (7898, 500)
    """
    from scipy import sparse

    check_integer("n_genes", n_genes, 1)
    paths = [find(f"bmmc/{name}_filtered_gene_bc_matrices.tar.gz") for name in BMMC]
    samples = [read_10x(path) for path in paths]
    for path, sample in zip(paths, samples, strict=True):
        if sample.gene_ids != samples[0].gene_ids:
            raise ValueError(
                f"{path} does not have the same genes as {paths[0]}; download both again."
            )
    sizes = [sample.counts.shape[0] for sample in samples]
    target, background = np.split(np.arange(sum(sizes)), [sum(sizes[:2])])
    roles = _Roles(target, np.repeat([0, 1], sizes[:2]), background, None)
    counts = sparse.vstack([sample.counts for sample in samples], format="csr")
    description = "Bone marrow before (0) and after (1) a transplant, and of a healthy donor."
    return _variable_genes(counts, samples[0].genes, roles, n_genes, description)


def most_variable(counts: "csr_array", n_genes: int) -> npt.NDArray[np.intp]:
    """Return the columns of a sparse array with the largest ratio of variance to mean, in order.

    >>> from scipy.sparse import csr_array
    >>> most_variable(csr_array([[1, 0, 9, 0], [1, 0, 0, 2]]), 2)
    array([2, 3])
    """
    check_integer("n_genes", n_genes, 1, counts.shape[1])
    mean = np.asarray(counts.sum(axis=0)) / counts.shape[0]
    square = np.asarray(counts.power(2).sum(axis=0)) / counts.shape[0]
    ratio = np.divide(square - mean**2, mean, out=np.zeros_like(mean), where=mean > 0)
    return np.sort(np.argsort(-ratio, kind="stable")[:n_genes])


def _variable_genes(
    counts: "csr_array", genes: Sequence[str], roles: _Roles, n_genes: int, description: str
) -> CellCounts:
    """Keep the most variable genes of sparse counts, (cells, genes)."""
    kept = most_variable(counts[np.concatenate([roles.target, roles.background])], n_genes)
    names = [genes[gene] for gene in kept]
    totals = np.asarray(counts.sum(axis=1), dtype=np.float64)
    return roles.of(counts[:, kept].toarray(), totals, names, description)


def _stored_genes(path: Path, description: str) -> CellCounts:
    """Read the counts of 500 genes as they are stored."""
    X, genes, totals = load_arrays(path, "X", "genes", "total_counts")
    roles, n_cells = _read_roles(path)
    if X.shape != (n_cells, len(genes)) or totals.shape != (n_cells,):
        raise ValueError(f"{path} has arrays whose sizes do not match; download it again.")
    return roles.of(X.astype(np.float64), totals.astype(np.float64), genes.tolist(), description)


def _all_genes(small: Path, everything: Path) -> tuple["csr_array", Sequence[str], _Roles]:
    """Read all genes of the same cells, which are stored as the parts of a sparse array."""
    from scipy import sparse

    names = ("data", "indices", "indptr", "shape", "genes")
    data, indices, indptr, shape, genes = load_arrays(everything, *names)
    roles, n_cells = _read_roles(small)
    with reading(everything, "sparse array of counts"):
        parts = (data.astype(np.float64), indices.astype(np.int32), indptr.astype(np.int32))
        counts = sparse.csr_array(parts, shape=tuple(shape.tolist()))
        counts.check_format(full_check=True)
    if counts.shape != (n_cells, len(genes)):
        raise ValueError(f"{everything} does not match the cells of {small}; download both again.")
    return counts, genes.tolist(), roles


def _read_roles(path: Path) -> tuple[_Roles, int]:
    """Read the roles of cells and their number."""
    names = ("target_idx", "target_label", "background_idx", "cell_type")
    target, labels, background, types = load_arrays(path, *names)
    with reading(path, "list of cells"):
        types[target], types[background]
    return _Roles(target, labels, background, types, _read_donors(len(types))), len(types)


def _read_donors(n_cells: int) -> npt.NDArray[np.str_] | None:
    """Read the donor of each cell, empty for doublets; None without the file."""
    path = present("kang_pbmc/kang_donors.csv")
    if path is None:
        return None
    with reading(path, "table with a column donor"), path.open(newline="") as file:
        donors = np.array([row["donor"] for row in csv.DictReader(file)])
    if len(donors) != n_cells:
        raise ValueError(f"{path} has {len(donors)} cells instead of {n_cells}; download it again.")
    return donors


def _from_geo() -> tuple["csr_array", Sequence[str], _Roles]:
    """Draw a fixed set of the published cells: control cells first, half of them background."""
    names = ("RAW.tar", "batch2.genes.tsv.gz", "batch2.total.tsne.df.tsv.gz")
    archive, genes, table = (find(f"kang_pbmc/GSE96583_{name}") for name in names)
    drawn = draw_cells(archive, genes, table, 1000)  # of each run
    target = np.concatenate([np.arange(500), np.arange(1000, 2000)])
    labels, background = np.repeat([0, 1], [500, 1000]), np.arange(500, 1000)
    roles = _Roles(target, labels, background, drawn.types, drawn.donors)
    return drawn.cells.counts, drawn.cells.genes, roles
