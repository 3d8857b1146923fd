"""The no-U-turn sampler: full MCMC for small data."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from contrastive_lvm._jax import double_precision, module
from contrastive_lvm.arrays import Array, Matrix
from contrastive_lvm.black_box.initialization import Start, starting_point
from contrastive_lvm.black_box.marginal import moments_of
from contrastive_lvm.black_box.nuts.nuts_chains import Layout, Program, Rows, program
from contrastive_lvm.black_box.nuts.nuts_parametrization import (
    BLOCKS,
    MEANS,
    OWN_LATENTS,
    frame_of,
    freedom,
)
from contrastive_lvm.black_box.sites import learned_of
from contrastive_lvm.checks import check_integer, check_positive
from contrastive_lvm.draws import Draws, diagnosed, turns
from contrastive_lvm.likelihoods.bernoulli import Bernoulli
from contrastive_lvm.likelihoods.gaussian import Gaussian
from contrastive_lvm.likelihoods.mixed import Mixed
from contrastive_lvm.linalg import packed
from contrastive_lvm.linalg.inverse_gamma import InverseGamma, from_log_moments
from contrastive_lvm.linalg.matrices import widen
from contrastive_lvm.model import Model
from contrastive_lvm.posterior import Posterior
from contrastive_lvm.priors.ard import ARD
from contrastive_lvm.priors.feature_groups import group_index
from contrastive_lvm.priors.flat import Flat
from contrastive_lvm.priors.group_lasso import GroupLasso
from contrastive_lvm.priors.horseshoe import Horseshoe, HorseshoeState
from contrastive_lvm.progress import progress
from contrastive_lvm.rows.threads import in_order

logger = logging.getLogger(__name__)

GOOD_RHAT = 1.05  # of everything, for a fit to count as converged
FEW_DIVERGENT = 0.01  # of the draws


@dataclass(frozen=True)
class NUTS:
    """Draws from the exact posterior (Hoffman & Gelman 2014), for small data.

    Latents of Gaussian rows are integrated out and drawn exactly afterwards; under other
    likelihoods they are sampled with the rest. Chains begin near the closed-form answer (that of a
    Gaussian stand-in for counts and binary data). Draws are turned into one gauge, and
    `posterior_.draws` has all of them with R-hat and effective sample sizes; the reported loadings,
    means and noise are posterior means, and the trace is the log density of the draws, averaged
    over chains. A fit has converged when no R-hat exceeds 1.05 and at most 1 % of the draws
    diverged. Data of the same shapes is sampled without being compiled for again.

    `GroupLasso` stands for its density here (the Bayesian group lasso): draws have no exact zeros.
    Under `ARD` the columns are those that the closed form begins with. A posterior under `Flat`
    needs more rows than features and columns together; with less it is improper, and refused.

    Parameters
    ----------
    n_warmup, n_draws : int
        Of each chain. Warm-up draws tune the sampler and are dropped.
    n_chains : int
        One after another, or side by side on as many cores as BLAS may use.
    target_accept : float
        Mean acceptance that the step size is tuned to; nearer to 1 is slower and diverges less.
    max_tree_depth : int
        A draw takes at most `2 ** max_tree_depth` steps.
    given : dict or None
        Values of sites that are known, such as `{"log noise": 0.0}`; `density` has their names.
        Loadings that are given keep their columns.

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

    def objection(self, model: Model) -> str | None:
        """Why this engine cannot fit a model, and what can; None when it can."""
        likelihood: Any = model.likelihood
        binary = isinstance(likelihood, Bernoulli)
        binary = binary or (isinstance(likelihood, Mixed) and "bernoulli" in likelihood.kinds)
        for name, prior, width in zip(
            ("shared_prior", "target_prior"),
            model.priors,
            (model.n_shared, model.n_target),
            strict=True,
        ):
            if not hasattr(prior, "sample"):
                return (
                    f"NUTS cannot fit {prior!r}: it has no NumPyro density; give it a method "
                    "sample(name, shape, augmented)."
                )
            if binary and isinstance(prior, Flat) and width:
                return (
                    f"NUTS cannot fit {name}=Flat() to binary data: large loadings are never ruled "
                    f"out, so the posterior is improper; use {name}='ard'."
                )
        return None

    def shortfall(self) -> str:
        """What to do about a fit that did not converge."""
        return (
            f"NUTS has an R-hat above {GOOD_RHAT} or more than {FEW_DIVERGENT:.0%} divergent draws "
            "(see posterior_.draws.worst_rhat and .divergences); raise n_warmup and n_draws, or "
            "target_accept."
        )

    def run(
        self,
        model: Model,
        target: Matrix,
        background: Matrix | None,
        *,
        log_sizes: tuple[Array, ...] = (),
        seed: int = 0,
        restart: bool = False,
    ) -> Posterior:
        """Sample; all randomness comes from the seed. Chains begin apart, `restart` or not."""
        sets = [widen(X) for X in ([target] if background is None else [target, background])]
        _refuse_improper(model, sets, self.given or {})
        sizes = list(log_sizes) or [np.zeros(len(X)) for X in sets]
        start = starting_point(_hashable(model, sets[0].shape[1]), sets, sizes)
        with double_precision():
            return self._sampled(start, sets, sizes, seed)

    def _sampled(self, start: Start, sets: list[Array], sizes: list[Array], seed: int) -> Posterior:
        layout = self._layout(start.model, sets)
        if self.given:
            _refuse_given(self.given, layout)
        compiled = program(layout)
        values, divergences = self._chains(compiled, start, _rows(layout, sets, sizes), seed)
        if layout.collapsed:
            values |= _latents(compiled, values, sets, seed)
        named = _named(start.model, layout.n_features, _turned(start.model, values, layout.given))
        return _posterior(start, diagnosed(named, divergences), self.n_warmup)

    def _layout(self, model: Model, sets: list[Array]) -> Layout:
        collapsed = isinstance(model.likelihood, Gaussian)
        return Layout(
            model,
            sets[0].shape[1],
            tuple(len(X) for X in sets),
            tuple(collapsed and not bool(np.isnan(X).any()) for X in sets),
            collapsed,
            tuple(self.given or ()),
            int(self.n_warmup),
            int(self.n_draws),
            float(self.target_accept),
            int(self.max_tree_depth),
        )

    def _chains(
        self, compiled: Program, start: Start, rows: Rows, seed: int
    ) -> tuple[dict[str, Array], int]:
        """Values of draws, (chains, draws, ...), and how many of them diverged."""
        given = {name: np.asarray(value) for name, value in (self.given or {}).items()}
        frame = frame_of(start, compiled.sites, compiled.layout.n_rows, given)
        seeds = np.random.default_rng(seed).integers(2**32, size=self.n_chains)
        begin = [compiled.first(seed, i) for i in range(self.n_chains)]
        chain = compiled.chain(seeds[0], begin[0], frame, rows)

        def one(number: slice) -> Any:
            with double_precision():  # it holds for a thread
                drawn = chain(seeds[number.start], begin[number.start], frame, rows)
                return module("jax").tree.map(np.asarray, drawn)

        found, divergences = [], 0
        with progress("NUTS chains", self.n_chains, logger) as advance:
            for values, diverging in in_order(one, [slice(i, i + 1) for i in range(self.n_chains)]):
                found.append(values)
                divergences += int(diverging.sum())
                advance(1, f"{divergences} draws diverged")
        return {name: np.stack([v[name] for v in found]) for name in found[0]}, divergences


