"""A prior and likelihoods as users write them: subclasses with public methods only."""

from typing import Any

import numpy as np

import contrastive_lvm as clvm
from tests.oracles import Array


class Silent(clvm.Prior[Any]):
    """A normal prior without a NumPyro density."""

    def __repr__(self) -> str:
        return "Silent()"

    def init(self, shape: tuple[int, int]) -> None:
        """Nothing is learned."""

    def update(self, state: None, squares: Array) -> None:
        """Nothing is learned."""

    def precision(self, state: None) -> Array:
        return np.ones((1, 1))

    def bound(self, state: None, squares: Array) -> float:
        return -0.5 * float((squares + np.log(2.0 * np.pi)).sum())


class Laplace(Silent):
    """`p(L_dk) = exp(-|L_dk|) / 2`; as a scale mixture, `-|L| = max_n -(L^2 / n + n) / 2`."""

    def __repr__(self) -> str:
        return "Laplace()"

    def init(self, shape: tuple[int, int]) -> Any:
        return np.ones(shape)

    def update(self, state: Any, squares: Array) -> Any:
        return np.sqrt(np.maximum(squares, 1e-12))

    def precision(self, state: Any) -> Array:
        return np.asarray(1.0 / state)

    def bound(self, state: Any, squares: Array) -> float:
        return -float((0.5 * (squares / state + state) + np.log(2.0)).sum())

    def sample(self, name: str, shape: tuple[int, int], *, augmented: bool = True) -> Any:
        import numpyro
        from numpyro import distributions as dist

        return numpyro.sample(name, dist.Laplace(0.0, 1.0).expand(shape).to_event(2))


class LaplaceNoise(clvm.Likelihood):
    """`x = predictor + noise` with Laplace noise of a fixed scale."""

    def __init__(self, scale: float) -> None:
        self.scale = scale

    def __repr__(self) -> str:
        return f"LaplaceNoise({self.scale})"

    def log_density(self, x: Any, predictor: Any, parameters: dict[str, Any]) -> Any:
        return -abs(x - predictor) / self.scale - float(np.log(2.0 * self.scale))
