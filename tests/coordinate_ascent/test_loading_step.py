"""The loading step against an exact EM step that goes row by row."""

import numpy as np
import pytest

from contrastive_lvm.coordinate_ascent.loading_step import (
    SetStatistics,
    loading_step,
    mean_changes,
)
from contrastive_lvm.linalg.loadings import Loadings
from contrastive_lvm.rows import data
from contrastive_lvm.rows.generalised_rows import GeneralisedRows
from contrastive_lvm.rows.scale_mixture_rows import ScaleMixtureRows
from tests.oracles import MISSING, joint_update, planted, sets_with_missing


@pytest.mark.parametrize("missing", MISSING)
@pytest.mark.parametrize("noise", ["isotropic", "feature"])
@pytest.mark.parametrize(("k", "t"), [(2, 1), (1, 3), (0, 2), (2, 0)])
def test_loading_step_is_the_brute_force_m_step(k: int, t: int, noise: str, missing: str) -> None:
    point, X, B = planted(5, n=30, m=25, D=7, k=k, t=t, noise=noise)
    X, B = sets_with_missing(X, B, missing)
    if not np.isnan(X).any():  # complete rows are always taken about their sample mean
        point = point._replace(mean=X.mean(axis=0))
    if not np.isnan(B).any():
        point = point._replace(background_mean=B.mean(axis=0))
    L = np.hstack([point.S, point.W])
    sets = []
    for rows, mean, columns in ((X, point.mean, k + t), (B, point.background_mean, k)):
        (compressed,) = data.prepare([rows]).sets
        assert not isinstance(compressed, ScaleMixtureRows | GeneralisedRows)
        found = compressed.statistics(Loadings(L[:, :columns]), point.psi, mean)
        sets.append(SetStatistics(found, np.arange(columns)))
    step = loading_step(sets, k + t, point.psi, np.zeros((1, k + t)), np.arange(0))
    expected = joint_update(point, X, B, isotropic=False)
    np.testing.assert_allclose(step.loadings.mean, np.hstack([expected.S, expected.W]), atol=1e-9)
    np.testing.assert_allclose(step.square / step.entries, expected.psi, rtol=1e-8)
    change, background_change = mean_changes(sets, step.loadings)
    np.testing.assert_allclose(point.mean + change, expected.mean, atol=1e-9)
    changed = point.background_mean + background_change
    np.testing.assert_allclose(changed, expected.background_mean, atol=1e-9)
