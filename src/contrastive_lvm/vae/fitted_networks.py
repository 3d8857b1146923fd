"""A trained autoencoder applied to rows, block by block, on the scale of the data."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from contrastive_lvm._jax import module
from contrastive_lvm.arrays import Array
from contrastive_lvm.likelihoods.base import Nuisance
from contrastive_lvm.vae.design import Design, Parameters, Scaling, Units, nuisance
from contrastive_lvm.vae.networks import Layer
from contrastive_lvm.vae.program import networks
from contrastive_lvm.vae.vae_rows import Source

MOST_DRAWS, ENOUGH_DRAWS = 64, 1 << 15  # of the bound: a row, and in all
LEAST, MOST = 64, 2048  # rows of a block; shorter ones are padded, so that few are compiled


class Fitted(NamedTuple):
    """Networks with the constants of the data they were trained on."""

    design: Design
    parameters: Parameters
    units: Units
    scaling: Scaling
    refine_steps: int = 0  # of posteriors of rows

    @property
    def nuisance(self) -> Nuisance:
        """What the likelihood learned."""
        return nuisance(self.design, self.parameters, self.units)

    def codes(self, rows: Source, of: str) -> tuple[Array, Array]:
        """Posterior means and standard deviations of latents, the target's first, (N, K)."""
        means, sds = [], []
        for block, n in self._blocks(rows):
            code = self._encoded(block, of)
            means.append(np.asarray(code.mean, dtype=np.float64)[:n])
            sds.append(np.exp(np.asarray(code.log_sd, dtype=np.float64)[:n]))
        return np.concatenate(means), np.concatenate(sds)

    def _encoded(self, block: Any, of: str) -> Any:
        encode = networks(self.design).encode
        return encode(self.parameters, self.scaling, block, of=of, steps=self.refine_steps)

    def predictor(self, n: int, t: Array | None, z: Array | None, of: str = "target") -> Array:
        """Mean of the set plus the decoded parts that are given, (n, D)."""
        found = []
        for begin in range(0, n, MOST):
            rows = slice(begin, min(begin + MOST, n))
            at = (None if t is None else t[rows], None if z is None else z[rows])
            found.append(self.units.restored(self._decoded(rows.stop - begin, *at, of)))
        return np.concatenate(found)

    def _decoded(self, n: int, t: Array | None, z: Array | None, of: str) -> Any:
        """The predictor of a block in units."""
        at = [None if h is None else _padded(h) for h in (t, z)]
        decoded = networks(self.design).decode(self.parameters, self.scaling, *at, of=of)
        return np.broadcast_to(decoded[: n if decoded.ndim == 2 else None], (n, decoded.shape[-1]))

    def bound(self, rows: Source, of: str, seed: int) -> tuple[float, float]:
        """The bound of a set, and the variance of this estimate."""
        draws = max(2, min(MOST_DRAWS, ENOUGH_DRAWS // rows.n_rows))
        found = self._scores(rows, networks(self.design).bound, seed, of=of, draws=draws)
        return float(found.mean(axis=0).sum()), float(found.var(axis=0, ddof=1).sum() / draws)

    def weighted_bounds(self, rows: Source, of: str, seed: int, draws: int) -> Array:
        """Importance-weighted, (N,): nearer to the log-likelihood the more draws there are."""
        weigh = networks(self.design).weigh

        def score(p: Any, scaling: Any, block: Any, key: Any) -> Any:
            return weigh(p, scaling, block, self._encoded(block, of), key, of=of, draws=draws)

        return self._scores(rows, score, seed)

    def filled(self, rows: Source, of: str, seed: int, draws: int) -> Iterator[tuple[Array, Array]]:
        """Mean and variance of the predictor over the posterior, block by block."""
        fill, key = networks(self.design).fill, module("jax.random").key(seed)
        for i, (block, n) in enumerate(self._blocks(rows)):
            own = module("jax.random").fold_in(key, i)
            at = (self.parameters, self.scaling, self._encoded(block, of), own)
            mean, square = fill(*at, of=of, draws=draws)
            mean = np.asarray(mean, dtype=np.float64)[:n]
            spread = np.maximum(np.asarray(square, dtype=np.float64)[:n] - mean**2, 0.0)
            yield self.units.restored(mean), spread * self.units.unit**2

    def centred(self, target: Source, background: Source | None = None) -> "Fitted":
        """The same model with decoders that average to zero, means holding the rest.

        A constant can move between a decoder and the means without changing any density; here
        `f_t` averages to zero over the target's rows and `f_s` over the background's, each at the
        means that encoders give.
        """
        p, scaling = dict(self.parameters), self.scaling
        offsets = {"target decoder": self._mean_output(target, "target")}
        if background is not None:
            offsets["shared decoder"] = self._mean_output(background, "background")
        for name, offset in offsets.items():
            last = p[name][-1]
            p[name] = (*p[name][:-1], Layer(last.weights, last.bias - offset))
        total = sum(offsets.values())
        shared = offsets.get("shared decoder", np.float32(0.0))
        return self._replace(
            parameters=p,
            scaling=scaling._replace(
                target_mean=scaling.target_mean + total,
                background_mean=scaling.background_mean + shared,
            ),
        )

    def _mean_output(self, rows: Source, of: str) -> Any:
        """Of the set's own decoder, (D,)."""
        total = np.zeros(self.design.n_features)
        means, _ = self.codes(rows, of)
        k = self.design.n_target
        for begin in range(0, len(means), MOST):
            h = means[begin : begin + MOST]
            t, z = (h[:, :k], None) if of == "target" else (None, h)
            total += np.asarray(self._decoded(len(h), t, z, of), dtype=np.float64).sum(axis=0)
        mean = getattr(self.scaling, f"{of}_mean")
        return (total / len(means) - mean).astype(np.float32)

    def _scores(self, rows: Source, score: Callable[..., Any], seed: int, **words: Any) -> Array:
        key, found = module("jax.random").key(seed), []
        for i, (block, n) in enumerate(self._blocks(rows)):
            own = module("jax.random").fold_in(key, i)
            scores = score(self.parameters, self.scaling, block, own, **words)
            change = (~np.isnan(block[:n])) @ np.log(self.units.unit)
            found.append(np.asarray(scores, dtype=np.float64)[..., :n] - change)
        return np.concatenate(found, axis=-1)

    def _blocks(self, rows: Source) -> Iterator[tuple[Any, int]]:
        """Standardised blocks, padded, and how many rows of each are real."""
        for block in rows.blocks():
            for begin in range(0, len(block), MOST):
                part = self.units.standardised(block[begin : begin + MOST])
                yield _padded(part), len(part)


def _padded(rows: Any) -> Any:
    """In single precision, up to the next power of two, with copies of the first row."""
    size = max(LEAST, 1 << (len(rows) - 1).bit_length())
    padding = np.repeat(rows[:1], size - len(rows), axis=0)
    return np.concatenate([rows, padding]).astype(np.float32, copy=False)
