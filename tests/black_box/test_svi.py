"""SVI against the closed forms, on the same model, started away from the answer."""

import gc
import logging
import subprocess
import sys
import weakref
from typing import Any

import numpy as np
import pytest
from scipy.linalg import subspace_angles

import contrastive_lvm as clvm
from contrastive_lvm._jax import MOST_PROGRAMS, MOST_TRACED, cached_program, double_precision
from contrastive_lvm.black_box.start import StartingPoint, starting_point
from contrastive_lvm.black_box.svi.guide import SviLayout
from contrastive_lvm.black_box.svi.svi_loop import CompiledSvi, SviLoop
from contrastive_lvm.black_box.svi.svi_posterior import guide_draws
from contrastive_lvm.black_box.svi.svi_rows import SviRows
from contrastive_lvm.posterior import Posterior
from contrastive_lvm.progress import progress
from tests.oracles import Array

jax = pytest.importorskip("jax", reason="the extra jax is not installed")
pytest.importorskip("numpyro", reason="the extra jax is not installed")

D, K, T, N = 8, 2, 1, 300
LIKELIHOODS: dict[str, Any] = {
    "isotropic": clvm.Gaussian(),
    "feature": clvm.Gaussian("feature"),
    "element": clvm.StudentT(),
    "sample": clvm.StudentT(per="sample", noise="feature"),
    "learned": clvm.StudentT("learn", per="sample"),
}
PRIORS: dict[str, Any] = {
    "flat": clvm.Flat(),
    "ard": clvm.ARD(),
    "lasso": clvm.GroupLasso(2.0),
    "horseshoe": clvm.Horseshoe(),
}
Problem = tuple[clvm.Model, list[Array]]
QUICK = [  # a few; `make slow` has the whole table
    ("isotropic", "flat", "flat"),
    pytest.param("feature", "lasso", "lasso", marks=pytest.mark.slow),
    pytest.param("sample", "horseshoe", "ard", marks=pytest.mark.slow),
]


def problem() -> tuple[Array, Array]:
    rng = np.random.default_rng(1)
    S, W = rng.standard_normal((D, K)), rng.standard_normal((D, T))
    X = rng.standard_normal((N, K)) @ S.T + rng.standard_normal((N, T)) @ W.T + 1.0
    B = rng.standard_normal((N, K)) @ S.T
    # Degrees of freedom are learned from tails that are there.
    noise = 0.5 * rng.standard_t(6, (2, N, D))
    return X + noise[0], B + noise[1]


def closed_form(model: clvm.Model, X: Array, B: Array) -> Posterior | None:
    for engine in (clvm.VariationalBayes(), clvm.EM()):
        if engine._unsupported_reason(model) is None:
            return engine._run(model, engine._prepare(model, [X, B]))
    return None


def rough_start(model: clvm.Model, X: Array, B: Array) -> StartingPoint:
    """Moments, turned at random, with twice the noise."""
    start = starting_point(model, [X, B], [np.zeros(N)] * 2)
    turn = np.random.default_rng(0).standard_normal(start.L.shape) * 0.1
    noisy = start.nuisance._replace(noise=2.0 * start.nuisance.noise)
    return start._replace(L=start.L + turn * start.unit[:, None], nuisance=noisy)


def angle(A: Array, B: Array) -> float:
    return float(np.degrees(subspace_angles(A, B).max()))


def check_agreement(likelihood: str, on_s: str, on_w: str) -> None:
    X, B = problem()
    model = clvm.contrastive_model(T, K, LIKELIHOODS[likelihood], PRIORS[on_s], PRIORS[on_w])
    exact = closed_form(model, X, B)
    if exact is None:
        pytest.skip("no closed form has both a lasso's zeros and a posterior")
    start = rough_start(model, X, B)
    assert angle(start.L[:, K:], exact.loadings["target"]) > 3.0
    fit = clvm.SVI()._run(model, [X, B], start=start)
    assert fit.converged
    assert angle(fit.loadings["shared"], exact.loadings["shared"]) < 3.0
    assert angle(fit.loadings["target"], exact.loadings["target"]) < 3.0
    # Log-normal scales instead of gammas move the degrees of freedom, and with them the noise.
    rtol = 0.1 if likelihood == "learned" else 0.05
    np.testing.assert_allclose(fit.noise_variance, exact.noise_variance, rtol=rtol)
    # The same augmented model and factorisation, and a family within the closed form's.
    assert fit.lower_bound < exact.lower_bound + 3.0 * fit.lower_bound_error
    if likelihood in ("isotropic", "feature") and {on_s, on_w} <= {"flat", "lasso"}:
        assert fit.lower_bound > exact.lower_bound - 0.5  # here the families are the same


