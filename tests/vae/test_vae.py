"""Autoencoders: the bound against NumPy, and predictions."""

from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy import stats

import contrastive_lvm as clvm
from tests.outside import Contaminated, SoftplusPoisson
from tests.vae.autoencoders import DATA, QUICK, counts, known, quick

pytest.importorskip("jax", reason="the extra jax is not installed")

from contrastive_lvm.vae.architecture import (
    LEAST_LOG_NOISE,
    Architecture,
    DiagonalGaussian,
    NetworkConstants,
    NetworkModel,
)
from contrastive_lvm.vae.networks import FullyConnected
from contrastive_lvm.vae.objective import batch_terms, row_terms, variation
from contrastive_lvm.vae.trained_networks import DecoderInputs
from contrastive_lvm.vae.training import TrainingPlan, TrainingSchedule

COUNTS = {"target": counts(300, 0), "background": counts(200, 1)}
OUTPUTS = {
    "feature": (DATA.target, DATA.background),
    "bernoulli": tuple((rows > 0).astype(float) for rows in (DATA.target, DATA.background)),
    "negative_binomial": (counts(300, 0), counts(200, 1)),
}


def output(name: str) -> Any:
    return clvm.Gaussian("feature") if name == "feature" else name


# The bound


def plain_network(layers: Any, h: np.ndarray) -> np.ndarray:
    for layer in layers[:-1]:
        h = np.maximum(h @ layer.weights + layer.bias, 0.0)
    return np.asarray(h @ layers[-1].weights + layers[-1].bias)


def divergences(encoder: Any, seen: np.ndarray) -> np.ndarray:
    """Divergences from the prior, one per row and dimension."""
    mean, log_std = np.split(plain_network(encoder, seen), 2, axis=1)
    return np.asarray(0.5 * (mean**2 + np.exp(2 * log_std) - 1 - 2 * log_std))


@pytest.mark.parametrize("of", ["target", "background"])
def test_terms_of_a_row_are_those_of_the_paper(of: str) -> None:
    import jax

    rng = np.random.default_rng(0)
    architecture = Architecture(
        5, 2, 3, *2 * (FullyConnected((7, 6), "relu"),), clvm.Gaussian(), encodes_missing=True
    )
    p = architecture.initial_weights(rng)
    means = rng.standard_normal((2, 5)).astype(np.float32)
    ones = np.ones(5, dtype=np.float32)
    constants = NetworkConstants(means[0], means[1], 0 * ones, ones, *3 * (0 * ones,))
    rows = rng.standard_normal((4, 5)).astype(np.float32)
    rows[0, 1] = np.nan
    key = jax.random.key(3)
    found = jax.jit(
        lambda p, rows, key: row_terms(NetworkModel(architecture, p, constants), rows, key, of)
    )(p, rows, key)
    seen = np.hstack([np.nan_to_num(rows), np.isnan(rows)])
    mean, log_std = np.split(plain_network(p.encoder(of), seen), 2, axis=1)
    k = 2 if of == "target" else 0
    keys = jax.random.split(key)
    t, z = (
        np.asarray(
            DiagonalGaussian(*(jax.numpy.asarray(a[:, at]) for a in (mean, log_std))).draw(own)
        )
        for at, own in zip((slice(0, k), slice(k, None)), keys, strict=True)
    )
    eta = means[0 if k else 1] + plain_network(p.shared_decoder, z)
    if k:
        eta = eta + plain_network(p.target_decoder, t)
    density = np.nansum(stats.norm.logpdf(rows, eta, 1.0), axis=1)
    np.testing.assert_allclose(found.reconstruction, density, rtol=1e-5)
    divergence = divergences(p.encoder(of), seen)
    np.testing.assert_allclose(found.target_kl, divergence[:, :k].sum(axis=1), atol=1e-5)
    np.testing.assert_allclose(found.shared_kl, divergence[:, k:].sum(axis=1), atol=1e-5)


