"""Files that appear whole or not at all: written under a temporary name, then moved.

Files that claim to be larger than what they store are refused before any memory is taken.
"""

import os
import secrets
import stat
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

OTHER_FORMATS = {".pdf", ".png", ".svg", ".docx"}


def page_destination(
    path: str | os.PathLike[str],
    name: str = "path",
    *,
    inputs: Iterable[Path | None] = (),
    outputs: Iterable[Path | None] = (),
) -> Path:
    """Return the path of a page that can be written, as `destination` does.

    Raises
    ------
    ValueError
        If its ending is that of another format.
    """
    place = destination(path, name, inputs=inputs, outputs=outputs)
    if place.suffix.lower() in OTHER_FORMATS:
        raise ValueError(
            f"{name}={place} is not the name of an HTML page; end it in .html, and print the page "
            "from a browser if you need a PDF."
        )
    return place


def as_path(path: str | os.PathLike[str], name: str = "path") -> Path:
    """Return a path, or refuse what is none; `name` is the argument in the error message."""
    try:
        return Path(path)
    except TypeError as error:
        raise TypeError(f"{name}={path!r} is not a path; give the name of a file.") from error


def destination(
    path: str | os.PathLike[str],
    name: str = "path",
    *,
    inputs: Iterable[Path | None] = (),
    outputs: Iterable[Path | None] = (),
) -> Path:
    """Return the path of a file that can be written; `name` is the argument in error messages.

    `inputs` are files and folders that are read, and `outputs` others that are written: the path
    must be none of them, also by another name (a symbolic or hard link).

    Raises
    ------
    OSError
        If the path is not that of a file, or if its folder does not exist or cannot be written to.
    ValueError
        If it is one of the inputs or outputs.
    """
    place = as_path(path, name)
    if place.is_dir():
        raise IsADirectoryError(f"{name}={place} is a folder; name a file in it.")
    if kind := special_kind(place):
        raise OSError(f"{name}={place} is a {kind}, not a file; choose another name.")
    try:
        with tempfile.TemporaryFile(dir=Path(os.path.realpath(place)).parent):
            pass
    except OSError as error:
        raise _not_writable(place, error, name) from error
    for others, what in ((inputs, "an input"), (outputs, "another output")):
        if any(_is_same(place, other) for other in others if other is not None):
            raise ValueError(f"{name}={place} is also {what}; choose another file.")
    return place


def write_atomically(
    path: str | os.PathLike[str], write: Callable[[Path], object], name: str = "path"
) -> Path:
    """Let `write` write a temporary file in the same folder, and move it to the path on success.

    A failure leaves an existing file as it was. The file has the permissions of the one it
    replaces, or those of any new file, and is on the disk before it takes its place. A symbolic
    link keeps pointing to its file. Devices and pipes are never replaced.
    """
    place = destination(path, name)
    real = Path(os.path.realpath(place))
    temporary = real.with_name(f".{real.name[:40]}.{secrets.token_hex(8)}")
    try:
        temporary.touch(exist_ok=False)
        permissions = stat.S_IMODE((real if real.exists() else temporary).stat().st_mode)
        write(temporary)
        temporary.chmod(permissions)  # some writers set their own permissions
        with temporary.open("rb+") as file:
            os.fsync(file.fileno())
        temporary.replace(real)
    except OSError as error:
        raise _not_writable(place, error, name) from error
    finally:
        temporary.unlink(missing_ok=True)
    return place


def write_text_atomically(path: str | os.PathLike[str], text: str, name: str = "path") -> Path:
    r"""Write text in UTF-8; lone surrogates, which names of files may have, become `\udcff`."""
    raw = text.encode("utf-8", errors="backslashreplace")
    return write_atomically(path, lambda file: file.write_bytes(raw), name)


def special_kind(path: Path) -> str | None:
    """Return what a path leads to if that is neither a file nor a folder: a pipe, a device.

    A file of a process, such as that of /dev/stdout, counts as a device.
    """
    if not path.exists():
        return None
    kinds, place = {stat.S_IFIFO: "pipe", stat.S_IFSOCK: "socket"}, path
    if path.is_file() or path.is_dir():
        while not os.path.realpath(place.parent).startswith("/proc/"):
            if not place.is_symlink():
                return None
            place = place.parent / place.readlink()
    return kinds.get(stat.S_IFMT(path.stat().st_mode), "device")


def _is_same(path: Path, other: Path) -> bool:
    """Return whether two paths lead to one file, or to a file of a folder that is read."""
    if path.exists() and other.exists():
        inside = Path(os.path.realpath(other)) in Path(os.path.realpath(path)).parents
        return path.samefile(other) or inside
    return os.path.realpath(path) == os.path.realpath(other)


def _not_writable(path: Path, error: OSError, name: str) -> OSError:
    reason = error.strerror or error
    return type(error)(f"{name}={path} cannot be written ({reason}); choose another file.")


def refuse_claim(path: Path, claimed: int, stored: int) -> None:
    """Refuse to read more than a gigabyte from a file that stores less than 1/2000 of it.

    No usual compression makes data that vary so much smaller; the limit of deflate is 1/1032.
    """
    if claimed > max(1 << 30, 2000 * stored):
        raise ValueError(
            f"{path} claims {claimed:,} bytes, but only {stored:,} are stored; save it again."
        )


def refuse_holes(path: Path) -> None:
    """Refuse a file that consists of holes, which read as zeros."""
    found = path.stat()
    if hasattr(found, "st_blocks"):  # not on Windows
        refuse_claim(path, found.st_size, 512 * found.st_blocks)
