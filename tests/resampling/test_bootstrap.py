"""The bootstrap: standard errors against known ones, determinism, replicates, errors."""

from typing import Any

import dask.array as da
import numpy as np
import pytest

import contrastive_lvm as clvm
from contrastive_lvm.arrays import Array
from contrastive_lvm.exceptions import InvalidDataError, InvalidParameterError


def sets(n: int = 80, d: int = 6, seed: int = 0) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    S, W = rng.standard_normal((d, 1)), rng.standard_normal((d, 2)) * [3.0, 1.5]
    X = rng.standard_normal((n, 1)) @ S.T + rng.standard_normal((n, 2)) @ W.T
    return X + rng.standard_normal(X.shape), rng.standard_normal((n, 1)) @ S.T + (
        rng.standard_normal((n, d))
    )


X, Y = sets()
MODEL = clvm.ContrastiveLVM(2, 1).fit(X, background=Y)


def test_standard_errors_are_those_of_probabilistic_pca() -> None:
    """The leading eigenpair of a sample covariance has known errors (Anderson 1963).

    With one dimension, loadings `w = v sqrt(l - psi)` of an eigenvector v with eigenvalue l; the
    variance of v is `l psi / (n (l - psi)^2)` across v, that of l is `2 l^2 / n`.
    """
    n, d, size, rng = 2000, 5, 4.0, np.random.default_rng(0)
    v = np.array([1.0, 0.0, 0.0, 0.0, 0.0])
    rows = rng.standard_normal((n, 1)) * size * v + rng.standard_normal((n, d))
    model = clvm.ContrastiveLVM(1, 0).fit(rows)
    found = clvm.bootstrap(model, rows, n_resamples=400, random_state=0)
    assert found.target_components_std is not None
    lead = size**2 + 1.0
    along = np.sqrt(2.0 * lead**2 / n) / (2.0 * size)
    across = size * np.sqrt(lead / n) / size**2
    expected = np.array([along, *[across] * (d - 1)])
    np.testing.assert_allclose(found.target_components_std[0], expected, rtol=0.15)


def test_results_have_the_shapes_of_the_fit() -> None:
    found = clvm.bootstrap(MODEL, X, background=Y, n_resamples=40, random_state=0)
    np.testing.assert_array_equal(found.target_components, MODEL.target_components_)
    for values in (found.target_components_std, found.low, found.high, found.sign_stability):
        assert values is not None
        assert values.shape == (2, 6)
    assert found.subspace_angles.shape == (40, 2)
    assert (np.diff(found.subspace_angles, axis=1) <= 0).all()
    assert found.n_target.tolist() == [2] * 40
    assert (found.selection_frequency == 1).all()
    large = np.abs(found.target_components) > 4 * np.asarray(found.target_components_std)
    assert large.any()
    assert (found.sign_stability[large] == 1).all()
    assert found.note == ""


def test_results_do_not_depend_on_the_number_of_workers() -> None:
    options: dict[str, Any] = {"background": Y, "n_resamples": 20, "random_state": 3}
    alone = clvm.bootstrap(MODEL, X, **options)
    side_by_side = clvm.bootstrap(MODEL, X, n_jobs=2, **options)
    for one, other in zip(alone, side_by_side, strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_model_that_is_not_fitted_is_fitted_as_a_copy() -> None:
    model = clvm.ContrastiveLVM(2, 1)
    found = clvm.bootstrap(model, X, background=Y, n_resamples=20, random_state=0)
    assert not hasattr(model, "posterior_")
    np.testing.assert_allclose(found.target_components, MODEL.target_components_)


def test_wider_intervals_at_higher_levels() -> None:
    low, high = (
        clvm.bootstrap(
            MODEL, X, background=Y, n_resamples=100, confidence_level=level, random_state=0
        )
        for level in (0.5, 0.95)
    )
    assert np.all(np.asarray(high.high) > np.asarray(low.high))


def test_repeated_rows_are_as_sure_as_their_replicates() -> None:
    """Four copies of every row look like more data, unless copies are resampled together."""
    many = [np.repeat(rows, 4, axis=0) for rows in (X, Y)]
    groups = [np.repeat(np.arange(80), 4), np.repeat(np.arange(80, 160), 4)]
    model = clvm.ContrastiveLVM(2, 1).fit(many[0], background=many[1])
    options: dict[str, Any] = {"background": many[1], "n_resamples": 200, "random_state": 0}
    grouped = clvm.bootstrap(
        model, many[0], groups=groups[0], background_groups=groups[1], **options
    )
    alone = clvm.bootstrap(MODEL, X, background=Y, n_resamples=200, random_state=1)
    naive = clvm.bootstrap(model, many[0], **options)
    ratio = np.median(np.divide(grouped.target_components_std, alone.target_components_std))  # type: ignore[arg-type]
    assert 0.85 < ratio < 1.15
    ratio = np.median(np.divide(naive.target_components_std, alone.target_components_std))  # type: ignore[arg-type]
    assert 0.4 < ratio < 0.6


def test_a_selector_says_which_features_are_stable() -> None:
    rng = np.random.default_rng(0)
    W = np.zeros((20, 1))
    W[:4] = 2.0
    target = rng.standard_normal((150, 1)) @ W.T + rng.standard_normal((150, 20))
    background = rng.standard_normal((150, 20))
    model = clvm.ContrastiveLVM(1, 1, target_prior=clvm.GroupLasso(20.0))
    found = clvm.bootstrap(model, target, background=background, n_resamples=20, random_state=0)
    assert found.stable_features is not None
    assert np.flatnonzero(found.stable_features).tolist() == [0, 1, 2, 3]
    assert found.expected_false_selections is not None
    assert found.expected_false_selections <= 4
    assert found.low is None
    assert "shrinks the target loadings" in found.note


def test_a_selector_may_select_nothing() -> None:
    rng = np.random.default_rng(1)
    target, background = rng.standard_normal((2, 100, 10))
    model = clvm.ContrastiveLVM(1, 1, target_prior=clvm.GroupLasso(60.0))
    found = clvm.bootstrap(model, target, background=background, n_resamples=20, random_state=0)
    assert found.stable_features is not None
    assert not found.stable_features.any()
    assert found.expected_false_selections == 0


def test_dask_arrays_are_resampled_like_arrays() -> None:
    lazy = clvm.bootstrap(
        MODEL,
        da.from_array(X, chunks=(30, 6)),  # type: ignore[no-untyped-call]
        background=da.from_array(Y, chunks=(50, 6)),  # type: ignore[no-untyped-call]
        n_resamples=20,
        random_state=0,
    )
    plain = clvm.bootstrap(MODEL, X, background=Y, n_resamples=20, random_state=0)
    np.testing.assert_allclose(lazy.target_components_std, plain.target_components_std)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"n_resamples": 19}, "n_resamples=19 is too few for a confidence level of 0.9.*least 20"),
        ({"n_resamples": 0}, "n_resamples=0"),
        ({"confidence_level": 1.0}, "confidence_level=1.0"),
        ({"confidence_level": 90}, "confidence_level=90"),
        ({"random_state": "x"}, "random_state='x'"),
        ({"groups": np.arange(80)}, "background_groups=None was left out"),
    ],
)
def test_wrong_parameters_are_refused(options: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidParameterError, match=says):
        clvm.bootstrap(MODEL, X, background=Y, **options)