def _frozen(given: Any) -> dict[str, Any]:
    """Values as numbers and nested tuples, in the order of their names."""
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


def _refuse_given(given: dict[str, Any], layout: Layout) -> None:
    """Sites that the model does not have, and values that they cannot have."""
    sites = program(layout._replace(given=())).sites
    for name, value in given.items():
        if name not in sites:
            known = ", ".join(map(repr, sites))
            raise ValueError(f"given names the site {name!r}, unknown in this model; use {known}.")
        site, shape = sites[name], np.shape(value)
        if shape != site.shape:
            raise ValueError(f"given has {name!r} of shape {shape}; the site has {site.shape}.")
        if not np.all(site.transform.codomain(np.asarray(value))):
            raise ValueError(
                f"given has {name!r}={value!r}, which is outside its support, "
                f"{site.transform.codomain!r}."
            )


def _refuse_improper(model: Model, sets: list[Array], given: dict[str, Any]) -> None:
    """Posteriors that no number of draws would describe."""
    D = sets[0].shape[1]
    for which, (prior, columns) in enumerate(zip(model.priors, model.blocks, strict=True)):
        width, seen = columns.stop - columns.start, sets if which == 0 else sets[:1]
        rows = sum(len(X) for X in seen)
        # A long column makes a row's density fall as 1 / length, and a set's mean takes a row.
        short = rows - len(seen) < D + width
        if isinstance(prior, Flat) and width and short and BLOCKS[which] not in given:
            name = ("shared_prior", "target_prior")[which]
            raise ValueError(
                f"NUTS cannot fit {name}=Flat() to {rows} rows of {D} features: the posterior is "
                f"improper unless rows outnumber features and columns; use {name}='ard'."
            )
    discrete = ~model.likelihood.noisy_columns(D)
    for name, X in zip(("target", "background"), sets, strict=False):
        constant = discrete & (np.fmin.reduce(X, axis=0) == np.fmax.reduce(X, axis=0))
        if constant.any() and f"{name} mean" not in given:
            raise ValueError(
                f"NUTS cannot fit feature {int(constant.argmax())}, which is constant in the "
                f"{name} rows: nothing limits its mean, so the posterior is improper; leave it out."
            )


