"""The choice of dimensions: known sizes, folds of replicates, the table behind it."""

from typing import Any

import numpy as np
import pytest

import contrastive_lvm as clvm
from contrastive_lvm.arrays import Array
from contrastive_lvm.estimators.linear_fit import read_input
from contrastive_lvm.exceptions import InvalidDataError, InvalidParameterError
from contrastive_lvm.resampling.dimensions import _Folded


def sets(n_target: int, n_shared: int, n: int = 150, d: int = 10, seed: int = 0) -> list[Array]:
    rng = np.random.default_rng(seed)
    S, W = rng.standard_normal((d, n_shared)), rng.standard_normal((d, n_target))
    X = rng.standard_normal((n, n_shared)) @ S.T + rng.standard_normal((n, n_target)) @ W.T
    Y = rng.standard_normal((n, n_shared)) @ S.T
    return [rows + rng.standard_normal((n, d)) for rows in (X, Y)]


def choose(rows: list[Array], **options: Any) -> clvm.DimensionChoice:
    return clvm.choose_dimensions(
        rows[0], background=rows[1], **{"random_state": 0, "n_target": (0, 1, 2), **options}
    )


@pytest.mark.parametrize("size", [(0, 2), (1, 2), (2, 1), (1, 0), (0, 0)])
def test_planted_sizes_are_found(size: tuple[int, int]) -> None:
    found = choose(sets(*size))
    assert (found.n_target, found.n_shared) == size


def test_few_rows_of_many_features() -> None:
    found = choose(sets(1, 1, n=40, d=120), n_shared=(0, 1, 2))
    assert (found.n_target, found.n_shared) == (1, 1)


@pytest.mark.parametrize("likelihood", ["gaussian", clvm.StudentT(df=4.0)])
def test_missing_entries_and_heavy_tails(likelihood: Any) -> None:
    rows = sets(1, 1, n=80, d=6)
    rng = np.random.default_rng(1)
    for each in rows:
        each[rng.random(each.shape) < 0.1] = np.nan
    model = clvm.ContrastiveLVM(likelihood=likelihood)
    for seed in (0, 1):  # of the folds: a dimension that stays empty is a tie in any of them
        found = choose(rows, model=model, n_target=(0, 1), n_shared=(1, 2), cv=2, random_state=seed)
        assert (found.n_target, found.n_shared) == (1, 1)


def test_the_table_holds_what_fits_to_the_training_rows_reach() -> None:
    rows = sets(1, 1, n=60, d=5)
    folds = [np.repeat(["a", "b", "c"], 20), np.repeat(["d", "e", "f"], 20)]
    found = choose(
        rows, n_target=(1,), n_shared=(1,), cv=3, groups=folds[0], background_groups=folds[1]
    )
    # Replicates are put into folds in an order of their own; any order of the pairs may occur.
    options = []
    for shift in ([0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]):
        total = 0.0
        for i, j in enumerate(shift):
            out = [folds[0] == "abc"[i], folds[1] == "def"[j]]
            fit = clvm.ContrastiveLVM(1, 1).fit(rows[0][~out[0]], background=rows[1][~out[1]])
            total += fit.score_samples(rows[0][out[0]]).sum()
            total += fit.score_samples(rows[1][out[1]], of="background").sum()
        options.append(total)
    assert np.abs(np.array(options) - found.table["log_likelihood"][0]).min() < 0.1
    fit = clvm.ContrastiveLVM(1, 1).fit(rows[0], background=rows[1])
    assert found.table["lower_bound"][0] == pytest.approx(fit.lower_bound_, abs=0.05)
    columns = ["n_shared", "n_target", "log_likelihood", "standard_error", "lower_bound"]
    assert found.table.columns.tolist() == columns


def test_the_best_pair_is_first_and_has_no_error() -> None:
    table = choose(sets(1, 1), n_shared=(0, 1, 2)).table
    assert len(table) == 9
    assert table["log_likelihood"].is_monotonic_decreasing
    assert table["standard_error"][0] == 0
    assert (table["standard_error"][1:] > 0).all()


