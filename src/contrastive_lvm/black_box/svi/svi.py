"""Stochastic variational inference: the paper's Algorithm 1, for every model."""

import logging
import warnings
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import numpy as np

from contrastive_lvm._jax import double_precision
from contrastive_lvm.arrays import Array, Matrix
from contrastive_lvm.black_box.devices import placement
from contrastive_lvm.black_box.initialization import Start, starting_point
from contrastive_lvm.black_box.svi.amortization import row_features
from contrastive_lvm.black_box.svi.svi_batches import Rows
from contrastive_lvm.black_box.svi.svi_loop import Climb, SVIState
from contrastive_lvm.black_box.svi.svi_posterior import summarised
from contrastive_lvm.black_box.svi.svi_step import Layout
from contrastive_lvm.checks import check_choice, check_integer, check_positive
from contrastive_lvm.likelihoods.student_t import StudentT
from contrastive_lvm.model import Model
from contrastive_lvm.posterior import Posterior
from contrastive_lvm.progress import progress

logger = logging.getLogger(__name__)

FamilyKind = Literal["structured", "mean_field", "low_rank", "full_rank"]
Locals = Literal["rows", "amortised"]
WHOLE = 1 << 18  # entries that are all used at every step
LEAST_BATCH = 32  # rows


@dataclass(frozen=True)
class SVI:
    """Gradient ascent on Monte-Carlo estimates of the bound (reparameterised, Adam).

    Algorithm 1 of the paper for every likelihood and prior: Gaussian latents and loadings,
    log-normal scales, points where there is no prior. It begins at the closed form (of a Gaussian
    stand-in for counts and binary data). Every 100 steps the bound is estimated at the mean of the
    parameters since the last time, always with the same draws, so that its changes are smooth;
    when it stands still the learning rate drops to a third, and after four drops the fit has
    converged. Float32 rows are fitted in single precision, others in double.

    Parameters
    ----------
    max_iter : int
        Most gradient steps. A `ConvergenceWarning` says when they did not suffice.
    tol : float
        Nats a row: a gain of the smoothed bound that counts.
    learning_rate : float or callable
        Of Adam, to begin with, in units of the data's standard deviations; or a function of the
        step (an optax schedule), which then decides alone when the rate falls.
    batch_size : int, "auto" or None
        Rows of a minibatch, both sets together in proportion; None takes all rows at every step,
        `"auto"` does so for up to 260,000 entries and else takes rows with half as many. Sparse
        rows are made dense a few minibatches at a time; rows of memory maps are read when their
        minibatch is due, and those of Dask arrays, HDF5, Zarr and backed AnnData by blocks, the
        rows of several shuffled together.
    n_particles : int
        Draws a step.
    family : {"structured", "mean_field", "low_rank", "full_rank"}
        What is correlated in the posterior. `"structured"`: the latents of a row, and the loadings
        of a feature, as under `VariationalBayes`. `"mean_field"`: nothing, as in the paper; target
        loadings then turn away from shared ones, by 27 degrees on a small test problem. The other
        two: latents of a row, and all loadings and scales, with a covariance of rank `rank` plus a
        diagonal, or any (up to 2,000 of them).
    rank : int
        Of `"low_rank"`.
    local : {"rows", "amortised"}
        Parameters of the latents: of every row, or of an encoder that is shared by a set's rows.
    augmented : bool
        Entries' scales (Student-t) and half-Cauchys (horseshoe) as variables with log-normal
        posteriors, as in the paper and in `VariationalBayes`; False integrates them out, which
        has fewer parameters and a higher bound.
    start : SVIState or None
        A state to go on from, `model.posterior_.state` of an earlier fit to the same data.
    n_devices : int or None
        Devices of JAX over which the rows of a minibatch are spread; None takes all. All rows at
        once (`batch_size=None`, or few entries) stay on one.

    Examples
    --------
    >>> import contrastive_lvm as clvm
    >>> clvm.SVI(batch_size=256, local="amortised").family
    'structured'
    """

    max_iter: int = 20_000
    tol: float = 1e-4
    learning_rate: Any = 0.02
    batch_size: int | str | None = "auto"
    n_particles: int = 1
    family: FamilyKind = "structured"
    rank: int = 10
    local: Locals = "rows"
    augmented: bool = True
    start: SVIState | None = field(default=None, metadata={"saved": False})
    # The devices belong to the machine, not to the model.
    n_devices: int | None = field(default=None, repr=False, metadata={"saved": False})

    def __post_init__(self) -> None:
        for name in ("max_iter", "n_particles", "rank"):
            check_integer(name, getattr(self, name), 1)
        if self.batch_size not in ("auto", None):
            check_integer("batch_size", self.batch_size, 1, detail=", 'auto' or None")
        if self.n_devices is not None:
            check_integer("n_devices", self.n_devices, 1, detail=" or None")
        check_positive("tol", self.tol)
        if not callable(self.learning_rate):
            check_positive("learning_rate", self.learning_rate)
        check_choice("family", self.family, get_args(FamilyKind))
        check_choice("local", self.local, get_args(Locals))

    def objection(self, model: Model) -> str | None:
        """Why this engine cannot fit a model, and what can; None when it can."""
        for prior in model.priors:
            if not hasattr(prior, "sample"):
                return (
                    f"SVI cannot fit {prior!r}: it has no NumPyro density; give it a method "
                    "sample(name, shape, augmented)."
                )
        if self.local == "amortised" and self.augmented and isinstance(model.likelihood, StudentT):
            return (
                "SVI(local='amortised') cannot fit StudentT: scales of entries have no encoder; "
                "use augmented=False, which integrates them out."
            )
        return None

    def shortfall(self) -> str:
        """What to do about a fit that did not converge."""
        return (
            f"SVI was stopped by max_iter={self.max_iter} or an interrupt before its bound stood "
            "still; raise max_iter, or go on with SVI(start=model.posterior_.state)."
        )

    def layout(self, model: Model, rows: Rows) -> Layout:
        """What has to be compiled."""
        features = None
        if self.local == "amortised":
            likelihood: Any = model.likelihood
            features = row_features(likelihood, rows.n_features, gaps=rows.have_gaps)
        return Layout(
            model,
            rows.n_features,
            len(rows.sets),
            self.family,
            self.rank,
            self.augmented,
            self.n_particles,
            features,
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
        begin: Start | None = None,
    ) -> Posterior:
        """Fit from the closed-form start, from a random one (`restart`), or from `begin`.

        Either set may be a `RowReader`, whose rows are elsewhere; they are known to be fine.
        """
        sets = [target] if background is None else [target, background]
        sizes = list(log_sizes) or [np.zeros(X.shape[0]) for X in sets]
        if begin is None:
            sized = model if self.start is None else self.start.layout.model
            begin = starting_point(sized, sets, sizes, seed=seed if restart else None, sample=seed)
        with double_precision():
            return self._fitted(begin, sets, sizes, seed)

    def _batch_rows(self, sets: list[Matrix]) -> int | None:
        """Rows of a minibatch; None for all."""
        if self.batch_size != "auto":
            return None if self.batch_size is None else int(self.batch_size)
        n_rows, n_features = sum(X.shape[0] for X in sets), sets[0].shape[1]
        few = n_rows * n_features <= WHOLE
        return None if few else max(LEAST_BATCH, WHOLE // 2 // n_features)

    def _fitted(self, begin: Start, sets: list[Matrix], sizes: list[Array], seed: int) -> Posterior:
        single = all(X.dtype == np.float32 for X in sets)
        dtype = np.float32 if single else np.float64
        n_devices = placement(self.n_devices).n_devices
        rows = Rows(sets, sizes, self._batch_rows(sets), dtype, n_devices)
        climb = Climb(self, rows, begin, seed)
        try:
            with progress("SVI", self.max_iter, logger) as advance:
                while climb.goes_on:
                    advance(climb.window(), f"bound {climb.trace[-1]:.6g}")
        except KeyboardInterrupt:
            warnings.warn(
                f"interrupted after {climb.step} steps; the best state so far is kept, and "
                "SVI(start=model.posterior_.state) goes on from it.",
                UserWarning,
                stacklevel=4,
            )
        return summarised(climb)
