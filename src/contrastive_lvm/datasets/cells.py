"""Counts of genes in single cells: blood with interferon, and bone marrow, the paper's set."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from contrastive_lvm.checks import check_integer
from contrastive_lvm.datasets.files import BMMC, arrays, find, present, reading
from contrastive_lvm.datasets.geo import drawn_cells
from contrastive_lvm.datasets.tenx import read_10x

KANG_SMALL = "kang_pbmc/kang_pbmc_500genes.npz"
KANG_ALL = "kang_pbmc/kang_pbmc_allgenes_csr.npz"
N_DRAWN = 1000  # cells of each run; half of the control cells are background


class CellCounts(NamedTuple):
    """Raw counts of some genes, the cells' totals over all genes, and what cells they are."""

    target: npt.NDArray[np.float64]  # (n, d)
    background: npt.NDArray[np.float64]  # (m, d)
    target_labels: npt.NDArray[np.intp]  # (n,)
    feature_names: list[str]
    description: str
    target_totals: npt.NDArray[np.float64]  # (n,) counts of all genes
    background_totals: npt.NDArray[np.float64]  # (m,)
    target_types: npt.NDArray[np.str_] | None  # (n,) types of cells, if known
    background_types: npt.NDArray[np.str_] | None  # (m,)


class _Roles(NamedTuple):
    """Rows and labels of the target, rows of the background, and types of all cells."""

    target: npt.NDArray[np.intp]
    labels: npt.NDArray[np.intp]
    background: npt.NDArray[np.intp]
    types: npt.NDArray[np.str_]


class _Cells(NamedTuple):
    """Cells of both sets with all genes, sparse, and which of them are what."""

    counts: Any  # (cells, genes), scipy.sparse.csr_array
    genes: Sequence[str]
    target: npt.NDArray[np.intp]  # rows of the target
    labels: npt.NDArray[np.intp]
    background: npt.NDArray[np.intp]  # rows of the background
    types: npt.NDArray[np.str_] | None


def fetch_kang_pbmc(n_genes: int = 500) -> CellCounts:
    """Blood cells with and without interferon beta, against others without: Kang et al.

    Target: 1,000 cells stimulated with interferon (label 1) and 500 control cells (label 0).
    Background: 500 other control cells. The type of cell, in `target_types` and
    `background_types`, has more variance than the stimulus and is shared by both sets.

    In the folder `kang_pbmc` of `$CONTRASTIVE_LVM_DATA`, else in the user's cache, these are looked
    for in turn:

    1. `kang_pbmc_500genes.npz`, a fixed draw of cells and 500 of their variable genes, if
       `n_genes` is 500;
    2. with it `kang_pbmc_allgenes_csr.npz`, all genes of the same cells;
    3. the files of the series GSE96583 of GEO, which are downloaded if absent, 77 MB:
       `GSE96583_RAW.tar`, `GSE96583_batch2.genes.tsv.gz`, `GSE96583_batch2.total.tsne.df.tsv.gz`.

    From the latter cells are drawn with a fixed seed among singlets of known type, so cells and
    names of types are not those of the npz files. Of all genes those with the largest ratio of
    variance to mean of raw counts, over the cells of both sets, are kept.

    Parameters
    ----------
    n_genes : int

    Returns
    -------
    CellCounts
        `target` (1500, n_genes), `background` (500, n_genes), `target_labels`, `feature_names`,
        `description`, `target_totals`, `background_totals`, `target_types`, `background_types`.

    Raises
    ------
    FileNotFoundError
        If the files are neither here nor to be had; the sentence says what to put where.
    ValueError
        If a file is damaged or there are not so many genes.

    References
    ----------
    Kang et al. (2018), Multiplexed droplet single-cell RNA-sequencing using natural genetic
    variation, Nature Biotechnology 36.

    Examples
    --------
    >>> from contrastive_lvm.datasets import fetch_kang_pbmc
    >>> data = fetch_kang_pbmc()  # doctest: +SKIP
    >>> data.target.shape, data.background.shape  # doctest: +SKIP
    ((1500, 500), (500, 500))
    """
    check_integer("n_genes", n_genes, 1)
    description = "Blood cells with (1) and without (0) interferon beta, and others without."
    if small := present(KANG_SMALL):
        if n_genes == 500:
            return _small(small, description)
        if everything := present(KANG_ALL):
            return _chosen(_all_genes(small, everything), n_genes, description)
    return _chosen(_from_geo(), n_genes, description)


