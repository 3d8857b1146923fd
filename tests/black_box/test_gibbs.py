"""Posteriors against a long Gibbs run of the same model on a tiny problem.

Noise, means and degrees of freedom are points in the model, and fixed at their fitted values in
the sampler; loadings, latents, weights and the scales of the priors are drawn. The sampler's
posterior is exact up to Monte-Carlo error. The closed form factorises into loadings and latents:
its means should agree, its standard deviations are too small, most of all for strong loadings
(how long a column is can hardly be told from how much its latent varies) and for columns of W
(the target's latents may lean on the shared ones). Here they are 0.25 to 0.77 of the exact ones.
"""

from typing import Any, NamedTuple

import numpy as np
import pytest

import contrastive_lvm as clvm
from tests.oracles import Array, planted, sets_with_missing

SWEEPS, WARM_UP = 3000, 300
DF = 5.0


class Draws(NamedTuple):
    """Of the loadings `[S | W]`, signs aligned, and what their products with the latents are."""

    L: Array  # (sweeps, D, 2)
    fitted: Array  # (n, D) mean of `L h` over the draws, target rows
    weights: Array  # (n, D or 1) mean of u, target rows


def gibbs(sets: tuple[Array, Array], model: clvm.ContrastiveLVM, horseshoe: bool) -> Draws:  # noqa: FBT001
    rng = np.random.default_rng(0)
    psi = np.broadcast_to(model.noise_variance_, sets[0].shape[1:])
    likelihood = model.likelihood
    per = likelihood.per if isinstance(likelihood, clvm.StudentT) else None
    reference = np.hstack([model.shared_components_.T, model.target_components_.T])
    L, D = reference.copy(), len(psi)
    observed = [~np.isnan(X) for X in sets]
    means = (model.mean_, model.background_mean_)
    R = [np.where(o, X - mean, 0.0) for X, o, mean in zip(sets, observed, means, strict=True)]
    u = [np.ones(X.shape) for X in sets]
    alpha, rho2, tau2, lam, xi = np.ones(2), np.ones(D), 1.0, np.ones(D), 1.0
    draws, fitted, weights = [], np.zeros(sets[0].shape), np.zeros(sets[0].shape)

    def inverse_gamma(a: Any, b: Any) -> Any:
        return b / rng.gamma(a, size=np.shape(b))

    for sweep in range(SWEEPS):
        h = []
        for s, k in ((0, 2), (1, 1)):  # latents, then weights
            w = u[s] * observed[s] / psi
            h.append(drawn(rng, np.eye(k), w, L[:, :k], R[s]))
            chi2 = observed[s] * (R[s] - h[s] @ L[:, :k].T) ** 2 / psi
            if per == "element":
                u[s] = rng.gamma(0.5 * (DF + observed[s]), 2.0 / (DF + chi2))
            elif per == "sample":
                shape = 0.5 * (DF + observed[s].sum(axis=1, keepdims=True))
                u[s] = rng.gamma(shape, 2.0 / (DF + chi2.sum(axis=1, keepdims=True)))
                u[s] = np.broadcast_to(u[s], sets[s].shape)
        scale = np.column_stack(
            [np.full(D, alpha[0]), rho2 * tau2 if horseshoe else alpha[1:] * np.ones(D)]
        )
        H = np.vstack([h[0], np.column_stack([h[1], np.zeros(len(h[1]))])])
        w = np.vstack([u[s] * observed[s] / psi for s in (0, 1)])
        L = drawn(rng, scale[:, :, None] ** -1 * np.eye(2), w.T, H, np.vstack(R).T)
        squares = L**2
        alpha = inverse_gamma(1e-3 + D / 2, 1e-3 + 0.5 * squares.sum(axis=0))
        rho2 = inverse_gamma(1.0, 1.0 / lam + 0.5 * squares[:, 1] / tau2)
        lam = inverse_gamma(1.0, 1.0 + 1.0 / rho2)
        tau2 = inverse_gamma(0.5 * (1 + D), 1.0 / xi + 0.5 * (squares[:, 1] / rho2).sum())
        xi = inverse_gamma(1.0, 1.0 + 1.0 / tau2)
        if sweep >= WARM_UP:
            draws.append(L * np.sign((L * reference).sum(axis=0)))
            fitted += h[0] @ L.T / (SWEEPS - WARM_UP)
            weights += u[0] / (SWEEPS - WARM_UP)
    return Draws(np.array(draws), fitted, weights)


def drawn(rng: np.random.Generator, prior: Array, w: Array, F: Array, R: Array) -> Array:
    """One draw of every row of coefficients on the columns of F, given weights and residuals."""
    precision = prior + np.einsum("id,dj,dk->ijk", w, F, F, optimize=True)
    root = np.linalg.cholesky(np.linalg.inv(precision))
    mean = np.linalg.solve(precision, ((w * R) @ F)[:, :, None])
    noise = rng.standard_normal((len(w), F.shape[1], 1))
    return np.asarray((mean + root @ noise)[:, :, 0])


LIKELIHOODS: dict[str, Any] = {
    "gaussian": clvm.Gaussian(),
    "element": clvm.StudentT(DF),
    "sample": clvm.StudentT(DF, per="sample"),
}


@pytest.mark.parametrize("where", ["both", pytest.param("complete", marks=pytest.mark.slow)])
@pytest.mark.parametrize("prior", ["ard", pytest.param("horseshoe", marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "likelihood",
    ["gaussian", *(pytest.param(n, marks=pytest.mark.slow) for n in ("element", "sample"))],
)
def test_the_closed_form_agrees_with_a_gibbs_run(likelihood: str, prior: str, where: str) -> None:
    X, B = sets_with_missing(*planted(5, n=60, m=50, D=5, k=1, t=1)[1:], where)
    model = clvm.ContrastiveLVM(
        1, 1, likelihood=LIKELIHOODS[likelihood], shared_prior="ard", target_prior=prior
    ).fit(X, background=B)
    draws = gibbs((X, B), model, prior == "horseshoe")
    mean = np.hstack([model.shared_components_.T, model.target_components_.T])
    shared_std, target_std = model.shared_components_std_, model.target_components_std_
    assert shared_std is not None
    assert target_std is not None
    std = np.hstack([shared_std.T, target_std.T])
    exact_mean, exact_std = draws.L.mean(axis=0), draws.L.std(axis=0)
    assert (np.abs(mean - exact_mean) < 0.6 * exact_std).all()
    assert (std > 0.2 * exact_std).all()
    assert (std < exact_std).all()
    fitted = model.reconstruct(X) - model.mean_
    assert np.linalg.norm(fitted - draws.fitted) < 0.05 * np.linalg.norm(draws.fitted)
    if likelihood != "gaussian":
        weights = np.broadcast_to(model.outliers(X).weights, X.shape)
        seen = ~np.isnan(X)
        assert np.abs(weights - draws.weights)[seen].mean() < 0.05
