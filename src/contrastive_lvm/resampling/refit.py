"""Refits of a model under other row weights, each from the original fit.

Complete rows enter a Gaussian model through weighted scatters only, which are formed directly
(`refit_rows.py`). If sweeps of EM carry only the parameters (Gaussian noise, no priors), Newton's
method with a fixed matrix finds the new fits in a few sweeps (`newton.py`), for many resamples at
once if scatters suffice (`scatter_sweep.py`). Other models continue the ascent of their engine.
"""

from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import NamedTuple

import numpy as np

from contrastive_lvm.arrays import Array, Parameters
from contrastive_lvm.coordinate_ascent.engine import CoordinateAscent
from contrastive_lvm.coordinate_ascent.problem import Carry, Problem
from contrastive_lvm.estimators.linear_fit import FitInput
from contrastive_lvm.exceptions import InvalidParameterError
from contrastive_lvm.linalg.anderson import ascend
from contrastive_lvm.linalg.gauge import canonical_rotation
from contrastive_lvm.model import LoadingBlock, Model
from contrastive_lvm.posterior import Posterior
from contrastive_lvm.resampling.newton import ASCENT_TOL, FixedNewton, Sweep, ascended, pays
from contrastive_lvm.resampling.refit_rows import EngineRows, ScatterRows, refit_rows
from contrastive_lvm.resampling.replicates import Integers
from contrastive_lvm.resampling.scatter_sweep import ScatterStack, ScatterSweep
from contrastive_lvm.rows.data import Data
from contrastive_lvm.rows.reader import RowReader
from contrastive_lvm.rows.scatter import DenseScatter
from contrastive_lvm.rows.threads import one_blas_thread

MOST_AT_ONCE = 64  # refits; more are not faster
ENTRIES_AT_ONCE = 1 << 18  # of the scatters of a set, 2 MB


class Refitted(NamedTuple):
    """The result of a refit, with blocks in the canonical gauge."""

    loadings: dict[str, Array]  # (D, n) of each block
    noise_variance: Array  # (D,), or (S, D) where it is a set's own
    means: tuple[Array, ...]  # (D,) of each set
    df: float | None
    lower_bound: float
    states: dict[str, object]  # of the prior of each block
    effects: tuple[Array, ...] = ()  # (D, C) of covariates, of each set


