"""The contrastive latent variable model as a scikit-learn estimator."""

import warnings
from contextlib import nullcontext
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.utils import check_random_state
from sklearn.utils.metaestimators import available_if

from contrastive_lvm.arrays import Array, Covariates, RowLabels
from contrastive_lvm.checks import RandomState, check_integer
from contrastive_lvm.estimators import parse_params
from contrastive_lvm.estimators.base_estimator import all_or_nothing
from contrastive_lvm.estimators.covariates import checked_encoding
from contrastive_lvm.estimators.frames import RowNumbers
from contrastive_lvm.estimators.input_rows import refuse_background_as_y
from contrastive_lvm.estimators.linear_fit import (
    normal_components,
    read_input,
    run_engine,
    supported_dimensions,
    warn_about_convergence,
    warn_about_dropped_target,
)
from contrastive_lvm.estimators.linear_predictions import LinearPredictions
from contrastive_lvm.estimators.model_check import objections
from contrastive_lvm.estimators.parse_params import (
    EngineLike,
    LikelihoodLike,
    PriorLike,
)
from contrastive_lvm.estimators.prediction_model import contrastive_predictions
from contrastive_lvm.estimators.reporting import report
from contrastive_lvm.estimators.score_rows import enrichment, monitor
from contrastive_lvm.estimators.subgroups import (
    has_subgroups,
    predict,
    predict_proba,
    subgroups,
    with_supported_subgroups,
)
from contrastive_lvm.io.model_files import SavedState
from contrastive_lvm.likelihoods.base import CONSTANT
from contrastive_lvm.model import Model
from contrastive_lvm.posterior import Posterior
from contrastive_lvm.priors.mixture import Mixture
from contrastive_lvm.progress import verbosity


