"""A prior of your own: favour a known set of features in the target loadings.

A prior is a small class with four methods (`contrastive_lvm.priors.base.Prior`). This one gives
loadings of a known set of features a wide normal, all others a narrow one; there is nothing to
learn, so its state is empty. Run with `python examples/known_features.py`.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

import contrastive_lvm as clvm

Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class KnownFeatures(clvm.Prior[Array]):
    """`L_d ~ N(0, wide^2)` for known features, `N(0, narrow^2)` for the others."""

    known: tuple[int, ...]
    wide: float = 3.0
    narrow: float = 0.05

    def _precision(self, n_features: int) -> Array:
        scale = np.full(n_features, self.narrow)
        scale[list(self.known)] = self.wide
        return scale**-2

    def init(self, shape: tuple[int, int]) -> Array:
        """Return the fixed precisions, (D, 1)."""
        return self._precision(shape[0])[:, None]

    def update(self, state: Array, squares: Array) -> Array:
        """Return the same state: nothing is learned."""
        return state

    def precision(self, state: Array) -> Array:
        """Return the precision of every loading."""
        return state

    def bound(self, state: Array, squares: Array) -> float:
        """Return `E[ln p(L)]`."""
        return float(0.5 * (np.log(state / (2.0 * np.pi)) - state * squares).sum())


def main() -> tuple[float, float]:
    """Return the norms of the target loadings of known and of other features."""
    data = clvm.datasets.make_subgroups(random_state=0)
    prior = KnownFeatures(known=tuple(range(10, 20)))  # the features that tell A from B, C from D
    # Ten shared dimensions for the noise, one more for the difference in features 1 to 10.
    model = clvm.ContrastiveLVM(n_target=1, n_shared=11, target_prior=prior, inference="vb")
    model.fit(data.target, background=data.background)
    known = model.feature_relevance_[10:20].mean()
    return float(known), float(np.delete(model.feature_relevance_, np.s_[10:20]).mean())


if __name__ == "__main__":
    print("known features {:.2f}, others {:.2f}".format(*main()))
