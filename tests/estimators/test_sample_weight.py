"""Weights of rows: a row of weight 2 is that row twice, one of weight 0 is absent."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import sklearn
from sklearn.model_selection import cross_val_score

import contrastive_lvm as clvm
from contrastive_lvm.estimators.linear_fit import read_input

DATA = clvm.datasets.make_contrastive(50, 40, n_features=12, n_shared=2, random_state=0)
X, B = DATA.target, DATA.background
RNG = np.random.default_rng(0)
OF_X, OF_B = RNG.integers(0, 4, len(X)), RNG.integers(0, 3, len(B))
MISSING = np.where(RNG.random(X.shape) < 0.1, np.nan, X)
LATE = np.where((np.arange(50) >= 9)[:, None] & (np.arange(12) == 2), np.nan, X)
MODELS: dict[str, dict[str, Any]] = {
    "gaussian": {},
    "feature noise": {"likelihood": clvm.Gaussian("feature")},
    "student": {"likelihood": "student_t"},
    "auto": {"n_shared": "auto"},
    "lasso": {"target_prior": clvm.GroupLasso(2.0)},
    "vb": {"inference": "vb", "target_prior": "ard"},
}
FORMS: dict[str, Callable[[], Any]] = {
    "complete": lambda: X,
    "missing": lambda: MISSING,
    "sparse": lambda: sp.csr_array(np.where(X > 0, X, 0.0)),
}


def fit(name: str, target: Any, background: Any = B, **weights: Any) -> clvm.ContrastiveLVM:
    settings = {"n_target": 1, "n_shared": 2, **MODELS[name]}
    return clvm.ContrastiveLVM(**settings).fit(target, background=background, **weights)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", MODELS)
def test_weights_count_rows(name: str, form: str) -> None:
    rows = FORMS[form]()
    repeated = fit(name, rows[np.repeat(np.arange(len(X)), OF_X)], np.repeat(B, OF_B, axis=0))
    model = fit(name, rows, sample_weight=OF_X, background_sample_weight=OF_B)
    assert model.lower_bound_ == pytest.approx(repeated.lower_bound_, rel=1e-7)
    np.testing.assert_allclose(model.target_components_, repeated.target_components_, atol=1e-5)
    np.testing.assert_allclose(model.noise_variance_, repeated.noise_variance_, rtol=1e-5)
    np.testing.assert_allclose(model.mean_, repeated.mean_, atol=1e-6)


def test_automatic_dimensions_count_weights_not_rows() -> None:
    """Rows twice with half their weight start from as many shared dimensions as rows once."""
    model = clvm.ContrastiveLVM(1, "auto")
    once = read_input(model, X[:4], B[:3])
    halves = [np.full(8, 0.5), np.full(6, 0.5)]
    twice = read_input(model, np.repeat(X[:4], 2, axis=0), np.repeat(B[:3], 2, axis=0), halves)
    assert once.model == twice.model
    assert once.model.blocks[0].n_components == 4 + 3 - 1 - 3


def test_weights_of_one_change_nothing() -> None:
    model = fit("gaussian", X, sample_weight=np.ones(len(X)))
    np.testing.assert_array_equal(model.target_components_, fit("gaussian", X).target_components_)


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "length": (lambda: fit("gaussian", X, sample_weight=[1.0, 2.0]), r"sample_weight has shape"),
    "words": (lambda: fit("gaussian", X, sample_weight=["a"] * 50), "must be one number per row"),
    "negative": (lambda: fit("gaussian", X, sample_weight=OF_X - 1), "sample_weight contains -1"),
    "infinite": (
        lambda: fit("gaussian", X, background_sample_weight=np.where(OF_B, np.inf, 1.0)),
        "background_sample_weight contains inf",
    ),
    "zero": (
        lambda: fit("gaussian", X, sample_weight=np.eye(1, 50)[0]),
        r"zero for all but 1 row\(s\)",
    ),
    "engine": (
        lambda: clvm.ContrastiveLVM(1, 1, inference="svi").fit(X, background=B, sample_weight=OF_X),
        "cannot use sample_weight",
    ),
    "no background": (
        lambda: clvm.ContrastiveLVM(1, 0).fit(X, background_sample_weight=OF_B),
        "given without a background",
    ),
    "unobserved": (
        lambda: fit("gaussian", LATE, sample_weight=np.arange(50) >= 9),
        r"X has no observed entry in columns \['2'\]",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_wrong_weights_are_refused_in_one_sentence(case: str) -> None:
    call, pattern = REFUSED[case]
    with pytest.raises(ValueError, match=pattern) as caught:
        call()
    assert "\n" not in str(caught.value)
    assert str(caught.value).endswith(".")


def test_weights_are_routed_to_fit_and_score() -> None:
    with sklearn.config_context(enable_metadata_routing=True):
        weights = {"sample_weight": OF_X.astype(float), "background": B}
        scores = cross_val_score(clvm.ContrastiveLVM(1, 2), X, params=weights, cv=3)
    assert np.isfinite(scores).all()
