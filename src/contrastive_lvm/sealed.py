"""Files of arrays and settings: safetensors with JSON in its metadata, and a checksum.

Reading one runs no code. A file is written under a temporary name and moved.
"""

import hashlib
import json
import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

VERSION = 1


def write_sealed(path: Path, kind: str, arrays: dict[str, Any], settings: dict[str, Any]) -> None:
    """Write arrays of numbers and settings that JSON can hold."""
    if not path.parent.is_dir():
        raise FileNotFoundError(f"path={str(path)!r} is in a folder that does not exist.")
    # safetensors permutes arrays that are not C-contiguous without a word.
    arrays = {name: np.array(array, order="C", copy=True) for name, array in arrays.items()}
    sealed = {"format": kind, "version": VERSION, **settings, "sha256": _checksum(arrays)}
    text = json.dumps(sealed, allow_nan=False)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    os.close(handle)
    try:
        save_file(arrays, temporary, metadata={"settings": text})
        Path(temporary).replace(path)
    except SafetensorError as error:  # a full disk, in words of its own
        raise OSError(str(error)) from error
    finally:
        Path(temporary).unlink(missing_ok=True)


def read_sealed(path: Path, kind: str, what: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Settings and arrays of a whole file of this kind; `what` is its name for people."""
    try:
        with safe_open(path, framework="numpy") as file:
            settings = json.loads((file.metadata() or {}).get("settings", "{}"))
            if not isinstance(settings, dict) or settings.get("format") != kind:
                raise ValueError(f"{path} is not a contrastive-lvm {what}.")
            if settings.get("version") != VERSION:
                raise ValueError(
                    f"{path} has version {settings.get('version')!r} of the format, this package "
                    f"reads {VERSION}; update contrastive-lvm."
                )
            arrays = {name: file.get_tensor(name) for name in list(file.keys())}
    except (SafetensorError, json.JSONDecodeError, UnicodeDecodeError, OSError) as error:
        raise ValueError(f"{path} is not a whole {what}: {error}.") from error
    if settings.get("sha256") != _checksum(arrays):
        raise ValueError(f"{path} is damaged: its arrays do not match their checksum.")
    return settings, arrays


def _checksum(arrays: dict[str, Any]) -> str:
    digest = hashlib.sha256()
    for name in sorted(arrays):
        digest.update(f"{name}{arrays[name].dtype}{arrays[name].shape}".encode())
        digest.update(arrays[name].tobytes())
    return digest.hexdigest()
