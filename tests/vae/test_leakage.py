"""What shared latents give away: the measure and the penalty."""

import itertools
import math
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import contrastive_lvm as clvm
from tests.vae.autoencoders import DATA, counts, fitted, known, quick, same

pytest.importorskip("jax", reason="the extra jax is not installed")

from contrastive_lvm.estimators import contrastive_vae
from contrastive_lvm.estimators.leakage import Leakage, separation_warnings
from contrastive_lvm.vae.architecture import DiagonalGaussian
from contrastive_lvm.vae.fit_networks import NetworkFit
from contrastive_lvm.vae.objective import (
    N_WIDTHS,
    WIDEST,
    dependence,
    discrepancy,
    kernel,
    leak,
)
from contrastive_lvm.vae.training import Training
from contrastive_lvm.vae.training_data import _n_held_out

WIDTHS = [WIDEST / 2**i for i in range(N_WIDTHS)]


def plain_discrepancy(a: np.ndarray, b: np.ndarray) -> float:
    """Over all pairs of different rows, one pair at a time."""

    def kernel(u: np.ndarray, v: np.ndarray) -> float:
        square = ((u - v) ** 2).sum() / (2.0 * len(u))
        return float(np.mean([np.exp(-square / width) for width in WIDTHS]))

    def mean(u: np.ndarray, v: np.ndarray, *, same: bool) -> float:
        pairs = [(i, j) for i in range(len(u)) for j in range(len(v)) if not (same and i == j)]
        return float(np.mean([kernel(u[i], v[j]) for i, j in pairs]))

    return mean(a, a, same=True) + mean(b, b, same=True) - 2.0 * mean(a, b, same=False)


def test_the_discrepancy_is_that_of_all_pairs() -> None:
    import jax

    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((9, 3)), 1.0 + rng.standard_normal((7, 3))
    u, v = jax.numpy.asarray(a), jax.numpy.asarray(b)
    found = jax.jit(discrepancy)(kernel(u, u), kernel(v, v), kernel(u, v))
    assert float(found) == pytest.approx(plain_discrepancy(a, b), abs=1e-5)


def test_the_dependence_is_that_of_all_quadruples() -> None:
    """Its definition: an average over four different rows."""
    import jax

    rng = np.random.default_rng(0)
    a = rng.standard_normal((6, 2))
    b = a[:, :1] + 0.1 * rng.standard_normal((6, 1))

    def plain_kernel(rows: np.ndarray) -> np.ndarray:
        square = ((rows[:, None] - rows) ** 2).sum(axis=2) / (2.0 * rows.shape[1])
        return np.asarray(np.mean([np.exp(-square / width) for width in WIDTHS], axis=0))

    K, L = plain_kernel(a), plain_kernel(b)
    terms = [
        K[i, j] * (L[i, j] + L[q, r] - 2.0 * L[i, q])
        for i, j, q, r in itertools.permutations(range(6), 4)
    ]
    u, v = jax.numpy.asarray(a), jax.numpy.asarray(b)
    found = jax.jit(dependence)(kernel(u, u), kernel(v, v))
    assert float(found) == pytest.approx(np.mean(terms), abs=1e-5)


def test_collapsed_latents_leak_as_much() -> None:
    """Shrinking the shared latents does not meet the penalty, and neither does a larger batch."""
    import jax.numpy as jnp

    rng = np.random.default_rng(0)
    t = jnp.asarray(rng.standard_normal((1200, 2)))
    noise = jnp.asarray(rng.standard_normal((2, 1200, 3)))

    def gaussian(mean: Any, std: float = 0.5) -> DiagonalGaussian:
        return DiagonalGaussian(mean, jnp.full(mean.shape, np.log(std)))

    z, other = 1.0 + noise[0], noise[1]
    whole = float(leak(t, gaussian(z), gaussian(other)))
    assert whole > 0.05
    assert float(leak(t, gaussian(0.3 * z), gaussian(0.3 * other))) > 0.9 * whole
    batches = np.split(np.arange(1200), 20)
    parts = [float(leak(t[at], gaussian(z[at]), gaussian(other[at]))) for at in batches]
    assert np.mean(parts) == pytest.approx(whole, rel=0.1)
    alike = [float(leak(t[at], gaussian(noise[0][at]), gaussian(other[at]))) for at in batches]
    assert abs(np.mean(alike)) < 0.01
    finer = leak(t, gaussian(noise[0], 0.5), gaussian(other, 0.5 * math.e))
    coarser = leak(t, gaussian(noise[0], 0.5 * math.e), gaussian(other, 0.5))
    assert float(finer) == pytest.approx(1.0, abs=0.05)  # one unit of ln std
    assert abs(float(coarser)) < 0.05


