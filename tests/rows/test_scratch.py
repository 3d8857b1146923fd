"""Room that is used again: the same results, and none of them lives in it."""

from typing import Any

import numpy as np
import pytest

import contrastive_lvm as clvm
from contrastive_lvm.linalg.loadings import Loadings
from contrastive_lvm.linalg.scratch import gathered, reused, room
from contrastive_lvm.rows.masked_rows import sorted_block, sorting, statistics_of
from contrastive_lvm.rows.scale_mixture_rows import RowStep, swept

D, K = 7, 3
RNG = np.random.default_rng(0)
LOADINGS, PSI, MEAN = Loadings(RNG.standard_normal((D, K))), np.full(D, 0.5), np.ones(D)


def cell(n: int, gaps: float, seed: int, dtype: Any = np.float64) -> np.ndarray:
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((n, D)).astype(dtype)
    rows[rng.random(rows.shape) < gaps] = np.nan
    rows[0, 0] = 1.0
    return rows


def gapped(rows: np.ndarray) -> list[Any]:
    return list(statistics_of([sorted_block(rows, sorting(rows))], LOADINGS, PSI, MEAN))


def heavy(per: Any) -> Any:
    def function(rows: np.ndarray) -> list[Any]:
        rows = rows[~np.isnan(rows).all(axis=1)]
        step = RowStep(LOADINGS, PSI, MEAN, clvm.StudentT(per=per).scaler(4.0))
        found, weights = swept(step, rows, np.ones((len(rows), 1)))
        return [*found.statistics, found.log_excess, weights.astype(np.float64)]

    return function


FUNCTIONS = {"gaps": gapped, "entries": heavy("element"), "rows": heavy("sample")}


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("gaps", [0.0, 0.1, 0.6])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_results_are_the_same_and_stay_so(name: str, gaps: float, dtype: Any) -> None:
    """Cells of all sizes one after the other; the first results are compared at the end."""
    cells = [cell(n, gaps, seed, dtype) for seed, n in enumerate([50, 9, 200, 1, 120])]
    given = [rows.copy() for rows in cells]
    expected = [FUNCTIONS[name](rows) for rows in cells]
    with reused({}):
        found = [FUNCTIONS[name](rows) for rows in cells]
    for ours, theirs in zip(found, expected, strict=True):
        for a, b in zip(ours, theirs, strict=True):
            np.testing.assert_array_equal(a, b)
    for rows, before in zip(cells, given, strict=True):
        np.testing.assert_array_equal(rows, before)


def test_room_is_shared_within_and_nowhere_else() -> None:
    outside = room("a", (2, 3))
    assert not np.shares_memory(outside, room("a", (2, 3)))
    with reused({}):
        first, second = room("a", (2, 3)), room("a", (3, 1))
        assert np.shares_memory(first, second)
        assert not np.shares_memory(first, room("b", (2, 3)))
        assert not np.shares_memory(first, room("a", (2, 3), bool))
        large = room("a", (1000, 1000))
        assert large.shape == (1000, 1000)
        with reused({}):
            assert not np.shares_memory(large, room("a", (2, 3)))
        assert np.shares_memory(large, room("a", (2, 3)))
    assert not np.shares_memory(large, room("a", (2, 3)))


@pytest.mark.parametrize("axis", [0, 1])
def test_gathered_is_take(axis: int) -> None:
    rows = RNG.standard_normal((4, 5))
    for places in (np.array([3, 0, 0, 2]), np.array([[1, 2], [0, 3]])):
        with reused({}):
            found = gathered("a", rows, places, axis)
        np.testing.assert_array_equal(found, rows.take(places, axis))
