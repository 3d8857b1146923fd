"""What a trained contrastive autoencoder says about rows of either set."""

from typing import Any

import numpy as np
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from contrastive_lvm.arrays import Array
from contrastive_lvm.checks import check_choice, check_integer
from contrastive_lvm.estimators.autoencoder import Autoencoder
from contrastive_lvm.estimators.frames import follows_output
from contrastive_lvm.estimators.linear_predictions import PARTS, SETS
from contrastive_lvm.estimators.prediction_model import Latents
from contrastive_lvm.likelihoods.gaussian import Gaussian
from contrastive_lvm.linalg.matrices import widen
from contrastive_lvm.vae.fitted_networks import Fitted
from contrastive_lvm.vae.vae_rows import Source


class ContrastivePredictions(Autoencoder):
    """Latents, reconstructions, samples and bounds of two sets."""

    n_target_: int
    n_shared_: int

    def transform(self, X: Any) -> Array:
        """Posterior mean of the target latents of rows of the target, (n, n_target).

        Examples
        --------
        >>> import contrastive_lvm as clvm
        >>> data = clvm.datasets.make_subgroups(random_state=0)
        >>> model = clvm.ContrastiveVAE(n_shared=4, hidden=(16,), max_epochs=5, random_state=0)
        >>> model.fit(data.target, background=data.background).transform(data.target[:3]).shape
        (3, 2)
        """
        fitted, rows = self._rows(X)
        return fitted.codes(rows, "target")[0][:, : self.n_target_]

    def latents(self, X: Any, *, of: str = "target") -> Latents:
        """Posterior of all latents of rows, with standard deviations.

        Parameters
        ----------
        X : array-like, memory map, sparse matrix or Dask array of shape (n, d)
        of : {"target", "background"}

        Returns
        -------
        Latents
            Named tuple `target, target_std, shared, shared_std, cov`; `cov` is diagonal.

        Examples
        --------
        >>> import contrastive_lvm as clvm
        >>> data = clvm.datasets.make_subgroups(random_state=0)
        >>> model = clvm.ContrastiveVAE(n_shared=4, hidden=(16,), max_epochs=5, random_state=0)
        >>> latents = model.fit(data.target, background=data.background).latents(data.target)
        >>> latents.shared_std.shape, latents.cov.shape
        ((400, 4), (400, 6, 6))
        """
        fitted, rows = self._rows(X, of)
        mean, std = fitted.codes(rows, of)
        cov = std[:, :, None] ** 2 * np.eye(std.shape[1])
        if of == "background":
            return Latents(None, None, mean, std, cov)
        t = self.n_target_
        return Latents(mean[:, :t], std[:, :t], mean[:, t:], std[:, t:], cov)

    @follows_output
    def inverse_transform(self, T: Any) -> Array:
        """Features from target latents: the expected row at `mean_ + f_t(t)`.

        Examples
        --------
        >>> import contrastive_lvm as clvm
        >>> data = clvm.datasets.make_subgroups(random_state=0)
        >>> model = clvm.ContrastiveVAE(n_shared=4, hidden=(16,), max_epochs=5, random_state=0)
        >>> model.fit(data.target, background=data.background).inverse_transform([[0, 0]]).shape
        (1, 30)
        """
        check_is_fitted(self)
        T = self._latents_given(T, self.n_target_)
        return self._decoded(T, None, len(T), "target")

    @follows_output
    def reconstruct(self, X: Any, *, parts: tuple[str, ...] = PARTS, of: str = "target") -> Array:
        """Expected rows from the named parts, at the posterior means of the latents.

        Parameters
        ----------
        X : array-like, memory map, sparse matrix or Dask array of shape (n, d)
        parts : tuple of {"shared", "target"}
            What to add to the mean; rows of the background have no target part.
        of : {"target", "background"}

        Examples
        --------
        >>> import contrastive_lvm as clvm
        >>> data = clvm.datasets.make_subgroups(random_state=0)
        >>> model = clvm.ContrastiveVAE(n_shared=4, hidden=(16,), max_epochs=5, random_state=0)
        >>> model = model.fit(data.target, background=data.background)
        >>> model.reconstruct(data.target, parts=("target",)).shape
        (400, 30)
        """
        chosen = (parts,) if isinstance(parts, str) else tuple(parts)
        for part in chosen:
            check_choice("parts", part, PARTS)
        fitted, rows = self._rows(X, of)
        t, z = self._means(fitted, rows, of)
        kept = (t if "target" in chosen else None, z if "shared" in chosen else None)
        return self._decoded(*kept, rows.n_rows, of, self._sizes(rows))

    def _means(self, fitted: Fitted, rows: Source, of: str) -> tuple[Array | None, Array]:
        """Posterior means of target and shared latents."""
        mean = fitted.codes(rows, of)[0]
        k = self.n_target_ if of == "target" else 0
        return (mean[:, :k] if k else None), mean[:, k:]

    @follows_output
    def denoise(self, X: Any) -> Array:
        """Rows of the target with the shared part removed, `x - f_s(E[z | x])`.

        Missing entries come back filled: `mean_ + f_t(E[t | x])`. Counts and binary entries become
        the expected value there, of a row of average size.

        Examples
        --------
        >>> import contrastive_lvm as clvm
        >>> data = clvm.datasets.make_subgroups(random_state=0)
        >>> model = clvm.ContrastiveVAE(n_shared=4, hidden=(16,), max_epochs=5, random_state=0)
        >>> model.fit(data.target, background=data.background).denoise(data.target).shape
        (400, 30)
        """
        fitted, rows = self._rows(X)
        t, z = self._means(fitted, rows, "target")
        denoised = self._decoded(t, None, rows.n_rows, "target")
        if not isinstance(fitted.design.likelihood, Gaussian):
            return denoised
        values = np.concatenate([widen(block) for block in rows.blocks()])
        shared = fitted.predictor(rows.n_rows, None, z, "target") - self.mean_
        return np.where(np.isnan(values), denoised, values - shared)

    @follows_output
    def impute(
        self, X: Any, *, of: str = "target", return_std: bool = False, n_draws: int = 100
    ) -> Array | tuple[Array, Array]:
        """X with its NaN replaced by their expectations over the posterior of the latents.

        Parameters
        ----------
        X : array-like, memory map, sparse matrix or Dask array of shape (n, d)
        of : {"target", "background"}
        return_std : bool
            Also return standard deviations, zero for observed entries.
        n_draws : int
            Of the latents.

        Examples
        --------
        >>> import numpy as np
        >>> import contrastive_lvm as clvm
        >>> data = clvm.datasets.make_subgroups(random_state=0)
        >>> model = clvm.ContrastiveVAE(n_shared=4, hidden=(16,), max_epochs=5, random_state=0)
        >>> model = model.fit(data.target, background=data.background)
        >>> data.target[0, 0] = np.nan
        >>> filled, std = model.impute(data.target, return_std=True)
        >>> bool(np.isnan(filled).any()), bool(std[0, 0] > 0), bool(std[0, 1] > 0)
        (False, True, False)
        """
        filled, std = self._filled(X, of, check_integer("n_draws", n_draws, 1))
        return (filled, std) if return_std else filled

    @follows_output
    def sample(self, n_samples: int, *, of: str = "target", random_state: Any = None) -> Array:
        """Draw new rows.

        Parameters
        ----------
        n_samples : int
            Number of rows.
        of : {"target", "background", "denoised"}
            `"denoised"` draws the target without its shared part and without noise.
        random_state : int, RandomState instance or None

        Examples
        --------
        >>> import contrastive_lvm as clvm
        >>> data = clvm.datasets.make_subgroups(random_state=0)
        >>> model = clvm.ContrastiveVAE(n_shared=4, hidden=(16,), max_epochs=5, random_state=0)
        >>> model = model.fit(data.target, background=data.background)
        >>> model.sample(5, of="denoised", random_state=0).shape
        (5, 30)
        """
        check_is_fitted(self)
        check_choice("of", of, (*SETS, "denoised"))
        n, rng = check_integer("n_samples", n_samples, 1), check_random_state(random_state)
        t = rng.standard_normal((n, self.n_target_)) if of != "background" else None
        if of == "denoised":
            return self._decoded(t, None, n, "target")
        return self._drawn(t, rng.standard_normal((n, self.n_shared_)), n, of, rng)

    def score_samples(self, X: Any, *, of: str = "target", n_draws: int = 100) -> Array:
        """A bound on the log-likelihood of each row's observed entries.

        `ln mean_k p(x, h_k) / q(h_k | x)` with draws `h_k` of the latents (Burda et al. 2016): in
        expectation below the log-likelihood, and nearer to it the more draws there are.

        Parameters
        ----------
        X : array-like, memory map, sparse matrix or Dask array of shape (n, d)
        of : {"target", "background"}
        n_draws : int

        Examples
        --------
        >>> import contrastive_lvm as clvm
        >>> data = clvm.datasets.make_subgroups(random_state=0)
        >>> model = clvm.ContrastiveVAE(n_shared=4, hidden=(16,), max_epochs=5, random_state=0)
        >>> model = model.fit(data.target, background=data.background)
        >>> model.score_samples(data.target).shape
        (400,)
        """
        fitted, rows = self._rows(X, of)
        return fitted.weighted_bounds(rows, of, 0, check_integer("n_draws", n_draws, 1))
