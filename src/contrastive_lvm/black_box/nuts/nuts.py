"""The no-U-turn sampler: full MCMC for small data."""

import logging
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from contrastive_lvm._jax import cached_program, double_precision, to_numpy
from contrastive_lvm.arrays import Array, Matrix
from contrastive_lvm.black_box.density import complete_rows, has_marginal
from contrastive_lvm.black_box.nuts.nuts_chains import (
    SEGMENT,
    CompiledNuts,
    NutsLayout,
    NutsRows,
)
from contrastive_lvm.black_box.nuts.nuts_parametrization import (
    NutsCoordinates,
    coordinates_at,
    freedom,
)
from contrastive_lvm.black_box.sites import prior_states, public_draws, turn_columns
from contrastive_lvm.black_box.start import StartingPoint, starting_point
from contrastive_lvm.checks import check_integer, check_positive
from contrastive_lvm.draws import Draws, diagnosed, packed_covariance, turns
from contrastive_lvm.inference import MIXTURES_NEED_CLOSED_FORM, Engine
from contrastive_lvm.linalg.matrices import widen
from contrastive_lvm.model import Model
from contrastive_lvm.posterior import Posterior
from contrastive_lvm.priors.base import AnyPrior, LogMoments
from contrastive_lvm.progress import progress

logger = logging.getLogger(__name__)

LOGARITHMS = ("log noise", "log df", "log dispersion")  # endings of sites of likelihoods
GOOD_RHAT, FEW_DIVERGENT = 1.05, 0.01  # what counts as converged (Gelman et al. 2013, 11.5)


