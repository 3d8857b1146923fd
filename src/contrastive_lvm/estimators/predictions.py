"""Applying a fitted model: latents, reconstructions, imputation, samples, scores."""

import warnings
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from contrastive_lvm.core import predict
from contrastive_lvm.core.covariance import Loadings, PackedCovariance
from contrastive_lvm.core.types import Array
from contrastive_lvm.estimators import resolve
from contrastive_lvm.estimators.validation import check_choice, check_whole, read_rows
from contrastive_lvm.inference.posterior import Posterior
from contrastive_lvm.likelihoods.gaussian import Gaussian
from contrastive_lvm.likelihoods.student_t import StudentT

SETS = ("target", "background")
PARTS = ("shared", "target")


class Latents(NamedTuple):
    """Posterior of the latents of rows; `target` is None for rows of the background."""

    target: Array | None  # (N, n_target) mean
    target_sd: Array | None  # (N, n_target) standard deviation
    shared: Array  # (N, n_shared)
    shared_sd: Array  # (N, n_shared)
    cov: Array  # (N, K, K), the target's columns first, then the shared ones


class Outliers(NamedTuple):
    """Weights of entries or rows, and their ranking from the most outlying on."""

    weights: Array  # (N, D) or (N, 1) E[u]; NaN where missing
    row_weights: Array  # (N,)
    rows: np.ndarray  # (N,) row indices
    entries: np.ndarray | None  # (M, 2) row and column of observed entries


def linear(p: Posterior, likelihood: Gaussian | StudentT, of: str) -> predict.Linear:
    """A set's view of the fitted model, the target's columns first."""
    k, t = p.shared_loadings.shape[1], p.target_loadings.shape[1]
    cov = None
    if p.loading_covariance is not None:
        cov = PackedCovariance(p.loading_covariance, np.zeros(len(p.target_mean)), k + t)
    loadings = Loadings(np.hstack([p.shared_loadings, p.target_loadings]), cov)
    mean = p.target_mean
    if of == "background":
        loadings, mean = loadings.leading(k), p.background_mean
    else:
        loadings = loadings.turned(np.roll(np.eye(k + t), t, axis=1))
    if isinstance(likelihood, Gaussian) or p.df is None:
        return predict.Linear(loadings, mean, p.noise_variance)
    return predict.Linear(
        loadings,
        mean,
        p.noise_variance,
        likelihood.scaler(p.df),
        likelihood.variance_factor(p.df),
        partial(likelihood.draw_scales, p.df),
    )


