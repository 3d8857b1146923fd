"""What a fit found, under the names that users know."""

from typing import Any

import numpy as np

from contrastive_lvm.estimators import parse_params as resolve
from contrastive_lvm.estimators.linear_predictions import Predictions
from contrastive_lvm.posterior import Posterior


class Results(Predictions):
    """The fitted attributes of a linear contrastive model, all from its posterior."""

    target_prior: Any

    def _publish(self, posterior: Posterior) -> None:
        """Name the results."""
        self.posterior_ = posterior
        W, S = posterior.loadings["target"], posterior.loadings["shared"]
        psi, stds = posterior.noise_variance, posterior.loading_stds()
        self.target_components_, self.shared_components_ = W.T.copy(), S.T.copy()
        self.shared_components_std_, self.target_components_std_ = (
            None if std is None else np.ascontiguousarray(std.T)
            for std in (stds["shared"], stds["target"])
        )
        self.mean_ = posterior.means["target"]
        self.background_mean_ = posterior.means.get("background", self.mean_)
        one_noise = self._likelihood()._is_isotropic or not psi.any()
        self.noise_variance_ = float(psi[0]) if one_noise else psi
        self.dispersion_, self.lower_bound_error_ = (
            posterior.dispersion,
            posterior.lower_bound_error,
        )
        self.n_target_, self.n_shared_ = W.shape[1], S.shape[1]
        shares = np.concatenate([(W**2).sum(axis=0), (S**2).sum(axis=0), [psi.sum()]])
        shares /= shares.sum()
        self.target_variance_ratio_ = shares[: self.n_target_]
        self.shared_variance_ratio_ = shares[self.n_target_ : -1]
        self.noise_variance_ratio_ = float(shares[-1])
        self.feature_relevance_ = np.sqrt((W**2).sum(axis=1))
        prior = resolve.prior("target_prior", self.target_prior)
        state = posterior.prior_states.get("target")
        self.selected_features_ = prior._selected_features(
            state, self.feature_relevance_, posterior.unit_variance
        )
        self.lower_bound_, self.lower_bounds_ = posterior.lower_bound, posterior.lower_bounds
        self.n_iter_, self.converged_ = posterior.n_iter, posterior.converged
