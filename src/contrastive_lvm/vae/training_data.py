"""Rows as networks read them, and what is fixed before training: units, means, rows held out."""

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from contrastive_lvm.arrays import Array, Dense
from contrastive_lvm.likelihoods.base import CONSTANT
from contrastive_lvm.linalg.matrices import densify, row_slices
from contrastive_lvm.rows.minibatches import Permuted, ShuffledBlocks
from contrastive_lvm.rows.reader import Positions, RowReader
from contrastive_lvm.rows.scatter import Moments
from contrastive_lvm.vae.architecture import (
    Architecture,
    FeatureUnits,
    NetworkConstants,
    NetworkWeights,
)
from contrastive_lvm.vae.network_functions import network_functions

SAMPLE = 4096  # rows that show what the inputs of encoders look like
MOST_HELD_OUT = 4096  # rows of a set kept for validation
ENOUGH_HELD_OUT = 100  # rows of a set that say something about a fit, a fifth of it at most
LEAST_SPREAD = 1e-3  # of an encoder's input, in units: a constant feature says nothing


NONE = np.empty(0, dtype=np.intp)


class NetworkRows:
    """The rows of a reader without those that are held out, and covariates in columns after them.

    Positions of rows held out are in increasing order; `covariates` are those of all rows, (N, C).
    """

    def __init__(
        self, reader: RowReader, held_out: np.ndarray = NONE, covariates: Array | None = None
    ) -> None:
        self.reader, self.held_out = reader, held_out
        self.covariates = np.empty((reader.shape[0], 0)) if covariates is None else covariates
        ends = [0, *(chunk.stop for chunk in reader.slices)]
        left = [int(end - np.searchsorted(held_out, end)) for end in ends]
        self.slices = [slice(begin, end) for begin, end in pairwise(left)]
        self.n_rows = reader.shape[0] - len(held_out)
        self.shape = (self.n_rows, reader.shape[1])

    def read(self) -> Iterator[Dense]:
        """Read and check all rows in order, copies of a moderate number at a time."""
        for i in range(len(self.slices)):
            (chunk,) = self.read_chunks({i: slice(None)})
            self.reader.checks.values(chunk[:, : self.shape[1]])
            for rows in row_slices(*chunk.shape):
                yield chunk[rows]

    def features(self) -> Array:
        """Read all rows in order, in double precision, without covariates."""
        return np.concatenate([rows[:, : self.shape[1]].astype(np.float64) for rows in self.read()])

    def read_chunks(self, picks: dict[int, Positions]) -> list[Dense]:
        """Read some chunks by their numbers, and of each the rows at a slice or at positions."""
        chunks = []
        for i, at in picks.items():
            (rows,) = self.reader.read_chunks({i: slice(None)})
            chunk = self.reader.slices[i]
            begin, end = np.searchsorted(self.held_out, [chunk.start, chunk.stop])
            known = self._with_covariates(densify(rows), chunk)
            kept = np.delete(known, self.held_out[begin:end] - chunk.start, axis=0)
            chunks.append(kept[at])
        return chunks

    def _with_covariates(self, rows: Dense, at: Positions) -> Dense:
        if self.covariates.shape[1] == 0:
            return rows
        return np.hstack([rows, self.covariates[at].astype(rows.dtype)])

    def __getitem__(self, positions: np.ndarray) -> Dense:
        """Read rows by their positions."""
        at = self._among_all(positions)
        return self._with_covariates(densify(self.reader.take(at)), at)

    def without(self, positions: np.ndarray) -> "NetworkRows":
        """Return the other rows."""
        held_out = np.concatenate([self.held_out, self._among_all(positions)])
        return NetworkRows(self.reader, np.sort(held_out), self.covariates)

    def _among_all(self, positions: np.ndarray) -> np.ndarray:
        kept = np.delete(np.arange(self.reader.shape[0]), self.held_out)
        return np.asarray(kept[positions])

    def epoch(self, rng: np.random.Generator, n_parts: int, size: int) -> Iterator[Dense]:
        """Return parts of as many rows: each row once in random order, then some again."""
        random_access = self.reader.random_access
        stream = (
            Permuted(self.n_rows, self.__getitem__, rng)
            if random_access
            else ShuffledBlocks(self, rng)
        )
        for _ in range(n_parts):
            yield densify(stream.next(size)[1])


class TrainingData(NamedTuple):
    """Two sets, or one."""

    sets: tuple[NetworkRows, ...]  # that train
    held_out: tuple[np.ndarray, ...]  # standardised rows for validation; () without
    units: FeatureUnits
    constants: NetworkConstants
    log_units: tuple[float, ...]  # what the log-likelihood of a set gains by standardising it

    @property
    def sizes(self) -> tuple[int, ...]:
        """Number of rows of each set that train."""
        return tuple(rows.n_rows for rows in self.sets)


