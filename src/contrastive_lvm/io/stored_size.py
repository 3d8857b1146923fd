"""Files that claim to be larger than what they store: refused before any memory is taken."""

from pathlib import Path


def refuse_claim(path: Path, claimed: int, stored: int) -> None:
    """Refuse to read more than a gigabyte from a file that stores less than 1/2000 of it.

    No compression that files use makes data that vary so much smaller; deflate cannot pass 1/1032.
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
