"""The test of contrast: its statistic, its permutations, its level, and what it refuses."""

from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from joblib import parallel_config

import contrastive_lvm as clvm
from contrastive_lvm.arrays import Array
from contrastive_lvm.exceptions import InvalidDataError, InvalidParameterError
from contrastive_lvm.resampling import contrast_statistic as cs
from contrastive_lvm.resampling.exchangeable_rows import (
    WhitenedRows,
    exchangeable_rows,
    find_factors,
    principal_directions,
)
from contrastive_lvm.resampling.replicates import check_replicates
from contrastive_lvm.resampling.set_labels import (
    SetLabels,
    TooFewWaysError,
    balanced_rows,
    label_sets,
)
from tests.outside import SoftplusPoisson


def simulate(
    seed: int, n: int = 80, m: int = 80, *, d: int = 10, w: float = 0.0, noise: float = 1.0
) -> tuple[Array, Array]:
    """Two shared dimensions, and one of the target's own with variance `w`."""
    rng = np.random.default_rng([5, seed])
    S, direction = rng.standard_normal((d, 2)), rng.standard_normal(d)
    X, B = (rng.standard_normal((rows, 2)) @ S.T for rows in (n, m))
    direction *= np.sqrt(w) / np.linalg.norm(direction)
    X = X + noise * rng.standard_normal((n, d)) + rng.standard_normal((n, 1)) * direction + 3.0
    return X, B + rng.standard_normal((m, d))


def pvalue(X: Array, B: Array, **options: Any) -> float:
    options = {"n_resamples": 99, "random_state": 0, **options}
    return clvm.contrast_test(X, background=B, **options).pvalue


# --- the statistic --------------------------------------------------------------------------------


def brute_force(Y: Array, rows: Any, stretch: float, k: int) -> tuple[float, float, float]:
    """Excess variance of single rows as units, and log noise, written out."""
    own = Y[rows]
    A = stretch * np.mean([np.outer(y, y) for y in own - own.mean(axis=0)], axis=0)
    share = len(own) / len(Y) * max(np.linalg.eigvals(A[:k, :k]).real)
    outside = np.sort(np.linalg.eigvals(A[k:, k:]).real)
    noise = outside[: -int(np.ceil(len(outside) / 4))].mean()
    return np.log(share / (1.0 - share)), np.log((outside**16).sum()) / 16, np.log(noise)


def test_statistic_is_that_of_brute_force() -> None:
    Y = 0.5 * np.random.default_rng(0).standard_normal((30, 7))
    Y[:12] -= Y[:12].mean(axis=0)
    labels = label_sets(
        check_replicates([None, None], [12, 18]), 19, np.random.default_rng(1), paired=False
    )
    found = cs.excess_variances(cs.UnitMoments(WhitenedRows(Y, 2), labels), "test")
    stretch = 1.0 / (1.0 - 18 / (12 * 29))
    inside, outside, noise = np.transpose(
        [brute_force(Y, rows, stretch if i else 1.0, 2) for i, rows in enumerate(labels.in_first)]
    )
    far = noise - noise.mean()
    noise = np.where(far**2 > 2 * noise.var(), far - 2 * noise.var() / far, 0.0)
    np.testing.assert_allclose(found, [inside, outside - noise])


def test_more_divisions_than_a_float_can_count() -> None:
    replicates = check_replicates([None, None], [900, 800])
    labels = label_sets(replicates, 19, np.random.default_rng(0), paired=False)
    assert labels.in_first.shape == (20, 1700)
    assert (labels.in_first.sum(axis=1) == 900).all()


def test_stored_and_direct_second_moments_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    rows = WhitenedRows(rng.standard_normal((40, 5)), 2)
    in_first = np.array([rng.permutation(np.arange(8) < 4) for _ in range(6)])
    labels = SetLabels(np.repeat(np.arange(8), [3, 7, 5, 5, 4, 6, 2, 8]), in_first, complete=False)
    stored = cs.UnitMoments(rows, labels).second_moments(in_first)
    monkeypatch.setattr(cs, "MOST_STORED", 0)
    np.testing.assert_allclose(cs.UnitMoments(rows, labels).second_moments(in_first), stored)