@dataclass(frozen=True)
class NUTS(Engine):
    """Draws from the exact posterior (Hoffman & Gelman 2014), for small data.

    Latents of Gaussian rows are integrated out and drawn exactly afterwards; under other
    likelihoods they are sampled with the rest. Chains begin near the closed-form solution (for
    counts and binary data, that of a Gaussian approximation). All draws are rotated to one
    orientation, and `posterior_.draws` has them with R-hat and effective sample sizes. The reported
    loadings, means and noise are posterior means, and the trace is the log density of the draws,
    averaged over chains. A fit has converged if no R-hat exceeds 1.05 and at most 1 % of the draws
    diverged. A second fit to data of the same shapes needs no compilation. An interrupt (Ctrl-C)
    after the warm-up keeps the draws so far, with a warning; a second one ends the fit.

    Here `GroupLasso` means its density (the Bayesian group lasso), so draws have no exact zeros.
    Under `ARD` the number of columns is the one with which the closed form begins. A posterior
    under `Flat` needs more rows than features and columns together; with fewer rows it is improper
    and raises an error.

    Parameters
    ----------
    n_warmup, n_draws : int
        Number of draws of each chain. The draws of the warm-up tune the sampler and are dropped.
    n_chains : int
        Number of chains, run side by side on as many cores as BLAS may use.
    target_accept : float
        Mean acceptance probability to which the step size is tuned. Values nearer to 1 are slower,
        with fewer divergences.
    max_tree_depth : int
        Depth of the trees: a draw takes at most `2 ** max_tree_depth` steps.
    given : dict or None
        Values of known sites, such as `{"log noise": 0.0}`; see `density` for their names. Given
        loadings keep their columns.

    Examples
    --------
    >>> import contrastive_lvm as clvm
    >>> clvm.NUTS(n_draws=1000).n_chains
    4
    """

    n_warmup: int = 500
    n_draws: int = 500
    n_chains: int = 4
    target_accept: float = 0.8
    max_tree_depth: int = 10
    given: Any = None

    _needs_rows_in_memory: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_integer("n_warmup", self.n_warmup, 50, detail=": they tune the sampler")
        check_integer("n_draws", self.n_draws, 50, detail=": R-hat of fewer draws is noise")
        check_integer("n_chains", self.n_chains, 2, detail=": R-hat compares chains")
        check_integer("max_tree_depth", self.max_tree_depth, 1, 20)
        what = "a probability between 0 and 1, such as 0.9"
        check_positive("target_accept", self.target_accept, 1.0, what)
        if self.given is not None:
            object.__setattr__(self, "given", _frozen(self.given))

    def __hash__(self) -> int:
        numbers = (self.n_warmup, self.n_draws, self.n_chains, self.max_tree_depth)
        return hash((numbers, self.target_accept, tuple((self.given or {}).items())))

    def _unsupported_reason(self, model: Model) -> str | None:
        """Say why this engine cannot fit a model, and what can; None when it can."""
        if not model.has_standard_latents:
            return f"NUTS {MIXTURES_NEED_CLOSED_FORM}"
        for block in model.blocks:
            if not block.prior._can_be_sampled():
                return (
                    f"NUTS cannot fit {block.prior!r}: it has no NumPyro density; give it a method "
                    "sample(name, shape, augmented)."
                )
            improper = model.likelihood._needs_proper_prior and block.prior._is_flat
            if improper and block.n_components:
                return (
                    f"NUTS cannot fit {block.prior!r} on the {block.name} loadings with "
                    f"{model.likelihood!r}: large loadings are never ruled out, so the posterior "
                    "is improper; use the prior ARD()."
                )
        return None

    def _convergence_hint(self) -> str:
        """Say what to do about a fit that did not converge."""
        return (
            f"NUTS has an R-hat above {GOOD_RHAT} or more than {FEW_DIVERGENT:.0%} divergent draws "
            "(see posterior_.draws.worst_rhat and .divergences); raise n_warmup and n_draws, or "
            "target_accept."
        )

    def _run(
        self,
        model: Model,
        sets: Sequence[Matrix],
        *,
        log_sizes: Sequence[Array] = (),
        seed: int = 0,
        restart: bool = False,
    ) -> Posterior:
        """Sample; all randomness comes from the seed. Chains begin apart, `restart` or not.

        Sets are in the order of `model.sets`.
        """
        rows = [widen(X) for X in sets]
        _refuse_improper(model, rows, self.given or {})
        sizes = log_sizes or [np.zeros(len(X)) for X in rows]
        start = starting_point(_bound(model, rows[0].shape[1]), rows, sizes)
        with double_precision():
            return self._sample(start, rows, sizes, seed)

    def _sample(
        self, start: StartingPoint, sets: list[Array], sizes: Sequence[Array], seed: int
    ) -> Posterior:
        model, D = start.model, sets[0].shape[1]
        given = {name: np.asarray(value) for name, value in (self.given or {}).items()}
        collapsed = has_marginal(model)
        complete = tuple(collapsed and not bool(np.isnan(X).any()) for X in sets)
        settings = (int(self.n_warmup), float(self.target_accept), int(self.max_tree_depth))
        n_rows = tuple(len(X) for X in sets)
        layout = NutsLayout(model, D, n_rows, complete, collapsed, tuple(given), *settings)
        _refuse_given(given, layout)
        compiled = cached_program(CompiledNuts, layout)
        parts = [complete_rows(X) if c else X for X, c in zip(sets, complete, strict=True)]
        sized = model.likelihood._sized_features(D).any()
        rows = NutsRows(tuple(parts), tuple(sizes) if sized else ())
        at = coordinates_at(start, compiled.sites, n_rows, given)
        z, diverging = self._chains(compiled, at, rows, seed)
        flat = to_numpy(compiled.described(z.reshape(-1, z.shape[2]), at, rows))
        if collapsed:
            known = {
                n: v for n, v in flat.items() if n.endswith((" loadings", " mean", "log noise"))
            }
            flat |= to_numpy(compiled.latents(np.int64(seed), known, tuple(sets)))
        values = {name: v.reshape(*z.shape[:2], *v.shape[1:]) for name, v in flat.items()}
        density = values["log density"]
        found = {
            b.name: turns(values[f"{b.name} loadings"], density, freedom(b, layout.given))
            for b in model.blocks
        }
        public = public_draws(model, D, turn_columns(model, values, found))
        draws = diagnosed(public, int(diverging.sum()))
        return self._posterior(start, draws, values)

    def _chains(
        self, compiled: CompiledNuts, at: NutsCoordinates, rows: NutsRows, seed: int
    ) -> tuple[Array, np.ndarray]:
        """Return coordinates of draws, (chains, draws, ...), and which of them diverged.

        All chains draw a segment before any draws the next: an interrupt leaves them equally long.
        """
        seeds = np.random.default_rng(seed).integers(2**32, size=self.n_chains)
        first = [compiled.first(seed, i) for i in range(self.n_chains)]
        states = [compiled.begin(*begin, at, rows) for begin in zip(seeds, first, strict=True)]
        warm_up, lengths = _segments(self.n_warmup), _segments(self.n_draws)
        found: list[tuple[Array, np.ndarray]] = []
        try:
            with progress("NUTS", self.n_warmup + self.n_draws, logger, unit="draw") as advance:
                for n in (*warm_up, *lengths):
                    states, z, diverging = compiled.advance(states, n, at, rows)
                    found.append((z, diverging))
                    advance(n, f"{int(diverging.sum())} of {diverging.size} draws diverged")
        except KeyboardInterrupt as interrupt:
            # While chains end their segments, a second interrupt replaces the first.
            if len(found) <= len(warm_up) or isinstance(interrupt.__context__, KeyboardInterrupt):
                raise
        kept = found[len(warm_up) :]
        if len(kept) < len(lengths):
            warnings.warn(
                f"interrupted after {sum(lengths[: len(kept)])} of {self.n_draws} draws of each "
                "chain; they are kept.",
                UserWarning,
                stacklevel=5,
            )
        z, diverging = (np.concatenate(parts, axis=1) for parts in zip(*kept, strict=True))
        return z, diverging

    def _posterior(self, start: StartingPoint, draws: Draws, sites: dict[str, Array]) -> Posterior:
        """Return posterior means and covariances of draws, and of the sites of the likelihood."""
        model, values, D = start.model, draws.values, len(start.L)
        n_chains, n_draws = values["log density"].shape
        none = np.empty((n_chains, n_draws, D, 0))
        loadings = {b.name: values.get(f"{b.name} loadings", none) for b in model.blocks}
        L = np.concatenate(list(loadings.values()), axis=3).reshape(n_chains * n_draws, D, -1)
        of_likelihood = {n: v for n, v in sites.items() if n.endswith(LOGARITHMS)}
        means = {n: np.log(np.exp(v).mean(axis=(0, 1))) for n, v in of_likelihood.items()}
        learned = model.likelihood._learned(means, D)
        few = draws.divergences <= FEW_DIVERGENT * n_chains * n_draws
        return Posterior(
            loadings={name: drawn.mean(axis=(0, 1)) for name, drawn in loadings.items()},
            means={name: values[f"{name} mean"].mean(axis=(0, 1)) for name in model.sets},
            noise_variance=learned.noise,
            lower_bounds=values["log density"].mean(axis=0),
            n_iter=n_chains * (self.n_warmup + n_draws),
            converged=n_draws == self.n_draws and draws.worst_rhat[1] < GOOD_RHAT and few,
            loading_covariance=packed_covariance(L),
            prior_states=prior_states(model, D, lambda site: log_moments(values.get(site))),
            df=learned.df,
            unit_variance=float((start.unit**2).mean()),
            dispersion=learned.dispersion if learned.dispersion.any() else None,
            draws=draws,
        )


