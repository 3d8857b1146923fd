"""Priors and likelihoods written outside the package, in SVI, NUTS and the density."""

from typing import Any

import numpy as np
import pytest
from scipy.linalg import subspace_angles

import contrastive_lvm as clvm
from contrastive_lvm.black_box.svi.svi_posterior import guide_draws
from tests.black_box.user_defined import Laplace, LaplaceNoise
from tests.oracles import Array
from tests.outside import SoftplusPoisson, StudentLoadings

pytest.importorskip("numpyro", reason="the extra jax is not installed")

N, M, D = 120, 100, 6
LIKELIHOODS: dict[str, Any] = {
    "gaussian": clvm.Gaussian(),
    "laplace noise": LaplaceNoise(0.5),
    "softplus": SoftplusPoisson(),
}
PRIORS: dict[str, Any] = {"ard": clvm.ARD(), "laplace": Laplace(), "student": StudentLoadings()}
ENGINES: dict[str, Any] = {
    "svi": clvm.SVI(max_iter=400),
    "minibatches": clvm.SVI(max_iter=400, batch_size=60),
    "marginal": clvm.SVI(max_iter=400, augmented=False),
    "nuts": clvm.NUTS(n_warmup=100, n_draws=100, n_chains=2),
}
TABLE = [
    ("laplace noise", "laplace", "nuts"),
    ("softplus", "laplace", "minibatches"),
]
SLOW = [
    pytest.param(likelihood, prior, engine, marks=pytest.mark.slow)
    for likelihood in LIKELIHOODS
    for prior in PRIORS
    for engine in ENGINES
    if (likelihood, prior, engine) not in TABLE and (likelihood, prior) != ("gaussian", "ard")
]


def rows(likelihood: str) -> tuple[Array, Array, Array]:
    """Return target loadings and rows of both sets that follow a likelihood."""
    rng = np.random.default_rng(0)
    S, W = rng.standard_normal((D, 1)), 1.5 * rng.standard_normal((D, 1))
    X = rng.standard_normal((N, 1)) @ S.T + rng.standard_normal((N, 1)) @ W.T
    B = rng.standard_normal((M, 1)) @ S.T
    if likelihood == "softplus":
        X, B = (rng.poisson(np.logaddexp(0.0, 6.0 + 2.0 * E)).astype(float) for E in (X, B))
    else:
        X, B = (20.0 + E + rng.laplace(0.0, 0.5, E.shape) for E in (X, B))
    X[2, 1] = B[0, 3] = np.nan
    return W, X, B


@pytest.mark.parametrize(("likelihood", "prior", "engine"), [*TABLE, *SLOW])
def test_target_loadings_are_found(likelihood: str, prior: str, engine: str) -> None:
    W, X, B = rows(likelihood)
    model = clvm.contrastive_model(1, 1, LIKELIHOODS[likelihood], PRIORS[prior], PRIORS[prior])
    fitter = ENGINES[engine]
    assert fitter._unsupported_reason(model) is None
    found = fitter._run(model, [X, B], seed=0)
    assert np.isfinite(found.lower_bounds).all()
    assert np.degrees(subspace_angles(found.loadings["target"], W).max()) < 15.0
    np.testing.assert_allclose(found.means["target"], np.nanmean(X, axis=0), rtol=0.2, atol=1.0)
    draws = found.draws or guide_draws(found.state, 50, seed=0)
    assert draws.values["target loadings"].shape[2:] == (D, 1)
    assert draws.values["shared latents of background"].shape[2:] == (M, 1)
