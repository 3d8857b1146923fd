"""Slices of rows, and the distinct patterns of missing entries."""

import hypothesis.strategies as st
import numpy as np
from hypothesis import given, settings

from contrastive_lvm.linalg.matrices import patterns_of, row_slices

relaxed = settings(deadline=None)  # machines differ


@relaxed
@given(
    st.integers(1, 20).flatmap(
        lambda D: st.lists(st.lists(st.booleans(), min_size=D, max_size=D), min_size=1, max_size=30)
    )
)
def test_patterns_are_the_distinct_rows(rows: list[list[bool]]) -> None:
    mask = np.array(rows)
    representative, pattern = patterns_of(mask)
    assert pattern.shape == (len(mask),)
    assert len(representative) == len({tuple(row) for row in rows})
    np.testing.assert_array_equal(mask[representative][pattern], mask)
    np.testing.assert_array_equal(pattern[representative], np.arange(len(representative)))


@relaxed
@given(st.integers(0, 5000), st.integers(0, 300), st.integers(1, 2000))
def test_slices_cover_all_rows_once(n: int, D: int, elements: int) -> None:
    slices = [range(n)[rows] for rows in row_slices(n, D, elements=elements)]
    assert [i for part in slices for i in part] == list(range(n))
    assert all(len(part) * D <= elements or len(part) == 1 for part in slices)
