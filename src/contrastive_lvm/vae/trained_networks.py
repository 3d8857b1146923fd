"""Trained networks applied to rows, block by block, on the scale of the data."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from contrastive_lvm._jax import JaxArray, jax
from contrastive_lvm.arrays import Array
from contrastive_lvm.likelihoods.values import Nuisance
from contrastive_lvm.rows.size_factors import log_sizes
from contrastive_lvm.vae.architecture import (
    LEAST_LOG_NOISE,
    Architecture,
    DiagonalGaussian,
    FeatureUnits,
    NetworkConstants,
    NetworkWeights,
)
from contrastive_lvm.vae.network_functions import NetworkFunctions, network_functions
from contrastive_lvm.vae.training_data import NetworkRows

MOST_DRAWS, ENOUGH_DRAWS = 64, 1 << 15  # of the lower bound: per row, and in all
LEAST, MOST = 64, 2048  # rows of a block; shorter ones are padded, so that few are compiled
DRAWS = 8  # that target gains average
SEED = 0  # of draws for predictions, which are the same at every call


class PaddedRows(NamedTuple):
    """Standardised rows, padded, how many of them are real, and a key for draws."""

    rows: np.ndarray
    n_rows: int
    key: JaxArray


class DecoderInputs(NamedTuple):
    """What rows are decoded from; latents that are None are left out."""

    n_rows: int
    target: Array | None
    shared: Array | None
    covariates: Array | None = None  # None for those of an average row

    def part(self, begin: int, end: int) -> "DecoderInputs":
        """Return the inputs of some rows."""
        own = [None if values is None else values[begin:end] for values in self[1:]]
        return DecoderInputs(min(end, self.n_rows) - begin, *own)


class TrainedNetworks(NamedTuple):
    """Networks with the constants of the data they were trained on."""

    architecture: Architecture
    weights: NetworkWeights
    units: FeatureUnits
    constants: NetworkConstants
    refine_steps: int = 0  # of the posteriors of rows

    @property
    def nuisance(self) -> Nuisance:
        """What the likelihood learned, one value per feature, on the scale of the data."""
        zero = np.zeros(self.architecture.n_features)
        logs = {n: np.asarray(v, np.float64) for n, v in self.weights.likelihood.items()}
        if "noise" in logs:
            logs["noise"] = np.maximum(logs["noise"], LEAST_LOG_NOISE)
        found = {name: zero + np.exp(value) for name, value in logs.items()}
        noise = self.units.unit**2 * found["noise"] if "noise" in found else zero
        return Nuisance(noise, found.get("dispersion", zero))

    @property
    def _functions(self) -> NetworkFunctions:
        return network_functions(self.architecture)

    @property
    def _fixed(self) -> tuple[NetworkWeights, NetworkConstants]:
        return self.weights, self.constants

    # Latents

    def latents(self, rows: NetworkRows, of: str) -> tuple[Array, Array]:
        """Return posterior means and standard deviations, target dimensions first, (N, K)."""
        means, stds = [], []
        for block in self._blocks(rows):
            posterior = self._posterior(block, of)
            means.append(np.asarray(posterior.mean, dtype=np.float64)[: block.n_rows])
            log_std = np.asarray(posterior.log_std, dtype=np.float64)[: block.n_rows]
            stds.append(np.exp(log_std))
        return np.concatenate(means), np.concatenate(stds)

    def _posterior(self, block: PaddedRows, of: str) -> DiagonalGaussian:
        return self._functions.encode(*self._fixed, block.rows, of=of, steps=self.refine_steps)

    # Rows

    def predictor(self, at: DecoderInputs, of: str = "target") -> Array:
        """Return the mean of a set plus the decoded latents that are given, (n, D)."""
        parts = (at.part(begin, begin + MOST) for begin in range(0, at.n_rows, MOST))
        return np.concatenate([self.units.restore(self.decode_block(own, of)) for own in parts])

    def decode_block(self, at: DecoderInputs, of: str) -> np.ndarray:
        """Return the predictor of a block in units."""
        n, t, z, known = at
        given = np.zeros((n, self.architecture.n_covariates)) if known is None else known
        arrays = [None if h is None else _padded(h) for h in (t, z, given)]
        decoded = np.asarray(self._functions.decode(*self._fixed, *arrays, of=of))
        return np.broadcast_to(decoded[: n if decoded.ndim == 2 else None], (n, decoded.shape[-1]))

    def expected_rows(self, at: DecoderInputs, of: str, sizes: Array | float = 0.0) -> Array:
        """Return the means of rows at latents and log size factors."""
        eta = self.predictor(at, of) + sizes
        mean, _ = self.architecture.likelihood.response(eta, np.zeros_like(eta), self.nuisance)
        return mean

    def draw_rows(self, at: DecoderInputs, of: str, rng: np.random.RandomState) -> Array:
        """Draw new rows at latents."""
        return self.architecture.likelihood.draw(self.predictor(at, of), self.nuisance, rng)

    def size_factors(self, rows: NetworkRows) -> Array | float:
        """Return log size factors of rows of counts, (N, D); 0 for other data."""
        profile = np.asarray(self.constants.profile, dtype=np.float64)
        if not profile.any():
            return 0.0
        sizes = log_sizes(rows.features(), profile)
        return np.where(profile > 0, sizes[:, None], 0.0)

    def impute(self, rows: NetworkRows, of: str, draws: int) -> tuple[Array, Array]:
        """Return rows with missing entries filled in, and standard deviations of the new values."""
        sizes, begin = self.size_factors(rows), 0
        values = rows.features()
        missing, std = np.isnan(values), np.zeros(values.shape)
        for block in self._blocks(rows):
            at = slice(begin, begin + block.n_rows)
            mean, variance = self._predictor_moments(block, of, draws)
            own = sizes[at] if isinstance(sizes, np.ndarray) else sizes
            expected = self.architecture.likelihood.response(mean + own, variance, self.nuisance)
            values[at] = np.where(missing[at], expected[0], values[at])
            std[at] = np.where(missing[at], np.sqrt(expected[1]), 0.0)
            begin = at.stop
        return values, std

    def _predictor_moments(self, block: PaddedRows, of: str, draws: int) -> tuple[Array, Array]:
        """Return mean and variance of the predictor over the posterior of the latents."""
        function = self._functions.predictor_moments
        given = (block.rows, self._posterior(block, of), block.key)
        found = function(*self._fixed, *given, of=of, draws=draws)
        mean, square = (np.asarray(each, dtype=np.float64)[: block.n_rows] for each in found)
        variance = np.maximum(square - mean**2, 0.0)
        return self.units.restore(mean), variance * self.units.unit**2

    # Lower bounds

    def lower_bound(self, rows: NetworkRows, of: str, seed: int) -> tuple[float, float]:
        """Return the lower bound of a set, and the variance of this estimate."""
        draws = max(2, min(MOST_DRAWS, ENOUGH_DRAWS // rows.n_rows))

        def bounds(block: PaddedRows) -> JaxArray:
            function = self._functions.lower_bounds
            return function(*self._fixed, block.rows, block.key, of=of, draws=draws)

        found = self._row_bounds(rows, bounds, seed)
        return float(found.mean(axis=0).sum()), float(found.var(axis=0, ddof=1).sum() / draws)

    def target_gains(self, rows: NetworkRows) -> Array:
        """Return what the target latents add to the lower bound of rows of either set, (N,).

        Nothing is gained by what all these rows have in common, such as the absence of a contrast
        in rows of the background.
        """
        found, average = [], _mean_output(self, rows, "target")
        for block in self._blocks(rows):
            given = (block.rows, average, block.key)
            gains = self._functions.target_gains(*self._fixed, *given, draws=DRAWS)
            found.append(np.asarray(gains, dtype=np.float64)[: block.n_rows])
        return np.concatenate(found)

    def weighted_bounds(self, rows: NetworkRows, of: str, draws: int) -> Array:
        """Return importance-weighted lower bounds of rows, (N,); more draws make them tighter."""

        def bounds(block: PaddedRows) -> JaxArray:
            function, posterior = self._functions.weighted_bounds, self._posterior(block, of)
            return function(*self._fixed, block.rows, posterior, block.key, of=of, draws=draws)

        return self._row_bounds(rows, bounds, SEED)

    def _row_bounds(
        self, rows: NetworkRows, bounds: Callable[[PaddedRows], JaxArray], seed: int
    ) -> Array:
        found = []
        for block in self._blocks(rows, seed):
            x = block.rows[: block.n_rows, : self.architecture.n_features]
            change = (~np.isnan(x)) @ np.log(self.units.unit)
            own = np.asarray(bounds(block), dtype=np.float64)[..., : block.n_rows]
            found.append(own - change)
        return np.concatenate(found, axis=-1)

    def _blocks(self, rows: NetworkRows, seed: int = SEED) -> Iterator[PaddedRows]:
        key = jax.random.key(seed)
        for i, block in enumerate(rows.read()):
            standardized = self.units.standardize(block)
            yield PaddedRows(_padded(standardized), len(block), jax.random.fold_in(key, i))


def centre_decoders(networks: TrainedNetworks, sets: tuple[NetworkRows, ...]) -> TrainedNetworks:
    """Return the same model with decoders that average to zero, means holding the rest.

    A constant can move between a decoder and the means without changing any density; here `f_t`
    averages to zero over the target's rows and `f_s` over the background's, each at the posterior
    means that encoders give.
    """
    c = networks.constants
    target = _mean_output(networks, sets[0], "target")
    shared = np.zeros_like(target)
    if len(sets) == 2:
        shared = _mean_output(networks, sets[1], "background")
    constants = c._replace(
        target_mean=c.target_mean + (target + shared),
        background_mean=c.background_mean + shared,
        target_offset=target,
        shared_offset=shared,
    )
    return networks._replace(constants=constants)


def _mean_output(networks: TrainedNetworks, rows: NetworkRows, of: str) -> np.ndarray:
    """Return the mean output of the decoder that is centred on a set, (D,)."""
    total, k = np.zeros(networks.architecture.n_features), networks.architecture.n_target
    means, _ = networks.latents(rows, of)
    t, z = (means[:, :k], None) if of == "target" else (None, means)
    at = DecoderInputs(len(means), t, z, rows.covariates)
    for begin in range(0, len(means), MOST):
        own = at.part(begin, begin + MOST)
        total += networks.decode_block(own, of).sum(axis=0, dtype=np.float64)
    c = networks.constants
    mean = total / len(means) - (c.target_mean if of == "target" else c.background_mean)
    return np.asarray(mean, dtype=np.float32)


def _padded(rows: np.ndarray) -> np.ndarray:
    """Return rows in single precision, up to a power of two with copies of the first row."""
    size = max(LEAST, 1 << (len(rows) - 1).bit_length())
    padding = np.repeat(rows[:1], size - len(rows), axis=0)
    return np.concatenate([rows, padding]).astype(np.float32, copy=False)
