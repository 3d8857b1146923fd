"""How much the shared latents reveal about the target."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import r2_score, roc_auc_score
from sklearn.model_selection import KFold, StratifiedKFold, cross_val_predict
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from contrastive_lvm.arrays import Array, Covariates, RowLabels
from contrastive_lvm.checks import RandomState, check_integer
from contrastive_lvm.io.value_checks import Check, check_values, number, whole
from contrastive_lvm.vae.training_data import ENOUGH_HELD_OUT

if TYPE_CHECKING:
    from contrastive_lvm.vae.fit_networks import NetworkFit
    from contrastive_lvm.vae.trained_networks import TrainedNetworks
    from contrastive_lvm.vae.training_data import NetworkRows

SETS = ("target", "background")
FOLDS = 5  # of cross-validation, as scikit-learn has them by default
LEAST_HELD_OUT, MOST_JUDGED = 10, 2000  # rows of a set whose latents are judged
CLEAR = 2.0  # standard errors of the gain, for a contrast
MOST_SHARED = 0.2  # of what target latents add to a row of the target, for one of the background
MOST_AUC, MOST_R2 = 0.9, 0.15  # of shared latents that are called clean


class Leakage(NamedTuple):
    """What the shared latents of held-out rows reveal; 0.5 and 0 are best for the first two."""

    set_auc: float  # target rows against background rows: area under the ROC curve
    target_r2: float  # share of the target latents' variance that shared latents predict
    label_accuracy: float | None  # accuracy of labels predicted from shared latents
    label_accuracy_of_target: float | None  # accuracy of labels predicted from target latents
    chance: float | None  # the most frequent label's share

    @property
    def excess(self) -> float | None:
        """Return the accuracy of labels from shared latents beyond chance."""
        if self.label_accuracy is None or self.chance is None:
            return None
        return self.label_accuracy - self.chance


class HeldOut(NamedTuple):
    """Results on held-out rows; `ContrastiveVAE` documents each value."""

    leakage: Leakage | None
    target_gain: float
    target_gain_error: float
    background_gain: float
    n_held_out: int


def leakage(
    model: Any,
    X: Any,
    background: Any,
    *,
    labels: RowLabels = None,
    covariates: Covariates = None,
    background_covariates: Covariates = None,
    n_neighbors: int = 20,
    random_state: RandomState = 0,
) -> Leakage:
    """Measure what the shared latents reveal about the target, by cross-validated neighbours.

    If the two kinds of structure are separated, the shared latents of target rows look like those
    of background rows and say nothing about the target latents or about labels that only the target
    has. Without labels, the function measures two things: how well the shared latents tell rows of
    the two sets apart (`set_auc`, by nearest neighbours or by a linear classifier, whichever
    separates them better), and how much of the target latents they predict (`target_r2`). With
    labels, it also measures how well neighbours in the shared and in the target space predict the
    labels.

    Parameters
    ----------
    model : ContrastiveLVM or ContrastiveVAE, fitted
    X, background : rows of the two sets
    labels : array-like of shape (n,), optional
        Groups of the target's rows.
    covariates, background_covariates : optional, as in `fit`
    n_neighbors : int
    random_state : int or RandomState instance
        Shuffles the rows before they are divided into folds.

    Examples
    --------
    >>> import contrastive_lvm as clvm
    >>> data = clvm.datasets.make_subgroups(random_state=0)
    >>> model = clvm.ContrastiveLVM(2, 10).fit(data.target, background=data.background)
    >>> found = clvm.leakage(model, data.target, data.background, labels=data.target_labels)
    >>> bool(found.target_r2 < 0.1), bool(found.label_accuracy_of_target > 0.95)
    (True, True)
    """
    n_neighbors = check_integer("n_neighbors", n_neighbors, 1)
    facts, others = (
        {} if own is None else {"covariates": own} for own in (covariates, background_covariates)
    )
    ours = model.latents(X, **facts)
    theirs = model.latents(background, of="background", **others).shared
    fewest = min(len(ours.shared), len(theirs))
    if fewest < 2 * max(FOLDS, n_neighbors):
        raise ValueError(
            f"n_neighbors={n_neighbors} and {FOLDS} folds need at least "
            f"{2 * max(FOLDS, n_neighbors)} rows in each set, but one has {fewest}; use fewer "
            "neighbours."
        )
    found = latents_leakage(ours.target, ours.shared, theirs, n_neighbors, random_state)
    if labels is None:
        return found
    values, codes = np.unique(np.asarray(labels), return_inverse=True)
    if codes.shape != (len(ours.shared),) or len(values) < 2:
        raise ValueError(
            f"labels have shape {np.shape(labels)} and {len(values)} value(s), but need one for "
            f"each of the {len(ours.shared)} rows of X, and two values at least."
        )
    known = [_accuracy(h, codes, n_neighbors, random_state) for h in (ours.shared, ours.target)]
    chance = float(np.bincount(codes).max() / len(codes))
    return Leakage(found.set_auc, found.target_r2, known[0], known[1], chance)


def latents_leakage(
    t: Array, z: Array, other: Array, n_neighbors: int = 20, random_state: RandomState = 0
) -> Leakage:
    """Measure it without labels, from the latents of target rows and of background rows."""
    target_r2 = _predicted(z, t, n_neighbors, random_state)
    set_auc = told_apart(z, other, n_neighbors, random_state)
    return Leakage(set_auc, target_r2, None, None, None)


def judge_held_out(networks: "TrainedNetworks", held_out: "tuple[NetworkRows, ...]") -> HeldOut:
    """Measure leakage and gain on held-out rows, as the encoders alone see them."""
    n_held_out = min((rows.n_rows for rows in held_out), default=0)
    if n_held_out < LEAST_HELD_OUT:
        return HeldOut(None, np.nan, np.nan, np.nan, n_held_out)
    gain, error, background_gain = _gains(networks, held_out)
    h, other = (networks.latents(*pair)[0] for pair in zip(held_out, SETS, strict=True))
    some, t = slice(MOST_JUDGED), networks.architecture.n_target
    neighbors = min(20, n_held_out // 4)
    found = latents_leakage(h[some, :t], h[some, t:], other[some], neighbors)
    return HeldOut(found, gain, error, background_gain, n_held_out)


def describes_both_sets(fit: "NetworkFit") -> bool:
    """Tell whether target latents describe held-out rows of both sets; too few do not tell."""
    if min((rows.n_rows for rows in fit.held_out), default=0) < ENOUGH_HELD_OUT:
        return False
    gain, error, background_gain = _gains(fit.networks, fit.held_out)
    return gain < CLEAR * error or background_gain > MOST_SHARED * (gain + background_gain)


def _gains(
    networks: "TrainedNetworks", held_out: "tuple[NetworkRows, ...]"
) -> tuple[float, float, float]:
    """Return `target_gain_`, `target_gain_error_` and `background_gain_`."""
    target, background = (networks.target_gains(rows) for rows in held_out)
    error = np.sqrt(sum(own.var(ddof=1) / len(own) for own in (target, background)))
    return float(target.mean() - background.mean()), float(error), float(background.mean())


def check_held_out(state: Mapping[str, Any]) -> None:
    """Refuse values in a model file that held-out rows cannot have."""
    known = {
        "leakage": Check((Leakage,), "that of held-out rows", optional=True),
        "target_gain": number("any"),
        "target_gain_error": number("any"),
        "background_gain": number("any"),
        "n_held_out": whole(),
    }
    check_values(known, state)
    found = state["leakage"]
    if found is not None:
        if found[2:] != (None, None, None):
            raise ValueError("leakage is not that of held-out rows")
        check_values({"set_auc": number(), "target_r2": number()}, found)


def is_judged(model: Any) -> bool:
    """Tell whether enough rows were held out to judge a contrastive autoencoder."""
    return model.leakage_ is not None and model.n_held_out_ >= ENOUGH_HELD_OUT


def separation_warnings(model: Any) -> list[str]:
    """Return sentences about faults of a contrastive autoencoder that held-out rows show.

    Fewer than 100 held-out rows of a set are too few for that; the report says so.
    """
    found, gain = model.leakage_, model.target_gain_
    if not is_judged(model):
        return []
    said, second = [], model.n_shared_ > model.n_shared
    trainings = " in two trainings" if second else ""
    contrast = gain >= CLEAR * model.target_gain_error_  # else there is nothing to predict
    if found.set_auc > MOST_AUC or (contrast and found.target_r2 > MOST_R2):
        said.append(
            "the shared latents of held-out rows carry what only the target has: they separate "
            f"target and background rows with an area under the ROC curve of {found.set_auc:.2f} "
            f"(0.5 is clean) and predict {max(found.target_r2, 0.0):.0%} of the target latents' "
            f"variance; use a larger separation than {model.separation:g}, or more target "
            f"dimensions than {model.n_target_}."
        )
    if not contrast:
        once = not second and model.kl_warm_up == 0.0
        way_out = ", or a kl_warm_up above 0, with which fit may train twice" if once else ""
        said.append(
            "the target latents describe held-out rows of the background as well as those of the "
            f"target (a gain of {gain:.2g} nats per row, standard error "
            f"{model.target_gain_error_:.2g}), so no contrast was found{trainings}; use more "
            f"shared dimensions than {model.n_shared_}{way_out}, and ask contrast_test whether "
            "there is a contrast at all."
        )
    elif model.background_gain_ > MOST_SHARED * (gain + model.background_gain_):
        said.append(
            "the target latents carry what the background has too: they add "
            f"{gain + model.background_gain_:.3g} nats to a held-out row of the target and "
            f"{model.background_gain_:.3g} to one of the background{trainings}; use more shared "
            f"dimensions than {model.n_shared_}."
        )
    return said


def told_apart(
    z: Array, other: Array, n_neighbors: int = 20, random_state: RandomState = 0
) -> float:
    """Return the area under the ROC curve of telling two sets of rows apart by cross-validation."""
    h, belongs = np.vstack([z, other]), np.repeat([1, 0], [len(z), len(other)])
    folds = StratifiedKFold(FOLDS, shuffle=True, random_state=random_state)
    found = []
    for classifier in (KNeighborsClassifier(n_neighbors), LogisticRegression(max_iter=1000)):
        judge = make_pipeline(StandardScaler(), classifier)
        chance = cross_val_predict(judge, h, belongs, cv=folds, method="predict_proba")[:, 1]
        found.append(float(roc_auc_score(belongs, chance)))
    return max(0.5, *found)


def _predicted(z: Array, t: Array, n_neighbors: int, random_state: RandomState) -> float:
    folds = KFold(FOLDS, shuffle=True, random_state=random_state)
    judge = make_pipeline(StandardScaler(), KNeighborsRegressor(n_neighbors))
    guess = cross_val_predict(judge, z, t, cv=folds)
    return max(0.0, float(r2_score(t, guess, multioutput="variance_weighted")))


def _accuracy(h: Array, codes: np.ndarray, n_neighbors: int, random_state: RandomState) -> float:
    folds = KFold(FOLDS, shuffle=True, random_state=random_state)
    judge = make_pipeline(StandardScaler(), KNeighborsClassifier(n_neighbors))
    return float((cross_val_predict(judge, h, codes, cv=folds) == codes).mean())
