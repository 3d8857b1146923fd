"""NUTS: exact densities, coordinates and gauges, and posteriors against known answers."""

import sys
import warnings
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest
from scipy.linalg import subspace_angles
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

import contrastive_lvm as clvm
from contrastive_lvm import prediction
from contrastive_lvm.draws import Draws, diagnosed, signed_permutations, turns
from contrastive_lvm.estimators.prediction_model import (
    AVERAGE,
    SAMPLES,
    PredictionModel,
    contrastive_predictions,
)
from contrastive_lvm.linalg.gauge import canonical, canonical_rotation
from contrastive_lvm.posterior import Posterior
from tests.black_box.user_defined import Silent
from tests.oracles import (
    Array,
    Point,
    conditional,
    log_likelihood,
    planted,
    sets_with_missing,
    sides,
)

jax = pytest.importorskip("jax", reason="the extra jax is not installed")
numpyro = pytest.importorskip("numpyro", reason="the extra jax is not installed")

from contrastive_lvm import _jax  # noqa: E402
from contrastive_lvm.black_box.density import complete_rows  # noqa: E402
from contrastive_lvm.black_box.nuts.nuts import NUTS, log_moments  # noqa: E402
from contrastive_lvm.black_box.nuts.nuts_chains import CompiledNuts, NutsLayout  # noqa: E402
from contrastive_lvm.black_box.nuts.nuts_parametrization import coordinates_at, values_at  # noqa: E402
from contrastive_lvm.black_box.sites import prior_states, unobserved_sites  # noqa: E402
from contrastive_lvm.black_box.start import starting_point  # noqa: E402

PRIORS: dict[str, Any] = {
    "flat": clvm.Flat(),
    "ard": clvm.ARD(2.0, 1.0),
    "lasso": clvm.GroupLasso(1.5),
    "horseshoe": clvm.Horseshoe(0.7, groups=[0, 1, 1, 2]),
}
SHORT = NUTS(n_warmup=150, n_draws=150, n_chains=2)


def angle(found: Array, true: Array) -> float:
    """The largest between two spans, in degrees."""
    return float(np.rad2deg(subspace_angles(found, true).max()))


# --- densities ----------------------------------------------------------------------------------


@pytest.mark.parametrize("noise", ["isotropic", "feature"])
@pytest.mark.parametrize("where", ["complete", "both"])
def test_the_collapsed_density_is_the_rows_marginal(where: str, noise: Any) -> None:
    point, X, B = planted(1, noise=noise)
    X, B = sets_with_missing(X, B, where)
    model = clvm.contrastive_model(1, 2, clvm.Gaussian(noise))
    log_noise = np.log(point.psi) if noise == "feature" else np.log(point.psi[0])
    sites = {"shared loadings": point.S, "target loadings": point.W, "log noise": log_noise}
    sites |= {"target mean": point.mean + 0.1, "background mean": point.background_mean}
    expected = log_likelihood(point._replace(mean=point.mean + 0.1), X, B)
    forms = [(X, B)] if where == "both" else [(X, B), (complete_rows(X), complete_rows(B))]
    with jax.enable_x64(True):  # noqa: FBT003
        for rows in forms:

            def log_density(values: Any, rows: Any = rows) -> Any:
                facts = {"augmented": False, "collapsed": True}
                return numpyro.infer.util.log_density(clvm.density, (model, *rows), facts, values)[
                    0
                ]

            found = jax.jit(log_density)(sites)
            assert float(found) == pytest.approx(expected, rel=1e-9)