def test_batches_are_scaled_to_their_sets() -> None:
    import jax

    rng = np.random.default_rng(0)
    architecture = Architecture(
        4, 1, 2, *2 * (FullyConnected((5,), "relu"),), clvm.Gaussian(), encodes_missing=False
    )
    p = architecture.initial_weights(rng)
    zero, one = np.zeros(4, dtype=np.float32), np.ones(4, dtype=np.float32)
    constants = NetworkConstants(zero, zero, zero, one, zero, zero, zero)
    x, y = (rng.standard_normal((n, 4)).astype(np.float32) for n in (60, 20))
    model = partial(NetworkModel, architecture, constants=constants)
    jitted = jax.jit(lambda p, *batch: batch_terms(model(p), *batch))
    batches = [
        jitted(p, (x[3 * i :][:3], y[i:][:1]), (20.0, 20.0), jax.random.key(i)) for i in range(20)
    ]
    target, shared = divergences(p.target_encoder, x), divergences(p.background_encoder, y)
    whole = {
        "target_kl": target[:, :1].sum(),
        "target_shared_kl": target[:, 1:].sum(),
        "background_shared_kl": shared.sum(),
    }
    for name, value in whole.items():
        average = np.mean([float(getattr(part, name)) for part in batches])
        assert average == pytest.approx(value, rel=1e-4)


def test_half_of_the_background_goes_through_the_targets_encoder() -> None:
    import jax

    rng = np.random.default_rng(1)
    architecture = Architecture(
        4, 1, 2, *2 * (FullyConnected((5,), "relu"),), clvm.Gaussian(), encodes_missing=False
    )
    p = architecture.initial_weights(rng)
    zero, one = np.zeros(4, dtype=np.float32), np.ones(4, dtype=np.float32)
    model = NetworkModel(architecture, p, NetworkConstants(zero, zero, zero, one, zero, zero, zero))
    x, y = (rng.standard_normal((n, 4)).astype(np.float32) for n in (6, 9))
    once = np.ones(()), np.ones(())
    given = (x, y), once, jax.random.key(0)
    plain, crossed = (
        batch_terms(model, *given, separated=True, crossed=crossed) for crossed in (False, True)
    )
    own = divergences(p.background_encoder, y[:4]).sum()
    by_target = divergences(p.target_encoder, y[4:])
    shared = own + by_target[:, 1:].sum()  # no target latents in rows of the background
    assert float(crossed.background_shared_kl) == pytest.approx(shared, rel=1e-4)
    assert float(crossed.target_kl) == pytest.approx(float(plain.target_kl), rel=1e-6)
    moved = jax.numpy.asarray(x[:, :1] * one), jax.numpy.asarray(2.0 * x[:, :1] * one)
    assert float(variation(moved[0], moved[1])) == pytest.approx(0.25, rel=0.01)
    assert float(variation(moved[0][:1], moved[1])) == 0.0
    one_row = batch_terms(model, (x, y[:1]), once, jax.random.key(0), crossed=True)
    assert np.isfinite(float(one_row.background_shared_kl))


@pytest.mark.parametrize(("sizes", "batch"), [((300, 200), 64), ((1000, 10), 50), ((5, 4), 512)])
@pytest.mark.parametrize("multiple", [1, 2])
def test_a_smaller_set_is_not_weighed_more(
    sizes: tuple[int, int], batch: int, multiple: int
) -> None:
    plan = TrainingPlan(3, batch, 1e-3, 0.5, 1.0, None, 0.0)
    schedule = TrainingSchedule(plan, sizes, 10, multiple)
    assert all(rows % multiple == 0 and rows >= 1 for rows in schedule.batch_rows)
    for rows, n in zip(schedule.batch_rows, sizes, strict=True):
        assert abs(rows - min(batch, sum(sizes)) * n / sum(sizes)) <= multiple
        assert schedule.epoch_steps * rows >= n
    rates = schedule.rates(np.arange(schedule.steps))
    assert rates.max() <= 1e-3 * (1 + 1e-12)
    assert rates[-1] < rates.max() or schedule.steps < 3
    weights, floors = schedule.warm_up_weights(np.arange(schedule.steps))
    assert (np.diff(weights) >= 0).all()
    assert (np.diff(floors) <= 0).all()
    assert weights[-1] == 1.0
    assert floors[-1] == LEAST_LOG_NOISE


