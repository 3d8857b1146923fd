"""The base class of estimators of linear models, whatever their sets are."""

from abc import abstractmethod
from collections.abc import Mapping
from copy import copy
from typing import Any, Self

import numpy as np
import pandas as pd
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from contrastive_lvm import prediction
from contrastive_lvm.arrays import Array, Matrix
from contrastive_lvm.checks import RandomState, check_choice, check_integer
from contrastive_lvm.draws import Draws
from contrastive_lvm.estimators import parse_params
from contrastive_lvm.estimators.base_estimator import Estimator
from contrastive_lvm.estimators.covariates import EncodedRows, Encoding, effects_table
from contrastive_lvm.estimators.frames import number_per_row
from contrastive_lvm.estimators.input_rows import read_rows, refuse_unsupported
from contrastive_lvm.estimators.parse_params import EngineLike
from contrastive_lvm.estimators.posterior_checks import check_posterior, check_posterior_of
from contrastive_lvm.estimators.prediction_model import (
    PredictionModel,
    RowFacts,
    tail_probabilities,
)
from contrastive_lvm.exceptions import InvalidParameterError
from contrastive_lvm.linalg.gauge import ROTATIONS
from contrastive_lvm.linalg.matrices import widen
from contrastive_lvm.model import Model
from contrastive_lvm.posterior import Posterior


class LinearEstimator(Estimator):
    """An estimator of a linear model: the methods that need only its `posterior_`."""

    posterior_: Posterior
    n_iter_: int
    converged_: bool
    n_samples_: int
    inference: EngineLike
    n_init: int
    _prediction_model: PredictionModel
    covariate_mean_: "pd.Series[float] | None"
    _encoding: Encoding | None = None  # of covariates

    def _fitted(self) -> PredictionModel:
        """Return the model of predictions."""
        check_is_fitted(self)
        return self._prediction_model

    def _without_rows(self) -> Self:
        light = super()._without_rows()
        light._prediction_model = self._fitted().without_rows()
        light.posterior_ = light._prediction_model.posterior
        return light

    def _check_row_options(self, n_rows: int, options: dict[str, Any]) -> dict[str, Any]:
        fitted, facts = self._fitted(), {"covariates": self._encoded(options, n_rows)}
        if options.get("size_factors") is None:
            return facts
        sizes = number_per_row("size_factors", options["size_factors"], n_rows)
        fitted.for_new_rows(next(iter(fitted.blocks)), n_rows, RowFacts(sizes))  # refuses them
        return {"size_factors": sizes, **facts}

    def _encoded(self, options: Mapping[str, Any], n_rows: int) -> EncodedRows | None:
        return self._fitted().encode(options.get("covariates"), n_rows)

    def _read(self, X: Any) -> Matrix:
        """Return rows to predict from, checked."""
        fitted, rows = self._fitted(), read_rows(self, X)
        if not fitted.likelihood._has_all_values:
            refuse_unsupported(fitted.likelihood, "X", rows)
        return rows

    def _publish_ascent(self, posterior: Posterior) -> None:
        """Publish the posterior and how the fit ended."""
        self.posterior_, self.dispersion_ = posterior, posterior.dispersion
        self.lower_bounds_ = posterior.lower_bounds
        self.lower_bound_ = float(posterior.lower_bounds[-1])
        self.covariate_mean_ = None
        self.lower_bound_error_ = posterior.lower_bound_error
        self.n_iter_, self.converged_ = posterior.n_iter, posterior.converged

    def _effects_of_sets(self) -> dict[str, pd.DataFrame]:
        """Return the effects of covariates on each set by name, and publish their means."""
        encoding, effects = self._encoding, self.posterior_.effects
        if encoding is None:
            return {}
        self.covariate_mean_ = pd.Series(encoding.center, index=list(encoding.columns))
        names = getattr(self, "feature_names_in_", None)
        features = [f"x{i}" for i in range(self.n_features_in_)] if names is None else names
        return {name: effects_table(encoding, M, features) for name, M in effects.items()}

    def _fitted_state(self) -> dict[str, object]:
        # The state from which SVI continues is as large as the data.
        posterior = self.posterior_._replace(n_iter=self.n_iter_, state=None)
        return {"posterior": posterior, "covariates": self._encoding}

    def _check_saved(self, posterior: Posterior, model: Model, n_rows: dict[str, int]) -> None:
        """Refuse a posterior from a file that does not belong to the model and such rows."""
        check_posterior(posterior, self.n_features_in_, n_rows)
        check_posterior_of(model, posterior)
        check_integer("n_init", self.n_init, 1)
        parse_params.engine(self.inference, model)

    @abstractmethod
    def _fitted_model(self) -> Model:
        """Return the model that was fitted."""

    def rotate(self, method: str | None = "varimax", *, block: str = "target") -> Self:
        """Return the same fit with the loadings and latents of a block rotated together.

        The distribution of the rows stays the same, so scores, reconstructions and imputed entries
        do not change. Components are ordered by size, and the largest loading of each is positive.
        `bootstrap` rotates the fit of every resample in the same way.

        Parameters
        ----------
        method : {"varimax", "promax"} or None
            `"varimax"` is the orthogonal rotation to few large loadings in each component, as in
            scikit-learn's `FactorAnalysis`. `"promax"` goes further and allows correlated latents.
            None restores orthogonal components, ordered by variance.
        block : str
            The block of dimensions, such as `"target"` or `"shared"`.

        Returns
        -------
        A fitted copy of the estimator

        Examples
        --------
        >>> import contrastive_lvm as clvm
        >>> data = clvm.datasets.make_subgroups(random_state=0)
        >>> model = clvm.ContrastiveLVM(2).fit(data.target, background=data.background)
        >>> simple = model.rotate("varimax")
        >>> bool(abs(simple.score(data.target) - model.score(data.target)) < 1e-9)
        True
        """
        check_is_fitted(self)
        if method is not None:
            check_choice("method", method, tuple(ROTATIONS))
        posterior = self.posterior_
        check_choice("block", block, tuple(posterior.loadings))
        others = [name for name, how in posterior.rotations.items() if how == "promax"]
        if method == "promax" and not self._fitted().likelihood._has_closed_form:
            reason = f"makes latents correlated, which {self._fitted().likelihood!r} does not allow"
            raise InvalidParameterError("method", method, f"{reason}; use 'varimax'.")
        prior = next(b.prior for b in self._fitted_model().blocks if b.name == block)
        if prior._has_own_columns:
            reason = f"cannot be used under {prior!r}, which distinguishes columns; fit without it."
            raise InvalidParameterError("method", method, reason)
        if method == "promax" and (set(others) | set(posterior.latent_mixtures)) - {block}:
            reason = "can be used for one block only; rotate the other one by 'varimax'."
            raise InvalidParameterError("method", method, reason)
        rotated = copy(self)
        rotated._restore({**self._fitted_state(), "posterior": posterior.rotated(block, method)})
        rotated.n_iter_ = self.n_iter_
        return rotated

    def draws(self, n: int = 1000, *, random_state: RandomState = None) -> Draws:
        """Draw all unobserved quantities from their posterior, in one canonical orientation.

        Parameters
        ----------
        n : int
            Number of draws from the posterior that SVI has fitted; ignored after NUTS, which keeps
            its own draws.
        random_state : int, RandomState instance or None

        Returns
        -------
        Draws
            `values` by name, each of shape (chains, draws, ...); under NUTS with R-hat and
            effective sample sizes.

        Examples
        --------
        >>> import contrastive_lvm as clvm
        >>> data = clvm.datasets.make_contrastive(30, 30, n_features=5, n_shared=1, random_state=0)
        >>> model = clvm.ContrastiveLVM(1, 1, inference=clvm.SVI(max_iter=2000), random_state=0)
        >>> model = model.fit(data.target, background=data.background)
        >>> model.draws(200, random_state=0).values["target latents of target"].shape
        (1, 200, 30, 1)
        """
        check_is_fitted(self)
        n = check_integer("n", n, 1)
        if self.posterior_.draws is not None:
            return self.posterior_.draws
        if self.posterior_.state is None:
            raise TypeError(
                "draws need a fit by inference='svi' or 'nuts' that was not read from a file; "
                "latents() has the posterior of rows under the other engines."
            )
        from contrastive_lvm.black_box.svi.svi_posterior import guide_draws

        seed = int(check_random_state(random_state).randint(2**31 - 1))
        return guide_draws(self.posterior_.state, n, seed)

    def to_arviz(self, n: int = 1000, *, random_state: RandomState = None) -> Any:
        """Return the draws as ArviZ's `InferenceData` (a `DataTree` from ArviZ 1.0 on).

        Needs the extra `arviz`.
        """
        return self.draws(n, random_state=random_state).to_arviz()