def _hashable(model: Model, n_features: int) -> Model:
    """The model with groups as tuples, so that its program can be kept."""

    def bound(prior: Any) -> Any:
        if not isinstance(prior, GroupLasso | Horseshoe) or prior.groups is None:
            return prior
        return replace(prior, groups=tuple(group_index(prior.groups, n_features).tolist()))

    return replace(
        model, shared_prior=bound(model.shared_prior), target_prior=bound(model.target_prior)
    )


def _rows(layout: Layout, sets: list[Array], sizes: list[Array]) -> Rows:
    parts = [moments_of(X) if c else X for X, c in zip(sets, layout.complete, strict=True)]
    sized = layout.model.likelihood.sized_columns(layout.n_features).any()
    log_sizes = [*sizes, None][:2] if sized else [None, None]
    return Rows(tuple(parts), (log_sizes[0], log_sizes[1]))


def _latents(
    compiled: Program, values: dict[str, Array], sets: list[Array], seed: int
) -> dict[str, Array]:
    """Of all draws, (chains, draws, N, K)."""
    names = [name for name in ("S", "W", *MEANS, "log noise") if name in values]
    shape = values["log density"].shape
    flat = {n: values[n].reshape(np.prod(shape), *values[n].shape[2:]) for n in names}
    drawn = compiled.latents(np.int64(seed), flat, tuple(sets))
    return {n: np.asarray(v).reshape(*shape, *v.shape[1:]) for n, v in drawn.items()}


def _turned(model: Model, values: dict[str, Array], given: tuple[str, ...]) -> dict[str, Array]:
    """All draws in one gauge."""
    turned = dict(values)
    for which, name in enumerate(BLOCKS):
        R = turns(values[name], values["log density"], freedom(model, which, given))
        for site in (name, *OWN_LATENTS[which]):
            if site in values:
                turned[site] = values[site] @ R
        if isinstance(model.priors[which], ARD) and f"{name} variance" in values:
            turned[f"{name} variance"] = (values[f"{name} variance"][..., None, :] @ R**2)[
                ..., 0, :
            ]
    return turned


