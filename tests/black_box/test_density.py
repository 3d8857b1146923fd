"""The NumPyro density against SciPy's, for every prior and likelihood."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from scipy import stats
from scipy.special import gammaln

import contrastive_lvm as clvm
from tests.black_box.user_defined import Silent
from tests.oracles import Array

jax = pytest.importorskip("jax", reason="the extra jax is not installed")
numpyro = pytest.importorskip("numpyro", reason="the extra jax is not installed")

D, K, T = 4, 2, 1
ROWS = {"target": 6, "background": 5}
PRIORS: dict[str, Any] = {
    "flat": clvm.Flat(),
    "ard": clvm.ARD(2.0, 3.0),
    "lasso": clvm.GroupLasso(1.5, groups=[0, 0, 1, 1]),
    "horseshoe": clvm.Horseshoe(0.7, groups=[0, 1, 1, 2]),
}
LIKELIHOODS: dict[str, Any] = {
    "isotropic": clvm.Gaussian(),
    "feature": clvm.Gaussian("feature"),
    "element": clvm.StudentT(3.0),
    "sample": clvm.StudentT(3.0, per="sample"),
    "learned": clvm.StudentT("learn", noise="feature"),
}


@pytest.fixture(autouse=True)
def double() -> Iterator[None]:
    with jax.enable_x64(True):  # noqa: FBT003
        yield


def draw(
    prior: Any, name: str, width: int, rng: Any, *, augmented: bool
) -> tuple[Array, float, Any]:
    """Loadings, their log density with that of their scales, and the values of the sites."""
    L, sites = rng.standard_normal((D, width)), {}
    if isinstance(prior, clvm.Flat):
        return L, 0.0, {name: L}
    if isinstance(prior, clvm.GroupLasso):
        group = np.array(prior.groups)
        size = np.sqrt(np.bincount(group, weights=(L**2).sum(axis=1)) * np.bincount(group))
        return L, -prior.rho * size.sum(), {name: L}
    ig = stats.invgamma.logpdf
    if isinstance(prior, clvm.ARD):
        v = rng.gamma(2.0, size=width)
        sites[f"{name} variance"] = v
        density, scale = ig(v, prior.a0, scale=prior.b0).sum(), np.sqrt(v) * np.ones((D, 1))
    else:
        group = np.array(prior.groups)
        lam, rho2 = rng.gamma(2.0, size=(2, 3))
        xi, tau2 = rng.gamma(2.0, size=2)
        scale = np.sqrt(rho2 * tau2)[group][:, None] * np.ones(width)
        if augmented:
            sites = {f"{name} lambda": lam, f"{name} rho2": rho2}
            sites |= {f"{name} xi": xi, f"{name} tau2": tau2}
            density = ig(lam, 0.5).sum() + ig(rho2, 0.5, scale=1 / lam).sum()
            density += ig(xi, 0.5, scale=1 / prior.scale**2) + ig(tau2, 0.5, scale=1 / xi)
        else:
            sites = {f"{name} rho": np.sqrt(rho2), f"{name} tau": np.sqrt(tau2)}
            density = stats.halfcauchy.logpdf(np.sqrt(rho2)).sum()
            density += stats.halfcauchy.logpdf(np.sqrt(tau2), scale=prior.scale)
    if augmented:
        return L, density + stats.norm.logpdf(L, scale=scale).sum(), {**sites, name: L}
    sites[f"{name} standard"] = L
    return L * scale, density + stats.norm.logpdf(L).sum(), sites


def rows_density(likelihood: Any, E: Array, noise: Array, df: float, u: Array | None) -> float:
    """Log density of residuals, NaN where missing."""
    seen = ~np.isnan(E)
    noise = np.broadcast_to(noise, E.shape)
    if isinstance(likelihood, clvm.Gaussian):
        return float(np.sum(stats.norm.logpdf(E[seen], scale=np.sqrt(noise[seen]))))
    if u is not None:
        scale = np.sqrt(noise / u)
        given = np.sum(stats.norm.logpdf(E[seen], scale=scale[seen]))
        prior = stats.gamma(df / 2, scale=2 / df).logpdf(u)
        return float(given + (prior[seen].sum() if u.shape == E.shape else prior.sum()))
    if likelihood.per == "element":
        return float(np.sum(stats.t.logpdf(E[seen], df, scale=np.sqrt(noise[seen]))))
    total = 0.0
    for e, o, psi in zip(E, seen, noise, strict=True):
        n, chi2 = o.sum(), (e[o] ** 2 / psi[o]).sum()
        total += gammaln((df + n) / 2) - gammaln(df / 2) - 0.5 * n * np.log(np.pi * df)
        total -= 0.5 * np.log(psi[o]).sum() + 0.5 * (df + n) * np.log1p(chi2 / df)
    return float(total)


@pytest.mark.parametrize("form", ["augmented", "marginal"])
@pytest.mark.parametrize("likelihood", LIKELIHOODS)
@pytest.mark.parametrize(
    ("shared", "target"),
    [("flat", "flat"), ("ard", "horseshoe"), ("horseshoe", "ard"), ("ard", "lasso")],
)
def test_the_density_is_the_models(shared: str, target: str, likelihood: str, form: str) -> None:
    rng, augmented = np.random.default_rng(0), form == "augmented"
    noise = LIKELIHOODS[likelihood]
    model = clvm.contrastive_model(T, K, noise, PRIORS[shared], PRIORS[target])
    S, expected, sites = draw(PRIORS[shared], "shared loadings", K, rng, augmented=augmented)
    W, more, own = draw(PRIORS[target], "target loadings", T, rng, augmented=augmented)
    expected, sites = expected + more, {**sites, **own}
    sites["log noise"] = rng.standard_normal(() if noise.noise == "isotropic" else D)
    df = 3.0
    if likelihood == "learned":
        sites["log df"], df = np.log(2.5), 2.5
    data = {}
    for side, n in ROWS.items():
        X = 2.0 * rng.standard_normal((n, D))
        X[0, 1] = X[2, 0] = X[2, 3] = np.nan
        z = sites[f"shared latents of {side}"] = rng.standard_normal((n, K))
        mean = sites[f"{side} mean"] = rng.standard_normal(D)
        fitted = mean + z @ S.T
        expected += stats.norm.logpdf(z).sum()
        if side == "target":
            t = sites["target latents of target"] = rng.standard_normal((n, T))
            fitted = fitted + t @ W.T
            expected += stats.norm.logpdf(t).sum()
        u = None
        if isinstance(noise, clvm.StudentT) and augmented:
            u = rng.gamma(2.0, size=(n, D if noise.per == "element" else 1))
            sites[f"{side} rows scale"] = u
        expected += rows_density(noise, X - fitted, np.exp(sites["log noise"]), df, u)
        data[side] = X
    arguments = (model, data["target"], data["background"])
    found, _ = numpyro.infer.util.log_density(
        clvm.density, arguments, {"augmented": augmented}, sites
    )
    assert float(found) == pytest.approx(expected, rel=1e-10)


def test_the_gradient_of_a_dropped_group_is_finite() -> None:
    prior = clvm.GroupLasso(2.0)
    model = clvm.contrastive_model(1, 0, target_prior=prior, background=False)
    sites = {"target mean": np.zeros(D), "log noise": 0.0}
    sites["target latents of target"] = np.ones((6, 1))

    def objective(W: Any) -> Any:
        values = {**sites, "target loadings": W}
        return numpyro.infer.util.log_density(clvm.density, (model, np.ones((6, D))), {}, values)[0]

    assert np.isfinite(np.asarray(jax.grad(objective)(np.zeros((D, 1))))).all()


def test_a_prior_without_a_density_is_refused() -> None:
    model = clvm.contrastive_model(0, 1, shared_prior=Silent(), background=False)
    with pytest.raises(TypeError, match=r"Silent\(\) has no NumPyro density; give it"):
        clvm.density(model, np.ones((3, 2)))


def test_every_set_needs_its_rows() -> None:
    with pytest.raises(ValueError, match="the rows of 1 sets; give those of 'target', 'backgr"):
        clvm.density(clvm.contrastive_model(1, 1), np.ones((3, 2)))


def test_without_numpyro_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    from contrastive_lvm import _jax as blackbox

    def missing(name: str) -> Any:
        raise ImportError(name)

    monkeypatch.setattr(blackbox, "import_module", missing)
    with pytest.raises(ImportError, match=r"pip install 'contrastive-lvm\[jax\]'\.$"):
        blackbox.LazyModule("numpyro").sample  # noqa: B018 - as `density` first asks for it
