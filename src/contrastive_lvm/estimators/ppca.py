"""Probabilistic PCA, the baseline that the contrastive model extends."""

import warnings
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.sparse.linalg import LinearOperator, eigsh
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from contrastive_lvm import prediction
from contrastive_lvm.arrays import Array
from contrastive_lvm.checks import RandomState, check_integer
from contrastive_lvm.coordinate_ascent.em import EM
from contrastive_lvm.estimators.base_estimator import Estimator, all_or_nothing
from contrastive_lvm.estimators.frames import RowNumbers, follows_output
from contrastive_lvm.estimators.input_rows import (
    by_chunks,
    check_latents,
    check_variances,
    mean_score,
    read_rows,
    refuse_too_many_dimensions,
    rows_for_fit,
)
from contrastive_lvm.io.model_files import SavedState
from contrastive_lvm.io.value_checks import array, check_values, flag, number, whole
from contrastive_lvm.likelihoods.base import FLOOR
from contrastive_lvm.linalg.gauge import canonical
from contrastive_lvm.linalg.loadings import Loadings
from contrastive_lvm.model import LoadingBlock, Model
from contrastive_lvm.rows.data import Data
from contrastive_lvm.rows.scatter import DenseScatter, Scatter

LEARNED = {
    "components": array("components", "D"),
    "mean": array("D"),
    "noise_variance": number("positive"),
    "lower_bound": number(),
    "n_iter": whole(1),
    "converged": flag(),
}


