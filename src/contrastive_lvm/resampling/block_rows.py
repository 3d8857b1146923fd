"""The two sides of a test of one block of a model of several sets: sets with it, sets without.

Blocks that all sets have are shared by both sides. Those that only some sets have (and are not
tested) would be contrast between the sides too. With `L` the fitted loadings of all of them and
`psi` the noise of a row's set, the coordinates of the row along `psi^-1/2 L`, which hold whatever
these blocks add to it, are replaced by noise of the same variance as elsewhere.

`L` is that of a model without the tested block, as the hypothesis has it: beside a block that fits
noise, other blocks fit the rows of its sets less well, and in 60 + 60 + 60 rows of 80 features the
test had a level of 21 % in place of 3 %. Where the block gains far more than one of noise, other
blocks would stand in for it, and `L` is that of the whole model. In 100 simulated data sets of each
of nine kinds (nested blocks strong, weak or absent, own noise, missing entries, replicates, wide
rows) 2 to 5 % of the tests were significant at 5 % without the block.
"""

import functools
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import clone

from contrastive_lvm.arrays import Array
from contrastive_lvm.coordinate_ascent.activity_search import price
from contrastive_lvm.designs import Block
from contrastive_lvm.estimators.multi_set_lvm import MultiSetLVM
from contrastive_lvm.estimators.row_sets import check_labels
from contrastive_lvm.exceptions import InvalidParameterError
from contrastive_lvm.resampling.exchangeable_rows import RowChange
from contrastive_lvm.resampling.replicates import Integers, replicate_labels

CLEAR = 2.0  # times what a column must gain: columns of noise gain half of that


class Sides(NamedTuple):
    """Rows on the two sides of a test, and what else differs between the sets."""

    places: tuple[Integers, Integers]  # of the rows of either side in the matrix
    set_of_row: Integers  # (N,) first side first
    loadings: Array  # (D, K) of the other blocks that some sets lack
    noise: Array  # (sets, D)

    @property
    def n_sets(self) -> int:
        """Number of sets."""
        return len(self.noise)

    def of(self, values: Any, name: str) -> tuple[Any, Any]:
        """Return values of the rows of either side, None for None."""
        if values is None:
            return None, None
        checked = replicate_labels(name, values, len(self.set_of_row))
        return checked[self.places[0]], checked[self.places[1]]

    def design(self, covariates: Array | None) -> Array:
        """Return a column for the mean of each set, and covariates, (N, P)."""
        means = np.eye(self.n_sets)[self.set_of_row]
        return means if covariates is None else np.column_stack([means, covariates])

    def change(self, rows: Integers) -> RowChange:
        """Return what replaces the other blocks by noise, in some rows that are centred."""
        return functools.partial(_without_blocks, self, rows)


def _without_blocks(sides: Sides, rows: Integers, Z: Array, rng: np.random.Generator) -> Array:
    found = np.empty_like(Z)
    for s, psi in enumerate(sides.noise):
        own, root = sides.set_of_row[rows] == s, np.sqrt(psi)
        Q = np.linalg.qr(sides.loadings / root[:, None])[0]
        scaled = Z[own] / root
        noise = rng.standard_normal((len(scaled), Q.shape[1]))
        found[own] = (scaled + (noise - scaled @ Q) @ Q.T) * root
    return found


def two_sides(sets: tuple[Array, Array]) -> Sides:
    """Return a target and a background as sides."""
    n, m = map(len, sets)
    D = sets[0].shape[1]
    places = np.arange(n), np.arange(n, n + m)
    return Sides(places, np.repeat([0, 1], [n, m]), np.empty((D, 0)), np.ones((2, D)))


def block_sides(model: MultiSetLVM, X: Any, sets: Any, block: Any, covariates: Any) -> Sides:
    """Fit a model of several sets, unless it is fitted, and divide its rows by a block."""
    fitted = model
    if not hasattr(model, "posterior_"):
        fitted = clone(model).fit(X, sets=sets, covariates=covariates)
    blocks, names = fitted.blocks_, tuple(fitted.set_sizes_)
    if block not in blocks:
        reason = f"is no block of the model, which has {list(blocks)}; name one of them."
        raise InvalidParameterError("block", block, reason)
    active = blocks[block].sets or ()
    if set(active) == set(names):
        reason = (
            "is a block that all sets have, so that there are no rows to compare it with; test a "
            "block that some sets lack, or add a set that lacks it."
        )
        raise InvalidParameterError("block", block, reason)
    labels = check_labels(sets, fitted.n_samples_, names)
    D, has_block = fitted.n_features_in_, np.isin(labels, active)
    places = np.flatnonzero(has_block), np.flatnonzero(~has_block)
    noise = [np.broadcast_to(fitted.noise_variance_[name], D) for name in names]
    set_of_row = np.array([names.index(label) for label in labels], dtype=np.intp)
    others = {name: own for name, own in blocks.items() if name != block}
    partial = [name for name, own in others.items() if set(own.sets or ()) != set(names)]
    model = fitted
    if partial and all(any(s in (b.sets or ()) for b in others.values()) for s in names):
        without = clone(fitted).set_params(blocks=others).fit(X, sets=sets, covariates=covariates)
        model = _likelier(fitted, without, blocks[block])
    L = np.hstack([np.empty((D, 0)), *(model.components_[name].T for name in partial)])
    return Sides(places, set_of_row[np.concatenate(places)], L, np.array(noise))


def _likelier(fitted: MultiSetLVM, without: MultiSetLVM, block: Block) -> MultiSetLVM:
    """Return a model without a block, unless the block is clearly there."""
    n_rows = sum(fitted.set_sizes_[name] for name in block.sets or ())
    needed = CLEAR * int(block.n_components) * price(n_rows, fitted.n_features_in_)
    return fitted if fitted.lower_bound_ - without.lower_bound_ > needed else without


def refuse_background(*given: Any) -> None:
    """Refuse arguments about a background, which a model of several sets has not."""
    if any(value is not None for value in given):
        reason = "is for a ContrastiveLVM; a MultiSetLVM has sets=..., and one argument for all."
        raise InvalidParameterError("background", "...", reason)