class Predictions(ClassNamePrefixFeaturesOutMixin, TransformerMixin):
    """The methods of a linear contrastive model that need only its `posterior_`.

    scikit-learn makes `set_output` work on the class that defines `transform`, so this one has to
    be the transformer.
    """

    likelihood: Any
    posterior_: Posterior
    n_target_: int
    n_shared_: int

    @property
    def _n_features_out(self) -> int:
        return int(self.n_target_)

    def _linear(self, of: str) -> predict.Linear:
        """The model of one set's rows; the target's columns come first."""
        check_is_fitted(self)
        check_choice("of", of, SETS)
        return linear(self.posterior_, resolve.likelihood(self.likelihood), of)

    def transform(self, X: Any) -> Array:
        """Posterior mean of the target latents of rows of the target.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n, d)

        Returns
        -------
        ndarray of shape (n, n_target)

        Examples
        --------
        >>> import contrastive_lvm as clvm
        >>> data = clvm.datasets.make_subgroups(random_state=0)
        >>> model = clvm.ContrastiveLVM().fit(data.target, background=data.background)
        >>> model.transform(data.target[:3]).round(2)
        array([[-0.99, -1.16],
               [-0.86, -0.38],
               [-0.89, -0.67]])
        """
        model = self._linear("target")
        return predict.latent_means(model, read_rows(self, X))[:, : self.n_target_]

    def latents(self, X: Any, *, of: str = "target") -> Latents:
        """Posterior of all latents of rows, with standard deviations and covariances.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n, d)
        of : {"target", "background"}
            Which set the rows belong to; rows of the background have no target part.

        Returns
        -------
        Latents
            Named tuple `target, target_sd, shared, shared_sd, cov`; `cov` has shape (n, K, K), the
            target's columns first, and is read-only when nothing is missing.

        Examples
        --------
        >>> import contrastive_lvm as clvm
        >>> data = clvm.datasets.make_subgroups(random_state=0)
        >>> model = clvm.ContrastiveLVM().fit(data.target, background=data.background)
        >>> latents = model.latents(data.target)
        >>> latents.target_sd[0].round(3), latents.cov.shape
        (array([0.181, 0.355]), (400, 12, 12))
        """
        model = self._linear(of)
        mean, cov = predict.latent_moments(model, read_rows(self, X))
        sd = np.sqrt(np.einsum("nkk->nk", cov))
        t = self.n_target_ if of == "target" else 0
        if of == "background":
            return Latents(None, None, mean, sd, cov)
        return Latents(mean[:, :t], sd[:, :t], mean[:, t:], sd[:, t:], cov)

    def inverse_transform(self, T: Any) -> Array:
        """Features from target latents: `mean_ + W t`.

        Examples
        --------
        >>> import contrastive_lvm as clvm
        >>> data = clvm.datasets.make_subgroups(random_state=0)
        >>> model = clvm.ContrastiveLVM().fit(data.target, background=data.background)
        >>> model.inverse_transform([[0.0, 0.0]]).shape
        (1, 30)
        """
        check_is_fitted(self)
        T = np.asarray(T, dtype=np.float64)
        if T.ndim != 2 or T.shape[1] != self.n_target_:
            raise ValueError(
                f"T has shape {T.shape}, but needs one column for each of the {self.n_target_} "
                "target dimensions; pass what transform returns."
            )
        inverse: Array = self.posterior_.target_mean + T @ self.posterior_.target_loadings.T
        return inverse

    def reconstruct(self, X: Any, *, parts: tuple[str, ...] = PARTS, of: str = "target") -> Array:
        """Model mean of rows from the named parts.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n, d)
        parts : tuple of {"shared", "target"}
            What to add to the mean: `S E[z]`, `W E[t]`. Rows of the background have no target part.
        of : {"target", "background"}

        Returns
        -------
        ndarray of shape (n, d)

        Examples
        --------
        >>> import contrastive_lvm as clvm
        >>> data = clvm.datasets.make_subgroups(random_state=0)
        >>> model = clvm.ContrastiveLVM().fit(data.target, background=data.background)
        >>> model.reconstruct(data.target, parts=("target",)).shape
        (400, 30)
        """
        chosen = (parts,) if isinstance(parts, str) else tuple(parts)
        for part in chosen:
            check_choice("parts", part, PARTS)
        model = self._linear(of)
        means = predict.latent_means(model, read_rows(self, X))
        t = self.n_target_ if of == "target" else 0
        keep = np.r_[np.full(t, "target" in chosen), np.full(self.n_shared_, "shared" in chosen)]
        reconstructed: Array = model.mean + (means * keep) @ model.L.T
        return reconstructed

    def denoise(self, X: Any) -> Array:
        """Rows of the target with the shared part removed, `x - S E[z | x]`.

        Missing entries come back filled: `mean_ + W E[t | x]`.

        Examples
        --------
        >>> import contrastive_lvm as clvm
        >>> data = clvm.datasets.make_subgroups(random_state=0)
        >>> model = clvm.ContrastiveLVM().fit(data.target, background=data.background)
        >>> float(model.denoise(data.target).var() / data.target.var()) < 0.2
        True
        """
        model = self._linear("target")
        rows = read_rows(self, X)
        filled, _ = predict.fill(model, rows, with_std=False)
        shared = predict.latent_means(model, rows)[:, self.n_target_ :]
        denoised: Array = filled - shared @ self.posterior_.shared_loadings.T
        return denoised

    def impute(
        self, X: Any, *, of: str = "target", return_std: bool = False
    ) -> Array | tuple[Array, Array]:
        """X with its NaN replaced by their conditional means.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n, d)
        of : {"target", "background"}
        return_std : bool
            Also return the conditional standard deviations, zero for observed entries.

        Returns
        -------
        ndarray of shape (n, d), or two of them

        Examples
        --------
        >>> import numpy as np
        >>> import contrastive_lvm as clvm
        >>> data = clvm.datasets.make_subgroups(random_state=0)
        >>> model = clvm.ContrastiveLVM().fit(data.target, background=data.background)
        >>> row = data.target[:1].copy()
        >>> row[0, 0] = np.nan
        >>> filled, std = model.impute(row, return_std=True)
        >>> bool(np.isnan(filled).any()), float(std[0, 0].round(1))
        (False, 1.8)
        """
        model = self._linear(of)
        filled, std = predict.fill(model, read_rows(self, X), with_std=return_std)
        return filled if std is None else (filled, std)

    def sample(self, n: int, *, of: str = "target", random_state: Any = None) -> Array:
        """Draw new rows from the model.

        Parameters
        ----------
        n : int
        of : {"target", "background", "denoised"}
            `"denoised"` draws `mean_ + W t + noise`, the target without the shared part.
        random_state : int, RandomState instance or None

        Returns
        -------
        ndarray of shape (n, d)

        Examples
        --------
        >>> import contrastive_lvm as clvm
        >>> data = clvm.datasets.make_subgroups(random_state=0)
        >>> model = clvm.ContrastiveLVM().fit(data.target, background=data.background)
        >>> model.sample(5, of="denoised", random_state=0).shape
        (5, 30)
        """
        check_choice("of", of, (*SETS, "denoised"))
        model = self._linear("target" if of == "denoised" else of)
        n = check_whole("n", n, 1)
        rng = check_random_state(random_state)
        return predict.draw(model, n, rng, active=self.n_target_ if of == "denoised" else None)

    def outliers(self, X: Any, *, of: str = "target") -> Outliers:
        """How much each row and entry is trusted, and which are trusted least.

        Under Student-t noise the weight `E[u]` of an entry (or row) is near 1 where the model fits
        and near 0 for outliers; with Gaussian noise all weights are 1 and rows rank by their
        log-likelihood.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n, d)
        of : {"target", "background"}

        Returns
        -------
        Outliers
            Named tuple `weights, row_weights, rows, entries`: weights of entries, (n, d), or of
            rows, (n, 1); their means over the observed entries of each row; rows from the most to
            the least outlying; and (row, column) of entries in the same order (None unless
            weights belong to entries).

        Examples
        --------
        >>> import contrastive_lvm as clvm
        >>> data = clvm.datasets.make_outliers(random_state=0)
        >>> model = clvm.ContrastiveLVM(2, 8, likelihood="student_t")
        >>> model = model.fit(data.target, background=data.background)
        >>> worst = model.outliers(data.target).rows[:20]
        >>> bool((data.target_labels[worst] == -1).all())
        True
        """
        model, rows = self._linear(of), read_rows(self, X)
        weights = predict.scale_weights(model, rows)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # rows without an observed entry
            row_weights = np.nan_to_num(np.nanmean(weights, axis=1), nan=1.0)
        if model.scaler is None:
            ranked = np.argsort(predict.log_likelihoods(model, rows), kind="stable")
        else:
            ranked = np.argsort(row_weights, kind="stable")
        entries = None
        if weights.shape[1] == rows.shape[1] and model.scaler is not None:
            order = np.argsort(np.nan_to_num(weights, nan=np.inf), axis=None, kind="stable")
            order = order[: int(np.isfinite(weights).sum())]
            entries = np.column_stack(np.unravel_index(order, weights.shape))
        return Outliers(weights, row_weights, ranked, entries)

    def score_samples(self, X: Any, *, of: str = "target") -> Array:
        """Log-likelihood of each row's observed entries, latents integrated out.

        Exact for Gaussian noise and point loadings; under Student-t noise or variational Bayes
        the row's part of the bound, which is below it.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n, d)
        of : {"target", "background"}

        Returns
        -------
        ndarray of shape (n,)

        Examples
        --------
        >>> import contrastive_lvm as clvm
        >>> data = clvm.datasets.make_subgroups(random_state=0)
        >>> model = clvm.ContrastiveLVM().fit(data.target, background=data.background)
        >>> both = model.score_samples(data.target).sum()
        >>> both += model.score_samples(data.background, of="background").sum()
        >>> bool(abs(both - model.bound_) < 1e-6)
        True
        """
        model = self._linear(of)
        return predict.log_likelihoods(model, read_rows(self, X))

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Mean (or weighted mean) log-likelihood of rows of the target.

        Examples
        --------
        >>> import contrastive_lvm as clvm
        >>> data = clvm.datasets.make_subgroups(random_state=0)
        >>> model = clvm.ContrastiveLVM().fit(data.target, background=data.background)
        >>> round(model.score(data.target), 1)
        -73.2
        """
        return float(np.average(self.score_samples(X), weights=sample_weight))
