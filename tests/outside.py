"""A prior and likelihoods written outside the package, as a user would in a module of their own."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

import contrastive_lvm as clvm
from contrastive_lvm.likelihoods.values import Nuisance, Scales
from contrastive_lvm.linalg.inverse_gamma import InverseGamma, expected_log_prior
from tests.oracles import Array


@dataclass(frozen=True)
class StudentLoadings(clvm.Prior[InverseGamma]):
    """A variance for every loading: `L_dk ~ N(0, v_dk)`, `v_dk ~ IG(a, b)`."""

    a: float = 2.0
    b: float = 1.0

    _has_own_columns: ClassVar[bool] = True  # it is not the same in rotated coordinates

    def init(self, shape: tuple[int, int]) -> InverseGamma:
        return InverseGamma(np.full(shape, self.a + 0.5), np.ones(shape))

    def update(self, state: InverseGamma, squares: Array) -> InverseGamma:
        return InverseGamma(state.a, self.b + 0.5 * squares)

    def precision(self, state: InverseGamma) -> Array:
        return state.mean_inverse()

    def bound(self, state: InverseGamma, squares: Array) -> float:
        each = np.log(2 * np.pi) + state.mean_log() + state.mean_inverse() * squares
        prior = expected_log_prior(state, self.a, self.b, np.log(self.b))
        return -0.5 * float(each.sum()) + prior + state.entropy()

    def sample(self, name: str, shape: tuple[int, int], *, augmented: bool = True) -> Any:
        import numpyro
        from numpyro import distributions as dist

        scale = np.sqrt(self.b / self.a)
        return numpyro.sample(name, dist.StudentT(2 * self.a, 0.0, scale).expand(shape).to_event(2))


@dataclass(frozen=True)
class Contaminated(clvm.ScaleMixture):
    """Gaussian noise that is `1 / wide` times as precise with a small probability, per entry.

    `u` is 1 with probability `1 - share` and `wide` otherwise, so that an entry's density at
    `chi2 = e^2 / psi` is a mixture of two normals, and `E[u]` follows from Bayes' rule.
    """

    share: float = 0.1
    wide: float = 0.04
    noise: Any = "isotropic"

    def _log_parts(self, chi2: Any) -> tuple[Any, Any]:
        narrow = np.log(1.0 - self.share) - 0.5 * chi2
        return narrow, np.log(self.share) + 0.5 * np.log(self.wide) - 0.5 * self.wide * chi2

    def scales(self, chi2: Array, entries: Array, df: float) -> Scales:
        narrow, broad = self._log_parts(chi2)
        log_density = np.logaddexp(narrow, broad)
        weights = np.exp(narrow - log_density) + self.wide * np.exp(broad - log_density)
        nothing = np.logaddexp(*self._log_parts(0.0))  # of missing entries, where chi2 is 0
        bound = log_density.sum(axis=1) - (chi2.shape[1] - entries) * nothing
        return Scales(weights, bound, np.zeros(len(chi2)), entries)

    def log_density(self, x: Any, predictor: Any, parameters: Any) -> Any:
        import jax.numpy as jnp

        psi = parameters["noise"]
        narrow, broad = self._log_parts((x - predictor) ** 2 / psi)
        return jnp.logaddexp(narrow, broad) - 0.5 * jnp.log(2 * jnp.pi * psi)

    def _variance_factor(self, df: float) -> float:
        return 1.0 - self.share + self.share / self.wide

    def _draw_scales(self, df: float, rng: Any, shape: tuple[int, int]) -> Array:
        return np.where(rng.random_sample(shape) < self.share, self.wide, 1.0)


@dataclass(frozen=True)
class SoftplusPoisson(clvm.Likelihood):
    """Counts whose rate is `ln(1 + exp(e))`, with nothing but its density given."""

    def log_density(self, x: Any, predictor: Any, parameters: Any) -> Any:
        import jax
        import jax.numpy as jnp

        rate = jax.nn.softplus(predictor) + 1e-6
        return x * jnp.log(rate) - rate - jax.scipy.special.gammaln(x + 1.0)

    def response(self, m: Array, v: Array, nuisance: Nuisance) -> tuple[Array, Array]:
        rate = np.logaddexp(0.0, m)
        return rate, rate + v

    def draw(self, predictor: Array, nuisance: Nuisance, rng: Any) -> Array:
        return np.asarray(rng.poisson(np.logaddexp(0.0, predictor)), dtype=np.float64)
