"""Noise variances at their floor are noticed."""

import warnings

import numpy as np
import pandas as pd
import pytest

import contrastive_lvm as clvm

OWN = clvm.Gaussian(noise="feature")


def test_features_that_are_fitted_exactly_are_named() -> None:
    """Two copies of a feature have no noise about their common dimension."""
    rng = np.random.default_rng(0)
    X, Y = (pd.DataFrame(rng.standard_normal((60, 5)), columns=list("abcde")) for _ in range(2))
    X["e"], Y["e"] = X["d"], Y["d"]
    model = clvm.ContrastiveLVM(1, 1, likelihood=OWN)
    with pytest.warns(UserWarning, match=r"of [12] of 5 features fell to their floor.*'[de]'"):
        model.fit(X, background=Y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        clvm.ContrastiveLVM(1, 1).fit(X, background=Y)  # one noise variance has no such floor


def test_noise_of_ordinary_features_is_no_reason_to_warn() -> None:
    rng = np.random.default_rng(0)
    L, scale = rng.standard_normal((2, 8)), np.geomspace(0.2, 3.0, 8)
    X = rng.standard_normal((200, 2)) @ L + scale * rng.standard_normal((200, 8))
    Y = rng.standard_normal((200, 1)) @ L[:1] + scale * rng.standard_normal((200, 8))
    model = clvm.ContrastiveLVM(1, 1, likelihood=OWN).fit(X, background=Y)
    np.testing.assert_allclose(np.sqrt(model.noise_variance_), scale, rtol=0.25)
