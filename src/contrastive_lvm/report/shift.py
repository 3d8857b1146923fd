"""Differences between the means of the two sets, which are not part of the contrast."""

from typing import Any, NamedTuple, TypedDict

import numpy as np
import pandas as pd

from contrastive_lvm.io.tables.prepare import Sets
from contrastive_lvm.resampling import LEVEL
from contrastive_lvm.resampling.mean_difference import mean_difference


class MeanFacts(TypedDict):
    """Features whose means differ, the clearest first, in the units of the file."""

    sentence: str
    n_different: int
    features: list[dict[str, object]]


class Shift(NamedTuple):
    """The difference of the means of each feature, in the units of the file."""

    table: pd.DataFrame  # as `mean_difference` returns it
    contrast: bool | None  # whether a test supports contrast; None without a test

    def leading(self, top: int) -> MeanFacts:
        """Return how many features differ, and the clearest of them."""
        n = int((self.table["qvalue"] <= LEVEL).sum())
        clearest = self.table.sort_values("pvalue", kind="stable")[: min(n, top)]
        return {
            "sentence": self._sentence(n),
            "n_different": n,
            "features": [
                {"feature": str(name), "difference": float(change), "standard_error": float(std)}
                for name, change, std in zip(
                    clearest.index, clearest["difference"], clearest["std"], strict=True
                )
            ],
        }

    def _sentence(self, n: int) -> str:
        if n == 0:
            return "No feature has a mean that differs between the sets by more than chance."
        only = " The test finds no other difference between the sets." * (self.contrast is False)
        return (
            f"The means of {n:,} of {len(self.table):,} features differ between the sets (false "
            f"discovery rate {LEVEL:.0%}); a shift of the whole target is not a contrast and does "
            f"not appear in the loadings.{only}"
        )


def shift_of(sets: Sets, replicates: dict[str, Any], pvalue: float | None) -> Shift | None:
    """Compare the means of both sets; the p-value of a test of contrast goes with the result."""
    target, background = sets.frames()
    if background is None:
        return None
    found = mean_difference(target, background=background, **replicates)
    found.index = pd.Index(sets.preparation.features)
    scaling = sets.preparation.scaling
    if scaling.method != "none":
        found[["difference", "std"]] *= np.asarray(scaling.scale)[:, None]
    return Shift(found, None if pvalue is None else pvalue <= LEVEL)
