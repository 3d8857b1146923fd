"""Autoencoders: the bound against NumPy, training as promised, predictions, sources of rows."""

import itertools
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from scipy import stats
from sklearn.base import clone
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import contrastive_lvm as clvm

pytest.importorskip("jax", reason="the extra jax is not installed")

from contrastive_lvm.vae.design import LEAST_LOG_NOISE, Design, Scaling
from contrastive_lvm.vae.objective import (
    BANDWIDTHS,
    Code,
    dependence,
    discrepancy,
    parts,
    row_parts,
)
from contrastive_lvm.vae.rows import LazyRows, Moments, Rows
from contrastive_lvm.vae.training import Plan, Schedule

DATA = clvm.datasets.make_contrastive(300, 200, n_features=8, n_shared=2, random_state=0)
QUICK: dict[str, Any] = {"hidden": (8,), "max_epochs": 6, "batch_size": 64, "random_state": 0}


def quick(n_target: int = 2, n_shared: int = 2, **words: Any) -> clvm.ContrastiveVAE:
    return clvm.ContrastiveVAE(n_target, n_shared, **{**QUICK, **words})


def fitted(**words: Any) -> clvm.ContrastiveVAE:
    return quick(**words).fit(DATA.target, background=DATA.background)


MODEL = fitted()


