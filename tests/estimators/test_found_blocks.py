"""Sizes of blocks that are found from the data: which dimensions does which set have?"""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import contrastive_lvm as clvm
from contrastive_lvm import Block
from contrastive_lvm.exceptions import InvalidDataError, InvalidParameterError

OWN = clvm.Gaussian("feature", "own")


def planted(seed: int) -> tuple[dict[str, int], Any]:
    """Draw rows of three to five sets with some patterns, each of one to three dimensions."""
    rng = np.random.default_rng([seed, 5])
    names = list("abcde"[: rng.integers(3, 6)])
    patterns = ["+".join(b.sets or ()) for b in clvm.designs.all_patterns(names).values()]
    chosen = rng.permutation(patterns[1:])[: rng.integers(1, 5)]
    truth = {patterns[0]: int(rng.integers(1, 4))}
    truth |= {str(name): int(rng.integers(1, 3)) for name in chosen}
    size = {"n_rows": int(rng.integers(80, 300)), "n_features": int(rng.integers(25, 50))}
    data = clvm.datasets.make_multi_set(truth, noise_std=1.0, random_state=seed, **size)
    return truth, data


def found_in(model: clvm.MultiSetLVM) -> dict[str, int]:
    return {"+".join(b.sets or ()): int(b.n_components) for b in model.blocks_.values()}


@pytest.mark.parametrize(
    "seed", [0, 1, *(pytest.param(i, marks=pytest.mark.slow) for i in range(2, 20))]
)
def test_planted_patterns_are_found(seed: int) -> None:
    truth, data = planted(seed)
    model = clvm.MultiSetLVM("auto", likelihood=OWN).fit(data.rows, sets=data.sets)
    assert found_in(model) == truth
    table = model.block_evidence_
    assert table is not None
    assert (table["next_gain"] < table["needed"]).all()
    present = table["n_components"] > 0
    assert (table.loc[present, "gain"] > table.loc[present, "needed"]).all()


def test_missing_entries_and_heavy_tails() -> None:
    truth = {"a+b+c": 2, "b+c": 1, "c": 1}
    data = clvm.datasets.make_multi_set(truth, noise_std=0.7, random_state=3)
    rng = np.random.default_rng(0)
    data.rows[rng.random(data.rows.shape) < 0.1] = np.nan
    model = clvm.MultiSetLVM("auto").fit(data.rows, sets=data.sets)
    assert found_in(model) == truth
    data.rows[rng.random(data.rows.shape) < 0.01] += 30.0
    robust = clvm.MultiSetLVM("auto", likelihood="student_t").fit(data.rows, sets=data.sets)
    assert found_in(robust) == truth


def test_only_blocks_that_were_allowed() -> None:
    data = clvm.datasets.make_multi_set({"a+b": 2, "b": 1}, random_state=0)
    blocks: Any = {"both": 2, "b": Block("auto", sets=["b"]), "a": Block("auto", sets=["a"])}
    model = clvm.MultiSetLVM(blocks).fit(data.rows, sets=data.sets)
    assert {name: b.n_components for name, b in model.blocks_.items()} == {"both": 2, "b": 1}
    table: Any = model.block_evidence_
    assert table["n_components"].to_dict() == {"both": 2, "b": 1, "a": 0}


def test_a_set_of_noise_has_no_block() -> None:
    data = clvm.datasets.make_multi_set({"a+b": 2}, random_state=0)
    noise = np.random.default_rng(0).standard_normal((100, 20))
    X, sets = np.vstack([data.rows, noise]), np.append(data.sets, ["c"] * 100)
    model = clvm.MultiSetLVM("auto", likelihood=OWN).fit(X, sets=sets)
    assert found_in(model) == {"a+b": 2}
    assert (model.transform(X, sets=sets)[sets == "c"] == 0).all()
    assert np.isfinite(model.score(X, sets=sets))


@pytest.mark.parametrize("seed", range(3))
def test_noise_alone_is_refused(seed: int) -> None:
    X = np.random.default_rng(seed).standard_normal((120, 15))
    with pytest.raises(InvalidDataError, match="supports no latent dimension"):
        clvm.MultiSetLVM("auto").fit(X, sets=np.repeat(["a", "b"], 60))


def test_a_saved_model_keeps_its_evidence(tmp_path: Path) -> None:
    data = clvm.datasets.make_multi_set(random_state=0)
    model = clvm.MultiSetLVM("auto").fit(data.rows, sets=data.sets)
    model.save(tmp_path / "m.clvm")
    loaded = clvm.load_model(tmp_path / "m.clvm")
    assert loaded.blocks_ == model.blocks_
    one, two = loaded.block_evidence_, model.block_evidence_
    assert two is not None
    pd.testing.assert_frame_equal(one, two)


def test_engines_and_sets_that_cannot_be_searched() -> None:
    data = clvm.datasets.make_multi_set(random_state=0)
    with pytest.raises(InvalidParameterError, match="needs inference='em' or 'vb'"):
        clvm.MultiSetLVM("auto", inference=clvm.SVI()).fit(data.rows, sets=data.sets)
    with pytest.raises(InvalidParameterError, match="at most 8 sets"):
        clvm.MultiSetLVM("auto").fit(data.rows, sets=np.arange(300) % 9)


def test_covariates_are_not_taken_for_dimensions() -> None:
    truth = {"a+b+c": 2, "b+c": 1}
    data = clvm.datasets.make_multi_set(truth, random_state=2)
    rng = np.random.default_rng(0)
    age = rng.standard_normal(len(data.rows))
    X = data.rows + 3.0 * age[:, None] * rng.standard_normal(20)
    frame = pd.DataFrame({"age": age})
    model = clvm.MultiSetLVM("auto").fit(X, sets=data.sets, covariates=frame)
    assert found_in(model) == truth
