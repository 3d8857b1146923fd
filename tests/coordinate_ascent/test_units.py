"""Data in other units have the same answer in these units; degenerate data have an answer."""

import warnings
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.exceptions import ConvergenceWarning

import contrastive_lvm as clvm
from contrastive_lvm.exceptions import InvalidDataError
from tests.oracles import Array, planted, sets_with_missing

MODELS: dict[str, dict[str, Any]] = {
    "gaussian": {"n_shared": 2},
    "noise per feature": {"n_shared": 2, "likelihood": clvm.Gaussian("feature")},
    "student_t": {"n_shared": 2, "likelihood": "student_t"},
    "auto": {"n_shared": "auto"},
    "ard": {"n_shared": 4, "shared_prior": "ard", "target_prior": "ard"},
    "ard, noise per feature": {
        "n_shared": 4,
        "shared_prior": clvm.ARD(b0=0.1),
        "target_prior": "ard",
        "likelihood": clvm.Gaussian("feature"),
    },
    "horseshoe": {"n_shared": 2, "target_prior": "horseshoe"},
    "random start": {"n_shared": 2, "n_init": 2, "random_state": 0},
    "noise of each set": {"n_shared": 2, "likelihood": clvm.Gaussian(sets="own")},
    "background dimensions": {"n_shared": 2, "n_background": 1},
}


def fit(name: str, X: Any, B: Any, **changes: Any) -> clvm.ContrastiveLVM:
    return clvm.ContrastiveLVM(**{"n_target": 2, **MODELS[name], **changes}).fit(X, background=B)


@pytest.mark.parametrize("where", ["complete", "both"])
@pytest.mark.parametrize("factor", [2.0**-10, 1e100, 1e-100])
@pytest.mark.parametrize("name", MODELS)
def test_fits_are_scale_equivariant(name: str, factor: float, where: str) -> None:
    assert_equivariant(name, factor, where)


@pytest.mark.parametrize("factor", [1e118, 1e-118])
@pytest.mark.parametrize("name", ["ard", "ard, noise per feature"])
def test_products_of_variances_and_sums_are_numbers(name: str, factor: float) -> None:
    """Near the limits, only products in the right order are, as in the loading step."""
    assert_equivariant(name, factor, "complete")


def assert_equivariant(name: str, factor: float, where: str) -> None:
    X, B = sets_with_missing(*planted(3, n=60, m=50, D=10, k=2, t=2)[1:], where)
    one, other = fit(name, X, B), fit(name, factor * X, factor * B)
    assert (other.n_shared_, other.n_target_) == (one.n_shared_, one.n_target_)
    for attribute in ("target_components_", "shared_components_", "mean_", "background_mean_"):
        expected = getattr(one, attribute)
        np.testing.assert_allclose(
            getattr(other, attribute) / factor, expected, atol=1e-4 * np.abs(expected).max()
        )
    noise = np.asarray(other.noise_variance_) / factor / factor
    np.testing.assert_allclose(noise, one.noise_variance_, rtol=1e-4)
    entries = sum(int(np.isfinite(rows).sum()) for rows in (X, B))
    assert other.lower_bound_ + entries * np.log(factor) == pytest.approx(
        one.lower_bound_, abs=1e-4
    )
    np.testing.assert_allclose(other.transform(factor * X), one.transform(X), atol=1e-3)
    np.testing.assert_array_equal(other.selected_features_, one.selected_features_)


def test_a_group_lasso_is_in_the_units_of_the_loadings() -> None:
    _, X, B = planted(3, n=60, m=50, D=10, k=2, t=2)
    one = clvm.ContrastiveLVM(2, 2, target_prior=clvm.GroupLasso(50.0)).fit(X, background=B)
    other = clvm.ContrastiveLVM(2, 2, target_prior=clvm.GroupLasso(50.0 / 8.0))
    other.fit(8.0 * X, background=8.0 * B)
    assert 0 < one.selected_features_.sum() < 10
    np.testing.assert_allclose(
        other.target_components_ / 8.0, one.target_components_, rtol=1e-4, atol=1e-5
    )


def degenerate(name: str) -> tuple[Array, Array]:
    rng = np.random.default_rng(0)
    X, B = rng.normal(size=(40, 6)), rng.normal(size=(30, 6))
    direction, outlier, single = rng.normal(size=6), X.copy(), np.zeros((40, 6))
    outlier[5, 4], single[3, 2] = 1e12, 5.0
    line, other_line = np.outer(X[:, 0], direction), np.outer(B[:, 0], direction[::-1])
    wide = rng.normal(size=80)
    return {
        "background of zeros": (X, np.zeros((30, 6))),
        "constant background": (X, np.full((30, 6), 3.0)),
        "constant target": (np.full((40, 6), 0.1), B),
        "one entry that is not zero": (single, B),
        "one entry against zeros": (single, np.zeros((30, 6))),
        "rank 1": (line, np.outer(B[:, 0], direction)),
        "rank 2": (line, other_line),
        "rank 1 in many features": (np.outer(X[:20, 0], wide), np.outer(B[:15, 0], wide)),
        "outlier": (outlier, B),
    }[name]


