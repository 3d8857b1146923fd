"""Replicates: labels, draws, permutations and folds that keep their rows together."""

from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

from contrastive_lvm.exceptions import InvalidDataError, InvalidParameterError
from contrastive_lvm.resampling.replicates import (
    Replicates,
    check_replicates,
    draw_folds,
    draw_weights,
)

MICE = [["a"] * 3 + ["b"] * 2 + ["c"] * 4, ["d", "e", "e", "f"]]
DONORS = [["a", "a", "b", "c"], ["c", "a", "b", "b", "c"]]


def replicates(groups: list[Any]) -> Replicates:
    return check_replicates(groups, [len(labels) for labels in groups])


@pytest.mark.parametrize("make", [list, np.array, pd.Series, pl.Series, pd.Categorical])
def test_labels_of_every_kind_name_the_same_replicates(make: Any) -> None:
    found = replicates([make(labels) for labels in DONORS])
    assert [rows.tolist() for rows in found.rows] == [[0, 0, 1, 2], [2, 0, 1, 1, 2]]
    assert found.n_replicates == 3
    assert found.in_several_sets


def test_without_labels_every_row_is_a_replicate() -> None:
    found = check_replicates([None, None], [3, 2])
    assert [rows.tolist() for rows in found.rows] == [[0, 1, 2], [3, 4]]
    assert not found.in_several_sets


@pytest.mark.parametrize(
    ("groups", "says"),
    [
        ([["a", "b"], ["c", "d", "e"]], r"groups has shape \(2,\), but there are 3 rows"),
        ([["a", "b", "c"], [["c"], ["d"]]], r"background_groups has shape \(2, 1\)"),
        ([["a", None, "c"], ["c", "d"]], "groups has no label for 1 row.*row 1"),
        ([[1.0, 2.0, np.nan], ["c", "d"]], "groups has no label for 1 row.*row 2"),
        ([["a", "b", "c"], ["d", "d"]], "background_groups names one replicate only, 'd'"),
    ],
)
def test_wrong_labels_are_refused(groups: list[Any], says: str) -> None:
    with pytest.raises(InvalidDataError, match=says):
        check_replicates(groups, [3, 2])


def test_labels_of_one_set_only_are_refused() -> None:
    with pytest.raises(InvalidParameterError, match="background_groups=None was left out"):
        check_replicates([["a", "b"], None], [2, 4])


def test_a_draw_repeats_whole_replicates() -> None:
    found = replicates(MICE)
    for seed in range(20):
        target, background = draw_weights(found, np.random.default_rng(seed))
        times = target[[0, 3, 5]]
        assert times.sum() == 3
        np.testing.assert_array_equal(target, np.repeat(times, [3, 2, 4]))
        assert background[[0, 1, 3]].sum() == 3


def test_every_replicate_is_drawn_once_on_average() -> None:
    found = check_replicates([None, None], [5, 3])
    rng = np.random.default_rng(0)
    mean = np.mean([np.concatenate(draw_weights(found, rng)) for _ in range(4000)], axis=0)
    np.testing.assert_allclose(mean, 1.0, atol=0.06)  # four standard errors


def test_a_replicate_of_two_sets_is_drawn_in_both() -> None:
    found = replicates(DONORS)
    for seed in range(20):
        target, background = draw_weights(found, np.random.default_rng(seed))
        np.testing.assert_array_equal(target[[0, 2, 3]], background[[1, 2, 4]])
        assert target[[0, 2, 3]].sum() == 3


@pytest.mark.parametrize("groups", [MICE, DONORS])
def test_folds_hold_whole_replicates(groups: list[list[str]]) -> None:
    found = replicates(groups)
    folds = draw_folds(found, 3, np.random.default_rng(0))
    pairs = set(zip(np.concatenate(found.rows), np.concatenate(folds), strict=True))
    assert len(pairs) == found.n_replicates
    assert all(set(own) == {0, 1, 2} for own in folds)


def test_folds_are_balanced() -> None:
    rng = np.random.default_rng(0)
    labels = rng.integers(40, size=1000)
    found = check_replicates([labels, labels + 100], [1000, 1000])
    for own in draw_folds(found, 5, rng):
        assert np.ptp(np.bincount(own)) <= 10
    rows = check_replicates([None, None], [103, 17])
    for own in draw_folds(rows, 5, rng):
        assert np.ptp(np.bincount(own)) <= 1


@pytest.mark.parametrize("cv", [1, 4, 2.5, "5"])
def test_wrong_numbers_of_folds_are_refused(cv: Any) -> None:
    with pytest.raises(InvalidParameterError, match=r"^cv="):
        draw_folds(replicates(MICE), cv, np.random.default_rng(0))
