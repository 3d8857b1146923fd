"""From rows to what training needs: units, means, what encoders see, rows held out."""

from typing import Any, NamedTuple

import numpy as np

from contrastive_lvm._jax import module
from contrastive_lvm.arrays import Array
from contrastive_lvm.likelihoods.bernoulli import Bernoulli
from contrastive_lvm.likelihoods.gaussian import CONSTANT, Gaussian
from contrastive_lvm.vae.design import Design, Scaling, Units
from contrastive_lvm.vae.objective import inputs
from contrastive_lvm.vae.vae_rows import Moments, Source

SAMPLE = 4096  # rows that show what encoders will see
MOST_HELD = 4096  # rows of a set kept for validation
LEAST_SPREAD = 1e-3  # of what encoders see, in units: a constant feature says nothing


class Data(NamedTuple):
    """Both sets, or one."""

    sources: tuple[Source, ...]  # that train
    held: tuple[Any, ...]  # standardised rows kept for validation, () without
    units: Units
    scaling: Scaling
    log_units: tuple[float, ...]  # what a set's log-likelihood gains by standardising its rows

    @property
    def sizes(self) -> tuple[int, ...]:
        """Rows of each set that train."""
        return tuple(s.n_rows for s in self.sources)


def prepared(
    design: Design,
    sets: tuple[Source, ...],
    moments: tuple[Moments, ...],
    validation_fraction: float,
    rng: np.random.Generator,
) -> Data:
    """Everything that is fixed before training."""
    units = units_of(design, moments)
    scaling = _scaling(design, sets, moments, units, rng)
    numbers = [min(MOST_HELD, int(validation_fraction * rows.n_rows)) for rows in sets]
    held, sources, log_units = [], [], []
    for rows, m, n in zip(sets, moments, numbers, strict=True):
        chosen = np.sort(rng.permutation(rows.n_rows)[: n if min(numbers) else 0])
        held.append(units.standardised(rows.take(chosen)))
        sources.append(rows.without(chosen))
        train = m.count - (~np.isnan(held[-1])).sum(axis=0)
        log_units.append(float(train @ np.log(units.unit)))
    kept = tuple(held) if min(numbers) else ()
    return Data(tuple(sources), kept, units, scaling, tuple(log_units))


def units_of(design: Design, moments: tuple[Moments, ...]) -> Units:
    """Of Gaussian features their mean and standard deviation; others have none."""
    if not isinstance(design.likelihood, Gaussian):
        return Units(np.zeros(design.n_features), np.ones(design.n_features))
    count = np.maximum(sum(m.count for m in moments), 1.0)
    shift = sum(m.count * m.mean for m in moments) / count
    variance = sum(m.count * m.variance for m in moments) / count
    mean = variance.mean()
    if design.likelihood.isotropic:
        return Units(shift, np.full(design.n_features, np.sqrt(mean)))
    return Units(shift, np.sqrt(np.where(variance > CONSTANT * mean, variance, mean)))


def _scaling(
    design: Design,
    sets: tuple[Source, ...],
    moments: tuple[Moments, ...],
    units: Units,
    rng: np.random.Generator,
) -> Scaling:
    D = design.n_features
    means = [_mean_predictor(design, m, units) for m in moments]
    count = np.maximum(sum(m.count for m in moments), 1.0)
    profile = sum(m.count * m.mean for m in moments) / count
    profile = np.where(design.likelihood.sized_columns(D), profile, 0.0)
    plain = Scaling(means[0], means[-1], np.zeros(D), np.ones(D), profile)
    plain = Scaling(*(np.asarray(value, dtype=np.float32) for value in plain))
    seen = []
    for rows in sets:
        some = rows.take(np.sort(rng.permutation(rows.n_rows)[:SAMPLE]))
        block = units.standardised(some)
        values = np.array(seen_by_encoders(design, plain, block))[:, :D]
        seen.append(np.where(np.isnan(block), np.nan, values))
    found = Moments(D)
    for block in seen:
        found.add(block)
    spread = np.maximum(np.sqrt(found.variance), LEAST_SPREAD)
    return plain._replace(centre=found.mean.astype(np.float32), spread=spread.astype(np.float32))


def seen_by_encoders(design: Design, scaling: Scaling, rows: Any) -> Any:
    """Compiled at once: op by op it takes seconds."""
    return module("jax").jit(inputs, static_argnums=0)(design, scaling, rows)


def _mean_predictor(design: Design, moments: Moments, units: Units) -> Array:
    """Predictor of a set's mean row, in units."""
    mean: Array
    if isinstance(design.likelihood, Gaussian):
        mean = (moments.mean - units.shift) / units.unit
        return mean
    rate = (moments.count * moments.mean + 0.5) / (moments.count + 1.0)
    mean = np.log(rate)
    return mean - np.log1p(-rate) if isinstance(design.likelihood, Bernoulli) else mean
