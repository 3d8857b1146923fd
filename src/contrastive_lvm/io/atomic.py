"""Files that appear whole or not at all: written under a temporary name, then moved."""

import os
import secrets
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path


def destination(path: str | os.PathLike[str], name: str = "path") -> Path:
    """Return the path of a file that can be written; `name` is the argument in error messages.

    Raises
    ------
    OSError
        If the path is a folder, or if its folder does not exist or cannot be written to.
    """
    try:
        place = Path(path)
    except TypeError as error:
        raise TypeError(f"{name}={path!r} is not a path; give the name of a file.") from error
    if place.is_dir():
        raise IsADirectoryError(f"{name}={place} is a folder; name a file in it.")
    try:
        with tempfile.TemporaryFile(dir=place.parent):
            return place
    except OSError as error:
        raise _not_writable(place, error, name) from error


def write_atomically(
    path: str | os.PathLike[str], write: Callable[[Path], object], name: str = "path"
) -> Path:
    """Let `write` write a temporary file beside the path, and move it there if all went well.

    A failure leaves an existing file as it was. The file has the permissions of the one it
    replaces, or those of any new file, and is on the disk before it takes its place.
    """
    place = destination(path, name)
    real = Path(os.path.realpath(place))  # a symbolic link goes on pointing to its file
    temporary = real.with_name(f".{real.name[:40]}.{secrets.token_hex(8)}")
    try:
        temporary.touch(exist_ok=False)
        permissions = stat.S_IMODE((real if real.exists() else temporary).stat().st_mode)
        write(temporary)
        temporary.chmod(permissions)  # some writers set permissions of their own
        with temporary.open("rb+") as file:
            os.fsync(file.fileno())
        temporary.replace(real)
    except OSError as error:
        raise _not_writable(place, error, name) from error
    finally:
        temporary.unlink(missing_ok=True)
    return place


def write_text_atomically(path: str | os.PathLike[str], text: str, name: str = "path") -> Path:
    """Write text in UTF-8."""
    return write_atomically(path, lambda file: file.write_text(text, encoding="utf-8"), name)


def _not_writable(path: Path, error: OSError, name: str) -> OSError:
    reason = error.strerror or error
    return type(error)(f"{name}={path} cannot be written ({reason}); choose another file.")
