"""Annotations after the fact: shares, p-values that respect replicates, sentences."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LinearRegression

import contrastive_lvm as clvm
from contrastive_lvm.exceptions import InvalidDataError
from contrastive_lvm.resampling.annotations import annotation_sentences, explained


def latents(groups: Any, rng: np.random.Generator) -> dict[str, Any]:
    """Latents that rows of a replicate have nearly in common."""
    means = rng.standard_normal((groups.max() + 1, 2))
    return {"target": means[groups] + 0.3 * rng.standard_normal((len(groups), 2))}


def test_share_is_that_of_a_regression() -> None:
    rng = np.random.default_rng(0)
    Z = rng.standard_normal((60, 3))
    kind, dose = rng.integers(0, 3, 60), rng.standard_normal(60)
    dose[:5] = np.nan
    Z[:, 0] += kind
    table = explained({"target": Z}, pd.DataFrame({"kind": kind, "dose": dose}), None, 19)
    for predictors, rows, share in (
        (np.eye(3)[kind], slice(None), table.explained[0]),
        (dose[5:, None], slice(5, None), table.explained[1]),
    ):
        fitted = LinearRegression().fit(predictors, Z[rows]).predict(predictors)
        own = Z[rows] - Z[rows].mean(axis=0)
        wanted = ((fitted - Z[rows].mean(axis=0)) ** 2).sum() / (own**2).sum()
        assert share == pytest.approx(wanted, abs=1e-12)


@pytest.mark.parametrize("shared_by", ["replicate", "row"])
def test_pvalues_hold_their_level_where_rows_of_a_replicate_are_alike(shared_by: str) -> None:
    """Permuted as if rows were independent, an annotation of replicates is found every time."""
    rng, groups = np.random.default_rng(1), np.repeat(np.arange(12), np.tile([2, 6], 6))
    small, naive = [], []
    for _ in range(100):
        spaces = latents(groups, rng)
        kind = rng.permutation(np.arange(12) % 2)[groups]
        kind = kind if shared_by == "replicate" else rng.integers(0, 2, len(groups))
        frame = pd.DataFrame({"kind": kind})
        found = explained(spaces, frame, groups, 39, rng)
        naive.append(explained(spaces, frame, None, 39, rng).pvalue[0] <= 0.05)
        small.append(found.pvalue[0] <= 0.05)
        assert (
            found.permuted[0] == {"replicate": "replicates", "row": "within replicates"}[shared_by]
        )
    assert np.mean(small) <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / 100)
    if shared_by == "replicate":
        assert np.mean(naive) > 0.3


def test_model_and_sentences() -> None:
    data = clvm.datasets.make_subgroups(random_state=0)
    model = clvm.ContrastiveLVM(2, 10, latent_prior=clvm.Mixture(4))
    model.fit(data.target, background=data.background)
    kinds = np.array(["a", "b", "c", "Ts65Dn"])[data.target_labels]
    kinds[0] = "b"
    frame = pd.DataFrame({"genotype": kinds, "batch": data.target_labels > 1, "same": "one"})
    table = clvm.explain_annotations(model, data.target, frame, random_state=0)
    assert list(table.of) == 2 * ["target", "shared", "subgroups"]
    assert (table.pvalue[table.of != "shared"] == 0.001).all()
    assert (table.pvalue[table.of == "shared"] > 0.05).all()
    said = annotation_sentences(table, frame, model.predict(data.target))
    assert "Subgroup 4 is nearly all a (genotype)." in said
    assert "Subgroup 1 is all Ts65Dn (genotype)." in said
    assert any(
        text.startswith("batch explains 50% of the variance of the target latents") for text in said
    )
    assert sum(text.endswith("check whether that is technical.") for text in said) == 1
    with pytest.raises(InvalidDataError, match="has 3 rows, but X has 400"):
        clvm.explain_annotations(model, data.target, frame[:3])


def test_sentences_account_for_their_number() -> None:
    """Twenty annotations of chance: at most one family in twenty says anything."""
    rng, spoken = np.random.default_rng(2), 0
    for _ in range(40):
        frame = pd.DataFrame(rng.integers(0, 2, (50, 10)).astype(str)).add_prefix("a")
        spaces = {"target": rng.standard_normal((50, 2))}
        table = explained(spaces, frame, None, 399, rng)
        spoken += bool(annotation_sentences(table.assign(by_chance=-1.0), frame, None))
    assert spoken <= 6
