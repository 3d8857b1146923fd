"""A fitted model as predictions use it, size factors of rows, and outliers ranked by weight."""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import NamedTuple

import numpy as np
from scipy.special import chdtrc

from contrastive_lvm.arrays import TINY, Array, Covariates, Matrix
from contrastive_lvm.estimators.covariates import EncodedRows, Encoding, encode_rows
from contrastive_lvm.estimators.frames import RowNumbers, number_per_row
from contrastive_lvm.exceptions import InvalidDataError
from contrastive_lvm.likelihoods.base import Likelihood, ScaleMixture
from contrastive_lvm.posterior import Posterior
from contrastive_lvm.prediction import Drawn, Fixed, Linear, View, row_posteriors
from contrastive_lvm.rows.gaussian_vi_rows import Generalised, Learned
from contrastive_lvm.rows.latent_distribution import LatentDistribution
from contrastive_lvm.rows.reader import Rows
from contrastive_lvm.rows.size_factors import log_sizes, mean_profile

SAMPLES = 100  # of the parameters; averages have a tenth of their error


class Latents(NamedTuple):
    """Posterior of the latents of rows; `target` is None for rows of the background."""

    target: Array | None  # (N, n_target) means
    target_std: Array | None  # (N, n_target) standard deviations
    shared: Array  # (N, n_shared) means
    shared_std: Array  # (N, n_shared) standard deviations
    cov: Array  # (N, K, K) covariances: columns of the target, then shared ones


class BackgroundLatents(NamedTuple):
    """Posterior of the latents of background rows if the background has dimensions of its own.

    Examples
    --------
    >>> import contrastive_lvm as clvm
    >>> data = clvm.datasets.make_multi_set({"a+b": 2, "a": 1, "b": 1}, random_state=0)
    >>> X, background = data.rows[data.sets == "a"], data.rows[data.sets == "b"]
    >>> model = clvm.ContrastiveLVM(1, 2, n_background=1).fit(X, background=background)
    >>> model.latents(background, of="background").background.shape
    (100, 1)
    """

    target: None  # background rows have none
    target_std: None  # background rows have none
    shared: Array  # (N, n_shared) means
    shared_std: Array  # (N, n_shared) standard deviations
    cov: Array  # (N, K, K) covariances: shared columns, then the background's
    background: Array  # (N, n_background) means
    background_std: Array  # (N, n_background) standard deviations


class Outliers(NamedTuple):
    """Weights of entries or rows, and their ranking from the most outlying on."""

    weights: Array  # (N, D) or (N, 1) weights E[u]; NaN where missing
    row_weights: Array  # (N,) mean weights of rows
    rows: np.ndarray  # (N,) row indices, the most outlying first
    entries: np.ndarray | None  # (M, 2) row and column of observed entries, the most outlying first


class RowFacts(NamedTuple):
    """What users pass in with rows besides their entries."""

    size_factors: RowNumbers = None
    covariates: Covariates | EncodedRows = None

    def of(self, rows: slice | np.ndarray) -> "RowFacts":
        """Return the values of some rows, once they are arrays."""
        sizes, known = self
        sizes = None if sizes is None else np.asarray(sizes)[rows]
        if known is not None and not isinstance(known, EncodedRows):
            known = np.asarray(known)
        return RowFacts(sizes, None if known is None else known[rows])


AVERAGE = RowFacts()


