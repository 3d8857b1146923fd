"""Model files taken apart, changed, and sealed again, for tests of what reading refuses."""

import hashlib
import json
import struct
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

KINDS = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "U32": "<u4"}
KINDS |= {"U8": "|u1", "BOOL": "|b1"}
LETTERS = {kind: letters for letters, kind in KINDS.items()}


class Contents(NamedTuple):
    """The settings of a file and its arrays."""

    settings: Any
    arrays: dict[str, np.ndarray]

    def described(self) -> "Contents":
        """With settings that describe these arrays, as a careful forger would leave them."""
        return self._replace(settings=_described(self.settings, self.arrays, ""))


def _described(flat: Any, arrays: dict[str, np.ndarray], path: str) -> Any:
    """Settings with the types and shapes of the arrays at their paths."""
    if isinstance(flat, list):
        return [_described(item, arrays, f"{path}.{i}") for i, item in enumerate(flat)]
    if not isinstance(flat, dict):
        return flat
    if "$array" in flat:
        array = arrays.get(path)
        held = {} if array is None else {"$array": array.dtype.str, "shape": list(array.shape)}
        return {**flat, **held}
    parts = {key: key if key.isidentifier() else str(i) for i, key in enumerate(flat)}
    inner = ("fields", "$tuple", "$random_state") if any(k[:1] == "$" for k in flat) else ()
    return {
        key: _described(value, arrays, path if key in inner else f"{path}.{parts[key]}".lstrip("."))
        for key, value in flat.items()
    }


def opened(raw: bytes) -> Contents:
    """A file's contents, read by hand: eight bytes, a header of JSON, and the arrays."""
    (length,) = struct.unpack("<Q", raw[:8])
    header, body = json.loads(raw[8 : 8 + length]), raw[8 + length :]
    settings = json.loads(header.pop("__metadata__")["settings"])
    arrays = {}
    for name, about in header.items():
        begin, end = about["data_offsets"]
        flat = np.frombuffer(body[begin:end], dtype=KINDS[about["dtype"]])
        arrays[name] = flat.reshape(about["shape"])
    return Contents(settings, arrays)


def sealed(contents: Contents) -> bytes:
    """A file with a checksum that matches; NaN and long numbers go into its JSON as they are."""
    text = json.dumps(contents.settings)
    digest = hashlib.sha256(text.encode())
    header: dict[str, Any] = {}
    body = b""
    for name in sorted(contents.arrays):
        array = np.array(contents.arrays[name], order="C")  # keeps an array of no dimensions
        digest.update(json.dumps([name, array.dtype.str, array.shape]).encode())
        digest.update(array.tobytes())
        at = [len(body), len(body) + array.nbytes]
        letters = LETTERS[array.dtype.str]
        header[name] = {"dtype": letters, "shape": array.shape, "data_offsets": at}
        body += array.tobytes()
    header["__metadata__"] = {"settings": text, "sha256": digest.hexdigest()}
    told = json.dumps(header).encode()
    told += b" " * (-len(told) % 8)
    return struct.pack("<Q", len(told)) + told + body


def same(one: Any, other: Any) -> bool:
    """Equal as JSON is: truth is not a number, 1 is 1.0."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[k], other[k]) for k in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, float) and type(other) is int:
        other = float(other)
    return isinstance(one, bool) == isinstance(other, bool) and bool(one == other)


def same_contents(one: Contents, other: Contents) -> bool:
    """The same settings, and arrays equal to the last bit."""
    return (
        same(one.settings, other.settings)
        and one.arrays.keys() == other.arrays.keys()
        and all(_same_bits(one.arrays[name], other.arrays[name]) for name in one.arrays)
    )


def _same_bits(one: np.ndarray, other: np.ndarray) -> bool:
    kinds = (one.dtype, one.shape) == (other.dtype, other.shape)
    return kinds and one.tobytes() == other.tobytes()


def change(path: Path, **changes: Any) -> None:
    """Other settings in a file, sealed again."""
    contents = opened(path.read_bytes())
    path.write_bytes(sealed(contents._replace(settings={**contents.settings, **changes})))