def _segments(n_draws: int) -> list[int]:
    """Divide draws into parts that one call makes."""
    return [min(SEGMENT, n_draws - begin) for begin in range(0, n_draws, SEGMENT)]


def _frozen(given: Any) -> dict[str, Any]:
    """Return values as numbers and nested tuples, in the order of their names."""
    if not isinstance(given, Mapping) or not all(isinstance(name, str) for name in given):
        raise TypeError(
            f"given={given!r} must be a dict from sites to values, e.g. {{'log noise': 0.0}}."
        )
    arrays = {name: np.asarray(given[name], dtype=np.float64) for name in sorted(given)}
    for name, value in arrays.items():
        if not np.isfinite(value).all():
            raise ValueError(f"given has a value of {name!r} that is not finite; leave it out.")
    return {name: _tuples(value.tolist()) for name, value in arrays.items()}


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


def _refuse_given(given: dict[str, Array], layout: NutsLayout) -> None:
    """Refuse sites that the model does not have, and values that they cannot have."""
    if not given:
        return
    sites = cached_program(CompiledNuts, layout._replace(given=())).sites
    for name, value in given.items():
        if name not in sites:
            known = ", ".join(map(repr, sites))
            raise ValueError(f"given names the site {name!r}, unknown in this model; use {known}.")
        site, support = sites[name], sites[name].transform.codomain
        if value.shape != site.shape:
            raise ValueError(
                f"given has {name!r} of shape {value.shape}; the site has {site.shape}."
            )
        if not np.all(support(value)):
            shown = _tuples(value.tolist())
            raise ValueError(
                f"given has {name!r}={shown!r}, which is outside its support, {support!r}."
            )


def _refuse_improper(model: Model, sets: list[Array], given: dict[str, Any]) -> None:
    """Refuse posteriors that no number of draws would describe."""
    D, counts = sets[0].shape[1], dict(zip(model.sets, map(len, sets), strict=True))
    for block in model.blocks:
        rows, width = sum(counts[name] for name in block.sets), block.n_components
        # A long column makes a row's density fall as 1 / length, and a set's mean takes a row.
        short = rows - len(block.sets) < D + width
        known = f"{block.name} loadings" in given
        if short and width and block.prior._is_flat and not known:
            raise ValueError(
                f"NUTS cannot fit {block.prior!r} on the {block.name} loadings to {rows} rows of "
                f"{D} features: the posterior is improper unless rows outnumber features and "
                "columns; use the prior ARD()."
            )
    discrete = ~model.likelihood._is_on_data_scale(D)
    for name, X in zip(model.sets, sets, strict=True):
        constant = discrete & (np.fmin.reduce(X, axis=0) == np.fmax.reduce(X, axis=0))
        if constant.any() and f"{name} mean" not in given:
            raise ValueError(
                f"NUTS cannot fit feature {int(constant.argmax())}, which is constant in the "
                f"{name} rows: nothing limits its mean, so the posterior is improper; leave it out."
            )


def _bound(model: Model, n_features: int) -> Model:
    """Return the model with features by position, so that it can be hashed."""
    priors: dict[str, AnyPrior] = {b.name: b.prior._bind(n_features, None) for b in model.blocks}
    return model.with_priors(priors)


def log_moments(draws: Array | None) -> LogMoments | None:
    """Return mean and variance of the logarithm of draws, (chains, draws, ...)."""
    if draws is None:
        return None
    log = np.log(draws)
    variance = np.maximum(log.var(axis=(0, 1)), 1e-12)  # zero for scales that are given
    return LogMoments(log.mean(axis=(0, 1)), variance)
