"""The methods that apply a fitted model of several sets to rows."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils import check_random_state

from contrastive_lvm import prediction
from contrastive_lvm.arrays import Array, Covariates, Matrix, RowLabels
from contrastive_lvm.checks import RandomState, check_choice, check_integer
from contrastive_lvm.designs import Block
from contrastive_lvm.estimators.frames import RowNumbers, follows_output, number_per_row
from contrastive_lvm.estimators.input_rows import by_chunks, check_latents, mean_score
from contrastive_lvm.estimators.linear_estimator import (
    LinearEstimator,
    kept_latents,
    remove_blocks,
    trust_in_rows,
)
from contrastive_lvm.estimators.prediction_model import Outliers, RowFacts, ranked
from contrastive_lvm.estimators.row_sets import check_labels, coded_labels, places_of_sets, size_of
from contrastive_lvm.estimators.units import log_volumes

# The model of a set, its rows and its name, to one or several arrays of as many rows.
SetFunction = Callable[[prediction.View, Matrix, str], Array | tuple[Array, ...]]


class BlockLatents(NamedTuple):
    """Posterior of the latents of rows by block; NaN in rows of sets that lack the block."""

    mean: dict[str, Array]  # (N, n) means of each block
    std: dict[str, Array]  # (N, n) standard deviations of each block


class MultiSetPredictions(LinearEstimator):
    """The methods of a linear model of several sets that need only its `posterior_`.

    Every method takes the set of each row, or one name for all of them.
    """

    blocks_: dict[str, Block]

    @property
    def _sets(self) -> tuple[str, ...]:
        return tuple(self._fitted().blocks)

    @property
    def _public_blocks(self) -> tuple[str, ...]:
        """Return the blocks whose latents `transform` returns."""
        everywhere = set(self._sets)
        some = [name for name, b in self.blocks_.items() if set(b.sets or ()) != everywhere]
        return tuple(some or self.blocks_)

    @property
    def _n_features_out(self) -> int:
        return sum(self.posterior_.loadings[name].shape[1] for name in self._public_blocks)

    def get_feature_names_out(self, input_features: object = None) -> np.ndarray:
        """Return names of the columns of `transform`: a block and the number of its dimension."""
        sizes = [(b, self.posterior_.loadings[b].shape[1]) for b in self._public_blocks]
        return np.array([f"{b}{i}" for b, n in sizes for i in range(n)], dtype=object)

    def _check_row_options(self, n_rows: int, options: dict[str, Any]) -> dict[str, Any]:
        labels = check_labels(options.get("sets"), n_rows, self._sets)
        return {**super()._check_row_options(n_rows, options), "sets": labels}

    def _by_set(
        self, X: Any, sets: RowLabels, facts: RowFacts, function: SetFunction
    ) -> tuple[Array, ...]:
        """Apply a function to the rows of each set, and put the results in the order of rows."""
        rows, fitted = self._read(X), self._fitted()
        places = places_of_sets(*coded_labels(sets, rows.shape[0], self._sets))
        checked = self._check_facts(facts, rows.shape[0])
        found: list[Array] = []
        for name, at in places.items():
            own = rows[at]
            result = function(fitted.for_rows(name, own, checked.of(at)), own, name)
            parts = result if isinstance(result, tuple) else (result,)
            found = found or [np.empty((rows.shape[0], *p.shape[1:]), dtype=p.dtype) for p in parts]
            for whole, part in zip(found, parts, strict=True):
                whole[at] = part
        return tuple(found)

    def _check_facts(self, facts: RowFacts, n_rows: int) -> RowFacts:
        sizes = facts.size_factors
        if sizes is not None:
            sizes = number_per_row("size_factors", sizes, n_rows)
        return RowFacts(sizes, self._fitted().encode(facts.covariates, n_rows))

    def _check_blocks(self, argument: str, blocks: Sequence[str] | str) -> tuple[str, ...]:
        chosen = (blocks,) if isinstance(blocks, str) else tuple(blocks)
        for name in chosen:
            check_choice(argument, name, tuple(self.blocks_))
        return chosen

    @by_chunks
    def transform(
        self,
        X: Any,
        *,
        sets: RowLabels,
        size_factors: RowNumbers = None,
        covariates: Covariates = None,
    ) -> Array:
        """Return posterior means of the latents that only some of the sets have.

        These are the columns of all blocks that are not active in every set, in the order of
        `blocks`; of all blocks if each is active everywhere. A row has zeros in blocks that its set
        lacks, since they add nothing to it. `latents` has all blocks by name.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n, d)
        sets : array-like of shape (n,), or str
            The set of each row, or of all.
        size_factors, covariates : optional, as in `fit`

        Returns
        -------
        ndarray of shape (n, columns)
        """

        def means(view: prediction.View, rows: Matrix, of: str) -> Array:
            return self._spread(prediction.latent_means(view, rows), of, self._public_blocks, 0.0)

        return self._by_set(X, sets, RowFacts(size_factors, covariates), means)[0]

    def _spread(self, values: Array, of: str, blocks: Sequence[str], absent: float) -> Array:
        """Return columns of some blocks, (N, n), with a fill value for blocks that a set lacks."""
        columns, L = self._fitted().columns(of), self.posterior_.loadings
        parts = [
            values[:, columns[b]] if b in columns else np.full((len(values), L[b].shape[1]), absent)
            for b in blocks
        ]
        return np.hstack([values[:, :0], *parts])

    def latents(
        self,
        X: Any,
        *,
        sets: RowLabels,
        size_factors: RowNumbers = None,
        covariates: Covariates = None,
    ) -> BlockLatents:
        """Return the posterior of all latents of rows, by block.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n, d)
        sets : array-like of shape (n,), or str
            The set of each row, or of all.
        size_factors, covariates : optional, as in `fit`

        Returns
        -------
        BlockLatents
            Named tuple `mean, std` of dicts by block, each of shape (n, n_components); NaN in
            rows of sets that lack the block.

        Examples
        --------
        >>> import contrastive_lvm as clvm
        >>> data = clvm.datasets.make_multi_set(random_state=0)
        >>> model = clvm.MultiSetLVM({"shared": 3, "b": clvm.Block(1, sets=["b"])})
        >>> model = model.fit(data.rows, sets=data.sets)
        >>> latents = model.latents(data.rows, sets=data.sets)
        >>> latents.mean["b"].shape, latents.std["shared"].shape
        ((300, 1), (300, 3))
        """
        found = self._latents(X, sets=sets, size_factors=size_factors, covariates=covariates)
        sizes = [self.posterior_.loadings[name].shape[1] for name in self.blocks_]
        ends = np.cumsum(sizes)[:-1]
        mean, std = (np.split(np.asarray(part), ends, axis=1) for part in found)
        return BlockLatents(
            dict(zip(self.blocks_, mean, strict=True)), dict(zip(self.blocks_, std, strict=True))
        )

    @by_chunks
    def _latents(
        self, X: Any, *, sets: RowLabels, size_factors: RowNumbers, covariates: Covariates
    ) -> tuple[Array, ...]:
        def moments(view: prediction.View, rows: Matrix, of: str) -> tuple[Array, ...]:
            mean, cov = prediction.latent_moments(view, rows)
            std = np.sqrt(np.einsum("nkk->nk", cov))
            blocks = tuple(self.blocks_)
            return tuple(self._spread(part, of, blocks, np.nan) for part in (mean, std))

        return self._by_set(X, sets, RowFacts(size_factors, covariates), moments)

    @follows_output
    def inverse_transform(self, T: ArrayLike, *, sets: RowLabels) -> Array:
        """Return features from the columns of `transform`: the mean of each row's set and `L h`."""
        latents = check_latents(T, self._n_features_out)
        found = np.empty((len(latents), self.n_features_in_))
        coded = coded_labels(sets, len(latents), self._sets)
        for name, at in places_of_sets(*coded).items():
            found[at] = self._from_public(latents[at], name)
        return found

    def _from_public(self, latents: Array, of: str) -> Array:
        columns, first = self._fitted().columns(of), 0
        h = np.zeros((len(latents), max([c.stop for c in columns.values()], default=0)))
        for name in self._public_blocks:
            n = self.posterior_.loadings[name].shape[1]
            if name in columns:
                h[:, columns[name]] = latents[:, first : first + n]
            first += n
        return prediction.rows_at(self._fitted().for_new_rows(of, len(h)), h)

    @follows_output
    @by_chunks
    def reconstruct(
        self,
        X: Any,
        *,
        sets: RowLabels,
        blocks: Sequence[str] | str | None = None,
        size_factors: RowNumbers = None,
        covariates: Covariates = None,
    ) -> Array:
        """Return the model mean of rows from the named blocks, by default all, (n, d).

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n, d)
        sets : array-like of shape (n,), or str
        blocks : sequence of str, optional
            What to add to the mean of the row's set and the effects of its covariates; blocks that
            a set lacks add nothing.
        size_factors, covariates : optional, as in `fit`
        """
        chosen = tuple(self.blocks_) if blocks is None else self._check_blocks("blocks", blocks)

        def expected(view: prediction.View, rows: Matrix, of: str) -> Array:
            return prediction.reconstruct(view, rows, kept_latents(self._fitted(), chosen, of))

        return self._by_set(X, sets, RowFacts(size_factors, covariates), expected)[0]

    @follows_output
    @by_chunks
    def denoise(
        self,
        X: Any,
        *,
        sets: RowLabels,
        remove: Sequence[str] | str | None = None,
        size_factors: RowNumbers = None,
        covariates: Covariates = None,
        remove_covariates: bool = False,
    ) -> Array:
        """Return rows with some blocks removed, by default those that all sets have, (n, d).

        Missing entries are filled. Counts and binary entries become the expected value at the
        remaining predictor, for a row of average size.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n, d)
        sets : array-like of shape (n,), or str
        remove : sequence of str, optional
            Names of blocks.
        size_factors, covariates : optional, as in `fit`
        remove_covariates : bool
            Also remove what the covariates add to the mean of a row whose covariates are average.
        """
        everywhere = set(self._sets)
        shared = [name for name, b in self.blocks_.items() if set(b.sets or ()) == everywhere]
        gone = tuple(shared) if remove is None else self._check_blocks("remove", remove)

        def denoised(view: prediction.View, rows: Matrix, of: str) -> Array:
            fitted, covariates = self._fitted(), remove_covariates
            kept = ~kept_latents(fitted, gone, of)
            return remove_blocks(fitted, view, rows, of, kept, remove_covariates=covariates)

        return self._by_set(X, sets, RowFacts(size_factors, covariates), denoised)[0]

    @follows_output
    @by_chunks
    def impute(
        self,
        X: Any,
        *,
        sets: RowLabels,
        return_std: bool = False,
        size_factors: RowNumbers = None,
        covariates: Covariates = None,
    ) -> Array | tuple[Array, Array]:
        """Return X with its NaN replaced by their conditional means (and standard deviations).

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n, d)
        sets : array-like of shape (n,), or str
        return_std : bool
            Also return the conditional standard deviations, zero for observed entries.
        size_factors, covariates : optional, as in `fit`
        """

        def filled(view: prediction.View, rows: Matrix, of: str) -> tuple[Array, ...]:
            values, std = prediction.fill(view, rows, with_std=return_std)
            return (values,) if std is None else (values, std)

        found = self._by_set(X, sets, RowFacts(size_factors, covariates), filled)
        return (found[0], found[1]) if return_std else found[0]

    @follows_output
    def sample(
        self,
        n_samples: int,
        *,
        sets: RowLabels,
        blocks: Sequence[str] | str | None = None,
        size_factors: RowNumbers = None,
        covariates: Covariates = None,
        random_state: RandomState = None,
    ) -> Array:
        """Draw new rows from the model, (n_samples, d).

        Parameters
        ----------
        n_samples : int
            Number of rows.
        sets : str, or array-like of shape (n_samples,)
            The set that all rows, or each of them, are drawn from.
        blocks : sequence of str, optional
            Blocks whose latents vary; all when left out.
        size_factors : array-like of shape (n_samples,), optional
            Sizes of rows of counts; 1, an average row's, when left out.
        covariates : optional, as in `fit`
            Covariates of the new rows.
        random_state : int, RandomState instance or None
        """
        n, fitted = check_integer("n_samples", n_samples, 1), self._fitted()
        chosen = tuple(self.blocks_) if blocks is None else self._check_blocks("blocks", blocks)
        coded, rng = coded_labels(sets, n, self._sets), check_random_state(random_state)
        facts = self._check_facts(RowFacts(size_factors, covariates), n)
        drawn = np.empty((n, self.n_features_in_))
        for name, at in places_of_sets(*coded).items():
            size = size_of(at)
            view = fitted.for_new_rows(name, size, facts.of(at))
            kept = kept_latents(fitted, chosen, name)
            drawn[at] = prediction.draw(view, size, rng, active=kept)
        return drawn

    def outliers(
        self,
        X: Any,
        *,
        sets: RowLabels,
        size_factors: RowNumbers = None,
        covariates: Covariates = None,
    ) -> Outliers:
        """Return how much each row and entry is trusted, as in `ContrastiveLVM.outliers`."""
        trust = np.asarray(
            self._trust(X, sets=sets, size_factors=size_factors, covariates=covariates)
        )
        return ranked(trust, self.n_features_in_)

    @by_chunks
    def _trust(
        self, X: Any, *, sets: RowLabels, size_factors: RowNumbers, covariates: Covariates
    ) -> Array:
        facts = RowFacts(size_factors, covariates)
        return self._by_set(X, sets, facts, lambda view, rows, _: trust_in_rows(view, rows))[0]

    @by_chunks
    def score_samples(
        self,
        X: Any,
        *,
        sets: RowLabels,
        size_factors: RowNumbers = None,
        covariates: Covariates = None,
    ) -> Array:
        """Return the log-likelihood of each row's observed entries, latents integrated out.

        It is exact for Gaussian noise and point loadings, otherwise the row's part of the bound.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n, d)
        sets : array-like of shape (n,), or str
        size_factors, covariates : optional, as in `fit`
        """

        def scores(view: prediction.View, rows: Matrix, of: str) -> Array:
            return prediction.log_likelihoods(view, rows) - log_volumes(self, rows)

        return self._by_set(X, sets, RowFacts(size_factors, covariates), scores)[0]

    def score(
        self,
        X: Any,
        y: object = None,
        sample_weight: RowNumbers = None,
        *,
        sets: RowLabels,
        size_factors: RowNumbers = None,
        covariates: Covariates = None,
    ) -> float:
        """Return the mean (or weighted mean) log-likelihood of rows."""
        scores = self.score_samples(X, sets=sets, size_factors=size_factors, covariates=covariates)
        return mean_score(scores, sample_weight)
