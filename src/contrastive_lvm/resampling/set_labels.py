"""Other ways to divide the same replicates into two sets.

A unit is a group of rows that stay together: a replicate, or, for replicates with rows in both
sets, its rows of one set. Replicates of one set are put into the sets at random, as many into the
first as before. Replicates of both sets swap their two units or do not. Where there are at most as
many ways as resamples were asked for, all of them are listed once.
"""

from itertools import combinations, product
from math import comb
from typing import NamedTuple

import numpy as np

from contrastive_lvm.exceptions import InvalidDataError
from contrastive_lvm.resampling import LEVEL
from contrastive_lvm.resampling.replicates import Flags, Integers, Replicates


class TooFewWaysError(InvalidDataError):
    """The replicates, or rows, can be divided in so few ways that no test can reject."""


class SetLabels(NamedTuple):
    """Units, and which of them are in the first set; the first way is the one observed."""

    unit: Integers  # (N,) of each row, first set first
    in_first: Flags  # (ways, units)
    complete: bool  # whether all possible ways are listed


def balanced_rows(
    replicates: Replicates, rng: np.random.Generator, *, paired: bool
) -> tuple[Integers, Integers]:
    """Choose rows so that replicates have about as many in either set.

    The largest eigenvalue of few rows is greater than that of many, so that sets with different
    numbers of rows per replicate are not exchangeable. A replicate of both sets keeps as many rows
    in each as in the smaller part; those of one set are left out if `paired`. Otherwise a replicate
    keeps at most the median number of rows of that set where it is smaller.
    """
    sizes = [np.bincount(own, minlength=replicates.n_replicates) for own in replicates.rows]
    if paired:
        most = np.minimum(*sizes)
    else:
        median = min(np.median(own[own > 0]) for own in sizes)
        most = np.full(replicates.n_replicates, int(np.ceil(median)))
    first, second = (_at_most(own, most, rng) for own in replicates.rows)
    return first, second


def _at_most(numbers: Integers, most: Integers, rng: np.random.Generator) -> Integers:
    """Choose at most a given number of rows of each replicate at random, in their order."""
    order = rng.permutation(len(numbers))
    order = order[np.argsort(numbers[order], kind="stable")]
    starts = np.searchsorted(numbers[order], numbers[order])
    place = np.arange(len(order)) - starts  # within the replicate
    return np.sort(order[place < most[numbers[order]]])


def label_sets(
    replicates: Replicates, n_resamples: int, rng: np.random.Generator, *, paired: bool
) -> SetLabels:
    """Return the observed division into two sets, and others that are as likely without contrast.

    Parameters
    ----------
    replicates : Replicates
        The replicate of each row of the two sets.
    n_resamples : int
        Number of other divisions to draw.
    rng : Generator
    paired : bool
        Whether replicates with rows in both sets swap them.

    Returns
    -------
    SetLabels

    Examples
    --------
    >>> from contrastive_lvm.resampling.replicates import check_replicates
    >>> pairs = check_replicates([list("abcde"), list("edcba")], [5, 5])
    >>> found = label_sets(pairs, 999, np.random.default_rng(0), paired=True)
    >>> found.in_first.shape, found.complete
    ((32, 10), True)
    """
    if paired:
        return _swapped(replicates, n_resamples, rng)
    if replicates.in_several_sets:
        reason = (
            "and background_groups have a replicate in common; use paired=True to swap the sets "
            "within such replicates, or give the replicates of the two sets different labels."
        )
        raise InvalidDataError("groups", reason)
    first = replicates.members()[0]
    n_ways = comb(len(first), int(first.sum()))
    if n_ways < 1.0 / LEVEL:
        numbers = f"{first.sum()} and {(~first).sum()}"
        if replicates.labelled:
            raise _too_few_ways("groups", f"names {numbers} replicates of the sets", n_ways)
        raise _too_few_ways("X", f"and background have {numbers} rows", n_ways)
    unit = np.concatenate(replicates.rows)
    if n_ways <= n_resamples + 1:
        chosen = combinations(range(len(first)), int(first.sum()))
        ways = np.array([np.isin(np.arange(len(first)), each) for each in chosen])
        return SetLabels(unit, _observed_first(ways, first), complete=True)
    others = np.array([rng.permutation(first) for _ in range(n_resamples)])
    return SetLabels(unit, np.vstack([first, others]), complete=False)


def _swapped(replicates: Replicates, n_resamples: int, rng: np.random.Generator) -> SetLabels:
    members = replicates.members()
    in_both = np.flatnonzero(members.all(axis=0))
    n_ways = 2 ** len(in_both)
    if n_ways < 1.0 / LEVEL:
        raise _too_few_ways("groups", f"names {len(in_both)} replicate(s) of both sets", n_ways)
    complete = n_ways <= n_resamples + 1
    if complete:
        swaps = np.array(list(product([False, True], repeat=len(in_both))))
    else:
        swaps = rng.random((n_resamples + 1, len(in_both))) < 0.5
        swaps[0] = False
    n = replicates.n_replicates
    in_first = np.repeat(np.arange(2 * n)[None] < n, len(swaps), axis=0)
    in_first[:, in_both] = ~swaps
    in_first[:, n + in_both] = swaps
    unit = np.concatenate([replicates.rows[0], n + replicates.rows[1]])
    return SetLabels(unit, in_first, complete)


def _observed_first(ways: Flags, observed: Flags) -> Flags:
    same = (ways == observed).all(axis=1)
    return np.vstack([observed, ways[~same]])


def _too_few_ways(name: str, what: str, n_ways: int) -> TooFewWaysError:
    reason = (
        f"{what}, which can be divided in {n_ways} way(s), so no p-value can be less than "
        f"{1 / n_ways:.2g}; a test needs more of them."
    )
    return TooFewWaysError(name, reason)
