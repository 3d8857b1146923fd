"""The contrastive latent variable model as a scikit-learn estimator."""

import logging
import warnings
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from contrastive_lvm.core import predict
from contrastive_lvm.core.types import Array, Matrix
from contrastive_lvm.estimators import resolve
from contrastive_lvm.estimators.files import Saveable
from contrastive_lvm.estimators.validation import (
    check_choice,
    check_rows_for_fit,
    check_whole,
    read_background,
    read_rows,
    refuse_constant,
    refuse_sliced_background,
    refuse_too_many_dimensions,
    warn_about_scales,
)
from contrastive_lvm.estimators.verbosity import verbosity
from contrastive_lvm.inference.em import Data, prepare
from contrastive_lvm.inference.posterior import Posterior

SETS = ("target", "background")
PARTS = ("shared", "target")
logger = logging.getLogger(__name__)


class Latents(NamedTuple):
    """Posterior of the latents of rows; `target` is None for rows of the background."""

    target: Array | None  # (N, n_target) mean
    target_sd: Array | None  # (N, n_target) standard deviation
    shared: Array  # (N, n_shared)
    shared_sd: Array  # (N, n_shared)
    cov: Array  # (N, K, K), the target's columns first, then the shared ones


class ContrastiveLVM(
    ClassNamePrefixFeaturesOutMixin, TransformerMixin, Saveable, BaseEstimator
):  # type: ignore[misc]
    """Structure that a target set has and a background set has not.

    Rows of the target follow `x = W t + S z + mean + noise`, rows of the background
    `y = S z + background_mean + noise`, with standard normal latents `t` and `z` (Severson, Ghosh
    & Ng 2019, eq. 2). `S` is shared; `W` holds what is enriched in the target. Fitted by exact
    maximum likelihood; NaN is a missing entry, marginalised exactly in both sets and in every
    method. Rows with no observed entry do not inform the fit; a column without any is refused.

    Parameters
    ----------
    n_target : int
        Latent dimensions of the target; 0 leaves probabilistic PCA of both sets, each centred.
    n_shared : int
        Latent dimensions shared with the background; at 0 the background may be left out, which
        is probabilistic PCA of the target.
    likelihood : "gaussian" or Gaussian
        `Gaussian(noise="feature")` gives every feature a noise variance of its own.
    shared_prior, target_prior : None or Flat
        Priors on `S` and `W`; None is maximum likelihood.
    inference : "auto", "em" or EM
        The engine; `EM(max_iter, tol)` to set its stopping rule.
    n_init : int
        Fits to run, the first from a deterministic start, the others from random ones; the best
        is kept.
    random_state : int, RandomState instance or None
        Seeds the random starts of `n_init > 1`; nothing else is random.
    verbose : bool
        Report the progress of the fit on stderr.

    Attributes
    ----------
    target_components_ : ndarray of shape (n_target, n_features)
        `W'`: orthogonal rows, ordered by variance, the largest loading of each positive.
    shared_components_ : ndarray of shape (n_shared, n_features)
        `S'`, in the same form.
    mean_, background_mean_ : ndarray of shape (n_features,)
        Means of the two sets.
    noise_variance_ : float or ndarray of shape (n_features,)
        Noise variance: one number when isotropic.
    target_variance_ratio_, shared_variance_ratio_ : ndarray
        Share of each dimension in the target set's modelled variance.
    noise_variance_ratio_ : float
        The noise's share; the three sum to 1.
    feature_relevance_ : ndarray of shape (n_features,)
        Norm of each feature's target loadings.
    selected_features_ : ndarray of bool of shape (n_features,)
        Features with a nonzero target loading.
    n_target_, n_shared_ : int
        Dimensions in use.
    bound_, bound_trace_ : float, ndarray
        Log-likelihood of both sets at the end, and after each sweep of the final ascent.
    n_iter_ : int
        Sweeps over the data, those of discarded starts included.
    converged_ : bool
        Whether the stopping rule was met.
    posterior_ : Posterior
        The fitted values together.
    n_features_in_, feature_names_in_
        As in scikit-learn.

    Examples
    --------
    >>> import contrastive_lvm as clvm
    >>> data = clvm.datasets.make_subgroups(random_state=0)
    >>> model = clvm.ContrastiveLVM(n_target=2, n_shared=10)
    >>> model.fit_transform(data.target, background=data.background).shape
    (400, 2)
    >>> model.target_variance_ratio_.round(3)
    array([0.075, 0.019])
    """

    __metadata_request__fit: ClassVar[dict[str, bool]] = {"background": True}

    def __init__(
        self,
        n_target: int = 2,
        n_shared: int = 10,
        *,
        likelihood: Any = "gaussian",
        shared_prior: Any = None,
        target_prior: Any = None,
        inference: Any = "auto",
        n_init: int = 1,
        random_state: Any = None,
        verbose: bool = False,
    ) -> None:
        self.n_target = n_target
        self.n_shared = n_shared
        self.likelihood = likelihood
        self.shared_prior = shared_prior
        self.target_prior = target_prior
        self.inference = inference
        self.n_init = n_init
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: Any, y: Any = None, *, background: Any = None) -> Self:  # noqa: ARG002
        """Fit the model to a target set and a background.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n, d)
            The target set; NaN is a missing entry.
        y : ignored
        background : array-like or sparse matrix of shape (m, d)
            The background set, with the same features; may be left out when `n_shared=0`.

        Returns
        -------
        self

        Examples
        --------
        >>> import contrastive_lvm as clvm
        >>> data = clvm.datasets.make_subgroups(random_state=0)
        >>> model = clvm.ContrastiveLVM().fit(data.target, background=data.background)
        >>> model.converged_
        True
        """
        model, engine = resolve.model(self), resolve.engine(self.inference)
        n_init = check_whole("n_init", self.n_init, 1)
        target, others = self._read_sets(X, background)
        sizes = {"n_target": model.n_target, "n_shared": model.n_shared}
        refuse_too_many_dimensions(sizes, target, others)
        data = prepare(model, target, others)
        self._check_variances(data)
        seeds = check_random_state(self.random_state).randint(2**31 - 1, size=n_init - 1)
        with verbosity(self.verbose):
            fits = []
            for seed in (None, *(int(s) for s in seeds)):
                fits.append(engine.run_prepared(model, data, seed=seed))
                logger.info(
                    "fit %d of %d: log-likelihood %.6g after %d sweeps",
                    len(fits),
                    n_init,
                    fits[-1].bound,
                    fits[-1].n_sweeps,
                )
        self._publish(max(fits, key=lambda posterior: posterior.bound))
        self.n_iter_ = sum(posterior.n_sweeps for posterior in fits)
        if not self.converged_:
            warnings.warn(
                f"EM stopped after max_iter={engine.max_iter} sweeps before its gain fell below "
                f"tol={engine.tol}; use inference=EM(max_iter={10 * engine.max_iter}) or fewer "
                "dimensions.",
                ConvergenceWarning,
                stacklevel=2,
            )
        return self

    def _read_sets(self, X: Any, background: Any) -> tuple[Matrix, Matrix | None]:
        target = read_rows(self, X, reset=True)
        check_rows_for_fit(target, "X")
        if background is None:
            if self.n_shared > 0:
                raise ValueError(
                    f"background=None, but n_shared={self.n_shared} shared dimensions are learned "
                    "from it; pass background=... or set n_shared=0."
                )
            return target, None
        others = read_background(self, background)
        check_rows_for_fit(others, "background")
        refuse_sliced_background(target.shape[0], others.shape[0])
        return target, others

    def _check_variances(self, data: Data) -> None:
        refuse_constant(data.variance, np.max([np.abs(s.mean).max() for s in data.sets]))
        if len(data.variances) == 2:
            warn_about_scales(*(float(v.mean()) for v in data.variances))

    def _publish(self, posterior: Posterior) -> None:
        """Name the results."""
        self.posterior_ = posterior
        W, S, psi = posterior.target_loadings, posterior.shared_loadings, posterior.noise_variance
        self.target_components_, self.shared_components_ = W.T.copy(), S.T.copy()
        self.mean_, self.background_mean_ = posterior.target_mean, posterior.background_mean
        isotropic = resolve.likelihood(self.likelihood).isotropic
        self.noise_variance_ = float(psi[0]) if isotropic else psi
        self.n_target_, self.n_shared_ = W.shape[1], S.shape[1]
        shares = np.concatenate([(W**2).sum(axis=0), (S**2).sum(axis=0), [psi.sum()]])
        shares /= shares.sum()
        self.target_variance_ratio_ = shares[: self.n_target_]
        self.shared_variance_ratio_ = shares[self.n_target_ : -1]
        self.noise_variance_ratio_ = float(shares[-1])
        self.feature_relevance_ = np.sqrt((W**2).sum(axis=1))
        self.selected_features_ = self.feature_relevance_ > 0
        self.bound_, self.bound_trace_ = posterior.bound, posterior.bound_trace
        self.n_iter_, self.converged_ = posterior.n_sweeps, posterior.converged

    def _fitted_arrays(self) -> dict[str, Any]:
        return {k: v for k, v in self.posterior_._asdict().items() if isinstance(v, np.ndarray)}

    def _fitted_facts(self) -> dict[str, Any]:
        return {"n_sweeps": self.n_iter_, "converged": self.converged_}

    def _restore(self, arrays: dict[str, Any], facts: dict[str, Any]) -> None:
        n_sweeps, converged = int(facts["n_sweeps"]), bool(facts["converged"])
        self._publish(Posterior(**arrays, n_sweeps=n_sweeps, converged=converged))

    @property
    def _n_features_out(self) -> int:
        return int(self.n_target_)

    def _linear(self, of: str) -> predict.Linear:
        """The model of one set's rows; the target's columns come first."""
        check_is_fitted(self)
        check_choice("of", of, SETS)
        p = self.posterior_
        if of == "background":
            return predict.Linear(p.shared_loadings, p.background_mean, p.noise_variance)
        L = np.hstack([p.target_loadings, p.shared_loadings])
        return predict.Linear(L, p.target_mean, p.noise_variance)

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
        array([[-0.9 , -0.65],
               [-0.93, -0.77],
               [-0.84, -1.04]])
        """
        model = self._linear("target")
        return predict.latent_means(model, read_rows(self, X))[:, : self.n_target_]

    def fit_transform(self, X: Any, y: Any = None, *, background: Any = None) -> Array:
        """Fit, then `transform(X)`.

        Examples
        --------
        >>> import contrastive_lvm as clvm
        >>> data = clvm.datasets.make_subgroups(random_state=0)
        >>> model = clvm.ContrastiveLVM(n_target=1)
        >>> model.fit_transform(data.target, background=data.background).shape
        (400, 1)
        """
        return self.fit(X, y, background=background).transform(X)

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
        (array([0.163, 0.303]), (400, 12, 12))
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
        inverse: Array = self.mean_ + T @ self.target_components_
        return inverse

    def reconstruct(
        self, X: Any, *, parts: tuple[str, ...] = PARTS, of: str = "target"
    ) -> Array:
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
        denoised: Array = filled - shared @ self.shared_components_
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
        (False, 1.9)
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

    def score_samples(self, X: Any, *, of: str = "target") -> Array:
        """Exact log-likelihood of each row's observed entries, latents integrated out.

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

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:  # noqa: ARG002
        """Mean (or weighted mean) log-likelihood of rows of the target.

        Examples
        --------
        >>> import contrastive_lvm as clvm
        >>> data = clvm.datasets.make_subgroups(random_state=0)
        >>> model = clvm.ContrastiveLVM().fit(data.target, background=data.background)
        >>> round(model.score(data.target), 1)
        -75.8
        """
        return float(np.average(self.score_samples(X), weights=sample_weight))

    def __sklearn_tags__(self) -> Any:
        """NaN and sparse rows are welcome."""
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.sparse = True
        return tags