def test_latents_are_drawn_from_their_posterior() -> None:
    point, X, B = planted(1, n=12, m=11)
    X[0, 1] = X[3, 0] = np.nan
    n, model = 4000, clvm.contrastive_model(1, 2)
    layout = NutsLayout(model, 7, (12, 11), (False, True), True, (), 50, 0.8, 5)  # noqa: FBT003
    values = {"shared loadings": point.S, "target loadings": point.W, "log noise": np.log(0.5)}
    values |= {"target mean": point.mean, "background mean": point.background_mean}
    with jax.enable_x64(True):  # noqa: FBT003
        repeated = {name: np.repeat(np.asarray(v)[None], n, axis=0) for name, v in values.items()}
        found = jax.tree.map(np.asarray, CompiledNuts(layout).latents(0, repeated, (X, B)))
    drawn = np.concatenate(  # the oracle has W first
        [found["target latents of target"], found["shared latents of target"]], axis=2
    )
    background = found["shared latents of background"]
    for side, rows, h in zip(sides(point), (X, B), (drawn, background), strict=True):
        exact = [conditional(side, x) for x in rows]
        sd = np.array([np.sqrt(np.diag(c.cov)) for c in exact])
        assert (np.abs(h.mean(axis=0) - [c.mean for c in exact]) < 5.0 * sd / np.sqrt(n)).all()
        for i, c in enumerate(exact):
            np.testing.assert_allclose(np.cov(h[:, i].T), c.cov, atol=0.1 * c.cov.max())


# --- coordinates --------------------------------------------------------------------------------


@pytest.mark.parametrize("prior", PRIORS)
def test_the_volume_of_coordinates_is_that_of_the_sites(prior: str) -> None:
    """`log |det|` of the map from coordinates, and the rotation left out, to sites."""
    _, X, B = planted(2, D=4, k=2, t=1)
    model = clvm.contrastive_model(0, 2, shared_prior=PRIORS[prior])
    start = starting_point(model, [X, B], [np.zeros(len(X)), np.zeros(len(B))])
    assert start.model.n_columns == 2
    name = "shared loadings" if prior in ("flat", "lasso") else "shared loadings standard"
    with jax.enable_x64(True):  # noqa: FBT003
        n_rows = (len(X), len(B))
        sites = unobserved_sites(start.model, 4, n_rows, augmented=False, collapsed=True)
        frame = coordinates_at(start, sites, n_rows, {})
        rotates = prior != "ard"
        moving = np.flatnonzero(np.ravel(frame.unit[name]) > 0)
        assert len(moving) == 8 - rotates
        others = [n for n in sites if n != name]

        def map_of(x: Any, z: dict[str, Any]) -> Any:
            rest = dict(z)
            flat = jax.numpy.ravel(z[name]).at[moving].set(x[: len(moving)])
            rest[name] = flat.reshape(z[name].shape)
            at = len(moving)
            for n in others:
                size = int(np.prod(sites[n].shape))
                rest[n] = x[at : at + size].reshape(sites[n].shape)
                at += size
            values, _ = values_at(rest, frame, sites, start.model)
            loadings = values[name]
            if rotates:
                c, s = jax.numpy.cos(x[-1]), jax.numpy.sin(x[-1])
                loadings = loadings @ jax.numpy.array([[c, -s], [s, c]])
            parts = [loadings, *(values[n] for n in others)]
            return jax.numpy.concatenate([jax.numpy.ravel(part) for part in parts])

        jacobian = jax.jit(jax.jacfwd(map_of))
        volume_at = jax.jit(lambda z: values_at(z, frame, sites, start.model)[1])
        differences = []
        for seed in range(4):
            rng = np.random.default_rng(seed)
            z = {n: rng.standard_normal(s.shape) for n, s in sites.items()}
            still = np.where(np.asarray(frame.unit[name]) == 0, z[name] ** 2, 0.0).sum()
            parts = [np.ravel(z[name])[moving], *(np.ravel(z[n]) for n in others)]
            x = np.concatenate([*parts, [0.3]] if rotates else parts)
            determinant = np.linalg.slogdet(np.asarray(jacobian(x, z)))[1]
            differences.append(determinant - float(volume_at(z)) - 0.5 * still)
    np.testing.assert_allclose(differences, differences[0], atol=1e-8)


# --- gauges -------------------------------------------------------------------------------------


def test_rotated_draws_of_one_block_come_back_identical() -> None:
    rng = np.random.default_rng(0)
    L = rng.standard_normal((7, 3)) * [3.0, 2.0, 1.0]
    Q = np.linalg.qr(rng.standard_normal((2, 50, 3, 3)))[0]
    R = turns(L @ Q, np.zeros((2, 50)), "rotation")
    np.testing.assert_allclose(L @ Q @ R, np.broadcast_to(canonical(L), (2, 50, 7, 3)), atol=1e-10)


