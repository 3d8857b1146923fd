"""Short summaries of fitted estimators, for notebooks and the command line."""

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from contrastive_lvm.arrays import Array

if TYPE_CHECKING:
    from contrastive_lvm.estimators.base_estimator import Estimator

TOP = 5  # features that are named for a dimension


class Share(NamedTuple):
    """A part of the target's modelled variance."""

    part: str
    share: float


class Dimension(NamedTuple):
    """A dimension of the target and the features that it moves most."""

    name: str
    share: float | None  # None where it is not known without data
    features: list[tuple[str, float]]  # names and loadings, the largest first


class Summary(NamedTuple):
    """A fit in sentences, shares and dimensions."""

    data: str
    model: str
    ended: str
    converged: bool
    shares: list[Share]
    dimensions: list[Dimension]


def summary(model: "Estimator", *, dimensions: int, top: int = TOP) -> Summary:
    """Summarise a fitted estimator, with one entry for each of its first dimensions.

    Examples
    --------
    >>> import contrastive_lvm as clvm
    >>> data = clvm.datasets.make_subgroups(random_state=0)
    >>> model = clvm.ContrastiveLVM(1).fit(data.target, background=data.background)
    >>> found = summary(model, dimensions=1, top=1)
    >>> found.data
    'fitted to 400 target and 400 background rows of 30 features'
    >>> [share.part for share in found.shares]
    ['target', 'shared', 'noise']
    """
    loadings = target_loadings(model, dimensions)
    converged = bool(getattr(model, "converged_", True))
    return Summary(
        data=f"fitted to {_rows(model)}{int(model.n_features_in_):,} features",
        model=_model(model),
        ended=_ended(model, converged=converged),
        converged=converged,
        shares=_shares(model),
        dimensions=_dimensions(model, loadings, top),
    )


def target_loadings(model: Any, dimensions: int | None = None) -> Array:
    """Return the loadings of the target dimensions, or of all blocks, (K, D).

    For networks, return half of the change when a dimension goes from -1 to 1.
    """
    for name in ("target_components_", "components_"):
        if hasattr(model, name):
            found = getattr(model, name)
            blocks = list(found.values()) if isinstance(found, dict) else [found]
            linear: Array = np.concatenate(blocks)[:dimensions]
            return linear
    steps = np.eye(model.network_.architecture.n_target)[:dimensions]
    moved: Array = 0.5 * (model.inverse_transform(steps) - model.inverse_transform(-steps))
    return moved


def n_dimensions(model: Any) -> int:
    """Return how many dimensions `summary` has a line for."""
    if hasattr(model, "blocks_"):
        return sum(block.n_components for block in model.blocks_.values())
    return int(model._n_features_out)


def leading(loadings: Array, top: int, weights: Array | float = 1.0) -> list[int]:
    """Return the positions of the nonzero loadings with the largest weighted sizes.

    >>> leading(np.array([0.0, -3.0, 1.0]), 5)
    [1, 2]
    """
    order = np.argsort(-weights * np.abs(loadings), kind="stable")[:top]
    return [int(i) for i in order if loadings[i] != 0]


def ranking_weights(model: Any, n_features: int) -> Array:
    """Return what loadings are multiplied by when features are ranked by them, (D,).

    Loadings in the units of the data are ranked as they are. A loading on a log rate or log odds
    says little where counts are rare: the rows see it through the Fisher information of an entry,
    `-E[d^2 ln p / d e^2]` for the predictor e, whose root at the mean row is the weight. It is
    `sqrt(rate)` for Poisson counts, `sqrt(p (1 - p))` for binary entries, and one over the noise
    deviation for the measurements beside them.
    """
    if not hasattr(model, "_fitted_model"):
        return np.ones(n_features)
    posterior, likelihood = model.posterior_, model._fitted_model().likelihood
    if likelihood._is_on_data_scale(n_features).all():
        return np.ones(n_features)
    found = []
    for name, mean in posterior.means.items():
        m, v, nuisance = mean[None], np.zeros((1, n_features)), posterior.nuisance_of(name)
        typical = likelihood.response(m, v, nuisance)[0]
        found.append(likelihood._expected(typical, m, v, nuisance, whole=False).curvature[0])
    weights: Array = np.sqrt(np.mean(found, axis=0))
    return weights


