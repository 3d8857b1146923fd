"""Each prior's precision is a derivative of its bound.

A prior sees expected squares of loadings and gives a precision and a part of the bound. The two
must agree, `precision == -2 d bound / d E[L^2]`, or the sweeps climb another hill than the one they
report.
"""

from typing import Any

import numpy as np
import pytest
from scipy import integrate, stats

import contrastive_lvm as clvm
from tests.oracles import Array, slopes

D, K = 6, 3
GROUPS = ("a", "b", "a", "c", "b", "a")
PRIORS: dict[str, Any] = {
    "flat": clvm.Flat(),
    "ard": clvm.ARD(),
    "ard, informative": clvm.ARD(a0=2.0, b0=3.0),
    "horseshoe": clvm.Horseshoe(),
    "ridge": clvm.Ridge(0.7),
    "horseshoe, scale": clvm.Horseshoe(scale=0.05),
    "horseshoe, groups": clvm.Horseshoe(scale=2.0, groups=GROUPS),
    "group lasso": clvm.GroupLasso(),
    "group lasso, groups": clvm.GroupLasso(rho=3.0, groups=GROUPS),
}
SEEDS = range(5)


def random_squares(rng: np.random.Generator) -> Array:
    """Squares of very different sizes, a row and an entry of them zero."""
    squares = rng.gamma(0.5, 2.0, (D, K)) * 10.0 ** rng.uniform(-3.0, 3.0, (D, 1))
    squares[0], squares[1, 0] = 0.0, 0.0
    return np.asarray(squares)


def reached(prior: Any, rng: np.random.Generator, n_updates: int) -> Any:
    """A state after some updates on squares that have nothing to do with each other."""
    state = prior.init((D, K))
    for _ in range(n_updates):
        state = prior.update(state, random_squares(rng))
    return state


@pytest.mark.parametrize("n_updates", [0, 1, 4])
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", PRIORS)
def test_precision_is_minus_twice_the_slope_of_the_bound(
    name: str, seed: int, n_updates: int
) -> None:
    prior, rng = PRIORS[name], np.random.default_rng(seed)
    state, squares = reached(prior, rng, n_updates), random_squares(rng)
    expected = np.broadcast_to(prior.precision(state), (D, K))
    # The bound is linear in the squares: a long step costs no accuracy and saves the digits.
    slope = slopes(lambda s: prior.bound(state, s), squares, step=1.0 + float(squares.max()))
    np.testing.assert_allclose(expected, -2.0 * slope, rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", PRIORS)
def test_an_update_never_lowers_the_bound(name: str, seed: int) -> None:
    prior, rng = PRIORS[name], np.random.default_rng(100 + seed)
    state = prior.init((D, K))
    for _ in range(40):
        squares = random_squares(rng)
        before = prior.bound(state, squares)
        state = prior.update(state, squares)
        after = prior.bound(state, squares)
        assert after >= before - 1e-12 * abs(before)


@pytest.mark.parametrize("name", [n for n in PRIORS if n not in ("flat", "ridge")])
def test_updates_change_what_they_see(name: str) -> None:
    prior, small = PRIORS[name], np.full((D, K), 1e-3)
    state = prior.init((D, K))
    tight, wide = prior.update(state, small), prior.update(state, 1e6 * small)
    assert (prior.precision(tight) > 10.0 * prior.precision(wide)).all()
    assert prior.bound(tight, small) > prior.bound(wide, small)


@pytest.mark.parametrize("factor", [0.5, 0.9, 0.999, 1.001, 1.1, 2.0])
@pytest.mark.parametrize("name", ["ard", "ard, informative"])
def test_the_update_of_ard_is_the_maximiser(name: str, factor: float) -> None:
    prior, rng = PRIORS[name], np.random.default_rng(5)
    squares = random_squares(rng)
    best = prior.update(prior.init((D, K)), squares)
    for other in (best._replace(b=best.b * factor), best._replace(a=best.a * factor)):
        assert prior.bound(other, squares) < prior.bound(best, squares)


@pytest.mark.parametrize("scale", ["rho2", "lam", "tau2", "xi"])
@pytest.mark.parametrize("name", ["horseshoe", "horseshoe, scale", "horseshoe, groups"])
def test_repeated_updates_of_the_horseshoe_end_at_a_maximum(name: str, scale: str) -> None:
    prior, squares = PRIORS[name], random_squares(np.random.default_rng(6)) + 1e-3
    state = prior.init((D, K))
    for _ in range(20_000):
        before, state = state, prior.update(state, squares)
        if np.allclose(before.rho2.b, state.rho2.b, rtol=1e-13, atol=0):
            break
    best = prior.bound(state, squares)
    for i in range(len(getattr(state, scale).b)):
        for factor in (0.98, 1.02):
            old = getattr(state, scale)
            for field in ("a", "b"):
                moved = getattr(old, field).copy()
                moved[i] *= factor
                other = state._replace(**{scale: old._replace(**{field: moved})})
                assert prior.bound(other, squares) < best


def test_features_of_a_group_share_a_precision() -> None:
    prior = PRIORS["horseshoe, groups"]
    precision = prior.precision(reached(prior, np.random.default_rng(3), 2)).ravel()
    labels = np.array(GROUPS)
    assert all(len(np.unique(precision[labels == g])) == 1 for g in "abc")
    assert len(np.unique(precision)) == 3


@pytest.mark.parametrize("b", [1.0, 0.2])
def test_the_hierarchy_of_inverse_gammas_is_a_half_cauchy(b: float) -> None:
    """`a^2 | l ~ IG(1/2, 1/l)`, `l ~ IG(1/2, 1/b^2)`, integrated over l on a log scale."""
    for a in (0.05, 0.3, 1.0, 4.0, 20.0):

        def joint(log_l: float, a: float = a) -> float:
            inner = stats.invgamma.pdf(a**2, 0.5, scale=np.exp(-log_l))
            outer = stats.invgamma.pdf(np.exp(log_l), 0.5, scale=1.0 / b**2)
            return float(inner * outer * np.exp(log_l) * 2.0 * a)

        with np.errstate(over="ignore"):
            density = integrate.quad(joint, -60.0, 60.0, limit=500, points=[0.0])[0]
        assert density == pytest.approx(2.0 / (np.pi * b * (1.0 + (a / b) ** 2)), rel=1e-6)


def test_the_bound_of_the_horseshoe_is_below_its_log_density() -> None:
    """One loading: `ln p(l)` with both half-Cauchy scales integrated out by Monte Carlo."""
    prior, rng = clvm.Horseshoe(scale=0.7), np.random.default_rng(0)
    scale = np.abs(rng.standard_cauchy(400_000)) * 0.7 * np.abs(rng.standard_cauchy(400_000))
    for loading in (0.3, 2.0):
        exact = float(np.log(stats.norm.pdf(loading, scale=scale).mean()))
        squares, state = np.full((1, 1), loading**2), prior.init((1, 1))
        for _ in range(300):
            state = prior.update(state, squares)
        assert exact - 1.0 < prior.bound(state, squares) < exact
