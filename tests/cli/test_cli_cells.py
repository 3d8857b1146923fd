"""Cells on the command line: layers of h5ad files, and size factors that a column gives."""

import json
import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

import contrastive_lvm as clvm
from contrastive_lvm.cli.main import run
from contrastive_lvm.io.model_files import read_model, write_model

Capture = pytest.CaptureFixture[str]
RNG = np.random.default_rng(0)
COUNTS = RNG.poisson(np.exp(RNG.normal(size=(80, 1)) * RNG.normal(size=6)), size=(80, 6))
DEPTH = RNG.uniform(0.5, 2.0, size=80)
GENES = [f"g{i}" for i in range(6)]
BY = ["--by", "group", "--target", "case"]
SMALL = ["--n-target", "1", "--n-shared", "1"]


def cells(path: Path) -> Path:
    """X holds logarithms, a layer the counts, and raw the counts of more genes."""
    anndata = pytest.importorskip("anndata", reason="anndata is not installed")
    group = ["case"] * 50 + ["control"] * 30
    obs = pd.DataFrame({"group": group, "depth": DEPTH}, index=[f"c{i}" for i in range(80)])
    more = np.hstack([COUNTS, COUNTS[:, :1] + 1]).astype(np.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        raw = anndata.AnnData(more, obs=obs, var=pd.DataFrame(index=[*GENES, "extra"]))
        file = anndata.AnnData(np.log1p(more[:, :6]), obs=obs, var=pd.DataFrame(index=GENES))
        file.raw = raw
        file.layers["counts"] = sparse.csr_matrix(COUNTS.astype(np.float32))
        file.write_h5ad(path)
    return path


def ran(capsys: Capture, *arguments: object) -> dict[str, Any]:
    capsys.readouterr()
    assert run([*map(str, arguments), "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def refused(capsys: Capture, *arguments: object) -> str:
    assert run([*map(str, arguments)]) == 2
    error = capsys.readouterr().err
    error = error[error.index("clvm: ") :]  # what was read is said before
    assert error.count("\n") == 1
    return error


@pytest.mark.parametrize("layer", [None, "X", "counts", "raw"])
def test_a_layer_is_modelled_and_read_again(
    layer: str | None, tmp_path: Path, capsys: Capture
) -> None:
    path, model = cells(tmp_path / "c.h5ad"), tmp_path / "m.clvm"
    option = [] if layer is None else ["--layer", layer]
    facts = ran(capsys, "fit", path, *BY, *SMALL, *option, "-o", model)
    values = {"counts": COUNTS, "raw": np.hstack([COUNTS, COUNTS[:, :1] + 1])}.get(
        layer or "X", np.log1p(COUNTS)
    )
    names = [*GENES, "extra"] if layer == "raw" else GENES
    rows = pd.DataFrame(values.astype(float), columns=names)
    expected = clvm.ContrastiveLVM(1, 1).fit(rows[:50], background=rows[50:])
    assert facts["lower_bound"] == pytest.approx(expected.lower_bound_, rel=1e-4)  # float32
    given = ran(capsys, "transform", model, path, "--where", "group=case")
    np.testing.assert_allclose(given["values"], expected.transform(rows[:50]), atol=1e-2)
    # Other formats have no layers: the numbers there are what the layer held.
    rows.to_csv(tmp_path / "c.csv", index=False)
    again = ran(capsys, "transform", model, tmp_path / "c.csv")
    np.testing.assert_allclose(again["values"][:50], given["values"], atol=1e-3)


def test_layers_that_are_not_there(tmp_path: Path, capsys: Capture) -> None:
    path = cells(tmp_path / "c.h5ad")
    out = ["-o", tmp_path / "m.clvm"]
    error = refused(capsys, "fit", path, *BY, "--layer", "spliced", *out)
    assert "has no layer 'spliced'; it has counts, raw, beside X." in error
    np.save(tmp_path / "x.npy", COUNTS)
    error = refused(capsys, "fit", path, tmp_path / "x.npy", "--layer", "counts", *out)
    assert re.search(r"--layer=counts needs .h5ad files, but .*x.npy is not one", error)
    assert not (tmp_path / "m.clvm").exists()


def test_models_of_a_layer_refuse_files_without_it(tmp_path: Path, capsys: Capture) -> None:
    anndata = pytest.importorskip("anndata", reason="anndata is not installed")
    path, model = cells(tmp_path / "c.h5ad"), tmp_path / "m.clvm"
    ran(capsys, "fit", path, *BY, *SMALL, "--layer", "counts", "-o", model)
    file = anndata.read_h5ad(path)
    del file.layers["counts"], file.raw
    file.write_h5ad(path)
    assert "has no layer 'counts'; it has none" in refused(capsys, "transform", model, path)


def test_layers_and_columns_that_are_no_text_are_refused(tmp_path: Path, capsys: Capture) -> None:
    path, model = cells(tmp_path / "c.h5ad"), tmp_path / "m.clvm"
    ran(capsys, "fit", path, *BY, *SMALL, "-o", model)
    estimator, preparation = read_model(model)
    for odd in ({"layer": 3}, {"sizes": ["a"]}):
        write_model(estimator, model, preparation._replace(**odd))
        assert "is damaged: its preparation" in refused(capsys, "transform", model, path)


def test_size_factors_from_a_column(tmp_path: Path, capsys: Capture) -> None:
    pytest.importorskip("jax", reason="jax is not installed")
    frame = pd.DataFrame(COUNTS, columns=GENES)
    frame["group"], frame["depth"] = ["case"] * 50 + ["control"] * 30, DEPTH
    path, model = tmp_path / "c.csv", tmp_path / "m.clvm"
    frame.to_csv(path, index=False)
    poisson = ["--likelihood", "poisson", "--inference", "svi:max_iter=200", "--size-factors"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        facts = ran(capsys, "fit", path, *BY, *SMALL, *poisson, "depth", "-o", model)
        expected = clvm.ContrastiveLVM(
            1, 1, likelihood="poisson", inference=clvm.SVI(max_iter=200), random_state=0
        ).fit(
            frame.loc[:49, GENES],
            background=frame.loc[50:, GENES],
            size_factors=DEPTH[:50],
            background_size_factors=DEPTH[50:],
        )
    assert facts["features"] == 6  # the column is no feature
    assert facts["lower_bound"] == pytest.approx(expected.lower_bound_, rel=1e-5)
    given = ran(capsys, "transform", model, path, "--where", "group=case")["values"]
    latents = expected.transform(frame.loc[:49, GENES], size_factors=DEPTH[:50])
    np.testing.assert_allclose(given, latents, atol=1e-4)
    for command in ("impute", "denoise"):
        assert np.shape(ran(capsys, command, model, path)["values"]) == (80, 6)
    frame.drop(columns="depth").to_csv(path, index=False)
    error = refused(capsys, "transform", model, path)
    assert "--size-factors: " in error
    assert "has no column 'depth'; add it" in error


@pytest.mark.parametrize("odd", ["0", "-1", "", "many", "inf"])
def test_size_factors_are_positive_numbers(odd: str, tmp_path: Path, capsys: Capture) -> None:
    frame = pd.DataFrame(COUNTS, columns=GENES)
    frame["group"] = ["case"] * 50 + ["control"] * 30
    frame["depth"] = ["1"] * 60 + [odd] + ["2"] * 19
    frame.to_csv(tmp_path / "c.csv", index=False)
    options = ["--likelihood", "poisson", "--size-factors", "depth", "-o", tmp_path / "m.clvm"]
    error = refused(capsys, "fit", tmp_path / "c.csv", *BY, *SMALL, *options)
    assert re.search(r"column 'depth' of .*c.csv has '.*' in row 61; give one positive", error)
