"""Applying a fitted model: latents, reconstructions, imputation, samples."""

from typing import Any

import numpy as np
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from contrastive_lvm import prediction as predict
from contrastive_lvm.arrays import Array, Matrix
from contrastive_lvm.checks import check_choice, check_integer
from contrastive_lvm.estimators import parse_params as resolve
from contrastive_lvm.estimators import prediction_model as views
from contrastive_lvm.estimators.frames import follows_output
from contrastive_lvm.estimators.input_rows import by_blocks
from contrastive_lvm.estimators.prediction_model import Latents
from contrastive_lvm.estimators.scores import Scores
from contrastive_lvm.estimators.validation import read_rows
from contrastive_lvm.exceptions import InvalidDataError
from contrastive_lvm.likelihoods.base import Likelihood
from contrastive_lvm.linalg.matrices import widen
from contrastive_lvm.posterior import Posterior
from contrastive_lvm.rows.source import is_elsewhere

SETS = ("target", "background")
PARTS = ("shared", "target")


class Predictions(Scores, ClassNamePrefixFeaturesOutMixin, TransformerMixin):
    """The methods of a linear contrastive model that need only its `posterior_`.

    Likelihoods of counts and of binary data have a normal approximation to the posterior of each
    row's latents (`rows.gaussian_vi_rows`), and predict on the data's scale.

    scikit-learn makes `set_output` work on the class that defines `transform`, so this one has to
    be the transformer.
    """

    likelihood: Any
    n_features_in_: int
    posterior_: Posterior
    n_target_: int
    n_shared_: int

    @property
    def _n_features_out(self) -> int:
        return int(self.n_target_)

    def _likelihood(self) -> Likelihood:
        """The likelihood, its features by position."""
        likelihood: Likelihood = resolve.likelihood(self.likelihood)
        if not hasattr(likelihood, "bound_to"):
            return likelihood
        names = getattr(self, "feature_names_in_", None)
        bound: Likelihood = likelihood.bound_to(
            self.n_features_in_, None if names is None else list(names)
        )
        return bound

    def _rows(self, X: Any, of: str, size_factors: Any) -> tuple[predict.View, Matrix]:
        """Rows of a set, checked, and the model of them; the target's columns come first."""
        check_is_fitted(self)
        check_choice("of", of, SETS)
        rows, likelihood = read_rows(self, X), self._likelihood()
        objection = likelihood.objection(rows)
        if objection is not None:
            raise InvalidDataError("X", f"holds {objection}.")
        sizes = views.sizes_of_rows(self.posterior_, likelihood, rows, size_factors)
        return views.view(self.posterior_, likelihood, of, sizes), rows

    def _new_rows(self, n: int, of: str, size_factors: Any = None) -> predict.View:
        """The model of n rows yet to be made, of size 1 unless given."""
        likelihood = self._likelihood()
        sizes = views.given_sizes(likelihood, size_factors, (n, self.n_features_in_))
        return views.view(self.posterior_, likelihood, of, sizes)

    def _kept(self, parts: tuple[str, ...], of: str) -> np.ndarray:
        """Latents that belong to the named parts, (K,) bool."""
        t = self.n_target_ if of == "target" else 0
        return np.repeat(["target" in parts, "shared" in parts], [t, self.n_shared_])

    def transform(self, X: Any, *, size_factors: Any = None) -> Array:
        """Posterior mean of the target latents of rows of the target.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n, d)
        size_factors : array-like of shape (n,), optional
            Sizes of rows of counts, in place of their totals over an average row's.

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
        if is_elsewhere(X):
            found: Array = by_blocks(self, "transform", X, size_factors=size_factors)
            return found
        model, rows = self._rows(X, "target", size_factors)
        return predict.latent_means(model, rows)[:, : self.n_target_]

    def latents(self, X: Any, *, of: str = "target", size_factors: Any = None) -> Latents:
        """Posterior of all latents of rows, with standard deviations and covariances.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n, d)
        of : {"target", "background"}
            Which set the rows belong to; rows of the background have no target part.
        size_factors : array-like of shape (n,), optional
            Sizes of rows of counts, in place of their totals over an average row's.

        Returns
        -------
        Latents
            Named tuple `target, target_std, shared, shared_std, cov`; `cov` has shape (n, K, K),
            the target's columns first, and may be read-only.

        Examples
        --------
        >>> import contrastive_lvm as clvm
        >>> data = clvm.datasets.make_subgroups(random_state=0)
        >>> model = clvm.ContrastiveLVM().fit(data.target, background=data.background)
        >>> latents = model.latents(data.target)
        >>> latents.target_std[0].round(3), latents.cov.shape
        (array([0.181, 0.355]), (400, 12, 12))
        """
        if is_elsewhere(X):
            return Latents(*by_blocks(self, "latents", X, of=of, size_factors=size_factors))
        mean, cov = predict.latent_moments(*self._rows(X, of, size_factors))
        std = np.sqrt(np.einsum("nkk->nk", cov))
        t = self.n_target_ if of == "target" else 0
        if of == "background":
            return Latents(None, None, mean, std, cov)
        return Latents(mean[:, :t], std[:, :t], mean[:, t:], std[:, t:], cov)

    @follows_output
    def inverse_transform(self, T: Any) -> Array:
        """Features from target latents: `mean_ + W t`.

        For counts and binary data the expected value there, of rows of average size.

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
        h = np.hstack([T, np.zeros((len(T), self.n_shared_))])
        return predict.rows_at(self._new_rows(len(T), "target"), h)

    @follows_output
    def reconstruct(
        self,
        X: Any,
        *,
        parts: tuple[str, ...] = PARTS,
        of: str = "target",
        size_factors: Any = None,
    ) -> Array:
        """Model mean of rows from the named parts.

        For counts and binary data the expected value at that predictor and the row's own size.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n, d)
        parts : tuple of {"shared", "target"}
            What to add to the mean: `S E[z]`, `W E[t]`. Rows of the background have no target part.
        of : {"target", "background"}
        size_factors : array-like of shape (n,), optional
            Sizes of rows of counts, in place of their totals over an average row's.

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
        if is_elsewhere(X):
            options = {"parts": chosen, "of": of, "size_factors": size_factors}
            found: Array = by_blocks(self, "reconstruct", X, **options)
            return found
        model, rows = self._rows(X, of, size_factors)
        return predict.rows_at(model, predict.latent_means(model, rows) * self._kept(chosen, of))

    @follows_output
    def denoise(self, X: Any, *, size_factors: Any = None) -> Array:
        """Rows of the target with the shared part removed, `x - S E[z | x]`.

        Missing entries come back filled: `mean_ + W E[t | x]`. Counts and binary entries become
        the expected value at that predictor, of a row of average size.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n, d)
        size_factors : array-like of shape (n,), optional
            Sizes of rows of counts, in place of their totals over an average row's.

        Returns
        -------
        ndarray of shape (n, d)

        Examples
        --------
        >>> import contrastive_lvm as clvm
        >>> data = clvm.datasets.make_subgroups(random_state=0)
        >>> model = clvm.ContrastiveLVM().fit(data.target, background=data.background)
        >>> float(model.denoise(data.target).var() / data.target.var()) < 0.2
        True
        """
        if is_elsewhere(X):
            found: Array = by_blocks(self, "denoise", X, size_factors=size_factors)
            return found
        model, rows = self._rows(X, "target", size_factors)
        means = predict.latent_means(model, rows)
        average = self._new_rows(len(means), "target")
        denoised = predict.rows_at(average, means * self._kept(("target",), "target"))
        additive = self._likelihood().noisy_columns(rows.shape[1])
        values = widen(rows[:, additive])
        S = self.posterior_.shared_loadings[additive]
        rest = values - means[:, self.n_target_ :] @ S.T
        denoised[:, additive] = np.where(np.isnan(values), denoised[:, additive], rest)
        return denoised

    @follows_output
    def impute(
        self, X: Any, *, of: str = "target", return_std: bool = False, size_factors: Any = None
    ) -> Array | tuple[Array, Array]:
        """X with its NaN replaced by their conditional means.

        For counts and binary data those of a new entry, whose predictor is normal.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n, d)
        of : {"target", "background"}
        return_std : bool
            Also return the conditional standard deviations, zero for observed entries.
        size_factors : array-like of shape (n,), optional
            Sizes of rows of counts, in place of their totals over an average row's.

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
        if is_elsewhere(X):
            options = {"of": of, "return_std": return_std, "size_factors": size_factors}
            found: Array | tuple[Array, Array] = by_blocks(self, "impute", X, **options)
            return found
        filled, std = predict.fill(*self._rows(X, of, size_factors), with_std=return_std)
        return filled if std is None else (filled, std)

    @follows_output
    def sample(
        self,
        n_samples: int,
        *,
        of: str = "target",
        size_factors: Any = None,
        random_state: Any = None,
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
        check_is_fitted(self)
        check_choice("of", of, (*SETS, "denoised"))
        n = check_integer("n_samples", n_samples, 1)
        model = self._new_rows(n, "target" if of == "denoised" else of, size_factors)
        rng = check_random_state(random_state)
        return predict.draw(model, n, rng, active=self.n_target_ if of == "denoised" else None)
