"""Pictures of fitted models: what is drawn, where, and what is refused."""

from collections.abc import Callable
from functools import cache
from types import SimpleNamespace
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from matplotlib.axes import Axes
from matplotlib.collections import EllipseCollection, LineCollection
from matplotlib.figure import Figure
from matplotlib.patches import Ellipse
from scipy.integrate import trapezoid
from sklearn.exceptions import NotFittedError

import contrastive_lvm as clvm
from contrastive_lvm import plots
from contrastive_lvm.plots.style import PALETTE, UNLABELLED

RNG = np.random.default_rng(0)
X = RNG.standard_normal((40, 2)) @ RNG.standard_normal((2, 6)) * 2 + RNG.standard_normal((40, 6))
B = RNG.standard_normal((30, 6))


@cache
def fit(n_target: int = 2, n_shared: int = 2, **words: Any) -> clvm.ContrastiveLVM:
    return clvm.ContrastiveLVM(n_target, n_shared, **words).fit(X, background=B)


@cache
def path() -> clvm.LassoPath:
    return clvm.group_lasso_path(clvm.ContrastiveLVM(2, 1), X, background=B, n_rhos=4)


def words(ax: Axes) -> list[str]:
    return [text.get_text() for text in ax.texts]


def places(ax: Axes) -> Any:
    return np.asarray(ax.lines[0].get_xdata())


def colours(artist: Any) -> list[str]:
    return [mpl.colors.to_hex(c).upper() for c in np.atleast_2d(artist.get_colors())]


EVERY: dict[str, Callable[[Axes | None], Axes]] = {
    "latents": lambda ax: plots.plot_latents(fit().transform(X), kind="both", ax=ax),
    "uncertainty": lambda ax: plots.plot_uncertainty(fit().latents(X), ax=ax),
    "shared": lambda ax: plots.plot_shared(fit(), X, B, ax=ax),
    "loadings": lambda ax: plots.plot_loadings(fit(), ax=ax),
    "relevance": lambda ax: plots.plot_relevance(fit(), ax=ax),
    "shares": lambda ax: plots.plot_variance_shares(fit(), ax=ax),
    "spectrum": lambda ax: plots.plot_spectrum(fit(), ax=ax),
    "scales": lambda ax: plots.plot_scales(fit(target_prior="horseshoe"), ax=ax),
    "path": lambda ax: plots.plot_lasso_path(path(), ax=ax),
    "trace": lambda ax: plots.plot_trace(fit(), ax=ax),
    "missing": lambda ax: plots.plot_missing(X, B, ax=ax),
    "imputation": lambda ax: plots.plot_imputation(fit(), X, X > 2.5, ax=ax),
    "outliers": lambda ax: plots.plot_outliers(fit(), X, ax=ax),
    "weights": lambda ax: plots.plot_weights(fit(likelihood="student_t"), X, ax=ax),
}


@pytest.mark.parametrize("name", EVERY)
def test_axes_in_axes_out_with_large_letters_and_no_legend(name: str) -> None:
    settings, ax = dict(mpl.rcParams), Figure().subplots()
    assert EVERY[name](ax) is ax
    assert dict(mpl.rcParams) == settings
    assert ax.get_legend() is None
    ticks = [*ax.get_xticklabels(), *ax.get_yticklabels()]
    texts = [*ax.texts, ax.xaxis.label, ax.yaxis.label, *ticks]
    assert min(float(text.get_fontsize()) for text in texts) >= 9
    assert isinstance(EVERY[name](None).figure, Figure)
    with pytest.raises(TypeError, match="ax='here' is not a Matplotlib Axes"):
        EVERY[name]("here")  # type: ignore[arg-type]


# --- latents ------------------------------------------------------------------------------------


