"""Maximum likelihood, or maximum a posteriori, by expectation-maximisation."""

from dataclasses import dataclass
from typing import ClassVar

from contrastive_lvm.coordinate_ascent.engine import CoordinateAscent


@dataclass(frozen=True)
class EM(CoordinateAscent):
    """Point loadings by EM on the general contrastive model, accelerated and monotone.

    With Gaussian noise and no prior this is exact maximum likelihood.

    Parameters
    ----------
    max_iter : int
        Maximum number of sweeps (E-steps). If these do not suffice, `fit` gives a
        `ConvergenceWarning`.
    tol : float
        The fit has converged when two sweeps in a row raise the bound by less than `tol` nats. This
        unit does not depend on the size of the data: at 1e-6 the parameters differ from the optimum
        by much less than a hundredth of their standard errors. For counts and binary data the
        tolerance is at least 1e-7 nats for every entry of the data.
    memory : int
        Number of sweeps that Anderson acceleration combines; 0 is plain EM.

    Examples
    --------
    >>> import contrastive_lvm as clvm
    >>> clvm.EM(tol=1e-8)
    EM(max_iter=2000, tol=1e-08, memory=15)
    """

    _posterior: ClassVar[bool] = False
