"""How the means of the two sets differ, beside what varies within the target."""

from typing import Any, NamedTuple, TypedDict

import numpy as np
import pandas as pd

from contrastive_lvm.io.tables.prepare import Sets
from contrastive_lvm.resampling.mean_difference import mean_difference

LEVEL = 0.05  # of false discoveries among features whose means are said to differ


class MeanFacts(TypedDict):
    """Features whose means differ, the clearest first, in the units of the file."""

    sentence: str
    n_different: int
    features: list[dict[str, object]]


class Shift(NamedTuple):
    """The difference of the means of each feature, in the units of the file."""

    table: pd.DataFrame  # as `mean_difference` returns it
    contrast: bool | None  # whether a test supports any; None if there was none

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
            return "No feature differs in its mean between the sets beyond chance."
        only = " Here nearly all that differs is such a shift." if self.contrast is False else ""
        return (
            f"{n:,} of {len(self.table):,} features differ in their means ({LEVEL:.0%} false "
            "discoveries); a shift common to the target is no contrast and not in the loadings."
            f"{only}"
        )


def shift_of(sets: Sets, replicates: dict[str, Any], pvalue: float | None) -> Shift | None:
    """Compare the means of both sets, beside the p-value of a test of contrast."""
    target, background = sets.frames()
    if background is None:
        return None
    found = mean_difference(target, background=background, **replicates)
    found.index = pd.Index(sets.preparation.features)
    scaling = sets.preparation.scaling
    if scaling.method != "none":
        found[["difference", "std"]] *= np.asarray(scaling.scale)[:, None]
    return Shift(found, None if pvalue is None else pvalue <= LEVEL)
