"""SVI and NUTS of any number of sets and blocks, against closed forms."""

from typing import Any

import numpy as np
import pytest
from scipy.linalg import subspace_angles

import contrastive_lvm as clvm
from contrastive_lvm.black_box.svi.svi_posterior import guide_draws
from tests.oracles import Array

pytest.importorskip("numpyro", reason="the extra jax is not installed")

D = 12
ROWS = {"a": 120, "b": 100, "c": 90}
ACTIVE = {"all": ("a", "b", "c"), "a and b": ("a", "b"), "b and c": ("b", "c"), "only a": ("a",)}


def model(prior: Any, likelihood: Any = None) -> clvm.Model:
    """Return three sets and four blocks of a column each, two of which overlap."""
    blocks = (clvm.LoadingBlock(name, 1, sets, prior) for name, sets in ACTIVE.items())
    return clvm.Model(tuple(ROWS), tuple(blocks), likelihood or clvm.Gaussian())


def simulated() -> list[Array]:
    rng = np.random.default_rng(3)
    loadings = {name: 1.5 * rng.standard_normal((D, 1)) for name in ACTIVE}
    sets = []
    for i, (name, n) in enumerate(ROWS.items()):
        X = float(i) + 0.5 * rng.standard_normal((n, D))
        for block, active in ACTIVE.items():
            if name in active:
                X += rng.standard_normal((n, 1)) @ loadings[block].T
        sets.append(X)
    sets[1][0, 2] = np.nan
    return sets


def closed_form(engine: Any, model: clvm.Model, sets: list[Array]) -> clvm.Posterior:
    found: clvm.Posterior = engine._run(model, engine._prepare(model, sets))
    return found


def largest_angle(found: clvm.Posterior, exact: clvm.Posterior) -> float:
    angles = [subspace_angles(found.loadings[b], exact.loadings[b]).max() for b in ACTIVE]
    return float(np.degrees(max(angles)))


def covariance(fit: clvm.Posterior, name: str) -> Array:
    """Return the part of a set's covariance that its blocks explain."""
    active = [fit.loadings[block] for block, sets in ACTIVE.items() if name in sets]
    return np.asarray(sum(L @ L.T for L in active))


def test_svi_of_points_is_maximum_likelihood() -> None:
    sets = simulated()
    exact = closed_form(clvm.EM(), model(clvm.Flat()), sets)
    found = clvm.SVI(max_iter=1500)._run(model(clvm.Flat()), sets, seed=0)
    # How blocks share what their sets have in common matters little: two nats move ten degrees.
    assert largest_angle(found, exact) < 15.0
    for name in ROWS:
        ours, theirs = (covariance(fit, name) for fit in (found, exact))
        assert np.linalg.norm(ours - theirs) < 0.1 * np.linalg.norm(theirs)
    np.testing.assert_allclose(found.noise_variance, exact.noise_variance, rtol=0.05)
    assert found.lower_bound < exact.lower_bound + 3.0 * found.lower_bound_error
    assert found.lower_bound > exact.lower_bound - 3.0
    assert found.state is not None
    draws = guide_draws(found.state, 10, seed=0).values
    assert draws["b and c latents of c"].shape == (1, 10, 90, 1)
    assert "only a latents of b" not in draws


@pytest.mark.slow
@pytest.mark.parametrize("likelihood", [clvm.Gaussian("feature"), clvm.StudentT(per="sample")])
def test_svi_with_ard_agrees_with_variational_bayes(likelihood: Any) -> None:
    sets, own = simulated(), model(clvm.ARD(), likelihood)
    exact = closed_form(clvm.VariationalBayes(), own, sets)
    found = clvm.SVI()._run(own, sets, seed=0)
    assert largest_angle(found, exact) < 5.0
    assert found.lower_bound < exact.lower_bound + 3.0 * found.lower_bound_error


@pytest.mark.slow
def test_nuts_agrees_with_variational_bayes() -> None:
    sets, own = simulated(), model(clvm.ARD())
    exact = closed_form(clvm.VariationalBayes(), own, sets)
    found = clvm.NUTS(n_warmup=150, n_draws=150, n_chains=2)._run(own, sets, seed=0)
    assert found.draws is not None
    assert found.draws.worst_rhat[1] < 1.2
    assert largest_angle(found, exact) < 5.0
    for name in ROWS:
        np.testing.assert_allclose(found.means[name], exact.means[name], atol=0.3)
    assert set(found.prior_states) == set(ACTIVE)
