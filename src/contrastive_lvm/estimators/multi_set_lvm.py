"""A linear latent variable model of any number of sets, as a scikit-learn estimator."""

from contextlib import nullcontext
from typing import Any, ClassVar, Self, TypeAlias

import numpy as np
import pandas as pd
from sklearn.utils import check_random_state

from contrastive_lvm.arrays import Array, Covariates, RowLabels
from contrastive_lvm.checks import RandomState, check_integer
from contrastive_lvm.coordinate_ascent.activity_search import BlockSupport
from contrastive_lvm.designs import Block, Blocks
from contrastive_lvm.estimators.base_estimator import all_or_nothing
from contrastive_lvm.estimators.covariates import (
    Given,
    check_effects,
    checked_encoding,
    covariate_table,
    encode_sets,
)
from contrastive_lvm.estimators.frames import RowNumbers
from contrastive_lvm.estimators.input_rows import rows_for_fit
from contrastive_lvm.estimators.linear_fit import (
    FitInput,
    check_groups,
    fit_input,
    run_engine,
    warn_about_convergence,
    with_found_sizes,
)
from contrastive_lvm.estimators.multi_set_predictions import MultiSetPredictions
from contrastive_lvm.estimators.parse_blocks import (
    RESERVED,
    model_of_blocks,
    refuse_idle_sets,
    refuse_too_many_columns,
    resolve_blocks,
)
from contrastive_lvm.estimators.parse_params import EngineLike, LikelihoodLike
from contrastive_lvm.estimators.prediction_model import PredictionModel
from contrastive_lvm.estimators.reporting import report_of_sets
from contrastive_lvm.estimators.row_sets import SetsOfRows, coded_labels, places_of_sets, split_rows
from contrastive_lvm.io.model_files import SavedState
from contrastive_lvm.io.value_checks import check_values, whole
from contrastive_lvm.model import Model
from contrastive_lvm.posterior import Posterior
from contrastive_lvm.progress import verbosity

Support: TypeAlias = dict[str, BlockSupport] | None  # of blocks whose sizes were found


