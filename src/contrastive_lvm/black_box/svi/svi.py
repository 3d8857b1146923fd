"""Stochastic variational inference: the paper's Algorithm 1, for every model."""

import logging
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import get_args

import numpy as np

from contrastive_lvm._jax import double_precision
from contrastive_lvm.arrays import Array
from contrastive_lvm.black_box.devices import placement
from contrastive_lvm.black_box.start import StartingPoint, starting_point
from contrastive_lvm.black_box.svi.guide import GuideFamily, SviLayout
from contrastive_lvm.black_box.svi.svi_loop import SviLoop, SVIState
from contrastive_lvm.black_box.svi.svi_posterior import svi_posterior
from contrastive_lvm.black_box.svi.svi_rows import SviRows
from contrastive_lvm.checks import check_choice, check_integer, check_positive
from contrastive_lvm.inference import MIXTURES_NEED_CLOSED_FORM, Engine
from contrastive_lvm.model import Model
from contrastive_lvm.posterior import Posterior
from contrastive_lvm.progress import progress
from contrastive_lvm.rows.reader import Rows

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class SVI(Engine):
    """Gradient ascent on Monte-Carlo estimates of the bound (reparameterised, Adam).

    This is Algorithm 1 of the paper for every likelihood and prior, with Gaussian latents and
    loadings and log-normal scales; loadings without a prior are points. It starts from
    probabilistic PCA, one block after another (for counts and binary data, of transformed rows in
    which the predictor is approximately linear). Every 100 steps it estimates the bound at the mean
    of the parameters since the last estimate, always with the same draws, so that the estimates are
    smooth. When the bound no longer rises, the learning rate falls to a third, and after four such
    reductions the fit has converged. Float32 rows are fitted in single precision, others in double.

    Parameters
    ----------
    max_iter : int
        Maximum number of gradient steps. If these do not suffice, `fit` gives a
        `ConvergenceWarning`.
    tol : float
        Smallest gain of the smoothed bound that counts as a rise, in nats per row.
    learning_rate : float or callable
        Initial learning rate of Adam, in units of the data's standard deviations; or a function of
        the step (an optax schedule), which then determines the rate alone.
    batch_size : int, "auto" or None
        Number of rows of a minibatch, from all sets in proportion to their sizes. None uses all
        rows at every step. `"auto"` does so for up to 260,000 entries, and otherwise uses
        minibatches of 130,000 entries. Sparse rows are made dense a few minibatches at a time; rows
        of memory maps are read when their minibatch is due, and those of Dask arrays, HDF5, Zarr
        and backed AnnData by chunks, the rows of several shuffled together.
    n_particles : int
        Draws per step.
    family : {"structured", "mean_field", "low_rank"}
        Which quantities are correlated in the posterior. `"structured"`: the latents of a row, and
        the loadings of a feature, as under `VariationalBayes`. `"mean_field"`: none, as in the
        paper; target loadings then rotate away from shared ones, by 27 degrees on a small test
        problem. `"low_rank"`: the latents of a row, and all loadings and scales, with a covariance
        of rank `rank` plus a diagonal.
    rank : int
        Rank of `"low_rank"`.
    augmented : bool
        Whether the scales of entries (Student-t) and half-Cauchys (horseshoe) are variables with
        log-normal posteriors, as in the paper and in `VariationalBayes`; False integrates them
        out, which has fewer parameters and a higher bound.
    start : SVIState or None
        State to continue from: `model.posterior_.state` of an earlier fit to the same data.
    n_devices : int or None
        Number of JAX devices over which the rows of a minibatch are spread; None uses all. Fits
        with all rows in every step (`batch_size=None`, or few entries) use one device.

    Examples
    --------
    >>> import contrastive_lvm as clvm
    >>> clvm.SVI(batch_size=256).family
    'structured'
    """

    max_iter: int = 20_000
    tol: float = 1e-4
    learning_rate: float | Callable[[int], float] = 0.02
    batch_size: int | str | None = "auto"
    n_particles: int = 1
    family: GuideFamily = "structured"
    rank: int = 10
    augmented: bool = True
    start: SVIState | None = None
    # A property of the machine, not of the model: neither shown nor saved.
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
        check_choice("family", self.family, get_args(GuideFamily))

    def _unsupported_reason(self, model: Model) -> str | None:
        """Say why this engine cannot fit a model, and what can; None when it can."""
        if not model.has_standard_latents:
            return f"SVI {MIXTURES_NEED_CLOSED_FORM}"
        for prior in model.priors:
            if not prior._can_be_sampled():
                return (
                    f"SVI cannot fit {prior!r}: it has no NumPyro density; give it a method "
                    "sample(name, shape, augmented)."
                )
        return None

    def _convergence_hint(self) -> str:
        """Say what to do about a fit that did not converge."""
        return (
            f"SVI was stopped by max_iter={self.max_iter} or an interrupt before its bound "
            "stopped rising; raise max_iter, or continue with SVI(start=model.posterior_.state)."
        )

    def _run(
        self,
        model: Model,
        sets: Sequence[Rows],
        *,
        log_sizes: Sequence[Array] = (),
        seed: int = 0,
        restart: bool = False,
        start: StartingPoint | None = None,
    ) -> Posterior:
        """Fit from a closed-form start, from a random one (`restart`), or from `start`.

        Sets are in the order of `model.sets`, in memory or out of core; their values are checked.
        """
        sizes, rng = log_sizes or [np.zeros(X.shape[0]) for X in sets], np.random.default_rng(seed)
        if start is None:
            sized = model if self.start is None else self.start.layout.model
            start = starting_point(sized, sets, sizes, seed=seed, restart=restart)
        with double_precision():
            rows = SviRows(sets, sizes, self.batch_size, rng, placement(self.n_devices))
            guide = (self.family, self.rank, self.augmented, self.n_particles)
            loop = SviLoop(
                SviLayout(start.model, rows.n_features, *guide),
                rows,
                start,
                rng,
                max_iter=self.max_iter,
                tol=self.tol,
                learning_rate=self.learning_rate,
                state=self.start,
            )
            try:
                with progress("SVI", self.max_iter, logger) as advance:
                    while not loop.converged and loop.step < loop.last_step:
                        advance(loop.window(), f"bound {loop.trace[-1]:.6g}")
            except KeyboardInterrupt:
                warnings.warn(
                    f"interrupted after {loop.step} steps; the best state so far is kept, and "
                    "SVI(start=model.posterior_.state) continues from it.",
                    UserWarning,
                    stacklevel=3,
                )
            return svi_posterior(loop)