def test_permuted_columns_come_back_in_order() -> None:
    rng = np.random.default_rng(0)
    L = rng.standard_normal((7, 3)) * [1.0, 3.0, 2.0]
    orders = np.array([rng.permutation(3) for _ in range(100)])
    Q = np.eye(3)[orders] * rng.choice([-1.0, 1.0], (100, 1, 3))
    draws = ((L + 0.01 * rng.standard_normal((100, 7, 3))) @ Q).reshape(2, 50, 7, 3)
    R = turns(draws, np.zeros((2, 50)), "permutation")
    expected = canonical_rotation(L, keep_columns=True)
    np.testing.assert_allclose(draws @ R, np.broadcast_to(L @ expected, (2, 50, 7, 3)), atol=0.06)


def test_columns_that_want_the_same_place_are_assigned() -> None:
    reference = np.eye(3)[:, :2]
    draws = np.array([[[1.0, 0.9], [0.1, 0.3], [0.0, 0.0]]])
    R = signed_permutations(draws, reference)
    np.testing.assert_array_equal(R[0], np.eye(2))
    np.testing.assert_array_equal(signed_permutations(-draws, reference)[0], -np.eye(2))


def test_columns_that_are_given_stay_and_signs_alone_keep_the_order() -> None:
    rng = np.random.default_rng(0)
    L = rng.standard_normal((2, 10, 5, 2)) * [1.0, 4.0]
    density = rng.standard_normal((2, 10))
    np.testing.assert_array_equal(turns(L, density, "none")[1, 3], np.eye(2))
    R = turns(L, density, "sign")
    np.testing.assert_array_equal(np.abs(R), np.broadcast_to(np.eye(2), R.shape))
    assert turns(L[..., :0], density, "rotation").shape == (2, 10, 0, 0)


# --- a posterior --------------------------------------------------------------------------------

LONG = NUTS(n_draws=1000)
MODEL = clvm.contrastive_model(1, 2, clvm.Gaussian(), clvm.Flat(), clvm.ARD())


@pytest.fixture(scope="module")
def problem() -> tuple[Point, Array, Array]:
    return planted(0, n=60, m=60, D=8, k=2, t=1)


@pytest.fixture(scope="module")
def posterior(problem: tuple[Point, Array, Array]) -> Posterior:
    return LONG._run(MODEL, problem[1:], seed=0)


def drawn(posterior: Posterior) -> Draws:
    assert posterior.draws is not None
    return posterior.draws


def test_chains_agree(posterior: Posterior) -> None:
    draws = drawn(posterior)
    assert set(draws.rhat) == {
        *("shared loadings", "target loadings", "target latents of target"),
        *("shared latents of target", "shared latents of background", "target mean"),
        *("background mean", "noise variance", "target loadings variance", "log density"),
    }
    assert draws.worst_rhat[1] < 1.01
    assert draws.least_ess[1] > 400
    assert draws.divergences == 0
    assert posterior.converged
    assert posterior.n_iter == 4 * 1500
    assert posterior.lower_bounds.shape == (1000,)
    assert draws.values["shared latents of background"].shape == (4, 1000, 60, 2)


@pytest.fixture(scope="module")
def predictions(posterior: Posterior) -> PredictionModel:
    return contrastive_predictions(posterior, clvm.Gaussian())


def test_latents_of_rows_have_the_moments_of_their_draws(
    posterior: Posterior, predictions: PredictionModel, problem: tuple[Point, Array, Array]
) -> None:
    """The fitted rows as if they were new: parameters from draws, latents integrated out."""
    X = problem[1]
    mean, cov = prediction.latent_moments(predictions.for_rows("target", X, AVERAGE), X)
    names = ("target latents of target", "shared latents of target")
    values = np.concatenate([drawn(posterior).values[name] for name in names], axis=-1)
    values = values.reshape(4000, *values.shape[2:])
    std = values.std(axis=0)
    assert (np.abs(mean - values.mean(axis=0)) < 0.35 * std).all()
    ratio = np.sqrt(np.einsum("nkk->nk", cov)) / std
    assert np.abs(np.log(ratio)).mean() < 0.08
    fixed = predictions.view("target")
    plug_in = np.sqrt(np.einsum("nkk->nk", prediction.latent_moments(fixed, X)[1]))
    assert (plug_in / std).mean() < ratio.mean()


