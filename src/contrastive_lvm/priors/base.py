"""The base class of priors on a block of loadings.

A prior sees the (D, K) loadings of a block only through `E[L^2]` and gives the expected precision
of each entry. Its constants are its fields; what it learns is its state. Four methods are enough
for a prior of your own: `init`, `update`, `precision` and `bound`. `precision == -2 d bound / d
E[L^2]` must hold at every state; `tests/priors/test_duality.py` checks it for each prior. With
`sample` it can also be used by `SVI`, `NUTS` and `density`.

Everything else that an engine, a plot or a report may want to know has a default here, so that no
engine asks what kind of prior it has.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Generic, NamedTuple, Self, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from contrastive_lvm._jax import AnyArray, JaxArray
from contrastive_lvm.arrays import Array

State = TypeVar("State")  # what a prior learns: a NamedTuple of arrays, or None
BoolArray = npt.NDArray[np.bool_]
LEAST_SHARE = 1e-4  # of the data's variance, for scales that black-box inference begins with
PEAKS_AT_ZERO = (
    "its density peaks where all loadings are zero, which is where point loadings would go; "
    "use inference=VariationalBayes()"
)


class LogMoments(NamedTuple):
    """Mean and variance of the logarithm of a positive quantity under its posterior."""

    mean: Array
    variance: Array


class Prior(ABC, Generic[State]):
    """A prior on the loadings of a block, and what it learns of them.

    Examples
    --------
    >>> import contrastive_lvm as clvm
    >>> prior = clvm.Ridge(scale=0.5)
    >>> prior.precision(prior.init((30, 2)))  # of a block of 30 features and 2 dimensions
    array([[4.]])
    """

    # Whether columns keep their identity: if so, they are ordered and signed but never rotated.
    _has_own_columns: ClassVar[bool] = False
    # Whether all features are treated alike, so that the feature space may be rotated.
    _treats_features_alike: ClassVar[bool] = False
    # Whether columns that the data does not support are dropped during a fit.
    _drops_columns: bool = False
    # Why loadings cannot be points, and why they cannot have a posterior; None where they can.
    _why_no_points: ClassVar[str | None] = None
    _why_no_posterior: ClassVar[str | None] = None
    # Whether loadings have a posterior under variational Bayes; otherwise they are points.
    _has_posterior: ClassVar[bool] = True
    # Whether the density is 1 everywhere: nothing to learn, no precision, no part of the bound, and
    # a posterior that may be improper with few rows.
    _is_flat: ClassVar[bool] = False
    # Whether loadings are found by `_proximal_step`.
    _has_proximal_step: ClassVar[bool] = False
    # What is appended to a block's name to name the NumPyro site of its loadings when scales are
    # not augmented; None where the prior does not say.
    _loading_site: ClassVar[str | None] = None
    # NumPyro sites with one value per column.
    _column_sites: ClassVar[tuple[str, ...]] = ()

    @abstractmethod
    def init(self, shape: tuple[int, int]) -> State:
        """Return the state before anything is known of a (D, K) block."""

    @abstractmethod
    def update(self, state: State, squares: Array) -> State:
        """Return the state that maximises `bound` (or raises it) given `E[L^2]`."""

    @abstractmethod
    def precision(self, state: State) -> Array:
        """Return the expected precision of each loading, broadcasting to (D, K)."""

    @abstractmethod
    def bound(self, state: State, squares: Array) -> float:
        """Return `E[ln p(L | scales)] + E[ln p(scales)] - E[ln q(scales)]`."""

    def sample(self, name: str, shape: tuple[int, int], *, augmented: bool = True) -> JaxArray:
        """Draw loadings from NumPyro sites; a prior without this method has no density."""
        raise TypeError(
            f"{self!r} has no NumPyro density; give it a method sample(name, shape, augmented)."
        )

    def _can_be_sampled(self) -> bool:
        """Tell whether the prior has a NumPyro density."""
        return type(self).sample is not Prior.sample

    def _bind(self, n_features: int, names: Sequence[str] | None) -> Self:
        """Return the prior with features named by position."""
        return self

    def _in_units_of(self, variance: float) -> Self:
        """Return the prior for data of a given mean variance of the features.

        A prior whose constants are relative to that variance multiplies them by it, so that fits
        do not depend on the units of the data.
        """
        return self

    def _proximal_step(self, curvature: Array, linear: Array) -> Array:
        """Maximise `c_d' l_d - 1/2 l_d' diag(gamma_d) l_d` less the penalty, exactly.

        A prior without this method has a step that only needs its expected precision.
        """
        raise TypeError(f"{self!r} has no proximal step.")

    def _best_coordinates(
        self, loadings: Array, latents: Array, n_rows: float, n_features: int
    ) -> Array | None:
        """Return the (K, K) change of latent coordinates that raises the bound most.

        `loadings` and `latents` are the sums of `E[l l']` over features and of `E[h h']` over
        rows. None where the bound does not depend on the coordinates.
        """
        return None

    def _selected_features(
        self, state: State | None, relevance: Array, unit_variance: float
    ) -> BoolArray:
        """Tell which features matter, (D,), from the norms of their loadings and the state."""
        return relevance > 0

    def _summary(self, state: State) -> str:
        """Describe the prior and what it has learned, for a report."""
        return repr(self)

    def _scale_density(self, state: State, at: Array) -> Array | None:
        """Return the posterior density of each feature's squared scale, (len(at), D)."""
        return None

    def _pruning_threshold(self, unit_variance: float) -> float | None:
        """Return the squared scale below which features are dropped; None without such a rule."""
        return None

    def _site_values(self, L: Array, unit: float, *, augmented: bool) -> dict[str, Array]:
        """Return values of the prior's NumPyro sites that suit the loadings L."""
        return {}

    def _site_variance(self, values: Mapping[str, AnyArray], n_features: int) -> AnyArray | None:
        """Return the prior variance of the loadings at values of its sites; None if it has none."""
        return None

    def _public_draws(self, values: dict[str, Array]) -> dict[str, Array]:
        """Return draws of the prior's sites in the form in which users see them."""
        return values

    def _state_from(
        self, log_moments: Callable[[str], LogMoments | None], shape: tuple[int, int]
    ) -> State | None:
        """Return the state whose scales have the given log moments; None if nothing is learned."""
        return None

    def _exact_zeros(self, L: Array, slope_at: Callable[[Array], Array]) -> Array:
        """Set loadings to zero where that is the optimum and gradient steps only come close.

        `slope_at` gives the gradient of the rest of the bound at other loadings.
        """
        return L


