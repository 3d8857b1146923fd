"""Inverse gammas against SciPy's, and products of two of them against draws."""

import numpy as np
import pytest
from scipy import stats

from contrastive_lvm.linalg.inverse_gamma import (
    InverseGamma,
    expected_log_prior,
    probability_product_below,
    product_density,
)

SCALES = InverseGamma(np.array([0.5, 1.3, 4.0, 30.0]), np.array([2.0, 0.1, 7.0, 25.0]))


def test_expectations_are_those_of_the_inverse_gamma() -> None:
    exact = stats.invgamma(SCALES.a, scale=SCALES.b)
    x = np.array([0.01, 0.2, 1.0, 9.0])[:, None]
    p = np.array([0.01, 0.3, 0.5, 0.9])[:, None]
    np.testing.assert_allclose(SCALES.cdf(x), exact.cdf(x), rtol=1e-9, atol=1e-300)
    np.testing.assert_allclose(SCALES.quantile(p), exact.ppf(p), rtol=1e-9)
    np.testing.assert_allclose(SCALES.log_density(x), exact.logpdf(x), rtol=1e-9)
    assert SCALES.entropy() == pytest.approx(float(np.sum(exact.entropy())), rel=1e-9)
    assert (SCALES.cdf(0.0) == 0.0).all()
    for i, (a, b) in enumerate(zip(SCALES.a, SCALES.b, strict=True)):
        inverse = stats.gamma(a, scale=1.0 / b)  # of 1/x
        assert SCALES.mean_inverse()[i] == pytest.approx(float(inverse.mean()), rel=1e-9)
        assert SCALES.mean_log()[i] == pytest.approx(-float(inverse.expect(np.log)), rel=1e-5)


def test_the_expected_log_prior_is_an_average_over_draws() -> None:
    rng = np.random.default_rng(0)
    x, y = InverseGamma(np.array([4.0]), np.array([3.0])), InverseGamma(np.ones(1), np.ones(1) * 2)
    draws = 1.0 / rng.gamma(x.a, 1.0 / x.b, 400_000)
    rates = rng.gamma(y.a, 1.0 / y.b, 400_000)  # 1 / y
    each = np.asarray(stats.invgamma.logpdf(draws, 0.5, scale=rates))
    found = expected_log_prior(x, 0.5, y.mean_inverse(), -y.mean_log())
    assert found == pytest.approx(float(each.mean()), abs=5.0 * float(each.std()) / 400_000**0.5)


def test_a_product_is_distributed_as_its_draws() -> None:
    rng = np.random.default_rng(0)
    y = InverseGamma(np.array([3.0]), np.array([2.0]))
    product = stats.invgamma.rvs(SCALES.a, scale=SCALES.b, size=(200_000, 4), random_state=rng)
    product *= stats.invgamma.rvs(3.0, scale=2.0, size=(200_000, 1), random_state=rng)
    for limit in (0.1, 1.0, 5.0):
        found = probability_product_below(SCALES, y, limit)
        np.testing.assert_allclose(found, (product < limit).mean(axis=0), atol=6e-3)
    at = np.geomspace(0.05, 20.0, 7)
    s = np.exp(np.linspace(-12.0, 12.0, 20_001))  # y, integrated on a log scale
    mass = stats.invgamma.pdf(s, 3.0, scale=2.0) * s * 24.0 / 20_000
    given = (
        stats.invgamma.pdf(at[:, None, None] / s[:, None], SCALES.a, scale=SCALES.b) / s[:, None]
    )
    density = np.einsum("s,psj->pj", mass, given)
    error = np.abs(product_density(SCALES, y, at) - density)
    assert (error <= 0.005 * density.max(axis=0)).all()  # of the peak: the far tails are coarse
