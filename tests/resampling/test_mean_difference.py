"""The difference of means: its level, pairs, replicates, missing entries, strange features."""

import numpy as np
import pandas as pd
import pytest
from scipy.stats import ttest_ind, ttest_rel

import contrastive_lvm as clvm

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(40, 6)), 2.0 * RNG.normal(size=(25, 6)) + 0.5


def test_rows_without_replicates_are_compared_as_by_welch() -> None:
    found = clvm.mean_difference(X, background=Y)
    expected = ttest_ind(X, Y, equal_var=False)
    np.testing.assert_allclose(found["difference"], X.mean(axis=0) - Y.mean(axis=0))
    np.testing.assert_allclose(found["pvalue"], expected.pvalue, rtol=1e-10)


def test_pairs_of_single_rows_are_compared_as_pairs() -> None:
    pairs = np.arange(25)
    found = clvm.mean_difference(X[:25], background=Y, groups=pairs, background_groups=pairs)
    np.testing.assert_allclose(found["pvalue"], ttest_rel(X[:25], Y).pvalue, rtol=1e-10)


def test_replicates_of_equal_rows_count_once() -> None:
    groups, others = np.repeat(np.arange(40), 3), np.repeat(np.arange(40, 65), 3)
    found = clvm.mean_difference(
        X.repeat(3, axis=0),
        background=Y.repeat(3, axis=0),
        groups=groups,
        background_groups=others,
    )
    pd.testing.assert_frame_equal(found, clvm.mean_difference(X, background=Y))


@pytest.mark.parametrize("missing", [0.0, 0.3])
def test_features_without_a_difference_are_rejected_as_often_as_they_should(missing: float) -> None:
    p = []
    for seed in range(60):
        rng = np.random.default_rng(seed)
        sizes = rng.integers(3, 40, 26)
        groups = np.repeat(np.arange(26), sizes)
        rows = rng.normal(size=(26, 20))[groups] + rng.normal(size=(len(groups), 20))
        rows[rng.random(rows.shape) < missing] = np.nan
        first = groups < 14
        found = clvm.mean_difference(
            rows[first],
            background=rows[~first],
            groups=groups[first],
            background_groups=groups[~first],
        )
        p.append(found["pvalue"])
    share = (np.concatenate(p) < 0.05).mean()
    assert 0.035 < share < 0.07  # four standard errors about 5 %


def test_names_constants_and_features_of_one_replicate() -> None:
    frame = pd.DataFrame(X, columns=list("abcdef"))
    frame["f"] = 1.0
    other = pd.DataFrame(Y, columns=list("abcdef"))
    other["f"] = 1.0
    found = clvm.mean_difference(frame, background=other)
    assert list(found.index) == list("abcdef")
    assert found.to_numpy()[-1, :3].tolist() == [0.0, 0.0, 1.0]
    lonely = np.where(np.arange(40)[:, None] < 20, X, np.nan)
    lonely = np.hstack([X[:, :1], lonely[:, 1:]])
    groups = np.arange(40) // 20
    some = clvm.mean_difference(
        lonely, background=Y, groups=groups, background_groups=10 + np.arange(25) // 5
    )
    assert np.isfinite(some["pvalue"]).all()
    assert (some["std"][1:] == np.inf).all()
    assert (some["pvalue"][1:] == 1.0).all()


def test_values_whose_squares_are_no_numbers_are_refused() -> None:
    data = clvm.datasets.make_subgroups(20, 20, random_state=0)
    X, B = data.target, data.background
    for unit, says in ((1e170, "overflow"), (1e-170, "vanish"), (1e-310, "vanish")):
        with pytest.raises(ValueError, match=says):
            clvm.mean_difference(unit * X, background=unit * B)
    units = np.where(np.arange(X.shape[1]) == 2, 1e-170, 1.0)
    with pytest.raises(ValueError, match=r"vanish in columns \['2'\]"):
        clvm.mean_difference(units * X, background=units * B)
    with pytest.raises(ValueError, match="do not vary"):
        clvm.mean_difference(np.ones((5, 2)), background=np.zeros((5, 2)))
