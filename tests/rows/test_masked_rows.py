"""The row step with missing entries, against the joint normal conditioned row by row."""

import numpy as np
import pytest

from contrastive_lvm.linalg import packed
from contrastive_lvm.linalg.loadings import Loadings
from contrastive_lvm.linalg.matrices import make_block
from contrastive_lvm.rows.masked_rows import prepare, residual_of, row_step
from tests.oracles import conditional, log_densities, planted, sets_with_missing, sides


@pytest.mark.parametrize("order", ["as drawn", "reversed", "one pattern each"])
@pytest.mark.parametrize("noise", ["isotropic", "feature"])
def test_row_step_is_the_conditional_normal(noise: str, order: str) -> None:
    """Rows in any order, with patterns shared by several rows or each its own."""
    point, X, B = planted(4, n=12, D=6, noise=noise)
    X = sets_with_missing(X, B, "target")[0]
    if order == "one pattern each":
        X = X[::-1][np.sort(np.unique(np.isnan(X[::-1]), axis=0, return_index=True)[1])]
    X = X[::-1] if order == "reversed" else X
    side = sides(point)[0]
    block = make_block(X)
    step = row_step(prepare(Loadings(side.L), side.psi), residual_of(block, side.mean), block)
    for i, x in enumerate(X):
        expected = conditional(side, x)
        np.testing.assert_allclose(step.mean[:, i], expected.mean, atol=1e-9)
        cov = packed.unpack(step.cov)[block.pattern[i]]
        np.testing.assert_allclose(cov, expected.cov, atol=1e-9)
    np.testing.assert_allclose(step.log_likelihood, log_densities(side, X), rtol=1e-9, atol=1e-9)