class PPCA(Estimator):
    """Probabilistic PCA: `x = W t + mean + noise` with isotropic Gaussian noise.

    The fit has a closed form for complete data (Tipping & Bishop 1999, eqs. 7-8): with the
    eigenpairs of the sample covariance, `sigma^2` is the mean of the discarded eigenvalues and
    `W = U (lambda - sigma^2)^1/2`. With missing entries (NaN) the model is fitted by exact EM.

    Parameters
    ----------
    n_components : int
        Latent dimensions.
    max_iter, tol : int, float
        Stopping rule of EM, used only when entries are missing (see `EM`).

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_features)
        Loadings `W'`: orthogonal rows ordered by variance, scaled by it (not unit vectors), the
        largest loading of each positive.
    mean_ : ndarray of shape (n_features,)
    noise_variance_ : float
    explained_variance_ratio_ : ndarray of shape (n_components,)
        Share of each component in the modelled variance; the rest is noise.
    lower_bound_ : float
        Log-likelihood of the data.
    n_iter_ : int
        Number of sweeps of EM; 1 for the closed form.
    converged_ : bool
        Whether EM met its stopping rule; True for the closed form.
    n_samples_ : int
        Number of rows.
    n_features_in_, feature_names_in_
        As in scikit-learn.

    Examples
    --------
    >>> import contrastive_lvm as clvm
    >>> data = clvm.datasets.make_subgroups(random_state=0)
    >>> model = clvm.PPCA(n_components=2)
    >>> latents = model.fit_transform(data.target)
    >>> latents.shape, model.components_.shape, model.inverse_transform(latents).shape
    ((400, 2), (2, 30), (400, 30))
    >>> bool(abs(model.score_samples(data.target).sum() - model.lower_bound_) < 1e-6)
    True
    >>> round(model.score(data.target), 1), model.sample(3, random_state=0).shape
    (-95.6, (3, 30))
    >>> data.target[0, 0] = float("nan")
    >>> filled, std = model.impute(data.target, return_std=True)
    >>> bool(std[0, 0] > 0), bool(std[0, 1] == 0)
    (True, True)
    """

    def __init__(self, n_components: int = 2, *, max_iter: int = 2000, tol: float = 1e-6) -> None:
        self.n_components = n_components
        self.max_iter = max_iter
        self.tol = tol

    @all_or_nothing
    def fit(self, X: Any, y: object = None) -> Self:
        """Fit the model to rows, which may contain NaN."""
        q = check_integer("n_components", self.n_components, 1)
        engine = EM(max_iter=self.max_iter, tol=self.tol)
        rows = rows_for_fit(self, X)
        refuse_too_many_dimensions({"n_components": q}, [rows])
        model = Model(("rows",), (LoadingBlock("components", q, ("rows",)),))
        data = engine._prepare(model, [rows])
        check_variances(data.variance, [data.sets[0].mean])
        if data.complete:
            self._fit_closed_form(data, q)
        else:
            self._fit_em(engine, model, data)
        self.n_samples_ = int(rows.shape[0])
        return self

    def _fit_em(self, engine: EM, model: Model, data: Data) -> None:
        posterior = engine._run(model, data)
        if not posterior.converged:
            warnings.warn(
                f"EM stopped after max_iter={self.max_iter} sweeps before its gain fell below "
                f"tol={self.tol}; raise max_iter.",
                ConvergenceWarning,
                stacklevel=4,
            )
        psi = float(posterior.noise_variance[0])
        self._publish(posterior.loadings["components"], posterior.means["rows"], psi)
        self.lower_bound_, self.n_iter_ = posterior.lower_bound, posterior.n_iter
        self.converged_ = posterior.converged

    def _fit_closed_form(self, data: Data, q: int) -> None:
        scatter: Any = data.sets[0]
        n, d = scatter.n_rows, data.n_features
        values, U = _leading(scatter, q)
        total = float(scatter.square.sum()) / n
        noise = max((total - float(values.sum())) / (d - q), FLOOR * total / d)
        W = U * np.sqrt(np.maximum(values - noise, 0.0))
        mean, psi = scatter.mean, np.full(len(U), noise)
        self.lower_bound_, self.n_iter_ = scatter.statistics(Loadings(W), psi, mean).bound, 1
        if data.span is not None:
            W, mean = data.span.lift(W), data.span.means[0]
        self._publish(canonical(W), mean, noise)
        self.converged_ = True

    def _publish(self, W: Array, mean: Array, noise_variance: float) -> None:
        W = np.ascontiguousarray(W)
        self.components_, self.mean_, self.noise_variance_ = W.T.copy(), mean, noise_variance
        variance = (W**2).sum(axis=0)
        self.explained_variance_ratio_ = variance / (variance.sum() + noise_variance * len(W))

    @property
    def _n_features_out(self) -> int:
        return len(self.components_)

    def _linear(self) -> prediction.Linear:
        check_is_fitted(self)
        psi = np.full(len(self.mean_), self.noise_variance_)
        loadings = Loadings(np.ascontiguousarray(self.components_.T))
        return prediction.Linear(loadings, self.mean_, psi)

    @by_chunks
    def transform(self, X: Any) -> Array:
        """Return the posterior mean of the latents, (n, n_components)."""
        return prediction.latent_means(self._linear(), read_rows(self, X))

    @follows_output
    def inverse_transform(self, T: ArrayLike) -> Array:
        """Return features from latents: `mean_ + W t`."""
        model = self._linear()
        inverse: Array = model.mean + check_latents(T, model.L.shape[1]) @ model.L.T
        return inverse

    @follows_output
    @by_chunks
    def impute(self, X: Any, *, return_std: bool = False) -> Array | tuple[Array, Array]:
        """Return X with its NaN replaced by conditional means (and their standard deviations)."""
        filled, std = prediction.fill(self._linear(), read_rows(self, X), with_std=return_std)
        return filled if std is None else (filled, std)

    @follows_output
    def sample(self, n_samples: int, *, random_state: RandomState = None) -> Array:
        """Draw new rows from the model."""
        model, rng = self._linear(), check_random_state(random_state)
        n = check_integer("n_samples", n_samples, 1)
        return prediction.draw(model, n, rng)

    @by_chunks
    def score_samples(self, X: Any) -> Array:
        """Return the exact log-likelihood of each row's observed entries."""
        return prediction.log_likelihoods(self._linear(), read_rows(self, X))

    def score(self, X: Any, y: object = None, sample_weight: RowNumbers = None) -> float:
        """Return the mean (or weighted mean) log-likelihood of rows."""
        return mean_score(self.score_samples(X), sample_weight)

    def _fitted_state(self) -> dict[str, object]:
        return {name: getattr(self, f"{name}_") for name in LEARNED}

    def _check_state(self, state: SavedState) -> None:
        check_values(LEARNED, state, {"D": self.n_features_in_})
        if not len(state["components"]):
            raise ValueError("components is empty")
        check_integer("n_components", self.n_components, 1)
        EM(max_iter=self.max_iter, tol=self.tol)

    def _restore(self, state: SavedState) -> None:
        self._publish(state["components"].T, state["mean"], state["noise_variance"])
        self.lower_bound_, self.n_iter_ = state["lower_bound"], state["n_iter"]
        self.converged_ = state["converged"]


def _leading(scatter: Scatter, q: int) -> tuple[Array, Array]:
    """Return the leading eigenpairs of the covariance, descending."""
    if isinstance(scatter, DenseScatter):
        values, U = np.linalg.eigh(scatter.matrix / scatter.n_rows)
    else:
        d = len(scatter.mean)
        operator = LinearOperator(
            (d, d),
            matvec=lambda v: scatter.product(v.reshape(-1, 1)).ravel() / scatter.n_rows,
            dtype=np.float64,
        )
        start = np.random.default_rng(0).standard_normal(d)
        values, U = eigsh(operator, k=q, v0=start)
    order = np.argsort(values)[::-1][:q]
    return values[order], U[:, order]
