"""The base class of inference engines: `EM`, `VariationalBayes`, `SVI` and `NUTS`."""

from abc import ABC, abstractmethod
from typing import ClassVar

from contrastive_lvm.model import Model

MIXTURES_NEED_CLOSED_FORM = (
    "cannot fit a mixture of latents; use a likelihood with a closed form and inference='em' or "
    "'vb', or latent_prior=None."
)


class Engine(ABC):
    """Base class of engines, which fit a model to rows."""

    # Whether all rows are used at every step, so that they are read into memory first.
    _needs_rows_in_memory: ClassVar[bool] = False

    @abstractmethod
    def _unsupported_reason(self, model: Model) -> str | None:
        """Say why this engine cannot fit a model, and what can; None when it can."""

    @abstractmethod
    def _convergence_hint(self) -> str:
        """Say what to do about a fit that did not converge."""