DEGENERATE = (
    "background of zeros",
    "constant background",
    "constant target",
    "one entry that is not zero",
    "one entry against zeros",
    "rank 1",
    "rank 2",
    "rank 1 in many features",
    "outlier",
)


def first_sweeps(name: str) -> clvm.EM | clvm.VariationalBayes:
    """An engine that stops early: whether numbers are finite shows in the first sweeps."""
    posterior = name == "auto" or any("prior" in parameter for parameter in MODELS[name])
    return clvm.VariationalBayes(max_iter=60) if posterior else clvm.EM(max_iter=60)


@pytest.mark.parametrize("where", ["complete", "both", "sparse"])
@pytest.mark.parametrize("kind", DEGENERATE)
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.filterwarnings("ignore:none of", "ignore:.* features have no noise left")
def test_degenerate_data_have_an_answer(name: str, kind: str, where: str) -> None:
    dense = degenerate(kind)
    X: Any
    B: Any
    X, B = map(sp.csr_matrix, dense) if where == "sparse" else sets_with_missing(*dense, where)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=ConvergenceWarning)
        warnings.filterwarnings("ignore", message="The variances of the target")
        model = fit(name, X, B, n_init=1, inference=first_sweeps(name))
    found = [model.target_components_, model.shared_components_, model.lower_bounds_]
    found += [model.transform(X), model.score_samples(X), np.asarray(model.noise_variance_)]
    assert all(np.isfinite(value).all() for value in found)
    assert (np.diff(model.lower_bounds_) >= 0).all()
    assert (np.asarray(model.noise_variance_) > 0).all()


@pytest.mark.parametrize("kind", DEGENERATE)
def test_isotropic_noise_stays_isotropic(kind: str) -> None:
    """Its least variance is that of all features, even if one has nearly all of the variance."""
    X, B = degenerate(kind)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = fit("gaussian", X, B, inference=first_sweeps("gaussian"))
    assert np.ptp(model.posterior_.noise_variance) == 0


@pytest.mark.parametrize(
    ("factor", "reason"),
    [(1e160, "overflow"), (1e-145, "vanish"), (1e-170, "vanish")],
)
@pytest.mark.parametrize("name", MODELS)
def test_data_whose_variances_are_no_numbers_are_refused(
    name: str, factor: float, reason: str
) -> None:
    _, X, B = planted(3, n=60, m=50, D=10, k=2, t=2)
    with pytest.raises(ValueError, match=reason):
        fit(name, factor * X, factor * B)


@pytest.mark.parametrize("method", ["transform", "score_samples", "impute", "reconstruct"])
@pytest.mark.parametrize("missing", [False, True], ids=["complete", "missing"])
@pytest.mark.parametrize("name", ["gaussian", "student_t", "ard"])
def test_new_rows_that_overflow_are_refused(name: str, missing: bool, method: str) -> None:  # noqa: FBT001
    _, X, B = planted(3, n=60, m=50, D=10, k=2, t=2)
    model, rows = fit(name, X, B), X[:4].copy()
    rows[1, 2] = -1e160
    rows[2, 0] = np.nan if missing else 0.0
    with pytest.raises(InvalidDataError, match=r"X contains the value 1e\+160, whose square"):
        getattr(model, method)(rows)
    rows[1, 2] = 1e120
    assert np.isfinite(getattr(model, method)(rows)).all()


@pytest.mark.parametrize("n_features", [8, 60])
@pytest.mark.parametrize("rank", [1, 2])
@pytest.mark.parametrize("name", ["gaussian", "noise per feature", "auto", "ard"])
@pytest.mark.filterwarnings("ignore:none of", "ignore:.* features have no noise left")
def test_degenerate_rows_in_another_order_have_the_same_bound(
    name: str, rank: int, n_features: int
) -> None:
    """Next to no noise is left, so that a bound with cancellation would be a matter of rounding."""
    rng = np.random.default_rng(rank)
    directions = rng.normal(size=(rank, n_features))
    X, B = rng.normal(size=(40, rank)) @ directions, rng.normal(size=(30, rank)) @ directions
    one = fit(name, X, B)
    for _ in range(3):
        other = fit(name, rng.permutation(X), rng.permutation(B))
        assert other.lower_bound_ == pytest.approx(one.lower_bound_, rel=1e-6)
