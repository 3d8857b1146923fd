"""Fits that cannot fit into memory are refused before they start, since all sizes are known.

The estimate counts only what every such fit holds at the same time, so that no fit is refused that
would have succeeded: sets that are loaded, the loadings, and the sums over rows. It is a lower
bound and a loose one: the peaks of seven small fits were 3.6 (a memory map that is loaded) to 250
times as large (Student-t noise in memory). `tests/rows/test_memory.py` holds it below such peaks.
"""

from collections.abc import Sequence
from pathlib import Path

from contrastive_lvm.exceptions import InvalidDataError
from contrastive_lvm.rows.reader import RowReader, Rows


def check_memory(sets: Sequence[Rows], n_columns: int, *, loads: bool, scatter: bool) -> None:
    """Refuse sets whose fit needs more memory than this machine, or this container, has.

    `loads` says that sets out of core are read into memory; `scatter` that complete rows are
    compressed to a matrix of all pairs of features.
    """
    needed, total = least_bytes(sets, n_columns, loads=loads, scatter=scatter), total_memory()
    if total is not None and needed > total:
        n_features = sets[0].shape[1]
        reason = (
            f"has {n_features} features, and a fit of {n_columns} dimensions needs at least "
            f"{needed / 1e9:.3g} GB of memory, but there are {total / 1e9:.3g} GB; use fewer "
            "columns or dimensions."
        )
        raise InvalidDataError("X", reason)


def least_bytes(sets: Sequence[Rows], n_columns: int, *, loads: bool, scatter: bool) -> int:
    """Return the bytes that a fit holds at once, beside rows that are in memory already.

    Complete rows become a (D, D) matrix in each set, others K (K + 1) / 2 sums for each feature.
    Which of the two is known only when the rows have been read, so that the lesser one counts.
    """
    n_features = int(sets[0].shape[1])
    pairs = n_columns * (n_columns + 1) // 2
    sums = min(n_features * len(sets), pairs) if scatter else 0
    read = sum(_loaded_bytes(X) for X in sets) if loads else 0
    return read + 8 * n_features * (n_columns + sums)  # bytes, in double precision


def _loaded_bytes(X: Rows) -> int:
    """Return the bytes of a set once it is loaded; zero if it is in memory, or may be sparse."""
    if not isinstance(X, RowReader) or X.in_memory or not X.is_dense:
        return 0
    return X.shape[0] * X.shape[1] * X.dtype.itemsize


def total_memory() -> int | None:
    """Return the memory and swap space of this machine or container; None if they are unknown."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    sizes = {line.split(":")[0]: int(line.split()[1]) * 1024 for line in lines}
    memory, swap = sizes["MemTotal"], sizes.get("SwapTotal", 0)
    limits = [
        _limit("/sys/fs/cgroup/memory.max"),
        _limit("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
    ]
    return min([memory, *(limit for limit in limits if limit is not None)]) + swap


def _limit(path: str) -> int | None:
    """Return the limit of a container; None where there is none."""
    try:
        return int(Path(path).read_text(encoding="ascii"))
    except (OSError, ValueError):  # no such file, or the word max
        return None
