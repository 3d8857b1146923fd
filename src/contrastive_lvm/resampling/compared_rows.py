"""The rows that a test of contrast compares: two sets, or sets with and without a block.

Sets with the tested block of a model of several sets are one side, those without it the other.
Blocks that all sets have are shared by both sides. Those that only some sets have (and are not
tested) would be contrast between the sides too. With `L` the fitted loadings of all of them and
`psi` the noise of a row's set, the coordinates of the row along `psi^-1/2 L`, which contain all
that these blocks add to it, are replaced by noise of the same variance as in other directions.

`L` comes from a model without the tested block, in line with the null hypothesis: beside a block
that fits noise, other blocks fit the rows of its sets less well, and in 60 + 60 + 60 rows of 80
features the test had a level of 21 % instead of 3 %. If the block gains far more than one of noise,
other blocks would take its place, and `L` is that of the whole model. In 100 simulated data sets of
each of nine kinds (nested blocks strong, weak or absent, own noise, missing entries, replicates,
wide rows) 2 to 5 % of the tests were significant at 5 % without the block.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import clone

from contrastive_lvm.arrays import Array, Covariates, RowLabels
from contrastive_lvm.coordinate_ascent.ard_rank import price
from contrastive_lvm.designs import Block
from contrastive_lvm.estimators import parse_params
from contrastive_lvm.estimators.contrastive_lvm import ContrastiveLVM
from contrastive_lvm.estimators.covariates import Given, check_effects, encode_sets
from contrastive_lvm.estimators.frames import RowNumbers
from contrastive_lvm.estimators.input_rows import check_variances, refuse_unsupported, rows_for_fit
from contrastive_lvm.estimators.multi_set_lvm import MultiSetLVM
from contrastive_lvm.estimators.prediction_model import sizes_of_sets
from contrastive_lvm.estimators.row_sets import check_labels
from contrastive_lvm.exceptions import InvalidDataError, InvalidParameterError
from contrastive_lvm.likelihoods.base import Likelihood
from contrastive_lvm.linalg.matrices import widen
from contrastive_lvm.resampling.covariate_residuals import design_basis
from contrastive_lvm.resampling.replicates import Integers, replicate_labels
from contrastive_lvm.rows.reader import RowReader

CLEAR = 2.0  # times the gain that a column needs: columns of noise gain half of that
MOST_ENTRIES = 1 << 28  # of both sides, 2 GB; the test makes several copies of them


class OtherBlocks(NamedTuple):
    """Blocks that some sets lack, besides the one that is tested."""

    set_of_row: Integers  # (N,) rows of the first side first
    loadings: Array  # (D, K)
    noise: Array  # (sets, D)

    def replace(self, Z: Array, rng: np.random.Generator) -> Array:
        """Replace what the blocks add to centred rows by noise."""
        found = np.empty_like(Z)
        for s, psi in enumerate(self.noise):
            own, root = self.set_of_row == s, np.sqrt(psi)
            Q = np.linalg.qr(self.loadings / root[:, None])[0]
            scaled = Z[own] / root
            noise = rng.standard_normal((len(scaled), Q.shape[1]))
            found[own] = (scaled + (noise - scaled @ Q) @ Q.T) * root
        return found


class ComparedRows(NamedTuple):
    """Rows of two sides, dense, and what belongs to them."""

    sides: tuple[Array, Array]
    groups: tuple[Any, Any]
    log_sizes: tuple[Array | None, Array | None]  # logs of given size factors
    likelihood: Likelihood
    design: Array | None  # (N, P) means of sets and covariates; None where rows are only centred
    own_effects: bool = False  # of covariates, in each set
    n_sets: int = 2
    others: OtherBlocks | None = None

    def take(self, kept: Sequence[Integers]) -> "ComparedRows":
        """Return some rows of either side."""
        rows, others = np.concatenate([kept[0], len(self.sides[0]) + kept[1]]), self.others
        logs = [log if log is None else log[i] for log, i in zip(self.log_sizes, kept, strict=True)]
        return self._replace(
            sides=(self.sides[0][kept[0]], self.sides[1][kept[1]]),
            log_sizes=(logs[0], logs[1]),
            design=None if self.design is None else self.design[rows],
            others=others and others._replace(set_of_row=others.set_of_row[rows]),
        )

    def bases(self, *, together: bool) -> list[Array] | None:
        """Return bases of what rows are regressed on: of all rows `together`, or of either side."""
        if self.design is None:
            return None
        if not together:
            return [design_basis(own) for own in np.split(self.design, [len(self.sides[0])])]
        if self.own_effects:
            reason = (
                "is tested without replicates and for two sets only; use "
                "covariate_effects='shared', or leave the covariates or the replicates out."
            )
            raise InvalidParameterError("covariate_effects", "own", reason)
        return [design_basis(self.design)]

    def matched(self, rng: np.random.Generator) -> tuple[Array, Array]:
        """Return rows whose covariances differ between the sides only by noise, without contrast.

        Means are made equal first, so that functions of the means are equal too; size factors are
        then relative to the mean of their side.
        """
        equal = self.likelihood._with_equal_means(self.sides, rng)
        if equal is None:
            reason = "cannot be tested: it does not say how rows of other means compare."
            raise InvalidParameterError("likelihood", self.likelihood, reason)
        logs = sizes_of_sets(self.likelihood, list(equal), (None, None))[0]
        first, second = (
            widen(
                self.likelihood._linearize(
                    rows, log if given is None else given - np.log(np.exp(given).mean())
                ).rows
            )
            for rows, log, given in zip(equal, logs, self.log_sizes, strict=True)
        )
        if not any(np.nanvar(rows, axis=0).any() for rows in (first, second)):
            reason = "and background have no varying feature in common once their means are equal."
            raise InvalidDataError("X", reason)
        return first, second


def unfitted_model(model: Any) -> ContrastiveLVM:
    """Return a copy of a model without its fit, or the default one; refuse other estimators."""
    if model is not None and not isinstance(model, ContrastiveLVM):
        reason = "is not a model with a likelihood; use a ContrastiveLVM, or leave it out."
        raise InvalidParameterError("model", model, reason)
    return ContrastiveLVM() if model is None else clone(model)


def two_sets(
    model: Any,
    sets: tuple[Any, Any],
    groups: tuple[RowLabels, RowLabels],
    size_factors: tuple[RowNumbers, RowNumbers],
    covariates: tuple[Covariates, Covariates],
) -> ComparedRows:
    """Read a target and a background, whose likelihood is that of the model."""
    shell = unfitted_model(model)
    if sets[1] is None:
        reason = "is missing; give the rows to compare with."
        raise InvalidParameterError("background", None, reason)
    X, background = _read(shell, [("X", sets[0]), ("background", sets[1])])
    likelihood = _likelihood(shell, (X, background))
    logs: tuple[Array | None, ...] = (None, None)
    if any(given is not None for given in size_factors):
        logs = sizes_of_sets(likelihood, [X, background], size_factors)[0]
    own, design = check_effects(shell.covariate_effects), None
    if any(given is not None for given in covariates):
        first = Given("covariates", covariates[0], len(X))
        second = Given("background_covariates", covariates[1], len(background))
        known = _encoded(likelihood, [first, second], X.shape[1])
        design = np.column_stack([np.eye(2)[[0] * len(X) + [1] * len(background)], known])
    return ComparedRows(
        (X, background), groups, (logs[0], logs[1]), likelihood, design, own_effects=own
    )


def sides_of_block(
    model: MultiSetLVM,
    X: Any,
    sets: RowLabels,
    block: Any,
    groups: RowLabels,
    covariates: Covariates,
) -> ComparedRows:
    """Divide the rows of several sets by a block; a model that is not fitted is fitted first."""
    fitted = model
    if not hasattr(model, "posterior_"):
        fitted = clone(model).fit(X, sets=sets, covariates=covariates)
    names = tuple(fitted.set_sizes_)
    labels = check_labels(sets, fitted.n_samples_, names)
    has_block = np.isin(labels, _sets_of_block(fitted, block))
    order = np.concatenate([np.flatnonzero(has_block), np.flatnonzero(~has_block)])
    set_of_row = np.array([names.index(label) for label in labels], dtype=np.intp)[order]
    shell = ContrastiveLVM().set_params(likelihood=model.likelihood)
    first, second = np.split(_read(shell, [("X", X)])[0][order], [has_block.sum()])
    likelihood = _likelihood(shell, (first, second))
    if not likelihood._is_on_data_scale(first.shape[1]).all():
        reason = "has no test of a block; use Gaussian or Student-t noise."
        raise InvalidParameterError("likelihood", likelihood, reason)
    design, own = np.eye(len(names))[set_of_row], check_effects(model.covariate_effects)
    if covariates is not None:
        known = _encoded(likelihood, [Given("covariates", covariates, len(order))], first.shape[1])
        design = np.column_stack([design, known[order]])
    replicates: list[np.ndarray | None] = [None, None]
    if groups is not None:
        checked = replicate_labels("groups", groups, len(order))[order]
        replicates = list(np.split(checked, [has_block.sum()]))
    return ComparedRows(
        (first, second),
        (replicates[0], replicates[1]),
        (None, None),
        likelihood,
        None if covariates is None and len(names) == 2 else design,
        own_effects=own and covariates is not None,
        n_sets=len(names),
        others=other_blocks(fitted, X, sets, block, covariates, set_of_row),
    )


def _sets_of_block(fitted: MultiSetLVM, block: Any) -> tuple[str, ...]:
    """Return the sets that have a block, which some must lack."""
    if block not in fitted.blocks_:
        reason = f"is not a block of the model, which has {list(fitted.blocks_)}; name one of them."
        raise InvalidParameterError("block", block, reason)
    active = tuple(fitted.blocks_[block].sets or ())
    if set(active) == set(fitted.set_sizes_):
        reason = (
            "is a block that all sets have, so there are no rows to compare it with; test a "
            "block that some sets lack, or add a set that lacks it."
        )
        raise InvalidParameterError("block", block, reason)
    return active


def other_blocks(
    fitted: MultiSetLVM,
    X: Any,
    sets: RowLabels,
    block: str,
    covariates: Covariates,
    set_of_row: Integers,
) -> OtherBlocks | None:
    """Return the blocks that some sets lack, without one of them; None if there are no others."""
    names, D = tuple(fitted.set_sizes_), fitted.n_features_in_
    others = {name: own for name, own in fitted.blocks_.items() if name != block}
    partial = [name for name, own in others.items() if set(own.sets or ()) != set(names)]
    if not partial:
        return None
    model = fitted
    if all(any(s in (own.sets or ()) for own in others.values()) for s in names):
        without = clone(fitted).set_params(blocks=others).fit(X, sets=sets, covariates=covariates)
        model = _likelier(fitted, without, fitted.blocks_[block])
    L = np.hstack([model.components_[name].T for name in partial])
    noise = [np.broadcast_to(fitted.noise_variance_[name], D) for name in names]
    return OtherBlocks(set_of_row, L, np.array(noise)) if L.shape[1] else None


def _likelier(fitted: MultiSetLVM, without: MultiSetLVM, block: Block) -> MultiSetLVM:
    """Return a model without a block, unless the block is clearly there."""
    n_rows = sum(fitted.set_sizes_[name] for name in block.sets or ())
    needed = CLEAR * int(block.n_components) * price(n_rows, fitted.n_features_in_)
    return fitted if fitted.lower_bound_ - without.lower_bound_ > needed else without


def refuse_background(*given: object) -> None:
    """Refuse arguments about a background, which a model of several sets lacks."""
    if any(value is not None for value in given):
        reason = "applies to a ContrastiveLVM; a MultiSetLVM has sets=... and one argument for all."
        raise InvalidParameterError("background", "...", reason)


def _read(shell: ContrastiveLVM, sets: Sequence[tuple[str, Any]]) -> list[Array]:
    """Read sets into memory as dense rows in double precision, and keep the names of features."""
    given = [rows_for_fit(shell, rows, name=name) for name, rows in sets]
    n_entries = sum(rows.shape[0] * rows.shape[1] for rows in given)
    if n_entries > MOST_ENTRIES:
        reason = (
            f"and background have {n_entries:,} entries, but the test keeps all rows in memory and "
            f"takes at most {MOST_ENTRIES:,}; give rows or replicates drawn at random from both."
        )
        raise InvalidDataError("X", reason)
    found = [widen(rows.load() if isinstance(rows, RowReader) else rows) for rows in given]
    if found[0].shape[1] < 2:
        reason = "has one feature, in which contrast looks like noise; give at least two."
        raise InvalidDataError("X", reason)
    with np.errstate(over="ignore", invalid="ignore"):  # a variance is then not finite
        means = [np.nanmean(rows, axis=0) for rows in found]
        variances = [np.nanvar(rows, axis=0) for rows in found]
    check_variances(sum(variances, np.zeros(found[0].shape[1])), means)
    return found


def _likelihood(shell: ContrastiveLVM, sides: tuple[Array, Array]) -> Likelihood:
    """Return the likelihood of a model, bound to these features."""
    features = getattr(shell, "feature_names_in_", None)
    known = None if features is None else features.tolist()
    likelihood = parse_params.likelihood(shell.likelihood)._bind(sides[0].shape[1], known)
    for name, rows in zip(("X", "background"), sides, strict=True):
        refuse_unsupported(likelihood, name, rows)
    return likelihood


def _encoded(likelihood: Likelihood, given: list[Given], n_features: int) -> Array:
    """Return the covariates of all rows, encoded."""
    encoded = encode_sets(given, ("X", "background")[: len(given)], own=False)[1]
    if not likelihood._is_on_data_scale(n_features).all():
        reason = "has no test of contrast with covariates; leave them out, or use Gaussian noise."
        raise InvalidParameterError("likelihood", likelihood, reason)
    return np.vstack(encoded)
