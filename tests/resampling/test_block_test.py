"""The test of one block of a model of several sets."""

from typing import Any

import numpy as np
import pytest

import contrastive_lvm as clvm
from contrastive_lvm.arrays import Array
from contrastive_lvm.resampling.compared_rows import sides_of_block

SETS = np.repeat(["a", "b", "c"], [60, 70, 80])
BLOCKS: dict[str, Any] = {
    "shared": 2,
    "b+c": clvm.Block(1, sets=["b", "c"]),
    "c": clvm.Block(1, sets=["c"]),
}


def rows_of(seed: int, of_both: float = 1.5, own: float = 1.5) -> Array:
    """Draw rows of three sets; two blocks have loadings of these sizes."""
    rng = np.random.default_rng(seed)
    S, drugs, alone = (rng.standard_normal((12, n)) for n in (2, 1, 1))
    rows: Array = 5.0 * rng.standard_normal((3, 12))[np.repeat(range(3), [60, 70, 80])]
    rows += rng.standard_normal((210, 12)) + rng.standard_normal((210, 2)) @ S.T
    for size, loadings, sets in ((of_both, drugs, "bc"), (own, alone, "c")):
        has = np.isin(SETS, list(sets))
        rows[has] += size * rng.standard_normal((has.sum(), 1)) @ loadings.T
    return rows


def pvalue(rows: Array, block: str, seed: int = 0, **options: Any) -> float:
    model = clvm.MultiSetLVM(BLOCKS)
    given: dict[str, Any] = {"sets": SETS, "block": block, "model": model, "n_resamples": 39}
    return clvm.contrast_test(rows, **given, **options, random_state=seed).pvalue


@pytest.mark.parametrize("block", ["b+c", "c"])
def test_blocks_are_found(block: str) -> None:
    assert pvalue(rows_of(0), block) <= 0.05


@pytest.mark.parametrize(("block", "sizes"), [("b+c", (0.0, 1.5)), ("c", (1.5, 0.0))])
def test_a_block_is_not_found_where_another_has_the_structure(
    block: str, sizes: tuple[float, float]
) -> None:
    found = [pvalue(rows_of(seed, *sizes), block, seed) for seed in range(12)]
    assert np.median(found) > 0.1


def test_two_sets_are_compared_as_target_and_background() -> None:
    rows = rows_of(1)[SETS != "b"]
    X, B = rows[60:], rows[:60]
    sets = np.repeat(["background", "target"], [60, 80])
    model = clvm.MultiSetLVM({"shared": 2, "target": clvm.Block(2, sets=["target"])})
    options: dict[str, Any] = {"n_resamples": 39, "random_state": 0}
    found = clvm.contrast_test(rows, sets=sets, block="target", model=model, **options)
    expected = clvm.contrast_test(X, background=B, **options)
    assert found.pvalue == expected.pvalue
    np.testing.assert_allclose(found.null_distribution, expected.null_distribution)


def test_replicates_covariates_missing_entries_and_the_order_of_rows() -> None:
    rng, rows = np.random.default_rng(0), rows_of(2)
    age = rng.standard_normal(210)
    rows = rows + 4.0 * np.outer(age * (1.0 + (SETS == "c")), rng.standard_normal(12))
    rows[rng.random(rows.shape) < 0.05] = np.nan
    groups = np.arange(210) // 5
    model = clvm.MultiSetLVM(BLOCKS)
    order = rng.permutation(210)
    found = clvm.contrast_test(
        rows[order],
        sets=SETS[order],
        block="c",
        model=model,
        groups=groups[order],
        covariates=age[order],
        n_resamples=39,
        random_state=0,
    )
    assert "permutations of 42 replicates" in found.method
    assert found.pvalue <= 0.05


def test_directions_of_other_blocks_become_noise() -> None:
    rows, rng = rows_of(3), np.random.default_rng(0)
    likelihood = clvm.Gaussian(sets="own")
    model = clvm.MultiSetLVM(BLOCKS, likelihood=likelihood).fit(rows, sets=SETS)
    given = sides_of_block(model, rows, SETS, "c", SETS, None)
    others = given.others
    assert others is not None
    assert (np.concatenate(given.groups) == np.array(["a", "b", "c"])[others.set_of_row]).all()
    np.testing.assert_array_equal(others.loadings, model.components_["b+c"].T)  # c is clearly there
    changed = others.replace(np.zeros((210, 12)), rng)
    for s, name in enumerate("abc"):
        own = changed[others.set_of_row == s]
        u = others.loadings[:, 0] / np.linalg.norm(others.loadings)
        np.testing.assert_allclose(own, np.outer(own @ u, u), atol=1e-12)
        assert 0.5 < (own @ u).var() / model.noise_variance_[name] < 2.0


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"block": "shared"}, "all sets have, so there are no rows"),
        ({"block": "d"}, "block='d' is not a block of the model"),
        ({"block": "c", "background": rows_of(0)}, "background"),
        ({"model": clvm.ContrastiveLVM(), "block": "c"}, "needs model=MultiSetLVM"),
        ({"model": None, "sets": None}, "background=None is missing"),
        ({"block": "c", "model": clvm.MultiSetLVM(BLOCKS, likelihood="poisson")}, "counts|no test"),
    ],
)
def test_refused(options: dict[str, Any], words: str) -> None:
    given: dict[str, Any] = {"sets": SETS, "model": clvm.MultiSetLVM(BLOCKS), **options}
    with pytest.raises(ValueError, match=words):
        clvm.contrast_test(np.abs(rows_of(0)).round(), **given)