def test_copies_in_other_folds_would_ask_for_more_dimensions() -> None:
    """Rows that occur five times are predicted by their copies, unless folds keep them together."""
    rows = [np.repeat(each, 5, axis=0) for each in sets(0, 1, n=30, d=8)]
    groups = [np.repeat(np.arange(30), 5), np.repeat(np.arange(30, 60), 5)]
    naive = choose(rows, n_shared=(1, 2, 3))
    grouped = choose(rows, n_shared=(1, 2, 3), groups=groups[0], background_groups=groups[1])
    assert (grouped.n_target, grouped.n_shared) == (0, 1)
    assert naive.n_target + naive.n_shared > 1


def test_the_choice_can_be_repeated() -> None:
    rows = sets(1, 1)
    one, other = (choose(rows, n_shared=(1, 2), random_state=5).table for _ in range(2))
    assert one.equals(other)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"n_target": ()}, "n_target="),
        ({"n_target": (1, -1)}, "n_target=-1"),
        ({"n_shared": "many"}, "n_shared='many'"),
        ({"n_shared": (1.5,)}, "n_shared=1.5"),
        ({"cv": 1}, "cv=1"),
        ({"cv": 200}, "cv=200 is too large for a set of 150 rows"),
        ({"n_shared": (10, 20)}, "n_shared=20 is too large"),
    ],
)
def test_wrong_parameters_are_refused(options: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidParameterError, match=says):
        choose(sets(1, 1), **options)


def test_wrong_groups_are_refused() -> None:
    with pytest.raises(InvalidDataError, match=r"groups has shape \(3,\)"):
        choose(sets(1, 1), groups=[1, 2, 3], background_groups=[1, 2, 3])


def test_a_model_that_misleads_is_noticed() -> None:
    data = clvm.datasets.make_contrastive(200, 200, n_features=10, n_shared=3, random_state=0)
    with pytest.warns(UserWarning, match="n_shared=1 is too few") as said:
        clvm.choose_dimensions(
            data.target, background=data.background, n_shared=(0, 1), random_state=0
        )
    assert [each.filename for each in said] == [__file__]


@pytest.mark.filterwarnings("ignore:.*did not converge", "ignore::UserWarning")
def test_priors_are_in_units_of_the_data() -> None:
    rows, unit = sets(1, 1, n=40, d=6), 2.0**-10
    model = clvm.ContrastiveLVM(shared_prior="ard", target_prior="ard", inference="vb")
    options: dict[str, Any] = {"model": model, "n_target": (0, 1), "n_shared": (1,), "cv": 3}
    first = choose(rows, **options).table
    second = choose([unit * own for own in rows], **options).table
    entries = sum(own.size for own in rows)
    in_units = second["log_likelihood"] + entries * np.log(unit)
    np.testing.assert_allclose(in_units, first["log_likelihood"], rtol=1e-9)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_an_outlier_in_one_fold_leaves_the_others_as_they_are() -> None:
    X, Y = sets(1, 1, n=40, d=6)
    X[7, 3] = 1e9
    given, fold = read_input(clvm.ContrastiveLVM(1, 1), X, Y), np.arange(40) % 3
    data: Any = _Folded.of(given, (fold, fold), 3).training[fold[7]]
    kept = X[fold != fold[7]]
    exact = np.cov(kept.T, bias=True) * len(kept)
    np.testing.assert_allclose(data.sets[0].matrix, exact, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("value", [0.0, 1e-200, 1e200])
def test_rows_that_do_not_vary_or_overflow_are_refused(value: float) -> None:
    X = np.zeros((20, 4))
    X[0, 0] = value
    with pytest.raises(ValueError, match=r"do not vary|squares"):
        choose([X, X[:15]], n_target=(0, 1), n_shared=(1,))


@pytest.mark.parametrize("kind", [clvm.ContrastiveVAE, clvm.PPCA])
def test_models_without_blocks_are_refused(kind: Any) -> None:
    with pytest.raises(InvalidParameterError, match="use a ContrastiveLVM, or leave it out"):
        choose(sets(1, 1), model=kind())


def test_sizes_may_come_from_a_generator() -> None:
    assert choose(sets(1, 1), n_target=iter([1]), n_shared=iter([1])).n_target == 1


def test_sizes_that_few_rows_do_not_allow_are_left_out() -> None:
    found = choose([rows[:3] for rows in sets(1, 1)], n_target=(0, 1), cv=3)
    assert (found.table["n_shared"] + found.table["n_target"]).max() <= 1
