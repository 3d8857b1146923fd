"""The row step of likelihoods without a closed form: a normal posterior of each row's latents.

For a row with observed features O and predictors `e_d = l_d' h + mean_d + offset_d`, the posterior
of `h ~ N(0, I)` is approximated by `q(h) = N(m, V)`. With `q(l_d) = N(lbar_d, C_d)`, `e_d` has

    mu_d = lbar_d' m + mean_d + offset_d,    v_d = tr( E[l_d l_d'] V ) + m' C_d m,

and is taken as normal: exactly so for point loadings, and without consequence for Gaussian noise.
The likelihood gives `f_d = E[ln p(x_d | e_d)]` and, by the identities of Bonnet and Price,
`g_d = df_d / dmu_d = E[(ln p)']` and `w_d = -2 df_d / dv_d = -E[(ln p)'']`. The bound

    F = sum_O f_d - KL(q(h) || N(0, I)),    -KL = 1/2 ( K + ln|V| - tr V - m'm ),

has the derivatives `dF/dV = 1/2 ( V^-1 - I - sum_O w_d E[l_d l_d'] )` and
`dF/dm = sum_O ( g_d lbar_d - w_d C_d m ) - m`, hence at the maximum (Opper & Archambeau 2009, for
point loadings)

    V^-1 = I + sum_O w_d E[l_d l_d'],    m = V sum_O lbar_d ( g_d + w_d lbar_d' m ).

With V at its fixed point the second equation is Newton's step, `m + V dF/dm`. A step of length rho
in the natural parameters, `V^-1 + rho gap` and `m + rho V dF/dm`, follows the natural gradient: a
short enough one raises F, and F is concave in m and the root of V where `ln p` is concave. So each
row has a step length of its own, which is cut if F would fall (close to the maximum, where changes
of F are rounding, coming closer is enough). Since w falls as `V^-1` grows, the gap changes its sign
from step to step; a secant over the last two gaps damps it, without which rows with little
information and large loadings would not settle. Uncertain loadings bend F in m by more or less than
`V^-1` says, and a secant corrects that too. The steps begin at the mode, with `v = 0`.
"""

from collections.abc import Iterator
from math import isqrt
from typing import NamedTuple

import numpy as np

from contrastive_lvm.arrays import Array, Matrix
from contrastive_lvm.likelihoods.base import Likelihood
from contrastive_lvm.likelihoods.values import Expected, Nuisance
from contrastive_lvm.linalg import packed
from contrastive_lvm.linalg.loadings import Loadings
from contrastive_lvm.linalg.matrices import SMALL_BLOCK, row_slices, widen
from contrastive_lvm.rows.threads import in_order

MOST_STEPS = 500  # of a row: a guard against endless steps
TOL = 1e-7  # distance to the fixed point, in posterior standard deviations
FIRST_TOL = 0.1  # the same where rows only begin: at their mode, or in the first sweep of a fit
NEAR = 0.01  # where coming closer is as good as a higher bound, whose rise is lost in rounding
NOISE, ROUNDING = 1e-8, 1e-12  # by which a bound may fall: quadrature's error, and its own share
REACH = 4.0  # length of a first step, in prior standard deviations
LEAST_PACE = 1e-8  # a row that needs shorter steps stays where it is


class Learned(NamedTuple):
    """A likelihood with the nuisance values of a fit."""

    likelihood: Likelihood
    nuisance: Nuisance
    bounds: bool = False  # whether expectations may be bounded from below, which is cheaper

    def constant(self, rows: Array) -> Array:
        """Return the terms of the log density that do not depend on the predictor, (B, D)."""
        return self.likelihood._constant(rows, self.nuisance)

    def expected(self, rows: Array, m: Array, v: Array) -> Expected:
        """Return `f` without the constant, g and w at predictors `N(m, v)`, each (B, D)."""
        if self.bounds:
            return self.likelihood._expected_bound(rows, m, v, self.nuisance)
        return self.likelihood._expected(rows, m, v, self.nuisance, whole=False)

    def response(self, m: Array, v: Array) -> tuple[Array, Array]:
        """Return mean and variance of new entries."""
        return self.likelihood.response(m, v, self.nuisance)

    def draw(self, predictor: Array, rng: np.random.RandomState) -> Array:
        """Draw new entries."""
        return self.likelihood.draw(predictor, self.nuisance, rng)