def test_ellipses_are_those_of_the_posterior() -> None:
    cov = np.array([[4.0, 0.0, 9.0], [0.0, 1.0, 9.0], [9.0, 9.0, 99.0]])
    none = np.zeros((3, 1))
    latents = clvm.Latents(np.zeros((3, 2)), None, none, none, np.tile(cov, (3, 1, 1)))
    ax = plots.plot_uncertainty(latents)
    (ellipses,) = (c for c in ax.collections if isinstance(c, EllipseCollection))
    np.testing.assert_allclose(
        np.asarray(ellipses.get_widths()), 4.0
    )  # two standard deviations across
    np.testing.assert_allclose(np.asarray(ellipses.get_heights()), 2.0)
    np.testing.assert_allclose(np.abs(np.cos(np.radians(ellipses.get_angles()))), 1.0)
    assert ax.get_xlim()[0] < -2.0
    assert ax.get_xlim()[1] > 2.0


def test_few_of_many_rows_get_an_ellipse() -> None:
    ax = plots.plot_uncertainty(fit().latents(X), n=7)
    (ellipses,) = (c for c in ax.collections if isinstance(c, EllipseCollection))
    assert len(np.asarray(ellipses.get_offsets())) == 7


def test_a_single_latent_has_intervals_of_ninety_percent() -> None:
    latents = fit(1).latents(X)
    assert latents.target is not None
    assert latents.target_std is not None
    ax = plots.plot_uncertainty(latents)
    (lines,) = (c for c in ax.collections if isinstance(c, LineCollection))
    ends = np.array(lines.get_segments())[:, :, 0]
    order = np.argsort(latents.target[:, 0])
    np.testing.assert_allclose(ends.mean(axis=1), latents.target[order, 0])
    across = 2 * 1.645 * latents.target_std[order, 0]
    np.testing.assert_allclose(np.ptp(ends, axis=1), across, rtol=1e-3)


def test_both_sets_are_in_the_shared_picture() -> None:
    ax = plots.plot_shared(fit(), X, B, dimensions=(1, 0))
    (points,) = ax.collections
    assert len(np.asarray(points.get_offsets())) == len(X) + len(B)
    assert ax.get_xlabel() == "shared 2"
    assert words(ax) == ["target, 40 rows", "background, 30 rows"]
    assert plots.plot_shared(fit(2, 1), X, B).get_ylabel() == "rows"


@pytest.mark.parametrize("kind", ["density", "both"])
def test_groups_too_small_for_a_density_are_points(kind: str) -> None:
    latents = np.vstack([X[:, :2], [[9.0, 9.0], [9.0, 9.0]]])
    labels = ["many"] * len(X) + ["few"] * 2
    ax = plots.plot_latents(latents, labels, kind=kind)
    offsets = [len(np.asarray(c.get_offsets())) for c in ax.collections]
    assert max(offsets) == (len(latents) if kind == "both" else 2)
    plots.plot_latents(np.zeros((5, 2)), kind=kind)
    plots.plot_latents(np.zeros((5, 1)), kind=kind)


def test_panels_go_to_the_next_row() -> None:
    figure = plots.plot_comparison(dict.fromkeys("abc", X[:, :2]), columns=2)
    assert len(figure.axes) == 3
    assert figure.axes[2].get_subplotspec().get_geometry()[:2] == (2, 2)  # type: ignore[union-attr]


# --- loadings -----------------------------------------------------------------------------------


def test_loadings_are_ranked_and_named() -> None:
    model = clvm.ContrastiveLVM(2, 2)
    model.fit(pd.DataFrame(X, columns=list("abcdef")), background=B)
    ax = plots.plot_loadings(model, 1, n=4)
    order = np.argsort(-np.abs(model.target_components_[1]))[:4]
    assert [label.get_text() for label in ax.get_yticklabels()] == ["abcdef"[i] for i in order]
    points = np.asarray(ax.collections[-1].get_offsets())
    np.testing.assert_allclose(points[:, 0], model.target_components_[1][order])
    assert ax.get_ylim()[0] > ax.get_ylim()[1]
    assert ax.get_title(loc="left") == "target 2, 4 largest of 6"


