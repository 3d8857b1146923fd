"""Where the files of the real data come from: a folder, a cache, or a download."""

import csv
import hashlib
import os
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

HOME = "CONTRASTIVE_LVM_DATA"


class Source(NamedTuple):
    """Where a file can be had, what its bytes must be, and a word on files that one has to make."""

    address: str | None = None
    sha256: str | None = None
    remark: str = ""


CPCA = (
    "https://raw.githubusercontent.com/abidlabs/contrastive/"
    "f0d3c330009cfdc76675f95859e70dc96adc3689/experiments/datasets"
)
MNIST = "https://ossci-datasets.s3.amazonaws.com/mnist"
UCI = "https://archive.ics.uci.edu/static/public"
GEO = "https://ftp.ncbi.nlm.nih.gov/geo/series/GSE96nnn/GSE96583/suppl"
TENX = "https://cf.10xgenomics.com/samples/cell-exp/1.1.0"
BMMC = ("aml027_pre_transplant", "aml027_post_transplant", "frozen_bmmc_healthy_donor1")

SOURCES = {
    "mice_protein/Data_Cortex_Nuclear.csv": Source(
        f"{CPCA}/Data_Cortex_Nuclear.csv",
        "5ec490ae48bf7f2eb958fd33ef5036e58a2933cc05e816064c0ea3b14ad3903b",
    ),
    "mnist/train-images-idx3-ubyte.gz": Source(
        f"{MNIST}/train-images-idx3-ubyte.gz",
        "71524e2cd1ad2968737f7f2f2ff69cbfc32df8ccddff51593f7cb2d4e0eb5b64",
    ),
    "mnist/train-labels-idx1-ubyte.gz": Source(
        f"{MNIST}/train-labels-idx1-ubyte.gz",
        "fe03b8bd7915f70bf5aa08be480aa413fbd85afcaa58b35d230d335f284fd88e",
    ),
    "mnist/t10k-images-idx3-ubyte.gz": Source(
        f"{MNIST}/t10k-images-idx3-ubyte.gz",
        "5634745efa576a17e7d4cf5cd9d09123c75e6538e5114267c2d156edaf519341",
    ),
    "mnist/t10k-labels-idx1-ubyte.gz": Source(
        f"{MNIST}/t10k-labels-idx1-ubyte.gz",
        "ae18e77e031ccde52407f794d123116439864147d33ac992975f85dd4dc42af6",
    ),
    "grass/grass_images.npz": Source(
        remark="the photographs are not free to redistribute, so make it yourself with the arrays "
        "images (bytes, n x 100 x 100), valid_packed (for each image the packed 73 x 73 flags of "
        "the windows of 28 x 28 pixels that may be used) and pool (0 for photographs of the "
        "target, 1 for those of the background)",
    ),
    "mhealth/mhealth+dataset.zip": Source(
        f"{UCI}/319/mhealth+dataset.zip",
        "16ad0ce709f3f00df18f348610d15bce0884b79e2143f57f446493673f02b8e0",
    ),
    "daily_sports/daily+and+sports+activities.zip": Source(
        f"{UCI}/256/daily+and+sports+activities.zip"
    ),
    "kang_pbmc/GSE96583_RAW.tar": Source(
        f"{GEO}/GSE96583_RAW.tar",
        "e5d41a3248a813f99d68fd5c9eb9773de7f46a83680a67f4a02d683b8955fe80",
    ),
    "kang_pbmc/GSE96583_batch2.genes.tsv.gz": Source(
        f"{GEO}/GSE96583_batch2.genes.tsv.gz",
        "93aa4e9b530ef9d6411ca129b416324c5cc1cc5a01a1fa6ed4f4a845480ed3ca",
    ),
    "kang_pbmc/GSE96583_batch2.total.tsne.df.tsv.gz": Source(
        f"{GEO}/GSE96583_batch2.total.tsne.df.tsv.gz",
        "1d57e72e92ca8695250e88cc0f1c3fa8c0be1175d974f8b427c58f1274dc6c09",
    ),
} | {
    f"bmmc/{name}_filtered_gene_bc_matrices.tar.gz": Source(
        f"{TENX}/{name}/{name}_filtered_gene_bc_matrices.tar.gz"
    )
    for name in BMMC
}