def fetch_bmmc(n_genes: int = 500) -> CellCounts:
    """Bone marrow of a patient with leukaemia against that of a healthy donor: the paper's set.

    Target: mononuclear cells of patient AML027 before (label 0, 3,933 cells) and after (label 1,
    3,965) a transplant of stem cells. Background: 1,985 cells of a healthy donor. Types of cells
    are not known, so `target_types` and `background_types` are None. Of the 32,738 genes those with
    the largest ratio of variance to mean of raw counts, over all cells, are kept.

    The archives `<name>_filtered_gene_bc_matrices.tar.gz` of `aml027_pre_transplant`,
    `aml027_post_transplant` and `frozen_bmmc_healthy_donor1` are looked for in the folder `bmmc` of
    `$CONTRASTIVE_LVM_DATA`, then in the user's cache, and else downloaded to the latter.

    Parameters
    ----------
    n_genes : int

    Returns
    -------
    CellCounts
        `target` (7898, n_genes), `background` (1985, n_genes), `target_labels`, `feature_names`,
        `description`, `target_totals`, `background_totals`, `target_types`, `background_types`.

    Raises
    ------
    FileNotFoundError
        If the files are neither here nor to be had; the sentence says what to put where.
    ValueError
        If a file is damaged or there are not so many genes.

    References
    ----------
    Zheng et al. (2017), Massively parallel digital transcriptional profiling of single cells,
    Nature Communications 8, 14049.

    Examples
    --------
    >>> from contrastive_lvm.datasets import fetch_bmmc
    >>> data = fetch_bmmc()  # doctest: +SKIP
    >>> data.target.shape, data.background.shape  # doctest: +SKIP
    ((7898, 500), (1985, 500))
    """
    from scipy import sparse

    check_integer("n_genes", n_genes, 1)
    paths = [find(f"bmmc/{name}_filtered_gene_bc_matrices.tar.gz") for name in BMMC]
    samples = [read_10x(path) for path in paths]
    for path, sample in zip(paths, samples, strict=True):
        if sample.gene_ids != samples[0].gene_ids:
            raise ValueError(f"{path} has other genes than {paths[0]}; fetch both again.")
    sizes = [sample.counts.shape[0] for sample in samples]
    n_target = sum(sizes[:2])
    cells = _Cells(
        counts=sparse.vstack([sample.counts for sample in samples], format="csr"),
        genes=samples[0].genes,
        target=np.arange(n_target),
        labels=np.repeat([0, 1], sizes[:2]),
        background=np.arange(n_target, sum(sizes)),
        types=None,
    )
    description = "Bone marrow before (0) and after (1) a transplant, and of a healthy donor."
    return _chosen(cells, n_genes, description)


def most_variable(counts: Any, n_genes: int) -> npt.NDArray[np.intp]:
    """Columns of a sparse array with the largest ratio of variance to mean, in their order.

    Examples
    --------
    >>> from scipy.sparse import csr_array
    >>> most_variable(csr_array([[1, 0, 9, 0], [1, 0, 0, 2]]), 2)
    array([2, 3])
    """
    check_integer("n_genes", n_genes, 1, counts.shape[1])
    mean = np.asarray(counts.sum(axis=0)) / counts.shape[0]
    square = np.asarray(counts.power(2).sum(axis=0)) / counts.shape[0]
    ratio = np.divide(square - mean**2, mean, out=np.zeros_like(mean), where=mean > 0)
    return np.sort(np.argsort(-ratio, kind="stable")[:n_genes])


def _chosen(cells: _Cells, n_genes: int, description: str) -> CellCounts:
    """Dense counts of the most variable genes of both sets."""
    used = np.concatenate([cells.target, cells.background])
    genes = most_variable(cells.counts[used], n_genes)
    counts, totals = cells.counts[:, genes], np.asarray(cells.counts.sum(axis=1))
    return CellCounts(
        target=counts[cells.target].toarray(),
        background=counts[cells.background].toarray(),
        target_labels=cells.labels.astype(np.intp),
        feature_names=[str(cells.genes[gene]) for gene in genes],
        description=description,
        target_totals=totals[cells.target],
        background_totals=totals[cells.background],
        target_types=None if cells.types is None else cells.types[cells.target],
        background_types=None if cells.types is None else cells.types[cells.background],
    )


def _small(path: Path, description: str) -> CellCounts:
    """The counts of 500 genes as they are stored."""
    X, genes, total = arrays(path, "X", "genes", "total_counts")
    roles = _roles(path)
    if X.shape != (len(roles.types), len(genes)) or total.shape != roles.types.shape:
        raise ValueError(f"{path} has arrays of sizes that do not fit; fetch it again.")
    return CellCounts(
        target=X[roles.target].astype(np.float64),
        background=X[roles.background].astype(np.float64),
        target_labels=roles.labels.astype(np.intp),
        feature_names=genes.tolist(),
        description=description,
        target_totals=total[roles.target].astype(np.float64),
        background_totals=total[roles.background].astype(np.float64),
        target_types=roles.types[roles.target],
        background_types=roles.types[roles.background],
    )


def _all_genes(small: Path, everything: Path) -> _Cells:
    """All genes of the same cells, which are stored as the parts of a sparse array."""
    from scipy import sparse

    names = ("data", "indices", "indptr", "shape", "genes")
    data, indices, indptr, shape, genes = arrays(everything, *names)
    roles = _roles(small)
    with reading(everything, "sparse array of counts"):
        parts = (data.astype(np.float64), indices.astype(np.int32), indptr.astype(np.int32))
        counts: Any = sparse.csr_array(parts, shape=tuple(shape.tolist()))
        counts.check_format(full_check=True)
    if counts.shape != (len(roles.types), len(genes)):
        raise ValueError(f"{everything} does not fit the cells of {small}; fetch both again.")
    return _Cells(counts, genes.tolist(), *roles)


def _roles(path: Path) -> _Roles:
    roles = _Roles(*arrays(path, "target_idx", "target_label", "background_idx", "cell_type"))
    with reading(path, "list of cells"):
        roles.types[roles.target], roles.types[roles.background]
    return roles


def _from_geo() -> _Cells:
    """A fixed draw of the published cells: control ones first, half of them background."""
    names = ("RAW.tar", "batch2.genes.tsv.gz", "batch2.total.tsne.df.tsv.gz")
    archive, genes, table = (find(f"kang_pbmc/GSE96583_{name}") for name in names)
    draw = drawn_cells(archive, genes, table, N_DRAWN)
    half = np.arange(N_DRAWN // 2)
    stimulated = np.arange(N_DRAWN, 2 * N_DRAWN)
    return _Cells(
        counts=draw.counts,
        genes=draw.genes,
        target=np.concatenate([half, stimulated]),
        labels=np.repeat([0, 1], [len(half), N_DRAWN]),
        background=half + len(half),
        types=draw.types,
    )