def test_predictions_are_those_of_the_mixture_over_draws(
    posterior: Posterior, predictions: PredictionModel, problem: tuple[Point, Array, Array]
) -> None:
    X = problem[1][:5].copy()
    X[0, 1] = X[2, 3] = np.nan
    model = predictions.for_rows("target", X, AVERAGE)
    at_draws = [contrastive_predictions(s, clvm.Gaussian()) for s in posterior._samples(SAMPLES)]
    views = [each.view("target") for each in at_draws]
    assert len(views) == SAMPLES
    assert posterior._samples(3)[2].draws is None
    last = drawn(posterior).values["target loadings"][-1, -1]
    np.testing.assert_array_equal(posterior._samples(3)[2].loadings["target"], last)
    likelihoods = [prediction.log_likelihoods(view, X) for view in views]
    np.testing.assert_allclose(
        prediction.log_likelihoods(model, X), np.log(np.exp(likelihoods).mean(axis=0))
    )
    filled, std = prediction.fill(model, X, with_std=True)
    each = [prediction.fill(view, X, with_std=True) for view in views]
    assert std is not None
    seconds = [values**2 + own**2 for values, own in each if own is not None]
    np.testing.assert_allclose(filled, np.mean([values for values, _ in each], axis=0))
    np.testing.assert_allclose(filled**2 + std**2, np.mean(seconds, axis=0))
    kept = np.array([True, False, False])
    parts = [
        view.mean + prediction.latent_means(view, X)[:, :1] @ view.L[:, :1].T for view in views
    ]
    np.testing.assert_allclose(prediction.reconstruct(model, X, kept), np.mean(parts, axis=0))
    rows = prediction.draw(model, 20000, np.random.RandomState(0))
    covariance = np.mean(
        [v.L @ v.L.T + np.diag(v.psi) for v in views if isinstance(v, prediction.Linear)], axis=0
    )
    np.testing.assert_allclose(np.cov(rows.T), covariance, atol=0.06 * covariance.max())


def test_every_method_answers_from_draws() -> None:
    X, B = EASY
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = clone(BRIEF).fit(X, background=B)
    holes = X.copy()
    holes[0, 0] = np.nan
    target = model.latents(X).target
    np.testing.assert_allclose(model.transform(X), target)
    for found in (model.reconstruct(X), model.denoise(holes), model.impute(holes)):
        assert found.shape == X.shape
        assert np.isfinite(found).all()
    assert model.outliers(X).rows.shape == (40,)
    assert model.sample(7, random_state=0).shape == (7, 4)
    assert model._without_rows().transform(X) == pytest.approx(model.transform(X))
    assert np.isfinite(model.score_samples(X)).all()


def test_it_agrees_with_the_closed_form(
    posterior: Posterior, problem: tuple[Point, Array, Array]
) -> None:
    engine = clvm.VariationalBayes()
    closed = engine._run(MODEL, engine._prepare(MODEL, problem[1:]))
    assert angle(posterior.loadings["shared"], closed.loadings["shared"]) < 3.0
    assert angle(posterior.loadings["target"], closed.loadings["target"]) < 3.0
    assert closed.noise_variance[0] == pytest.approx(posterior.noise_variance[0], rel=0.05)
    assert closed.prior_states["target"].mean_log() == pytest.approx(
        posterior.prior_states["target"].mean_log(), abs=0.2
    )
    exact, factorised = posterior.loading_stds()["target"], closed.loading_stds()["target"]
    assert exact is not None
    assert factorised is not None
    assert ((factorised < exact) & (factorised > 0.2 * exact)).mean() > 0.8