def test_permuted_replicates_vary_as_much_as_the_observed_ones() -> None:
    """The stretch makes up for centring, in the mean over all divisions."""
    groups = np.repeat(np.arange(4), 3)
    replicates = check_replicates([groups, groups + 4], [12, 12])
    labels = label_sets(replicates, 999, np.random.default_rng(0), paired=False)
    seen, permuted = [], []
    for seed in range(200):
        rng = np.random.default_rng([1, seed])
        units = rng.standard_normal((2, 4, 3))
        units -= units.mean(axis=1, keepdims=True)
        Y = np.repeat(units.reshape(8, 3) / np.sqrt(1.0 - 1.0 / 4.0), 3, axis=0)
        moments = cs.UnitMoments(WhitenedRows(Y, 0), labels)
        seen.append(np.trace(moments.observed()))
        others = moments.second_moments(labels.in_first[1:])
        permuted.append(np.trace(others, axis1=1, axis2=2).mean())
    assert np.mean(permuted) == pytest.approx(3.0, rel=0.05)
    assert np.mean(seen) == pytest.approx(3.0, rel=0.05)


@pytest.mark.parametrize("inside", [True, False])
def test_direction_is_found_and_removed(*, inside: bool) -> None:
    rng = np.random.default_rng(2)
    g = np.array([2.0, 0.5, 0.3, 0.2, 0.1]) if inside else np.array([0.3, 0.2, 2.0, 0.5, 0.1])
    found = cs.contrast_direction(np.eye(5) + np.outer(g, g), 2, inside=inside)
    np.testing.assert_allclose(np.abs(found @ g), np.linalg.norm(g), rtol=1e-8)
    rows = WhitenedRows(rng.standard_normal((20, 5)), 2)
    left = cs.without_direction(rows, found, inside=inside)
    assert left.values.shape == (20, 4)
    assert left.n_shared == (1 if inside else 2)
    projected = rows.values - np.outer(rows.values @ found, found)
    np.testing.assert_allclose(left.values @ left.values.T, projected @ projected.T, atol=1e-10)


# --- rows -----------------------------------------------------------------------------------------


def test_principal_directions_of_wide_and_tall_rows_are_those_of_svd() -> None:
    for shape in ((30, 6), (6, 30)):
        Z = np.random.default_rng(0).standard_normal(shape)
        values, directions = principal_directions(Z)
        _, singular, expected = np.linalg.svd(Z, full_matrices=False)
        np.testing.assert_allclose(values, singular**2 / len(Z))
        np.testing.assert_allclose(np.abs((directions * expected).sum(axis=1)), 1.0)


def test_factors_have_the_planted_number_and_noise() -> None:
    rng = np.random.default_rng(0)
    S, noise = rng.standard_normal((25, 3)), np.exp(0.5 * rng.standard_normal(25))
    Z = rng.standard_normal((2000, 3)) @ S.T + noise * rng.standard_normal((2000, 25))
    found = find_factors(Z)
    assert found.n_shared == 3
    ratio = found.scale * np.sqrt(found.noise) / noise
    np.testing.assert_allclose(ratio, 1.0, atol=0.12)


def test_rows_are_white_in_any_unit() -> None:
    X, B = simulate(0)
    replicates = check_replicates([None, None], [80, 80])
    found = exchangeable_rows((X, B), replicates, np.random.default_rng(3))
    moment = found.values.T @ found.values / 160
    assert found.n_shared == 2
    np.testing.assert_allclose(np.diag(moment)[2:].mean(), 1.0)
    again = exchangeable_rows((X * 1e-3, B * 1e-3), replicates, np.random.default_rng(3))
    np.testing.assert_allclose(np.abs(again.values), np.abs(found.values), atol=1e-6)


def test_noise_is_equal_unless_it_differs_by_more_than_chance() -> None:
    """Features in units of their own have other noise, which is then estimated by feature."""
    rng = np.random.default_rng(0)
    units, S = np.exp(rng.standard_normal(20)), rng.standard_normal((20, 2))
    spreads = np.empty((20, 2))
    for spread in spreads:
        Z = rng.standard_normal((150, 2)) @ S.T + rng.standard_normal((150, 20))
        equal, own = (np.log(find_factors(rows).scale) for rows in (Z, Z * units))
        spread[:] = equal.std(), (own - np.log(units)).std()
    np.testing.assert_allclose(spreads[:, 1], 1.0 / np.sqrt(300.0), rtol=0.5)
    assert np.median(spreads[:, 0]) < 0.5 * np.median(spreads[:, 1])