@pytest.mark.slow
def test_history_names_the_parts_of_the_bound() -> None:
    h = known().history_
    divergence = h["target_kl"] + h["target_shared_kl"] + h["background_shared_kl"]
    reconstruction = h["target_reconstruction"] + h["background_reconstruction"]
    np.testing.assert_allclose(h["bound"], reconstruction - divergence, rtol=1e-6)
    assert h["epoch"][-1] == known().n_iter_ == 6
    assert (np.diff(h["epoch"]) > 0).all()
    assert h["target_kl_weight"][-1] == 1.0
    scale = 300 + 200 - 30 - 20  # rows that train
    assert h["bound"][-1] / scale == pytest.approx(known().lower_bound_ / 500, rel=0.1)


def own_distribution(model: clvm.ContrastiveVAE, of: str) -> Any:
    """The normal distribution of rows that linear decoders describe."""
    network = model.network_
    w = network.weights
    decoders = [w.shared_decoder, *([w.target_decoder] if of == "target" else [])]
    L = np.vstack([decoder[0].weights for decoder in decoders]).T
    L = L * network.units.unit[:, None]
    t = np.zeros((1, 2)) if of == "target" else None
    offset = network.predictor(DecoderInputs(1, t, np.zeros((1, 2))), of)[0]
    noise = np.eye(len(offset)) * model.noise_variance_
    return stats.multivariate_normal(offset, L @ L.T + noise)


@pytest.mark.slow
def test_linear_networks_reach_the_exact_likelihood() -> None:
    """With linear decoders the model is the linear one, whose likelihood is known."""
    data = clvm.datasets.make_contrastive(800, 600, n_features=10, n_shared=2, random_state=1)
    exact = clvm.ContrastiveLVM(2, 2).fit(data.target, background=data.background)
    words: dict[str, Any] = {"max_epochs": 300, "learning_rate": 0.02, "batch_size": 200}
    model = clvm.ContrastiveVAE(
        2, 2, hidden_layer_sizes=(), random_state=0, validation_fraction=0.0, **words
    ).fit(data.target, background=data.background)
    assert model.lower_bound_ < exact.lower_bound_ + 3.0 * model.lower_bound_error_
    assert model.lower_bound_ > exact.lower_bound_ - 0.01 * abs(exact.lower_bound_)
    for rows, of in ((data.target, "target"), (data.background, "background")):
        own = own_distribution(model, of).logpdf(rows)
        few, many = (model.score_samples(rows, of=of, n_draws=k) for k in (1, 500))
        assert few.mean() < many.mean() + 0.05  # one draw is noisy
        assert many.mean() < own.mean() + 0.01
        assert many.mean() == pytest.approx(own.mean(), abs=0.05)


# Predictions


@pytest.mark.parametrize(
    "name",
    [
        "negative_binomial",
        *(pytest.param(n, marks=pytest.mark.slow) for n in ("feature", "bernoulli")),
    ],
)
def test_every_output_predicts(name: str) -> None:
    X, B = OUTPUTS[name]
    X = X.copy()
    X[::7, 0] = np.nan
    model = quick(likelihood=output(name)).fit(X, background=B)
    latents = model.latents(X)
    assert latents.target is not None
    assert latents.target_std is not None
    assert latents.cov.shape == (300, 4, 4)
    np.testing.assert_array_equal(latents.target, model.transform(X))
    np.testing.assert_allclose(
        np.sqrt(np.einsum("nkk->nk", latents.cov)),
        np.hstack([latents.target_std, latents.shared_std]),
    )
    filled, std = model.impute(X, return_std=True)
    np.testing.assert_array_equal(filled[~np.isnan(X)], X[~np.isnan(X)])
    assert ((std > 0) == np.isnan(X)).all()
    results = [
        *(
            model.reconstruct(X, parts=p)
            for p in ((), ("target",), ("shared",), ("shared", "target"))
        ),
        model.reconstruct(B, of="background"),
        model.denoise(X),
        model.inverse_transform(latents.target),
        filled,
        *(model.sample(20, of=of, random_state=0) for of in ("target", "background", "denoised")),
        model.score_samples(X, n_draws=5),
        model.score_samples(B, of="background", n_draws=5),
    ]
    for result in results:
        assert np.isfinite(result).all()
    if name == "bernoulli":
        assert set(np.unique(model.sample(50, random_state=0))) <= {0.0, 1.0}
        assert ((model.reconstruct(X) >= 0) & (model.reconstruct(X) <= 1)).all()
    assert (model.dispersion_ is not None) == (name == "negative_binomial")


