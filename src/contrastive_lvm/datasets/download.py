"""Find the files of the real data: in a folder, in the user's cache, or by a download."""

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

HOME = "CONTRASTIVE_LVM_DATA"


class DataFile(NamedTuple):
    """Where a file can be downloaded, its checksum, and how to make one that cannot be."""

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
    "mice_protein/Data_Cortex_Nuclear.csv": DataFile(
        f"{CPCA}/Data_Cortex_Nuclear.csv",
        "5ec490ae48bf7f2eb958fd33ef5036e58a2933cc05e816064c0ea3b14ad3903b",
    ),
    "mnist/train-images-idx3-ubyte.gz": DataFile(
        f"{MNIST}/train-images-idx3-ubyte.gz",
        "71524e2cd1ad2968737f7f2f2ff69cbfc32df8ccddff51593f7cb2d4e0eb5b64",
    ),
    "mnist/train-labels-idx1-ubyte.gz": DataFile(
        f"{MNIST}/train-labels-idx1-ubyte.gz",
        "fe03b8bd7915f70bf5aa08be480aa413fbd85afcaa58b35d230d335f284fd88e",
    ),
    "mnist/t10k-images-idx3-ubyte.gz": DataFile(
        f"{MNIST}/t10k-images-idx3-ubyte.gz",
        "5634745efa576a17e7d4cf5cd9d09123c75e6538e5114267c2d156edaf519341",
    ),
    "mnist/t10k-labels-idx1-ubyte.gz": DataFile(
        f"{MNIST}/t10k-labels-idx1-ubyte.gz",
        "ae18e77e031ccde52407f794d123116439864147d33ac992975f85dd4dc42af6",
    ),
    "grass/grass_images.npz": DataFile(
        remark="the photographs are not free to redistribute, so make it yourself with the arrays "
        "images (bytes, n x 100 x 100), valid_packed (for each image the packed 73 x 73 flags of "
        "the windows of 28 x 28 pixels that may be used) and pool (0 for photographs of the "
        "target, 1 for those of the background)",
    ),
    "mhealth/mhealth+dataset.zip": DataFile(
        f"{UCI}/319/mhealth+dataset.zip",
        "16ad0ce709f3f00df18f348610d15bce0884b79e2143f57f446493673f02b8e0",
    ),
    "daily_sports/daily+and+sports+activities.zip": DataFile(
        f"{UCI}/256/daily+and+sports+activities.zip"
    ),
    "kang_pbmc/GSE96583_RAW.tar": DataFile(
        f"{GEO}/GSE96583_RAW.tar",
        "e5d41a3248a813f99d68fd5c9eb9773de7f46a83680a67f4a02d683b8955fe80",
    ),
    "kang_pbmc/GSE96583_batch2.genes.tsv.gz": DataFile(
        f"{GEO}/GSE96583_batch2.genes.tsv.gz",
        "93aa4e9b530ef9d6411ca129b416324c5cc1cc5a01a1fa6ed4f4a845480ed3ca",
    ),
    "kang_pbmc/GSE96583_batch2.total.tsne.df.tsv.gz": DataFile(
        f"{GEO}/GSE96583_batch2.total.tsne.df.tsv.gz",
        "1d57e72e92ca8695250e88cc0f1c3fa8c0be1175d974f8b427c58f1274dc6c09",
    ),
} | {
    f"bmmc/{name}_filtered_gene_bc_matrices.tar.gz": DataFile(
        f"{TENX}/{name}/{name}_filtered_gene_bc_matrices.tar.gz"
    )
    for name in BMMC
}


def find(*names: str) -> Path:
    """Return the first of some files that is here, or download the first that can be.

    `names` are folders and names as in `SOURCES`, the preferred file first. A file with a wrong
    checksum raises ValueError; a file that is neither here nor to be downloaded raises
    FileNotFoundError with what to put where.

    Examples
    --------
    >>> find("mhealth/mHealth_subject1.log", "mhealth/mhealth+dataset.zip")  # doctest: +SKIP
    PosixPath('.../mhealth/mhealth+dataset.zip')
    """
    for name in names:
        if path := present(name):
            return path
    name = next((name for name in names if SOURCES.get(name, DataFile()).address), names[0])
    return _download(name, SOURCES.get(name, DataFile()))


def present(name: str) -> Path | None:
    """Return a file of the data folder, else of the cache, its checksum checked; None if absent.

    Examples
    --------
    >>> present("mice_protein/no_such_file.csv") is None
    True
    """
    for folder in (_home(), _cache()):
        if folder is not None and (folder / name).is_file():
            return _checked(folder / name, SOURCES.get(name, DataFile()))
    return None


def load_arrays(path: Path, *names: str) -> list[npt.NDArray[Any]]:
    """Read arrays of an npz file by name."""
    careful = reading(path, f"npz file with the arrays {', '.join(names)}")
    with careful, path.open("rb") as raw, np.load(raw, allow_pickle=False) as file:
        return [file[name] for name in names]


@contextmanager
def reading(path: Path | str, what: str) -> Iterator[None]:
    """Turn whatever goes wrong inside a damaged file into one sentence that names the file."""
    try:
        yield
    except Exception as error:
        raise ValueError(
            f"{path} is not a complete {what} ({reason(error)}); download it again."
        ) from error


def reason(error: BaseException) -> str:
    """Return the first clause of an error's message, or the kind of the error."""
    words = str(error.args[-1] if isinstance(error, KeyError | OSError) and error.args else error)
    first = words.splitlines()[0].split(";")[0].rstrip(" .:") if words.strip() else ""
    return first or type(error).__name__


def _home() -> Path | None:
    home = os.environ.get(HOME)
    return Path(home).expanduser() if home else None


def _pooch() -> Any:
    """Import the downloader; None if the extra is not installed."""
    try:
        return import_module("pooch")
    except ImportError:
        return None


def _cache() -> Path | None:
    pooch = _pooch()
    return None if pooch is None else Path(pooch.os_cache("contrastive-lvm"))


def _checked(path: Path, source: DataFile) -> Path:
    if source.sha256 is None:
        return path
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != source.sha256:
        raise ValueError(
            f"{path} has the sha256 {found}, but the published file has {source.sha256}; "
            f"delete it and download it again from {source.address}."
        )
    return path


def _download(name: str, source: DataFile) -> Path:
    if source.address is None:
        why = f": {source.remark}" if source.remark else ""
        raise FileNotFoundError(
            f"{name} was not found and cannot be downloaded{why}; {_place(name)}."
        )
    pooch, cache = _pooch(), _cache()
    by_hand = f"download it from {source.address} and {_place(name)}"
    if cache is None:
        raise FileNotFoundError(
            f"{name} was not found and pooch, which downloads it, is not installed; "
            f"pip install 'contrastive-lvm[data]', or {by_hand}."
        )
    path = cache / name
    try:
        pooch.retrieve(source.address, source.sha256, fname=path.name, path=path.parent)
    except ValueError as error:
        raise ValueError(
            f"{source.address} returned a file without the sha256 {source.sha256} of the published "
            "one; try again, and report it if it happens again."
        ) from error
    except OSError as error:
        raise FileNotFoundError(
            f"{name} was not found and could not be downloaded ({type(error).__name__}); {by_hand}."
        ) from error
    return path


def _place(name: str) -> str:
    home = _home()
    if home is None:
        return f"put it into a folder as {name} and set {HOME} to that folder"
    return f"put it at {home / name}"
