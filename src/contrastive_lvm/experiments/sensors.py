"""Which body-worn sensors tell activities apart (the paper, figures 2c and 2d; supplement)."""

import warnings
from typing import NamedTuple

import numpy as np
from matplotlib.figure import Figure
from sklearn.exceptions import ConvergenceWarning

from contrastive_lvm.arrays import Array
from contrastive_lvm.datasets import SensorData, fetch_daily_sports, fetch_mhealth
from contrastive_lvm.datasets.download import present
from contrastive_lvm.estimators.contrastive_lvm import ContrastiveLVM
from contrastive_lvm.estimators.lasso_path import LassoPath, group_lasso_path
from contrastive_lvm.experiments.drawing import grid_of_latents
from contrastive_lvm.experiments.measures import ari
from contrastive_lvm.experiments.outcome import Claim, Outcome, paragraphs, spread, tabulate
from contrastive_lvm.plots import plot_lasso_path, plot_relevance, plot_scales
from contrastive_lvm.plots.style import INK, PALETTE, finish, names_in_corner, panels
from contrastive_lvm.priors.horseshoe import Horseshoe

SEPARABLE = 0.95  # adjusted Rand index
NAMES = {8: "squatting", 9: "cycling", 15: "cycling", 17: "rowing"}
NOTES = """
Signals are divided by their standard deviation in both sets together.

The paper uses 20 shared dimensions for 23 signals and rho = 400; here there is one shared
dimension. The shared loadings have no penalty. With many shared dimensions, a strong penalty on the
target loadings therefore moves the activities into the shared space instead of dropping signals:
with 20 shared dimensions, the activities of daily sports do not separate at any strength of the
path. The magnetometers of daily sports stay, because they measure posture, in which cycling and
rowing differ.
"""


class Fits(NamedTuple):
    """The fits to one draw of rows."""

    target: Array
    labels: np.ndarray
    path: LassoPath
    agreement: Array  # (R,) of the activities, along the path
    chosen: int  # index of the largest strength that keeps the activities apart
    models: dict[str, ContrastiveLVM]  # by what is asked of the target loadings


def run(*, quick: bool = False) -> Outcome:
    """Compare the group lasso and the horseshoe on the target loadings."""
    data = _data()
    fits = [_fits(data, start, quick=quick) for start in range(1 if quick else 3)]
    first, total = fits[0], data.target.shape[1]
    agreement, left = {}, {}
    for name in first.models:
        agreement[name] = spread(ari(f.models[name].transform(f.target), f.labels) for f in fits)
        left[name] = spread(int(f.models[name].selected_features_.sum()) for f in fits)
    pruned = {
        f"horseshoe, pruned below {threshold:g}": spread(
            _left(f.models["horseshoe"], threshold) for f in fits
        )
        for threshold in (1e-4, 1e-3, 1e-2, 1e-1)
    }
    apart = agreement["group lasso"].least >= SEPARABLE
    signals = f", {left['group lasso'].values[0]:.0f} of {total} signals"
    planes = {
        name + (signals if name == "group lasso" else ""): model.transform(first.target)
        for name, model in first.models.items()
    }
    return Outcome(
        name="sensors",
        title="Sensors that tell activities apart",
        data=f"{data.description} {len(first.target)} rows of the target, {total} signals, "
        f"{len(fits)} draws of every 5th row",
        table=tabulate("target loadings", {"ARI": agreement, "signals left": left | pruned}),
        claims=[
            Claim(
                "A penalty drops signals while the activities stay apart.",
                f"least share of signals dropped at an ARI of {SEPARABLE} or more",
                1.0 - left["group lasso"].most / total if apart else 0.0,
                0.25,
            ),
            *(
                Claim(f"The activities are separated with {name}.", "least ARI", own.least, 0.95)
                for name, own in agreement.items()
                if name != "group lasso"
            ),
        ],
        figures={
            "latents": grid_of_latents(planes, [NAMES[int(label)] for label in first.labels]),
            "norms": _draw_norms(data, first.models),
            "path": _draw_path(data, first),
            "scales": _draw_scales(data, first.models["horseshoe"]),
        },
        notes=_notes(data, first),
    )