def test_other_rows_than_those_of_the_fit_are_refused() -> None:
    with pytest.raises(InvalidDataError, match="X has 3 features, but the model was fitted to"):
        clvm.bootstrap(MODEL, X[:, :3], background=Y[:, :3], n_resamples=20)
    with pytest.raises(InvalidDataError, match="X is not what the model was fitted to"):
        clvm.bootstrap(MODEL, X + np.random.default_rng(0).standard_normal(X.shape), background=Y)


def test_engines_without_weights_are_refused() -> None:
    model = clvm.ContrastiveLVM(1, 1, inference="svi")
    with pytest.raises(InvalidParameterError, match="cannot fit weighted rows"):
        clvm.bootstrap(model, X, background=Y)


def test_draws_that_leave_a_feature_without_entries_are_drawn_again() -> None:
    groups = [np.arange(80) // 40, 5 + np.arange(80) // 40]
    rows = X.copy()
    rows[:40, 1] = rows[40:, 2] = np.nan  # each of the two replicates observes one of them
    found = clvm.bootstrap(
        clvm.ContrastiveLVM(1, 1),
        rows,
        background=Y,
        groups=groups[0],
        background_groups=groups[1],
        n_resamples=20,
        random_state=0,
    )
    assert np.isfinite(np.asarray(found.high)).all()


SETS = np.repeat(["a", "b"], len(X))
BOTH = np.vstack([X, Y])
TWO = clvm.MultiSetLVM({"shared": 1, "target": clvm.Block(2, sets=["a"])}).fit(BOTH, sets=SETS)


def test_two_sets_are_resampled_as_target_and_background_are() -> None:
    expected = clvm.bootstrap(MODEL, X, background=Y, n_resamples=30, random_state=0)
    found = clvm.bootstrap(TWO, BOTH, sets=SETS, n_resamples=30, random_state=0)
    pairs: list[tuple[Any, Any]] = [
        (found.components_std, expected.target_components_std),
        (found.low, expected.low),
        (found.high, expected.high),
        (found.subspace_angles, expected.subspace_angles),
    ]
    for own, other in pairs:
        np.testing.assert_allclose(own["target"], other, atol=1e-6)
    assert found.components_std["shared"] is not None
    assert (found.components_std["shared"] > 0).all()
    assert found.note == ""


def test_rows_of_several_sets_are_resampled_by_replicates_and_with_covariates() -> None:
    rng = np.random.default_rng(0)
    groups, age = np.repeat(np.arange(40), 4), rng.standard_normal(160)
    shifted = BOTH + age[:, None] * np.arange(6.0)
    order = rng.permutation(160)
    given: dict[str, Any] = {"sets": SETS[order], "covariates": age[order]}
    model = clvm.MultiSetLVM(TWO.blocks).fit(shifted[order], **given)
    found = clvm.bootstrap(model, shifted[order], groups=groups[order], n_resamples=40, **given)
    assert found.covariate_effects_std is not None
    error = found.covariate_effects_std["a"].to_numpy()[0]
    assert model.covariate_effects_ is not None
    effect = model.covariate_effects_["a"].to_numpy()[0]
    assert (np.abs(effect - np.arange(6.0)) < 4 * error).all()


def test_blocks_under_a_shrinking_prior_have_no_intervals() -> None:
    blocks: dict[str, Any] = {"shared": 1}
    blocks["target"] = clvm.Block(2, sets=["a"], prior=clvm.GroupLasso(5.0))
    found = clvm.bootstrap(clvm.MultiSetLVM(blocks), BOTH, sets=SETS, n_resamples=20)
    assert found.low["target"] is None
    assert found.low["shared"] is not None
    assert "GroupLasso" in found.note


@pytest.mark.parametrize(
    ("model", "given", "message"),
    [
        (TWO, {"sets": SETS, "background": Y}, "background"),
        (MODEL, {"sets": SETS, "background": Y}, "sets"),
        (TWO, {"sets": SETS[::-1]}, "not what the model was fitted to"),
    ],
)
def test_arguments_of_the_other_kind_of_model_are_refused(
    model: Any, given: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        clvm.bootstrap(model, BOTH, n_resamples=20, **given)
