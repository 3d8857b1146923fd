"""Counts of genes in cells as 10x Genomics publishes them: three files in a folder or archive."""

import gzip
import io
import re
import tarfile
from collections import Counter
from collections.abc import Iterator, Sequence
from os import PathLike
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, NamedTuple

from contrastive_lvm.datasets.download import reading

PARTS = {
    "matrix.mtx": "matrix",
    "genes.tsv": "genes",
    "features.tsv": "genes",
    "barcodes.tsv": "barcodes",
}
if TYPE_CHECKING:
    from scipy.sparse import csr_array


class TenX(NamedTuple):
    """Counts of genes in cells, with the names of both."""

    counts: "csr_array"  # (cells, genes) counts
    genes: list[str]  # symbols; where two genes share one, the identifier is added
    gene_ids: list[str]
    barcodes: list[str]


def read_10x(path: str | PathLike[str]) -> TenX:
    r"""Read the counts of a 10x archive or folder.

    There must be a file `matrix.mtx` (genes x cells, Matrix Market), one named `genes.tsv` or
    `features.tsv` and one named `barcodes.tsv`, in whatever subfolder; each may end in `.gz`.

    Parameters
    ----------
    path : str or path
        A tar archive, compressed or not, or the folder it was unpacked into.

    Returns
    -------
    TenX
        `counts` (cells, genes) as a sparse array, `genes`, `gene_ids`, `barcodes`.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from contrastive_lvm.datasets import read_10x
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     kind = "%%MatrixMarket matrix coordinate integer general"
    ...     _ = Path(folder, "matrix.mtx").write_text(f"{kind}\n2 1 1\n2 1 7\n")
    ...     _ = Path(folder, "genes.tsv").write_text("ENSG1\tISG15\nENSG2\tCD3E\n")
    ...     _ = Path(folder, "barcodes.tsv").write_text("ACGT-1\n")
    ...     cells = read_10x(folder)
    >>> cells.genes, cells.counts.toarray()
    (['ISG15', 'CD3E'], array([[0., 7.]]))
    """
    source = Path(path)
    if not source.exists():
        raise FileNotFoundError(f"{source} does not exist; name a 10x archive or its folder.")
    with reading(source, "10x archive"):
        found = list(_folder(source) if source.is_dir() else _archive(source))
    times = Counter(part for part, _ in found)
    for name, part in PARTS.items():
        if times[part] > 1:
            raise ValueError(f"{source} has more than one {part}; name the folder of one of them.")
        if not times[part]:
            raise ValueError(f"{source} has no {name}; name a 10x archive or its folder.")
    parts = dict(found)
    return assembled(source, parts["matrix"], lines(parts["genes"]), lines(parts["barcodes"]))


def assembled(
    where: Path | str, matrix: bytes, genes: Sequence[str], barcodes: Sequence[str]
) -> TenX:
    """Read counts from the bytes of a Matrix Market file and the lines that name its axes."""
    from scipy import io as scipy_io
    from scipy import sparse

    _check_format(where, matrix)
    _check_sizes(where, matrix, len(genes), len(barcodes))
    with reading(where, "matrix in Matrix Market format"):
        counts = sparse.csr_array(scipy_io.mmread(io.BytesIO(matrix)).T.astype(float))
    if counts.nnz and not counts.data.min() >= 0:
        raise ValueError(f"{where} has negative counts; download it again.")
    columns = [line.split("\t") for line in genes]
    ids = [column[0] for column in columns]
    return TenX(counts, unique([column[:2][-1] for column in columns], ids), ids, list(barcodes))


def _check_format(where: Path | str, matrix: bytes) -> None:
    """Refuse what 10x never writes, since SciPy's reader crashes on some of it."""
    kind = rb"%%matrixmarket\s+matrix\s+coordinate\s+(integer|real)\s+general\s*\n"
    if not re.match(kind, matrix, re.IGNORECASE):
        raise ValueError(
            f"{where} has a matrix that is not sparse, of whole or real numbers, in Matrix Market "
            "format; download it again."
        )
    if b"\0" in matrix or not matrix.endswith(b"\n"):
        raise ValueError(f"{where} has a matrix that is cut off or not text; download it again.")


def _check_sizes(where: Path | str, matrix: bytes, n_genes: int, n_cells: int) -> None:
    """Compare the sizes that a matrix claims with what is there, before memory is taken for it."""
    sizes = re.match(rb"(?:[ \t]*%.*\n|\s*\n)*\s*(\d+)\s+(\d+)\s+(\d+)\s*\n", matrix)
    if not sizes:
        raise ValueError(f"{where} has a matrix that does not say its size; download it again.")
    genes, cells, entries = (int(size) for size in sizes.groups())
    if (genes, cells) != (n_genes, n_cells):
        raise ValueError(
            f"{where} has a matrix of {genes} genes x {cells} cells, but names of {n_genes} genes "
            f"and {n_cells} cells; download it again."
        )
    if entries > matrix.count(b"\n"):
        raise ValueError(
            f"{where} has a matrix of {entries} entries, but fewer lines; download it again."
        )


def lines(raw: bytes) -> list[str]:
    """Split text into its lines, without the empty ones."""
    return [line for line in raw.decode(errors="replace").splitlines() if line.strip()]


def unique(names: Sequence[str], ids: Sequence[str]) -> list[str]:
    """Add the identifier to names that occur more than once.

    >>> unique(["A", "B", "A"], ["1", "2", "3"])
    ['A (1)', 'B', 'A (3)']
    """
    times = Counter(names)
    pairs = zip(names, ids, strict=True)
    return [f"{name} ({of})" if times[name] > 1 else name for name, of in pairs]


def unpacked(name: str, raw: bytes) -> bytes:
    """Decompress the bytes of a file if its name says that it is gzipped."""
    return gzip.decompress(raw) if name.lower().endswith(".gz") else raw


def _folder(folder: Path) -> Iterator[tuple[str, bytes]]:
    for path in sorted(folder.rglob("*.*")):
        if part := _part(path.name):
            yield part, unpacked(path.name, path.read_bytes())


def _archive(path: Path) -> Iterator[tuple[str, bytes]]:
    with tarfile.open(path) as archive:
        for member in archive:
            part = _part(member.name)
            if part and (file := archive.extractfile(member)):
                yield part, unpacked(member.name, file.read())


def _part(name: str) -> str | None:
    return PARTS.get(PurePosixPath(name).name.lower().removesuffix(".gz"))