def counts(n: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return rng.poisson(np.exp(rng.standard_normal((n, 1)) * rng.standard_normal(8) * 0.5)).astype(
        float
    )


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


@pytest.mark.parametrize("of", ["target", "background"])
def test_terms_of_a_row_are_those_of_the_paper(of: str) -> None:
    import jax

    rng = np.random.default_rng(0)
    design = Design(5, 2, 3, (7, 6), "relu", clvm.Gaussian(), gaps=True)
    p = design.first_parameters(rng)
    means = rng.standard_normal((2, 5)).astype(np.float32)
    ones = np.ones(5, dtype=np.float32)
    scaling = Scaling(means[0], means[1], 0 * ones, ones, 0 * ones)
    rows = rng.standard_normal((4, 5)).astype(np.float32)
    rows[0, 1] = np.nan
    key = jax.random.key(3)
    found = jax.jit(row_parts, static_argnums=(0, 5))(design, p, scaling, rows, key, of)
    seen = np.hstack([np.nan_to_num(rows), np.isnan(rows)])
    mean, log_sd = np.split(plain_network(p[f"{of} encoder"], seen), 2, axis=1)
    k = 2 if of == "target" else 0
    keys = jax.random.split(key)
    t, z = (
        np.asarray(Code(mean[:, at], log_sd[:, at]).draw(own))
        for at, own in zip((slice(0, k), slice(k, None)), keys, strict=True)
    )
    eta = means[0 if k else 1] + plain_network(p["shared decoder"], z)
    if k:
        eta = eta + plain_network(p["target decoder"], t)
    density = np.nansum(stats.norm.logpdf(rows, eta, 1.0), axis=1)
    np.testing.assert_allclose(found.reconstruction, density, rtol=1e-5)
    divergence = 0.5 * (mean**2 + np.exp(2 * log_sd) - 1 - 2 * log_sd)
    np.testing.assert_allclose(found.target_kl, divergence[:, :k].sum(axis=1), atol=1e-5)
    np.testing.assert_allclose(found.shared_kl, divergence[:, k:].sum(axis=1), atol=1e-5)


def test_batches_are_scaled_to_their_sets() -> None:
    import jax

    rng = np.random.default_rng(0)
    design = Design(4, 1, 2, (5,), "tanh", clvm.Gaussian(), gaps=False)
    p = design.first_parameters(rng)
    zero, one = np.zeros(4, dtype=np.float32), np.ones(4, dtype=np.float32)
    scaling = Scaling(zero, zero, zero, one, zero)
    x, y = (rng.standard_normal((n, 4)).astype(np.float32) for n in (60, 20))
    whole = parts(design, p, scaling, (x, y), (1.0, 1.0), jax.random.key(0))
    batches = [
        parts(
            design,
            p,
            scaling,
            (x[3 * i : 3 * i + 3], y[i : i + 1]),
            (20.0, 20.0),
            jax.random.key(i),
        )
        for i in range(20)
    ]
    for name in ("target_kl", "target_shared_kl", "background_shared_kl"):
        average = np.mean([float(getattr(part, name)) for part in batches])
        assert average == pytest.approx(float(getattr(whole, name)), rel=1e-4)


@pytest.mark.parametrize(("sizes", "batch"), [((300, 200), 64), ((1000, 10), 50), ((5, 4), 512)])
@pytest.mark.parametrize("multiple", [1, 2])
def test_a_smaller_set_is_not_weighed_more(
    sizes: tuple[int, int], batch: int, multiple: int
) -> None:
    plan = Plan(3, batch, 1e-3, 0.5, 1.0, None, 0.0)
    schedule = Schedule(plan, sizes, 10, multiple)
    assert all(rows % multiple == 0 and rows >= 1 for rows in schedule.batch_rows)
    for rows, n in zip(schedule.batch_rows, sizes, strict=True):
        assert abs(rows - min(batch, sum(sizes)) * n / sum(sizes)) <= multiple
        assert schedule.epoch_steps * rows >= n
    rates = schedule.rates(np.arange(schedule.steps))
    assert rates.max() <= 1e-3 * (1 + 1e-12)
    assert rates[-1] < rates.max() or schedule.steps < 3
    weights, floors = schedule.warmth(np.arange(schedule.steps))
    assert (np.diff(weights) >= 0).all()
    assert (np.diff(floors) <= 0).all()
    assert weights[-1] == 1.0
    assert floors[-1] == LEAST_LOG_NOISE


def test_history_names_the_parts_of_the_bound() -> None:
    h = MODEL.history_
    divergence = h["target_kl"] + h["target_shared_kl"] + h["background_shared_kl"]
    reconstruction = h["target_reconstruction"] + h["background_reconstruction"]
    np.testing.assert_allclose(h["bound"], reconstruction - divergence, rtol=1e-6)
    assert h["epoch"][-1] == MODEL.n_iter_ == 6
    assert (np.diff(h["epoch"]) > 0).all()
    assert h["target_kl_weight"][-1] == 1.0
    scale = 300 + 200 - 30 - 20  # rows that train
    assert h["bound"][-1] / scale == pytest.approx(MODEL.bound_ / 500, rel=0.1)


def own_law(model: clvm.ContrastiveVAE, of: str) -> Any:
    """The normal distribution of rows that linear decoders describe."""
    network = model.network_
    blocks = ["shared decoder", *(["target decoder"] if of == "target" else [])]
    L = np.vstack([network.parameters[name][0].weights for name in blocks]).T
    L = L * network.units.unit[:, None]
    t = np.zeros((1, 2)) if of == "target" else None
    offset = network.predictor(1, t, np.zeros((1, 2)), of)[0]
    noise = np.eye(len(offset)) * model.noise_variance_
    return stats.multivariate_normal(offset, L @ L.T + noise)


def test_linear_networks_reach_the_exact_likelihood() -> None:
    """With linear decoders the model is the linear one, whose likelihood is known."""
    data = clvm.datasets.make_contrastive(800, 600, n_features=10, n_shared=2, random_state=1)
    exact = clvm.ContrastiveLVM(2, 2).fit(data.target, background=data.background)
    words: dict[str, Any] = {"max_epochs": 300, "learning_rate": 0.02, "batch_size": 200}
    model = clvm.ContrastiveVAE(
        2, 2, hidden=(), random_state=0, validation_fraction=0.0, **words
    ).fit(data.target, background=data.background)
    assert model.bound_ < exact.bound_ + 3.0 * model.bound_error_
    assert model.bound_ > exact.bound_ - 0.01 * abs(exact.bound_)
    for rows, of in ((data.target, "target"), (data.background, "background")):
        own = own_law(model, of).logpdf(rows)
        few, many = (model.score_samples(rows, of=of, n_draws=k) for k in (1, 500))
        assert few.mean() < many.mean() + 0.05  # one draw is noisy
        assert many.mean() < own.mean() + 0.01
        assert many.mean() == pytest.approx(own.mean(), abs=0.05)


# Training


def same(a: Any, b: Any) -> None:
    np.testing.assert_array_equal(a.transform(DATA.target), b.transform(DATA.target))
    for name, values in a.history_.items():
        np.testing.assert_array_equal(values, b.history_[name], err_msg=name)


def test_the_same_seed_gives_the_same_model() -> None:
    same(MODEL, fitted())
    assert (fitted(random_state=1).transform(DATA.target) != MODEL.transform(DATA.target)).any()


class Stop:
    """Raises a keyboard interrupt in the middle of a round."""

    def __init__(self, after: int) -> None:
        self.after = after

    def __call__(self, real: Any) -> Any:
        def round_(training: Any) -> None:
            if training.state.n_rounds == self.after:
                self.after = -1
                raise KeyboardInterrupt
            real(training)

        return round_


@pytest.mark.parametrize("from_file", [False, True])
def test_interrupted_and_resumed_is_as_if_never_interrupted(
    *, from_file: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from contrastive_lvm.vae.training import Training

    words: dict[str, Any] = {"max_epochs": 30}
    whole = fitted(**words)
    monkeypatch.setattr(Training, "round", Stop(2)(Training.round))
    path = tmp_path / "state"
    with pytest.warns(UserWarning, match=r"interrupted after epoch \d+; the best state"):
        model = fitted(**words, checkpoint=path)
    assert not model.converged_
    assert np.isfinite(model.transform(DATA.target)).all()
    assert list(tmp_path.iterdir()) == [path]
    resume = path if from_file else model.state_
    again = quick(**words, random_state=9)  # the state brings its seed along
    same(whole, again.fit(DATA.target, background=DATA.background, resume=resume))
    assert again.converged_


def test_an_interrupt_before_anything_was_learned_is_passed_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from contrastive_lvm.vae.training import Training

    monkeypatch.setattr(Training, "round", Stop(0)(Training.round))
    with pytest.raises(KeyboardInterrupt):
        fitted()


def test_a_state_of_another_training_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "state"
    fitted(checkpoint=path)
    for resume in (path, MODEL.state_):
        with pytest.raises(ValueError, match="resume holds a training of"):
            quick(n_target=1).fit(DATA.target, background=DATA.background, resume=resume)
    with pytest.raises(FileNotFoundError, match="is not a file; give the checkpoint"):
        quick().fit(DATA.target, background=DATA.background, resume=tmp_path / "none")
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(ValueError, match="is not a whole training state"):
        quick().fit(DATA.target, background=DATA.background, resume=path)


@pytest.mark.parametrize("rate", [1e4, 1e30])
def test_divergence_cuts_the_rate_and_leaves_no_nan(rate: float) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = fitted(learning_rate=rate, clip=1e30)
    assert any("training diverged" in str(w.message) for w in caught)
    assert np.isfinite(model.transform(DATA.target)).all()
    assert np.isfinite(model.score_samples(DATA.target)).all()


def test_training_ends_when_held_out_rows_gain_nothing() -> None:
    model = fitted(max_epochs=2000, patience=3, kl_warm_up=0.0, learning_rate=0.01)
    assert model.n_iter_ < 2000
    assert model.converged_
    best = np.argmax(model.history_["validation_bound"])
    assert len(model.history_["epoch"]) - best == 4


def plain_discrepancy(a: np.ndarray, b: np.ndarray) -> float:
    """Over all pairs of different rows, one pair at a time."""

    def kernel(u: np.ndarray, v: np.ndarray) -> float:
        square = ((u - v) ** 2).sum() / (2.0 * len(u))
        return float(np.mean([np.exp(-square / width) for width in BANDWIDTHS]))

    def mean(u: np.ndarray, v: np.ndarray, *, same: bool) -> float:
        pairs = [(i, j) for i in range(len(u)) for j in range(len(v)) if not (same and i == j)]
        return float(np.mean([kernel(u[i], v[j]) for i, j in pairs]))

    return mean(a, a, same=True) + mean(b, b, same=True) - 2.0 * mean(a, b, same=False)


def test_the_discrepancy_is_that_of_all_pairs() -> None:
    import jax

    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((9, 3)), 1.0 + rng.standard_normal((7, 3))
    assert float(jax.jit(discrepancy)(a, b)) == pytest.approx(plain_discrepancy(a, b), abs=1e-5)


def test_the_dependence_is_that_of_all_quadruples() -> None:
    """Its definition: an average over four different rows."""
    import jax

    rng = np.random.default_rng(0)
    a = rng.standard_normal((6, 2))
    b = a[:, :1] + 0.1 * rng.standard_normal((6, 1))

    def kernel(rows: np.ndarray) -> np.ndarray:
        square = ((rows[:, None] - rows) ** 2).sum(axis=2) / (2.0 * rows.shape[1])
        return np.asarray(np.mean([np.exp(-square / width) for width in BANDWIDTHS], axis=0))

    K, L = kernel(a), kernel(b)
    terms = [
        K[i, j] * (L[i, j] + L[q, r] - 2.0 * L[i, q])
        for i, j, q, r in itertools.permutations(range(6), 4)
    ]
    assert float(jax.jit(dependence)(a, b)) == pytest.approx(np.mean(terms), abs=1e-5)


def test_separation_makes_shared_latents_alike() -> None:
    """A target of more dimensions than are its own: its shared latents stand apart, at a price."""
    rng = np.random.default_rng(0)
    S, W = rng.standard_normal((2, 8)), 2.0 * rng.standard_normal((3, 8))
    X = rng.standard_normal((300, 2)) @ S + np.abs(rng.standard_normal((300, 3))) @ W
    B = rng.standard_normal((200, 2)) @ S
    X, B = (rows + 0.3 * rng.standard_normal(rows.shape) for rows in (X, B))
    found = []
    for weight in (0.0, 100.0):
        model = quick(max_epochs=100, learning_rate=0.01, separation=weight).fit(X, background=B)
        shared = model.latents(X).shared, model.latents(B, of="background").shared
        found.append(plain_discrepancy(*(z[:100] for z in shared)))
    assert found[1] < 0.5 * found[0]


# Predictions


@pytest.mark.parametrize("name", OUTPUTS)
def test_every_output_predicts(name: str) -> None:
    X, B = OUTPUTS[name]
    X = X.copy()
    X[::7, 0] = np.nan
    model = quick(likelihood=output(name)).fit(X, background=B)
    latents = model.latents(X)
    assert latents.target is not None
    assert latents.target_sd is not None
    assert latents.cov.shape == (300, 4, 4)
    np.testing.assert_array_equal(latents.target, model.transform(X))
    np.testing.assert_allclose(
        np.sqrt(np.einsum("nkk->nk", latents.cov)),
        np.hstack([latents.target_sd, latents.shared_sd]),
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


def test_parts_add_up() -> None:
    both = MODEL.reconstruct(DATA.target)
    t, z = (MODEL.reconstruct(DATA.target, parts=(part,)) for part in ("target", "shared"))
    np.testing.assert_allclose(both, t + z - MODEL.mean_, atol=1e-4)
    np.testing.assert_allclose(t.mean(axis=0), MODEL.mean_, atol=1e-4)
    np.testing.assert_allclose(
        MODEL.denoise(DATA.target), DATA.target - (z - MODEL.mean_), atol=1e-4
    )
    y = MODEL.reconstruct(DATA.background, of="background")
    np.testing.assert_allclose(y.mean(axis=0), MODEL.background_mean_, atol=1e-4)


def test_data_in_other_units_gives_the_same_model() -> None:
    shift, unit = 1e6, 1e-3
    moved = quick().fit(shift + unit * DATA.target, background=shift + unit * DATA.background)
    np.testing.assert_allclose(
        moved.transform(shift + unit * DATA.target), MODEL.transform(DATA.target), atol=1e-3
    )
    change = 500 * 8 * np.log(unit)
    assert moved.bound_ == pytest.approx(MODEL.bound_ - change, rel=1e-4)
    assert moved.history_["bound"][-1] == pytest.approx(
        MODEL.history_["bound"][-1] - change * 450 / 500, rel=1e-4
    )


def test_missing_entries_are_not_seen() -> None:
    X = DATA.target.copy()
    gaps = np.random.default_rng(0).random(X.shape) < 0.2
    X[gaps] = np.nan
    model = quick(max_epochs=150, learning_rate=0.01).fit(X, background=DATA.background)
    filled, std = model.impute(X, return_std=True)
    error = (filled - DATA.target)[gaps]
    assert (error**2).mean() < 0.7 * DATA.target[gaps].var()
    assert 0.8 < (np.abs(error) < 1.645 * std[gaps]).mean() < 0.97
    complete = model.score_samples(DATA.target).mean()
    assert model.score_samples(X).mean() > complete  # fewer entries, each less than probable
    with_gaps = MODEL.transform(X)  # no gaps were seen in training
    assert np.isfinite(with_gaps).all()


def test_imputations_get_surer_with_what_is_seen() -> None:
    row = np.full((1, 8), np.nan)
    assert np.isfinite(MODEL.impute(row)).all()
    assert np.isfinite(MODEL.score_samples(row)).all()
    assert MODEL.score_samples(row)[0] == pytest.approx(0.0, abs=3.0)


def test_vae_is_a_model_of_one_set() -> None:
    model = clvm.VAE(2, **QUICK).fit(DATA.target)
    assert model.transform(DATA.target).shape == (300, 2)
    assert model.history_["background_reconstruction"].sum() == 0.0
    assert list(model.get_feature_names_out()) == ["vae0", "vae1"]
    assert model.sample(4, random_state=0).shape == (4, 8)
    np.testing.assert_allclose(
        model.reconstruct(DATA.target), model.inverse_transform(model.transform(DATA.target))
    )


# Rows from elsewhere


def test_memory_maps_and_sparse_rows_give_what_arrays_give(tmp_path: Path) -> None:
    X, B = counts(300, 0), counts(200, 1)
    words: dict[str, Any] = {"likelihood": "poisson"}
    expected = quick(**words).fit(X, background=B)
    maps = []
    for name, rows in (("x", X), ("b", B)):
        np.save(tmp_path / name, rows)
        maps.append(np.load(tmp_path / f"{name}.npy", mmap_mode="r"))
    for x, b in (maps, (sp.csr_matrix(X), sp.csr_array(B))):
        model = quick(**words).fit(x, background=b)
        np.testing.assert_array_equal(model.transform(x), expected.transform(X))
        assert model.bound_ == expected.bound_


def test_dask_rows_are_never_computed_whole() -> None:
    da = pytest.importorskip("dask.array", reason="the extra dask is not installed")
    X, B = (da.from_array(rows, chunks=(40, 3)) for rows in (DATA.target, DATA.background))
    words: dict[str, Any] = {"max_epochs": 40}
    model, memory = quick(**words).fit(X, background=B), fitted(**words)
    np.testing.assert_allclose(model.transform(X), model.transform(DATA.target), atol=1e-5)
    assert model.score(X) == pytest.approx(memory.score(DATA.target), abs=0.3)
    with pytest.raises(ValueError, match="has 7 features, but ContrastiveVAE was fitted with 8"):
        model.transform(X[:, :7])


def test_an_epoch_goes_through_all_rows() -> None:
    da = pytest.importorskip("dask.array", reason="the extra dask is not installed")
    X = np.arange(50.0)[:, None] * np.ones(3)
    for rows in (Rows(X), LazyRows(da.from_array(X, chunks=(7, 3)))):
        left = rows.without(np.array([3, 30]))
        assert left.n_rows == 48
        np.testing.assert_array_equal(left.take(np.array([5, 3, 47]))[:, 0], [6, 4, 49])
        pieces = list(left.epoch(np.random.default_rng(0), 4, 12))
        seen = np.concatenate(pieces)[:, 0]
        np.testing.assert_array_equal(np.sort(seen), np.delete(np.arange(50), [3, 30]))
        assert (seen != np.sort(seen)).any()
        np.testing.assert_array_equal(
            np.concatenate(list(left.blocks()))[:, 0], np.delete(np.arange(50), [3, 30])
        )


def test_moments_are_merged_exactly() -> None:
    rng = np.random.default_rng(0)
    X = 1e6 + rng.standard_normal((90, 4))
    X[rng.random(X.shape) < 0.3] = np.nan
    found = Moments(4)
    for part in np.split(X, [1, 2, 40]):
        found.add(part)
    np.testing.assert_allclose(found.mean, np.nanmean(X, axis=0))
    np.testing.assert_allclose(found.variance, np.nanvar(X, axis=0), rtol=1e-8)
    np.testing.assert_array_equal(found.count, (~np.isnan(X)).sum(axis=0))


TWO_DEVICES = """
import jax, numpy as np
import contrastive_lvm as clvm
data = clvm.datasets.make_contrastive(300, 200, n_features=8, n_shared=2, random_state=0)
words = dict(hidden=(8,), max_epochs=6, batch_size=64, random_state=0, separation=10.0)
found = []
for n in (1, 2):
    model = clvm.ContrastiveVAE(2, 2, n_devices=n, **words)
    found.append(model.fit(data.target, background=data.background).transform(data.target))
assert len(jax.devices()) == 2
print(np.abs(found[0] - found[1]).max())
"""


def test_two_devices_give_what_one_gives() -> None:
    import os

    flags = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=2"
    run = subprocess.run(
        [sys.executable, "-c", TWO_DEVICES],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "XLA_FLAGS": flags},
    )
    assert run.returncode == 0, run.stderr
    assert float(run.stdout) < 1e-3


# scikit-learn, bad input


def test_scikit_learn_habits() -> None:
    again = clone(MODEL)
    assert again.get_params() == MODEL.get_params()
    pipe = make_pipeline(StandardScaler(), clvm.VAE(2, **QUICK))
    frame = pipe.set_output(transform="pandas").fit_transform(DATA.target)
    assert list(frame.columns) == ["vae0", "vae1"]


@pytest.mark.parametrize(
    ("words", "match"),
    [
        ({"n_target": 0}, "n_target=0 must be a whole number of at least 1"),
        ({"n_shared": 2.5}, "n_shared=2.5 must be a whole number"),
        ({"hidden": 128}, "hidden=128 must list the widths"),
        ({"hidden": (128, 0)}, "hidden=0 must be a whole number of at least 1"),
        ({"activation": "swoosh"}, "activation='swoosh' is unknown"),
        ({"likelihood": "student_t"}, "is not an output of ContrastiveVAE"),
        ({"separation": -1}, "separation=-1 must be a number that is not negative"),
        ({"learning_rate": 0.0}, "learning_rate=0.0 must be a positive number"),
        ({"learning_rate": float("nan")}, "learning_rate=nan must be a positive number"),
        ({"batch_size": 0}, "batch_size=0 must be a whole number"),
        ({"max_epochs": 0}, "max_epochs=0 must be a whole number"),
        ({"kl_warm_up": 2}, "kl_warm_up=2 must be a share"),
        ({"clip": -1}, "clip=-1 must be a positive number"),
        ({"validation_fraction": 0.9}, "validation_fraction=0.9 must be a share"),
        ({"patience": 0}, "patience=0 must be a whole number"),
        ({"n_devices": 99}, "n_devices=99, but JAX has"),
    ],
)
def test_bad_parameters_are_refused_in_a_sentence(words: dict[str, Any], match: str) -> None:
    with pytest.raises((TypeError, ValueError), match=match) as caught:
        fitted(**words)
    assert "\n" not in str(caught.value)


def broken(value: float) -> np.ndarray:
    rows = DATA.target.copy()
    rows[0, 0] = value
    return rows


@pytest.mark.parametrize(
    ("X", "B", "words", "match"),
    [
        (DATA.target, None, {}, "background=None, but the shared latents"),
        (DATA.target, DATA.background[:, :7], {}, "background has 7 features, but X has 8"),
        (broken(np.inf), DATA.background, {}, "X contains infinity"),
        (DATA.target[:1], DATA.background, {}, "X has 1 sample"),
        (np.zeros((30, 8)), np.zeros((20, 8)), {}, "do not vary"),
        (DATA.target, DATA.background, {"likelihood": "bernoulli"}, "X holds the value"),
        (DATA.target, DATA.background, {"likelihood": "poisson"}, "X holds"),
        (np.full((30, 8), np.nan), DATA.background, {}, "X has no observed entry in columns"),
    ],
)
def test_bad_rows_are_refused_in_a_sentence(
    X: Any, B: Any, words: dict[str, Any], match: str
) -> None:
    with pytest.raises(ValueError, match=match):
        quick(**words).fit(X, background=B)


def test_bad_arguments_of_methods_are_refused() -> None:
    with pytest.raises(ValueError, match="of='both' is unknown"):
        MODEL.latents(DATA.target, of="both")
    with pytest.raises(ValueError, match="T has shape"):
        MODEL.inverse_transform([[0.0]])
    with pytest.raises(ValueError, match="n_draws=0"):
        MODEL.score_samples(DATA.target, n_draws=0)
    with pytest.raises(ValueError, match="parts='noise' is unknown"):
        MODEL.reconstruct(DATA.target, parts=("noise",))


# Leakage


class Known:
    """A model whose latents are given."""

    def __init__(self, *, leaks: bool) -> None:
        self.leaks = leaks

    def latents(self, X: np.ndarray, of: str = "target") -> clvm.Latents:
        t, z = X[:, :2], X[:, 2:]
        if of == "background":
            return clvm.Latents(None, None, z, z, z)
        return clvm.Latents(t, t, z + (t if self.leaks else 0.0), z, z)


@pytest.mark.parametrize("leaks", [False, True])
def test_leakage_is_seen(*, leaks: bool) -> None:
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, 400)
    X = rng.standard_normal((400, 4)) * 0.5
    X[:, :2] += 3.0 * np.array([[0, 0], [1, 0], [0, 1]])[labels]
    B = rng.standard_normal((300, 4)) * 0.5
    found = clvm.leakage(Known(leaks=leaks), X, B, labels=labels)
    assert found.label_accuracy_of_target is not None
    assert found.excess is not None
    assert found.label_accuracy_of_target > 0.95
    assert (found.set_auc > 0.8) == leaks
    assert (found.target_r2 > 0.5) == leaks
    assert (found.excess > 0.3) == leaks
    assert clvm.leakage(Known(leaks=leaks), X, B).label_accuracy is None


def test_leakage_refuses_what_it_cannot_judge() -> None:
    with pytest.raises(ValueError, match="labels have shape"):
        clvm.leakage(MODEL, DATA.target, DATA.background, labels=[1, 2])
    with pytest.raises(ValueError, match="n_neighbors=20 and 5 folds need"):
        clvm.leakage(MODEL, DATA.target[:30], DATA.background)
