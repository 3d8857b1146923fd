"""Exact medians of columns whose rows are seen a block at a time, several times over.

Bits of a floating-point number, read as an integer with the sign put right, are in the order of
the numbers. A pass counts, for each column, how many of its values have which next bits among
those that share the leading bits of the median; so each pass finds some more of its bits (radix
selection). Once few values are left they are collected, and the median is among them. Only counts
and those few values are added up over blocks, and the answer is the one that sorting would give.
"""

from collections.abc import Callable
from functools import partial, reduce
from operator import add
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from contrastive_lvm.arrays import Array, Matrix
from contrastive_lvm.linalg.matrices import row_slices, widen

Keys = npt.NDArray[np.uint64]
# (function of a block, how two results add up) -> the sum over all blocks
Total = Callable[[Callable[[Matrix], Any], Callable[[Any, Any], Any]], Any]

CELLS = 1 << 19  # counts of a pass, all columns together
FEW = 1 << 19  # values that are collected, all columns together
ENTRIES = 1 << 20  # of a block whose bits are looked at together
ALL_BITS, SIGN = 64, np.uint64(1 << 63)


class Bracket(NamedTuple):
    """Leading bits of the value sought in each column, and its place among those that share it."""

    prefix: Keys  # (D,)
    n_bits: int
    rank: np.ndarray  # (D,) of the value sought, from 0
    size: np.ndarray  # (D,) values that share the prefix


class Few(NamedTuple):
    """Distinct values within the brackets, how often each occurs, and the least value above."""

    columns: np.ndarray  # (M,)
    values: Array  # (M,)
    times: np.ndarray  # (M,)
    above: Array  # (D,)

    def plus(self, other: "Few") -> "Few":
        """Of the rows of both."""
        joined = (np.concatenate(pair) for pair in zip(self[:3], other[:3], strict=True))
        columns, values, times = joined
        return Few(columns, values, times, np.minimum(self.above, other.above))


def medians(total: Total, counts: Array) -> Array:
    """Of each column, (D,), from the numbers of their observed entries."""
    return _medians(total, counts, _values)


def deviations(total: Total, counts: Array, centre: Array) -> Array:
    """Medians of the distances from the centre, (D,)."""
    return _medians(total, counts, partial(_distances, centre))


def _values(rows: Array) -> Array:
    return rows


def _distances(centre: Array, rows: Array) -> Array:
    return np.abs(rows - centre)


def _medians(total: Total, counts: Array, values: Callable[[Array], Array]) -> Array:
    D, n = len(counts), counts.astype(np.int64)
    step = max(1, int(np.log2(CELLS // min(D, CELLS // 2))))
    bracket = Bracket(np.zeros(D, dtype=np.uint64), 0, (n - 1) // 2, n)
    while bracket.n_bits < ALL_BITS and bracket.size.max() > FEW // D:
        bits = min(step, ALL_BITS - bracket.n_bits)
        found = total(partial(_count, values, bracket, bits), add)
        bracket = _narrowed(bracket, bits, found)
    few = total(partial(_collect, values, bracket), Few.plus)
    return np.array([_middle(few, bracket.rank[d], n[d], d) for d in range(D)])


def _keys(values: Array) -> Keys:
    """Integers in the order of the numbers."""
    bits = np.ascontiguousarray(values + 0.0).view(np.uint64)  # -0.0 becomes 0.0
    flip = np.where(bits >= SIGN, ~np.uint64(0), SIGN)
    return np.bitwise_xor(bits, flip)


def _shifted(keys: Keys, by: int) -> Keys:
    """Without the last bits; shifting by all of them is not defined."""
    return np.zeros_like(keys) if by >= ALL_BITS else keys >> np.uint64(by)


def _count(
    values: Callable[[Array], Array], bracket: Bracket, bits: int, rows: Matrix
) -> np.ndarray:
    """How often the next bits take which value, (D, 2^bits)."""
    D, cells = rows.shape[1], 1 << bits
    counts = np.zeros(D * cells, dtype=np.int64)
    offset = (np.arange(D) * cells).astype(np.int64)
    for some in row_slices(*rows.shape, elements=ENTRIES, most=rows.shape[0]):
        found = values(widen(rows[some]))
        keys = _keys(found)
        inside = ~np.isnan(found)
        inside &= _shifted(keys, ALL_BITS - bracket.n_bits) == bracket.prefix
        digits = _shifted(keys, ALL_BITS - bracket.n_bits - bits) & np.uint64(cells - 1)
        at = digits.astype(np.int64) + offset
        counts += np.bincount(at[inside], minlength=len(counts))
    return counts.reshape(D, cells)


def _narrowed(bracket: Bracket, bits: int, counts: np.ndarray) -> Bracket:
    upto = counts.cumsum(axis=1)
    digit = (upto > bracket.rank[:, None]).argmax(axis=1)
    each = np.arange(len(digit))
    size = counts[each, digit]
    prefix = (bracket.prefix << np.uint64(bits)) | digit.astype(np.uint64)
    return Bracket(prefix, bracket.n_bits + bits, bracket.rank - (upto[each, digit] - size), size)


def _collect(values: Callable[[Array], Array], bracket: Bracket, rows: Matrix) -> Few:
    slices = row_slices(*rows.shape, elements=ENTRIES, most=rows.shape[0])
    return reduce(Few.plus, (_few(bracket, values(widen(rows[some]))) for some in slices))


def _few(bracket: Bracket, found: Array) -> Few:
    leading, seen = _shifted(_keys(found), ALL_BITS - bracket.n_bits), ~np.isnan(found)
    above = np.where(seen & (leading > bracket.prefix), found, np.inf).min(axis=0)
    _, columns = inside = np.nonzero(seen & (leading == bracket.prefix))
    pairs = np.stack([columns.astype(np.float64), found[inside]])
    distinct, times = np.unique(pairs, axis=1, return_counts=True)
    return Few(distinct[0].astype(np.intp), distinct[1], times, above)


def _middle(few: Few, rank: int, n: int, column: int) -> float:
    """The value of a rank within its bracket, or its mean with the next one when n is even."""
    own = few.columns == column
    order = np.argsort(few.values[own], kind="stable")
    values, upto = few.values[own][order], few.times[own][order].cumsum()
    low = float(values[int((upto > rank).argmax())])
    if n % 2:
        return low
    more = upto > rank + 1
    high = float(values[int(more.argmax())]) if more.any() else float(few.above[column])
    return (low + high) / 2.0