def test_the_gauge_is_canonical(posterior: Posterior) -> None:
    S = posterior.loadings["shared"]
    np.testing.assert_allclose(canonical(S), S, atol=1e-10)
    np.testing.assert_allclose(
        drawn(posterior).values["shared loadings"].mean(axis=(0, 1)), S, atol=1e-12
    )


def test_fitted_parts_are_those_of_the_true_parameters(
    posterior: Posterior, problem: tuple[Point, Array, Array]
) -> None:
    """Fitted parts, which have no gauge, against those of the true loadings and latents."""
    point, X, _ = problem
    values = drawn(posterior).values
    exact = np.array([conditional(sides(point)[0], x).mean for x in X])
    fitted = (
        np.einsum("cnik,cndk->id", values["target latents of target"], values["target loadings"])
        / 4000.0
    )
    true = exact[:, :1] @ point.W.T
    assert np.linalg.norm(fitted - true) < 0.3 * np.linalg.norm(true)


@pytest.mark.slow
def test_the_same_seed_gives_the_same_numbers_without_compiling_again(
    posterior: Posterior, problem: tuple[Point, Array, Array]
) -> None:
    programs = _jax._cached.cache_info().misses
    again = LONG._run(MODEL, problem[1:], seed=0)
    assert _jax._cached.cache_info().misses == programs
    for name, value in drawn(posterior).values.items():
        np.testing.assert_array_equal(drawn(again).values[name], value, err_msg=name)
    assert not jax.config.jax_enable_x64


@pytest.mark.skipif(find_spec("arviz") is None, reason="the extra arviz is not installed")
def test_draws_go_to_arviz(posterior: Posterior) -> None:
    draws = drawn(posterior)
    data = draws.to_arviz()
    assert data.posterior["target loadings"].dims == (
        "chain",
        "draw",
        "feature",
        "target_component",
    )
    assert data.posterior["noise variance"].dims == ("chain", "draw")
    for name, value in draws.values.items():
        stored = data.sample_stats["lp"] if name == "log density" else data.posterior[name]
        np.testing.assert_array_equal(stored.values, value)


def test_without_arviz_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "arviz", None)
    with pytest.raises(ImportError, match=r"pip install 'contrastive-lvm\[arviz\]'\.$"):
        Draws({}, {}, {}).to_arviz()


def test_a_single_chain_has_no_rhat() -> None:
    draws = Draws({"target loadings": np.zeros((1, 5, 2, 1))}, {}, {})
    assert draws.worst_rhat[0] == ""
    assert np.isnan(draws.least_ess[1])


def test_what_does_not_vary_is_not_diagnosed() -> None:
    rng = np.random.default_rng(0)
    values = {"noise variance": np.ones((2, 60)), "t": rng.standard_normal((2, 60, 3, 1))}
    values["t"][:, :, 1] = 4.0
    draws = diagnosed(values, 0)
    assert set(draws.rhat) == {"t"}
    assert np.isnan(draws.rhat["t"][1, 0])
    assert draws.worst_rhat[1] < 1.2


# --- other models -------------------------------------------------------------------------------


@pytest.mark.slow
def test_what_is_given_stays_and_sets_may_be_missing() -> None:
    point, X, B = planted(3, n=40, D=6, k=0, t=1)
    X, _ = sets_with_missing(X, B, "target")
    engine = NUTS(n_warmup=200, n_draws=200, n_chains=2, given={"log noise": np.log(0.5)})
    found = engine._run(clvm.contrastive_model(1, 0, background=False), [X])
    np.testing.assert_allclose(found.noise_variance, 0.5)
    assert found.loadings["shared"].shape == (6, 0)
    assert set(found.means) == {"target"}
    assert angle(found.loadings["target"], point.W) < 15.0
    assert set(drawn(found).values) == {
        *("target loadings", "target latents of target", "target mean"),
        *("noise variance", "log density"),
    }


