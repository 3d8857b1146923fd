"""The contrastive latent variable model as a scikit-learn estimator."""

import logging
import warnings
from collections.abc import Iterable
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state

from contrastive_lvm.arrays import Array, Matrix
from contrastive_lvm.black_box.nuts.nuts import NUTS
from contrastive_lvm.coordinate_ascent.engine import CoordinateAscent
from contrastive_lvm.estimators import parse_params as resolve
from contrastive_lvm.estimators.display import NotebookCard
from contrastive_lvm.estimators.input_rows import background_for_fit, target_for_fit
from contrastive_lvm.estimators.posterior_checks import check_posterior, check_posterior_of
from contrastive_lvm.estimators.posterior_draws import PosteriorDraws
from contrastive_lvm.estimators.prediction_model import sizes_of_sets
from contrastive_lvm.estimators.reporting import Reporting
from contrastive_lvm.estimators.results import Results
from contrastive_lvm.estimators.validation import (
    check_variances,
    check_whole,
    refuse_constant,
    refuse_objectionable,
    refuse_size_factors,
    refuse_sliced_background,
    refuse_too_many_dimensions,
    warn_about_scales,
)
from contrastive_lvm.estimators.verbosity import verbosity
from contrastive_lvm.io.model_files import Saveable
from contrastive_lvm.model import Model
from contrastive_lvm.posterior import Posterior
from contrastive_lvm.rows.data import Data, prepare
from contrastive_lvm.rows.source import Source
from contrastive_lvm.rows.streamed import at_hand

logger = logging.getLogger(__name__)
ENOUGH_ROWS = 1 << 40  # for any number of dimensions