AnyPrior: TypeAlias = Prior[Any]  # whatever its state


class FourMethods(AnyPrior):
    """A prior given as any object with the four public methods (and maybe `sample`)."""

    def __init__(self, prior: Any) -> None:
        self.prior = prior

    def __repr__(self) -> str:
        return repr(self.prior)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FourMethods) and bool(self.prior == other.prior)

    def __hash__(self) -> int:
        return hash(self.prior)

    def init(self, shape: tuple[int, int]) -> Any:
        """Return the object's first state."""
        return self.prior.init(shape)

    def update(self, state: Any, squares: Array) -> Any:
        """Return the object's next state."""
        return self.prior.update(state, squares)

    def precision(self, state: Any) -> Array:
        """Return the object's precision."""
        return np.asarray(self.prior.precision(state), dtype=np.float64)

    def bound(self, state: Any, squares: Array) -> float:
        """Return the object's bound."""
        return float(self.prior.bound(state, squares))

    def sample(self, name: str, shape: tuple[int, int], *, augmented: bool = True) -> JaxArray:
        """Draw loadings from the object's NumPyro sites."""
        drawn: JaxArray = self.prior.sample(name, shape, augmented=augmented)
        return drawn

    def _can_be_sampled(self) -> bool:
        return hasattr(self.prior, "sample")


def has_four_methods(value: object) -> bool:
    """Tell whether an object has the methods by which users write a prior."""
    names = ("init", "update", "precision", "bound")
    return all(callable(getattr(value, name, None)) for name in names)