class Generalised(NamedTuple):
    """One set's view of the model for rows of given sizes: `x ~ p(x | L h + mean + offset)`.

    The offset has the logarithm of a row's size and the effects of its covariates.
    """

    loadings: Loadings  # (D, K)
    mean: Array  # (D,)
    observation: Learned
    log_sizes: Array  # (N,) of the rows it is used for
    sized: np.ndarray  # (D,) bool: features that a row's size moves
    effects: Array | None = None  # (D, C)
    covariates: Array | None = None  # (N, C) of the rows it is used for; None where they are zero
    scales: Array | None = None  # (K,) prior standard deviations of the latents, if not 1

    @property
    def L(self) -> Array:
        """Loadings, or their posterior means."""
        return self.loadings.mean

    def offset(self, rows: slice) -> Array:
        """Return the logs of the sizes plus the effects of the covariates, (B, D)."""
        offset: Array = self.log_sizes[rows, None] * self.sized
        if self.effects is None or self.covariates is None:
            return offset
        return offset + self.covariates[rows] @ self.effects.T

    def means_of(self, rows: slice) -> Array:
        """Return the means of some rows without their offsets, (D,)."""
        return self.mean


class Entries(NamedTuple):
    """A block of rows."""

    values: Array  # (B, D) zeros where missing
    observed: Array | None  # (B, D) 0/1; None when nothing is missing
    base: Array  # (B, D) predictors at h = 0

    def of(self, rows: np.ndarray) -> "Entries":
        """Select some of the rows."""
        observed = None if self.observed is None else self.observed[rows]
        return Entries(self.values[rows], observed, self.base[rows])


class State(NamedTuple):
    """The posterior of each row; rows are the last axis."""

    mean: Array  # (K, B) m
    precision: Array  # (Q, B) V^-1, packed
    cov: Array  # (Q, B) V
    bound: Array  # (B,) F
    slope: Array  # (K, B) dF/dm
    aim: Array  # (Q, B) I + sum w E[l l'], where V^-1 should be
    distance: Array  # (B,) to the fixed point, in posterior standard deviations
    pace: Array  # (B,) of steps, relative to REACH; 0 where none can be taken
    gap_length: Array  # (B,) of a full step of V^-1 to its aim
    slope_length: Array  # (B,) of a full step of m

    def of(self, rows: np.ndarray) -> "State":
        """Select some of the rows."""
        return State(*(field[..., rows] for field in self))

    def where(self, better: np.ndarray, other: "State") -> "State":
        """Replace the rows for which the other state is better."""
        pairs = zip(self, other, strict=True)
        return State(*(np.where(better, its, mine) for mine, its in pairs))


def _joined(parts: list[tuple[np.ndarray, State]]) -> State:
    """Join rows that finished at different times, in their order."""
    order = np.argsort(np.concatenate([rows for rows, _ in parts]))
    fields = zip(*(state for _, state in parts), strict=True)
    return State(*(np.concatenate(field, axis=-1)[..., order] for field in fields))


class Spread(NamedTuple):
    """Covariances of rows."""

    precision: Array  # (Q, B) packed
    cov: Array  # (Q, B)
    logdet: Array  # (B,) of the precision


def _spread(precision: Array) -> Spread:
    return Spread(precision, *packed.invert(precision))