class ContrastiveLVM(Results, PosteriorDraws, Reporting, NotebookCard, Saveable, BaseEstimator):
    """Structure that a target set has and a background set has not.

    Rows of the target follow `x = W t + S z + mean + noise`, rows of the background
    `y = S z + background_mean + noise`, with standard normal latents `t` and `z` (Severson, Ghosh
    & Ng 2019, eq. 2). `S` is shared; `W` holds what is enriched in the target. Fitted by exact
    maximum likelihood, or by closed-form variational Bayes; NaN is a missing entry, marginalised
    exactly in both sets and in every method. Rows with no observed entry do not inform the fit; a
    column without any is refused.

    Parameters
    ----------
    n_target : int
        Latent dimensions of the target; 0 leaves probabilistic PCA of both sets, each centred.
    n_shared : int or "auto"
        Latent dimensions shared with the background; at 0 the background may be left out, which
        is probabilistic PCA of the target. `"auto"` starts from 50 (or as many as the data
        allows) under an `ARD` prior, which drops those that the data does not support.
    likelihood : str or object
        `"gaussian"`; `Gaussian(noise="feature")` gives every feature a noise variance of its own;
        `"student_t"`, `StudentT(df, per)`, has heavy tails, an entry or a row at a time;
        `"poisson"` and `"negative_binomial"` are for counts, `"bernoulli"` for binary data, and
        `Mixed({kind: features})` gives each feature its own.
    shared_prior, target_prior : None, "ard", "group_lasso", "horseshoe", or an object
        Priors on `S` and `W`: `ARD` on columns, `GroupLasso` or `Horseshoe` on rows, or any
        object with the methods of a prior; None is maximum likelihood.
    inference : "auto", "em", "vb", "svi", "nuts", or an object
        The engine: `EM` for point loadings, `VariationalBayes` for loadings with a posterior;
        `SVI` and `NUTS`, which need the extra `jax`, for every model. `"auto"` takes the first
        that can fit the model.
    n_init : int
        Fits to run, the first from a deterministic start, the others from random ones; the best
        is kept.
    random_state : int, RandomState instance or None
        Seeds the random starts of `n_init > 1`, and `SVI` and `NUTS`; nothing else is random.
    verbose : bool
        Report the progress of the fit on stderr.

    Attributes
    ----------
    target_components_ : ndarray of shape (n_target, n_features)
        `W'`: orthogonal rows, ordered by variance, the largest loading of each positive.
    shared_components_ : ndarray of shape (n_shared, n_features)
        `S'`, in the same form.
    target_components_std_, shared_components_std_ : ndarray or None
        Posterior standard deviations of the components; None where they are points, that is
        under EM and in a block without a prior. They suppose the latents known, and are too
        small for that: a quarter to three quarters of exact ones on a small test problem.
    mean_, background_mean_ : ndarray of shape (n_features,)
        Means of the two sets.
    noise_variance_ : float or ndarray of shape (n_features,)
        Noise variance: one number when isotropic, zero where the likelihood has none.
    dispersion_ : ndarray of shape (n_features,) or None
        Of negative binomial features, zero for others.
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
    n_target_, n_shared_ : int
        Dimensions in use.
    bound_, bound_trace_ : float, ndarray
        The bound at the end and after each sweep; with Gaussian noise and no priors it is the
        log-likelihood of both sets.
    bound_error_ : float
        Monte-Carlo standard error of the bound under `SVI`, else 0.
    n_iter_ : int
        Sweeps over the data, those of discarded starts included.
    converged_ : bool
        Whether the stopping rule was met.
    posterior_ : Posterior
        The fitted values together.
    n_samples_, n_background_samples_ : int
        Rows of the two sets; the second is None where no background was given.
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

    __metadata_request__fit: ClassVar[dict[str, bool]] = {"background": True}

    def __init__(
        self,
        n_target: int = 2,
        n_shared: int | str = 10,
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

    def fit(
        self,
        X: Any,
        y: Any = None,
        *,
        background: Any = None,
        size_factors: Any = None,
        background_size_factors: Any = None,
    ) -> Self:
        """Fit the model to a target set and a background.

        Parameters
        ----------
        X : array-like, sparse matrix, or rows elsewhere, of shape (n, d)
            The target set; NaN is a missing entry. Memory maps, Dask arrays, and arrays of HDF5,
            Zarr or backed AnnData are read a block at a time.
        y : ignored
        background : array-like, sparse matrix, or rows elsewhere, of shape (m, d)
            The background set, with the same features; may be left out when `n_shared=0`.
        size_factors, background_size_factors : array-like of shape (n,) and (m,), optional
            Sizes of rows of counts, in place of their totals over an average row's. The other
            methods then want them too.

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
        n_init = check_whole("n_init", self.n_init, 1)
        model, engine, target, others = self._resolved(X, background)
        rng = check_random_state(self.random_state)
        with verbosity(enabled=self.verbose):
            if isinstance(engine, CoordinateAscent):
                refuse_size_factors(model.likelihood, size_factors, background_size_factors)
                data = self._compressed(model, engine, target, others)
                seeds = [None, *rng.randint(2**31 - 1, size=n_init - 1).tolist()]
                runs = (engine.run_prepared(model, data, seed=seed) for seed in seeds)
            else:
                sets = [target] if others is None else [target, others]
                check_variances(sets, scaled=model.has_closed_form)
                given = (size_factors, background_size_factors)
                sizes, profile = sizes_of_sets(model.likelihood, sets, given)
                seeds = rng.randint(2**31 - 1, size=n_init).tolist()
                runs = (
                    engine.run(
                        model, target, others, log_sizes=sizes, seed=seed, restart=i > 0
                    )._replace(profile=profile)
                    for i, seed in enumerate(seeds)
                )
            fits = self._logged(runs, n_init)
        self._publish(max(fits, key=lambda posterior: posterior.bound))
        self.n_iter_ = sum(posterior.n_sweeps for posterior in fits)
        self._warn(engine)
        return self

    @staticmethod
    def _logged(runs: Iterable[Posterior], n_init: int) -> list[Posterior]:
        fits: list[Posterior] = []
        for posterior in runs:
            fits.append(posterior)
            logger.info(
                "fit %d of %d: log-likelihood or bound %.6g after %d sweeps",
                len(fits),
                n_init,
                posterior.bound,
                posterior.n_sweeps,
            )
        return fits

    def _warn(self, engine: resolve.Engine) -> None:
        if isinstance(self.n_shared, str) and self.n_shared_ >= resolve.CEILING:
            warnings.warn(
                f"n_shared='auto' uses all {self.n_shared_} dimensions that it allows; to allow "
                "more, give n_shared as a number and shared_prior='ard'.",
                UserWarning,
                stacklevel=3,
            )
        if not self.converged_:
            warnings.warn(engine.shortfall(), ConvergenceWarning, stacklevel=3)

    def _resolved(
        self, X: Any, background: Any
    ) -> tuple[Model, resolve.Engine, Matrix, Matrix | None]:
        """The model and engine asked for, and both sets, checked."""
        target, others = self._read_sets(X, background)
        self.n_samples_ = int(target.shape[0])
        self.n_background_samples_ = None if others is None else int(others.shape[0])
        n_rows = self.n_samples_ + (self.n_background_samples_ or 0)
        names = getattr(self, "feature_names_in_", None)
        model = resolve.model(self, target.shape[1], n_rows, None if names is None else list(names))
        engine = resolve.engine(self.inference, model)
        if isinstance(engine, NUTS):  # it wants all rows at every step
            target = at_hand(target) if isinstance(target, Source) else target
            others = at_hand(others) if isinstance(others, Source) else others
        sizes = {"n_target": model.n_target, "n_shared": model.n_shared}
        refuse_too_many_dimensions(sizes, target, others, sized_by_data=model.sizes_itself)
        target = self._fit_for(model, "X", target)
        others = None if others is None else self._fit_for(model, "background", others)
        return model, engine, target, others

    @staticmethod
    def _fit_for(model: Model, name: str, rows: Matrix) -> Matrix:
        """Rows whose values the likelihood has a density for; those elsewhere say so when read."""
        refuse = partial(refuse_objectionable, model.likelihood, name)
        if isinstance(rows, Source):
            return rows.checked(refuse)
        refuse(rows)
        return rows

    def prepared(self, X: Any, background: Any) -> tuple[Model, CoordinateAscent, Data]:
        """The model, the engine and the compressed data of a fit by coordinate ascent."""
        model, engine, target, others = self._resolved(X, background)
        if not isinstance(engine, CoordinateAscent):
            raise TypeError(f"inference={engine!r} has no closed form; use inference='em'.")
        return model, engine, self._compressed(model, engine, target, others)

    def _compressed(
        self, model: Model, engine: CoordinateAscent, target: Matrix, others: Matrix | None
    ) -> Data:
        data = prepare(model, target, others, posterior=engine.posterior)
        self._check_variances(data)
        return data

    def adopt(self, other: Self, posterior: Posterior) -> Self:
        """Take over a fit that was made with another estimator's data."""
        self.n_features_in_ = other.n_features_in_
        self.n_samples_ = other.n_samples_
        self.n_background_samples_ = other.n_background_samples_
        if hasattr(other, "feature_names_in_"):
            self.feature_names_in_ = other.feature_names_in_
        self._publish(posterior)
        return self

    def _read_sets(self, X: Any, background: Any) -> tuple[Matrix, Matrix | None]:
        target = target_for_fit(self, X)
        if background is None:
            if self.n_shared != 0:
                raise ValueError(
                    f"background=None, but n_shared={self.n_shared} shared dimensions are learned "
                    "from it; pass background=... or set n_shared=0."
                )
            return target, None
        others = background_for_fit(self, background)
        refuse_sliced_background(target.shape[0], others.shape[0])
        return target, others

    def _check_variances(self, data: Data) -> None:
        refuse_constant(data.variance, np.max([np.abs(s.mean).max() for s in data.sets]))
        if len(data.variances) == 2:
            warn_about_scales(*(float(v.mean()) for v in data.variances))

    def _fitted_state(self) -> dict[str, Any]:
        # What SVI goes on from is as large as the data.
        return {"posterior": self.posterior_._replace(n_sweeps=self.n_iter_, state=None)}

    def _check_state(self, state: dict[str, Any]) -> None:
        check_posterior(state["posterior"], self.n_features_in_)
        check_posterior_of(self._model(), state["posterior"])
        check_whole("n_init", self.n_init, 1)
        resolve.engine(self.inference, self._model())

    def _restore(self, state: dict[str, Any]) -> None:
        self._publish(state["posterior"])

    def _model(self) -> Model:
        """The model as the parameters say, for as many rows as one likes."""
        names = getattr(self, "feature_names_in_", None)
        return resolve.model(
            self, self.n_features_in_, ENOUGH_ROWS, None if names is None else list(names)
        )

    def fit_transform(
        self,
        X: Any,
        y: Any = None,
        *,
        background: Any = None,
        size_factors: Any = None,
        background_size_factors: Any = None,
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
        if size_factors is None and background_size_factors is None:
            return self.fit(X, y, background=background).transform(X)
        sizes = {
            "size_factors": size_factors,
            "background_size_factors": background_size_factors,
        }
        return self.fit(X, y, background=background, **sizes).transform(
            X, size_factors=size_factors
        )

    def __sklearn_tags__(self) -> Any:
        """NaN and sparse rows are welcome."""
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.sparse = True
        return tags
