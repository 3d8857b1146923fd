"""Finding the files of the real data: in a folder, in the user's cache, or by a download."""

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.resources import files
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import numpy as np

HOME = "CONTRASTIVE_LVM_DATA"


class DataFile(NamedTuple):
    """Where a file can be downloaded, its checksum, and how to make one that cannot be."""

    address: str | None = None
    sha256: str | None = None
    remark: str = ""


BMMC = ("aml027_pre_transplant", "aml027_post_transplant", "frozen_bmmc_healthy_donor1")


def _published() -> dict[str, DataFile]:
    """Read the files that can be downloaded: name, sha256 ("-" if none is published), address."""
    table = files("contrastive_lvm.datasets").joinpath("registry.txt").read_text(encoding="utf-8")
    rows = (line.split() for line in table.splitlines())
    return {name: DataFile(address, None if sha == "-" else sha) for name, sha, address in rows}


SOURCES = _published() | {
    "grass/grass_images.npz": DataFile(
        remark="the photographs are not free to redistribute, so make it yourself with the arrays "
        "images (bytes, n x 100 x 100), valid_packed (for each image the packed 73 x 73 flags of "
        "the windows of 28 x 28 pixels that may be used) and pool (0 for photographs of the "
        "target, 1 for those of the background)",
    ),
    "tennessee_eastman/te_faults.npz": DataFile(
        remark="make it from the text files of the simulated runs (d00.dat, d00_te.dat and so on, "
        "of Chiang, Russell and Braatz) with an array of rows and 52 signals for each run, named "
        "train00, test00, train01, ...",
    ),
}


def find(*names: str) -> Path:
    """Return the first of some files that is present, or download the first that can be.

    `names` are folders and names as in `SOURCES`, the preferred file first. A file with a wrong
    checksum raises ValueError; a file that is neither here nor to be downloaded raises
    FileNotFoundError with what to put where.
    """
    for name in names:
        if path := present(name):
            return path
    name = next((name for name in names if SOURCES.get(name, DataFile()).address), names[0])
    return _download(name, SOURCES.get(name, DataFile()))


def present(name: str) -> Path | None:
    """Return a file of the data folder, else of the cache, its checksum checked; None if absent."""
    for folder in (_home(), _cache()):
        if folder is not None and (folder / name).is_file():
            return _checked(folder / name, SOURCES.get(name, DataFile()))
    return None


def load_arrays(path: Path, *names: str) -> list[np.ndarray]:
    """Read arrays of an npz file by name."""
    careful = reading(path, f"npz file with the arrays {', '.join(names)}")
    with careful, path.open("rb") as raw, np.load(raw, allow_pickle=False) as file:
        return [file[name] for name in names]


@contextmanager
def reading(path: Path | str, what: str, way_out: str = "download it again") -> Iterator[None]:
    """Turn errors while reading a damaged file into one sentence that names the file."""
    try:
        yield
    except Exception as error:  # packages that read files raise errors of all kinds
        raise ValueError(
            f"{path} is not a complete {what} ({reason(error)}); {way_out}."
        ) from error


def reason(error: BaseException) -> str:
    """Return the first clause of an error's message, or the kind of the error.

    Some messages quote bytes of the file, or advise to allow pickles.
    """
    said = [words for words in error.args if isinstance(words, str)]
    inside = isinstance(error, KeyError | OSError) or str(error) == str(error.args)
    words = said[0] if said and inside else str(error)
    if "pickle" in words:
        return "it contains Python objects, which are not read"
    first = words.splitlines()[0].split(";")[0].rstrip(" .:") if words.strip() else ""
    return first if first.isprintable() and 0 < len(first) <= 160 else type(error).__name__


def _home() -> Path | None:
    home = os.environ.get(HOME)
    return Path(home).expanduser() if home else None


def _pooch() -> ModuleType | None:
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
    if pooch is None or cache is None:
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
