"""`anndata.fit` with any number of groups."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import contrastive_lvm as clvm

anndata = pytest.importorskip("anndata")


@pytest.fixture
def cells() -> Any:
    data = clvm.datasets.make_multi_set(n_features=12, random_state=0)
    order = np.random.default_rng(0).permutation(len(data.rows))
    obs = pd.DataFrame({"condition": data.sets[order]}, [str(i) for i in range(len(order))])
    obs.loc["5", "condition"] = None
    obs["donor"] = [f"d{i % 7}" for i in range(len(order))]
    return anndata.AnnData(data.rows[order], obs=obs)


BLOCKS: Any = {
    "shared": 3,
    "late": clvm.Block(1, sets=["b", "c"]),
    "c/d": clvm.Block(1, sets=["c"]),
}


def test_latents_and_loadings_are_written(cells: Any, tmp_path: Path) -> None:
    model = clvm.anndata.fit(
        cells, clvm.MultiSetLVM(BLOCKS), groupby="condition", replicates="donor"
    )
    labels = cells.obs["condition"].to_numpy(dtype=object)
    known = pd.notna(labels)
    expected = model.latents(cells.to_df()[known], sets=labels[known]).mean
    np.testing.assert_allclose(cells.obsm["X_clvm_shared"][known], expected["shared"])
    late = np.nan_to_num(expected["late"])
    np.testing.assert_allclose(cells.obsm["X_clvm_late"][known], late)
    assert (cells.obsm["X_clvm_late"][labels == "a"] == 0).all()
    assert (cells.obsm["X_clvm_shared"][~known] == 0).all()
    assert cells.varm["clvm_c_d_loadings"].shape == (12, 1)
    assert list(model.feature_names_in_) == list(cells.var_names)
    cells.write_h5ad(tmp_path / "cells.h5ad")
    again = anndata.read_h5ad(tmp_path / "cells.h5ad")
    assert set(again.uns["clvm"]["variance_ratio"]) == {"shared", "late", "c_d", "noise"}


def test_what_makes_no_sense_is_refused(cells: Any) -> None:
    with pytest.raises(ValueError, match="target='a' does not apply"):
        clvm.anndata.fit(cells, clvm.MultiSetLVM(BLOCKS), groupby="condition", target="a")
    with pytest.raises(ValueError, match="target=None"):
        clvm.anndata.fit(cells, clvm.ContrastiveLVM(1, 1), groupby="condition")
