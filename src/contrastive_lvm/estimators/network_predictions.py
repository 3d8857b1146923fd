"""Predictions of a contrastive autoencoder: latents, reconstructions, imputations, scores."""

from typing import Any

import numpy as np
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from contrastive_lvm.arrays import Array, Covariates
from contrastive_lvm.checks import RandomState, check_choice, check_integer
from contrastive_lvm.estimators.autoencoder import Autoencoder
from contrastive_lvm.estimators.frames import follows_output
from contrastive_lvm.estimators.input_rows import read_rows
from contrastive_lvm.estimators.linear_predictions import PARTS, SETS
from contrastive_lvm.estimators.prediction_model import Latents
from contrastive_lvm.estimators.units import log_volumes, scaling_of
from contrastive_lvm.vae.trained_networks import DecoderInputs


class NetworkPredictions(Autoencoder):
    """The methods of `ContrastiveVAE` that come after a fit."""

    n_target_: int
    n_shared_: int

    def latents(self, X: Any, *, of: str = "target", covariates: Covariates = None) -> Latents:
        """Return the posterior of all latents of rows, with standard deviations.

        Parameters
        ----------
        X : array-like, memory map, sparse matrix or Dask array of shape (n, d)
        of : {"target", "background"}
        covariates : optional, as in `fit`

        Returns
        -------
        Latents
            Named tuple `target, target_std, shared, shared_std, cov`; `cov` is diagonal.
        """
        networks, rows = self._rows(X, of, covariates)
        mean, std = networks.latents(rows, of)
        cov = std[:, :, None] ** 2 * np.eye(std.shape[1])
        if of == "background":
            return Latents(None, None, mean, std, cov)
        t = self.n_target_
        return Latents(mean[:, :t], std[:, :t], mean[:, t:], std[:, t:], cov)

    @follows_output
    def reconstruct(
        self,
        X: Any,
        *,
        parts: tuple[str, ...] = PARTS,
        of: str = "target",
        covariates: Covariates = None,
    ) -> Array:
        """Return the expected rows from the named parts, at the posterior means of the latents.

        Parameters
        ----------
        X : array-like, memory map, sparse matrix or Dask array of shape (n, d)
        parts : tuple of {"shared", "target", "covariates"}
            What to add to the mean; rows of the background have no target part. The shared part is
            that of average covariates unless they are named too.
        of : {"target", "background"}
        covariates : optional, as in `fit`
        """
        chosen = (parts,) if isinstance(parts, str) else tuple(parts)
        for part in chosen:
            check_choice("parts", part, PARTS)
        latents = self.latents(X, of=of, covariates=covariates)
        networks, rows = self._rows(X, of, covariates)
        t = latents.target if "target" in chosen else None
        z = latents.shared if "shared" in chosen else None
        at = DecoderInputs(rows.n_rows, t, z, rows.covariates if "covariates" in chosen else None)
        return networks.expected_rows(at, of, networks.size_factors(rows))

    @follows_output
    def denoise(
        self, X: Any, *, covariates: Covariates = None, remove_covariates: bool = False
    ) -> Array:
        """Return rows of the target with the shared part removed, `x - f_s(E[z | x])`.

        Missing entries are filled by `mean_ + f_t(E[t | x])`. Counts and binary entries become the
        expected value there, for a row of average size.

        Parameters
        ----------
        X : array-like, memory map, sparse matrix or Dask array of shape (n, d)
        covariates : optional, as in `fit`
        remove_covariates : bool
            Also remove what the covariates add to the shared part of an average row.
        """
        latents = self.latents(X, covariates=covariates)
        networks, rows = self._rows(X, covariates=covariates)
        n = rows.n_rows
        denoised = networks.expected_rows(DecoderInputs(n, latents.target, None), "target")
        if not networks.architecture.has_noise:
            return denoised
        known = rows.covariates if remove_covariates else None
        values, at = rows.features(), DecoderInputs(n, None, latents.shared, known)
        shared = networks.predictor(at) - self.mean_
        return np.where(np.isnan(values), denoised, values - shared)

    @follows_output
    def impute(
        self,
        X: Any,
        *,
        of: str = "target",
        return_std: bool = False,
        n_draws: int = 100,
        covariates: Covariates = None,
    ) -> Array | tuple[Array, Array]:
        """Return X with its NaN replaced by their expectations over the posterior of the latents.

        Parameters
        ----------
        X : array-like, memory map, sparse matrix or Dask array of shape (n, d)
        of : {"target", "background"}
        return_std : bool
            Also return standard deviations, zero for observed entries.
        n_draws : int
            Number of draws of the latents.
        covariates : optional, as in `fit`
        """
        n_draws = check_integer("n_draws", n_draws, 1)
        networks, rows = self._rows(X, of, covariates)
        filled, std = networks.impute(rows, of, n_draws)
        return (filled, std) if return_std else filled

    @follows_output
    def sample(
        self,
        n_samples: int,
        *,
        of: str = "target",
        covariates: Covariates = None,
        random_state: RandomState = None,
    ) -> Array:
        """Draw new rows.

        Parameters
        ----------
        n_samples : int
        of : {"target", "background", "denoised"}
            `"denoised"` draws the target without its shared part and without noise.
        covariates : optional, as in `fit`
            Covariates of the new rows.
        random_state : int, RandomState instance or None
        """
        check_is_fitted(self)
        check_choice("of", of, (*SETS, "denoised"))
        n, rng = check_integer("n_samples", n_samples, 1), check_random_state(random_state)
        t = rng.standard_normal((n, self.n_target_)) if of != "background" else None
        if of == "denoised":
            return self.network_.expected_rows(DecoderInputs(n, t, None), "target")
        known = self._encoded(covariates, n)
        at = DecoderInputs(n, t, rng.standard_normal((n, self.n_shared_)), known)
        return self.network_.draw_rows(at, of, rng)

    def score_samples(
        self, X: Any, *, of: str = "target", n_draws: int = 100, covariates: Covariates = None
    ) -> Array:
        """Return a lower bound on the log-likelihood of each row's observed entries.

        `ln mean_k p(x, h_k) / q(h_k | x)` with draws `h_k` of the latents (Burda et al. 2016): its
        expectation is below the log-likelihood, and approaches it with more draws.

        Parameters
        ----------
        X : array-like, memory map, sparse matrix or Dask array of shape (n, d)
        of : {"target", "background"}
        n_draws : int
            Number of draws of the latents.
        covariates : optional, as in `fit`
        """
        n_draws = check_integer("n_draws", n_draws, 1)
        networks, rows = self._rows(X, of, covariates)
        found = networks.weighted_bounds(rows, of, n_draws)
        scaled = scaling_of(self) is not None
        return found - log_volumes(self, read_rows(self, X)) if scaled else found
