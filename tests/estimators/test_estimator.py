"""The estimator's promises: attributes, warnings, progress, memory."""

import logging
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.exceptions import ConvergenceWarning

import contrastive_lvm as clvm

DATA = clvm.datasets.make_contrastive(80, 70, n_features=10, n_shared=3, random_state=0)
MODELS: dict[str, dict[str, Any]] = {
    "gaussian": {},
    "feature noise": {"likelihood": clvm.Gaussian("feature")},
    "student": {"likelihood": "student_t"},
    "ard": {"shared_prior": "ard"},
    "horseshoe": {"target_prior": "horseshoe"},
    "lasso": {"target_prior": clvm.GroupLasso(5.0)},
    "auto": {"n_shared": "auto"},
}


@pytest.mark.parametrize("name", MODELS)
def test_every_attribute_of_the_contract(name: str) -> None:
    model = clvm.ContrastiveLVM(**{"n_target": 2, "n_shared": 3, **MODELS[name]})
    model.fit(DATA.target, background=DATA.background)
    t, k = model.n_target_, model.n_shared_
    assert model.target_components_.shape == (t, 10)
    assert model.shared_components_.shape == (k, 10)
    assert model.mean_.shape == model.background_mean_.shape == (10,)
    assert np.shape(model.noise_variance_) == ((10,) if name == "feature noise" else ())
    assert model.feature_relevance_.shape == model.selected_features_.shape == (10,)
    assert model.selected_features_.dtype == bool
    shares = model.target_variance_ratio_.sum() + model.shared_variance_ratio_.sum()
    assert shares + model.noise_variance_ratio_ == pytest.approx(1.0)
    assert model.lower_bound_ == model.lower_bounds_[-1]
    assert (np.diff(model.lower_bounds_) >= 0).all()
    assert model.converged_
    assert model.n_iter_ >= len(model.lower_bounds_)
    assert model.n_features_in_ == 10


def test_a_warning_says_when_sweeps_run_out() -> None:
    model = clvm.ContrastiveLVM(2, 3, inference=clvm.EM(max_iter=3))
    with pytest.warns(ConvergenceWarning, match="EM was stopped by max_iter=3 or an interrupt"):
        model.fit(DATA.target, background=DATA.background)
    assert not model.converged_


def test_verbose_reports_on_stderr_and_leaves_the_logger_alone(capsys: Any) -> None:
    logger = logging.getLogger("contrastive_lvm")
    before = (logger.level, list(logger.handlers))
    model = clvm.ContrastiveLVM(2, 3, n_init=2, random_state=0, verbose=True)
    model.fit(DATA.target, background=DATA.background)
    output = capsys.readouterr()
    assert output.out == ""
    assert "fit 2 of 2: log-likelihood" in output.err
    assert (logger.level, list(logger.handlers)) == before
    model.set_params(verbose=False).fit(DATA.target, background=DATA.background)
    assert capsys.readouterr().err == ""


def peak_bytes(task: Callable[[], Any]) -> int:
    tracemalloc.start()
    try:
        task()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def rough(n_target: int, n_shared: int, **settings: Any) -> clvm.ContrastiveLVM:
    return clvm.ContrastiveLVM(n_target, n_shared, inference=clvm.EM(tol=1.0), **settings)


def test_float32_is_not_widened_as_a_whole() -> None:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((150_000, 60), dtype=np.float32)
    B = rng.standard_normal((50_000, 60), dtype=np.float32)
    peak = peak_bytes(lambda: rough(1, 2).fit(X, background=B))
    assert peak < 0.5 * (X.nbytes + B.nbytes)


@pytest.mark.parametrize("noise", ["isotropic", "feature"])
def test_many_features_never_make_a_square_matrix(noise: Any) -> None:
    rng = np.random.default_rng(0)
    X, B = rng.standard_normal((40, 4000)), rng.standard_normal((30, 4000))
    model = rough(1, 2, likelihood=clvm.Gaussian(noise))
    assert peak_bytes(lambda: model.fit(X, background=B)) < 0.2 * 4000**2 * 8


def test_sparse_rows_are_never_densified() -> None:
    rng = np.random.default_rng(0)
    shapes = ((900, 8000), (600, 8000))
    sets = [sp.csr_array(rng.random(shape) * (rng.random(shape) < 0.02)) for shape in shapes]
    model = rough(1, 2)
    peak = peak_bytes(lambda: model.fit(sets[0], background=sets[1]))
    assert peak < 0.3 * 1500 * 8000 * 8
    assert peak_bytes(lambda: model.transform(sets[0])) < 0.5 * 900 * 8000 * 8
