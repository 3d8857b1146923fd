"""Files of arrays and settings: safetensors with JSON in its metadata, and a checksum of both.

Reading one runs no code. The metadata has two entries: `settings`, a JSON object with the keys
`format`, `version` and those of its kind, and `sha256`, over the text of the settings and all
arrays.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from contrastive_lvm.io.atomic import refuse_holes, write_atomically

Arrays = dict[str, np.ndarray]
Json = None | bool | int | float | str | Sequence["Json"] | Mapping[str, "Json"]
JsonObject = Mapping[str, Json]
VERSION = 2  # of the format; raise it only when files change


class ModelFileError(ValueError):
    """A file that is not a complete model file (or training state) of a version this package knows.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> import contrastive_lvm as clvm
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "model.clvm"
    >>> _ = path.write_text("not a model")
    >>> try:
    ...     clvm.load_model(path)
    ... except clvm.ModelFileError as error:
    ...     "is not a complete model file" in str(error)
    True
    """


def write_container(path: Path, kind: str, arrays: Arrays, settings: JsonObject) -> None:
    """Write arrays of numbers and settings that JSON can hold."""
    # safetensors silently permutes arrays that are not C-contiguous.
    arrays = {name: np.array(array, order="C") for name, array in arrays.items()}
    text = json.dumps({"format": kind, "version": VERSION, **settings}, allow_nan=False)
    metadata = {"settings": text, "sha256": _checksum(text, arrays)}

    def write(temporary: Path) -> None:
        try:
            save_file(arrays, temporary, metadata=metadata)
        except SafetensorError as error:  # a full disk, for example
            raise OSError(clause(error)) from error

    write_atomically(path, write)


def read_container(path: Path, kind: str, what: str) -> tuple[dict[str, Any], Arrays]:
    """Return the settings and arrays of a whole file of this kind; `what` it is called.

    The settings have the `version` of the file.
    """
    try:
        refuse_holes(path)
        with safe_open(path, framework="numpy") as file:
            metadata = file.metadata() or {}
            settings = _read_settings(metadata.get("settings", "{}"))
            _check_kind(settings, path, kind, what)
            arrays = {name: file.get_tensor(name) for name in list(file.keys())}
    except ModelFileError:
        raise
    except PermissionError as error:
        raise PermissionError(f"{path} cannot be read; ask its owner for permission.") from error
    except (SafetensorError, OSError, TypeError, ValueError, RecursionError, MemoryError) as error:
        raise ModelFileError(
            f"{path} is not a complete {what} ({clause(error)}); save it again."
        ) from error
    if metadata.get("sha256") != _checksum(metadata["settings"], arrays):
        raise ModelFileError(f"{path} is damaged: its checksum does not match; save it again.")
    return {k: v for k, v in settings.items() if k != "format"}, arrays


def _check_kind(settings: JsonObject, path: Path, kind: str, what: str) -> None:
    if settings.get("format") != kind:
        raise ModelFileError(
            f"{path} is not a contrastive-lvm {what}; name a file that this package has written."
        )
    version = settings.get("version")
    if type(version) is not int or version < 1:
        raise ModelFileError(
            f"{path} is damaged: version={clipped(version)} does not exist; save it again."
        )
    if version > VERSION:
        raise ModelFileError(
            f"{path} has version {clipped(version)} of the format, this package reads up to "
            f"{VERSION}; update contrastive-lvm."
        )


def _read_settings(text: str) -> dict[str, Any]:
    """Parse strict JSON, without Python's extensions, with limits on depth and numbers."""
    number: Any = _number
    kinds = dict.fromkeys(("parse_float", "parse_int", "parse_constant"), number)
    found = json.loads(text, **kinds, object_pairs_hook=_once_each)
    _refuse_depth(found)
    return found if isinstance(found, dict) else {}


def _refuse_depth(value: Json, levels: int = 50) -> None:
    """Refuse settings that could exceed Python's limit of recursion."""
    if isinstance(value, dict | list):
        if not levels:
            raise ValueError("settings are nested too deeply")
        for inner in value.values() if isinstance(value, dict) else value:
            _refuse_depth(inner, levels - 1)


def _number(text: str) -> float:
    whole, value = text.lstrip("-").isdecimal(), float(text)
    if not np.isfinite(value) or (whole and abs(value) >= 2**63):
        raise ValueError(f"{text[:20]} is not a finite number of 64 bits")
    return int(text) if whole else value


def _once_each(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name occurs twice")
    return found


def clause(error: BaseException) -> str:
    """Return the message of an error as a part of a sentence."""
    if isinstance(error, KeyError):
        return f"it lacks {clipped(error.args[0] if error.args else '')}"
    words = (str(error).splitlines() or [""])[0].strip() or type(error).__name__
    return words.rstrip(".").replace(". ", ", ")[:300]


def clipped(value: object) -> str:
    """Return a value for a message, cut to a readable length."""
    try:
        words = repr(value)
    except (ValueError, RecursionError):  # a number too long to convert, a list too deep
        return f"a very long {type(value).__name__}"
    return words if len(words) <= 300 else f"{words[:300]}…"


def _checksum(text: str, arrays: Arrays) -> str:
    digest = hashlib.sha256(text.encode())
    for name in sorted(arrays):
        array = arrays[name]
        digest.update(json.dumps([name, array.dtype.str, array.shape]).encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()
