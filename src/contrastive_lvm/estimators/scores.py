"""How well rows fit a fitted model: log-likelihoods and outliers."""

from abc import ABC, abstractmethod
from typing import Any

import numpy as np

from contrastive_lvm import prediction as predict
from contrastive_lvm.arrays import Array, Matrix
from contrastive_lvm.estimators import prediction_model as views
from contrastive_lvm.estimators.input_rows import by_blocks
from contrastive_lvm.estimators.prediction_model import Outliers
from contrastive_lvm.rows.reader import is_out_of_core


class Scores(ABC):
    """Methods that judge rows of either set."""

    n_features_in_: int

    @abstractmethod
    def _rows(self, X: Any, of: str, size_factors: Any) -> tuple[predict.View, Matrix]:
        """Rows of a set, checked, and the model of them."""

    def outliers(self, X: Any, *, of: str = "target", size_factors: Any = None) -> Outliers:
        """How much each row and entry is trusted, and which are trusted least.

        Under Student-t noise the weight `E[u]` of an entry (or row) is near 1 where the model fits
        and near 0 for outliers; with other likelihoods all weights are 1 and rows rank by their
        log-likelihood.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n, d)
        of : {"target", "background"}
        size_factors : array-like of shape (n,), optional
            Sizes of rows of counts, in place of their totals over an average row's.

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
        if is_out_of_core(X):
            weights = np.asarray(by_blocks(self, "_trust", X, of=of, size_factors=size_factors))
        else:
            weights = self._trust(X, of=of, size_factors=size_factors)
        if weights.ndim == 1:
            ones = np.ones(len(weights))
            return Outliers(ones[:, None], ones, np.argsort(weights, kind="stable"), None)
        row_weights = views.weights_of_rows(weights)
        entries = views.lightest(weights) if weights.shape[1] == self.n_features_in_ else None
        return Outliers(weights, row_weights, np.argsort(row_weights, kind="stable"), entries)

    def _trust(self, X: Any, *, of: str, size_factors: Any) -> Array:
        """Weights under Student-t noise, (n, d) or (n, 1); otherwise log-likelihoods, (n,)."""
        model, rows = self._rows(X, of, size_factors)
        heavy = predict.is_heavy_tailed(model)
        return (predict.scale_weights if heavy else predict.log_likelihoods)(model, rows)

    def score_samples(self, X: Any, *, of: str = "target", size_factors: Any = None) -> Array:
        """Log-likelihood of each row's observed entries, latents integrated out.

        Exact for Gaussian noise and point loadings. Otherwise the row's part of the bound, which
        is below it; for counts and binary data with uncertain loadings only about that, since
        their predictors are then taken as normal.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n, d)
        of : {"target", "background"}
        size_factors : array-like of shape (n,), optional
            Sizes of rows of counts, in place of their totals over an average row's.

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
        if is_out_of_core(X):
            found: Array = by_blocks(self, "score_samples", X, of=of, size_factors=size_factors)
            return found
        return predict.log_likelihoods(*self._rows(X, of, size_factors))

    def score(
        self, X: Any, y: Any = None, sample_weight: Any = None, *, size_factors: Any = None
    ) -> float:
        """Mean (or weighted mean) log-likelihood of rows of the target.

        Examples
        --------
        >>> import contrastive_lvm as clvm
        >>> data = clvm.datasets.make_subgroups(random_state=0)
        >>> model = clvm.ContrastiveLVM().fit(data.target, background=data.background)
        >>> round(model.score(data.target), 1)
        -73.2
        """
        scores = self.score_samples(X, size_factors=size_factors)
        return float(np.average(np.asarray(scores), weights=sample_weight))
