"""Contrastive PCA (Abid et al. 2018), the baseline that needs a contrast parameter."""

import warnings
from typing import Any, NamedTuple, Self

import numpy as np
import scipy.linalg

from contrastive_lvm.arrays import EPS, Array
from contrastive_lvm.checks import check_integer, check_number
from contrastive_lvm.estimators.base_estimator import all_or_nothing
from contrastive_lvm.estimators.contrastive_projection import (
    ContrastiveProjection,
    check_projection_memory,
)
from contrastive_lvm.estimators.input_rows import check_variances
from contrastive_lvm.io.model_files import SavedState
from contrastive_lvm.io.value_checks import array, check_values, number
from contrastive_lvm.linalg.gauge import signed
from contrastive_lvm.rows.gram_trick import reduce_to_span
from contrastive_lvm.rows.reader import LocalRows, RowReader, Rows
from contrastive_lvm.rows.scatter import first_pass

GRID = np.concatenate([[0.0], np.logspace(-1, 3, 40)])  # the cPCA paper's
N_CANDIDATES = 4  # weights that are proposed, as in the authors' package


LEARNED = {
    "alphas": array("alphas", values="not negative"),
    "alphas_components": array("alphas", "components", "D"),
    "mean": array("D"),
    "scale": array("D", values="positive"),
    "alpha": number("not negative"),
}


class ContrastivePCA(ContrastiveProjection):
    """Directions of large variance in the target and small variance in the background.

    The components are the leading eigenvectors of `cov(target) - alpha cov(background)` (Abid et
    al. 2018; eq. 1 of Severson, Ghosh & Ng 2019). With `alpha="auto"` the subspaces of a
    logarithmic grid of 40 values and 0 are compared by the product of the cosines of their
    principal angles and grouped by spectral clustering; the medoid of each group is a candidate,
    kept in `alphas_`. The cPCA paper leaves the choice among them to the user. Here the candidate
    with the largest sum over components of `(t - b)^2 / (t + b)` is chosen, where t and b are the
    variances of target and background along the component.

    Parameters
    ----------
    n_components : int
    alpha : "auto" or float
        Weight of the background; 0 is PCA of the target.
    scale : bool
        Divide each feature by its standard deviation over both sets (each about its mean).

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_features)
        Orthonormal rows, the largest entry of each positive.
    alpha_ : float
        The weight in use.
    alphas_ : ndarray
        All candidates, ascending; `[alpha_]` when alpha was given.
    alphas_components_ : ndarray of shape (n_candidates, n_components, n_features)
        Their components.
    mean_, scale_ : ndarray of shape (n_features,)
        `transform` subtracts `mean_` from new rows and divides them by `scale_`.
    n_samples_, n_background_samples_ : int
        Rows of the two sets.
    n_features_in_, feature_names_in_
        As in scikit-learn.

    Examples
    --------
    >>> import contrastive_lvm as clvm
    >>> data = clvm.datasets.make_subgroups(random_state=0)
    >>> model = clvm.ContrastivePCA(n_components=2).fit(data.target, background=data.background)
    >>> model.transform(data.target).shape, model.components_.shape, len(model.alphas_)
    ((400, 2), (2, 30), 4)
    """

    def __init__(
        self, n_components: int = 2, *, alpha: str | float = "auto", scale: bool = False
    ) -> None:
        self.n_components = n_components
        self.alpha = alpha
        self.scale = scale

    @all_or_nothing
    def fit(self, X: Any, y: object = None, *, background: Any = None) -> Self:
        """Fit the components to a target set and a background; neither may contain NaN.

        Several backgrounds may be passed as a dict by name. `cov(background)` is then the mean of
        their covariances, whatever their numbers of rows.
        """
        q = check_integer("n_components", self.n_components, 1)
        alpha = _check_alpha(self.alpha)
        sets = self._read_sets(X, y, background)
        n_rows, n_features = sum(rows.shape[0] for rows in sets), self.n_features_in_
        most = min(n_features, n_rows - len(sets))
        if q > most:
            raise ValueError(
                f"n_components={q} must be at most {most}, the smaller of the number of features "
                "and the number of rows minus the number of sets; use fewer."
            )
        contrast = _contrast(sets, scale=self.scale)
        self.mean_, self.scale_ = contrast.mean, contrast.scale
        self._choose(contrast, alpha, q)
        return self

    def _choose(self, contrast: "_Contrast", alpha: float | None, q: int) -> None:
        grid = GRID if alpha is None else np.array([alpha])
        spaces = [contrast.leading(a, q) for a in grid]
        candidates = _medoids(spaces) if alpha is None else [0]
        self.alphas_ = grid[candidates]
        self.alphas_components_ = np.array([contrast.lift(spaces[i]).T for i in candidates])
        best = int(np.argmax([contrast.merit(spaces[i]) for i in candidates]))
        self.alpha_, self.components_ = float(self.alphas_[best]), self.alphas_components_[best]

    def _fitted_state(self) -> dict[str, object]:
        return {name: getattr(self, f"{name}_") for name in LEARNED}

    def _check_state(self, state: SavedState) -> None:
        check_values(LEARNED, state, {"D": self.n_features_in_})
        alphas, components = state["alphas"], state["alphas_components"]
        if state["alpha"] not in alphas or not components.shape[1]:
            raise ValueError(f"alpha={state['alpha']} has no components")
        check_integer("n_components", self.n_components, 1)
        _check_alpha(self.alpha)

    def _restore(self, state: SavedState) -> None:
        for name, value in state.items():
            setattr(self, f"{name}_", value)
        self.components_ = self.alphas_components_[list(self.alphas_).index(self.alpha_)]