class MultiSetLVM(MultiSetPredictions):
    """Latent dimensions that some sets of rows share and others lack, for any number of sets.

    Row i of set s follows `x = sum_b L_b h_b + mean_s + noise`, summed over the blocks b that set s
    has, with standard normal latents `h`. Two sets with a shared block and a block of the first set
    give `ContrastiveLVM`. A block for all sets and one for each set give multi-study factor
    analysis (De Vito et al. 2019). `contrastive_lvm.designs` has the blocks of common designs. NaN
    is a missing entry and marginalised exactly.

    Parameters
    ----------
    blocks : dict of str to Block, int or "auto"; or "auto"
        Latent dimensions by name. A number means a block that all sets have, and
        `Block(2, sets=["a", "b"])` a block that only the named sets have. Two blocks of the same
        sets raise an error. A size `"auto"` is found from the data and may be 0; `blocks="auto"`
        tries every combination of sets.
    likelihood : str or object
        As in `ContrastiveLVM`; `Gaussian(noise="feature", sets="own")` gives each set and feature a
        noise variance of its own, as multi-study factor analysis has them.
    covariate_effects : {"shared", "own"}
        Whether the covariates given to `fit` have the same effects in all sets, or separate effects
        in each set.
    inference, n_init, random_state, verbose
        As in `ContrastiveLVM`.

    Attributes
    ----------
    components_ : dict of str to ndarray of shape (n_components, n_features)
        Loadings of each block: orthogonal rows, ordered by variance, the largest loading of each
        positive.
    components_std_ : dict of str to ndarray or None
        Posterior standard deviations of the components; None if these are points.
    mean_ : dict of str to ndarray of shape (n_features,)
        Mean of each set; with covariates, the mean of rows whose covariates are average.
    covariate_effects_ : dict of str to DataFrame, or None
        Change of the mean of each feature (column) with each covariate (row) in each set, as in
        `ContrastiveLVM`.
    covariate_mean_ : Series or None
        Means of the covariates over all rows, to which `mean_` belongs.
    noise_variance_ : dict of str to float or ndarray of shape (n_features,)
        Noise variances of each set, equal in all sets unless the likelihood has `sets="own"`.
    blocks_ : dict of str to Block
        The fitted blocks with their sizes and sets. Automatic blocks that the data did not support
        are left out.
    activity_ : DataFrame
        Number of dimensions of each block (column) in each set (row), 0 where the set lacks it.
    variance_ratio_ : DataFrame
        Share of each block (column), and of the noise, in each set's modelled variance; rows sum
        to 1.
    block_evidence_ : DataFrame or None
        If sizes were found from the data: for each block (row) that was tried, `n_components`, the
        `gain` of its weakest dimension in nats of the log-likelihood, the `next_gain` of one more
        dimension, and the gain that is `needed` (a dimension of pure noise gains about one nat per
        feature).
    feature_relevance_ : dict of str to ndarray of shape (n_features,)
        Norm of each feature's loadings in a block.
    selected_features_ : dict of str to ndarray of bool of shape (n_features,)
        Features that the prior of the block has not dropped.
    set_sizes_ : dict of str to int
        Rows of each set.
    dispersion_, lower_bound_, lower_bounds_, lower_bound_error_, n_iter_, converged_, posterior_
        As in `ContrastiveLVM`.
    n_samples_ : int
        Rows of all sets.
    n_features_in_, feature_names_in_
        As in scikit-learn.

    Examples
    --------
    >>> import contrastive_lvm as clvm
    >>> data = clvm.datasets.make_multi_set(random_state=0)
    >>> own, common = clvm.Block(1, sets=["c"]), clvm.Block(1, sets=["b", "c"])
    >>> model = clvm.MultiSetLVM({"shared": 3, "b+c": common, "c": own})
    >>> model = model.fit(data.rows, sets=data.sets)
    >>> model.components_["b+c"].shape, sorted(model.mean_)
    ((1, 20), ['a', 'b', 'c'])
    >>> model.transform(data.rows, sets=data.sets).shape
    (300, 2)
    """

    __metadata_request__fit: ClassVar[dict[str, bool]] = {
        "sets": True,
        "sample_weight": True,
        "groups": True,
        "covariates": True,
    }
    __metadata_request__transform: ClassVar[dict[str, bool]] = {"sets": True, "covariates": True}
    __metadata_request__inverse_transform: ClassVar[dict[str, bool]] = {"sets": True}
    __metadata_request__score: ClassVar[dict[str, bool]] = {
        "sets": True,
        "sample_weight": True,
        "covariates": True,
    }

    report = report_of_sets

    def __init__(
        self,
        blocks: Blocks | str,
        *,
        likelihood: LikelihoodLike = "gaussian",
        covariate_effects: str = "shared",
        inference: EngineLike = "auto",
        n_init: int = 1,
        random_state: RandomState = None,
        verbose: bool = False,
    ) -> None:
        self.blocks = blocks
        self.likelihood = likelihood
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
        sets: RowLabels,
        groups: RowLabels = None,
        covariates: Covariates = None,
        sample_weight: RowNumbers = None,
        size_factors: RowNumbers = None,
    ) -> Self:
        """Fit the model to rows of several sets.

        Parameters
        ----------
        X : array-like, sparse matrix, or rows out of core, of shape (n, d)
            Rows of all sets, in any order; NaN and masked entries are missing. Memory maps, Dask
            arrays, and arrays of HDF5, Zarr or backed AnnData are read a chunk at a time.
        y : ignored
        sets : array-like of shape (n,)
            The set of each row. Labels that are not strings are converted to text.
        groups : array-like of shape (n,), optional
            The replicate of each row, such as its donor. `fit` only checks it; tests, folds and
            intervals use it.
        covariates : frame or array-like of shape (n, c), optional
            Known columns such as age, sex or batch. Their effects on the mean of a row are
            estimated with the rest of the model, as in `ContrastiveLVM`. The other methods then
            need covariates too.
        sample_weight : array-like of shape (n,), optional
            Weights of rows, as in `ContrastiveLVM`.
        size_factors : array-like of shape (n,), optional
            Size factors of rows of counts, which replace their totals divided by the total of an
            average row. The other methods then need them too.

        Returns
        -------
        self

        Examples
        --------
        >>> import contrastive_lvm as clvm
        >>> data = clvm.datasets.make_multi_set(random_state=0)
        >>> design = clvm.designs.each_its_own(["a", "b", "c"], n_shared=3, n_each=1)
        >>> clvm.MultiSetLVM(design).fit(data.rows, sets=data.sets).converged_
        True
        """
        n_init = check_integer("n_init", self.n_init, 1)
        given, ready = self._read_input(X, sets, covariates, sample_weight, size_factors)
        check_groups(groups, sum(given.n_rows.values()))
        rng, support = check_random_state(self.random_state), None
        with verbosity() if self.verbose else nullcontext():
            if any(block.automatic for block in ready.model.blocks):
                ready, support = with_found_sizes(ready)
            run = run_engine(ready, given.size_factors, n_init, rng)
        self.set_sizes_, self.n_samples_ = given.n_rows, sum(given.n_rows.values())
        self._publish(run.best, ready.model, support)
        self.n_iter_ = run.n_iter
        if not self.converged_:
            warn_about_convergence(ready.engine)
        return self

    def _read_input(
        self,
        X: Any,
        sets: RowLabels,
        covariates: Covariates = None,
        sample_weight: RowNumbers = None,
        size_factors: RowNumbers = None,
        blocks: Blocks | None = None,
    ) -> tuple[SetsOfRows, FitInput]:
        """Check rows and parameters; `blocks` stand for those of the estimator."""
        rows = rows_for_fit(self, X)
        places = places_of_sets(*coded_labels(sets, rows.shape[0]))
        given = split_rows(X, rows, places, sample_weight, size_factors)
        known = self._read_covariates(covariates, given, rows.shape[0])
        model = self._checked_model(given, self.blocks if blocks is None else blocks)
        names = tuple(f"X in set {name!r}" for name in given.places)
        return given, fit_input(model, self.inference, given.rows, given.weights, names, known)

    def _read_covariates(
        self, covariates: Covariates, given: SetsOfRows, n_rows: int
    ) -> list[Array] | None:
        """Store the encoding of covariates, and return the covariates of each set."""
        own, self._encoding = check_effects(self.covariate_effects), None
        if covariates is None:
            return None
        table = pd.DataFrame(covariate_table(covariates, n_rows, "covariates"))
        sets = [
            Given("covariates", table.iloc[at].reset_index(drop=True), n, weights)
            for at, n, weights in zip(
                given.places.values(), given.n_rows.values(), given.weights, strict=True
            )
        ]
        self._encoding, encoded = encode_sets(sets, tuple(given.places), own=own)
        return encoded

    def _checked_model(self, given: SetsOfRows, allowed: Blocks | str) -> Model:
        blocks = resolve_blocks(allowed, tuple(given.places))
        refuse_idle_sets(blocks, tuple(given.places))
        model = model_of_blocks(self, blocks, given.n_rows)
        refuse_too_many_columns(model, self.n_features_in_, given.n_rows)
        return model

    def fit_transform(
        self,
        X: Any,
        y: object = None,
        *,
        sets: RowLabels,
        groups: RowLabels = None,
        covariates: Covariates = None,
        sample_weight: RowNumbers = None,
        size_factors: RowNumbers = None,
    ) -> Array:
        """Fit, then `transform(X, sets=sets)`."""
        options = {"groups": groups, "sample_weight": sample_weight}
        facts = {"size_factors": size_factors, "covariates": covariates}
        self.fit(X, y, sets=sets, **facts, **options)
        return self.transform(X, sets=sets, **facts)

    def _publish(self, posterior: Posterior, model: Model, support: Support) -> None:
        """Publish the results as the documented attributes."""
        self._publish_ascent(posterior)
        self.block_evidence_ = None
        if support is not None:
            self.block_evidence_ = pd.DataFrame.from_dict(
                support, orient="index", columns=list(BlockSupport._fields)
            )
        active = {s: tuple(b.name for b in model.blocks if s in b.sets) for s in model.sets}
        self._prediction_model = PredictionModel(
            posterior, model.likelihood, active, self._encoding
        )
        self.covariate_effects_ = self._effects_of_sets() or None
        loadings, stds = posterior.loadings, posterior.loading_stds()
        self.blocks_ = {
            b.name: Block(loadings[b.name].shape[1], b.sets, b.prior) for b in model.blocks
        }
        self.components_ = {name: L.T.copy() for name, L in loadings.items()}
        self.components_std_ = {
            name: None if std is None else np.ascontiguousarray(std.T) for name, std in stds.items()
        }
        self.mean_ = dict(posterior.means)
        noise = {name: posterior.nuisance_of(name).noise for name in model.sets}
        one = model.likelihood._is_isotropic
        self.noise_variance_ = {
            name: float(psi[0]) if one or not psi.any() else psi for name, psi in noise.items()
        }
        self._publish_shares(active, noise)
        self._publish_features(model)

    def _publish_shares(self, active: dict[str, tuple[str, ...]], noise: dict[str, Array]) -> None:
        loadings = self.posterior_.loadings
        sizes = [[L.shape[1] * (b in active[s]) for b, L in loadings.items()] for s in active]
        self.activity_ = pd.DataFrame(sizes, index=list(active), columns=list(loadings))
        variances = {b: float(self.posterior_.column_variances(b).sum()) for b in loadings}
        shares = [
            [*(variances[b] * (b in active[s]) for b in loadings), psi.sum()]
            for s, psi in noise.items()
        ]
        totals = np.sum(shares, axis=1, keepdims=True)
        table = np.array(shares) / np.where(totals > 0, totals, 1.0)
        self.variance_ratio_ = pd.DataFrame(
            table, index=list(active), columns=[*loadings, RESERVED]
        )

    def _publish_features(self, model: Model) -> None:
        posterior = self.posterior_
        self.feature_relevance_ = {
            name: np.sqrt((posterior.unit_loadings(name) ** 2).sum(axis=1))
            for name in posterior.loadings
        }
        self.selected_features_ = {
            block.name: block.prior._selected_features(
                posterior.prior_states.get(block.name),
                self.feature_relevance_[block.name],
                posterior.unit_variance,
            )
            for block in model.blocks
        }

    def _fitted_state(self) -> dict[str, object]:
        table, support = self.block_evidence_, None
        if table is not None:
            values = zip(table.index, table.itertuples(index=False), strict=True)
            support = {str(name): BlockSupport(int(n), *map(float, x)) for name, (n, *x) in values}
        rest = {"blocks": self.blocks_, "set_sizes": self.set_sizes_, "support": support}
        return {**super()._fitted_state(), **rest}

    def _check_state(self, state: SavedState) -> None:
        sizes, blocks, support = state["set_sizes"], state["blocks"], state["support"]
        check_values({name: whole(2) for name in sizes}, sizes)
        self._encoding = checked_encoding(state["covariates"])
        allowed = resolve_blocks(self.blocks, tuple(sizes))
        found = {n: Block(b.n_components, b.sets, allowed[n].prior) for n, b in blocks.items()}
        resolved = resolve_blocks(found, tuple(sizes))
        if any(resolved[name].sets != allowed[name].sets for name in resolved):
            raise ValueError("its blocks are not those of its parameters")
        if support is not None and (
            set(support) != set(allowed)
            or not all(isinstance(own, BlockSupport) for own in support.values())
        ):
            raise ValueError("its evidence is not that of its blocks")
        self._check_saved(state["posterior"], model_of_blocks(self, blocks, sizes), sizes)

    def _fitted_model(self) -> Model:
        return model_of_blocks(self, self.blocks_, self.set_sizes_)

    def _restore(self, state: SavedState) -> None:
        self.set_sizes_, self.blocks_ = state["set_sizes"], state["blocks"]
        self._publish(state["posterior"], self._fitted_model(), state["support"])
