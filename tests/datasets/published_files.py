"""What the tests of fetchers share: an empty data folder without a network, and small archives."""

import gzip
import io
import os
import tarfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.io import mmwrite
from scipy.sparse import coo_matrix

from contrastive_lvm.datasets import download


def isolate(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data folder of one's own, no checksums, since files are small, and no network."""

    def offline(*_: object, **__: object) -> str:
        raise ConnectionError("a test tried to download something")

    pooch = SimpleNamespace(os_cache=lambda _: str(folder / "cache"), retrieve=offline)
    monkeypatch.setattr(download, "_pooch", lambda: pooch)
    unchecked = {name: source._replace(sha256=None) for name, source in download.SOURCES.items()}
    monkeypatch.setattr(download, "SOURCES", unchecked)
    monkeypatch.setenv("CONTRASTIVE_LVM_DATA", str(folder))
    return folder


def put(folder: Path, name: str, raw: bytes) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(raw)
    return path


def tarred(members: Mapping[str, bytes], *, compressed: bool = True) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name, raw in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(raw)
            archive.addfile(info, io.BytesIO(raw))
    return gzip.compress(out.getvalue(), mtime=0) if compressed else out.getvalue()


def zipped(members: Mapping[str, bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, raw in members.items():
            archive.writestr(name, raw)
    return out.getvalue()


def matrix_market(counts: np.ndarray) -> bytes:
    """Cells x genes as a file of genes x cells."""
    out = io.BytesIO()
    mmwrite(out, coo_matrix(counts.T), field="integer")
    return out.getvalue()


def real(*parts: str) -> Path:
    """A file of the data folder; the test is skipped when it is not there."""
    if "CONTRASTIVE_LVM_DATA" not in os.environ:
        pytest.skip("CONTRASTIVE_LVM_DATA is not set")
    path = Path(os.environ["CONTRASTIVE_LVM_DATA"]).joinpath(*parts)
    if not path.is_file():
        pytest.skip(f"{path.name} is not there")
    return path