def test_missing_entries_are_drawn_with_the_variance_of_the_others() -> None:
    X, B = simulate(1, 400, 400)
    rng = np.random.default_rng(0)
    holes = [rng.random(rows.shape) < share for rows, share in ((X, 0.4), (B, 0.0))]
    sets = tuple(np.where(hole, np.nan, rows) for rows, hole in zip((X, B), holes, strict=True))
    replicates = check_replicates([None, None], [400, 400])
    found = exchangeable_rows((sets[0], sets[1]), replicates, np.random.default_rng(1))
    variances = [(rows**2).mean(axis=0) for rows in np.split(found.values, [400])]
    np.testing.assert_allclose(variances[0], variances[1], rtol=0.35)
    assert np.mean(variances[0]) == pytest.approx(np.mean(variances[1]), rel=0.05)


# --- permutations ---------------------------------------------------------------------------------


def test_few_rows_are_divided_in_all_ways() -> None:
    X, B = simulate(0, 4, 4, d=3)
    found = clvm.contrast_test(X, background=B, n_resamples=99, random_state=0)
    assert found.method == "all 70 permutations of 8 rows"
    assert len(found.null_distribution) == 70
    expected = (found.null_distribution >= found.statistic - 1e-9).mean()
    assert found.pvalue == pytest.approx(expected)
    ways = label_sets(
        check_replicates([None, None], [4, 4]), 99, np.random.default_rng(0), paired=False
    )
    assert {tuple(np.flatnonzero(way).tolist()) for way in ways.in_first} == set(
        combinations(range(8), 4)
    )
    assert ways.in_first[0].tolist() == [True] * 4 + [False] * 4


def test_pairs_swap_within_replicates() -> None:
    replicates = check_replicates([list("aabcde"), list("ebdccab")], [6, 7])
    found = label_sets(replicates, 31, np.random.default_rng(0), paired=True)
    assert found.complete
    assert len(np.unique(found.in_first, axis=0)) == 32
    assert (found.in_first[:, :5] != found.in_first[:, 5:]).all()
    assert found.in_first[0].tolist() == [True] * 5 + [False] * 5


def test_replicates_keep_rows_of_equal_numbers() -> None:
    paired = check_replicates([list("aaabbc"), list("abbbbd")], [6, 6])
    first, second = balanced_rows(paired, np.random.default_rng(0), paired=True)
    kept = [
        sorted(np.array(list(names))[own]) for names, own in (("aaabbc", first), ("abbbbd", second))
    ]
    assert kept == [["a", "b", "b"], ["a", "b", "b"]]
    apart = check_replicates([np.repeat([0, 1, 2], 5), np.repeat([3, 4], 2)], [15, 4])
    first, second = balanced_rows(apart, np.random.default_rng(0), paired=False)
    assert np.bincount(apart.rows[0][first]).tolist() == [2, 2, 2]
    assert len(second) == 4


# --- answers --------------------------------------------------------------------------------------


@pytest.mark.parametrize("noise", [1.0, 1.5])
def test_level(noise: float) -> None:
    found = np.array([pvalue(*simulate(i, noise=noise), random_state=i) for i in range(120)])
    assert (found <= 0.05).sum() <= 14  # a binomial with 5 % exceeds it once in 1,500 times
    assert 0.38 < found.mean() < 0.65


def test_noise_is_made_equal_although_residuals_lack_the_shared_directions() -> None:
    X, B = simulate(0, 2000, 2000, d=5, noise=2.0)
    replicates = check_replicates([None, None], [2000, 2000])
    rows = exchangeable_rows((X, B), replicates, np.random.default_rng(0))
    variances = [(own[:, rows.n_shared :] ** 2).mean() for own in np.split(rows.values, 2)]
    assert variances[0] == pytest.approx(variances[1], rel=0.05)


def test_power_and_number_of_dimensions() -> None:
    found = clvm.contrast_test(
        *simulate(0, w=40.0)[:1], background=simulate(0, w=40.0)[1], random_state=0
    )
    assert (found.pvalue, found.n_target) == (0.001, 1)
    assert found.statistic > found.null_distribution.max()
    assert len(found.null_distribution) == 999
    assert found.pvalues[-1] > 0.05
    assert (np.diff(found.pvalues) >= 0).all()


def test_rows_of_replicates_are_not_independent() -> None:
    rng = np.random.default_rng(4)
    groups = np.repeat(np.arange(6), 20)
    X, B = (rng.standard_normal((6, 8))[groups] + 0.1 * rng.standard_normal((120, 8)) for _ in "XB")
    by_replicates = pvalue(X, B, groups=groups, background_groups=groups + 6)
    assert by_replicates > 0.05 >= pvalue(X, B)