def test_loadings_have_intervals_of_resampled_rows() -> None:
    model = fit()
    found = clvm.bootstrap(model, X, background=B, n_resamples=40, random_state=0)
    ax = plots.plot_loadings(model, bootstrap=found)
    ends = np.array(ax.collections[0].get_segments())[:, :, 0]  # type: ignore[attr-defined]
    order = np.argsort(-np.abs(model.target_components_[0]))
    assert found.low is not None
    assert found.high is not None
    np.testing.assert_allclose(ends, np.column_stack([found.low[0], found.high[0]])[order])
    assert ax.get_xlabel() == "loading, with 90% intervals"
    with pytest.raises(ValueError, match="of target loadings only"):
        plots.plot_loadings(model, of="shared", bootstrap=found)


def test_loadings_have_no_intervals_that_suppose_the_latents_known() -> None:
    model = fit(target_prior="ard", inference="vb")
    assert model.target_components_std_ is not None
    assert plots.plot_loadings(model).get_xlabel() == "loading"


def test_groups_of_features_by_label_and_by_name_are_the_same() -> None:
    by_label = plots.plot_loadings(fit(), groups=["a", "a", "b", "b", "b", "a"])
    by_place = plots.plot_loadings(fit(), groups={"a": [0, 1, 5], "b": range(2, 5)})
    assert sorted(words(by_label)) == ["a", "b"]
    assert colours(by_label.collections[0]) == colours(by_place.collections[0])


@pytest.mark.parametrize(
    "model", [clvm.PPCA(2).fit(X), clvm.ContrastivePCA(2, alpha=1.0).fit(X, background=B)]
)
def test_baselines_have_loadings_too(model: Any) -> None:
    assert len(plots.plot_loadings(model).get_yticks()) == 6


def test_dropped_features_are_crossed_out() -> None:
    model = path().models[2]
    ax = plots.plot_relevance(model)
    crosses = np.asarray(ax.collections[0].get_offsets())
    assert len(crosses) == (~model.selected_features_).sum()
    assert [bar.get_height() for bar in ax.patches] == pytest.approx(model.feature_relevance_)  # type: ignore[attr-defined]


# --- variance, priors, fits ---------------------------------------------------------------------


def test_shares_sum_to_a_hundred_even_when_many_are_added_up() -> None:
    shares = np.full(30, 0.02)
    model = SimpleNamespace(
        target_variance_ratio_=[0.3], shared_variance_ratio_=shares, noise_variance_ratio_=0.1
    )
    ax = plots.plot_variance_shares(model)
    assert sum(bar.get_width() for bar in ax.patches) == pytest.approx(100.0)  # type: ignore[attr-defined]
    assert [t.get_text() for t in ax.get_yticklabels()][-2:] == [
        "23 more shared",
        "noise",
    ]


@pytest.mark.parametrize(("count", "scale"), [(10, "linear"), (100, "log")])
def test_spectra_leave_out_negligible_columns(count: int, scale: str) -> None:
    model = SimpleNamespace(shared_components_=np.diag([*np.ones(count), 1e-9]))
    ax = plots.plot_spectrum({"one": model, "another": model})
    assert len(places(ax)) == count
    assert ax.get_xscale() == scale
    assert sorted(words(ax)) == [f"another: {count}", f"one: {count}"]
    assert words(plots.plot_spectrum(fit(2, 0))) == ["0 components"]


def test_scales_show_the_threshold_and_what_it_drops() -> None:
    model = fit(target_prior=clvm.Horseshoe(delta=0.3))
    ax = plots.plot_scales(model)
    assert places(ax)[0] == pytest.approx(0.3 * model.posterior_.unit_variance)
    kept = int(model.selected_features_.sum())
    assert 0 < kept < 6
    assert words(ax)[1:] == [f"{kept} kept", f"{6 - kept} dropped"]
    assert colours(ax.collections[0]).count(UNLABELLED) == 6 - kept
    curves = np.array(ax.collections[0].get_segments())  # type: ignore[attr-defined]
    area = trapezoid(curves[:, :, 1], np.log(curves[:, :, 0]), axis=1)
    np.testing.assert_allclose(area, 1.0, atol=0.02)


