"""Priors of black-box inference in units of the data."""

import warnings

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

import contrastive_lvm as clvm
from tests.oracles import planted

pytest.importorskip("jax", reason="the extra jax is not installed")
pytest.importorskip("numpyro", reason="the extra jax is not installed")


def test_priors_are_in_units_of_the_data() -> None:
    """Data times a constant: the same fit, times that constant."""
    _, X, B = planted(3, n=40, m=30, D=6, k=1, t=1)
    engine, factor = clvm.SVI(max_iter=200), 2.0**-10
    model = clvm.ContrastiveLVM(
        1, 1, target_prior="horseshoe", shared_prior="ard", inference=engine
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        one = clone(model).set_params(random_state=0).fit(X, background=B)
        other = clone(model).set_params(random_state=0).fit(factor * X, background=factor * B)
    entries = X.size + B.size
    assert other.lower_bound_ + entries * np.log(factor) == pytest.approx(
        one.lower_bound_, rel=1e-6
    )
    np.testing.assert_allclose(
        other.target_components_ / factor, one.target_components_, rtol=1e-4, atol=1e-5
    )