@dataclass(frozen=True)
class PredictionModel:
    """A fitted model as predictions use it; the view of each set is made once, when needed.

    `blocks` are those active in each set, in the order in which their latents are returned.
    """

    posterior: Posterior
    likelihood: Likelihood
    blocks: Mapping[str, tuple[str, ...]]
    encoding: Encoding | None = None  # of covariates, if there are any
    _views: dict[str, Fixed] = field(default_factory=dict, init=False, repr=False, compare=False)

    @cached_property
    def _samples(self) -> tuple["PredictionModel", ...]:
        """Return the model at draws of its parameters, where a fit has them."""
        own = (self.likelihood, self.blocks, self.encoding)
        return tuple(PredictionModel(s, *own) for s in self.posterior._samples(SAMPLES))

    def view(self, of: str) -> Fixed:
        """Return the model of a set's rows; a set without rows in the fit is like the first."""
        if of not in self._views:
            name = of if of in self.posterior.means else next(iter(self.posterior.means))
            self._views[of] = self._of_set(self.blocks[of], name)
        return self._views[of]

    def columns(self, of: str) -> dict[str, slice]:
        """Return where each active block's latents are among those of a set."""
        sizes = [self.posterior.loadings[name].shape[1] for name in self.blocks[of]]
        ends = np.cumsum(sizes).tolist()
        places = zip(self.blocks[of], sizes, ends, strict=True)
        return {name: slice(end - n, end) for name, n, end in places}

    def _of_set(self, blocks: tuple[str, ...], name: str) -> Fixed:
        p, closed, df = self.posterior, self.likelihood, self.posterior.df or 0.0
        loadings, mean, nuisance = p.joint_loadings(blocks), p.means[name], p.nuisance_of(name)
        effects = p.effects.get(name)
        if not isinstance(closed, ScaleMixture):
            learned = Learned(self.likelihood, nuisance)
            sized = self.likelihood._sized_features(len(mean))
            scales = None
            if p.information:
                scales = np.concatenate([p.latent_scales(block) for block in blocks])
            return Generalised(loadings, mean, learned, np.zeros(0), sized, effects, scales=scales)
        distribution = self._latent_distribution(blocks)
        if not closed._is_scale_mixture:
            return Linear(
                loadings, mean, nuisance.noise, distribution=distribution, effects=effects
            )
        return Linear(
            loadings,
            mean,
            nuisance.noise,
            partial(closed.scales, df=df),
            closed._variance_factor(df),
            partial(closed._draw_scales, df),
            distribution=distribution,
            effects=effects,
        )

    def _latent_distribution(self, blocks: tuple[str, ...]) -> LatentDistribution | None:
        """Return the distribution of latents that are not standard normal, if there are any."""
        sizes = [self.posterior.loadings[name].shape[1] for name in blocks]
        ends = np.cumsum(sizes)
        for name, n, end in zip(blocks, sizes, ends, strict=True):
            if n and name in self.posterior.latent_mixtures:
                return LatentDistribution(
                    np.arange(end - n, end), self.posterior.latent_mixtures[name]
                )
        return None

    def encode(self, covariates: Covariates | EncodedRows, n_rows: int) -> EncodedRows | None:
        """Return the covariates of rows, encoded; None if the model has none."""
        return encode_rows(self.encoding, covariates, n_rows)

    def for_rows(self, of: str, rows: Matrix, facts: RowFacts) -> View:
        """Return the model of given rows of a set; sizes not given come from the rows' totals."""
        if self.posterior.draws is not None:
            return Drawn(tuple(s._for_rows(of, rows, facts) for s in self._samples))
        return self._for_rows(of, rows, facts)

    def _for_rows(self, of: str, rows: Matrix, facts: RowFacts) -> Fixed:
        n = rows.shape[0]
        found, known = self.view(of), None
        if self.encoding is not None or facts.covariates is not None:
            known = self.encode(facts.covariates, n)
        if facts.size_factors is not None:
            return self._for_new_rows(of, n, facts._replace(covariates=known))
        found = found if known is None else found._replace(covariates=known.values)
        if isinstance(found, Linear):
            return found
        if self.posterior.profile is not None:
            return found._replace(log_sizes=log_sizes(rows, self.posterior.profile))
        if found.sized.any():
            raise ValueError(
                "size_factors=None, but the model was fitted with size factors of your own; give "
                "size factors of these rows too."
            )
        return self._for_new_rows(of, n, facts._replace(covariates=known))

    def for_new_rows(self, of: str, n: int, facts: RowFacts = AVERAGE) -> View:
        """Return the model of new rows, of size 1 and with average covariates unless given."""
        if self.posterior.draws is not None:
            return Drawn(tuple(s._for_new_rows(of, n, facts) for s in self._samples))
        return self._for_new_rows(of, n, facts)

    def _for_new_rows(self, of: str, n: int, facts: RowFacts) -> Fixed:
        found = self.view(of)
        if facts.covariates is not None:
            known = self.encode(facts.covariates, n)
            found = found._replace(covariates=None if known is None else known.values)
        sizes = given_sizes(self.likelihood, facts.size_factors, (n, len(found.mean)))
        return found if isinstance(found, Linear) else found._replace(log_sizes=sizes)

    def without_rows(self) -> "PredictionModel":
        """Leave out what grows with the data of the fit."""
        draws = self.posterior.draws
        light = self.posterior._replace(
            weights=(), state=None, draws=draws and draws._without_latents()
        )
        return PredictionModel(light, self.likelihood, self.blocks, self.encoding)

    def __reduce__(self) -> tuple[object, ...]:
        """Copy and pickle the fit alone."""
        return PredictionModel, (self.posterior, self.likelihood, self.blocks, self.encoding)