@pytest.mark.parametrize(
    "likelihood",
    [pytest.param(Contaminated(), marks=pytest.mark.slow), SoftplusPoisson()],
    ids=repr,
)
def test_likelihoods_from_outside_are_outputs(likelihood: clvm.Likelihood) -> None:
    sets = DATA if isinstance(likelihood, Contaminated) else SimpleNamespace(**COUNTS)
    model = quick(likelihood=likelihood).fit(sets.target, background=sets.background)
    assert np.isfinite(model.transform(sets.target)).all()
    assert np.isfinite(model.reconstruct(sets.target)).all()
    assert (np.asarray(model.noise_variance_) > 0).all() == isinstance(likelihood, Contaminated)


def test_parts_add_up() -> None:
    both = known().reconstruct(DATA.target)
    t, z = (known().reconstruct(DATA.target, parts=(part,)) for part in ("target", "shared"))
    np.testing.assert_allclose(both, t + z - known().mean_, atol=1e-4)
    np.testing.assert_allclose(t.mean(axis=0), known().mean_, atol=1e-4)
    np.testing.assert_allclose(
        known().denoise(DATA.target), DATA.target - (z - known().mean_), atol=1e-4
    )
    y = known().reconstruct(DATA.background, of="background")
    np.testing.assert_allclose(y.mean(axis=0), known().background_mean_, atol=1e-4)


def test_data_in_other_units_gives_the_same_model() -> None:
    shift, unit = 1e6, 1e-3
    moved = quick().fit(shift + unit * DATA.target, background=shift + unit * DATA.background)
    np.testing.assert_allclose(
        moved.transform(shift + unit * DATA.target), known().transform(DATA.target), atol=1e-3
    )
    change = 500 * 8 * np.log(unit)
    assert moved.lower_bound_ == pytest.approx(known().lower_bound_ - change, rel=1e-4)
    assert moved.history_["bound"][-1] == pytest.approx(
        known().history_["bound"][-1] - change * 400 / 500, rel=1e-4
    )


@pytest.mark.slow
def test_missing_entries_are_not_seen() -> None:
    X = DATA.target.copy()
    missing = np.random.default_rng(0).random(X.shape) < 0.2
    X[missing] = np.nan
    model = quick(max_epochs=150, learning_rate=0.01).fit(X, background=DATA.background)
    filled, std = model.impute(X, return_std=True)
    error = (filled - DATA.target)[missing]
    assert (error**2).mean() < 0.7 * DATA.target[missing].var()
    assert 0.8 < (np.abs(error) < 1.645 * std[missing]).mean() < 0.97
    complete = model.score_samples(DATA.target).mean()
    assert model.score_samples(X).mean() > complete  # fewer entries, each less than probable
    incomplete = known().transform(X)  # nothing was missing in training
    assert np.isfinite(incomplete).all()


@pytest.mark.slow
def test_imputations_get_surer_with_what_is_seen() -> None:
    row = np.full((1, 8), np.nan)
    assert np.isfinite(known().impute(row)).all()
    assert np.isfinite(known().score_samples(row)).all()
    assert known().score_samples(row)[0] == pytest.approx(0.0, abs=3.0)


def test_vae_is_a_model_of_one_set() -> None:
    model = clvm.VAE(2, **QUICK).fit(DATA.target)
    assert model.transform(DATA.target).shape == (300, 2)
    assert model.history_["background_reconstruction"].sum() == 0.0
    assert list(model.get_feature_names_out()) == ["vae0", "vae1"]
    assert model.sample(4, random_state=0).shape == (4, 8)
    np.testing.assert_allclose(
        model.reconstruct(DATA.target), model.inverse_transform(model.transform(DATA.target))
    )
