"""Sums over rows that are the same to the last digit however the rows are cut into blocks.

Rows are counted off in cells, of as many rows each as only their features decide. What a cell adds
is found from its rows alone, by one thread of BLAS, and cells are added in pairs, pairs of cells in
pairs, and so on: a binary tree over all cells of a set. Of consecutive cells, such as those of a
block, the largest whole branches of that tree are kept; where two blocks meet, branches that belong
together are joined. So neither the blocks nor who works on them decides what is added to what.

That matters because ascents magnify the last digit of a sum: fits of heavy-tailed rows to the same
rows, cut otherwise, would end up to 1e-5 apart.
"""

from collections.abc import Callable, Iterable
from functools import partial, reduce
from typing import Any, Generic, NamedTuple, TypeVar

from contrastive_lvm.arrays import Matrix
from contrastive_lvm.linalg.matrices import own_rows, row_slices, stacked

Result = TypeVar("Result")
Plus = Callable[[Any, Any], Any]
MOST_ROWS = 8192  # of a cell: fewer, and threads wait for the interpreter rather than work
MOST_ENTRIES = 1 << 18  # of a cell, unless its work is a single product


def cell_rows(n_features: int, *, entries: int = MOST_ENTRIES) -> int:
    """Rows of a cell: a power of two, so that cells of one size begin with those of another."""
    wanted = max(1, min(MOST_ROWS, entries // max(1, n_features)))
    return 1 << (wanted.bit_length() - 1)


class Branch(NamedTuple, Generic[Result]):
    """The sum over the cells from `place * 2**level` to before `(place + 1) * 2**level`."""

    level: int
    place: int
    sum: Result


def joined(
    plus: Plus, left: list[Branch[Result]], right: list[Branch[Result]]
) -> list[Branch[Result]]:
    """Branches of the cells of both, which follow each other."""
    found = list(left)
    for branch in right:
        found.append(branch)
        while len(found) > 1 and _are_halves(*found[-2:]):
            second, first = found.pop(), found.pop()
            both = plus(first.sum, second.sum)
            found.append(Branch(first.level + 1, first.place // 2, both))
    return found


def _are_halves(first: Branch[Any], second: Branch[Any]) -> bool:
    """Of one branch."""
    return first.level == second.level and second.place % 2 == 1


def branches(plus: Plus, results: Iterable[Result], first: int = 0) -> list[Branch[Result]]:
    """Of the results of consecutive cells, the first of which is so far from the set's begin."""
    leaves = ([Branch(0, first + i, result)] for i, result in enumerate(results))
    none: list[Branch[Result]] = []
    return reduce(partial(joined, plus), leaves, none)


def whole(plus: Plus, found: list[Branch[Result]]) -> Result:
    """The sum over all cells of a set, from its branches."""
    *others, last = (branch.sum for branch in found)
    total: Result = reduce(lambda later, earlier: plus(earlier, later), reversed(others), last)
    return total


class Stretch(NamedTuple):
    """Sums of consecutive rows that may begin and end within a cell."""

    start: int
    stop: int
    before: list[Matrix]  # rows of a cell that began earlier; all rows, if it does not end here
    branches: list[Branch[Any]]
    after: list[Matrix]  # rows of a cell that ends later


class Cells(NamedTuple):
    """What is done with each cell of some rows, and how that adds up."""

    function: Callable[[Matrix], Any]
    plus: Plus
    size: int

    def of(self, rows: Matrix, start: int) -> Stretch:
        """Sums of a block that begins with the given row of its set."""
        stop = start + rows.shape[0]
        first, last = -(-start // self.size) * self.size, stop // self.size * self.size
        if first > stop:
            return Stretch(start, stop, [own_rows(rows)], [], [])
        before = [own_rows(rows[: first - start])] if first > start else []
        after = [own_rows(rows[last - start :])] if last < stop else []
        inner = rows[first - start : last - start]
        parts = (inner[some] for some in row_slices(inner.shape[0], 1, most=self.size))
        found = branches(self.plus, map(self.function, parts), first // self.size)
        return Stretch(start, stop, before, found, after)

    def joined(self, left: Stretch, right: Stretch) -> Stretch:
        """Sums of both blocks, the second of which follows the first; a shared cell is done now."""
        if not self._reaches_a_border(left):
            loose = [*left.before, *right.before]
            return Stretch(left.start, right.stop, loose, right.branches, right.after)
        loose, found = [*left.after, *right.before], left.branches
        if not self._reaches_a_border(right):
            return Stretch(left.start, right.stop, left.before, found, loose)
        if loose:
            found = joined(self.plus, found, self._leaf(loose, right.start // self.size))
        found = joined(self.plus, found, right.branches)
        return Stretch(left.start, right.stop, left.before, found, right.after)

    def whole(self, stretch: Stretch) -> Any:
        """The sum over all rows of a set; its last cell may have fewer rows than the others."""
        found, loose = stretch.branches, [*stretch.before, *stretch.after]
        if loose:
            last = self._leaf(loose, (stretch.stop - 1) // self.size)
            found = joined(self.plus, found, last)
        return whole(self.plus, found)

    def _leaf(self, rows: list[Matrix], place: int) -> list[Branch[Any]]:
        return [Branch(0, place, self.function(stacked(rows)))]

    def _reaches_a_border(self, stretch: Stretch) -> bool:
        return -(-stretch.start // self.size) * self.size <= stretch.stop
