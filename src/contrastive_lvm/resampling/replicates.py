"""Replicates: rows that belong together, and are drawn and held out together.

Rows of one donor, mouse or run are not independent, so that random draws and folds take whole
replicates. Without labels every row is a replicate of its own. A label that occurs in several sets
names one replicate of all of them, for example a donor before and after treatment.
"""

from collections.abc import Sequence
from heapq import heapify, heapreplace
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from contrastive_lvm.arrays import Array, RowLabels
from contrastive_lvm.checks import check_integer
from contrastive_lvm.exceptions import InvalidDataError, InvalidParameterError

Integers = npt.NDArray[np.intp]
Flags = npt.NDArray[np.bool_]
ARGUMENTS = ("groups", "background_groups")


class Replicates(NamedTuple):
    """The replicate of each row, numbered from 0 on over all sets."""

    rows: tuple[Integers, ...]  # (N,) of each set: the replicate of each row
    n_replicates: int
    labelled: bool  # False where every row is a replicate of its own

    def members(self) -> Flags:
        """Return which replicates have rows in which set, (sets, replicates)."""
        found = np.zeros((len(self.rows), self.n_replicates), dtype=bool)
        for i, numbers in enumerate(self.rows):
            found[i, numbers] = True
        return found

    def take(self, kept: Sequence[Integers]) -> "Replicates":
        """Return the replicates of some rows of each set."""
        pairs = zip(self.rows, kept, strict=True)
        return self._replace(rows=tuple(numbers[own] for numbers, own in pairs))

    @property
    def in_several_sets(self) -> bool:
        """Whether a replicate has rows in more than one set."""
        return self.labelled and bool((self.members().sum(axis=0) > 1).any())


def check_replicates(
    groups: Sequence[RowLabels], n_rows: Sequence[int], names: Sequence[str] = ARGUMENTS
) -> Replicates:
    """Return the replicates that labels of the rows of each set name.

    Parameters
    ----------
    groups : sequence of array-like or None
        Labels of the rows of each set, or None in all sets: each row is then a replicate.
    n_rows : sequence of int
        Number of rows of each set.
    names : sequence of str
        Names of the arguments, for errors.

    Returns
    -------
    Replicates

    Examples
    --------
    >>> found = check_replicates([["a", "a", "b"], ["c", "b"]], [3, 2])
    >>> [rows.tolist() for rows in found.rows], found.in_several_sets
    ([[0, 0, 1], [2, 1]], True)
    """
    missing = [given is None for given in groups]
    if all(missing):
        starts = np.concatenate([[0], np.cumsum(n_rows)])
        rows = tuple(np.arange(*pair) for pair in pairwise(starts.tolist()))
        return Replicates(rows, int(starts[-1]), labelled=False)
    if any(missing):
        without, given = names[missing.index(True)], names[missing.index(False)]
        reason = f"was left out although {given} was given; give the replicates of all sets."
        raise InvalidParameterError(without, None, reason)
    labels = [replicate_labels(*each) for each in zip(names, groups, n_rows, strict=False)]
    numbers, known = pd.factorize(np.concatenate(labels))
    rows = tuple(np.split(numbers.astype(np.intp), np.cumsum(n_rows)[:-1]))
    for name, own in zip(names, rows, strict=False):
        if (own == own[0]).all():
            reason = (
                f"names one replicate only, {known[own[0]]!r}, but variation between replicates "
                "needs at least two; leave it out if rows are independent."
            )
            raise InvalidDataError(name, reason)
    return Replicates(rows, len(known), labelled=True)


def replicate_labels(name: str, given: Any, n_rows: int) -> npt.NDArray[np.object_]:
    """Return the label of each row, checked."""
    values = given.to_numpy() if hasattr(given, "to_numpy") else given
    try:
        labels = np.asarray(values, dtype=object)
    except ValueError as error:  # lists of different lengths
        raise InvalidDataError(name, "must be one label for each row.") from error
    if labels.shape != (n_rows,):
        reason = f"has shape {labels.shape}, but there are {n_rows} rows; give one label per row."
        raise InvalidDataError(name, reason)
    missing = np.flatnonzero(pd.isna(labels))
    if len(missing):
        reason = (
            f"has no label for {len(missing)} row(s), the first of them row {missing[0]}; label "
            "these rows, or leave them out."
        )
        raise InvalidDataError(name, reason)
    return labels