def test_counts_are_recovered() -> None:
    rng = np.random.default_rng(0)
    S, W = 0.7 * rng.standard_normal((2, 6, 1))
    z, y, t = rng.standard_normal((3, 60, 1))
    X = rng.poisson(np.exp(1.5 + z @ S.T + t @ W.T)).astype(float)
    B = rng.poisson(np.exp(1.5 + y @ S.T)).astype(float)
    model = clvm.contrastive_model(1, 1, clvm.Poisson("none"), clvm.Flat(), clvm.ARD())
    found = SHORT._run(model, [X, B])
    assert angle(found.loadings["shared"], S) < 20.0
    assert angle(found.loadings["target"], W) < 20.0
    assert not found.noise_variance.any()
    latents = drawn(found).values["target latents of target"].mean(axis=(0, 1))
    assert abs(np.corrcoef(latents[:, 0], t[:, 0])[0, 1]) > 0.8


@pytest.mark.slow
def test_heavy_tails_are_recovered() -> None:
    rng = np.random.default_rng(1)
    S, W = rng.standard_normal((2, 6, 1))
    W[:3] = 0.0
    z, y, t = rng.standard_normal((3, 40, 1))
    X = z @ S.T + t @ W.T + 0.4 * rng.standard_t(4.0, (40, 6))
    B = y @ S.T + 0.4 * rng.standard_t(4.0, (40, 6))
    model = clvm.contrastive_model(1, 1, clvm.StudentT("learn"), clvm.Flat(), clvm.Horseshoe())
    found = SHORT._run(model, [X, B])
    assert angle(found.loadings["shared"], S) < 15.0
    assert angle(found.loadings["target"], W) < 25.0
    assert found.df is not None
    assert 1.0 < found.df < 30.0
    relevance = np.log(drawn(found).values["target loadings rho2"]).mean(axis=(0, 1))
    assert relevance[:3].max() < relevance[3:].max()


def test_scales_of_a_horseshoe_are_matched() -> None:
    rng = np.random.default_rng(0)
    prior = clvm.Horseshoe()
    model = clvm.contrastive_model(1, 0, target_prior=prior, background=False)
    strong = np.array([1.0, 1.0, 1e-4])
    values = {
        "target loadings rho2": strong * np.exp(0.3 * rng.standard_normal((2, 500, 3))),
        "target loadings tau2": np.exp(0.3 * rng.standard_normal((2, 500))),
    }
    state = prior_states(model, 3, lambda site: log_moments(values.get(site)))["target"]
    np.testing.assert_allclose(state.rho2.mean_log(), np.log(strong), atol=0.05)
    selected = prior._selected_features(state, np.ones(3), 1.0)
    np.testing.assert_array_equal(selected, [True, True, False])


# --- refusals -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"n_draws": 49}, "n_draws=49 must be an integer of at least 50: R-hat of fewer"),
        ({"n_warmup": 10}, "n_warmup=10 must be an integer of at least 50"),
        ({"n_chains": 1}, "n_chains=1 must be an integer of at least 2: R-hat compares chains"),
        ({"n_chains": 2.5}, r"n_chains=2\.5 must be an integer"),
        ({"target_accept": 1.0}, r"target_accept=1\.0 must be a probability between 0 and 1"),
        ({"max_tree_depth": 21}, "max_tree_depth=21 must be an integer from 1 to 20"),
        ({"given": {"log noise": np.nan}}, "given has a value of 'log noise' that is not finite"),
    ],
)
def test_bad_settings_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        NUTS(**settings)


def test_given_must_be_a_dict() -> None:
    with pytest.raises(TypeError, match=r"given=3 must be a dict from sites to values"):
        NUTS(given=3)
    engine = NUTS(given={"target mean": np.zeros(2), "log noise": 1})
    assert engine.given == {"log noise": 1.0, "target mean": (0.0, 0.0)}
    assert hash(engine) == hash(NUTS(given={"log noise": 1.0, "target mean": [0, 0]}))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"noise": 0.0}, "given names the site 'noise', unknown in this model; use .*'log noise'"),
        ({"log noise": [0.0, 0.0]}, r"given has 'log noise' of shape \(2,\); the site has \(\)"),
        (
            {"target loadings variance": [-1.0]},
            r"given has 'target loadings variance'=\(-1\.0,\), which is outside",
        ),
    ],
)
def test_unknown_sites_are_refused(given: Any, message: str) -> None:
    _, X, B = planted(3, D=6, k=1, t=1)
    with pytest.raises(ValueError, match=message):
        NUTS(given=given)._run(clvm.contrastive_model(1, 1, target_prior=clvm.ARD()), [X, B])


