"""The number of target dimensions that the data supports, for `n_target="auto"`."""

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from contrastive_lvm.estimators.contrastive_lvm import ContrastiveLVM


def supported_dimensions(
    estimator: "ContrastiveLVM", X: Any, background: Any, groups: tuple[Any, Any]
) -> int | None:
    """Check the replicates of rows, and return what `"auto"` stands for; None for a given number.

    Replicates with rows in both sets are pairs.
    """
    automatic = estimator.n_target == "auto"
    given = [own for own in groups if own is not None]
    if not automatic and not given:
        return None
    if background is None and automatic:
        raise ValueError(
            "background=None, but n_target='auto' compares X with it; pass background=... or "
            "give n_target as a number."
        )
    from contrastive_lvm.resampling.contrast_test import contrast_test
    from contrastive_lvm.resampling.replicates import check_replicates

    n_rows = [np.shape(rows)[0] for rows in (X, background) if rows is not None]
    replicates = check_replicates(groups[: len(n_rows)], n_rows)
    if not automatic:
        return None
    test = contrast_test(
        X,
        background=background,
        model=estimator,
        groups=groups[0],
        background_groups=groups[1],
        paired=replicates.in_several_sets,
        random_state=estimator.random_state,
    )
    return test.n_target