@pytest.mark.parametrize(("likelihood", "on_s", "on_w"), QUICK)
def test_agrees_with_the_closed_form(likelihood: str, on_s: str, on_w: str) -> None:
    check_agreement(likelihood, on_s, on_w)


@pytest.mark.slow
@pytest.mark.parametrize("on_s", PRIORS)
@pytest.mark.parametrize("on_w", PRIORS)
@pytest.mark.parametrize("likelihood", LIKELIHOODS)
def test_agrees_with_the_closed_form_everywhere(likelihood: str, on_s: str, on_w: str) -> None:
    check_agreement(likelihood, on_s, on_w)


@pytest.fixture(scope="module")
def small() -> Problem:
    X, B = problem()
    return clvm.contrastive_model(T, K, target_prior=clvm.ARD()), [X[:80], B[:60]]


@pytest.fixture(scope="module")
def fit(small: Problem) -> Posterior:
    return clvm.SVI()._run(*small)


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param({"family": "low_rank", "rank": 3}, marks=pytest.mark.slow),
        pytest.param({"batch_size": 40}, marks=pytest.mark.slow),
        pytest.param({"n_particles": 4}, marks=pytest.mark.slow),
        pytest.param({"augmented": False}, marks=pytest.mark.slow),
        {"learning_rate": lambda step: 0.02 * 0.999**step},
    ],
    ids=["low rank", "minibatch", "particles", "collapsed", "schedule"],
)
def test_families_and_batches_find_the_same(
    small: Problem, fit: Posterior, settings: dict[str, Any]
) -> None:
    other = clvm.SVI(**settings)._run(*small)
    assert other.converged
    assert angle(other.loadings["target"], fit.loadings["target"]) < 5.0
    np.testing.assert_allclose(other.noise_variance, fit.noise_variance, rtol=0.06)
    error = np.hypot(other.lower_bound_error, fit.lower_bound_error)
    assert abs(other.lower_bound - fit.lower_bound) < 3.0 + 4.0 * error


@pytest.mark.slow
def test_mean_field_of_the_paper_turns_target_loadings_away(small: Problem, fit: Posterior) -> None:
    """Why the default family is not the paper's."""
    plain = clvm.SVI(family="mean_field")._run(*small)
    assert plain.lower_bound < fit.lower_bound - 3.0
    assert angle(plain.loadings["target"], fit.loadings["target"]) > 5.0


def test_the_scaled_bound_of_minibatches_is_unbiased(
    small: Problem,
) -> None:
    model, sets = small
    sizes = [np.zeros(len(X)) for X in sets]
    start = starting_point(model, sets, sizes)
    means = []
    for batch_size in (None, 14):
        rng = np.random.default_rng(0)
        with double_precision():
            rows = SviRows(sets, sizes, batch_size, rng)
            layout = SviLayout(start.model, D, "structured", 1, augmented=True, n_particles=1)
            loop = SviLoop(layout, rows, start, rng, max_iter=1, tol=1e-4, learning_rate=0.02)
            means.append(loop.finish())
    (whole, first), (parts, second) = means
    assert abs(whole - parts) < 4.0 * np.hypot(first, second)


def test_same_seed_same_numbers(small: Problem, fit: Posterior) -> None:
    again = clvm.SVI()._run(*small)
    np.testing.assert_array_equal(again.loadings["target"], fit.loadings["target"])
    assert again.lower_bound == fit.lower_bound
    other = clvm.SVI()._run(*small, seed=1)
    assert other.lower_bound != fit.lower_bound


def test_trace_climbs_and_ends_at_the_bound(fit: Posterior) -> None:
    assert fit.lower_bounds[-2] > fit.lower_bounds[0]
    assert fit.lower_bounds[-1] == fit.lower_bound
    assert fit.lower_bound_error > 0


@pytest.mark.slow
def test_resume_goes_on(small: Problem, fit: Posterior) -> None:
    model, (X, B) = small
    begun = clvm.SVI(max_iter=150)._run(model, [X, B])
    assert not begun.converged
    assert begun.n_iter == 150
    ended = clvm.SVI(start=begun.state)._run(model, [X, B])
    assert ended.converged
    assert ended.n_iter > 150
    np.testing.assert_array_equal(ended.lower_bounds[:2], begun.lower_bounds[:2])
    assert ended.lower_bound > fit.lower_bound - 1.0
    with pytest.raises(ValueError, match=r"start= is the state of another fit"):
        clvm.SVI(start=begun.state)._run(model, [X[:50], B])


