"""A likelihood for each feature."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeVar, get_args

import numpy as np

from contrastive_lvm._jax import JaxArray, load
from contrastive_lvm.arrays import Array, Matrix
from contrastive_lvm.checks import check_choice
from contrastive_lvm.likelihoods.base import BoolArray, Likelihood
from contrastive_lvm.likelihoods.bernoulli import Bernoulli
from contrastive_lvm.likelihoods.gaussian import Gaussian
from contrastive_lvm.likelihoods.negative_binomial import NegativeBinomial
from contrastive_lvm.likelihoods.poisson import Poisson
from contrastive_lvm.likelihoods.student_t import StudentT
from contrastive_lvm.likelihoods.values import (
    CountTable,
    Expected,
    LinearizedRows,
    Nuisance,
    RowSite,
    SiteParameters,
)
from contrastive_lvm.linalg.matrices import densify

Value = TypeVar("Value")
MixedSizes = Literal["auto", "total", "none"]
LEAST_SIZED = 50  # features with counts; the total of fewer depends too much on each of them
KINDS: dict[str, Likelihood] = {
    "gaussian": Gaussian("feature"),
    "student_t": StudentT(noise="feature"),
    "bernoulli": Bernoulli(),
    "poisson": Poisson(),
    "negative_binomial": NegativeBinomial(),
}


@dataclass(frozen=True)
class Mixed(Likelihood):
    """A likelihood for each feature, by the kind of the feature.

    Features are independent given the latents, so their log densities add. Gaussian and Student-t
    features have noise variances of their own.

    Parameters
    ----------
    kinds : dict
        `{"gaussian": [...], "bernoulli": [...], ...}`: for each kind (also `"student_t"`,
        `"poisson"`, `"negative_binomial"`) its features, by name or position. Every feature must
        occur exactly once.
    size_factors : {"auto", "total", "none"}
        `"total"`: the rate of a row's counts is relative to their total, as for `Poisson`;
        `"none"`: it is not. The total of a few counts reflects mostly what they have in common, so
        dividing by it hides their effects. `"auto"` is therefore `"total"` only with 50 or more
        features of counts.

    Examples
    --------
    >>> import contrastive_lvm as clvm
    >>> clvm.Mixed({"gaussian": ["weight", "height"], "bernoulli": ["smoker"]}).size_factors
    'auto'
    """

    kinds: Any
    size_factors: MixedSizes = "auto"

    _has_expectations: ClassVar[bool] = True
    _refers_to_features: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_choice("size_factors", self.size_factors, get_args(MixedSizes))
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
        parts = [KINDS[kind] for kind in frozen]
        object.__setattr__(self, "_needs_proper_prior", any(p._needs_proper_prior for p in parts))
        scales = [part._shrinkage for part in parts if part._shrinkage]
        object.__setattr__(self, "_shrinkage", min(scales, default=0.0))

    def __hash__(self) -> int:
        return hash((tuple(self.kinds.items()), self.size_factors))

    def _bind(self, n_features: int, names: Sequence[str] | None) -> "Mixed":
        """Return features by position; refuse those that are unknown, missing or repeated."""
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
        found_kinds = {kind: found for kind, found in kinds.items() if found}
        return Mixed(found_kinds, self.size_factors)

    @staticmethod
    def _position(feature: object, position: dict[str, int], n_features: int) -> int:
        i = position.get(feature, feature) if isinstance(feature, str) else feature
        if isinstance(i, bool) or not isinstance(i, int | np.integer) or not 0 <= i < n_features:
            raise ValueError(f"Mixed names the feature {feature!r}, which is not in the data.")
        return int(i)

    @property
    def _parts(self) -> list[tuple[str, Likelihood, np.ndarray]]:
        """Return kinds, their likelihoods and the positions of their features."""
        return [(k, KINDS[k], np.array(f, dtype=np.intp)) for k, f in self.kinds.items()]

    def parameters(self, n_features: int, prefix: str = "") -> SiteParameters:
        """Return the parameters of all kinds, with names that begin with the kind."""
        return {
            f"{kind} {name}": value
            for kind, part, at in self._parts
            for name, value in part.parameters(len(at), f"{kind} ").items()
        }

    def log_density(self, x: JaxArray, predictor: JaxArray, parameters: SiteParameters) -> JaxArray:
        """Return the log density of each entry, kind by kind, in JAX."""
        joined: JaxArray = load().jnp.zeros(x.shape)
        for kind, part, at in self._parts:
            own = _of_kind(parameters, kind)
            one = part.log_density(x[:, at], predictor[:, at], own)
            joined = joined.at[:, at].set(one)
        return joined

    def _observe(self, site: RowSite) -> None:
        """Add sites of each kind's features; scales of entries are integrated out."""
        for kind, part, at in self._parts:
            own = (site.predictor[:, at], site.rows[:, at], _of_kind(site.parameters, kind))
            part._observe(RowSite(f"{site.name} {kind}", *own, augmented=False))

    def _unsupported_reason(self, rows: Matrix) -> str | None:
        for kind, part, at in self._parts:
            reason = part._unsupported_reason(rows[:, at])
            if reason is not None:
                return f"in a {kind} feature {reason}"
        return None

    def _sized_features(self, n_features: int) -> BoolArray:
        sized = self._joined(n_features, lambda part, n: part._sized_features(n))
        many = self.size_factors == "auto" and sized.sum() >= LEAST_SIZED
        return sized if many or self.size_factors == "total" else np.zeros_like(sized)

    def _has_counts(self, n_features: int) -> BoolArray:
        return self._joined(n_features, lambda part, n: part._has_counts(n))

    def _has_noise(self, n_features: int) -> BoolArray:
        return self._joined(n_features, lambda part, n: part._has_noise(n))

    def _is_on_data_scale(self, n_features: int) -> BoolArray:
        return self._joined(n_features, lambda part, n: part._is_on_data_scale(n))

    def _joined(self, n_features: int, tell: Callable[[Likelihood, int], BoolArray]) -> BoolArray:
        """Join what the likelihoods of all kinds say about their features, (D,)."""
        joined = np.zeros(n_features, dtype=bool)
        for _, part, at in self._parts:
            joined[at] = tell(part, len(at))
        return joined

    def _constant(self, rows: Array, nuisance: Nuisance) -> Array:
        joined = np.empty(rows.shape)
        for _, part, at in self._parts:
            joined[:, at] = part._constant(rows[:, at], nuisance.of(at))
        return joined

    def _expected(
        self, rows: Array, m: Array, v: Array, nuisance: Nuisance, *, whole: bool = True
    ) -> Expected:
        return self._joined_expected(
            m.shape,
            lambda part, at: part._expected(
                rows[:, at], m[:, at], v[:, at], nuisance.of(at), whole=whole
            ),
        )

    def _expected_bound(self, rows: Array, m: Array, v: Array, nuisance: Nuisance) -> Expected:
        return self._joined_expected(
            m.shape,
            lambda part, at: part._expected_bound(rows[:, at], m[:, at], v[:, at], nuisance.of(at)),
        )

    def _joined_expected(
        self, shape: tuple[int, ...], tell: Callable[[Likelihood, np.ndarray], Expected]
    ) -> Expected:
        joined = Expected(*(np.empty(shape) for _ in range(3)))
        for _, part, at in self._parts:
            for whole, own in zip(joined, tell(part, at), strict=True):
                whole[:, at] = own
        return joined

    def _first_nuisance(self, noise: Array) -> Nuisance:
        return self._joined_nuisance(len(noise), lambda part, at: part._first_nuisance(noise[at]))

    def _nuisance_statistics(
        self,
        rows: Array,
        expected: Expected,
        predictor: tuple[Array, Array],
        nuisance: Nuisance,
        weights: Array,
    ) -> Array:
        joined = np.zeros((2, rows.shape[1]))
        for _, part, at in self._parts:
            joined[:, at] = part._nuisance_statistics(
                rows[:, at],
                Expected(*(x[:, at] for x in expected)),
                (predictor[0][:, at], predictor[1][:, at]),
                nuisance.of(at),
                weights if weights.shape[1] == 1 else weights[:, at],
            )
        return joined

    def _nuisance_step(self, statistics: Array, table: CountTable, nuisance: Nuisance) -> Nuisance:
        return self._joined_nuisance(
            statistics.shape[1],
            lambda part, at: part._nuisance_step(statistics[:, at], table.of(at), nuisance.of(at)),
        )

    def _constants(self, table: CountTable, nuisance: Nuisance) -> Array:
        joined = np.zeros(len(table.entries))
        for _, part, at in self._parts:
            joined[at] = part._constants(table.of(at), nuisance.of(at))
        return joined

    def _nuisance_bound(self, nuisance: Nuisance) -> float:
        return sum(part._nuisance_bound(nuisance.of(at)) for _, part, at in self._parts)

    def _joined_nuisance(
        self, n_features: int, tell: Callable[[Likelihood, np.ndarray], Nuisance]
    ) -> Nuisance:
        """Join what the likelihoods of all kinds learn about their features."""
        noise, dispersion, df = np.zeros(n_features), np.zeros(n_features), None
        for _, part, at in self._parts:
            found = tell(part, at)
            noise[at], dispersion[at], df = found.noise, found.dispersion, found.df or df
        return Nuisance(noise, dispersion, df)

    def response(self, m: Array, v: Array, nuisance: Nuisance) -> tuple[Array, Array]:
        """Return mean and variance of new entries, kind by kind."""
        mean, variance = np.empty_like(m), np.empty_like(m)
        for _, part, at in self._parts:
            mean[:, at], variance[:, at] = part.response(m[:, at], v[:, at], nuisance.of(at))
        return mean, variance

    def draw(self, predictor: Array, nuisance: Nuisance, rng: np.random.RandomState) -> Array:
        """Draw new entries, kind by kind."""
        rows = np.empty_like(predictor)
        for _, part, at in self._parts:
            rows[:, at] = part.draw(predictor[:, at], nuisance.of(at), rng)
        return rows

    def _network_parameters(self, n_features: int) -> dict[str, Array] | None:
        return None

    def _linearize(self, rows: Matrix, log_sizes: Array) -> LinearizedRows:
        dense = densify(rows)
        n, D = dense.shape
        joined, slope, intercept = np.empty((n, D)), np.empty(D), np.empty(D)
        for _, part, at in self._parts:
            one = part._linearize(dense[:, at], log_sizes)
            joined[:, at], slope[at], intercept[at] = densify(one.rows), one.slope, one.intercept
        return LinearizedRows(joined, slope, intercept)

    def _with_equal_means(
        self, sets: Sequence[Array], rng: np.random.Generator
    ) -> list[Array] | None:
        joined = [np.empty(rows.shape) for rows in sets]
        for _, part, at in self._parts:
            own = part._with_equal_means([rows[:, at] for rows in sets], rng)
            for whole, columns in zip(joined, own or (), strict=True):
                whole[:, at] = columns
        return joined

    def _site_values(self, nuisance: Nuisance) -> dict[str, Array]:
        return {
            f"{kind} {site}": value
            for kind, part, at in self._parts
            for site, value in part._site_values(nuisance.of(at)).items()
        }

    def _learned(self, values: dict[str, Array], n_features: int) -> Nuisance:
        kinds = {part: kind for kind, part, _ in self._parts}
        return self._joined_nuisance(
            n_features, lambda part, at: part._learned(_of_kind(values, kinds[part]), len(at))
        )

    def _public_draws(self, values: dict[str, Array], n_features: int) -> dict[str, Array]:
        public: dict[str, Array] = {}
        for kind, part, at in self._parts:
            for name, value in part._public_draws(_of_kind(values, kind), len(at)).items():
                whole = public.setdefault(name, np.zeros((*value.shape[:2], n_features)))
                whole[:, :, at] = value if value.ndim > 2 else value[:, :, None]
        return public

    def _log_noise_floor(self, unit: Array) -> dict[str, Array]:
        return {
            f"{kind} {site}": value
            for kind, part, at in self._parts
            for site, value in part._log_noise_floor(unit[at]).items()
        }


def _of_kind(values: dict[str, Value], kind: str) -> dict[str, Value]:
    """Return the values of one kind's parameters or sites, without its name."""
    prefix = f"{kind} "
    return {n.removeprefix(prefix): v for n, v in values.items() if n.startswith(prefix)}