def test_features_that_share_a_scale_have_one_curve() -> None:
    model = fit(target_prior=clvm.Horseshoe(groups=tuple("aaabbb")))
    ax = plots.plot_scales(model, groups=list("aaabbb"))
    assert colours(ax.collections[0]) == list(PALETTE[:2])


def test_a_marked_path_greys_what_it_drops() -> None:
    ax = plots.plot_lasso_path(path(), mark=2)
    dropped = int((path().row_norms[2] == 0).sum())
    assert colours(ax.collections[0]).count(UNLABELLED) == dropped
    assert places(ax)[0] == path().rhos[2]
    assert f"{6 - dropped} of 6 left" in words(ax)[0]
    assert not plots.plot_lasso_path(path()).lines


def test_traces_say_how_they_ended() -> None:
    assert words(plots.plot_trace(fit())) == [f"converged at {fit().lower_bound_:.6g}"]
    early = SimpleNamespace(lower_bounds_=np.arange(100.0), converged_=False)
    assert words(plots.plot_trace(early)) == ["stopped early at 99"]
    ax = plots.plot_trace({"one": early, "two": fit()})
    assert sorted(words(ax)) == ["one, stopped early", "two"]
    assert ax.get_xscale() == "log"


def test_held_out_rows_have_a_curve_of_their_own() -> None:
    history = {"epoch": [2.0, 4.0], "validation_bound": np.array([-3.0, -2.0])}
    model = SimpleNamespace(lower_bounds_=[-2.0, -1.0], history_=history)
    ax = plots.plot_trace(model)
    assert [np.asarray(line.get_ydata()).tolist() for line in ax.lines] == [
        [-2.0, -1.0],
        [-3.0, -2.0],
    ]
    assert ax.get_xlabel() == "epoch"


# --- entries and rows ---------------------------------------------------------------------------


def test_missing_entries_are_dark_and_sparse_rows_are_the_same() -> None:
    rows = np.zeros((4, 3))
    rows[1, 2] = np.nan
    dense, sparse = (plots.plot_missing(r).images[0] for r in (rows, sp.csr_array(rows)))
    shades = np.asarray(dense.get_array()).sum(axis=2)
    np.testing.assert_array_equal(np.argwhere(shades == shades.min()), [(1, 2)])
    np.testing.assert_array_equal(dense.get_array(), sparse.get_array())


def test_large_sets_are_drawn_coarsely_and_keep_their_shares() -> None:
    rows = np.zeros((1000, 700))
    rows[:, :350] = np.nan
    image = np.asarray(plots.plot_missing(rows).images[0].get_array())
    assert max(image.shape) <= 240
    assert (image[:, 0] == image[0, 0]).all()
    assert plots.plot_missing(rows).get_title(loc="left") == "Missing: target 50%"


def test_imputation_hides_what_it_compares() -> None:
    hidden = X > 2.0
    ax = plots.plot_imputation(fit(), X, hidden, scaled=False)
    filled = fit().impute(np.where(hidden, np.nan, X))
    points = np.asarray(ax.collections[-1].get_offsets())
    np.testing.assert_allclose(points, np.column_stack([X[hidden], np.asarray(filled)[hidden]]))
    assert words(ax)[0] == f"{hidden.sum()} entries"
    plots.plot_imputation(clvm.PPCA(2).fit(X), X, hidden)
    plots.plot_imputation(fit(), B, B > 1.0, of="background")
    frame = pd.DataFrame(X, columns=list("abcdef"))
    named = clvm.ContrastiveLVM(2, 2).fit(frame, background=B)
    assert words(plots.plot_imputation(named, frame, frame > 2.0))[0] == words(ax)[0]


def test_many_filled_entries_have_no_intervals() -> None:
    rows = np.vstack([X] * 10)
    ax = plots.plot_imputation(fit(), rows, np.arange(rows.size).reshape(rows.shape) % 6 == 0)
    assert not [c for c in ax.collections if isinstance(c, LineCollection)]
    assert ax.get_ylabel() == "imputed value"