DAMAGE = (
    ArithmeticError,
    OSError,
    EOFError,
    LookupError,
    MemoryError,
    RuntimeError,
    TypeError,
    ValueError,
    csv.Error,
    tarfile.TarError,
    zipfile.BadZipFile,
    zlib.error,
)


def find(*names: str) -> Path:
    """The first of some files that is here; if none is, the first that can be is downloaded.

    Parameters
    ----------
    *names : str
        Folder and name, as in `SOURCES`, the preferred file first.

    Returns
    -------
    Path
        In `$CONTRASTIVE_LVM_DATA` or in the user's cache; its sha256, if known, is right.

    Raises
    ------
    FileNotFoundError
        If it is not here and cannot be downloaded; the sentence says what to put where.
    ValueError
        If its sha256 is another than the published file's.

    Examples
    --------
    >>> find("mhealth/mHealth_subject1.log", "mhealth/mhealth+dataset.zip")  # doctest: +SKIP
    PosixPath('.../mhealth/mhealth+dataset.zip')
    """
    for name in names:
        if path := present(name):
            return path
    name = next((name for name in names if SOURCES.get(name, Source()).address), names[0])
    return _download(name, SOURCES.get(name, Source()))


def present(name: str) -> Path | None:
    """A file of the data folder, else of the cache, with the right sha256; None if in neither.

    Examples
    --------
    >>> present("mice_protein/no_such_file.csv") is None
    True
    """
    for folder in (_home(), _cache()):
        if folder is not None and (folder / name).is_file():
            return _checked(folder / name, SOURCES.get(name, Source()))
    return None


def arrays(path: Path, *names: str) -> list[npt.NDArray[Any]]:
    """Arrays of an npz file, by name."""
    careful = reading(path, f"npz file with the arrays {', '.join(names)}")
    with careful, path.open("rb") as raw, np.load(raw, allow_pickle=False) as file:
        return [file[name] for name in names]


@contextmanager
def reading(path: Path | str, what: str) -> Iterator[None]:
    """Whatever goes wrong inside a damaged file becomes one sentence that names the file."""
    try:
        yield
    except DAMAGE as error:
        raise ValueError(
            f"{path} is not a whole {what} ({reason(error)}); fetch it again."
        ) from error


def reason(error: BaseException) -> str:
    """The first clause of an error's own words, or what kind it is."""
    words = str(error.args[-1] if isinstance(error, KeyError | OSError) and error.args else error)
    first = words.splitlines()[0].split(";")[0].rstrip(" .:") if words.strip() else ""
    return first or type(error).__name__


def _home() -> Path | None:
    home = os.environ.get(HOME)
    return Path(home).expanduser() if home else None


def _pooch() -> Any:
    """The downloader, None if the extra is not installed."""
    try:
        return import_module("pooch")
    except ImportError:
        return None


def _cache() -> Path | None:
    pooch = _pooch()
    return None if pooch is None else Path(pooch.os_cache("contrastive-lvm"))


def _checked(path: Path, source: Source) -> Path:
    if source.sha256 is None:
        return path
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != source.sha256:
        raise ValueError(
            f"{path} has the sha256 {found}, but the published file has {source.sha256}; "
            f"delete it and fetch it again from {source.address}."
        )
    return path


def _download(name: str, source: Source) -> Path:
    if source.address is None:
        why = f": {source.remark}" if source.remark else ""
        raise FileNotFoundError(
            f"{name} is not here and cannot be downloaded{why}; {_place(name)}."
        )
    pooch, cache = _pooch(), _cache()
    by_hand = f"fetch it from {source.address} and {_place(name)}"
    if cache is None:
        raise FileNotFoundError(
            f"{name} is not here and pooch, which downloads it, is not installed; "
            f"pip install 'contrastive-lvm[data]', or {by_hand}."
        )
    path = cache / name
    try:
        pooch.retrieve(source.address, source.sha256, fname=path.name, path=path.parent)
    except ValueError as error:
        raise ValueError(
            f"What {source.address} gave has not the sha256 {source.sha256} of the published file; "
            "try again, or report it if it stays so."
        ) from error
    except OSError as error:
        raise FileNotFoundError(
            f"{name} is not here and could not be downloaded ({type(error).__name__}); {by_hand}."
        ) from error
    return path


def _place(name: str) -> str:
    home = _home()
    if home is None:
        return f"put it into a folder as {name} and set {HOME} to that folder"
    return f"put it at {home / name}"
