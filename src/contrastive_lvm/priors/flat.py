"""No prior: maximum likelihood."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Flat:
    """A flat prior on loadings: `p(L) = 1`, so the fit is maximum likelihood."""
