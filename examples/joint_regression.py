"""A cLVM inside a larger model: target latents that also explain an outcome of the target rows.

`contrastive_lvm.density` draws loadings and latents inside any NumPyro model. Here a severity score
depends on the target latents; fitted jointly, the score helps to find them. The fit starts from the
closed-form one, which takes a fraction of a second and saves thousands of steps.
"""

from functools import partial
from typing import Any

import jax
import numpy as np
import numpyro
from numpyro import distributions as dist
from numpyro.infer import SVI, Trace_ELBO
from numpyro.infer.autoguide import AutoNormal
from numpyro.infer.initialization import init_to_value

import contrastive_lvm as clvm

STEPS = 2000
LATENTS = "target latents of target"  # the site of the latents that only the target has


def simulated(seed: int = 0) -> tuple[Any, Any, Any, Any]:
    """Simulate target, background, the score of the target's rows and the latent behind it."""
    rng = np.random.default_rng(seed)
    S, W = rng.standard_normal((20, 3)), 0.5 * rng.standard_normal((20, 1))
    t = rng.standard_normal(150)
    X = rng.standard_normal((150, 3)) @ S.T + t[:, None] * W.T + rng.standard_normal((150, 20))
    B = rng.standard_normal((120, 3)) @ S.T + rng.standard_normal((120, 20))
    return X, B, 2.0 * t + 0.5 * rng.standard_normal(150), t


def joint(model: clvm.Model, X: Any, B: Any, score: Any) -> None:
    """Combine the density of the cLVM with a regression on its target latents."""
    unobserved = clvm.density(model, X, B)
    effect = numpyro.sample("effect", dist.Normal(0.0, 3.0))
    spread = numpyro.sample("spread", dist.HalfNormal(3.0))
    mean = effect * unobserved.latents["target"]["target"][:, 0]
    numpyro.sample("score", dist.Normal(mean, spread), obs=score)


def fitted_latents(model: Any, start: dict[str, Any]) -> Any:
    """Return posterior means of the target latents, by mean-field variational inference."""
    guide = AutoNormal(model, init_loc_fn=init_to_value(values=start), init_scale=0.05)
    svi = SVI(model, guide, numpyro.optim.Adam(0.01), Trace_ELBO())

    # One compilation each: run eagerly, the set-up would compile hundreds of small programs.
    @jax.jit
    def run(key: Any) -> Any:
        return jax.lax.fori_loop(0, STEPS, lambda _, s: svi.update(s)[0], svi.init(key))

    return np.asarray(svi.get_params(run(jax.random.PRNGKey(0)))[f"{LATENTS}_auto_loc"])


def main() -> dict[str, float]:
    """Fit alone and jointly; print how well the latent behind the score is found."""
    X, B, score, t = simulated()
    alone = clvm.ContrastiveLVM(1, 3, shared_prior="ard", target_prior="ard").fit(X, background=B)
    found, others = alone.latents(X), alone.latents(B, of="background")
    latents = alone.transform(X)
    start = {
        "shared loadings": alone.shared_components_.T,
        "target loadings": alone.target_components_.T,
        LATENTS: latents,
        "shared latents of target": found.shared,
        "shared latents of background": others.shared,
        "target mean": alone.mean_,
        "background mean": alone.background_mean_,
        "log noise": np.log(alone.noise_variance_),
    }
    start = {name: np.asarray(value, np.float32) for name, value in start.items()}
    ard = clvm.ARD()
    model = clvm.contrastive_model(1, alone.n_shared_, shared_prior=ard, target_prior=ard)
    together = fitted_latents(partial(joint, model, X, B, score), start)[:, 0]
    quality = {
        "alone": abs(float(np.corrcoef(t, latents[:, 0])[0, 1])),
        "together with the score": abs(float(np.corrcoef(t, together)[0, 1])),
    }
    for name, value in quality.items():
        print(f"correlation with the true latent, {name}: {value:.3f}")
    return quality


if __name__ == "__main__":
    main()
