"""Cells of Kang et al. from the files of GEO: two runs, and a table of their types and donors."""

import re
import tarfile
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from contrastive_lvm.datasets.download import reading
from contrastive_lvm.datasets.tenx import TenX, assembled, lines, unpacked

RUNS = {"ctrl": ("GSM2560248", "2.1"), "stim": ("GSM2560249", "2.2")}


class CellOrigin(NamedTuple):
    """Type and donor of a cell."""

    kind: str
    donor: str


class DrawnCells(NamedTuple):
    """Cells with their types and donors."""

    cells: TenX
    types: npt.NDArray[np.str_]
    donors: npt.NDArray[np.str_]


def draw_cells(archive: Path, genes: Path, table: Path, n: int) -> DrawnCells:
    """Draw `n` cells of the control and of the stimulated run, in this order.

    They are drawn with a fixed seed among the singlets of known type of each run.

    Parameters
    ----------
    archive : Path
        `GSE96583_RAW.tar`: for each run a matrix of genes x cells and its barcodes, gzipped.
    genes : Path
        `GSE96583_batch2.genes.tsv.gz`: identifier and symbol of each row of the matrices.
    table : Path
        `GSE96583_batch2.total.tsne.df.tsv.gz`: the authors' annotation of each cell.
    """
    from scipy import sparse

    names, origins, rng = _read_lines(genes), read_origins(table), np.random.default_rng(0)
    nowhere = CellOrigin("", "")
    counts, kinds, donors = [], [], []
    for run in RUNS:
        cells = read_run(archive, run, names)
        found = [origins.get((run, _letters(code)), nowhere) for code in cells.barcodes]
        known = np.array([origin.kind for origin in found])
        if np.count_nonzero(known) < n:
            raise ValueError(
                f"{table} lists {np.count_nonzero(known)} singlets of the run {run} in {archive}, "
                f"but {n} are needed; download both again."
            )
        chosen = rng.choice(np.flatnonzero(known), n, replace=False)
        counts.append(cells.counts[chosen])
        kinds.append(known[chosen])
        donors.append(np.array([found[cell].donor for cell in chosen]))
    drawn = cells._replace(counts=sparse.vstack(counts, format="csr"))
    return DrawnCells(drawn, np.concatenate(kinds), np.concatenate(donors))


def read_run(archive: Path, run: str, genes: list[str]) -> TenX:
    """Read all cells of a run, `ctrl` or `stim`."""
    sample, matrix = RUNS[run]
    members = (f"{sample}_{matrix}.mtx.gz", f"{sample}_barcodes.tsv.gz")
    with reading(archive, f"tar file with {' and '.join(members)}"):
        counts, barcodes = (unpacked(name, _member(archive, name)) for name in members)
    return assembled(f"{members[0]} in {archive}", counts, genes, lines(barcodes))


def read_origins(path: Path) -> dict[tuple[str, str], CellOrigin]:
    """Read each singlet of known type, by run and by the letters of its barcode.

    The table was written by R: tabs, and the header lacks the column of the rows' names, which are
    barcodes. Those of the second run that are in the first too got another digit at their end.
    """
    header, *rows = [line.replace('"', "").split("\t") for line in _read_lines(path)] or [[]]
    columns = ("stim", "cell", "multiplets", "ind")
    if not set(columns) <= set(header):
        raise ValueError(f"{path} lacks the columns {', '.join(columns)}; download it again.")
    at = [header.index(name) - len(header) for name in columns]  # from the end
    origins = {}
    for number, row in enumerate(rows, start=2):
        if len(row) not in (len(header), len(header) + 1):
            raise ValueError(
                f"{path} has {len(row)} columns in line {number} instead of {len(header) + 1}; "
                "download it again."
            )
        run, kind, multiplet, donor = (row[column] for column in at)
        if multiplet == "singlet" and kind != "NA":
            origins[run, _letters(row[0])] = CellOrigin(kind, donor)
    return origins


def _read_lines(path: Path) -> list[str]:
    with reading(path, "gzip file"):
        return lines(unpacked(path.name, path.read_bytes()))


def _letters(barcode: str) -> str:
    return re.split("[^ACGT]", barcode, maxsplit=1)[0]


def _member(archive: Path, name: str) -> bytes:
    with tarfile.open(archive) as tar:
        file = tar.extractfile(name)
        return b"" if file is None else file.read()