def contrastive_predictions(
    posterior: Posterior, likelihood: Likelihood, encoding: Encoding | None = None
) -> PredictionModel:
    """Return predictions for target and background; latents of the target's own come first."""
    order = {"target": ("target", "shared"), "background": ("shared", "background")}
    found = {
        of: tuple(b for b in blocks if b in posterior.loadings) for of, blocks in order.items()
    }
    return PredictionModel(posterior, likelihood, found, encoding)


def sizes_of_sets(
    likelihood: Likelihood, sets: list[Rows], given: Sequence[RowNumbers]
) -> tuple[tuple[Array, ...], Array | None]:
    """Return log size factors of all sets, and the mean row (of size 1) unless they were given."""
    if all(factors is None for factors in given):
        profile = mean_profile(likelihood, sets)
        return tuple(log_sizes(X, profile) for X in sets), profile
    pairs = zip(given, sets, strict=False)
    found = tuple(given_sizes(likelihood, factors, X.shape) for factors, X in pairs)
    if len(sets) > 1 and any(factors is None for factors in given):
        raise ValueError("size_factors and background_size_factors go together; give both or none.")
    return found, None


def given_sizes(likelihood: Likelihood, size_factors: RowNumbers, shape: tuple[int, int]) -> Array:
    """Return the logs of given size factors, all 1 when None."""
    n, n_features = shape
    if size_factors is None:
        return np.zeros(n)
    if not likelihood._sized_features(n_features).any():
        raise ValueError(
            f"size_factors were given, but {likelihood!r} has none; leave them out, or use counts "
            'with size_factors="total".'
        )
    sizes = number_per_row("size_factors", size_factors, n)
    wrong = ~(np.isfinite(sizes) & (sizes > 0))
    if wrong.any():
        reason = (
            f"contains {sizes[wrong][0]:g}, but a size factor must be a positive number; "
            "drop rows without counts, or leave size_factors out."
        )
        raise InvalidDataError("size_factors", reason)
    return np.log(sizes)


def tail_probabilities(model: Linear, X: Matrix) -> Array:
    """Log of the probability that a row lies farther out than each of these, (N,).

    The squared Mahalanobis distance of the observed entries, with respect to their marginal
    `N(mean, L L' + psi)`, is `min_h sum_d (x_d - mean_d - l_d'h)^2 / psi_d + |h|^2`, attained at
    the posterior mean; it is chi-square distributed with as many degrees of freedom as the row has
    observed entries. Where the probability underflows its Chernoff bound
    `exp(-(q - k - k ln(q / k)) / 2)` stands for it. Mixtures of latents count as one normal
    distribution, that of their mean 0 and covariance I.
    """
    logs = np.empty(X.shape[0])
    for block in row_posteriors(model._replace(distribution=None), X):
        observed = block.observed[block.pattern]
        fitted = model.means_of(block.rows) + block.mean.T @ model.L.T
        residual = (block.values - fitted) * observed
        q = (residual**2 / model.psi).sum(axis=1) + (block.mean**2).sum(axis=0)
        k = np.maximum(observed.sum(axis=1), 1)
        p, ratio = chdtrc(k, q), np.maximum(q / k, 1.0)
        bound = -0.5 * k * (ratio - 1.0 - np.log(ratio))
        logs[block.rows] = np.where(p > TINY, np.log(np.maximum(p, TINY)), bound)
    return logs


def ranked(weights: Array, n_features: int) -> Outliers:
    """Rank rows by weights, (N, D) or (N, 1), or else by log probabilities, (N,)."""
    if weights.ndim == 1:
        ones = np.ones(len(weights))
        return Outliers(ones[:, None], ones, np.argsort(weights, kind="stable"), None)
    row_weights = _weights_of_rows(weights)
    entries = _lightest(weights) if weights.shape[1] == n_features else None
    return Outliers(weights, row_weights, np.argsort(row_weights, kind="stable"), entries)


def _weights_of_rows(weights: Array) -> Array:
    """Return means over the observed entries of each row, 1 where there is none, (N,)."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # rows without an observed entry
        means: Array = np.nan_to_num(np.nanmean(weights, axis=1), nan=1.0)
    return means


def _lightest(weights: Array) -> np.ndarray:
    """Return row and column of the observed entries, from the least weight on, (M, 2)."""
    order = np.argsort(np.nan_to_num(weights, nan=np.inf), axis=None, kind="stable")
    order = order[: int(np.isfinite(weights).sum())]
    return np.column_stack(np.unravel_index(order, weights.shape))