def draw_weights(replicates: Replicates, rng: np.random.Generator) -> tuple[Array, ...]:
    """Draw replicates with replacement: how often each row of each set is in the draw.

    Replicates are drawn among those that have rows in the same sets, so that each set keeps its
    number of replicates, and a replicate of several sets is drawn in all of them at once.

    Examples
    --------
    >>> pairs = check_replicates([["a", "b", "b"], ["b", "a"]], [3, 2])
    >>> [weights.tolist() for weights in draw_weights(pairs, np.random.default_rng(0))]
    [[0.0, 2.0, 2.0], [2.0, 0.0]]
    """
    kind = _kinds(replicates)
    times = np.zeros(replicates.n_replicates)
    for each in np.unique(kind):
        alike = np.flatnonzero(kind == each)
        times[alike] = np.bincount(rng.integers(len(alike), size=len(alike)), minlength=len(alike))
    return tuple(times[numbers] for numbers in replicates.rows)


def draw_halves(replicates: Replicates, rng: np.random.Generator) -> list[tuple[Array, ...]]:
    """Draw half of the replicates without replacement, and the other half: weights of the rows.

    Replicates of the drawn half count twice, so that a set weighs about as much as before.

    Examples
    --------
    >>> rows = check_replicates([None, None], [4, 2])
    >>> first, second = draw_halves(rows, np.random.default_rng(0))
    >>> first[0].sum(), (first[0] + second[0]).tolist()
    (np.float64(4.0), [2.0, 2.0, 2.0, 2.0])
    """
    kind = _kinds(replicates)
    drawn = np.zeros(replicates.n_replicates)
    for each in np.unique(kind):
        alike = rng.permutation(np.flatnonzero(kind == each))
        drawn[alike[: len(alike) // 2]] = 2.0
    return [tuple(half[rows] for rows in replicates.rows) for half in (drawn, 2.0 - drawn)]


def draw_folds(
    replicates: Replicates, n_folds: int, rng: np.random.Generator, *, name: str = "cv"
) -> tuple[Integers, ...]:
    """Put whole replicates into folds of about equal numbers of rows: the fold of each row.

    The folds are balanced in every set. `name` is the argument that gives the number of folds.

    Examples
    --------
    >>> rows = check_replicates([None, None], [4, 2])
    >>> [np.bincount(folds).tolist() for folds in draw_folds(rows, 2, np.random.default_rng(0))]
    [[2, 2], [1, 1]]
    """
    check_integer(name, n_folds, 2)
    kind = _kinds(replicates)
    folds = np.empty(replicates.n_replicates, dtype=np.intp)
    sizes = np.bincount(np.concatenate(replicates.rows), minlength=replicates.n_replicates)
    for each in np.unique(kind):
        alike = rng.permutation(np.flatnonzero(kind == each))
        folds[alike] = _balanced(sizes[alike], n_folds)
    found = tuple(folds[numbers] for numbers in replicates.rows)
    for own in found:
        if len(np.unique(own)) < n_folds:
            raise InvalidParameterError(name, n_folds, _too_many_folds(replicates))
    return found


def _balanced(sizes: Integers, n_folds: int) -> Integers:
    """Put the largest first, each into the fold with fewest rows."""
    order = np.argsort(-sizes, kind="stable")
    folds = np.empty(len(sizes), dtype=np.intp)
    if sizes.min() == sizes.max():
        folds[order] = np.arange(len(sizes)) % n_folds
        return folds
    heap = [(0, fold) for fold in range(n_folds)]
    heapify(heap)
    for i in order.tolist():
        rows, fold = heap[0]
        folds[i] = fold
        heapreplace(heap, (rows + int(sizes[i]), fold))
    return folds


def _too_many_folds(replicates: Replicates) -> str:
    fewest = int(replicates.members().sum(axis=1).min())
    what = "replicates" if replicates.labelled else "rows"
    return f"is too large for a set of {fewest} {what}; use fewer folds."


def _kinds(replicates: Replicates) -> Integers:
    """Return a number for the sets in which each replicate has rows."""
    if not replicates.labelled:
        return np.repeat(np.arange(len(replicates.rows)), [len(own) for own in replicates.rows])
    members = replicates.members()
    powers: Integers = 2 ** np.arange(len(members), dtype=np.intp)
    return np.asarray(powers @ members, dtype=np.intp)
