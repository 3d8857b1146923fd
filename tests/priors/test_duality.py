"""Scales and what they give: each prior's precision and each likelihood's weight is a derivative.

A piece of the model sees expected squares and gives a precision (or a weight) and a part of the
bound. The two must agree, `precision == -2 d bound / d E[L^2]`, or the sweeps climb another hill
than the one they report.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy import integrate, stats
from scipy.special import gammaln

import contrastive_lvm as clvm
from contrastive_lvm.likelihoods.student_t import LEAST_DF, MOST_DF, df_step
from contrastive_lvm.linalg.inverse_gamma import (
    InverseGamma,
    expected_log_prior,
    probability_product_below,
    product_density,
)
from tests.oracles import Array

MULTIVARIATE_T: Any = stats.multivariate_t  # its types want whole degrees of freedom
D, K = 6, 3
GROUPS = ("a", "b", "a", "c", "b", "a")
PRIORS: dict[str, Any] = {
    "flat": clvm.Flat(),
    "ard": clvm.ARD(),
    "ard, informative": clvm.ARD(a0=2.0, b0=3.0),
    "horseshoe": clvm.Horseshoe(),
    "horseshoe, scale": clvm.Horseshoe(scale=0.05),
    "horseshoe, groups": clvm.Horseshoe(scale=2.0, groups=GROUPS),
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


def slopes(function: Callable[[Array], float], at: Array, *, step: float) -> Array:
    """Central differences in each entry."""
    result = np.zeros_like(at)
    for i in np.ndindex(*at.shape):
        more, less = at.copy(), at.copy()
        more[i], less[i] = at[i] + step, at[i] - step
        result[i] = (function(more) - function(less)) / (2.0 * step)
    return result


# --- priors -------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_updates", [0, 1, 4])
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", PRIORS)
def test_precision_is_minus_twice_the_slope_of_the_bound(
    name: str, seed: int, n_updates: int
) -> None:
    prior, rng = PRIORS[name], np.random.default_rng(seed)
    state, squares = reached(prior, rng, n_updates), 1.0 + random_squares(rng)
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


@pytest.mark.parametrize("name", [n for n in PRIORS if n != "flat"])
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


@pytest.mark.parametrize("law", ["rho2", "lam", "tau2", "xi"])
@pytest.mark.parametrize("name", ["horseshoe", "horseshoe, scale", "horseshoe, groups"])
def test_repeated_updates_of_the_horseshoe_end_at_a_maximum(name: str, law: str) -> None:
    prior, squares = PRIORS[name], random_squares(np.random.default_rng(6)) + 1e-3
    state = prior.init((D, K))
    for _ in range(20_000):
        before, state = state, prior.update(state, squares)
        if np.allclose(before.rho2.b, state.rho2.b, rtol=1e-13, atol=0):
            break
    best = prior.bound(state, squares)
    for i in range(len(getattr(state, law).b)):
        for factor in (0.98, 1.02):
            old = getattr(state, law)
            for field in ("a", "b"):
                moved = getattr(old, field).copy()
                moved[i] *= factor
                other = state._replace(**{law: old._replace(**{field: moved})})
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


# --- likelihoods --------------------------------------------------------------------------------

DFS = [0.5, 2.0, 4.0, 30.0]


def residuals(seed: int, df: float) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    observed = (rng.random((7, 5)) < 0.7).astype(np.float64)
    observed[0], observed[1] = 1.0, 0.0
    return df * rng.gamma(0.5, 4.0, observed.shape) * observed, observed


@pytest.mark.parametrize("df", DFS)
@pytest.mark.parametrize("per", ["element", "sample"])
def test_weight_is_minus_twice_the_slope_of_the_bound(per: Any, df: float) -> None:
    scaler = clvm.StudentT(df, per=per).scaler(df)
    chi2, observed = residuals(0, df)
    weights = scaler(chi2, observed.sum(axis=1)).weights * observed
    slope = slopes(
        lambda c: float(scaler(c, observed.sum(axis=1)).bound.sum()), chi2, step=1e-4 * df
    )
    np.testing.assert_allclose(weights, -2.0 * slope * observed, rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize("df", DFS)
def test_the_bound_of_an_entry_is_a_student_density(df: float) -> None:
    """With psi = 1; the constant -1/2 ln(2 pi psi) of an entry is added with the rows."""
    chi2, observed = residuals(1, df)
    density = stats.t.logpdf(np.sqrt(chi2), df) + 0.5 * np.log(2.0 * np.pi)
    bound = clvm.StudentT(df).scaler(df)(chi2, observed.sum(axis=1)).bound
    np.testing.assert_allclose(bound, (density * observed).sum(axis=1), rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("df", DFS)
def test_the_bound_of_a_row_is_a_multivariate_student_density(df: float) -> None:
    chi2, observed = residuals(2, df)
    bound = clvm.StudentT(df, per="sample").scaler(df)(chi2, observed.sum(axis=1)).bound
    for value, c, o in zip(bound, chi2, observed > 0, strict=True):
        n = int(o.sum())
        density = MULTIVARIATE_T.logpdf(np.sqrt(c[o]), np.zeros(n), df=df) if n else 0.0
        assert value == pytest.approx(density + 0.5 * n * np.log(2.0 * np.pi), abs=1e-10)


@pytest.mark.parametrize("df", DFS)
@pytest.mark.parametrize("per", ["element", "sample"])
def test_log_excess_is_that_of_the_gamma_posterior(per: Any, df: float) -> None:
    """`q(u) = Gamma(a, b)`: E[u] and E[ln u] by quadrature over its quantiles."""
    chi2, observed = residuals(3, df)
    chi2, observed = chi2[:1, :2], observed[:1, :2]
    scales = clvm.StudentT(df, per=per).scaler(df)(chi2, observed.sum(axis=1))
    single = per == "element"
    sums = chi2.ravel() if single else np.array([chi2.sum()])
    total = 0.0
    for c, weight in zip(sums, scales.weights.ravel(), strict=True):
        q = stats.gamma(0.5 * (df + (1.0 if single else 2.0)), scale=2.0 / (df + c))
        assert weight == pytest.approx(float(q.mean()), rel=1e-12)
        total += float(q.expect(np.log)) - float(q.mean())
    assert scales.n_scales == len(sums)
    assert scales.log_excess == pytest.approx(total, rel=1e-6)


@pytest.mark.parametrize("df", [0.7, 3.0, 12.0, 200.0])
def test_the_df_step_maximises_its_objective(df: float) -> None:
    """`n [h ln h - ln Gamma(h)] + h sum(E[ln u] - E[u])`, h = df / 2, on scales drawn at df."""
    u = np.random.default_rng(0).gamma(df / 2.0, 2.0 / df, 20_000)
    excess = float((np.log(u) - u).sum())

    def objective(value: float) -> float:
        h = 0.5 * value
        return float(len(u) * (h * np.log(h) - gammaln(h)) + h * excess)

    found = df_step(excess, len(u))
    assert found == pytest.approx(df, rel=0.1)
    grid = found * np.array([0.2, 0.8, 0.99, 1.01, 1.2, 5.0])
    assert all(objective(found) > objective(other) for other in grid)


def test_the_df_step_stays_within_its_limits() -> None:
    assert df_step(-1e6, 10) == LEAST_DF
    assert df_step(-10.0, 10) == MOST_DF  # all scales exactly 1


# --- inverse gammas -----------------------------------------------------------------------------

LAWS = InverseGamma(np.array([0.5, 1.3, 4.0, 30.0]), np.array([2.0, 0.1, 7.0, 25.0]))


def test_expectations_are_those_of_the_inverse_gamma() -> None:
    law = stats.invgamma(LAWS.a, scale=LAWS.b)
    x = np.array([0.01, 0.2, 1.0, 9.0])[:, None]
    p = np.array([0.01, 0.3, 0.5, 0.9])[:, None]
    np.testing.assert_allclose(LAWS.cdf(x), law.cdf(x), rtol=1e-9, atol=1e-300)
    np.testing.assert_allclose(LAWS.quantile(p), law.ppf(p), rtol=1e-9)
    np.testing.assert_allclose(LAWS.log_density(x), law.logpdf(x), rtol=1e-9)
    assert LAWS.entropy() == pytest.approx(float(np.sum(law.entropy())), rel=1e-9)
    assert (LAWS.cdf(0.0) == 0.0).all()
    for i, (a, b) in enumerate(zip(LAWS.a, LAWS.b, strict=True)):
        inverse = stats.gamma(a, scale=1.0 / b)  # of 1/x
        assert LAWS.mean_inverse()[i] == pytest.approx(float(inverse.mean()), rel=1e-9)
        assert LAWS.mean_log()[i] == pytest.approx(-float(inverse.expect(np.log)), rel=1e-5)


def test_the_expected_log_prior_is_an_average_over_draws() -> None:
    rng = np.random.default_rng(0)
    x, y = InverseGamma(np.array([4.0]), np.array([3.0])), InverseGamma(np.ones(1), np.ones(1) * 2)
    draws = 1.0 / rng.gamma(x.a, 1.0 / x.b, 400_000)
    rates = rng.gamma(y.a, 1.0 / y.b, 400_000)  # 1 / y
    each = np.asarray(stats.invgamma.logpdf(draws, 0.5, scale=rates))
    found = expected_log_prior(x, 0.5, y.mean_inverse(), -y.mean_log())
    assert found == pytest.approx(float(each.mean()), abs=5.0 * float(each.std()) / 400_000**0.5)


def test_the_law_of_a_product_is_that_of_its_draws() -> None:
    rng = np.random.default_rng(0)
    y = InverseGamma(np.array([3.0]), np.array([2.0]))
    product = stats.invgamma.rvs(LAWS.a, scale=LAWS.b, size=(200_000, 4), random_state=rng)
    product *= stats.invgamma.rvs(3.0, scale=2.0, size=(200_000, 1), random_state=rng)
    for limit in (0.1, 1.0, 5.0):
        found = probability_product_below(LAWS, y, limit)
        np.testing.assert_allclose(found, (product < limit).mean(axis=0), atol=6e-3)
    at = np.geomspace(0.05, 20.0, 7)
    s = np.exp(np.linspace(-12.0, 12.0, 20_001))  # y, integrated on a log scale
    mass = stats.invgamma.pdf(s, 3.0, scale=2.0) * s * 24.0 / 20_000
    given = stats.invgamma.pdf(at[:, None, None] / s[:, None], LAWS.a, scale=LAWS.b) / s[:, None]
    exact = np.einsum("s,psj->pj", mass, given)
    error = np.abs(product_density(LAWS, y, at) - exact)
    assert (error <= 0.005 * exact.max(axis=0)).all()  # of the peak: the far tails are coarse