def test_an_outlier_is_marked_by_number_or_name() -> None:
    rows = X.copy()
    rows[17] += 30.0
    rows[3] = np.nan
    ax = plots.plot_outliers(fit(), rows, n=1)
    assert words(ax)[0].strip() == "17"
    highest = np.asarray(ax.collections[1].get_offsets())
    assert highest[0, 1] > np.asarray(ax.collections[0].get_offsets())[:, 1].max()
    named = plots.plot_outliers(fit(), rows, [f"mouse {i}" for i in range(40)], n=1)
    assert words(named)[0].strip() == "mouse 17"
    assert not words(plots.plot_outliers(fit(), sp.csr_array(X), n=0))


@pytest.mark.parametrize("per", ["element", "sample"])
def test_weights_of_the_least_trusted_rows(per: Any) -> None:
    model = fit(likelihood=clvm.StudentT(per=per))
    ax = plots.plot_weights(model, X, n=5)
    found = model.outliers(X)
    image = np.asarray(ax.images[0].get_array())
    np.testing.assert_allclose(image, np.broadcast_to(found.weights[found.rows[:5]], (5, 6)))
    assert [t.get_text() for t in ax.get_yticklabels()] == [str(row) for row in found.rows[:5]]


# --- what is refused ----------------------------------------------------------------------------