@pytest.mark.slow
def test_separation_makes_shared_latents_alike() -> None:
    """A target of more dimensions than are its own: its shared latents stand apart, at a price."""
    rng = np.random.default_rng(0)
    S, W = rng.standard_normal((2, 8)), 2.0 * rng.standard_normal((3, 8))
    X = rng.standard_normal((300, 2)) @ S + np.abs(rng.standard_normal((300, 3))) @ W
    B = rng.standard_normal((200, 2)) @ S
    X, B = (rows + 0.3 * rng.standard_normal(rows.shape) for rows in (X, B))
    found = []
    for weight in (0.0, 4.0):
        model = quick(max_epochs=100, learning_rate=0.01, separation=weight).fit(X, background=B)
        shared = model.latents(X).shared, model.latents(B, of="background").shared
        found.append(plain_discrepancy(*(z[:100] for z in shared)))
    assert found[1] < 0.5 * found[0]


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


@pytest.mark.slow
def test_leakage_refuses_what_it_cannot_judge() -> None:
    with pytest.raises(ValueError, match="labels have shape"):
        clvm.leakage(known(), DATA.target, DATA.background, labels=[1, 2])
    with pytest.raises(ValueError, match="n_neighbors=20 and 5 folds need"):
        clvm.leakage(known(), DATA.target[:30], DATA.background)


def two_sets(*, contrast: bool) -> tuple[np.ndarray, np.ndarray]:
    """Rows of three dimensions; the target has a fourth, if there is a contrast."""
    rng = np.random.default_rng(1)
    S, W = rng.standard_normal((3, 8)), 1.5 * rng.standard_normal((1, 8))
    X, B = (rng.standard_normal((n, 3)) @ S for n in (1200, 1000))
    if contrast:
        X += rng.standard_normal((1200, 1)) @ W
    return tuple(rows + 0.5 * rng.standard_normal(rows.shape) for rows in (X, B))  # type: ignore[return-value]


JUDGED: dict[str, Any] = {"max_epochs": 20, "batch_size": 128, "learning_rate": 0.01}


def test_held_out_rows_say_whether_there_is_a_contrast(tmp_path: Path) -> None:
    X, B = two_sets(contrast=True)
    model = quick(**JUDGED).fit(X, background=B)
    assert model.target_gain_ > 3.0 * model.target_gain_error_ > 0
    assert model.leakage_ is not None
    assert model.leakage_.set_auc < 0.7
    assert model.n_held_out_ == 100
    model.save(tmp_path / "model")
    saved = clvm.load_model(tmp_path / "model")
    assert saved.leakage_ == model.leakage_
    assert saved.target_gain_ == model.target_gain_

    X, B = two_sets(contrast=False)
    with pytest.warns(
        UserWarning, match=r"no contrast was found in two trainings; use more .* than 6, and ask"
    ):
        model = quick(**JUDGED).fit(X, background=B)
    assert abs(model.target_gain_) < 2.0 * model.target_gain_error_


def no_contrast(fit: NetworkFit) -> bool:
    """Send every fit of two shared dimensions into a second training."""
    return fit.networks.architecture.n_shared == 2


def test_a_second_training_has_more_shared_dimensions_and_no_warm_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contrastive_vae, "describes_both_sets", no_contrast)
    model = fitted()
    assert (model.n_shared, model.n_shared_) == (2, 6)
    assert fitted(kl_warm_up=0.0).n_shared_ == 2
    assert (model.history_["target_kl_weight"] == 1.0).all()
    model.save(tmp_path / "model")
    same(clvm.load_model(tmp_path / "model"), model)
    model.kl_warm_up = 0.0
    with pytest.raises(ValueError, match="other dimensions than its parameters say"):
        model.save(tmp_path / "model")


@pytest.mark.parametrize(
    ("warm_up", "likelihood"),
    [(0.5, "gaussian"), (0.0, "gaussian"), pytest.param(0.0, "poisson", marks=pytest.mark.slow)],
)
def test_both_trainings_can_be_resumed(
    warm_up: float, likelihood: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contrastive_vae, "describes_both_sets", no_contrast)
    X, B = (DATA.target, DATA.background)
    if likelihood == "poisson":
        X, B = counts(300, 0), counts(200, 1)
    words: dict[str, Any] = {"max_epochs": 30, "likelihood": likelihood}
    whole = quick(**words).fit(X, background=B)
    with monkeypatch.context() as patch:
        real, path = Training.round, tmp_path / "state"

        def round_(training: Training) -> None:
            if training.state.n_rounds == 2 and training.plan.kl_warm_up == warm_up:
                raise KeyboardInterrupt
            real(training)

        patch.setattr(Training, "round", round_)
        with pytest.warns(UserWarning, match="interrupted after epoch"):
            model = quick(**words, checkpoint=path).fit(X, background=B)
    assert model.n_shared_ == (2 if warm_up else 6)  # the second training does not begin
    for resume in (path, model.state_):
        again = quick(**words | {"random_state": 9}).fit(X, background=B, resume=resume)
        same(whole, again, X)