class Refit:
    """A fitted model and its rows, to be fitted again under other row weights.

    Parameters
    ----------
    model : Model
        The model, with as many columns as the fit has.
    engine : CoordinateAscent
        The engine that fitted it.
    rows : ScatterRows or EngineRows
        The rows that it was fitted to.
    fit : Posterior
        The fit, in the coordinates of the rows.
    n_refits : int
        Number of refits to come; the matrix of Newton's method is made only if that pays.

    Examples
    --------
    >>> import contrastive_lvm as clvm
    >>> from contrastive_lvm.estimators.linear_fit import read_input
    >>> data = clvm.datasets.make_subgroups(random_state=0)
    >>> model = clvm.ContrastiveLVM(2, 10).fit(data.target, background=data.background)
    >>> given = read_input(model, data.target, data.background)
    >>> refit = Refit.of_fit(given, model.posterior_, n_refits=100)
    >>> again = refit([np.ones(400), np.ones(400)])
    >>> bool(np.allclose(again.loadings["target"].T, model.target_components_, atol=1e-3))
    True
    """

    def __init__(
        self,
        model: Model,
        engine: CoordinateAscent,
        rows: ScatterRows | EngineRows,
        whole: Data,
        fit: Posterior,
        *,
        n_refits: int,
    ) -> None:
        self.model, self.engine, self.rows, self.fit = model, engine, rows, fit
        self.problem = Problem(model, whole, posterior=engine._posterior)
        self.point = self.problem.point_of(fit)
        self.scatter_sweep = ScatterSweep(self.problem)
        self.carries_nothing = _carries_nothing(model, engine)
        self.newton: FixedNewton | None = None
        if self.carries_nothing and pays(len(self.point), n_refits):
            with one_blas_thread:
                start = self.problem.unflatten(self.point)
                tangents = rotation_tangents(self.problem, start)
                with suppress(np.linalg.LinAlgError):  # EM then finds all fixed points
                    self.newton = FixedNewton(self._sweep([whole]), self.point, tangents)

    @classmethod
    def of_fit(cls, given: FitInput, posterior: Posterior, *, n_refits: int) -> "Refit":
        """Return the refits of a fitted estimator."""
        engine = closed_form_engine(given)
        model = given.model.with_sizes({n: L.shape[1] for n, L in posterior.loadings.items()})
        rows = refit_rows(model, engine, given.sets, given.covariates)
        whole = rows.data([np.ones(X.shape[0]) for X in rows.sets])
        model = model.in_units_of(whole.variance, whole.n_features)
        posterior = rows.in_coordinates(posterior)
        return cls(model, engine, rows, whole, posterior, n_refits=n_refits)

    @property
    def can_travel(self) -> bool:
        """Whether the rows are in memory, so that they can be sent to other processes."""
        return not any(isinstance(rows, RowReader) for rows in self.rows.sets)

    def allows(self, weights: Sequence[Array]) -> bool:
        """Tell whether the model can be fitted under some weights.

        There must be more distinct rows than dimensions, means and effects of covariates, which
        must be determined, and each feature must be observed in each set.
        """
        distinct = [int((w > 0).sum()) for w in weights]
        needed = self.model.n_columns + self.model.n_effects
        enough = min(distinct) >= 2 and sum(distinct) - len(distinct) > needed
        return enough and self.rows.observes_all(weights)

    @property
    def batch(self) -> int:
        """The best number of refits at a time."""
        alone = self.newton is None or self.model.likelihood._has_own_noise
        if alone or not isinstance(self.rows, ScatterRows):
            return 1
        return max(1, min(MOST_AT_ONCE, ENTRIES_AT_ONCE // len(self.problem.unit) ** 2))

    def __call__(self, weights: Sequence[Array]) -> Refitted:
        """Fit the model under the weights of the rows of each set."""
        return self.refitted(self.rows.data(weights))

    def many(self, draws: Sequence[Sequence[Array]]) -> list[Refitted]:
        """Fit the model under each of several weights."""
        if self.batch == 1:
            return [self(weights) for weights in draws]
        return self._by_newton([self.rows.data(weights) for weights in draws])

    def refitted(self, data: Data) -> Refitted:
        """Fit the model to compressed rows."""
        if self.carries_nothing:
            return self._by_newton([data])[0]
        data = self._in_units_of_fit(data)
        problem = Problem(self.model, data, posterior=self.engine._posterior)
        states = tuple(self.fit.prior_states[block.name] for block in self.model.blocks)
        start = problem.begin(self.point, Carry(None, states, (None,) * len(data.sets)))
        memory, most = self.engine.memory, self.engine.max_iter
        end = ascend(
            problem, start.point, start.carry, memory=memory, max_sweeps=most, tol=ASCENT_TOL
        )
        names = [block.name for block in self.model.blocks]
        scales = dict(zip(names, end.info.carry.states, strict=True))
        p = problem.at_zero(problem.unflatten(end.point))
        return self._refitted([p], end.trace[-1:], scales)[0]

    def _by_newton(self, draws: Sequence[Data]) -> list[Refitted]:
        """Fit a model without priors to several compressed rows; EM finds what Newton misses."""
        start = self._start(draws[0])
        points, values = np.tile(start, (len(draws), 1)), np.zeros(len(draws))
        found = np.zeros(len(draws), dtype=bool)
        if self.newton is not None and len(start) == len(self.point):
            points, values, found = self.newton.solve(partial(self._sweep_of, draws), points)
        for i in np.flatnonzero(~found).tolist():
            sweep, limits = self._sweep([draws[i]]), (self.engine.memory, self.engine.max_iter)
            points[i], values[i] = ascended(sweep, start, *limits)
        pairs = zip(draws, points, strict=True)
        return self._refitted([self._parameters(*pair) for pair in pairs], values, {})

    def _start(self, data: Data) -> Array:
        """Return the fit as a point of a problem; means of complete rows are not part of it."""
        if data.complete and not self.problem.data.complete:
            return self.point[: -len(data.sets) * len(self.problem.unit)]
        return self.point

    def _parameters(self, data: Data, point: Array) -> Parameters:
        p = self.problem.unflatten(point)
        p = p._replace(means=tuple(s.mean for s in data.sets)) if data.complete else p
        return Problem(self.model, data).at_zero(p) if p.effects else p

    def _sweep_of(self, draws: Sequence[Data], which: Integers) -> Sweep:
        """Return the sweeps of chosen problems."""
        return self._sweep([draws[i] for i in which])

    def _sweep(self, draws: Sequence[Data]) -> Sweep:
        """Return the sweeps of several problems, or of one at any number of points."""
        sets = list(zip(*(data.sets for data in draws), strict=True))
        scatters = [
            ScatterStack.of(own) for own in sets if all(isinstance(s, DenseScatter) for s in own)
        ]
        plain = not self.model.likelihood._has_own_noise and not self.model.covariates
        if len(scatters) == len(sets) and plain:
            return partial(self.scatter_sweep, scatters)
        return partial(_sweep, Problem(self.model, self._in_units_of_fit(draws[0])))

    def _in_units_of_fit(self, data: Data) -> Data:
        whole = self.problem.data
        return data._replace(variance=whole.variance, variances=whole.variances)

    def _refitted(
        self, parameters: list[Parameters], values: Array, states: dict[str, object]
    ) -> list[Refitted]:
        lifted = [self.rows.lift(p) for p in parameters]
        L = np.array([each[0] for each in lifted])
        blocks = zip(self.model.blocks, self.model.columns, strict=True)
        loadings = {block.name: _canonical(L[:, :, columns], block) for block, columns in blocks}
        return [
            Refitted(
                {name: own[i] for name, own in loadings.items()},
                psi,
                means,
                p.df or None,
                float(values[i]),
                states,
                p.effects,
            )
            for i, (p, (_, psi, means)) in enumerate(zip(parameters, lifted, strict=True))
        ]


def closed_form_engine(given: FitInput) -> CoordinateAscent:
    """Return the engine of a fit that can be repeated under weights."""
    if not isinstance(given.engine, CoordinateAscent):
        reason = (
            "cannot fit weighted rows, so rows cannot be resampled; use inference='em' or "
            "'vb', with Gaussian or Student-t noise."
        )
        raise InvalidParameterError("inference", given.engine, reason)
    return given.engine


def _carries_nothing(model: Model, engine: CoordinateAscent) -> bool:
    """Tell whether a sweep is a map of the parameters alone."""
    if engine._posterior or model.likelihood._is_scale_mixture:
        return False
    return not any(
        prior._has_proximal_step or prior.precision(prior.init((1, 1))).any()
        for prior in model.priors
    )


def _canonical(L: Array, block: LoadingBlock) -> Array:
    return np.asarray(L @ canonical_rotation(L, keep_columns=block.prior._has_own_columns))


def _sweep(problem: Problem, points: Array) -> tuple[Array, Array]:
    """Return the lower bound at each point of a problem, and its image under a sweep."""
    values, images = np.empty(len(points)), np.empty_like(points)
    for i, point in enumerate(points):
        values[i], found = problem.evaluate(point, problem.first_carry())
        images[i] = problem.improve(point, found)[0]
    return values, images


def rotation_tangents(problem: Problem, p: Parameters) -> Array:
    """Return an orthonormal basis of the moves that only rotate blocks, as points, (P, R)."""
    moves = [np.zeros((p.L.size, 0))]
    for columns in problem.model.columns:
        for i in range(columns.start, columns.stop):
            for j in range(columns.start, i):
                move = np.zeros_like(p.L)
                move[:, i], move[:, j] = p.L[:, j], -p.L[:, i]
                moves.append((move / problem.unit[:, None]).reshape(-1, 1))
    basis = np.linalg.qr(np.hstack(moves))[0]
    others = np.zeros((len(problem.flatten(p)) - len(basis), basis.shape[1]))
    return np.vstack([basis, others])