def kept_latents(fitted: PredictionModel, blocks: tuple[str, ...], of: str) -> np.ndarray:
    """Return which latents of a set belong to some blocks, (K,) bool."""
    columns = fitted.columns(of)
    kept = [name in blocks for name in columns]
    return np.repeat(kept, [c.stop - c.start for c in columns.values()])


def remove_blocks(
    fitted: PredictionModel,
    view: prediction.View,
    rows: Matrix,
    of: str,
    kept: np.ndarray,
    *,
    remove_covariates: bool = False,
) -> Array:
    """Return rows of a set without what the latents that are not `kept`, (K,) bool, explain.

    What covariates add to the mean of an average row is removed too if asked for. Missing entries
    are filled by the mean and what is kept; counts and binary entries become their expected values
    there, of a row of average size.
    """
    average = fitted.for_new_rows(of, rows.shape[0])
    additive = fitted.likelihood._has_noise(rows.shape[1])
    pairs = zip(prediction.fixed(view), prediction.fixed(average), strict=True)
    return prediction.mean_over_draws(
        _removed(*pair, rows, kept, additive, remove_covariates=remove_covariates) for pair in pairs
    )


def _removed(
    view: prediction.Fixed,
    average: prediction.Fixed,
    rows: Matrix,
    kept: np.ndarray,
    additive: np.ndarray,
    *,
    remove_covariates: bool,
) -> Array:
    """Return what is left of rows, at one value of the parameters."""
    means = prediction.latent_means(view, rows)
    known = average if remove_covariates else average._replace(covariates=view.covariates)
    denoised = prediction.rows_at(known, means * kept)
    values = widen(rows[:, additive])
    rest = values - means[:, ~kept] @ view.L[np.ix_(additive, ~kept)].T
    if remove_covariates and view.covariates is not None and view.effects is not None:
        rest -= view.covariates @ view.effects[additive].T
    denoised[:, additive] = np.where(np.isnan(values), denoised[:, additive], rest)
    return denoised


def trust_in_rows(view: prediction.View, rows: Matrix) -> Array:
    """Return weights under Student-t noise, (n, d) or (n, 1), else log probabilities, (n,)."""
    if isinstance(view, prediction.Drawn):
        found = [trust_in_rows(each, rows) for each in view.views]
        log = found[0].ndim == 1
        return (prediction.log_mean_over_draws if log else prediction.mean_over_draws)(found)
    if not isinstance(view, prediction.Linear):
        return prediction.log_likelihoods(view, rows)
    gaussian = view.scaler is None
    return (tail_probabilities if gaussian else prediction.scale_weights)(view, rows)