def test_missing_entries() -> None:
    X, B = simulate(0, w=30.0)
    X[np.random.default_rng(0).random(X.shape) < 0.2] = np.nan
    assert pvalue(X, B) == 0.01


def test_containers_and_workers_do_not_matter() -> None:
    X, B = simulate(3, w=1.0)
    expected = clvm.contrast_test(X, background=B, n_resamples=99, random_state=1)
    names = [f"g{i}" for i in range(10)]
    frames = pd.DataFrame(X, columns=names), pd.DataFrame(B, columns=names)
    with parallel_config(backend="threading", n_jobs=2):
        found = clvm.contrast_test(frames[0], background=frames[1], n_resamples=99, random_state=1)
    # A frame may hold its columns one after the other, which changes how sums are rounded.
    np.testing.assert_allclose(found.null_distribution, expected.null_distribution, atol=1e-10)
    sparse = clvm.contrast_test(
        sp.csr_array(X), background=sp.csr_array(B), n_resamples=99, random_state=1
    )
    assert sparse.pvalue == expected.pvalue
    other = clvm.contrast_test(X, background=B, n_resamples=99, random_state=2)
    assert not np.array_equal(other.null_distribution, expected.null_distribution)


# --- counts and binary entries --------------------------------------------------------------------


def counted(seed: int, w: float = 0.0, *, binary: bool = False) -> tuple[Array, Array]:
    """Two shared dimensions of log rates or log odds, whose means differ between the sets."""
    rng = np.random.default_rng([8, seed])
    S, direction = 0.7 * rng.standard_normal((12, 2)), np.sqrt(w / 12) * np.resize([1.0, -1.0], 12)
    sets = []
    for depth in (2.0, 1.0):
        e = rng.standard_normal((100, 2)) @ S.T + rng.standard_normal(12)
        e += rng.standard_normal((100, 1)) * direction * (depth == 2.0)
        odd = rng.random(e.shape) < 1.0 / (1.0 + np.exp(-e))
        drawn = odd if binary else rng.poisson(depth * np.exp(e + 1.0))
        sets.append(drawn.astype(np.float64))
    return sets[0], sets[1]


@pytest.mark.parametrize("kind", ["poisson", "bernoulli"])
def test_level_of_counts_and_binary_entries(kind: str) -> None:
    """Means that differ make counts differ in variance; that is no contrast."""
    model = clvm.ContrastiveLVM(likelihood=kind)
    sets = [counted(i, binary=kind == "bernoulli") for i in range(80)]
    found = np.array([pvalue(*each, model=model, random_state=i) for i, each in enumerate(sets)])
    assert (found <= 0.05).sum() <= 10  # a binomial with 5 % exceeds it twice in 1,000 times
    assert 0.36 < found.mean() < 0.7


def test_contrast_of_counts_is_found_with_size_factors_and_missing_entries() -> None:
    X, B = counted(0, w=6.0)
    sizes = {"size_factors": np.full(100, 2.0), "background_size_factors": np.ones(100)}
    for model in ("poisson", "negative_binomial"):
        estimator = clvm.ContrastiveLVM(likelihood=model)
        assert pvalue(X, B, model=estimator) == 0.01
        assert pvalue(X, B, model=estimator, **sizes) == 0.01
    X[np.random.default_rng(0).random(X.shape) < 0.2] = np.nan
    found = clvm.contrast_test(X, background=B, model=estimator, n_resamples=99, random_state=0)
    assert found.pvalue == 0.01
    assert found.method.endswith("200 rows whose counts or binary entries were matched at random")


def test_features_of_several_kinds_are_compared_each_as_its_own() -> None:
    counts, others = counted(0, w=6.0), simulate(0, 100, 100)
    X, B = (np.hstack([a, b]) for a, b in zip(counts, others, strict=True))
    kinds = clvm.Mixed({"poisson": range(12), "gaussian": range(12, 22)})
    assert pvalue(X, B, model=clvm.ContrastiveLVM(likelihood=kinds)) == 0.01