def test_interrupt_keeps_the_best_state(small: Problem, monkeypatch: pytest.MonkeyPatch) -> None:
    window, calls = SviLoop.window, []

    def interrupted(self: SviLoop) -> int:
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return window(self)

    monkeypatch.setattr(SviLoop, "window", interrupted)
    with pytest.warns(UserWarning, match="interrupted after 200 steps; the best state"):
        kept = clvm.SVI()._run(*small)
    assert not kept.converged
    assert kept.n_iter == 200
    assert np.isfinite(kept.lower_bound)
    assert kept.state is not None
    assert kept.state.step == 200


@pytest.mark.slow
def test_group_lasso_has_exact_zeros() -> None:
    rng = np.random.default_rng(0)
    W = np.zeros((10, 1))
    W[:3, 0] = 1.5
    S = rng.standard_normal((10, 2))
    X = rng.standard_normal((200, 2)) @ S.T + rng.standard_normal((200, 1)) @ W.T
    B = rng.standard_normal((200, 2)) @ S.T
    X, B = (Y + 0.5 * rng.standard_normal(Y.shape) for Y in (X, B))
    model = clvm.ContrastiveLVM(1, 2, target_prior=clvm.GroupLasso(40.0), random_state=0)
    exact = model.fit(X, background=B)
    fit = clvm.ContrastiveLVM(
        1, 2, target_prior=clvm.GroupLasso(40.0), inference="svi", random_state=0
    ).fit(X, background=B)
    clear = exact.feature_relevance_ > 1e-3 * exact.feature_relevance_.max()
    np.testing.assert_array_equal(fit.selected_features_, clear)
    assert 3 <= clear.sum() <= 6
    assert not fit.target_components_[:, ~clear].any()


def test_jax_is_left_as_it_was(fit: Posterior) -> None:
    assert not jax.config.jax_enable_x64
    assert jax.numpy.zeros(1).dtype == np.float32


@pytest.mark.slow
def test_float32_rows_are_fitted_in_single_precision(small: Problem, fit: Posterior) -> None:
    model, sets = small
    single = clvm.SVI()._run(model, [X.astype(np.float32) for X in sets])
    assert single.state is not None
    assert single.state.parameters.gaussians["latents of target"].loc.dtype == np.float32
    assert single.state.parameters.points["log noise"].dtype == np.float32
    assert angle(single.loadings["target"], fit.loadings["target"]) < 5.0