def ending(iterations: int, *, converged: bool, unit: str = "iteration") -> str:
    """Describe how a fit ended.

    >>> ending(1, converged=True, unit="sweep")
    'converged after 1 sweep'
    >>> ending(2000, converged=False)
    'stopped after 2,000 iterations, before it converged'
    """
    number = f"{iterations:,} {unit}{'' if iterations == 1 else 's'}"
    return (
        f"converged after {number}" if converged else f"stopped after {number}, before it converged"
    )


def _rows(model: "Estimator") -> str:
    n, m = getattr(model, "n_samples_", None), getattr(model, "n_background_samples_", None)
    if hasattr(model, "set_sizes_"):
        return f"{n:,} rows of {len(model.set_sizes_)} sets, "
    if n is None:  # read from a file of an earlier version
        return ""
    return f"{n:,} rows of " if m is None else f"{n:,} target and {m:,} background rows of "


def _model(model: "Estimator") -> str:
    size = size_of(model)
    if hasattr(model, "likelihood"):
        return f"{size}, {short(model.likelihood)}"
    return f"{size}, contrast alpha {model.alpha_:.3g}" if hasattr(model, "alpha_") else size


def size_of(model: Any) -> str:
    """Return how many dimensions of each kind a model has."""
    if hasattr(model, "blocks_"):
        return ", ".join(f"{block.n_components} {name}" for name, block in model.blocks_.items())
    if not hasattr(model, "n_target_"):
        return f"{model._n_features_out} dimensions"
    n_background = getattr(model, "n_background_", 0)
    if not n_background:
        return f"{model.n_target_} target and {model.n_shared_} shared dimensions"
    rest = f"{model.n_shared_} shared and {n_background} background dimensions"
    return f"{model.n_target_} target, {rest}"


def short(likelihood: object) -> str:
    """Return a likelihood as it is written, or its name if that would be long."""
    text = likelihood if isinstance(likelihood, str) else repr(likelihood)
    return text if len(text) < 75 else type(likelihood).__name__


def _ended(model: Any, *, converged: bool) -> str:
    if not hasattr(model, "n_iter_"):
        return "solved in closed form"
    network = hasattr(model, "network_")
    how = ending(int(model.n_iter_), converged=converged, unit="epoch" if network else "sweep")
    if not converged:
        how += f"; {_way_out(model, network=network)}"
    return f"{how}; bound {_thousands(float(model.lower_bound_))}"


def _way_out(model: "Estimator", *, network: bool) -> str:
    if network:
        return "go on with fit(..., resume=model.state_), or lower learning_rate"
    if getattr(getattr(model, "posterior_", None), "draws", None) is not None:
        return "raise n_warmup and n_draws"
    return "raise max_iter or use fewer dimensions"


def _thousands(value: float) -> str:
    return f"{value:,.1f}".replace("-", "\N{MINUS SIGN}")


def _shares(model: Any) -> list[Share]:
    if hasattr(model, "target_variance_ratio_"):
        return [
            Share("target", float(model.target_variance_ratio_.sum())),
            Share("shared", float(model.shared_variance_ratio_.sum())),
            Share("noise", float(model.noise_variance_ratio_)),
        ]
    if hasattr(model, "variance_ratio_"):
        mean = model.variance_ratio_.mean()
        return [
            Share("dimensions", 1.0 - float(mean.iloc[-1])),
            Share("noise", float(mean.iloc[-1])),
        ]
    if hasattr(model, "explained_variance_ratio_"):
        explained = float(model.explained_variance_ratio_.sum())
        return [Share("dimensions", explained), Share("noise", 1.0 - explained)]
    return []


def _dimensions(model: "Estimator", loadings: Array, top: int) -> list[Dimension]:
    shares = getattr(model, "target_variance_ratio_", None)
    shares = getattr(model, "explained_variance_ratio_", None) if shares is None else shares
    names = getattr(model, "feature_names_in_", [f"x{i}" for i in range(loadings.shape[1])])
    numbers = [f"{k + 1}" for k in range(len(loadings))]
    if hasattr(model, "blocks_"):
        sizes = [(b, block.n_components) for b, block in model.blocks_.items()]
        numbers = [f"{b} {k + 1}" for b, n in sizes for k in range(n)]
    weights = ranking_weights(model, loadings.shape[1])
    return [
        Dimension(
            name=numbers[k],
            share=None if shares is None else float(shares[k]),
            features=[(str(names[i]), float(row[i])) for i in leading(row, top, weights)],
        )
        for k, row in enumerate(loadings)
    ]