class _Contrast(NamedTuple):
    """The two covariances, in the span of the rows where those are fewer than the features."""

    covariances: tuple[Array, Array]
    mean: Array  # (D,) of the target
    scale: Array  # (D,)
    basis: Array | None  # (D, r)

    def leading(self, alpha: float, q: int) -> Array:
        """Return the leading eigenvectors of the contrast, (r, q)."""
        target, background = self.covariances
        C = target - alpha * background
        last = len(C) - 1
        _, V = scipy.linalg.eigh(C, subset_by_index=(last - q + 1, last))
        leading: Array = V[:, ::-1]
        return leading

    def lift(self, V: Array) -> Array:
        """Return components over the features, (D, q)."""
        return signed(V if self.basis is None else self.basis @ V)

    def merit(self, V: Array) -> float:
        """Return the sum over components of `(t - b)^2 / (t + b)`, t and b variances of the sets.

        This is the variance of the target times the squared contrast. The difference of variances
        alone would favour shared directions of large variance that differ by chance, and their
        ratio tiny ones. Directions in which neither set varies, except by rounding, count zero.
        """
        t, b = (np.einsum("ij,ik,kj->j", V, C, V) for C in self.covariances)
        rounding = len(V) * EPS * sum(map(np.trace, self.covariances))
        varies = t + b > rounding
        excess = np.where(varies, np.maximum(t - b, 0.0), 0.0)
        return float((excess / np.where(varies, t + b, 1.0) * excess).sum())


@np.errstate(over="ignore", invalid="ignore")  # an overflow shows as a variance that is not finite
def _contrast(sets: list[Rows], *, scale: bool) -> _Contrast:
    n_rows, D = sum(rows.shape[0] for rows in sets), sets[0].shape[1]
    in_span = n_rows < D and not scale
    numbers = n_rows * (2 * n_rows + D) if in_span else 5 * D * D
    check_projection_memory(sets, numbers)
    if in_span:
        span = reduce_to_span([X.load() if isinstance(X, RowReader) else X for X in sets])
        first, second = _target_and_background([s.matrix / s.n_rows for s in span.scatters])
        basis = span.lift(np.eye(len(first)))
        traces = [float(np.trace(C)) for C in (first, second)]
        check_variances(np.diag(first + second), [np.zeros(1)], traces)
        return _Contrast((first, second), span.means[0], np.ones(D), basis)
    readers = (X if isinstance(X, RowReader) else LocalRows(X) for X in sets)
    found = [first_pass(rows, scatter=True) for rows in readers]
    pooled: Array = np.sum([m.square for m in found], axis=0) / n_rows
    totals = [float(m.square.sum() / m.n_rows) for m in found]
    check_variances(pooled, [m.mean for m in found], totals)
    divisor = np.sqrt(np.where(pooled > 0, pooled, 1.0)) if scale else np.ones(D)
    units = np.outer(divisor, divisor)
    first, second = _target_and_background([m.scatter / m.n_rows / units for m in found])
    return _Contrast((first, second), found[0].mean, divisor, None)


def _target_and_background(covariances: list[Array]) -> tuple[Array, Array]:
    return covariances[0], np.mean(covariances[1:], axis=0)


def _medoids(spaces: list[Array]) -> list[int]:
    """Return the indices of the most central subspace of each cluster, ascending."""
    from sklearn.cluster import SpectralClustering  # importing it takes a third of a second

    affinity = np.array([[_alikeness(U, V) for V in spaces] for U in spaces])
    affinity = np.maximum((affinity + affinity.T) / 2.0, 1e-6)  # keeps the graph connected
    clusters = SpectralClustering(N_CANDIDATES, affinity="precomputed", random_state=0)
    with warnings.catch_warnings():  # if ARPACK fails, another solver takes over
        warnings.simplefilter("ignore", RuntimeWarning)
        labels = clusters.fit_predict(affinity)
    chosen = []
    for label in np.unique(labels):
        members = np.flatnonzero(labels == label)
        centrality = affinity[np.ix_(members, members)].sum(axis=1)
        chosen.append(int(members[np.argmax(centrality)]))
    return sorted(chosen)


def _alikeness(U: Array, V: Array) -> float:
    """Return the product of the cosines of the principal angles between two subspaces."""
    return float(np.prod(np.linalg.svd(U.T @ V, compute_uv=False).clip(0.0, 1.0)))


def _check_alpha(alpha: object) -> float | None:
    """Return a given weight, or None for the automatic choice."""
    if isinstance(alpha, str) and alpha == "auto":
        return None
    most = float(np.finfo(np.float64).max)
    return check_number("alpha", alpha, 0.0, most, "'auto' or a non-negative number")
