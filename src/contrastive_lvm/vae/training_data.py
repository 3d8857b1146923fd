"""What is fixed before training: units, means, scales of inputs, and the rows held out."""

from typing import NamedTuple

import numpy as np

from contrastive_lvm.arrays import Array
from contrastive_lvm.likelihoods.base import CONSTANT
from contrastive_lvm.rows.scatter import Moments
from contrastive_lvm.vae.architecture import (
    Architecture,
    FeatureUnits,
    NetworkConstants,
    NetworkWeights,
)
from contrastive_lvm.vae.compiled import network_functions
from contrastive_lvm.vae.network_rows import NetworkRows

SAMPLE = 4096  # rows that show what the inputs of encoders look like
MOST_HELD_OUT = 4096  # rows of a set kept for validation
LEAST_SPREAD = 1e-3  # of an encoder's input, in units: a constant feature says nothing


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
    numbers = [min(MOST_HELD_OUT, int(validation_fraction * rows.n_rows)) for rows in sets]
    held_out, training, log_units = [], [], []
    for rows, m, n in zip(sets, moments, numbers, strict=True):
        chosen = np.sort(rng.permutation(rows.n_rows)[: n if min(numbers) else 0])
        held_out.append(units.standardize(rows[chosen]))
        training.append(rows.without(chosen))
        observed = m.counts - (~np.isnan(held_out[-1])).sum(axis=0)
        log_units.append(float(observed @ np.log(units.unit)))
    kept = tuple(held_out) if min(numbers) else ()
    return TrainingData(tuple(training), kept, units, constants, tuple(log_units))


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
        seen.append(np.where(np.isnan(block), np.nan, values))
    centre, deviation = _mean_and_deviation(np.concatenate(seen).astype(np.float64))
    spread = np.maximum(deviation, LEAST_SPREAD).astype(np.float32)
    return first._replace(centre=centre.astype(np.float32), spread=spread)


def _mean_and_deviation(values: Array) -> tuple[Array, Array]:
    """Describe the observed values of each column; zero where there is none."""
    observed = ~np.isnan(values)
    count = np.maximum(observed.sum(axis=0), 1)
    mean = np.where(observed, values, 0.0).sum(axis=0) / count
    square = np.where(observed, values - mean, 0.0) ** 2
    return mean, np.sqrt(square.sum(axis=0) / count)


NO_WEIGHTS = NetworkWeights((), {}, (), (), ())  # what encoders see does not depend on them


def _mean_predictor(architecture: Architecture, moments: Moments, units: FeatureUnits) -> Array:
    """Return the predictor of the mean row of a set, in units."""
    if architecture.has_noise:
        mean: Array = (moments.mean - units.shift) / units.unit
        return mean
    smoothed = (moments.counts * moments.mean + 0.5) / (moments.counts + 1.0)
    return architecture.likelihood._link(smoothed)
