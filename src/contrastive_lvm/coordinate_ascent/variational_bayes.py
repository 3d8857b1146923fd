"""Closed-form variational Bayes."""

from dataclasses import dataclass
from typing import ClassVar

from contrastive_lvm.coordinate_ascent.engine import CoordinateAscent


@dataclass(frozen=True)
class VariationalBayes(CoordinateAscent):
    """Loadings with a posterior, `q(l_d) = N(mean_d, C_d)`, by coordinate ascent on the bound.

    The factorisation is `q(L) q(h) q(u) q(scales)`; means, noise and blocks of loadings without a
    prior are points, as in the paper's table of models. Every update is closed form and the bound
    exact at every sweep.

    Parameters
    ----------
    max_iter : int
        Maximum number of sweeps. If these do not suffice, `fit` gives a `ConvergenceWarning`.
    tol : float
        The fit has converged when two sweeps in a row raise the bound by less than `tol` nats.
    memory : int
        Number of sweeps that Anderson acceleration combines; 0 is plain coordinate ascent.

    Examples
    --------
    >>> import contrastive_lvm as clvm
    >>> clvm.VariationalBayes(max_iter=500)
    VariationalBayes(max_iter=500, tol=1e-06, memory=15)
    """

    _posterior: ClassVar[bool] = True