@pytest.mark.slow
@pytest.mark.parametrize("spectrum", [None, 0.0, 2.0])
def test_textures_alone_have_no_contrast(spectrum: float | None) -> None:
    rows = clvm.datasets.make_digits_on_texture(10, 4000, spectrum=spectrum, random_state=3)
    X, B = (half.astype(np.float32) for half in np.split(rows.background, 2))
    model = clvm.ContrastiveVAE(max_epochs=60, refine_steps=0, random_state=3)
    with pytest.warns(UserWarning, match="no contrast was found"):
        model.fit(X, background=B)


def test_shared_latents_that_carry_the_target_are_reported() -> None:
    model = SimpleNamespace(
        leakage_=Leakage(0.97, 0.3, None, None, None),
        n_held_out_=300,
        separation=0.0,
        n_target_=2,
        target_gain_=5.0,
        target_gain_error_=1.0,
        background_gain_=-1.0,
        n_shared=8,
        n_shared_=8,
    )
    (said,) = separation_warnings(model)
    assert "curve of 0.97" in said
    assert "30% of the target latents' variance" in said
    assert "larger separation than 0" in said
    model.leakage_ = Leakage(0.6, 0.02, None, None, None)
    assert separation_warnings(model) == []
    model.background_gain_ = 20.0
    (said,) = separation_warnings(model)
    assert "25 nats to a held-out row of the target and 20 to one of the background" in said
    assert "more shared dimensions than 8" in said
    model.background_gain_ = 1.2  # of 6.2, less than a fifth
    assert separation_warnings(model) == []
    model.leakage_ = Leakage(0.97, 0.3, None, None, None)
    model.n_held_out_ = 50  # too few to tell
    assert separation_warnings(model) == []


@pytest.mark.parametrize(("n_rows", "held_out"), [(40, 8), (300, 60), (700, 100), (3000, 300)])
def test_enough_rows_are_held_out_to_judge_a_fit(n_rows: int, held_out: int) -> None:
    assert _n_held_out(0.1, n_rows) == held_out
    assert _n_held_out(0.0, n_rows) == 0


def test_a_fit_counts_the_rows_that_it_held_out() -> None:
    rng = np.random.default_rng(0)
    X, B = (rng.standard_normal((n, 4)) for n in (3000, 700))
    model = quick(max_epochs=1, kl_warm_up=0.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # there is no contrast
        model.fit(X, background=B)
    assert model.n_held_out_ == 100


@pytest.mark.slow
def test_types_of_cells_are_not_taken_for_the_response() -> None:
    """Most variance is that of types, which both sets have; two latents could describe them all."""
    rng = np.random.default_rng(3)
    types, base = 1.5 * rng.standard_normal((5, 200)), rng.normal(-1.0, 1.3, 200)
    types *= rng.random((5, 200)) < 0.25
    response = np.where(np.arange(200) < 30, rng.uniform(0.8, 2.5, 200), 0.0)
    base[:15] -= 2.0  # silent without a response

    def cells(n: int, share: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        kinds, responds = rng.choice(5, n), rng.random(n) < share
        log_rates = base + types[kinds] + responds[:, None] * response
        rates = np.exp(log_rates + 0.3 * rng.standard_normal((n, 1)))
        return rng.poisson(rates * rng.gamma(3.0, 1 / 3.0, rates.shape)), kinds, responds

    (X, kinds, responds), (B, _, _) = cells(900, 0.66), cells(500, 0.0)
    words: dict[str, Any] = {"hidden_layer_sizes": (64, 64), "max_epochs": 400, "refine_steps": 0}
    model = clvm.ContrastiveVAE(2, 10, likelihood="negative_binomial", random_state=0, **words)
    with warnings.catch_warnings():  # shared latents separate the sets, but not by the response
        warnings.simplefilter("ignore")
        model.fit(X, background=B)
    assert model.n_shared_ == 30  # in the second training
    assert model.background_gain_ < 0.1 * model.target_gain_
    of_kinds = clvm.leakage(model, X, B, labels=kinds)
    of_response = clvm.leakage(model, X, B, labels=responds)
    assert of_kinds.label_accuracy is not None
    assert of_response.label_accuracy_of_target is not None
    assert of_kinds.label_accuracy > 0.95
    assert of_response.label_accuracy_of_target > 0.95
    assert of_response.excess is not None
    assert of_response.excess < 0.1


def test_without_held_out_rows_nothing_is_judged() -> None:
    model = quick(validation_fraction=0.0).fit(DATA.target, background=DATA.background)
    assert model.leakage_ is None
    assert np.isnan(model.target_gain_)
