"""A likelihood for each feature."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from contrastive_lvm.arrays import Array, Matrix
from contrastive_lvm.likelihoods.base import Expected, Likelihood, Nuisance, Working
from contrastive_lvm.likelihoods.bernoulli import Bernoulli
from contrastive_lvm.likelihoods.gaussian import Gaussian
from contrastive_lvm.likelihoods.negative_binomial import NegativeBinomial
from contrastive_lvm.likelihoods.poisson import Poisson
from contrastive_lvm.likelihoods.student_t import StudentT
from contrastive_lvm.linalg.matrices import is_sparse

KINDS: dict[str, Likelihood] = {
    "gaussian": Gaussian("feature"),
    "student_t": StudentT(noise="feature"),
    "bernoulli": Bernoulli(),
    "poisson": Poisson(),
    "negative_binomial": NegativeBinomial(),
}


@dataclass(frozen=True)
class Mixed:
    """A likelihood for each feature, by the kind of the feature.

    Features are independent given the latents, so their log densities add. Gaussian and Student-t
    features have noise variances of their own; size factors of rows come from the counts alone.

    Parameters
    ----------
    kinds : dict
        `{"gaussian": [...], "bernoulli": [...], ...}`: for each kind (also `"student_t"`,
        `"poisson"`, `"negative_binomial"`) its features, by name or position. Every feature must
        be there once.

    Examples
    --------
    >>> import contrastive_lvm as clvm
    >>> clvm.Mixed({"gaussian": ["weight", "height"], "bernoulli": ["smoker"]})
    Mixed(kinds={'gaussian': ('weight', 'height'), 'bernoulli': ('smoker',)})
    """

    kinds: Any

    def __post_init__(self) -> None:
        if not isinstance(self.kinds, Mapping) or not self.kinds:
            raise TypeError(
                f"kinds={self.kinds!r} must be a dict from kinds of likelihood to features, e.g. "
                '{"gaussian": [0, 1], "bernoulli": [2]}.'
            )
        for kind in self.kinds:
            if kind not in KINDS:
                known = ", ".join(map(repr, KINDS))
                raise ValueError(f"kinds has the unknown likelihood {kind!r}; use {known}.")
        frozen = {
            kind: (features,) if isinstance(features, str | int | np.integer) else tuple(features)
            for kind, features in self.kinds.items()
        }
        object.__setattr__(self, "kinds", frozen)

    def __hash__(self) -> int:
        return hash(tuple(self.kinds.items()))

    def bound_to(self, n_features: int, names: list[str] | None) -> "Mixed":
        """Features by position; refuses those that are unknown, missing or repeated."""
        position = {name: i for i, name in enumerate(names or [])}
        taken: dict[int, str] = {}
        kinds: dict[str, tuple[int, ...]] = {}
        for kind, features in self.kinds.items():
            found = [self._position(f, position, n_features) for f in features]
            for feature, i in zip(features, found, strict=True):
                if i in taken:
                    raise ValueError(
                        f"Mixed has the feature {feature!r} twice, as {taken[i]!r} and {kind!r}; "
                        "keep one."
                    )
                taken[i] = kind
            kinds[kind] = tuple(sorted(found))
        lacking = [i for i in range(n_features) if i not in taken]
        if lacking:
            first = names[lacking[0]] if names else lacking[0]
            raise ValueError(
                f"Mixed leaves out {len(lacking)} of {n_features} features, the first is "
                f"{first!r}; give every feature a likelihood."
            )
        return Mixed({kind: found for kind, found in kinds.items() if found})

    @staticmethod
    def _position(feature: Any, position: dict[str, int], n_features: int) -> int:
        i = position.get(feature, feature)
        if isinstance(i, bool) or not isinstance(i, int | np.integer) or not 0 <= i < n_features:
            raise ValueError(f"Mixed names the feature {feature!r}, which is not in the data.")
        return int(i)

    @property
    def parts(self) -> list[tuple[str, Likelihood, np.ndarray]]:
        """Kinds, their likelihoods and the positions of their features."""
        return [(k, KINDS[k], np.array(f, dtype=np.intp)) for k, f in self.kinds.items()]

    def parameters(self, n_features: int, prefix: str = "") -> dict[str, Any]:
        """Those of all kinds, their names preceded by the kind."""
        return {kind: part.parameters(len(at), f"{kind} ") for kind, part, at in self.parts}

    def observe(
        self,
        name: str,
        predictor: Any,
        rows: Any,
        parameters: dict[str, Any],
        *,
        augmented: bool = True,
    ) -> None:
        """NumPyro sites of each kind's features; scales of entries are integrated out."""
        for kind, part, at in self.parts:
            part.observe(
                f"{name} {kind}", predictor[:, at], rows[:, at], parameters[kind], augmented=False
            )

    def objection(self, rows: Matrix) -> str | None:
        """Of any kind to its features."""
        columns = rows.tocsc() if is_sparse(rows) else rows
        for kind, part, at in self.parts:
            objection = part.objection(columns[:, at])
            if objection is not None:
                return f"in a {kind} feature {objection}"
        return None

    def sized_columns(self, n_features: int) -> np.ndarray:
        """The counts."""
        sized = np.zeros(n_features, dtype=bool)
        for _, part, at in self.parts:
            sized[at] = part.sized_columns(len(at))
        return sized

    def noisy_columns(self, n_features: int) -> np.ndarray:
        """The Gaussian and Student-t ones."""
        noisy = np.zeros(n_features, dtype=bool)
        for _, part, at in self.parts:
            noisy[at] = part.noisy_columns(len(at))
        return noisy

    def constant(self, rows: Array, nuisance: Nuisance) -> Array:
        """Kind by kind."""
        joined = np.empty(rows.shape)
        for _, part, at in self.parts:
            joined[:, at] = part.constant(rows[:, at], nuisance.of(at))
        return joined

    def expected(
        self, rows: Array, m: Array, v: Array, nuisance: Nuisance, *, whole: bool = True
    ) -> Expected:
        """Kind by kind."""
        joined = Expected(*(np.empty_like(m) for _ in range(3)))
        for _, part, at in self.parts:
            one = part.expected(rows[:, at], m[:, at], v[:, at], nuisance.of(at), whole=whole)
            for all_kinds, piece in zip(joined, one, strict=True):
                all_kinds[:, at] = piece
        return joined

    def response(self, m: Array, v: Array, nuisance: Nuisance) -> tuple[Array, Array]:
        """Kind by kind."""
        mean, variance = np.empty_like(m), np.empty_like(m)
        for _, part, at in self.parts:
            mean[:, at], variance[:, at] = part.response(m[:, at], v[:, at], nuisance.of(at))
        return mean, variance

    def draw(self, predictor: Array, nuisance: Nuisance, rng: np.random.RandomState) -> Array:
        """Kind by kind."""
        rows = np.empty_like(predictor)
        for _, part, at in self.parts:
            rows[:, at] = part.draw(predictor[:, at], nuisance.of(at), rng)
        return rows

    def log_density(self, x: Any, predictor: Any, parameters: dict[str, Any]) -> Any:
        """Refuse: Student-t features may share a scale per row."""
        raise TypeError(f"{self!r} has no log density entry by entry.")

    def network_parameters(self, n_features: int) -> dict[str, Array] | None:
        """Not an output of networks."""
        return None

    def link(self, mean: Array) -> Array:
        """Kind by kind."""
        linked = np.empty_like(mean)
        for _, part, at in self.parts:
            linked[at] = part.link(mean[at])
        return linked

    def working(self, rows: Matrix, log_sizes: Array) -> Working:
        """Kind by kind."""
        dense = rows.toarray() if is_sparse(rows) else rows
        joined = Working(np.empty(dense.shape), np.empty(dense.shape[1]), np.empty(dense.shape[1]))
        for _, part, at in self.parts:
            one = part.working(dense[:, at], log_sizes)
            joined.rows[:, at], joined.slope[at], joined.intercept[at] = one
        return joined
