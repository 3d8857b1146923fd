"""What a prior on loadings has to do.

A prior sees a block of loadings (the columns of S, or of W) only through `E[L^2]`, (D, K), and
gives the expected precision of each entry; the constants are its fields, what it learns is its
state. `precision == -2 d bound / d E[L^2]` must hold at every state: `tests/priors/test_duality.py`
checks it for each prior. A prior that also has `sample(name, shape, *, augmented)`, which returns
loadings from NumPyro sites, can be used in `contrastive_lvm.density`.
"""

from typing import Any, Protocol, runtime_checkable

from contrastive_lvm.arrays import Array


@runtime_checkable
class Prior(Protocol):
    """A scale mixture of normals on loadings, in closed form."""

    def init(self, shape: tuple[int, int]) -> Any:
        """The state before anything was seen of a (D, K) block."""
        ...

    def update(self, state: Any, squares: Array) -> Any:
        """The state that maximises `bound` (or raises it) given `E[L^2]`."""
        ...

    def precision(self, state: Any) -> Array:
        """`E[Lambda]`, broadcasting to (D, K)."""
        ...

    def bound(self, state: Any, squares: Array) -> float:
        """`E[ln p(L | scales)] + E[ln p(scales)] - E[ln q(scales)]`."""
        ...
