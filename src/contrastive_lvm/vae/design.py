"""What an autoencoder is made of, and its parameters before training."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from contrastive_lvm.arrays import Array
from contrastive_lvm.likelihoods.base import Nuisance
from contrastive_lvm.likelihoods.gaussian import FLOOR, Gaussian
from contrastive_lvm.likelihoods.negative_binomial import NegativeBinomial
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

    @property
    def sizes(self) -> dict[str, tuple[int, ...]]:
        """Widths of the layers of each network, from its inputs to its outputs."""
        n, both = self.n_features, self.n_target + self.n_shared
        found = {
            "target encoder": (self.n_inputs, *self.hidden, 2 * both),
            "target decoder": (self.n_target, *self.hidden, n),
        }
        if self.n_shared:
            found["background encoder"] = (self.n_inputs, *self.hidden, 2 * self.n_shared)
            found["shared decoder"] = (self.n_shared, *self.hidden, n)
        return found

    @property
    def learned_shapes(self) -> dict[str, tuple[int, ...]]:
        """Of what the likelihood learns."""
        if isinstance(self.likelihood, Gaussian):
            return {"log noise": () if self.likelihood.isotropic else (self.n_features,)}
        if isinstance(self.likelihood, NegativeBinomial):
            shared = self.likelihood.dispersion == "shared"
            return {"log dispersion": () if shared else (self.n_features,)}
        return {}

    def first_parameters(self, rng: np.random.Generator) -> Parameters:
        """Random networks; all variance is noise."""
        first = {"log noise": 0.0, "log dispersion": np.log(FIRST_DISPERSION)}
        networks = {name: first_network(sizes, rng) for name, sizes in self.sizes.items()}
        learned = {
            name: np.full(shape, first[name], dtype=np.float32)
            for name, shape in self.learned_shapes.items()
        }
        return {**networks, "learned": learned}


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