def _data() -> SensorData:
    logs = [present(f"mhealth/mHealth_subject{i}.log") for i in range(1, 11)]
    if present("mhealth/mhealth+dataset.zip") or all(logs):
        return fetch_mhealth()
    return fetch_daily_sports("subject1")


def _fits(data: SensorData, start: int, *, quick: bool) -> Fits:
    """Fit all models to every fifth row, since rows beside each other are nearly the same."""
    step = 50 if quick else 5
    sets = (data.target[start::step], data.background[start::step])
    std = np.nanstd(np.vstack(sets), axis=0)
    target, background = (rows / std for rows in sets)
    labels, plain = data.target_labels[start::step], ContrastiveLVM(2, 1)
    with warnings.catch_warnings():  # noise that reaches its floor, and clusters without loadings
        warnings.simplefilter("ignore", ConvergenceWarning)
        path = group_lasso_path(plain, target, background=background, n_rhos=10 if quick else 30)
        horseshoe = ContrastiveLVM(2, 1, target_prior=Horseshoe())
        for model in (plain, horseshoe):
            model.fit(target, background=background)
        agreement = np.array(
            [
                ari(m.transform(target), labels) if m.feature_relevance_.any() else 0.0
                for m in path.models
            ]
        )
    chosen = int(np.flatnonzero(agreement >= SEPARABLE).max(initial=0))
    models = {"no penalty": plain, "group lasso": path.models[chosen], "horseshoe": horseshoe}
    return Fits(target, labels, path, agreement, chosen, models)


def _left(model: ContrastiveLVM, threshold: float) -> int:
    """Count the signals that the pruning rule keeps with another threshold."""
    prior, found = Horseshoe(delta=threshold), model.posterior_
    state = found.prior_states["target"]
    selected = prior._selected_features(state, model.feature_relevance_, found.unit_variance)
    return int(selected.sum())


def _notes(data: SensorData, fits: Fits) -> list[str]:
    gone = np.array(data.sensor_types)[~fits.models["group lasso"].selected_features_]
    names, counts = np.unique(gone, return_counts=True)
    listed = ", ".join(f"{n} of {name}" for name, n in zip(names, counts, strict=True))
    dropped = f"Signals that the group lasso dropped in the first draw: {listed}."
    return [dropped, *paragraphs(NOTES)]


def _draw_norms(data: SensorData, models: dict[str, ContrastiveLVM]) -> Figure:
    figure, axes = panels(len(models), 1, (5.2, 1.9))
    for ax, (title, model) in zip(axes, models.items(), strict=True):
        plot_relevance(model, groups=data.sensor_types, ax=ax, title=title)
        ax.set_ylabel("norm of loadings")
    return figure


def _draw_path(data: SensorData, fits: Fits) -> Figure:
    """Draw the path of the norms, and how well the activities stay apart."""
    figure, (left, right) = panels(2, 1, (5.0, 2.4))
    path, mark = fits.path, fits.chosen
    plot_lasso_path(path, mark=mark, groups=_types(data), ax=left, title="Group-lasso path")
    share = path.n_selected / path.row_norms.shape[1]
    curves = {"share of signals left": share, "ARI of the activities": fits.agreement}
    for curve, colour in zip(curves.values(), PALETTE, strict=False):
        right.plot(path.rhos, curve, color=colour, linewidth=1.8)
    right.set_xscale("log")
    right.axvline(path.rhos[mark], color=INK, linewidth=0.8, linestyle=":")
    names_in_corner(right, zip(curves, PALETTE, strict=False), top=False)
    finish(right, "What the penalty costs", "strength", "share, ARI")
    right.set_ylim(bottom=-0.2)
    return figure


def _draw_scales(data: SensorData, model: ContrastiveLVM) -> Figure:
    figure, (ax,) = panels(1, 1, (5.0, 3.0))
    plot_scales(model, groups=_types(data), ax=ax, title="Scales of the horseshoe")
    return figure


def _types(data: SensorData) -> list[str]:
    words = {"acc": "accelerometers", "ecg": "electrocardiogram", "gyro": "gyroscopes"}
    return [words.get(kind, "magnetometers") for kind in data.sensor_types]
