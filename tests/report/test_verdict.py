"""The sentence that says whether the structure is real."""

from types import SimpleNamespace
from typing import Any

import pytest

from contrastive_lvm.report.evidence import not_tested, verdict


def made(pvalue: float, n_target: int) -> Any:
    pvalues = [pvalue] * max(1, n_target)
    return SimpleNamespace(pvalue=pvalue, pvalues=pvalues, n_target=n_target, method="permutation")


@pytest.mark.parametrize(
    ("pvalue", "supported", "shown", "sentence", "level"),
    [
        (
            0.001,
            2,
            2,
            "Target and background differ: p = 0.001, two dimensions supported.",
            "good",
        ),
        (
            0.001,
            1,
            2,
            (
                "Target and background differ: p = 0.001, one dimension supported; the test does "
                "not say which of the two below it is."
            ),
            "care",
        ),
        (
            0.02,
            3,
            2,
            (
                "Target and background differ: p = 0.02, three dimensions supported, of which the "
                "model has two."
            ),
            "good",
        ),
        (
            0.41,
            0,
            2,
            (
                "No evidence that the target has structure of its own (p = 0.41); the dimensions "
                "below describe noise."
            ),
            "care",
        ),
        (0.41, 0, None, "No evidence that the target has structure of its own (p = 0.41).", "care"),
    ],
)
def test_the_verdict_is_a_sentence(
    pvalue: float, supported: int, shown: int | None, sentence: str, level: str
) -> None:
    found = verdict(made(pvalue, supported), shown)
    assert (found["sentence"], found["level"]) == (sentence, level)
    assert (found["pvalue"], found["n_target"]) == (pvalue, supported)


def test_a_verdict_without_a_test_has_no_numbers() -> None:
    found = not_tested("the data are counts; test their logarithms")
    assert found["sentence"].startswith(
        "Whether the target has structure of its own was not tested"
    )
    assert found["pvalue"] is None
    assert found["n_target"] is None