def row_ascents(model: Generalised, X: Matrix) -> Iterator[tuple[slice, Entries, State]]:
    """Take the row step for all rows, a block at a time in their order.

    Means and covariances are in the units of the model's latents.
    """
    loadings, scales = model.loadings, model.scales
    if scales is not None:  # the row step has latents of unit variance
        loadings = loadings.transformed(np.diag(scales))
    step = RowAscent(loadings, model.observation)

    def of_block(rows: slice) -> tuple[slice, Entries, State]:
        entries = entries_of(widen(X[rows]), model.mean + model.offset(rows))
        with np.errstate(over="ignore", invalid="ignore"):  # a bound is then not finite
            state = step(entries)
        if scales is not None:
            i, j = packed.pair_indices(len(scales))
            cov = state.cov * (scales[i] * scales[j])[:, None]
            state = state._replace(mean=state.mean * scales[:, None], cov=cov)
        return rows, entries, state

    return in_order(of_block, list(row_slices(*X.shape, elements=SMALL_BLOCK)))


def entries_of(values: Array, base: Array) -> Entries:
    """Return a block of rows, NaN where missing, with their predictors at `h = 0`."""
    missing = np.isnan(values)
    if not missing.any():
        return Entries(values, None, base)
    # Masks as numbers: products with them are much faster than indexing.
    return Entries(np.where(missing, 0.0, values), (~missing).astype(np.float64), base)


