"""Fits that cannot fit into memory are refused before they start, since all sizes are known.

The estimate counts what fits of a kind were measured to hold at the same time: rows in memory and
copies of them, what is kept of each row, (D, D) matrices, and loadings with the steps from which
they are extrapolated. It was .6 to 1 times the peak in fits of 100 to 500 MB. It leaves out the
blocks that threads work on, some tens of MB, and the matrices of sets with fewer rows than
features, which depend on what is missing. `tests/rows/test_memory.py` holds it below peaks.
"""

from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path

from contrastive_lvm.arrays import Matrix
from contrastive_lvm.exceptions import InvalidDataError
from contrastive_lvm.likelihoods.base import Likelihood
from contrastive_lvm.linalg.matrices import is_sparse
from contrastive_lvm.rows.data import MOST_SPAN_ROWS
from contrastive_lvm.rows.reader import RowReader, Rows
from contrastive_lvm.rows.scatter import MOST_FEATURES

COPIES = 12  # of loadings: starts, and steps to extrapolate from
COPIES_IN_SPAN = 4  # where these are made in the span of few rows


def check_memory(sets: Sequence[Rows], n_columns: int, likelihood: Likelihood) -> None:
    """Refuse sets whose fit needs more memory than this machine, or this container, has."""
    needed, total = least_bytes(sets, n_columns, likelihood), total_memory()
    if total is not None and needed > total:
        n_rows, n_features = sum(X.shape[0] for X in sets), sets[0].shape[1]
        reason = (
            f"is too large: a fit of {n_columns} dimensions to {n_rows} rows of {n_features} "
            f"features needs at least {needed / 1e9:.3g} GB of memory, but there are "
            f"{total / 1e9:.3g} GB; use fewer columns or dimensions, or keep the rows out of core "
            "(a memory map, an HDF5 or zarr array, or a Dask array)."
        )
        raise InvalidDataError("X", reason)


def least_bytes(sets: Sequence[Rows], n_columns: int, likelihood: Likelihood) -> int:
    """Return the bytes that a fit holds at once, with its rows if they are in memory."""
    D, sizes = int(sets[0].shape[1]), [int(X.shape[0]) for X in sets]
    held = [X for X in sets if not isinstance(X, RowReader) or X.in_memory]
    rows = sum(_bytes_of(X.load() if isinstance(X, RowReader) else X) for X in held)
    if not likelihood._has_closed_form:  # rows in which predictors are linear, and q of each row
        rows *= 2 if likelihood._has_counts(D).any() else 1
        kept, matrices = n_columns * (n_columns + 3), 0
    elif likelihood._is_scale_mixture:
        kept, matrices = likelihood._scale_width(D), len(sets)
    else:
        kept, matrices = 0, len(sets) + 1
    square = matrices * D if D <= min(*sizes, MOST_FEATURES) else 0
    copies = COPIES if sum(sizes) > MOST_SPAN_ROWS else COPIES_IN_SPAN
    numbers = kept * sum(int(X.shape[0]) for X in held) + D * (copies * n_columns + square)
    return rows + 8 * numbers  # bytes, in double precision


def _bytes_of(X: Matrix) -> int:
    parts = (X.data, X.indices, X.indptr) if is_sparse(X) else (X,)
    return int(sum(part.nbytes for part in parts))


@cache
def total_memory() -> int | None:
    """Return the memory and swap space of this machine or container; None if they are unknown."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    sizes = {line.split(":")[0]: int(line.split()[1]) * 1024 for line in lines}
    limits = [sizes["MemTotal"]]
    for limit in ("memory.max", "memory/memory.limit_in_bytes"):  # of the container
        with suppress(OSError, ValueError):  # no such file, or the word max
            limits.append(int(Path("/sys/fs/cgroup", limit).read_text(encoding="ascii")))
    return min(limits) + sizes.get("SwapTotal", 0)