def _named(model: Model, n_features: int, values: dict[str, Array]) -> dict[str, Array]:
    """Under public names: variances in place of logs and scales, no standardised loadings."""
    found = {n: v for n, v in values.items() if not n.endswith(" standard") and v.size}
    for name, prior in zip(BLOCKS, model.priors, strict=True):
        if isinstance(prior, Horseshoe) and f"{name} rho" in found:
            found |= {f"{name} {s}2": found.pop(f"{name} {s}") ** 2 for s in ("rho", "tau")}
    for site, public in (("noise", "noise variance"), ("df", "df"), ("dispersion", "dispersion")):
        if f"log {site}" in found:
            found[public] = np.exp(found.pop(f"log {site}"))
        parts = model.likelihood.parts if isinstance(model.likelihood, Mixed) else []
        for kind, _, at in parts:
            if f"{kind} log {site}" in found:
                log = found.pop(f"{kind} log {site}")
                whole = found.setdefault(public, np.zeros((*log.shape[:2], n_features)))
                whole[:, :, at] = np.exp(log)
    return found


def _posterior(start: Start, draws: Draws, n_warmup: int) -> Posterior:
    """Posterior means and covariances of draws."""
    model, values, (D, k) = start.model, draws.values, (len(start.L), start.model.n_shared)
    n_chains, n_draws = values["log density"].shape
    fixed = learned_of(model, D, {})
    blocks = [values.get(name, np.empty((n_chains, n_draws, D, 0))) for name in BLOCKS]
    L = np.concatenate(blocks, axis=3).reshape(n_chains * n_draws, D, -1)
    means = {n: v.mean(axis=(0, 1)) for n, v in values.items()}
    agree = draws.worst_rhat[1] < GOOD_RHAT
    return Posterior(
        shared_loadings=np.ascontiguousarray(L.mean(axis=0)[:, :k]),
        target_loadings=np.ascontiguousarray(L.mean(axis=0)[:, k:]),
        noise_variance=np.broadcast_to(means.get("noise variance", fixed.noise), (D,)).copy(),
        target_mean=means["target mean"],
        background_mean=means.get("background mean", means["target mean"]),
        bound_trace=values["log density"].mean(axis=0),
        n_sweeps=n_chains * (n_warmup + n_draws),
        converged=agree and draws.divergences <= FEW_DIVERGENT * n_chains * n_draws,
        loading_covariance=_packed_covariance(L),
        prior_states=(_prior_state(model, 0, values, D), _prior_state(model, 1, values, D)),
        df=float(means["df"]) if "df" in means else fixed.df,
        unit_variance=float((start.unit**2).mean()),
        dispersion=np.broadcast_to(means["dispersion"], (D,)).copy()
        if "dispersion" in means
        else None,
        draws=draws,
    )


def _packed_covariance(L: Array) -> Array:
    """Of the loadings of each feature, (Q, D), from (n, D, K) draws."""
    centred = L - L.mean(axis=0)
    full = np.einsum("ndi,ndj->dij", centred, centred, optimize=True) / len(L)
    i, j = packed.pair_indices(L.shape[2])
    return np.ascontiguousarray(full[:, i, j].T)


def _prior_state(model: Model, which: int, values: dict[str, Array], n_features: int) -> Any:
    """Inverse gammas with the mean and the variance of the logarithms of a prior's scales."""
    name, prior = BLOCKS[which], model.priors[which]
    if isinstance(prior, ARD):
        empty = f"{name} variance" not in values
        return prior.init((n_features, 0)) if empty else _law(values[f"{name} variance"])
    if not isinstance(prior, Horseshoe) or f"{name} rho2" not in values:
        return None
    rho2, tau2 = _law(values[f"{name} rho2"]), _law(values[f"{name} tau2"][..., None])
    return HorseshoeState(
        rho2,
        InverseGamma(np.ones_like(rho2.a), 1.0 + rho2.mean_inverse()),
        tau2,
        InverseGamma(np.ones(1), 1.0 / prior.scale**2 + tau2.mean_inverse()),
        group_index(prior.groups, n_features),
    )


def _law(draws: Array) -> InverseGamma:
    log = np.log(draws)
    return from_log_moments(log.mean(axis=(0, 1)), np.maximum(log.var(axis=(0, 1)), 1e-12))