def test_thinned_counts_have_the_distribution_of_the_smaller_mean() -> None:
    rng = np.random.default_rng(0)
    rates = rng.gamma(2.0, 0.5, (40000, 1)) * np.array([[8.0, 0.5]])
    X = rng.poisson(3.0 * rates).astype(np.float64)
    B = rng.poisson(rng.permutation(rates)).astype(np.float64)
    thinned, same = clvm.Poisson()._with_equal_means([X, B], rng) or []
    np.testing.assert_array_equal(same, B)
    for moment in (1, 2):
        np.testing.assert_allclose((thinned**moment).mean(0), (B**moment).mean(0), rtol=0.05)
    np.testing.assert_allclose((thinned == 0).mean(axis=0), (B == 0).mean(axis=0), atol=0.01)


def test_redrawn_binary_entries_have_equal_means_and_slopes() -> None:
    rng = np.random.default_rng(0)
    z = rng.standard_normal(100000)
    sets = [
        (rng.random((100000, 3)) < 1 / (1 + np.exp(-(0.3 * z[:, None] + m)))).astype(np.float64)
        for m in ([1.0, -1.0, 0.0], [0.0, -1.0, 20.0])
    ]
    X, B = clvm.Bernoulli()._with_equal_means(sets, rng) or []
    np.testing.assert_allclose(X.mean(axis=0), B.mean(axis=0), atol=0.01)
    slopes = [z @ rows / len(z) for rows in (X, B)]
    np.testing.assert_allclose(slopes[0], slopes[1], atol=0.008)
    assert (sets[0][:, 1] != X[:, 1]).mean() < 0.01  # hardly changed where means were equal


def test_likelihood_that_says_nothing_of_means_is_refused() -> None:
    X, B = simulate(0, 8, 8, d=3)
    model = clvm.ContrastiveLVM(likelihood=SoftplusPoisson())
    with pytest.raises(InvalidParameterError, match="cannot be tested"):
        clvm.contrast_test(X, background=B, model=model)


# --- what is refused ------------------------------------------------------------------------------

PAIRED = {"groups": list("abcdefgh"), "background_groups": list("abcdefgh")}


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"n_resamples": 18}, InvalidParameterError, "at least 19, because with fewer"),
        ({"groups": ["a"] * 3}, InvalidParameterError, "background_groups=None was left out"),
        ({**PAIRED, "groups": ["a"] * 3}, InvalidDataError, "3,.*8 rows"),
        ({**PAIRED, "groups": ["a"] * 8}, InvalidDataError, "names one replicate only"),
        (PAIRED, InvalidDataError, "use paired=True"),
        ({"paired": True}, InvalidParameterError, "needs groups and background_groups"),
        (
            {"groups": list("aaaabbbb"), "background_groups": list("ccccdddd")},
            TooFewWaysError,
            "6 w",
        ),
        (
            {"groups": list("abababab"), "background_groups": list("abababab"), "paired": True},
            TooFewWaysError,
            "4 way",
        ),
        ({"model": clvm.ContrastivePCA()}, InvalidParameterError, "not a model with a likelihood"),
        ({"model": clvm.ContrastiveLVM(likelihood="poisson")}, InvalidDataError, "counts are"),
        ({"size_factors": [1.0] * 8}, ValueError, "has none; leave them out"),
    ],
)
def test_refused(options: dict[str, Any], error: type[Exception], words: str) -> None:
    X, B = simulate(0, 8, 8, d=3)
    with pytest.raises(error, match=words):
        clvm.contrast_test(X, background=B, **options)


def test_one_feature_and_constant_rows_are_refused() -> None:
    X, B = simulate(0, 8, 8, d=3)
    with pytest.raises(InvalidDataError, match="one feature"):
        clvm.contrast_test(X[:, :1], background=B[:, :1])
    with pytest.raises(ValueError, match="do not vary"):
        clvm.contrast_test(np.ones((8, 3)), background=np.ones((8, 3)))
    with pytest.raises(ValueError, match="The rows contain values whose squares overflow"):
        clvm.contrast_test(1e160 * X, background=1e160 * B)


def test_more_rows_than_memory_takes_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("contrastive_lvm.resampling.compared_rows.MOST_ENTRIES", 47)
    X, B = simulate(0, 8, 8, d=3)
    with pytest.raises(InvalidDataError, match=r"48 entries.*drawn at random"):
        clvm.contrast_test(X, background=B)


def test_rows_that_leave_nothing_to_test() -> None:
    """A single entry that differs is one direction, and no other is left."""
    X = np.zeros((15, 5))
    X[3, 2] = 1.0
    found = clvm.contrast_test(X, background=np.zeros((17, 5)), n_resamples=19, random_state=0)
    assert (found.pvalue, found.n_target, found.statistic) == (1.0, 0, 0.0)