def prepare_training(
    architecture: Architecture,
    sets: tuple[NetworkRows, ...],
    moments: tuple[Moments, ...],
    validation_fraction: float,
    rng: np.random.Generator,
) -> TrainingData:
    """Find units and constants, and hold rows out."""
    units = feature_units(architecture, moments)
    constants = _constants(architecture, sets, moments, units, rng)
    numbers = [_n_held_out(validation_fraction, rows.n_rows) for rows in sets]
    held_out, training, log_units = [], [], []
    for rows, m, n in zip(sets, moments, numbers, strict=True):
        chosen = np.sort(rng.permutation(rows.n_rows)[: n if min(numbers) else 0])
        held_out.append(units.standardize(rows[chosen]))
        training.append(rows.without(chosen))
        observed = m.counts - (~np.isnan(held_out[-1][:, : rows.shape[1]])).sum(axis=0)
        log_units.append(float(observed @ np.log(units.unit)))
    kept = tuple(held_out) if min(numbers) else ()
    return TrainingData(tuple(training), kept, units, constants, tuple(log_units))


def _n_held_out(fraction: float, n_rows: int) -> int:
    """Return how many rows of a set are held out."""
    if fraction == 0.0:
        return 0
    least = min(ENOUGH_HELD_OUT, n_rows // 5)
    return min(MOST_HELD_OUT, max(least, int(fraction * n_rows)))


def feature_units(architecture: Architecture, moments: tuple[Moments, ...]) -> FeatureUnits:
    """Return mean and standard deviation of features with noise; others have no units."""
    D = architecture.n_features
    if not architecture.has_noise:
        return FeatureUnits(np.zeros(D), np.ones(D))
    count, mean = _joint_mean(moments)
    variance = sum((m.square for m in moments), np.zeros(D)) / count
    average = variance.mean()
    if architecture.initial_parameters["noise"].ndim == 0:
        return FeatureUnits(mean, np.full(D, np.sqrt(average)))
    return FeatureUnits(mean, np.sqrt(np.where(variance > CONSTANT * average, variance, average)))


def _joint_mean(moments: tuple[Moments, ...]) -> tuple[Array, Array]:
    """Return numbers of observed entries and means of features over all sets."""
    count = np.maximum(sum(m.counts for m in moments), 1.0)
    return count, sum(m.counts * m.mean for m in moments) / count


def _constants(
    architecture: Architecture,
    sets: tuple[NetworkRows, ...],
    moments: tuple[Moments, ...],
    units: FeatureUnits,
    rng: np.random.Generator,
) -> NetworkConstants:
    D = architecture.n_features
    zero = np.zeros(D)
    means = [_mean_predictor(architecture, m, units) for m in moments]
    profile = np.where(architecture.likelihood._sized_features(D), _joint_mean(moments)[1], 0.0)
    first = NetworkConstants(
        *(
            np.asarray(value, dtype=np.float32)
            for value in (means[0], means[-1], zero, zero + 1.0, profile, zero, zero)
        )
    )
    inputs = network_functions(architecture).encoder_inputs
    seen = []
    for rows in sets:
        block = units.standardize(rows[np.sort(rng.permutation(rows.n_rows)[:SAMPLE])])
        values = np.asarray(inputs(NO_WEIGHTS, first, block))[:, :D]
        seen.append(np.where(np.isnan(block[:, :D]), np.nan, values))
    values = np.concatenate(seen).astype(np.float64)  # zero describes a column of missing entries
    observed = ~np.isnan(values)
    count = np.maximum(observed.sum(axis=0), 1)
    centre = np.where(observed, values, 0.0).sum(axis=0) / count
    square = np.where(observed, values - centre, 0.0) ** 2
    spread = np.maximum(np.sqrt(square.sum(axis=0) / count), LEAST_SPREAD)
    return first._replace(centre=centre.astype(np.float32), spread=spread.astype(np.float32))


NO_WEIGHTS = NetworkWeights((), {}, (), (), ())  # what encoders see does not depend on them


def _mean_predictor(architecture: Architecture, moments: Moments, units: FeatureUnits) -> Array:
    """Return the predictor of the mean row of a set, in units."""
    if architecture.has_noise:
        mean: Array = (moments.mean - units.shift) / units.unit
        return mean
    smoothed = (moments.counts * moments.mean + 0.5) / (moments.counts + 1.0)
    return architecture.likelihood._link(smoothed)