UNFITTED = clvm.ContrastiveLVM()
REFUSED: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "kind": (lambda: plots.plot_latents(X, kind="dots"), ValueError, "kind='dots' is unknown"),
    "columns": (lambda: plots.plot_comparison({"a": X}, columns=-1), ValueError, "columns=-1"),
    "an array": (lambda: plots.plot_uncertainty(X), TypeError, r"pass model.latents\(X\)"),
    "rows of the background": (
        lambda: plots.plot_uncertainty(fit().latents(B, of="background")),
        ValueError,
        "latents has no target part",
    ),
    "labels": (lambda: plots.plot_uncertainty(fit().latents(X), [1]), ValueError, "labels has"),
    "n": (lambda: plots.plot_uncertainty(fit().latents(X), n=0), ValueError, "n=0 must be"),
    "shared dimension": (
        lambda: plots.plot_shared(fit(), X, B, dimensions=(0, 2)),
        ValueError,
        r"dimensions=\(0, 2\) must be two different dimensions of the 2 shared ones, from 0 to 1",
    ),
    "same dimension": (
        lambda: plots.plot_shared(fit(), X, B, dimensions=(1, 1)),
        ValueError,
        "two different",
    ),
    "nothing shared": (lambda: plots.plot_shared(fit(2, 0), X, B), ValueError, "n_shared > 0"),
    "dimension": (
        lambda: plots.plot_loadings(fit(), 2),
        ValueError,
        "dimension=2 must be an integer from 0 to 1",
    ),
    "no dimension": (lambda: plots.plot_loadings(fit(0)), ValueError, "at least one"),
    "of": (lambda: plots.plot_loadings(fit(), of="both"), ValueError, "of='both' is unknown"),
    "shared of PPCA": (
        lambda: plots.plot_loadings(clvm.PPCA(1).fit(X), of="shared"),
        TypeError,
        "has no shared_components_",
    ),
    "group labels": (
        lambda: plots.plot_loadings(fit(), groups=["a"]),
        ValueError,
        r"groups has shape \(1,\), but there are 6 features; give one label per feature",
    ),
    "group features": (
        lambda: plots.plot_relevance(fit(), groups={"a": ["x"]}),
        ValueError,
        r"groups\['a'\] names the feature 'x', which the model does not have",
    ),
    "no models": (lambda: plots.plot_spectrum({}), ValueError, "models={} is empty"),
    "negligible": (lambda: plots.plot_spectrum(fit(), negligible=2), ValueError, "negligible=2"),
    "no horseshoe": (
        lambda: plots.plot_scales(fit()),
        TypeError,
        "target_prior=None, which has no scale for each feature; fit it with",
    ),
    "no path": (lambda: plots.plot_lasso_path(fit()), TypeError, "not a LassoPath; pass what"),
    "mark": (
        lambda: plots.plot_lasso_path(path(), mark=4),
        ValueError,
        "mark=4 must be an integer from 0 to 3",
    ),
    "no trace": (
        lambda: plots.plot_trace(clvm.PPCA(1).fit(X)),
        TypeError,
        r"model=PPCA\(n_components=1\) has no lower_bounds_; pass a fitted ContrastiveLVM",
    ),
    "not a model": (lambda: plots.plot_trace("EM"), TypeError, "model='EM' is not an estimator"),
    "not rows": (lambda: plots.plot_missing([1.0]), ValueError, r"X has shape \(1,\)"),
    "other features": (
        lambda: plots.plot_missing(X, B[:, :2]),
        ValueError,
        "different numbers of features, {'target': 6, 'background': 2}; give both the same",
    ),
    "held out": (
        lambda: plots.plot_imputation(fit(), X, [True]),
        ValueError,
        r"held_out has type bool and shape \(1,\), but X has shape \(40, 6\)",
    ),
    "nothing held out": (
        lambda: plots.plot_imputation(fit(), X, X > 1e9),
        ValueError,
        "held_out holds out no observed entry of X; mark some",
    ),
    "no imputation": (
        lambda: plots.plot_imputation(clvm.ContrastivePCA().fit(X, background=B), X, X > 0),
        TypeError,
        "has no impute; pass a fitted",
    ),
    "no outliers": (
        lambda: plots.plot_outliers(clvm.PPCA(1).fit(X), X),
        TypeError,
        "has no outliers",
    ),
    "names": (lambda: plots.plot_outliers(fit(), X, ["a"]), ValueError, "labels has shape"),
    "equal weights": (
        lambda: plots.plot_weights(fit(), X),
        ValueError,
        "likelihood='gaussian', which gives all entries the same weight; fit it",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_bad_input_is_refused_in_one_sentence(name: str) -> None:
    call, kind, message = REFUSED[name]
    with pytest.raises(kind, match=message):
        call()


@pytest.mark.parametrize(
    "call",
    [
        lambda: plots.plot_shared(UNFITTED, X, B),
        lambda: plots.plot_loadings(UNFITTED),
        lambda: plots.plot_relevance(UNFITTED),
        lambda: plots.plot_variance_shares(UNFITTED),
        lambda: plots.plot_spectrum({"one": UNFITTED}),
        lambda: plots.plot_scales(UNFITTED),
        lambda: plots.plot_trace(UNFITTED),
        lambda: plots.plot_imputation(UNFITTED, X, X > 0),
        lambda: plots.plot_outliers(UNFITTED, X),
        lambda: plots.plot_weights(UNFITTED, X),
    ],
)
def test_models_that_are_not_fitted_are_refused(call: Callable[[], Any]) -> None:
    with pytest.raises(NotFittedError, match=r"is not fitted.*call its fit first\."):
        call()


@pytest.mark.parametrize("n_target", [1, 2])
def test_subgroups_have_their_rows_names_and_ellipses(n_target: int) -> None:
    data = clvm.datasets.make_subgroups(random_state=0)
    prior = clvm.Mixture(2 * n_target)
    model = clvm.ContrastiveLVM(n_target, 10, latent_prior=prior)
    model.fit(data.target, background=data.background)
    ax = plots.plot_subgroups(model, data.target, title="Subgroups")
    shares = model.subgroups(data.target).weights
    wanted = [f"subgroup {c + 1}, {share:.0%}" for c, share in enumerate(shares)]
    assert sorted(text.get_text() for text in ax.texts) == sorted(wanted)
    if n_target == 1:
        assert len(ax.lines) == 2
        return
    ellipses = [patch for patch in ax.patches if isinstance(patch, Ellipse)]
    mixture = model.posterior_.latent_mixtures["target"]
    drawn = mixture.draw(4000, np.random.RandomState(0))
    inside = [ellipse.contains_points(ax.transData.transform(drawn)) for ellipse in ellipses]
    assert np.any(inside, axis=0).mean() == pytest.approx(0.9, abs=0.02)
