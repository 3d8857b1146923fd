"""The methods that apply a fitted linear model to rows."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils import check_random_state

from contrastive_lvm import prediction
from contrastive_lvm.arrays import Array, Covariates, Matrix
from contrastive_lvm.checks import RandomState, check_choice, check_integer
from contrastive_lvm.estimators.frames import RowNumbers, follows_output
from contrastive_lvm.estimators.input_rows import by_chunks, check_latents, mean_score
from contrastive_lvm.estimators.linear_estimator import (
    LinearEstimator,
    kept_latents,
    remove_blocks,
    trust_in_rows,
)
from contrastive_lvm.estimators.prediction_model import (
    BackgroundLatents,
    Latents,
    Outliers,
    RowFacts,
    ranked,
)
from contrastive_lvm.estimators.units import log_volumes

SETS = ("target", "background")
PARTS = ("shared", "target", "background", "covariates")


class LinearPredictions(LinearEstimator):
    """The methods of a linear contrastive model that need only its `posterior_`.

    Likelihoods of counts and of binary data have a normal approximation to the posterior of each
    row's latents (`rows.gaussian_vi_rows`), and predict on the data's scale.
    """

    n_background_samples_: int | None
    n_target_: int
    n_shared_: int

    @property
    def _n_features_out(self) -> int:
        return int(self.n_target_)

    def _rows(self, X: Any, of: str, facts: RowFacts) -> tuple[prediction.View, Matrix]:
        """Return the model of a set, the target's columns first, and its rows, checked."""
        check_choice("of", of, SETS)
        rows = self._read(X)
        return self._fitted().for_rows(of, rows, facts), rows

    @by_chunks
    def transform(
        self, X: Any, *, size_factors: RowNumbers = None, covariates: Covariates = None
    ) -> Array:
        """Return the posterior means of the target latents of rows of the target.

        Latents have unit variance. Latents of `Poisson` and `NegativeBinomial` fits by `EM` and
        `VariationalBayes` are in units of the standard errors with which a row with average counts
        shows them, so that distances between rows compare differences with their errors.
        `posterior_.latent_scales("target")` has their standard deviations.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n, d)
        size_factors, covariates : optional, as in `fit`

        Returns
        -------
        ndarray of shape (n, n_target)

        Examples
        --------
        >>> import contrastive_lvm as clvm
        >>> data = clvm.datasets.make_subgroups(random_state=0)
        >>> model = clvm.ContrastiveLVM().fit(data.target, background=data.background)
        >>> model.transform(data.target[:3]).round(2)
        array([[-0.94, -1.22],
               [-0.87, -0.39],
               [-0.83, -0.68]])
        """
        model, rows = self._rows(X, "target", RowFacts(size_factors, covariates))
        return prediction.latent_means(model, rows)[:, : self.n_target_]

    def latents(
        self,
        X: Any,
        *,
        of: str = "target",
        size_factors: RowNumbers = None,
        covariates: Covariates = None,
    ) -> Latents | BackgroundLatents:
        """Return the posterior of all latents of rows, with standard deviations and covariances.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n, d)
        of : {"target", "background"}
            Which set the rows belong to; rows of the background have no target part.
        size_factors, covariates : optional, as in `fit`

        Returns
        -------
        Latents
            Named tuple `target, target_std, shared, shared_std, cov`; `cov` has shape (n, K, K),
            the target's columns first, and may be read-only. Rows of a background with dimensions
            of its own (`n_background`) also have `background` and `background_std`.

        Examples
        --------
        >>> import contrastive_lvm as clvm
        >>> data = clvm.datasets.make_subgroups(random_state=0)
        >>> model = clvm.ContrastiveLVM().fit(data.target, background=data.background)
        >>> latents = model.latents(data.target)
        >>> latents.target_std[0].round(3), latents.cov.shape
        (array([0.284, 0.2  ]), (400, 22, 22))
        """
        found = self._latents(X, of=of, size_factors=size_factors, covariates=covariates)
        return Latents(*found) if len(found) == 5 else BackgroundLatents(*found)

    @by_chunks
    def _latents(
        self, X: Any, *, of: str, size_factors: RowNumbers, covariates: Covariates
    ) -> tuple[Any, ...]:
        mean, cov = prediction.latent_moments(
            *self._rows(X, of, RowFacts(size_factors, covariates))
        )
        std = np.sqrt(np.einsum("nkk->nk", cov))
        columns = self._fitted().columns(of)
        parts = {n: (mean[:, columns[n]], std[:, columns[n]]) for n in columns}
        return (
            *parts.get("target", (None, None)),
            *parts["shared"],
            cov,
            *parts.get("background", ()),
        )

    @follows_output
    def inverse_transform(self, T: ArrayLike) -> Array:
        """Return features from target latents: `mean_ + W t`, for rows of average covariates.

        For counts and binary data this is the expected value, for rows of average size.

        Examples
        --------
        >>> import contrastive_lvm as clvm
        >>> data = clvm.datasets.make_subgroups(random_state=0)
        >>> model = clvm.ContrastiveLVM().fit(data.target, background=data.background)
        >>> model.inverse_transform([[0.0, 0.0]]).shape
        (1, 30)
        """
        fitted, t = self._fitted(), check_latents(T, self.n_target_)
        model = fitted.for_new_rows("target", len(t))
        return prediction.rows_at(model, np.hstack([t, np.zeros((len(t), self.n_shared_))]))

    @follows_output
    @by_chunks
    def reconstruct(
        self,
        X: Any,
        *,
        parts: tuple[str, ...] = PARTS,
        of: str = "target",
        size_factors: RowNumbers = None,
        covariates: Covariates = None,
    ) -> Array:
        """Return the model mean of rows from the named parts, (n, d).

        For counts and binary data this is the expected value at the row's own size.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n, d)
        parts : tuple of {"shared", "target", "background", "covariates"}
            What to add to the mean: `S E[z]`, `W E[t]`, what only the background has, or what
            the covariates add to the mean of an average row. Rows of the background have no target
            part, and rows of the target none of the background's.
        of : {"target", "background"}
        size_factors, covariates : optional, as in `fit`

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
        model, rows = self._rows(X, of, RowFacts(size_factors, covariates))
        kept = kept_latents(self._fitted(), chosen, of)
        return prediction.reconstruct(model, rows, kept, with_covariates="covariates" in chosen)

    @follows_output
    @by_chunks
    def denoise(
        self,
        X: Any,
        *,
        size_factors: RowNumbers = None,
        covariates: Covariates = None,
        remove_covariates: bool = False,
    ) -> Array:
        """Return rows of the target without the shared part, `x - S E[z | x]`, (n, d).

        Missing entries are filled by `mean_ + W E[t | x]`. Counts and binary entries become the
        expected value at that predictor, for a row of average size.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n, d)
        size_factors, covariates : optional, as in `fit`
        remove_covariates : bool
            Also remove what the covariates add to the mean of a row whose covariates are average.

        Examples
        --------
        >>> import contrastive_lvm as clvm
        >>> data = clvm.datasets.make_subgroups(random_state=0)
        >>> model = clvm.ContrastiveLVM().fit(data.target, background=data.background)
        >>> float(model.denoise(data.target).var() / data.target.var()) < 0.2
        True
        """
        view, rows = self._rows(X, "target", RowFacts(size_factors, covariates))
        fitted, gone = self._fitted(), remove_covariates
        kept = kept_latents(fitted, ("target",), "target")
        return remove_blocks(fitted, view, rows, "target", kept, remove_covariates=gone)

    @follows_output
    @by_chunks
    def impute(
        self,
        X: Any,
        *,
        of: str = "target",
        return_std: bool = False,
        size_factors: RowNumbers = None,
        covariates: Covariates = None,
    ) -> Array | tuple[Array, Array]:
        """Return X with its NaN replaced by their conditional means.

        For counts and binary data these are the means of new entries whose predictors are normal.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n, d)
        of : {"target", "background"}
        return_std : bool
            Also return the conditional standard deviations, zero for observed entries.
        size_factors, covariates : optional, as in `fit`

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
        (False, 2.3)
        """
        filled, std = prediction.fill(
            *self._rows(X, of, RowFacts(size_factors, covariates)), with_std=return_std
        )
        return filled if std is None else (filled, std)

    @follows_output
    def sample(
        self,
        n_samples: int,
        *,
        of: str = "target",
        size_factors: RowNumbers = None,
        covariates: Covariates = None,
        random_state: RandomState = None,
    ) -> Array:
        """Draw new rows from the model.

        Parameters
        ----------
        n_samples : int
            Number of rows.
        of : {"target", "background", "denoised"}
            `"denoised"` draws `mean_ + W t + noise`, the target without the shared part.
        size_factors : array-like of shape (n,), optional
            Sizes of rows of counts; 1, an average row's, when left out.
        covariates : optional, as in `fit`
            Covariates of the new rows.
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
        n = check_integer("n_samples", n_samples, 1)
        of_set = "target" if of == "denoised" else of
        fitted, rng = self._fitted(), check_random_state(random_state)
        known = fitted.encode(covariates, n)
        model = fitted.for_new_rows(of_set, n, RowFacts(size_factors, known))
        active = kept_latents(fitted, ("target",), "target") if of == "denoised" else None
        return prediction.draw(model, n, rng, active=active)

    def outliers(
        self,
        X: Any,
        *,
        of: str = "target",
        size_factors: RowNumbers = None,
        covariates: Covariates = None,
    ) -> Outliers:
        """Return the weights of rows and entries, ranked from the most outlying to the least.

        Under Student-t noise the weight `E[u]` of an entry (or row) is near 1 if the model fits it
        and near 0 for an outlier. With other likelihoods all weights are 1. Gaussian rows are then
        ranked by the probability that the Mahalanobis distance of as many observed entries is
        larger, and rows of counts and binary data by their log-likelihood.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n, d)
        of : {"target", "background"}
        size_factors, covariates : optional, as in `fit`

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
        trust = np.asarray(self._trust(X, of=of, size_factors=size_factors, covariates=covariates))
        return ranked(trust, self.n_features_in_)

    @by_chunks
    def _trust(self, X: Any, *, of: str, size_factors: RowNumbers, covariates: Covariates) -> Array:
        return trust_in_rows(*self._rows(X, of, RowFacts(size_factors, covariates)))

    @by_chunks
    def score_samples(
        self,
        X: Any,
        *,
        of: str = "target",
        size_factors: RowNumbers = None,
        covariates: Covariates = None,
    ) -> Array:
        """Return the log-likelihood of each row's observed entries, with latents integrated out.

        It is exact for Gaussian noise and point loadings. Otherwise it is the row's part of the
        bound, which is lower; for counts and binary data with uncertain loadings that is an
        approximation, since predictors are then taken as normal.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n, d)
        of : {"target", "background"}
        size_factors, covariates : optional, as in `fit`

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
        >>> bool(abs(both - model.lower_bound_) < 1e-6)
        True
        """
        model, rows = self._rows(X, of, RowFacts(size_factors, covariates))
        return prediction.log_likelihoods(model, rows) - log_volumes(self, rows)

    def score(
        self,
        X: Any,
        y: object = None,
        sample_weight: RowNumbers = None,
        *,
        size_factors: RowNumbers = None,
        covariates: Covariates = None,
    ) -> float:
        """Return the mean (or weighted mean) log-likelihood of rows of the target.

        Examples
        --------
        >>> import contrastive_lvm as clvm
        >>> data = clvm.datasets.make_subgroups(random_state=0)
        >>> model = clvm.ContrastiveLVM().fit(data.target, background=data.background)
        >>> round(model.score(data.target), 1)
        -72.7
        """
        return mean_score(
            self.score_samples(X, size_factors=size_factors, covariates=covariates), sample_weight
        )
