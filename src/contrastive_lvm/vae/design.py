"""What an autoencoder is made of, and its parameters before training."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from contrastive_lvm.core.types import Array
from contrastive_lvm.likelihoods.gaussian import FLOOR, Gaussian
from contrastive_lvm.likelihoods.negative_binomial import NegativeBinomial
from contrastive_lvm.likelihoods.role import Nuisance
from contrastive_lvm.vae.networks import first_network

Parameters = dict[str, Any]  # networks by name, and "learned": what the likelihood learns
FIRST_DISPERSION = 0.5
LEAST_LOG_NOISE = float(np.log(FLOOR))


@dataclass(frozen=True)
class Design:
    """Sizes and kinds: all that compiled programs depend on.

    Without shared dimensions it is a standard VAE of one set.
    """

    n_features: int
    n_target: int
    n_shared: int
    hidden: tuple[int, ...]
    activation: str
    likelihood: Any
    gaps: bool  # encoders see which entries are missing

    @property
    def n_inputs(self) -> int:
        """Numbers that encoders see of a row."""
        return self.n_features * (2 if self.gaps else 1)

    def first_parameters(self, rng: np.random.Generator) -> Parameters:
        """Random networks; all variance is noise."""
        n, both = self.n_features, self.n_target + self.n_shared
        parameters: Parameters = {
            "target encoder": first_network((self.n_inputs, *self.hidden, 2 * both), rng),
            "target decoder": first_network((self.n_target, *self.hidden, n), rng),
            "learned": self._first_learned(),
        }
        if self.n_shared:
            encoder = first_network((self.n_inputs, *self.hidden, 2 * self.n_shared), rng)
            decoder = first_network((self.n_shared, *self.hidden, n), rng)
            parameters |= {"background encoder": encoder, "shared decoder": decoder}
        return parameters

    def _first_learned(self) -> dict[str, Any]:
        if isinstance(self.likelihood, Gaussian):
            shape = () if self.likelihood.isotropic else (self.n_features,)
            return {"log noise": np.zeros(shape, dtype=np.float32)}
        if isinstance(self.likelihood, NegativeBinomial):
            shape = () if self.likelihood.dispersion == "shared" else (self.n_features,)
            return {"log dispersion": np.full(shape, np.log(FIRST_DISPERSION), dtype=np.float32)}
        return {}


class Units(NamedTuple):
    """Rows are standardised, `(x - shift) / unit`, before they become float32."""

    shift: Array  # (D,)
    unit: Array  # (D,) one number for all features under isotropic noise

    def standardised(self, rows: Array) -> Any:
        """In single precision. Works in place: rows are the caller's own copy."""
        rows -= self.shift.astype(rows.dtype)
        rows /= self.unit.astype(rows.dtype)
        return rows.astype(np.float32, copy=False)

    def restored(self, predictor: Any) -> Array:
        """On the scale of the data, in double precision."""
        restored: Array = self.shift + self.unit * np.asarray(predictor, dtype=np.float64)
        return restored


class Scaling(NamedTuple):
    """Constants of the standardised data, float32."""

    target_mean: Any  # (D,) of the predictor
    background_mean: Any  # (D,)
    centre: Any  # (D,) of what encoders see
    spread: Any  # (D,)
    profile: Any  # (D,) mean counts of sized features, zero elsewhere


def nuisance(design: Design, parameters: Parameters, units: Units) -> Nuisance:
    """What the likelihood learned, a value a feature, on the scale of the data."""
    noise, dispersion = np.zeros(design.n_features), np.zeros(design.n_features)
    learned = {name: np.asarray(v, np.float64) for name, v in parameters["learned"].items()}
    if "log noise" in learned:
        noise = units.unit**2 * np.exp(np.maximum(learned["log noise"], LEAST_LOG_NOISE))
    if "log dispersion" in learned:
        dispersion = dispersion + np.exp(learned["log dispersion"])
    return Nuisance(noise, dispersion)