def test_improper_posteriors_are_refused() -> None:
    _, X, B = planted(3, n=9, m=30, D=8, k=1, t=1)
    with pytest.raises(ValueError, match=r"the target loadings to 9 rows of 8 features"):
        NUTS()._run(clvm.contrastive_model(1, 1), [X, B])
    counts = np.ones((30, 3))
    counts[:, 1:] = np.arange(60.0).reshape(30, 2) % 7
    model = clvm.contrastive_model(
        1, 0, clvm.Poisson("none"), target_prior=clvm.ARD(), background=False
    )
    with pytest.raises(ValueError, match="feature 0, which is constant in the target rows"):
        NUTS()._run(model, [counts])


def test_objections_name_the_prior_and_the_way_out() -> None:
    engine = NUTS()
    assert engine._unsupported_reason(clvm.contrastive_model(1, 1)) is None
    lasso = clvm.contrastive_model(1, 1, target_prior=clvm.GroupLasso())
    assert engine._unsupported_reason(lasso) is None
    closed = engine._unsupported_reason(clvm.contrastive_model(1, 1, target_prior=Silent()))
    assert closed is not None
    assert "Silent(): it has no NumPyro density" in closed
    model = clvm.contrastive_model(1, 1, clvm.Bernoulli(), clvm.ARD())
    binary = engine._unsupported_reason(model)
    assert binary is not None
    assert "Flat() on the target loadings with Bernoulli(): large" in binary
    assert "R-hat above 1.05" in engine._convergence_hint()


# --- interrupts ---------------------------------------------------------------------------------


class Interrupted:
    """Raise KeyboardInterrupt in place of a segment, and again while it is handled."""

    def __init__(self, call: int, *, twice: bool = False) -> None:
        self.call, self.twice, self.calls = call, twice, 0

    def __get__(self, compiled: CompiledNuts, kind: type) -> Any:
        def advance(*arguments: Any) -> Any:
            self.calls += 1
            if self.calls < self.call:
                return ADVANCE(compiled, *arguments)
            try:
                raise KeyboardInterrupt
            finally:
                if self.twice:
                    raise KeyboardInterrupt

        return advance


ADVANCE = CompiledNuts.advance
EASY = planted(3, n=40, m=30, D=4, k=1, t=1)[1:]
BRIEF = clvm.ContrastiveLVM(
    1, 1, inference=NUTS(n_warmup=60, n_draws=130, n_chains=2), random_state=0
)


def test_an_interrupt_keeps_the_draws_so_far(monkeypatch: pytest.MonkeyPatch) -> None:
    X, B = EASY
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        whole = clone(BRIEF).fit(X, background=B)
        monkeypatch.setattr(CompiledNuts, "advance", Interrupted(5))
        with pytest.warns(UserWarning, match="interrupted after 100 of 130 draws of each chain"):
            kept = clone(BRIEF).fit(X, background=B)
    assert not kept.converged_
    assert kept.n_iter_ == 2 * (60 + 100)
    for name, value in drawn(whole.posterior_).values.items():
        assert drawn(kept.posterior_).values[name].shape == (2, 100, *value.shape[2:]), name
    density = drawn(kept.posterior_).values["log density"]
    np.testing.assert_array_equal(density, drawn(whole.posterior_).values["log density"][:, :100])
    assert kept.transform(X).shape == (40, 1)


@pytest.mark.parametrize(("call", "twice"), [(1, False), (2, False), (4, True)])
def test_an_early_or_a_second_interrupt_is_passed_on(
    monkeypatch: pytest.MonkeyPatch, call: int, *, twice: bool
) -> None:
    monkeypatch.setattr(CompiledNuts, "advance", Interrupted(call, twice=twice))
    with pytest.raises(KeyboardInterrupt):
        clone(BRIEF).fit(EASY[0], background=EASY[1])
