"""Student-t noise: weights are derivatives of a bound that is its log density.

A scale mixture sees expected squared residuals and gives a weight and a part of the bound. The two
must agree, `weight == -2 d bound / d E[e^2 / psi]`, or the sweeps climb another hill than the one
they report.
"""

import warnings
from typing import Any

import numpy as np
import pytest
from scipy import stats
from scipy.special import gammaln
from sklearn.exceptions import ConvergenceWarning

import contrastive_lvm as clvm
from contrastive_lvm.likelihoods.student_t import LEAST_DF, MOST_DF, df_of_entries, df_step
from contrastive_lvm.likelihoods.values import LeftOut
from contrastive_lvm.linalg.loadings import Loadings
from contrastive_lvm.prediction import Linear, left_out
from tests.oracles import Array, Side, conditional, planted, sides, slopes, with_missing

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


@pytest.mark.parametrize("seed", range(3))
def test_entries_left_out_are_those_of_the_joint_normal(seed: int) -> None:
    point, X, _ = planted(seed, n=12, D=6, k=2, t=1)
    X = with_missing(X, 0.2, seed)
    side: Side = sides(point)[0]
    model = Linear(Loadings(np.hstack([point.S, point.W])), side.mean, point.psi)
    found = left_out(model, X, np.ones(len(X)))
    seen = np.argwhere(~np.isnan(X))
    assert len(found.residual) == len(seen)
    for (i, d), residual, variance in zip(seen, found.residual, found.variance, strict=True):
        x = X[i].copy()
        x[d] = np.nan
        others = conditional(side, x)
        assert residual == pytest.approx(X[i, d] - others.entries[d], abs=1e-9)
        assert variance + point.psi[d] == pytest.approx(others.std[d] ** 2, rel=1e-9)


@pytest.mark.parametrize("df", [1.0, 3.0, 6.0])
def test_the_df_of_entries_maximise_their_density(df: float) -> None:
    """Student-t noise beside a normal of variance v: a density by numerical convolution."""
    rng = np.random.default_rng(1)
    v, psi = rng.uniform(0.0, 1.0, 300), rng.uniform(0.5, 2.0, 300)
    noise = np.sqrt(psi) * rng.standard_t(df, 300)
    entries = LeftOut(noise + np.sqrt(v) * rng.standard_normal(300), v, psi, np.ones(300))
    found = df_of_entries(entries, 4.0)
    z, weights = np.polynomial.hermite_e.hermegauss(60)
    shift = np.sqrt(v)[:, None] * z

    def log_density(value: float, factor: float) -> float:
        scale = np.sqrt(factor * psi)[:, None]
        density = stats.t.pdf((entries.residual[:, None] - shift) / scale, value) / scale
        return float(np.log(density @ weights).sum())

    factors = np.linspace(0.5, 2.0, 151)
    best, *others = (
        max(log_density(value, factor) for factor in factors)
        for value in found * np.array([1.0, 0.5, 0.8, 1.25, 2.0])
    )
    assert all(best > other for other in others)


def test_df_of_entries_that_are_mostly_constant() -> None:
    """Entries without residual and variance have a density that grows as the noise vanishes."""
    residual, variance = np.zeros((2, 135))
    residual[::12], variance[::12] = np.linspace(-0.05, 0.95, 12), 0.05
    entries = LeftOut(residual, variance, np.full(135, 5.5e-9), np.ones(135))
    assert LEAST_DF <= df_of_entries(entries, 4.0) <= MOST_DF


@pytest.mark.parametrize(("n", "m", "varies"), [(12, 10, 1.0), (40, 30, 0.0)])
def test_a_target_with_a_single_entry_raises_no_warning(n: int, m: int, varies: float) -> None:
    """Its leverage is 1 to rounding."""
    X = np.zeros((n, 6))
    X[3, 2] = 1.0
    B = np.random.default_rng(0).standard_normal((m, 6)) * (np.arange(6) == 2) * varies
    model = clvm.ContrastiveLVM(1, 1, likelihood=clvm.StudentT(df="learn"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(X, background=B)
    assert np.isfinite(model.lower_bound_)


@pytest.mark.parametrize("df", [3.0, 6.0])
@pytest.mark.parametrize("per", ["element", "sample"])
def test_learned_df_are_those_of_the_noise(per: Any, df: float) -> None:
    """In 15 features; the bound alone gave 4.6 and 17 where scales belong to entries."""
    learned = []
    for seed in range(3):
        rng = np.random.default_rng(seed)
        S, W = rng.normal(size=(15, 2)), rng.normal(size=(15, 2))
        sets = []
        for L in (np.hstack([S, W]), S):
            scales = rng.gamma(df / 2.0, 2.0 / df, (300, 15 if per == "element" else 1))
            noise = 0.7 * rng.normal(size=(300, 15)) / np.sqrt(scales)
            sets.append(rng.normal(size=(300, L.shape[1])) @ L.T + noise)
        model = clvm.ContrastiveLVM(2, 2, likelihood=clvm.StudentT("learn", per=per))
        learned.append(float(model.fit(sets[0], background=sets[1]).posterior_.df or 0.0))
    assert np.median(learned) == pytest.approx(
        df, rel=0.15 if per == "element" else 0.25
    )  # fewer scales