class RowAscent:
    """The row step at given loadings."""

    def __init__(self, loadings: Loadings, observation: Learned) -> None:
        self.observation, self.L, self.K = observation, loadings.mean, loadings.mean.shape[1]
        self.i, self.j = packed.pair_indices(self.K)
        self.diagonal = np.diagonal(packed.full_index(self.K))
        self.eye = packed.pack(np.eye(self.K))
        self.twice = np.where(self.i == self.j, 1.0, 2.0)[:, None]
        self.pairs = loadings.pairs()
        self.points, self.C = self.pairs, None
        if loadings.cov is not None:
            self.points, self.C = Loadings(self.L).pairs(), loadings.cov.packed()

    def __call__(self, entries: Entries, tol: float = TOL) -> State:
        """Bring each row to its fixed point, with its bound."""
        B = len(entries.values)
        origin, prior = np.zeros((self.K, B)), np.repeat(self.eye, B, axis=1)
        start = self._at(entries, origin, _spread(prior), np.ones(B), at_mode=True)
        V = _spread(start.aim)
        start = start._replace(precision=V.precision, cov=V.cov)
        mode = self._ascend(entries, start, FIRST_TOL, at_mode=True)
        start = self._at(entries, mode.mean, _spread(mode.aim), np.ones(B), at_mode=False)
        state = self._ascend(entries, start, tol, at_mode=False)
        constant = self.observation.constant(entries.values)
        if entries.observed is not None:
            constant = constant * entries.observed
        return state._replace(bound=state.bound + constant.sum(axis=1))

    def _ascend(self, entries: Entries, state: State, tol: float, *, at_mode: bool) -> State:
        """Take steps until each row stands still; rows that do are left out of the next step."""
        active, finished = np.arange(len(state.bound)), []
        for _ in range(MOST_STEPS):
            moving = (state.distance > tol) & (state.pace > 0)
            if not moving.all():
                finished.append((active[~moving], state.of(~moving)))
                active, state, entries = active[moving], state.of(moving), entries.of(moving)
            if not len(active):
                break
            state = self._step(entries, state, at_mode=at_mode)
        return _joined([*finished, (active, state)])

    def _step(self, entries: Entries, state: State, *, at_mode: bool) -> State:
        """Take one step of each row, or choose a slower pace for the next."""
        gap = state.aim - state.precision
        step = packed.multiply(state.cov, state.slope)
        most = REACH / np.maximum(np.sqrt((step * step).sum(axis=0)), 1e-12)
        rho = np.minimum(1.0, state.pace * most)
        faster = np.minimum(2.0 * state.pace, 1e9)
        slower = np.where(state.pace > LEAST_PACE / np.maximum(1.0, most), 0.25 * rho / most, 0.0)
        with np.errstate(all="ignore"):  # a step too far may overflow; its bound is then refused
            V = _spread(state.precision + rho * state.gap_length * gap)
            step = rho * state.slope_length * packed.multiply(V.cov, state.slope)
            new = self._at(entries, state.mean + step, V, faster, at_mode=at_mode)
            if not at_mode:
                new = self._relaxed(state, new, rho, gap, step)
            better = new.bound >= state.bound - NOISE - ROUNDING * np.abs(state.bound)
            better |= new.distance < np.minimum(state.distance, NEAR)
        return state._replace(pace=slower).where(better, new)

    def _relaxed(self, old: State, new: State, rho: Array, gap: Array, step: Array) -> State:
        """Set the step lengths that would have closed the gap and made the slope zero."""
        was, now = _product(old.cov, gap), _product(old.cov, new.aim - new.precision)
        left = _trace(was, now) / _trace(was, was)
        new = new._replace(gap_length=_secant(rho, old.gap_length, left, most=1.0))
        if self.C is None:
            return new
        left = (step * new.slope).sum(axis=0) / (step * old.slope).sum(axis=0)
        return new._replace(slope_length=_secant(rho, old.slope_length, left, most=10.0))

    def _at(self, entries: Entries, mean: Array, V: Spread, pace: Array, *, at_mode: bool) -> State:
        """Return the bound and its derivatives; at the mode, the log density of row and latents."""
        value, g, w = self.expected(entries, mean, None if at_mode else V.cov)[0]
        bound = value.sum(axis=1) - 0.5 * (mean * mean).sum(axis=0)
        slope = self.L.T @ g.T - mean
        if not at_mode:
            bound += 0.5 * (self.K - V.logdet - V.cov[self.diagonal].sum(axis=0))
            if self.C is not None:
                slope -= packed.multiply(self.C @ w.T, mean)
        aim = (self.points if at_mode else self.pairs) @ w.T
        aim += self.eye
        distance = self._step_length(V.cov, slope)
        if not at_mode:
            gap = _product(V.cov, aim - V.precision)
            distance = np.maximum(distance, np.sqrt(np.abs(_trace(gap, gap))))
        one = np.ones(len(bound))
        return State(mean, V.precision, V.cov, bound, slope, aim, distance, pace, one, one)

    def expected(
        self, entries: Entries, mean: Array, cov: Array | None
    ) -> tuple[Expected, Array, Array]:
        """Return expectations, zero where missing, and the predictors' normals, (B, D) each.

        Without covariances the latents are points.
        """
        mu = mean.T @ self.L.T
        mu += entries.base
        v = np.zeros_like(mu) if cov is None else self._variances(mean, cov)
        found = self.observation.expected(entries.values, mu, v)
        if entries.observed is not None:
            found = Expected(*(x * entries.observed for x in found))
        return found, mu, v

    def _step_length(self, cov: Array, slope: Array) -> Array:
        """Return the largest entry of `V dF/dm` in posterior standard deviations, (B,)."""
        steps = np.abs(packed.multiply(cov, slope)) / np.sqrt(cov[self.diagonal])
        longest: Array = steps.max(axis=0, initial=0.0)
        return longest

    def _variances(self, mean: Array, cov: Array) -> Array:
        """Return `tr( E[l l'] V ) + m' C m`, (B, D)."""
        v: Array = (self.twice * cov).T @ self.pairs
        if self.C is not None:
            v += (self.twice * mean[self.i] * mean[self.j]).T @ self.C
        return np.maximum(v, 0.0, out=v)


def _product(cov: Array, gap: Array) -> Array:
    """Return `V G` of packed matrices, (K, K, B)."""
    full = packed.full_index(isqrt(2 * len(cov)))
    product: Array = np.einsum("ikb,kjb->ijb", cov[full], gap[full])
    return product


def _trace(a: Array, b: Array) -> Array:
    """Return `tr(A B)`; for A = B = V G this is the squared length of a gap G under `N(m, V)`."""
    trace: Array = np.einsum("ijb,jib->b", a, b)
    return trace


def _secant(rho: Array, length: Array, left: Array, *, most: float) -> Array:
    """Return the length that would have left nothing, after `rho * length` left some share.

    At most twice the last one: two secants at a time may otherwise chase each other.
    """
    share = np.nan_to_num(left, nan=0.0)
    best = np.minimum(rho / np.maximum(1.0 - share, 0.1), 2.0) * length
    return np.clip(best, 0.01, most)