class ContrastiveLVM(LinearPredictions):
    """Structure that a target set has and a background set lacks.

    Rows of the target follow `x = W t + S z + mean + noise`, rows of the background
    `y = S z + background_mean + noise`, with standard normal latents `t` and `z` (Severson, Ghosh &
    Ng 2019, eq. 2). `S` is shared, and `W` describes what is enriched in the target. The model is
    fitted by exact maximum likelihood or by closed-form variational Bayes. NaN is a missing entry;
    missing entries are marginalised exactly in both sets and in every method. Rows without any
    observed entry do not affect the fit, and a column without any raises an error.

    Parameters
    ----------
    n_target : int or "auto"
        Number of latent dimensions that only the target has. With 0 the model is probabilistic PCA
        of both sets, each centred. `"auto"` uses the number that `contrast_test` supports at 5 %,
        which may be 0.
    n_shared : int or "auto"
        Number of latent dimensions shared with the background. With 0 the background may be left
        out, and the model is probabilistic PCA of the target. `"auto"` counts, before the fit, the
        directions of both sets that stand out from the noise. It uses at most those that explain
        99 % of the variance, and at most 50 (20 if entries are missing or have heavy tails). With
        `shared_prior="ard"` it starts from 50 and drops those that the data do not support.
    n_background : int
        Number of latent dimensions that only the background has; their prior is `shared_prior`.
        Without them, the model treats structure that only the background has as shared.
    likelihood : str or object
        `"gaussian"` has one noise variance; `Gaussian(noise="feature")` has one for each feature,
        and `Gaussian(sets="own")` one for each set. `"student_t"`, or `StudentT(df, per)`, has
        heavy tails for entries or for rows. `"poisson"` and `"negative_binomial"` are for counts,
        `"bernoulli"` is for binary data, and `Mixed({kind: features})` gives each feature a
        likelihood of its own.
    shared_prior, target_prior : None, "ard", "group_lasso", "horseshoe", or an object
        Priors on `S` and `W`: `ARD` on columns, `GroupLasso` or `Horseshoe` on rows, or any object
        with the methods of a prior. None means maximum likelihood, but `Ridge` for binary data and
        `ARD(drop=False)` for counts (`Ridge` if loadings are points).
    latent_prior : None or Mixture
        Prior of the target latents. None is a standard normal distribution. `Mixture(n_components)`
        has a normal distribution for each subgroup of the target's rows; their number may be
        `"auto"`.
    covariate_effects : {"shared", "own"}
        Whether the covariates given to `fit` have the same effects in both sets, or separate
        effects in each set.
    inference : "auto", "em", "vb", "svi", "nuts", or an object
        The engine: `EM` for point loadings, `VariationalBayes` for loadings with a posterior, and
        `SVI` or `NUTS`, which need the extra `jax`, for every model. `"auto"` uses the first engine
        that can fit the model.
    n_init : int
        Number of fits, the first from a deterministic start and the others from random ones. The
        best fit is kept.
    random_state : int, RandomState instance or None
        Seeds the random starts of `n_init > 1`, the test behind `n_target="auto"`, and `SVI` and
        `NUTS`; nothing else is random.
    verbose : bool
        Report the progress of the fit on stderr.

    Attributes
    ----------
    target_components_ : ndarray of shape (n_target, n_features)
        `W'`: orthogonal rows, ordered by variance, the largest loading of each positive. With
        counts, the change of the log rates by one unit of a latent (see `transform`), ordered by
        the standard deviations of the latents.
    shared_components_ : ndarray of shape (n_shared, n_features)
        `S'`, in the same form.
    background_components_ : ndarray of shape (n_background, n_features)
        Loadings of what only the background has, in the same form.
    target_components_std_, shared_components_std_ : ndarray or None
        Posterior standard deviations of the components; None if these are points, that is under EM
        and in a block without a prior. They treat the latents as known and are therefore too small:
        a quarter to three quarters of the exact ones on a small test problem.
    mean_, background_mean_ : ndarray of shape (n_features,)
        Means of the two sets; with covariates, the means of rows whose covariates are average.
    mean_difference_ : ndarray of shape (n_features,)
        `mean_ - background_mean_`: a shift that all rows of the target share. It does not count as
        contrast and is not part of the loadings. `contrastive_lvm.mean_difference` computes its
        standard errors.
    normal_components_ : ndarray of shape (n_shared + n_background, n_features)
        Loadings of the background, scaled by how much its own rows vary along them; `monitor` uses
        them as the reference for new rows. Only for Gaussian noise without covariates.
    covariate_effects_, background_covariate_effects_ : DataFrame or None
        Change of the mean of each feature (column) with each covariate (row). The two sets differ
        only with `covariate_effects="own"`. A category has a row for each level except the first,
        such as `sex[male]`, with the difference from the first. None without covariates.
    covariate_mean_ : Series or None
        Means of the same columns over the rows of both sets, to which `mean_` belongs.
    noise_variance_, background_noise_variance_ : float or ndarray of shape (n_features,)
        Noise variances of the two sets, which differ only with `sets="own"`. One number if the
        noise is isotropic; zero if the likelihood has no noise variance.
    dispersion_ : ndarray of shape (n_features,) or None
        Dispersion of negative binomial features, zero for others.
    target_variance_ratio_, shared_variance_ratio_ : ndarray
        Share of each dimension in the target set's modelled variance (of the linear predictor,
        for counts and binary data).
    noise_variance_ratio_ : float
        The noise's share; the three sum to 1.
    feature_relevance_ : ndarray of shape (n_features,)
        Norm of each feature's target loadings.
    selected_features_ : ndarray of bool of shape (n_features,)
        Features with a nonzero target loading; under a horseshoe those that its rule
        `P(rho^2 tau^2 < delta) > p0` does not drop.
    n_target_, n_shared_, n_background_ : int
        Dimensions in use.
    n_subgroups_ : int
        Components of the mixture of target latents; 1 without one.
    lower_bound_, lower_bounds_ : float, ndarray
        The bound at the end and after each sweep; with Gaussian noise and no priors it is the
        log-likelihood of both sets.
    lower_bound_error_ : float
        Monte-Carlo standard error of the bound under `SVI`, else 0.
    n_iter_ : int
        Number of sweeps, including those of discarded starts.
    converged_ : bool
        Whether the stopping rule was met.
    posterior_ : Posterior
        The fitted values together.
    n_samples_, n_background_samples_ : int
        Number of rows of the two sets; the second is None without a background.
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
    array([0.078, 0.019])
    """

    __metadata_request__fit: ClassVar[dict[str, bool]] = {
        "background": True,
        "sample_weight": True,
        "background_sample_weight": True,
        "groups": True,
        "background_groups": True,
        "covariates": True,
        "background_covariates": True,
    }
    __metadata_request__transform: ClassVar[dict[str, bool]] = {"covariates": True}
    __metadata_request__score: ClassVar[dict[str, bool]] = {
        "sample_weight": True,
        "covariates": True,
    }

    report = report
    enrichment = enrichment
    monitor = monitor
    subgroups = subgroups
    predict = available_if(has_subgroups)(predict)
    predict_proba = available_if(has_subgroups)(predict_proba)

    def __init__(
        self,
        n_target: int | str = 2,
        n_shared: int | str = "auto",
        *,
        n_background: int = 0,
        likelihood: LikelihoodLike = "gaussian",
        shared_prior: PriorLike = None,
        target_prior: PriorLike = None,
        latent_prior: Mixture | None = None,
        covariate_effects: str = "shared",
        inference: EngineLike = "auto",
        n_init: int = 1,
        random_state: RandomState = None,
        verbose: bool = False,
    ) -> None:
        self.n_target = n_target
        self.n_shared = n_shared
        self.n_background = n_background
        self.likelihood = likelihood
        self.shared_prior = shared_prior
        self.target_prior = target_prior
        self.latent_prior = latent_prior
        self.covariate_effects = covariate_effects
        self.inference = inference
        self.n_init = n_init
        self.random_state = random_state
        self.verbose = verbose

    @all_or_nothing
    def fit(
        self,
        X: Any,
        y: object = None,
        *,
        background: Any = None,
        groups: RowLabels = None,
        background_groups: RowLabels = None,
        covariates: Covariates = None,
        background_covariates: Covariates = None,
        sample_weight: RowNumbers = None,
        background_sample_weight: RowNumbers = None,
        size_factors: RowNumbers = None,
        background_size_factors: RowNumbers = None,
    ) -> Self:
        """Fit the model to a target set and a background.

        Parameters
        ----------
        X : array-like, sparse matrix, or rows out of core, of shape (n, d)
            The target set; NaN and masked entries are missing. Memory maps, Dask arrays, and
            arrays of HDF5, Zarr or backed AnnData are read a chunk at a time.
        y : ignored
        background : array-like, sparse matrix, or rows out of core, of shape (m, d)
            The background set, with the same features; may be left out if `n_shared=0`.
            scikit-learn's cross-validation slices every routed argument that has as many rows as X,
            and passes others unchanged. Pass a background with another number of rows than X, for
            example `background[1:]`; otherwise each fold uses only a part of the background.
        groups, background_groups : array-like of shape (n,) and (m,), optional
            The replicate of each row, such as its donor, mouse or run. Rows of one replicate are
            not independent: the test behind `n_target="auto"` permutes whole replicates, or
            exchanges the sets within replicates that have rows in both. The fit itself does not
            depend on them.
        covariates, background_covariates : frame or array-like of shape (n, c) and (m, c), optional
            Known columns such as age, sex or batch. Their effects on the mean of a row are
            estimated with the rest of the model, so that they are not mistaken for structure.
            Columns of numbers are used as they are. Text and categories of a frame are coded by
            zeros and ones, with one column for each level except the first. Missing values raise an
            error, and so do covariates that the sets or other covariates determine. The other
            methods then need covariates too.
        sample_weight, background_sample_weight : array-like of shape (n,) and (m,), optional
            Weights of rows, 1 by default. A row of weight 2 counts as two equal rows, and a row of
            weight 0 does not count. `SVI` and `NUTS` do not support weights.
        size_factors, background_size_factors : array-like of shape (n,) and (m,), optional
            Size factors of rows of counts, which replace their totals divided by the total of an
            average row. The other methods then need them too.

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
        n_init = check_integer("n_init", self.n_init, 1)
        if background is None:
            refuse_background_as_y(X, y)
        sizes = (size_factors, background_size_factors)
        replicates = (groups, background_groups)
        known = (covariates, background_covariates)
        size = None
        if self.n_target == "auto" or groups is not None or background_groups is not None:
            size = supported_dimensions(self, X, background, replicates, sizes, known)
        weights = (sample_weight, background_sample_weight)
        given = read_input(self, X, background, weights, size, known)
        if isinstance(self.latent_prior, Mixture) and self.latent_prior.n_components == "auto":
            given = with_supported_subgroups(given, self.latent_prior, groups, self.random_state)
        rng = check_random_state(self.random_state)
        with verbosity() if self.verbose else nullcontext():
            run = run_engine(given, sizes, n_init, rng)
        self._publish(run.best, given.model)
        self.n_iter_ = run.n_iter
        vars(self).pop("normal_components_", None)
        scaled = normal_components(given.model, run.data, run.best)
        if scaled is not None:
            self.normal_components_ = scaled
        if not self.converged_:
            warn_about_convergence(given.engine)
        if self.n_target_ == 0 and given.model.drops_columns:
            warn_about_dropped_target(given.model)
        for said in objections(run.model, given.engine, run.data, run.best):
            warnings.warn(said, UserWarning, stacklevel=3)
        return self

    def fit_transform(
        self,
        X: Any,
        y: object = None,
        *,
        background: Any = None,
        groups: RowLabels = None,
        background_groups: RowLabels = None,
        covariates: Covariates = None,
        background_covariates: Covariates = None,
        sample_weight: RowNumbers = None,
        background_sample_weight: RowNumbers = None,
        size_factors: RowNumbers = None,
        background_size_factors: RowNumbers = None,
    ) -> Array:
        """Fit, then `transform(X)`.

        Examples
        --------
        >>> import contrastive_lvm as clvm
        >>> data = clvm.datasets.make_subgroups(random_state=0)
        >>> model = clvm.ContrastiveLVM(n_target=1)
        >>> model.fit_transform(data.target, background=data.background).shape
        (400, 1)
        """
        self.fit(
            X,
            y,
            background=background,
            groups=groups,
            background_groups=background_groups,
            covariates=covariates,
            background_covariates=background_covariates,
            sample_weight=sample_weight,
            background_sample_weight=background_sample_weight,
            size_factors=size_factors,
            background_size_factors=background_size_factors,
        )
        return self.transform(X, size_factors=size_factors, covariates=covariates)

    def _publish(self, posterior: Posterior, model: Model) -> None:
        """Publish the results as the documented attributes."""
        self._publish_ascent(posterior)
        self._prediction_model = contrastive_predictions(
            posterior, model.likelihood, self._encoding
        )
        effects = {} if self._encoding is None else self._effects_of_sets()
        self.covariate_effects_ = effects.get("target")
        self.background_covariate_effects_ = effects.get("background", self.covariate_effects_)
        W, S = posterior.loadings["target"], posterior.loadings["shared"]
        psi, background_psi = np.atleast_2d(posterior.noise_variance)[[0, -1]]
        stds = posterior.loading_stds()
        self.target_components_, self.shared_components_ = W.T.copy(), S.T.copy()
        B = posterior.loadings.get("background", W[:, :0])
        self.background_components_, self.n_background_ = B.T.copy(), B.shape[1]
        self.shared_components_std_, self.target_components_std_ = (
            None if std is None else np.ascontiguousarray(std.T)
            for std in (stds["shared"], stds["target"])
        )
        self.mean_ = posterior.means["target"]
        self.background_mean_ = posterior.means.get("background", self.mean_)
        self.mean_difference_ = self.mean_ - self.background_mean_
        one_noise = model.likelihood._is_isotropic or not psi.any()
        self.noise_variance_ = float(psi[0]) if one_noise else psi
        self.background_noise_variance_ = float(background_psi[0]) if one_noise else background_psi
        mixture = posterior.latent_mixtures.get("target")
        self.n_subgroups_ = 1 if mixture is None else len(mixture.weights)
        self.n_target_, self.n_shared_ = W.shape[1], S.shape[1]
        of_blocks = [posterior.column_variances(name) for name in ("target", "shared")]
        shares = np.concatenate([*of_blocks, [psi.sum()]])
        # Counts have no noise variance, and no shares if all loadings are rounding errors.
        shares = shares / shares.sum() if shares.sum() > CONSTANT or psi.any() else 0.0 * shares
        self.target_variance_ratio_ = shares[: self.n_target_]
        self.shared_variance_ratio_ = shares[self.n_target_ : -1]
        self.noise_variance_ratio_ = float(shares[-1])
        self.feature_relevance_ = np.sqrt((posterior.unit_loadings("target") ** 2).sum(axis=1))
        self.selected_features_ = model.priors[1]._selected_features(
            posterior.prior_states.get("target"), self.feature_relevance_, posterior.unit_variance
        )

    def _check_state(self, state: SavedState) -> None:
        posterior = state["posterior"]
        self._encoding = checked_encoding(state["covariates"])
        model = self._model(posterior)
        n_rows = {"target": self.n_samples_, "background": self.n_background_samples_}
        known = {name: n for name, n in n_rows.items() if n is not None}
        self._check_saved(posterior, model, known)

    def _restore(self, state: SavedState) -> None:
        self._publish(state["posterior"], self._model(state["posterior"]))

    def _fitted_model(self) -> Model:
        return self._model(self.posterior_)

    def _model(self, posterior: Posterior) -> Model:
        """Return the model that the parameters describe, for any number of rows."""
        n_target = posterior.loadings["target"].shape[1]
        mixture = posterior.latent_mixtures.get("target")
        n_subgroups = None if mixture is None else len(mixture.weights)
        return parse_params.model(self, np.inf, n_target=n_target, n_subgroups=n_subgroups)
