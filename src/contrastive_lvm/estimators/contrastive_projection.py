"""The base class of contrastive PCA and its generalisation: reads two sets, projects new rows."""

from abc import abstractmethod
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from contrastive_lvm.arrays import Array
from contrastive_lvm.estimators.base_estimator import Estimator
from contrastive_lvm.estimators.input_rows import (
    by_chunks,
    read_rows,
    refuse_background_as_y,
    rows_for_fit,
    warn_about_equal_sets,
)
from contrastive_lvm.exceptions import InvalidDataError
from contrastive_lvm.linalg.matrices import row_slices, widen
from contrastive_lvm.rows.data import bytes_of_rows, check_memory
from contrastive_lvm.rows.reader import Rows


class ContrastiveProjection(Estimator):
    """A linear projection found from a target set and a background, without missing entries."""

    components_: Array
    mean_: Array
    scale_: Array

    __metadata_request__fit: ClassVar[dict[str, bool]] = {"background": True}

    @abstractmethod
    def fit(self, X: Any, y: object = None, *, background: Any = None) -> Self:
        """Fit to a target set and a background; neither may hold NaN."""

    def _read_sets(self, X: Any, y: object, background: Any) -> list[Rows]:
        """Check and return the rows of the target and of each background."""
        target = rows_for_fit(self, X, missing=False)
        if background is None:
            refuse_background_as_y(X, y)
            raise ValueError(
                f"background=None, but {type(self).__name__} compares X with it; pass "
                "background=..., or use sklearn.decomposition.PCA."
            )
        named = _row_sets(background) or [background]
        others = [rows_for_fit(self, B, name="background", missing=False) for B in named]
        for rows in others:
            warn_about_equal_sets(target, rows)
        self.n_samples_ = target.shape[0]
        self.n_background_samples_ = sum(rows.shape[0] for rows in others)
        return [target, *others]

    @property
    def _n_features_out(self) -> int:
        return len(self.components_)

    @by_chunks
    def transform(self, X: Any) -> Array:
        """Project new rows: `(x - mean_) / scale_` on the components."""
        check_is_fitted(self)
        rows = read_rows(self, X, missing=False)
        projected = np.empty((rows.shape[0], len(self.components_)))
        with np.errstate(over="ignore", invalid="ignore"):
            for part in row_slices(*rows.shape):
                centred = widen(rows[part]) - self.mean_
                projected[part] = centred / self.scale_ @ self.components_.T
        if not np.isfinite(projected).all():
            reason = "contains values that overflow when they are projected; correct them."
            raise InvalidDataError("X", reason)
        return projected

    def fit_transform(self, X: Any, y: object = None, *, background: Any = None) -> Array:
        """Fit, then `transform(X)`."""
        return self.fit(X, y, background=background).transform(X)

    def __sklearn_tags__(self) -> Tags:
        """Accept no missing entries."""
        tags: Tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = False
        return tags


def check_projection_memory(sets: list[Rows], numbers: int) -> None:
    """Refuse sets whose covariances or coordinates, so many numbers, do not fit into memory."""
    needed = bytes_of_rows(sets) + 8 * numbers
    check_memory(sets, needed, "a fit", "use fewer columns, or ContrastiveLVM")


def _row_sets(background: Any) -> list[Any]:
    """Return the row sets of a dict of backgrounds; an empty list for anything else."""
    if not isinstance(background, dict):
        return []
    sets = list(background.values())
    return sets if all(len(getattr(rows, "shape", ())) == 2 for rows in sets) else []