@pytest.fixture
def blocked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing may be compiled."""

    def refuse(*args: Any, **kwargs: Any) -> None:
        raise AssertionError("compiled before the input was checked")

    monkeypatch.setattr("contrastive_lvm.black_box.svi.svi_loop.cached_program", refuse)


@pytest.mark.parametrize(
    ("likelihood", "value", "sentence"),
    [
        ("poisson", -1.0, r"^X contains the value -1, which is negative, where counts"),
        ("negative_binomial", 0.5, r"^X contains the value 0.5, which is not a whole number"),
        ("bernoulli", 2.0, r"^X contains the value 2 where 0 or 1 is expected"),
    ],
)
@pytest.mark.usefixtures("blocked")
def test_wrong_values_are_refused_before_compilation(
    likelihood: str, value: float, sentence: str
) -> None:
    rng = np.random.default_rng(0)
    X, B = rng.integers(0, 2, (2, 30, 5)).astype(float)
    X[3, 2] = value
    model = clvm.ContrastiveLVM(1, 2, likelihood=likelihood)
    with pytest.raises(ValueError, match=sentence):
        model.fit(X, background=B)
    with pytest.raises(ValueError, match=sentence.replace("^X", "^background")):
        model.fit(B, background=X)


@pytest.mark.usefixtures("blocked")
def test_a_mixed_likelihood_must_have_every_feature_once() -> None:
    X, B = np.random.default_rng(0).integers(0, 2, (2, 30, 4)).astype(float)
    for kinds, sentence in (
        ({"gaussian": [0, 1], "bernoulli": [2]}, "leaves out 1 of 4 features, the first is 3"),
        ({"gaussian": [0, 1], "bernoulli": [1, 2, 3]}, "has the feature 1 twice"),
        ({"gaussian": [0, 1, 9], "bernoulli": [2, 3]}, "names the feature 9"),
    ):
        with pytest.raises(ValueError, match=sentence):
            clvm.ContrastiveLVM(1, 1, likelihood=clvm.Mixed(kinds)).fit(X, background=B)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"max_iter": 0}, "max_iter=0 must be an integer"),
        (
            {"batch_size": 2.5},
            "batch_size=2.5 must be an integer of at least 1, 'auto' or None",
        ),
        ({"tol": -1.0}, "tol=-1.0 must be a positive number"),
        ({"learning_rate": "fast"}, "learning_rate='fast' must be a positive number"),
        ({"family": "gauss"}, "family='gauss' is unknown; use one of 'structured'"),
    ],
)
def test_bad_settings_are_refused(settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        clvm.SVI(**settings)


def test_steps_that_are_too_long_are_taken_back_or_refused(small: Problem, fit: Posterior) -> None:
    found = clvm.SVI(learning_rate=2.0, max_iter=1500)._run(*small)
    assert np.isfinite(found.lower_bound)
    assert found.lower_bound <= fit.lower_bound + 4.0 * fit.lower_bound_error + 1.0
    with pytest.raises(ValueError, match=r"bound is not finite at learning_rate=1000000\.0; lower"):
        clvm.SVI(learning_rate=1e6)._run(*small)


def test_progress_is_a_bar_on_a_terminal_and_lines_in_a_log(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    logger = logging.getLogger("contrastive_lvm.test")
    with progress("SVI", 100, logger) as advance:
        advance(50, "silent")
    logger.setLevel(logging.INFO)
    handler = logging.StreamHandler(sys.stderr)
    logger.addHandler(handler)
    with progress("SVI", 100, logger) as advance:
        for _ in range(10):
            advance(10, "bound -1")
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 10
    assert lines[-1] == "SVI: step 100, bound -1"
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with progress("SVI", 100, logger) as advance:
        advance(100, "bound -1")
    logger.removeHandler(handler)


def test_without_jax_one_sentence_names_the_extra(
    small: Problem, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "numpyro", None)
    for engine in (clvm.SVI(), clvm.NUTS()):
        with pytest.raises(ImportError, match=r"pip install 'contrastive-lvm\[jax\]'\.$"):
            engine._run(*small)


def test_jax_is_not_imported_by_closed_forms() -> None:
    code = (
        "import sys, numpy as np, contrastive_lvm as clvm\n"
        "X, B = np.random.default_rng(0).standard_normal((2, 30, 4))\n"
        "clvm.ContrastiveLVM(1, 1, likelihood='student_t').fit(X, background=B).transform(X)\n"
        "print('jax' in sys.modules)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "False"


def test_draws_of_svi_go_to_arviz(small: Problem, fit: Posterior) -> None:
    pytest.importorskip("arviz", reason="the extra arviz is not installed")
    assert fit.state is not None
    draws = guide_draws(fit.state, 400, seed=0)
    assert draws.to_arviz().posterior["target latents of target"].shape == (1, 400, 80, 1)
    drawn = draws.values["target loadings"][0]
    np.testing.assert_allclose(drawn.mean(axis=0), fit.loadings["target"], atol=0.05)
    stds = fit.loading_stds()
    target_std = stds["target"]
    assert stds["shared"] is None  # flat: points
    assert target_std is not None
    np.testing.assert_allclose(drawn.std(axis=0), target_std, rtol=0.2)


def test_programs_for_other_shapes_are_freed() -> None:
    """What is compiled for the shapes of one fit is not kept for ever."""
    model, shapes = clvm.contrastive_model(1, 1), range(6, 11)
    layout = SviLayout(model, 3, "structured", 1, augmented=True, n_particles=1)
    programs = [weakref.ref(cached_program(CompiledSvi, layout, n).guide) for n in shapes]
    assert cached_program(CompiledSvi, layout, shapes[-1]).guide is programs[-1]()
    gc.collect()
    alive = [program() is not None for program in programs]
    assert alive == [False, *[True] * MOST_PROGRAMS]


@pytest.mark.parametrize("layout", [("hashable",), ["not hashable"]])
def test_what_jax_keeps_of_programs_is_emptied_now_and_then(
    layout: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    emptied: list[int] = []
    monkeypatch.setattr(jax, "clear_caches", lambda: emptied.append(len(made)))
    made: list[object] = []

    def make(layout: object) -> object:
        made.append(layout)
        return object()

    for shape in range(3 * MOST_TRACED):
        cached_program(make, layout, shape)
    assert len(made) == 3 * MOST_TRACED
    assert len(emptied) == 3
    assert set(np.diff(emptied)) == {MOST_TRACED}
