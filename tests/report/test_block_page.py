"""The report of a model of several sets."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import contrastive_lvm as clvm

DATA = clvm.datasets.make_multi_set(random_state=0)
BLOCKS: dict[str, Any] = {
    "shared": 3,
    "b+c": clvm.Block(1, sets=["b", "c"]),
    "<c>": clvm.Block(1, sets=["c"]),
    "a": clvm.Block(1, sets=["a"]),
}
MODEL = clvm.MultiSetLVM(BLOCKS).fit(DATA.rows, sets=DATA.sets)


def sentences(path: Path) -> list[str]:
    return re.findall("<li>([^<]*)", path.read_text(encoding="utf-8"))


def test_the_page_tests_every_block_and_shows_errors(tmp_path: Path) -> None:
    path = MODEL.report(tmp_path / "page.html", DATA.rows, sets=DATA.sets, title="A & B")
    text, (shared, drugs, own, noise, end) = path.read_text(encoding="utf-8"), sentences(path)
    assert "all sets have it" in shared
    assert drugs.startswith("b+c: rows of b and c have structure that rows of a lack (p = 0.001)")
    assert own.startswith("&lt;c&gt;: rows of c have")
    assert "no evidence that rows of a have" in noise
    assert "converged" in end
    assert "<title>A &amp; B</title>" in text
    assert "<script" not in text
    assert text.count("data:image/svg+xml") == 2
    found = clvm.bootstrap(MODEL, DATA.rows, sets=DATA.sets, n_resamples=200, random_state=0)
    error, row = found.components_std["b+c"], MODEL.components_["b+c"][0]
    assert error is not None
    i = int(np.abs(row).argmax())
    assert f"x{i} {row[i]:+.3g} ± {error[0, i]:.2g}" in text


def test_covariates_replicates_and_missing_entries(tmp_path: Path) -> None:
    rng, rows = np.random.default_rng(0), DATA.rows.copy()
    rows[rng.random(rows.shape) < 0.05] = np.nan
    facts: dict[str, Any] = {"covariates": rng.standard_normal(len(rows)), "sets": DATA.sets}
    blocks = {name: block for name, block in BLOCKS.items() if name != "a"}
    model = clvm.MultiSetLVM(blocks).fit(rows, **facts)
    groups = np.arange(len(rows)) // 10
    path = model.report(tmp_path / "page.html", rows, groups=groups, **facts)
    assert "p = 0.0" in sentences(path)[1]
    assert "±" not in path.read_text(encoding="utf-8")


def test_counts_are_not_tested(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    counts, sets = rng.poisson(3.0, (40, 6)).astype(float), np.repeat(["a", "b"], 20)
    blocks: dict[str, Any] = {"shared": 1, "b": clvm.Block(1, sets=["b"])}
    model = clvm.MultiSetLVM(blocks, likelihood="poisson").fit(counts, sets=sets)
    path = model.report(tmp_path / "page.html", counts, sets=sets)
    assert "b: not tested: likelihood=Poisson" in sentences(path)[1]


def test_a_model_must_be_fitted(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not fitted"):
        clvm.MultiSetLVM(BLOCKS).report(tmp_path / "page.html", DATA.rows, sets=DATA.sets)


def test_loadings_of_blocks_are_drawn_with_their_intervals() -> None:
    found = clvm.bootstrap(MODEL, DATA.rows, sets=DATA.sets, n_resamples=20, random_state=0)
    ax = clvm.plots.plot_loadings(MODEL, of="b+c", n=5, bootstrap=found)
    assert ax.get_xlabel() == "loading, with 90% intervals"
    assert ax.get_title(loc="left").startswith("b+c 1")
    with pytest.raises(ValueError, match="of='target'"):
        clvm.plots.plot_loadings(MODEL)
