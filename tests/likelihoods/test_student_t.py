"""Student-t noise: weights are derivatives of a bound that is its log density.

A scale mixture sees expected squared residuals and gives a weight and a part of the bound. The two
must agree, `weight == -2 d bound / d E[e^2 / psi]`, or the sweeps climb another hill than the one
they report.
"""

from typing import Any

import numpy as np
import pytest
from scipy import stats
from scipy.special import gammaln

import contrastive_lvm as clvm
from contrastive_lvm.likelihoods.student_t import LEAST_DF, MOST_DF, df_step
from tests.oracles import Array, slopes

MULTIVARIATE_T: Any = stats.multivariate_t  # its types want whole degrees of freedom
DFS = [0.5, 2.0, 4.0, 30.0]


def residuals(seed: int, df: float) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    observed = (rng.random((7, 5)) < 0.7).astype(np.float64)
    observed[0], observed[1] = 1.0, 0.0
    return df * rng.gamma(0.5, 4.0, observed.shape) * observed, observed


@pytest.mark.parametrize("df", DFS)
@pytest.mark.parametrize("per", ["element", "sample"])
def test_weight_is_minus_twice_the_slope_of_the_bound(per: Any, df: float) -> None:
    noise = clvm.StudentT(df, per=per)
    chi2, observed = residuals(0, df)
    entries = observed.sum(axis=1)
    weights = noise.scales(chi2, entries, df).weights * observed
    slope = slopes(lambda c: float(noise.scales(c, entries, df).bound.sum()), chi2, step=1e-4 * df)
    np.testing.assert_allclose(weights, -2.0 * slope * observed, rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize("df", DFS)
def test_the_bound_of_an_entry_is_a_student_density(df: float) -> None:
    """With psi = 1; the constant -1/2 ln(2 pi psi) of an entry is added with the rows."""
    chi2, observed = residuals(1, df)
    density = stats.t.logpdf(np.sqrt(chi2), df) + 0.5 * np.log(2.0 * np.pi)
    bound = clvm.StudentT(df).scales(chi2, observed.sum(axis=1), df).bound
    np.testing.assert_allclose(bound, (density * observed).sum(axis=1), rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("df", DFS)
def test_the_bound_of_a_row_is_a_multivariate_student_density(df: float) -> None:
    chi2, observed = residuals(2, df)
    bound = clvm.StudentT(df, per="sample").scales(chi2, observed.sum(axis=1), df).bound
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
    scales = clvm.StudentT(df, per=per).scales(chi2, observed.sum(axis=1), df)
    single = per == "element"
    sums = chi2.ravel() if single else np.array([chi2.sum()])
    total = 0.0
    for c, weight in zip(sums, scales.weights.ravel(), strict=True):
        q = stats.gamma(0.5 * (df + (1.0 if single else 2.0)), scale=2.0 / (df + c))
        assert weight == pytest.approx(float(q.mean()), rel=1e-12)
        total += float(q.expect(np.log)) - float(q.mean())
    assert scales.n_scales.sum() == len(sums)
    assert scales.log_excess.sum() == pytest.approx(total, rel=1e-6)


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
